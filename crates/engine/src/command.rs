//! What a client may ask of the engine. Commands are verbs and own their data.
//!
//! Each is documented with the events that answer it; [`crate::Refusal`] can answer any of them.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::batch::NewBatch;
use crate::ids::{JobId, Origin, Priority, Timestamp, Token};
use crate::isolation::Bridge;
use crate::job::{Failure, Job, KeyUntil, OnExpiry, Place, PlaceKind, Retry};
use crate::rules::QueueRules;
use crate::schedule::{NewSchedule, ScheduleRef};
use crate::throttle::Throttle;

/// One request of one client.
#[derive(Clone, Debug)]
pub enum Command {
    // ---- connections -------------------------------------------------------------------------------------------
    /// A connection begins. Must be its first command.
    Open(ClientInfo),
    /// A connection has ended: its connection-bound leases, waits, listeners and abilities end with it.
    Close,
    /// The client's own name for itself (Gearman `SET_CLIENT_ID`).
    Label(Bytes),

    // ---- what a worker can do ----------------------------------------------------------------------------------
    /// The client can work on a queue (Gearman `CAN_DO`, EventMQ `INFORM`). Twice counts twice.
    Serve(Ability),
    /// It no longer can. `requeue` gives back what it holds of that queue.
    Unserve {
        /// The queue's name.
        queue: Bytes,
        /// Give back what is held of it.
        requeue: bool,
    },
    /// It no longer can work on anything.
    UnserveAll {
        /// Give back all that is held.
        requeue: bool,
    },

    // ---- jobs in -----------------------------------------------------------------------------------------------
    /// A new job. Answer: `Pushed`.
    Push(Box<NewJob>),

    // ---- jobs out ----------------------------------------------------------------------------------------------
    /// Take one job. Answer: `Taken`, or `Empty` when there is none within the wait. Who waits already is refused, unless
    /// that is, as this take does, for ever or not at all: then each waits in its turn.
    Take(Take),
    /// Sleep until there is work on a queue the client serves (Gearman `PRE_SLEEP`). Answer: one `Woken`, then or later.
    Sleep,
    /// The engine may send this many more jobs, unasked, from the queues the client serves (EventMQ `READY`). Answers: `Taken`, one each.
    Credit {
        /// How many more.
        credits: u32,
        /// How a queue is chosen when several have work.
        select: Select,
    },
    /// Withdraw a pending `Take`, `Sleep` and all credits; nothing answers what is withdrawn.
    Unwait,

    // ---- jobs done ---------------------------------------------------------------------------------------------
    /// A leased job succeeded. Answer: `Finished`. Listeners hear `Ended`.
    Finish {
        /// Which.
        job: JobRef,
        /// By what right.
        proof: Proof,
        /// What came of it, for listeners and for those who ask later.
        result: Bytes,
    },
    /// A leased job failed; its retry policy decides what follows. Answer: `Failed`. Listeners of a job that is not retried hear `Ended`.
    Fail {
        /// Which.
        job: JobRef,
        /// By what right.
        proof: Proof,
        /// What the worker said; `at` is set by the engine.
        failure: Box<Failure>,
    },
    /// A leased job is none that its worker's protocol can have: it goes back to its own place, and no worker of that protocol
    /// sees it again until the daemon is restarted, or the job's body or its queue's codec changes. Neither a failure nor a loss
    /// is counted. A job that no protocol can have (none but its own, in an isolated queue) goes to the dead set, whatever its
    /// retry policy says, with a failure of the kind [`MISFIT`](crate::MISFIT); one that is not durable is gone. Then listeners hear
    /// `Ended`. Answer: `Done`.
    Misfit {
        /// Which.
        job: JobRef,
        /// By what right.
        proof: Proof,
        /// Why, as a sentence: the failure's message.
        why: Bytes,
    },
    /// Give a leased job back unworked, to its own place or to the front; no failure is counted. Answer: `Done`.
    Release {
        /// Which.
        job: JobRef,
        /// By what right.
        proof: Proof,
        /// To the very front instead of its own place.
        front: bool,
    },
    /// Move the end of a lease to this time (never past what [`crate::Limits::lease_ms_max`] allows). Answer: `Done`.
    Extend {
        /// Which.
        job: JobRef,
        /// By what right.
        proof: Proof,
        /// The new end.
        until: Timestamp,
        /// Only ever later, never earlier (FWP); otherwise either way (spiderq).
        only_later: bool,
    },
    /// Put a leased entry of a `cycle` queue back (spiderq `Repay`). Answer: `Done`.
    Repay {
        /// Which.
        job: JobRef,
        /// By what right.
        proof: Proof,
        /// Its new value.
        body: Bytes,
        /// Where to.
        to: RepayTo,
    },
    /// Progress, data or a warning from the worker of a leased job. Answer: `Done`. Listeners hear `Told`.
    Tell {
        /// Which.
        job: JobRef,
        /// By what right.
        proof: Proof,
        /// What.
        note: Note,
    },

    // ---- one job, from outside ---------------------------------------------------------------------------------
    /// How far a job has come, wherever it is (FWP `TRACK SET`). What is `None` stays as it is. Answer: `Done`. Listeners of
    /// a leased job hear `Told`.
    Track {
        /// Which.
        job: JobRef,
        /// So much of so much.
        progress: Option<(u32, u32)>,
        /// A sentence.
        text: Option<Bytes>,
        /// If it is leased, its lease ends then, if that is later than it would (never past what
        /// [`crate::Limits::lease_ms_max`] allows).
        until: Option<Timestamp>,
    },
    /// Replace a job's body wherever it is (spiderq `Update`). Answer: `Done`.
    Replace {
        /// Which.
        job: JobRef,
        /// The new body.
        body: Bytes,
    },
    /// Remove a job wherever it is; listeners hear `Ended` with `Cancelled`. A leased one is gone too: its worker's end of it is refused as unknown. Answer: `Done`.
    Cancel(JobRef),
    /// Everything about one job, or about the schedule with this number. Answer: `Looked`.
    Look(JobRef),

    // ---- queues ------------------------------------------------------------------------------------------------
    /// Make a queue known without pushing to it. Answer: `Done`; refused if it exists as another kind.
    CreateQueue {
        /// Its name.
        queue: Bytes,
        /// Its kind.
        kind: QueueKind,
    },
    /// Remove a queue and its ready jobs. Jobs in other places live on, and the queue with them, unseen until one of
    /// them becomes ready. Answer: `Done`; `Mutated`, with some of its jobs gone, if it has more than one visit may remove:
    /// then it is to be asked for again.
    RemoveQueue {
        /// Its name.
        queue: Bytes,
        /// Refuse if a worker serves it or a job waits, is worked on or will be.
        only_idle: bool,
    },
    /// Stop or resume handing out jobs of a queue; a name not known is not an error. Answer: `Done`.
    PauseQueue {
        /// Its name.
        queue: Bytes,
        /// Pause or resume.
        paused: bool,
    },
    /// Set how many jobs a queue may hold at a submit of each priority. Answer: `Done`.
    LimitQueue {
        /// Its name; unknown names are made known.
        queue: Bytes,
        /// By [`Priority::lane`]; `None` = no limit.
        jobs_max: [Option<u32>; Priority::COUNT],
    },
    /// Set how much of a queue may be worked on at once: as long as it is, nothing more is handed out, and a take goes on
    /// to the next queue it lists. It outlasts the queue's removal. What is worked on already counts, for which all jobs
    /// are looked at. Answer: `Done`.
    ThrottleQueue {
        /// Its name; it need not be known, and is not made known.
        queue: Bytes,
        /// `None` = everything.
        throttle: Option<Throttle>,
    },

    /// Set which queues all protocols share, in place of what was said before; at first there are none. It is not journalled.
    /// All queues are looked at, and all ready jobs of those for which it changes. Answer: `Done`.
    Bridge(Box<Bridge>),
    /// Set the rules of a queue; see each for whom it holds. They outlast the queue's removal. When [`QueueRules::codec`]
    /// changes, all ready jobs of the queue are looked at. Answer: `Done`.
    RuleQueue {
        /// Its name; it need not be known, and is not made known.
        queue: Bytes,
        /// All of them: those before are gone.
        rules: QueueRules,
    },

    // ---- schedules: jobs that are pushed again and again ---------------------------------------------------------
    /// A recurring job; one of the same name gives way to it. Answer: `ScheduleSet`; refused if it would never run.
    SetSchedule(Box<NewSchedule>),
    /// It runs no more; what it has pushed stays. Answer: `Done`.
    RemoveSchedule(ScheduleRef),
    /// Schedules, by number. Answer: `Schedules`.
    ListSchedules {
        /// Of this protocol; `None` = any.
        origin: Option<Origin>,
        /// Where the last page ended.
        after: Cursor,
        /// Rows at most.
        limit: u32,
    },

    // ---- batches: jobs that belong together ----------------------------------------------------------------------
    /// A batch. Answer: `Done`; refused if its name is taken, or that of its parent unknown.
    BatchNew(Box<NewBatch>),
    /// More will be added to a batch. One that was committed pushes no callbacks until it is again. It need not be said, for
    /// jobs may join as long as a batch is known; one that has pushed everything is kept for longer then. Answer: `Done`.
    BatchOpen {
        /// Its name.
        batch: Bytes,
        /// After so many milliseconds callbacks are pushed again, committed or not.
        hold_ms: u64,
    },
    /// From now on its callbacks may be pushed; twice is as good as once. Answer: `Done`.
    BatchCommit {
        /// Its name.
        batch: Bytes,
    },
    /// How a batch stands. Answer: `BatchLooked`.
    LookBatch {
        /// Its name.
        batch: Bytes,
    },

    // ---- listings, a page at a time ----------------------------------------------------------------------------
    /// One queue with its figures. Answer: `Queues`, of one row at most.
    LookQueue {
        /// Its name.
        queue: Bytes,
    },
    /// Queues with their figures: those that are there when the first page is asked for, none twice. Answer: `Queues`.
    ListQueues {
        /// Where the last page ended.
        after: Cursor,
        /// Rows at most.
        limit: u32,
    },
    /// Jobs that match. Answer: `Jobs`.
    ListJobs {
        /// Which.
        filter: Filter,
        /// Where the last page ended.
        after: Cursor,
        /// Rows at most.
        limit: u32,
    },
    /// Connections. Answer: `Clients`.
    ListClients {
        /// Where the last page ended.
        after: Cursor,
        /// Rows at most.
        limit: u32,
    },
    /// Totals since the data directory was made, and what is there now. Answer: `Stats`.
    Stats,
    /// Nothing but to know that everything before is remembered. Answer: `Settled`.
    Barrier,
    /// Do something to jobs that match, a bounded number at a time. Answer: `Mutated`, with where to go on.
    Mutate {
        /// Which.
        filter: Filter,
        /// What.
        action: Mutation,
        /// Where the last round ended.
        after: Cursor,
        /// Jobs at most this time.
        limit: u32,
    },

    /// Remove everything of one origin, a bounded amount at a time: batches, jobs wherever they are (a leased one is unknown
    /// to its worker then), queues left empty, unserved and without limits (whoever pushes to one makes it known again),
    /// what was counted of it. What comes meanwhile may stay, and so do its schedules: they say what is to be done, and
    /// are not what is left to do.
    /// Answer: `Mutated`, with where to go on.
    Flush {
        /// Which.
        origin: Origin,
        /// Where the last round ended.
        after: Cursor,
        /// Jobs, batches or queues at most this time.
        limit: u32,
    },

    // ---- workers known by name across connections --------------------------------------------------------------
    /// This connection belongs to the named worker, which lives while it beats and has a connection. From `Quiet` on none
    /// of its connections is given work, however it waits. Answer: `Done`; the empty name is nobody's.
    Enlist {
        /// The worker's name (FWP `wid`).
        worker: Bytes,
        /// What it says of itself, for listings.
        about: Bytes,
    },
    /// The named worker is alive; `state` moves it on, never back. Answer: `Beaten`.
    Beat {
        /// The worker's name.
        worker: Bytes,
        /// What it wants to be, if it says.
        state: Option<WorkerState>,
    },
    /// An operator moves a worker on (all workers if the name is empty). Answer: `Done`.
    Signal {
        /// The worker's name.
        worker: Bytes,
        /// What it shall be.
        state: WorkerState,
    },
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct ClientInfo {
    /// The address, as text for people; empty for a Unix socket.
    pub address: Box<str>,
    /// The protocol it speaks.
    pub origin: Option<Origin>,
    /// A small number for people: gearmand shows a file descriptor here.
    pub number: u32,
}

/// A queue a client can work on, and on what terms it takes from it unasked.
#[derive(Clone, Debug, PartialEq)]
pub struct Ability {
    /// The queue's name.
    pub queue: Bytes,
    /// Who is served first among clients with credits: higher first (EventMQ).
    pub weight: u32,
    /// The lease a job of this queue is taken under.
    pub lease: LeaseTerms,
    /// Credits of this client also bring it strays of this origin, as if they stood in this queue: ready jobs of `work`
    /// queues that nobody serves, each first in its queue. They are taken on the terms of this ability and keep the name
    /// of their own queue; whoever waits at that queue itself goes first. For takes and sleepers there are no strays.
    pub strays: Option<Origin>,
}

/// The lease a taker asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseTerms {
    /// Ends with the connection; otherwise with time only.
    pub connection_bound: bool,
    /// Milliseconds until it ends by itself, at least 1; `None` = never.
    pub lease_ms: Option<u64>,
    /// What its end by time means.
    pub on_expiry: OnExpiry,
    /// What the end of a lease means that the job asks for itself ([`NewJob::lease_ms`]): such a wish goes before the two
    /// above. `None` = it does not count.
    pub wish: Option<OnExpiry>,
}

impl LeaseTerms {
    /// Until the connection ends.
    pub const CONNECTION: Self =
        Self { connection_bound: true, lease_ms: None, on_expiry: OnExpiry::Requeue, wish: None };
}

/// A job to be.
#[derive(Clone, Debug, PartialEq)]
pub struct NewJob {
    /// The queue's name; it is made known if it is not. Its kind must be what the queue is.
    pub queue: Bytes,
    /// What kind of queue is meant.
    pub kind: QueueKind,
    /// The protocol it is born in.
    pub origin: Origin,
    /// Taken in this order.
    pub priority: Priority,
    /// Kept in the journal; otherwise it lives while somebody listens, and its producer must (`OutOfPlace`).
    pub durable: bool,
    /// The producer is told of progress and the end.
    pub listen: bool,
    /// Before its equals instead of behind them.
    pub front: bool,
    /// The producer's own bytes. A body of at most [`Payload::COPY_MAX`](crate::Payload::COPY_MAX) bytes is copied, and may be part of a larger
    /// buffer; a longer one is kept as it is.
    pub body: Bytes,
    /// The producer's public name for it.
    pub name: Option<Bytes>,
    /// Refuse (`NotUnique`) a name that a job has already.
    pub name_unique: bool,
    /// What the session wants back with it.
    pub meta: Bytes,
    /// Coalescing, if wanted.
    pub unique: Option<Unique>,
    /// Not to be taken before, by the wall clock.
    pub not_before: Option<Timestamp>,
    /// Discarded if not taken before, by the wall clock.
    pub expires_at: Option<Timestamp>,
    /// What failure means.
    pub retry: Retry,
    /// The producer said nothing of what failure means: the queue's own rule counts, if it has one
    /// ([`QueueRules::retry`]).
    pub retry_default: bool,
    /// How long the result is kept; 0 = not.
    pub result_keep_ms: u64,
    /// It is tracked: for so many milliseconds after its end it is known what became of it, unless somebody removed it; 0 =
    /// it is not.
    pub track_ms: u64,
    /// The lease the job itself asks for, in milliseconds; it goes before what a taker asks that lets it ([`LeaseTerms::wish`]).
    pub lease_ms: Option<u64>,
    /// The name of the batch it joins; it must be known. Only a durable job of a `work` queue without a past may; one that is not new
    /// after all (`Attached`, `Kept`) does not.
    pub batch: Option<Bytes>,
    /// What became of it elsewhere, if it comes from there.
    pub past: Option<Box<Past>>,
}

/// What became of a job before it came here: for taking over another server's jobs, not for clients. A schedule's template
/// has none.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Past {
    /// When it came to be ready there, if it was, by the wall clock; never later than now.
    pub ready_at: Option<Timestamp>,
    /// Failures so far: what the retry budget is counted in.
    pub failures: u32,
    /// Where it is, if that is not for [`NewJob::not_before`] to say: leased to a named worker, retrying or dead. A time
    /// that is over is due at once.
    pub place: Option<Place>,
}

impl NewJob {
    /// The plainest job: durable, normal priority, no retry, nobody listening.
    #[must_use]
    pub fn new(origin: Origin, queue: Bytes, body: Bytes) -> Self {
        Self {
            queue,
            kind: QueueKind::Work,
            origin,
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

    /// Bytes it is counted as while it is kept as a template.
    pub(crate) fn weight_bytes(&self) -> u64 {
        const FIXED: usize = 350;
        let names = [Some(&self.queue), self.name.as_ref(), Some(&self.meta), Some(&self.body)];
        let unique = self.unique.as_ref().map_or(0, |unique| unique.key.len());
        (FIXED + unique + names.into_iter().flatten().map(Bytes::len).sum::<usize>()) as u64
    }
}

/// A coalescing key and what a clash means to the submitter.
#[derive(Clone, Debug, PartialEq)]
pub struct Unique {
    /// Compared inside (queue, origin).
    pub key: Bytes,
    /// What a clash means.
    pub clash: Clash,
    /// When it is let go.
    pub until: KeyUntil,
}

/// What a submitter is told when the key is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clash {
    /// It becomes a listener of the job that is there (Gearman).
    Attach,
    /// It is refused (FWP).
    Refuse,
    /// The job that is there is kept as it is (spiderq).
    Keep,
}

/// The two kinds of queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QueueKind {
    /// Finished is gone.
    #[default]
    Work,
    /// Repaid goes round again.
    Cycle,
}

/// A wish to take one job.
#[derive(Clone, Debug)]
pub struct Take {
    /// Where from.
    pub from: From,
    /// How a queue is chosen when several have work.
    pub select: Select,
    /// How long to wait when none has.
    pub wait: Wait,
    /// The worker's name, for a time-bound lease.
    pub worker: Bytes,
}

/// Which queues to take from.
#[derive(Clone, Debug)]
pub enum From {
    /// Those the client serves, each on its own terms.
    Abilities,
    /// These `work` queues, on these terms; a queue of the other kind has nothing for who asks so.
    Listed {
        /// Names, in order.
        queues: Vec<Bytes>,
        /// The terms.
        lease: LeaseTerms,
    },
    /// This `cycle` queue, on these terms; refused if it is of the other kind.
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
    /// The one with the most urgent job; among equals the job that was born first.
    BestPriority,
    /// The one with the most urgent job; among equals each queue in its turn.
    RoundRobin,
    /// The one the client weighs most; among equals the job that was born first.
    Weighted,
}

/// How long a taker waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until then.
    Until(Timestamp),
    /// As long as the connection lives.
    Forever,
}

/// Which job is meant.
#[derive(Clone, Debug, PartialEq)]
pub enum JobRef {
    /// By its number.
    Id(JobId),
    /// By its producer's public name: the one leased first before any other, else the oldest, one that is dead or done only
    /// if there is no other; of those the youngest.
    Name(Bytes),
    /// By its coalescing key.
    Key {
        /// The queue's name.
        queue: Bytes,
        /// The protocol of the key space.
        origin: Origin,
        /// The key.
        key: Bytes,
    },
    /// By a coalescing key that jobs of several queues may hold: then one of them, and the same as long as they stay.
    KeyAnywhere {
        /// The protocol of the key space.
        origin: Origin,
        /// The key.
        key: Bytes,
    },
}

/// By what right a worker speaks of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// This connection holds the lease.
    Connection,
    /// The lease has this token.
    Token(Token),
    /// It is leased, by whomever (FWP: any connection may `ACK`). For [`Command::Finish`] it is enough that it was delivered
    /// and is ready or retrying since: its worker has done it after all, and was only late.
    AnyLease,
    /// It was leased to a worker whose connection, or the daemon, ended before it could say that it succeeded; for
    /// [`Command::Finish`] alone. That it was is not remembered: it holds if the job is ready or retrying, so that nobody
    /// works on it.
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

/// What a worker says while it works.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// So much of so much; `raw` is what listeners get verbatim.
    Progress {
        /// So much,
        numerator: u32,
        /// of so much.
        denominator: u32,
        /// A sentence, or the worker's own bytes.
        raw: Bytes,
    },
    /// Part of the result.
    Data(Bytes),
    /// Something a person should know.
    Warning(Bytes),
}

/// Where a listing goes on; start from the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cursor(pub u64, pub u64);

/// Which jobs. Everything given must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// In this kind of place; `None` = any.
    pub place: Option<PlaceKind>,
    /// In this queue.
    pub queue: Option<Bytes>,
    /// Born in this protocol.
    pub origin: Option<Origin>,
    /// With one of these public names, if any is given.
    pub names: Vec<Bytes>,
    /// And whatever the session wants to look at besides.
    pub test: Option<Test>,
}

/// A condition of a protocol's own (FWP's glob over a job's text). Must be a pure function of the job.
#[derive(Clone)]
pub struct Test(pub Arc<dyn Fn(&Job) -> bool + Send + Sync>);

impl fmt::Debug for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Test(..)")
    }
}

/// What to do to jobs in bulk. Leased jobs are left alone by all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// Remove them.
    Discard,
    /// To the dead set.
    Kill,
    /// Ready at once, behind what is there.
    Requeue,
}

/// What a worker known by name is asked to be. Only ever moves on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WorkerState {
    /// Working.
    Running,
    /// Finish what it has, take no more.
    Quiet,
    /// Finish and go.
    Terminate,
}
