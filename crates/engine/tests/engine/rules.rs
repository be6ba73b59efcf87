//! The rules of a queue, and jobs that cannot be expressed in the worker's protocol.

use std::collections::BTreeSet;

use bytes::Bytes;
use windlass_engine::{
    Backoff, BatchCommand, Clash, ClientCommand, Codec, Command, Event, Expiry, JobCommand, JobId,
    JobRef, JobState, JobStateKind, LeaseCommand, Limits, Listen, MISFIT, Mutation, Notice, Proof,
    Protocol, Query, QueueCommand, QueueKind, QueueRow, QueueRules, QueueSettings, Reply, Retry,
    Timestamp, Token, Unique,
};

use crate::common::*;

fn rule(queue: &'static str, rules: QueueRules) -> Command {
    Command::Queue(QueueCommand::SetRules {
        queue: name(queue),
        rules: rules.into(),
    })
}

fn misfit(job: u64, proof: Proof) -> Command {
    Command::Lease(LeaseCommand::Unconvertible {
        job: id(job),
        proof,
        why: name("base64: not one string"),
    })
}

fn rows(broker: &mut Broker) -> Vec<QueueRow> {
    let events = broker.hear(1, list_queues());
    let [(_, Event::Reply(_, Reply::Queues { rows, .. }))] = events.as_slice() else {
        panic!("{events:?}")
    };
    rows.clone()
}

const JSON: QueueRules = QueueRules {
    codec: Codec::Json,
    retry: None,
    body_bytes_max: None,
    ttl_ms: None,
    dead_ms: None,
    dead_max: None,
    dedup_ms: None,
    coalesce: None,
    history: None,
};

#[test]
fn rules_are_kept_for_an_unknown_queue() {
    let mut broker = Broker::new();
    broker.says(1, rule("q", JSON), ["1 done"]);
    assert_eq!(rows(&mut broker), [], "it is not made known");
    broker.says(1, push("q"), ["1 new j1"]);
    assert_eq!(rows(&mut broker).first().map(|row| row.rules), Some(JSON));
    // Jobs are looked at and taken with the rule.
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
    assert_eq!(view.codec, Codec::Json);
    let events = broker.hear(1, take(["q"]));
    let [(_, Event::Reply(_, Reply::Taken(job)))] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(job.codec, Codec::Json);
    broker.says(1, finish(1), ["1 finished j1"]);
    // The rule stays after the queue, as a throttle does, until it is removed.
    broker.says(1, remove_queue("q", false), ["1 done"]);
    assert_eq!(
        broker
            .engine
            .queues()
            .next()
            .map(|queue| queue.image().rules()),
        Some(JSON)
    );
    broker.says(1, rule("q", QueueRules::default()), ["1 done"]);
    assert_eq!(broker.engine.queues().count(), 0);
    broker.says(1, rule("q", QueueRules::default()), ["1 done"]);
    assert_eq!(
        broker.engine.queues().count(),
        0,
        "a queue without rules is dropped"
    );
}

fn patterns(rules: &[(&'static str, QueueRules)]) -> Command {
    let of = |rules: QueueRules| QueueSettings {
        rules,
        ..QueueSettings::default()
    };
    let rules = rules
        .iter()
        .map(|(pattern, rules)| (name(pattern), of(*rules)))
        .collect();
    Command::Queue(QueueCommand::SetPatterns(Box::new(rules)))
}

#[test]
fn rules_of_a_pattern_hold_for_queues_that_come_later_and_those_that_are_there() {
    let limit = |most| QueueRules {
        body_bytes_max: Some(most),
        ..QueueRules::default()
    };
    let refused = |most: u32| format!("1 refused: body of 4 bytes, limit of the queue {most}");
    let mut broker = Broker::new();
    broker.says(1, push("mail-old"), ["1 new j1"]);
    broker.says(
        1,
        patterns(&[
            ("mail-*", limit(3)),
            ("mail-x", QueueRules::default()),
            ("*", limit(1)),
        ]),
        ["1 done"],
    );
    for (queue, most) in [("mail-old", 3), ("mail-new", 3), ("other", 1)] {
        broker.says(1, push(queue), [refused(most).as_str()]);
    }
    broker.says(1, push("mail-x"), ["1 new j2"]);
    // Rules set by name take precedence over those of any pattern, and patterns apply again without
    // them.
    broker.says(1, rule("mail-old", limit(2)), ["1 done"]);
    broker.says(1, push("mail-old"), [refused(2).as_str()]);
    broker.says(1, rule("mail-old", QueueRules::default()), ["1 done"]);
    broker.says(1, push("mail-old"), [refused(3).as_str()]);
    let ruled: Vec<_> = rows(&mut broker).iter().map(|row| row.rules).collect();
    assert_eq!(ruled, [limit(3), QueueRules::default()]);
    broker.says(1, patterns(&[]), ["1 done"]);
    broker.says(1, push("mail-old"), ["1 new j3"]);
}

#[test]
fn rules_for_an_invalid_name_or_beyond_the_queue_limit_are_refused() {
    let mut broker = Broker::limited(|limits| (limits.name_bytes_max, limits.queues_max) = (3, 1));
    broker.says(
        1,
        rule("long", JSON),
        ["1 refused: name of 4 bytes, limit 3"],
    );
    broker.says(1, rule("q", JSON), ["1 done"]);
    broker.says(
        1,
        rule("r", JSON),
        ["1 refused: limit of queues reached: 1"],
    );
    broker.says(1, push("q").cycle(), ["1 refused: queue of the other kind"]);
}

#[test]
fn a_body_that_is_too_long_is_refused_in_every_command() {
    let refused = "1 refused: body of 4 bytes, limit of the queue 3";
    let limit = |queue, most| {
        rule(
            queue,
            QueueRules {
                body_bytes_max: Some(most),
                ..QueueRules::default()
            },
        )
    };
    let mut broker = Broker::new();
    broker.says(1, push("q"), ["1 new j1"]);
    broker.says(1, create("c", QueueKind::Cycle), ["1 done"]);
    broker.says(1, push("c").cycle().named("e"), ["1 new j2"]);
    broker.hear(1, limit("q", 3));
    broker.hear(1, limit("c", 4));
    broker.says(1, push("q"), [refused]);
    broker.says(
        1,
        push("q").with(|job| job.body = name("bod")),
        ["1 new j3"],
    );
    broker.says(1, every(60_000, push("q")), [refused]);
    // Existing jobs stay, but their bodies cannot be replaced.
    broker.says(
        1,
        Command::Job(JobCommand::Replace {
            job: id(1),
            body: name("four"),
        }),
        [refused],
    );
    broker.says(
        1,
        Command::Job(JobCommand::Replace {
            job: id(1),
            body: name(""),
        }),
        ["1 done"],
    );
    broker.says(1, take_round("c"), ["1 took j2.2"]);
    let repay = Command::Lease(LeaseCommand::Repay {
        job: id(2),
        proof: token(2),
        body: name("value"),
        to: windlass_engine::RepayTo::Front,
    });
    broker.says(
        1,
        repay,
        ["1 refused: body of 5 bytes, limit of the queue 4"],
    );
    // Batches do not bypass the limit either.
    let batch = windlass_engine::NewBatch {
        protocol: Protocol::FAKTORY,
        name: name("b"),
        parent: None,
        about: Bytes::new(),
        meta: Bytes::new(),
        complete: Some(Box::new(push("q").0)),
        success: None,
        expires_ms: 1_000,
    };
    broker.says(
        1,
        Command::Batch(BatchCommand::New(Box::new(batch))),
        [refused],
    );
    broker.says(1, rule("q", QueueRules::default()), ["1 done"]);
    broker.says(1, push("q"), ["1 new j4"]);
}

#[test]
fn a_schedule_older_than_the_limit_runs_once_the_limit_allows() {
    let mut broker = Broker::new();
    broker.hear(1, every(1_000, push("q")));
    broker.hear(
        1,
        rule(
            "q",
            QueueRules {
                body_bytes_max: Some(3),
                ..QueueRules::default()
            },
        ),
    );
    broker.at(2_000, []);
    assert_eq!(broker.engine.job_count(), 0);
    broker.hear(1, rule("q", QueueRules::default()));
    broker.at(3_000, []);
    assert_eq!(broker.engine.job_count(), 1);
}

#[test]
fn the_queues_retry_policy_applies_if_the_producer_set_none() {
    let twice = Retry {
        failures_max: 2,
        losses_max: 7,
        backoff: Backoff::Fixed(9),
    };
    let own = Retry {
        failures_max: 5,
        losses_max: 0,
        backoff: Backoff::None,
    };
    let table = [
        (
            "said nothing, and there is a rule",
            true,
            Some(twice),
            twice,
        ),
        ("said nothing, and there is none", true, None, own),
        ("said something", false, Some(twice), own),
    ];
    for (when, retry_default, retry, expected) in table {
        let mut broker = Broker::new();
        broker.hear(1, rule("q", QueueRules { retry, ..JSON }));
        let job = || push("q").with(|job| (job.retry, job.retry_default) = (own, retry_default));
        broker.says(1, job(), ["1 new j1"]);
        assert_eq!(
            broker
                .engine
                .job(windlass_engine::JobId(1))
                .map(|job| job.retry),
            Some(expected),
            "{when}"
        );
        // A schedule's job uses the rule when it is pushed, not when the schedule is set.
        broker.hear(1, rule("q", QueueRules::default()));
        broker.hear(1, every(1_000, job()));
        broker.hear(1, rule("q", QueueRules { retry, ..JSON }));
        broker.at(2_000, []);
        let retries: Vec<_> = broker.engine.jobs().map(|job| job.retry).collect();
        assert_eq!(retries, [expected, expected], "{when}");
    }
}

#[test]
fn a_job_with_a_conversion_error_is_dead_lettered() {
    // This applies to any retry policy, with or without listeners.
    for failures_max in [0, 25, -1] {
        let mut broker = Broker::new();
        broker.says(
            1,
            push("q").listen().retry(failures_max, Backoff::None),
            ["1 new j1"],
        );
        broker.says(2, take(["q"]), ["2 took j1.1"]);
        let said = broker.hear(2, misfit(1, Proof::Connection));
        let [
            (_, Event::Notice(Notice::Ended { end, .. })),
            (_, Event::Reply(_, Reply::Done)),
        ] = said.as_slice()
        else {
            panic!("{said:?}")
        };
        let windlass_engine::End::Failed(failure) = end else {
            panic!("{end:?}")
        };
        assert_eq!(
            (&*failure.kind, &*failure.message),
            (MISFIT, &b"base64: not one string"[..])
        );
        let job = broker
            .engine
            .job_named(windlass_engine::Namespace::UNNAMED, b"")
            .or_else(|| broker.engine.jobs().next())
            .unwrap();
        assert_eq!(
            (job.state.kind(), job.failures, job.attempts),
            (JobStateKind::Dead, 0, 1),
            "{failures_max}"
        );
        assert_eq!(
            job.extra
                .as_deref()
                .and_then(|extra| extra.failure.clone())
                .as_ref(),
            Some(failure)
        );
        let totals = broker.engine.meta().totals;
        assert_eq!((totals.misfits, totals.buried, totals.failed), (1, 1, 0));
        assert_eq!(
            broker.engine.meta().protocols,
            [(Protocol::GEARMAN, totals)]
        );
        // It can be retried, by a worker that can take it.
        broker.hear(1, mutate(placed(JobStateKind::Dead), Mutation::Requeue));
        broker.says(3, take(["q"]), ["3 took j1.2"]);
        broker.says(3, finish(1), ["3 finished j1"]);
    }
}

#[test]
fn a_foreground_job_with_a_conversion_error_is_removed() {
    let mut broker = Broker::new();
    broker.says(1, push("q").foreground(), ["1 new j1"]);
    broker.says(2, take(["q"]), ["2 took j1.1"]);
    let said = broker.hear(2, misfit(1, Proof::Connection));
    assert!(
        matches!(
            said.as_slice(),
            [
                (_, Event::Notice(Notice::Ended { .. })),
                (_, Event::Reply(_, Reply::Done))
            ]
        ),
        "{said:?}"
    );
    assert_eq!(broker.engine.job_count(), 0);
    broker.engine.check();
}

#[test]
fn only_its_worker_may_report_a_conversion_error() {
    let mut broker = Broker::new();
    broker.says(1, push("q"), ["1 new j1"]);
    broker.says(2, misfit(1, Proof::AnyLease), ["2 refused: lease not held"]);
    broker.says(2, misfit(9, Proof::AnyLease), ["2 refused: job unknown"]);
    broker.says(2, take(["q"]), ["2 took j1.1"]);
    broker.says(
        3,
        misfit(1, Proof::Connection),
        ["3 refused: lease not held"],
    );
    broker.says(3, misfit(1, token(7)), ["3 refused: lease not held"]);
    broker.says(3, misfit(1, Proof::Late), ["3 refused: lease not held"]);
    broker.says(3, misfit(1, token(1)), ["3 done"]);
    broker.says(1, push("c").cycle(), ["1 new j2"]);
    broker.says(2, take_round("c"), ["2 took j2.2"]);
    broker.says(
        2,
        misfit(2, Proof::AnyLease),
        ["2 refused: queue of the other kind"],
    );
}

#[test]
fn rules_and_their_effects_survive_a_restart() {
    let mut broker = Broker::new();
    broker.hear(1, rule("q", JSON));
    for protocol in [Protocol::GEARMAN, Protocol::FAKTORY] {
        broker.hear(1, push("q").with(|job| job.protocol = protocol));
    }
    broker.restart(Limits::default());
    let info = windlass_engine::ClientInfo {
        protocol: Some(Protocol::FAKTORY),
        ..Default::default()
    };
    broker.hear(5, ClientCommand::Open(info));
    let token = Token::of(1, 1).0;
    broker.says(5, take(["q"]), [format!("5 took j2.{token}").as_str()]);
    broker.says(5, take(["q"]), ["5 empty"]);
    let looked = broker.hear(2, Query::Job(JobRef::Id(windlass_engine::JobId(1))));
    assert!(
        matches!(looked.as_slice(), [(_, Event::Reply(_, Reply::Looked { job: Some(view), .. }))] if view.codec == Codec::Json)
    );
}

#[test]
fn a_job_expires_after_waiting_for_the_ttl_of_its_queue_or_sooner() {
    let mut broker = Broker::new();
    broker.hear(
        1,
        rule(
            "q",
            QueueRules {
                ttl_ms: Some(1_000),
                ..QueueRules::default()
            },
        ),
    );
    let wall = |ms| Timestamp(ms);
    broker.says(1, push("q"), ["1 new j1"]);
    broker.says(
        1,
        push("q").with(|job| job.expires = Expiry::By(wall(1_500))),
        ["1 new j2"],
    );
    broker.says(
        1,
        push("q").with(|job| job.expires = Expiry::At(wall(6_000))),
        ["1 new j3"],
    );
    broker.says(
        1,
        push("q").with(|job| job.not_before = Some(wall(4_000))),
        ["1 new j4"],
    );
    broker.hear(1, create("c", QueueKind::Cycle));
    broker.hear(
        1,
        rule(
            "c",
            QueueRules {
                ttl_ms: Some(1),
                ..QueueRules::default()
            },
        ),
    );
    broker.says(1, push("c").cycle(), ["1 new j5"]);
    let left = |broker: &Broker| {
        (1..=5)
            .filter(|id| broker.engine.job(JobId(*id)).is_some())
            .collect::<Vec<_>>()
    };
    for (ms, expected) in [
        (1_499, vec![1, 2, 3, 4, 5]),
        (1_500, vec![1, 3, 4, 5]),
        (2_000, vec![4, 5]),
        (5_000, vec![5]),
    ] {
        broker.at(ms, []);
        assert_eq!(left(&broker), expected, "at {ms} ms");
    }
}

#[test]
fn a_queue_keeps_its_dead_jobs_by_its_own_rules() {
    let rules = |dead_ms, dead_max| QueueRules {
        dead_ms,
        dead_max,
        ..QueueRules::default()
    };
    let dead = |broker: &Broker| {
        let dead = broker
            .engine
            .jobs()
            .filter(|job| matches!(job.state, JobState::Dead(_)));
        dead.map(|job| job.id.0).collect::<BTreeSet<_>>()
    };
    let die = |broker: &mut Broker, queue| {
        broker.hear(1, push(queue).with(|job| job.retry.failures_max = -1));
        broker.hear(1, mutate(placed(JobStateKind::Ready), Mutation::Kill));
    };
    let mut broker = Broker::new();
    for queue in ["q", "q", "q", "other"] {
        die(&mut broker, queue);
    }
    assert_eq!(dead(&broker), [1, 2, 3, 4].into());
    // The oldest of the present jobs are dropped, whatever other queues have, and so are later
    // ones.
    broker.hear(1, patterns(&[("q*", rules(Some(1_000), Some(2)))]));
    broker.at(1_001, []);
    assert_eq!(dead(&broker), [2, 3, 4].into());
    die(&mut broker, "q");
    broker.at(1_002, []);
    assert_eq!(
        dead(&broker),
        [2, 3, 4].into(),
        "the one with the shortest time goes first"
    );
    broker.hear(1, patterns(&[("q*", rules(Some(1_000), None))]));
    die(&mut broker, "q");
    broker.at(2_002, []);
    assert_eq!(dead(&broker), [2, 3, 4].into(), "it was kept for a second");
}

fn dedup(queue: &'static str, ms: u64) -> Command {
    rule(
        queue,
        QueueRules {
            dedup_ms: Some(ms),
            ..QueueRules::default()
        },
    )
}

/// A background job of this protocol, with this name and key.
fn submit(protocol: Protocol, (jid, key): (&'static str, &'static str), clash: Clash) -> Push {
    push("q").with(|job| {
        job.protocol = protocol;
        job.name = (!jid.is_empty()).then(|| name(jid));
        job.unique = (!key.is_empty()).then(|| Unique {
            key: name(key),
            clash,
            until: windlass_engine::KeyUntil::EndOr(Timestamp(1_500)),
        });
    })
}

#[test]
fn a_repeated_push_is_the_same_job_while_it_lives_and_for_the_window_after_its_success() {
    let table = [
        // Gearman's unique ID; FWP's key, whatever its time limit is; FWP's jid, and EventMQ's ID.
        (Protocol::GEARMAN, ("", "u"), Clash::Attach),
        (Protocol::FAKTORY, ("jid", "k"), Clash::Refuse),
        (Protocol::FAKTORY, ("jid", ""), Clash::Refuse),
        (Protocol::EVENTMQ, ("id", ""), Clash::Refuse),
    ];
    let same = "1 attached j1";
    for (protocol, names, clash) in table {
        let mut broker = Broker::new();
        broker.hear(1, dedup("q", 2_000));
        broker.says(1, submit(protocol, names, clash), ["1 new j1"]);
        broker.at(2_000, []);
        broker.says(1, submit(protocol, names, clash), [same]);
        broker.hear(1, take(["q"]));
        broker.says(1, submit(protocol, names, clash), [same]);
        broker.says(1, finish(1), ["1 finished j1"]);
        broker.at(3_999, []);
        broker.says(1, submit(protocol, names, clash), [same]);
        broker.restart(Limits::default());
        broker.says(1, submit(protocol, names, clash), [same]);
        broker.at(4_000, []);
        broker.says(1, submit(protocol, names, clash), ["1 new j2"]);
    }
}

#[test]
fn a_background_push_that_joined_a_foreground_job_is_remembered() {
    let mut broker = Broker::new();
    broker.hear(1, dedup("q", 2_000));
    let submit = || submit(Protocol::GEARMAN, ("", "u"), Clash::Attach);
    broker.says(
        2,
        submit().with(|job| (job.durable, job.listen) = (false, Listen::Yes)),
        ["2 new j1"],
    );
    broker.says(1, submit(), ["1 attached j1"]);
    broker.hear(4, take(["q"]));
    broker.says(
        4,
        finish(1),
        ["2 ended j1 succeeded result", "4 finished j1"],
    );
    broker.says(1, submit(), ["1 attached j1"]);
    broker.restart(Limits::default());
    broker.says(1, submit(), ["1 attached j1"]);
    broker.at(3_000, []);
    broker.says(1, submit(), ["1 new j2"]);
}

#[test]
fn a_client_that_waits_for_a_repeated_job_gets_the_result_that_it_had() {
    let mut broker = Broker::new();
    broker.hear(1, dedup("q", 2_000));
    broker.says(
        1,
        submit(Protocol::GEARMAN, ("", "u"), Clash::Attach),
        ["1 new j1"],
    );
    broker.hear(1, take(["q"]));
    broker.says(1, finish(1), ["1 finished j1"]);
    let waits = submit(Protocol::GEARMAN, ("", "u"), Clash::Attach).with(|job| {
        (job.durable, job.listen) = (false, Listen::Yes);
    });
    let events = broker.hear(2, waits);
    let [
        (_, Event::Reply(_, Reply::Pushed { how, .. })),
        (_, Event::Notice(Notice::Ended { end, .. })),
    ] = events.as_slice()
    else {
        panic!("{events:?}")
    };
    assert_eq!(*how, windlass_engine::Pushed::Attached);
    assert!(
        matches!(end, windlass_engine::End::Succeeded { .. }),
        "{end:?}"
    );
}

#[test]
fn other_pushes_are_new_jobs_in_a_queue_that_remembers() {
    let mut broker = Broker::new();
    broker.hear(1, dedup("q", 60_000));
    // No ID at all, an ID that represents the body, a job that failed, and a schedule's job.
    for (round, names) in ["", "\0body", ""].into_iter().enumerate() {
        let id = round as u64 + 1;
        broker.says(
            1,
            submit(Protocol::GEARMAN, ("", names), Clash::Attach),
            [format!("1 new j{id}").as_str()],
        );
        broker.hear(1, take(["q"]));
        broker.says(1, finish(id), [format!("1 finished j{id}").as_str()]);
    }
    assert_eq!(broker.engine.job_count(), 0);
    broker.says(
        1,
        submit(Protocol::GEARMAN, ("", "u"), Clash::Attach),
        ["1 new j4"],
    );
    broker.hear(1, take(["q"]));
    broker.hear(1, fail(4));
    broker.says(
        1,
        submit(Protocol::GEARMAN, ("", "u"), Clash::Attach),
        ["1 new j5"],
    );
}

#[test]
fn what_is_remembered_of_the_past_takes_a_quarter_of_the_room_and_nothing_from_live_jobs() {
    let run = |broker: &mut Broker, key: &'static str| {
        broker.hear(1, submit(Protocol::GEARMAN, ("", key), Clash::Attach));
        let events = broker.hear(2, take(["q"]));
        let taken = events
            .iter()
            .find_map(|(_, event)| event.handed_out())
            .map(|taken| taken.id);
        broker.hear(2, finish(taken.unwrap().0));
    };
    const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let remembered = |broker: &Broker| {
        broker
            .engine
            .jobs()
            .map(|job| job.id.0)
            .collect::<BTreeSet<_>>()
    };

    // A done job uses 451 bytes.
    let mut broker = Broker::limited(|limits| limits.memory_max = 4 * 2_000);
    broker.hear(1, dedup("q", 60_000));
    KEYS.into_iter().for_each(|key| run(&mut broker, key));
    broker.at(1_001, []);
    assert_eq!(
        remembered(&broker),
        [5, 6, 7, 8].into(),
        "those whose time ends first are forgotten"
    );
    broker.says(
        1,
        submit(Protocol::GEARMAN, ("", "h"), Clash::Attach),
        ["1 attached j8"],
    );
    broker.says(
        1,
        submit(Protocol::GEARMAN, ("", "a"), Clash::Attach),
        ["1 new j9"],
    );

    let mut broker = Broker::limited(|limits| limits.jobs_max = 4);
    broker.hear(1, dedup("q", 60_000));
    KEYS.into_iter().for_each(|key| run(&mut broker, key));
    assert_eq!(
        remembered(&broker),
        [5, 6, 7, 8].into(),
        "a new job needs the place"
    );
}
