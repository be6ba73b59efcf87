//! The commands that a client may send to the engine, in families. Names are verbs, and a command owns the
//! data in it.
//!
//! The comment of each command names the replies to it; [`crate::Refusal`] is possible for any command.
//! `terms` declares which clients may send a command and how it is carried to the engine.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::batches::NewBatch;
use crate::claim::Claim;
use crate::ids::{ClientId, JobId, Priority, Protocol, Timestamp};
use crate::jobs::Failure;
use crate::limits::NamespaceLimits;
use crate::query::Query;
use crate::queues::{Bridge, Patterns, Policy, QueueRules, QueueSettings, Throttle};
use crate::request::{
    ClientInfo, Cursor, Filter, JobRef, Mutation, NewJob, Note, Proof, QueueKind, RepayTo, Select,
    Subscription, Take, WorkerState,
};
use crate::schedules::{NewSchedule, ScheduleRef};

/// A request from a client.
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
    /// Read state without modifying it.
    Query(Query),
    /// Create, remove or set up a queue.
    Queue(QueueCommand),
    /// Set or remove a schedule.
    Schedule(ScheduleCommand),
    /// Jobs that belong together.
    Batch(BatchCommand),
    /// Modify many jobs, a bounded number at a time.
    Bulk(BulkCommand),
    /// Workers that have a name across several connections.
    Worker(WorkerCommand),
    /// Wait until everything before is durable. Reply: `Settled`.
    Barrier,
    /// Restores a lease or another claim of a client after a change of leader ([`crate::Engine::succeed`]).
    /// There is no reply. A claim to something that no longer exists has no effect: the worker's report is
    /// then rejected, and a listener receives `Ended`.
    Claim(Box<Claim>),
    /// Create, limit or remove a namespace.
    Namespace(NamespaceCommand),
}

/// Creates, limits or removes a namespace. Only for clients that see all namespaces.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum NamespaceCommand {
    /// Create a namespace, or set the limits of that with this name. Reply: `Done`.
    Set {
        /// The name ([`crate::is_valid_name`]).
        name: Bytes,
        /// All limits, in place of the previous ones. Things beyond a new limit stay.
        limits: Box<NamespaceLimits>,
    },
    /// Remove a namespace. Refused while it has queues, schedules, batches, workers or connections. Reply:
    /// `Done`.
    Remove {
        /// The name.
        name: Bytes,
    },
}

/// Opens or closes a connection, or updates subscriptions.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum ClientCommand {
    /// Open a connection. Must be the first command of the connection.
    Open(ClientInfo),
    /// Close a connection. Connection-bound leases, pending takes, listeners and abilities of the
    /// client are released.
    Close,
    /// Set the client's name (Gearman `SET_CLIENT_ID`).
    SetName(Bytes),
    /// Register that the client can work on a queue (Gearman `CAN_DO`, EventMQ `INFORM`). A second
    /// registration adds to the queue's workers again.
    Serve(Subscription),
    /// The client can no longer work on the queue. `requeue` returns the jobs of that queue that
    /// the client has leased.
    Unserve {
        /// The queue's name.
        queue: Bytes,
        /// Return the jobs that the client has leased from this queue.
        requeue: bool,
    },
    /// Watch state changes of jobs and events of queues and workers. The client receives `Watched` for as
    /// many changes as it has credit for, and each further command adds credit. Further changes are only
    /// counted, and the next `Watched` reports how many were skipped.
    Watch {
        /// Only jobs of this queue; `None` = of all. The first command decides, here and for `text`.
        queue: Option<Bytes>,
        /// Only jobs with this text in the body; the notices then include the bodies, and queues and workers
        /// are not reported. Empty: everything is reported, without bodies.
        text: Bytes,
        /// Credit for this many more notices.
        room: u32,
    },
    /// Close another client's connection on behalf of an operator. The session of that client receives
    /// `Close`. Reply: `Done`.
    Disconnect(ClientId),
    /// The client can no longer work on any queue.
    UnserveAll {
        /// Return all jobs that the client has leased.
        requeue: bool,
    },
}

/// Submits a job, or modifies one in any state.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum JobCommand {
    /// Submit a new job. Reply: `Pushed`.
    Push(Box<NewJob>),
    /// Record a job's progress in any state (FWP `TRACK SET`). Fields that are `None` stay as they are.
    /// Reply: `Done`. Listeners of a leased job receive `Progress`.
    Track {
        /// The job.
        job: JobRef,
        /// Numerator and denominator.
        progress: Option<(u32, u32)>,
        /// A sentence.
        text: Option<Bytes>,
        /// If the job is leased, extend the lease to this time, but no further than
        /// [`crate::Limits::lease_ms_max`] from now. Never shortens a lease.
        until: Option<Timestamp>,
    },
    /// Replace a job's body in any state (spiderq `Update`). Reply: `Done`.
    Replace {
        /// The job.
        job: JobRef,
        /// The new body.
        body: Bytes,
    },
    /// Remove a job in any state. Listeners receive `Ended` with `Cancelled`. Reply: `Done`. If the job was
    /// leased, `Finish` and `Fail` from the worker are rejected with `UnknownJob`.
    Cancel(JobRef),
    /// Collect the outcomes of the jobs that clients of the same protocol have pushed with this name
    /// ([`crate::Listen::As`]). The client becomes a listener of the unfinished jobs. The outcomes of jobs
    /// that finished while no client was listening are retained for a minute. Each job is reported with
    /// `Collected`. Reply: `Counted`, with where to continue.
    Collect {
        /// The name.
        name: Bytes,
        /// Only jobs from this number on.
        from: JobId,
    },
}

/// Requests work, or withdraws a request.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum TakeCommand {
    /// Take a job. Reply: `Taken`, or `Empty` if no job arrives before the deadline. A second take of a
    /// client that is already waiting is refused, unless neither it nor the pending takes have a deadline;
    /// then they are served in order. A take with [`Wait::No`](crate::Wait::No) has no deadline.
    Take(Take),
    /// Wait for work on a queue that the client serves (Gearman `PRE_SLEEP`). Reply: a single
    /// `WorkAvailable`, immediately or later.
    WaitForWork,
    /// Allow the engine to send this many more jobs, without further requests, from the queues that the
    /// client serves (EventMQ `READY`). Replies: one `Delivered` for each.
    Credit {
        /// Additional jobs.
        credits: u32,
        /// How to choose a queue when several have work.
        select: Select,
    },
    /// Withdraw pending `Take`s, `WaitForWork` and all credits. Withdrawn commands get no reply.
    Unwait,
}

/// A worker's report on a leased job.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum LeaseCommand {
    /// A leased job succeeded. Also accepted for a job after the lease has expired, unless it was taken
    /// again, because the worker may just have been slow. Reply: `Finished`. Listeners receive `Ended`.
    Finish {
        /// The job.
        job: JobRef,
        /// The worker's claim to the lease.
        proof: Proof,
        /// The result, for listeners and later queries.
        result: Bytes,
    },
    /// A leased job failed. The retry policy of the job decides whether it is retried. Reply: `Failed`. If
    /// the job is not retried, listeners receive `Ended`.
    Fail {
        /// The job.
        job: JobRef,
        /// The worker's claim to the lease.
        proof: Proof,
        /// The failure as the worker reported it. The engine sets `at`.
        failure: Box<Failure>,
    },
    /// Reject a leased job because it cannot be expressed in the worker's protocol (a conversion error). The
    /// job returns to the original position. Workers of that protocol no longer see it until the daemon
    /// restarts, or until the job's body or the queue's codec is modified. Neither failures nor losses of the
    /// job are increased. If the job suits no protocol (in an isolated queue: not the protocol of its
    /// producer), it moves to the dead-letter queue regardless of its retry policy, with a failure of the
    /// kind [`MISFIT`](crate::MISFIT); a job that is not durable is removed instead. In both cases listeners
    /// receive `Ended`. Reply: `Done`.
    Unconvertible {
        /// The job.
        job: JobRef,
        /// The worker's claim to the lease.
        proof: Proof,
        /// The reason, as a sentence. Becomes the failure's message.
        why: Bytes,
    },
    /// Return a leased job without working on it, to the original position or to the front. Neither failures
    /// nor losses of the job are increased. Entries of `cycle` queues need the token. Reply: `Done`.
    Release {
        /// The job.
        job: JobRef,
        /// The worker's claim to the lease.
        proof: Proof,
        /// Return it to the front instead of its original position.
        front: bool,
    },
    /// Set the expiry of a lease, no further than [`crate::Limits::lease_ms_max`] from now. Reply:
    /// `Done`.
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
    /// Return a leased entry to the `cycle` queue it was taken from (spiderq `Repay`). Reply:
    /// `Done`.
    Repay {
        /// The entry.
        job: JobRef,
        /// The worker's claim to the lease.
        proof: Proof,
        /// The new value.
        body: Bytes,
        /// The position to return it to.
        to: RepayTo,
    },
    /// Report progress, data or a warning for a leased job. Reply: `Done`. Listeners receive `Progress`.
    Progress {
        /// The job.
        job: JobRef,
        /// The worker's claim to the lease.
        proof: Proof,
        /// The report.
        note: Note,
    },
}

/// Creates, removes or configures a queue. Only clients of spiderq and clients without a protocol have access
/// to a `cycle` queue.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum QueueCommand {
    /// Create a queue without pushing to it. Reply: `Done`. Refused if it exists with another kind.
    Create {
        /// The name.
        queue: Bytes,
        /// The kind.
        kind: QueueKind,
    },
    /// Remove a queue and its ready jobs. Jobs in other states stay. The queue is then hidden until one of
    /// these jobs becomes ready. In an isolated queue, a client with a protocol only removes the jobs, pause
    /// and limits of that protocol. Reply: `Done`. If the queue has more ready jobs than may be removed in a
    /// single visit, some are removed and the reply is `Mutated`; the client must then repeat the command.
    Remove {
        /// The name.
        queue: Bytes,
        /// Refuse if a worker serves the queue, or if any of its jobs is ready, leased, scheduled or
        /// retrying. In an isolated queue only workers and jobs of the client's protocol are considered.
        only_idle: bool,
    },
    /// Pause or resume a queue. Jobs of a paused queue are not delivered. In an isolated queue, a client with
    /// a protocol pauses only jobs of that protocol. An unknown name is not an error. Reply: `Done`.
    Pause {
        /// The name.
        queue: Bytes,
        /// `true` pauses, `false` resumes.
        paused: bool,
    },
    /// Set the size at which the queue refuses new jobs, by priority of the new job. All previous limits of
    /// the queue are replaced. If a client with a protocol limits an isolated queue, the limit applies to
    /// jobs of that protocol only. Reply: `Done`.
    Limit {
        /// The queue's name. An unknown queue is created.
        queue: Bytes,
        /// By [`Priority::lane`]; `None` = no limit.
        jobs_max: [Option<u32>; Priority::COUNT],
    },
    /// Limit how many jobs of a queue may be leased at the same time. At the limit no job of the queue is
    /// delivered, and a take continues with the next queue in the list. The throttle stays when the queue is
    /// removed. Jobs that are already leased are included, so this command scans all jobs. Reply: `Done`.
    Throttle {
        /// The queue's name. An unknown queue is not created.
        queue: Bytes,
        /// `None` = unlimited.
        throttle: Option<Throttle>,
    },
    /// Set which queues are shared by all protocols, in place of the previous setting. Initially no queue is
    /// shared. Not journalled. Scans all queues, and all ready jobs of queues with a different setting.
    /// Reply: `Done`.
    Bridge(Box<Bridge>),
    /// Set the rules of a queue. They stay when the queue is removed. If [`QueueRules::codec`] is different,
    /// this command scans all ready jobs of the queue. Reply: `Done`.
    SetRules {
        /// The queue's name. An unknown queue is not created.
        queue: Bytes,
        /// All rules of the queue, in place of the previous ones. Boxed, because the largest variant
        /// determines the size of every command.
        rules: Box<QueueRules>,
    },
    /// Set rules and policies by patterns of queue names, for present and future queues without settings by
    /// name. Replaces the previous patterns. Not journalled, and never forwarded to another daemon. Scans all
    /// queues, the ready jobs of queues with a different codec, and all jobs if the policy of a queue with
    /// jobs is different. The jobs of such a queue have no policy key until [`BulkCommand::ReadKeys`] has
    /// read it. Reply: `Done`.
    SetPatterns(Box<Patterns<QueueSettings>>),
    /// Set the policy of a queue, in place of the policy by pattern. It stays when the queue is removed.
    /// Scans all jobs if the queue has any; [`BulkCommand::ReadKeys`] must follow as after `SetPatterns`. A
    /// `cycle` queue has no policy by key. Reply: `Done`.
    SetPolicy {
        /// The queue's name. An unknown queue is not created.
        queue: Bytes,
        /// `None` restores the policy by pattern.
        policy: Option<Box<Policy>>,
        /// The operator's name.
        by: Bytes,
    },
    /// Pause or resume a policy key of a queue. Jobs of a paused key do not start, and do not block jobs of
    /// other keys. Reply: `Done`.
    PauseKey {
        /// The queue's name.
        queue: Bytes,
        /// The key; empty for jobs without a key.
        key: Bytes,
        /// `true` pauses, `false` resumes.
        paused: bool,
    },
}

/// Sets or removes a schedule, which pushes a job repeatedly.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum ScheduleCommand {
    /// Create a recurring job, or replace the one with the same name. Reply: `ScheduleSet`. Refused if no
    /// time ever matches it.
    Set(Box<NewSchedule>),
    /// Remove a schedule. The jobs it has pushed stay. Reply: `Done`.
    Remove(ScheduleRef),
    /// Push a schedule's job now, in addition to the regular times. Reply: `Pushed`.
    Run(ScheduleRef),
    /// Pause a schedule, or resume it from the next regular time. A schedule that is set again with
    /// `keep_grid` stays paused. Reply: `Done`.
    Pause {
        /// The schedule.
        schedule: ScheduleRef,
        /// `true` pauses, `false` resumes.
        paused: bool,
    },
}

/// Creates, opens or commits a batch of related jobs.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum BatchCommand {
    /// Create a batch. Reply: `Done`. Refused if the name is in use or the parent is unknown.
    New(Box<NewBatch>),
    /// Announce that more jobs will join a batch. A committed batch pushes no callbacks until it is committed
    /// again. The command is optional, because jobs may join any known batch. For a batch that has already
    /// pushed all callbacks, it only extends the retention. Reply: `Done`.
    Open {
        /// The name.
        batch: Bytes,
        /// After this many milliseconds the batch may push callbacks even if it was not committed
        /// again.
        hold_ms: u64,
    },
    /// Allow a batch to push callbacks. Idempotent. Reply: `Done`.
    Commit {
        /// The name.
        batch: Bytes,
    },
}

/// Modifies many jobs, a bounded number at a time.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum BulkCommand {
    /// Change the jobs that match a filter, a bounded number at a time. Reply: `Mutated`, with where to
    /// continue.
    Mutate {
        /// The filter.
        filter: Box<Filter>,
        /// The change.
        action: Mutation,
        /// The end of the previous round.
        after: Cursor,
        /// The most jobs to change in this round.
        limit: u32,
    },
    /// Remove everything of one protocol, in steps of bounded size: batches, jobs in every state, counters,
    /// and queues that have become empty and have neither workers nor limits. If the client has a protocol,
    /// it must be this one. A worker's report on a removed job is rejected as unknown, and the next push
    /// creates a removed queue again. Jobs that arrive during the flush may stay. Schedules stay, because
    /// they define future work. Reply: `Mutated`, with where to continue.
    Flush {
        /// The protocol.
        protocol: Protocol,
        /// The end of the previous round.
        after: Cursor,
        /// The most jobs, batches or queues to process in this round.
        limit: u32,
    },
    /// Read the policy keys that are still unread, in queues with policies by key. Reply: `Mutated`, with
    /// where to continue.
    ReadKeys {
        /// The end of the previous round.
        after: Cursor,
        /// The most jobs to examine in this round.
        limit: u32,
    },
    /// Move dead jobs of `work` queues that match a filter to another queue. Each job is retrying until the
    /// job's time, and the rules of the new queue give it a full retry budget. A job with a body that is too
    /// long for that queue stays. Reply: `Mutated`, with where to continue.
    Redrive {
        /// The filter.
        filter: Box<Filter>,
        /// The queue.
        to: Bytes,
        /// As in [`Mutation::Redrive`].
        delay_ms: u64,
        /// As in [`Mutation::Redrive`].
        per_second: u32,
        /// The end of the previous round.
        after: Cursor,
        /// The most jobs to move in this round.
        limit: u32,
    },
    /// Move the jobs of a queue to the queue of the same name in another namespace, which is created with the
    /// same settings if there is none. They keep their numbers, names, states and order. Jobs stay that somebody
    /// has or waits for: leased, parked and finished ones, those ahead of parked ones, members of batches, jobs
    /// with listeners, and jobs that are not durable; and those with a key that a job has there. Only for clients
    /// that see all namespaces. Reply: `Mutated`, with where to continue. Refused when the other namespace is
    /// full.
    MoveQueue(Box<QueueMove>),
}

/// Which queue moves where. Boxed in its command, because the largest variant determines the size of every command.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct QueueMove {
    /// The queue.
    pub queue: Bytes,
    /// Its namespace.
    pub from: Bytes,
    /// The other one.
    pub to: Bytes,
    /// The end of the previous round.
    pub after: Cursor,
    /// The most jobs to move in this round.
    pub limit: u32,
}

/// Manages a worker that has a name across several connections.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum WorkerCommand {
    /// Assign this connection to the named worker. The worker stays registered while it sends heartbeats and
    /// has a connection. From `Quiet` on, no connection of the worker receives work, by takes or by credits.
    /// Reply: `Done`. The empty name is refused.
    Register {
        /// The worker's name (FWP `wid`).
        worker: Bytes,
        /// The worker's description of itself, for listings.
        about: Bytes,
    },
    /// Record a heartbeat of the named worker. `state` can only advance the worker's state. Reply: `Beaten`.
    Beat {
        /// The worker's name.
        worker: Bytes,
        /// The state that the worker requests, if any.
        state: Option<WorkerState>,
        /// The memory used by the worker's process in bytes, if known. `None` retains the last value.
        memory_bytes: Option<u64>,
    },
    /// Advance a worker's state on behalf of an operator; the empty name means all workers. Reply: `Done`.
    SetState {
        /// The worker's name.
        worker: Bytes,
        /// The new state.
        state: WorkerState,
    },
    /// Stop delivering jobs to the clients of the sender's [daemon](ClientId::daemon), and set every named
    /// worker with a connection there to [`WorkerState::Quiet`], including workers that register later. This
    /// is final, because that daemon is about to stop. Reply: `Done`.
    Drain,
}
