//! Flushing a protocol and removing large queues, a bounded amount at a time. The counters of a protocol.

use bytes::Bytes;
use windlass_engine::{
    Backoff, BatchCommand, BulkCommand, ClientCommand, Command, Cursor, Event, JobStateKind,
    LeaseCommand, Limits, NewBatch, NewJob, OnExpiry, Proof, Protocol, ProtocolStats, Query, Reply,
    Totals,
};

use crate::common::*;

/// Pushes as Faktory's protocol.
fn faktory(queue: &'static str) -> Push {
    push(queue).with(|job| job.protocol = Protocol::FAKTORY)
}

fn lease() -> Wish {
    take(["q"]).for_ms(60_000, OnExpiry::Fail)
}

/// Flushes to the end. Returns how much was removed, and in how many rounds.
fn flush(broker: &mut Broker, limit: u32) -> (u32, u32) {
    let (mut after, mut gone, mut rounds) = (Cursor::default(), 0, 0);
    loop {
        let events = broker.hear(
            4,
            BulkCommand::Flush {
                protocol: Protocol::FAKTORY,
                after,
                limit,
            },
        );
        broker.engine.check();
        let Some((_, Event::Reply(_, Reply::Mutated { changed, next, .. }))) = events.last() else {
            panic!("{events:?}")
        };
        assert!(*changed <= limit, "{changed} in one round");
        (gone, rounds) = (gone + changed, rounds + 1);
        match next {
            Some(next) => after = *next,
            None => return (gone, rounds),
        }
    }
}

fn figures(broker: &mut Broker, protocol: Protocol) -> ProtocolStats {
    let events = broker.hear(4, Query::Stats);
    let [(_, Event::Reply(_, Reply::Stats(stats)))] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(
        stats
            .protocols
            .iter()
            .map(|row| row.places.iter().sum::<u64>())
            .sum::<u64>(),
        stats.jobs
    );
    stats.of(protocol)
}

#[test]
fn a_flush_removes_everything_of_one_protocol_only() {
    let mut broker = Broker::new();
    let callback = || {
        Some(Box::new(NewJob::new(
            Protocol::FAKTORY,
            name("callbacks"),
            Bytes::new(),
        )))
    };
    let batch = NewBatch {
        protocol: Protocol::FAKTORY,
        name: name("b"),
        parent: None,
        about: Bytes::new(),
        meta: Bytes::new(),
        complete: callback(),
        success: callback(),
        expires_ms: 60_000,
    };
    broker.says(
        1,
        Command::Batch(BatchCommand::New(Box::new(batch))),
        ["1 done"],
    );
    broker.hear(1, faktory("callbacks").batch("b"));
    broker.says(
        1,
        Command::Batch(BatchCommand::Commit { batch: name("b") }),
        ["1 done"],
    );
    broker.hear(1, every(5_000, faktory("clock")));
    broker.hear(1, every(5_000, push("clock")));
    for job in [
        faktory("q").named("worked on"),
        faktory("q").retry(-1, Backoff::None),
        faktory("q").retry(1, Backoff::Fixed(9_000)),
        faktory("q"),
        faktory("later").not_before(90_000),
        faktory("both").priority(9),
        push("both"),
    ] {
        broker.hear(1, job);
    }
    broker.hear(1, pause("later", true));
    broker.hear(2, serve("served"));
    broker.hear(1, limit("limited", 3));
    // One leased, one dead, one retrying, one ready.
    for _ in 0..3 {
        broker.hear(2, lease());
    }
    let ids: Vec<_> = broker
        .engine
        .jobs()
        .filter_map(|job| Some((job.id.0, job.lease()?)))
        .map(|(id, _)| id)
        .collect();
    broker.hear(2, fail_by(ids[1], Proof::AnyLease));
    broker.hear(2, fail_by(ids[2], Proof::AnyLease));

    let (gone, _) = flush(&mut broker, 1_000);
    assert_eq!(gone, 8, "and no callback came of it");
    assert_eq!(
        (
            broker.engine.batches().count(),
            broker.engine.schedules().count()
        ),
        (0, 2)
    );
    let left: Vec<_> = broker.engine.jobs().map(|job| job.protocol).collect();
    assert_eq!(left, [Protocol::GEARMAN]);
    let finish = Command::Lease(LeaseCommand::Finish {
        job: by_name("worked on"),
        proof: Proof::AnyLease,
        result: Bytes::new(),
    });
    broker.says(2, finish, ["2 refused: job unknown"]);
    // The schedule of another protocol keeps `clock` in that protocol's listings.
    broker.says(1, list_queues(), ["1 queues clock both served limited"]);
    // A queue's pause is removed with the queue.
    broker.says(1, faktory("later"), ["1 new j12"]);
    broker.says(2, take(["later"]), ["2 took j12.1"]);
}

#[test]
fn a_flush_is_done_in_small_steps() {
    let mut broker = Broker::limited(|limits| limits.page_max = 10);
    for n in 0..95 {
        broker.hear(1, if n % 2 == 0 { faktory("q") } else { push("q") });
    }
    // A request for more than a page gets a page.
    let (gone, rounds) = flush(&mut broker, 1_000);
    assert_eq!(gone, 48);
    assert!((7..16).contains(&rounds), "{rounds} rounds");
    assert_eq!(broker.drain("q").len(), 47);
}

#[test]
fn a_large_queue_is_removed_in_several_steps() {
    let mut broker = Broker::limited(|limits| limits.page_max = 10);
    for _ in 0..25 {
        broker.hear(1, push("q"));
    }
    broker.says(2, take(["q"]), ["2 took j1.1"]);
    broker.says(1, remove_queue("q", true), ["1 refused: queue in use"]);
    broker.says(1, remove_queue("q", false), ["1 mutated 10 and more"]);
    broker.says(1, remove_queue("q", false), ["1 mutated 10 and more"]);
    broker.says(1, list_queues(), ["1 queues q"]);
    broker.says(1, remove_queue("q", false), ["1 done"]);
    broker.says(1, list_queues(), ["1 queues"]);
    broker.says(2, finish(1), ["2 finished j1"]);
    assert_eq!(broker.engine.queues().count(), 0);
}

#[test]
fn totals_are_counted_for_each_protocol() {
    let mut broker = Broker::limited(|limits| (limits.dead_ms, limits.beat_ms) = (500, 100_000));
    broker.hear(1, push("other"));
    assert_eq!(
        figures(&mut broker, Protocol::FAKTORY).totals,
        Totals::default()
    );
    broker.hear(1, faktory("q"));
    broker.hear(1, faktory("q").retry(1, Backoff::Fixed(100)));
    broker.hear(1, faktory("q").not_before(1_100));
    broker.hear(2, lease());
    broker.hear(2, finish_by(2, Proof::AnyLease));
    broker.hear(2, lease());
    broker.hear(2, fail_by(3, Proof::AnyLease));
    let now = figures(&mut broker, Protocol::FAKTORY);
    assert_eq!(
        (
            now.jobs(JobStateKind::Retrying),
            now.jobs(JobStateKind::Scheduled),
            now.jobs(JobStateKind::Ready)
        ),
        (1, 1, 0)
    );
    broker.at(1_100, []);
    // Both are ready again. One lease then expires and the job is dead; the other lease expires, and the job
    // is removed because it has no retries; the dead job is removed at last.
    broker.hear(2, take(["q"]).for_ms(200, OnExpiry::Fail));
    broker.at(1_300, []);
    assert_eq!(
        figures(&mut broker, Protocol::FAKTORY).jobs(JobStateKind::Dead),
        1
    );
    broker.hear(2, take(["q"]).for_ms(200, OnExpiry::Fail));
    broker.at(1_500, []);
    assert_eq!(
        figures(&mut broker, Protocol::FAKTORY).jobs(JobStateKind::Dead),
        1
    );
    broker.at(1_800, []);
    let expected = Totals {
        pushed: 3,
        taken: 4,
        succeeded: 1,
        failed: 3,
        buried: 1,
        released: 1,
        retried: 1,
        purged: 1,
        timed_out: 2,
        ..Totals::default()
    };
    assert_eq!(figures(&mut broker, Protocol::FAKTORY).totals, expected);
    // The figures of other protocols are separate. The totals include all protocols, and a flush of one
    // protocol does not affect them.
    assert_eq!(
        figures(&mut broker, Protocol::GEARMAN).totals,
        Totals {
            pushed: 1,
            ..Totals::default()
        }
    );
    flush(&mut broker, 1_000);
    assert_eq!(
        figures(&mut broker, Protocol::FAKTORY).totals,
        Totals::default()
    );
    assert_eq!(
        broker.engine.meta().totals,
        Totals {
            pushed: 4,
            ..expected
        }
    );
}

#[test]
fn lost_workers_count_for_their_protocol() {
    let mut broker = Broker::new();
    let info = windlass_engine::ClientInfo {
        protocol: Some(Protocol::FAKTORY),
        ..Default::default()
    };
    broker.says(9, Command::Client(ClientCommand::Open(info)), []);
    broker.says(9, enlist("w"), ["9 done"]);
    broker.says(1, enlist("v"), ["1 done"]);
    broker.at(1_000 + Limits::default().beat_ms, ["9 closed", "1 closed"]);
    assert_eq!(
        figures(&mut broker, Protocol::FAKTORY).totals.workers_lost,
        1
    );
    assert_eq!(broker.engine.meta().totals.workers_lost, 2);
}
