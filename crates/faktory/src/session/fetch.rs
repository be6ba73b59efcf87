//! FETCH: one job for a worker, at once or within the wait.
//!
//! Spec: "`FETCH` Command". As on deployed servers all queues of the list are waited at, not only the first.

use std::borrow::Cow;

use bytes::Bytes;
use windlass_engine::{
    Command, Event, Failure, From, JobId, JobRef, LeaseTerms, OnExpiry, Origin, Select, Take, Taken, Timestamp, Wait,
};
use windlass_session::Outbox;

use super::refusal;
use super::{Answer, FaktorySession, Task};
use crate::wire::{FailureText, Foreign, Text, is_queue_name, reply};

/// What a worker has for a job that says nothing of it.
const RESERVE_MS: u64 = 1_800_000;

/// What the engine puts down when a worker's time runs out, and what deployed servers call that.
const EXPIRED: &[u8] = b"ReservationExpired";
const EXPIRED_MESSAGE: &[u8] = b"job reservation expired";
const EXPIRED_WORDS: &str = "Faktory job reservation expired";

/// What the name of a job begins with here that has none of its own; its number follows.
const FOREIGN: &str = "01W1ND1ASSJ0B";
const FOREIGN_DIGITS: usize = 13;

impl FaktorySession {
    pub(super) fn fetch(&mut self, now: Timestamp, queues: Option<Vec<Bytes>>, out: &mut Outbox) {
        let Some(queues) = queues else {
            return reply::error("must call fetch with at least one queue", out.bytes());
        };
        // What no queue can be called here has nothing to fetch, though it may be a queue elsewhere.
        let queues = queues.into_iter().filter(|name| is_queue_name(name)).collect();
        let lease = LeaseTerms { connection_bound: false, lease_ms: Some(RESERVE_MS), on_expiry: OnExpiry::Fail };
        let take = Take {
            from: From::Listed { queues, lease },
            select: Select::ListOrder,
            wait: Wait::Until(now.after_ms(self.settings.fetch_wait_ms)),
            worker: self.wid.clone(),
        };
        self.begin(Task::Fetch, Command::Take(take), out);
    }

    pub(super) fn fetched(answer: &Answer, out: &mut Outbox) {
        match answer {
            Ok(Event::Taken { job, .. }) => deliver(job, out),
            Ok(_) => reply::null(out.bytes()),
            Err(why) => refusal::write(*why, out.bytes()),
        }
    }

    /// The wait is over before its time.
    pub(super) fn stop_fetching(&mut self, out: &mut Outbox) {
        self.task = None;
        self.asked.clear();
        out.command(windlass_engine::Tag::NONE, Command::Unwait);
        reply::null(out.bytes());
    }
}

fn deliver(job: &Taken, out: &mut Outbox) {
    let failure = failure_text(job.failure.as_deref(), job.failures, job.failures_max, job.ready_at);
    let foreign;
    let body: &[u8] = if job.origin == Origin::FAKTORY {
        &job.body
    } else {
        foreign = foreign_body(job.id, job.origin, &job.queue, &job.body, (job.failures_max, job.ready_at));
        &foreign
    };
    match Text::new(body) {
        Some(text) => text.deliver(failure.as_ref(), Some(job.ready_at.0), out.bytes()),
        None => reply::bulk(body, out.bytes()),
    }
}

/// A failure as a job's text has it. `tried_at` is when the job is, or was last, to be tried again; that is not told of a
/// job that never was to be.
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
        next_at_ms: (retry > 0).then_some(tried_at.0),
        message: if expired { Cow::Borrowed(EXPIRED_WORDS) } else { String::from_utf8_lossy(&failure.message) },
        errtype: String::from_utf8_lossy(&failure.kind),
        backtrace: failure.backtrace.iter().map(|line| String::from_utf8_lossy(line)).collect(),
        retry_count: count,
        remaining: if retry < 0 { retry } else { (retry - count).max(0) },
    })
}

/// A job of another protocol, as if it had been pushed here.
pub(super) fn foreign_body(
    job: JobId,
    origin: Origin,
    queue: &[u8],
    body: &[u8],
    (retries, since): (i32, Timestamp),
) -> Vec<u8> {
    let queue: Cow<'_, str> = String::from_utf8_lossy(queue);
    let origin = match origin {
        Origin::GEARMAN => "gearman",
        Origin::SPIDERQ => "spiderq",
        Origin::EVENTMQ => "eventmq",
        _ => "",
    };
    Foreign { origin, jid: &foreign_jid(job), queue: &queue, body, retry: retries.into() }.text(since.0)
}

/// The name of a job that has none here.
pub(super) fn foreign_jid(job: JobId) -> String {
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let digit = |n: usize| usize::try_from(job.0 >> (5 * n) & 31).unwrap_or_default();
    let digits = (0..FOREIGN_DIGITS).rev().filter_map(|n| DIGITS.get(digit(n)).map(|digit| char::from(*digit)));
    FOREIGN.chars().chain(digits).collect()
}

/// The job that is meant by a name.
pub(super) fn job_ref(jid: &str) -> JobRef {
    let digits = jid.strip_prefix(FOREIGN).filter(|digits| digits.len() == FOREIGN_DIGITS);
    let number = digits.and_then(|digits| {
        digits.bytes().try_fold(0_u64, |number, byte| {
            let digit = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ".iter().position(|digit| *digit == byte)?;
            number.checked_mul(32)?.checked_add(digit as u64)
        })
    });
    number.map_or_else(|| JobRef::Name(Bytes::copy_from_slice(jid.as_bytes())), |number| JobRef::Id(JobId(number)))
}
