//! A peer that speaks the version before gets nothing that it cannot read.

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use windlass_engine::{
    Capacity, ClientId, Event, Expiry, JobCommand, NewJob, Protocol, Refusal, Reply, Tag, Timestamp,
};
use windlass_link::{Item, ToEdge, ToLeader};

use crate::dice::each_variant;

/// The enums on the way to what is new, and those that are new.
const KINDS: &[&str] = &[
    "ToLeader",
    "ToEdge",
    "Claim",
    "Command",
    "JobCommand",
    "BulkCommand",
    "Query",
    "Condition",
    "ScheduleCommand",
    "BatchCommand",
    "Query",
    "Event",
    "Reply",
    "Notice",
    "Expiry",
    "Listen",
];

/// How items look that an older peer cannot read.
const NEW: &[&str] = &[
    "expires: By(",
    "listen: As(",
    "Collect {",
    "JobsBy {",
    "InBatch(",
    "FailedLike(",
    "OfKind(",
    "Query(Attempts(",
];

/// Returns how many of the items had something new.
fn check<T: Item + DeserializeOwned + Debug>() -> usize {
    let is_new = |item: &T| NEW.iter().any(|new| format!("{item:?}").contains(new));
    let mut items = each_variant::<T>(KINDS);
    items.retain(|(_, item)| is_new(item));
    for (name, item) in &mut items {
        item.make_older(0);
        assert!(!is_new(item), "{name}: {item:?}");
    }
    items.len()
}

#[test]
fn an_older_peer_gets_nothing_that_is_new() {
    let (to_leader, to_edge) = (check::<ToLeader>(), check::<ToEdge>());
    assert!(to_leader >= 6 && to_edge >= 4, "{to_leader} and {to_edge}");
}

#[test]
fn a_full_key_is_a_full_queue() {
    let full = |what| ToEdge::Event {
        client: ClientId(1),
        gate: 0,
        event: Event::Reply(
            Tag(1),
            Reply::Refused(Refusal::Limit {
                what,
                held: 2,
                limit: 2,
            }),
        ),
    };
    let mut item = full(Capacity::KeyJobs);
    item.make_older(0);
    assert_eq!(
        format!("{item:?}"),
        format!("{:?}", full(Capacity::QueueJobs))
    );
}

#[test]
fn a_span_becomes_a_moment_of_the_calendar() {
    let new = NewJob {
        expires: Expiry::By(Timestamp(70_000)),
        ..NewJob::new(Protocol::FAKTORY, "q".into(), "".into())
    };
    let push = |new: &NewJob| ToLeader::Command {
        client: ClientId(1),
        tag: Tag(1),
        command: JobCommand::Push(Box::new(new.clone())).into(),
    };
    let mut item = push(&new);
    item.make_older(-5_000);
    let expected = push(&NewJob {
        expires: Expiry::At(Timestamp(65_000)),
        ..new
    });
    assert_eq!(format!("{item:?}"), format!("{expected:?}"));
}
