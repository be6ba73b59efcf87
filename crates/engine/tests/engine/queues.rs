//! Queues: creation, pause, and removal.

use windlass_engine::{Backoff, Command, QueueKind, TakeCommand};

use crate::common;
use crate::common::{
    Broker, create, list_queues, pause, push, remove_queue, serve, take, take_served, unserve,
};

#[test]
fn how_a_queue_comes_to_be_known() {
    let table: [(&str, Command, &str); 5] = [
        ("pushed to", push("q").into(), "1 queues q"),
        ("served", serve("q"), "1 queues q"),
        ("created", create("q", QueueKind::Cycle), "1 queues q"),
        ("limited", common::limit("q", 1), "1 queues q"),
        ("only waited at", take(["q"]).forever().into(), "1 queues"),
    ];
    for (name, command, expected) in table {
        let mut broker = Broker::new();
        broker.hear(2, command);
        assert_eq!(
            common::words(&broker.hear(1, list_queues())),
            [expected],
            "{name}"
        );
        broker.engine.check();
    }
}

#[test]
fn a_known_queue_stays_when_it_is_empty() {
    let mut broker = Broker::new();
    broker.hear(1, push("q"));
    assert_eq!(broker.drain("q"), [1]);
    broker.says(1, list_queues(), ["1 queues q"]);
}

#[test]
fn the_kind_of_a_queue_does_not_change() {
    let mut broker = Broker::new();
    broker.says(1, create("q", QueueKind::Work), ["1 done"]);
    broker.says(1, create("q", QueueKind::Work), ["1 done"]);
    broker.says(
        1,
        create("q", QueueKind::Cycle),
        ["1 refused: queue of the other kind"],
    );
    broker.says(1, push("q").cycle(), ["1 refused: queue of the other kind"]);
}

#[test]
fn remove_queue_removes_its_ready_jobs() {
    let mut broker = Broker::new();
    broker.says(1, remove_queue("q", false), ["1 refused: queue unknown"]);
    broker.says(1, push("q").listen(), ["1 new j1"]);
    broker.says(2, push("q").foreground(), ["2 new j2"]);
    broker.says(3, remove_queue("q", true), ["3 refused: queue in use"]);
    broker.says(
        3,
        remove_queue("q", false),
        ["1 ended j1 cancelled", "2 ended j2 cancelled", "3 done"],
    );
    assert_eq!(
        (broker.engine.job_count(), broker.engine.queues().count()),
        (0, 0)
    );
    broker.says(3, create("q", QueueKind::Work), ["3 done"]);
    broker.says(3, remove_queue("q", true), ["3 done"]);
    assert_eq!(
        (broker.engine.job_count(), broker.engine.queues().count()),
        (0, 0)
    );
}

#[test]
fn a_queue_in_use_is_removed_only_by_force() {
    let mut broker = Broker::new();
    broker.hear(1, push("q"));
    broker.hear(2, serve("q"));
    broker.says(3, remove_queue("q", true), ["3 refused: queue in use"]);
    broker.says(2, take_served(), ["2 took j1.1"]);
    broker.says(2, unserve("q", false), []);
    broker.says(3, remove_queue("q", true), ["3 refused: queue in use"]);
    broker.says(3, remove_queue("q", false), ["3 done"]);
    // A leased job continues.
    broker.says(3, list_queues(), ["3 queues"]);
    broker.says(2, common::finish(1), ["2 finished j1"]);
    assert_eq!(broker.engine.queues().count(), 0);
}

#[test]
fn a_removed_queue_shows_again_when_a_job_of_it_is_ready() {
    let mut broker = Broker::new();
    broker.hear(1, push("q").not_before(2_000));
    broker.says(1, remove_queue("q", false), ["1 done"]);
    broker.says(1, list_queues(), ["1 queues"]);
    broker.at(2_000, []);
    broker.says(1, list_queues(), ["1 queues q"]);
}

#[test]
fn a_paused_queue_accepts_jobs_and_hands_out_none() {
    let mut broker = Broker::new();
    broker.hear(1, serve("q"));
    broker.says(1, pause("q", true), ["1 done"]);
    broker.says(1, Command::Take(TakeCommand::WaitForWork), []);
    broker.says(2, push("q").retry(1, Backoff::None), ["2 new j1"]);
    broker.says(2, take(["q"]), ["2 empty"]);
    broker.says(2, pause("q", false), ["1 woken", "2 done"]);
}

#[test]
fn removing_a_queue_ends_its_pause_and_its_limits() {
    let mut broker = Broker::new();
    broker.says(1, common::limit("q", 0), ["1 done"]);
    broker.says(1, pause("q", true), ["1 done"]);
    broker.says(1, remove_queue("q", false), ["1 done"]);
    broker.says(1, push("q"), ["1 new j1"]);
    broker.says(2, take(["q"]), ["2 took j1.1"]);
}

#[test]
fn a_queue_number_is_reused_once_its_jobs_are_gone() {
    let mut broker = Broker::new();
    broker.hear(1, push("a"));
    let number = broker.engine.queues().next().unwrap().image().id;
    broker.says(2, take(["a"]), ["2 took j1.1"]);
    broker.hear(1, remove_queue("a", false));
    broker.hear(1, push("b"));
    let numbers: Vec<_> = broker
        .engine
        .queues()
        .map(|queue| queue.image().id)
        .collect();
    assert_eq!(
        numbers.iter().filter(|n| **n == number).count(),
        1,
        "its job still needs it"
    );
    broker.hear(2, common::finish(1));
    broker.hear(1, push("c"));
    let names: Vec<_> = broker
        .engine
        .queues()
        .map(|queue| (queue.image().id, queue.image().name.clone()))
        .collect();
    assert_eq!(names[0], (number, "c".into()), "{names:?}");
}

#[test]
fn queues_are_recalled_in_any_order_and_their_numbers_are_not_given_again() {
    let mut broker = Broker::new();
    ["a", "b", "c"]
        .into_iter()
        .for_each(|queue| drop(broker.hear(1, push(queue))));
    let mut after = Broker::new();
    // The second queue gets the ID that was free after the first.
    for queue in broker
        .engine
        .queues()
        .skip(1)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
    {
        after.engine.recall_queue(queue.image().clone());
    }
    after.hear(1, push("d"));
    after.says(1, list_queues(), ["1 queues d b c"]);
}
