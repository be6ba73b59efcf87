//! The cost of a listing or a bulk change in one visit does not depend on how much there is. Counted, not timed.
#![expect(clippy::wildcard_enum_match_arm, reason = "that is how a test fails")]

use windlass_engine::{
    Backoff, BulkCommand, ClientCommand, Command, Condition, Cursor, Event, Filter, JobCommand,
    JobStateKind, Mutation, NewJob, Protocol, Query, QueueCommand, QueueKind, Reply, TakeCommand,
};

use crate::common;
use crate::common::{
    Broker, all, credit, in_queue, placed, push, remove_queue, serve, take, take_served,
};

/// Rows and modified jobs of a page.
const PAGE: u64 = 100;

/// A command that reads pages, from a cursor on.
type Walk = (&'static str, fn(Cursor) -> Command);

/// The maximum cost of a command: a page of rows, each with a search, and the command itself.
const WORK_MAX: u64 = PAGE * (64 + 64) + 1_000;

fn limited() -> Broker {
    Broker::limited(|limits| limits.page_max = 100)
}

/// Runs a command, and returns where to continue and the cost.
fn cost(broker: &mut Broker, command: impl Into<Command>) -> (Option<Cursor>, u64) {
    let before = broker.engine.work();
    let events = broker.hear(1, command);
    let [(_, event)] = events.as_slice() else {
        panic!("{events:?}")
    };
    let (rows, next) = match event {
        Event::Reply(_, Reply::Queues { rows, next, .. }) => (rows.len(), *next),
        Event::Reply(_, Reply::Clients { rows, next, .. }) => (rows.len(), *next),
        Event::Reply(_, Reply::Jobs { rows, next, .. }) => (rows.len(), *next),
        Event::Reply(
            _,
            Reply::Mutated {
                changed: jobs,
                next,
            }
            | Reply::Counted { jobs, next },
        ) => (*jobs as usize, *next),
        Event::Reply(_, Reply::Done) | Event::Reply(_, Reply::Stats(_)) => (0, None),
        other => panic!("{other:?}"),
    };
    assert!(rows as u64 <= PAGE, "{rows} rows");
    (next, broker.engine.work() - before)
}

/// Runs the command to the end. Returns the number of visits, and the cost of the longest.
fn walk(broker: &mut Broker, command: impl Fn(Cursor) -> Command) -> (u64, u64) {
    let (mut visits, mut most, mut after) = (0, 0, Cursor::default());
    loop {
        let (next, work) = cost(broker, command(after));
        visits += 1;
        most = most.max(work);
        match next {
            Some(next) => after = next,
            None => return (visits, most),
        }
    }
}

fn list_queues(after: Cursor) -> Command {
    Command::Query(Query::Queues {
        after,
        limit: u32::MAX,
    })
}

fn list_clients(after: Cursor) -> Command {
    Command::Query(Query::Clients {
        after,
        limit: u32::MAX,
    })
}

fn flush(after: Cursor) -> Command {
    Command::Bulk(BulkCommand::Flush {
        protocol: Protocol::GEARMAN,
        after,
        limit: u32::MAX,
    })
}

fn list(filter: Filter, after: Cursor) -> Command {
    Command::Query(Query::Jobs {
        filter: filter.into(),
        after,
        limit: u32::MAX,
    })
}

fn discard(filter: Filter, after: Cursor) -> Command {
    Command::Bulk(BulkCommand::Mutate {
        filter: filter.into(),
        action: Mutation::Discard,
        after,
        limit: u32::MAX,
    })
}

fn never() -> Filter {
    Filter {
        state: Some(JobStateKind::Dead),
        conditions: vec![Condition::Body("no body has this".into())],
        ..Filter::default()
    }
}

#[test]
fn a_hundred_thousand_queues() {
    const QUEUES: u64 = 100_000;
    let mut broker = limited();
    for n in 0..QUEUES {
        let queue = format!("queue-{n}").into();
        broker.hear(
            1,
            QueueCommand::Create {
                queue,
                kind: QueueKind::Work,
            },
        );
    }
    let (visits, most) = walk(&mut broker, list_queues);
    assert!(
        visits == QUEUES / PAGE && most <= WORK_MAX,
        "{visits} visits of {most}"
    );
    assert!(cost(&mut broker, Command::Query(Query::Stats)).1 <= 100);
    let (visits, most) = walk(&mut broker, flush);
    assert!(
        visits >= QUEUES / PAGE && most <= WORK_MAX,
        "{visits} visits of {most}"
    );
    // Unused numbers cost nothing.
    broker.hear(
        1,
        QueueCommand::Create {
            queue: "last".into(),
            kind: QueueKind::Work,
        },
    );
    let (visits, most) = walk(&mut broker, list_queues);
    assert!(visits == 1 && most <= WORK_MAX, "{visits} visits of {most}");
}

#[test]
fn a_hundred_thousand_jobs() {
    const JOBS: u64 = 100_000;
    let mut broker = limited();
    for n in 0..JOBS {
        let job = NewJob::new(
            if n % 2 == 0 {
                Protocol::GEARMAN
            } else {
                Protocol::FAKTORY
            },
            "q".into(),
            "body".into(),
        );
        broker.hear(1, JobCommand::Push(Box::new(job)));
    }
    let table: [Walk; 7] = [
        ("all", |after| list(all(), after)),
        ("of a protocol without jobs", |after| {
            list(
                Filter {
                    protocol: Some(Protocol::EVENTMQ),
                    ..all()
                },
                after,
            )
        }),
        ("ready", |after| {
            list(in_queue("q", JobStateKind::Ready), after)
        }),
        ("leased", |after| list(placed(JobStateKind::Leased), after)),
        ("counted", |after| {
            let filter = Box::new(Filter {
                conditions: never().conditions,
                ..all()
            });
            Command::Query(Query::Preview {
                filter,
                action: Mutation::Kill,
                after,
                limit: u32::MAX,
            })
        }),
        ("killed", |after| {
            Command::Bulk(BulkCommand::Mutate {
                filter: all().into(),
                action: Mutation::Kill,
                after,
                limit: u32::MAX,
            })
        }),
        ("tested", |after| list(never(), after)),
    ];
    for (name, command) in table {
        let (visits, most) = walk(&mut broker, command);
        assert!(
            visits > 1 && most <= WORK_MAX,
            "{name}: {visits} visits of {most}"
        );
    }
    let (visits, most) = walk(&mut broker, flush);
    assert!(
        visits > JOBS / 2 / PAGE && most <= WORK_MAX,
        "{visits} visits of {most}"
    );
    // The remaining jobs are spread over the slab; then none is left.
    let (_, most) = walk(&mut broker, |after| {
        discard(placed(JobStateKind::Dead), after)
    });
    assert!(most <= WORK_MAX, "{most}");
    assert_eq!(broker.engine.job_count(), 0);
}

#[test]
fn jobs_that_are_left_of_many_are_listed_with_little_work() {
    let mut broker = limited();
    (0..50_000).for_each(|_| drop(broker.hear(1, push("q"))));
    for n in (1..=50_000).filter(|n| n % 1_000 != 0) {
        broker.hear(1, JobCommand::Cancel(common::id(n)));
    }
    let (visits, most) = walk(&mut broker, |after| list(all(), after));
    assert!(visits == 1 && most <= WORK_MAX, "{visits} visits of {most}");
}

#[test]
fn a_queue_of_many_jobs_is_removed_in_parts() {
    const JOBS: u64 = 10_000;
    let mut broker = limited();
    (0..JOBS).for_each(|_| drop(broker.hear(1, push("q"))));
    let mut visits = 0;
    loop {
        let (next, work) = cost(&mut broker, remove_queue("q", false));
        assert!(work <= WORK_MAX, "{work}");
        visits += 1;
        if next.is_none() {
            break;
        }
    }
    assert_eq!(visits, JOBS / PAGE);
}

#[test]
fn clients_with_many_abilities_are_listed_in_parts() {
    const ABILITIES: u64 = 5_000;
    let mut broker = limited();
    for client in 10..1_010 {
        broker.open(client);
    }
    for n in 0..ABILITIES {
        let Command::Client(ClientCommand::Serve(subscription)) = serve("q") else {
            panic!("it serves")
        };
        broker.hear(
            500,
            ClientCommand::Serve(windlass_engine::Subscription {
                queue: format!("q{n}").into(),
                ..subscription
            }),
        );
    }
    let (visits, most) = walk(&mut broker, list_clients);
    assert!(visits > 10 && most <= WORK_MAX, "{visits} visits of {most}");
    // Its rows name each queue once, and the first row has those named last.
    let (mut named, mut after) = (Vec::new(), Cursor::default());
    loop {
        let events = broker.hear(1, list_clients(after));
        let [(_, Event::Reply(_, Reply::Clients { rows, next, .. }))] = events.as_slice() else {
            panic!("{events:?}")
        };
        for row in rows.iter().filter(|row| !row.subscriptions.is_empty()) {
            assert_eq!(row.is_continued, !named.is_empty());
            named.splice(0..0, row.subscriptions.iter().cloned());
            assert_eq!(row.goes_on, named.len() as u64 != ABILITIES);
        }
        match next {
            Some(next) => after = *next,
            None => break,
        }
    }
    assert!(
        named.iter().eq((0..ABILITIES)
            .map(|n| format!("q{n}"))
            .collect::<Vec<_>>()
            .iter())
    );
}

#[test]
fn every_command_on_dead_jobs_runs_in_parts() {
    let mut broker = limited();
    for _ in 0..2_000 {
        broker.hear(
            1,
            push("q")
                .retry(-1, Backoff::None)
                .with(|job| job.body = vec![7; 2_000].into()),
        );
        broker.hear(2, take(["q"]));
    }
    broker.hear(2, ClientCommand::Close);
    let (_, most) = walk(&mut broker, |after| {
        Command::Bulk(BulkCommand::Mutate {
            filter: all().into(),
            action: Mutation::Kill,
            after,
            limit: u32::MAX,
        })
    });
    assert!(most <= WORK_MAX, "{most}");
    let (visits, most) = walk(&mut broker, |after| list(never(), after));
    assert!(visits > 20 && most <= WORK_MAX, "{visits} visits of {most}");
}

/// A connection that serves many queues, has many jobs and listens to many others.
fn busy_client(broker: &mut Broker, many: u64) {
    for n in 0..many {
        let Command::Client(ClientCommand::Serve(subscription)) = serve("q") else {
            panic!("it serves")
        };
        broker.hear(
            3,
            ClientCommand::Serve(windlass_engine::Subscription {
                queue: format!("q{}", n / 2).into(),
                ..subscription
            }),
        );
        broker.hear(1, push("q"));
        broker.hear(3, take(["q"]));
        broker.hear(3, push("r").foreground());
    }
    broker.hear(3, TakeCommand::WaitForWork);
}

#[test]
fn a_busy_connection_closes_in_parts() {
    const MANY: u64 = 1_001;
    for command in [
        Command::Client(ClientCommand::Close),
        Command::Client(ClientCommand::UnserveAll { requeue: true }),
    ] {
        let mut broker = limited();
        busy_client(&mut broker, MANY);
        let mut context = windlass_engine::Context::new(windlass_engine::Timestamp(broker.now), 1);
        let mut parts = 0;
        loop {
            let before = broker.engine.work();
            let more =
                broker
                    .engine
                    .apply_in_part(windlass_engine::ClientId(3), &command, &mut context);
            let work = broker.engine.work() - before;
            assert!(work <= 2 * WORK_MAX, "{command:?}, part {parts}: {work}");
            // Another client may send commands in between, and finds a consistent engine.
            broker.engine.tick(&mut context);
            broker.engine.check();
            if !more {
                break;
            }
            assert!(work >= 10 * PAGE, "{command:?}, part {parts}: {work}");
            parts += 1;
        }
        let each = MANY.div_ceil(PAGE) - 1;
        let expected = if matches!(command, Command::Client(ClientCommand::Close)) {
            3 * each
        } else {
            2 * each
        };
        assert_eq!(parts, expected, "{command:?}");
        let before = broker.engine.work();
        broker.hear(3, command.clone());
        assert!(broker.engine.work() - before <= WORK_MAX, "{command:?}");
        broker.engine.check();
        // All leased jobs are ready again, and jobs without other listeners are removed.
        let count = |state| {
            broker
                .engine
                .queues()
                .map(|queue| queue.jobs(state))
                .sum::<u32>()
        };
        assert_eq!(count(JobStateKind::Leased), 0, "{command:?}");
        let followed = if matches!(command, Command::Client(ClientCommand::Close)) {
            0
        } else {
            MANY
        };
        assert_eq!(
            u64::from(count(JobStateKind::Ready)),
            MANY + followed,
            "{command:?}"
        );
        assert!(broker.engine.queues().all(|queue| queue.image().is_known()));
    }
}

#[test]
fn all_that_a_connection_has_ends_a_page_at_a_time() {
    type OneMore = fn(&mut Broker, &'static str);
    let table: [(&str, OneMore); 3] = [
        ("takes that wait", |broker, queue| {
            drop(broker.hear(3, take([queue]).forever()))
        }),
        ("queues that it serves", |broker, queue| {
            drop(broker.hear(3, serve(queue)))
        }),
        ("jobs that it holds", |broker, queue| {
            broker.hear(1, push(queue));
            broker.hear(3, take([queue]));
        }),
    ];
    for (what, one_more) in table {
        for (many, parts) in [(1, 0), (2, 1), (3, 2)] {
            let mut broker = Broker::limited(|limits| limits.page_max = 1);
            ["q", "r", "s"]
                .into_iter()
                .take(many)
                .for_each(|queue| one_more(&mut broker, queue));
            let close = Command::Client(ClientCommand::Close);
            let mut context =
                windlass_engine::Context::new(windlass_engine::Timestamp(broker.now), 1);
            let ran = std::iter::repeat_with(|| {
                broker
                    .engine
                    .apply_in_part(windlass_engine::ClientId(3), &close, &mut context)
            });
            assert_eq!(ran.take_while(|more| *more).count(), parts, "{many} {what}");
        }
    }
}

#[test]
fn a_client_that_stops_to_serve_in_parts_keeps_its_credits() {
    let mut broker = Broker::limited(|limits| limits.page_max = 1);
    ["q", "r"]
        .into_iter()
        .for_each(|queue| broker.says(3, serve(queue), []));
    broker.says(3, credit(1), []);
    let command = Command::Client(ClientCommand::UnserveAll { requeue: false });
    let mut context = windlass_engine::Context::new(windlass_engine::Timestamp(broker.now), 1);
    assert!(
        broker
            .engine
            .apply_in_part(windlass_engine::ClientId(3), &command, &mut context)
    );
    broker.says(3, command, []);
    broker.says(3, serve("q"), []);
    broker.says(1, push("q"), ["3 took j1.1", "1 new j1"]);
}

#[test]
fn a_client_that_closes_in_parts_gets_no_job_between_two() {
    let mut broker = Broker::limited(|limits| limits.page_max = 1);
    broker.hear(3, serve("q"));
    broker.hear(3, serve("r"));
    broker.says(3, take_served().forever(), []);
    let close = Command::Client(ClientCommand::Close);
    let mut context = windlass_engine::Context::new(windlass_engine::Timestamp(broker.now), 1);
    assert!(
        broker
            .engine
            .apply_in_part(windlass_engine::ClientId(3), &close, &mut context)
    );
    broker.says(1, push("q"), ["1 new j1"]);
    broker.says(1, push("r"), ["1 new j2"]);
}

#[test]
fn a_client_that_gives_back_in_parts_keeps_a_job_that_its_own_take_gets() {
    let mut broker = Broker::limited(|limits| limits.page_max = 1);
    for _ in 0..2 {
        broker.hear(1, push("q"));
        broker.hear(3, take(["q"]));
    }
    broker.hear(3, take(["q"]).forever());
    let command = Command::Client(ClientCommand::UnserveAll { requeue: true });
    let mut context = windlass_engine::Context::new(windlass_engine::Timestamp(broker.now), 1);
    while broker
        .engine
        .apply_in_part(windlass_engine::ClientId(3), &command, &mut context)
    {}
    context.events.append(&mut broker.hear(3, command));
    let taken = context
        .events
        .iter()
        .filter(|(_, event)| event.handed_out().is_some())
        .count();
    let count = |state| {
        broker
            .engine
            .queues()
            .map(|queue| queue.jobs(state))
            .sum::<u32>()
    };
    assert_eq!(
        (
            taken,
            count(JobStateKind::Leased),
            count(JobStateKind::Ready)
        ),
        (1, 1, 1)
    );
}

#[test]
fn a_job_that_lives_only_for_its_worker_is_not_tried_again_between_two_parts() {
    let mut broker = Broker::limited(|limits| limits.page_max = 1);
    broker.hear(3, push("q").foreground());
    broker.hear(3, take(["q"]));
    broker.hear(1, push("q"));
    broker.hear(3, take(["q"]));
    let close = Command::Client(ClientCommand::Close);
    let mut context = windlass_engine::Context::new(windlass_engine::Timestamp(broker.now), 1);
    assert!(
        broker
            .engine
            .apply_in_part(windlass_engine::ClientId(3), &close, &mut context)
    );
    let states: Vec<_> = broker.engine.jobs().map(|job| job.state.kind()).collect();
    assert_eq!(states, [JobStateKind::Leased], "the foreground job is gone");
}
