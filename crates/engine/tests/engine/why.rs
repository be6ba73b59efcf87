//! Why a job does not run, and the figures of queues.

use windlass_engine::{
    Backoff, Bridge, ClientCommand, ClientInfo, Cursor, Event, FiguresRow, Histogram, JobId,
    JobRef, LeaseCommand, LeaseHolder, LeaseTerms, OnExpiry, Policy, Proof, Protocol, Query,
    QueueCommand, Reply, Subscription, Timestamp, Why,
};

use crate::common::{
    Broker, Push, credit, fail, finish, finish_by, pause, push, serve, take, throttle,
};
use crate::policies::{job, keyed, taken};

#[track_caller]
fn why(broker: &mut Broker, job: u64) -> Why {
    let events = broker.hear(1, Query::Why(JobRef::Id(JobId(job))));
    let [(_, Event::Reply(_, Reply::Why(why)))] = events.as_slice() else {
        panic!("{events:?}")
    };
    why.clone()
}

fn figures(broker: &mut Broker) -> Vec<FiguresRow> {
    let (mut all, mut after) = (Vec::new(), Some(Cursor::default()));
    while let Some(page) = after.take() {
        let events = broker.hear(
            1,
            Query::Figures {
                after: page,
                limit: 1,
            },
        );
        let [(_, Event::Reply(_, Reply::Figures { rows, next }))] = events.as_slice() else {
            panic!("{events:?}")
        };
        assert!(rows.len() <= 1);
        all.extend(rows.clone());
        after = *next;
    }
    all
}

fn faktory(queue: &'static str) -> Push {
    push(queue).with(|job| job.protocol = Protocol::FAKTORY)
}

fn behind(jobs: u32) -> Why {
    Why::Behind { jobs, more: false }
}

#[test]
fn a_ready_job_waits_for_the_first_of_its_reasons() {
    let mut broker = Broker::new();
    for _ in 0..3 {
        broker.hear(1, push("q"));
    }
    assert_eq!(why(&mut broker, 2), Why::Unserved { others: vec![] });
    broker.hear(2, serve("q"));
    assert_eq!(
        [1, 2, 3].map(|job| why(&mut broker, job)),
        [behind(0), behind(1), behind(2)]
    );
    broker.hear(1, push("q").priority(9));
    assert_eq!(
        [1, 4].map(|job| why(&mut broker, job)),
        [behind(1), behind(0)]
    );
    broker.hear(1, throttle("q", Some(1), None, None));
    broker.hear(2, credit(1));
    assert_eq!(
        why(&mut broker, 1),
        Why::Throttled {
            holders: vec![JobId(4)]
        }
    );
    broker.at(5_000, []);
    broker.hear(1, pause("q", true));
    broker.at(6_000, []);
    broker.hear(1, pause("q", true));
    assert_eq!(
        why(&mut broker, 1),
        Why::Paused {
            since: Some(Timestamp(5_000))
        }
    );
    broker.says(
        1,
        Query::Why(JobRef::Id(JobId(99))),
        ["1 refused: job unknown"],
    );
}

#[test]
fn throttles_are_listed_with_those_who_hold_their_slots() {
    let mut broker = Broker::new();
    broker.hear(1, throttle("unused", Some(3), None, None));
    broker.hear(1, throttle("q", Some(1), None, None));
    for _ in 0..2 {
        broker.hear(1, push("q"));
    }
    broker.at(5_000, []);
    broker.hear(2, take(["q"]).worker("w").for_ms(1_000, OnExpiry::Fail));
    let mut page = |after| {
        let events = broker.hear(1, Query::Throttles { after, limit: 1 });
        let [(_, Event::Reply(_, Reply::Throttles { rows, next }))] = events.as_slice() else {
            panic!("{events:?}")
        };
        (rows.clone(), *next)
    };
    let (first, next) = page(Cursor::default());
    assert_eq!(
        (
            first.len(),
            &*first[0].queue,
            first[0].known,
            first[0].slots_held
        ),
        (1, &b"unused"[..], false, 0)
    );
    let (second, next) = page(next.unwrap());
    let holder = LeaseHolder {
        worker: "w".into(),
        ..LeaseHolder::default()
    };
    assert_eq!(second[0].holders, [(JobId(1), Timestamp(5_000), holder)]);
    assert_eq!(
        (
            second.len(),
            second[0].known,
            second[0].slots_held,
            second[0].ready,
            next
        ),
        (1, true, 1, 1, None)
    );
}

#[test]
fn only_clients_that_see_the_job_serve_it() {
    let mut broker = Broker::new();
    broker.hear(
        5,
        ClientCommand::Open(ClientInfo {
            protocol: Some(Protocol::FAKTORY),
            ..ClientInfo::default()
        }),
    );
    broker.hear(1, push("q"));
    broker.hear(5, serve("q"));
    assert_eq!(
        why(&mut broker, 1),
        Why::Unserved {
            others: vec![Protocol::FAKTORY]
        }
    );
    broker.hear(1, faktory("q"));
    assert_eq!(
        why(&mut broker, 2),
        behind(0),
        "jobs of another protocol are not before it"
    );
}

/// A worker that takes by name serves the queue while it works, and for a minute after the last take.
#[test]
fn a_busy_worker_serves_its_queue() {
    let mut broker = Broker::new();
    for _ in 0..3 {
        broker.hear(1, push("q"));
    }
    broker.says(2, take(["other", "q"]), ["2 took j1.1"]);
    broker.says(3, take(["q"]), ["3 took j2.1"]);
    assert_eq!((why(&mut broker, 3), broker.workers("q")), (behind(0), 2));
    broker.at(70_000, []);
    assert_eq!(broker.workers("q"), 2, "they work");
    broker.says(2, finish(1), ["2 finished j1"]);
    assert_eq!(
        (why(&mut broker, 3), broker.workers("q")),
        (behind(0), 1),
        "its last take was long ago"
    );
    broker.says(3, take(["other"]), ["3 empty"]);
    // Queues that it takes from in turn are served, too.
    broker.says(3, take(["other"]), ["3 empty"]);
    assert_eq!(
        broker.workers("q"),
        0,
        "its last take from there was long ago, and it asks elsewhere now"
    );
    broker.says(
        4,
        take(["q"]).for_ms(1, OnExpiry::Requeue),
        ["4 took j3.1 until 70001"],
    );
    broker.says(4, take(["other"]), ["4 empty"]);
    assert_eq!(broker.workers("q"), 1, "it was there a moment ago");
    broker.hear(4, ClientCommand::Close);
    broker.at(70_001, []);
    broker.says(
        2,
        take(["q"]).for_ms(90_000, OnExpiry::Fail),
        ["2 took j3.2 until 160001"],
    );
    broker.hear(1, push("q"));
    broker.hear(2, ClientCommand::Close);
    assert_eq!(
        (why(&mut broker, 4), broker.workers("q")),
        (behind(0), 0),
        "it works on without its connection"
    );
    broker.says(3, finish(2), ["3 finished j2"]);
    broker.hear(4, finish_by(3, Proof::AnyLease));
    assert_eq!(why(&mut broker, 4), Why::Unserved { others: vec![] });
    broker.engine.check();
}

#[test]
fn clients_that_take_unclaimed_jobs_serve_every_queue() {
    let mut broker = Broker::new();
    broker.hear(1, push("q"));
    assert_eq!(why(&mut broker, 1), Why::Unserved { others: vec![] });
    let (queue, lease, unclaimed) = (
        "other".into(),
        LeaseTerms::CONNECTION,
        Some(Protocol::GEARMAN),
    );
    broker.hear(
        2,
        ClientCommand::Serve(Subscription {
            queue,
            weight: 0,
            lease,
            unclaimed,
        }),
    );
    assert_eq!(why(&mut broker, 1), behind(0));
    broker.hear(1, faktory("q"));
    assert_eq!(
        why(&mut broker, 2),
        Why::Unserved { others: vec![] },
        "they take jobs of one protocol"
    );
}

#[test]
fn a_job_is_unserved_again_when_the_last_client_that_takes_unclaimed_jobs_has_gone() {
    let (lease, unclaimed) = (LeaseTerms::CONNECTION, Some(Protocol::GEARMAN));
    let serve = |queue: &'static str| Subscription {
        queue: queue.into(),
        weight: 0,
        lease,
        unclaimed,
    };
    let ends = [
        ClientCommand::Unserve {
            queue: "other".into(),
            requeue: false,
        },
        ClientCommand::Close,
    ];
    for end in ends {
        let mut broker = Broker::new();
        broker.hear(1, push("q"));
        for client in [2, 3] {
            broker.hear(client, ClientCommand::Serve(serve("other")));
        }
        assert_eq!(why(&mut broker, 1), behind(0));
        broker.hear(2, end.clone());
        assert_eq!(why(&mut broker, 1), behind(0), "{end:?} of one");
        broker.hear(3, end.clone());
        assert_eq!(
            why(&mut broker, 1),
            Why::Unserved { others: vec![] },
            "{end:?} of both"
        );
    }
}

#[test]
fn clients_of_a_bridged_queue_serve_the_jobs_that_can_be_converted() {
    let mut broker = Broker::new();
    broker.hear(
        5,
        ClientCommand::Open(ClientInfo {
            protocol: Some(Protocol::FAKTORY),
            ..ClientInfo::default()
        }),
    );
    broker.hear(1, QueueCommand::Bridge(Box::new(Bridge::all())));
    broker.hear(1, push("q"));
    broker.hear(5, serve("q"));
    assert_eq!(why(&mut broker, 1), behind(0));
    broker.hear(5, take(["q"]));
    let why_not = "base64: not one string".into();
    broker.hear(
        5,
        LeaseCommand::Unconvertible {
            job: JobRef::Id(JobId(1)),
            proof: Proof::Connection,
            why: why_not,
        },
    );
    assert_eq!(
        why(&mut broker, 1),
        Why::Unserved {
            others: vec![Protocol::FAKTORY]
        }
    );
}

#[test]
fn a_leased_job_shows_who_has_it_and_others_their_state() {
    let mut broker = Broker::new();
    broker.hear(1, push("q"));
    broker.hear(2, take(["q"]).worker("w").for_ms(1_000, OnExpiry::Fail));
    let holder = LeaseHolder {
        worker: "w".into(),
        ..LeaseHolder::default()
    };
    assert_eq!(why(&mut broker, 1), Why::Leased(Box::new(holder)));
    broker.hear(1, push("q").not_before(9_000));
    assert_eq!(why(&mut broker, 2), Why::NotReady);
}

#[test]
fn jobs_before_a_job_are_counted_up_to_a_bound() {
    let mut broker = Broker::new();
    broker.hear(2, serve("q"));
    for _ in 0..600 {
        broker.hear(1, push("q"));
    }
    assert_eq!(why(&mut broker, 500), behind(499));
    assert_eq!(
        why(&mut broker, 600),
        Why::Behind {
            jobs: 500,
            more: true
        }
    );
}

#[test]
fn a_queue_counts_its_events_and_how_long_jobs_waited_and_ran() {
    let mut broker = Broker::new();
    assert_eq!(figures(&mut broker), []);
    broker.hear(1, push("q").retry(3, Backoff::None));
    broker.hear(1, faktory("r"));
    broker.at(1_100, []);
    broker.hear(2, take(["q"]));
    broker.at(1_700, []);
    broker.hear(2, fail(1));
    broker.hear(2, take(["q"]));
    broker.hear(2, finish(1));
    let rows = figures(&mut broker);
    assert_eq!(
        rows.iter().map(|row| &row.name[..]).collect::<Vec<_>>(),
        [b"q", b"r"]
    );
    let [(protocol, totals)] = rows[0].figures.totals[..] else {
        panic!("{rows:?}")
    };
    assert_eq!(protocol, Protocol::GEARMAN);
    assert_eq!(
        (totals.pushed, totals.taken, totals.failed, totals.succeeded),
        (1, 2, 1, 1)
    );
    let of = |histogram: Histogram| (histogram.count(), histogram.sum_ms);
    assert_eq!(
        of(rows[0].figures.waited),
        (2, 100),
        "the second time it was ready at once"
    );
    assert_eq!(of(rows[0].figures.ran), (2, 600));
    assert_eq!(rows[1].figures.totals[0].0, Protocol::FAKTORY);
}

#[test]
fn a_queue_is_served_while_a_worker_has_one_of_the_jobs_that_it_sees() {
    let unserved = Why::Unserved { others: vec![] };
    for (bridged, expected) in [(false, unserved), (true, behind(0))] {
        let mut broker = Broker::new();
        let patterns = [bridged.then(|| "q".into())]
            .into_iter()
            .flatten()
            .collect();
        broker.hear(
            1,
            QueueCommand::Bridge(Box::new(Bridge {
                patterns,
                ..Bridge::default()
            })),
        );
        let about = ClientInfo {
            protocol: Some(Protocol::FAKTORY),
            ..ClientInfo::default()
        };
        broker.hear(21, ClientCommand::Open(about));
        broker.says(1, faktory("q"), ["1 new j1"]);
        broker.says(1, push("q"), ["1 new j2"]);
        broker.says(
            21,
            take(["q"]).worker("w").for_ms(9_000, OnExpiry::Requeue),
            ["21 took j1.1 until 10000"],
        );
        // The lease outlives the connection.
        broker.says(21, ClientCommand::Close, []);
        assert_eq!(why(&mut broker, 2), expected, "bridged: {bridged}");
    }
}

/// A retrying job occupies the key only where jobs of a key start in order.
#[test]
fn the_jobs_that_hold_a_key_are_named() {
    for (ordered, expected) in [(false, vec![JobId(2)]), (true, vec![JobId(1)])] {
        let policy = Policy {
            ordered,
            key_running_max: Some(1),
            ..Policy::default()
        };
        let mut broker = keyed(policy);
        broker.says(1, job("a|1").retry(2, Backoff::Fixed(500)), ["1 new j1"]);
        broker.says(1, job("a|2"), ["1 new j2"]);
        broker.says(1, job("a|3"), ["1 new j3"]);
        assert_eq!(taken(&mut broker), ["1"]);
        broker.says(2, fail(1), ["2 failed j1, retried 1500"]);
        assert_eq!(
            taken(&mut broker),
            if ordered {
                [].as_slice()
            } else {
                ["2"].as_slice()
            }
        );
        let Why::Turn(turn) = why(&mut broker, 3) else {
            panic!("{ordered}")
        };
        assert_eq!((turn.holders, turn.at), (expected, None), "{ordered}");
    }
}
