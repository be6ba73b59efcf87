//! Failures and losses: retries, back-off, the dead-letter queue.

use windlass_engine::{
    Backoff, ClientCommand, Command, Event, Fate, JobStateKind, LOSSES, Limits, Mutation, Query,
    Reply,
};

use crate::common;
use crate::common::{
    Broker, by_name, fail, finish, list_jobs, mutate, placed, push, release, take,
};

const DEAD_MS: u64 = 180 * 86_400_000;

/// Takes j1 and fails it immediately.
fn fail_once(broker: &mut Broker) -> String {
    broker.hear(2, take(["q"]));
    let said = common::words(&broker.hear(2, fail(1)));
    broker.engine.check();
    said.join("; ")
}

#[test]
fn how_often_a_job_is_tried() {
    let dead = format!("2 failed j1, buried until {}", 1_000 + DEAD_MS);
    let table: [(&str, i32, &[&str]); 4] = [
        (
            "0: the first failure discards it",
            0,
            &["2 failed j1, discarded"],
        ),
        ("-1: the first failure buries it", -1, &[&dead]),
        ("1: one retry", 1, &["2 failed j1, retried 1000", &dead]),
        (
            "2: two retries",
            2,
            &[
                "2 failed j1, retried 1000",
                "2 failed j1, retried 1000",
                &dead,
            ],
        ),
    ];
    for (name, failures_max, expected) in table {
        let mut broker = Broker::new();
        broker.hear(1, push("q").retry(failures_max, Backoff::None));
        for expected in expected {
            assert_eq!(fail_once(&mut broker), *expected, "{name}");
        }
        broker.says(2, take(["q"]), ["2 empty"]);
    }
}

#[test]
fn how_long_it_waits_before_the_next_try() {
    let table = [
        ("the same again", Backoff::Fixed(250), [250, 250, 250, 250]),
        (
            "doubling",
            Backoff::Doubling(1_000),
            [1_000, 2_000, 4_000, 8_000],
        ),
        (
            "doubling, an hour at most",
            Backoff::Doubling(1_000_000),
            [1_000_000, 2_000_000, 3_600_000, 3_600_000],
        ),
    ];
    for (name, backoff, waits) in table {
        let mut broker = Broker::new();
        broker.hear(1, push("q").retry(25, backoff));
        for wait in waits {
            let at = broker.now + wait;
            assert_eq!(
                fail_once(&mut broker),
                format!("2 failed j1, retried {at}"),
                "{name}"
            );
            assert_eq!(broker.place(1), format!("retrying {at}"), "{name}");
            broker.at(at - 1, []);
            broker.says(2, take(["q"]), ["2 empty"]);
            broker.at(at, []);
            assert_eq!(broker.place(1), "ready", "{name}");
        }
    }
}

/// Faktory's back-off: n^4 + 15 + dice(0..30) * (n + 1) seconds.
#[test]
fn faktorys_back_off_stays_in_its_bounds() {
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..40 {
        let mut broker = Broker::new();
        for _ in 0..round {
            broker.hear(3, Query::Stats); // moves the dice on
        }
        broker.hear(1, push("q").retry(25, Backoff::Faktory));
        for n in 0..6_u64 {
            broker.hear(2, take(["q"]));
            let events = broker.hear(2, fail(1));
            let Some((
                _,
                Event::Reply(
                    _,
                    Reply::Failed {
                        fate: Fate::Retried(at),
                        ..
                    },
                ),
            )) = events.last()
            else {
                panic!("{events:?}")
            };
            let wait_s = (at.0 - broker.now) / 1_000;
            let least = n.pow(4) + 15;
            assert!(
                (least..=least + 29 * (n + 1)).contains(&wait_s),
                "failure {n}: {wait_s} s"
            );
            seen.insert((n, wait_s));
            broker.at(at.0, []);
        }
    }
    assert!(seen.len() > 60, "the random numbers differ: {}", seen.len());
}

#[test]
fn a_retried_job_stands_behind_jobs_that_came_meanwhile() {
    let mut broker = Broker::new();
    broker.hear(1, push("q").retry(3, Backoff::Fixed(10)));
    fail_once(&mut broker);
    broker.hear(1, push("q"));
    broker.at(1_010, []);
    assert_eq!(broker.drain("q"), [2, 1]);
}

#[test]
fn lost_workers_are_counted_separately_from_failures() {
    let mut broker = Broker::new();
    broker.hear(1, push("q").losses(2).retry(1, Backoff::None).listen());
    for client in [2, 3] {
        let delivery = client - 1;
        let said = common::words(&broker.hear(client, take(["q"])));
        assert_eq!(said, [format!("{client} took j1.{delivery}")]);
        let ended = common::words(&broker.hear(client, ClientCommand::Close));
        assert_eq!(
            ended,
            if client == 3 {
                vec!["1 ended j1 lost".to_owned()]
            } else {
                Vec::new()
            }
        );
    }
    // It has retries, so it is retained.
    assert_eq!(broker.place(1), format!("dead until {}", 1_000 + DEAD_MS));
}

#[test]
fn dead_jobs_can_be_listed_and_requeued_and_expire() {
    let mut broker = Broker::limited(|limits: &mut Limits| limits.dead_ms = 5_000);
    broker.hear(1, push("q").retry(-1, Backoff::None).named("a"));
    assert_eq!(fail_once(&mut broker), "2 failed j1, buried until 6000");
    broker.says(1, list_jobs(placed(JobStateKind::Dead)), ["1 jobs j1"]);
    broker.says(
        1,
        Command::Query(Query::Job(by_name("a"))),
        ["1 sees j1 dead in q"],
    );
    broker.says(
        1,
        mutate(placed(JobStateKind::Dead), Mutation::Requeue),
        ["1 mutated 1"],
    );
    assert_eq!(fail_once(&mut broker), "2 failed j1, buried until 6000");
    broker.at(5_999, []);
    assert_eq!(broker.place(1), "dead until 6000");
    broker.at(6_000, []);
    assert_eq!(broker.place(1), "gone");
}

#[test]
fn the_next_worker_receives_the_last_failure() {
    let mut broker = Broker::new();
    broker.hear(1, push("q").retry(3, Backoff::None));
    fail_once(&mut broker);
    let events = broker.hear(2, take(["q"]));
    let Some((_, Event::Reply(_, Reply::Taken(job)))) = events.first() else {
        panic!("{events:?}")
    };
    assert_eq!((job.attempts, job.failures, job.failures_max), (2, 1, 3));
    assert_eq!(
        job.failure.as_ref().map(|f| (f.at.0, f.message.clone())),
        Some((1_000, "oops".into()))
    );
    broker.says(2, finish(1), ["2 finished j1"]);
}

#[test]
fn results_are_kept_as_long_as_asked() {
    let mut broker = Broker::new();
    broker.says(1, push("q").named("r").keep_result(500), ["1 new j1"]);
    broker.says(2, take(["q"]), ["2 took j1.1"]);
    broker.says(2, finish(1), ["2 finished j1"]);
    broker.says(
        1,
        Command::Query(Query::Job(by_name("r"))),
        ["1 sees j1 done result in q"],
    );
    broker.says(2, take(["q"]), ["2 empty"]);
    broker.at(1_500, []);
    broker.says(
        1,
        Command::Query(Query::Job(by_name("r"))),
        ["1 sees nothing"],
    );
}

/// Takes the job and closes the connection. The client is then opened again.
fn lose(broker: &mut Broker, client: u64) -> Vec<String> {
    broker.hear(client, take(["q"]));
    let said = common::words(&broker.hear(client, ClientCommand::Close));
    broker.open(client);
    broker.engine.check();
    said
}

#[test]
fn a_job_that_loses_workers_waits_longer_each_time_and_then_is_dead() {
    // A job is retained here even if the retry policy would discard it, so that an operator can see
    // it.
    for failures_max in [0, 25] {
        let mut broker = Broker::new();
        broker.hear(1, push("q").retry(failures_max, Backoff::None).listen());
        for losses in 1..=4_u32 {
            assert_eq!(lose(&mut broker, 2), Vec::<String>::new());
            let waits = broker.engine.next_deadline().filter(|_| losses > 1);
            let pause = waits.map_or(0, |at| at.0 - broker.now);
            let least = if losses < 2 { 0 } else { 1_000 << (losses - 2) };
            assert!(
                (least..=least * 2).contains(&pause),
                "{losses} lost: {pause} ms"
            );
            broker.at(broker.now + pause, []);
            assert_eq!(broker.place(1), "ready");
        }
        assert_eq!(lose(&mut broker, 2), ["1 ended j1 lost"]);
        assert_eq!(
            broker.place(1),
            format!("dead until {}", broker.now + DEAD_MS)
        );
        let job = broker.engine.job(windlass_engine::JobId(1)).unwrap();
        let failure = job.extra.as_deref().unwrap().failure.clone().unwrap();
        assert_eq!(
            (&*failure.kind, &*failure.message),
            (LOSSES, &b"5 workers were lost with it"[..])
        );
        assert_eq!((job.failures, broker.engine.meta().totals.lost), (0, 5));
        // A retry resets the counters.
        broker.hear(1, mutate(placed(JobStateKind::Dead), Mutation::Requeue));
        lose(&mut broker, 2);
        assert_eq!(broker.place(1), "ready");
    }
}

#[test]
fn deliveries_that_were_given_back_are_not_lost() {
    let mut broker = Broker::limited(|limits: &mut Limits| limits.losses_max = 1);
    broker.hear(1, push("q"));
    for _ in 0..9 {
        broker.hear(2, take(["q"]));
        broker.hear(2, release(1, false));
    }
    assert_eq!(broker.place(1), "ready");
    lose(&mut broker, 2);
    assert_eq!(
        broker.place(1),
        format!("dead until {}", broker.now + DEAD_MS)
    );
}

#[test]
fn a_losses_limit_of_zero_is_none_and_the_jobs_own_limit_comes_first() {
    let mut broker =
        Broker::limited(|limits: &mut Limits| (limits.losses_max, limits.loss_pause_ms) = (0, 0));
    broker.hear(1, push("q"));
    broker.hear(1, push("r").losses(7));
    for _ in 0..20 {
        lose(&mut broker, 2);
    }
    assert_eq!(broker.place(1), "ready");
    let mut broker = Broker::new();
    broker.hear(1, push("q").losses(7).retry(-1, Backoff::None));
    for _ in 0..6 {
        lose(&mut broker, 2);
        assert_eq!(broker.place(1), "ready");
    }
    lose(&mut broker, 2);
    assert_eq!(
        broker.place(1),
        format!("dead until {}", broker.now + DEAD_MS)
    );
}
