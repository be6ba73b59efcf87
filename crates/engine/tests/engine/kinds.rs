//! Figures by kind of job.

use std::sync::Arc;

use windlass_engine::{
    Backoff, Calls, ClientCommand, Cursor, Event, Job, JobReader, KindRow, Protocol, Query, Reply,
    Totals,
};

use crate::bodies::{Cold, long};
use crate::common::{Broker, Push, fail, finish, push, take};

/// Each body is the name of the called function, except for two.
#[derive(Debug)]
struct Bodies;

impl JobReader for Bodies {
    fn calls<'a>(&self, job: &'a Job) -> Calls<'a> {
        match job.body() {
            b"queue" => Calls::Queue,
            b"" => Calls::Unknown,
            name => Calls::Named(String::from_utf8_lossy(name)),
        }
    }

    fn is_by_queue(&self, protocol: Protocol) -> bool {
        protocol == Protocol::SPIDERQ
    }

    fn has_type(&self, _: &Job, _: &str) -> bool {
        false
    }

    fn text(&self, _: &Job, _: i64) -> Option<Vec<u8>> {
        None
    }
}

fn broker() -> Broker {
    let mut broker = Broker::new();
    broker.engine.set_reader(Arc::new(Bodies));
    broker
}

fn calling(name: &'static str) -> Push {
    push("q").with(|job| job.body = name.into())
}

/// A row: protocol, name, and deliveries, successes, failures and losses.
fn rows(broker: &mut Broker, limit: u32) -> Vec<(Option<Protocol>, String, [u64; 4])> {
    let (mut rows, mut after) = (Vec::new(), Some(Cursor::default()));
    while let Some(from) = after.take() {
        let events = broker.hear(1, Query::Kinds { after: from, limit });
        let [(_, Event::Reply(_, Reply::Kinds { rows: page, next }))] = events.as_slice() else {
            panic!("{events:?}")
        };
        rows.extend(page.iter().cloned());
        after = *next;
    }
    rows.iter().map(shown).collect()
}

fn shown(row: &KindRow) -> (Option<Protocol>, String, [u64; 4]) {
    let all = row
        .figures
        .totals
        .iter()
        .fold(Totals::default(), |sum, (_, it)| {
            sum.merged(it, u64::saturating_add)
        });
    assert_eq!(
        row.figures.waited.count(),
        all.taken,
        "each delivery has waited"
    );
    (
        row.protocol,
        String::from_utf8_lossy(&row.name).into_owned(),
        [all.taken, all.succeeded, all.failed, all.lost],
    )
}

#[test]
fn jobs_that_name_what_they_call_are_counted_by_it() {
    let mut broker = broker();
    for body in ["mail", "queue", "mail", "", "pdf"] {
        broker.hear(1, calling(body).retry(-1, Backoff::None));
    }
    for (job, end) in [(1, finish(1)), (2, finish(2)), (3, fail(3)), (4, finish(4))] {
        broker.hear(2, take(["q"]));
        broker.now += 10 * job;
        broker.hear(2, end);
    }
    // The worker of the last one disappears.
    broker.hear(2, take(["q"]));
    broker.hear(2, ClientCommand::Close);
    let gearman = Some(Protocol::GEARMAN);
    let expected = [
        (gearman, "mail".to_owned(), [2, 1, 1, 0]),
        (gearman, String::new(), [1, 1, 0, 0]),
        (gearman, "pdf".to_owned(), [1, 0, 0, 1]),
    ];
    assert_eq!(rows(&mut broker, 10), expected);
    assert_eq!(rows(&mut broker, 1), expected, "page by page");
    let events = broker.hear(
        1,
        Query::Kinds {
            after: Cursor::default(),
            limit: 1,
        },
    );
    let [(_, Event::Reply(_, Reply::Kinds { rows, .. }))] = events.as_slice() else {
        panic!("{events:?}")
    };
    let mail = &rows[0].figures;
    assert_eq!(
        (mail.ran.count(), mail.ran.sum_ms, mail.waited.sum_ms),
        (2, 10 + 30, 10 + 20)
    );
}

#[test]
fn the_least_busy_kinds_give_way_and_nothing_is_lost_of_their_counts() {
    let mut broker = broker();
    let before = broker.engine.resident_bytes();
    let run = |broker: &mut Broker, number: u64, body: String| {
        broker.hear(1, push("q").with(|job| job.body = body.into()));
        broker.hear(2, take(["q"]));
        broker.hear(2, finish(number));
    };
    // One kind stays busy, another is evicted while a worker has a job of it.
    run(&mut broker, 1, "busy".to_owned());
    broker.hear(1, calling("held"));
    broker.hear(3, take(["q"]));
    for number in 3..2_003 {
        let body = if number % 10 == 0 {
            "busy".to_owned()
        } else {
            format!("kind {number}")
        };
        run(&mut broker, number, body);
    }
    broker.hear(3, finish(2));
    let rows = rows(&mut broker, 300);
    assert!(rows.len() <= 1_001 && rows.len() > 900, "{}", rows.len());
    assert_eq!(
        rows[0],
        (Some(Protocol::GEARMAN), "busy".to_owned(), [201, 201, 0, 0])
    );
    let (last, _, [_, others, ..]) = rows.last().unwrap();
    assert!(last.is_none() && *others > 800, "{others}");
    let sums: Vec<u64> = [0, 1]
        .iter()
        .map(|at| rows.iter().map(|(_, _, counts)| counts[*at]).sum())
        .collect();
    assert_eq!(sums, [2_002, 2_002]);
    // The memory is counted, and limited.
    let bytes = broker.engine.resident_bytes() - before;
    assert!((500_000..1_500_000).contains(&bytes), "{bytes}");
}

#[test]
fn a_body_that_is_not_in_memory_shows_no_kind() {
    let mut cold = Cold::new();
    cold.broker.engine.set_reader(Arc::new(Bodies));
    for protocol in [Protocol::GEARMAN, Protocol::SPIDERQ] {
        cold.broker
            .hear(1, long("q", "mail").with(|job| job.protocol = protocol));
    }
    cold.store_all([1, 2]);
    (0..2).for_each(|_| drop(cold.broker.hear(2, take(["q"]))));
    assert_eq!(
        rows(&mut cold.broker, 10),
        [(Some(Protocol::GEARMAN), String::new(), [1, 0, 0, 0])]
    );
}

#[test]
fn without_a_reader_nothing_is_counted_by_kind() {
    let mut broker = Broker::new();
    broker.hear(1, calling("mail"));
    broker.hear(2, take(["q"]));
    assert_eq!(rows(&mut broker, 10), []);
}
