//! Jobs are delivered as far as a visit has space for their bytes. The rest is blocked, in order.

use windlass_engine::{ClientCommand, Command, TakeCommand};

use crate::common::{Broker, credit, finish, push, serve, take, take_served};

/// A broker with space for another job, whatever the size.
fn narrow() -> Broker {
    let mut broker = Broker::new();
    broker.room = 1;
    broker
}

#[test]
fn a_take_without_room_waits_and_is_answered_when_there_is_some() {
    let mut broker = narrow();
    for job in ["1 new j1", "1 new j2"] {
        broker.says(1, push("q"), [job]);
    }
    broker.says(2, take(["q"]), ["2 took j1.1"]);
    broker.room = 0;
    broker.says(3, take(["q"]), []);
    assert!(broker.engine.is_starved());
    broker.is_due_at(1_020);
    broker.at(1_020, []);
    broker.is_due_at(1_040);
    broker.room = 1;
    // A later take is blocked behind it.
    broker.says(4, take(["q"]), []);
    broker.at(1_040, ["3 took j2.1"]);
    broker.at(1_060, ["4 empty"]);
    assert!(!broker.engine.is_starved());
    assert_eq!(broker.engine.next_deadline(), None);
}

#[test]
fn waiting_clients_are_handed_jobs_as_there_is_room() {
    let mut broker = narrow();
    broker.says(1, take(["q"]).forever(), []);
    broker.hear(2, serve("q"));
    broker.hear(2, credit(3));
    broker.room = 0;
    broker.says(4, push("q"), ["4 new j1"]);
    broker.says(4, push("q"), ["4 new j2"]);
    broker.says(4, push("q"), ["4 new j3"]);
    broker.room = 1;
    broker.at(1_020, ["1 took j1.1"]);
    broker.at(1_040, ["2 took j2.1"]);
    broker.at(1_060, ["2 took j3.1"]);
    assert!(!broker.engine.is_starved());
    broker.says(2, finish(3), ["2 finished j3"]);
}

#[test]
fn credits_are_used_as_far_as_there_is_room() {
    let mut broker = narrow();
    for job in ["1 new j1", "1 new j2"] {
        broker.says(1, push("q"), [job]);
    }
    broker.hear(2, serve("q"));
    broker.says(2, credit(9), ["2 took j1.1"]);
    broker.at(1_020, ["2 took j2.1"]);
    broker.says(1, push("q"), ["2 took j3.1", "1 new j3"]);
}

#[test]
fn a_client_that_has_left_gets_nothing() {
    for command in [
        Command::Take(TakeCommand::Unwait),
        Command::Client(ClientCommand::Close),
    ] {
        let mut broker = narrow();
        broker.says(1, push("q"), ["1 new j1"]);
        broker.room = 0;
        broker.says(2, take(["q"]), []);
        broker.says(2, command, []);
        broker.room = 1;
        broker.at(1_020, []);
        assert_eq!(broker.place(1), "ready");
    }
}

#[test]
fn sleepers_are_woken_without_room_and_their_takes_wait() {
    let mut broker = narrow();
    broker.hear(2, serve("q"));
    broker.hear(2, Command::Take(TakeCommand::WaitForWork));
    broker.room = 0;
    broker.says(1, push("q"), ["2 woken", "1 new j1"]);
    broker.says(2, take_served(), []);
    broker.room = 1;
    broker.at(1_020, ["2 took j1.1"]);
}
