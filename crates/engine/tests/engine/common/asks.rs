//! Short constructors of commands.

use bytes::Bytes;
use windlass_engine::{
    Backoff, BulkCommand, Clash, ClientCommand, Command, Cron, Cursor, Expiry, Failure, Filter,
    From, JobCommand, JobId, JobRef, JobStateKind, KeyUntil, LeaseCommand, LeaseTerms, Listen,
    Mutation, NewJob, NewSchedule, Note, OnExpiry, Priority, Proof, Protocol, Query, QueueCommand,
    QueueKind, Recurrence, RepayTo, Retry, ScheduleCommand, ScheduleRef, Select, Subscription,
    Take, TakeCommand, Throttle, Timestamp, Token, Unique, Wait, WorkerCommand,
};

pub(crate) fn name(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

// ---- schedules -----------------------------------------------------------------------------------------------------

/// A schedule to set.
pub(crate) struct Set(pub(crate) NewSchedule);

/// Runs this job at an interval in milliseconds.
pub(crate) fn every(interval_ms: u64, job: Push) -> Set {
    recurring(Recurrence::Every { interval_ms }, job)
}

/// Runs this job in the minutes that match.
pub(crate) fn cron(cron: Cron, job: Push) -> Set {
    recurring(Recurrence::Cron(cron), job)
}

fn recurring(recurrence: Recurrence, Push(job): Push) -> Set {
    Set(NewSchedule {
        key: None,
        job,
        recurrence,
        at_once: false,
        keep_grid: false,
        runs: None,
    })
}

impl Set {
    pub(crate) fn with(mut self, change: impl FnOnce(&mut NewSchedule)) -> Self {
        change(&mut self.0);
        self
    }

    pub(crate) fn key(self, text: &'static str) -> Self {
        self.with(|new| new.key = Some(name(text)))
    }

    pub(crate) fn at_once(self) -> Self {
        self.with(|new| new.at_once = true)
    }

    pub(crate) fn keep_grid(self) -> Self {
        self.with(|new| new.keep_grid = true)
    }

    pub(crate) fn runs(self, runs: u64) -> Self {
        self.with(|new| new.runs = Some(runs))
    }
}

impl std::convert::From<Set> for Command {
    fn from(set: Set) -> Self {
        Self::Schedule(ScheduleCommand::Set(Box::new(set.0)))
    }
}

/// Queries the job or the schedule with this ID.
pub(crate) fn look(id: u64) -> Command {
    Command::Query(Query::Job(JobRef::Id(JobId(id))))
}

pub(crate) fn remove_schedule(id: u64) -> Command {
    Command::Schedule(ScheduleCommand::Remove(ScheduleRef::Id(JobId(id))))
}

pub(crate) fn remove_keyed(key: &'static str) -> Command {
    Command::Schedule(ScheduleCommand::Remove(ScheduleRef::Key {
        protocol: Protocol::GEARMAN,
        key: name(key),
    }))
}

pub(crate) fn list_schedules(after: u64, limit: u32) -> Command {
    Command::Query(Query::Schedules {
        protocol: None,
        after: Cursor(after, 0),
        limit,
    })
}

// ---- jobs in -------------------------------------------------------------------------------------------------------

/// A job to push; Gearman's by default.
pub(crate) struct Push(pub(crate) NewJob);

pub(crate) fn push(queue: &'static str) -> Push {
    Push(NewJob::new(
        Protocol::GEARMAN,
        name(queue),
        Bytes::from_static(b"body"),
    ))
}

impl Push {
    pub(crate) fn with(mut self, change: impl FnOnce(&mut NewJob)) -> Self {
        change(&mut self.0);
        self
    }

    pub(crate) fn priority(self, priority: u8) -> Self {
        self.with(|job| job.priority = Priority::clamped(priority))
    }

    pub(crate) fn front(self) -> Self {
        self.with(|job| job.front = true)
    }

    pub(crate) fn cycle(self) -> Self {
        self.with(|job| job.kind = QueueKind::Cycle)
    }

    pub(crate) fn named(self, text: &'static str) -> Self {
        self.with(|job| job.name = Some(name(text)))
    }

    pub(crate) fn listen(self) -> Self {
        self.with(|job| job.listen = Listen::Yes)
    }

    /// The outcome can be collected with this name.
    pub(crate) fn listen_as(self, text: &'static str) -> Self {
        self.with(|job| job.listen = Listen::As(name(text)))
    }

    /// Not durable, only listened to.
    pub(crate) fn foreground(self) -> Self {
        self.with(|job| (job.durable, job.listen) = (false, Listen::Yes))
    }

    pub(crate) fn unique(self, key: &'static str, clash: Clash) -> Self {
        self.unique_until(key, clash, KeyUntil::End)
    }

    pub(crate) fn unique_until(self, key: &'static str, clash: Clash, until: KeyUntil) -> Self {
        self.with(|job| {
            job.unique = Some(Unique {
                key: name(key),
                clash,
                until,
            })
        })
    }

    pub(crate) fn not_before(self, at: u64) -> Self {
        self.with(|job| job.not_before = Some(Timestamp(at)))
    }

    pub(crate) fn expires(self, at: u64) -> Self {
        self.with(|job| job.expires = Expiry::At(Timestamp(at)))
    }

    pub(crate) fn retry(self, failures_max: i32, backoff: Backoff) -> Self {
        self.with(|job| {
            job.retry = Retry {
                failures_max,
                backoff,
                ..job.retry
            }
        })
    }

    pub(crate) fn expires_by(self, at: u64) -> Self {
        self.with(|job| job.expires = Expiry::By(Timestamp(at)))
    }

    pub(crate) fn losses(self, losses_max: u32) -> Self {
        self.with(|job| job.retry.losses_max = losses_max)
    }

    pub(crate) fn keep_result(self, ms: u64) -> Self {
        self.with(|job| job.result_keep_ms = ms)
    }

    pub(crate) fn lease_ms(self, ms: u64) -> Self {
        self.with(|job| job.lease_ms = Some(ms))
    }

    pub(crate) fn track(self, keep_ms: u64) -> Self {
        self.with(|job| job.track_ms = keep_ms)
    }

    pub(crate) fn batch(self, text: &'static str) -> Self {
        self.with(|job| job.batch = Some(name(text)))
    }
}

impl std::convert::From<Push> for Command {
    fn from(push: Push) -> Self {
        Self::Job(JobCommand::Push(Box::new(push.0)))
    }
}

/// Collects the outcomes of the jobs with this name.
pub(crate) fn collect(text: &'static str) -> Command {
    collect_from(text, 0)
}

pub(crate) fn collect_from(text: &'static str, from: u64) -> Command {
    Command::Job(JobCommand::Collect {
        name: name(text),
        from: JobId(from),
    })
}

// ---- jobs out ------------------------------------------------------------------------------------------------------

/// A take: connection-bound, in the order listed, without waiting.
pub(crate) struct Wish(pub(crate) Take);

pub(crate) fn take<const N: usize>(queues: [&'static str; N]) -> Wish {
    let queues = queues.into_iter().map(name).collect();
    let from = From::Listed {
        queues,
        lease: LeaseTerms::CONNECTION,
    };
    Wish(Take {
        from,
        select: Select::ListOrder,
        wait: Wait::No,
        worker: Bytes::new(),
    })
}

/// From this `cycle` queue.
pub(crate) fn take_round(queue: &'static str) -> Wish {
    let from = From::Cycle {
        queue: name(queue),
        lease: LeaseTerms::CONNECTION,
    };
    Wish(Take {
        from,
        select: Select::ListOrder,
        wait: Wait::No,
        worker: Bytes::new(),
    })
}

/// From the queues that the client serves.
pub(crate) fn take_served() -> Wish {
    Wish(Take {
        from: From::Subscriptions,
        select: Select::ListOrder,
        wait: Wait::No,
        worker: Bytes::new(),
    })
}

impl Wish {
    pub(crate) fn select(mut self, select: Select) -> Self {
        self.0.select = select;
        self
    }

    pub(crate) fn forever(mut self) -> Self {
        self.0.wait = Wait::Forever;
        self
    }

    pub(crate) fn until(mut self, at: u64) -> Self {
        self.0.wait = Wait::Until(Timestamp(at));
        self
    }

    pub(crate) fn worker(mut self, worker: &'static str) -> Self {
        self.0.worker = name(worker);
        self
    }

    /// With a time-bound lease.
    pub(crate) fn for_ms(mut self, ms: u64, on_expiry: OnExpiry) -> Self {
        if let From::Listed { lease, .. } | From::Cycle { lease, .. } = &mut self.0.from {
            *lease = timed(ms, on_expiry);
        }
        self
    }
}

impl std::convert::From<Wish> for Command {
    fn from(wish: Wish) -> Self {
        Self::Take(TakeCommand::Take(wish.0))
    }
}

pub(crate) fn timed(ms: u64, on_expiry: OnExpiry) -> LeaseTerms {
    LeaseTerms {
        connection_bound: false,
        lease_ms: Some(ms),
        on_expiry,
        wish: Some(on_expiry),
    }
}

pub(crate) fn serve(queue: &'static str) -> Command {
    serve_on(queue, 0, LeaseTerms::CONNECTION)
}

pub(crate) fn serve_on(queue: &'static str, weight: u32, lease: LeaseTerms) -> Command {
    Command::Client(ClientCommand::Serve(Subscription {
        queue: name(queue),
        weight,
        lease,
        unclaimed: None,
    }))
}

pub(crate) fn unserve(queue: &'static str, requeue: bool) -> Command {
    Command::Client(ClientCommand::Unserve {
        queue: name(queue),
        requeue,
    })
}

pub(crate) fn credit(credits: u32) -> Command {
    Command::Take(TakeCommand::Credit {
        credits,
        select: Select::BestPriority,
    })
}

// ---- jobs done -----------------------------------------------------------------------------------------------------

pub(crate) fn finish(job: u64) -> Command {
    finish_by(job, Proof::Connection)
}

pub(crate) fn finish_by(job: u64, proof: Proof) -> Command {
    Command::Lease(LeaseCommand::Finish {
        job: id(job),
        proof,
        result: Bytes::from_static(b"result"),
    })
}

pub(crate) fn fail(job: u64) -> Command {
    fail_by(job, Proof::Connection)
}

pub(crate) fn fail_by(job: u64, proof: Proof) -> Command {
    let failure = Failure {
        message: Bytes::from_static(b"oops"),
        ..Failure::default()
    };
    Command::Lease(LeaseCommand::Fail {
        job: id(job),
        proof,
        failure: Box::new(failure),
    })
}

pub(crate) fn release(job: u64, front: bool) -> Command {
    Command::Lease(LeaseCommand::Release {
        job: id(job),
        proof: Proof::Connection,
        front,
    })
}

pub(crate) fn extend(job: u64, token: u64, until: u64, only_later: bool) -> Command {
    Command::Lease(LeaseCommand::Extend {
        job: id(job),
        proof: self::token(token),
        until: Timestamp(until),
        only_later,
    })
}

pub(crate) fn repay(job: u64, token: u64, to: RepayTo) -> Command {
    Command::Lease(LeaseCommand::Repay {
        job: id(job),
        proof: self::token(token),
        body: Bytes::from_static(b"value"),
        to,
    })
}

pub(crate) fn tell(job: u64, note: Note) -> Command {
    Command::Lease(LeaseCommand::Progress {
        job: id(job),
        proof: Proof::Connection,
        note,
    })
}

pub(crate) fn data(text: &'static str) -> Note {
    Note::Data(name(text))
}

pub(crate) const fn token(token: u64) -> Proof {
    Proof::Token(Token(token))
}

pub(crate) const fn id(job: u64) -> JobRef {
    JobRef::Id(JobId(job))
}

pub(crate) fn by_name(text: &'static str) -> JobRef {
    JobRef::Name(name(text))
}

pub(crate) fn by_key(queue: &'static str, key: &'static str) -> JobRef {
    JobRef::key(name(queue), Protocol::GEARMAN, name(key))
}

// ---- queues, listings, workers -------------------------------------------------------------------------------------

pub(crate) fn remove_queue(queue: &'static str, only_idle: bool) -> Command {
    Command::Queue(QueueCommand::Remove {
        queue: name(queue),
        only_idle,
    })
}

pub(crate) fn pause(queue: &'static str, paused: bool) -> Command {
    Command::Queue(QueueCommand::Pause {
        queue: name(queue),
        paused,
    })
}

pub(crate) fn create(queue: &'static str, kind: QueueKind) -> Command {
    Command::Queue(QueueCommand::Create {
        queue: name(queue),
        kind,
    })
}

/// The queue refuses a job of any priority at this size.
pub(crate) fn limit(queue: &'static str, jobs_max: u32) -> Command {
    Command::Queue(QueueCommand::Limit {
        queue: name(queue),
        jobs_max: [Some(jobs_max); Priority::COUNT],
    })
}

/// The limits: leases in total, leases per worker, and the timeout.
pub(crate) fn throttle(
    queue: &'static str,
    leased_max: Option<u32>,
    per_worker_max: Option<u32>,
    timeout_ms: Option<u64>,
) -> Command {
    let throttle = Throttle {
        leased_max,
        per_worker_max,
        timeout_ms,
        configured: false,
    };
    Command::Queue(QueueCommand::Throttle {
        queue: name(queue),
        throttle: Some(throttle),
    })
}

pub(crate) fn unthrottle(queue: &'static str) -> Command {
    Command::Queue(QueueCommand::Throttle {
        queue: name(queue),
        throttle: None,
    })
}

pub(crate) fn list_queues() -> Command {
    Command::Query(Query::Queues {
        after: Cursor::default(),
        limit: 1_000,
    })
}

pub(crate) fn all() -> Filter {
    Filter::default()
}

pub(crate) fn placed(state: JobStateKind) -> Filter {
    Filter {
        state: Some(state),
        ..Filter::default()
    }
}

pub(crate) fn in_queue(queue: &'static str, state: JobStateKind) -> Filter {
    Filter {
        queue: Some(name(queue)),
        ..placed(state)
    }
}

pub(crate) fn with_names<const N: usize>(names: [&'static str; N]) -> Filter {
    Filter {
        names: names.into_iter().map(name).collect(),
        ..Filter::default()
    }
}

pub(crate) fn list_jobs(filter: Filter) -> Command {
    Command::Query(Query::Jobs {
        filter: filter.into(),
        after: Cursor::default(),
        limit: 1_000,
    })
}

pub(crate) fn mutate(filter: Filter, action: Mutation) -> Command {
    Command::Bulk(BulkCommand::Mutate {
        filter: filter.into(),
        action,
        after: Cursor::default(),
        limit: 1_000,
    })
}

pub(crate) fn enlist(worker: &'static str) -> Command {
    Command::Worker(WorkerCommand::Register {
        worker: name(worker),
        about: Bytes::new(),
    })
}

pub(crate) fn beat(worker: &'static str) -> Command {
    Command::Worker(WorkerCommand::Beat {
        worker: name(worker),
        state: None,
        memory_bytes: None,
    })
}

pub(crate) fn signal(worker: &'static str, state: windlass_engine::WorkerState) -> Command {
    Command::Worker(WorkerCommand::SetState {
        worker: name(worker),
        state,
    })
}
