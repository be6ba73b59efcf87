//! The history of a job: deliveries that did not succeed.

use windlass_engine::{
    Backoff, ClientCommand, ClientInfo, Command, Failure, JobId, JobRef, JobStateKind,
    LeaseCommand, Limits, Mutation, OnExpiry, Proof, Protocol, Query,
};

use crate::common::{
    Broker, enlist, fail, finish, id, mutate, name, placed, push, release, take, token, words,
};

fn attempts(broker: &mut Broker) -> Vec<String> {
    words(&broker.hear(1, Query::Attempts(JobRef::Id(JobId(1)))))
}

fn fail_with(kind: &'static str, message: &'static str, lines: &[&'static str]) -> Command {
    let backtrace = lines.iter().map(|line| name(line)).collect();
    let failure = Failure {
        kind: name(kind),
        message: name(message),
        backtrace,
        ..Failure::default()
    };
    LeaseCommand::Fail {
        job: id(1),
        proof: Proof::Connection,
        failure: Box::new(failure),
    }
    .into()
}

#[track_caller]
fn expect(broker: &mut Broker, expected: &[&str]) {
    broker.engine.check();
    let expected = format!("1 {}", [&["attempts"][..], expected].concat().join(" "));
    assert_eq!(attempts(broker), [expected]);
}

#[test]
fn each_end_but_success_is_an_attempt_with_its_worker() {
    let mut broker = Broker::limited(|limits| (limits.losses_max, limits.loss_pause_ms) = (0, 0));
    let address = |address: &str| ClientInfo {
        address: address.into(),
        ..ClientInfo::default()
    };
    for (client, from) in [
        (11, "10.0.0.1:7"),
        (12, "10.0.0.2:7"),
        (13, "10.0.0.3:7"),
        (14, "10.0.0.3:8"),
    ] {
        broker.hear(client, ClientCommand::Open(address(from)));
    }
    broker.hear(12, enlist("w12"));
    broker.hear(13, enlist("w13"));
    broker.hear(13, ClientCommand::SetName(name("thirteen")));
    broker.hear(1, push("q").retry(25, Backoff::None));
    expect(&mut broker, &[]);
    broker.hear(11, take(["q"]));
    broker.now = 1_010;
    broker.hear(
        11,
        fail_with("IOError", "no such file", &["a.rs:1", "b.rs:2"]),
    );
    let failed = "1 10.0.0.1:7 1000-1010 Failed IOError: no such file [a.rs:1\nb.rs:2]";
    expect(&mut broker, &[failed]);
    broker.hear(12, take(["q"]));
    broker.hear(12, ClientCommand::Close);
    let lost = "2 w12 1010-1010 Lost";
    expect(&mut broker, &[failed, lost]);
    broker.hear(13, take(["q"]));
    broker.hear(13, release(1, false));
    broker.hear(13, take(["q"]));
    broker.hear(1, mutate(placed(JobStateKind::Leased), Mutation::Release));
    let released = [
        "3 thirteen 1010-1010 Released",
        "4 thirteen 1010-1010 TakenBack",
    ];
    expect(&mut broker, &[&[failed, lost], &released[..]].concat());
    broker.hear(
        14,
        take(["q"])
            .worker("by name")
            .for_ms(5_000, OnExpiry::Requeue),
    );
    broker.at(6_010, []);
    let late = "5 by name 1010-6010 TimedOut";
    expect(
        &mut broker,
        &[&[failed, lost], &released[..], &[late]].concat(),
    );
    // A job that the worker never received is no attempt.
    broker.hear(14, take(["q"]));
    broker.hear(
        14,
        Command::Lease(LeaseCommand::Release {
            job: id(1),
            proof: token(6),
            front: false,
        }),
    );
    broker.hear(14, take(["q"]));
    broker.says(14, finish(1), ["14 finished j1"]);
    broker.says(1, Query::Attempts(id(1)), ["1 refused: job unknown"]);
}

#[test]
fn an_error_stays_with_its_attempt_when_the_next_one_fails_otherwise() {
    let mut broker = Broker::new();
    broker.hear(1, push("q").retry(25, Backoff::None));
    broker.hear(2, take(["q"]));
    broker.hear(2, fail_with("A", "one", &["line"]));
    // The job has the full text, and the history has no copy.
    let kept = |broker: &Broker| {
        let extra = broker.engine.job(JobId(1)).unwrap().extra.clone().unwrap();
        let list = extra.attempts.unwrap();
        (
            extra.failure.unwrap().message,
            list.iter()
                .map(|attempt| attempt.error.is_some())
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(kept(&broker), (name("one"), vec![false]));
    broker.now = 2_000;
    broker.hear(2, take(["q"]).worker("w").for_ms(1_000, OnExpiry::Fail));
    broker.at(3_000, []);
    assert_eq!(kept(&broker).1, [true, false]);
    // The worker reports late, with a more specific error.
    let failure = Failure {
        message: name("two"),
        ..Failure::default()
    };
    broker.hear(
        2,
        Command::Lease(LeaseCommand::Fail {
            job: id(1),
            proof: token(2),
            failure: Box::new(failure),
        }),
    );
    let (one, two) = (
        "1  1000-1000 Failed A: one [line]",
        "2 w 2000-3000 TimedOut : two []",
    );
    expect(&mut broker, &[one, two]);
    broker.hear(2, take(["q"]));
    broker.hear(2, release(1, false));
    expect(&mut broker, &[one, two, "3  3000-3000 Released"]);
    // A restart has no effect.
    broker.restart(Limits::default());
    expect(&mut broker, &[one, two, "3  3000-3000 Released"]);
}

#[test]
fn a_job_that_dies_of_lost_workers_or_of_its_form_keeps_its_history() {
    let mut broker = Broker::limited(|limits| (limits.losses_max, limits.loss_pause_ms) = (2, 0));
    broker.hear(1, push("q"));
    for client in [2, 3] {
        broker.hear(client, take(["q"]));
        broker.hear(client, ClientCommand::Close);
    }
    assert!(broker.place(1).starts_with("dead"));
    expect(&mut broker, &["1  1000-1000 Lost", "2  1000-1000 Lost"]);
    let mut broker = Broker::new();
    broker.hear(1, push("q"));
    broker.hear(2, take(["q"]));
    let why = name("not JSON");
    broker.hear(
        2,
        Command::Lease(LeaseCommand::Unconvertible {
            job: id(1),
            proof: Proof::Connection,
            why,
        }),
    );
    assert!(broker.place(1).starts_with("dead"));
    expect(
        &mut broker,
        &["1  1000-1000 Unconvertible conversion: not JSON []"],
    );
    // An operator retries it.
    broker.hear(1, mutate(placed(JobStateKind::Dead), Mutation::Requeue));
    broker.hear(2, take(["q"]));
    broker.hear(2, fail(1));
    assert_eq!(broker.place(1), "gone");
}

#[test]
fn times_are_those_of_the_wall_clock_when_the_attempt_ends() {
    let mut broker = Broker::new();
    broker.hear(1, push("q").retry(25, Backoff::None));
    broker.hear(2, take(["q"]));
    (broker.now, broker.skew_ms) = (1_500, 3_600_000);
    broker.hear(2, fail(1));
    expect(&mut broker, &["1  3601000-3601500 Failed : oops []"]);
}

#[test]
fn a_clean_job_has_no_history_and_a_long_one_counts_in_memory() {
    let mut broker = Broker::new();
    broker.hear(1, push("q").retry(100, Backoff::None));
    broker.hear(2, take(["q"]));
    assert_eq!(broker.engine.job(JobId(1)).unwrap().extra, None);
    broker.hear(2, release(1, false));
    let weight = |broker: &Broker| broker.engine.job(JobId(1)).unwrap().weight_bytes();
    let (one, mut last) = (weight(&broker), 0);
    for tries in 1..60 {
        broker.hear(2, take(["q"]));
        broker.hear(2, fail(1));
        last = weight(&broker);
        assert!(last > one && last < 4_096, "{last} after {tries}");
    }
    assert_eq!(last, weight(&broker));
    let [history] = &attempts(&mut broker)[..] else {
        panic!("one answer")
    };
    assert!(
        history.starts_with("1 attempts 36 ") && history.contains(" 60 "),
        "{history}"
    );
}

#[test]
fn only_who_sees_the_job_sees_its_history() {
    let mut broker = Broker::new();
    for (client, protocol) in [(11, Protocol::GEARMAN), (12, Protocol::FAKTORY)] {
        broker.hear(
            client,
            ClientCommand::Open(ClientInfo {
                protocol: Some(protocol),
                ..ClientInfo::default()
            }),
        );
    }
    broker.hear(11, push("q").retry(1, Backoff::None));
    broker.hear(11, take(["q"]).for_ms(100, OnExpiry::Front));
    broker.at(1_100, []);
    broker.says(
        11,
        Query::Attempts(id(1)),
        ["11 attempts 1  1000-1100 TimedOut"],
    );
    broker.says(12, Query::Attempts(id(1)), ["12 refused: job unknown"]);
}
