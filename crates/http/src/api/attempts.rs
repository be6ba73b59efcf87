//! The history of a job: deliveries that did not succeed.

use windlass_engine::AttemptEnd;

use super::view::view;
use super::views::text;
use crate::name::Name;
use crate::time::moment_text;

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
        /// `failed`: the worker reported a failure. `lost`: the worker was lost. `timed out`: its lease ran out.
        /// `released`: the worker gave the job back. `taken back`: an operator, or another client, took it back. `unconvertible`: the job has no form in
        /// the worker's protocol.
        end: &'static str = match attempt.end {
            AttemptEnd::Failed => "failed",
            AttemptEnd::Lost => "lost",
            AttemptEnd::TimedOut => "timed out",
            AttemptEnd::Released => "released",
            AttemptEnd::TakenBack => "taken back",
            AttemptEnd::Unconvertible => "unconvertible",
        },
        /// The class of the error.
        kind: Option<String> = error.map(|error| text(&error.kind)),
        /// The error's message.
        message: Option<String> = error.map(|error| text(&error.message)),
        /// The first lines of a stack trace; only of the last attempts.
        backtrace: Vec<String> = lines.iter().flat_map(|lines| lines.lines()).map(str::to_owned).collect(),
    }
}

impl Attempt {
    /// What happened, without the times.
    pub(crate) fn text(&self) -> String {
        let worker = self.worker.as_ref().map_or_else(|| "a worker without a name".to_owned(), Name::to_string);
        let end = match self.end {
            "lost" => "was lost",
            "released" => "gave it back",
            "taken back" => "had it, and it was taken back",
            "unconvertible" => "has no form for it",
            end => end,
        };
        let error = [&self.kind, &self.message].into_iter().flatten().filter(|text| !text.is_empty());
        let error: Vec<&str> = error.map(String::as_str).collect();
        let colon = if error.is_empty() { "" } else { ": " };
        format!("attempt {}: {worker} {end}{colon}{}", self.number, error.join(": "))
    }
}
