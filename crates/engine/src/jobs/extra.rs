//! Fields that most jobs lack.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::attempts::{Attempt, Attempts};
use crate::history::{Origin, Output};
use crate::ids::{ClientId, JobId, Protocol, Timestamp};

/// Optional fields of a job. Boxed, so a job without them pays only eight bytes.
#[derive(Clone, Debug, PartialEq, Default, Deserialize, Serialize)]
pub struct Extra {
    /// Bytes for the producer's session, in the session's encoding.
    pub meta: Bytes,
    /// When it is discarded, unless it was taken in time.
    pub expires: Expiry,
    /// When the coalescing key is released.
    pub key_until: KeyUntil,
    /// The position in a `cycle` queue; unused in `work` queues.
    pub cycle: Option<Cycle>,
    /// Workers that disappeared with it.
    pub losses: u32,
    /// The last failure.
    pub failure: Option<Box<Failure>>,
    /// Past deliveries that did not succeed, if there are any.
    pub attempts: Option<Arc<Attempts>>,
    /// The last progress reported.
    pub progress: Option<Progress>,
    /// Retention of the result after the end, in milliseconds; 0 = discarded.
    pub result_keep_ms: u64,
    /// The lease that the job requests, in milliseconds.
    pub lease_ms: Option<u64>,
    /// The result of a done job.
    pub result: Option<Bytes>,
    /// The protocol that determines the format of the result, if it is not the job's protocol.
    pub result_by: Option<Protocol>,
    /// Set if it is tracked.
    pub track: Option<Track>,
    /// The role in a batch.
    pub member: Option<Member>,
    /// The name with which the producer collects the outcome; empty if it does not.
    pub collector: Bytes,
    /// An operator, or another client, has returned the job from a worker. Reports of that worker are then
    /// rejected. Not journalled.
    #[serde(skip)]
    pub taken_back: bool,
    /// Submits that became this job ([`crate::QueueRules::coalesce`]).
    pub coalesced: Option<Box<Coalesced>>,
    /// Clients that listen to it, oldest first. A listener is removed when the connection closes. Not
    /// journalled.
    pub listeners: Vec<ClientId>,
    /// Where it comes from, if its queue has a history.
    pub origin: Option<Box<Origin>>,
    /// What its worker has sent, for the history. Not journalled.
    #[serde(skip)]
    pub output: Option<Box<Output>>,
}

/// Submits that became one job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Coalesced {
    /// The first submit since the job ran last, by the wall clock.
    pub since: Timestamp,
    /// Number of all submits so far.
    pub submits: u32,
    /// Deliveries of the job until `since`.
    pub attempts: u32,
    /// The job that ran when this one was submitted, and must finish before this one starts.
    pub behind: Option<JobId>,
    /// Set when two jobs were merged because the run of one replaced the other's: while this job is parked,
    /// it finishes together with the job ahead.
    pub joined: bool,
}

/// Lets clients follow a job by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Track {
    /// The time during which the outcome can be queried after the job has finished, in
    /// milliseconds.
    pub keep_ms: u64,
    /// Time of the last visible change, by the wall clock. Taking the job with a connection-bound lease is
    /// not a visible change.
    pub updated_at: Timestamp,
}

/// When a job expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
pub enum Expiry {
    /// Never.
    #[default]
    Never,
    /// At this moment of the calendar, by the wall clock.
    At(Timestamp),
    /// At the end of a span, by the engine's time. No change of the wall clock makes it shorter.
    By(Timestamp),
}

/// When a job releases the coalescing key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
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
    /// When the job is removed or dead. A done job has the key until it is removed. A client that attaches to
    /// a done job as a listener receives the outcome immediately.
    Gone,
}

/// The position of an entry in a `cycle` queue (spiderq's queue algorithm).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Cycle {
    /// The smallest is leased first; equals in order of insertion.
    pub priority: u64,
    /// Number of rewards, each of which halves the entry's distance to the tail.
    pub boost: u32,
}

/// A failure, as the worker reported it. The session has already cut it to the protocol's limits. The engine
/// sets the times, by the wall clock.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct Failure {
    /// When it happened.
    pub at: Timestamp,
    /// When the job failed first.
    pub first_at: Timestamp,
    /// The retry time that the last failure set, if a failure led to a retry. An early return does not modify
    /// it. `None` in records of older versions.
    pub next_at: Option<Timestamp>,
    /// The class of the error.
    pub kind: Bytes,
    /// The error message.
    pub message: Bytes,
    /// The stack trace, by line.
    pub backtrace: Vec<Bytes>,
}

/// A job's progress.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct Progress {
    /// Units done, of [`Progress::denominator`].
    pub numerator: u32,
    /// Units in total.
    pub denominator: u32,
    /// A status text, if the protocol has one.
    pub text: Bytes,
}

/// A job's membership in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Member {
    /// The batch, which may be forgotten by now.
    pub batch: JobId,
    /// The role.
    pub role: Role,
    /// True if it is recorded in the batch as run.
    pub ran: bool,
}

/// The role of a job in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Role {
    /// A job that the producer added to the batch.
    Job,
    /// [`crate::NewBatch::complete`].
    Complete,
    /// [`crate::NewBatch::success`].
    Success,
}

impl Coalesced {
    /// For a job with a single submit.
    pub(crate) const fn first(since: Timestamp) -> Self {
        Self {
            since,
            submits: 1,
            attempts: 0,
            behind: None,
            joined: false,
        }
    }
}

impl Expiry {
    /// Returns true if this moment has passed, by the engine's time or by the wall clock.
    pub const fn has_come(self, now: Timestamp, wall: Timestamp) -> bool {
        match self {
            Self::Never => false,
            Self::At(at) => at.0 <= wall.0,
            Self::By(at) => at.0 <= now.0,
        }
    }

    /// Moves it, if it uses the engine's time.
    pub const fn shift(&mut self, ms: i64) {
        if let Self::By(at) = self {
            *at = at.shifted(ms);
        }
    }
}

impl KeyUntil {
    /// Shifts the time, if it has one and uses the engine's time.
    pub const fn shift(&mut self, ms: i64) {
        match self {
            Self::EndOr(at) | Self::StartOr(at) => *at = at.shifted(ms),
            Self::End | Self::Start | Self::Gone => {}
        }
    }
}

impl Extra {
    /// Returns true if any field is not the default. A derived comparison with the default takes a tenth of a
    /// push.
    pub(crate) fn is_set(&self) -> bool {
        let Self {
            meta,
            expires,
            key_until,
            cycle,
            losses,
            failure,
            attempts,
            progress,
            result_keep_ms,
            lease_ms,
            result,
            result_by,
            track,
            member,
            collector,
            taken_back,
            coalesced,
            listeners,
            origin,
            output,
        } = self;
        let times = matches!((expires, key_until), (Expiry::Never, KeyUntil::End));
        let bytes = meta.is_empty() && collector.is_empty() && listeners.is_empty();
        let numbers = *losses == 0 && *result_keep_ms == 0 && lease_ms.is_none() && !taken_back;
        let ends =
            failure.is_none() && attempts.is_none() && result.is_none() && result_by.is_none();
        let parts = cycle.is_none() && progress.is_none() && track.is_none() && member.is_none();
        let parts = parts && coalesced.is_none() && origin.is_none() && output.is_none();
        !(times && bytes && numbers && ends && parts)
    }

    /// Records a delivery that did not succeed.
    pub(crate) fn end_attempt(&mut self, attempt: Attempt) {
        let attempts = Arc::make_mut(self.attempts.get_or_insert_default());
        self.failure
            .iter()
            .for_each(|failure| attempts.explain(failure));
        attempts.push(attempt);
    }

    /// The fixed part of [`Extra::weight_bytes`]. A quarter of it is for index entries of such a job, mainly
    /// a timer.
    pub(super) const FIXED_BYTES: usize = 200;

    pub(super) fn weight_bytes(&self) -> usize {
        let told = self
            .progress
            .as_ref()
            .map_or(0, |progress| progress.text.len());
        let result = self.result.as_ref().map_or(0, Bytes::len);
        let attempts = self.attempts.as_deref().map_or(0, Attempts::weight_bytes);
        let origin = self.origin.as_deref().map_or(0, Origin::weight_bytes);
        let output = self.output.as_deref().map_or(0, Output::weight_bytes);
        let texts = self.meta.len() + self.collector.len() + told + result + output;
        Self::FIXED_BYTES + texts + attempts + origin
    }
}
