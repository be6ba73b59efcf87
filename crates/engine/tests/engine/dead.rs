//! The bounds of the dead-letter queue: the oldest jobs are dropped first, and no dead job blocks a push.

use windlass_engine::{
    Backoff, BulkCommand, Change, Clash, ClientCommand, ClientId, Command, Context, Cursor,
    DeadDropped, Engine, Event, Expiry, JobCommand, JobId, JobStateKind, Limits, Mutation,
    QueueCommand, QueueRules, Reply, Retry, Tag, Timestamp,
};

use crate::common;
use crate::common::{
    Broker, all, fail, finish, in_queue, list_jobs, mutate, name, placed, push, take,
};

fn mortal(bytes: usize) -> common::Push {
    push("q")
        .retry(-1, Backoff::None)
        .with(|job| job.body = vec![7; bytes].into())
}

/// Pushes jobs with bodies of this size, one per millisecond, and lets them die.
fn die(broker: &mut Broker, many: u64, bytes: usize) {
    for _ in 0..many {
        broker.hear(1, mortal(bytes));
        let events = broker.hear(2, take(["q"]));
        let [(_, Event::Reply(_, Reply::Taken(job)))] = events.as_slice() else {
            panic!("{events:?}")
        };
        broker.hear(2, fail(job.id.0));
        broker.now = broker.now.saturating_add(1);
    }
}

fn dead(broker: &mut Broker) -> Vec<u64> {
    let events = broker.hear(1, list_jobs(placed(JobStateKind::Dead)));
    let [
        (
            _,
            Event::Reply(
                _,
                Reply::Jobs {
                    rows, next: None, ..
                },
            ),
        ),
    ] = events.as_slice()
    else {
        panic!("{events:?}")
    };
    // The last one that died is listed first.
    rows.iter().rev().map(|row| row.job.id.0).collect()
}

/// Ticks until nothing is due, and returns the changes of each tick.
fn come_to_rest(engine: &mut Engine, now: u64) -> Vec<Vec<Change>> {
    let mut changes = Vec::new();
    while engine
        .next_deadline()
        .is_some_and(|at| at <= Timestamp(now))
    {
        let mut context = Context::new(Timestamp(now), 1);
        engine.tick(&mut context);
        changes.push(context.changes);
    }
    engine.check();
    changes
}

/// Runs a command, and returns the events and the number of changes.
fn changes_of(broker: &mut Broker, command: impl Into<Command>) -> (Vec<Event>, usize) {
    let mut context = Context::new(Timestamp(broker.now), 1);
    broker
        .engine
        .apply(ClientId(1), Tag(1), command, &mut context);
    (
        context.events.into_iter().map(|(_, event)| event).collect(),
        context.changes.len(),
    )
}

#[test]
fn the_oldest_dead_are_dropped_when_there_are_too_many() {
    let mut broker = Broker::limited(|limits| limits.dead_max = 3);
    die(&mut broker, 5, 10);
    assert_eq!(dead(&mut broker), [3, 4, 5]);
    assert_eq!(
        broker.engine.dead_dropped(),
        DeadDropped {
            full: 2,
            made_way: 0
        }
    );
    // A requeued job is no longer dead, and makes space for another.
    broker.says(
        1,
        mutate(placed(JobStateKind::Dead), Mutation::Requeue),
        ["1 mutated 3"],
    );
    die(&mut broker, 1, 10);
    broker.engine.check();
    assert_eq!(dead(&mut broker).len(), 1);
}

#[test]
fn the_oldest_dead_are_dropped_when_they_have_too_many_bytes() {
    let mut broker = Broker::limited(|limits| limits.dead_bytes_max = 3 * 1_014);
    die(&mut broker, 5, 500);
    // Each uses 250 bytes in addition to the body, and after a failure 200 and 64 more.
    assert_eq!(dead(&mut broker), [3, 4, 5]);
    // A job that alone exceeds the limit is dropped, and so are all older ones.
    die(&mut broker, 1, 4_000);
    assert_eq!(dead(&mut broker), [0; 0]);
    // A job that is replaced while dead is counted with the new size.
    die(&mut broker, 2, 100);
    broker.hear(
        1,
        JobCommand::Replace {
            job: common::id(8),
            body: vec![7; 2_600].into(),
        },
    );
    assert_eq!(dead(&mut broker), [0; 0]);
    broker.engine.check();
}

#[test]
fn bodies_of_dead_jobs_do_not_count_as_memory() {
    let mut broker = Broker::limited(|limits| limits.dead_memory_max = 3 * 514);
    die(&mut broker, 5, 500);
    assert_eq!(dead(&mut broker), [3, 4, 5]);
    die(&mut broker, 1, 4_000);
    assert_eq!(
        dead(&mut broker),
        [4, 5, 6],
        "a large body takes the place of one job"
    );
    broker.engine.check();
}

#[test]
fn no_dead_job_is_kept_with_a_limit_of_zero() {
    let mut broker = Broker::limited(|limits| limits.dead_max = 0);
    die(&mut broker, 1, 10);
    assert_eq!(dead(&mut broker), [0; 0]);
    assert_eq!(broker.engine.job_count(), 0);
}

#[test]
fn what_is_due_at_the_last_moment_of_time_is_due() {
    let mut broker = Broker::limited(|limits| limits.dead_max = 0);
    broker.at(u64::MAX, []);
    die(&mut broker, 1, 10);
    assert_eq!(dead(&mut broker), [0; 0]);
}

#[test]
fn dead_jobs_make_room_for_a_push() {
    let mut broker = Broker::limited(|limits| limits.jobs_max = 4);
    die(&mut broker, 4, 10);
    broker.says(1, push("q"), ["1 new j5"]);
    assert_eq!(dead(&mut broker), [2, 3, 4]);
    for _ in 0..3 {
        broker.hear(1, push("q"));
    }
    assert_eq!(dead(&mut broker), [0; 0]);
    // Live jobs are not dropped.
    broker.says(1, push("q"), ["1 refused: daemon is full: jobs 4, limit 4"]);
    assert_eq!(
        broker.engine.dead_dropped(),
        DeadDropped {
            full: 0,
            made_way: 4
        }
    );

    let mut broker = Broker::limited(|limits| limits.jobs_bytes_max = 10_000);
    die(&mut broker, 10, 500);
    broker.says(1, mortal(9_500), ["1 new j11"]);
    assert_eq!(dead(&mut broker), [0; 0]);
    let said = common::words(&broker.hear(1, mortal(500)));
    assert!(
        said[0].starts_with("1 refused: daemon is full: bytes of jobs "),
        "{said:?}"
    );
}

#[test]
fn dead_jobs_stay_until_all_jobs_exceed_their_bytes() {
    for (bytes_max, kept, made_way) in [(2 * 1_014, vec![1, 2], 0), (2 * 1_014 - 1, vec![2], 1)] {
        let mut broker = Broker::limited(|limits| limits.jobs_bytes_max = bytes_max);
        die(&mut broker, 2, 500);
        assert_eq!(dead(&mut broker), kept, "{bytes_max}");
        assert_eq!(
            broker.engine.dead_dropped(),
            DeadDropped { full: 0, made_way },
            "{bytes_max}"
        );
    }
}

#[test]
fn live_jobs_beyond_a_lower_limit_stay() {
    let mut broker = Broker::new();
    (0..2).for_each(|_| drop(broker.hear(1, push("q"))));
    broker.engine.set_limits(Limits {
        jobs_max: 1,
        ..broker.engine.limits().clone()
    });
    assert_eq!(
        (
            broker.engine.has_past_to_drop(),
            broker.engine.next_deadline()
        ),
        (false, None)
    );
    broker.at(2_000, []);
    assert_eq!(
        (broker.engine.job_count(), broker.engine.dead_dropped()),
        (2, DeadDropped::default())
    );
}

#[test]
fn dead_jobs_make_no_room_for_a_refused_push() {
    let mut broker = Broker::limited(|limits| limits.jobs_bytes_max = 5_000);
    die(&mut broker, 3, 500);
    // Without the dead jobs there is not enough space either, so they stay.
    let said = common::words(&broker.hear(1, mortal(5_001)));
    assert!(said[0].starts_with("1 refused"), "{said:?}");
    broker.hear(1, common::limit("full", 0));
    let said =
        common::words(&broker.hear(1, push("full").with(|job| job.body = vec![7; 4_000].into())));
    assert_eq!(said, ["1 refused: queue is full: jobs 0, limit 0"]);
    assert_eq!(dead(&mut broker), [1, 2, 3]);
}

#[test]
fn a_push_may_drop_the_last_dead_job_of_its_queue() {
    let mut broker = Broker::limited(|limits| limits.jobs_max = 1);
    die(&mut broker, 1, 10);
    broker.says(1, common::remove_queue("q", false), ["1 done"]);
    broker.says(1, push("q"), ["1 new j2"]);
    broker.engine.check();
    assert_eq!(
        common::words(&broker.hear(1, common::list_queues())),
        ["1 queues q"]
    );
}

#[test]
fn a_dropped_dead_job_is_removed_from_the_journal() {
    let mut broker = Broker::limited(|limits| limits.dead_max = 1);
    die(&mut broker, 2, 10);
    assert_eq!(
        come_to_rest(&mut broker.engine, broker.now),
        [[Change::JobGone(JobId(1))]]
    );
}

#[test]
fn many_deaths_at_once_are_dropped_a_page_at_a_time() {
    const JOBS: u64 = 5_000;
    const PAGE: usize = 100;
    let mut broker = Broker::limited(|limits| (limits.dead_max, limits.page_max) = (10, 100));
    for _ in 0..JOBS {
        broker.hear(1, mortal(10));
    }
    let (mut left, mut after) = (JOBS, windlass_engine::Cursor::default());
    while left > 0 {
        let command = Command::Bulk(BulkCommand::Mutate {
            filter: all().into(),
            action: Mutation::Kill,
            after,
            limit: 1_000,
        });
        let (events, changes) = changes_of(&mut broker, command);
        let [Event::Reply(_, Reply::Mutated { changed, next, .. })] = events.as_slice() else {
            panic!("{events:?}")
        };
        // The jobs that it kills, and a page of the older excess.
        assert!(changes <= 2 * PAGE, "{changes}");
        left -= u64::from(*changed);
        after = next.unwrap_or_default();
    }
    come_to_rest(&mut broker.engine, broker.now);
    assert_eq!(broker.engine.job_count(), 10);
    assert_eq!(broker.engine.dead_dropped().full, JOBS - 10);
}

#[test]
fn a_journal_with_more_than_is_allowed_now_is_cut_down_a_page_at_a_time() {
    let mut broker = Broker::new();
    die(&mut broker, 1_000, 10);
    let limits = Limits {
        dead_max: 5,
        page_max: 100,
        ..Limits::default()
    };
    let mut engine = Engine::new(limits, 7);
    engine.recall_meta(broker.engine.meta().clone(), true);
    broker
        .engine
        .queues()
        .for_each(|queue| engine.recall_queue(queue.image().clone()));
    broker
        .engine
        .jobs()
        .for_each(|job| assert!(engine.recall_job(job.clone())));
    engine.wake_up();
    assert_eq!(
        (engine.job_count(), engine.has_past_to_drop()),
        (1_000, true)
    );
    let ticks = come_to_rest(&mut engine, broker.now);
    assert!(ticks.iter().all(|changes| changes.len() <= 100));
    assert_eq!(
        (engine.job_count(), engine.has_past_to_drop(), ticks.len()),
        (5, false, 10)
    );
    let youngest: Vec<u64> = (996..=1_000).collect();
    let mut left: Vec<u64> = engine.jobs().map(|job| job.id.0).collect();
    left.sort_unstable();
    assert_eq!(left, youngest);
    assert!(engine.next_deadline() > Some(Timestamp(1)));
}

#[test]
fn dead_jobs_become_ready_one_after_another_at_a_rate_and_a_restart_keeps_their_times() {
    let mut broker = Broker::new();
    for _ in 0..5 {
        broker.hear(1, push("q"));
    }
    broker.hear(1, mutate(placed(JobStateKind::Ready), Mutation::Kill));
    broker.says(1, push("q"), ["1 new j6"]);
    let redrive = |delay_ms| Mutation::Redrive {
        delay_ms,
        per_second: 2,
    };
    let matching = || windlass_engine::Filter {
        ids: (1..=4).map(JobId).collect(),
        ..windlass_engine::Filter::default()
    };
    broker.hear(1, mutate(matching(), redrive(1_000)));
    // Only dead jobs are redriven: neither a repetition nor a ready job has an effect.
    broker.hear(1, mutate(matching(), redrive(0)));
    broker.hear(1, mutate(placed(JobStateKind::Ready), redrive(0)));
    broker.restart(windlass_engine::Limits::default());
    let ready = |broker: &Broker| {
        let ready = broker
            .engine
            .jobs()
            .filter(|job| job.state == windlass_engine::JobState::Ready);
        ready
            .map(|job| job.id.0)
            .collect::<std::collections::BTreeSet<_>>()
    };
    let start = 1_000;
    for (ms, expected) in [
        (999, vec![6]),
        (1_000, vec![1, 6]),
        (1_500, vec![1, 2, 6]),
        (2_500, vec![1, 2, 3, 4, 6]),
    ] {
        broker.at(start + ms, []);
        assert_eq!(
            ready(&broker),
            expected.into_iter().collect(),
            "after {ms} ms"
        );
    }
    assert_eq!(
        broker.engine.job(JobId(5)).map(|job| job.state.kind()),
        Some(JobStateKind::Dead)
    );
}

/// Moves dead jobs of the queue `q` to another one.
fn move_to(queue: &'static str, per_second: u32) -> Command {
    let filter = Box::new(in_queue("q", JobStateKind::Dead));
    Command::Bulk(BulkCommand::Redrive {
        filter,
        to: name(queue),
        delay_ms: 0,
        per_second,
        after: Cursor::default(),
        limit: 100,
    })
}

#[test]
fn dead_jobs_move_to_another_queue_whose_rules_hold_for_them_then() {
    let mut broker = Broker::new();
    let retry = Retry {
        failures_max: 1,
        losses_max: 0,
        backoff: Backoff::None,
    };
    let rules = QueueRules {
        retry: Some(retry),
        body_bytes_max: Some(3),
        ttl_ms: Some(700),
        dead_max: Some(1),
        ..QueueRules::default()
    };
    broker.hear(
        1,
        Command::Queue(QueueCommand::SetRules {
            queue: name("other"),
            rules: rules.into(),
        }),
    );
    let dead = |broker: &mut Broker, job: common::Push| {
        broker.hear(1, job);
        broker.hear(4, take(["q"]));
        let last = broker.engine.jobs().map(|job| job.id.0).max().unwrap();
        broker.hear(4, fail(last));
    };
    let short = |key| {
        push("q")
            .unique(key, Clash::Keep)
            .retry(-1, Backoff::None)
            .with(|job| job.body = name("abc"))
    };
    dead(&mut broker, short("a"));
    dead(&mut broker, short("b"));
    dead(
        &mut broker,
        push("q")
            .retry(-1, Backoff::None)
            .with(|job| job.body = name("long")),
    );
    broker.hear(
        1,
        push("other")
            .unique("a", Clash::Keep)
            .with(|job| job.body = name("x")),
    );
    let before = broker.engine.job_count();
    broker.says(1, move_to("other", 2), ["1 mutated 2"]);
    assert_eq!(broker.engine.job_count(), before);
    // The newest is first. The key is not restored if another job has it, and a body that is too
    // long stays.
    assert_eq!(
        [1, 2].map(|job| broker.place(job)),
        ["retrying 1500", "retrying 1000"]
    );
    assert!(broker.place(3).starts_with("dead"), "{}", broker.place(3));
    let job = |broker: &Broker, id| broker.engine.job(JobId(id)).unwrap().clone();
    assert_eq!(
        [1, 2].map(|id| job(&broker, id).key().is_some()),
        [false, true]
    );
    let moved = job(&broker, 2);
    let expires = moved.extra.as_deref().map(|extra| extra.expires);
    assert_eq!(
        (moved.failures, moved.retry, expires),
        (0, retry, Some(Expiry::By(Timestamp(1_700))))
    );
    broker.restart(windlass_engine::Limits::default());
    broker.at(1_000, []);
    broker.hear(4, take(["other"]));
    broker.hear(4, finish(4));
    for _ in 0..2 {
        assert!(
            !broker.place(2).starts_with("dead"),
            "it has one retry here"
        );
        broker.hear(4, take(["other"]));
        broker.hear(4, fail(2));
    }
    assert!(broker.place(2).starts_with("dead"), "{}", broker.place(2));
    broker.at(2_199, []);
    assert_eq!(broker.place(1), "ready");
    broker.at(2_200, []);
    assert_eq!(broker.place(1), "gone");
    broker.says(1, push("c").cycle(), ["1 new j5"]);
    broker.says(1, move_to("c", 1), ["1 refused: queue of the other kind"]);
}

#[test]
fn only_dead_jobs_move_and_each_begins_anew() {
    let mut broker = Broker::new();
    let rules = QueueRules {
        ttl_ms: Some(700),
        ..QueueRules::default()
    };
    broker.hear(
        1,
        Command::Queue(QueueCommand::SetRules {
            queue: name("brief"),
            rules: rules.into(),
        }),
    );
    broker.says(1, push("q"), ["1 new j1"]);
    broker.says(1, push("q").losses(3), ["1 new j2"]);
    broker.says(4, take(["q"]), ["4 took j1.1"]);
    broker.says(4, take(["q"]), ["4 took j2.1"]);
    broker.hear(4, ClientCommand::Close);
    broker.open(4);
    broker.says(1, push("q"), ["1 new j3"]);
    let losses = |broker: &Broker| {
        broker
            .engine
            .job(JobId(2))
            .and_then(|job| job.extra.as_deref().map(|it| it.losses))
    };
    assert_eq!(losses(&broker), Some(1));
    let move_all = |filter, queue| {
        let (filter, to, after) = (Box::new(filter), name(queue), Cursor::default());
        Command::Bulk(BulkCommand::Redrive {
            filter,
            to,
            delay_ms: 0,
            per_second: 1_000,
            after,
            limit: 9,
        })
    };
    broker.says(
        1,
        move_all(placed(JobStateKind::Ready), "other"),
        ["1 mutated 0"],
    );
    broker.hear(1, mutate(placed(JobStateKind::Ready), Mutation::Kill));
    broker.says(
        1,
        move_all(placed(JobStateKind::Dead), "other"),
        ["1 mutated 3"],
    );
    assert_eq!(losses(&broker), Some(0), "of a job that expires as before");
    let expiry = |broker: &Broker| {
        broker
            .engine
            .job(JobId(3))
            .and_then(|job| Some(job.extra.as_deref()?.expires))
    };
    assert_eq!(expiry(&broker), None, "it has nothing rare");
    broker.hear(1, mutate(all(), Mutation::Kill));
    broker.says(
        1,
        move_all(placed(JobStateKind::Dead), "brief"),
        ["1 mutated 3"],
    );
    assert!(
        matches!(expiry(&broker), Some(Expiry::By(Timestamp(1_700..1_703)))),
        "{:?}",
        expiry(&broker)
    );
}
