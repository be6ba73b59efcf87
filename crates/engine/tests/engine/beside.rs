//! The memory of clients and of names: it is limited together with that of jobs, and beyond a reserved part
//! new ones are rejected. Work continues.

use bytes::Bytes;
use windlass_engine::{
    ClientCommand, ClientInfo, Command, KeySource, LeaseTerms, Patterns, Policy, Protocol,
    QueueCommand, QueueSettings, Subscription, WarningKind, WorkerCommand,
};

use crate::common::{self, Broker, Push, Wish, finish, push, take};

const MEMORY: u64 = 400_000;

/// The clients of this broker are no operators, so their names need memory.
fn broker() -> Broker {
    let mut broker = Broker::limited(|limits| limits.memory_max = MEMORY);
    for client in 1..=4 {
        broker.hear(client, ClientCommand::Close);
        open(&mut broker, client);
    }
    broker
}

fn open(broker: &mut Broker, client: u64) {
    broker.hear(
        client,
        ClientCommand::Open(ClientInfo {
            protocol: Some(Protocol::GEARMAN),
            ..ClientInfo::default()
        }),
    );
}

/// A name of this size that no other number has.
fn name(number: u64, bytes: usize) -> Bytes {
    format!("{number:0bytes$}").into()
}

fn serve(queue: Bytes) -> Command {
    let lease = LeaseTerms::CONNECTION;
    Command::Client(ClientCommand::Serve(Subscription {
        queue,
        weight: 0,
        lease,
        unclaimed: None,
    }))
}

fn push_to(queue: Bytes) -> Push {
    push("").with(|job| job.queue = queue)
}

fn takes(queues: Vec<Bytes>) -> Wish {
    let mut wish = take([]);
    if let windlass_engine::From::Listed { queues: listed, .. } = &mut wish.0.from {
        *listed = queues;
    }
    wish
}

/// Repeats a request until it is rejected, and returns how often it succeeded.
fn until_refused(broker: &mut Broker, client: u64, ask: impl Fn(u64) -> Command) -> u64 {
    let is_refused = |said: &[String]| {
        said.iter()
            .any(|said| said.contains("refused: daemon is full: bytes"))
    };
    let at =
        (0..10_000).find(|number| is_refused(&common::words(&broker.hear(client, ask(*number)))));
    broker.engine.check();
    at.expect("memory is full at some time")
}

fn fill_with_names(broker: &mut Broker) -> u64 {
    until_refused(broker, 1, |number| serve(name(number, 1_000)))
}

/// Opens clients that serve 30 queues each, until a client is rejected.
fn fill_with_clients(broker: &mut Broker) {
    for client in 100.. {
        open(broker, client);
        let said =
            (0..30).flat_map(|number| common::words(&broker.hear(client, serve(name(number, 9)))));
        if said
            .collect::<String>()
            .contains("refused: daemon is full: bytes")
        {
            return;
        }
    }
}

#[test]
fn names_take_at_most_half_of_memory_and_work_goes_on() {
    let mut broker = broker();
    broker.says(2, push("jobs"), ["2 new j1"]);
    let many = fill_with_names(&mut broker);
    assert!((50..MEMORY / 2 / 1_000).contains(&many), "{many} names");
    assert!(broker.engine.resident_bytes() < MEMORY / 2 + 2_000);
    assert!(
        broker
            .warnings
            .iter()
            .any(|warning| matches!(warning.kind, WarningKind::NoRoom(_)))
    );
    // Clients always have memory for the usual requests, and jobs have the other half.
    broker.says(2, push("jobs"), ["2 new j2"]);
    broker.says(3, serve("jobs".into()), []);
    broker.hear(
        4,
        WorkerCommand::Register {
            worker: "w".into(),
            about: Bytes::new(),
        },
    );
    // A new name in a list of queues is skipped.
    broker.says(4, takes(vec!["new".into(), "jobs".into()]), ["4 took j1.1"]);
    broker.says(4, finish(1), ["4 finished j1"]);
    let said = common::words(&broker.hear(2, push_to(name(7, 900))));
    assert!(
        said[0].starts_with("2 refused: daemon is full: bytes"),
        "{said:?}"
    );
    // An unused queue is removed, although it is listed.
    for number in 0..3 {
        let queue = name(number, 1_000);
        broker.says(
            1,
            ClientCommand::Unserve {
                queue,
                requeue: false,
            },
            [],
        );
    }
    // The engine does not examine all names for each rejected one.
    let comes = |_| common::words(&broker.hear(2, push_to(name(7, 900)))) == ["2 new j3"];
    assert!((0..40).any(comes));
    assert!(broker.engine.queues_forgotten() > 0);
}

#[test]
fn a_memory_full_of_jobs_can_be_worked_off_by_new_clients() {
    let mut broker = broker();
    until_refused(&mut broker, 1, |_| {
        push("jobs")
            .with(|job| job.body = vec![7; 1_000].into())
            .into()
    });
    assert!(broker.engine.resident_bytes() + 2_000 > MEMORY);
    open(&mut broker, 9);
    broker.hear(
        9,
        WorkerCommand::Register {
            worker: "w".into(),
            about: "here".into(),
        },
    );
    broker.says(9, serve("jobs".into()), []);
    broker.says(9, takes(vec!["jobs".into(), "new".into()]), ["9 took j1.1"]);
    broker.says(9, finish(1), ["9 finished j1"]);
    // A wait for jobs is no reason either.
    broker.says(9, take(["here"]).forever(), []);
    assert!(broker.engine.resident_bytes() < MEMORY + MEMORY / 64);
}

#[test]
fn a_worker_of_many_queues_comes_to_a_memory_full_of_their_jobs() {
    const QUEUES: u64 = 100;
    let mut broker = broker();
    until_refused(&mut broker, 1, |number| {
        push_to(name(number % QUEUES, 9))
            .with(|job| job.body = vec![7; 1_000].into())
            .into()
    });
    for number in 0..QUEUES {
        broker.says(2, serve(name(number, 9)), []);
    }
    let events = broker.hear(
        2,
        takes(
            (QUEUES - 20..QUEUES)
                .map(|number| name(number, 9))
                .collect(),
        )
        .forever(),
    );
    assert!(
        events.iter().any(|(_, event)| event.handed_out().is_some()),
        "{events:?}"
    );
    assert!(broker.engine.resident_bytes() < MEMORY + MEMORY / 16);
}

#[test]
fn keys_count_with_their_jobs() {
    let mut broker = broker();
    let fair = Policy {
        key: Some(KeySource::Prefix(b'|')),
        fair: true,
        ..Policy::default()
    };
    let settings = QueueSettings {
        policy: fair,
        ..QueueSettings::default()
    };
    broker.hear(
        1,
        QueueCommand::SetPatterns(Box::new(Patterns::from_iter([("fair".into(), settings)]))),
    );
    let before = broker.engine.resident_bytes();
    let keyed = |number: u64| {
        push("fair")
            .with(|job| job.body = format!("{number:0100}|").into())
            .into()
    };
    let many = until_refused(&mut broker, 1, keyed);
    let mut plain = self::broker();
    let unkeyed = until_refused(&mut plain, 1, |number| {
        push("plain")
            .with(|job| job.body = format!("{number:0100}|").into())
            .into()
    });
    assert!(
        many * 2 < unkeyed + 50,
        "{many} jobs with keys, {unkeyed} without"
    );
    for job in 1..=many {
        broker.hear(2, take(["fair"]));
        broker.hear(2, finish(job));
    }
    broker.engine.check();
    assert!(
        broker.engine.resident_bytes() < before + 4_000,
        "keys leave with their jobs"
    );
}

#[test]
fn what_a_client_has_beyond_the_usual_is_refused_when_memory_is_full() {
    let mut broker = broker();
    (0..30).for_each(|number| drop(broker.hear(2, push_to(name(number, 9)))));
    broker.hear(3, takes((0..30).map(|number| name(number, 9)).collect()));
    fill_with_names(&mut broker);
    let large = || Bytes::from(vec![b'x'; 3_000]);
    let table: [(&str, Command); 5] = [
        ("a name", serve(large())),
        ("a label", ClientCommand::SetName(large()).into()),
        (
            "a worker",
            WorkerCommand::Register {
                worker: large(),
                about: Bytes::new(),
            }
            .into(),
        ),
        (
            "a watcher",
            ClientCommand::Watch {
                queue: None,
                text: large(),
                room: 1,
            }
            .into(),
        ),
        (
            "a wait",
            takes((0..30).map(|number| name(number, 9)).collect())
                .forever()
                .into(),
        ),
    ];
    // The jobs of these queues are in other hands.
    (1..30).for_each(|number| drop(broker.hear(3, takes(vec![name(number, 9)]))));
    fill_with_clients(&mut broker);
    let held = broker.engine.resident_bytes();
    for (what, command) in table {
        let said = common::words(&broker.hear(4, command));
        assert!(
            said.len() == 1 && said[0].starts_with("4 refused: daemon is full: bytes"),
            "{what}: {said:?}"
        );
        broker.engine.check();
    }
    let subscriptions = until_refused(&mut broker, 4, |number| serve(name(number % 30, 9)));
    assert_eq!(subscriptions, 16);
    assert!(broker.engine.resident_bytes() < held + 2_000);
}
