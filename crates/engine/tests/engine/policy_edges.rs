//! Edge cases of policies: changes while there are jobs, several protocols, sleepers, missed turns.

use windlass_engine::{
    Bridge, BulkCommand, ClientId, Codec, Command, Condition, Context, Cursor, Engine, Event,
    Filter, Hold, JobCommand, JobStateKind, KeySource, Limits, Mutation, Policy, Proof, Query,
    QueueCommand, QueueKind, QueueRules, Reply, Tag, TakeCommand, Timestamp,
};

use crate::bodies::Cold;
use crate::common::*;
use crate::isolation::{broker, faktory, misfit};
use crate::policies::{hold, job, keyed, push_all, rate, row, set, taken};

fn by_prefix(policy: Policy) -> Policy {
    Policy {
        key: Some(KeySource::Prefix(b'|')),
        ..policy
    }
}

fn limited(max: u32) -> Policy {
    by_prefix(Policy {
        key_running_max: Some(max),
        ..Policy::default()
    })
}

fn bridge(queues: &[&'static str]) -> Command {
    let patterns = queues.iter().map(|queue| name(queue)).collect();
    Command::Queue(QueueCommand::Bridge(Box::new(Bridge {
        patterns,
        ..Bridge::default()
    })))
}

fn keys(broker: &mut Broker) -> Option<u32> {
    row(broker).map(|row| row.keys)
}

#[test]
fn a_changed_policy_keeps_the_keys_that_it_reads_where_they_were_read() {
    let mut broker = keyed(limited(1));
    push_all(&mut broker, 1, &["a|", "a|", "a|", "b|"]);
    assert_eq!(taken(&mut broker), ["1", "4"]);
    broker.says(1, set(limited(2)), ["1 done"]);
    assert_eq!(
        (taken(&mut broker), keys(&mut broker)),
        (vec!["2".to_owned()], Some(2))
    );
    assert_eq!(
        hold(&mut broker, 3),
        Some(Hold::Key {
            key: "a".into(),
            jobs: 2
        })
    );
    // A policy that needs no keys has no keys, even if it names a source.
    broker.says(
        1,
        set(by_prefix(Policy {
            rate: rate(1, 1_000, 1),
            ..Policy::default()
        })),
        ["1 done"],
    );
    assert_eq!(keys(&mut broker), Some(0));
    broker.says(1, set(limited(2)), ["1 done"]);
    assert_eq!(
        (keys(&mut broker), hold(&mut broker, 3)),
        (
            Some(0),
            Some(Hold::Key {
                key: "".into(),
                jobs: 3
            })
        )
    );
    push_all(&mut broker, 5, &["c|"]);
    assert_eq!(keys(&mut broker), Some(1));
    broker.says(
        1,
        set(Policy {
            key: Some(KeySource::Unique(None)),
            ..limited(2)
        }),
        ["1 done"],
    );
    assert_eq!(keys(&mut broker), Some(0), "they were read elsewhere");
}

#[test]
fn paused_keys_are_shown_while_a_policy_has_keys() {
    let mut broker = keyed(limited(1));
    push_all(&mut broker, 1, &["a|"]);
    broker.says(
        1,
        QueueCommand::PauseKey {
            queue: "q".into(),
            key: "a".into(),
            paused: true,
        },
        ["1 done"],
    );
    for (policy, paused) in [
        (
            Policy {
                rate: rate(1, 1_000, 1),
                ..Policy::default()
            },
            0,
        ),
        (limited(1), 1),
    ] {
        broker.says(1, set(policy), ["1 done"]);
        assert_eq!(row(&mut broker).map(|row| row.keys_paused), Some(paused));
    }
}

#[test]
fn a_cycle_queue_has_no_keys_whatever_its_patterns_policy_becomes() {
    let mut broker = Broker::new();
    broker.says(1, create("q", QueueKind::Cycle), ["1 done"]);
    for max in [1, 2] {
        broker.says(1, set(limited(max)), ["1 done"]);
        broker.says(1, job("a|").cycle(), [format!("1 new j{max}").as_str()]);
    }
    assert_eq!(keys(&mut broker), Some(0));
    for job in ["2 took j1.", "2 took j2."] {
        let said = words(&broker.hear(2, take_round("q")));
        assert!(said[0].starts_with(job), "{said:?}");
    }
}

#[test]
fn tokens_outlast_a_change_of_the_policy_and_of_the_rate() {
    let policy = |rate, fair| {
        by_prefix(Policy {
            rate,
            fair,
            ..Policy::default()
        })
    };
    let tokens = |broker: &mut Broker| row(broker).and_then(|row| row.tokens);
    let mut broker = keyed(policy(rate(1, 100, 5), false));
    push_all(&mut broker, 1, &["a|"]);
    broker.at(1_300, []);
    assert_eq!(taken(&mut broker), ["1"]);
    broker.says(1, set(policy(rate(1, 100, 5), true)), ["1 done"]);
    assert_eq!(tokens(&mut broker), Some(4));
    broker.says(1, set(policy(rate(1, 50, 5), true)), ["1 done"]);
    assert_eq!(tokens(&mut broker), Some(3));
}

/// The number of woken sleepers, of three, for jobs of these keys that are pushed while they sleep.
fn woken(policy: Policy, before: &str, keys: &str) -> usize {
    let bodies = |keys: &str| {
        keys.chars()
            .map(|key| if key == 'a' { "a|" } else { "b|" })
            .collect::<Vec<_>>()
    };
    let mut broker = keyed(policy);
    push_all(&mut broker, 1, &bodies(before));
    taken(&mut broker);
    for client in 2..=4 {
        broker.says(client, serve("q"), []);
        broker.says(client, TakeCommand::WaitForWork, []);
    }
    let said = bodies(keys)
        .into_iter()
        .flat_map(|body| words(&broker.hear(1, job(body))))
        .collect::<Vec<_>>();
    said.iter().filter(|line| line.ends_with("woken")).count()
}

#[test]
fn as_many_sleepers_are_woken_as_jobs_can_start() {
    let fair = || Policy {
        fair: true,
        ..Policy::default()
    };
    let one = || Policy {
        key_running_max: Some(1),
        ..Policy::default()
    };
    let ordered = || Policy {
        ordered: true,
        ..Policy::default()
    };
    let slow = || Policy {
        key_rate: rate(1, 1_000, 1),
        ..Policy::default()
    };
    let table = [
        ("no limit of a key", fair(), "", "aaa", 3),
        ("one at a time", one(), "", "aaa", 1),
        ("two keys", one(), "", "aab", 2),
        ("in order", ordered(), "", "aa", 1),
        ("the key is busy", one(), "a", "a", 0),
        ("the keys have no tokens", slow(), "ab", "ab", 0),
    ];
    for (what, policy, before, keys, expected) in table {
        assert_eq!(woken(policy, before, keys), expected, "{what}");
    }
}

#[test]
fn a_sleeper_is_not_woken_for_a_paused_key() {
    let mut broker = keyed(Policy {
        fair: true,
        ..Policy::default()
    });
    let pause = QueueCommand::PauseKey {
        queue: "q".into(),
        key: "a".into(),
        paused: true,
    };
    push_all(&mut broker, 1, &["b|"]);
    broker.says(1, pause, ["1 done"]);
    assert_eq!(taken(&mut broker), ["1"]);
    broker.says(2, serve("q"), []);
    broker.says(2, TakeCommand::WaitForWork, []);
    broker.says(1, job("a|"), ["1 new j2"]);
    broker.says(3, serve("q"), []);
    broker.says(3, TakeCommand::WaitForWork, []);
    broker.says(1, job("b|"), ["2 woken", "1 new j3"]);
}

#[test]
fn order_by_key_is_among_the_jobs_that_the_same_workers_see() {
    let of_faktory = |body: &'static str| faktory("q").with(|job| job.body = body.into());
    let mut broker = broker();
    broker.says(
        1,
        set(by_prefix(Policy {
            ordered: true,
            ..Policy::default()
        })),
        ["1 done"],
    );
    broker.says(1, job("a|"), ["1 new j1"]);
    broker.says(1, of_faktory("a|"), ["1 new j2"]);
    broker.says(1, job("a|"), ["1 new j3"]);
    // Isolated: another protocol's earlier job has no effect while it is not running.
    broker.says(21, take(["q"]), ["21 took j2.1"]);
    broker.says(21, release(2, false), ["21 done"]);
    // Bridged: a single order for all, as soon as the queue is.
    broker.says(1, bridge(&["q"]), ["1 done"]);
    broker.says(21, take(["q"]), ["21 took j1.1"]);
    broker.says(11, take(["q"]), ["11 empty"]);
    broker.says(21, finish(1), ["21 finished j1"]);
    broker.says(11, take(["q"]), ["11 took j2.2"]);
    broker.says(11, release(2, false), ["11 done"]);
    broker.says(1, bridge(&[]), ["1 done"]);
    broker.says(11, take(["q"]), ["11 took j3.1"]);
}

#[test]
fn a_job_that_a_protocol_cannot_have_holds_up_its_key_for_that_protocol_too() {
    let mut broker = broker();
    broker.says(1, bridge(&["q"]), ["1 done"]);
    broker.says(
        1,
        set(by_prefix(Policy {
            ordered: true,
            ..Policy::default()
        })),
        ["1 done"],
    );
    broker.says(1, job("a|"), ["1 new j1"]);
    broker.says(
        1,
        faktory("q").with(|job| job.body = "a|".into()),
        ["1 new j2"],
    );
    broker.says(21, take(["q"]), ["21 took j1.1"]);
    broker.hear(21, misfit(1, Proof::Connection));
    broker.says(21, take(["q"]), ["21 empty"]);
    broker.says(11, take(["q"]), ["11 took j1.2"]);
    broker.says(11, finish(1), ["11 finished j1"]);
    broker.says(21, take(["q"]), ["21 took j2.1"]);
}

#[test]
fn a_job_that_could_not_be_converted_is_seen_again_with_another_codec() {
    let mut broker = broker();
    broker.says(1, bridge(&["q"]), ["1 done"]);
    broker.says(
        1,
        set(by_prefix(Policy {
            fair: true,
            ..Policy::default()
        })),
        ["1 done"],
    );
    broker.says(1, job("a|"), ["1 new j1"]);
    broker.says(21, take(["q"]), ["21 took j1.1"]);
    broker.hear(21, misfit(1, Proof::Connection));
    broker.says(21, take(["q"]), ["21 empty"]);
    let rules = QueueRules {
        codec: Codec::Base64,
        ..QueueRules::default()
    };
    broker.hear(
        1,
        QueueCommand::SetRules {
            queue: name("q"),
            rules: rules.into(),
        },
    );
    broker.says(21, take(["q"]), ["21 took j1.2"]);
}

#[test]
fn only_a_wait_for_a_token_of_the_queue_counts() {
    let waits = |broker: &mut Broker| row(broker).map(|row| row.rate_waits);
    // The queue has tokens, the key has none, and gets one later.
    let of = |queue, key| Policy {
        rate: queue,
        key_rate: key,
        ..Policy::default()
    };
    let mut broker = keyed(of(rate(1, 100, 9), rate(1, 1_000, 1)));
    push_all(&mut broker, 1, &["a|", "a|"]);
    broker.at(2_000, []);
    assert_eq!(taken(&mut broker), ["1"]);
    let before = waits(&mut broker);
    broker.at(3_000, []);
    assert_eq!(
        (waits(&mut broker), taken(&mut broker)),
        (before, vec!["2".to_owned()])
    );
    // The key has a token before the queue has one.
    let mut broker = keyed(of(rate(1, 1_000, 1), rate(1, 100, 1)));
    push_all(&mut broker, 1, &["a|"]);
    assert_eq!(taken(&mut broker), ["1"]);
    push_all(&mut broker, 2, &["a|"]);
    broker.at(1_100, []);
    assert_eq!((waits(&mut broker), taken(&mut broker).len()), (Some(0), 0));
    broker.at(2_000, []);
    assert_eq!((waits(&mut broker), taken(&mut broker).len()), (Some(1), 1));
    // A token that no job needs.
    broker.at(3_000, []);
    assert_eq!(waits(&mut broker), Some(1));
}

#[test]
fn a_key_with_tokens_left_has_no_time_of_its_own() {
    let mut broker = keyed(Policy {
        key_rate: rate(1, 1_000, 2),
        ..Policy::default()
    });
    push_all(&mut broker, 1, &["x"]);
    broker.at(9_000, []);
    push_all(&mut broker, 2, &["a|"]);
    assert_eq!(taken(&mut broker), ["1", "2"]);
    broker.says(2, finish(2), ["2 finished j2"]);
    broker.is_due_at(10_000);
    assert_eq!(keys(&mut broker), Some(1));
    // The buckets of keys are saved a second after they were saved last.
    broker.at(10_100, []);
    assert_eq!(
        (keys(&mut broker), broker.engine.next_deadline()),
        (Some(0), None)
    );
}

#[test]
fn keys_that_only_wait_are_listed_and_those_that_go_are_not_counted() {
    let mut broker = keyed(limited(1));
    push_all(&mut broker, 1, &["a|", "b|"]);
    let list = || Query::Keys {
        queue: "q".into(),
        after: Cursor::default(),
        limit: 9,
    };
    broker.says(1, list(), ["1 keys a: 1 0 b: 1 0"]);
    assert_eq!((keys(&mut broker), taken(&mut broker).len()), (Some(2), 2));
    for job in [1, 2] {
        broker.hear(2, finish(job));
    }
    assert_eq!(keys(&mut broker), Some(0));
    let events = broker.hear(1, list());
    assert!(
        matches!(events.as_slice(), [(_, Event::Reply(_, Reply::Keys { rows, .. }))] if rows.is_empty())
    );
}

#[test]
fn a_key_that_goes_and_comes_again_does_not_jump_the_queue() {
    let mut broker = keyed(Policy {
        fair: true,
        ..Policy::default()
    });
    push_all(&mut broker, 1, &["b|", "b|", "a|"]);
    let mut next = |pushed: Option<u64>| {
        let said = words(&broker.hear(2, take(["q"])));
        let job = said[0]
            .trim_start_matches("2 took j")
            .split('.')
            .next()
            .unwrap_or_default()
            .parse()
            .unwrap();
        broker.hear(2, finish(job));
        pushed
            .into_iter()
            .for_each(|number| push_all(&mut broker, number, &["a|"]));
        job
    };
    // Each time, the only job of the key `a` was taken, and the key is forgotten when the next one arrives.
    let order = [
        next(None),
        next(Some(4)),
        next(Some(5)),
        next(None),
        next(None),
    ];
    assert_eq!(order, [1, 3, 4, 2, 5]);
}

#[test]
fn a_key_does_not_save_up_the_turns_in_which_it_had_no_job() {
    let mut broker = keyed(Policy {
        fair: true,
        ..Policy::default()
    });
    push_all(&mut broker, 1, &["a|", "b|", "b|", "b|", "b|", "b|", "b|"]);
    // Job 1 is still running, so the key `a` stays, and has nothing to start while `b` has five
    // turns.
    assert_eq!(words(&broker.hear(2, take(["q"]))), ["2 took j1.1"]);
    (2..7).for_each(|job| broker.says(2, take(["q"]), [format!("2 took j{job}.1").as_str()]));
    for (job, said) in [(8, "2 took j8.1"), (9, "2 took j7.1"), (10, "2 took j9.1")] {
        push_all(&mut broker, job, &["a|"]);
        broker.says(2, take(["q"]), [said]);
    }
}

#[test]
fn a_rate_that_is_out_names_the_time_of_the_next_token() {
    let mut broker = keyed(Policy {
        rate: rate(1, 1_000, 1),
        ..Policy::default()
    });
    push_all(&mut broker, 1, &["a|", "a|"]);
    assert_eq!(taken(&mut broker), ["1"]);
    assert_eq!(
        row(&mut broker).and_then(|row| row.next_start_at),
        Some(Timestamp(2_000))
    );
    broker.at(2_000, []);
    assert_eq!(row(&mut broker).and_then(|row| row.next_start_at), None);
}

/// Two sleepers at a queue after the first token was added, without a timer for the next ones.
fn two_asleep() -> Broker {
    let mut broker = keyed(Policy {
        rate: rate(1, 10, 5),
        ..Policy::default()
    });
    push_all(&mut broker, 1, &["x"]);
    for _ in 0..5 {
        assert_eq!(taken(&mut broker).len(), 1);
        broker.says(2, release(1, false), ["2 done"]);
    }
    broker.at(1_010, []);
    broker.hear(1, Command::Job(JobCommand::Cancel(id(1))));
    for client in [2, 3] {
        broker.says(client, serve("q"), []);
        broker.says(client, TakeCommand::WaitForWork, []);
    }
    broker
}

#[test]
fn tokens_that_came_unnoticed_count_when_jobs_come() {
    let mut broker = two_asleep();
    broker.at(1_030, []);
    broker.says(1, push("q"), ["2 woken", "1 new j2"]);
    broker.says(1, push("q"), ["3 woken", "1 new j3"]);
}

#[test]
fn tokens_that_came_unnoticed_count_when_a_job_starts() {
    let mut broker = two_asleep();
    broker.says(1, push("q"), ["2 woken", "1 new j2"]);
    broker.says(1, push("q"), ["1 new j3"]);
    broker.at(1_020, []);
    broker.says(2, take_served(), ["2 took j2.1", "3 woken"]);
}

#[test]
fn tokens_that_came_unnoticed_count_beside_a_sleeper_that_was_woken() {
    let mut broker = two_asleep();
    broker.says(3, TakeCommand::Unwait, []);
    broker.says(3, take(["q"]).forever(), []);
    broker.says(1, push("q"), ["2 woken", "1 new j2"]);
    push_all(&mut broker, 3, &["x", "x"]);
    broker.at(1_030, []);
    broker.says(4, take(["q"]), ["4 took j2.1", "3 took j3.1"]);
}

#[test]
fn a_policy_that_changes_leaves_the_jobs_of_other_queues_alone() {
    let mut broker = keyed(limited(1));
    push_all(&mut broker, 1, &["a|", "a|"]);
    broker.says(1, push("q2"), ["1 new j3"]);
    let policy = Some(Box::new(limited(2)));
    broker.says(
        1,
        QueueCommand::SetPolicy {
            queue: "q2".into(),
            policy,
            by: "ann".into(),
        },
        ["1 done"],
    );
    broker.says(
        1,
        Query::Keys {
            queue: "q".into(),
            after: Cursor::default(),
            limit: 9,
        },
        ["1 keys a: 2 0"],
    );
}

#[test]
fn keys_are_read_in_bodies_that_come_a_few_at_a_time() {
    for (jobs, bytes, first) in [(300, 100, 256), (12, 300_000, 4)] {
        let mut cold = Cold::new();
        cold.broker = Broker::limited(|limits| limits.page_max = 1_000);
        (0..jobs).for_each(|_| {
            drop(
                cold.broker
                    .hear(1, push("q").with(|job| job.body = vec![b'|'; bytes].into())),
            )
        });
        cold.store_all(1..=jobs);
        cold.broker.says(1, set(limited(1)), ["1 done"]);
        let read = Command::Bulk(BulkCommand::ReadKeys {
            after: Cursor::default(),
            limit: 1_000,
        });
        let mut context = Context::new(Timestamp(1_000), 1);
        cold.broker
            .engine
            .apply(ClientId(1), Tag(9), read, &mut context);
        assert_eq!((context.missing.len(), context.events.len()), (first, 0));
    }
}

/// Kills or stops the daemon, and starts it again with this configuration.
fn start_again(broker: &mut Broker, is_killed: bool, configure: Command) {
    if !is_killed {
        broker.engine.finish_meta();
    }
    let mut engine = Engine::new(Limits::default(), 1);
    engine.recall_meta(broker.engine.meta().clone(), !is_killed);
    broker
        .engine
        .queues()
        .for_each(|queue| engine.recall_queue(queue.image().clone()));
    broker
        .engine
        .jobs()
        .for_each(|job| assert!(engine.recall_job(job.clone())));
    engine.wake_up();
    engine.hold_due();
    broker.engine = engine;
    broker.open(1);
    broker.says(1, configure, ["1 done"]);
    broker.hear(
        1,
        Command::Bulk(BulkCommand::ReadKeys {
            after: Cursor::default(),
            limit: 9,
        }),
    );
    broker.engine.release_due();
    (2..=4).for_each(|client| broker.open(client));
}

#[test]
fn keys_wait_for_what_a_killed_daemon_may_have_handed_out_although_the_next_one_stops_in_order() {
    let none: [&str; 0] = [];
    let one = || set(limited(1));
    let mut broker = Broker::new();
    broker.says(1, one(), ["1 done"]);
    push_all(&mut broker, 1, &["a|1", "a|2"]);
    assert_eq!(taken(&mut broker), ["1"]);
    start_again(&mut broker, true, one());
    assert_eq!(taken(&mut broker), none);
    broker.now = 2_000;
    start_again(&mut broker, false, one());
    broker.at(6_999, []);
    assert_eq!(taken(&mut broker), none);
    broker.at(7_000, []);
    assert_eq!(taken(&mut broker), ["1"]);
    // Nothing is in doubt now.
    start_again(&mut broker, false, one());
    assert_eq!(taken(&mut broker), ["1"]);
}

#[test]
fn a_filter_finds_the_jobs_of_a_key_in_every_state() {
    let mut broker = keyed(Policy {
        fair: true,
        ..Policy::default()
    });
    push_all(&mut broker, 1, &["a|", "a|", "b|", "x", "y"]);
    let of = |key: &'static str, state| Filter {
        state,
        conditions: vec![Condition::OfKey(key.into())],
        ..in_queue("q", JobStateKind::Ready)
    };
    broker.says(
        1,
        mutate(of("a", Some(JobStateKind::Ready)), Mutation::Kill),
        ["1 mutated 2"],
    );
    broker.says(1, mutate(of("", None), Mutation::Discard), ["1 mutated 2"]);
    broker.says(
        1,
        mutate(of("a", Some(JobStateKind::Dead)), Mutation::Requeue),
        ["1 mutated 2"],
    );
    broker.says(1, mutate(of("z", None), Mutation::Discard), ["1 mutated 0"]);
    broker.says(1, set(Policy::default()), ["1 done"]);
    broker.says(1, mutate(of("a", None), Mutation::Discard), ["1 mutated 0"]);
}
