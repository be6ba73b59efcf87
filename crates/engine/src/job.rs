//! A job: what was asked, where it stands, what became of it so far.
//!
//! Not here: how jobs are found and ordered (`table`, `line`), and what moves them (`push`, `take`, `end`).

use bytes::Bytes;

use crate::batch::Member;
use crate::ids::{ClientId, JobId, Origin, Priority, QueueId, Timestamp, Token};
use crate::isolation::Unfit;
use crate::payload::Payload;

/// One job. Fields are public to read; only the engine writes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// The queue it belongs to for life.
    pub queue: QueueId,
    /// The protocol it was born in.
    pub origin: Origin,
    /// Fixed at birth.
    pub priority: Priority,
    /// Whether the journal keeps it. A foreground Gearman job lives and dies with the clients that wait for it.
    pub durable: bool,
    /// Where it stands among its equals: lower is taken first. Kept while leased, so that a job
    /// that comes back comes back to its own place.
    pub rank: u64,
    /// Where it is now.
    pub place: Place,
    /// When it came to be ready (or was born, if it never was), by the wall clock.
    pub ready_at: Timestamp,
    /// Its coalescing key and its public name, if its producer gave any, and its body. The key space is (queue, origin, key).
    pub payload: Payload,
    /// Deliveries so far; also the fencing token of the present one.
    pub attempts: u32,
    /// Failures so far: what the retry budget is counted in.
    pub failures: u32,
    /// What a failure or a lost worker means for it.
    pub retry: Retry,
    /// Protocols whose workers it turned out not to suit. Not journalled.
    pub unfit: Unfit,
    /// What most jobs do not have.
    pub extra: Option<Box<Extra>>,
}

/// Where a job is. It is in exactly one place; a job that is nowhere is gone.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// Waiting to be taken.
    Ready,
    /// Taken, not yet finished.
    Leased(Box<Lease>),
    /// Not to be taken before this time, by the wall clock. Other places' times are by the engine's.
    Scheduled(Timestamp),
    /// Failed; ready again at this time.
    Retrying(Timestamp),
    /// Out of retries; kept for an operator until this time.
    Dead(Timestamp),
    /// Dropped from its `cycle` queue, its value still readable.
    Shelved,
    /// Over, and not to be tried again: until this time it can be asked for its result, or whether it had one.
    Done(Timestamp),
}

/// The kinds of [`Place`], without their contents: what listings filter by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "each is documented at Place")]
pub enum PlaceKind {
    Ready,
    Leased,
    Scheduled,
    Retrying,
    Dead,
    Shelved,
    Done,
}

impl PlaceKind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Ready, Self::Leased, Self::Scheduled, Self::Retrying, Self::Dead, Self::Shelved, Self::Done];
}

impl Place {
    /// The kind of place this is.
    #[must_use]
    pub const fn kind(&self) -> PlaceKind {
        match self {
            Self::Ready => PlaceKind::Ready,
            Self::Leased(_) => PlaceKind::Leased,
            Self::Scheduled(_) => PlaceKind::Scheduled,
            Self::Retrying(_) => PlaceKind::Retrying,
            Self::Dead(_) => PlaceKind::Dead,
            Self::Shelved => PlaceKind::Shelved,
            Self::Done(_) => PlaceKind::Done,
        }
    }
}

/// Who works on a job, and until when.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    /// Who has it.
    pub holder: Holder,
    /// Proves the lease together with the job.
    pub token: Token,
    /// When it was taken.
    pub taken_at: Timestamp,
    /// When it ends by itself; [`Timestamp::NEVER`] if only its holder ends it.
    pub until: Timestamp,
    /// What its end by time means.
    pub on_expiry: OnExpiry,
    /// When the engine will look at `until` next: an end that moves later is only noticed then.
    pub(crate) alarm_at: Timestamp,
}

impl Lease {
    /// A lease from `taken_at` to `until`.
    #[must_use]
    pub const fn new(holder: Holder, token: Token, taken_at: Timestamp, until: Timestamp, on_expiry: OnExpiry) -> Self {
        Self { holder, token, taken_at, until, on_expiry, alarm_at: Timestamp::NEVER }
    }

    /// Whether it ends with a connection and so is not journalled.
    #[must_use]
    pub const fn connection_bound(&self) -> bool {
        matches!(self.holder, Holder::Connection(_))
    }
}

/// The two shapes of a lease, chosen by the taker's protocol.
#[derive(Clone, Debug, PartialEq)]
pub enum Holder {
    /// Bound to a connection: ends with it, and is not journalled.
    Connection(ClientId),
    /// Bound to time only: survives a reconnect and a restart. The name is the worker's, empty if it gave none.
    Named(Box<[u8]>),
}

/// What happens to a job whose lease runs out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnExpiry {
    /// Counts as a failure (FWP; Gearman by the specification).
    Fail,
    /// Counts as a lost worker: back to its own place (EventMQ; Gearman as deployed).
    Requeue,
    /// Back to the very front (spiderq).
    Front,
}

/// What failures and lost workers mean for a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retry {
    /// Failures survived: `n` retries; 0 = the first failure discards the job; negative = straight to the dead set.
    pub failures_max: i32,
    /// Workers that may be lost with the job before it fails for good, each time being tried again at once; 0 = none of its
    /// own: [`crate::Limits::losses_max`] holds.
    pub losses_max: u32,
    /// How long to wait before the next try.
    pub backoff: Backoff,
}

impl Retry {
    /// Never retried, not kept, without a limit of its own to lost workers.
    pub const NONE: Self = Self { failures_max: 0, losses_max: 0, backoff: Backoff::None };
}

/// The wait before the next try after the `n`th failure (`n` from 0). New protocols add a line here and one in `backoff`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backoff {
    /// At once.
    None,
    /// Always the same number of milliseconds.
    Fixed(u32),
    /// Doubling from this many milliseconds, at most an hour.
    Doubling(u32),
    /// Faktory's: `n^4 + 15 + dice(0..30) * (n + 1)` seconds.
    Faktory,
}

/// What a job may carry beyond the common fields; boxed so that most jobs pay eight bytes for it.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Extra {
    /// What the origin's session needs back, in its own encoding.
    pub meta: Bytes,
    /// Discarded when taken or due after this time, by the wall clock.
    pub expires_at: Option<Timestamp>,
    /// When the coalescing key is let go, if not with the job.
    pub key_until: KeyUntil,
    /// `cycle` queues only.
    pub cycle: Option<Cycle>,
    /// Workers that were lost with it.
    pub losses: u32,
    /// The last failure.
    pub failure: Option<Box<Failure>>,
    /// The last progress told.
    pub progress: Option<Progress>,
    /// How long the result is kept after the end, in milliseconds; 0 = not at all.
    pub result_keep_ms: u64,
    /// The lease the job itself asks for, in milliseconds.
    pub lease_ms: Option<u64>,
    /// The result, once done.
    pub result: Option<Bytes>,
    /// Whose words the result is in, if they are not those of the job's origin.
    pub result_by: Option<Origin>,
    /// That it is tracked, if it is.
    pub track: Option<Track>,
    /// Its place in a batch.
    pub member: Option<Member>,
    /// Who wants to hear of it, oldest first. Ends with their connections; not journalled.
    pub listeners: Vec<ClientId>,
}

/// What is kept of a job so that it can be followed by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Track {
    /// How long that it has ended, and how, is known, in milliseconds.
    pub keep_ms: u64,
    /// When, by the wall clock, anything about it changed that can be seen, but for its being taken under a lease that ends with a connection.
    pub updated_at: Timestamp,
}

/// When a coalescing key is let go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KeyUntil {
    /// When the job is gone or done.
    #[default]
    End,
    /// When the job is first taken.
    Start,
    /// When the job is gone or done, but at this time at the latest.
    EndOr(Timestamp),
    /// When the job is first taken, but at this time at the latest.
    StartOr(Timestamp),
    /// When the job is gone or dead: what is done holds its key as long as it is kept. Whoever attaches to that hears
    /// nothing more of it, and may look at it.
    Gone,
}

/// Where an entry stands in a `cycle` queue (spiderq's queue algorithm).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cycle {
    /// Smallest is lent first; equals in order of insertion.
    pub priority: u64,
    /// Halvings of the way to the tail that a reward has earned.
    pub boost: u32,
}

/// One failure, as the worker told it (already cut to the protocol's limits by the session); the times are the wall clock's, and the engine
/// sets them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Failure {
    /// When.
    pub at: Timestamp,
    /// When the job failed first.
    pub first_at: Timestamp,
    /// When it was to be tried again after the last failure that let it be, if any did. Whatever brings it back sooner
    /// leaves this as it is. Unknown of failures that older versions took down.
    pub next_at: Option<Timestamp>,
    /// A class of error.
    pub kind: Bytes,
    /// A sentence.
    pub message: Bytes,
    /// Lines of a stack trace.
    pub backtrace: Vec<Bytes>,
}

/// How far a job has come.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Progress {
    /// Of [`Progress::denominator`].
    pub numerator: u32,
    /// Of how many.
    pub denominator: u32,
    /// A sentence, where the protocol has one.
    pub text: Bytes,
}

impl Job {
    /// The lease, if it is leased.
    #[must_use]
    pub fn lease(&self) -> Option<&Lease> {
        match &self.place {
            Place::Leased(lease) => Some(lease),
            Place::Ready
            | Place::Scheduled(_)
            | Place::Retrying(_)
            | Place::Dead(_)
            | Place::Shelved
            | Place::Done(_) => None,
        }
    }

    /// Whether it ended well; `None` if it has not ended, or is dead and may be tried again.
    #[must_use]
    pub fn succeeded(&self) -> Option<bool> {
        let result = self.extra.as_deref().and_then(|extra| extra.result.as_ref());
        matches!(self.place, Place::Done(_)).then_some(result.is_some())
    }

    /// Something about it changed.
    pub(crate) fn touch(&mut self, now: Timestamp) {
        if let Some(track) = self.extra.as_deref_mut().and_then(|extra| extra.track.as_mut()) {
            track.updated_at = now;
        }
    }

    /// The coalescing key, if its producer gave one.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.payload.key()
    }

    /// The producer's own bytes, verbatim.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.payload.body()
    }

    /// The producer's public name (FWP `jid`, EventMQ msgid), empty if it gave none. Not unique.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.payload.name()
    }

    /// What the origin's session asked to have back.
    #[must_use]
    pub fn meta(&self) -> Bytes {
        self.extra.as_deref().map_or_else(Bytes::new, |e| e.meta.clone())
    }

    /// Who wants to hear of it.
    #[must_use]
    pub fn listeners(&self) -> &[ClientId] {
        self.extra.as_deref().map_or(&[], |e| &e.listeners)
    }

    /// The `cycle` standing, if the job is in a `cycle` queue.
    #[must_use]
    pub fn cycle(&self) -> Option<Cycle> {
        self.extra.as_deref().and_then(|e| e.cycle)
    }

    /// The part most jobs lack, made if absent.
    pub(crate) fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// Bytes this job is counted as in memory limits: what was given with it and told of it, failures excepted, and a fixed
    /// share for the rest.
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

    /// A million of them are a hundred megabytes: it is no accident when one grows.
    #[test]
    fn a_job_is_a_dozen_words() {
        assert_eq!(size_of::<Option<Job>>(), 96);
    }
}
