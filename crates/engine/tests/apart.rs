//! Queues whose jobs stay among their own protocol.

mod common;

use common::*;
use windlass_engine::{
    Ability, ClientInfo, Command, Event, LeaseTerms, Origin, PlaceKind, QueueKind, QueueRules, Select,
};

fn part(queue: &'static str, apart: bool) -> Command {
    Command::RuleQueue { queue: name(queue), rules: QueueRules { apart, ..QueueRules::default() } }
}

/// Clients 11 and 12 speak Gearman, 21 and 22 Faktory's; 1 to 4 say nothing of what they speak. `q` is apart.
fn broker() -> Broker {
    let mut broker = Broker::new();
    for (client, origin) in [(11, Origin::GEARMAN), (12, Origin::GEARMAN), (21, Origin::FAKTORY), (22, Origin::FAKTORY)]
    {
        broker.hear(client, Command::Open(ClientInfo { origin: Some(origin), ..ClientInfo::default() }));
    }
    broker.says(1, part("q", true), ["1 done"]);
    broker
}

fn gearman(queue: &'static str) -> Push {
    push(queue)
}

fn faktory(queue: &'static str) -> Push {
    push(queue).with(|job| job.origin = Origin::FAKTORY)
}

#[test]
fn each_protocol_has_its_own_jobs_in_their_own_order() {
    let mut broker = broker();
    broker.says(1, gearman("q"), ["1 new j1"]);
    broker.says(1, faktory("q"), ["1 new j2"]);
    broker.says(1, faktory("q").priority(9), ["1 new j3"]);
    broker.says(1, gearman("q").front(), ["1 new j4"]);
    broker.says(1, gearman("q"), ["1 new j5"]);
    broker.says(21, take(["q"]), ["21 took j3.1"]);
    broker.says(11, take(["q"]), ["11 took j4.1"]);
    broker.says(11, take(["q"]), ["11 took j1.1"]);
    // One that comes back comes back to its own place, among its own.
    broker.says(11, release(1, false), ["11 done"]);
    broker.says(11, take(["q"]), ["11 took j1.2"]);
    broker.says(21, take(["q"]), ["21 took j2.1"]);
    broker.says(21, take(["q"]), ["21 empty"]);
    // Whoever says nothing of what it speaks gets all.
    broker.says(21, release(3, false), ["21 done"]);
    broker.says(4, take(["q"]), ["4 took j3.2"]);
    broker.says(4, take(["q"]), ["4 took j5.1"]);
}

#[test]
fn one_that_has_nothing_to_take_goes_on_to_its_other_queues() {
    let table = [Select::ListOrder, Select::BestPriority, Select::RoundRobin, Select::Weighted];
    for select in table {
        let mut broker = broker();
        broker.says(1, gearman("q").priority(9), ["1 new j1"]);
        broker.says(1, gearman("r"), ["1 new j2"]);
        broker.says(21, take(["q", "r"]).select(select), ["21 took j2.1"]);
    }
}

#[test]
fn nobody_is_handed_or_woken_for_what_it_does_not_see() {
    // Who waits and how, and who of them is served by a Gearman job and then by a Faktory one.
    let served = |broker: &mut Broker, expected: [&str; 2]| {
        for (job, expected) in [gearman("q"), faktory("q")].into_iter().zip(expected) {
            let said: Vec<_> = broker.hear(1, job).into_iter().filter(|(client, _)| client.0 != 1).collect();
            broker.engine.check();
            assert_eq!(words(&said).join(", "), expected);
        }
    };
    // Blocked: Faktory's came first.
    let mut waiting = broker();
    waiting.says(21, take(["q"]).forever(), []);
    waiting.says(11, take(["q"]).forever(), []);
    served(&mut waiting, ["11 took j1.1", "21 took j2.1"]);
    // Asleep.
    let mut waiting = broker();
    for client in [21, 22, 11] {
        waiting.says(client, serve("q"), []);
        waiting.says(client, Command::Sleep, []);
    }
    served(&mut waiting, ["11 woken", "21 woken"]);
    waiting.says(11, Command::Sleep, ["11 woken"]);
    waiting.says(12, serve("q"), []);
    waiting.says(12, take_served(), ["12 took j1.1"]);
    waiting.says(11, take_served(), ["11 empty"]);
    waiting.says(11, Command::Sleep, []);
    // On credit.
    let mut waiting = broker();
    for client in [21, 11] {
        waiting.says(client, serve("q"), []);
        waiting.says(client, credit(1), []);
    }
    served(&mut waiting, ["11 took j1.1", "21 took j2.1"]);
    // One that sees all counts as on its way to any of them, and what it leaves is for the others.
    let mut waiting = broker();
    for client in [4, 11] {
        waiting.says(client, serve("q"), []);
        waiting.says(client, Command::Sleep, []);
    }
    served(&mut waiting, ["4 woken", ""]);
    waiting.says(1, gearman("q"), ["11 woken", "1 new j3"]);
    waiting.says(4, take_served(), ["4 took j1.1"]);
}

#[test]
fn strays_are_those_that_none_of_their_own_serves() {
    let strays =
        |origin| Ability { queue: name("default"), weight: 0, lease: LeaseTerms::CONNECTION, strays: Some(origin) };
    let mut broker = broker();
    // Gearman's are served, by a worker that sees no other.
    broker.says(11, serve("q"), []);
    broker.says(1, gearman("q"), ["1 new j1"]);
    broker.says(1, faktory("q"), ["1 new j2"]);
    broker.says(1, faktory("q"), ["1 new j3"]);
    broker.says(21, Command::Serve(strays(Origin::FAKTORY)), []);
    broker.says(21, credit(1), ["21 took j2.1"]);
    // One of another protocol asks for them in vain.
    broker.says(12, Command::Serve(strays(Origin::FAKTORY)), []);
    broker.says(12, credit(1), []);
    broker.says(21, credit(1), ["21 took j3.1"]);
    // Now that nobody serves Gearman's they are strays as well, for those who ask for them.
    broker.says(11, unserve("q", false), []);
    broker.says(21, credit(1), []);
    broker.says(4, Command::Serve(strays(Origin::GEARMAN)), []);
    broker.says(4, credit(1), ["4 took j1.1"]);
    // Each waits for its own: the first in line is nothing to the other.
    broker.says(1, gearman("q"), ["1 new j4"]);
    broker.says(1, faktory("q"), ["1 new j5", "21 took j5.1"]);
    // Together again they are strays of the first in line.
    broker.says(1, part("q", false), ["1 done"]);
    broker.says(1, faktory("q"), ["1 new j6"]);
    broker.says(4, credit(1), ["4 took j4.1", "12 took j6.1"]);
}

#[test]
fn a_queue_is_parted_and_put_together_while_it_is_used() {
    let mut broker = broker();
    broker.says(21, take(["q"]).forever(), []);
    broker.says(1, gearman("q"), ["1 new j1"]);
    broker.says(1, gearman("q"), ["1 new j2"]);
    // It waits for others; now there are none.
    broker.says(1, part("q", false), ["21 took j1.1", "1 done"]);
    broker.says(21, serve("q"), []);
    broker.says(21, Command::Sleep, ["21 woken"]);
    broker.says(11, serve("q"), []);
    broker.says(11, Command::Sleep, ["11 woken"]);
    broker.says(12, serve("q"), []);
    broker.says(1, part("q", true), ["1 done"]);
    // The one that was woken for what it no longer sees.
    broker.says(21, take_served(), ["21 empty"]);
    broker.says(21, release(1, false), ["21 done"]);
    broker.says(12, take_served(), ["12 took j1.2"]);
    broker.says(11, take_served(), ["11 took j2.1"]);
}

#[test]
fn counts_and_limits_are_those_of_the_name() {
    let mut broker = broker();
    broker.says(1, limit("q", 2), ["1 done"]);
    broker.says(1, gearman("q"), ["1 new j1"]);
    broker.says(1, faktory("q").priority(9), ["1 new j2"]);
    broker.says(1, faktory("q"), ["1 refused: queue holds 2 jobs, limit 2"]);
    let events = broker.hear(1, list_queues());
    let [(_, Event::Queues { rows, .. })] = events.as_slice() else { panic!("{events:?}") };
    let ready: Vec<_> = rows.iter().map(|row| (row.ready.iter().sum::<u32>(), row.rules.apart)).collect();
    assert_eq!(ready, [(2, true)]);
    // A listing has them in the order of the whole, whoever asks.
    broker.says(1, list_jobs(in_queue("q", PlaceKind::Ready)), ["1 jobs j2 j1"]);
    broker.says(21, remove_queue("q", false), ["21 done"]);
    assert_eq!(broker.engine.job_count(), 0);
}

#[test]
fn a_cycle_queue_is_its_own_protocols_already() {
    let mut broker = Broker::new();
    broker.says(1, create("c", QueueKind::Cycle), ["1 done"]);
    broker.says(1, part("c", true), ["1 done"]);
    broker.says(1, faktory("c").cycle(), ["1 new j1"]);
    broker.hear(11, Command::Open(ClientInfo { origin: Some(Origin::GEARMAN), ..ClientInfo::default() }));
    broker.says(11, take_round("c"), ["11 took j1.2"]);
}
