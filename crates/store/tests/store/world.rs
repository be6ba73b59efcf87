//! A small world: clients, and commands of every kind for a real engine.

use bytes::Bytes;
use windlass_engine::{
    Backoff, Clash, ClientId, ClientInfo, Command, Cron, Cursor, Engine, Failure, Filter, From, Job, JobId, JobRef,
    KeyUntil, LeaseTerms, Limits, Mutation, NewBatch, NewJob, NewSchedule, Note, OnExpiry, Origin, PlaceKind, Priority,
    Proof, QueueKind, Recurrence, RepayTo, Retry, ScheduleRef, Select, Tag, Take, Throttle, Timestamp, Turn, Unique,
    Wait,
};

use windlass_store::{Commit, Fingerprint, Journal};

use crate::dice::Dice;

const CLIENTS: u64 = 4;
const WORK: [&str; 4] = ["resize", "mail", "index", "sums"];
const CYCLE: [&str; 2] = ["ring", "round"];

/// Opens the clients of a world in a new engine.
pub(crate) fn open_clients(engine: &mut Engine, turn: &mut Turn) {
    for client in 0..CLIENTS {
        engine.apply(ClientId(client), Tag::NONE, Command::Open(ClientInfo::default()), turn);
    }
}

/// One command of one client, likely to have an effect.
pub(crate) fn any_command(dice: &mut Dice, engine: &Engine, now: Timestamp) -> (ClientId, Command) {
    let client = ClientId(dice.roll(CLIENTS));
    let leased = any_job(dice, engine, |job| job.lease().is_some());
    let any = any_job(dice, engine, |_| true).map(|(id, _)| JobRef::Id(id));
    let command = match dice.roll(46) {
        0..=13 => push(dice, now),
        14..=20 => take(dice, now),
        21..=29 => match leased {
            Some((id, cycle)) => on_leased(dice, now, JobRef::Id(id), cycle),
            None => push(dice, now),
        },
        30 => any.map_or(Command::Stats, |job| Command::Track {
            job,
            progress: Some((1, 4)),
            text: dice.one_in(2).then(|| Bytes::from_static(b"a quarter")),
            until: later(dice, now, 2),
        }),
        31 => any.map_or(Command::Stats, |job| Command::Replace { job, body: body(dice) }),
        32 => any.map_or(Command::Stats, Command::Cancel),
        33 => Command::PauseQueue { queue: queue(dice).0, paused: dice.one_in(2) },
        34 if dice.one_in(2) => Command::LimitQueue { queue: work(dice), jobs_max: [Some(20); Priority::COUNT] },
        34 => {
            let few = [None, Some(0), Some(1), Some(2), Some(5)];
            let (leased_max, per_worker_max) = (dice.one_of(&few), dice.one_of(&few));
            let timeout_ms = dice.one_in(2).then(|| dice.roll(5_000));
            let throttle = Throttle { leased_max, per_worker_max, timeout_ms };
            Command::ThrottleQueue { queue: queue(dice).0, throttle: dice.one_in(2).then_some(throttle) }
        }
        35 => Command::RemoveQueue { queue: queue(dice).0, only_idle: dice.one_in(2) },
        36 => {
            let (queue, kind) = queue(dice);
            Command::CreateQueue { queue, kind }
        }
        37 => mutate(dice),
        38 => schedule(dice, now),
        39 => unschedule(dice, engine),
        40 => Command::Unwait,
        41..=43 => new_batch(dice, now),
        44 => Command::BatchCommit { batch: batch(dice) },
        _ => Command::Stats,
    };
    (client, command)
}

/// The commits of a daemon's life of `visits` visits, and the state after each.
pub(crate) fn commits_of_a_life(dice: &mut Dice, visits: u64, commands: u64) -> (Vec<Commit>, Vec<Fingerprint>) {
    let (mut engine, mut journal) = (Engine::new(Limits::default(), 1), Journal::new());
    let mut turn = Turn::new(Timestamp(1_000_000), 1);
    open_clients(&mut engine, &mut turn);
    let (mut commits, mut prints) = (Vec::new(), Vec::new());
    for _ in 0..visits {
        turn.changes.clear();
        for _ in 0..commands {
            let (client, command) = any_command(dice, &engine, turn.now);
            engine.apply(client, Tag(1), command, &mut turn);
        }
        journal.append(&engine, &turn.changes);
        while let Some(commit) = journal.cut(&engine) {
            journal.committed(commit.seq());
            commits.push(commit);
            prints.push(Fingerprint::of(&engine));
        }
    }
    (commits, prints)
}

/// A command that empties a world.
pub(crate) fn discard_all() -> Command {
    Command::Mutate { filter: Filter::default(), action: Mutation::Discard, after: Cursor::default(), limit: 1_000 }
}

/// Every queue that can exist.
pub(crate) fn queue_names() -> impl Iterator<Item = Bytes> {
    WORK.iter().chain(&CYCLE).map(|name| Bytes::from_static(name.as_bytes()))
}

fn any_job(dice: &mut Dice, engine: &Engine, which: impl Fn(&Job) -> bool) -> Option<(JobId, bool)> {
    let mut jobs: Vec<_> = engine.jobs().filter(|j| which(j)).map(|j| (j.id, j.cycle().is_some())).collect();
    jobs.sort_unstable();
    dice.pick(&jobs)
}

fn work(dice: &mut Dice) -> Bytes {
    Bytes::from_static(dice.one_of(&WORK).as_bytes())
}

fn queue(dice: &mut Dice) -> (Bytes, QueueKind) {
    if dice.one_in(4) {
        (Bytes::from_static(dice.one_of(&CYCLE).as_bytes()), QueueKind::Cycle)
    } else {
        (work(dice), QueueKind::Work)
    }
}

/// Mostly small; sometimes shared instead of copied, seldom of several parts.
fn body(dice: &mut Dice) -> Bytes {
    let len = match dice.roll(60) {
        0..=49 => dice.roll(40),
        50..=58 => 1_000 + dice.roll(3_000),
        _ => 60_000 + dice.roll(150_000),
    };
    let fill = u8::try_from(dice.roll(256)).unwrap();
    Bytes::from(vec![fill; usize::try_from(len).unwrap()])
}

fn later(dice: &mut Dice, now: Timestamp, one_in: u64) -> Option<Timestamp> {
    dice.one_in(one_in).then(|| now.after_ms(dice.roll(20_000)))
}

/// Recurring from every minute to every leap year; most have one of a few names.
fn schedule(dice: &mut Dice, now: Timestamp) -> Command {
    let Command::Push(job) = push(dice, Timestamp(0)) else { return Command::Stats };
    let leap = Cron { minutes: 1, hours: 1, days: 1 << 29, months: 1 << 2, ..Cron::ALWAYS };
    let recurrence = match dice.roll(4) {
        0 => Recurrence::Cron(Cron::ALWAYS),
        1 => Recurrence::Cron(leap),
        _ => Recurrence::Every { interval_ms: 1 + dice.roll(now.0 / 100) },
    };
    Command::SetSchedule(Box::new(NewSchedule {
        key: (!dice.one_in(4)).then(|| Bytes::from(format!("s{}", dice.roll(4)))),
        job: NewJob { durable: true, listen: false, batch: None, ..*job },
        recurrence,
        at_once: dice.one_in(3),
        keep_grid: dice.one_in(2),
        runs: dice.one_in(3).then(|| 1 + dice.roll(4)),
    }))
}

fn batch(dice: &mut Dice) -> Bytes {
    Bytes::from(format!("b{}", dice.roll(4)))
}

/// Mostly with callbacks, sometimes part of another batch.
fn new_batch(dice: &mut Dice, now: Timestamp) -> Command {
    let mut callback = || {
        let Command::Push(job) = push(dice, now) else { return None };
        let job = NewJob { durable: true, listen: false, batch: None, ..*job };
        (job.kind == QueueKind::Work).then(|| Box::new(job))
    };
    let (complete, success) = (callback(), callback());
    Command::BatchNew(Box::new(NewBatch {
        origin: Origin::GEARMAN,
        name: batch(dice),
        parent: dice.one_in(3).then(|| batch(dice)),
        about: Bytes::from_static(b"about"),
        meta: Bytes::new(),
        complete,
        success,
        expires_ms: dice.roll(20_000),
    }))
}

/// Ends one of the existing schedules.
pub(crate) fn unschedule(dice: &mut Dice, engine: &Engine) -> Command {
    let ids: Vec<JobId> = engine.schedules().map(|schedule| schedule.id).collect();
    dice.pick(&ids).map_or(Command::Stats, |id| Command::RemoveSchedule(ScheduleRef::Id(id)))
}

fn push(dice: &mut Dice, now: Timestamp) -> Command {
    let (queue, kind) = queue(dice);
    let durable = kind == QueueKind::Cycle || !dice.one_in(4);
    let key = dice.one_in(3).then(|| Unique {
        key: Bytes::from(format!("key{}", dice.roll(6))),
        clash: dice.one_of(&[Clash::Attach, Clash::Refuse, Clash::Keep]),
        until: match dice.roll(4) {
            0 => KeyUntil::Start,
            1 => KeyUntil::EndOr(now.after_ms(dice.roll(5_000))),
            2 => KeyUntil::Gone,
            _ => KeyUntil::End,
        },
    });
    let backoff = match dice.roll(4) {
        0 => Backoff::None,
        1 => Backoff::Fixed(500),
        2 => Backoff::Doubling(100),
        _ => Backoff::Faktory,
    };
    let failures_max = i32::try_from(dice.roll(5)).unwrap() - 1;
    Command::Push(Box::new(NewJob {
        kind,
        priority: Priority::clamped(u8::try_from(dice.roll(10)).unwrap()),
        durable,
        listen: !durable || dice.one_in(5),
        front: dice.one_in(6),
        name: dice.one_in(3).then(|| Bytes::from(format!("name{}", dice.roll(9)))),
        meta: if dice.one_in(3) { Bytes::from_static(b"meta") } else { Bytes::new() },
        unique: key,
        not_before: later(dice, now, 5),
        expires_at: later(dice, now, 8),
        retry: Retry { failures_max, losses_max: u32::try_from(dice.roll(4)).unwrap(), backoff },
        result_keep_ms: if dice.one_in(5) { 3_000 } else { 0 },
        lease_ms: dice.one_in(5).then_some(2_000),
        track_ms: if dice.one_in(4) { 4_000 } else { 0 },
        batch: (durable && dice.one_in(4)).then(|| batch(dice)),
        ..NewJob::new(Origin::GEARMAN, queue, body(dice))
    }))
}

fn take(dice: &mut Dice, now: Timestamp) -> Command {
    let connection_bound = dice.one_in(2);
    let on_expiry = dice.one_of(&[OnExpiry::Fail, OnExpiry::Requeue, OnExpiry::Front]);
    let lease_ms = (!connection_bound || dice.one_in(3)).then(|| dice.roll(4_000));
    let lease = LeaseTerms { connection_bound, lease_ms, on_expiry, wish: Some(on_expiry) };
    let wait = match dice.roll(3) {
        0 => Wait::No,
        1 => Wait::Until(now.after_ms(dice.roll(2_000))),
        _ => Wait::Forever,
    };
    let from = From::Listed { queues: vec![queue(dice).0, queue(dice).0], lease };
    Command::Take(Take { from, select: Select::BestPriority, wait, worker: Bytes::from_static(b"w") })
}

fn on_leased(dice: &mut Dice, now: Timestamp, job: JobRef, cycle: bool) -> Command {
    let proof = Proof::AnyLease;
    match dice.roll(8) {
        0 => Command::Extend { job, proof, until: now.after_ms(dice.roll(9_000)), only_later: dice.one_in(2) },
        1 => {
            let note = Note::Progress { numerator: 1, denominator: 3, raw: Bytes::from_static(b"1/3") };
            Command::Tell { job, proof, note }
        }
        2..=7 if cycle => {
            let to = [RepayTo::Penalty, RepayTo::Reward, RepayTo::Front, RepayTo::Drop];
            Command::Repay { job, proof, body: body(dice), to: dice.one_of(&to) }
        }
        2 => Command::Release { job, proof, front: dice.one_in(2) },
        3 => {
            let backtrace = vec![Bytes::from_static(b"line")];
            let failure = Failure { kind: Bytes::from_static(b"E"), backtrace, ..Failure::default() };
            Command::Fail { job, proof, failure: Box::new(failure) }
        }
        _ => Command::Finish { job, proof, result: body(dice) },
    }
}

fn mutate(dice: &mut Dice) -> Command {
    let action = dice.one_of(&[Mutation::Discard, Mutation::Kill, Mutation::Requeue]);
    let place = dice.one_of(&PlaceKind::ALL);
    let filter = Filter { place: Some(place), queue: dice.one_in(2).then(|| queue(dice).0), ..Filter::default() };
    Command::Mutate { filter, action, after: Cursor::default(), limit: 5 }
}
