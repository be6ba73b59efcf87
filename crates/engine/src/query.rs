//! Queries, the replies to them, and the rows of listings.
//!
//! A new query is a variant here and in [`Reply`], and a function in `list`.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::condition::Order;
use crate::ids::{ClientId, JobId, Namespace, Priority, Protocol, Protocols, Timestamp};
use crate::jobs::{Job, JobStateKind};
use crate::limits::NamespaceLimits;
use crate::queues::{Codec, QueueFigures, QueueRules, Throttle};
pub use crate::queues::{KeyRow, PolicyRow};
pub use crate::reason::{LeaseHolder, Turn, Why};
use crate::refusal::Capacity;
use crate::request::{Cursor, Filter, JobRef, Mutation, QueueKind, WorkerState};

/// Reads state without modifying it. Listings return a page per request. A client with a protocol sees the
/// jobs, schedules, queues and subscriptions of that protocol, those in bridged queues, and that protocol's
/// batches. Totals, days, throttles, figures and workers are for operators and cover all protocols.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Query {
    /// Return everything about one job, or about the schedule with this ID. Reply: `Looked`.
    Job(JobRef),
    /// List schedules by number. Reply: `Schedules`.
    Schedules {
        /// Only schedules of this protocol; `None` = any.
        protocol: Option<Protocol>,
        /// The end of the previous page.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// Return a batch and the progress. Reply: `Batch`.
    Batch {
        /// The name.
        batch: Bytes,
    },
    /// List batches by number. Reply: `Batches`.
    Batches {
        /// The end of the previous page.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// Return a queue with the figures. Of an isolated queue, a client with a protocol gets the figures of
    /// that protocol. A client without a protocol gets all figures, and also finds a queue that only has a
    /// throttle or rules. Reply: `Queues`, with no row or a single one.
    Queue {
        /// The name.
        queue: Bytes,
    },
    /// List the queues that exist when the first page is requested, with figures. No queue appears twice. Of
    /// an isolated queue, a client sees only the part of the client's protocol. Reply: `Queues`.
    Queues {
        /// The end of the previous page.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// List the queues with a throttle or rules, including those that no client has used. Reply: `Queues`.
    Configured {
        /// The end of the previous page.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// List the queues with a throttle, and the leases that occupy the slots. Reply: `Throttles`.
    Throttles {
        /// The end of the previous page.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// List the jobs that match a filter. Scheduled and retrying jobs are sorted by due time, dead and done
    /// jobs by latest end, the ready jobs of a queue in execution order, and all other listings by latest
    /// creation. Reply: `Jobs`.
    Jobs {
        /// The filter.
        filter: Box<Filter>,
        /// The end of the previous page.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// Count the jobs that a bulk change would change, a bounded number at a time. Reply: `Counted`.
    Preview {
        /// The filter.
        filter: Box<Filter>,
        /// The change.
        action: Mutation,
        /// The end of the previous round.
        after: Cursor,
        /// The most jobs to search for in this round.
        limit: u32,
    },
    /// List named workers. Reply: `Workers`.
    Workers {
        /// The end of the previous page.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// List connections. Reply: `Clients`.
    Clients {
        /// The end of the previous page.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// Return why a job is not running, or which worker has it. An error if the job does not exist. Reply:
    /// `Why`.
    Why(JobRef),
    /// List the figures of queues that had any event since the daemon started. No queue appears twice. Reply:
    /// `Figures`.
    Figures {
        /// The end of the previous page.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// Return totals since the data directory was created, and current figures. Reply: `Stats`.
    Stats,
    /// Return the counters of each day. Reply: `Days`.
    Days,
    /// Return the unfinished work of the clients of the sender's daemon. Reply: `WorkLeft`.
    WorkLeft,
    /// List the jobs that match a filter, in this order. Reply: `Jobs`.
    JobsBy {
        /// The order.
        order: Order,
        /// The filter.
        filter: Box<Filter>,
        /// The end of the previous page.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// Return the past deliveries of a job that did not succeed. An error if the job does not exist. Reply:
    /// `Attempts`.
    Attempts(JobRef),
    /// Return the policy of a queue and the keys of ready and leased jobs. Reply: `Keys`.
    Keys {
        /// The queue.
        queue: Bytes,
        /// The end of the previous page.
        after: Cursor,
        /// The most keys to return.
        limit: u32,
    },
    /// List the kinds of jobs delivered since the daemon started, with figures. A kind is the function that a
    /// job calls, if the body names one. Reply: `Kinds`.
    Kinds {
        /// The end of the previous page.
        after: Cursor,
        /// The most kinds to return.
        limit: u32,
    },
    /// List the namespaces that the client sees, by number, with what each uses: first that without a name.
    /// Reply: `Namespaces`.
    Namespaces {
        /// The end of the previous page.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
}

/// A job in a listing or in a reply to [`Query::Job`].
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct JobView {
    /// The job. A large body shares memory with the engine's copy.
    pub job: Job,
    /// The queue's name.
    pub queue: Bytes,
    /// How to convert the body for a worker of another protocol.
    pub codec: Codec,
    /// The name of the namespace; empty for that without a name.
    pub namespace: Bytes,
}

/// A queue with a throttle in a listing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ThrottleRow {
    /// The name.
    pub queue: Bytes,
    /// True if a client has used it.
    pub known: bool,
    /// The throttle.
    pub throttle: Throttle,
    /// Throttle slots that are occupied by leases.
    pub slots_held: u32,
    /// The ready jobs.
    pub ready: u32,
    /// Some of the jobs that occupy slots, longest lease first: ID, start of the lease (engine's time),
    /// holder.
    pub holders: Vec<(JobId, Timestamp, LeaseHolder)>,
    /// The name of the namespace; empty for that without a name.
    pub namespace: Bytes,
}

/// The figures of a queue in a listing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct FiguresRow {
    /// The name.
    pub name: Bytes,
    /// The figures.
    pub figures: QueueFigures,
    /// The name of the namespace; empty for that without a name.
    pub namespace: Bytes,
}

/// The figures of a kind of job in a listing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct KindRow {
    /// The protocol of the producers. `None`: this row sums the kinds that were evicted from the
    /// table.
    pub protocol: Option<Protocol>,
    /// The function that the jobs call. Empty: the bodies do not show it.
    pub name: Bytes,
    /// Events of these jobs from the delivery on.
    pub figures: QueueFigures,
    /// The name of the namespace; empty for that without a name.
    pub namespace: Bytes,
}

/// A batch in a reply.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct BatchView {
    /// The name.
    pub name: Bytes,
    /// The protocol of the producer.
    pub protocol: Protocol,
    /// The name of the parent batch.
    pub parent: Option<Bytes>,
    /// A description for people.
    pub about: Bytes,
    /// Bytes for the session, returned with the batch.
    pub meta: Bytes,
    /// When it was created (wall clock).
    pub created_at: Timestamp,
    /// True if the batch may push callbacks.
    pub committed: bool,
    /// Jobs that have joined it, without callbacks and without the jobs of batches in it.
    pub total: u64,
    /// The part of `total` that has not succeeded.
    pub pending: u64,
    /// The part of `pending` that has run without success, or that can no longer run.
    pub failed: u64,
    /// The `complete` callback.
    pub complete: CallbackState,
    /// The `success` callback.
    pub success: CallbackState,
    /// The number, which rows of the history have.
    pub id: JobId,
    /// The name of the namespace; empty for that without a name.
    pub namespace: Bytes,
}

/// The state of a batch's callback.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum CallbackState {
    /// Not pushed yet, or the batch has no callback of this kind.
    None,
    /// Pushed. A callback that failed for good stays in this state.
    Enqueued,
    /// It succeeded.
    Ok,
}

/// A queue in a listing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct QueueRow {
    /// The name.
    pub name: Bytes,
    /// The kind.
    pub kind: QueueKind,
    /// The protocols with paused jobs.
    pub paused: Protocols,
    /// The start of the pause (wall clock), if known.
    pub paused_at: Option<Timestamp>,
    /// The size at which the queue refuses new jobs, by [`Priority::lane`] of the new job; `None` = no limit.
    pub jobs_max: [Option<u32>; Priority::COUNT],
    /// The protocol to which that limit applies; `None` = the limit is for the jobs of all
    /// protocols together.
    pub jobs_max_of: Option<Protocol>,
    /// The limit of jobs that may be leased at the same time.
    pub throttle: Option<Throttle>,
    /// The rules for the jobs.
    pub rules: QueueRules,
    /// True if the queue is shared by all protocols.
    pub bridged: bool,
    /// Throttle slots that are occupied by leases.
    pub slots_held: u32,
    /// Ready jobs by [`Priority::lane`]. All jobs of a `cycle` queue are in the lane of normal priority.
    pub ready: [u32; Priority::COUNT],
    /// Jobs by state, in the order of [`JobStateKind::ALL`].
    pub places: [u32; JobStateKind::ALL.len()],
    /// Registrations of workers for the queue, including repeated ones of the same client.
    pub workers: u32,
    /// When the oldest ready job became ready.
    pub oldest_ready_at: Option<Timestamp>,
    /// Waiting takes and credits of `workers`; a client with both is included twice.
    pub waiting: Option<u32>,
    /// The policy.
    pub policy: Option<Box<PolicyRow>>,
    /// The name of the namespace; empty for that without a name.
    pub namespace: Bytes,
}

impl QueueRow {
    /// Returns true if the jobs of any protocol are paused.
    pub const fn is_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    /// Jobs in one state.
    pub fn jobs(&self, state: JobStateKind) -> u32 {
        self.places.get(state as usize).copied().unwrap_or_default()
    }

    /// Workers that serve the queue. A program that has leased a job from it is included even if it
    /// is not registered.
    pub fn served_by(&self) -> u32 {
        self.workers
            .max(u32::from(self.jobs(JobStateKind::Leased) > 0))
    }

    /// Jobs that are ready, leased, scheduled or retrying: all except dead, parked and done ones.
    pub fn live(&self) -> u32 {
        JobStateKind::ALL
            .into_iter()
            .filter(|state| state.is_live())
            .map(|state| self.jobs(state))
            .sum()
    }
}

/// A worker in a listing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct WorkerRow {
    /// The name.
    pub name: Bytes,
    /// The description of itself.
    pub about: Bytes,
    /// The protocol of the worker's first connection.
    pub protocol: Option<Protocol>,
    /// The state requested of it.
    pub state: WorkerState,
    /// When it last sent a heartbeat (engine's time).
    pub beat_at: Timestamp,
    /// Bytes used by the worker's process, as of the last heartbeat that reported it.
    pub memory_bytes: Option<u64>,
    /// The open connections.
    pub connections: u32,
    /// Jobs that the worker has with time-bound leases.
    pub held: u32,
    /// The connections that wait for work.
    pub waiting: Option<u32>,
    /// The oldest jobs of the worker: ID, queue, start of the lease (engine's time).
    pub jobs: Vec<(JobId, Bytes, Timestamp)>,
    /// The name of the namespace; empty for that without a name.
    pub namespace: Bytes,
}

/// A connection in a listing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ClientRow {
    /// The connection.
    pub id: ClientId,
    /// A small number for display.
    pub number: u32,
    /// The address.
    pub address: Box<str>,
    /// The name that the client gave.
    pub label: Bytes,
    /// The protocol it speaks.
    pub protocol: Option<Protocol>,
    /// The queues that the client serves, in the order of registration.
    pub subscriptions: Vec<Bytes>,
    /// This row continues the previous one of the same client, with queues that were registered before those.
    pub is_continued: bool,
    /// The first row of the next page continues this row with queues that were registered before these.
    pub goes_on: bool,
    /// Jobs that the client has.
    pub held: u32,
    /// True if the client is waiting for work in any form.
    pub waits: bool,
    /// The name of the namespace; empty for that without a name.
    pub namespace: Bytes,
}

/// The unfinished work of a daemon's clients.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct WorkLeft {
    /// Jobs of connected clients, by the clients' protocol. The holder of an entry of a `cycle` queue is
    /// unknown, so it is included while any client of the entry's protocol is connected.
    pub jobs: Vec<(Option<Protocol>, u64)>,
    /// True if no connection has leased a job or listens to one, so that stopping the daemon interrupts no
    /// work. Ready jobs are irrelevant. Time-bound leases survive the daemon, and a job that is not durable
    /// always has a listener.
    pub is_at_rest: bool,
    /// True if the clients get no job any more: see `WorkerCommand::Drain`.
    pub is_draining: bool,
}

/// The figures of the engine.
#[derive(Clone, Debug, PartialEq, Default, Deserialize, Serialize)]
pub struct Stats {
    /// Since the data directory was created.
    pub totals: Totals,
    /// Current jobs by state, in the order of [`JobStateKind::ALL`].
    pub places: [u64; JobStateKind::ALL.len()],
    /// The same figures for each protocol that has or had any jobs, in order.
    pub protocols: Vec<ProtocolStats>,
    /// Current jobs.
    pub jobs: u64,
    /// Bytes counted for jobs, schedules and batches.
    pub bytes: u64,
    /// The part of `bytes` in dead and done jobs, which are evicted for new jobs.
    pub past_bytes: u64,
    /// Queues that exist.
    pub queues: u32,
    /// Queues with a throttle, including those that do not exist.
    pub throttled: u32,
    /// Open connections.
    pub clients: u32,
    /// Named workers.
    pub workers: u32,
    /// Schedules.
    pub schedules: u32,
    /// Batches.
    pub batches: u32,
}

/// A namespace in a listing.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct NamespaceRow {
    /// The number.
    pub id: Namespace,
    /// The name; empty for that without a name.
    pub name: Bytes,
    /// What its clients may use.
    pub limits: NamespaceLimits,
    /// Jobs in all states.
    pub jobs: u64,
    /// Bytes counted for jobs, schedules and batches.
    pub bytes: u64,
    /// Queues, including those that no protocol lists.
    pub queues: u32,
    /// Open connections, of clients with a protocol.
    pub clients: u32,
    /// Pushes refused at a limit since the daemon started, and the last limit, if there was any.
    pub refused: u64,
    /// The limit at which a push was refused last, and when (wall clock).
    pub refused_last: Option<(Capacity, Timestamp)>,
}

/// The figures of a protocol's jobs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ProtocolStats {
    /// The protocol.
    pub protocol: Protocol,
    /// Since the data directory was created, or since the last complete flush of this protocol.
    pub totals: Totals,
    /// Current jobs by state, in the order of [`JobStateKind::ALL`].
    pub places: [u64; JobStateKind::ALL.len()],
}

impl Stats {
    /// Jobs and bytes towards the limits. Dead and done jobs are excluded, because they are evicted
    /// for new ones.
    pub fn staying(&self) -> (u64, u64) {
        let over = [JobStateKind::Dead, JobStateKind::Done]
            .map(|kind| self.places.get(kind as usize).copied());
        let over: u64 = over.into_iter().flatten().sum();
        (
            self.jobs.saturating_sub(over),
            self.bytes.saturating_sub(self.past_bytes),
        )
    }

    /// The figures of a protocol.
    pub fn of(&self, protocol: Protocol) -> ProtocolStats {
        let none = ProtocolStats {
            protocol,
            totals: Totals::default(),
            places: [0; JobStateKind::ALL.len()],
        };
        self.protocols
            .iter()
            .find(|row| row.protocol == protocol)
            .cloned()
            .unwrap_or(none)
    }
}

impl ProtocolStats {
    /// Jobs in one state.
    pub fn jobs(&self, state: JobStateKind) -> u64 {
        self.places.get(state as usize).copied().unwrap_or_default()
    }
}

/// Defines the counters once: the names, and the order in arrays.
macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the data directory was created; journalled with every commit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Totals {
            /// Number of counters.
            pub const COUNT: usize = [$(stringify!($name)),*].len();

            /// All counters, in the order of declaration.
            pub const fn values(&self) -> [u64; Self::COUNT] {
                [$(self.$name),*]
            }

            /// Counters with these values.
            pub const fn of([$($name),*]: [u64; Self::COUNT]) -> Self {
                Self { $($name),* }
            }
        }
    };
}

totals! {
    /// New jobs. A push that attaches to an existing job does not count.
    pushed,
    /// Deliveries.
    taken,
    /// Jobs that succeeded.
    succeeded,
    /// Failures, including leases that ran out with [`OnExpiry::Fail`](crate::OnExpiry::Fail).
    failed,
    /// Jobs moved to the dead-letter queue.
    buried,
    /// Deliveries to workers that disappeared.
    lost,
    /// Jobs discarded because [`NewJob::expires`](crate::NewJob::expires) had passed.
    expired,
    /// Jobs removed by commands.
    cancelled,
    /// Scheduled jobs that became due.
    released,
    /// Failed jobs that became due for a retry.
    retried,
    /// Dead jobs removed after their retention, or dropped before that ([`crate::DeadDropped`]).
    purged,
    /// Leases that ran out, with any [`OnExpiry`](crate::OnExpiry).
    timed_out,
    /// Workers that missed heartbeats. Per protocol: workers with connections of that protocol.
    workers_lost,
    /// Conversion errors: jobs that cannot be expressed in the worker's protocol.
    misfits,
}

impl Totals {
    /// The sum of two sets of counters.
    #[must_use]
    pub fn sum(&self, other: &Self) -> Self {
        self.merged(other, u64::saturating_add)
    }

    /// Merges two sets of counters element by element.
    #[must_use]
    pub fn merged(&self, other: &Self, merge: fn(u64, u64) -> u64) -> Self {
        let mut merged = self.values();
        merged
            .iter_mut()
            .zip(other.values())
            .for_each(|(one, other)| *one = merge(*one, other));
        Self::of(merged)
    }
}
