//! A job's text: for its worker, for display and for conditions.
//!
//! Rules: deployed servers, whose MUTATE compares the text as a worker would get it.

use std::borrow::Cow;

use windlass_bridge::{Bridge, Unconvertible};
use windlass_engine::{Codec, Failure, Job, JobId, JobState, Priority, Protocol, Timestamp};

use crate::bridge::{Unit, unconverted, unit};
use crate::wire::{self, FailureText, Text, jid_of, run_text, time_text};

/// The engine's failure of an expired lease, and the message that deployed servers use for it.
const EXPIRED: &[u8] = b"ReservationExpired";
const EXPIRED_MESSAGE: &[u8] = b"job reservation expired";
const EXPIRED_WORDS: &str = "Faktory job reservation expired";

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
    let failure = job
        .extra
        .as_deref()
        .and_then(|extra| extra.failure.as_deref());
    let tried_at = if let JobState::Retrying(at) = job.state {
        at.shifted(skew_ms)
    } else {
        job.ready_at
    };
    let failure = failure_text(failure, job.failures, job.retry.failures_max, tried_at);
    text.whole(
        failure.as_ref(),
        was_enqueued(job).then_some(job.ready_at.0),
    )
}

/// Whether the job has ever been ready.
const fn was_enqueued(job: &Job) -> bool {
    job.attempts > 0 || matches!(job.state, JobState::Ready | JobState::Leased(_))
}

/// The failure for a job's text. `tried_at` is the time of the next or the last retry; it counts if the failure has no
/// such time itself. Jobs without retries have none.
pub(super) fn failure_text(
    failure: Option<&Failure>,
    failures: u32,
    failures_max: i32,
    tried_at: Timestamp,
) -> Option<FailureText<'_>> {
    let failure = failure?;
    let retry = i64::from(failures_max);
    let count = i64::from(failures.saturating_sub(1));
    let expired = failure.kind == EXPIRED && failure.message == EXPIRED_MESSAGE;
    Some(FailureText {
        failed_at_ms: failure.first_at.0,
        next_at_ms: (retry > 0).then_some(failure.next_at.unwrap_or(tried_at).0),
        message: if expired {
            Cow::Borrowed(EXPIRED_WORDS)
        } else {
            String::from_utf8_lossy(&failure.message)
        },
        errtype: String::from_utf8_lossy(&failure.kind),
        backtrace: failure
            .backtrace
            .iter()
            .map(|line| String::from_utf8_lossy(line))
            .collect(),
        retry_count: count,
        remaining: if retry < 0 {
            retry
        } else {
            (retry - count).max(0)
        },
    })
}

/// The parts of a job that its text depends on.
pub(super) struct Source<'a> {
    pub(super) id: JobId,
    pub(super) protocol: Protocol,
    /// The producer gave the job a name.
    pub(super) named: bool,
    pub(super) queue: &'a [u8],
    pub(super) body: &'a [u8],
    pub(super) codec: Codec,
    pub(super) key: &'a [u8],
    pub(super) priority: Priority,
    pub(super) retries: i32,
    pub(super) since: Timestamp,
}

impl<'a> Source<'a> {
    /// The job's text. A job that was pushed here has its stored text. A job of another protocol, or a run of a
    /// schedule, gets the text of an equivalent push.
    ///
    /// # Errors
    ///
    /// The job is of another protocol and cannot be converted.
    pub(super) fn text(&self, bridge: &Bridge) -> Result<Cow<'a, [u8]>, Unconvertible> {
        if self.protocol != Protocol::FAKTORY {
            return unit(bridge, &self.foreign()).map(|unit| Cow::Owned(self.text_of(&unit)));
        }
        Ok(match self.named {
            true => Cow::Borrowed(self.body),
            false => run_text(self.body, &jid_of(self.id.0), self.since.0)
                .map_or(Cow::Borrowed(self.body), Cow::Owned),
        })
    }

    /// The job's text for display. It never fails.
    pub(super) fn shown(&self, bridge: &Bridge) -> Cow<'a, [u8]> {
        self.text(bridge)
            .unwrap_or_else(|_| Cow::Owned(self.text_of(&unconverted(bridge, &self.foreign()))))
    }

    const fn foreign(&self) -> windlass_bridge::Job<'a> {
        let Self {
            protocol,
            queue,
            body,
            codec,
            key,
            priority,
            ..
        } = *self;
        windlass_bridge::Job {
            protocol,
            queue,
            body,
            codec,
            key,
            priority,
        }
    }

    fn text_of(&self, unit: &Unit<'_>) -> Vec<u8> {
        let text = |json| std::str::from_utf8(json).unwrap_or_default();
        let pushed = wire::Unit {
            jid: jid_of(self.id.0).into(),
            queue: String::from_utf8_lossy(self.queue),
            jobtype: unit.jobtype.as_ref().into(),
            args: Some(text(&unit.args)),
            custom: Some(text(&unit.custom)),
            retry: self.retries.into(),
            ..wire::Unit::default()
        };
        Text::of(&pushed, &time_text(self.since.0))
    }
}
