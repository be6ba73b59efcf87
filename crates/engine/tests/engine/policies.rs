//! Policies: rates, keys, fairness and order.

use std::sync::Arc;

use windlass_engine::{
    Backoff, BulkCommand, Calls, Command, Cursor, Event, Hold, Job, JobReader, JobStateKind,
    KeySource, Limits, Mutation, OnExpiry, Patterns, Policy, PolicyRow, Proof, Protocol, Query,
    QueueCommand, QueueKind, QueueRules, QueueSettings, Rate, Reply, TakeCommand, Timestamp, Why,
};

use crate::common::*;

fn set_all(policies: impl IntoIterator<Item = (&'static str, Policy)>) -> Command {
    let of = |(queue, policy): (&'static str, Policy)| {
        (
            queue.into(),
            QueueSettings {
                rules: QueueRules::default(),
                policy,
            },
        )
    };
    Command::Queue(QueueCommand::SetPatterns(Box::new(Patterns::from_iter(
        policies.into_iter().map(of),
    ))))
}

pub(crate) fn set(policy: Policy) -> Command {
    set_all([("q*", policy)])
}

pub(crate) fn rate(jobs: u32, per_ms: u32, burst: u32) -> Option<Rate> {
    Some(Rate {
        jobs,
        per_ms,
        burst,
    })
}

/// A broker with a queue `q`. The key of a job is the part before `|`.
pub(crate) fn keyed(policy: Policy) -> Broker {
    let mut broker = Broker::new();
    broker.says(
        1,
        set(Policy {
            key: Some(KeySource::Prefix(b'|')),
            ..policy
        }),
        ["1 done"],
    );
    broker
}

pub(crate) fn job(body: &'static str) -> Push {
    push("q").with(|new| new.body = body.into())
}

/// Pushes a job for each body; the first has this number.
pub(crate) fn push_all(broker: &mut Broker, first: u64, bodies: &[&'static str]) {
    for (number, body) in (first..).zip(bodies) {
        broker.says(1, job(body), [format!("1 new j{number}").as_str()]);
    }
}

/// Takes jobs until there is none, and returns the IDs.
pub(crate) fn taken(broker: &mut Broker) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let said = words(&broker.hear(2, take(["q"])));
        let [line] = said.as_slice() else {
            panic!("{said:?}")
        };
        let Some(job) = line.strip_prefix("2 took j") else {
            return all;
        };
        all.push(job.split('.').next().unwrap_or_default().to_owned());
    }
}

pub(crate) fn hold(broker: &mut Broker, job: u64) -> Option<Hold> {
    let events = broker.hear(1, Query::Why(id(job)));
    let [(_, Event::Reply(_, Reply::Why(why)))] = events.as_slice() else {
        panic!("{events:?}")
    };
    if let Why::Turn(turn) = why {
        turn.hold.clone()
    } else {
        None
    }
}

#[test]
fn starts_come_at_a_rate_and_waiting_takes_are_served_in_time() {
    let mut broker = Broker::new();
    broker.says(
        1,
        set(Policy {
            rate: rate(2, 1_000, 2),
            ..Policy::default()
        }),
        ["1 done"],
    );
    push_all(&mut broker, 1, &["a", "b", "c", "d", "e", "f"]);
    // The bucket is full at first.
    assert_eq!(taken(&mut broker), ["1", "2"]);
    assert_eq!(
        hold(&mut broker, 3),
        Some(Hold::Rate {
            until: Timestamp(1_500)
        })
    );
    broker.says(2, take(["q"]).forever(), []);
    assert_eq!(broker.engine.next_deadline().map(|at| at.0), Some(1_500));
    broker.at(1_499, []);
    broker.at(1_500, ["2 took j3.1"]);
    broker.says(3, take(["q"]), ["3 empty"]);
    // Two tokens are saved up, but no more.
    broker.at(9_000, []);
    assert_eq!(taken(&mut broker), ["4", "5"]);
    assert_eq!(
        hold(&mut broker, 6),
        Some(Hold::Rate {
            until: Timestamp(9_500)
        })
    );
    // A retry needs a token, too.
    broker.says(2, release(5, false), ["2 done"]);
    assert_eq!(taken(&mut broker), [""; 0]);
    broker.at(9_500, []);
    assert_eq!(taken(&mut broker), ["5"]);
}

#[test]
fn a_sleeper_is_woken_for_a_token_and_not_before() {
    let mut broker = Broker::new();
    broker.says(
        1,
        set(Policy {
            rate: rate(1, 100, 1),
            ..Policy::default()
        }),
        ["1 done"],
    );
    push_all(&mut broker, 1, &["x"]);
    assert_eq!(taken(&mut broker), ["1"]);
    broker.says(2, serve("q"), []);
    broker.says(2, TakeCommand::WaitForWork, []);
    push_all(&mut broker, 2, &["a", "b"]);
    broker.at(1_099, []);
    broker.at(1_100, ["2 woken"]);
    broker.says(2, take_served(), ["2 took j2.1"]);
    broker.says(2, take_served(), ["2 empty"]);
    broker.says(2, TakeCommand::WaitForWork, []);
    broker.at(1_200, ["2 woken"]);
}

#[test]
fn the_first_pattern_that_matches_holds_and_without_a_policy_all_may_start() {
    let mut broker = Broker::new();
    let slow = || Policy {
        rate: rate(1, 1_000, 1),
        ..Policy::default()
    };
    broker.says(
        1,
        set_all([("quick", Policy::default()), ("q*", slow())]),
        ["1 done"],
    );
    broker.says(1, push("quick"), ["1 new j1"]);
    broker.says(1, push("q"), ["1 new j2"]);
    broker.says(1, push("q"), ["1 new j3"]);
    broker.says(2, take(["quick"]), ["2 took j1.1"]);
    broker.says(2, take(["q"]), ["2 took j2.1"]);
    broker.says(2, take(["q"]).forever(), []);
    broker.says(1, set_all([]), ["2 took j3.1", "1 done"]);
}

#[test]
fn a_key_has_no_more_jobs_running_than_it_may() {
    let mut broker = keyed(Policy {
        key_running_max: Some(1),
        ..Policy::default()
    });
    push_all(&mut broker, 1, &["a|1", "a|2", "b|3", "4", "5", "a|6"]);
    // The jobs without a key share the empty key.
    assert_eq!(taken(&mut broker), ["1", "3", "4"]);
    assert_eq!(
        hold(&mut broker, 2),
        Some(Hold::Key {
            key: "a".into(),
            jobs: 1
        })
    );
    assert_eq!(
        hold(&mut broker, 5),
        Some(Hold::Key {
            key: "".into(),
            jobs: 1
        })
    );
    broker.says(3, take(["q"]).forever(), []);
    broker.says(2, finish(1), ["2 finished j1", "3 took j2.1"]);
    broker.says(2, finish(4), ["2 finished j4"]);
    assert_eq!(taken(&mut broker), ["5"]);
    // The end of a lease frees the key.
    broker.says(3, release(2, false), ["3 done"]);
    assert_eq!(taken(&mut broker), ["2"]);
    broker.says(
        1,
        mutate(placed(JobStateKind::Ready), Mutation::Discard),
        ["1 mutated 1"],
    );
}

#[test]
fn a_key_holds_back_no_other_however_much_it_has() {
    let mut broker = keyed(Policy {
        key_running_max: Some(1),
        ..Policy::default()
    });
    let stuck: Vec<&str> = std::iter::repeat_n("stuck|x", 50).collect();
    push_all(&mut broker, 1, &stuck);
    assert_eq!(taken(&mut broker), ["1"]);
    push_all(&mut broker, 51, &["b|x"]);
    assert_eq!(taken(&mut broker), ["51"]);
}

#[test]
fn jobs_of_a_key_start_in_order_whatever_their_priority_and_a_retry_holds_its_key() {
    let mut broker = keyed(Policy {
        ordered: true,
        ..Policy::default()
    });
    broker.says(1, job("a|1").retry(2, Backoff::None), ["1 new j1"]);
    broker.says(1, job("a|2").priority(9), ["1 new j2"]);
    push_all(&mut broker, 3, &["b|3"]);
    assert_eq!(taken(&mut broker), ["1", "3"]);
    broker.says(2, fail(1), ["2 failed j1, retried 1000"]);
    // Without a delay the job is ready immediately, and before all later ones.
    assert_eq!(taken(&mut broker), ["1"]);
    broker.says(2, fail(1), ["2 failed j1, retried 1000"]);
    assert_eq!(taken(&mut broker), ["1"]);
    broker.says(2, fail(1), ["2 failed j1, buried until 15552001000"]);
    assert_eq!(taken(&mut broker), ["2"]);
    broker.says(1, job("a|4").retry(2, Backoff::Fixed(500)), ["1 new j4"]);
    broker.says(1, job("a|5"), ["1 new j5"]);
    broker.says(2, finish(2), ["2 finished j2"]);
    assert_eq!(taken(&mut broker), ["4"]);
    broker.says(2, fail(4), ["2 failed j4, retried 1500"]);
    assert_eq!(taken(&mut broker), [""; 0], "the retry is not yet due");
    assert_eq!(
        hold(&mut broker, 5),
        Some(Hold::Key {
            key: "a".into(),
            jobs: 1
        })
    );
    broker.at(1_500, []);
    assert_eq!(taken(&mut broker), ["4"]);
    broker.says(2, fail(4), ["2 failed j4, retried 2000"]);
    broker.says(
        1,
        mutate(placed(JobStateKind::Retrying), Mutation::Kill),
        ["1 mutated 1"],
    );
    assert_eq!(taken(&mut broker), ["5"], "a dead job releases its key");
}

#[test]
fn keys_take_turns_by_their_weights() {
    let weights = [("gold".into(), 3)].into_iter().collect();
    let mut broker = keyed(Policy {
        fair: true,
        weights,
        ..Policy::default()
    });
    push_all(&mut broker, 1, &["a|1", "a|2", "a|3", "a|4", "b|5", "b|6"]);
    assert_eq!(taken(&mut broker), ["1", "5", "2", "6", "3", "4"]);
    push_all(
        &mut broker,
        7,
        &[
            "a|", "a|", "a|", "a|", "gold|", "gold|", "gold|", "gold|", "gold|", "gold|",
        ],
    );
    let order = taken(&mut broker);
    let gold = order
        .iter()
        .take(8)
        .filter(|job| job.parse::<u64>().is_ok_and(|job| job >= 11))
        .count();
    assert_eq!(gold, 6, "three of four: {order:?}");
    // A new key does not get unused turns of the past.
    push_all(&mut broker, 17, &["a|", "a|", "a|", "a|"]);
    assert_eq!(words(&broker.hear(2, take(["q"]))), ["2 took j17.1"]);
    push_all(&mut broker, 21, &["new|", "new|", "new|"]);
    assert_eq!(taken(&mut broker), ["21", "18", "22", "19", "23", "20"]);
    // Urgent jobs take precedence over fairness.
    push_all(&mut broker, 24, &["a|", "b|"]);
    broker.says(1, job("a|").priority(9), ["1 new j26"]);
    assert_eq!(taken(&mut broker).first().map(String::as_str), Some("26"));
}

#[test]
fn a_new_key_comes_after_those_that_have_a_turn_in_this_round() {
    let mut broker = keyed(Policy {
        fair: true,
        ..Policy::default()
    });
    push_all(&mut broker, 1, &["a|", "a|", "b|", "b|", "c|", "c|"]);
    assert_eq!(words(&broker.hear(2, take(["q"]))), ["2 took j1.1"]);
    push_all(&mut broker, 7, &["new|", "other|"]);
    assert_eq!(
        taken(&mut broker),
        ["3", "5", "7", "8", "2", "4", "6"],
        "b and c first, then the new ones, then the second jobs"
    );
}

#[test]
fn a_key_has_a_rate_of_its_own() {
    let mut broker = keyed(Policy {
        key_rate: rate(1, 1_000, 1),
        ..Policy::default()
    });
    broker.at(5_000, []);
    push_all(&mut broker, 1, &["a|", "a|", "b|"]);
    assert_eq!(taken(&mut broker), ["1", "3"]);
    assert_eq!(
        hold(&mut broker, 2),
        Some(Hold::KeyRate {
            key: "a".into(),
            until: Timestamp(6_000)
        })
    );
    broker.says(3, take(["q"]).forever(), []);
    broker.at(5_999, []);
    broker.at(6_000, ["3 took j2.1"]);
    // A new key may start immediately, too, and one that disappears and reappears may not.
    push_all(&mut broker, 4, &["late|"]);
    assert_eq!(taken(&mut broker), ["4"]);
    broker.says(2, finish(4), ["2 finished j4"]);
    push_all(&mut broker, 5, &["late|"]);
    assert_eq!(taken(&mut broker), [""; 0]);
}

#[test]
fn only_so_many_jobs_of_a_key_wait() {
    let mut broker = keyed(Policy {
        key_waiting_max: Some(2),
        ..Policy::default()
    });
    push_all(&mut broker, 1, &["a|", "a|", "b|"]);
    broker.says(1, job("a|"), ["1 refused: key is full: jobs 2, limit 2"]);
    assert_eq!(taken(&mut broker).len(), 3);
    push_all(&mut broker, 4, &["a|"]);
}

#[test]
fn keys_of_jobs_that_are_there_are_read_again() {
    let mut broker = Broker::new();
    push_all(&mut broker, 1, &["a|1", "a|2", "b|3"]);
    broker.says(2, take(["q"]), ["2 took j1.1"]);
    let policy = Policy {
        key: Some(KeySource::Prefix(b'|')),
        key_running_max: Some(1),
        ..Policy::default()
    };
    broker.says(1, set(policy.clone()), ["1 done"]);
    // The leased job is still counted for the empty key.
    assert_eq!(taken(&mut broker), [""; 0]);
    let read = |after| Command::Bulk(BulkCommand::ReadKeys { after, limit: 2 });
    broker.says(1, read(Cursor::default()), ["1 mutated 2 and more"]);
    broker.says(1, read(Cursor(3, 0)), ["1 mutated 1"]);
    assert_eq!(taken(&mut broker), ["3"]);
    // Another limit retains the keys; another source resets them.
    broker.says(
        1,
        set(Policy {
            key_running_max: Some(2),
            ..policy.clone()
        }),
        ["1 done"],
    );
    assert_eq!(taken(&mut broker), ["2"]);
    broker.says(
        1,
        set(Policy {
            key: Some(KeySource::Unique(None)),
            ..policy
        }),
        ["1 done"],
    );
    assert_eq!(hold(&mut broker, 1), None);
    broker.engine.check();
}

#[derive(Debug)]
struct Whole;

impl JobReader for Whole {
    fn calls<'a>(&self, _: &'a Job) -> Calls<'a> {
        Calls::Unknown
    }

    fn has_type(&self, _: &Job, _: &str) -> bool {
        false
    }

    fn text(&self, _: &Job, _: i64) -> Option<Vec<u8>> {
        None
    }

    fn key(&self, protocol: Protocol, body: &[u8], at: &KeySource) -> Option<Vec<u8>> {
        (protocol == Protocol::GEARMAN && *at == KeySource::Args("/0".into()))
            .then(|| body.to_vec())
    }
}

#[test]
fn the_protocol_reads_a_key_at_a_pointer() {
    let mut broker = Broker::new();
    broker.engine.set_reader(Arc::new(Whole));
    let policy = Policy {
        key: Some(KeySource::Args("/0".into())),
        key_running_max: Some(1),
        ..Policy::default()
    };
    broker.says(1, set(policy), ["1 done"]);
    push_all(&mut broker, 1, &["a", "a", "b"]);
    assert_eq!(taken(&mut broker), ["1", "3"]);
}

#[test]
fn a_job_that_its_worker_loses_frees_its_key_only_when_the_lease_ends() {
    let mut broker = keyed(Policy {
        key_running_max: Some(1),
        ..Policy::default()
    });
    push_all(&mut broker, 1, &["a|", "a|"]);
    broker.says(
        2,
        take(["q"]).worker("w").for_ms(500, OnExpiry::Requeue),
        ["2 took j1.1 until 1500"],
    );
    broker.says(3, take(["q"]).forever(), []);
    broker.at(1_499, []);
    broker.at(1_500, ["3 took j1.2"]);
}

#[test]
fn the_keys_of_a_queue_are_listed() {
    let list = |after, limit| Query::Keys {
        queue: "q".into(),
        after,
        limit,
    };
    let mut broker = keyed(Policy {
        key_running_max: Some(1),
        rate: rate(1, 500, 9),
        ..Policy::default()
    });
    broker.says(1, list(Cursor::default(), 9), ["1 keys"]);
    push_all(&mut broker, 1, &["a|", "a|", "b|", "x", "c|"]);
    broker.says(
        1,
        mutate(in_queue("q", JobStateKind::Ready), Mutation::Kill),
        ["1 mutated 5"],
    );
    broker.says(1, list(Cursor::default(), 9), ["1 keys"]);
    broker.at(3_000, []);
    push_all(&mut broker, 6, &["a|", "a|", "b|", "x"]);
    assert_eq!(taken(&mut broker).len(), 3);
    broker.says(
        1,
        list(Cursor::default(), 9),
        ["1 keys : 0 1 a: 1 1 b: 0 1"],
    );
    let events = broker.hear(1, list(Cursor(1, 0), 1));
    let [(_, Event::Reply(_, Reply::Keys { policy, rows, next }))] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((rows.len(), *next), (1, Some(Cursor(2, 0))));
    assert_eq!(
        policy.as_ref().map(|row| (row.tokens, row.next_start_at)),
        Some((Some(6), None))
    );
}

fn own(queue: &'static str, policy: Option<Policy>) -> Command {
    Command::Queue(QueueCommand::SetPolicy {
        queue: queue.into(),
        policy: policy.map(Box::new),
        by: "ann".into(),
    })
}

fn pause_key(key: &'static str, paused: bool) -> Command {
    Command::Queue(QueueCommand::PauseKey {
        queue: "q".into(),
        key: key.into(),
        paused,
    })
}

pub(crate) fn row(broker: &mut Broker) -> Option<PolicyRow> {
    let events = broker.hear(1, Query::Queue { queue: "q".into() });
    let [(_, Event::Reply(_, Reply::Queues { rows, .. }))] = events.as_slice() else {
        panic!("{events:?}")
    };
    rows.first().and_then(|row| row.policy.as_deref().cloned())
}

#[test]
fn a_policy_of_its_own_holds_in_place_of_a_patterns_and_outlasts_a_restart() {
    let mut broker = keyed(Policy {
        key_running_max: Some(1),
        ..Policy::default()
    });
    push_all(&mut broker, 1, &["a|", "a|", "b|"]);
    broker.says(
        1,
        own(
            "q",
            Some(Policy {
                rate: rate(1, 1_000, 2),
                ..Policy::default()
            }),
        ),
        ["1 done"],
    );
    broker.at(3_000, []);
    assert_eq!(taken(&mut broker), ["1", "2"]);
    let author = row(&mut broker).and_then(|row| row.set);
    assert_eq!(author, Some(("ann".into(), Timestamp(1_000))));
    broker.restart(Limits::default());
    assert_eq!(
        row(&mut broker).map(|row| row.policy.rate),
        Some(rate(1, 1_000, 2))
    );
    broker.says(1, own("q", None), ["1 done"]);
    assert_eq!(row(&mut broker), None);
    // It makes a queue without jobs permanent, and an empty policy replaces that of a pattern.
    broker.says(
        1,
        set(Policy {
            rate: rate(1, 9_000, 1),
            ..Policy::default()
        }),
        ["1 done"],
    );
    broker.says(1, own("q2", Some(Policy::default())), ["1 done"]);
    broker.says(1, push("q2"), ["1 new j4"]);
    broker.says(2, take(["q2"]), ["2 took j4.4294967297"]);
}

#[test]
fn a_rate_that_changes_gives_back_nothing_that_was_spent() {
    let mut broker = Broker::new();
    broker.says(1, create("q", QueueKind::Work), ["1 done"]);
    let of = |jobs| {
        own(
            "q",
            Some(Policy {
                rate: rate(jobs, 1_000, 2),
                ..Policy::default()
            }),
        )
    };
    broker.says(1, of(1), ["1 done"]);
    push_all(&mut broker, 1, &["x"; 4]);
    assert_eq!(taken(&mut broker), ["1", "2"]);
    broker.says(1, of(2), ["1 done"]);
    assert_eq!(taken(&mut broker), [""; 0]);
    broker.at(1_500, []);
    assert_eq!(row(&mut broker).map(|row| row.tokens), Some(Some(1)));
    assert_eq!(taken(&mut broker), ["3"]);
}

#[test]
fn a_policy_by_key_is_refused_for_a_cycle_queue() {
    let mut broker = Broker::new();
    broker.says(1, create("q", QueueKind::Cycle), ["1 done"]);
    let keys = Policy {
        key: Some(KeySource::Prefix(b'|')),
        fair: true,
        ..Policy::default()
    };
    broker.says(
        1,
        own("q", Some(keys)),
        ["1 refused: queue of the other kind"],
    );
    broker.says(
        1,
        own(
            "q",
            Some(Policy {
                rate: rate(1, 1_000, 2),
                ..Policy::default()
            }),
        ),
        ["1 done"],
    );
}

#[test]
fn a_paused_key_starts_nothing_holds_up_no_other_and_stays_paused_after_a_restart() {
    let mut broker = keyed(Policy {
        fair: true,
        ..Policy::default()
    });
    push_all(&mut broker, 1, &["a|", "a|", "b|", "x"]);
    broker.says(1, pause_key("a", true), ["1 done"]);
    broker.says(1, pause_key("", true), ["1 done"]);
    assert_eq!(taken(&mut broker), ["3"]);
    assert_eq!(hold(&mut broker, 1), Some(Hold::Paused { key: "a".into() }));
    push_all(&mut broker, 5, &["a|", "c|"]);
    assert_eq!(taken(&mut broker), ["6"]);
    assert_eq!(row(&mut broker).map(|row| row.keys_paused), Some(2));
    // A waiting worker gets the job as soon as the key is resumed.
    broker.says(3, take(["q"]).forever(), []);
    broker.says(1, pause_key("", false), ["3 took j4.1", "1 done"]);
    // A queue retains paused keys without jobs, and while the policy uses no keys.
    for (client, job, said) in [
        (2, 3, "2 finished j3"),
        (2, 6, "2 finished j6"),
        (3, 4, "3 finished j4"),
    ] {
        broker.says(client, finish(job), [said]);
    }
    broker.says(
        1,
        mutate(in_queue("q", JobStateKind::Ready), Mutation::Discard),
        ["1 mutated 3"],
    );
    broker.restart(Limits::default());
    broker.says(
        1,
        pause_key("b", true),
        ["1 refused: not allowed in this state"],
    );
    broker.says(
        1,
        set(Policy {
            key: Some(KeySource::Prefix(b'|')),
            ordered: true,
            ..Policy::default()
        }),
        ["1 done"],
    );
    push_all(&mut broker, 7, &["b|", "a|"]);
    assert_eq!(taken(&mut broker), ["7"]);
    broker.says(2, take(["q"]).forever(), []);
    broker.says(1, pause_key("a", false), ["2 took j8.4294967297", "1 done"]);
    broker.says(
        1,
        Command::Queue(QueueCommand::PauseKey {
            queue: "r".into(),
            key: "a".into(),
            paused: true,
        }),
        ["1 refused: queue unknown"],
    );
}

#[test]
fn waits_for_tokens_and_jobs_without_keys_are_counted() {
    let policy = Policy {
        key_running_max: Some(9),
        rate: rate(1, 1_000, 1),
        ..Policy::default()
    };
    let mut broker = keyed(policy);
    push_all(&mut broker, 1, &["a|", "x", "y"]);
    assert_eq!(taken(&mut broker), ["1"]);
    broker.at(2_000, []);
    assert_eq!(taken(&mut broker), ["2"]);
    broker.at(3_000, []);
    let counted = |row: PolicyRow| (row.rate_waits, row.keyless, row.keys);
    assert_eq!(row(&mut broker).map(counted), Some((2, 2, 1)));
}

/// The daemon sets the configuration before anything that became due during the downtime.
#[test]
fn what_fell_due_while_the_daemon_was_down_keeps_the_order_of_its_key() {
    let ordered = || {
        set(Policy {
            key: Some(KeySource::Prefix(b'|')),
            ordered: true,
            ..Policy::default()
        })
    };
    let mut broker = Broker::new();
    broker.says(1, ordered(), ["1 done"]);
    for number in 1..=3 {
        broker.says(
            1,
            job("a|").retry(1, Backoff::Fixed(2_000)),
            [format!("1 new j{number}").as_str()],
        );
    }
    assert_eq!(taken(&mut broker), ["1"]);
    broker.says(2, fail(1), ["2 failed j1, retried 3000"]);
    broker.recover(Limits::default());
    broker.now += 60_000;
    broker.engine.hold_due();
    broker.open(1);
    assert_eq!(broker.engine.next_deadline(), None);
    broker.says(1, ordered(), ["1 done"]);
    broker.says(
        1,
        BulkCommand::ReadKeys {
            after: Cursor::default(),
            limit: 9,
        },
        ["1 mutated 3"],
    );
    broker.engine.release_due();
    broker.open(2);
    for number in 1..=3 {
        assert_eq!(taken(&mut broker), [number.to_string()]);
        broker.says(
            2,
            finish(number),
            [format!("2 finished j{number}").as_str()],
        );
    }
}

#[test]
fn a_rate_slower_than_restarts_starts_as_many_jobs_as_it_allows() {
    let policy = || {
        set(Policy {
            rate: rate(1, 6_000, 1),
            ..Policy::default()
        })
    };
    let mut broker = Broker::new();
    broker.says(1, policy(), ["1 done"]);
    push_all(&mut broker, 1, &["x"; 20]);
    let (begin, mut started) = (broker.now, Vec::new());
    for now in (begin..begin + 52_000).step_by(100) {
        if (now - begin) % 4_300 == 0 {
            broker.restart(Limits::default());
            broker.says(1, policy(), ["1 done"]);
        }
        broker.now = now;
        for job in taken(&mut broker) {
            broker.hear(2, finish(job.parse().unwrap()));
            started.push(now - begin);
        }
    }
    assert_eq!(
        started,
        [
            0, 6_000, 12_000, 18_000, 24_000, 30_000, 36_000, 42_000, 48_000
        ]
    );
}

/// A worker with a single connection reports on a job only after the reply to the next take.
#[test]
fn a_take_is_answered_soon_if_the_workers_own_job_keeps_others_from_their_start() {
    let mut broker = keyed(Policy {
        key_running_max: Some(1),
        ..Policy::default()
    });
    let wish = |until| {
        take(["q"])
            .for_ms(9_000, OnExpiry::Fail)
            .worker("w")
            .until(until)
    };
    broker.says(2, enlist("w"), ["2 done"]);
    push_all(&mut broker, 1, &["a|", "a|"]);
    let now = broker.now;
    let took = words(&broker.hear(2, wish(now + 2_000)));
    assert!(took[0].starts_with("2 took j1"), "{took:?}");
    broker.says(2, wish(now + 2_000), []);
    broker.at(now + 49, []);
    broker.at(now + 50, ["2 empty"]);
    broker.says(2, finish_by(1, Proof::AnyLease), ["2 finished j1"]);
    let took = words(&broker.hear(2, wish(now + 2_000)));
    assert!(took[0].starts_with("2 took j2"), "{took:?}");
    // Nothing is blocked by the key until a job arrives. Another worker waits as long as it
    // requested.
    broker.says(2, wish(now + 2_000), []);
    broker.says(
        3,
        take(["q"])
            .for_ms(9_000, OnExpiry::Fail)
            .worker("v")
            .until(now + 2_000),
        [],
    );
    broker.at(now + 500, []);
    let said = words(&broker.hear(1, job("a|")));
    assert!(
        said.contains(&"2 empty".to_owned()) && !said.contains(&"3 empty".to_owned()),
        "{said:?}"
    );
    broker.at(now + 2_000, ["3 empty"]);
}
