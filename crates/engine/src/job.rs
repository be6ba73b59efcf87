//! A job: its payload, its state and its history so far.
//!
//! Not here: how jobs are found and ordered (`table`, `line`), and what changes their state (`push`, `take`, `end`).

use bytes::Bytes;

use crate::batch::Member;
use crate::ids::{ClientId, JobId, Priority, Protocol, QueueId, Timestamp, Token};
use crate::isolation::Unfit;
use crate::payload::Payload;

/// One job. Fields are public to read; only the engine writes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// Its queue; never changes.
    pub queue: QueueId,
    /// The protocol of its producer.
    pub protocol: Protocol,
    /// Never changes.
    pub priority: Priority,
    /// Whether the journal keeps it. A foreground Gearman job ends with the last client that waits for it.
    pub durable: bool,
    /// Its sort key among ready jobs of its priority: lower is taken first. A leased job keeps it, so a returned job resumes its
    /// former position.
    pub rank: u64,
    /// Its state.
    pub state: JobState,
    /// When it became ready (or was created, if it never was ready), by the wall clock.
    pub ready_at: Timestamp,
    /// Its body, and its coalescing key and public name, if any. The key is unique within (queue, protocol).
    pub payload: Payload,
    /// Deliveries so far; also the fencing token of the current lease.
    pub attempts: u32,
    /// Failures so far; the retry budget counts them.
    pub failures: u32,
    /// What follows a failure or a lost worker.
    pub retry: Retry,
    /// Protocols in which a conversion error occurred for this job. Not journalled.
    pub unfit: Unfit,
    /// Fields that most jobs lack.
    pub extra: Option<Box<Extra>>,
}

/// A job's state. A job has exactly one; a removed job has none.
#[derive(Clone, Debug, PartialEq)]
pub enum JobState {
    /// Waiting to be taken.
    Ready,
    /// Taken and not finished.
    Leased(Box<Lease>),
    /// Not to be taken before this time, by the wall clock. The times of other states are in the engine's time.
    Scheduled(Timestamp),
    /// Failed; becomes ready again at this time.
    Retrying(Timestamp),
    /// Out of retries: in the dead-letter queue until this time.
    Dead(Timestamp),
    /// Parked: out of its `cycle` queue, its value still readable.
    Parked,
    /// Ended, and not retried. Until this time the result, or its absence, can be queried.
    Done(Timestamp),
}

/// The kinds of [`JobState`] without their contents, for listings and figures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "each is documented at JobState")]
pub enum JobStateKind {
    Ready,
    Leased,
    Scheduled,
    Retrying,
    Dead,
    Parked,
    Done,
}

impl JobStateKind {
    /// All kinds.
    pub const ALL: [Self; 7] =
        [Self::Ready, Self::Leased, Self::Scheduled, Self::Retrying, Self::Dead, Self::Parked, Self::Done];
}

impl JobState {
    /// The kind of this state.
    #[must_use]
    pub const fn kind(&self) -> JobStateKind {
        match self {
            Self::Ready => JobStateKind::Ready,
            Self::Leased(_) => JobStateKind::Leased,
            Self::Scheduled(_) => JobStateKind::Scheduled,
            Self::Retrying(_) => JobStateKind::Retrying,
            Self::Dead(_) => JobStateKind::Dead,
            Self::Parked => JobStateKind::Parked,
            Self::Done(_) => JobStateKind::Done,
        }
    }
}

/// A worker's right to a job, and its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    /// The worker.
    pub holder: Holder,
    /// Identifies the lease together with the job.
    pub token: Token,
    /// When it began.
    pub taken_at: Timestamp,
    /// When it ends by itself; [`Timestamp::NEVER`] if only its holder ends it.
    pub until: Timestamp,
    /// What happens when it runs out.
    pub on_expiry: OnExpiry,
    /// When the engine next checks `until`. It notices a later `until` only then.
    pub(crate) alarm_at: Timestamp,
}

impl Lease {
    /// A lease from `taken_at` to `until`.
    #[must_use]
    pub const fn new(holder: Holder, token: Token, taken_at: Timestamp, until: Timestamp, on_expiry: OnExpiry) -> Self {
        Self { holder, token, taken_at, until, on_expiry, alarm_at: Timestamp::NEVER }
    }

    /// Whether it ends with a connection. Such a lease is not journalled.
    #[must_use]
    pub const fn connection_bound(&self) -> bool {
        matches!(self.holder, Holder::Connection(_))
    }
}

/// The two kinds of lease; the taker's protocol chooses.
#[derive(Clone, Debug, PartialEq)]
pub enum Holder {
    /// Bound to a connection: ends with it and is not journalled.
    Connection(ClientId),
    /// Bound to time only: survives a reconnect and a restart. The name is the worker's, empty if it has none.
    Named(Box<[u8]>),
}

/// What happens to a job when its lease runs out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnExpiry {
    /// Counts as a failure (FWP; Gearman by the specification).
    Fail,
    /// Counts as a lost worker: the job returns to its own position (EventMQ; Gearman as deployed).
    Requeue,
    /// Returns to the front (spiderq).
    Front,
}

/// What follows when a job fails or its worker is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retry {
    /// Retries after failures. `n` = `n` retries; 0 = the first failure discards the job; negative = the first failure sends it
    /// to the dead-letter queue.
    pub failures_max: i32,
    /// Workers that may be lost with the job before it fails for good; after each loss it is retried at once. 0 = no limit of its
    /// own: [`crate::Limits::losses_max`] applies.
    pub losses_max: u32,
    /// The wait before the next attempt.
    pub backoff: Backoff,
}

impl Retry {
    /// No retries, discarded on failure, and no limit of its own to lost workers.
    pub const NONE: Self = Self { failures_max: 0, losses_max: 0, backoff: Backoff::None };
}

/// The wait before the next attempt after the `n`th failure (`n` from 0). A new protocol adds a variant here and an arm to
/// `backoff_ms`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backoff {
    /// No wait.
    None,
    /// A constant number of milliseconds.
    Fixed(u32),
    /// Doubles from this many milliseconds, at most an hour.
    Doubling(u32),
    /// Faktory's: `n^4 + 15 + random(0..30) * (n + 1)` seconds.
    Faktory,
}

/// Optional fields of a job. Boxed, so a job without them pays only eight bytes.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Extra {
    /// Bytes that the producer's session gets back, in its own encoding.
    pub meta: Bytes,
    /// Discarded when taken or due after this time, by the wall clock.
    pub expires_at: Option<Timestamp>,
    /// When the coalescing key is released.
    pub key_until: KeyUntil,
    /// Its position in a `cycle` queue; unused in others.
    pub cycle: Option<Cycle>,
    /// Workers lost with it.
    pub losses: u32,
    /// The last failure.
    pub failure: Option<Box<Failure>>,
    /// The last progress reported.
    pub progress: Option<Progress>,
    /// How long the result is kept after the end, in milliseconds; 0 = not kept.
    pub result_keep_ms: u64,
    /// The lease that the job requests, in milliseconds.
    pub lease_ms: Option<u64>,
    /// The result of a done job.
    pub result: Option<Bytes>,
    /// The protocol in which the result is written, if it is not the job's own.
    pub result_by: Option<Protocol>,
    /// Set if it is tracked.
    pub track: Option<Track>,
    /// Its role in a batch.
    pub member: Option<Member>,
    /// Clients that listen to it, oldest first. A listener ends with its connection. Not journalled.
    pub listeners: Vec<ClientId>,
}

/// Lets clients follow a job by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Track {
    /// How long the job's outcome can be queried after its end, in milliseconds.
    pub keep_ms: u64,
    /// Time of the last visible change, by the wall clock. Taking the job under a connection-bound lease does not count.
    pub updated_at: Timestamp,
}

/// When a job releases its coalescing key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KeyUntil {
    /// When the job is removed or done.
    #[default]
    End,
    /// When the job is first taken.
    Start,
    /// When the job is removed or done, but no later than this time.
    EndOr(Timestamp),
    /// When the job is first taken, but no later than this time.
    StartOr(Timestamp),
    /// When the job is removed or dead. A done job holds its key while it is kept. A client that attaches to a done job receives
    /// no further events, but can query the job.
    Gone,
}

/// The position of an entry in a `cycle` queue (spiderq's queue algorithm).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cycle {
    /// The smallest is leased first; equals in order of insertion.
    pub priority: u64,
    /// How many times a reward has halved the entry's distance to the tail.
    pub boost: u32,
}

/// One failure, as the worker reported it. The session has already cut it to the protocol's limits. The engine sets the times, by
/// the wall clock.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Failure {
    /// When it happened.
    pub at: Timestamp,
    /// When the job failed first.
    pub first_at: Timestamp,
    /// The retry time that the last failure set, if a failure led to a retry. An earlier return does not change it. `None` in
    /// records of older versions.
    pub next_at: Option<Timestamp>,
    /// The class of the error.
    pub kind: Bytes,
    /// The error message.
    pub message: Bytes,
    /// Lines of a stack trace.
    pub backtrace: Vec<Bytes>,
}

/// A job's progress.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Progress {
    /// Units done, of [`Progress::denominator`].
    pub numerator: u32,
    /// Units in total.
    pub denominator: u32,
    /// A status text, if the protocol has one.
    pub text: Bytes,
}

impl Job {
    /// The lease, if it is leased.
    #[must_use]
    pub fn lease(&self) -> Option<&Lease> {
        match &self.state {
            JobState::Leased(lease) => Some(lease),
            JobState::Ready
            | JobState::Scheduled(_)
            | JobState::Retrying(_)
            | JobState::Dead(_)
            | JobState::Parked
            | JobState::Done(_) => None,
        }
    }

    /// Whether it succeeded; `None` if it has not ended, or is dead and can be retried.
    #[must_use]
    pub fn succeeded(&self) -> Option<bool> {
        let result = self.extra.as_deref().and_then(|extra| extra.result.as_ref());
        matches!(self.state, JobState::Done(_)).then_some(result.is_some())
    }

    /// Records a visible change.
    pub(crate) fn touch(&mut self, now: Timestamp) {
        if let Some(track) = self.extra.as_deref_mut().and_then(|extra| extra.track.as_mut()) {
            track.updated_at = now;
        }
    }

    /// The coalescing key, if any.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.payload.key()
    }

    /// The producer's bytes, verbatim.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.payload.body()
    }

    /// The producer's public name (FWP `jid`, EventMQ msgid), empty if it has none. Not unique.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.payload.name()
    }

    /// The bytes that the producer's session attached.
    #[must_use]
    pub fn meta(&self) -> Bytes {
        self.extra.as_deref().map_or_else(Bytes::new, |e| e.meta.clone())
    }

    /// The clients that listen to it.
    #[must_use]
    pub fn listeners(&self) -> &[ClientId] {
        self.extra.as_deref().map_or(&[], |e| &e.listeners)
    }

    /// Its position in a `cycle` queue, if it is in one.
    #[must_use]
    pub fn cycle(&self) -> Option<Cycle> {
        self.extra.as_deref().and_then(|e| e.cycle)
    }

    /// The optional fields, created if absent.
    pub(crate) fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// Bytes counted for this job in memory limits: its payload, metadata, progress and result, without failures, plus a fixed
    /// amount.
    #[must_use]
    pub fn weight_bytes(&self) -> u64 {
        const FIXED: usize = 250;
        let extra = self.extra.as_deref().map_or(0, Extra::weight_bytes);
        (FIXED + self.payload.len() + extra) as u64
    }
}

impl Extra {
    fn weight_bytes(&self) -> usize {
        let told = self.progress.as_ref().map_or(0, |progress| progress.text.len());
        let result = self.result.as_ref().map_or(0, Bytes::len);
        200 + self.meta.len() + told + result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million jobs take a hundred megabytes here: growth of the type must be deliberate.
    #[test]
    fn a_job_takes_96_bytes() {
        assert_eq!(size_of::<Option<Job>>(), 96);
    }
}
