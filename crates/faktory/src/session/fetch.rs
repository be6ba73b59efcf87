//! FETCH: one job for a worker, at once or after a wait.
//!
//! Spec: "`FETCH` Command". As on deployed servers, FETCH waits for jobs of all queues of the list, not only of the
//! first.

use std::borrow::Cow;

use bytes::Bytes;
use windlass_bridge::{Bridge, Unconvertible};
use windlass_engine::{
    Codec, Failure, From, JobId, JobRef, LeaseCommand, LeaseTerms, OnExpiry, Priority, Proof, Protocol, Reply, Select,
    Take, TakeCommand, Taken, Timestamp, Wait,
};

use super::ask::Ask;
use super::refusal;
use super::{Answer, FaktorySpeaker, Talk};
use crate::bridge::{Unit, unconverted, unit};
use crate::wire::{FailureText, Foreign, Text, is_queue_name, jid_of, number_of, reply, run_text};

/// A worker's time for a job without `reserve_for`, in milliseconds.
const RESERVE_MS: u64 = 1_800_000;

/// Waits of FETCH end at common moments, one of this many parts of the wait apart. Then a turn of a thread answers many
/// idle workers, and each costs less of it.
const TOGETHER_PARTS: u64 = 40;

/// The engine's failure of an expired lease, and the message that deployed servers use for it.
const EXPIRED: &[u8] = b"ReservationExpired";
const EXPIRED_MESSAGE: &[u8] = b"job reservation expired";
const EXPIRED_WORDS: &str = "Faktory job reservation expired";

impl FaktorySpeaker {
    pub(super) fn fetch(&self, queues: Option<Vec<Bytes>>, talk: &mut Talk<'_>) {
        let Some(queues) = queues else {
            return reply::error("must call fetch with at least one queue", talk.bytes());
        };
        // Skip names that FWP does not allow, even if another protocol has such a queue.
        let queues = queues.into_iter().filter(|name| is_queue_name(name)).collect();
        self.take(Fetch { queues, until: wait_until(talk.now(), self.settings.fetch_wait_ms) }, talk);
    }

    fn take(&self, fetch: Fetch, talk: &mut Talk<'_>) {
        let on_expiry = OnExpiry::Fail;
        let lease =
            LeaseTerms { connection_bound: false, lease_ms: Some(RESERVE_MS), on_expiry, wish: Some(on_expiry) };
        let take = Take {
            from: From::Listed { queues: fetch.queues.clone(), lease },
            select: Select::ListOrder,
            wait: Wait::Until(fetch.until),
            worker: self.wid.clone(),
        };
        talk.ask(Ask::Fetch(fetch), TakeCommand::Take(take));
    }

    pub(super) fn fetched(&self, fetch: Fetch, answer: &Answer, talk: &mut Talk<'_>) {
        match answer {
            Ok(Reply::Taken(job)) => {
                if let Err(misfit) = deliver(&self.settings.bridge, job, talk) {
                    // FWP cannot express this job: return it for workers of other protocols, and wait for another one.
                    let (job, proof) = (JobRef::Id(job.id), Proof::Token(job.token));
                    talk.send(LeaseCommand::Unconvertible { job, proof, why: misfit.to_string().into() });
                    self.take(fetch, talk);
                }
            }
            Ok(_) => reply::null(talk.bytes()),
            Err(why) => refusal::write(*why, talk.bytes()),
        }
    }
}

/// The next common moment at which a wait of this length has passed.
fn wait_until(now: Timestamp, wait_ms: u64) -> Timestamp {
    let Timestamp(at) = now.after_ms(wait_ms);
    Timestamp(at.checked_next_multiple_of((wait_ms / TOGETHER_PARTS).max(1)).unwrap_or(at))
}

/// The parameters of a FETCH.
#[derive(Debug)]
pub struct Fetch {
    /// Queues, in order of preference.
    queues: Vec<Bytes>,
    /// When the wait ends.
    until: Timestamp,
}

fn deliver(bridge: &Bridge, job: &Taken, talk: &mut Talk<'_>) -> Result<(), Unconvertible> {
    let failure = failure_text(job.failure.as_deref(), job.failures, job.failures_max, job.ready_at);
    let source = Source {
        id: job.id,
        protocol: job.protocol,
        named: !job.name.is_empty(),
        queue: &job.queue,
        body: &job.body,
        codec: job.codec,
        key: &job.key,
        priority: job.priority,
        retries: job.failures_max,
        since: job.ready_at,
    };
    let body = source.text(bridge)?;
    match Text::new(&body) {
        Some(text) => text.deliver(failure.as_ref(), Some(job.ready_at.0), talk.bytes()),
        None => reply::bulk(&body, talk.bytes()),
    }
    Ok(())
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
        message: if expired { Cow::Borrowed(EXPIRED_WORDS) } else { String::from_utf8_lossy(&failure.message) },
        errtype: String::from_utf8_lossy(&failure.kind),
        backtrace: failure.backtrace.iter().map(|line| String::from_utf8_lossy(line)).collect(),
        retry_count: count,
        remaining: if retry < 0 { retry } else { (retry - count).max(0) },
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
            false => run_text(self.body, &jid_of(self.id.0), self.since.0).map_or(Cow::Borrowed(self.body), Cow::Owned),
        })
    }

    /// The job's text for display. It never fails.
    pub(super) fn shown(&self, bridge: &Bridge) -> Cow<'a, [u8]> {
        self.text(bridge).unwrap_or_else(|_| Cow::Owned(self.text_of(&unconverted(bridge, &self.foreign()))))
    }

    const fn foreign(&self) -> windlass_bridge::Job<'a> {
        let Self { protocol, queue, body, codec, key, priority, .. } = *self;
        windlass_bridge::Job { protocol, queue, body, codec, key, priority }
    }

    fn text_of(&self, unit: &Unit<'_>) -> Vec<u8> {
        let text = |json| std::str::from_utf8(json).unwrap_or_default();
        let queue = String::from_utf8_lossy(self.queue);
        let foreign = Foreign {
            jid: &jid_of(self.id.0),
            queue: &queue,
            jobtype: &unit.jobtype,
            args: text(&unit.args),
            custom: text(&unit.custom),
            retry: self.retries.into(),
        };
        foreign.text(self.since.0)
    }
}

/// The job with this name.
pub(super) fn job_ref(jid: &str) -> JobRef {
    let named = || JobRef::Name(Bytes::copy_from_slice(jid.as_bytes()));
    number_of(jid).map_or_else(named, |number| JobRef::Id(JobId(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_end_together_and_not_early() {
        let table = [
            (1_000, 2_000, 3_000),
            (1_001, 2_000, 3_050),
            (1_050, 2_000, 3_050),
            (1_051, 2_000, 3_100),
            (7, 1, 8),
            (7, 79, 86),
            (7, 80, 88),
            (u64::MAX - 1, 2_000, u64::MAX),
        ];
        for (now, wait_ms, expected) in table {
            assert_eq!(wait_until(Timestamp(now), wait_ms), Timestamp(expected), "{now} {wait_ms}");
        }
    }
}
