//! A small world: clients, and commands of every kind for a real engine.

use bytes::Bytes;
use windlass_engine::{
    Backoff, BatchCommand, BulkCommand, Clash, ClientCommand, ClientId, ClientInfo, Command,
    Context, Cron, Cursor, Engine, Expiry, Failure, Filter, From, Job, JobCommand, JobId, JobRef,
    JobStateKind, KeyUntil, LeaseCommand, LeaseTerms, Listen, Mutation, NewBatch, NewJob,
    NewSchedule, Note, OnExpiry, Priority, Proof, Protocol, Query, QueueCommand, QueueKind,
    Recurrence, RepayTo, Retry, ScheduleCommand, ScheduleRef, Select, Tag, Take, TakeCommand,
    Throttle, Timestamp, Unique, Wait,
};

use crate::rng::Rng;

const CLIENTS: u64 = 4;
const WORK: [&str; 4] = ["resize", "mail", "index", "sums"];
const CYCLE: [&str; 2] = ["ring", "round"];

/// Opens the clients of a world in a new engine.
pub(crate) fn open_clients(engine: &mut Engine, context: &mut Context) {
    for client in 0..CLIENTS {
        engine.apply(
            ClientId(client),
            Tag::NONE,
            ClientCommand::Open(ClientInfo::default()),
            context,
        );
    }
}

/// A command of a client, likely to have an effect.
pub(crate) fn any_command(rng: &mut Rng, engine: &Engine, now: Timestamp) -> (ClientId, Command) {
    let client = ClientId(rng.roll(CLIENTS));
    let leased = any_job(rng, engine, |job| job.lease().is_some());
    let any = any_job(rng, engine, |_| true).map(|(id, _)| JobRef::Id(id));
    let command = match rng.roll(46) {
        0..=13 => push(rng, now),
        14..=20 => take(rng, now),
        21..=29 => match leased {
            Some((id, cycle)) => on_leased(rng, now, JobRef::Id(id), cycle),
            None => push(rng, now),
        },
        30 => any.map_or(Command::Query(Query::Stats), |job| {
            Command::Job(JobCommand::Track {
                job,
                progress: Some((1, 4)),
                text: rng.one_in(2).then(|| Bytes::from_static(b"a quarter")),
                until: later(rng, now, 2),
            })
        }),
        31 => any.map_or(Command::Query(Query::Stats), |job| {
            Command::Job(JobCommand::Replace {
                job,
                body: body(rng),
            })
        }),
        32 => any.map_or(Command::Query(Query::Stats), |job| {
            JobCommand::Cancel(job).into()
        }),
        33 => Command::Queue(QueueCommand::Pause {
            queue: queue(rng).0,
            paused: rng.one_in(2),
        }),
        34 if rng.one_in(2) => Command::Queue(QueueCommand::Limit {
            queue: work(rng),
            jobs_max: [Some(20); Priority::COUNT],
        }),
        34 => {
            let few = [None, Some(0), Some(1), Some(2), Some(5)];
            let (leased_max, per_worker_max) = (rng.one_of(&few), rng.one_of(&few));
            let timeout_ms = rng.one_in(2).then(|| rng.roll(5_000));
            let throttle = Throttle {
                leased_max,
                per_worker_max,
                timeout_ms,
                configured: leased_max.is_some(),
            };
            Command::Queue(QueueCommand::Throttle {
                queue: queue(rng).0,
                throttle: rng.one_in(2).then_some(throttle),
            })
        }
        35 => Command::Queue(QueueCommand::Remove {
            queue: queue(rng).0,
            only_idle: rng.one_in(2),
        }),
        36 => {
            let (queue, kind) = queue(rng);
            Command::Queue(QueueCommand::Create { queue, kind })
        }
        37 => mutate(rng),
        38 => schedule(rng, now),
        39 => unschedule(rng, engine),
        40 => Command::Take(TakeCommand::Unwait),
        41..=43 => new_batch(rng, now),
        44 => Command::Batch(BatchCommand::Commit { batch: batch(rng) }),
        _ => Command::Query(Query::Stats),
    };
    (client, command)
}

/// A command that empties a world.
pub(crate) fn discard_all() -> Command {
    Command::Bulk(BulkCommand::Mutate {
        filter: Filter::default().into(),
        action: Mutation::Discard,
        after: Cursor::default(),
        limit: 1_000,
    })
}

/// Every queue that can exist.
pub(crate) fn queue_names() -> impl Iterator<Item = Bytes> {
    WORK.iter()
        .chain(&CYCLE)
        .map(|name| Bytes::from_static(name.as_bytes()))
}

fn any_job(rng: &mut Rng, engine: &Engine, which: impl Fn(&Job) -> bool) -> Option<(JobId, bool)> {
    let mut jobs: Vec<_> = engine
        .jobs()
        .filter(|j| which(j))
        .map(|j| (j.id, j.cycle().is_some()))
        .collect();
    jobs.sort_unstable();
    rng.pick(&jobs)
}

fn work(rng: &mut Rng) -> Bytes {
    Bytes::from_static(rng.one_of(&WORK).as_bytes())
}

fn queue(rng: &mut Rng) -> (Bytes, QueueKind) {
    if rng.one_in(4) {
        (
            Bytes::from_static(rng.one_of(&CYCLE).as_bytes()),
            QueueKind::Cycle,
        )
    } else {
        (work(rng), QueueKind::Work)
    }
}

/// Mostly small; sometimes shared instead of copied, seldom of several parts.
fn body(rng: &mut Rng) -> Bytes {
    let len = match rng.roll(60) {
        0..=49 => rng.roll(40),
        50..=58 => 1_000 + rng.roll(3_000),
        _ => 60_000 + rng.roll(150_000),
    };
    let fill = u8::try_from(rng.roll(256)).unwrap();
    Bytes::from(vec![fill; usize::try_from(len).unwrap()])
}

fn later(rng: &mut Rng, now: Timestamp, one_in: u64) -> Option<Timestamp> {
    rng.one_in(one_in).then(|| now.after_ms(rng.roll(20_000)))
}

/// Recurring from every minute to every leap year; most have one of a few names.
fn schedule(rng: &mut Rng, now: Timestamp) -> Command {
    let Command::Job(JobCommand::Push(job)) = push(rng, Timestamp(0)) else {
        return Command::Query(Query::Stats);
    };
    let leap = Cron {
        minutes: 1,
        hours: 1,
        days: 1 << 29,
        months: 1 << 2,
        ..Cron::ALWAYS
    };
    let recurrence = match rng.roll(4) {
        0 => Recurrence::Cron(Cron::ALWAYS),
        1 => Recurrence::Cron(leap),
        _ => Recurrence::Every {
            interval_ms: 1 + rng.roll(now.0 / 100),
        },
    };
    Command::Schedule(ScheduleCommand::Set(Box::new(NewSchedule {
        key: (!rng.one_in(4)).then(|| Bytes::from(format!("s{}", rng.roll(4)))),
        job: NewJob {
            durable: true,
            listen: Listen::No,
            batch: None,
            ..*job
        },
        recurrence,
        at_once: rng.one_in(3),
        keep_grid: rng.one_in(2),
        runs: rng.one_in(3).then(|| 1 + rng.roll(4)),
    })))
}

fn batch(rng: &mut Rng) -> Bytes {
    Bytes::from(format!("b{}", rng.roll(4)))
}

/// Mostly with callbacks, sometimes part of another batch.
fn new_batch(rng: &mut Rng, now: Timestamp) -> Command {
    let mut callback = || {
        let Command::Job(JobCommand::Push(job)) = push(rng, now) else {
            return None;
        };
        let job = NewJob {
            durable: true,
            listen: Listen::No,
            batch: None,
            ..*job
        };
        (job.kind == QueueKind::Work).then(|| Box::new(job))
    };
    let (complete, success) = (callback(), callback());
    Command::Batch(BatchCommand::New(Box::new(NewBatch {
        protocol: Protocol::GEARMAN,
        name: batch(rng),
        parent: rng.one_in(3).then(|| batch(rng)),
        about: Bytes::from_static(b"about"),
        meta: Bytes::new(),
        complete,
        success,
        expires_ms: rng.roll(20_000),
    })))
}

/// Removes an existing schedule.
pub(crate) fn unschedule(rng: &mut Rng, engine: &Engine) -> Command {
    let ids: Vec<JobId> = engine.schedules().map(|schedule| schedule.id).collect();
    rng.pick(&ids).map_or(Command::Query(Query::Stats), |id| {
        Command::Schedule(ScheduleCommand::Remove(ScheduleRef::Id(id)))
    })
}

fn push(rng: &mut Rng, now: Timestamp) -> Command {
    let (queue, kind) = queue(rng);
    let durable = kind == QueueKind::Cycle || !rng.one_in(4);
    let key = rng.one_in(3).then(|| Unique {
        key: Bytes::from(format!("key{}", rng.roll(6))),
        clash: rng.one_of(&[Clash::Attach, Clash::Refuse, Clash::Keep]),
        until: match rng.roll(4) {
            0 => KeyUntil::Start,
            1 => KeyUntil::EndOr(now.after_ms(rng.roll(5_000))),
            2 => KeyUntil::Gone,
            _ => KeyUntil::End,
        },
    });
    let backoff = match rng.roll(4) {
        0 => Backoff::None,
        1 => Backoff::Fixed(500),
        2 => Backoff::Doubling(100),
        _ => Backoff::Faktory,
    };
    let failures_max = i32::try_from(rng.roll(5)).unwrap() - 1;
    Command::Job(JobCommand::Push(Box::new(NewJob {
        kind,
        priority: Priority::clamped(u8::try_from(rng.roll(10)).unwrap()),
        durable,
        listen: match rng.roll(5) {
            0 => Listen::As(Bytes::from_static(b"me")),
            1 => Listen::Yes,
            _ if !durable => Listen::Yes,
            _ => Listen::No,
        },
        front: rng.one_in(6),
        name: rng
            .one_in(3)
            .then(|| Bytes::from(format!("name{}", rng.roll(9)))),
        meta: if rng.one_in(3) {
            Bytes::from_static(b"meta")
        } else {
            Bytes::new()
        },
        unique: key,
        not_before: later(rng, now, 5),
        expires: later(rng, now, 8).map_or(
            Expiry::Never,
            if rng.one_in(2) {
                Expiry::At
            } else {
                Expiry::By
            },
        ),
        retry: Retry {
            failures_max,
            losses_max: u32::try_from(rng.roll(4)).unwrap(),
            backoff,
        },
        result_keep_ms: if rng.one_in(5) { 3_000 } else { 0 },
        lease_ms: rng.one_in(5).then_some(2_000),
        track_ms: if rng.one_in(4) { 4_000 } else { 0 },
        batch: (durable && rng.one_in(4)).then(|| batch(rng)),
        ..NewJob::new(Protocol::GEARMAN, queue, body(rng))
    })))
}

fn take(rng: &mut Rng, now: Timestamp) -> Command {
    let connection_bound = rng.one_in(2);
    let on_expiry = rng.one_of(&[OnExpiry::Fail, OnExpiry::Requeue, OnExpiry::Front]);
    let lease_ms = (!connection_bound || rng.one_in(3)).then(|| rng.roll(4_000));
    let lease = LeaseTerms {
        connection_bound,
        lease_ms,
        on_expiry,
        wish: Some(on_expiry),
    };
    let wait = match rng.roll(3) {
        0 => Wait::No,
        1 => Wait::Until(now.after_ms(rng.roll(2_000))),
        _ => Wait::Forever,
    };
    let from = From::Listed {
        queues: vec![queue(rng).0, queue(rng).0],
        lease,
    };
    Command::Take(TakeCommand::Take(Take {
        from,
        select: Select::BestPriority,
        wait,
        worker: Bytes::from_static(b"w"),
    }))
}

fn on_leased(rng: &mut Rng, now: Timestamp, job: JobRef, cycle: bool) -> Command {
    let proof = Proof::AnyLease;
    match rng.roll(8) {
        0 => Command::Lease(LeaseCommand::Extend {
            job,
            proof,
            until: now.after_ms(rng.roll(9_000)),
            only_later: rng.one_in(2),
        }),
        1 => {
            let note = Note::Progress {
                numerator: 1,
                denominator: 3,
                raw: Bytes::from_static(b"1/3"),
            };
            Command::Lease(LeaseCommand::Progress { job, proof, note })
        }
        2..=7 if cycle => {
            let to = [
                RepayTo::Penalty,
                RepayTo::Reward,
                RepayTo::Front,
                RepayTo::Drop,
            ];
            Command::Lease(LeaseCommand::Repay {
                job,
                proof,
                body: body(rng),
                to: rng.one_of(&to),
            })
        }
        2 => Command::Lease(LeaseCommand::Release {
            job,
            proof,
            front: rng.one_in(2),
        }),
        3 => {
            let backtrace = vec![Bytes::from_static(b"line")];
            let failure = Failure {
                kind: Bytes::from_static(b"E"),
                backtrace,
                ..Failure::default()
            };
            Command::Lease(LeaseCommand::Fail {
                job,
                proof,
                failure: Box::new(failure),
            })
        }
        _ => Command::Lease(LeaseCommand::Finish {
            job,
            proof,
            result: body(rng),
        }),
    }
}

fn mutate(rng: &mut Rng) -> Command {
    let action = rng.one_of(&[Mutation::Discard, Mutation::Kill, Mutation::Requeue]);
    let state = rng.one_of(&JobStateKind::ALL);
    let filter = Filter {
        state: Some(state),
        queue: rng.one_in(2).then(|| queue(rng).0),
        ..Filter::default()
    };
    Command::Bulk(BulkCommand::Mutate {
        filter: filter.into(),
        action,
        after: Cursor::default(),
        limit: 5,
    })
}
