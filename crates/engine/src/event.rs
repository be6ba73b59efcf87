//! The events that the engine sends to clients. Event names are past participles. An event with a tag answers one command.

use bytes::Bytes;

use crate::command::{Cursor, Note, QueueKind, WorkerState};
use crate::ids::{JobId, Priority, Protocol, Tag, Timestamp, Token};
use crate::job::{Failure, Job, JobStateKind};
use crate::rules::{Codec, QueueRules};
use crate::schedule::Schedule;
use crate::throttle::Throttle;

/// One message to one client.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A push succeeded.
    Pushed {
        /// The command's tag.
        tag: Tag,
        /// The new job, or the existing one.
        job: JobId,
        /// What the push did.
        how: Pushed,
        /// Whether this event must wait for the journal (see [`Event::acknowledges`]).
        durable: bool,
    },
    /// This client received a job.
    Taken {
        /// The take's tag; [`Tag::NONE`] for a job sent on credit.
        tag: Tag,
        /// The job.
        job: Box<Taken>,
    },
    /// A take found no job.
    Empty {
        /// The command's tag.
        tag: Tag,
    },
    /// There is work for a client that sleeps.
    WorkAvailable,
    /// A job succeeded.
    Finished {
        /// The command's tag.
        tag: Tag,
        /// The job.
        job: JobId,
    },
    /// A job's failure was recorded.
    Failed {
        /// The command's tag.
        tag: Tag,
        /// The job.
        job: JobId,
        /// What happens to the job.
        fate: Fate,
    },
    /// A command succeeded.
    Done {
        /// The command's tag.
        tag: Tag,
    },
    /// Every earlier change is durable. Must not be sent before the journal has written them, even if acknowledgements may be.
    Settled {
        /// The command's tag.
        tag: Tag,
    },
    /// A command was refused.
    Refused {
        /// The command's tag.
        tag: Tag,
        /// The reason.
        why: Refusal,
    },
    /// A listener receives a report from the worker.
    Progress {
        /// The job.
        job: JobId,
        /// The report.
        note: Note,
    },
    /// A listener is notified that a job has ended.
    Ended {
        /// The job.
        job: JobId,
        /// The outcome.
        end: End,
    },
    /// One job or one schedule in its current state. A number never names both.
    Looked {
        /// The command's tag.
        tag: Tag,
        /// The job, if it exists.
        job: Option<Box<JobView>>,
        /// The schedule with this number, if it exists.
        schedule: Option<Box<Schedule>>,
    },
    /// A schedule was set.
    ScheduleSet {
        /// The command's tag.
        tag: Tag,
        /// Its number: new, or that of the schedule it replaced.
        schedule: JobId,
        /// Whether it replaced the schedule with the same name.
        replaced: bool,
    },
    /// A page of schedules.
    Schedules {
        /// The command's tag.
        tag: Tag,
        /// The rows, by number.
        rows: Vec<Schedule>,
        /// Where to continue; `None` = no more rows. A short page is not always the last.
        next: Option<Cursor>,
    },
    /// A batch in its current state.
    BatchLooked {
        /// The command's tag.
        tag: Tag,
        /// The batch.
        batch: Box<BatchView>,
    },
    /// A page of queues.
    Queues {
        /// The command's tag.
        tag: Tag,
        /// The rows.
        rows: Vec<QueueRow>,
        /// Where to continue; `None` = no more rows.
        next: Option<Cursor>,
    },
    /// A page of jobs.
    Jobs {
        /// The command's tag.
        tag: Tag,
        /// The rows.
        rows: Vec<JobView>,
        /// Where to continue; `None` = no more rows. A short or empty page is not always the last.
        next: Option<Cursor>,
    },
    /// A page of connections.
    Clients {
        /// The command's tag.
        tag: Tag,
        /// The rows.
        rows: Vec<ClientRow>,
        /// Where to continue; `None` = no more rows.
        next: Option<Cursor>,
    },
    /// The engine's figures.
    Stats {
        /// The command's tag.
        tag: Tag,
        /// The figures.
        stats: Box<Stats>,
    },
    /// One round of a bulk command is complete.
    Mutated {
        /// The command's tag.
        tag: Tag,
        /// Jobs changed in this round.
        changed: u32,
        /// Where to continue; `None` = complete.
        next: Option<Cursor>,
    },
    /// A worker's heartbeat was recorded.
    Beaten {
        /// The command's tag.
        tag: Tag,
        /// The state requested of the worker.
        state: WorkerState,
    },
    /// The worker of this connection missed its heartbeats: the session must close the connection.
    Dismissed,
}

impl Event {
    /// Whether this event promises durability: it must not be sent before the journal has written the change.
    #[must_use]
    pub const fn acknowledges(&self) -> bool {
        match self {
            Self::Pushed { durable, .. } => *durable,
            Self::Finished { .. }
            | Self::Failed { .. }
            | Self::Done { .. }
            | Self::Settled { .. }
            | Self::ScheduleSet { .. }
            | Self::Mutated { .. } => true,
            // A session may answer such a refusal like success.
            Self::Refused { tag, why } => tag.wants_answer() && why.is_already_so(),
            Self::Taken { .. }
            | Self::Empty { .. }
            | Self::WorkAvailable
            | Self::Progress { .. }
            | Self::Ended { .. }
            | Self::Looked { .. }
            | Self::Schedules { .. }
            | Self::BatchLooked { .. }
            | Self::Queues { .. }
            | Self::Jobs { .. }
            | Self::Clients { .. }
            | Self::Stats { .. }
            | Self::Beaten { .. }
            | Self::Dismissed => false,
        }
    }

    /// Whether this event must wait for the journal even where acknowledgements need not: then the journal must have written
    /// every earlier change.
    #[must_use]
    pub const fn is_barrier(&self) -> bool {
        matches!(self, Self::Settled { .. })
    }

    /// The tag of the command that this event answers, if any.
    #[must_use]
    pub const fn tag(&self) -> Option<Tag> {
        match self {
            Self::Pushed { tag, .. }
            | Self::Taken { tag, .. }
            | Self::Empty { tag }
            | Self::Finished { tag, .. }
            | Self::Failed { tag, .. }
            | Self::Done { tag }
            | Self::Settled { tag }
            | Self::Refused { tag, .. }
            | Self::Looked { tag, .. }
            | Self::ScheduleSet { tag, .. }
            | Self::Schedules { tag, .. }
            | Self::BatchLooked { tag, .. }
            | Self::Queues { tag, .. }
            | Self::Jobs { tag, .. }
            | Self::Clients { tag, .. }
            | Self::Stats { tag, .. }
            | Self::Mutated { tag, .. }
            | Self::Beaten { tag, .. } => Some(*tag),
            Self::WorkAvailable | Self::Progress { .. } | Self::Ended { .. } | Self::Dismissed => None,
        }
    }
}

/// What a push did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// It created a job.
    New,
    /// The key belongs to an existing job. If the push set `listen`, the producer now listens to that job.
    Attached,
    /// The key belongs to an existing job, which stays as it is.
    Kept,
}

/// A job as its worker receives it.
#[derive(Clone, Debug, PartialEq)]
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
    /// Whether any client listens to the worker's reports.
    pub heard: bool,
}

/// How a job ended, for its listeners.
#[derive(Clone, Debug, PartialEq)]
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
    /// Its [`NewJob::expires_at`](crate::NewJob::expires_at) passed.
    Expired,
    /// A command removed it.
    Cancelled,
}

/// What happens to a job that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Ready again at this time.
    Retried(Timestamp),
    /// In the dead-letter queue until this time.
    Buried(Timestamp),
    /// Removed.
    Discarded,
}

/// Why a command was refused. The session reports it in its own protocol. A refusal promises nothing, except those that
/// [`Refusal::is_already_so`] names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    // refused: the session can explain why
    /// The queue is full for jobs of this priority.
    #[error("queue holds {held} jobs, limit {limit}")]
    QueueFull {
        /// Jobs in the queue.
        held: u32,
        /// The limit.
        limit: u32,
    },
    /// The daemon holds too many jobs.
    #[error("daemon holds {held} jobs, limit {limit}")]
    JobsFull {
        /// Jobs it holds.
        held: u64,
        /// The limit.
        limit: u64,
    },
    /// The jobs of the daemon take too many bytes.
    #[error("daemon holds {held} bytes of jobs, limit {limit}")]
    BytesFull {
        /// Bytes of its jobs.
        held: u64,
        /// The limit.
        limit: u64,
    },
    /// The daemon has too many queues.
    #[error("daemon knows {limit} queues, the limit")]
    QueuesFull {
        /// The limit.
        limit: u32,
    },
    /// The daemon has too many schedules.
    #[error("daemon keeps {limit} schedules, the limit")]
    SchedulesFull {
        /// The limit.
        limit: u32,
    },
    /// The schedule would never run.
    #[error("schedule never comes due")]
    NeverDue,
    /// The daemon has too many batches, and all of them are in use.
    #[error("daemon keeps {limit} batches, the limit")]
    BatchesFull {
        /// The limit.
        limit: u32,
    },
    /// Batches are nested too deeply.
    #[error("batch in {limit} batches already, the limit")]
    BatchTooDeep {
        /// The limit.
        limit: u32,
    },
    /// The client serves too many queues.
    #[error("client serves {limit} queues, the limit")]
    AbilitiesFull {
        /// The limit.
        limit: u32,
    },
    /// A name is too long.
    #[error("name of {given} bytes, limit {limit}")]
    NameTooLong {
        /// Bytes given.
        given: u32,
        /// The limit.
        limit: u32,
    },
    /// A body is too long for its queue.
    #[error("body of {given} bytes, limit of the queue {limit}")]
    BodyTooLong {
        /// Bytes given.
        given: u32,
        /// The limit.
        limit: u32,
    },
    /// Another job or batch has the key or name.
    #[error("job not unique")]
    NotUnique,
    /// The job does not exist.
    #[error("job unknown")]
    UnknownJob,
    /// The schedule does not exist.
    #[error("schedule unknown")]
    UnknownSchedule,
    /// The batch does not exist.
    #[error("batch unknown")]
    UnknownBatch,
    /// The job exists, but the client's claim is not to its current lease.
    #[error("lease not held")]
    NotHeld,
    /// The queue does not exist.
    #[error("queue unknown")]
    UnknownQueue,
    /// The queue has workers or unfinished jobs.
    #[error("queue in use")]
    QueueInUse,
    /// The queue has the other kind.
    #[error("queue of the other kind")]
    WrongKind,
    /// The worker does not exist.
    #[error("worker unknown")]
    UnknownWorker,
    /// The command is invalid now: the client already waits or is not open, or the command's fields do not fit together.
    #[error("out of place")]
    OutOfPlace,
    // unavailable: try again
    /// The store is not responding. Nothing was done.
    #[error("store unavailable")]
    Unavailable,
    // unknown: it may have been done
    /// The store stopped responding during the command. The command may or may not have been done.
    #[error("outcome unknown")]
    Unknown,
}

impl Refusal {
    /// Whether the requested state exists already: the thing to remove is gone, or the thing to create exists. A session may
    /// answer such a refusal like success (FWP's `ACK`, EventMQ's `UNSCHEDULE`). It therefore must wait until the journal has
    /// written the change that caused this state, which another connection may have made a moment ago.
    #[must_use]
    pub const fn is_already_so(self) -> bool {
        match self {
            Self::UnknownJob | Self::UnknownSchedule | Self::UnknownQueue | Self::NotUnique => true,
            Self::QueueFull { .. }
            | Self::JobsFull { .. }
            | Self::BytesFull { .. }
            | Self::QueuesFull { .. }
            | Self::SchedulesFull { .. }
            | Self::NeverDue
            | Self::BatchesFull { .. }
            | Self::BatchTooDeep { .. }
            | Self::AbilitiesFull { .. }
            | Self::NameTooLong { .. }
            | Self::BodyTooLong { .. }
            | Self::UnknownBatch
            | Self::NotHeld
            | Self::QueueInUse
            | Self::WrongKind
            | Self::UnknownWorker
            | Self::OutOfPlace
            | Self::Unavailable
            | Self::Unknown => false,
        }
    }
}

/// One job in a listing or an answer to `Look`.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    /// The job. A large body shares memory with the engine's copy.
    pub job: Job,
    /// Its queue's name.
    pub queue: Bytes,
    /// How the body is converted for a worker of another protocol.
    pub codec: Codec,
}

/// A batch in an answer to `LookBatch`.
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallbackState {
    /// Not pushed yet, or the batch has no such callback.
    None,
    /// Pushed. A callback that failed for good stays in this state.
    Enqueued,
    /// It succeeded.
    Ok,
}

/// One queue in a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueRow {
    /// Its name.
    pub name: Bytes,
    /// Its kind.
    pub kind: QueueKind,
    /// Whether it hands out no jobs.
    pub paused: bool,
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
}

impl QueueRow {
    /// Jobs in one state.
    #[must_use]
    pub fn jobs(&self, state: JobStateKind) -> u32 {
        self.places.get(state as usize).copied().unwrap_or_default()
    }

    /// Jobs that are ready, leased, scheduled or retrying: all except dead, parked and done ones.
    #[must_use]
    pub fn live(&self) -> u32 {
        [JobStateKind::Ready, JobStateKind::Leased, JobStateKind::Scheduled, JobStateKind::Retrying]
            .into_iter()
            .map(|p| self.jobs(p))
            .sum()
    }
}

/// One connection in a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientRow {
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
    /// This row continues the previous one, which is of the same client, with queues that the client registered earlier.
    pub is_continued: bool,
    /// The first row of the next page continues this row with queues that the client registered earlier.
    pub goes_on: bool,
    /// Jobs it holds.
    pub held: u32,
    /// Whether it waits for work in any form.
    pub waits: bool,
}

/// The figures of the whole engine.
#[derive(Clone, Debug, PartialEq, Default)]
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
#[derive(Clone, Debug, PartialEq)]
pub struct ProtocolStats {
    /// The protocol.
    pub protocol: Protocol,
    /// Since the data directory was created, or since the last complete flush of this protocol.
    pub totals: Totals,
    /// Current jobs by state, in the order of [`JobStateKind::ALL`].
    pub places: [u64; JobStateKind::ALL.len()],
}

impl Stats {
    /// The figures of one protocol.
    #[must_use]
    pub fn of(&self, protocol: Protocol) -> ProtocolStats {
        let none = ProtocolStats { protocol, totals: Totals::default(), places: [0; JobStateKind::ALL.len()] };
        self.protocols.iter().find(|row| row.protocol == protocol).cloned().unwrap_or(none)
    }
}

impl ProtocolStats {
    /// Jobs in one state.
    #[must_use]
    pub fn jobs(&self, state: JobStateKind) -> u64 {
        self.places.get(state as usize).copied().unwrap_or_default()
    }
}

/// Counters since the data directory was created; journalled with every commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Totals {
    /// New jobs. A push that attaches to an existing job does not count.
    pub pushed: u64,
    /// Deliveries.
    pub taken: u64,
    /// Jobs that succeeded.
    pub succeeded: u64,
    /// Failures, including leases that ran out with [`OnExpiry::Fail`](crate::OnExpiry::Fail).
    pub failed: u64,
    /// Jobs moved to the dead-letter queue.
    pub buried: u64,
    /// Deliveries lost with their worker.
    pub lost: u64,
    /// Jobs discarded because their [`NewJob::expires_at`](crate::NewJob::expires_at) had passed.
    pub expired: u64,
    /// Jobs removed by commands.
    pub cancelled: u64,
    /// Scheduled jobs that became due.
    pub released: u64,
    /// Failed jobs that became due for a retry.
    pub retried: u64,
    /// Dead jobs removed at the end of their retention, and those dropped earlier ([`crate::DeadDropped`]).
    pub purged: u64,
    /// Leases that ran out, with any [`OnExpiry`](crate::OnExpiry).
    pub timed_out: u64,
    /// Workers that missed their heartbeats. Per protocol: workers whose connections speak it.
    pub dismissed: u64,
    /// Conversion errors: jobs that cannot be expressed in their worker's protocol.
    pub misfits: u64,
}
