//! Clients that reconnect collect the outcomes of jobs.

use windlass_engine::{
    Backoff, Clash, ClientCommand, ClientInfo, From, JobCommand, JobId, JobRef, LeaseCommand,
    Limits, Listen, NewJob, OnExpiry, Proof, Protocol,
};

use crate::common::*;

const MINUTE_MS: u64 = 60_000;

fn open(broker: &mut Broker, client: u64, protocol: Protocol) {
    broker.hear(
        client,
        ClientCommand::Open(ClientInfo {
            protocol: Some(protocol),
            ..ClientInfo::default()
        }),
    );
}

/// Clients 11 and 12 are of Gearman, 21 of Faktory, 1 to 4 of no protocol.
fn broker() -> Broker {
    let mut broker = Broker::new();
    open(&mut broker, 11, Protocol::GEARMAN);
    open(&mut broker, 12, Protocol::GEARMAN);
    open(&mut broker, 21, Protocol::FAKTORY);
    broker
}

/// With the lease that the job requests.
fn take_as_wished() -> Wish {
    let mut wish = take(["q"]);
    if let From::Listed { lease, .. } = &mut wish.0.from {
        lease.wish = Some(OnExpiry::Fail);
    }
    wish
}

fn named(key: &'static str) -> Push {
    push("q").unique(key, Clash::Attach).listen_as("me")
}

#[test]
fn a_client_that_comes_back_gets_what_lives_and_what_has_ended() {
    let mut broker = broker();
    broker.says(11, named("a"), ["11 new j1"]);
    broker.says(11, named("b"), ["11 new j2"]);
    broker.says(2, take(["q"]), ["2 took j1.1"]);
    broker.says(11, ClientCommand::Close, []);
    broker.says(2, finish(1), ["2 finished j1"]);
    assert_eq!(broker.place(1), "done until 61000");
    broker.says(
        12,
        collect("me"),
        [
            "12 collected j1 a succeeded result",
            "12 collected j2 b lives",
            "12 counted 2",
        ],
    );
    assert_eq!(broker.place(1), "gone", "it is delivered");
    broker.says(12, collect("me"), ["12 counted 1"]);
    broker.says(2, take(["q"]), ["2 took j2.1"]);
    broker.says(
        2,
        finish(2),
        ["12 ended j2 succeeded result", "2 finished j2"],
    );
    assert_eq!(
        broker.place(2),
        "gone",
        "a client that is there needs nothing kept"
    );
    broker.says(12, collect("me"), ["12 counted 0"]);
}

#[test]
fn a_name_is_of_one_protocol_and_of_durable_jobs() {
    let mut broker = broker();
    broker.says(11, named("a"), ["11 new j1"]);
    broker.says(21, collect("me"), ["21 counted 0"]);
    broker.says(12, collect("you"), ["12 counted 0"]);
    broker.says(12, collect(""), ["12 counted 0"]);
    broker.says(1, collect("me"), ["1 refused: not allowed in this state"]);
    broker.says(9, collect("me"), ["9 refused: not allowed in this state"]);
    broker.says(
        11,
        named("b").with(|job| job.durable = false),
        ["11 new j2"],
    );
    broker.says(11, ClientCommand::Close, []);
    assert_eq!(
        (broker.place(1), broker.place(2)),
        ("ready".into(), "gone".into())
    );
}

/// Each outcome of a job while the client is disconnected, and how it is reported.
#[test]
fn every_end_is_collected() {
    type Scene = (
        &'static str,
        fn(Push) -> Push,
        fn(&mut Broker),
        Option<&'static str>,
    );
    let table: [Scene; 8] = [
        (
            "success",
            |job| job,
            |broker| drop(broker.hear(2, finish(1))),
            Some("succeeded result"),
        ),
        (
            "failure",
            |job| job,
            |broker| drop(broker.hear(2, fail(1))),
            Some("failed oops"),
        ),
        (
            "buried",
            |job| job.retry(-1, Backoff::None),
            |broker| drop(broker.hear(2, fail(1))),
            Some("failed oops"),
        ),
        (
            "retried",
            |job| job.retry(1, Backoff::None),
            |broker| drop(broker.hear(2, fail(1))),
            Some("lives"),
        ),
        (
            "lost",
            |job| job.losses(1),
            |broker| drop(broker.hear(2, ClientCommand::Close)),
            Some("lost"),
        ),
        (
            "late",
            |job| job.lease_ms(10),
            |broker| broker.at(1_010, []),
            Some("timed out"),
        ),
        (
            "expired",
            |job| job.losses(2).expires(1_010),
            |broker| {
                broker.hear(2, ClientCommand::Close);
                broker.at(1_010, []);
            },
            // A previous worker disappeared.
            Some("lost"),
        ),
        (
            "cancelled",
            |job| job,
            |broker| drop(broker.hear(3, JobCommand::Cancel(JobRef::Id(JobId(1))))),
            None,
        ),
    ];
    for (name, job, end, expected) in table {
        let mut broker = broker();
        broker.hear(11, job(named("a")));
        broker.says(11, ClientCommand::Close, []);
        broker.hear(2, take_as_wished());
        end(&mut broker);
        let said = words(&broker.hear(12, collect("me")));
        match expected {
            Some(expected) => {
                assert_eq!(
                    said,
                    [
                        format!("12 collected j1 a {expected}"),
                        "12 counted 1".into()
                    ],
                    "{name}"
                )
            }
            None => assert_eq!(said, ["12 counted 0"], "{name}"),
        }
    }
}

#[test]
fn an_end_is_kept_for_a_minute_over_restarts_and_within_bounds() {
    let mut broker = broker();
    broker.says(11, named("a"), ["11 new j1"]);
    broker.says(11, named("b").retry(-1, Backoff::None), ["11 new j2"]);
    broker.restart(Limits::default());
    (1..=2).for_each(|_| drop(broker.hear(2, take(["q"]))));
    broker.says(2, finish(1), ["2 finished j1"]);
    broker.hear(2, fail(2));
    broker.restart(Limits::default());
    open(&mut broker, 12, Protocol::GEARMAN);
    broker.at(1_000 + MINUTE_MS - 1, []);
    assert_eq!(broker.place(1), "done until 61000");
    broker.at(1_000 + MINUTE_MS, []);
    assert_eq!(broker.place(1), "gone");
    broker.says(12, collect("me"), ["12 counted 1"]);
    assert!(broker.place(2).starts_with("dead"), "{}", broker.place(2));

    // An eighth of the bytes of all jobs.
    let mut broker = Broker::limited(|limits| limits.jobs_bytes_max = 7_000);
    open(&mut broker, 11, Protocol::GEARMAN);
    for key in ["a", "b", "c"] {
        broker.hear(11, named(key));
    }
    broker.says(11, ClientCommand::Close, []);
    (1..=3).for_each(|_| drop(broker.hear(2, take(["q"]))));
    (1..=3).for_each(|job| drop(broker.hear(2, finish(job))));
    let kept = [1, 2, 3].map(|job| broker.place(job).starts_with("done"));
    assert_eq!(kept, [true, true, false]);
}

#[test]
fn ends_are_collected_page_by_page() {
    let mut broker = Broker::limited(|limits| limits.page_max = 2);
    open(&mut broker, 11, Protocol::GEARMAN);
    for key in ["a", "b", "c"] {
        broker.hear(11, named(key));
    }
    open(&mut broker, 12, Protocol::GEARMAN);
    let lives = |job: usize| format!("12 collected j{job} {} lives", ["a", "b", "c"][job - 1]);
    assert_eq!(
        words(&broker.hear(12, collect("me"))),
        [lives(1), lives(2), "12 counted 2 and more".into()]
    );
    assert_eq!(
        words(&broker.hear(12, collect_from("me", 3))),
        [lives(3), "12 counted 1".into()]
    );
    // Large results fill a page, too.
    broker.says(11, ClientCommand::Close, []);
    broker.says(12, ClientCommand::Close, []);
    open(&mut broker, 12, Protocol::GEARMAN);
    for job in 1..=3 {
        broker.hear(2, take(["q"]));
        broker.hear(
            2,
            LeaseCommand::Finish {
                job: JobRef::Id(JobId(job)),
                proof: Proof::Connection,
                result: vec![b'x'; 300 << 10].into(),
            },
        );
    }
    let said = words(&broker.hear(12, collect("me")));
    assert_eq!((said.len(), &*said[1]), (2, "12 counted 1 and more"));
}

/// A job that is retained for other reasons stays, and is collected once.
#[test]
fn a_result_that_is_kept_anyway_stays() {
    let mut broker = broker();
    broker.says(11, named("a").keep_result(120_000), ["11 new j1"]);
    broker.says(11, ClientCommand::Close, []);
    broker.says(2, take(["q"]), ["2 took j1.1"]);
    broker.says(2, finish(1), ["2 finished j1"]);
    broker.says(
        12,
        collect("me"),
        ["12 collected j1 a succeeded result", "12 counted 1"],
    );
    broker.says(12, collect("me"), ["12 counted 0"]);
    assert_eq!(broker.place(1), "done until 121000");
}

/// The producer that attached last has the end.
#[test]
fn a_producer_that_attaches_gives_the_job_its_name() {
    let mut broker = broker();
    let plain = |listens: fn(&mut NewJob)| push("q").unique("a", Clash::Attach).with(listens);
    broker.says(11, plain(|_| ()), ["11 new j1"]);
    broker.says(11, named("a"), ["11 attached j1"]);
    broker.says(11, ClientCommand::Close, []);
    broker.says(
        12,
        collect("me"),
        ["12 collected j1 a lives", "12 counted 1"],
    );
    broker.says(
        12,
        plain(|job| job.listen = Listen::As(name("you"))),
        ["12 attached j1"],
    );
    broker.says(12, collect("me"), ["12 counted 0"]);
    broker.says(12, collect("you"), ["12 counted 1"]);
}
