//! Compares the accounted memory with the use of the daemon's allocator: queues, names, keys, clients, waits,
//! workers, watchers and listeners. Each kind is measured in a separate process, because resident memory is
//! that of a process.

use std::fmt::Write as _;
use std::process::Command as Program;

use bytes::Bytes;
use windlass_engine::{
    Clash, ClientCommand, ClientId, ClientInfo, Command, Context, Engine, From, JobCommand, JobRef,
    KeySource, KeyUntil, LeaseCommand, LeaseTerms, Limits, Listen, NewJob, Patterns, Policy, Proof,
    Protocol, QueueCommand, QueueSettings, Rate, Select, Subscription, Tag, Take, TakeCommand,
    Timestamp, Unique, Wait, WorkerCommand,
};

/// The daemon's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The variable that names the kind which a process measures.
const KIND: &str = "WINDLASS_TEST_MEMORY_KIND";

/// An engine with large limits, without the checks of [`crate::common::Broker`].
struct Room {
    engine: Engine,
    context: Context,
}

impl Room {
    fn new() -> Self {
        Self {
            engine: Engine::new(Limits::default(), 42),
            context: Context::new(Timestamp(1_000), 1),
        }
    }

    fn ask(&mut self, client: u64, command: impl Into<Command>) {
        self.engine
            .apply(ClientId(client), Tag(1), command.into(), &mut self.context);
        self.context.changes.clear();
        self.context.events.clear();
        self.context.warnings.clear();
    }

    fn open(&mut self, clients: std::ops::Range<u64>) {
        for client in clients {
            let info = ClientInfo {
                namespace: None,
                address: format!("192.168.100.{}:{}", client % 256, 10_000 + client).into(),
                protocol: Some(Protocol::GEARMAN),
                number: 7,
            };
            self.ask(client, ClientCommand::Open(info));
        }
    }

    fn serve(&mut self, client: u64, queue: Bytes) {
        let lease = LeaseTerms::CONNECTION;
        self.ask(
            client,
            ClientCommand::Serve(Subscription {
                queue,
                weight: 0,
                lease,
                unclaimed: None,
            }),
        );
    }

    fn push(&mut self, client: u64, queue: &Bytes, change: impl FnOnce(&mut NewJob)) {
        let mut job = NewJob::new(Protocol::GEARMAN, queue.clone(), Bytes::from(vec![7; 100]));
        change(&mut job);
        self.ask(client, JobCommand::Push(Box::new(job)));
    }

    fn take(&mut self, client: u64, queues: Vec<Bytes>, wait: Wait, worker: Bytes) {
        let from = From::Listed {
            queues,
            lease: LeaseTerms::CONNECTION,
        };
        self.ask(
            client,
            TakeCommand::Take(Take {
                from,
                select: Select::BestPriority,
                wait,
                worker,
            }),
        );
    }

    /// Moves all bodies out of memory.
    fn store_bodies(&mut self) {
        while self.engine.bodies_here() > 0 {
            let bodies = self.engine.cool(1 << 16);
            bodies
                .iter()
                .zip(1..)
                .for_each(|((job, body), at)| assert!(self.engine.set_stored(*job, body, at)));
            self.engine.pack(bodies.iter().map(|(job, _)| *job));
        }
    }

    /// Jobs of this queue have these settings.
    fn rule(&mut self, queue: &Bytes, policy: Policy) {
        let settings = QueueSettings {
            policy,
            ..QueueSettings::default()
        };
        self.ask(
            1,
            QueueCommand::SetPatterns(Box::new(Patterns::from_iter([(queue.clone(), settings)]))),
        );
    }
}

/// A name of this size that no other number has.
fn name(number: u64, bytes: usize) -> Bytes {
    Bytes::copy_from_slice(format!("{number:0bytes$}").as_bytes())
}

/// Numbers from 0 on. Debug builds check the engine repeatedly, so they get fewer.
fn many(release: u64) -> std::ops::Range<u64> {
    0..if cfg!(debug_assertions) {
        release / 4
    } else {
        release
    }
}

/// New clients.
fn clients(release: u64) -> std::ops::Range<u64> {
    let many = many(release);
    1_000 + many.start..1_000 + many.end
}

/// Makes many of a kind.
fn make(room: &mut Room, kind: &str) {
    let (queue, none) = (Bytes::from_static(b"resize"), Bytes::new());
    let fair = Policy {
        key: Some(KeySource::Prefix(b'|')),
        fair: true,
        ..Policy::default()
    };
    let keyed =
        |number: u64| move |job: &mut NewJob| job.body = format!("{number:040}|{:60}", "").into();
    match kind {
        "subscriptions" => {
            many(40_000).for_each(|number| room.serve(1 + number % 10, name(number, 40)))
        }
        "long subscriptions" => {
            many(4_000).for_each(|number| room.serve(1 + number % 10, name(number, 7_900)))
        }
        "shared subscriptions" => {
            many(100_000).for_each(|number| room.serve(1 + number % 100, name(number / 100, 40)))
        }
        "used queues" => many(20_000).for_each(|number| {
            let queue = name(number, 40);
            room.push(1, &queue, |_| {});
            room.take(1, vec![queue], Wait::No, Bytes::new());
            let (job, proof) = (
                JobRef::Id(windlass_engine::JobId(number + 1)),
                Proof::Connection,
            );
            room.ask(
                1,
                LeaseCommand::Finish {
                    job,
                    proof,
                    result: Bytes::new(),
                },
            );
        }),
        "queues of jobs" => many(40_000).for_each(|number| room.push(1, &name(number, 40), |_| {})),
        "waiting" | "waiting with keys" | "waiting elsewhere" | "waiting elsewhere with keys" => {
            let mut rng = Context::new(Timestamp(0), 9);
            many(800_000).for_each(|_| {
                let key = Bytes::from(format!(
                    "{:018x}{:018x}",
                    rng.roll(u64::MAX),
                    rng.roll(u64::MAX)
                ));
                let unique = Unique {
                    key,
                    clash: Clash::Attach,
                    until: KeyUntil::End,
                };
                room.push(1, &queue, |job| {
                    job.unique = kind.ends_with("keys").then_some(unique)
                });
            });
            if kind.contains("elsewhere") {
                room.store_bodies();
            }
        }
        "jobs" => many(40_000).for_each(|_| room.push(1, &queue, |_| {})),
        "keys" | "keyed jobs" | "keys with rates" => {
            match kind {
                "keys" => room.rule(&queue, fair),
                "keyed jobs" => {}
                _ => room.rule(
                    &queue,
                    Policy {
                        key_rate: Some(Rate {
                            jobs: 1,
                            per_ms: 60_000,
                            burst: 1,
                        }),
                        ..fair
                    },
                ),
            }
            many(60_000).for_each(|number| room.push(1, &queue, keyed(number)));
        }
        "clients" => room.open(clients(20_000)),
        "named clients" => {
            room.open(clients(10_000));
            clients(10_000)
                .for_each(|client| room.ask(client, ClientCommand::SetName(name(client, 1_000))));
        }
        "blocked takes" => {
            room.open(clients(20_000));
            clients(20_000)
                .for_each(|it| room.take(it, vec![queue.clone()], Wait::Forever, name(it, 100)));
        }
        "blocked takes at many" => {
            let queues: Vec<Bytes> = (0..100).map(|number| name(number, 40)).collect();
            room.open(clients(1_000));
            clients(1_000)
                .for_each(|client| room.take(client, queues.clone(), Wait::Forever, none.clone()));
        }
        "many takes of one" => many(20_000).for_each(|_| {
            room.take(1, vec![queue.clone()], Wait::Forever, name(1, 100));
        }),
        "sleepers" => {
            room.open(clients(1_000));
            for client in clients(1_000) {
                (0..100).for_each(|number| room.serve(client, name(number, 40)));
                room.ask(client, TakeCommand::WaitForWork);
            }
        }
        "lonely sleepers" => {
            room.open(clients(20_000));
            for client in clients(20_000) {
                room.serve(client, name(client, 40));
                room.ask(client, TakeCommand::WaitForWork);
            }
        }
        "takers by name" => {
            room.open(clients(2_000));
            for client in clients(2_000) {
                room.take(
                    client,
                    (0..50).map(|number| name(number, 40)).collect(),
                    Wait::No,
                    none.clone(),
                );
            }
        }
        "workers" => {
            room.open(clients(10_000));
            for client in clients(10_000) {
                let (worker, about) = (name(client, 200), name(client, 500));
                room.ask(client, WorkerCommand::Register { worker, about });
            }
        }
        "watchers" => {
            room.open(clients(4_000));
            for client in clients(4_000) {
                let (queue, text) = (Some(name(client, 2_000)), name(client, 3_000));
                room.ask(
                    client,
                    ClientCommand::Watch {
                        queue,
                        text,
                        room: 1,
                    },
                );
            }
        }
        "listeners" => {
            many(40_000).for_each(|_| room.push(1, &queue, |job| job.listen = Listen::Yes))
        }
        "many listeners" => {
            for number in many(200_000) {
                let key = || Unique {
                    key: name(number / 100, 40),
                    clash: Clash::Attach,
                    until: KeyUntil::End,
                };
                room.push(number % 100, &queue, |job| {
                    (job.unique, job.listen) = (Some(key()), Listen::Yes)
                });
            }
        }
        other => panic!("{other}"),
    }
}

#[test]
fn measure() {
    let Ok(kind) = std::env::var(KIND) else {
        return;
    };
    // The first run includes allocations that a process makes only once.
    let mut warm = Room::new();
    warm.open(0..100);
    make(&mut warm, &kind);
    drop(warm);
    let mut room = Room::new();
    room.open(0..100);
    let (before, counted) = (resident_bytes(), room.engine.resident_bytes());
    make(&mut room, &kind);
    let counted = room.engine.resident_bytes() - counted;
    println!(
        "measured {} {counted}",
        resident_bytes().saturating_sub(before)
    );
}

/// The memory used by a kind, and the accounted part of it, in bytes.
fn measured(kind: &str) -> (u64, u64) {
    let program = std::env::current_exe().expect("the test's program");
    let output = Program::new(program)
        .args([
            "memory::measure",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(KIND, kind)
        .env("MIMALLOC_PURGE_DELAY", "0")
        .output()
        .expect("the test's program runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut figures = said
        .split("measured ")
        .nth(1)
        .unwrap_or_else(|| panic!("{kind}: {said}"))
        .split_whitespace();
    let mut figure = || {
        figures
            .next()
            .and_then(|word| word.parse().ok())
            .expect("a figure")
    };
    (figure(), figure())
}

/// Resident bytes of this process, after the allocator has returned free memory.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .unwrap_or(0)
        * 4_096
}

/// Kinds, each with a part of it that must be subtracted.
const KINDS: [(&str, Option<&str>); 19] = [
    ("subscriptions", None),
    ("long subscriptions", None),
    ("shared subscriptions", None),
    ("used queues", None),
    ("queues of jobs", Some("jobs")),
    ("keys", Some("keyed jobs")),
    ("keys with rates", Some("keyed jobs")),
    ("clients", None),
    ("named clients", None),
    ("blocked takes", None),
    ("blocked takes at many", None),
    ("many takes of one", None),
    ("sleepers", None),
    ("lonely sleepers", None),
    ("takers by name", None),
    ("workers", None),
    ("watchers", None),
    ("listeners", None),
    ("many listeners", None),
];

#[test]
fn what_is_counted_is_what_the_allocator_takes() {
    let (mut said, mut differs) = (String::new(), Vec::new());
    for (kind, without) in KINDS {
        let ((taken, counted), (less, uncounted)) =
            (measured(kind), without.map_or((0, 0), measured));
        let (taken, counted) = (
            taken.saturating_sub(less),
            counted.saturating_sub(uncounted),
        );
        writeln!(
            said,
            "{kind:24} {:>8} KiB, counted {:>8} KiB",
            taken >> 10,
            counted >> 10
        )
        .expect("a text");
        let is_close = counted * 10 >= taken * 8 && counted * 10 <= taken * 16;
        differs.extend((!is_close).then_some(kind));
    }
    println!("{said}");
    assert!(differs.is_empty(), "{differs:?}\n{said}");
}

/// Maximum bytes of a ready job: growth must be deliberate. The index of keys and the order of a queue double
/// when they are full, so a job uses some bytes more or less in queues of other lengths.
#[test]
fn a_job_of_a_long_queue_takes_few_bytes() {
    let table = [
        ("waiting", 180),
        ("waiting with keys", 230),
        ("waiting elsewhere", 40),
        ("waiting elsewhere with keys", 85),
    ];
    for (kind, most) in table {
        let (taken, counted) = measured(kind);
        let jobs = many(800_000).end;
        println!(
            "{kind:30} {} bytes, counted {}",
            taken / jobs,
            counted / jobs
        );
        assert!(taken < most * jobs, "{kind}: {} bytes", taken / jobs);
        assert!(
            counted * 10 >= taken * 8 && counted * 10 <= taken * 16,
            "{kind}: counted {}",
            counted / jobs
        );
    }
}
