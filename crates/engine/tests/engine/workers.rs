//! Named workers: they span connections, send heartbeats, and can be asked to terminate.

use windlass_engine::{
    Clash, ClientCommand, ClientId, ClientInfo, Command, Limits, OnExpiry, Proof, Protocol, Query,
    QueueCommand, QueueKind, TakeCommand, WorkerCommand, WorkerState,
};

use crate::common;
use crate::common::{
    Broker, beat, create, credit, enlist, pause, push, serve, signal, take, take_round,
    take_served, throttle,
};

const BEAT_MS: u64 = 60_000;

#[test]
fn a_worker_lives_while_it_beats() {
    let mut broker = Broker::new();
    broker.says(1, enlist("w"), ["1 done"]);
    broker.says(2, enlist("w"), ["2 done"]);
    broker.at(60_000, []);
    broker.says(1, beat("w"), ["1 beaten Running"]);
    broker.at(60_000 + BEAT_MS - 1, []);
    broker.at(60_000 + BEAT_MS, ["1 closed", "2 closed"]);
    broker.says(1, beat("w"), ["1 refused: worker unknown"]);
}

#[test]
fn a_worker_goes_with_its_last_connection() {
    let mut broker = Broker::new();
    broker.hear(1, enlist("w"));
    broker.hear(2, enlist("w"));
    broker.says(1, Command::Client(ClientCommand::Close), []);
    broker.says(3, beat("w"), ["3 beaten Running"]);
    broker.says(2, Command::Client(ClientCommand::Close), []);
    broker.says(3, beat("w"), ["3 refused: worker unknown"]);
    // Nothing is left to be due.
    broker.at(1_000_000, []);
}

#[test]
fn a_connection_belongs_to_one_worker_and_a_worker_has_a_name() {
    let mut broker = Broker::new();
    broker.says(1, enlist("w"), ["1 done"]);
    broker.says(1, enlist("v"), ["1 refused: not allowed in this state"]);
    broker.says(2, enlist(""), ["2 refused: worker unknown"]);
    broker.says(9, enlist("w"), ["9 refused: not allowed in this state"]);
}

#[test]
fn a_worker_state_never_moves_back() {
    use WorkerState::{Quiet, Running, Terminate};
    let table = [
        (Running, Running, "2 beaten Running"),
        (Quiet, Running, "2 beaten Quiet"),
        (Running, Quiet, "2 beaten Quiet"),
        (Terminate, Quiet, "2 beaten Terminate"),
        (Quiet, Terminate, "2 beaten Terminate"),
    ];
    for (signalled, said, expected) in table {
        let mut broker = Broker::new();
        broker.hear(1, enlist("w"));
        broker.says(3, signal("w", signalled), ["3 done"]);
        broker.says(
            2,
            Command::Worker(WorkerCommand::Beat {
                worker: "w".into(),
                state: Some(said),
                memory_bytes: None,
            }),
            [expected],
        );
    }
}

#[test]
fn a_signal_moves_one_worker_or_all() {
    let mut broker = Broker::new();
    broker.hear(1, enlist("v"));
    broker.hear(2, enlist("w"));
    broker.says(3, signal("w", WorkerState::Quiet), ["3 done"]);
    broker.says(3, beat("v"), ["3 beaten Running"]);
    broker.says(3, beat("w"), ["3 beaten Quiet"]);
    broker.says(3, signal("", WorkerState::Terminate), ["3 done"]);
    broker.says(3, beat("v"), ["3 beaten Terminate"]);
    broker.says(
        3,
        signal("x", WorkerState::Quiet),
        ["3 refused: worker unknown"],
    );
}

#[test]
fn a_quiet_worker_is_given_no_job_however_it_waits() {
    type Wait = (&'static str, fn(&mut Broker));
    let waits: [Wait; 3] = [
        ("blocked", |broker| {
            broker.says(1, take(["q"]).forever(), [])
        }),
        ("asleep", |broker| {
            broker.says(1, Command::Take(TakeCommand::WaitForWork), [])
        }),
        ("with credits", |broker| broker.says(1, credit(3), [])),
    ];
    for quiet_first in [false, true] {
        for (name, wait) in waits {
            let mut broker = Broker::new();
            broker.hear(1, serve("q"));
            broker.hear(1, enlist("w"));
            let quiet =
                |broker: &mut Broker| broker.says(3, signal("w", WorkerState::Quiet), ["3 done"]);
            if quiet_first {
                quiet(&mut broker);
                wait(&mut broker);
            } else {
                wait(&mut broker);
                quiet(&mut broker);
            }
            assert_eq!(
                common::words(&broker.hear(2, push("q"))),
                ["2 new j1"],
                "{name}"
            );
            broker.says(1, Command::Take(TakeCommand::Unwait), []);
            broker.says(1, take_served(), ["1 empty"]);
        }
    }
}

#[test]
fn a_drain_hands_out_nothing_and_makes_every_worker_quiet() {
    let waits: [fn(&mut Broker); 4] = [
        |broker| broker.says(1, take(["q"]).forever(), []),
        |broker| broker.says(1, Command::Take(TakeCommand::WaitForWork), []),
        |broker| broker.says(1, credit(3), []),
        |_| {},
    ];
    for (drain_first, wait) in waits.iter().flat_map(|wait| [(true, wait), (false, wait)]) {
        let mut broker = Broker::new();
        broker.hear(1, serve("q"));
        broker.hear(2, enlist("v"));
        let drain =
            |broker: &mut Broker| broker.says(3, Command::Worker(WorkerCommand::Drain), ["3 done"]);
        if drain_first {
            drain(&mut broker);
            wait(&mut broker);
        } else {
            wait(&mut broker);
            drain(&mut broker);
        }
        assert_eq!(
            common::words(&broker.hear(2, push("q"))),
            ["2 new j1"],
            "no worker is woken"
        );
        broker.says(1, Command::Take(TakeCommand::Unwait), []);
        broker.says(1, take_served(), ["1 empty"]);
        broker.says(2, beat("v"), ["2 beaten Quiet"]);
        broker.says(4, enlist("w"), ["4 done"]);
        broker.says(4, beat("w"), ["4 beaten Quiet"]);
        broker.says(4, take(["q"]), ["4 empty"]);
    }
}

#[test]
fn a_drain_concerns_the_clients_of_one_daemon() {
    let far = (7 << ClientId::OWN_BITS) + 1;
    let mut broker = Broker::new();
    broker.hear(far, ClientCommand::Open(Default::default()));
    broker.hear(far + 1, ClientCommand::Open(Default::default()));
    for (client, worker) in [(1, "near"), (far, "far")] {
        broker.hear(client, enlist(worker));
        broker.hear(client, push("q"));
    }
    broker.hear(far, take(["q"]));
    let mut answers = |client: u64, command: Command| {
        let words = common::words(&broker.hear(client, command));
        words
            .iter()
            .map(|line| line.split_once(' ').unwrap().1.to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        answers(far + 1, Command::Worker(WorkerCommand::Drain)),
        ["done"]
    );
    assert_eq!(
        (answers(far, take(["q"]).into()), answers(far, beat("far"))),
        (vec!["empty".to_owned()], vec!["beaten Quiet".to_owned()])
    );
    assert_eq!(answers(1, beat("near")), ["beaten Running"]);
    let left = |daemon| broker.engine.work_left(daemon);
    assert_eq!(
        (left(7).jobs.len(), left(7).is_at_rest, left(7).is_draining),
        (1, false, true)
    );
    assert_eq!(
        (left(0).jobs.len(), left(0).is_at_rest, left(0).is_draining),
        (0, true, false)
    );
    broker.hear(1, take(["q"]));
    assert_eq!(
        broker.engine.work_left(0).jobs.len(),
        1,
        "clients of other daemons get jobs"
    );
}

#[test]
fn a_drain_waits_for_the_leases_of_connected_clients() {
    let mut broker = Broker::new();
    let held = |broker: &Broker| {
        broker
            .engine
            .work_left(0)
            .jobs
            .iter()
            .map(|(_, jobs)| *jobs)
            .collect::<Vec<_>>()
    };
    broker.hear(1, enlist("w"));
    for _ in 0..4 {
        broker.hear(4, push("q"));
    }
    assert_eq!(held(&broker), []);
    broker.hear(1, take(["q"]).for_ms(500, OnExpiry::Fail).worker("w"));
    broker.hear(2, take(["q"]));
    broker.hear(2, take(["q"]));
    assert_eq!(held(&broker), [3]);
    broker.hear(3, take(["q"]).for_ms(500, OnExpiry::Fail).worker("gone"));
    assert_eq!(held(&broker), [3], "no connection is known to have it");
    broker.hear(1, ClientCommand::Close);
    broker.hear(2, ClientCommand::Close);
    assert_eq!(held(&broker), []);
}

#[test]
fn a_job_for_which_a_quiet_worker_was_woken_wakes_another() {
    let mut broker = Broker::new();
    for client in [1, 2, 3] {
        broker.hear(client, serve("q"));
        broker.says(client, Command::Take(TakeCommand::WaitForWork), []);
    }
    broker.hear(1, enlist("w"));
    broker.hear(2, enlist("w"));
    broker.says(4, push("q"), ["1 woken", "4 new j1"]);
    broker.says(4, signal("w", WorkerState::Quiet), ["3 woken", "4 done"]);
}

#[test]
fn a_quiet_workers_take_ends_at_its_deadline() {
    let mut broker = Broker::new();
    broker.hear(1, enlist("w"));
    broker.says(1, take(["q"]).until(2_000), []);
    broker.says(3, signal("w", WorkerState::Quiet), ["3 done"]);
    broker.at(2_000, ["1 empty"]);
}

#[test]
fn closed_clients_are_given_no_job() {
    let mut broker = Broker::new();
    broker.hear(1, enlist("w"));
    broker.says(1, take(["q"]).forever(), []);
    broker.at(1_000 + BEAT_MS, ["1 closed"]);
    broker.says(2, push("q"), ["2 new j1"]);
}

#[test]
fn time_bound_leases_of_a_dead_worker_run_on_unless_configured_otherwise() {
    for (requeue, state) in [(false, "leased until 501000"), (true, "ready")] {
        let mut broker = Broker::limited(|limits| limits.requeue_dead_workers = requeue);
        broker.hear(1, enlist("w"));
        broker.hear(2, push("q"));
        let wish = take(["q"]).for_ms(500_000, OnExpiry::Fail).worker("w");
        broker.says(1, wish, ["1 took j1.1 until 501000"]);
        broker.says(1, Command::Client(ClientCommand::Close), []);
        assert_eq!(broker.place(1), state);
    }
}

#[test]
fn a_silent_workers_jobs_are_requeued_at_once_if_configured() {
    let mut broker = Broker::limited(|limits| limits.requeue_dead_workers = true);
    for client in [1, 2] {
        broker.hear(client, enlist("w"));
    }
    broker.hear(3, push("q"));
    let wish = || take(["q"]).for_ms(500_000, OnExpiry::Fail);
    broker.says(1, wish().worker("w"), ["1 took j1.1 until 501000"]);
    broker.says(4, wish().worker("v").forever(), []);
    // The worker stays after the first of two connections is closed.
    broker.says(1, Command::Client(ClientCommand::Close), []);
    broker.at(1_000 + BEAT_MS - 1, []);
    assert_eq!(broker.place(1), "leased until 501000");
    broker.at(1_000 + BEAT_MS, ["2 closed", "4 took j1.2 until 561000"]);
    // This is not a failure.
    assert_eq!(
        broker
            .engine
            .job(windlass_engine::JobId(1))
            .map(|job| job.failures),
        Some(0)
    );
}

/// A named Faktory worker with a job of the same protocol and a Gearman job that has a listener.
fn worker_with_two_jobs() -> Broker {
    use windlass_engine::{Bridge, ClientInfo, Protocol};
    let mut broker = Broker::new();
    broker.hear(1, QueueCommand::Bridge(Box::new(Bridge::all())));
    let info = ClientInfo {
        protocol: Some(Protocol::FAKTORY),
        ..ClientInfo::default()
    };
    broker.hear(21, ClientCommand::Open(info));
    broker.hear(21, enlist("w"));
    broker.hear(1, push("q").with(|job| job.protocol = Protocol::FAKTORY));
    broker.hear(1, push("q").listen());
    for _ in 0..2 {
        broker.hear(
            21,
            take(["q"]).worker("w").for_ms(1_800_000, OnExpiry::Fail),
        );
    }
    broker
}

#[test]
fn jobs_of_other_protocols_come_back_with_the_end_of_a_named_worker() {
    let mut broker = worker_with_two_jobs();
    assert!(broker.place(1).starts_with("leased") && broker.place(2).starts_with("leased"));
    broker.hear(21, ClientCommand::Close);
    assert!(broker.place(1).starts_with("leased"), "its own runs on");
    assert_eq!(broker.place(2), "ready");
    // The same when the heartbeats stop.
    let mut broker = worker_with_two_jobs();
    broker.now += 60_000;
    broker.hear(1, Query::Stats);
    assert!(broker.place(1).starts_with("leased"), "its own runs on");
    assert_eq!(broker.place(2), "ready");
}

#[test]
fn workers_that_do_not_come_back_after_a_restart_lose_what_the_end_of_a_worker_costs() {
    for requeue in [false, true] {
        let mut broker = worker_with_two_jobs();
        // Not a worker's reservation: an operator's program took it over HTTP, and does not beat.
        broker.hear(1, push("q"));
        broker.hear(
            2,
            take(["q"]).worker("w").for_ms(1_800_000, OnExpiry::Requeue),
        );
        broker.restart(Limits {
            requeue_dead_workers: requeue,
            ..Limits::default()
        });
        let begun = broker.now;
        broker.at(begun + BEAT_MS - 1, []);
        assert!(
            (1..=3).all(|job| broker.place(job).starts_with("leased")),
            "they may come back"
        );
        broker.at(begun + BEAT_MS, []);
        assert_eq!(
            broker.place(1) == "ready",
            requeue,
            "its own runs on, unless it is requeued"
        );
        assert_eq!(broker.place(2), "ready");
        assert!(broker.place(3).starts_with("leased"));
    }
}

#[test]
fn a_worker_that_comes_back_after_a_restart_has_its_jobs_as_long_as_it_lives() {
    let mut broker = worker_with_two_jobs();
    broker.restart(Limits::default());
    let info = || ClientInfo {
        protocol: Some(Protocol::FAKTORY),
        ..ClientInfo::default()
    };
    broker.hear(21, ClientCommand::Open(info()));
    broker.says(21, enlist("w"), ["21 done"]);
    broker.at(broker.now + BEAT_MS - 1, []);
    broker.says(21, beat("w"), ["21 beaten Running"]);
    broker.at(broker.now + BEAT_MS - 1, []);
    assert!(broker.place(2).starts_with("leased"));
    broker.says(
        21,
        common::finish_by(2, Proof::AnyLease),
        ["21 finished j2"],
    );
    // Nor do jobs from before the restart outlive it.
    let mut broker = worker_with_two_jobs();
    broker.restart(Limits::default());
    broker.hear(21, ClientCommand::Open(info()));
    broker.says(21, enlist("w"), ["21 done"]);
    broker.hear(21, ClientCommand::Close);
    assert_eq!(broker.place(2), "ready");
}

#[test]
fn a_worker_without_a_name_holds_jobs_of_other_protocols_by_its_connection() {
    let mut broker = worker_with_two_jobs();
    let info = ClientInfo {
        protocol: Some(Protocol::FAKTORY),
        ..ClientInfo::default()
    };
    broker.hear(22, ClientCommand::Open(info));
    broker.hear(1, push("q").with(|job| job.protocol = Protocol::FAKTORY));
    for _ in 3..=5 {
        broker.hear(1, push("q"));
    }
    broker.hear(1, throttle("q", None, Some(3), None));
    let take = || take(["q"]).for_ms(1_800_000, OnExpiry::Fail);
    (3..=5).for_each(|_| drop(broker.hear(22, take())));
    broker.says(22, take(), ["22 empty"]);
    broker.says(
        22,
        common::finish_by(4, Proof::AnyLease),
        ["22 finished j4"],
    );
    broker.hear(22, ClientCommand::Close);
    assert!(broker.place(3).starts_with("leased"), "its own runs on");
    assert_eq!(
        (broker.place(5), broker.place(6)),
        ("ready".into(), "ready".into())
    );
}

#[test]
fn a_drain_waits_for_lent_entries_while_a_client_of_spiderq_is_connected() {
    let mut broker = Broker::new();
    let left = |broker: &Broker| broker.engine.work_left(0).jobs;
    let spiderq = ClientInfo {
        protocol: Some(Protocol::SPIDERQ),
        ..ClientInfo::default()
    };
    broker.hear(7, ClientCommand::Open(spiderq));
    for key in ["a", "b"] {
        broker.hear(7, push("cycle").cycle().unique(key, Clash::Keep));
    }
    assert_eq!(left(&broker), [], "no entry is lent");
    broker.hear(7, take_round("cycle").for_ms(500, OnExpiry::Front));
    assert_eq!(left(&broker), [(Some(Protocol::SPIDERQ), 1)]);
    broker.hear(7, take_round("cycle").for_ms(500, OnExpiry::Front));
    assert_eq!(left(&broker), [(Some(Protocol::SPIDERQ), 2)]);
    broker.hear(7, ClientCommand::Close);
    assert_eq!(left(&broker), [], "its client is gone");
}

#[test]
fn a_client_is_a_worker_of_the_queues_of_its_last_takes_up_to_a_number() {
    let mut broker = Broker::new();
    broker.says(1, push("q"), ["1 new j1"]);
    broker.says(1, pause("q", true), ["1 done"]);
    broker.says(2, take(["q"]), ["2 empty"]);
    for queue in 1..=64 {
        assert_eq!(broker.workers("q"), 1, "{queue}");
        broker.now += 1;
        broker.says(
            1,
            create(String::leak(format!("q{queue}")), QueueKind::Work),
            ["1 done"],
        );
        broker.says(2, take([String::leak(format!("q{queue}"))]), ["2 empty"]);
    }
    assert_eq!(broker.workers("q"), 0);
}

#[test]
fn a_client_serves_the_queue_of_its_take_for_a_minute_or_while_its_worker_has_the_job() {
    let mut broker = Broker::new();
    broker.says(1, push("q"), ["1 new j1"]);
    let wish = |worker| {
        take(["q"])
            .worker(worker)
            .for_ms(200_000, OnExpiry::Requeue)
    };
    let takes = [
        (2, "w", "2 took j1.1 until 201000"),
        (3, "v", "3 empty"),
        (4, "u", "4 empty"),
    ];
    for (client, worker, said) in takes {
        broker.says(client, enlist(worker), [format!("{client} done").as_str()]);
        broker.says(client, wish(worker), [said]);
    }
    for (client, worker, _) in takes {
        broker.at(50_000, []);
        broker.hear(client, beat(worker));
    }
    broker.at(60_999, []);
    assert_eq!(broker.workers("q"), 3);
    broker.at(61_000, []);
    assert_eq!(broker.workers("q"), 1);
}
