//! The commands that a client may send to the engine. Commands are verbs and own their data.
//!
//! Each command names the events that answer it. [`crate::Refusal`] can answer any command.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::batch::NewBatch;
use crate::ids::{JobId, Priority, Protocol, Timestamp, Token};
use crate::isolation::Bridge;
use crate::job::{Failure, Job, JobState, JobStateKind, KeyUntil, OnExpiry, Retry};
use crate::rules::QueueRules;
use crate::schedule::{NewSchedule, ScheduleRef};
use crate::throttle::Throttle;

/// One request from one client.
#[derive(Clone, Debug)]
pub enum Command {
    // ---- connections -------------------------------------------------------------------------------------------
    /// Open a connection. Must be its first command.
    Open(ClientInfo),
    /// Close a connection. Its connection-bound leases, waits, listeners and abilities end with it.
    Close,
    /// Set the client's own name (Gearman `SET_CLIENT_ID`).
    SetClientName(Bytes),

    // ---- what a worker can do ----------------------------------------------------------------------------------
    /// Register that the client can work on a queue (Gearman `CAN_DO`, EventMQ `INFORM`). Registering twice counts twice.
    Serve(Subscription),
    /// The client can no longer work on the queue. `requeue` returns its leased jobs of that queue.
    Unserve {
        /// The queue's name.
        queue: Bytes,
        /// Return the jobs that the client holds from this queue.
        requeue: bool,
    },
    /// The client can no longer work on any queue.
    UnserveAll {
        /// Return all jobs that the client holds.
        requeue: bool,
    },

    // ---- jobs in -----------------------------------------------------------------------------------------------
    /// Submit a new job. Answer: `Pushed`.
    Push(Box<NewJob>),

    // ---- jobs out ----------------------------------------------------------------------------------------------
    /// Take one job. Answer: `Taken`, or `Empty` when no job arrives within the wait. A client that is already waiting is
    /// refused, unless both its pending takes and this take have no deadline; then they wait in order. A take that does not wait
    /// has no deadline.
    Take(Take),
    /// Wait for work on a queue that the client serves (Gearman `PRE_SLEEP`). Answer: one `WorkAvailable`, at once or later.
    WaitForWork,
    /// Allow the engine to send this many more jobs, without further requests, from the queues that the client serves (EventMQ
    /// `READY`). Answers: one `Taken` for each.
    Credit {
        /// Additional jobs.
        credits: u32,
        /// How a queue is chosen when several have work.
        select: Select,
    },
    /// Withdraw pending `Take`s, `WaitForWork` and all credits. A withdrawn command gets no answer.
    Unwait,

    // ---- jobs done ---------------------------------------------------------------------------------------------
    /// A leased job succeeded. Answer: `Finished`. Listeners receive `Ended`.
    Finish {
        /// The job.
        job: JobRef,
        /// The worker's claim to the lease.
        proof: Proof,
        /// The result, for listeners and for later queries.
        result: Bytes,
    },
    /// A leased job failed. Its retry policy decides what follows. Answer: `Failed`. If the job is not retried, listeners receive
    /// `Ended`.
    Fail {
        /// The job.
        job: JobRef,
        /// The worker's claim to the lease.
        proof: Proof,
        /// The failure as the worker reported it. The engine sets `at`.
        failure: Box<Failure>,
    },
    /// Reject a leased job because it cannot be expressed in the worker's protocol (a conversion error). The job returns to its
    /// own position. Workers of that protocol no longer see it until the daemon restarts, or the job's body or its queue's codec
    /// changes. This counts neither as a failure nor as a loss. If the job suits no protocol (if isolated: not its own),
    /// it goes to the dead-letter queue regardless of its retry policy, with a failure of the kind [`MISFIT`](crate::MISFIT). If
    /// it is not durable, it is removed instead. In both cases listeners receive `Ended`. Answer: `Done`.
    Unconvertible {
        /// The job.
        job: JobRef,
        /// The worker's claim to the lease.
        proof: Proof,
        /// The reason, as a sentence. Becomes the failure's message.
        why: Bytes,
    },
    /// Return a leased job without working on it, to its own position or to the front. Counts no failure. Answer: `Done`.
    Release {
        /// The job.
        job: JobRef,
        /// The worker's claim to the lease.
        proof: Proof,
        /// Whether to return it to the front instead of its own position.
        front: bool,
    },
    /// Set the end of a lease, at most [`crate::Limits::lease_ms_max`] from now. Answer: `Done`.
    Extend {
        /// The job.
        job: JobRef,
        /// The worker's claim to the lease.
        proof: Proof,
        /// The new end.
        until: Timestamp,
        /// Only extend the lease, never shorten it (FWP). Otherwise the end may move either way (spiderq).
        only_later: bool,
    },
    /// Return a leased entry to its `cycle` queue (spiderq `Repay`). Answer: `Done`.
    Repay {
        /// The entry.
        job: JobRef,
        /// The worker's claim to the lease.
        proof: Proof,
        /// Its new value.
        body: Bytes,
        /// The position to return it to.
        to: RepayTo,
    },
    /// Report progress, data or a warning for a leased job. Answer: `Done`. Listeners receive `Told`.
    Progress {
        /// The job.
        job: JobRef,
        /// The worker's claim to the lease.
        proof: Proof,
        /// The report.
        note: Note,
    },

    // ---- one job, from outside ---------------------------------------------------------------------------------
    /// Record a job's progress, whatever its state (FWP `TRACK SET`). Fields that are `None` stay as they are. Answer: `Done`. If
    /// the job is leased, its listeners receive `Told`.
    Track {
        /// The job.
        job: JobRef,
        /// Numerator and denominator.
        progress: Option<(u32, u32)>,
        /// A sentence.
        text: Option<Bytes>,
        /// If the job is leased, extend its lease to this time, at most [`crate::Limits::lease_ms_max`] from now. Never shortens
        /// a lease.
        until: Option<Timestamp>,
    },
    /// Replace a job's body, whatever its state (spiderq `Update`). Answer: `Done`.
    Replace {
        /// The job.
        job: JobRef,
        /// The new body.
        body: Bytes,
    },
    /// Remove a job, whatever its state. Listeners receive `Ended` with `Cancelled`. Answer: `Done`. If the job was leased, its
    /// worker's `Finish` or `Fail` is refused with `UnknownJob`.
    Cancel(JobRef),
    /// Return everything about one job, or about the schedule with this number. Answer: `Looked`.
    Look(JobRef),

    // ---- queues ------------------------------------------------------------------------------------------------
    /// Make a queue known without pushing to it. Answer: `Done`. Refused if it exists with another kind.
    CreateQueue {
        /// Its name.
        queue: Bytes,
        /// Its kind.
        kind: QueueKind,
    },
    /// Remove a queue and its ready jobs. Jobs in other states stay, and the queue stays with them, hidden until one of them
    /// becomes ready. Answer: `Done`. If the queue has more ready jobs than one visit may remove, the answer is `Mutated` with a
    /// part of them removed; then send the command again.
    RemoveQueue {
        /// Its name.
        queue: Bytes,
        /// Refuse if a worker serves the queue, or if any of its jobs is ready, leased, scheduled or retrying.
        only_idle: bool,
    },
    /// Pause or resume a queue: a paused queue hands out no jobs. An unknown name is not an error. Answer: `Done`.
    PauseQueue {
        /// Its name.
        queue: Bytes,
        /// `true` pauses, `false` resumes.
        paused: bool,
    },
    /// Set how many jobs a queue may hold when a job of each priority is submitted. Answer: `Done`.
    LimitQueue {
        /// Its name. An unknown queue becomes known.
        queue: Bytes,
        /// By [`Priority::lane`]; `None` = no limit.
        jobs_max: [Option<u32>; Priority::COUNT],
    },
    /// Limit how many jobs of a queue may be worked on at once. At the limit the queue hands out nothing, and a take continues
    /// with the next queue in its list. The throttle outlasts the queue's removal. Jobs already leased count, so this command
    /// scans all jobs. Answer: `Done`.
    ThrottleQueue {
        /// Its name. The queue need not be known, and does not become known.
        queue: Bytes,
        /// `None` = unlimited.
        throttle: Option<Throttle>,
    },

    /// Set which queues all protocols share; replaces the previous setting. Initially no queue is shared. Not journalled. Scans
    /// all queues, and all ready jobs of the queues whose setting changes. Answer: `Done`.
    Bridge(Box<Bridge>),
    /// Set the rules of a queue; each rule states which jobs it covers. They outlast the queue's removal. If
    /// [`QueueRules::codec`] changes, this command scans all ready jobs of the queue. Answer: `Done`.
    RuleQueue {
        /// Its name. The queue need not be known, and does not become known.
        queue: Bytes,
        /// All rules of the queue: they replace the previous ones.
        rules: QueueRules,
    },

    // ---- schedules: jobs that are pushed again and again ---------------------------------------------------------
    /// Create a recurring job, or replace the one with the same name. Answer: `ScheduleSet`. Refused if it would never run.
    SetSchedule(Box<NewSchedule>),
    /// Remove a schedule. The jobs it has pushed stay. Answer: `Done`.
    RemoveSchedule(ScheduleRef),
    /// List schedules by number. Answer: `Schedules`.
    ListSchedules {
        /// Only schedules of this protocol; `None` = any.
        protocol: Option<Protocol>,
        /// Where the previous page ended.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },

    // ---- batches: jobs that belong together ----------------------------------------------------------------------
    /// Create a batch. Answer: `Done`. Refused if its name is taken or its parent is unknown.
    BatchNew(Box<NewBatch>),
    /// Announce that more jobs will join a batch. If it was committed, it pushes no callbacks until it is committed again. The
    /// command is optional: jobs may join any known batch. A batch that has pushed all its callbacks is only kept for longer.
    /// Answer: `Done`.
    BatchOpen {
        /// Its name.
        batch: Bytes,
        /// After this many milliseconds the batch may push callbacks again, committed or not.
        hold_ms: u64,
    },
    /// Allow the batch to push its callbacks. Idempotent. Answer: `Done`.
    BatchCommit {
        /// Its name.
        batch: Bytes,
    },
    /// Return a batch and its progress. Answer: `BatchLooked`.
    LookBatch {
        /// Its name.
        batch: Bytes,
    },

    // ---- listings, a page at a time ----------------------------------------------------------------------------
    /// Return one queue with its figures. Answer: `Queues`, with at most one row.
    LookQueue {
        /// Its name.
        queue: Bytes,
    },
    /// List the queues that exist when the first page is requested, with their figures, each once. Answer: `Queues`.
    ListQueues {
        /// Where the previous page ended.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// List the jobs that match a filter. Answer: `Jobs`.
    ListJobs {
        /// The filter.
        filter: Filter,
        /// Where the previous page ended.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// List connections. Answer: `Clients`.
    ListClients {
        /// Where the previous page ended.
        after: Cursor,
        /// The most rows to return.
        limit: u32,
    },
    /// Return totals since the data directory was created, and current figures. Answer: `Stats`.
    Stats,
    /// Wait until every earlier change is durable. Answer: `Settled`.
    Barrier,
    /// Change the jobs that match a filter, a bounded number at a time. Answer: `Mutated`, with where to continue.
    Mutate {
        /// The filter.
        filter: Filter,
        /// The change.
        action: Mutation,
        /// Where the previous round ended.
        after: Cursor,
        /// The most jobs to change in this round.
        limit: u32,
    },

    /// Remove everything of one protocol, a bounded amount at a time: its batches; its jobs in every state (a worker's report on
    /// a removed job is refused as unknown); queues that are then empty, unserved and without limits (the next push makes them
    /// known again); and its counters. Jobs that arrive meanwhile may stay. Schedules stay: they define future work and are not
    /// work themselves. Answer: `Mutated`, with where to continue.
    Flush {
        /// The protocol.
        protocol: Protocol,
        /// Where the previous round ended.
        after: Cursor,
        /// The most jobs, batches or queues to process in this round.
        limit: u32,
    },

    // ---- workers known by name across connections --------------------------------------------------------------
    /// Assign this connection to the named worker. The worker stays registered while it sends heartbeats and has a connection.
    /// From `Quiet` on, none of its connections receives work, however it waits. Answer: `Done`. The empty name is refused.
    RegisterWorker {
        /// The worker's name (FWP `wid`).
        worker: Bytes,
        /// The worker's description of itself, for listings.
        about: Bytes,
    },
    /// Record a heartbeat of the named worker. `state` can only advance the worker's state. Answer: `Beaten`.
    Beat {
        /// The worker's name.
        worker: Bytes,
        /// The state that the worker requests, if any.
        state: Option<WorkerState>,
    },
    /// Advance a worker's state on behalf of an operator; the empty name means all workers. Answer: `Done`.
    SetWorkerState {
        /// The worker's name.
        worker: Bytes,
        /// The new state.
        state: WorkerState,
    },
}

/// The peer of a connection.
#[derive(Clone, Debug, Default)]
pub struct ClientInfo {
    /// The address, as text for display. Empty for a Unix socket.
    pub address: Box<str>,
    /// The protocol it speaks.
    pub protocol: Option<Protocol>,
    /// A small number for display: gearmand shows a file descriptor here.
    pub number: u32,
}

/// A queue a client can work on, and the terms for jobs that it receives from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscription {
    /// The queue's name.
    pub queue: Bytes,
    /// Clients with credits are served in order of weight, higher first (EventMQ).
    pub weight: u32,
    /// The lease a job of this queue is taken under.
    pub lease: LeaseTerms,
    /// This client's credits also bring it strays of this protocol, as if they were in this queue. Strays are ready jobs of
    /// `work` queues without workers, each the first of its queue. They are leased on the terms of this ability and keep their
    /// own queue's name. Clients that wait at that queue itself are served first. `Take` and `WaitForWork` ignore strays.
    pub unclaimed: Option<Protocol>,
}

/// The lease that a client requests for a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseTerms {
    /// Whether the lease ends with the connection. Otherwise it ends only by time.
    pub connection_bound: bool,
    /// Milliseconds until the lease ends by itself, at least 1; `None` = never.
    pub lease_ms: Option<u64>,
    /// What happens when the lease runs out.
    pub on_expiry: OnExpiry,
    /// If the job requests a lease of its own ([`NewJob::lease_ms`]), that time and this consequence replace `lease_ms` and
    /// `on_expiry`. `None` = the job's request is ignored.
    pub wish: Option<OnExpiry>,
}

impl LeaseTerms {
    /// Until the connection ends.
    pub const CONNECTION: Self =
        Self { connection_bound: true, lease_ms: None, on_expiry: OnExpiry::Requeue, wish: None };
}

/// A job to submit.
#[derive(Clone, Debug, PartialEq)]
pub struct NewJob {
    /// The queue's name. An unknown queue becomes known. `kind` must match an existing queue.
    pub queue: Bytes,
    /// The kind of the queue.
    pub kind: QueueKind,
    /// The protocol of the producer.
    pub protocol: Protocol,
    /// Jobs with a higher priority are taken first.
    pub priority: Priority,
    /// Kept in the journal. Otherwise the job lives only while a client listens to it, and its producer must listen (refused with
    /// `OutOfPlace` if it does not).
    pub durable: bool,
    /// Whether the producer receives progress and the end.
    pub listen: bool,
    /// Put the job before others of its priority instead of behind them.
    pub front: bool,
    /// The producer's bytes, verbatim. A body of at most [`Payload::COPY_MAX`](crate::Payload::COPY_MAX) bytes is copied and may
    /// be part of a larger buffer. A longer body is kept without a copy.
    pub body: Bytes,
    /// The producer's public name for the job.
    pub name: Option<Bytes>,
    /// Refuse (`NotUnique`) if another job already has this name.
    pub name_unique: bool,
    /// Bytes that the session gets back with the job.
    pub meta: Bytes,
    /// The coalescing key, if any.
    pub unique: Option<Unique>,
    /// Do not hand out before this time (wall clock).
    pub not_before: Option<Timestamp>,
    /// Discard if not taken before this time (wall clock).
    pub expires_at: Option<Timestamp>,
    /// What follows a failure.
    pub retry: Retry,
    /// The producer set no retry policy: the queue's rule applies, if it has one ([`QueueRules::retry`]).
    pub retry_default: bool,
    /// How long the result is kept, in milliseconds; 0 = not kept.
    pub result_keep_ms: u64,
    /// For this many milliseconds after its end the job's outcome can be queried, unless the job was removed by a command; 0 =
    /// not tracked.
    pub track_ms: u64,
    /// The lease that the job requests, in milliseconds. It overrides the taker's lease if the taker permits
    /// ([`LeaseTerms::wish`]).
    pub lease_ms: Option<u64>,
    /// The name of the batch it joins; the batch must exist. Only a durable job of a `work` queue with `past` unset may join a
    /// batch. A push that finds an existing job (`Attached`, `Kept`) joins no batch.
    pub batch: Option<Bytes>,
    /// Its history on another server, if it was imported.
    pub past: Option<Box<Past>>,
}

/// A job's history on another server: for imports, not for clients. A schedule's template has none.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Past {
    /// When it became ready there (wall clock), never later than now.
    pub ready_at: Option<Timestamp>,
    /// Failures so far; the retry budget counts them.
    pub failures: u32,
    /// Its state, if [`NewJob::not_before`] does not determine it: leased to a named worker, retrying or dead. A time in the past
    /// is due at once.
    pub state: Option<JobState>,
}

impl NewJob {
    /// The simplest job: durable, normal priority, no retry, no listener.
    #[must_use]
    pub fn new(protocol: Protocol, queue: Bytes, body: Bytes) -> Self {
        Self {
            queue,
            kind: QueueKind::Work,
            protocol,
            priority: Priority::NORMAL,
            durable: true,
            listen: false,
            front: false,
            body,
            name: None,
            name_unique: false,
            meta: Bytes::new(),
            unique: None,
            not_before: None,
            expires_at: None,
            retry: Retry::NONE,
            retry_default: false,
            result_keep_ms: 0,
            track_ms: 0,
            lease_ms: None,
            past: None,
            batch: None,
        }
    }

    /// The bytes that it counts as while it is a template.
    pub(crate) fn weight_bytes(&self) -> u64 {
        const FIXED: usize = 350;
        let names = [Some(&self.queue), self.name.as_ref(), Some(&self.meta), Some(&self.body)];
        let unique = self.unique.as_ref().map_or(0, |unique| unique.key.len());
        (FIXED + unique + names.into_iter().flatten().map(Bytes::len).sum::<usize>()) as u64
    }
}

/// A coalescing key, and what follows when another job holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Unique {
    /// Unique within (queue, protocol).
    pub key: Bytes,
    /// What follows when another job holds the key.
    pub clash: Clash,
    /// When the job releases the key.
    pub until: KeyUntil,
}

/// What happens to a push whose key another job holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clash {
    /// The producer becomes a listener of the existing job (Gearman).
    Attach,
    /// The push is refused (FWP).
    Refuse,
    /// The existing job stays as it is (spiderq).
    Keep,
}

/// The two kinds of queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QueueKind {
    /// A finished job is removed.
    #[default]
    Work,
    /// A repaid entry returns to the queue.
    Cycle,
}

/// A request to take one job.
#[derive(Clone, Debug)]
pub struct Take {
    /// The queues to take from.
    pub from: From,
    /// How a queue is chosen when several have work.
    pub select: Select,
    /// How long to wait when no queue has work.
    pub wait: Wait,
    /// The worker's name, for a time-bound lease.
    pub worker: Bytes,
}

/// Which queues to take from.
#[derive(Clone, Debug)]
pub enum From {
    /// The queues that the client serves, each on its own terms.
    Subscriptions,
    /// These `work` queues, on these terms. A `cycle` queue in the list is skipped.
    Listed {
        /// Names, in order.
        queues: Vec<Bytes>,
        /// The terms.
        lease: LeaseTerms,
    },
    /// This `cycle` queue, on these terms. Refused if it is a `work` queue.
    Cycle {
        /// Its name.
        queue: Bytes,
        /// The terms.
        lease: LeaseTerms,
    },
}

/// How a queue is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Select {
    /// The first in the list that has work.
    ListOrder,
    /// The one with the most urgent job; among equals the oldest job.
    BestPriority,
    /// The one with the most urgent job; among equals each queue in turn.
    RoundRobin,
    /// The one with the client's highest weight; among equals the most urgent job, then the oldest.
    Weighted,
}

/// How long a taker waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until this time.
    Until(Timestamp),
    /// As long as the connection lives.
    Forever,
}

/// How a command names a job.
#[derive(Clone, Debug, PartialEq)]
pub enum JobRef {
    /// By its number.
    Id(JobId),
    /// By its producer's public name. If several jobs share the name: the one leased first, else the oldest that is
    /// neither dead nor done, else the youngest.
    Name(Bytes),
    /// By its coalescing key.
    Key {
        /// The queue's name.
        queue: Bytes,
        /// The protocol of the key space.
        protocol: Protocol,
        /// The key.
        key: Bytes,
    },
    /// By a coalescing key that jobs of several queues may hold: one of these jobs, and always the same one while they stay.
    KeyAnywhere {
        /// The protocol of the key space.
        protocol: Protocol,
        /// The key.
        key: Bytes,
    },
}

/// A worker's claim to a job's lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// This connection holds the lease.
    Connection,
    /// The lease has this token.
    Token(Token),
    /// The job is leased, by any client (FWP: any connection may `ACK`). [`Command::Finish`] also accepts a job that was
    /// delivered and has since become ready or retrying: its worker finished it late.
    AnyLease,
    /// The job was leased to a worker whose connection, or the daemon, ended before the worker could report success. Only for
    /// [`Command::Finish`]. The engine does not remember the lease: the claim holds if the job is ready or retrying.
    Late,
}

/// Where a repaid entry goes (spiderq §Repay).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RepayTo {
    /// Towards the tail: one reward less.
    Penalty,
    /// Nearer the head: one reward more.
    Reward,
    /// The very front.
    Front,
    /// Out of the queue; the value stays.
    Drop,
}

/// A worker's report on a job in progress.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// Numerator and denominator; listeners receive `raw` verbatim.
    Progress {
        /// The numerator.
        numerator: u32,
        /// The denominator.
        denominator: u32,
        /// A sentence, or the worker's own bytes.
        raw: Bytes,
    },
    /// Part of the result.
    Data(Bytes),
    /// A warning for a person to read.
    Warning(Bytes),
}

/// Where a listing continues. Start with the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cursor(pub u64, pub u64);

/// Selects jobs. All conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// In this state; `None` = any.
    pub state: Option<JobStateKind>,
    /// In this queue; `None` = any.
    pub queue: Option<Bytes>,
    /// Of this protocol; `None` = any.
    pub protocol: Option<Protocol>,
    /// With one of these public names; empty = any.
    pub names: Vec<Bytes>,
    /// Satisfies this condition of the session.
    pub test: Option<Test>,
}

/// A protocol-specific condition (FWP's glob over a job's text). Must be a pure function of the job.
#[derive(Clone)]
pub struct Test(pub Arc<dyn Fn(&Job) -> bool + Send + Sync>);

impl fmt::Debug for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Test(..)")
    }
}

/// A bulk change of jobs. All of them skip leased jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// Remove them.
    Discard,
    /// Move them to the dead-letter queue.
    Kill,
    /// Make them ready at once, behind the jobs that are ready now.
    Requeue,
}

/// The state requested of a named worker. It only advances.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WorkerState {
    /// Take and process jobs.
    Running,
    /// Finish current jobs and take no more.
    Quiet,
    /// Finish current jobs and disconnect.
    Terminate,
}
