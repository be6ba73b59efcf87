//! The commands that a client may send to the engine, in families. Commands are verbs and own their data.
//!
//! Each command names the replies that answer it; [`crate::Refusal`] can answer any command. What a command means for
//! its carriers is declared in `terms`.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::batches::NewBatch;
use crate::claim::Claim;
use crate::ids::{ClientId, JobId, Priority, Protocol, Timestamp};
use crate::jobs::Failure;
use crate::query::Query;
use crate::queues::{Bridge, Patterns, Policy, QueueRules, QueueSettings, Throttle};
use crate::request::{
    ClientInfo, Cursor, Filter, JobRef, Mutation, NewJob, Note, Proof, QueueKind, RepayTo, Select,
    Subscription, Take, WorkerState,
};
use crate::schedules::{NewSchedule, ScheduleRef};

/// One request from one client.
#[derive(Clone, Debug, derive_more::From, Deserialize, Serialize)]
pub enum Command {
    /// Describes a connection and the work that it can do.
    Client(ClientCommand),
    /// A job, from outside.
    Job(JobCommand),
    /// Ask for work.
    Take(TakeCommand),
    /// Report on a leased job.
    Lease(LeaseCommand),
    /// Read state; changes nothing.
    Query(Query),
    /// Create, remove or set up a queue.
    Queue(QueueCommand),
    /// Set or remove a schedule.
    Schedule(ScheduleCommand),
    /// Jobs that belong together.
    Batch(BatchCommand),
    /// Change many jobs, a bounded number at a time.
    Bulk(BulkCommand),
    /// Workers that are known by name across connections.
    Worker(WorkerCommand),
    /// Wait until every earlier change is durable. Answer: `Settled`.
    Barrier,
    /// Restores a lease or another claim of a client after a change of leader ([`crate::Engine::succeed`]). No answer.
    /// A claim of something that no longer exists has no effect: a worker's report is refused, a listener receives
    /// `Ended`.
    Claim(Box<Claim>),
}

/// A connection opens, closes, or changes its subscriptions.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum ClientCommand {
    /// Open a connection. Must be its first command.
    Open(ClientInfo),
    /// Close a connection. Its connection-bound leases, waits, listeners and abilities end with it.
    Close,
    /// Set the client's own name (Gearman `SET_CLIENT_ID`).
    SetName(Bytes),
    /// Register that the client can work on a queue (Gearman `CAN_DO`, EventMQ `INFORM`). Registering twice counts
    /// twice.
    Serve(Subscription),
    /// The client can no longer work on the queue. `requeue` returns its leased jobs of that queue.
    Unserve {
        /// The queue's name.
        queue: Bytes,
        /// Return the jobs that the client holds from this queue.
        requeue: bool,
    },
    /// Watch jobs change their states, and what happens to queues and workers. The client receives `Watched` for as
    /// many changes as it has room for; each further command adds room. Changes without room are counted, and `Watched`
    /// with their number is the first one that follows.
    Watch {
        /// Only jobs of this queue; `None` = of all. The first command decides, here and for `text`.
        queue: Option<Bytes>,
        /// Only jobs that have this text in their bodies, with their bodies, and neither queues nor workers; empty =
        /// everything, without bodies.
        text: Bytes,
        /// How many more notices the client has room for.
        room: u32,
    },
    /// Close another client's connection on behalf of an operator: its session receives `Close`. Answer: `Done`.
    Disconnect(ClientId),
    /// The client can no longer work on any queue.
    UnserveAll {
        /// Return all jobs that the client holds.
        requeue: bool,
    },
}

/// A job is submitted, or changed whatever its state.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum JobCommand {
    /// Submit a new job. Answer: `Pushed`.
    Push(Box<NewJob>),
    /// Record a job's progress, whatever its state (FWP `TRACK SET`). Fields that are `None` stay as they are. Answer:
    /// `Done`. If the job is leased, its listeners receive `Progress`.
    Track {
        /// The job.
        job: JobRef,
        /// Numerator and denominator.
        progress: Option<(u32, u32)>,
        /// A sentence.
        text: Option<Bytes>,
        /// If the job is leased, extend its lease to this time, at most [`crate::Limits::lease_ms_max`] from now. Never
        /// shortens a lease.
        until: Option<Timestamp>,
    },
    /// Replace a job's body, whatever its state (spiderq `Update`). Answer: `Done`.
    Replace {
        /// The job.
        job: JobRef,
        /// The new body.
        body: Bytes,
    },
    /// Remove a job, whatever its state. Listeners receive `Ended` with `Cancelled`. Answer: `Done`. If the job was
    /// leased, its worker's `Finish` or `Fail` is refused with `UnknownJob`.
    Cancel(JobRef),
    /// Collect the ends of the jobs that clients of the same protocol have pushed under this name
    /// ([`crate::Listen::As`]). The client becomes a listener of those that live, and receives the ends of those that
    /// ended while no client listened, which are kept for a minute: `Collected` for each. Answer: `Counted`, with where
    /// to continue.
    Collect {
        /// The name.
        name: Bytes,
        /// Only jobs from this number on.
        from: JobId,
    },
}

/// A worker asks for work, or stops asking.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum TakeCommand {
    /// Take one job. Answer: `Taken`, or `Empty` when no job arrives within the wait. A client that is already waiting
    /// is refused, unless both its pending takes and this take have no deadline; then they wait in order. A take that
    /// does not wait has no deadline.
    Take(Take),
    /// Wait for work on a queue that the client serves (Gearman `PRE_SLEEP`). Answer: one `WorkAvailable`, at once or
    /// later.
    WaitForWork,
    /// Allow the engine to send this many more jobs, without further requests, from the queues that the client serves
    /// (EventMQ `READY`). Answers: one `Delivered` for each.
    Credit {
        /// Additional jobs.
        credits: u32,
        /// How a queue is chosen when several have work.
        select: Select,
    },
    /// Withdraw pending `Take`s, `WaitForWork` and all credits. A withdrawn command gets no answer.
    Unwait,
}

/// A worker reports on a job that is leased to it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum LeaseCommand {
    /// A leased job succeeded, or one whose lease has ended, while it waits to be taken again: its worker has finished it
    /// late. Answer: `Finished`. Listeners receive `Ended`.
    Finish {
        /// The job.
        job: JobRef,
        /// The worker's claim to the lease.
        proof: Proof,
        /// The result, for listeners and for later queries.
        result: Bytes,
    },
    /// A leased job failed. Its retry policy decides what follows. Answer: `Failed`. If the job is not retried,
    /// listeners receive `Ended`.
    Fail {
        /// The job.
        job: JobRef,
        /// The worker's claim to the lease.
        proof: Proof,
        /// The failure as the worker reported it. The engine sets `at`.
        failure: Box<Failure>,
    },
    /// Reject a leased job because it cannot be expressed in the worker's protocol (a conversion error). The job
    /// returns to its own position. Workers of that protocol no longer see it until the daemon restarts, or the job's
    /// body or its queue's codec changes. This counts neither as a failure nor as a loss. If the job suits no protocol
    /// (if isolated: not its own), it goes to the dead-letter queue regardless of its retry policy, with a failure of
    /// the kind [`MISFIT`](crate::MISFIT). If it is not durable, it is removed instead. In both cases listeners receive
    /// `Ended`. Answer: `Done`.
    Unconvertible {
        /// The job.
        job: JobRef,
        /// The worker's claim to the lease.
        proof: Proof,
        /// The reason, as a sentence. Becomes the failure's message.
        why: Bytes,
    },
    /// Return a leased job without working on it, to its own position or to the front. Counts neither a failure nor a
    /// loss. Entries of `cycle` queues need the token. Answer: `Done`.
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
    /// Report progress, data or a warning for a leased job. Answer: `Done`. Listeners receive `Progress`.
    Progress {
        /// The job.
        job: JobRef,
        /// The worker's claim to the lease.
        proof: Proof,
        /// The report.
        note: Note,
    },
}

/// A queue is created, removed, or its settings change. Only clients of spiderq, and clients without a protocol, reach
/// a `cycle` queue.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum QueueCommand {
    /// Make a queue known without pushing to it. Answer: `Done`. Refused if it exists with another kind.
    Create {
        /// Its name.
        queue: Bytes,
        /// Its kind.
        kind: QueueKind,
    },
    /// Remove a queue and its ready jobs. Jobs in other states stay, and the queue stays with them, hidden until one of
    /// them becomes ready. A client with a protocol removes from an isolated queue only what that protocol has there:
    /// jobs, pause and limits. Answer: `Done`. If the queue has more ready jobs than one visit may remove, the answer
    /// is `Mutated` with a part of them removed; then send the command again.
    Remove {
        /// Its name.
        queue: Bytes,
        /// Refuse if a worker serves the queue, or if any of its jobs is ready, leased, scheduled or retrying. In an
        /// isolated queue only workers and jobs of the client's protocol count.
        only_idle: bool,
    },
    /// Pause or resume a queue: a paused queue hands out no jobs. A client with a protocol pauses only jobs of that
    /// protocol in an isolated queue. An unknown name is not an error. Answer: `Done`.
    Pause {
        /// Its name.
        queue: Bytes,
        /// `true` pauses, `false` resumes.
        paused: bool,
    },
    /// Set how many jobs a queue may hold when a job of each priority is submitted; replaces all its limits. If a
    /// client with a protocol limits an isolated queue, only jobs of that protocol are limited, and only they count.
    /// Answer: `Done`.
    Limit {
        /// Its name. An unknown queue becomes known.
        queue: Bytes,
        /// By [`Priority::lane`]; `None` = no limit.
        jobs_max: [Option<u32>; Priority::COUNT],
    },
    /// Limit how many jobs of a queue may be worked on at once. At the limit the queue hands out nothing, and a take
    /// continues with the next queue in its list. The throttle outlasts the queue's removal. Jobs already leased count,
    /// so this command scans all jobs. Answer: `Done`.
    Throttle {
        /// Its name. The queue need not be known, and does not become known.
        queue: Bytes,
        /// `None` = unlimited.
        throttle: Option<Throttle>,
    },
    /// Set which queues all protocols share; replaces the previous setting. Initially no queue is shared. Not
    /// journalled. Scans all queues, and all ready jobs of the queues whose setting changes. Answer: `Done`.
    Bridge(Box<Bridge>),
    /// Set the rules of a queue; each rule states which jobs it covers. They outlast the queue's removal. If
    /// [`QueueRules::codec`] changes, this command scans all ready jobs of the queue. Answer: `Done`.
    SetRules {
        /// Its name. The queue need not be known, and does not become known.
        queue: Bytes,
        /// All rules of the queue: they replace the previous ones. In a box, because every command is as
        /// large as the largest.
        rules: Box<QueueRules>,
    },
    /// Set what holds for all queues without rules of their own, and which of their jobs may start when, also for queues
    /// that come later; replaces the previous setting. Not journalled. Scans all queues, the ready jobs of those whose
    /// codec changes, and all jobs if the policy of a queue with jobs changes. Then [`BulkCommand::ReadKeys`] reads the
    /// keys of these jobs; until then they have none. No daemon sends it to another. Answer: `Done`.
    SetPatterns(Box<Patterns<QueueSettings>>),
    /// Set which jobs of a queue may start when, in place of what holds by pattern. The policy outlasts the queue's
    /// removal. Scans all jobs if the queue has any; [`BulkCommand::ReadKeys`] follows as after `SetPatterns`. A `cycle`
    /// queue has no policy by key. Answer: `Done`.
    SetPolicy {
        /// Its name. The queue need not be known, and does not become known.
        queue: Bytes,
        /// `None` = what holds by pattern.
        policy: Option<Box<Policy>>,
        /// The operator's name.
        by: Bytes,
    },
    /// Pause or resume a key of a queue whose policy treats jobs by key: a paused key starts no job, and holds up no other.
    /// Answer: `Done`.
    PauseKey {
        /// The queue's name.
        queue: Bytes,
        /// The key; empty for jobs that have none.
        key: Bytes,
        /// `true` pauses, `false` resumes.
        paused: bool,
    },
}

/// A schedule, which pushes a job again and again, is set or removed.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum ScheduleCommand {
    /// Create a recurring job, or replace the one with the same name. Answer: `ScheduleSet`. Refused if it would never
    /// run.
    Set(Box<NewSchedule>),
    /// Remove a schedule. The jobs it has pushed stay. Answer: `Done`.
    Remove(ScheduleRef),
    /// Push a schedule's job now, besides its own runs. Answer: `Pushed`.
    Run(ScheduleRef),
    /// Stop the runs of a schedule, or let it run again from its next time on. A schedule that is set again with
    /// `keep_grid` stays paused. Answer: `Done`.
    Pause {
        /// The schedule.
        schedule: ScheduleRef,
        /// `true` pauses, `false` resumes.
        paused: bool,
    },
}

/// A batch, whose jobs belong together, is created, opened or committed.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum BatchCommand {
    /// Create a batch. Answer: `Done`. Refused if its name is taken or its parent is unknown.
    New(Box<NewBatch>),
    /// Announce that more jobs will join a batch. If it was committed, it pushes no callbacks until it is committed
    /// again. The command is optional: jobs may join any known batch. A batch that has pushed all its callbacks is only
    /// kept for longer. Answer: `Done`.
    Open {
        /// Its name.
        batch: Bytes,
        /// After this many milliseconds the batch may push callbacks again, committed or not.
        hold_ms: u64,
    },
    /// Allow the batch to push its callbacks. Idempotent. Answer: `Done`.
    Commit {
        /// Its name.
        batch: Bytes,
    },
}

/// Many jobs change, a bounded number at a time.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum BulkCommand {
    /// Change the jobs that match a filter, a bounded number at a time. Answer: `Mutated`, with where to continue.
    Mutate {
        /// The filter.
        filter: Box<Filter>,
        /// The change.
        action: Mutation,
        /// Where the previous round ended.
        after: Cursor,
        /// The most jobs to change in this round.
        limit: u32,
    },
    /// Remove everything of one protocol, which must be the client's if it has one, a bounded amount at a time: its batches; its jobs in every state (a worker's
    /// report on a removed job is refused as unknown); queues that are then empty, unserved and without limits (the
    /// next push makes them known again); and its counters. Jobs that arrive meanwhile may stay. Schedules stay: they
    /// define future work and are not work themselves. Answer: `Mutated`, with where to continue.
    Flush {
        /// The protocol.
        protocol: Protocol,
        /// Where the previous round ended.
        after: Cursor,
        /// The most jobs, batches or queues to process in this round.
        limit: u32,
    },
    /// Read the keys of jobs that have none, in queues whose policies treat jobs by key. Answer: `Mutated`, with where to
    /// continue.
    ReadKeys {
        /// Where the previous round ended.
        after: Cursor,
        /// The most jobs to look at in this round.
        limit: u32,
    },
    /// Move dead jobs of `work` queues that match a filter to another queue, where each is retrying until its time and
    /// has all of its retries again, by the rules of that queue. A job whose body is too long for it stays. Answer:
    /// `Mutated`, with where to continue.
    Redrive {
        /// The filter.
        filter: Box<Filter>,
        /// The queue.
        to: Bytes,
        /// As in [`Mutation::Redrive`].
        delay_ms: u64,
        /// As in [`Mutation::Redrive`].
        per_second: u32,
        /// Where the previous round ended.
        after: Cursor,
        /// The most jobs to move in this round.
        limit: u32,
    },
}

/// A worker that is known by name across connections.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum WorkerCommand {
    /// Assign this connection to the named worker. The worker stays registered while it sends heartbeats and has a
    /// connection. From `Quiet` on, none of its connections receives work, however it waits. Answer: `Done`. The empty
    /// name is refused.
    Register {
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
        /// The memory that its process uses, in bytes, if it is known. Without it the last figure stays.
        memory_bytes: Option<u64>,
    },
    /// Advance a worker's state on behalf of an operator; the empty name means all workers. Answer: `Done`.
    SetState {
        /// The worker's name.
        worker: Bytes,
        /// The new state.
        state: WorkerState,
    },
    /// From now on the clients of the asker's [daemon](ClientId::daemon) get no job, and every named worker with a
    /// connection there is [`WorkerState::Quiet`], also one that registers later. Nothing undoes this: that daemon is
    /// about to stop. Answer: `Done`.
    Drain,
}
