//! Tracked jobs, and names that several jobs share.

use windlass_engine::{
    Backoff, ClientCommand, Command, JobCommand, JobId, JobRef, JobStateKind, LeaseCommand,
    Mutation, OnExpiry, Progress, Proof, Timestamp,
};

use crate::common::*;

const KEEP_MS: u64 = 1_800_000;

fn track(text: &'static str) -> Command {
    Command::Job(JobCommand::Track {
        job: by_name(text),
        progress: None,
        text: None,
        until: None,
    })
}

fn so_far(text: &'static str, percent: u32) -> Command {
    Command::Job(JobCommand::Track {
        job: by_name(text),
        progress: Some((percent, 100)),
        text: None,
        until: None,
    })
}

/// The tracked view of a name: the state, the success, and the time of the last change.
fn seen(broker: &Broker, text: &'static str) -> String {
    let Some(job) = broker
        .engine
        .job_named(windlass_engine::Namespace::UNNAMED, text.as_bytes())
    else {
        return "unknown".into();
    };
    let Some(track) = job.extra.as_deref().and_then(|extra| extra.track) else {
        return "not tracked".into();
    };
    let end = match job.succeeded() {
        None => format!("{:?}", job.state.kind()),
        Some(true) => "Success".into(),
        Some(false) => "Failed".into(),
    };
    format!("{end} at {}", track.updated_at.0)
}

fn progress(broker: &Broker, text: &'static str) -> Option<Progress> {
    broker
        .engine
        .job_named(windlass_engine::Namespace::UNNAMED, text.as_bytes())?
        .extra
        .as_deref()?
        .progress
        .clone()
}

#[test]
fn a_job_is_tracked_from_creation_until_some_time_after_its_end() {
    let mut broker = Broker::new();
    broker.says(
        1,
        push("q")
            .named("a")
            .track(KEEP_MS)
            .retry(1, Backoff::Fixed(50)),
        ["1 new j1"],
    );
    assert_eq!(seen(&broker, "a"), "Ready at 1000");
    broker.now = 1_100;
    broker.says(
        2,
        take(["q"]).for_ms(60_000, OnExpiry::Fail),
        ["2 took j1.1 until 61100"],
    );
    assert_eq!(seen(&broker, "a"), "Leased at 1100");
    broker.now = 1_200;
    broker.says(
        2,
        fail_by(1, Proof::AnyLease),
        ["2 failed j1, retried 1250"],
    );
    assert_eq!(seen(&broker, "a"), "Retrying at 1200");
    broker.at(1_250, []);
    broker.says(
        2,
        take(["q"]).for_ms(60_000, OnExpiry::Fail),
        ["2 took j1.2 until 61250"],
    );
    broker.says(2, so_far("a", 33), ["2 done"]);
    broker.now = 1_300;
    broker.says(2, finish_by(1, Proof::AnyLease), ["2 finished j1"]);
    assert_eq!(seen(&broker, "a"), "Success at 1300");
    // The progress is still available, and may be set even now; the outcome is unchanged.
    assert_eq!(
        progress(&broker, "a").map(|so_far| so_far.numerator),
        Some(33)
    );
    broker.now = 1_400;
    broker.says(3, so_far("a", 99), ["3 done"]);
    assert_eq!(
        (
            seen(&broker, "a"),
            progress(&broker, "a").unwrap().numerator
        ),
        ("Success at 1400".into(), 99)
    );
    broker.at(1_300 + KEEP_MS, []);
    assert_eq!(seen(&broker, "a"), "unknown");
    broker.says(3, track("a"), ["3 refused: job unknown"]);
}

#[test]
fn each_end_of_a_tracked_job_is_shown() {
    let ends: [(&str, Push, Vec<Command>, &str); 8] = [
        ("finished", push("q"), vec![finish(1)], "Success at 1000"),
        (
            "failed, not kept",
            push("q"),
            vec![fail(1)],
            "Failed at 1000",
        ),
        (
            "failed, kept",
            push("q").retry(-1, Backoff::None),
            vec![fail(1)],
            "Dead at 1000",
        ),
        (
            "lost too often",
            push("q").losses(1),
            vec![Command::Client(ClientCommand::Close)],
            "Failed at 1000",
        ),
        (
            "cancelled",
            push("q"),
            vec![Command::Job(JobCommand::Cancel(by_name("a")))],
            "unknown",
        ),
        (
            "released",
            push("q"),
            vec![release(1, true)],
            "Ready at 1000",
        ),
        (
            "killed",
            push("q"),
            vec![release(1, true), mutate(all(), Mutation::Kill)],
            "Dead at 1000",
        ),
        (
            "discarded",
            push("q"),
            vec![release(1, true), mutate(all(), Mutation::Discard)],
            "unknown",
        ),
    ];
    for (name, job, commands, expected) in ends {
        let mut broker = Broker::new();
        broker.hear(1, job.named("a").track(KEEP_MS));
        broker.hear(2, take(["q"]));
        commands
            .into_iter()
            .for_each(|command| drop(broker.hear(2, command)));
        broker.engine.check();
        assert_eq!(seen(&broker, "a"), expected, "{name}");
    }
}

#[test]
fn an_expired_job_is_shown_as_failed() {
    let mut broker = Broker::new();
    broker.says(
        1,
        push("q").named("a").track(KEEP_MS).expires(2_000),
        ["1 new j1"],
    );
    broker.at(2_000, []);
    assert_eq!(seen(&broker, "a"), "Failed at 2000");
    // It is in no ready queue, and no client gets it.
    broker.says(2, take(["q"]), ["2 empty"]);
    broker.says(
        1,
        mutate(placed(JobStateKind::Done), Mutation::Requeue),
        ["1 mutated 0"],
    );
    assert!(
        broker
            .engine
            .job(JobId(1))
            .is_some_and(|job| job.body().is_empty())
    );
}

#[test]
fn track_keeps_omitted_fields_and_only_extends_leases() {
    let mut broker = Broker::new();
    broker.says(1, push("q").named("a"), ["1 new j1"]);
    broker.says(
        2,
        take(["q"]).for_ms(500, OnExpiry::Fail),
        ["2 took j1.1 until 1500"],
    );
    let until = |at| {
        Command::Job(JobCommand::Track {
            job: by_name("a"),
            progress: None,
            text: Some(name("nearly")),
            until: Some(Timestamp(at)),
        })
    };
    broker.says(3, so_far("a", 40), ["3 done"]);
    broker.says(3, until(1_200), ["3 done"]);
    assert_eq!(broker.place(1), "leased until 1500");
    broker.says(3, until(9_000), ["3 done"]);
    assert_eq!(broker.place(1), "leased until 9000");
    let told = Progress {
        numerator: 40,
        denominator: 100,
        text: name("nearly"),
    };
    assert_eq!(progress(&broker, "a"), Some(told));
    assert_eq!(seen(&broker, "a"), "not tracked");
}

#[test]
fn listeners_are_notified_of_progress_while_the_job_is_leased() {
    let mut broker = Broker::new();
    broker.says(1, push("q").named("a").listen(), ["1 new j1"]);
    broker.says(3, so_far("a", 1), ["3 done"]);
    broker.says(2, take(["q"]), ["2 took j1.1"]);
    broker.says(3, so_far("a", 2), ["1 told j1 2/100", "3 done"]);
}

#[test]
fn a_shared_name_means_the_leased_job_then_a_waiting_one() {
    let mut broker = Broker::new();
    broker.says(1, push("q").named("a").track(KEEP_MS), ["1 new j1"]);
    assert_eq!(broker.drain("q"), [1]);
    assert_eq!(seen(&broker, "a"), "Success at 1000");
    broker.now = 1_001;
    broker.says(1, push("q").named("a").track(KEEP_MS), ["1 new j2"]);
    assert_eq!(seen(&broker, "a"), "Ready at 1001");
    broker.says(2, take(["q"]), ["2 took j2.1"]);
    broker.says(2, fail(2), ["2 failed j2, discarded"]);
    // Both are over: the younger one is shown.
    assert_eq!(seen(&broker, "a"), "Failed at 1001");
    broker.says(1, list_jobs(with_names(["a"])), ["1 jobs j1 j2"]);
}

#[test]
fn a_shared_name_means_the_job_leased_first_and_no_job_is_lost() {
    let by_jid = |command: fn(JobRef) -> Command| command(by_name("a"));
    let ack = || {
        by_jid(|job| {
            Command::Lease(LeaseCommand::Finish {
                job,
                proof: Proof::AnyLease,
                result: name(""),
            })
        })
    };
    let nack = || {
        by_jid(|job| {
            Command::Lease(LeaseCommand::Fail {
                job,
                proof: Proof::AnyLease,
                failure: Box::default(),
            })
        })
    };
    let requeue = || {
        by_jid(|job| {
            Command::Lease(LeaseCommand::Release {
                job,
                proof: Proof::AnyLease,
                front: true,
            })
        })
    };

    let mut broker = Broker::new();
    for id in ["1 new j1", "1 new j2", "1 new j3", "1 new j4"] {
        broker.says(
            1,
            push("q").named("a").retry(3, Backoff::Fixed(10_000)),
            [id],
        );
    }
    // The second job is released, and so leased last.
    let lease = || take(["q"]).for_ms(60_000, OnExpiry::Fail);
    broker.says(2, lease(), ["2 took j1.1 until 61000"]);
    broker.says(2, lease(), ["2 took j2.1 until 61000"]);
    broker.says(
        2,
        Command::Lease(LeaseCommand::Release {
            job: id(2),
            proof: Proof::AnyLease,
            front: true,
        }),
        ["2 done"],
    );
    broker.now = 1_001;
    broker.says(2, lease(), ["2 took j2.2 until 61001"]);
    broker.now = 1_002;
    broker.says(2, lease(), ["2 took j3.1 until 61002"]);

    broker.says(3, ack(), ["3 finished j1"]);
    // A release is not a failure; the job is the next to be taken.
    broker.says(3, requeue(), ["3 done"]);
    broker.says(3, nack(), ["3 failed j3, retried 11002"]);
    broker.says(3, nack(), ["3 refused: lease not held"]);
    assert_eq!(
        broker
            .engine
            .job(JobId(2))
            .map(|job| (job.failures, job.attempts)),
        Some((0, 2))
    );
    broker.says(2, lease(), ["2 took j2.3 until 61002"]);
    broker.says(2, lease(), ["2 took j4.1 until 61002"]);
    // Each lease that expires affects the leased job, whatever the job's name.
    broker.at(11_002, []);
    broker.says(2, lease(), ["2 took j3.2 until 71002"]);
    broker.at(61_002, []);
    assert_eq!(
        (broker.place(2), broker.place(4)),
        ("retrying 71002".into(), "retrying 71002".into())
    );
    broker.says(3, ack(), ["3 finished j3"]);
    broker.at(71_002, []);
    assert_eq!(broker.drain("q"), [2, 4]);
}
