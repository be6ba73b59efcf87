//! Unclaimed jobs: jobs in queues that no client serves go to clients that take unclaimed jobs.

use windlass_engine::{
    Bridge, Change, ClientCommand, ClientId, ClientInfo, Command, Context, Engine, Event,
    JobCommand, JobStateKind, LeaseTerms, Limits, Mutation, Notice, OnExpiry, Protocol,
    QueueCommand, QueueKind, Select, Subscription, Tag, TakeCommand, Timestamp, Token,
};

use crate::common;
use crate::common::{
    Broker, create, credit, finish, name, pause, placed, push, serve, serve_on, take, throttle,
    timed, unserve,
};

/// Serves a queue, and also takes Gearman's unclaimed jobs.
fn default(queue: &'static str) -> Command {
    weighing(queue, 0)
}

fn weighing(queue: &'static str, weight: u32) -> Command {
    let lease = LeaseTerms::CONNECTION;
    Command::Client(ClientCommand::Serve(Subscription {
        queue: name(queue),
        weight,
        lease,
        unclaimed: Some(Protocol::GEARMAN),
    }))
}

fn other(queue: &'static str) -> common::Push {
    push(queue).with(|job| job.protocol = Protocol::FAKTORY)
}

/// The result for a job in `q`, where client 1 has a credit and takes unclaimed jobs.
#[test]
fn which_jobs_are_strays() {
    // The commands before the push, the push, and the client that gets the job.
    type Before = fn(&mut Broker);
    let table: [(&str, Before, common::Push, &str); 9] = [
        (
            "no client serves the queue",
            |_| {},
            push("q"),
            "1 took j1.1",
        ),
        (
            "a client serves it",
            |broker| drop(broker.hear(2, serve("q"))),
            push("q"),
            "",
        ),
        (
            "a client served it before",
            |broker| {
                broker.hear(2, serve("q"));
                broker.hear(2, unserve("q", false));
            },
            push("q"),
            "1 took j1.1",
        ),
        (
            "a client waits at it",
            |broker| drop(broker.hear(2, take(["q"]).forever())),
            push("q"),
            "2 took j1.1",
        ),
        (
            "the queue is paused",
            |broker| {
                broker.hear(4, create("q", QueueKind::Work));
                broker.hear(4, pause("q", true));
            },
            push("q"),
            "",
        ),
        (
            "the queue is throttled",
            |broker| drop(broker.hear(4, throttle("q", Some(0), None, None))),
            push("q"),
            "",
        ),
        (
            "the worker has as much of it as it may",
            |broker| drop(broker.hear(4, throttle("q", None, Some(0), None))),
            push("q"),
            "",
        ),
        ("it is of another protocol", |_| {}, other("q"), ""),
        (
            "it is an entry of a cycle queue",
            |_| {},
            push("q").cycle(),
            "",
        ),
    ];
    for (when, before, job, expected) in table {
        let job: Command = job.into();
        // Either the credit is first, or the job.
        for credit_first in [true, false] {
            let mut broker = Broker::new();
            broker.hear(1, default("default"));
            before(&mut broker);
            let mut said = Vec::new();
            for step in [credit_first, !credit_first] {
                said.extend(broker.hear(
                    if step { 1 } else { 4 },
                    if step { credit(1) } else { job.clone() },
                ));
                broker.engine.check();
            }
            said.retain(|(_, event)| event.handed_out().is_some());
            assert_eq!(
                common::words(&said).join(""),
                expected,
                "{when}, credit first: {credit_first}"
            );
        }
    }
}

#[test]
fn a_stray_keeps_its_queue_and_is_leased_on_the_terms_of_the_ability() {
    let mut broker = Broker::limited(|limits| limits.loss_pause_ms = 0);
    let lease = timed(500, OnExpiry::Requeue);
    let subscription = Subscription {
        queue: name("default"),
        weight: 0,
        lease,
        unclaimed: Some(Protocol::GEARMAN),
    };
    broker.hear(1, ClientCommand::Serve(subscription));
    broker.hear(1, credit(2));
    let said = broker.hear(4, push("q"));
    let [_, (_, Event::Notice(Notice::Delivered(job)))] = &said[..] else {
        panic!("{said:?}")
    };
    assert_eq!((&*job.queue, job.until), (&b"q"[..], Timestamp(1_500)));
    // It returns to the same queue, and then goes to the remaining credit.
    broker.at(1_500, ["1 took j1.2 until 2000"]);
    broker.at(2_000, []);
    assert_eq!(broker.place(1), "ready");
    broker.says(2, take(["q"]), ["2 took j1.3"]);
    broker.says(2, finish(1), ["2 finished j1"]);
}

#[test]
fn a_stray_is_leased_on_the_terms_of_an_ability_that_takes_strays() {
    let mut broker = Broker::new();
    broker.hear(1, serve_on("own", 0, timed(500, OnExpiry::Requeue)));
    broker.hear(1, default("default"));
    broker.hear(1, credit(2));
    broker.says(4, push("q"), ["4 new j1", "1 took j1.1"]);
    // The other subscription takes none.
    broker.says(1, unserve("default", false), []);
    broker.says(4, push("q"), ["4 new j2"]);
}

#[test]
fn a_stray_is_handed_out_when_new_terms_of_a_subscription_allow_it() {
    let mut broker = Broker::new();
    let on = |lease| Subscription {
        queue: name("default"),
        weight: 0,
        lease,
        unclaimed: Some(Protocol::GEARMAN),
    };
    broker.hear(1, ClientCommand::Serve(on(LeaseTerms::CONNECTION)));
    broker.hear(1, credit(2));
    broker.hear(4, throttle("q", None, Some(1), None));
    // A connection may have a single job. Credits have no worker's name, so a time-bound lease is attributed
    // to no worker.
    broker.says(4, push("q"), ["4 new j1", "1 took j1.1"]);
    broker.says(4, push("q"), ["4 new j2"]);
    let renewed = Subscription {
        unclaimed: None,
        ..on(timed(500, OnExpiry::Requeue))
    };
    broker.says(
        1,
        Command::Client(ClientCommand::Serve(renewed)),
        ["1 took j2.1 until 1500"],
    );
}

/// However the first job is removed, the next one becomes unclaimed.
#[test]
fn the_next_job_becomes_the_stray_when_the_first_is_gone() {
    type Away = fn(&mut Broker) -> Vec<(ClientId, Event)>;
    let table: [(&str, Away); 5] = [
        ("taken", |broker| broker.hear(2, take(["q"]))),
        ("removed", |broker| {
            broker.hear(2, JobCommand::Cancel(common::id(1)))
        }),
        ("to the dead-letter queue", |broker| {
            let filter = common::with_names(["first"]);
            broker.hear(2, common::mutate(filter, Mutation::Kill))
        }),
        ("expired", |broker| {
            broker.now = 5_000;
            broker.hear(2, credit(0))
        }),
        ("overtaken", |broker| {
            broker.hear(2, push("q").front().named("jumper"))
        }),
    ];
    for (how, away) in table {
        let mut broker = Broker::new();
        // In a bridged queue, the two are one behind the other.
        broker.hear(1, QueueCommand::Bridge(Box::new(Bridge::all())));
        broker.hear(1, default("default"));
        broker.hear(1, credit(1));
        broker.hear(
            4,
            other("q")
                .named("first")
                .expires(5_000)
                .retry(1, windlass_engine::Backoff::None),
        );
        assert_eq!(
            common::words(&broker.hear(4, push("q"))),
            ["4 new j2"],
            "{how}"
        );
        let said = common::words(&away(&mut broker));
        broker.engine.check();
        let taken = if how == "overtaken" {
            "1 took j3.1"
        } else {
            "1 took j2.1"
        };
        assert!(said.iter().any(|line| line == taken), "{how}: {said:?}");
    }
}

#[test]
fn a_queue_becomes_stray_when_the_last_of_its_workers_goes() {
    let table: [(&str, Command); 3] = [
        ("unserve", unserve("q", false)),
        (
            "unserve all",
            Command::Client(ClientCommand::UnserveAll { requeue: true }),
        ),
        ("close", Command::Client(ClientCommand::Close)),
    ];
    for (how, goes) in table {
        let mut broker = Broker::new();
        broker.hear(1, default("default"));
        broker.hear(1, credit(9));
        broker.hear(2, serve("q"));
        broker.hear(3, serve("q"));
        broker.hear(4, push("q"));
        broker.hear(4, push("q"));
        assert_eq!(
            common::words(&broker.hear(2, goes.clone())),
            [""; 0],
            "{how}"
        );
        assert_eq!(
            common::words(&broker.hear(3, goes)),
            ["1 took j1.1", "1 took j2.1"],
            "{how}"
        );
        broker.engine.check();
    }
    // The jobs of a disconnected worker are unclaimed as well.
    let mut broker = Broker::new();
    broker.hear(1, default("default"));
    broker.hear(1, credit(1));
    broker.hear(2, serve("q"));
    broker.hear(4, push("q"));
    broker.says(2, common::take_served(), ["2 took j1.1"]);
    broker.says(2, Command::Client(ClientCommand::Close), ["1 took j1.2"]);
}

#[test]
fn a_stray_that_becomes_available_is_handed_out_at_once() {
    let table: [(&str, [Command; 2], &str); 4] = [
        ("resumed", [pause("q", true), pause("q", false)], "4 done"),
        (
            "throttled less",
            [
                throttle("q", Some(0), None, None),
                throttle("q", Some(1), None, None),
            ],
            "4 done",
        ),
        (
            "for its worker",
            [
                throttle("q", None, Some(0), None),
                throttle("q", None, Some(1), None),
            ],
            "4 done",
        ),
        (
            "not at all any more",
            [throttle("q", Some(0), None, None), common::unthrottle("q")],
            "4 done",
        ),
    ];
    for (how, [before, after], done) in table {
        let mut broker = Broker::new();
        broker.hear(4, create("q", QueueKind::Work));
        broker.hear(4, before);
        broker.hear(1, default("default"));
        broker.hear(1, credit(1));
        assert_eq!(
            common::words(&broker.hear(4, push("q"))),
            ["4 new j1"],
            "{how}"
        );
        assert_eq!(
            common::words(&broker.hear(4, after)),
            [done, "1 took j1.1"],
            "{how}"
        );
        broker.engine.check();
    }
    // A slot becomes free, of the queue or of the worker.
    for limit in [
        throttle("q", Some(1), None, None),
        throttle("q", None, Some(1), None),
    ] {
        let mut broker = Broker::new();
        broker.hear(4, limit);
        broker.hear(1, default("default"));
        broker.hear(1, credit(9));
        broker.says(4, push("q"), ["4 new j1", "1 took j1.1"]);
        broker.says(4, push("q"), ["4 new j2"]);
        broker.says(1, finish(1), ["1 finished j1", "1 took j2.1"]);
    }
}

/// Unclaimed jobs are sorted as if they were in the queue of the subscription, with every
/// selection.
#[test]
fn strays_are_ordered_with_the_abilitys_own_queue() {
    // j1 and j4 are unclaimed, j2 is in `default`, j3 and j5 are in `own`.
    let table = [
        (Select::BestPriority, [4, 1, 2, 3, 5]),
        (Select::ListOrder, [3, 5, 4, 1, 2]),
        (Select::Weighted, [4, 1, 2, 3, 5]),
        (Select::RoundRobin, [4, 3, 1, 5, 2]),
    ];
    for (select, expected) in table {
        let mut broker = Broker::new();
        broker.hear(1, serve_on("own", 1, LeaseTerms::CONNECTION));
        broker.hear(1, weighing("default", 2));
        broker.hear(4, push("stray"));
        broker.hear(4, push("default"));
        broker.hear(4, push("own"));
        broker.hear(4, push("another").priority(9));
        broker.hear(4, push("own"));
        let said = broker.hear(1, TakeCommand::Credit { credits: 9, select });
        broker.engine.check();
        let jobs = said.iter().filter_map(|(_, event)| {
            let job = event.handed_out()?;
            Some(job.id.0)
        });
        assert_eq!(jobs.collect::<Vec<_>>(), expected, "{select:?}");
    }
}

#[test]
fn the_heaviest_ability_gets_the_stray_and_equals_take_turns() {
    let mut broker = Broker::new();
    for (client, weight) in [(1, 10), (2, 20), (3, 10)] {
        broker.hear(client, weighing("default", weight));
        broker.hear(client, credit(2));
    }
    let takers = (0..6).map(|_| {
        let said = broker.hear(4, push("q"));
        said.iter()
            .find_map(|(client, event)| event.handed_out().map(|_| client.0))
    });
    assert_eq!(takers.collect::<Vec<_>>(), [2, 2, 1, 3, 1, 3].map(Some));
}

#[test]
fn which_clients_take_no_strays() {
    // Only credits take unclaimed jobs.
    let mut broker = Broker::new();
    broker.hear(1, default("default"));
    broker.hear(4, push("q"));
    broker.says(1, common::take_served(), ["1 empty"]);
    broker.says(1, Command::Take(TakeCommand::WaitForWork), []);
    broker.says(4, push("q"), ["4 new j2"]);
    broker.says(1, credit(1), ["1 took j1.1"]);
    // The subscription is removed while another still takes unclaimed jobs; that one is then
    // removed too.
    broker.hear(1, credit(9));
    broker.hear(1, finish(1));
    broker.hear(1, default("more"));
    broker.hear(2, serve("q"));
    broker.says(1, unserve("default", false), []);
    broker.says(2, unserve("q", false), []);
    broker.says(4, push("q"), ["4 new j3", "1 took j3.1"]);
    broker.says(1, unserve("more", false), []);
    broker.says(4, push("q"), ["4 new j4"]);
    // A worker was asked to take no more.
    broker.hear(1, default("more"));
    broker.hear(1, TakeCommand::Unwait);
    broker.hear(1, common::enlist("w"));
    broker.hear(1, common::signal("w", windlass_engine::WorkerState::Quiet));
    broker.says(1, credit(1), []);
    // Without credits, no unclaimed job is delivered.
    broker.hear(3, default("default"));
    broker.says(4, push("r"), ["4 new j5"]);
    assert_eq!(broker.place(5), "ready");
}

/// Nothing of this is journalled: the jobs exist first, and the subscription is added later.
#[test]
fn after_a_restart_strays_are_there_before_their_takers() {
    let mut broker = Broker::new();
    broker.hear(1, default("default"));
    broker.hear(4, other("mixed"));
    broker.hear(4, push("mixed"));
    broker.hear(4, push("q"));
    let old = broker.engine;
    let mut engine = Engine::new(Limits::default(), 1);
    engine.recall_meta(old.meta().clone(), true);
    old.queues()
        .for_each(|queue| engine.recall_queue(queue.image().clone()));
    old.jobs()
        .for_each(|job| assert!(engine.recall_job(job.clone())));
    engine.wake_up();
    let mut context = Context::new(Timestamp(2_000), 1);
    let client = ClientId(7);
    let bridge = Command::Queue(QueueCommand::Bridge(Box::new(Bridge::all())));
    for command in [
        Command::Client(ClientCommand::Open(ClientInfo::default())),
        bridge,
        credit(9),
        default("default"),
    ] {
        engine.apply(client, Tag(1), command, &mut context);
        engine.check();
    }
    assert_eq!(
        common::words(&context.events),
        [
            "7 done".to_owned(),
            format!("7 took j3.{}", Token::of(1, 1).0)
        ]
    );
    // A connection-bound lease is not journalled.
    assert!(
        !context
            .changes
            .iter()
            .any(|change| matches!(change, Change::JobMoved(_) | Change::JobPut(_)))
    );
    engine.apply(
        client,
        Tag(2),
        common::mutate(placed(JobStateKind::Ready), Mutation::Discard),
        &mut context,
    );
    engine.check();
}
