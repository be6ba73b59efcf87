//! Coalescing keys: the three rules for a clash, and when a key is released.

use windlass_engine::{
    Backoff, Clash, ClientCommand, Command, Event, JobCommand, JobId, JobRef, JobStateKind,
    KeyUntil, Mutation, Protocol, Query, QueueKind, Reply, Timestamp,
};

use crate::common;
use crate::common::{Broker, by_key, fail, finish, mutate, placed, push, take};

#[test]
fn a_clash_is_refused_kept_or_attached() {
    let table = [
        (Clash::Attach, "2 attached j1"),
        (Clash::Refuse, "2 refused: job not unique"),
        (Clash::Keep, "2 kept j1"),
    ];
    for (clash, expected) in table {
        let mut broker = Broker::new();
        broker.says(1, push("q").unique("k", Clash::Attach), ["1 new j1"]);
        assert_eq!(
            common::words(&broker.hear(2, push("q").unique("k", clash))),
            [expected]
        );
        assert_eq!(broker.engine.job_count(), 1, "{clash:?}");
    }
}

#[test]
fn keys_differ_by_queue_protocol_and_bytes() {
    let table = [
        ("another key", push("q").unique("l", Clash::Refuse)),
        ("another queue", push("r").unique("k", Clash::Refuse)),
        (
            "another protocol",
            push("q")
                .unique("k", Clash::Refuse)
                .with(|job| job.protocol = Protocol::FAKTORY),
        ),
        ("no key", push("q")),
    ];
    for (name, other) in table {
        let mut broker = Broker::new();
        broker.says(1, push("q").unique("k", Clash::Refuse), ["1 new j1"]);
        assert_eq!(
            common::words(&broker.hear(1, other)),
            ["1 new j2"],
            "{name}"
        );
    }
}

/// Returns true if the key is in use, tested by another push.
fn is_held(broker: &mut Broker) -> bool {
    let said = common::words(&broker.hear(4, push("q").unique("k", Clash::Keep)));
    broker.engine.check();
    said == ["4 kept j1"]
}

#[test]
fn when_a_key_is_released() {
    let at = Timestamp(1_500);
    // Held: on creation, after 1,500 ms, once taken, once released, once finished.
    let table = [
        (KeyUntil::End, [true, true, true, true, false]),
        (KeyUntil::Start, [true, true, false, false, false]),
        (KeyUntil::EndOr(at), [true, false, false, false, false]),
        (
            KeyUntil::StartOr(Timestamp(9_999)),
            [true, true, false, false, false],
        ),
        (KeyUntil::StartOr(at), [true, false, false, false, false]),
    ];
    for (until, expected) in table {
        for (moment, held) in expected.into_iter().enumerate() {
            let mut broker = Broker::new();
            broker.says(
                1,
                push("q").unique_until("k", Clash::Keep, until),
                ["1 new j1"],
            );
            if moment >= 1 {
                broker.at(1_500, []);
            }
            if moment >= 2 {
                broker.says(2, take(["q"]), ["2 took j1.1"]);
            }
            if moment == 3 {
                broker.says(2, common::release(1, false), ["2 done"]);
            }
            if moment == 4 {
                broker.says(2, finish(1), ["2 finished j1"]);
            }
            assert_eq!(is_held(&mut broker), held, "{until:?} at {moment}");
        }
    }
}

/// [`KeyUntil::Gone`]: a done job has the key as long as it is retained.
#[test]
fn a_kept_result_may_hold_the_key() {
    for (until, keep_ms, held) in [
        (KeyUntil::Gone, 500, true),
        (KeyUntil::Gone, 0, false),
        (KeyUntil::End, 500, false),
    ] {
        let mut broker = Broker::new();
        broker.says(
            1,
            push("q")
                .unique_until("k", Clash::Keep, until)
                .keep_result(keep_ms),
            ["1 new j1"],
        );
        broker.says(2, take(["q"]), ["2 took j1.1"]);
        broker.says(2, finish(1), ["2 finished j1"]);
        assert_eq!(is_held(&mut broker), held, "{until:?}, kept for {keep_ms}");
    }
    let again = |clash| {
        push("q")
            .listen()
            .unique_until("k", clash, KeyUntil::Gone)
            .keep_result(500)
    };
    let mut broker = Broker::new();
    broker.says(1, again(Clash::Attach), ["1 new j1"]);
    broker.says(2, take(["q"]), ["2 took j1.1"]);
    broker.says(
        2,
        finish(1),
        ["1 ended j1 succeeded result", "2 finished j1"],
    );
    broker.at(1_499, []);
    // It has finished: a client that listens receives the outcome.
    broker.says(
        1,
        again(Clash::Attach),
        ["1 attached j1", "1 ended j1 succeeded result"],
    );
    broker.says(1, again(Clash::Keep), ["1 kept j1"]);
    broker.says(1, again(Clash::Refuse), ["1 refused: job not unique"]);
    assert!(broker.engine.work_left(0).is_at_rest);
    broker.at(1_500, []);
    broker.says(1, again(Clash::Attach), ["1 new j2"]);
    // A dead job has no key.
    broker.says(
        2,
        mutate(placed(JobStateKind::Ready), Mutation::Kill),
        ["1 ended j2 cancelled", "2 mutated 1"],
    );
    broker.says(1, again(Clash::Keep), ["1 new j3"]);
}

#[test]
fn retries_hold_their_key_and_the_dead_do_not() {
    let mut broker = Broker::new();
    broker.hear(
        1,
        push("q")
            .unique("k", Clash::Keep)
            .retry(1, Backoff::Fixed(10)),
    );
    broker.hear(2, take(["q"]));
    broker.says(2, fail(1), ["2 failed j1, retried 1010"]);
    assert!(is_held(&mut broker), "retrying");
    broker.at(1_010, []);
    broker.hear(2, take(["q"]));
    broker.hear(2, fail(1));
    assert!(!is_held(&mut broker), "dead");
}

#[test]
fn a_dead_job_that_is_requeued_takes_its_key_back_if_it_is_free() {
    for other in [false, true] {
        let mut broker = Broker::new();
        broker.hear(
            1,
            push("q").unique("k", Clash::Keep).retry(-1, Backoff::None),
        );
        broker.hear(2, take(["q"]));
        broker.hear(2, fail(1));
        if other {
            broker.says(1, push("q").unique("k", Clash::Keep), ["1 new j2"]);
        }
        broker.says(
            1,
            mutate(placed(JobStateKind::Dead), Mutation::Requeue),
            ["1 mutated 1"],
        );
        let holder = if other {
            "1 sees j2 ready in q"
        } else {
            "1 sees j1 ready in q"
        };
        broker.says(1, Command::Query(Query::Job(by_key("q", "k"))), [holder]);
        if other {
            // It has no key since another job took it, and does not get the key back when that job
            // finishes.
            broker.says(
                1,
                Command::Job(JobCommand::Cancel(common::id(2))),
                ["1 done"],
            );
            broker.says(
                1,
                Command::Query(Query::Job(by_key("q", "k"))),
                ["1 sees nothing"],
            );
        }
    }
}

#[test]
fn a_requeued_job_loses_a_key_whose_time_is_over() {
    let table = [
        (KeyUntil::EndOr(Timestamp(1_500)), 1_499, true),
        (KeyUntil::EndOr(Timestamp(1_500)), 1_500, false),
        // It has released the key, and can still be found by it.
        (KeyUntil::Start, 1_500, true),
    ];
    for (until, now, has_key) in table {
        let mut broker = Broker::new();
        broker.hear(
            1,
            push("q")
                .unique_until("k", Clash::Keep, until)
                .retry(-1, Backoff::None),
        );
        broker.hear(2, take(["q"]));
        broker.hear(2, fail(1));
        broker.at(now, []);
        broker.says(
            1,
            mutate(placed(JobStateKind::Dead), Mutation::Requeue),
            ["1 mutated 1"],
        );
        let key = broker.engine.job(JobId(1)).unwrap().key();
        assert_eq!(key.is_some(), has_key, "{until:?} at {now}");
    }
}

#[test]
fn each_attach_adds_a_listener() {
    let mut broker = Broker::new();
    let job = || push("q").unique("k", Clash::Attach).foreground();
    broker.says(1, job(), ["1 new j1"]);
    broker.says(2, job(), ["2 attached j1"]);
    broker.says(1, job(), ["1 attached j1"]);
    broker.says(3, take(["q"]), ["3 took j1.1"]);
    broker.says(
        3,
        finish(1),
        [
            "1 ended j1 succeeded result",
            "2 ended j1 succeeded result",
            "1 ended j1 succeeded result",
            "3 finished j1",
        ],
    );
}

#[test]
fn a_job_that_became_durable_outlives_its_listeners() {
    let mut broker = Broker::new();
    broker.says(
        1,
        push("q").unique("k", Clash::Attach).foreground(),
        ["1 new j1"],
    );
    broker.says(2, push("q").unique("k", Clash::Attach), ["2 attached j1"]);
    broker.says(1, Command::Client(ClientCommand::Close), []);
    assert_eq!(broker.place(1), "ready");
}

#[test]
fn one_listener_of_several_may_leave() {
    let mut broker = Broker::new();
    let job = || push("q").unique("k", Clash::Attach).foreground();
    broker.hear(1, job());
    broker.hear(2, job());
    broker.says(1, Command::Client(ClientCommand::Close), []);
    broker.says(3, take(["q"]), ["3 took j1.1"]);
    broker.says(
        3,
        finish(1),
        ["2 ended j1 succeeded result", "3 finished j1"],
    );
}

#[test]
fn names_may_be_unique_too() {
    let mut broker = Broker::new();
    broker.says(1, push("q").named("n"), ["1 new j1"]);
    broker.says(1, push("r").named("n"), ["1 new j2"]);
    let refused = push("s").named("n").with(|job| job.name_unique = true);
    broker.says(1, refused, ["1 refused: job not unique"]);
    // A leased job before any other, else the oldest.
    broker.says(
        1,
        Command::Query(Query::Job(common::by_name("n"))),
        ["1 sees j1 ready in q"],
    );
    broker.says(2, take(["r"]), ["2 took j2.1"]);
    broker.says(
        1,
        Command::Query(Query::Job(common::by_name("n"))),
        ["1 sees j2 leased in r"],
    );
}

#[test]
fn a_clash_in_a_cycle_queue_keeps_the_entry() {
    let mut broker = Broker::new();
    broker.says(1, common::create("c", QueueKind::Cycle), ["1 done"]);
    broker.says(1, push("c").cycle().unique("k", Clash::Keep), ["1 new j1"]);
    broker.says(1, push("c").cycle().unique("k", Clash::Keep), ["1 kept j1"]);
    broker.says(
        1,
        push("c").unique("k", Clash::Keep),
        ["1 refused: queue of the other kind"],
    );
}

#[test]
fn a_key_is_found_without_its_queue() {
    let anywhere = |key: &'static str| {
        Command::Query(Query::Job(JobRef::KeyAnywhere {
            protocol: Protocol::GEARMAN,
            key: key.as_bytes().into(),
        }))
    };
    let mut broker = Broker::new();
    broker.says(1, anywhere("k"), ["1 sees nothing"]);
    broker.hear(1, push("a"));
    broker.hear(1, push("b").unique("other", Clash::Keep));
    broker.hear(
        1,
        push("b")
            .unique("k", Clash::Keep)
            .with(|job| job.protocol = Protocol::FAKTORY),
    );
    broker.says(1, anywhere("k"), ["1 sees nothing"]);
    broker.hear(1, push("c").unique("k", Clash::Keep));
    broker.hear(1, push("b").unique("k", Clash::Keep));
    broker.says(1, anywhere("k"), ["1 sees j5 ready in b"]);
    broker.says(2, take(["b"]), ["2 took j2.1"]);
    broker.says(
        1,
        Command::Job(JobCommand::Cancel(JobRef::Id(JobId(5)))),
        ["1 done"],
    );
    broker.says(1, anywhere("k"), ["1 sees j4 ready in c"]);
    broker.says(
        1,
        Command::Job(JobCommand::Cancel(JobRef::Id(JobId(4)))),
        ["1 done"],
    );
    broker.says(1, anywhere("k"), ["1 sees nothing"]);
}

/// Enough keys for collisions in the index.
#[test]
fn one_of_a_thousand_keys_is_found_without_its_queue() {
    let mut broker = Broker::new();
    for number in 1..=1_000 {
        let mut job = push("q").unique("", Clash::Keep).0;
        job.unique
            .iter_mut()
            .for_each(|unique| unique.key = format!("k{number}").into());
        let new = format!("1 new j{number}");
        broker.says(
            1,
            Command::Job(JobCommand::Push(Box::new(job))),
            [new.as_str()],
        );
    }
    for number in 1..=1_000 {
        let anywhere = JobRef::KeyAnywhere {
            protocol: Protocol::GEARMAN,
            key: format!("k{number}").into(),
        };
        let sees = format!("1 sees j{number} ready in q");
        broker.says(1, Query::Job(anywhere), [sees.as_str()]);
    }
}

#[test]
fn one_key_in_a_thousand_queues() {
    let mut broker = Broker::new();
    let job = |queue: u64| {
        let mut job = push("").unique("k", Clash::Keep).0;
        job.queue = format!("q{queue}").into();
        Command::Job(JobCommand::Push(Box::new(job)))
    };
    for queue in 1..=1_000 {
        broker.says(1, job(queue), [format!("1 new j{queue}").as_str()]);
    }
    for queue in (1..=1_000).rev() {
        broker.says(1, job(queue), [format!("1 kept j{queue}").as_str()]);
        let anywhere = JobRef::KeyAnywhere {
            protocol: Protocol::GEARMAN,
            key: "k".into(),
        };
        let seen = broker.hear(1, Query::Job(anywhere));
        assert!(
            matches!(
                seen.as_slice(),
                [(_, Event::Reply(_, Reply::Looked { job: Some(_), .. }))]
            ),
            "{seen:?}"
        );
        broker.says(
            1,
            Command::Job(JobCommand::Cancel(JobRef::Id(JobId(queue)))),
            ["1 done"],
        );
    }
}
