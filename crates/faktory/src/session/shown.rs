//! A job's text for display and for conditions: as a worker would get it.
//!
//! Rules: deployed servers, whose MUTATE compares this text.

use std::borrow::Cow;

use windlass_bridge::Bridge;
use windlass_engine::{Codec, Job, JobState};

use super::fetch::{Source, failure_text};
use crate::wire::Text;

/// Whether one of FWP's jobs has this type.
pub(crate) fn has_type(job: &Job, jobtype: &str) -> bool {
    Text::new(&stored(job)).is_some_and(|text| text.has_jobtype(jobtype))
}

/// The text of one of FWP's jobs; `None` if its body is none. `skew_ms` is the wall clock minus the engine's.
pub(crate) fn text(job: &Job, skew_ms: i64) -> Option<Vec<u8>> {
    Some(whole(job, Text::new(&stored(job))?, skew_ms))
}

/// The text as it is stored, which contains the queue.
fn stored(job: &Job) -> Cow<'_, [u8]> {
    source(job, b"").shown(&Bridge::default())
}

/// The source of a job's text.
pub(super) fn source<'a>(job: &'a Job, queue: &'a [u8]) -> Source<'a> {
    Source {
        id: job.id,
        protocol: job.protocol,
        named: !job.name().is_empty(),
        queue,
        body: job.body(),
        codec: Codec::default(),
        key: job.key().unwrap_or_default(),
        priority: job.priority,
        retries: job.retry.failures_max,
        since: job.ready_at,
    }
}

/// A job's text as a worker would get it. `skew_ms` is the wall clock minus the engine's.
pub(super) fn whole(job: &Job, text: Text<'_>, skew_ms: i64) -> Vec<u8> {
    let failure = job.extra.as_deref().and_then(|extra| extra.failure.as_deref());
    let tried_at = if let JobState::Retrying(at) = job.state { at.shifted(skew_ms) } else { job.ready_at };
    let failure = failure_text(failure, job.failures, job.retry.failures_max, tried_at);
    text.whole(failure.as_ref(), was_enqueued(job).then_some(job.ready_at.0))
}

/// Whether the job has ever been ready.
const fn was_enqueued(job: &Job) -> bool {
    job.attempts > 0 || matches!(job.state, JobState::Ready | JobState::Leased(_))
}
