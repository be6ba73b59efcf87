//! Namespaces: their names, limits, counters, settings by pattern, and their removal. That none sees anything of another
//! is the simulator's law (`sim/apart.rs` of the test kit).

use bytes::Bytes;
use windlass_engine::{
    Bridge, BulkCommand, Capacity, Clash, ClientCommand, ClientInfo, Command, Cursor, Event,
    JobStateKind, Limits, Mutation, Namespace, NamespaceCommand, NamespaceLimits, NamespaceRow,
    Patterns, Protocol, PushRate, Query, QueueCommand, QueueId, QueueMove, QueueRow, QueueRules,
    QueueSettings, Reply, Timestamp, WorkerCommand,
};

use crate::common::*;

const SHOP: u64 = 31;
const STAGING: u64 = 41;

/// Clients 31 and 32 are in the namespace `shop`, 41 and 42 in `staging`; 11 is in that without a name. All speak
/// Gearman's protocol. 1 to 4 have no protocol and see all.
fn broker() -> Broker {
    let mut broker = Broker::new();
    open_all(&mut broker);
    broker
}

fn open_all(broker: &mut Broker) {
    for (client, namespace) in [
        (11, None),
        (SHOP, Some("shop")),
        (SHOP + 1, Some("shop")),
        (STAGING, Some("staging")),
        (STAGING + 1, Some("staging")),
    ] {
        broker.says(client, open(namespace), []);
    }
}

fn open(namespace: Option<&str>) -> ClientCommand {
    ClientCommand::Open(ClientInfo {
        protocol: Some(Protocol::GEARMAN),
        namespace: namespace.map(Into::into),
        ..ClientInfo::default()
    })
}

fn set(name: &'static str, limits: NamespaceLimits) -> Command {
    Command::Namespace(NamespaceCommand::Set {
        name: name.into(),
        limits: Box::new(limits),
    })
}

fn remove(name: &'static str) -> Command {
    Command::Namespace(NamespaceCommand::Remove { name: name.into() })
}

fn rows(broker: &mut Broker, client: u64) -> Vec<NamespaceRow> {
    let query = Query::Namespaces {
        after: Cursor::default(),
        limit: 100,
    };
    let said = broker.hear(client, query);
    let Some((_, Event::Reply(_, Reply::Namespaces { rows, next: None }))) = said.first() else {
        panic!("{said:?}");
    };
    rows.clone()
}

fn row(broker: &mut Broker, name: &str) -> NamespaceRow {
    let mut rows = rows(broker, 1).into_iter();
    rows.find(|row| row.name == name).expect("a row")
}

fn queues(broker: &mut Broker, client: u64) -> Vec<QueueRow> {
    let query = Query::Queues {
        after: Cursor::default(),
        limit: 100,
    };
    let said = broker.hear(client, query);
    let Some((_, Event::Reply(_, Reply::Queues { rows, .. }))) = said.first() else {
        panic!("{said:?}");
    };
    rows.clone()
}

#[test]
fn names_of_one_namespace_are_free_in_the_others() {
    let mut broker = broker();
    let job = || push("mail").named("jid").unique("key", Clash::Refuse);
    broker.says(SHOP, job(), ["31 new j1"]);
    broker.says(STAGING, job(), ["41 new j2"]);
    broker.says(11, job(), ["11 new j3"]);
    broker.says(SHOP + 1, job(), ["32 refused: job not unique"]);
    broker.says(STAGING + 1, take(["mail"]), ["42 took j2.1"]);
    broker.says(11, finish(2), ["11 refused: job unknown"]);
    broker.says(SHOP, finish(2), ["31 refused: job unknown"]);
    let register = || {
        Command::Worker(WorkerCommand::Register {
            worker: "w".into(),
            about: Bytes::new(),
        })
    };
    for client in [11, SHOP, STAGING] {
        let done = format!("{client} done");
        broker.says(client, register(), [&*done]);
    }
    let names = |rows: Vec<QueueRow>| {
        let name = |row: QueueRow| (row.namespace, row.name);
        rows.into_iter().map(name).collect::<Vec<_>>()
    };
    let both = |namespace: &'static str| (Bytes::from(namespace), name("mail"));
    assert_eq!(names(queues(&mut broker, SHOP)), [both("shop")]);
    assert_eq!(names(queues(&mut broker, 11)), [both("")]);
    let all = names(queues(&mut broker, 1));
    assert_eq!(all, [both(""), both("shop"), both("staging")]);
    // An operator of all namespaces finds a job by its number, and by its name first where names are not behind one.
    let id_of = |said: Vec<(windlass_engine::ClientId, Event)>| {
        let Some((_, Event::Reply(_, Reply::Looked { job: Some(job), .. }))) = said.first() else {
            panic!("{said:?}");
        };
        job.job.id.0
    };
    assert_eq!(id_of(broker.hear(1, look(2))), 2);
    assert_eq!(id_of(broker.hear(1, Query::Job(by_name("jid")))), 3);
}

#[test]
fn rows_of_jobs_that_have_ended_say_in_which_namespace() {
    let mut broker = Broker::limited(|limits| limits.history.keep_ms = 1);
    broker.engine.keep_history(true);
    open_all(&mut broker);
    for (number, client) in (1..).zip([11, SHOP, STAGING]) {
        broker.hear(client, push("mail"));
        broker.hear(client, take(["mail"]));
        broker.hear(client, finish(number));
    }
    let rows = broker.rows.iter();
    let rows: Vec<_> = rows.map(|row| (&*row.queue, &*row.namespace)).collect();
    assert_eq!(
        rows,
        [
            (&b"mail"[..], &b""[..]),
            (b"mail", b"shop"),
            (b"mail", b"staging")
        ]
    );
}

#[test]
fn a_namespace_is_refused_what_exceeds_its_limits() {
    let mut broker = broker();
    let limits = NamespaceLimits {
        jobs_max: Some(2),
        queues_max: Some(1),
        ..NamespaceLimits::default()
    };
    broker.says(1, set("shop", limits), ["1 done"]);
    broker.says(SHOP, push("a"), ["31 new j1"]);
    broker.says(
        SHOP,
        push("b"),
        ["31 refused: limit of queues of the namespace reached: 1"],
    );
    broker.says(SHOP, push("a"), ["31 new j2"]);
    broker.says(
        SHOP,
        push("a"),
        ["31 refused: namespace is full: jobs 2, limit 2"],
    );
    broker.says(STAGING, push("b"), ["41 new j3"]);
    let shop = row(&mut broker, "shop");
    assert_eq!(
        (shop.jobs, shop.queues, shop.clients, shop.refused),
        (2, 1, 2, 1)
    );
    let last = Some((Capacity::NamespaceJobs, Timestamp(1_000)));
    assert_eq!(shop.refused_last, last);

    let held = shop.bytes;
    let limits = NamespaceLimits {
        job_bytes_max: Some(held + 10),
        clients_max: Some(2),
        ..NamespaceLimits::default()
    };
    broker.says(1, set("shop", limits), ["1 done"]);
    let full = format!(
        "31 refused: namespace is full: bytes of jobs {held}, limit {}",
        held + 10
    );
    let large = push("a").with(|job| job.body = vec![7; 11].into());
    broker.says(SHOP, large, [&*full]);
    broker.says(
        50,
        open(Some("shop")),
        ["50 refused: limit of connections of the namespace reached: 2"],
    );
    // A client that was turned away reaches nothing.
    broker.says(50, push("b"), ["50 refused: not allowed in this state"]);
    broker.says(SHOP + 1, ClientCommand::Close, []);
    broker.says(50, open(Some("shop")), []);
}

#[test]
fn pushes_above_the_rate_are_refused_until_the_period_has_room() {
    let mut broker = broker();
    let limits = NamespaceLimits {
        pushes: Some(PushRate {
            jobs: 2,
            per_ms: 1_000,
        }),
        ..NamespaceLimits::default()
    };
    broker.says(1, set("shop", limits), ["1 done"]);
    let refused = ["31 refused: limit of pushes of the namespace reached: 2"];
    broker.says(SHOP, push("a"), ["31 new j1"]);
    broker.says(SHOP, push("a"), ["31 new j2"]);
    broker.says(SHOP, push("a"), refused);
    broker.now += 499;
    broker.says(SHOP, push("a"), refused);
    broker.now += 1;
    broker.says(SHOP, push("a"), ["31 new j3"]);
    broker.says(SHOP, push("a"), refused);
    // The pushes of schedules have a pace of their own.
    let schedule = every(1_000, push("a")).key("k").at_once();
    broker.says(SHOP, schedule, ["31 schedule s4"]);
    broker.now += 1;
    broker.says(STAGING, push("a"), ["41 new j6"]);
    assert_eq!(row(&mut broker, "shop").jobs, 4);
}

#[test]
fn a_new_rate_of_pushes_begins_at_once() {
    let mut broker = broker();
    let rate = |jobs, per_ms| NamespaceLimits {
        pushes: Some(PushRate { jobs, per_ms }),
        ..NamespaceLimits::default()
    };
    broker.says(1, set("shop", rate(1, 3_600_000)), ["1 done"]);
    broker.says(SHOP, push("a"), ["31 new j1"]);
    broker.says(1, set("shop", rate(1, 1_000)), ["1 done"]);
    broker.says(SHOP, push("a"), ["31 new j2"]);
}

#[test]
fn dead_jobs_move_to_a_queue_of_their_own_namespace_only() {
    let mut broker = broker();
    broker.says(SHOP, push("q"), ["31 new j1"]);
    broker.says(11, push("q"), ["11 new j2"]);
    for client in [SHOP, 11] {
        broker.hear(client, mutate(placed(JobStateKind::Ready), Mutation::Kill));
    }
    let to = |queue| {
        Command::Bulk(BulkCommand::Redrive {
            filter: Box::new(placed(JobStateKind::Dead)),
            to: name(queue),
            delay_ms: 0,
            per_second: 1_000,
            after: Cursor::default(),
            limit: 9,
        })
    };
    // The queue of a client that sees all is in the namespace without a name.
    broker.says(1, to("other"), ["1 mutated 1"]);
    broker.says(11, take(["other"]), ["11 took j2.1"]);
    broker.says(SHOP, to("other"), ["31 mutated 1"]);
    broker.says(SHOP + 1, take(["other"]), ["32 took j1.1"]);
}

fn move_queue(from: &'static str, to: &'static str) -> Command {
    Command::Bulk(BulkCommand::MoveQueue(Box::new(QueueMove {
        queue: "mail".into(),
        from: from.into(),
        to: to.into(),
        after: Cursor::default(),
        limit: 9,
    })))
}

#[test]
fn a_queue_moves_to_another_namespace_with_its_settings_and_jobs() {
    let mut broker = broker();
    broker.says(SHOP, limit("mail", 7), ["31 done"]);
    broker.says(SHOP, push("mail").unique("k", Clash::Refuse), ["31 new j1"]);
    broker.says(SHOP, push("mail").named("jid"), ["31 new j2"]);
    broker.says(SHOP, push("mail").not_before(5_000), ["31 new j3"]);
    broker.says(SHOP, push("mail").priority(9), ["31 new j4"]);
    broker.says(1, move_queue("shop", "staging"), ["1 mutated 4"]);
    broker.says(SHOP, take(["mail"]), ["31 empty"]);
    broker.says(SHOP, push("mail").unique("k", Clash::Refuse), ["31 new j5"]);
    let again = push("mail").unique("k", Clash::Refuse);
    broker.says(STAGING, again, ["41 refused: job not unique"]);
    assert_eq!(queues(&mut broker, STAGING)[0].jobs_max, [Some(7); 9]);
    assert_eq!(
        [1, 2, 3, 4].map(|job| broker.place(job)),
        ["ready", "ready", "scheduled 5000", "ready"]
    );
    broker.recover(Limits::default());
    open_all(&mut broker);
    for taken in [
        "41 took j4.4294967297",
        "41 took j1.4294967297",
        "41 took j2.4294967297",
    ] {
        broker.says(STAGING, take(["mail"]), [taken]);
    }
    broker.says(SHOP, take(["mail"]), ["31 took j5.4294967297"]);
}

#[test]
fn a_queue_that_moves_reaches_those_who_wait_for_it() {
    let mut broker = broker();
    broker.says(STAGING, take(["mail"]).forever(), []);
    broker.says(SHOP, push("mail"), ["31 new j1"]);
    broker.says(
        1,
        move_queue("shop", "staging"),
        ["41 took j1.1", "1 mutated 1"],
    );
}

#[test]
fn jobs_that_somebody_has_or_waits_for_do_not_move() {
    let mut broker = broker();
    broker.says(SHOP, push("mail"), ["31 new j1"]);
    broker.says(SHOP + 1, take(["mail"]), ["32 took j1.1"]);
    broker.says(SHOP, push("mail").foreground(), ["31 new j2"]);
    broker.says(SHOP, push("mail").listen(), ["31 new j3"]);
    broker.says(
        STAGING,
        push("mail").unique("k", Clash::Refuse),
        ["41 new j4"],
    );
    broker.says(SHOP, push("mail").unique("k", Clash::Refuse), ["31 new j5"]);
    broker.says(SHOP, push("mail"), ["31 new j6"]);
    broker.says(1, move_queue("shop", "staging"), ["1 mutated 1"]);
    assert_eq!(broker.drain_of(STAGING, "mail"), [4, 6]);
    assert_eq!(broker.drain_of(SHOP, "mail"), [2, 3, 5]);
    broker.says(SHOP + 1, finish(1), ["32 finished j1"]);
}

#[test]
fn a_queue_moves_as_far_as_the_other_namespace_has_room() {
    let mut broker = broker();
    let limits = NamespaceLimits {
        jobs_max: Some(2),
        ..NamespaceLimits::default()
    };
    broker.says(1, set("staging", limits), ["1 done"]);
    for job in 1..=3 {
        let pushed = format!("31 new j{job}");
        broker.says(SHOP, push("mail"), [&*pushed]);
    }
    broker.says(1, move_queue("shop", "staging"), ["1 mutated 2 and more"]);
    let full = "1 refused: namespace is full: jobs 2, limit 2";
    broker.says(1, move_queue("shop", "staging"), [full]);
    assert_eq!(row(&mut broker, "shop").jobs, 1);
}

#[test]
fn only_a_known_queue_moves_to_a_known_other_namespace() {
    let mut broker = broker();
    broker.says(SHOP, push("mail"), ["31 new j1"]);
    let table = [
        ("shop", "nothing", "namespace unknown"),
        ("nothing", "shop", "namespace unknown"),
        ("staging", "shop", "queue unknown"),
        ("shop", "shop", "queue in use"),
    ];
    for (from, to, why) in table {
        let refused = format!("1 refused: {why}");
        broker.says(1, move_queue(from, to), [&*refused]);
    }
    let refused = "31 refused: not permitted at this address";
    broker.says(SHOP, move_queue("shop", "staging"), [refused]);
    broker.says(1, move_queue("shop", ""), ["1 mutated 1"]);
    broker.says(11, take(["mail"]), ["11 took j1.1"]);
}

#[test]
fn only_an_operator_of_all_manages_namespaces() {
    let mut broker = broker();
    let limits = NamespaceLimits::default();
    for client in [11, SHOP] {
        let refused = format!("{client} refused: not permitted at this address");
        broker.says(client, set("shop", limits), [&*refused]);
        broker.says(client, remove("shop"), [&*refused]);
    }
    broker.says(1, set("", limits), ["1 refused: namespace unknown"]);
    broker.says(1, set("a/b", limits), ["1 refused: namespace unknown"]);
    broker.says(1, remove("nothing"), ["1 refused: namespace unknown"]);
    let names = |rows: Vec<NamespaceRow>| rows.into_iter().map(|row| row.name).collect::<Vec<_>>();
    assert_eq!(names(rows(&mut broker, 1)), ["", "shop", "staging"]);
    assert_eq!(names(rows(&mut broker, SHOP)), ["shop"]);
    assert_eq!(names(rows(&mut broker, 11)), [""]);
    // An operator of a namespace that does not exist is told so.
    let operator = ClientCommand::Open(ClientInfo {
        namespace: Some("nothing".into()),
        ..ClientInfo::default()
    });
    broker.says(60, operator, ["60 refused: namespace unknown"]);
}

#[test]
fn a_namespace_in_use_stays_and_the_number_of_a_removed_one_is_used_again() {
    let mut broker = broker();
    broker.says(SHOP, push("a"), ["31 new j1"]);
    broker.says(1, remove("shop"), ["1 refused: queue in use"]);
    for client in [SHOP, SHOP + 1] {
        broker.says(client, ClientCommand::Close, []);
    }
    broker.says(1, remove("shop"), ["1 refused: queue in use"]);
    let operator = ClientCommand::Open(ClientInfo {
        namespace: Some("shop".into()),
        ..ClientInfo::default()
    });
    broker.says(60, operator, []);
    broker.says(60, remove_queue("a", false), ["60 done"]);
    broker.says(60, ClientCommand::Close, []);
    let number = row(&mut broker, "shop").id;
    broker.says(1, remove("shop"), ["1 done"]);
    broker.says(1, set("next", NamespaceLimits::default()), ["1 done"]);
    assert_eq!(row(&mut broker, "next").id, number);
}

#[test]
fn counters_and_limits_of_a_namespace_survive_a_restart() {
    let mut broker = broker();
    let limits = NamespaceLimits {
        jobs_max: Some(9),
        ..NamespaceLimits::default()
    };
    broker.says(1, set("shop", limits), ["1 done"]);
    broker.says(SHOP, push("a"), ["31 new j1"]);
    broker.says(11, push("a"), ["11 new j2"]);
    let before = row(&mut broker, "shop");
    broker.restart(Limits::default());
    open_all(&mut broker);
    let now = row(&mut broker, "shop");
    assert_eq!((now.id, now.limits, now.jobs), (before.id, limits, 1));
    let pushed = |broker: &mut Broker, client| {
        let said = broker.hear(client, Query::Stats);
        let Some((_, Event::Reply(_, Reply::Stats(stats)))) = said.first() else {
            panic!("{said:?}");
        };
        (stats.totals.pushed, stats.jobs, stats.queues)
    };
    assert_eq!(pushed(&mut broker, SHOP), (1, 1, 1));
    assert_eq!(pushed(&mut broker, STAGING), (0, 0, 0));
    assert_eq!(pushed(&mut broker, 11), (1, 1, 1));
    assert_eq!(pushed(&mut broker, 1), (2, 2, 2));
    broker.says(SHOP, take(["a"]), ["31 took j1.4294967297"]);
}

#[test]
fn patterns_of_settings_name_the_namespace_before_a_slash() {
    let mut broker = broker();
    let bridge = Bridge {
        patterns: vec![name("shop/thumb-*"), name("*/all")],
        ..Bridge::default()
    };
    broker.says(1, QueueCommand::Bridge(Box::new(bridge)), ["1 done"]);
    let small = QueueSettings {
        rules: QueueRules {
            body_bytes_max: Some(3),
            ..QueueRules::default()
        },
        ..QueueSettings::default()
    };
    let patterns = Patterns::from_iter([(name("staging/*"), small)]);
    broker.says(1, QueueCommand::SetPatterns(Box::new(patterns)), ["1 done"]);
    for client in [11, SHOP, STAGING] {
        for queue in ["thumb-a", "all"] {
            let create = QueueCommand::Create {
                queue: name(queue),
                kind: windlass_engine::QueueKind::Work,
            };
            let done = format!("{client} done");
            broker.says(client, create, [&*done]);
        }
    }
    let seen: Vec<_> = queues(&mut broker, 1)
        .into_iter()
        .map(|row| {
            let namespace = String::from_utf8_lossy(&row.namespace).into_owned();
            let queue = String::from_utf8_lossy(&row.name).into_owned();
            (namespace, queue, row.bridged, row.rules.body_bytes_max)
        })
        .collect();
    let expected = [
        ("", "thumb-a", false, None),
        ("", "all", false, None),
        ("shop", "thumb-a", true, None),
        ("shop", "all", true, None),
        ("staging", "thumb-a", false, Some(3)),
        ("staging", "all", true, Some(3)),
    ];
    let expected = expected.map(|(namespace, queue, bridged, limit)| {
        (namespace.to_owned(), queue.to_owned(), bridged, limit)
    });
    assert_eq!(seen, expected);
}

#[test]
fn a_queue_of_another_namespace_may_have_the_index_of_a_removed_one() {
    let mut broker = broker();
    broker.says(SHOP, push("a"), ["31 new j1"]);
    let shop = broker.engine.queues().next().expect("a queue").image().id;
    broker.says(SHOP, remove_queue("a", false), ["31 done"]);
    broker.says(STAGING, push("b"), ["41 new j2"]);
    let staging = broker.engine.queues().next().expect("a queue").image().id;
    assert_eq!(shop.index(), staging.index());
    assert_eq!(shop, QueueId::new(Namespace(1), 0));
    assert_eq!(staging, QueueId::new(Namespace(2), 0));
    assert!(broker.engine.queue(shop).is_none());
    assert!(broker.engine.queue(staging).is_some());
}
