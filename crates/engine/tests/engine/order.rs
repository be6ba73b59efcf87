//! The order in which jobs are taken: within a queue, and among queues.

use windlass_engine::{LeaseTerms, Select};

use crate::common;
use crate::common::{Broker, finish, push, release, serve, serve_on, take, take_served};

#[test]
fn jobs_of_a_queue_are_taken_by_priority_then_age() {
    type Case = (&'static str, Vec<common::Push>, &'static [u64]);
    let table: Vec<Case> = vec![
        (
            "first in, first out",
            vec![push("q"), push("q"), push("q")],
            &[1, 2, 3],
        ),
        (
            "9 before 5 before 1",
            vec![push("q").priority(1), push("q"), push("q").priority(9)],
            &[3, 2, 1],
        ),
        (
            "first in, first out inside a priority",
            vec![
                push("q").priority(7),
                push("q"),
                push("q").priority(7),
                push("q"),
            ],
            &[1, 3, 2, 4],
        ),
        (
            "the last to the front is first",
            vec![push("q"), push("q").front(), push("q").front()],
            &[3, 2, 1],
        ),
        (
            "the front of its own priority",
            vec![push("q").priority(9), push("q"), push("q").front()],
            &[1, 3, 2],
        ),
        (
            "no priority is 1, too much is 9",
            vec![push("q").priority(0), push("q").priority(200), push("q")],
            &[2, 3, 1],
        ),
    ];
    for (name, pushes, expected) in table {
        let mut broker = Broker::new();
        for push in pushes {
            broker.hear(1, push);
        }
        assert_eq!(broker.drain("q"), expected, "{name}");
        broker.engine.check();
    }
}

#[test]
fn a_released_job_comes_back_to_its_own_place() {
    let mut broker = Broker::new();
    for _ in 0..3 {
        broker.hear(1, push("q"));
    }
    broker.says(2, take(["q"]), ["2 took j1.1"]);
    broker.says(2, take(["q"]), ["2 took j2.1"]);
    broker.says(2, release(2, false), ["2 done"]);
    broker.says(2, release(1, false), ["2 done"]);
    assert_eq!(broker.drain("q"), [1, 2, 3]);
}

#[test]
fn a_job_released_to_the_front_is_next() {
    let mut broker = Broker::new();
    for _ in 0..3 {
        broker.hear(1, push("q"));
    }
    broker.says(2, take(["q"]), ["2 took j1.1"]);
    broker.says(2, take(["q"]), ["2 took j2.1"]);
    broker.says(2, release(1, true), ["2 done"]);
    broker.says(2, release(2, true), ["2 done"]);
    assert_eq!(broker.drain("q"), [2, 1, 3]);
}

/// Jobs 1 to 4 are in a, b, a, b: normal, urgent, urgent, normal.
#[test]
fn each_selection_orders_queues() {
    let table: [(&str, Select, &[u64]); 4] = [
        (
            "all of the first in the list",
            Select::ListOrder,
            &[3, 1, 2, 4],
        ),
        (
            "the most urgent, then the oldest",
            Select::BestPriority,
            &[2, 3, 1, 4],
        ),
        (
            "the most urgent, each queue in its turn",
            Select::RoundRobin,
            &[2, 3, 4, 1],
        ),
        ("all of the heaviest", Select::Weighted, &[2, 4, 3, 1]),
    ];
    for (name, select, expected) in table {
        let mut broker = Broker::new();
        broker.hear(1, serve_on("a", 1, LeaseTerms::CONNECTION));
        broker.hear(1, serve_on("b", 2, LeaseTerms::CONNECTION));
        for (queue, priority) in [("a", 5), ("b", 9), ("a", 9), ("b", 5)] {
            broker.hear(2, push(queue).priority(priority));
        }
        for job in expected {
            let said = common::words(&broker.hear(1, take_served().select(select)));
            assert_eq!(said, [format!("1 took j{job}.1")], "{name}");
            broker.hear(1, finish(*job));
        }
        broker.says(1, take_served().select(select), ["1 empty"]);
    }
}

#[test]
fn round_robin_goes_from_the_last_queue_to_the_first() {
    let mut broker = Broker::new();
    for queue in ["a", "b", "c"] {
        broker.hear(1, serve(queue));
        broker.hear(2, push(queue));
        broker.hear(2, push(queue));
    }
    let wish = || take_served().select(Select::RoundRobin);
    for job in [5, 3, 1, 6, 4, 2] {
        let said = common::words(&broker.hear(1, wish()));
        assert_eq!(said, [format!("1 took j{job}.1")]);
    }
}

#[test]
fn a_paused_queue_is_skipped() {
    let mut broker = Broker::new();
    broker.hear(1, push("a"));
    broker.hear(1, push("b"));
    broker.says(1, common::pause("a", true), ["1 done"]);
    broker.says(2, take(["a", "b"]), ["2 took j2.1"]);
    broker.says(2, take(["a", "b"]), ["2 empty"]);
    broker.says(1, common::pause("a", false), ["1 done"]);
    broker.says(2, take(["a", "b"]), ["2 took j1.1"]);
}
