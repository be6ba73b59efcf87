//! The history of a job: deliveries that did not succeed.

use std::time::Duration;

use super::views::text;
use crate::name::Name;
use crate::time::moment_text;
use crate::view::view;

view! {
    /// A delivery of a job that did not succeed. Its texts are cut to a few hundred bytes.
    Attempt(attempt: &windlass_engine::Attempt) with {
        let error = attempt.error.as_deref();
        let lines = error.map(|error| text(&error.backtrace));
    } {
        /// Which delivery of the job it was, from 1.
        number: u32 = attempt.number,
        /// The worker's name, or else its address; null if neither is known.
        worker: Option<Name> = Name::of(&attempt.worker),
        /// When the worker got the job.
        began_at: Option<String> = moment_text(attempt.began_at),
        /// When it ended.
        ended_at: Option<String> = moment_text(attempt.ended_at),
        /// How long the worker had the job.
        seconds: f64 = Duration::from_millis(attempt.ended_at.ms_since(attempt.began_at)).as_secs_f64(),
        /// `failed`: the worker reported a failure. `lost`: the worker was lost. `timed out`: its lease ran out.
        /// `released`: the worker gave the job back. `taken back`: an operator, or another client, took it back. `unconvertible`: the job has no form in
        /// the worker's protocol.
        end: &'static str = attempt.end.name(),
        /// The class of the error.
        kind: Option<String> = error.map(|error| text(&error.kind)),
        /// The error message.
        message: Option<String> = error.map(|error| text(&error.message)),
        /// The first lines of a stack trace; only of the last attempts.
        backtrace: Vec<String> = lines.iter().flat_map(|lines| lines.lines()).map(str::to_owned).collect(),
    }
}

impl Attempt {
    /// The class and the message of the error, as far as they are known.
    pub(crate) fn error(&self) -> String {
        let parts = [&self.kind, &self.message]
            .into_iter()
            .flatten()
            .filter(|text| !text.is_empty());
        parts.map(String::as_str).collect::<Vec<_>>().join(": ")
    }
}
