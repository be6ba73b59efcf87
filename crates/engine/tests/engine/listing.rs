//! Listings a page at a time, and bulk changes by filter.

use bytes::Bytes;
use windlass_engine::{
    Backoff, BulkCommand, ClientCommand, ClientId, Command, Condition, Cursor, Event, Filter,
    JobCommand, JobId, JobRef, JobStateKind, LeaseTerms, Mutation, Notice, OnExpiry, Order,
    Protocol, Query, QueueKind, RepayTo, Reply, Subscription, Timestamp, Watched, WorkerCommand,
    WorkerState,
};

use crate::common;
use crate::common::{
    Broker, all, enlist, fail, in_queue, list_jobs, list_queues, mutate, pause, placed, push,
    remove_queue, signal, take, take_round, with_names,
};

/// j1 dead, j2 retrying, j3 scheduled, j4 leased, j5 done, j6 shelved (queue c), j7 and j8 ready.
fn one_everywhere() -> Broker {
    let mut broker = Broker::new();
    broker.hear(1, push("q").retry(-1, Backoff::None).named("a"));
    broker.hear(1, push("q").retry(1, Backoff::Fixed(9_000)).named("b"));
    broker.hear(1, push("q").not_before(5_000).named("a"));
    broker.hear(1, push("q"));
    broker.hear(1, push("q").keep_result(9_000));
    broker.hear(1, push("c").cycle());
    for job in [1, 2, 4, 5] {
        assert_eq!(
            common::words(&broker.hear(2, take(["q"]))),
            [format!("2 took j{job}.1")]
        );
    }
    broker.hear(2, fail(1));
    broker.hear(2, fail(2));
    broker.hear(2, common::finish(5));
    broker.hear(2, take_round("c"));
    broker.hear(2, common::repay(6, 2, RepayTo::Drop));
    broker.hear(1, push("q").with(|job| job.protocol = Protocol::FAKTORY));
    broker.hear(1, push("r").with(|job| job.body = "odd".into()));
    broker.engine.check();
    broker
}

fn with_body(text: &'static str) -> Filter {
    Filter {
        conditions: vec![Condition::Body(text.into())],
        ..all()
    }
}

fn listed(broker: &mut Broker, filter: Filter) -> Vec<u64> {
    let events = broker.hear(1, list_jobs(filter));
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
    let mut jobs: Vec<u64> = rows.iter().map(|row| row.job.id.0).collect();
    jobs.sort_unstable();
    jobs
}

#[test]
fn filters() {
    let table: Vec<(&str, Filter, &[u64])> = vec![
        ("all", all(), &[1, 2, 3, 4, 5, 6, 7, 8]),
        ("ready", placed(JobStateKind::Ready), &[7, 8]),
        ("leased", placed(JobStateKind::Leased), &[4]),
        ("scheduled", placed(JobStateKind::Scheduled), &[3]),
        ("retrying", placed(JobStateKind::Retrying), &[2]),
        ("dead", placed(JobStateKind::Dead), &[1]),
        ("shelved", placed(JobStateKind::Parked), &[6]),
        ("done", placed(JobStateKind::Done), &[5]),
        ("ready in a queue", in_queue("q", JobStateKind::Ready), &[7]),
        (
            "dead in another queue",
            in_queue("r", JobStateKind::Dead),
            &[],
        ),
        (
            "in an unknown queue",
            in_queue("x", JobStateKind::Ready),
            &[],
        ),
        (
            "of a protocol",
            Filter {
                protocol: Some(Protocol::FAKTORY),
                ..all()
            },
            &[7],
        ),
        ("of one name, both of it", with_names(["a"]), &[1, 3]),
        (
            "of names, one of them twice",
            with_names(["b", "a", "b"]),
            &[1, 2, 3],
        ),
        (
            "of a name, and dead",
            Filter {
                state: Some(JobStateKind::Dead),
                ..with_names(["a"])
            },
            &[1],
        ),
        ("of an unknown name", with_names(["x"]), &[]),
        (
            "of numbers, one of them twice, one unknown",
            Filter {
                ids: vec![JobId(3), JobId(99), JobId(1), JobId(3)],
                ..all()
            },
            &[1, 3],
        ),
        ("that fulfil a condition", with_body("odd"), &[8]),
        (
            "that fulfil all conditions",
            Filter {
                conditions: vec![Condition::Unnamed; 2],
                ..all()
            },
            &[4, 5, 6, 7, 8],
        ),
        (
            "that need a reader",
            Filter {
                conditions: vec![Condition::Type("odd".into())],
                ..all()
            },
            &[],
        ),
    ];
    let mut broker = one_everywhere();
    for (name, filter, expected) in table {
        assert_eq!(listed(&mut broker, filter), expected, "{name}");
    }
}

/// Reads a listing with pages of this size.
fn walk(broker: &mut Broker, filter: &Filter, limit: u32) -> Vec<u64> {
    walk_by(broker, None, filter, limit)
}

/// The same in another order.
fn walk_by(broker: &mut Broker, order: Option<Order>, filter: &Filter, limit: u32) -> Vec<u64> {
    let (mut jobs, mut after) = (Vec::new(), Cursor::default());
    for _ in 0..10_000 {
        let filter = Box::new(filter.clone());
        let query = match order {
            None => Query::Jobs {
                filter,
                after,
                limit,
            },
            Some(order) => Query::JobsBy {
                order,
                filter,
                after,
                limit,
            },
        };
        let events = broker.hear(1, query);
        let [(_, Event::Reply(_, Reply::Jobs { rows, next, .. }))] = events.as_slice() else {
            panic!("{events:?}")
        };
        assert!(rows.len() <= limit as usize);
        jobs.extend(rows.iter().map(|row| row.job.id.0));
        match next {
            Some(next) => after = *next,
            None => return jobs,
        }
    }
    panic!("the listing does not end: {jobs:?}");
}

#[test]
fn pages_show_every_row_once_and_in_order() {
    let mut broker = Broker::new();
    for n in 0..60_u64 {
        broker.hear(
            1,
            push("q")
                .priority(u8::try_from(1 + n % 9).unwrap())
                .named(if n % 2 == 0 { "even" } else { "odd" }),
        );
        broker.hear(1, push("s").not_before(9_000 - n * 7));
        // All have the same sort key except for their order of insertion.
        broker.hear(1, push("c").cycle().front());
    }
    let by_three = |rest: u64| (0..60).map(move |n| n * 3 + rest).collect::<Vec<u64>>();
    let mut by_priority = by_three(1);
    by_priority.sort_by_key(|id| std::cmp::Reverse((id / 3) % 9));
    let mut latest_first = by_three(2);
    latest_first.reverse();
    let evens: Vec<u64> = by_three(1).into_iter().step_by(2).collect();
    for limit in [1, 2, 7, 59, 60, 1_000] {
        assert_eq!(
            walk(&mut broker, &in_queue("q", JobStateKind::Ready), limit),
            by_priority,
            "ready, {limit}"
        );
        assert_eq!(
            walk(&mut broker, &in_queue("c", JobStateKind::Ready), limit),
            by_three(3),
            "cycle, {limit}"
        );
        assert_eq!(
            walk(&mut broker, &placed(JobStateKind::Scheduled), limit),
            latest_first,
            "scheduled, {limit}"
        );
        assert_eq!(
            walk(&mut broker, &with_names(["even"]), limit),
            evens,
            "by name, {limit}"
        );
        let newest_first: Vec<u64> = (1..=180).rev().collect();
        assert_eq!(
            walk(&mut broker, &all(), limit),
            newest_first,
            "all, {limit}"
        );
        for (filter, rest) in [
            (in_queue("q", JobStateKind::Ready), 1),
            (placed(JobStateKind::Scheduled), 2),
        ] {
            let mut expected = by_three(rest);
            assert_eq!(
                walk_by(&mut broker, Some(Order::Oldest), &filter, limit),
                expected,
                "oldest, {limit}"
            );
            expected.reverse();
            assert_eq!(
                walk_by(&mut broker, Some(Order::Newest), &filter, limit),
                expected,
                "newest, {limit}"
            );
        }
    }
}

#[test]
fn dead_jobs_are_listed_by_their_end() {
    let mut broker = Broker::new();
    for _ in 0..4 {
        broker.hear(1, push("q").retry(-1, Backoff::None));
        broker.hear(2, take(["q"]));
    }
    for (at, job) in [(1_010, 2), (1_020, 4), (1_030, 1), (1_040, 3)] {
        broker.now = at;
        broker.hear(2, fail(job));
    }
    for limit in [1, 2, 9] {
        let dead = placed(JobStateKind::Dead);
        assert_eq!(
            walk_by(&mut broker, Some(Order::Oldest), &dead, limit),
            [2, 4, 1, 3]
        );
        assert_eq!(
            walk_by(&mut broker, Some(Order::Newest), &dead, limit),
            [3, 1, 4, 2]
        );
        assert_eq!(walk(&mut broker, &dead, limit), [3, 1, 4, 2]);
    }
}

#[test]
fn a_page_is_never_longer_than_the_limit() {
    let mut broker = Broker::limited(|limits| limits.page_max = 3);
    for _ in 0..5 {
        broker.hear(1, push("q"));
    }
    broker.says(
        1,
        list_jobs(in_queue("q", JobStateKind::Ready)),
        ["1 jobs j1 j2 j3 and more"],
    );
    broker.says(
        1,
        Command::Query(Query::Jobs {
            filter: all().into(),
            after: Cursor::default(),
            limit: 0,
        }),
        ["1 jobs j5 and more"],
    );
}

/// A filter with few matches does not examine everything in a visit.
#[test]
fn an_empty_page_may_have_a_successor() {
    let mut broker = Broker::new();
    for _ in 0..100 {
        broker.hear(1, push("q"));
    }
    let nothing = Filter {
        protocol: Some(Protocol::EVENTMQ),
        ..in_queue("q", JobStateKind::Ready)
    };
    broker.says(
        1,
        Command::Query(Query::Jobs {
            filter: nothing.clone().into(),
            after: Cursor::default(),
            limit: 2,
        }),
        ["1 jobs and more"],
    );
    assert_eq!(walk(&mut broker, &nothing, 2), []);
}

#[test]
fn bulk_changes() {
    // The new states of j1 dead, j2 retrying, j3 scheduled, j4 leased, j5 done, j6 parked, j7 and j8 ready.
    let table = [
        (Mutation::Cancel, "1 mutated 8", ["gone"; 8]),
        (
            Mutation::Release,
            "1 mutated 1",
            [
                "dead",
                "retrying",
                "scheduled",
                "ready",
                "done",
                "shelved",
                "ready",
                "ready",
            ],
        ),
        (
            Mutation::Discard,
            "1 mutated 7",
            [
                "gone", "gone", "gone", "leased", "gone", "gone", "gone", "gone",
            ],
        ),
        (
            Mutation::Kill,
            "1 mutated 4",
            [
                "dead", "dead", "dead", "leased", "done", "shelved", "dead", "dead",
            ],
        ),
        (
            Mutation::Requeue,
            "1 mutated 3",
            [
                "ready", "ready", "ready", "leased", "done", "shelved", "ready", "ready",
            ],
        ),
    ];
    for (action, expected, places) in table {
        let mut broker = one_everywhere();
        let preview = Query::Preview {
            filter: all().into(),
            action,
            after: Cursor::default(),
            limit: 1_000,
        };
        broker.says(
            1,
            Command::Query(preview),
            [expected.replace("mutated", "counted").as_str()],
        );
        broker.says(1, mutate(all(), action), [expected]);
        for (job, state) in (1..).zip(places) {
            let is = broker.place(job);
            assert!(is.starts_with(state), "{action:?}: j{job} is {is}");
        }
    }
}

#[test]
fn kill_and_discard_notify_listeners_of_the_end() {
    for action in [Mutation::Kill, Mutation::Discard] {
        let mut broker = Broker::new();
        broker.says(2, push("q").listen(), ["2 new j1"]);
        broker.says(
            1,
            mutate(all(), action),
            ["2 ended j1 cancelled", "1 mutated 1"],
        );
    }
}

/// The dead-letter queue is journalled: a job that is not durable does not enter it.
#[test]
fn a_killed_foreground_job_is_removed() {
    let mut broker = Broker::new();
    broker.says(2, push("q").foreground(), ["2 new j1"]);
    broker.says(
        1,
        mutate(all(), Mutation::Kill),
        ["2 ended j1 cancelled", "1 mutated 1"],
    );
    assert_eq!(broker.place(1), "gone");
}

#[test]
fn queues_and_their_figures() {
    let mut broker = one_everywhere();
    broker.hear(3, common::serve("q"));
    broker.says(1, list_queues(), ["1 queues q c r"]);
    let events = broker.hear(1, list_queues());
    let [(_, Event::Reply(_, Reply::Queues { rows, .. }))] = events.as_slice() else {
        panic!("{events:?}")
    };
    let [q, c, _] = rows.as_slice() else {
        panic!("{rows:?}")
    };
    // Ready, leased, scheduled, retrying, dead, shelved, done.
    assert_eq!(
        (q.kind, q.places, q.live(), q.workers),
        (QueueKind::Work, [1, 1, 1, 1, 1, 0, 1], 4, 2)
    );
    assert_eq!(
        (c.kind, c.places, c.live(), c.workers),
        (QueueKind::Cycle, [0, 0, 0, 0, 0, 1, 0], 0, 1)
    );
    assert_eq!(
        (
            q.ready[4],
            q.oldest_ready_at.map(|at| at.0),
            c.oldest_ready_at
        ),
        (1, Some(1_000), None)
    );
}

#[test]
fn the_pages_after_the_first_omit_queues_that_are_younger() {
    let mut broker = one_everywhere();
    let page = |after, limit| Query::Queues { after, limit };
    let events = broker.hear(1, page(Cursor::default(), 1));
    let [
        (
            _,
            Event::Reply(
                _,
                Reply::Queues {
                    rows,
                    next: Some(next),
                },
            ),
        ),
    ] = events.as_slice()
    else {
        panic!("{events:?}")
    };
    assert_eq!(
        rows.iter().map(|row| &row.name[..]).collect::<Vec<_>>(),
        [b"q"]
    );
    broker.hear(1, push("late"));
    broker.says(1, page(*next, 9), ["1 queues c r"]);
    broker.says(1, page(Cursor::default(), 9), ["1 queues q c r late"]);
}

#[test]
fn queues_with_settings_are_listed_a_page_at_a_time_even_unused() {
    let mut broker = one_everywhere();
    let page = |after, limit| Command::Query(Query::Configured { after, limit });
    broker.says(1, page(Cursor::default(), 9), ["1 queues"]);
    broker.hear(1, common::throttle("r", Some(1), None, None));
    broker.hear(1, common::throttle("unused", Some(2), None, None));
    broker.says(1, page(Cursor::default(), 9), ["1 queues r unused"]);
    let events = broker.hear(1, page(Cursor::default(), 1));
    let [
        (
            _,
            Event::Reply(
                _,
                Reply::Queues {
                    rows,
                    next: Some(next),
                },
            ),
        ),
    ] = events.as_slice()
    else {
        panic!("{events:?}")
    };
    assert_eq!(rows[0].throttle.unwrap().leased_max, Some(1));
    broker.says(1, page(*next, 1), ["1 queues unused"]);
}

#[test]
fn one_queue() {
    let mut broker = Broker::new();
    let look = |name: &'static str| Command::Query(Query::Queue { queue: name.into() });
    broker.says(1, look("q"), ["1 queues"]);
    broker.hear(2, common::take(["q"]).forever());
    broker.says(1, look("q"), ["1 queues"]);
    broker.hear(1, push("q"));
    broker.hear(1, push("r"));
    broker.says(1, look("r"), ["1 queues r"]);
    let events = broker.hear(1, look("q"));
    let [
        (
            _,
            Event::Reply(
                _,
                Reply::Queues {
                    rows, next: None, ..
                },
            ),
        ),
    ] = events.as_slice()
    else {
        panic!("{events:?}")
    };
    assert_eq!(
        rows.first().map(|row| row.places),
        Some([0, 1, 0, 0, 0, 0, 0])
    );
}

#[test]
fn a_barrier_changes_nothing_and_acknowledges() {
    let mut broker = Broker::new();
    let events = broker.hear(1, Command::Barrier);
    let [(_, event)] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert!(event.is_barrier() && event.acknowledges());
    assert!(!Event::Reply(windlass_engine::Tag(1), Reply::Done).is_barrier());
}

#[test]
fn clients_in_order_of_their_numbers() {
    let mut broker = Broker::new();
    for (client, label) in [(3, "three"), (1, "one"), (2, "two"), (4, "four")] {
        broker.says(
            client,
            Command::Client(ClientCommand::SetName(label.into())),
            [],
        );
    }
    broker.says(
        1,
        Command::Query(Query::Clients {
            after: Cursor::default(),
            limit: 9,
        }),
        ["1 clients one two three four"],
    );
    broker.says(
        1,
        Command::Query(Query::Clients {
            after: Cursor(2, 0),
            limit: 2,
        }),
        ["1 clients two three and more"],
    );
}

#[test]
fn a_page_of_clients_names_16_queues_for_each_of_its_rows() {
    let mut broker = Broker::new();
    for (client, queue) in (1..=2).flat_map(|client| (0..20).map(move |queue| (client, queue))) {
        let (queue, lease) = (format!("q{queue}").into(), LeaseTerms::CONNECTION);
        broker.hear(
            client,
            ClientCommand::Serve(Subscription {
                queue,
                weight: 0,
                lease,
                unclaimed: None,
            }),
        );
    }
    let events = broker.hear(
        1,
        Query::Clients {
            after: Cursor::default(),
            limit: 2,
        },
    );
    let [(_, Event::Reply(_, Reply::Clients { rows, .. }))] = events.as_slice() else {
        panic!("{events:?}")
    };
    let named: Vec<_> = rows
        .iter()
        .map(|row| (row.subscriptions.len(), row.goes_on))
        .collect();
    assert_eq!(named, [(20, false), (12, true)]);
}

#[test]
fn workers_are_listed_in_pages_with_what_they_hold() {
    let mut broker = Broker::new();
    for (client, worker) in [(1, "a"), (2, "b"), (3, "b")] {
        let register = WorkerCommand::Register {
            worker: worker.into(),
            about: "about".into(),
        };
        broker.says(
            client,
            Command::Worker(register),
            [format!("{client} done").as_str()],
        );
    }
    broker.hear(1, push("x"));
    broker.hear(2, take(["x"]).for_ms(5_000, OnExpiry::Requeue).worker("b"));
    let list = |after, limit| Command::Query(Query::Workers { after, limit });
    broker.says(1, list(Cursor::default(), 9), ["1 workers a 0 b 1"]);
    broker.says(1, list(Cursor::default(), 1), ["1 workers a 0 and more"]);
    let events = broker.hear(1, list(Cursor(2, 0), 9));
    let [(_, Event::Reply(_, Reply::Workers { rows, next: None }))] = events.as_slice() else {
        panic!("{events:?}")
    };
    let [row] = rows.as_slice() else {
        panic!("{rows:?}")
    };
    assert_eq!(
        (&row.name[..], &row.about[..], row.connections, row.held),
        (&b"b"[..], &b"about"[..], 2, 1)
    );
    assert_eq!(row.state, WorkerState::Running);
    assert_eq!(
        (row.waiting, row.jobs.as_slice()),
        (
            Some(0),
            &[(JobId(1), Bytes::from("x"), Timestamp(1_000))][..]
        )
    );
    broker.hear(3, take(["x"]).forever());
    let events = broker.hear(1, list(Cursor(2, 0), 9));
    let [(_, Event::Reply(_, Reply::Workers { rows, .. }))] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(rows[0].waiting, Some(1));
    let events = broker.hear(1, Query::Queue { queue: "x".into() });
    let [(_, Event::Reply(_, Reply::Queues { rows, .. }))] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((rows[0].workers, rows[0].waiting), (2, Some(1)));
}

#[test]
fn stats_add_up() {
    let mut broker = one_everywhere();
    broker.hear(3, take(["x"]).forever());
    broker.hear(1, JobCommand::Cancel(JobRef::Id(windlass_engine::JobId(8))));
    let events = broker.hear(1, Query::Stats);
    let [(_, Event::Reply(_, Reply::Stats(stats)))] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((stats.jobs, stats.places), (7, [1, 1, 1, 1, 1, 1, 1]));
    assert_eq!((stats.queues, stats.clients), (3, 4));
    let events = broker.hear(
        1,
        Query::Clients {
            after: Cursor::default(),
            limit: 9,
        },
    );
    let [(_, Event::Reply(_, Reply::Clients { rows, .. }))] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(rows.iter().filter(|row| row.waits).count(), 1);
    let t = stats.totals;
    assert_eq!(
        (t.pushed, t.taken, t.succeeded, t.failed, t.buried),
        (8, 5, 2, 2, 1)
    );
    assert_eq!((t.cancelled, t.lost, t.expired), (1, 0, 0));
}

#[test]
fn a_connection_is_closed_for_an_operator() {
    let mut broker = Broker::new();
    broker.hear(2, ClientCommand::SetName("two".into()));
    let events = broker.hear(
        1,
        Query::Clients {
            after: Cursor::default(),
            limit: 9,
        },
    );
    let [(_, Event::Reply(_, Reply::Clients { rows, .. }))] = events.as_slice() else {
        panic!("{events:?}")
    };
    let two = rows.iter().find(|row| row.label == "two").unwrap().id;
    broker.says(1, ClientCommand::Disconnect(two), ["2 closed", "1 done"]);
    broker.says(
        1,
        ClientCommand::Disconnect(ClientId(99)),
        ["1 refused: connection unknown"],
    );
}

#[test]
fn a_watcher_sees_what_happens_to_queues_and_workers() {
    let watch = |queue: Option<&'static str>| ClientCommand::Watch {
        queue: queue.map(Into::into),
        text: Bytes::new(),
        room: 99,
    };
    let mut broker = Broker::new();
    broker.hear(1, push("q"));
    broker.hear(3, watch(Some("q")));
    broker.hear(2, watch(None));
    broker.says(
        1,
        pause("q", true),
        ["1 done", "3 sees q Paused", "2 sees q Paused"],
    );
    broker.says(1, pause("q", true), ["1 done"]);
    broker.says(
        1,
        pause("q", false),
        ["1 done", "3 sees q Resumed", "2 sees q Resumed"],
    );
    let all = Filter {
        queue: Some("q".into()),
        state: Some(JobStateKind::Ready),
        ..Filter::default()
    };
    let clear = |filter: &Filter, after| {
        let filter = filter.clone().into();
        Command::Bulk(BulkCommand::Mutate {
            filter,
            action: Mutation::Discard,
            after,
            limit: 9,
        })
    };
    let seen = broker.hear(1, clear(&all, Cursor::default()));
    assert!(
        common::words(&seen).contains(&"2 sees q Cleared".to_owned()),
        "{seen:?}"
    );
    broker.says(1, clear(&all, Cursor(1, 0)), ["1 mutated 0"]);
    broker.says(1, mutate(all.clone(), Mutation::Requeue), ["1 mutated 0"]);
    let some = Filter {
        protocol: Some(Protocol::FAKTORY),
        ..all
    };
    broker.says(1, clear(&some, Cursor::default()), ["1 mutated 0"]);
    broker.says(
        1,
        remove_queue("q", false),
        ["1 done", "3 sees q Removed", "2 sees q Removed"],
    );
    broker.says(4, enlist("w"), ["4 done", "2 sees w Registered"]);
    broker.says(1, enlist("w"), ["1 done"]);
    broker.says(
        1,
        signal("w", WorkerState::Quiet),
        ["1 done", "2 sees w Quiet"],
    );
    broker.says(
        1,
        signal("w", WorkerState::Terminate),
        ["1 done", "2 sees w Stopping"],
    );
    broker.says(1, ClientCommand::Close, []);
    broker.says(4, ClientCommand::Close, ["2 sees w Gone"]);
    [1, 4].into_iter().for_each(|client| broker.open(client));
    broker.says(1, enlist("v"), ["1 done", "2 sees v Registered"]);
    broker.says(4, enlist("w"), ["4 done", "2 sees w Registered"]);
    broker.says(
        1,
        signal("v", WorkerState::Quiet),
        ["1 done", "2 sees v Quiet"],
    );
    broker.says(4, WorkerCommand::Drain, ["4 done", "2 sees w Quiet"]);
}

#[test]
fn a_watcher_sees_changes_as_far_as_it_has_room() {
    let watch = |queue: Option<&'static str>, room| {
        let queue = queue.map(Into::into);
        ClientCommand::Watch {
            queue,
            text: Bytes::new(),
            room,
        }
    };
    let mut broker = Broker::new();
    broker.says(3, watch(Some("other"), 9), []);
    broker.says(2, watch(None, 3), []);
    broker.says(1, push("q"), ["1 new j1", "2 sees j1 Ready"]);
    broker.says(1, common::take(["q"]), ["1 took j1.1", "2 sees j1 Leased"]);
    broker.says(
        1,
        push("other"),
        ["1 new j2", "3 sees j2 Ready", "2 sees j2 Ready"],
    );
    broker.says(1, common::finish(1), ["1 finished j1"]);
    broker.says(1, push("q"), ["1 new j3"]);
    broker.says(2, watch(None, 0), []);
    broker.says(2, watch(None, 2), ["2 missed 2"]);
    broker.says(2, watch(None, 0), []);
    broker.says(
        1,
        Command::Job(JobCommand::Cancel(common::id(3))),
        ["1 done", "2 sees j3 gone"],
    );
    // The count took the other place.
    broker.says(1, push("q"), ["1 new j4"]);
    // It has missed a change when it disconnects; another client gets the same ID.
    broker.hear(2, ClientCommand::Close);
    broker.open(2);
    broker.says(2, watch(Some("q"), 9), []);
    broker.says(1, push("q"), ["1 new j5", "2 sees j5 Ready"]);
    broker.hear(2, ClientCommand::Close);
    broker.says(1, push("q"), ["1 new j6"]);
}

#[test]
fn a_watcher_of_a_text_sees_the_jobs_that_have_it_with_their_bodies() {
    let mut broker = Broker::new();
    broker.hear(
        2,
        ClientCommand::Watch {
            queue: None,
            text: "needle".into(),
            room: 9,
        },
    );
    broker.says(1, pause("q", true), ["1 done"]);
    broker.says(1, pause("q", false), ["1 done"]);
    broker.says(1, push("q"), ["1 new j1"]);
    let events = broker.hear(1, push("q").with(|job| job.body = "hay needle hay".into()));
    let seen = events.iter().find_map(|(_, event)| match event {
        Event::Notice(Notice::Watched(Watched::Changed(change))) => Some(change.clone()),
        Event::Reply(..) | Event::Notice(_) => None,
    });
    let change = seen.unwrap();
    assert_eq!(
        (&change.body[..], change.now),
        (&b"hay needle hay"[..], Some(JobStateKind::Ready))
    );
    assert!(change.at > Timestamp(0));
}
