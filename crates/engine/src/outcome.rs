//! Contents of replies and notices: the effect of a push, a job as the worker receives it, the outcome of a
//! job.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{JobId, Priority, Protocol, Timestamp, Token};
use crate::jobs::{Failure, Stored};
use crate::queues::Codec;

/// The effect of a push.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Pushed {
    /// It created a job.
    New,
    /// The key belongs to an existing job. If the push set `listen`, the producer now listens to that job.
    Attached,
    /// The key belongs to an existing job, which stays as it is.
    Kept,
}

/// A job as the worker receives it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Taken {
    /// The number.
    pub id: JobId,
    /// Identifies the lease together with the job.
    pub token: Token,
    /// The queue's name.
    pub queue: Bytes,
    /// The protocol of the producer.
    pub protocol: Protocol,
    /// The priority.
    pub priority: Priority,
    /// The producer's bytes.
    pub body: Bytes,
    /// The place of the bytes until they are in `body`. An event that needs a body is never sent to another
    /// daemon.
    #[serde(skip)]
    pub stored: Option<Stored>,
    /// How to convert the body for a worker of another protocol.
    pub codec: Codec,
    /// The producer's public name.
    pub name: Bytes,
    /// The bytes that the producer's session attached.
    pub meta: Bytes,
    /// The coalescing key; empty if the job has no key.
    pub key: Bytes,
    /// Deliveries, this one included.
    pub attempts: u32,
    /// Failures so far.
    pub failures: u32,
    /// The job's [`Retry::failures_max`](crate::Retry::failures_max).
    pub failures_max: i32,
    /// The last failure.
    pub failure: Option<Box<Failure>>,
    /// When it became ready.
    pub ready_at: Timestamp,
    /// When the lease expires.
    pub until: Timestamp,
    /// True if the lease ends with the connection.
    pub connection_bound: bool,
    /// True if any client listens to the worker's reports, or collects the outcome later.
    pub heard: bool,
}

/// The outcome of a job, for listeners.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum End {
    /// It succeeded.
    Succeeded {
        /// The worker's result.
        result: Bytes,
        /// The worker's protocol, which determines the format of the result, if known.
        by: Option<Protocol>,
    },
    /// It failed and is not retried.
    Failed(Box<Failure>),
    /// Too many of the job's workers disappeared.
    Lost,
    /// The lease ran out and it is not retried.
    TimedOut,
    /// The [`NewJob::expires`](crate::NewJob::expires) passed.
    Expired,
    /// A command removed it.
    Cancelled,
}

/// The new state of a job that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Fate {
    /// Ready again at this time.
    Retried(Timestamp),
    /// In the dead-letter queue until this time.
    Buried(Timestamp),
    /// Removed.
    Discarded,
}
