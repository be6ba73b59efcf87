//! Throttled queues: how many jobs may be leased at the same time, and which client is served when a slot
//! becomes free.

use windlass_engine::{
    BulkCommand, ClientCommand, Command, Cursor, Engine, Event, From, JobCommand, JobStateKind,
    Limits, Mutation, OnExpiry, Proof, Protocol, Query, QueueKind, QueueRow, Reply, TakeCommand,
    Throttle,
};

use crate::common::*;

/// A broker with a throttle on `q` and this many jobs in it.
fn throttled(
    jobs: u64,
    leased_max: Option<u32>,
    per_worker_max: Option<u32>,
    timeout_ms: Option<u64>,
) -> Broker {
    let mut broker = Broker::limited(|limits| limits.requeue_dead_workers = true);
    broker.says(
        1,
        throttle("q", leased_max, per_worker_max, timeout_ms),
        ["1 done"],
    );
    for job in 1..=jobs {
        broker.says(1, push("q"), [format!("1 new j{job}").as_str()]);
    }
    broker
}

/// Takes for a minute, with the name of a worker.
fn take_as(worker: &'static str) -> Wish {
    take(["q"]).worker(worker).for_ms(60_000, OnExpiry::Requeue)
}

fn row(broker: &mut Broker) -> Option<QueueRow> {
    let events = broker.hear(1, list_queues());
    let [(_, Event::Reply(_, Reply::Queues { rows, .. }))] = events.as_slice() else {
        panic!("{events:?}")
    };
    rows.iter().find(|row| row.name == name("q")).cloned()
}

#[test]
fn no_more_is_handed_out_than_there_are_slots() {
    let mut broker = throttled(4, Some(2), None, None);
    broker.says(2, take(["q"]), ["2 took j1.1"]);
    broker.says(3, take(["q"]), ["3 took j2.1"]);
    broker.says(4, take(["q"]), ["4 empty"]);
    // A take that lists other queues continues with them.
    broker.says(1, push("other"), ["1 new j5"]);
    broker.says(4, take(["q", "other"]), ["4 took j5.1"]);
    let row = row(&mut broker).unwrap();
    let throttle = Throttle {
        leased_max: Some(2),
        ..Throttle::default()
    };
    assert_eq!(
        (row.throttle, row.slots_held, row.jobs(JobStateKind::Ready)),
        (Some(throttle), 2, 2)
    );
    let events = broker.hear(1, Query::Stats);
    let [(_, Event::Reply(_, Reply::Stats(stats)))] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((stats.queues, stats.throttled), (2, 1));
}

#[test]
fn the_first_waiting_client_is_served_when_a_slot_becomes_free() {
    let flush = || {
        Command::Bulk(BulkCommand::Flush {
            protocol: Protocol::GEARMAN,
            after: Cursor(1, 1),
            limit: 1,
        })
    };
    let cancel = || Command::Job(JobCommand::Cancel(id(1)));
    let requeue = || mutate(placed(JobStateKind::Leased), Mutation::Requeue);
    let close = || Command::Client(ClientCommand::Close);
    // The command of the client that has j1, and the effect while 3 and 4 are waiting and j2 is
    // ready.
    let table: [(&str, Command, &[&str]); 8] = [
        ("finished", finish(1), &["2 finished j1", "3 took j2.1"]),
        (
            "failed",
            fail(1),
            &["2 failed j1, discarded", "3 took j2.1"],
        ),
        ("released", release(1, false), &["3 took j1.2", "2 done"]),
        ("cancelled", cancel(), &["2 done", "3 took j2.1"]),
        ("flushed", flush(), &["2 mutated 1 and more", "3 took j2.1"]),
        (
            "given back",
            Command::Client(ClientCommand::UnserveAll { requeue: true }),
            &["3 took j1.2"],
        ),
        ("gone with its connection", close(), &["3 took j1.2"]),
        ("still worked on", requeue(), &["2 mutated 0"]),
    ];
    for (name, command, expected) in table {
        let mut broker = throttled(2, Some(1), None, None);
        broker.says(2, take(["q"]), ["2 took j1.1"]);
        broker.says(3, take(["q"]).forever(), []);
        broker.says(4, take(["q"]).forever(), []);
        let said = broker.hear(2, command);
        broker.engine.check();
        assert_eq!(words(&said), expected, "{name}");
    }
}

#[test]
fn a_lease_that_runs_out_frees_its_slot() {
    let mut broker = throttled(2, Some(1), None, None);
    broker.says(
        2,
        take(["q"]).for_ms(500, OnExpiry::Fail),
        ["2 took j1.1 until 1500"],
    );
    broker.says(3, take(["q"]).forever(), []);
    broker.at(1_499, []);
    broker.at(1_500, ["3 took j2.1"]);

    let mut broker = throttled(1, Some(1), None, None);
    broker.says(2, enlist("w"), ["2 done"]);
    broker.says(2, take_as("w"), ["2 took j1.1 until 61000"]);
    broker.says(3, take(["q"]).forever(), []);
    broker.says(2, Command::Client(ClientCommand::Close), ["3 took j1.2"]);
}

#[test]
fn each_worker_has_its_own_slots() {
    let mut broker = throttled(3, None, Some(1), None);
    broker.says(2, take_as("w"), ["2 took j1.1 until 61000"]);
    // The connection does not matter.
    broker.says(3, take_as("w"), ["3 empty"]);
    broker.says(3, take_as("v"), ["3 took j2.1 until 61000"]);
    // A worker without a free slot does not block others.
    broker.says(2, take_as("w").forever(), []);
    broker.says(3, take_as("v").forever(), []);
    broker.says(4, take_as("u").forever(), ["4 took j3.1 until 61000"]);
    broker.says(4, take_as("t").forever(), []);
    broker.says(1, push("q"), ["4 took j4.1 until 61000", "1 new j4"]);
    broker.says(1, push("q"), ["1 new j5"]);
    broker.says(
        1,
        finish_by(2, Proof::AnyLease),
        ["1 finished j2", "3 took j5.1 until 61000"],
    );
    // All takes without a name are attributed to a single worker; each connection is a separate
    // worker.
    let mut broker = throttled(5, None, Some(1), None);
    broker.says(2, take_as(""), ["2 took j1.1 until 61000"]);
    broker.says(3, take_as(""), ["3 empty"]);
    broker.says(2, take(["q"]), ["2 took j2.1"]);
    broker.says(2, take(["q"]), ["2 empty"]);
    broker.says(3, take(["q"]), ["3 took j3.1"]);
}

#[test]
fn a_slot_may_be_free_before_its_lease_ends() {
    let mut broker = throttled(3, Some(1), Some(1), Some(500));
    broker.says(2, take_as("w"), ["2 took j1.1 until 61000"]);
    broker.now = 1_200;
    broker.says(2, take_as("w").forever(), []);
    broker.is_due_at(1_500);
    broker.at(1_500, ["2 took j2.1 until 61500"]);
    assert_eq!(broker.place(1), "leased until 61000");
    // The first lease no longer occupies a slot, so the end of it frees none.
    broker.says(3, take_as("v"), ["3 empty"]);
    broker.says(1, finish_by(1, Proof::AnyLease), ["1 finished j1"]);
    broker.says(3, take_as("v"), ["3 empty"]);
    broker.at(2_000, []);
    broker.says(3, take_as("v"), ["3 took j3.1 until 62000"]);
}

#[test]
fn sleepers_are_woken_for_free_slots_only() {
    let mut broker = throttled(0, Some(1), None, None);
    for client in 2..=4 {
        broker.hear(client, serve("q"));
        broker.says(client, Command::Take(TakeCommand::WaitForWork), []);
    }
    broker.says(1, push("q"), ["2 woken", "1 new j1"]);
    broker.says(1, push("q"), ["1 new j2"]);
    broker.says(2, take_served(), ["2 took j1.1"]);
    // It sleeps again immediately: there is work, but no slot.
    broker.says(2, Command::Take(TakeCommand::WaitForWork), []);
    broker.says(2, finish(1), ["2 finished j1", "3 woken"]);

    let mut broker = throttled(0, None, Some(1), None);
    broker.hear(2, serve("q"));
    broker.hear(2, push("q"));
    broker.says(2, take_served(), ["2 took j1.1"]);
    broker.says(2, Command::Take(TakeCommand::WaitForWork), []);
    broker.says(1, push("q"), ["1 new j2"]);
    broker.hear(3, serve("q"));
    broker.says(3, Command::Take(TakeCommand::WaitForWork), ["3 woken"]);
    broker.says(3, take_served(), ["3 took j2.1"]);
    broker.says(1, push("q"), ["1 new j3"]);
    broker.says(2, finish(1), ["2 finished j1", "2 woken"]);
}

#[test]
fn credits_are_kept_for_free_slots() {
    let mut broker = throttled(3, None, Some(1), None);
    for client in 2..=3 {
        broker.hear(client, serve("q"));
    }
    broker.says(2, credit(5), ["2 took j1.1"]);
    broker.says(3, credit(5), ["3 took j2.1"]);
    broker.says(3, finish(2), ["3 finished j2", "3 took j3.1"]);
    broker.says(1, push("q"), ["1 new j4"]);
    broker.says(2, finish(1), ["2 finished j1", "2 took j4.1"]);
}

#[test]
fn a_new_throttle_counts_existing_leases_and_its_removal_serves_all() {
    let mut broker = Broker::new();
    for _ in 0..5 {
        broker.hear(1, push("q"));
    }
    broker.says(2, take(["q"]), ["2 took j1.1"]);
    broker.says(2, take(["q"]), ["2 took j2.1"]);
    broker.says(1, throttle("q", Some(3), Some(2), Some(100)), ["1 done"]);
    assert_eq!(row(&mut broker).unwrap().slots_held, 2);
    broker.says(2, take(["q"]).forever(), []);
    broker.says(3, take(["q"]), ["3 took j3.1"]);
    broker.says(3, take(["q"]).forever(), []);
    // Another throttle is counted from the start; the same throttle again has no effect.
    broker.says(
        1,
        throttle("q", Some(4), Some(2), None),
        ["3 took j4.1", "1 done"],
    );
    broker.says(1, throttle("q", Some(4), Some(2), None), ["1 done"]);
    broker.at(5_000, []);
    broker.says(1, unthrottle("q"), ["2 took j5.1", "1 done"]);
    assert_eq!(row(&mut broker).unwrap().throttle, None);
}

#[test]
fn a_new_throttle_counts_leases_of_all_kinds_once() {
    let mut broker = Broker::new();
    for _ in 0..6 {
        broker.hear(1, push("q"));
    }
    broker.says(1, push("other"), ["1 new j7"]);
    broker.says(2, take(["other"]), ["2 took j7.1"]);
    // Connection-bound; with an expiry, with an extension, with several timers in the heap; and without an
    // expiry.
    broker.says(2, take(["q"]), ["2 took j1.1"]);
    broker.says(3, take_as("w"), ["3 took j2.1 until 61000"]);
    broker.says(3, take_as("w"), ["3 took j3.1 until 61000"]);
    broker.hear(3, extend(3, 1, 30_000, false));
    broker.hear(3, extend(3, 1, 20_000, false));
    broker.says(1, throttle("q", Some(9), None, None), ["1 done"]);
    assert_eq!(row(&mut broker).unwrap().slots_held, 3);
    let mut endless = take(["q"]).worker("w");
    if let From::Listed { lease, .. } = &mut endless.0.from {
        lease.connection_bound = false;
    }
    broker.says(3, endless, ["3 took j4.1"]);
    broker.says(1, throttle("q", Some(8), None, None), ["1 done"]);
    assert_eq!(row(&mut broker).unwrap().slots_held, 4);
    broker.says(2, finish(1), ["2 finished j1"]);
    broker.says(1, throttle("q", Some(9), None, None), ["1 done"]);
    assert_eq!(row(&mut broker).unwrap().slots_held, 3);
}

#[test]
fn a_throttle_outlasts_its_queue() {
    let mut broker = throttled(1, Some(0), None, None);
    broker.says(1, remove_queue("q", false), ["1 done"]);
    assert_eq!(row(&mut broker), None);
    broker.says(1, push("q"), ["1 new j2"]);
    broker.says(2, take(["q"]), ["2 empty"]);
    broker.says(1, remove_queue("q", false), ["1 done"]);
    broker.says(1, unthrottle("q"), ["1 done"]);
    assert_eq!(broker.engine.queues().count(), 0);
    // An unknown queue has no throttle to remove, and a name may be too long.
    broker.says(1, unthrottle("nowhere"), ["1 done"]);
    assert_eq!(broker.engine.queues().count(), 0);
    let mut broker = Broker::limited(|limits| limits.name_bytes_max = 3);
    broker.says(
        1,
        throttle("long", Some(1), None, None),
        ["1 refused: name of 4 bytes, limit 3"],
    );
}

#[test]
fn a_cycle_queue_is_throttled_like_any_other() {
    let mut broker = Broker::new();
    broker.hear(1, create("q", QueueKind::Cycle));
    broker.says(1, throttle("q", Some(1), None, None), ["1 done"]);
    broker.hear(1, push("q").cycle());
    broker.hear(1, push("q").cycle());
    let events = broker.hear(2, take_round("q").for_ms(60_000, OnExpiry::Front));
    let [(_, Event::Reply(_, Reply::Taken(job)))] = events.as_slice() else {
        panic!("{events:?}")
    };
    broker.says(
        3,
        take_round("q").for_ms(60_000, OnExpiry::Front),
        ["3 empty"],
    );
    broker.hear(
        2,
        repay(job.id.0, job.token.0, windlass_engine::RepayTo::Penalty),
    );
    let events = broker.hear(3, take_round("q").for_ms(60_000, OnExpiry::Front));
    assert!(
        matches!(events.as_slice(), [(_, Event::Reply(_, Reply::Taken(_)))]),
        "{events:?}"
    );
}

#[test]
fn leases_that_outlive_the_daemon_count_again() {
    let mut before = throttled(3, Some(1), None, Some(500));
    before.says(2, take_as("w"), ["2 took j1.1 until 61000"]);
    let mut engine = Engine::new(Limits::default(), 7);
    before
        .engine
        .queues()
        .for_each(|queue| engine.recall_queue(queue.image().clone()));
    for job in before.engine.jobs() {
        assert!(engine.recall_job(job.clone()));
    }
    engine.wake_up();
    engine.check();
    let mut broker = Broker::new();
    broker.engine = engine;
    (1..=4).for_each(|client| broker.open(client));
    broker.now = 1_400;
    broker.says(2, take_as("w"), ["2 empty"]);
    broker.is_due_at(1_500);
    broker.at(1_500, []);
    broker.says(2, take_as("w"), ["2 took j2.1 until 61500"]);
}
