//! The timeline of a job: the known past and future events.

use crate::api::attempts::Attempt;
use crate::api::detail::JobDetail;
use crate::time::Age;

/// A moment in the life of a job.
#[derive(Debug, Default)]
pub(super) struct Moment {
    pub(super) at: String,
    pub(super) what: String,
    /// The class of the mark.
    pub(super) kind: &'static str,
    pub(super) error: String,
    pub(super) backtrace: String,
}

impl Moment {
    /// In order.
    pub(super) fn all(detail: &JobDetail) -> Vec<Self> {
        let JobDetail { job, history, .. } = detail;
        let failure = job.failure.as_ref();
        let until = match job.state {
            "leased" => "its lease ends, if nothing happens",
            "scheduled" => "it becomes ready",
            "retrying" => "it is tried again",
            _ => "it is removed, if nothing happens",
        };
        let ready = match job.state {
            "scheduled" => "created",
            _ if history
                .iter()
                .any(|attempt| attempt.ended_at <= job.ready_at) =>
            {
                "ready again"
            }
            _ => "ready",
        };
        // The history contains most failures, but it is limited, and older daemons did not record
        // it.
        let is_missing = |at: &&String| {
            !history
                .iter()
                .any(|attempt| attempt.ended_at.as_ref() == Some(at))
        };
        let others = [
            (ready, job.ready_at.as_ref(), ""),
            (
                "failed first",
                failure
                    .and_then(|it| it.first_at.as_ref())
                    .filter(is_missing),
                "bad",
            ),
            (
                "failed last",
                failure.and_then(|it| it.at.as_ref()).filter(is_missing),
                "bad",
            ),
            (
                "taken by its worker",
                job.lease.as_ref().and_then(|lease| lease.since.as_ref()),
                "",
            ),
            (until, job.until.as_ref(), "soon"),
        ];
        let others = others.into_iter().filter_map(|(what, at, kind)| {
            Some(Self {
                at: at?.clone(),
                what: what.to_owned(),
                kind,
                ..Self::default()
            })
        });
        let mut moments: Vec<_> = history.iter().filter_map(Self::of).chain(others).collect();
        // All times have the same format, so sorting them as text sorts them by time.
        moments.sort_by(|one, other| one.at.cmp(&other.at));
        moments
    }

    fn of(attempt: &Attempt) -> Option<Self> {
        let (what, kind) = match attempt.end {
            "lost" => ("its worker was lost", "bad"),
            "released" => ("given back", ""),
            "taken back" => ("taken back from its worker", ""),
            "unconvertible" => ("no form for the worker's protocol", "bad"),
            end => (end, "bad"),
        };
        let worker = attempt
            .worker
            .as_ref()
            .map_or_else(String::new, |worker| format!(" by {worker}"));
        let what = format!(
            "attempt {}{worker}: {what} after {}",
            attempt.number,
            Age::of_seconds(attempt.seconds)
        );
        let (error, backtrace) = (attempt.error(), attempt.backtrace.join("\n"));
        Some(Self {
            at: attempt.ended_at.clone()?,
            what,
            kind,
            error,
            backtrace,
        })
    }
}
