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
    Clash, ClientCommand, ClientId, ClientInfo, Command as Ask, Context, Engine, Event, Expiry,
    From, JobCommand, JobRef, KeySource, KeyUntil, LeaseCommand, LeaseTerms, Limits, NewJob,
    Policy, Proof, Protocol, QueueCommand, QueueSettings, Reply, Select, Subscription, Tag, Take,
    TakeCommand, Timestamp, Unique, Wait,
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
        ("100 bytes, in 10,000 queues in turn", "queues"),
        ("100 bytes, bodies elsewhere", "away"),
        (
            "100 bytes, bodies elsewhere, random keys of 36 bytes",
            "away keyed",
        ),
        (
            "100 bytes, bodies elsewhere, in 10,000 queues in turn",
            "away queues",
        ),
        (
            "100 bytes, bodies elsewhere, each with an expiry",
            "away expiring",
        ),
        (
            "100 bytes, bodies elsewhere, in 10,000 queues in turn, random keys of 36 bytes",
            "away queues keyed",
        ),
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
        ask(
            client,
            Tag::NONE,
            Ask::Client(ClientCommand::Open(ClientInfo::default())),
        );
        let subscription = Subscription {
            queue: queue.clone(),
            weight: 0,
            lease: LeaseTerms::CONNECTION,
            unclaimed: None,
        };
        ask(
            client,
            Tag::NONE,
            Ask::Client(ClientCommand::Serve(subscription)),
        );
    }
    let mut best = [Duration::MAX; 3];
    for _ in 0..ROUNDS {
        let mut taken = Vec::new();
        let pushes = lasts(|| {
            clients().for_each(|client| {
                let job = NewJob::new(Protocol::GEARMAN, queue.clone(), body.clone());
                drop(ask(
                    client,
                    Tag(1),
                    Ask::Job(JobCommand::Push(Box::new(job))),
                ));
            });
        });
        let takes = lasts(|| {
            taken.extend(clients().filter_map(|client| {
                let (from, select) = (From::Subscriptions, Select::BestPriority);
                let take = Take {
                    from,
                    select,
                    wait: Wait::No,
                    worker: Bytes::new(),
                };
                match ask(client, Tag(1), Ask::Take(TakeCommand::Take(take))) {
                    Some((_, Event::Reply(_, Reply::Taken(job)))) => {
                        Some((client, JobRef::Id(job.id)))
                    }
                    _ => None,
                }
            }));
        });
        let ends = lasts(|| {
            taken.drain(..).for_each(|(client, job)| {
                let (proof, result) = (Proof::Connection, Bytes::new());
                ask(
                    client,
                    Tag::NONE,
                    Ask::Lease(LeaseCommand::Finish { job, proof, result }),
                );
            });
        });
        best.iter_mut()
            .zip([pushes, takes, ends])
            .for_each(|(best, time)| *best = time.min(*best));
    }
    println!("jobs that do not stay, 1,024 at a time");
    for (what, best) in ["push", "take", "finish"].into_iter().zip(best) {
        println!("  {:>8} ns {what}", best.as_nanos() / u128::from(JOBS));
    }
}

/// An engine with one client.
struct Room {
    engine: Engine,
    context: Context,
}

impl Room {
    fn ask(&mut self, tag: Tag, command: impl Into<Ask>) -> Option<(ClientId, Event)> {
        self.engine.apply(CLIENT, tag, command, &mut self.context);
        self.context.changes.clear();
        let answer = self.context.events.pop();
        self.context.events.clear();
        answer
    }
}

/// Pushes all jobs, then takes and finishes all.
fn life(jobs: u64, kind: &str) {
    let mut room = Room {
        engine: Engine::new(Limits::default(), 42),
        context: Context::new(Timestamp(1_000), 1),
    };
    room.ask(Tag::NONE, ClientCommand::Open(ClientInfo::default()));
    let has = |part| kind.split(' ').any(|word| word == part);
    let queues: Vec<Bytes> = match has("queues") {
        true => (0..10_000)
            .map(|number| format!("resize{number}").into())
            .collect(),
        false => vec![Bytes::from_static(b"resize")],
    };
    let keys = match kind {
        "fair" => 100_000,
        "few-keys" => 1_000,
        _ => 0,
    };
    if keys > 0 {
        let fair = Policy {
            key: Some(KeySource::Prefix(b'|')),
            fair: true,
            ..Policy::default()
        };
        let settings = QueueSettings {
            policy: fair,
            ..QueueSettings::default()
        };
        let patterns = queues
            .iter()
            .map(|queue| (queue.clone(), settings.clone()))
            .collect();
        room.ask(Tag::NONE, QueueCommand::SetPatterns(Box::new(patterns)));
    }
    let customers: Vec<Bytes> = (0..keys)
        .map(|key| format!("{key:05}|{:94}", "").into())
        .collect();
    let before = resident_bytes();
    push(&mut room, jobs, (kind, &queues, &customers));
    if has("away") {
        leave(&mut room.engine, jobs);
    }
    println!(
        "  {:>8} resident bytes per job",
        (resident_bytes().saturating_sub(before)) / jobs
    );
    take(&mut room, jobs, &queues);
    println!(
        "  {:>8} resident bytes left",
        resident_bytes().saturating_sub(before)
    );
}

fn push(room: &mut Room, jobs: u64, (kind, queues, customers): (&str, &[Bytes], &[Bytes])) {
    let has = |part| kind.split(' ').any(|word| word == part);
    let (is_named, is_keyed, is_expiring) = (has("named"), has("keyed"), has("expiring"));
    let (body, mut rng) = (Bytes::from_static(&[7; 100]), Context::new(Timestamp(0), 9));
    let (mut queues, mut customers) = (queues.iter().cycle(), customers.iter().cycle());
    timed("push", jobs, |number| {
        let queue = queues.next().cloned().unwrap_or_default();
        let mut job = NewJob::new(
            Protocol::GEARMAN,
            queue,
            customers.next().unwrap_or(&body).clone(),
        );
        if is_named {
            let name = format!(
                "{:016x}{:08x}",
                rng.roll(u64::MAX),
                rng.roll(u64::from(u32::MAX))
            );
            job.body = format!("{{\"retry\":25,\"jid\":\"{name}\",{:117}}}", "").into();
            job.name = Some(name.into());
        }
        if is_expiring {
            job.expires = Expiry::By(Timestamp(1_000_000 + number * 7));
        }
        if is_keyed {
            let key = format!("{:016x}-{:016x}-ab", rng.roll(u64::MAX), rng.roll(u64::MAX));
            job.unique = Some(Unique {
                key: key.into(),
                clash: Clash::Attach,
                until: KeyUntil::End,
            });
        }
        drop(room.ask(Tag(1), JobCommand::Push(Box::new(job))));
    });
}

fn take(room: &mut Room, jobs: u64, queues: &[Bytes]) {
    if let [queue] = queues {
        let (queue, lease) = (queue.clone(), LeaseTerms::CONNECTION);
        room.ask(
            Tag::NONE,
            ClientCommand::Serve(Subscription {
                queue,
                weight: 0,
                lease,
                unclaimed: None,
            }),
        );
    }
    let (mut output, mut turns) = (Vec::new(), queues.iter().cycle());
    timed("take and finish", jobs, |_| {
        let from = match turns.next().filter(|_| queues.len() > 1).cloned() {
            Some(queue) => From::Listed {
                queues: vec![queue],
                lease: LeaseTerms::CONNECTION,
            },
            None => From::Subscriptions,
        };
        let take = Take {
            from,
            select: Select::BestPriority,
            wait: Wait::No,
            worker: Bytes::new(),
        };
        let event = room.ask(Tag(1), TakeCommand::Take(take));
        if let Some((_, Event::Reply(_, Reply::Taken(job)))) = event {
            output.clear();
            output.extend_from_slice(&job.body);
            let (job, result) = (JobRef::Id(job.id), Bytes::new());
            drop(room.ask(
                Tag::NONE,
                LeaseCommand::Finish {
                    job,
                    proof: Proof::Connection,
                    result,
                },
            ));
            drop((room.engine.take_freed(), room.engine.take_wanted()));
        }
    });
}

/// The bodies of all jobs leave memory.
fn leave(engine: &mut Engine, jobs: u64) {
    let (mut at, mut in_vain) = (0, 0);
    let lasted = lasts(|| {
        while in_vain < 3 + 3 * jobs / 4_096 {
            let bodies = engine.cool(1 << 20);
            for (job, body) in &bodies {
                engine.set_stored(*job, body, at);
                at += body.len() as u64;
            }
            engine.pack(bodies.iter().map(|(job, _)| *job));
            in_vain = if bodies.is_empty() { in_vain + 1 } else { 0 };
        }
    });
    println!(
        "  {:>8} ns for a body to leave",
        lasted.as_nanos() / u128::from(jobs)
    );
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
    statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .unwrap_or(0)
        * 4096
}
