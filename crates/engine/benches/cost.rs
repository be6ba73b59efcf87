//! The cost of the engine with few jobs and at depth: nanoseconds per command and resident bytes per job.
//!
//! `cargo bench -p windlass-engine --bench cost -- [JOBS]`. Prints one line per measurement, and compares nothing. Each
//! case runs in a process of its own, so that none uses memory that another has freed. Jobs that do not stay come first:
//! their figure is the best of many short rounds, which hardly depends on what else the machine does.

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{io, thread};

use bytes::Bytes;
use windlass_engine::{
    Clash, ClientCommand, ClientId, ClientInfo, Command as Ask, Context, Engine, Event, From, JobCommand, JobRef,
    KeySource, KeyUntil, LeaseCommand, LeaseTerms, Limits, NewJob, Patterns, Policy, Proof, Protocol, QueueCommand,
    QueueSettings, Reply, Select, Subscription, Tag, Take, TakeCommand, Timestamp, Unique, Wait,
};

const CLIENT: ClientId = ClientId(1);

/// The daemon's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> io::Result<()> {
    // Cargo adds options of its own.
    let mut arguments = std::env::args().filter(|word| !word.starts_with("--"));
    let program = arguments.next().unwrap_or_default();
    let jobs = arguments.next().unwrap_or_else(|| "1000000".to_owned());
    if let Some(kind) = arguments.next() {
        life(jobs.parse().unwrap_or(1), &kind);
        return Ok(());
    }
    few();
    let kinds = [
        ("100 bytes, no key", "plain"),
        ("100 bytes, random keys of 36 bytes", "keyed"),
        ("160 bytes, random names of 24 bytes in them", "named"),
        ("100 bytes, 100,000 keys that take turns", "fair"),
        ("100 bytes, 1,000 keys that take turns", "few-keys"),
    ];
    for (name, kind) in kinds {
        println!("{jobs} jobs of {name}");
        Command::new(&program).args([&jobs, kind]).status()?;
    }
    Ok(())
}

/// Each of 64 clients pushes 16 jobs, then takes and finishes as many, again and again.
fn few() {
    const ROUNDS: u64 = 5_000;
    const JOBS: u64 = 64 * 16;
    let mut engine = Engine::new(Limits::default(), 42);
    let mut context = Context::new(Timestamp(1_000), 1);
    let mut ask = |client, tag, command| {
        engine.apply(client, tag, command, &mut context);
        context.changes.clear();
        context.events.pop()
    };
    let (queue, body) = (Bytes::from_static(b"resize"), Bytes::from(vec![7; 100]));
    let clients = || (0..JOBS).map(|n| ClientId(1 + n / 16));
    for client in (1..=64).map(ClientId) {
        ask(client, Tag::NONE, Ask::Client(ClientCommand::Open(ClientInfo::default())));
        let subscription =
            Subscription { queue: queue.clone(), weight: 0, lease: LeaseTerms::CONNECTION, unclaimed: None };
        ask(client, Tag::NONE, Ask::Client(ClientCommand::Serve(subscription)));
    }
    let mut best = [Duration::MAX; 3];
    for _ in 0..ROUNDS {
        let mut taken = Vec::new();
        let pushes = lasts(|| {
            clients().for_each(|client| {
                let job = NewJob::new(Protocol::GEARMAN, queue.clone(), body.clone());
                drop(ask(client, Tag(1), Ask::Job(JobCommand::Push(Box::new(job)))));
            });
        });
        let takes = lasts(|| {
            taken.extend(clients().filter_map(|client| {
                let (from, select) = (From::Subscriptions, Select::BestPriority);
                let take = Take { from, select, wait: Wait::No, worker: Bytes::new() };
                match ask(client, Tag(1), Ask::Take(TakeCommand::Take(take))) {
                    Some((_, Event::Reply(_, Reply::Taken(job)))) => Some((client, JobRef::Id(job.id))),
                    _ => None,
                }
            }));
        });
        let ends = lasts(|| {
            taken.drain(..).for_each(|(client, job)| {
                let (proof, result) = (Proof::Connection, Bytes::new());
                ask(client, Tag::NONE, Ask::Lease(LeaseCommand::Finish { job, proof, result }));
            });
        });
        best.iter_mut().zip([pushes, takes, ends]).for_each(|(best, time)| *best = time.min(*best));
    }
    println!("jobs that do not stay, 1,024 at a time");
    for (what, best) in ["push", "take", "finish"].into_iter().zip(best) {
        println!("  {:>8} ns {what}", best.as_nanos() / u128::from(JOBS));
    }
}

/// Pushes all jobs, then takes and finishes all.
fn life(jobs: u64, kind: &str) {
    let mut engine = Engine::new(Limits::default(), 42);
    let mut context = Context::new(Timestamp(1_000), 1);
    let mut ask = |tag, command| {
        engine.apply(CLIENT, tag, command, &mut context);
        context.changes.clear();
        let answer = context.events.pop();
        context.events.clear();
        answer
    };
    ask(Tag::NONE, Ask::Client(ClientCommand::Open(ClientInfo::default())));
    let queue = Bytes::from_static(b"resize");
    let body = Bytes::from_static(&[7; 100]);
    let keys = match kind {
        "fair" => 100_000,
        "few-keys" => 1_000,
        _ => 0,
    };
    if keys > 0 {
        let fair = Policy { key: Some(KeySource::Prefix(b'|')), fair: true, ..Policy::default() };
        let settings = QueueSettings { policy: fair, ..QueueSettings::default() };
        let patterns = Patterns::from_iter([(queue.clone(), settings)]);
        ask(Tag::NONE, Ask::Queue(QueueCommand::SetPatterns(Box::new(patterns))));
    }
    let customers: Vec<Bytes> = (0..keys).map(|key| format!("{key:05}|{:94}", "").into()).collect();
    let before = resident_bytes();
    let mut rng = Context::new(Timestamp(0), 9);
    timed("push", jobs, |number| {
        let mut job = NewJob::new(Protocol::GEARMAN, queue.clone(), body.clone());
        if kind == "named" {
            let name = format!("{:016x}{:08x}", rng.roll(u64::MAX), rng.roll(u64::from(u32::MAX)));
            job.body = format!("{{\"retry\":25,\"jid\":\"{name}\",{:117}}}", "").into();
            job.name = Some(name.into());
        }
        if let Some(body) = usize::try_from(number % keys.max(1)).ok().and_then(|key| customers.get(key)) {
            job.body = body.clone();
        }
        if kind == "keyed" {
            let key = format!("{:016x}-{:016x}-ab", rng.roll(u64::MAX), rng.roll(u64::MAX));
            job.unique = Some(Unique { key: key.into(), clash: Clash::Attach, until: KeyUntil::End });
        }
        drop(ask(Tag(1), Ask::Job(JobCommand::Push(Box::new(job)))));
    });
    println!("  {:>8} resident bytes per job", (resident_bytes().saturating_sub(before)) / jobs);
    let subscription = Subscription { queue, weight: 0, lease: LeaseTerms::CONNECTION, unclaimed: None };
    ask(Tag::NONE, Ask::Client(ClientCommand::Serve(subscription)));
    let mut output = Vec::new();
    timed("take and finish", jobs, |_| {
        let take =
            Take { from: From::Subscriptions, select: Select::BestPriority, wait: Wait::No, worker: Bytes::new() };
        let event = ask(Tag(1), Ask::Take(TakeCommand::Take(take)));
        if let Some((_, Event::Reply(_, Reply::Taken(job)))) = event {
            output.clear();
            output.extend_from_slice(&job.body);
            let (job, result) = (JobRef::Id(job.id), Bytes::new());
            drop(ask(Tag::NONE, Ask::Lease(LeaseCommand::Finish { job, proof: Proof::Connection, result })));
        }
    });
    println!("  {:>8} resident bytes left", resident_bytes().saturating_sub(before));
}

fn timed(what: &str, times: u64, run: impl FnMut(u64)) {
    let lasted = lasts(|| (0..times).for_each(run));
    println!("  {:>8} ns {what}", lasted.as_nanos() / u128::from(times));
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn lasts(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

/// Resident bytes of this process, 0 if the system does not report them. The allocator returns memory that has been
/// free for a second when it next gets a large request.
fn resident_bytes() -> u64 {
    thread::sleep(Duration::from_millis(1100));
    drop(black_box(Vec::<u8>::with_capacity(1 << 20)));
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}
