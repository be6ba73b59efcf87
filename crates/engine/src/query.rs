//! Reading state: the queries, the replies that answer them, and their rows.
//!
//! A new query is a variant here and in [`Reply`], and a function in `list`.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::condition::Order;
use crate::ids::{ClientId, JobId, Priority, Protocol, Protocols, Timestamp};
use crate::jobs::{Job, JobStateKind};
use crate::queues::{Codec, QueueFigures, QueueRules, Throttle};
pub use crate::queues::{KeyRow, PolicyRow};
pub use crate::reason::{LeaseHolder, Turn, Why};
use crate::request::{Cursor, Filter, JobRef, Mutation, QueueKind, WorkerState};

/// State is read; nothing changes. Listings return a page at a time. A client with a protocol sees the jobs, schedules,
/// queues and subscriptions of its protocol, those in bridged queues, and its protocol's batches. Totals, days,
/// throttles, figures and workers are for operators, and of all protocols.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Query {
    /// Return everything about one job, or about the schedule with this number. Answer: `Looked`.
    Job(JobRef),
    /// List schedules by number. Answer: `Schedules`.
    Schedules {
        /// Only schedules of this protocol; `None` = any.
        protocol: Option<Protocol>,
        /// Where the previous page ended.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// Return a batch and its progress. Answer: `Batch`.
    Batch {
        /// Its name.
        batch: Bytes,
    },
    /// List batches by number. Answer: `Batches`.
    Batches {
        /// Where the previous page ended.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// Return one queue with its figures: of an isolated queue, those of the client's protocol; a client without one
    /// gets all, and a queue that only has a throttle or rules. Answer: `Queues`, with at most one row.
    Queue {
        /// Its name.
        queue: Bytes,
    },
    /// List the queues that exist when the first page is requested, with their figures, each once. A client sees of an
    /// isolated queue only its protocol's part. Answer: `Queues`.
    Queues {
        /// Where the previous page ended.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// List the queues with a throttle or rules, whether or not a client has used them. Answer: `Queues`.
    Configured {
        /// Where the previous page ended.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// List the queues with a throttle, and who holds its slots. Answer: `Throttles`.
    Throttles {
        /// Where the previous page ended.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// List the jobs that match a filter: those that wait for a time in its order, dead and done ones the last one first,
    /// the ready ones of a queue in the order in which they run, and all others the newest first. Answer: `Jobs`.
    Jobs {
        /// The filter.
        filter: Box<Filter>,
        /// Where the previous page ended.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// Count the jobs that a bulk change would change, a bounded number at a time. Answer: `Counted`.
    Preview {
        /// The filter.
        filter: Box<Filter>,
        /// The change.
        action: Mutation,
        /// Where the previous round ended.
        after: Cursor,
        /// The most jobs to look for in this round.
        limit: u32,
    },
    /// List named workers. Answer: `Workers`.
    Workers {
        /// Where the previous page ended.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// List connections. Answer: `Clients`.
    Clients {
        /// Where the previous page ended.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// Return why a job does not run, or who has it. Refused if the job does not exist. Answer: `Why`.
    Why(JobRef),
    /// List the figures of queues that had any event since the daemon started, each once. Answer: `Figures`.
    Figures {
        /// Where the previous page ended.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// Return totals since the data directory was created, and current figures. Answer: `Stats`.
    Stats,
    /// Return the counters of each day. Answer: `Days`.
    Days,
    /// Return what the clients of the asker's daemon have. Answer: `WorkLeft`.
    WorkLeft,
    /// List the jobs that match a filter, in this order. Answer: `Jobs`.
    JobsBy {
        /// The order.
        order: Order,
        /// The filter.
        filter: Box<Filter>,
        /// Where the previous page ended.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// Return the past deliveries of a job that did not succeed. Refused if the job does not exist. Answer: `Attempts`.
    Attempts(JobRef),
    /// The policy of a queue and the keys of its jobs, those that wait or run. Answer: `Keys`.
    Keys {
        /// The queue.
        queue: Bytes,
        /// Where the previous page ended.
        after: Cursor,
        /// The most keys to return.
        limit: u32,
    },
    /// List the kinds that any job had since the daemon started, where jobs name what they call, and the figures of each.
    /// Answer: `Kinds`.
    Kinds {
        /// Where the previous page ended.
        after: Cursor,
        /// The most kinds to return.
        limit: u32,
    },
}

/// One job in a listing or an answer to `Look`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct JobView {
    /// The job. A large body shares memory with the engine's copy.
    pub job: Job,
    /// Its queue's name.
    pub queue: Bytes,
    /// How the body is converted for a worker of another protocol.
    pub codec: Codec,
}

/// A queue with a throttle in a listing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ThrottleRow {
    /// Its name.
    pub queue: Bytes,
    /// Whether a client has used it.
    pub known: bool,
    /// Its throttle.
    pub throttle: Throttle,
    /// Throttle slots that leases hold.
    pub slots_held: u32,
    /// Its ready jobs.
    pub ready: u32,
    /// Some of the jobs that hold slots, those leased first: number, since when (engine's time), holder.
    pub holders: Vec<(JobId, Timestamp, LeaseHolder)>,
}

/// The figures of one queue in a listing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct FiguresRow {
    /// Its name.
    pub name: Bytes,
    /// Its figures.
    pub figures: QueueFigures,
}

/// The figures of one kind of job in a listing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct KindRow {
    /// The protocol of its producers. `None`: the kinds that gave way to others, together.
    pub protocol: Option<Protocol>,
    /// What the jobs call; empty: their bodies do not show it.
    pub name: Bytes,
    /// What happened to them from each hand-out on.
    pub figures: QueueFigures,
}

/// A batch in an answer to `LookBatch`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct BatchView {
    /// Its name.
    pub name: Bytes,
    /// The protocol of its producer.
    pub protocol: Protocol,
    /// The name of its parent batch.
    pub parent: Option<Bytes>,
    /// A description for people.
    pub about: Bytes,
    /// Bytes that the session gets back with the batch.
    pub meta: Bytes,
    /// When it was created (wall clock).
    pub created_at: Timestamp,
    /// Whether it may push its callbacks.
    pub committed: bool,
    /// Jobs that have joined it, without callbacks and without the jobs of batches in it.
    pub total: u64,
    /// Of these, the jobs that have not succeeded.
    pub pending: u64,
    /// Of `pending`, the jobs that ran, or that can no longer run.
    pub failed: u64,
    /// Its `complete` callback.
    pub complete: CallbackState,
    /// Its `success` callback.
    pub success: CallbackState,
}

/// The state of a batch's callback.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum CallbackState {
    /// Not pushed yet, or the batch has no such callback.
    None,
    /// Pushed. A callback that failed for good stays in this state.
    Enqueued,
    /// It succeeded.
    Ok,
}

/// One queue in a listing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct QueueRow {
    /// Its name.
    pub name: Bytes,
    /// Its kind.
    pub kind: QueueKind,
    /// The protocols whose jobs it does not hand out.
    pub paused: Protocols,
    /// Since when it hands out no jobs (wall clock), if that is known.
    pub paused_at: Option<Timestamp>,
    /// How many jobs it may hold when a job of each priority is submitted, by [`Priority::lane`]; `None` = no limit.
    pub jobs_max: [Option<u32>; Priority::COUNT],
    /// The protocol whose jobs have that limit; `None` = the limit is for all jobs together.
    pub jobs_max_of: Option<Protocol>,
    /// How many of its jobs may be worked on at once.
    pub throttle: Option<Throttle>,
    /// The rules for its jobs.
    pub rules: QueueRules,
    /// Whether all protocols share its jobs.
    pub bridged: bool,
    /// Throttle slots that leases hold.
    pub slots_held: u32,
    /// Ready jobs by [`Priority::lane`]. A `cycle` queue has all its jobs in the lane of the normal priority.
    pub ready: [u32; Priority::COUNT],
    /// Jobs by state, in the order of [`JobStateKind::ALL`].
    pub places: [u32; JobStateKind::ALL.len()],
    /// Abilities registered for it. A client that registered twice counts twice.
    pub workers: u32,
    /// When its oldest ready job became ready.
    pub oldest_ready_at: Option<Timestamp>,
    /// Of `workers`, those that wait there; one that waits in two ways counts twice.
    pub waiting: Option<u32>,
    /// Its policy.
    pub policy: Option<Box<PolicyRow>>,
}

impl QueueRow {
    /// Whether it holds back any jobs.
    pub const fn is_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    /// Jobs in one state.
    pub fn jobs(&self, state: JobStateKind) -> u32 {
        self.places.get(state as usize).copied().unwrap_or_default()
    }

    /// Workers that serve it. A program that has a job of it is one, even if it has given no name.
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

/// One worker in a listing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct WorkerRow {
    /// Its name.
    pub name: Bytes,
    /// Its description of itself.
    pub about: Bytes,
    /// The protocol of its first connection.
    pub protocol: Option<Protocol>,
    /// The state requested of it.
    pub state: WorkerState,
    /// When it last sent a heartbeat (engine's time).
    pub beat_at: Timestamp,
    /// The memory that its process used at its last heartbeat that had a figure, in bytes.
    pub memory_bytes: Option<u64>,
    /// Its open connections.
    pub connections: u32,
    /// Jobs that it holds under time-bound leases.
    pub held: u32,
    /// Its connections that wait for work.
    pub waiting: Option<u32>,
    /// The oldest of the jobs that it holds: their numbers, their queues, and since when (engine's time).
    pub jobs: Vec<(JobId, Bytes, Timestamp)>,
}

/// One connection in a listing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ClientRow {
    /// The connection.
    pub id: ClientId,
    /// A small number for display.
    pub number: u32,
    /// Its address.
    pub address: Box<str>,
    /// The client's own name.
    pub label: Bytes,
    /// The protocol it speaks.
    pub protocol: Option<Protocol>,
    /// The queues it serves, in the order of registration.
    pub subscriptions: Vec<Bytes>,
    /// This row continues the previous one, which is of the same client, with queues that the client registered
    /// earlier.
    pub is_continued: bool,
    /// The first row of the next page continues this row with queues that the client registered earlier.
    pub goes_on: bool,
    /// Jobs it holds.
    pub held: u32,
    /// Whether it waits for work in any form.
    pub waits: bool,
}

/// What the clients of one daemon have.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct WorkLeft {
    /// Jobs that connected clients hold, by the clients' protocol. An entry of a `cycle` queue does not know its
    /// holder: it counts while a client of its protocol is connected.
    pub jobs: Vec<(Option<Protocol>, u64)>,
    /// Whether no connection holds a job or listens to one, so that the daemon's end interrupts no work. Jobs that wait
    /// do not count. Time-bound leases outlive the daemon, and jobs that are not durable have listeners.
    pub is_at_rest: bool,
    /// Whether the clients get no job any more: see `WorkerCommand::Drain`.
    pub is_draining: bool,
}

/// The figures of the whole engine.
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
    /// Of these, bytes of jobs that are over: they make way for new jobs.
    pub past_bytes: u64,
    /// Known queues.
    pub queues: u32,
    /// Queues with a throttle, known or unknown.
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

/// The figures of one protocol's jobs.
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
    /// Jobs, and bytes, that count against the limits: those that are over make way for new ones.
    pub fn staying(&self) -> (u64, u64) {
        let over = [JobStateKind::Dead, JobStateKind::Done]
            .map(|kind| self.places.get(kind as usize).copied());
        let over: u64 = over.into_iter().flatten().sum();
        (
            self.jobs.saturating_sub(over),
            self.bytes.saturating_sub(self.past_bytes),
        )
    }

    /// The figures of one protocol.
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

/// Defines the counters once: their names, and their order in arrays.
macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the data directory was created; journalled with every commit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Totals {
            /// How many counters there are.
            pub const COUNT: usize = [$(stringify!($name)),*].len();

            /// All counters, in this order.
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
    /// Deliveries lost with their worker.
    lost,
    /// Jobs discarded because their [`NewJob::expires`](crate::NewJob::expires) had passed.
    expired,
    /// Jobs removed by commands.
    cancelled,
    /// Scheduled jobs that became due.
    released,
    /// Failed jobs that became due for a retry.
    retried,
    /// Dead jobs removed at the end of their retention, and those dropped earlier ([`crate::DeadDropped`]).
    purged,
    /// Leases that ran out, with any [`OnExpiry`](crate::OnExpiry).
    timed_out,
    /// Workers that missed their heartbeats. Per protocol: workers whose connections speak it.
    workers_lost,
    /// Conversion errors: jobs that cannot be expressed in their worker's protocol.
    misfits,
}

impl Totals {
    /// Two sets of counters merged one by one.
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
