//! The methods of values: the names of a lease's job, the bytes of an event, patterns, priorities, limits.

use bytes::Bytes;
use windlass_engine::{
    BatchCommand, Clash, Cron, Cursor, End, Event, Failure, Glob, Held, JobId, JobRef, JobState,
    KeyUntil, Limits, NewBatch, Notice, Priority, Protocol, Query, QueueKey, Timestamp, Token,
};

use crate::common::{
    Broker, all, cron, data, enlist, every, list_jobs, list_queues, list_schedules, look, name,
    push, take, throttle,
};

#[test]
fn a_held_job_is_named_by_its_number_name_or_key() {
    let held = Held {
        token: Token(1),
        until: Timestamp::NEVER,
        protocol: Protocol::GEARMAN,
        queue: name("q"),
        name: name("H:1"),
        key: name("k"),
    };
    let key = |protocol, queue, key| {
        JobRef::Key(Box::new(QueueKey {
            protocol,
            queue: name(queue),
            key: name(key),
        }))
    };
    let anywhere = |protocol, key| JobRef::KeyAnywhere {
        protocol,
        key: name(key),
    };
    let table = [
        (JobRef::Id(JobId(7)), true),
        (JobRef::Id(JobId(8)), false),
        (JobRef::Name(name("H:1")), true),
        (JobRef::Name(name("H:2")), false),
        (key(Protocol::GEARMAN, "q", "k"), true),
        (key(Protocol::FAKTORY, "q", "k"), false),
        (key(Protocol::GEARMAN, "r", "k"), false),
        (key(Protocol::GEARMAN, "q", "l"), false),
        (key(Protocol::FAKTORY, "r", "k"), false),
        (key(Protocol::FAKTORY, "r", "l"), false),
        (anywhere(Protocol::GEARMAN, "k"), true),
        (anywhere(Protocol::FAKTORY, "k"), false),
        (anywhere(Protocol::GEARMAN, "l"), false),
        (anywhere(Protocol::FAKTORY, "l"), false),
    ];
    for (job, expected) in table {
        assert_eq!(held.is_named(JobId(7), &job), expected, "{job:?}");
    }
}

/// A broker with two queues, three jobs, a lease, a worker, a schedule and a batch.
fn busy() -> Broker {
    let mut broker = Broker::new();
    for queue in ["q", "q", "r"] {
        broker.hear(
            1,
            push(queue).with(|job| job.body = Bytes::from_static(b"0123456789")),
        );
    }
    broker.hear(1, throttle("q", Some(2), None, None));
    broker.hear(1, throttle("r", Some(2), None, None));
    broker.hear(2, take(["q"]));
    broker.hear(3, enlist("w"));
    broker.hear(1, every(1_000, push("s")));
    let batch = NewBatch {
        protocol: Protocol::FAKTORY,
        name: name("b"),
        parent: None,
        about: name("what for"),
        meta: name("meta"),
        complete: None,
        success: None,
        expires_ms: 1_000,
    };
    broker.hear(1, BatchCommand::New(Box::new(batch)));
    broker
}

/// The bytes of the only event in reply to a command.
#[track_caller]
fn bytes(broker: &mut Broker, command: impl Into<windlass_engine::Command>) -> usize {
    let events = broker.hear(1, command);
    let [(_, event)] = events.as_slice() else {
        panic!("{events:?}")
    };
    event.bytes()
}

#[test]
fn an_answer_counts_its_rows_and_its_texts() {
    const ROW: usize = 256;
    let mut broker = busy();
    let (after, limit) = (Cursor::default(), 1_000);
    let body = b"0123456789".len();
    let texts = "what for".len() + "meta".len();
    let table = [
        ("one job", bytes(&mut broker, look(1)), ROW + body),
        ("one schedule", bytes(&mut broker, look(4)), ROW),
        ("schedules", bytes(&mut broker, list_schedules(0, 10)), ROW),
        ("jobs", bytes(&mut broker, list_jobs(all())), 3 * ROW),
        ("queues", bytes(&mut broker, list_queues()), 3 * ROW),
        (
            "throttles, one with a holder",
            bytes(&mut broker, Query::Throttles { after, limit }),
            3 * ROW,
        ),
        (
            "workers",
            bytes(&mut broker, Query::Workers { after, limit }),
            ROW,
        ),
        (
            "clients",
            bytes(&mut broker, Query::Clients { after, limit }),
            4 * ROW,
        ),
        (
            "a batch",
            bytes(&mut broker, Query::Batch { batch: name("b") }),
            ROW + texts,
        ),
        (
            "batches",
            bytes(&mut broker, Query::Batches { after, limit }),
            ROW + texts,
        ),
        (
            "figures, of two periods",
            bytes(&mut broker, Query::Figures { after, limit }),
            2 * 2 * ROW,
        ),
        ("totals", bytes(&mut broker, Query::Stats), ROW),
        ("a day", bytes(&mut broker, Query::Days), ROW),
        ("a push", bytes(&mut broker, push("q")), 0),
        ("a job", bytes(&mut broker, take(["q"])), body),
    ];
    for (what, bytes, expected) in table {
        assert_eq!(bytes, expected, "{what}");
    }
}

#[test]
fn a_notice_counts_its_body_and_a_failure_all_of_its_texts() {
    let line = size_of::<Bytes>();
    let failure = || Failure {
        kind: name("kind"),
        message: name("message"),
        backtrace: vec![name("one"), name("three")],
        ..Failure::default()
    };
    let ended = |end| Notice::Ended { job: JobId(1), end };
    let table = [
        (
            Notice::Progress {
                job: JobId(1),
                note: data("12345"),
            },
            5,
        ),
        (
            ended(End::Succeeded {
                result: name("result"),
                by: None,
            }),
            6,
        ),
        (
            ended(End::Failed(Box::new(failure()))),
            4 + 7 + (line + 3) + (line + 5),
        ),
        (ended(End::Cancelled), 0),
        (Notice::WorkAvailable, 0),
    ];
    for (notice, expected) in table {
        assert_eq!(
            Event::Notice(notice.clone()).bytes(),
            expected,
            "{notice:?}"
        );
    }
}

#[test]
fn an_event_shares_its_body_from_a_size_on() {
    let mut broker = busy();
    let end = End::Succeeded {
        result: name("0123456789"),
        by: None,
    };
    let mut events = vec![Event::Notice(Notice::Ended { job: JobId(1), end })];
    events.push(Event::Notice(Notice::Progress {
        job: JobId(1),
        note: data("0123456789"),
    }));
    for command in [look(1), take(["q"]).into()] {
        events.extend(broker.hear(1, command).into_iter().map(|(_, event)| event));
    }
    for event in &events {
        assert_eq!(
            [10, 11].map(|min| event.large_body(min)),
            [Some(name("0123456789")), None],
            "{event:?}"
        );
    }
    assert_eq!(
        (
            events.len(),
            Event::Notice(Notice::WorkAvailable).large_body(0)
        ),
        (4, None)
    );
}

#[test]
fn what_moves_to_another_engine_takes_the_times_of_the_engine_with_it() {
    let mut broker = busy();
    broker.hear(
        1,
        push("q").unique_until("k", Clash::Keep, KeyUntil::EndOr(Timestamp(9_000))),
    );
    broker.hear(1, cron(Cron::ALWAYS, push("s")));
    let mut job = broker
        .engine
        .jobs()
        .find(|job| job.key().is_some())
        .unwrap()
        .clone();
    job.state = JobState::Retrying(Timestamp(8_000));
    job.shift(500);
    let key_until = job.extra.map(|extra| extra.key_until);
    assert_eq!(
        (job.state, key_until),
        (
            JobState::Retrying(Timestamp(8_500)),
            Some(KeyUntil::EndOr(Timestamp(9_500)))
        )
    );
    let mut batch = broker.engine.batches().next().unwrap().clone();
    batch.progress.held_until = Some(Timestamp(7_000));
    batch.shift(-500);
    assert_eq!(
        (batch.progress.since, batch.progress.held_until),
        (Timestamp(1_500), Some(Timestamp(6_500)))
    );
    let moved = broker.engine.schedules().map(|schedule| {
        let mut moved = schedule.clone();
        moved.shift(500);
        (
            moved.anchor.ms_since(schedule.anchor),
            moved.next_at.ms_since(schedule.next_at),
        )
    });
    assert_eq!(
        moved.collect::<Vec<_>>(),
        [(500, 500), (0, 0)],
        "an interval, and a time of the calendar"
    );
}

#[test]
fn a_glob_is_its_pattern() {
    let [one, same, other] = ["a*", "a*", "a?"].map(|pattern| Glob::new(pattern.as_bytes()));
    assert_eq!(one, same);
    assert_ne!(one, other);
    assert_eq!(one.pattern(), &name("a*"));
    assert_eq!(Bytes::from(one), name("a*"));
}

#[test]
fn priorities_are_listed_by_urgency() {
    let all: Vec<u8> = Priority::all().map(Priority::value).collect();
    assert_eq!(all, [9, 8, 7, 6, 5, 4, 3, 2, 1]);
    let numbers =
        [0, 1, 9, 10, u8::MAX].map(|number| Priority::try_from(number).ok().map(u8::from));
    assert_eq!(numbers, [None, Some(1), Some(9), None, None]);
    assert_eq!(
        Priority::all().map(Priority::lane).collect::<Vec<_>>(),
        (0..Priority::COUNT).collect::<Vec<_>>()
    );
}

#[test]
fn new_limits_hold_from_the_next_command_on() {
    let mut broker = Broker::limited(|limits| limits.jobs_max = 1);
    broker.says(1, push("q"), ["1 new j1"]);
    broker.says(1, push("q"), ["1 refused: daemon is full: jobs 1, limit 1"]);
    broker.engine.set_limits(Limits {
        jobs_max: 2,
        ..broker.engine.limits().clone()
    });
    assert_eq!(broker.engine.limits().jobs_max, 2);
    broker.says(1, push("q"), ["1 new j2"]);
    broker.says(1, push("q"), ["1 refused: daemon is full: jobs 2, limit 2"]);
}
