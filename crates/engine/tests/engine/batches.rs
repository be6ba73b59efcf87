//! Batches: related jobs, and the callbacks pushed once all of them have run.

use bytes::Bytes;
use windlass_engine::{
    Backoff, BatchCommand, CallbackState, ClientCommand, Command, Cursor, Event, JobCommand,
    JobRef, JobStateKind, Limits, Listen, Mutation, NewBatch, NewJob, Protocol, Query, Reply,
};

use crate::common::*;

const CALLBACKS: &str = "callbacks";

fn callback(body: &'static str) -> Option<Box<NewJob>> {
    Some(Box::new(NewJob::new(
        Protocol::FAKTORY,
        name(CALLBACKS),
        name(body),
    )))
}

fn batch(text: &'static str) -> NewBatch {
    NewBatch {
        protocol: Protocol::FAKTORY,
        name: name(text),
        parent: None,
        about: Bytes::from_static(b"what for"),
        meta: Bytes::new(),
        complete: None,
        success: None,
        expires_ms: 1_800_000,
    }
}

fn both(text: &'static str) -> NewBatch {
    NewBatch {
        complete: callback("complete"),
        success: callback("success"),
        ..batch(text)
    }
}

fn make(new: NewBatch) -> Command {
    Command::Batch(BatchCommand::New(Box::new(new)))
}

fn commit(text: &'static str) -> Command {
    Command::Batch(BatchCommand::Commit { batch: name(text) })
}

/// Opens a batch, and delays the callbacks for half an hour.
fn open(text: &'static str) -> Command {
    Command::Batch(BatchCommand::Open {
        batch: name(text),
        hold_ms: 1_800_000,
    })
}

/// `total/pending/failed`, and the states of the two callbacks.
fn state(broker: &mut Broker, text: &'static str) -> String {
    let events = broker.hear(1, Query::Batch { batch: name(text) });
    broker.engine.check();
    let letter = |state: CallbackState| match state {
        CallbackState::None => '-',
        CallbackState::Enqueued => '1',
        CallbackState::Ok => '2',
    };
    match events.as_slice() {
        [(_, Event::Reply(_, Reply::Batch(batch)))] => {
            let (complete, success) = (letter(batch.complete), letter(batch.success));
            format!(
                "{}/{}/{} {complete}{success}",
                batch.total, batch.pending, batch.failed
            )
        }
        [(_, Event::Reply(_, Reply::Refused(why)))] => why.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Takes and finishes the next callback.
fn call_back(broker: &mut Broker) {
    let events = broker.hear(2, take([CALLBACKS]));
    let [(_, Event::Reply(_, Reply::Taken(job)))] = events.as_slice() else {
        panic!("no callback: {events:?}")
    };
    broker.hear(2, finish(job.id.0));
    broker.engine.check();
}

#[test]
fn complete_is_pushed_once_all_have_run_and_success_once_all_succeeded() {
    let mut broker = Broker::new();
    broker.says(1, make(both("b")), ["1 done"]);
    broker.says(1, push("work").batch("b"), ["1 new j2"]);
    broker.says(
        1,
        push("work").batch("b").retry(3, Backoff::Fixed(10)),
        ["1 new j3"],
    );
    broker.says(1, commit("b"), ["1 done"]);
    assert_eq!(state(&mut broker, "b"), "2/2/0 --");

    broker.says(2, take(["work"]), ["2 took j2.1"]);
    broker.says(2, finish(2), ["2 finished j2"]);
    assert_eq!(state(&mut broker, "b"), "2/1/0 --");
    broker.says(2, take(["work"]), ["2 took j3.1"]);
    broker.says(2, fail(3), ["2 failed j3, retried 1010"]);
    // Both have run. The complete callback is pushed; the success callback is delayed until that callback and
    // the second job have succeeded.
    assert_eq!(state(&mut broker, "b"), "2/1/1 1-");
    call_back(&mut broker);
    assert_eq!(state(&mut broker, "b"), "2/1/1 2-");
    broker.at(1_010, []);
    broker.says(2, take(["work"]), ["2 took j3.2"]);
    broker.says(2, finish(3), ["2 finished j3"]);
    assert_eq!(state(&mut broker, "b"), "2/0/0 21");
    call_back(&mut broker);
    assert_eq!(state(&mut broker, "b"), "2/0/0 22");
    broker.says(2, take([CALLBACKS]), ["2 empty"]);
}

#[test]
fn success_waits_for_the_complete_callback_to_succeed() {
    let mut broker = Broker::new();
    broker.says(1, make(both("b")), ["1 done"]);
    broker.says(1, push("work").batch("b"), ["1 new j2"]);
    broker.says(1, commit("b"), ["1 done"]);
    assert_eq!(broker.drain("work"), [2]);
    assert_eq!(state(&mut broker, "b"), "1/0/0 1-");
    broker.says(2, take([CALLBACKS]), ["2 took j3.1"]);
    // The callback fails for good, so the state stays "enqueued".
    broker.says(2, fail(3), ["2 failed j3, discarded"]);
    assert_eq!(state(&mut broker, "b"), "1/0/0 1-");
    broker.says(2, take([CALLBACKS]), ["2 empty"]);
}

#[test]
fn success_without_a_complete_callback_is_pushed_at_once() {
    let mut broker = Broker::new();
    broker.says(
        1,
        make(NewBatch {
            success: callback("success"),
            ..batch("b")
        }),
        ["1 done"],
    );
    broker.says(1, push("work").batch("b"), ["1 new j2"]);
    broker.says(1, commit("b"), ["1 done"]);
    assert_eq!(broker.drain("work"), [2]);
    assert_eq!(state(&mut broker, "b"), "1/0/0 -1");
}

#[test]
fn no_callback_before_the_commit_and_an_empty_batch_completes_with_it() {
    let mut broker = Broker::new();
    broker.says(1, make(both("b")), ["1 done"]);
    broker.says(1, push("work").batch("b"), ["1 new j2"]);
    assert_eq!(broker.drain("work"), [2]);
    assert_eq!(state(&mut broker, "b"), "1/0/0 --");
    broker.says(3, take([CALLBACKS]).forever(), []);
    // A waiting client gets the callback in the same visit.
    broker.says(1, commit("b"), ["1 done", "3 took j3.1"]);
    broker.says(3, finish(3), ["3 finished j3"]);
    assert_eq!(state(&mut broker, "b"), "1/0/0 21");

    broker.says(1, make(both("empty")), ["1 done"]);
    assert_eq!(state(&mut broker, "empty"), "0/0/0 --");
    broker.says(1, commit("empty"), ["1 done"]);
    broker.says(1, commit("empty"), ["1 done"]);
    assert_eq!(state(&mut broker, "empty"), "0/0/0 1-");
}

#[test]
fn a_batch_completes_however_its_jobs_end() {
    let in_place = |state| in_queue("work", state);
    let fates: [(&str, Vec<Command>); 7] = [
        (
            "cancelled",
            vec![Command::Job(JobCommand::Cancel(JobRef::Name(name("j"))))],
        ),
        (
            "discarded",
            vec![mutate(in_place(JobStateKind::Ready), Mutation::Discard)],
        ),
        (
            "killed",
            vec![mutate(in_place(JobStateKind::Ready), Mutation::Kill)],
        ),
        ("removed with its queue", vec![remove_queue("work", false)]),
        ("failed for good", vec![take(["work"]).into(), fail(2)]),
        (
            "lost too often",
            vec![take(["work"]).into(), Command::Client(ClientCommand::Close)],
        ),
        ("run out of time", vec![]),
    ];
    for (fate, commands) in fates {
        let mut broker = Broker::new();
        broker.hear(1, make(both("b")));
        broker.hear(
            1,
            push("work").batch("b").named("j").losses(1).expires(5_000),
        );
        broker.hear(1, commit("b"));
        commands
            .into_iter()
            .for_each(|command| drop(broker.hear(2, command)));
        if fate == "run out of time" {
            broker.at(5_000, []);
        }
        broker.open(2);
        assert_eq!(state(&mut broker, "b"), "1/1/1 1-", "{fate}");
        call_back(&mut broker);
        assert_eq!(state(&mut broker, "b"), "1/1/1 2-", "{fate}");
    }
}

#[test]
fn a_requeued_dead_job_may_still_lead_to_success() {
    let mut broker = Broker::new();
    broker.says(
        1,
        make(NewBatch {
            success: callback("success"),
            ..batch("b")
        }),
        ["1 done"],
    );
    broker.says(
        1,
        push("work").batch("b").retry(-1, Backoff::None),
        ["1 new j2"],
    );
    broker.says(1, commit("b"), ["1 done"]);
    broker.says(2, take(["work"]), ["2 took j2.1"]);
    broker.says(2, fail(2), ["2 failed j2, buried until 15552001000"]);
    assert_eq!(state(&mut broker, "b"), "1/1/1 --");
    broker.says(
        1,
        mutate(placed(JobStateKind::Dead), Mutation::Requeue),
        ["1 mutated 1"],
    );
    assert_eq!(broker.drain("work"), [2]);
    assert_eq!(state(&mut broker, "b"), "1/0/0 -1");
}

#[test]
fn a_parent_waits_for_the_callbacks_of_its_children() {
    let mut broker = Broker::new();
    broker.says(1, make(both("parent")), ["1 done"]);
    broker.says(
        1,
        make(NewBatch {
            parent: Some(name("parent")),
            ..both("child")
        }),
        ["1 done"],
    );
    broker.says(1, push("work").batch("parent"), ["1 new j3"]);
    broker.says(1, push("work").batch("child"), ["1 new j4"]);
    broker.says(1, commit("parent"), ["1 done"]);
    assert_eq!(broker.drain("work"), [3, 4]);
    assert_eq!(
        [state(&mut broker, "parent"), state(&mut broker, "child")],
        ["1/0/0 --", "1/0/0 --"]
    );
    broker.says(1, commit("child"), ["1 done"]);
    assert_eq!(
        [state(&mut broker, "parent"), state(&mut broker, "child")],
        ["1/0/0 --", "1/0/0 1-"]
    );
    call_back(&mut broker);
    assert_eq!(
        [state(&mut broker, "parent"), state(&mut broker, "child")],
        ["1/0/0 1-", "1/0/0 21"]
    );
    // The parent's callback is taken first, because it was pushed first. The parent's success callback is
    // pushed after the child's.
    call_back(&mut broker);
    call_back(&mut broker);
    assert_eq!(
        [state(&mut broker, "parent"), state(&mut broker, "child")],
        ["1/0/0 21", "1/0/0 22"]
    );
}

#[test]
fn a_forgotten_child_that_has_not_succeeded_keeps_its_parent_from_success() {
    let mut broker = Broker::limited(|limits| limits.batch_keep_ms = 500);
    broker.says(1, make(both("parent")), ["1 done"]);
    broker.says(
        1,
        make(NewBatch {
            parent: Some(name("parent")),
            ..both("child")
        }),
        ["1 done"],
    );
    broker.says(1, push("work").batch("parent"), ["1 new j3"]);
    broker.says(1, push("fails").batch("child"), ["1 new j4"]);
    broker.says(1, commit("parent"), ["1 done"]);
    broker.says(1, commit("child"), ["1 done"]);
    broker.says(2, take(["fails"]), ["2 took j4.1"]);
    broker.says(2, fail(4), ["2 failed j4, discarded"]);
    call_back(&mut broker);
    assert_eq!(
        [state(&mut broker, "parent"), state(&mut broker, "child")],
        ["1/1/0 --", "1/1/1 2-"]
    );
    broker.at(1_500, []);
    assert_eq!(state(&mut broker, "child"), "batch unknown");
    assert_eq!(broker.drain("work"), [3]);
    call_back(&mut broker);
    assert_eq!(state(&mut broker, "parent"), "1/0/0 2-");
}

#[test]
fn a_parent_waits_for_an_uncommitted_child_until_it_expires() {
    let mut broker = Broker::new();
    broker.says(1, make(both("parent")), ["1 done"]);
    broker.says(
        1,
        make(NewBatch {
            parent: Some(name("parent")),
            expires_ms: 500,
            ..both("child")
        }),
        ["1 done"],
    );
    broker.says(1, commit("parent"), ["1 done"]);
    assert_eq!(state(&mut broker, "parent"), "0/0/0 --");
    broker.is_due_at(1_500);
    broker.at(1_500, []);
    assert_eq!(state(&mut broker, "child"), "batch unknown");
    assert_eq!(state(&mut broker, "parent"), "0/0/0 1-");
}

#[test]
fn jobs_may_join_after_everything_but_callbacks_come_once() {
    let mut broker = Broker::new();
    broker.says(1, make(both("b")), ["1 done"]);
    broker.says(1, commit("b"), ["1 done"]);
    call_back(&mut broker);
    call_back(&mut broker);
    assert_eq!(state(&mut broker, "b"), "0/0/0 22");
    broker.says(1, open("b"), ["1 done"]);
    broker.says(1, push("work").batch("b"), ["1 new j4"]);
    broker.says(1, commit("b"), ["1 done"]);
    assert_eq!(state(&mut broker, "b"), "1/1/0 22");
    assert_eq!(broker.drain("work"), [4]);
    assert_eq!(state(&mut broker, "b"), "1/0/0 22");
    broker.says(2, take([CALLBACKS]), ["2 empty"]);
}

#[test]
fn a_reopened_batch_holds_its_callbacks_until_the_next_commit() {
    let mut broker = Broker::new();
    broker.says(1, make(both("b")), ["1 done"]);
    broker.says(1, push("work").batch("b"), ["1 new j2"]);
    broker.says(1, commit("b"), ["1 done"]);
    broker.says(1, open("b"), ["1 done"]);
    assert_eq!(broker.drain("work"), [2]);
    assert_eq!(state(&mut broker, "b"), "1/0/0 --");
    broker.says(1, push("work").batch("b"), ["1 new j3"]);
    assert_eq!(broker.drain("work"), [3]);
    assert_eq!(state(&mut broker, "b"), "2/0/0 --");
    broker.says(1, commit("b"), ["1 done"]);
    assert_eq!(state(&mut broker, "b"), "2/0/0 1-");
    // The same holds between the two callbacks.
    broker.says(1, open("b"), ["1 done"]);
    call_back(&mut broker);
    assert_eq!(state(&mut broker, "b"), "2/0/0 2-");
    broker.says(1, commit("b"), ["1 done"]);
    assert_eq!(state(&mut broker, "b"), "2/0/0 21");
}

#[test]
fn a_reopened_batch_without_a_commit_continues_after_its_hold() {
    let mut broker = Broker::new();
    broker.says(1, make(batch("outer")), ["1 done"]);
    broker.says(1, commit("outer"), ["1 done"]);
    broker.says(1, open("outer"), ["1 done"]);
    broker.says(
        1,
        make(NewBatch {
            parent: Some(name("outer")),
            ..both("b")
        }),
        ["1 done"],
    );
    broker.says(1, commit("b"), ["1 done"]);
    call_back(&mut broker);
    assert_eq!(state(&mut broker, "b"), "0/0/0 21");

    broker.says(1, make(both("c")), ["1 done"]);
    broker.says(1, commit("c"), ["1 done"]);
    assert_eq!(state(&mut broker, "c"), "0/0/0 1-");
    broker.says(1, make(both("d")), ["1 done"]);
    broker.says(1, push("work").batch("d"), ["1 new j8"]);
    broker.says(1, commit("d"), ["1 done"]);
    let begin = broker.now;
    broker.says(1, open("d"), ["1 done"]);
    broker.at(begin + 60_000, []);
    assert_eq!(broker.drain("work"), [8]);
    // Opened again for a shorter time: the longer time applies.
    broker.says(
        1,
        Command::Batch(BatchCommand::Open {
            batch: name("d"),
            hold_ms: 5,
        }),
        ["1 done"],
    );
    broker.at(begin + 1_799_999, []);
    assert_eq!(state(&mut broker, "d"), "1/0/0 --");
    broker.at(begin + 1_800_000, []);
    assert_eq!(state(&mut broker, "d"), "1/0/0 1-");
    // It is no longer open.
    call_back(&mut broker);
    call_back(&mut broker);
}

#[test]
fn unknown_and_forgotten_batches() {
    let day = 86_400_000;
    let mut broker = Broker::limited(|limits| limits.batch_keep_ms = day);
    broker.says(1, push("work").batch("b"), ["1 refused: batch unknown"]);
    broker.says(1, open("b"), ["1 refused: batch unknown"]);
    broker.says(1, commit("b"), ["1 refused: batch unknown"]);
    let orphan = NewBatch {
        parent: Some(name("b")),
        ..batch("c")
    };
    broker.says(1, make(orphan), ["1 refused: batch unknown"]);
    assert_eq!(state(&mut broker, "b"), "batch unknown");

    broker.says(1, make(both("b")), ["1 done"]);
    broker.says(1, make(both("b")), ["1 refused: job not unique"]);
    // Not committed in time: jobs of the batch continue without it.
    broker.says(1, push("work").batch("b"), ["1 new j2"]);
    broker.at(1_801_000, []);
    assert_eq!(state(&mut broker, "b"), "batch unknown");
    assert_eq!(broker.drain("work"), [2]);

    // It is retained for a day after it is drained, and longer if a client opens it.
    broker.says(1, make(batch("kept")), ["1 done"]);
    broker.says(1, push("work").batch("kept"), ["1 new j4"]);
    broker.says(1, commit("kept"), ["1 done"]);
    let begin = broker.now;
    broker.at(begin + 3 * day, []);
    assert_eq!(broker.drain("work"), [4]);
    broker.is_due_at(begin + 4 * day);
    broker.now = begin + 3 * day + 5;
    broker.says(1, open("kept"), ["1 done"]);
    broker.is_due_at(begin + 4 * day + 5);
    broker.at(begin + 4 * day + 5, []);
    assert_eq!(state(&mut broker, "kept"), "batch unknown");
    assert_eq!(broker.engine.next_deadline(), None);
}

#[test]
fn callbacks_name_their_batch_and_are_exempt_from_limits() {
    let mut broker = Broker::limited(|limits| limits.jobs_max = 1);
    broker.says(1, make(both("b")), ["1 done"]);
    broker.says(1, push("work"), ["1 new j2"]);
    broker.says(1, commit("b"), ["1 done"]);
    broker.says(
        1,
        push("work"),
        ["1 refused: daemon is full: jobs 2, limit 1"],
    );
    let job = broker
        .engine
        .job(windlass_engine::JobId(3))
        .and_then(|job| job.extra.as_deref()?.member)
        .unwrap();
    assert_eq!(
        broker
            .engine
            .batch(job.batch)
            .map(|batch| batch.name.clone()),
        Some(name("b"))
    );
    assert_eq!(job.role, windlass_engine::Role::Complete);
}

#[test]
fn a_callback_waits_while_its_queue_has_the_other_kind() {
    let mut broker = Broker::new();
    broker.says(
        1,
        create(CALLBACKS, windlass_engine::QueueKind::Cycle),
        ["1 done"],
    );
    broker.says(1, make(both("b")), ["1 done"]);
    broker.says(1, commit("b"), ["1 done"]);
    assert_eq!(state(&mut broker, "b"), "0/0/0 --");
    broker.is_due_at(2_000);
    broker.at(2_000, []);
    broker.says(1, remove_queue(CALLBACKS, true), ["1 done"]);
    broker.at(3_000, []);
    assert_eq!(state(&mut broker, "b"), "0/0/0 1-");
}

#[test]
fn invalid_batches_and_jobs_that_cannot_join_are_refused() {
    let mut broker =
        Broker::limited(|limits| (limits.batch_depth_max, limits.name_bytes_max) = (1, 9));
    let with = |change: fn(&mut NewJob)| {
        let mut new = both("b");
        new.success.as_deref_mut().map(change);
        make(new)
    };
    broker.says(
        1,
        make(batch("much too long")),
        ["1 refused: name of 13 bytes, limit 9"],
    );
    broker.says(
        1,
        with(|job| job.durable = false),
        ["1 refused: not allowed in this state"],
    );
    broker.says(
        1,
        with(|job| job.listen = Listen::Yes),
        ["1 refused: not allowed in this state"],
    );
    broker.says(
        1,
        with(|job| job.batch = Some(Bytes::new())),
        ["1 refused: not allowed in this state"],
    );
    broker.says(
        1,
        with(|job| job.kind = windlass_engine::QueueKind::Cycle),
        ["1 refused: queue of the other kind"],
    );
    broker.says(1, make(batch("a")), ["1 done"]);
    broker.says(
        1,
        make(NewBatch {
            parent: Some(name("a")),
            ..batch("b")
        }),
        ["1 done"],
    );
    let third = NewBatch {
        parent: Some(name("b")),
        ..batch("c")
    };
    broker.says(
        1,
        make(third),
        ["1 refused: limit of nested batches reached: 1"],
    );
    let other = NewBatch {
        parent: Some(name("b")),
        protocol: Protocol::GEARMAN,
        ..batch("c")
    };
    broker.says(1, make(other), ["1 refused: batch unknown"]);
    broker.says(
        1,
        push("work").batch("b").foreground(),
        ["1 refused: not allowed in this state"],
    );
    broker.says(
        1,
        push("ring").batch("b").cycle(),
        ["1 refused: not allowed in this state"],
    );
}

#[test]
fn a_new_batch_evicts_the_one_longest_at_rest() {
    let mut broker = Broker::limited(|limits| limits.batches_max = 2);
    broker.says(1, make(batch("a")), ["1 done"]);
    broker.says(1, make(batch("b")), ["1 done"]);
    broker.says(
        1,
        make(batch("c")),
        ["1 refused: limit of batches reached: 2"],
    );
    broker.says(1, push("work").batch("a"), ["1 new j3"]);
    broker.says(1, commit("a"), ["1 done"]);
    broker.says(
        1,
        make(batch("c")),
        ["1 refused: limit of batches reached: 2"],
    );
    broker.says(1, commit("b"), ["1 done"]);
    broker.says(1, make(batch("c")), ["1 done"]);
    assert_eq!(state(&mut broker, "b"), "batch unknown");
    assert_eq!(state(&mut broker, "a"), "1/1/0 --");
}

#[test]
fn batches_beyond_a_lower_limit_make_room_one_by_one() {
    let mut broker = Broker::new();
    for text in ["a", "b", "c"] {
        broker.says(1, make(batch(text)), ["1 done"]);
        broker.says(1, commit(text), ["1 done"]);
    }
    broker.engine.set_limits(Limits {
        batches_max: 2,
        ..broker.engine.limits().clone()
    });
    broker.says(
        1,
        make(batch("d")),
        ["1 refused: limit of batches reached: 2"],
    );
    broker.says(1, make(batch("d")), ["1 done"]);
    assert_eq!(
        ["a", "b"].map(|text| state(&mut broker, text)),
        ["batch unknown"; 2]
    );
}

#[test]
fn batches_are_listed_by_number() {
    let mut broker = Broker::new();
    ["a", "b", "c"]
        .into_iter()
        .for_each(|name| drop(broker.hear(1, make(batch(name)))));
    let list = |after, limit| {
        Command::Query(Query::Batches {
            after: Cursor(after, 0),
            limit,
        })
    };
    broker.says(1, list(0, 2), ["1 batches a b and more"]);
    broker.says(1, list(3, 2), ["1 batches c"]);
    broker.says(1, list(4, 2), ["1 batches"]);
}

#[test]
fn a_long_chain_of_batches_completes_in_one_visit() {
    const DEEP: u32 = 300;
    let mut broker = Broker::limited(|limits| limits.batch_depth_max = DEEP);
    let named = |n: u32| Bytes::from(format!("b{n}"));
    for n in 0..DEEP {
        let parent = n.checked_sub(1).map(named);
        broker.hear(
            1,
            make(NewBatch {
                name: named(n),
                parent,
                ..batch("")
            }),
        );
        if n > 0 {
            broker.hear(
                1,
                BatchCommand::Commit {
                    batch: named(n - 1),
                },
            );
        }
    }
    broker.hear(
        1,
        BatchCommand::Commit {
            batch: named(DEEP - 1),
        },
    );
    assert!(
        broker
            .engine
            .batches()
            .all(|batch| batch.progress.success.is_over())
    );
    broker.at(1_000 + 7 * 86_400_000 - 1, []);
    assert_eq!(broker.engine.batches().count(), DEEP as usize);
    broker.at(1_000 + 7 * 86_400_000, []);
    assert_eq!(broker.engine.batches().count(), 0);
}
