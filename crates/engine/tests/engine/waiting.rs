//! Waiting for work in three ways, and which client is served when work arrives.

use windlass_engine::{ClientCommand, Command, LeaseTerms, TakeCommand};

use crate::common;
use crate::common::{
    Broker, credit, finish, pause, push, release, serve, serve_on, take, take_served, unserve,
};

// ---- blocked takes -------------------------------------------------------------------------------------------------

#[test]
fn takers_are_served_first_come_first_served() {
    let mut broker = Broker::new();
    broker.says(2, take(["q"]).forever(), []);
    broker.says(1, take(["r", "q"]).forever(), []);
    broker.says(3, push("q"), ["2 took j1.1", "3 new j1"]);
    broker.says(3, push("q"), ["1 took j2.1", "3 new j2"]);
    broker.says(3, push("q"), ["3 new j3"]);
}

#[test]
fn a_blocked_take_ends_at_its_deadline() {
    let mut broker = Broker::new();
    broker.says(1, take(["q"]).until(1_500), []);
    broker.is_due_at(1_500);
    broker.at(1_499, []);
    broker.at(1_500, ["1 empty"]);
    // It no longer waits.
    broker.says(2, push("q"), ["2 new j1"]);
    broker.says(1, take(["r"]).until(1_500), ["1 empty"]);
}

#[test]
fn due_events_come_before_the_command() {
    let mut broker = Broker::new();
    broker.says(1, take(["q"]).until(1_500), []);
    broker.now = 1_500;
    broker.says(2, push("q"), ["1 empty", "2 new j1"]);
}

#[test]
fn a_client_with_a_deadline_may_not_block_again() {
    let mut broker = Broker::new();
    broker.says(1, take(["q"]).until(9_000), []);
    broker.says(1, take(["r"]), ["1 refused: not allowed in this state"]);
    broker.says(
        1,
        take(["r"]).forever(),
        ["1 refused: not allowed in this state"],
    );
    broker.says(
        1,
        Command::Take(TakeCommand::WaitForWork),
        ["1 refused: not allowed in this state"],
    );
    broker.says(1, Command::Take(TakeCommand::Unwait), []);
    broker.says(1, take(["r"]), ["1 empty"]);
    broker.says(2, push("q"), ["2 new j1"]);
}

#[test]
fn a_client_without_a_deadline_may_block_again_and_each_take_has_its_turn() {
    let mut broker = Broker::new();
    broker.says(1, take(["q"]).forever(), []);
    broker.says(1, take(["q", "r"]).forever(), []);
    broker.says(2, take(["q"]).forever(), []);
    broker.says(1, take(["q"]).forever(), []);
    broker.says(
        1,
        take(["r"]).until(9_000),
        ["1 refused: not allowed in this state"],
    );
    broker.says(
        1,
        Command::Take(TakeCommand::WaitForWork),
        ["1 refused: not allowed in this state"],
    );
    broker.says(1, take(["q"]), ["1 empty"]);
    broker.says(3, push("r"), ["1 took j1.1", "3 new j1"]);
    broker.says(3, push("q"), ["1 took j2.1", "3 new j2"]);
    broker.says(3, push("q"), ["2 took j3.1", "3 new j3"]);
    broker.says(3, push("q"), ["1 took j4.1", "3 new j4"]);
    broker.says(3, push("q"), ["3 new j5"]);
    broker.says(1, take(["q"]).until(9_000), ["1 took j5.1"]);
}

#[test]
fn all_waits_of_a_client_end_with_it() {
    let mut broker = Broker::new();
    (0..3).for_each(|_| broker.says(1, take(["q"]).forever(), []));
    broker.says(1, Command::Take(TakeCommand::Unwait), []);
    broker.says(3, push("q"), ["3 new j1"]);
    broker.says(3, take(["q"]), ["3 took j1.1"]);
    (0..3).for_each(|_| broker.says(1, take(["q"]).forever(), []));
    broker.says(1, Command::Client(ClientCommand::Close), []);
    broker.says(3, push("q"), ["3 new j2"]);
}

#[test]
fn every_way_that_a_job_becomes_ready_serves_a_waiting_client() {
    let mut broker = Broker::new();
    broker.hear(4, push("q"));
    broker.says(3, take(["q"]), ["3 took j1.1"]);
    broker.says(1, take(["q"]).forever(), []);
    broker.says(3, release(1, false), ["1 took j1.2", "3 done"]);
    broker.says(2, take(["q"]).forever(), []);
    broker.says(1, Command::Client(ClientCommand::Close), ["2 took j1.3"]);

    broker.hear(4, push("later").not_before(2_000));
    broker.says(3, take(["later"]).forever(), []);
    broker.at(2_000, ["3 took j2.1"]);

    broker.says(4, push("paused"), ["4 new j3"]);
    broker.says(4, pause("paused", true), ["4 done"]);
    broker.says(3, take(["paused"]).forever(), []);
    broker.says(4, pause("paused", false), ["3 took j3.1", "4 done"]);
}

#[test]
fn a_take_that_is_refused_leaves_no_queue_behind() {
    let mut broker = Broker::limited(|limits| limits.queues_max = 2);
    broker.says(
        1,
        take(["a", "b", "c"]),
        ["1 refused: limit of queues reached: 2"],
    );
    assert_eq!(broker.engine.queues().count(), 0);
    broker.says(1, take(["a", "b"]).forever(), []);
    assert_eq!(broker.engine.queues().count(), 2);
    broker.says(1, Command::Take(TakeCommand::Unwait), []);
    assert_eq!(broker.engine.queues().count(), 0);
}

// ---- sleep until woken ---------------------------------------------------------------------------------------------

/// Clients that serve the queue and sleep.
fn asleep(sleepers: &[u64]) -> Broker {
    let mut broker = Broker::new();
    for sleeper in sleepers {
        broker.hear(*sleeper, serve("q"));
        broker.says(*sleeper, Command::Take(TakeCommand::WaitForWork), []);
    }
    broker
}

#[test]
fn a_job_wakes_one_sleeper() {
    let mut broker = asleep(&[2, 1]);
    broker.says(3, push("q"), ["2 woken", "3 new j1"]);
    broker.says(3, push("q"), ["1 woken", "3 new j2"]);
    broker.says(3, push("q"), ["3 new j3"]);
}

#[test]
fn one_push_with_ten_thousand_asleep_wakes_one() {
    let mut broker = Broker::new();
    for sleeper in 10..10_010 {
        broker.open(sleeper);
        broker.hear(sleeper, serve("q"));
        broker.hear(sleeper, TakeCommand::WaitForWork);
    }
    for job in 1..=3 {
        let said = common::words(&broker.hear(1, push("q")));
        assert_eq!(
            said,
            [format!("{} woken", 9 + job), format!("1 new j{job}")]
        );
    }
    broker.engine.check();
}

#[test]
fn a_client_that_sleeps_beside_work_is_woken_at_once_every_time() {
    let mut broker = asleep(&[]);
    broker.hear(1, serve("q"));
    broker.hear(2, push("q"));
    broker.says(1, Command::Take(TakeCommand::WaitForWork), ["1 woken"]);
    broker.says(1, Command::Take(TakeCommand::WaitForWork), ["1 woken"]);
}

#[test]
fn a_sleeper_that_does_not_come_is_replaced() {
    let mut broker = asleep(&[1, 2]);
    broker.says(3, push("q"), ["1 woken", "3 new j1"]);
    broker.is_due_at(2_000);
    broker.at(1_999, []);
    broker.at(2_000, ["2 woken"]);
    // The late one still gets it, if it is there first.
    broker.says(1, take_served(), ["1 took j1.1"]);
    broker.says(2, take_served(), ["2 empty"]);
}

#[test]
fn a_sleeper_that_comes_for_other_work_is_replaced_at_once() {
    let mut broker = asleep(&[1, 2]);
    broker.hear(1, serve("r"));
    broker.says(3, push("q"), ["1 woken", "3 new j1"]);
    broker.hear(3, push("r").priority(9));
    broker.says(1, take(["r"]), ["1 took j2.1", "2 woken"]);
    broker.says(2, take_served(), ["2 took j1.1"]);
}

#[test]
fn a_sleeper_is_replaced_when_it_leaves() {
    for leave in [
        Command::Client(ClientCommand::Close),
        Command::Take(TakeCommand::Unwait),
        unserve("q", false),
        Command::Client(ClientCommand::UnserveAll { requeue: true }),
    ] {
        let name = format!("{leave:?}");
        let mut broker = asleep(&[1, 2]);
        broker.says(3, push("q"), ["1 woken", "3 new j1"]);
        assert_eq!(common::words(&broker.hear(1, leave)), ["2 woken"], "{name}");
        broker.engine.check();
    }
}

#[test]
fn a_sleeper_is_woken_for_gained_abilities_and_not_for_lost_ones() {
    let mut broker = asleep(&[1]);
    broker.says(1, serve("r"), []);
    broker.says(1, unserve("q", false), []);
    broker.says(2, push("q"), ["2 new j1"]);
    broker.says(2, push("r"), ["1 woken", "2 new j2"]);
}

// ---- credits -------------------------------------------------------------------------------------------------------

#[test]
fn credits_are_spent_one_a_job() {
    let mut broker = Broker::new();
    broker.hear(4, push("q"));
    broker.hear(1, serve("q"));
    broker.says(1, credit(2), ["1 took j1.1"]);
    broker.says(4, push("q"), ["1 took j2.1", "4 new j2"]);
    broker.says(4, push("q"), ["4 new j3"]);
    broker.says(1, finish(1), ["1 finished j1"]);
    broker.says(1, credit(1), ["1 took j3.1"]);
}

#[test]
fn the_heavier_client_is_served_first_and_equals_take_turns() {
    let mut broker = Broker::new();
    for (client, weight) in [(1, 0), (2, 5), (3, 5)] {
        broker.hear(client, serve_on("q", weight, LeaseTerms::CONNECTION));
        broker.says(client, credit(2), []);
    }
    for expected in [2, 3, 2, 3, 1, 1] {
        let said = common::words(&broker.hear(4, push("q")));
        assert!(said[0].starts_with(&format!("{expected} took")), "{said:?}");
    }
    broker.says(4, push("q"), ["4 new j7"]);
}

#[test]
fn more_credits_do_not_cost_a_client_its_turn() {
    let mut broker = Broker::new();
    for client in [1, 2] {
        broker.hear(client, serve("q"));
        broker.says(client, credit(1), []);
    }
    broker.says(1, credit(1), []);
    broker.says(4, push("q"), ["1 took j1.1", "4 new j1"]);
    broker.says(4, push("q"), ["2 took j2.1", "4 new j2"]);
    broker.says(4, push("q"), ["1 took j3.1", "4 new j3"]);
}

#[test]
fn credits_withdrawn_are_not_spent() {
    let mut broker = Broker::new();
    broker.hear(1, serve("q"));
    broker.says(1, credit(5), []);
    broker.says(1, Command::Take(TakeCommand::Unwait), []);
    broker.says(4, push("q"), ["4 new j1"]);
}

/// A client may be blocked on one queue and have credits for another: the two waits are
/// independent.
#[test]
fn credits_and_a_blocked_take_side_by_side() {
    let mut broker = Broker::new();
    broker.hear(1, serve("credit"));
    broker.says(1, credit(1), []);
    broker.says(1, take(["blocked"]).forever(), []);
    broker.says(2, push("credit"), ["1 took j1.1", "2 new j1"]);
    broker.says(2, push("credit"), ["2 new j2"]);
    broker.says(2, push("blocked"), ["1 took j3.1", "2 new j3"]);
}

// ---- side by side --------------------------------------------------------------------------------------------------

#[test]
fn a_client_that_asks_now_gets_a_job_that_a_sleeper_was_woken_for() {
    let mut broker = asleep(&[1]);
    broker.says(2, push("q"), ["1 woken", "2 new j1"]);
    broker.says(3, take(["q"]).forever(), ["3 took j1.1"]);
    broker.says(1, take_served(), ["1 empty"]);
}

#[test]
fn of_a_taker_and_a_sleeper_the_one_that_waited_longer_is_first() {
    // The sleeper: it is woken and has time to take a job, and the taker gets the second job.
    let mut broker = asleep(&[1]);
    broker.says(3, take(["q"]).forever(), []);
    broker.says(2, push("q"), ["1 woken", "2 new j1"]);
    broker.says(2, push("q"), ["3 took j1.1", "2 new j2"]);
    broker.says(1, take_served(), ["1 took j2.1"]);
    // The taker: the sleeper is not woken.
    let mut broker = Broker::new();
    broker.says(3, take(["q"]).forever(), []);
    broker.hear(1, serve("q"));
    broker.says(1, TakeCommand::WaitForWork, []);
    broker.says(2, push("q"), ["3 took j1.1", "2 new j1"]);
    broker.says(2, push("q"), ["1 woken", "2 new j2"]);
}

#[test]
fn a_taker_gets_the_job_of_a_sleeper_that_does_not_come() {
    let mut broker = asleep(&[1]);
    broker.says(3, take(["q"]).forever(), []);
    broker.says(2, push("q"), ["1 woken", "2 new j1"]);
    broker.at(1_999, []);
    broker.at(2_000, ["3 took j1.1"]);
    // The same applies to a sleeper that disconnects.
    let mut broker = asleep(&[1]);
    broker.says(3, take(["q"]).forever(), []);
    broker.says(2, push("q"), ["1 woken", "2 new j1"]);
    broker.says(1, ClientCommand::Close, ["3 took j1.1"]);
}

#[test]
fn no_job_waits_while_a_client_could_take_it() {
    let mut broker = asleep(&[1, 2, 3]);
    for _ in 0..2 {
        broker.hear(4, push("q"));
    }
    // Two are awake, and one of them takes both jobs.
    broker.says(1, take_served(), ["1 took j1.1"]);
    broker.says(1, take_served(), ["1 took j2.1"]);
    broker.says(2, take_served(), ["2 empty"]);
    broker.says(2, Command::Take(TakeCommand::WaitForWork), []);
    // Both clients are woken: the one that was still sleeping, and the one that went back to sleep.
    broker.says(
        1,
        Command::Client(ClientCommand::Close),
        ["3 woken", "2 woken"],
    );
}
