//! What the engine tells clients. Events are past participles; those with a tag answer one command.

use bytes::Bytes;

use crate::command::{Cursor, Note, QueueKind, WorkerState};
use crate::ids::{JobId, Origin, Priority, Tag, Timestamp, Token};
use crate::job::{Failure, Job, PlaceKind};
use crate::rules::{Codec, QueueRules};
use crate::schedule::Schedule;
use crate::throttle::Throttle;

/// One thing told to one client.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A job is kept.
    Pushed {
        /// Of the push.
        tag: Tag,
        /// The new job, or the one that was there.
        job: JobId,
        /// Which of the two.
        how: Pushed,
        /// Whether saying so promises anything (see [`Event::acknowledges`]).
        durable: bool,
    },
    /// A job is handed to this client.
    Taken {
        /// Of the take; [`Tag::NONE`] for a job sent on credit.
        tag: Tag,
        /// The job.
        job: Box<Taken>,
    },
    /// There was nothing to take.
    Empty {
        /// Of the take.
        tag: Tag,
    },
    /// There is work for a client that sleeps.
    Woken,
    /// A job succeeded.
    Finished {
        /// Of the finish.
        tag: Tag,
        /// Which.
        job: JobId,
    },
    /// A job's failure was taken down.
    Failed {
        /// Of the fail.
        tag: Tag,
        /// Which.
        job: JobId,
        /// What became of it.
        fate: Fate,
    },
    /// Done as asked.
    Done {
        /// Of the command.
        tag: Tag,
    },
    /// Everything before is remembered: not to be said before the journal has it, however early others are told.
    Settled {
        /// Of the barrier.
        tag: Tag,
    },
    /// Not done.
    Refused {
        /// Of the command.
        tag: Tag,
        /// Why.
        why: Refusal,
    },
    /// A listener hears from the worker.
    Told {
        /// Which job.
        job: JobId,
        /// What.
        note: Note,
    },
    /// A listener hears of the end.
    Ended {
        /// Which job.
        job: JobId,
        /// How.
        end: End,
    },
    /// One job, as it stands, or one schedule: a number is never both.
    Looked {
        /// Of the look.
        tag: Tag,
        /// The job, if there is one.
        job: Option<Box<JobView>>,
        /// The schedule with the number, if it is one's.
        schedule: Option<Box<Schedule>>,
    },
    /// A schedule is set.
    ScheduleSet {
        /// Of the command.
        tag: Tag,
        /// Its number, new or as it was.
        schedule: JobId,
        /// It took the place of the one of its name.
        replaced: bool,
    },
    /// A page of schedules.
    Schedules {
        /// Of the listing.
        tag: Tag,
        /// The rows, by number.
        rows: Vec<Schedule>,
        /// Where to go on; `None` = that was all. A page may be short and not be the last.
        next: Option<Cursor>,
    },
    /// A batch, as it stands.
    BatchLooked {
        /// Of the look.
        tag: Tag,
        /// The batch.
        batch: Box<BatchView>,
    },
    /// A page of queues.
    Queues {
        /// Of the listing.
        tag: Tag,
        /// The rows.
        rows: Vec<QueueRow>,
        /// Where to go on; `None` = that was all.
        next: Option<Cursor>,
    },
    /// A page of jobs.
    Jobs {
        /// Of the listing.
        tag: Tag,
        /// The rows.
        rows: Vec<JobView>,
        /// Where to go on; `None` = that was all. A page may be short, or even empty, and not be the last.
        next: Option<Cursor>,
    },
    /// A page of connections.
    Clients {
        /// Of the listing.
        tag: Tag,
        /// The rows.
        rows: Vec<ClientRow>,
        /// Where to go on; `None` = that was all.
        next: Option<Cursor>,
    },
    /// The figures.
    Stats {
        /// Of the request.
        tag: Tag,
        /// The figures.
        stats: Box<Stats>,
    },
    /// A round of a bulk mutation.
    Mutated {
        /// Of the mutation.
        tag: Tag,
        /// Jobs changed in this round.
        changed: u32,
        /// Where to go on; `None` = that was all.
        next: Option<Cursor>,
    },
    /// A worker's beat was heard.
    Beaten {
        /// Of the beat.
        tag: Tag,
        /// What it is asked to be.
        state: WorkerState,
    },
    /// The worker this connection belongs to is taken for dead: hang up.
    Dismissed,
}

impl Event {
    /// Whether this promises that something is remembered: it must not be sent before the journal has it.
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
            // To whoever wanted just that, it is as good as done.
            Self::Refused { tag, why } => tag.wants_answer() && why.is_already_so(),
            Self::Taken { .. }
            | Self::Empty { .. }
            | Self::Woken
            | Self::Told { .. }
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

    /// Whether this may never be sent before the journal has everything that came before it, though acknowledgements may.
    #[must_use]
    pub const fn is_barrier(&self) -> bool {
        matches!(self, Self::Settled { .. })
    }

    /// The tag of the command this answers, if it answers one.
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
            Self::Woken | Self::Told { .. } | Self::Ended { .. } | Self::Dismissed => None,
        }
    }
}

/// What a push led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// A new job.
    New,
    /// The producer now listens (or would) to the job that was there.
    Attached,
    /// The job that was there is kept as it is.
    Kept,
}

/// A job as its worker gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// Its number.
    pub id: JobId,
    /// Proves the lease.
    pub token: Token,
    /// Its queue's name.
    pub queue: Bytes,
    /// The protocol it was born in.
    pub origin: Origin,
    /// Its priority.
    pub priority: Priority,
    /// The producer's bytes.
    pub body: Bytes,
    /// What they become for a worker of another protocol.
    pub codec: Codec,
    /// The producer's public name.
    pub name: Bytes,
    /// What the origin's session wanted back.
    pub meta: Bytes,
    /// Its coalescing key, empty if it has none.
    pub key: Bytes,
    /// Deliveries, this one included.
    pub attempts: u32,
    /// Failures so far.
    pub failures: u32,
    /// What failure means for it.
    pub failures_max: i32,
    /// The last failure.
    pub failure: Option<Box<Failure>>,
    /// When it came to be ready.
    pub ready_at: Timestamp,
    /// When the lease ends by itself.
    pub until: Timestamp,
    /// Somebody hears what the worker says.
    pub heard: bool,
}

/// How a job ended, to those who listen.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// It succeeded.
    Succeeded {
        /// What its worker said.
        result: Bytes,
        /// The protocol in which it was said, if its worker speaks one.
        by: Option<Origin>,
    },
    /// It failed and is not tried again.
    Failed(Box<Failure>),
    /// Its workers were lost too often.
    Lost,
    /// Its lease ran out and it is not tried again.
    TimedOut,
    /// Its time to be worked on ran out.
    Expired,
    /// Somebody removed it.
    Cancelled,
}

/// What became of a job that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Ready again at this time.
    Retried(Timestamp),
    /// In the dead set until this time.
    Buried(Timestamp),
    /// Gone.
    Discarded,
}

/// Why something was not done: for the session to put in its protocol's words. It promises nothing, but for those that
/// [`Refusal::is_already_so`] names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    // refused: ours to explain
    /// The queue holds as many jobs as it may at this priority.
    #[error("queue holds {held} jobs, limit {limit}")]
    QueueFull {
        /// Jobs it holds.
        held: u32,
        /// Jobs it may hold.
        limit: u32,
    },
    /// The daemon holds as many jobs as it may.
    #[error("daemon holds {held} jobs, limit {limit}")]
    JobsFull {
        /// Jobs it holds.
        held: u64,
        /// Jobs it may hold.
        limit: u64,
    },
    /// The daemon holds as many bytes of jobs as it may.
    #[error("daemon holds {held} bytes of jobs, limit {limit}")]
    BytesFull {
        /// Bytes it holds.
        held: u64,
        /// Bytes it may hold.
        limit: u64,
    },
    /// There are as many queues as there may be.
    #[error("daemon knows {limit} queues, the limit")]
    QueuesFull {
        /// Queues there may be.
        limit: u32,
    },
    /// There are as many schedules as there may be.
    #[error("daemon keeps {limit} schedules, the limit")]
    SchedulesFull {
        /// Schedules there may be.
        limit: u32,
    },
    /// What is to be scheduled would never happen.
    #[error("schedule never comes due")]
    NeverDue,
    /// There are as many batches as there may be, all of them in use.
    #[error("daemon keeps {limit} batches, the limit")]
    BatchesFull {
        /// Batches there may be.
        limit: u32,
    },
    /// A batch is in a batch, and so on, as often as may be.
    #[error("batch in {limit} batches already, the limit")]
    BatchTooDeep {
        /// How often it may be.
        limit: u32,
    },
    /// The client serves as many queues as it may.
    #[error("client serves {limit} queues, the limit")]
    AbilitiesFull {
        /// Queues it may serve.
        limit: u32,
    },
    /// A name is longer than names may be.
    #[error("name of {given} bytes, limit {limit}")]
    NameTooLong {
        /// Bytes given.
        given: u32,
        /// Bytes allowed.
        limit: u32,
    },
    /// A body is longer than those of its queue may be.
    #[error("body of {given} bytes, limit of the queue {limit}")]
    BodyTooLong {
        /// Bytes given.
        given: u32,
        /// Bytes allowed.
        limit: u32,
    },
    /// The key or name is taken.
    #[error("job not unique")]
    NotUnique,
    /// There is no such job.
    #[error("job unknown")]
    UnknownJob,
    /// There is no such schedule.
    #[error("schedule unknown")]
    UnknownSchedule,
    /// There is no such batch.
    #[error("batch unknown")]
    UnknownBatch,
    /// There is such a job, but the lease is not the one that was claimed.
    #[error("lease not held")]
    NotHeld,
    /// There is no such queue.
    #[error("queue unknown")]
    UnknownQueue,
    /// The queue is served or worked on.
    #[error("queue in use")]
    QueueInUse,
    /// The queue is of the other kind.
    #[error("queue of the other kind")]
    WrongKind,
    /// There is no such worker.
    #[error("worker unknown")]
    UnknownWorker,
    /// The client waits already, or is not open.
    #[error("out of place")]
    OutOfPlace,
    // unavailable: try again
    /// The store does not answer; nothing was done.
    #[error("store unavailable")]
    Unavailable,
    // unknown: it may have happened
    /// The store stopped answering after it was asked: it may or may not have been done.
    #[error("outcome unknown")]
    Unknown,
}

impl Refusal {
    /// Whether this says that what was wanted is so already: what was to go is gone, what was to come is there. A session may
    /// answer it like success (FWP's `ACK`, EventMQ's `UNSCHEDULE`). So it must not be sent before the journal has whatever
    /// made it so, which another connection may have done a moment ago.
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
    /// The job itself; a large body shares memory with the engine's.
    pub job: Job,
    /// Its queue's name.
    pub queue: Bytes,
    /// What its bytes become for a worker of another protocol.
    pub codec: Codec,
}

/// A batch in an answer to `LookBatch`.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchView {
    /// Its name.
    pub name: Bytes,
    /// The protocol it was born in.
    pub origin: Origin,
    /// The name of the batch it is part of.
    pub parent: Option<Bytes>,
    /// A sentence for people.
    pub about: Bytes,
    /// What the session wants back with it.
    pub meta: Bytes,
    /// When it was made, by the wall clock.
    pub created_at: Timestamp,
    /// Its callbacks may be pushed.
    pub committed: bool,
    /// Jobs that have joined it, callbacks and those of batches in it not counted.
    pub total: u64,
    /// Those among them that have not succeeded.
    pub pending: u64,
    /// Those that were worked on, or can be no more, and have not succeeded: part of `pending`.
    pub failed: u64,
    /// Its `complete` callback.
    pub complete: CallbackState,
    /// Its `success` callback.
    pub success: CallbackState,
}

/// What has become of a batch's callback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallbackState {
    /// It was not pushed so far, or there is none.
    None,
    /// It was pushed. If it failed for good it stays so.
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
    /// Nothing is handed out.
    pub paused: bool,
    /// What of it may be worked on at once.
    pub throttle: Option<Throttle>,
    /// What holds for its jobs.
    pub rules: QueueRules,
    /// All protocols share its jobs.
    pub bridged: bool,
    /// Leases that count for the throttle.
    pub slots_held: u32,
    /// Ready jobs by [`Priority::lane`] (a `cycle` queue has all in the lane of the normal priority).
    pub ready: [u32; Priority::COUNT],
    /// Jobs by place, in the order of [`PlaceKind::ALL`].
    pub places: [u32; PlaceKind::ALL.len()],
    /// Abilities registered: a client that said so twice counts twice.
    pub workers: u32,
    /// When its oldest ready job came to be ready.
    pub oldest_ready_at: Option<Timestamp>,
}

impl QueueRow {
    /// Jobs in one kind of place.
    #[must_use]
    pub fn jobs(&self, place: PlaceKind) -> u32 {
        self.places.get(place as usize).copied().unwrap_or_default()
    }

    /// Jobs that wait, are worked on or will be: all but the dead, the shelved and the done.
    #[must_use]
    pub fn live(&self) -> u32 {
        [PlaceKind::Ready, PlaceKind::Leased, PlaceKind::Scheduled, PlaceKind::Retrying]
            .into_iter()
            .map(|p| self.jobs(p))
            .sum()
    }
}

/// One connection in a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientRow {
    /// A small number for people.
    pub number: u32,
    /// Its address.
    pub address: Box<str>,
    /// Its own name for itself.
    pub label: Bytes,
    /// The protocol it speaks.
    pub origin: Option<Origin>,
    /// The queues it serves, in the order it said so.
    pub abilities: Vec<Bytes>,
    /// These are some it named before those of the row before, which was of the same client.
    pub is_continued: bool,
    /// The next row, which is the first of the next page, has some it named before these.
    pub goes_on: bool,
    /// Jobs it holds.
    pub held: u32,
    /// It waits for work in any shape.
    pub waits: bool,
}

/// The figures of the whole engine.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Stats {
    /// Since the data directory was made.
    pub totals: Totals,
    /// Jobs now, by place, in the order of [`PlaceKind::ALL`].
    pub places: [u64; PlaceKind::ALL.len()],
    /// The same for each origin of which there is or was anything, in order.
    pub origins: Vec<OriginStats>,
    /// Jobs now.
    pub jobs: u64,
    /// Bytes they are counted as, and schedules and batches with them.
    pub bytes: u64,
    /// Queues known.
    pub queues: u32,
    /// Queues with a throttle, known or not.
    pub throttled: u32,
    /// Connections open.
    pub clients: u32,
    /// Workers known by name.
    pub workers: u32,
    /// Schedules.
    pub schedules: u32,
    /// Batches.
    pub batches: u32,
}

/// The figures of what was born in one protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginStats {
    /// The protocol.
    pub origin: Origin,
    /// Since the data directory was made, or everything of it was flushed.
    pub totals: Totals,
    /// Jobs now, by place, in the order of [`PlaceKind::ALL`].
    pub places: [u64; PlaceKind::ALL.len()],
}

impl Stats {
    /// Those of one origin.
    #[must_use]
    pub fn of(&self, origin: Origin) -> OriginStats {
        let none = OriginStats { origin, totals: Totals::default(), places: [0; PlaceKind::ALL.len()] };
        self.origins.iter().find(|row| row.origin == origin).cloned().unwrap_or(none)
    }
}

impl OriginStats {
    /// Jobs in one kind of place.
    #[must_use]
    pub fn jobs(&self, place: PlaceKind) -> u64 {
        self.places.get(place as usize).copied().unwrap_or_default()
    }
}

/// Counted since the data directory was made; journalled with every commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Totals {
    /// Jobs pushed, those attached to another not included.
    pub pushed: u64,
    /// Deliveries.
    pub taken: u64,
    /// Jobs that succeeded.
    pub succeeded: u64,
    /// Failures, leases that ran out with that meaning included.
    pub failed: u64,
    /// Jobs that went to the dead set.
    pub buried: u64,
    /// Deliveries lost with their worker.
    pub lost: u64,
    /// Jobs whose time to be worked on ran out.
    pub expired: u64,
    /// Jobs removed from outside.
    pub cancelled: u64,
    /// Scheduled jobs whose time had come.
    pub released: u64,
    /// Failed jobs whose time to be tried again had come.
    pub retried: u64,
    /// Dead jobs whose time to be kept was over, and those that were dropped before it ([`crate::DeadDropped`]).
    pub purged: u64,
    /// Leases that ran out, whatever that meant.
    pub timed_out: u64,
    /// Workers that were silent too long; of an origin: those whose connections spoke that protocol.
    pub dismissed: u64,
    /// Jobs that ended because their worker's protocol could not have them.
    pub misfits: u64,
}
