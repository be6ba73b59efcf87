//! Contents of replies and notices: the effect of a push, a job as its worker gets it, how a job ended or failed.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{JobId, Priority, Protocol, Timestamp, Token};
use crate::jobs::{Failure, Stored};
use crate::queues::Codec;

/// What a push did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Pushed {
    /// It created a job.
    New,
    /// The key belongs to an existing job. If the push set `listen`, the producer now listens to that job.
    Attached,
    /// The key belongs to an existing job, which stays as it is.
    Kept,
}

/// A job as its worker receives it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Taken {
    /// Its number.
    pub id: JobId,
    /// Identifies the lease together with the job.
    pub token: Token,
    /// Its queue's name.
    pub queue: Bytes,
    /// The protocol of its producer.
    pub protocol: Protocol,
    /// Its priority.
    pub priority: Priority,
    /// The producer's bytes.
    pub body: Bytes,
    /// Where they are until they are in `body`. No daemon sends another one an event that waits for them.
    #[serde(skip)]
    pub stored: Option<Stored>,
    /// How the body is converted for a worker of another protocol.
    pub codec: Codec,
    /// The producer's public name.
    pub name: Bytes,
    /// The bytes that the producer's session attached.
    pub meta: Bytes,
    /// Its coalescing key, empty if it has none.
    pub key: Bytes,
    /// Deliveries, this one included.
    pub attempts: u32,
    /// Failures so far.
    pub failures: u32,
    /// The job's own [`Retry::failures_max`](crate::Retry::failures_max).
    pub failures_max: i32,
    /// The last failure.
    pub failure: Option<Box<Failure>>,
    /// When it became ready.
    pub ready_at: Timestamp,
    /// When the lease ends by itself.
    pub until: Timestamp,
    /// Whether the lease ends with the connection.
    pub connection_bound: bool,
    /// Whether any client listens to the worker's reports, or collects the end later.
    pub heard: bool,
}

/// How a job ended, for its listeners.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum End {
    /// It succeeded.
    Succeeded {
        /// The worker's result.
        result: Bytes,
        /// The worker's protocol, in which the result is written, if known.
        by: Option<Protocol>,
    },
    /// It failed and is not retried.
    Failed(Box<Failure>),
    /// Too many of its workers were lost.
    Lost,
    /// Its lease ran out and it is not retried.
    TimedOut,
    /// Its [`NewJob::expires`](crate::NewJob::expires) passed.
    Expired,
    /// A command removed it.
    Cancelled,
}

/// What happens to a job that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Fate {
    /// Ready again at this time.
    Retried(Timestamp),
    /// In the dead-letter queue until this time.
    Buried(Timestamp),
    /// Removed.
    Discarded,
}
