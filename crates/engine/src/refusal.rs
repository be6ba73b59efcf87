//! Why the engine refuses a command. Callers distinguish three kinds: the command was refused and the session
//! can explain why; the store is unavailable; the outcome is unknown.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A result, or the reason for a refusal.
pub(crate) type Outcome<T = ()> = Result<T, Refusal>;

/// Why a command was refused. The session reports it in the client's protocol. A refusal promises nothing,
/// except those that [`Refusal::is_already_so`] names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error, Deserialize, Serialize)]
pub enum Refusal {
    // refused: the session can explain why
    /// A limit is reached.
    #[error("{}", Excess(*what, *held, *limit))]
    Limit {
        /// The limited quantity.
        what: Capacity,
        /// The present number, or the number in the command.
        held: u64,
        /// The limit.
        limit: u64,
    },
    /// The thing does not exist.
    #[error("{0} unknown")]
    NotFound(Thing),
    /// Another job or batch has the key or name.
    #[error("job not unique")]
    NotUnique,
    /// The job exists, but the client's claim is not to the current lease.
    #[error("lease not held")]
    NotHeld,
    /// The queue has workers or unfinished jobs.
    #[error("queue in use")]
    InUse,
    /// The queue has the other kind.
    #[error("queue of the other kind")]
    WrongKind,
    /// The listener that accepted the client does not grant the right for this command.
    #[error("not permitted at this address")]
    NotPermitted,
    /// The schedule would never run.
    #[error("schedule never comes due")]
    NeverDue,
    /// The command is invalid now: the client is already waiting or has not sent `Open`, or fields of the
    /// command contradict each other.
    #[error("not allowed in this state")]
    OutOfPlace,
    // unavailable: try again
    /// The store is not responding. The command had no effect.
    #[error("store unavailable")]
    Unavailable,
    /// The disk has no space for new jobs. The command had no effect, and existing jobs continue.
    #[error("disk full")]
    DiskFull,
    // unknown: the command may have had an effect
    /// The store stopped responding during the command. The command may or may not have had an
    /// effect.
    #[error("outcome unknown")]
    Unknown,
}

/// The quantity that a limit bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Capacity {
    /// Jobs of a queue, for jobs of this priority.
    QueueJobs,
    /// Jobs of the daemon.
    Jobs,
    /// Bytes of the daemon's jobs.
    JobBytes,
    /// Queues.
    Queues,
    /// Schedules.
    Schedules,
    /// Batches, all of them in use.
    Batches,
    /// Batches within each other.
    BatchDepth,
    /// Queues that a client serves.
    Subscriptions,
    /// Bytes of a name.
    NameBytes,
    /// Bytes of a job's body, limited by the queue.
    BodyBytes,
    /// Ready jobs of the same key of a queue.
    KeyJobs,
    /// Namespaces.
    Namespaces,
    /// Jobs of the namespace.
    NamespaceJobs,
    /// Bytes of the namespace's jobs.
    NamespaceBytes,
    /// Queues of the namespace.
    NamespaceQueues,
    /// Connections of the namespace.
    NamespaceClients,
    /// Pushes of the namespace in a period.
    NamespacePushes,
}

/// The kind of object that a command names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Thing {
    /// A job.
    Job,
    /// A schedule.
    Schedule,
    /// A batch.
    Batch,
    /// A queue.
    Queue,
    /// A named worker.
    Worker,
    /// A connection.
    Client,
    /// A namespace.
    Namespace,
}

impl Refusal {
    /// Returns true if the requested state already exists: the object to remove does not exist, or the object
    /// to create exists. A session may treat such a refusal like success (FWP's `ACK`, EventMQ's
    /// `UNSCHEDULE`). It therefore must wait until the journal has written the change that caused this state,
    /// which may have just been made by another connection.
    pub const fn is_already_so(self) -> bool {
        matches!(
            self,
            Self::NotFound(Thing::Job | Thing::Schedule | Thing::Queue) | Self::NotUnique
        )
    }

    /// The kind of refusal as a name, for programs and metrics.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Limit {
                what: Capacity::NameBytes,
                ..
            } => "name_too_long",
            Self::Limit {
                what: Capacity::BodyBytes,
                ..
            } => "body_too_large",
            Self::Limit { .. } => "limit",
            Self::NotFound(_) => "not_found",
            Self::NotUnique => "not_unique",
            Self::NotHeld => "lease_not_held",
            Self::InUse => "in_use",
            Self::WrongKind => "wrong_kind",
            Self::NotPermitted => "not_permitted",
            Self::NeverDue => "never_due",
            Self::OutOfPlace => "out_of_place",
            Self::Unavailable => "unavailable",
            Self::DiskFull => "disk_full",
            Self::Unknown => "outcome_unknown",
        }
    }

    /// Returns true if a limit of the client's namespace is exceeded.
    pub const fn is_of_namespace(self) -> bool {
        use Capacity::{
            NamespaceBytes, NamespaceClients, NamespaceJobs, NamespacePushes, NamespaceQueues,
        };
        matches!(
            self,
            Self::Limit {
                what: NamespaceJobs
                    | NamespaceBytes
                    | NamespaceQueues
                    | NamespaceClients
                    | NamespacePushes,
                ..
            }
        )
    }

    /// Returns true if two refusals differ only in the numbers.
    pub(crate) fn is_like(self, other: Self) -> bool {
        match (self, other) {
            (Self::Limit { what: one, .. }, Self::Limit { what: other, .. }) => one == other,
            (one, other) => one == other,
        }
    }
}

impl Capacity {
    /// The refusal of a command that exceeds this limit.
    pub fn exceeded(self, held: impl Into<u64>, limit: impl Into<u64>) -> Refusal {
        Refusal::Limit {
            what: self,
            held: held.into(),
            limit: limit.into(),
        }
    }
}

/// A limit that was exceeded, as a sentence.
struct Excess(Capacity, u64, u64);

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(what, held, limit) = self;
        match what {
            Capacity::QueueJobs => write!(f, "queue is full: jobs {held}, limit {limit}"),
            Capacity::KeyJobs => write!(f, "key is full: jobs {held}, limit {limit}"),
            Capacity::Jobs => write!(f, "daemon is full: jobs {held}, limit {limit}"),
            Capacity::JobBytes => write!(f, "daemon is full: bytes of jobs {held}, limit {limit}"),
            Capacity::Queues if held < limit => {
                write!(
                    f,
                    "limit of queues reached: {held}, and the rest of {limit} is for other protocols"
                )
            }
            Capacity::Queues => write!(f, "limit of queues reached: {limit}"),
            Capacity::Schedules => write!(f, "limit of schedules reached: {limit}"),
            Capacity::Batches => write!(f, "limit of batches reached: {limit}"),
            Capacity::BatchDepth => write!(f, "limit of nested batches reached: {limit}"),
            Capacity::Subscriptions => write!(f, "limit of queues of a client reached: {limit}"),
            Capacity::NameBytes => write!(f, "name of {held} bytes, limit {limit}"),
            Capacity::BodyBytes => write!(f, "body of {held} bytes, limit of the queue {limit}"),
            Capacity::Namespaces => write!(f, "limit of namespaces reached: {limit}"),
            Capacity::NamespaceJobs => write!(f, "namespace is full: jobs {held}, limit {limit}"),
            Capacity::NamespaceBytes => {
                write!(f, "namespace is full: bytes of jobs {held}, limit {limit}")
            }
            Capacity::NamespaceQueues => {
                write!(f, "limit of queues of the namespace reached: {limit}")
            }
            Capacity::NamespaceClients => {
                write!(f, "limit of connections of the namespace reached: {limit}")
            }
            Capacity::NamespacePushes => {
                write!(f, "limit of pushes of the namespace reached: {limit}")
            }
        }
    }
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Job => "job",
            Self::Schedule => "schedule",
            Self::Batch => "batch",
            Self::Queue => "queue",
            Self::Worker => "worker",
            Self::Client => "connection",
            Self::Namespace => "namespace",
        })
    }
}
