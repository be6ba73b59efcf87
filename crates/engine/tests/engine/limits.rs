//! Limits, checked before anything is done.

use windlass_engine::{
    Clash, ClientCommand, Command, Event, JobCommand, Limits, Priority, Protocol, Query,
    QueueCommand, Reply, WarningKind,
};

use crate::common;
use crate::common::{Broker, limit, pause, push, serve, take};

#[test]
fn pushes_beyond_a_limit_are_refused() {
    type Case = (&'static str, fn(&mut Limits), fn() -> Command, &'static str);
    let table: [Case; 8] = [
        (
            "jobs",
            |l| l.jobs_max = 1,
            || push("q").into(),
            "1 refused: daemon is full: jobs 1, limit 1",
        ),
        (
            "queues",
            |l| l.queues_max = 1,
            || push("r").into(),
            "1 refused: limit of queues reached: 1",
        ),
        (
            "queues served",
            |l| l.abilities_max = 0,
            || serve("q"),
            "1 refused: limit of queues of a client reached: 0",
        ),
        (
            "queues listed",
            |l| l.abilities_max = 1,
            || take(["q", "r"]).into(),
            "1 refused: limit of queues of a client reached: 1",
        ),
        (
            "a queue's name",
            |l| l.name_bytes_max = 1,
            || push("qq").into(),
            "1 refused: name of 2 bytes, limit 1",
        ),
        (
            "a job's name",
            |l| l.name_bytes_max = 1,
            || push("q").named("xyz").into(),
            "1 refused: name of 3 bytes, limit 1",
        ),
        (
            "a key",
            |l| l.name_bytes_max = 1,
            || push("q").unique("key", Clash::Keep).into(),
            "1 refused: name of 3 bytes, limit 1",
        ),
        (
            "a label",
            |l| l.name_bytes_max = 1,
            || Command::Client(ClientCommand::SetName("me".into())),
            "1 refused: name of 2 bytes, limit 1",
        ),
    ];
    for (name, change, command, expected) in table {
        let mut broker = Broker::limited(change);
        broker.says(1, push("q"), ["1 new j1"]);
        assert_eq!(
            common::words(&broker.hear(1, command())),
            [expected],
            "{name}"
        );
        broker.engine.check();
        assert_eq!(broker.engine.job_count(), 1, "{name}");
        assert_eq!(broker.engine.queues().count(), 1, "{name}");
    }
}

/// A queue with only a name is removed, the least recently used first.
#[test]
fn unused_queues_make_room_for_new_names() {
    let mut broker = Broker::limited(|limits| limits.queues_max = 4);
    for (job, queue) in (1_u64..).zip(["unused", "used again", "limited", "paused"]) {
        broker.hear(1, push(queue));
        broker.hear(2, take([queue]));
        broker.hear(2, common::finish(job));
    }
    broker.hear(1, limit("limited", 9));
    broker.hear(1, pause("paused", true));
    broker.says(2, take(["used again"]), ["2 empty"]);
    let names = |broker: &Broker| {
        let mut names: Vec<_> = broker
            .engine
            .queues()
            .map(|queue| queue.image().name.clone())
            .collect();
        names.sort_unstable();
        names
    };
    broker.says(1, push("a"), ["1 new j5"]);
    assert_eq!(names(&broker), ["a", "limited", "paused", "used again"]);
    // Queues used by the same command are not removed for other names in it.
    broker.says(
        2,
        take(["used again", "b"]),
        ["2 refused: limit of queues reached: 4"],
    );
    broker.says(1, push("b"), ["1 new j6"]);
    assert_eq!(names(&broker), ["a", "b", "limited", "paused"]);
    broker.says(1, push("c"), ["1 refused: limit of queues reached: 4"]);
    broker.hear(2, serve("a"));
    broker.says(2, take(["a"]), ["2 took j5.1"]);
    broker.hear(2, common::finish(5));
    broker.says(1, push("c"), ["1 refused: limit of queues reached: 4"]);
    broker.hear(2, common::unserve("a", false));
    broker.says(1, push("c"), ["1 new j7"]);
    assert_eq!(broker.engine.queues_forgotten(), 3);
    assert!(
        broker
            .warnings
            .iter()
            .any(|warning| warning.kind == WarningKind::QueuesNearlyFull)
    );
}

/// A schedule's run is no part of the command before it, which used the only queue.
#[test]
fn a_queue_that_the_last_command_used_makes_room_for_what_is_due() {
    let mut broker = Broker::limited(|limits| limits.queues_max = 1);
    broker.hear(1, common::every(100, push("due")));
    broker.says(1, push("q"), ["1 new j2"]);
    broker.says(2, take(["q"]), ["2 took j2.1"]);
    broker.says(2, common::finish(2), ["2 finished j2"]);
    broker.says(2, take(["q"]), ["2 empty"]);
    broker.at(1_100, []);
    assert_eq!(broker.place(3), "ready");
}

#[test]
fn bytes_of_jobs() {
    let mut broker = Broker::limited(|limits| limits.jobs_bytes_max = 1_000);
    let job = |bytes: usize| push("q").with(|job| job.body = vec![7; bytes].into());
    assert_eq!(common::words(&broker.hear(1, job(100))), ["1 new j1"]);
    let said = common::words(&broker.hear(1, job(900)));
    assert!(
        said[0].starts_with("1 refused: daemon is full: bytes of jobs ")
            && said[0].ends_with("limit 1000"),
        "{said:?}"
    );
    assert_eq!(common::words(&broker.hear(1, job(100))), ["1 new j2"]);
    broker.engine.check();
}

#[test]
fn listeners() {
    let mut broker = Broker::limited(|limits| limits.listeners_max = 1);
    let job = || push("q").unique("k", Clash::Attach).listen();
    broker.says(1, job(), ["1 new j1"]);
    broker.says(2, job(), ["2 refused: queue is full: jobs 1, limit 1"]);
    broker.says(2, push("q").unique("k", Clash::Attach), ["2 attached j1"]);

    let mut broker = Broker::limited(|limits| limits.listeners_max = 0);
    broker.says(1, job(), ["1 refused: queue is full: jobs 0, limit 0"]);
    assert_eq!(
        (broker.engine.job_count(), broker.engine.queues().count()),
        (0, 0)
    );
}

/// They take memory, and no bytes of jobs: a job that exists is joined when no new one is accepted.
#[test]
fn listeners_of_a_job_need_no_room_for_jobs() {
    let mut broker = Broker::limited(|limits| limits.jobs_bytes_max = 100);
    let job = || push("q").unique("k", Clash::Attach).listen();
    broker.says(1, job(), ["1 new j1"]);
    assert!(
        common::words(&broker.hear(1, push("q")))[0]
            .contains("refused: daemon is full: bytes of jobs")
    );
    (0..40).for_each(|_| broker.says(2, job(), ["2 attached j1"]));
    broker.leave_memory(100);
    let said: Vec<String> = (0..3)
        .flat_map(|_| common::words(&broker.hear(2, job())))
        .collect();
    assert_eq!(&said[..2], ["2 attached j1", "2 attached j1"]);
    assert!(
        said[2].contains("refused: daemon is full: bytes of jobs"),
        "{said:?}"
    );
}

#[test]
fn a_job_neither_durable_nor_listened_to_is_refused() {
    let mut broker = Broker::new();
    broker.says(
        1,
        push("q").with(|job| job.durable = false),
        ["1 refused: not allowed in this state"],
    );
    assert_eq!(
        (broker.engine.job_count(), broker.engine.queues().count()),
        (0, 0)
    );
}

#[test]
fn a_queue_may_be_full_at_one_priority_and_not_at_another() {
    let mut broker = Broker::new();
    let mut jobs_max = [None; Priority::COUNT];
    jobs_max[Priority::NORMAL.lane()] = Some(2);
    jobs_max[Priority::MIN.lane()] = Some(0);
    broker.says(
        1,
        Command::Queue(QueueCommand::Limit {
            queue: "q".into(),
            jobs_max,
        }),
        ["1 done"],
    );
    broker.says(
        1,
        push("q").priority(1),
        ["1 refused: queue is full: jobs 0, limit 0"],
    );
    broker.says(1, push("q"), ["1 new j1"]);
    broker.says(1, push("q").priority(9), ["1 new j2"]);
    // It contains two jobs, of any priority.
    broker.says(1, push("q"), ["1 refused: queue is full: jobs 2, limit 2"]);
    broker.says(1, push("q").priority(9), ["1 new j3"]);
}

#[test]
fn dead_jobs_and_clashes_do_not_count_against_the_limit() {
    let mut broker = Broker::new();
    broker.says(1, limit("q", 3), ["1 done"]);
    broker.hear(1, push("q").not_before(9_000));
    broker.hear(1, push("q").retry(-1, windlass_engine::Backoff::None));
    broker.hear(1, push("q"));
    broker.says(2, take(["q"]), ["2 took j2.1"]);
    broker.says(1, push("q"), ["1 refused: queue is full: jobs 3, limit 3"]);
    // Dead jobs do not count.
    broker.hear(2, common::fail(2));
    broker.says(1, push("q"), ["1 new j4"]);
    // A clash of keys needs no space either.
    broker.hear(1, JobCommand::Cancel(common::id(4)));
    broker.says(1, push("q").unique("k", Clash::Keep), ["1 new j5"]);
    broker.says(1, push("q").unique("k", Clash::Keep), ["1 kept j5"]);
}

#[test]
fn a_limit_on_an_unknown_queue_makes_it_known_and_a_pause_does_not() {
    let mut broker = Broker::new();
    broker.says(1, pause("p", true), ["1 done"]);
    broker.says(1, limit("q", 3), ["1 done"]);
    broker.says(1, common::list_queues(), ["1 queues q"]);
}

/// Some workers register their queues before each job, on one connection without end.
#[test]
fn a_queue_may_be_registered_any_number_of_times() {
    let mut broker = Broker::limited(|limits| limits.abilities_max = 3);
    for _ in 0..100 {
        broker.says(1, serve("q"), []);
    }
    broker.says(
        1,
        serve("r"),
        ["1 refused: limit of queues of a client reached: 3"],
    );
    let mut broker = Broker::new();
    (0..100).for_each(|_| broker.says(1, serve("q"), []));
    let told = broker.hear(1, Query::Queue { queue: "q".into() });
    assert!(
        matches!(told.as_slice(), [(_, Event::Reply(_, Reply::Queues { rows, .. }))] if rows.iter().map(|row| row.workers).eq([8])),
        "{told:?}"
    );
    broker.engine.check();
}

/// Each protocol has a share of the names, so a protocol that creates names without end does not
/// exclude the others.
#[test]
fn names_of_queues_have_shares_by_protocol() {
    let push_as = |protocol: Protocol, number: u64| {
        push("").with(|job| {
            (job.protocol, job.queue) = (protocol, format!("{protocol:?} {number}").into())
        })
    };
    let mut broker = Broker::limited(|limits| limits.queues_max = 640);
    let makes = |broker: &mut Broker, protocol: Protocol, many: u64| -> Vec<String> {
        (0..many)
            .flat_map(|number| common::words(&broker.hear(1, push_as(protocol, number))))
            .collect()
    };
    // Four other protocols have ten names each.
    let said = makes(&mut broker, Protocol::GEARMAN, 601);
    assert!(
        said[..600].iter().all(|said| said.starts_with("1 new")),
        "{said:?}"
    );
    let kept =
        "1 refused: limit of queues reached: 600, and the rest of 640 is for other protocols";
    assert_eq!(said[600], kept);
    let said = makes(&mut broker, Protocol::FAKTORY, 11);
    assert!(
        said[..10].iter().all(|said| said.starts_with("1 new")),
        "{said:?}"
    );
    assert!(
        said[10].starts_with("1 refused: limit of queues reached: 610, and"),
        "{said:?}"
    );
    // An unused name is removed if the protocol is above the share: not FWP's, which was unused for longer.
    for job in [601, 1] {
        broker.says(1, JobCommand::Cancel(common::id(job)), ["1 done"]);
    }
    // The engine does not examine all names for each rejected one.
    let comes = |broker: &mut Broker, protocol: Protocol, number: u64| {
        (0..40).any(|_| {
            common::words(&broker.hear(1, push_as(protocol, number)))[0].starts_with("1 new")
        })
    };
    assert!(comes(&mut broker, Protocol::FAKTORY, 10));
    assert_eq!(broker.engine.queues_forgotten(), 1);
    let has = |broker: &Broker, protocol: Protocol| {
        broker
            .engine
            .queues()
            .any(|queue| queue.image().name == format!("{protocol:?} 0"))
    };
    assert!(has(&broker, Protocol::FAKTORY) && !has(&broker, Protocol::GEARMAN));
    // Now FWP is above the share, too, and the unused name is removed for the next one of Gearman.
    assert!(comes(&mut broker, Protocol::GEARMAN, 0));
    assert!(!has(&broker, Protocol::FAKTORY));
    broker.engine.check();
}
