//! Submits with the same identity that are merged into one job.

use bytes::Bytes;
use windlass_engine::{
    Backoff, Claim, Clash, ClientCommand, Coalesce, Command, Context, Engine, Event, Filter, Held,
    JobCommand, JobId, KeySource, KeyUntil, LeaseCommand, Limits, Listen, Mutation, OnExpiry,
    Policy, Proof, Protocol, Query, QueueCommand, QueueRules, QueueSettings, Reply, Timestamp,
    Token, Unique, Why,
};

use crate::common::*;

mod freed;
mod joins;

const RULE: Coalesce = Coalesce {
    by_key: false,
    latest: true,
    quiet_ms: 100,
    at_most_ms: Some(250),
    once_more: true,
};

fn rule(rule: Coalesce) -> Command {
    rules(QueueRules {
        coalesce: Some(rule),
        ..QueueRules::default()
    })
}

fn rules(rules: QueueRules) -> Command {
    Command::Queue(QueueCommand::SetRules {
        queue: name("q"),
        rules: rules.into(),
    })
}

/// A Gearman client's background submit.
fn submit(key: &'static str, body: &'static str) -> Push {
    push("q").with(|job| {
        job.protocol = Protocol::GEARMAN;
        job.body = body.into();
        job.unique = Some(Unique {
            key: name(key),
            clash: Clash::Attach,
            until: KeyUntil::End,
        });
    })
}

fn foreground(key: &'static str, body: &'static str) -> Push {
    submit(key, body).with(|job| (job.durable, job.listen) = (false, Listen::Yes))
}

fn coalescing(rule_of: Coalesce) -> Broker {
    let mut broker = Broker::new();
    broker.hear(4, rule(rule_of));
    broker
}

fn body(broker: &Broker, job: u64) -> Vec<u8> {
    broker
        .engine
        .job(JobId(job))
        .map(|job| job.body().to_vec())
        .unwrap_or_default()
}

/// Takes a job, and returns the ID and the body.
fn taken(broker: &mut Broker) -> Option<(u64, Vec<u8>)> {
    let events = broker.hear(4, take(["q"]));
    match events.as_slice() {
        [(_, Event::Reply(_, Reply::Taken(job)))] => Some((job.id.0, job.body.to_vec())),
        _ => None,
    }
}

fn why(broker: &mut Broker, job: u64) -> Why {
    let events = broker.hear(1, Command::Query(Query::Why(id(job))));
    let [(_, Event::Reply(_, Reply::Why(why)))] = events.as_slice() else {
        panic!("{events:?}")
    };
    why.clone()
}

#[test]
fn submits_are_one_job_that_waits_for_quiet_but_not_for_longer_than_it_may() {
    let mut broker = coalescing(RULE);
    broker.says(1, submit("u", "one"), ["1 new j1"]);
    assert_eq!(broker.place(1), "scheduled 1100");
    assert_eq!(why(&mut broker, 1), Why::NotReady);
    for (now, text, due) in [
        (1_090, "two", 1_190),
        (1_180, "three", 1_250),
        (1_249, "four", 1_250),
    ] {
        broker.at(now, []);
        broker.says(2, submit("u", text), ["2 attached j1"]);
        assert_eq!(broker.place(1), format!("scheduled {due}"), "{text}");
        assert_eq!(body(&broker, 1), text.as_bytes());
    }
    assert_eq!(
        why(&mut broker, 1),
        Why::Coalesced {
            submits: 4,
            behind: None
        }
    );
    assert_eq!(
        broker.engine.job(JobId(1)).map(|job| job.attempts),
        Some(0),
        "no worker had it"
    );
    broker.says(1, submit("v", "other"), ["1 new j2"]);
    broker.at(1_250, []);
    assert_eq!(
        (broker.place(1), broker.place(2)),
        ("ready".into(), "scheduled 1349".into())
    );
    assert_eq!(taken(&mut broker), Some((1, b"four".to_vec())));
    broker.says(4, finish(1), ["4 finished j1"]);
    broker.says(1, submit("u", "five"), ["1 new j3"]);
}

#[test]
fn a_ready_job_waits_again_unless_its_time_is_up() {
    let mut broker = coalescing(RULE);
    broker.hear(1, submit("u", "one"));
    broker.at(1_100, []);
    assert_eq!(broker.place(1), "ready");
    broker.says(1, submit("u", "two"), ["1 attached j1"]);
    assert_eq!(broker.place(1), "scheduled 1200");
    broker.at(1_250, []);
    broker.says(1, submit("u", "three"), ["1 attached j1"]);
    assert_eq!(broker.place(1), "ready");
    assert_eq!(taken(&mut broker), Some((1, b"three".to_vec())));
}

#[test]
fn without_latest_the_first_body_stays() {
    let mut broker = coalescing(Coalesce {
        latest: false,
        at_most_ms: None,
        ..RULE
    });
    for (now, text) in [
        (1_000, "one"),
        (1_090, "two"),
        (1_180, "three"),
        (1_270, "four"),
    ] {
        broker.at(now, []);
        broker.hear(1, submit("u", text));
    }
    assert_eq!(
        (broker.place(1), body(&broker, 1)),
        ("scheduled 1370".into(), b"one".to_vec())
    );
}

#[test]
fn submits_while_a_job_runs_are_one_more_that_starts_when_the_running_one_is_over() {
    let mut broker = coalescing(RULE);
    broker.hear(1, submit("u", "one"));
    broker.at(1_100, []);
    assert_eq!(taken(&mut broker), Some((1, b"one".to_vec())));
    broker.says(1, submit("u", "two"), ["1 new j2"]);
    broker.says(1, submit("u", "three"), ["1 attached j2"]);
    broker.at(2_000, []);
    assert_eq!(
        (broker.place(1), broker.place(2)),
        ("leased".into(), "shelved".into())
    );
    assert_eq!(
        why(&mut broker, 2),
        Why::Coalesced {
            submits: 2,
            behind: Some(JobId(1))
        }
    );
    assert_eq!(taken(&mut broker), None);
    // It is due, so only the body is replaced.
    broker.says(1, submit("u", "four"), ["1 attached j2"]);
    assert_eq!(broker.place(2), "shelved");
    broker.says(4, finish(1), ["4 finished j1"]);
    broker.at(2_000, []);
    assert_eq!(taken(&mut broker), Some((2, b"four".to_vec())));
    broker.says(1, submit("u", "five"), ["1 new j3"]);
    broker.says(4, finish(2), ["4 finished j2"]);
    assert_eq!(broker.place(3), "scheduled 2100");
}

#[test]
fn a_submit_does_not_become_a_job_that_is_over_and_kept() {
    let mut broker = Broker::new();
    broker.says(
        1,
        push("q")
            .unique_until("u", Clash::Attach, KeyUntil::Gone)
            .keep_result(9_000),
        ["1 new j1"],
    );
    assert!(taken(&mut broker).is_some());
    broker.says(4, finish(1), ["4 finished j1"]);
    broker.hear(1, rule(RULE));
    broker.says(1, submit("u", "two"), ["1 new j2"]);
    assert_eq!(
        (broker.place(1), broker.place(2)),
        ("done until 10000".into(), "scheduled 1100".into())
    );
}

#[test]
fn with_join_a_submit_is_the_job_that_runs() {
    let mut broker = coalescing(Coalesce {
        once_more: false,
        ..RULE
    });
    broker.hear(1, submit("u", "one"));
    broker.at(1_100, []);
    taken(&mut broker);
    broker.says(2, foreground("u", "two"), ["2 attached j1"]);
    broker.says(
        4,
        finish(1),
        ["2 ended j1 succeeded result", "4 finished j1"],
    );
    assert_eq!(broker.engine.job_count(), 0);
}

#[test]
fn listeners_of_all_submits_get_the_end_of_the_run_that_they_became() {
    let mut broker = coalescing(RULE);
    broker.says(1, foreground("u", "one"), ["1 new j1"]);
    broker.says(2, foreground("u", "two"), ["2 attached j1"]);
    broker.at(1_100, []);
    assert_eq!(taken(&mut broker), Some((1, b"two".to_vec())));
    broker.says(3, foreground("u", "three"), ["3 new j2"]);
    broker.says(
        4,
        finish(1),
        [
            "2 ended j1 succeeded result",
            "1 ended j1 succeeded result",
            "4 finished j1",
        ],
    );
    broker.at(1_200, []);
    assert_eq!(taken(&mut broker), Some((2, b"three".to_vec())));
    broker.says(
        4,
        finish(2),
        ["3 ended j2 succeeded result", "4 finished j2"],
    );
}

#[test]
fn a_job_that_is_to_be_retried_gets_the_new_body_and_the_worker_of_before_cannot_end_it() {
    let mut broker = coalescing(RULE);
    let named = |jid: &'static str, text: &'static str| {
        submit("u", text).named(jid).retry(3, Backoff::Fixed(60))
    };
    broker.hear(1, named("jid1", "one"));
    broker.at(1_100, []);
    let token = match broker
        .hear(4, take(["q"]).for_ms(50, OnExpiry::Fail))
        .as_slice()
    {
        [(_, Event::Reply(_, Reply::Taken(job)))] => job.token,
        other => panic!("{other:?}"),
    };
    broker.at(1_150, []);
    assert_eq!(broker.place(1), "retrying 1210");
    broker.says(1, named("jid2", "two"), ["1 attached j1"]);
    assert_eq!(
        broker.place(1),
        "retrying 1250",
        "quiet is longer than the pause"
    );
    let late = |broker: &mut Broker, proof| {
        let report = LeaseCommand::Finish {
            job: id(1),
            proof,
            result: Bytes::new(),
        };
        words(&broker.hear(4, Command::Lease(report)))
    };
    assert_eq!(
        late(&mut broker, Proof::Token(token)),
        ["4 refused: lease not held"]
    );
    assert_eq!(
        late(&mut broker, Proof::Late),
        ["4 refused: lease not held"]
    );
    broker.restart(Limits::default());
    assert_eq!(
        late(&mut broker, Proof::Token(token)),
        ["4 refused: lease not held"]
    );
    broker.at(1_250, []);
    assert_eq!(taken(&mut broker), Some((1, b"two".to_vec())));
    let events = broker.hear(1, look(1));
    let [
        (
            _,
            Event::Reply(
                _,
                Reply::Looked {
                    job: Some(view), ..
                },
            ),
        ),
    ] = events.as_slice()
    else {
        panic!("{events:?}")
    };
    assert_eq!((view.job.name(), view.job.failures), (&b"jid2"[..], 1));
    assert_ne!(token, Token(0));
}

#[test]
fn a_run_that_failed_gives_way_to_the_submit_that_came_meanwhile() {
    let mut broker = coalescing(RULE);
    broker.hear(1, submit("u", "one").retry(1, Backoff::Fixed(500)));
    broker.at(1_100, []);
    taken(&mut broker);
    broker.says(1, submit("u", "two").retry(0, Backoff::None), ["1 new j2"]);
    broker.hear(4, fail(1));
    assert_eq!(
        (broker.place(1), broker.place(2)),
        ("gone".into(), "retrying 1600".into())
    );
    broker.says(1, submit("u", "three"), ["1 attached j2"]);
    assert_eq!(
        broker.place(2),
        "retrying 1600",
        "the pause after a failure stays"
    );
    broker.at(1_600, []);
    assert_eq!(taken(&mut broker), Some((2, b"three".to_vec())));
}

#[test]
fn clients_hear_of_the_end_of_the_job_that_took_theirs_in() {
    for latest in [true, false] {
        let mut broker = coalescing(Coalesce { latest, ..RULE });
        broker.hear(1, foreground("u", "one").retry(3, Backoff::Fixed(500)));
        broker.at(1_100, []);
        taken(&mut broker);
        broker.says(
            2,
            foreground("u", "two").retry(3, Backoff::Fixed(500)),
            ["2 new j2"],
        );
        broker.hear(4, fail(1));
        broker.at(1_600, []);
        let (lead, body) = if latest { (2, b"two") } else { (1, b"one") };
        assert_eq!(taken(&mut broker), Some((lead, body.to_vec())));
        assert_eq!(broker.place(3 - lead), "shelved");
        let told = words(&broker.hear(4, finish(lead)));
        for (client, job) in [(1, 1), (2, 2)] {
            let ends = told
                .iter()
                .filter(|word| word.starts_with(&format!("{client} ended j{job} succeeded")))
                .count();
            assert_eq!(ends, 1, "{told:?}");
        }
        assert_eq!(
            (broker.place(1), broker.place(2)),
            ("gone".into(), "gone".into())
        );
    }
}

#[test]
fn what_is_kept_for_good_runs_itself_when_the_client_it_gave_way_to_has_left() {
    let mut broker = coalescing(RULE);
    broker.hear(1, submit("u", "one").retry(3, Backoff::Fixed(500)));
    broker.at(1_100, []);
    taken(&mut broker);
    broker.says(2, foreground("u", "two"), ["2 new j2"]);
    broker.hear(4, fail(1));
    assert_eq!(
        (broker.place(1), broker.place(2)),
        ("shelved".into(), "retrying 1600".into())
    );
    broker.hear(2, ClientCommand::Close);
    broker.at(1_200, []);
    assert_eq!(taken(&mut broker), Some((1, b"one".to_vec())));
}

#[test]
fn the_running_job_has_its_key_again_when_the_one_behind_it_is_gone() {
    let mut broker = coalescing(RULE);
    broker.hear(1, submit("u", "one"));
    broker.at(1_100, []);
    taken(&mut broker);
    broker.says(1, submit("u", "two"), ["1 new j2"]);
    broker.hear(1, Command::Job(JobCommand::Cancel(id(2))));
    broker.says(1, submit("u", "three"), ["1 new j3"]);
    broker.hear(
        1,
        mutate(
            Filter {
                ids: vec![JobId(3)],
                ..all()
            },
            Mutation::Kill,
        ),
    );
    assert!(broker.place(3).starts_with("dead"), "{}", broker.place(3));
    broker.says(1, submit("u", "four"), ["1 new j4"]);
    broker.at(5_000, []);
    assert_eq!(broker.place(4), "shelved");
    broker.says(4, finish(1), ["4 finished j1"]);
    broker.at(5_000, []);
    assert_eq!(taken(&mut broker), Some((4, b"four".to_vec())));
}

/// An engine with the contents of the journal.
fn recover(broker: &mut Broker) {
    let mut engine = Engine::new(Limits::default(), 1);
    engine.recall_meta(broker.engine.meta().clone(), true);
    broker
        .engine
        .queues()
        .for_each(|queue| engine.recall_queue(queue.image().clone()));
    for job in broker.engine.jobs().filter(|job| job.durable) {
        let mut job = job.clone();
        job.extra
            .iter_mut()
            .for_each(|extra| extra.listeners.clear());
        assert!(engine.recall_job(job));
    }
    engine.wake_up();
    broker.engine = engine;
    (1..=4).for_each(|client| broker.open(client));
}

/// Another daemon becomes the leader. The grace is over at 9,000 ms.
fn succeed(broker: &mut Broker) {
    recover(broker);
    broker
        .engine
        .succeed(&mut Context::new(Timestamp(broker.now), 1));
    broker.engine.end_grace_at(Timestamp(9_000));
}

fn claim(claim: Claim) -> Command {
    Command::Claim(Box::new(claim))
}

/// The client that has submitted a foreground job claims it.
fn pushed(job: u64, push: Push) -> Command {
    claim(Claim::Pushed {
        job: JobId(job),
        new: Box::new(push.0),
    })
}

/// A worker has a job, by the first delivery.
fn holds(job: u64) -> Command {
    let (token, until, protocol) = (Token::of(0, 1), Timestamp::NEVER, Protocol::GEARMAN);
    let held = Held {
        token,
        until,
        protocol,
        queue: name("q"),
        name: Bytes::new(),
        key: Bytes::new(),
    };
    claim(Claim::Holds {
        job: JobId(job),
        held,
    })
}

/// A running job, and another one behind it.
fn running(first: Push, second: Push) -> Broker {
    let mut broker = coalescing(RULE);
    broker.hear(1, first);
    broker.at(1_100, []);
    assert!(taken(&mut broker).is_some());
    broker.says(2, second, ["2 new j2"]);
    broker.at(2_000, []);
    assert_eq!(
        (broker.place(1), broker.place(2)),
        ("leased".into(), "shelved".into())
    );
    broker
}

/// Client 4 has job 1, and job 2 is parked until job 1 finishes, whatever happens in between.
fn one_then_two(mut broker: Broker) {
    assert_eq!(
        (broker.place(1), broker.place(2)),
        ("leased".into(), "shelved".into())
    );
    broker.at(9_000, []);
    assert_eq!(taken(&mut broker), None);
    broker.says(3, submit("u", "three"), ["3 attached j2"]);
    broker.hear(4, finish(1));
    broker.at(9_100, []);
    assert_eq!(taken(&mut broker), Some((2, b"three".to_vec())));
}

#[test]
fn under_a_new_leader_a_job_waits_for_the_one_that_a_worker_still_has() {
    let (first, second) = (|| foreground("u", "one"), || foreground("u", "two"));
    let table: [(Push, &[(u64, Command)]); 3] = [
        (
            submit("u", "two"),
            &[(1, pushed(1, first())), (4, holds(1))],
        ),
        (
            submit("u", "two"),
            &[(4, holds(1)), (1, pushed(1, first()))],
        ),
        (
            second(),
            &[
                (2, pushed(2, second())),
                (4, holds(1)),
                (1, pushed(1, first())),
            ],
        ),
    ];
    for (behind, claims) in table {
        let mut broker = running(first(), behind);
        succeed(&mut broker);
        broker.at(2_000, []);
        claims
            .iter()
            .for_each(|(client, claim)| broker.says(*client, claim.clone(), []));
        one_then_two(broker);
    }
}

#[test]
fn under_a_new_leader_a_foreground_job_follows_a_durable_one() {
    let mut broker = running(submit("u", "one"), foreground("u", "two"));
    succeed(&mut broker);
    broker.says(2, pushed(2, foreground("u", "two")), []);
    broker.says(4, holds(1), []);
    one_then_two(broker);
}

#[test]
fn under_a_new_leader_a_submit_does_not_become_a_job_that_a_worker_may_still_have() {
    let mut broker = coalescing(RULE);
    broker.hear(1, submit("u", "one"));
    broker.at(1_100, []);
    assert!(taken(&mut broker).is_some());
    succeed(&mut broker);
    broker.says(2, submit("u", "two"), ["2 new j1048578"]);
    broker.says(4, holds(1), []);
    broker.at(9_000, []);
    assert_eq!(
        (broker.place(1), broker.place(1_048_578)),
        ("leased".into(), "shelved".into())
    );
    assert_eq!(body(&broker, 1), b"one");
}

#[test]
fn a_job_that_a_client_brings_back_has_its_identity_again() {
    let policy = Policy {
        key: Some(KeySource::Prefix(b'|')),
        ..Policy::default()
    };
    let rows = [(
        name("q"),
        QueueSettings {
            policy,
            ..QueueSettings::default()
        },
    )];
    let patterns = || {
        Command::Queue(QueueCommand::SetPatterns(Box::new(
            rows.clone().into_iter().collect(),
        )))
    };
    let by_key = || {
        rule(Coalesce {
            by_key: true,
            ..RULE
        })
    };
    let job = |text: &'static str| foreground("", text);
    let mut broker = Broker::new();
    broker.hear(1, patterns());
    broker.hear(1, by_key());
    broker.says(1, job("acme|1"), ["1 new j1"]);
    broker.at(1_100, []);
    assert!(taken(&mut broker).is_some());
    succeed(&mut broker);
    broker.hear(1, patterns());
    broker.hear(1, by_key());
    broker.says(1, pushed(1, job("acme|1")), []);
    broker.says(4, holds(1), []);
    broker.says(2, job("acme|2"), ["2 new j1048578"]);
    broker.at(9_000, []);
    assert_eq!(
        (broker.place(1), broker.place(1_048_578)),
        ("leased".into(), "shelved".into())
    );
}

/// `latest = false`: the body stays, and is not in memory.
#[test]
fn a_submit_that_becomes_a_job_leaves_it_the_key_that_it_has() {
    let policy = Policy {
        key: Some(KeySource::Prefix(b'|')),
        key_running_max: Some(1),
        ..Policy::default()
    };
    let rows = [(
        name("q"),
        QueueSettings {
            policy,
            ..QueueSettings::default()
        },
    )];
    let mut broker = Broker::new();
    broker.hear(
        1,
        Command::Queue(QueueCommand::SetPatterns(Box::new(
            rows.into_iter().collect(),
        ))),
    );
    broker.hear(
        1,
        rule(Coalesce {
            latest: false,
            quiet_ms: 0,
            ..RULE
        }),
    );
    let long =
        "acme|a body that is longer than what is kept of its place, so that it can be elsewhere";
    broker.says(1, submit("u", long), ["1 new j1"]);
    assert!(broker.engine.set_stored(JobId(1), long.as_bytes(), 0));
    broker.says(1, submit("u", "umbrella|"), ["1 attached j1"]);
    let keys = broker.hear(
        1,
        Command::Query(Query::Keys {
            queue: name("q"),
            after: Default::default(),
            limit: 9,
        }),
    );
    let [(_, Event::Reply(_, Reply::Keys { rows, .. }))] = keys.as_slice() else {
        panic!("{keys:?}")
    };
    assert_eq!(
        rows.iter()
            .map(|row| (&*row.key, row.waiting))
            .collect::<Vec<_>>(),
        [(&b"acme"[..], 1)]
    );
}

#[test]
fn a_restart_forgets_no_submit_and_frees_a_job_whose_predecessor_is_gone() {
    let mut broker = coalescing(RULE);
    broker.says(1, submit("u", "one"), ["1 new j1"]);
    broker.at(1_090, []);
    broker.restart(Limits::default());
    broker.says(1, submit("u", "two"), ["1 attached j1"]);
    assert_eq!(broker.place(1), "scheduled 1190");
    broker.at(1_190, []);
    taken(&mut broker);
    broker.says(1, submit("u", "three"), ["1 new j2"]);
    // The lease is not journalled, so the first one runs again, before the second.
    broker.restart(Limits::default());
    broker.at(1_290, []);
    assert_eq!(
        (broker.place(1), broker.place(2)),
        ("ready".into(), "shelved".into())
    );
    broker.says(1, submit("u", "four"), ["1 attached j2"]);
    broker.restart(Limits::default());
    assert_eq!(taken(&mut broker), Some((1, b"two".to_vec())));
    broker.says(4, finish(1), ["4 finished j1"]);
    broker.at(1_400, []);
    assert_eq!(taken(&mut broker), Some((2, b"four".to_vec())));

    // A foreground job is not in the journal.
    let mut broker = coalescing(RULE);
    broker.hear(1, foreground("u", "one"));
    broker.at(1_100, []);
    taken(&mut broker);
    broker.hear(1, submit("u", "two"));
    broker.at(1_200, []);
    assert_eq!(broker.place(2), "shelved");
    recover(&mut broker);
    broker.at(1_200, []);
    assert_eq!(taken(&mut broker), Some((2, b"two".to_vec())));
}

#[test]
fn the_key_of_the_queues_policy_can_be_the_identity() {
    let mut broker = Broker::new();
    let policy = Policy {
        key: Some(KeySource::Prefix(b'|')),
        ..Policy::default()
    };
    let rows = [(
        name("q"),
        QueueSettings {
            policy,
            ..QueueSettings::default()
        },
    )];
    broker.hear(
        1,
        Command::Queue(QueueCommand::SetPatterns(Box::new(
            rows.into_iter().collect(),
        ))),
    );
    broker.hear(
        1,
        rule(Coalesce {
            by_key: true,
            ..RULE
        }),
    );
    let job = |text: &'static str| push("q").with(|job| job.body = text.into());
    broker.says(1, job("acme|1"), ["1 new j1"]);
    broker.says(1, job("acme|2"), ["1 attached j1"]);
    broker.says(1, job("zeta|1"), ["1 new j2"]);
    // A unique ID with the same text is another identity, and jobs without a key are never merged.
    broker.says(1, submit("acme", "none"), ["1 new j3"]);
    broker.says(1, job("none"), ["1 new j4"]);
    broker.says(1, job("none"), ["1 new j5"]);
    assert_eq!(body(&broker, 1), b"acme|2");
    assert_eq!(
        [3, 4, 5].map(|job| broker.place(job)),
        ["ready", "ready", "ready"].map(String::from)
    );
}

#[test]
fn jobs_without_an_identity_and_jobs_of_a_batch_are_jobs_of_their_own() {
    let mut broker = coalescing(RULE);
    broker.says(1, submit("\0body", "one"), ["1 new j1"]);
    broker.says(1, submit("", "one"), ["1 new j2"]);
    broker.says(1, push("q"), ["1 new j3"]);
    broker.says(1, push("q").named("jid"), ["1 new j4"]);
    for job in 1..=4 {
        assert_eq!(broker.place(job), "ready", "{job}");
    }
    broker.says(1, push("c").cycle().unique("u", Clash::Keep), ["1 new j5"]);
    assert_eq!(broker.place(5), "ready");
}

#[test]
fn a_job_expires_a_ttl_after_its_last_submit() {
    let mut broker = Broker::new();
    broker.hear(
        1,
        rules(QueueRules {
            coalesce: Some(RULE),
            ttl_ms: Some(50),
            ..QueueRules::default()
        }),
    );
    broker.hear(1, submit("u", "one"));
    broker.at(1_090, []);
    broker.hear(1, submit("u", "two"));
    broker.at(1_200, []);
    assert_eq!(broker.place(1), "ready");
    broker.at(1_240, []);
    assert_eq!(broker.place(1), "gone");
    // Also behind a running job.
    broker.hear(1, submit("u", "three"));
    broker.at(1_340, []);
    taken(&mut broker);
    broker.says(1, submit("u", "four"), ["1 new j3"]);
    broker.at(1_500, []);
    assert_eq!(broker.place(3), "gone");
    broker.says(1, submit("u", "five"), ["1 new j4"]);
    broker.at(1_620, []);
    assert_eq!(broker.place(4), "shelved");
}
