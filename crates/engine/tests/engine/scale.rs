//! A million jobs, a hundred thousand queues, ten thousand waiting clients: shows which costs do not grow with them.

use bytes::Bytes;
use windlass_engine::{
    ClientCommand, Command, Cursor, Event, Filter, JobCommand, JobStateKind, LeaseTerms, NewJob,
    Notice, Protocol, Query, QueueCommand, Reply, Subscription, TakeCommand, Timestamp,
};

use crate::common;
use crate::common::{Broker, finish, push, remove_queue, serve, take};

fn push_to(queue: String) -> Command {
    Command::Job(JobCommand::Push(Box::new(NewJob::new(
        Protocol::GEARMAN,
        queue.into(),
        Bytes::from_static(b"body"),
    ))))
}

#[test]
fn a_million_jobs() {
    const JOBS: u64 = 1_000_000;
    let mut broker = Broker::new();
    for n in 0..JOBS {
        // A quarter is scheduled, far from in order.
        let job = push("q").priority(u8::try_from(1 + n % 9).unwrap());
        let job = if n % 4 == 0 {
            job.not_before(10_000 + n.wrapping_mul(7_919) % JOBS)
        } else {
            job
        };
        assert_eq!(broker.hear(1, job).len(), 1);
    }
    assert_eq!(broker.engine.job_count() as u64, JOBS);
    broker.is_due_at(10_000);
    // From the middle of everything: a job is a single event.
    let events = broker.hear(2, take(["q"]));
    let [(_, Event::Reply(_, Reply::Taken(job)))] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((job.priority.value(), job.id.0), (9, 18));
    assert_eq!(broker.hear(2, finish(18)).len(), 1);
    assert_eq!(
        broker
            .hear(1, JobCommand::Cancel(common::id(777_777)))
            .len(),
        1
    );
    // A page is a single page.
    let filter = Filter {
        state: Some(JobStateKind::Scheduled),
        ..Filter::default()
    };
    let events = broker.hear(
        1,
        Query::Jobs {
            filter: filter.into(),
            after: Cursor::default(),
            limit: 1_000_000,
        },
    );
    let [
        (
            _,
            Event::Reply(
                _,
                Reply::Jobs {
                    rows,
                    next: Some(_),
                    ..
                },
            ),
        ),
    ] = events.as_slice()
    else {
        panic!("a page")
    };
    assert_eq!(rows.len(), 200);
    // Each tick moves only the jobs that are due.
    broker.at(10_000 + JOBS, []);
    assert_eq!(broker.engine.next_deadline().map(|Timestamp(at)| at), None);
}

#[test]
fn a_hundred_thousand_queues() {
    const QUEUES: u64 = 100_000;
    let mut broker = Broker::new();
    for n in 0..QUEUES {
        assert_eq!(broker.hear(1, push_to(format!("queue-{n}"))).len(), 1);
    }
    let (mut rows_seen, mut after) = (0, Cursor::default());
    loop {
        let events = broker.hear(
            1,
            Query::Queues {
                after,
                limit: 1_000,
            },
        );
        let [(_, Event::Reply(_, Reply::Queues { rows, next, .. }))] = events.as_slice() else {
            panic!("a page")
        };
        rows_seen += rows.len();
        match next {
            Some(next) => after = *next,
            None => break,
        }
    }
    assert_eq!(rows_seen as u64, QUEUES);
    // No client serves them: each credit returns the next unclaimed job, without examining all
    // others.
    let lease = LeaseTerms::CONNECTION;
    let subscription = Subscription {
        queue: Bytes::from_static(b"default"),
        weight: 0,
        lease,
        unclaimed: Some(Protocol::GEARMAN),
    };
    broker.says(2, Command::Client(ClientCommand::Serve(subscription)), []);
    for n in 1..=QUEUES {
        let events = broker.hear(2, common::credit(1));
        let [(_, Event::Notice(Notice::Delivered(job)))] = events.as_slice() else {
            panic!("an unclaimed job")
        };
        assert_eq!(job.id.0, n);
    }
    broker.says(2, Command::Client(ClientCommand::Close), []);
    broker.says(1, remove_queue("default", true), ["1 done"]);
    for n in 0..QUEUES {
        let queue = Bytes::from(format!("queue-{n}"));
        assert_eq!(
            broker
                .hear(
                    1,
                    QueueCommand::Remove {
                        queue,
                        only_idle: false
                    }
                )
                .len(),
            1
        );
    }
    assert_eq!(broker.engine.queues().count(), 0);
    assert_eq!(broker.engine.job_count(), 0);
}

#[test]
fn ten_thousand_waiting_clients() {
    const CLIENTS: u64 = 10_000;
    let mut broker = Broker::new();
    for client in 10..10 + CLIENTS {
        broker.open(client);
        match client % 3 {
            0 => assert!(
                broker
                    .hear(client, take(["q", "r"]).until(60_000 + client))
                    .is_empty()
            ),
            1 => {
                broker.hear(client, serve("q"));
                assert!(broker.hear(client, TakeCommand::WaitForWork).is_empty());
            }
            _ => {
                broker.hear(client, serve("q"));
                assert!(broker.hear(client, common::credit(1)).is_empty());
            }
        }
    }
    // Each push causes a reply to the producer, a job for a taker, and no more than one wake-up for each
    // sleeper before it.
    let mut woken = 0;
    for _ in 0..CLIENTS {
        let events = broker.hear(1, push("q"));
        let count = |is: fn(&Event) -> bool| events.iter().filter(|(_, event)| is(event)).count();
        assert!(
            count(|event| event.handed_out().is_some()) <= 1,
            "{events:?}"
        );
        assert!(
            count(|event| matches!(event, Event::Notice(Notice::WorkAvailable))) <= 1,
            "{events:?}"
        );
        woken += count(|event| matches!(event, Event::Notice(Notice::WorkAvailable)));
    }
    // No blocked taker is left, and no sleeper was woken twice.
    assert_eq!(woken as u64, CLIENTS.div_ceil(3));
    let ready = broker
        .engine
        .queues()
        .map(|queue| queue.jobs(JobStateKind::Ready))
        .sum::<u32>();
    assert_eq!(
        u64::from(ready),
        CLIENTS.div_ceil(3),
        "as many as there are sleepers"
    );
    broker.engine.check();
}
