//! Jobs, queues and IDs imported from another engine.

use windlass_engine::{
    Batch, BatchCommand, Clash, ClientId, Context, Cycle, Holder, Job, JobId, JobState, KeyUntil,
    Lease, Member, NewBatch, NewJob, OnExpiry, Protocol, QueueId, QueueKind, Refusal, Role,
    Schedule, Stage, Timestamp, Token,
};

use crate::common::{Broker, Push, create, every, name, push, take_round, words};

/// A job of another engine with this number.
fn job(id: u64, new: Push) -> Job {
    let mut other = Broker::new();
    other.hear(1, new);
    Job {
        id: JobId(id),
        ..other.engine.jobs().next().unwrap().clone()
    }
}

fn adopt(broker: &mut Broker, job: Job, first: u64) -> Result<u64, Refusal> {
    let rank = broker.engine.reserve_ranks(1);
    let mut context = Context::new(Timestamp(broker.now), 1);
    let adopted =
        broker
            .engine
            .adopt_job(Job { rank, ..job }, &name("q"), JobId(first), &mut context);
    broker.engine.check();
    adopted.map(|id| id.0)
}

#[test]
fn a_job_keeps_its_number_if_that_was_never_given_here() {
    let mut broker = Broker::new();
    broker.says(1, push("q"), ["1 new j1"]);
    let high = (1 << 53) - 2;
    for (wanted, given) in [
        (1, 2),
        (7, 7),
        (3, 8),
        (high + 2, 9),
        (high + 1, 10),
        (u64::MAX, 11),
        (high, high),
    ] {
        assert_eq!(
            adopt(&mut broker, job(wanted, push("q")), 2),
            Ok(given),
            "{wanted}"
        );
    }
    assert_eq!(
        broker.drain("q"),
        [1, 2, 7, 8, 9, 10, 11, high],
        "in the order of their ranks"
    );
    let mut broker = Broker::new();
    for (next, expected) in [(5, "1 new j5"), (3, "1 new j6"), (1 << 53, "1 new j7")] {
        broker
            .engine
            .adopt_numbers(next, &mut Context::new(Timestamp(1_000), 1));
        broker.says(1, push("q"), [expected]);
    }
}

#[test]
fn what_the_journal_has_is_not_written_again() {
    let mut broker = Broker::new();
    broker.says(1, push("q").cycle(), ["1 new j1"]);
    let image = broker.engine.queues().next().unwrap().image().clone();
    let mut context = Context::new(Timestamp(broker.now), 1);
    broker.engine.adopt_numbers(2, &mut context);
    assert_eq!(broker.engine.adopt_queue(image, &mut context), Ok(false));
    assert_eq!(context.changes, []);
}

#[test]
fn a_job_that_is_taken_over_counts_as_pushed() {
    let mut broker = Broker::new();
    assert_eq!(adopt(&mut broker, job(5, push("q")), 1), Ok(5));
    assert_eq!(broker.engine.meta().totals.pushed, 1);
}

#[test]
fn a_job_with_a_reserved_rank_is_before_later_jobs() {
    let mut broker = Broker::new();
    let rank = broker.engine.reserve_ranks(1);
    broker.says(1, push("q"), ["1 new j1"]);
    let mut context = Context::new(Timestamp(broker.now), 1);
    let taken_over = Job {
        rank,
        ..job(5, push("q"))
    };
    broker
        .engine
        .adopt_job(taken_over, &name("q"), JobId(1), &mut context)
        .unwrap();
    assert_eq!(broker.drain("q"), [5, 1]);
}

#[test]
fn a_new_entry_is_behind_those_that_are_taken_over() {
    let mut broker = Broker::new();
    let mut entry = job(5, push("q").cycle());
    entry.extra.get_or_insert_default().cycle = Some(Cycle {
        priority: 10,
        boost: 0,
    });
    assert_eq!(adopt(&mut broker, entry, 1), Ok(5));
    broker.says(1, push("q").cycle(), ["1 new j6"]);
    broker.says(2, take_round("q"), ["2 took j5.11"]);
}

#[test]
fn a_key_goes_to_the_younger_job_unless_the_holder_keeps_it() {
    use KeyUntil::{End, Gone, Start};
    let entry = |until| push("q").cycle().unique_until("k", Clash::Keep, until);
    let work = |until| push("q").unique_until("k", Clash::Keep, until);
    let table = [
        (
            "it was there before",
            work(End),
            work(End),
            10,
            Err(Refusal::NotUnique),
        ),
        ("from the same source", work(End), work(End), 9, Ok(11)),
        (
            "an entry there before",
            entry(Start),
            entry(End),
            10,
            Err(Refusal::NotUnique),
        ),
        (
            "the same entry",
            entry(End),
            entry(End),
            9,
            Err(Refusal::NotUnique),
        ),
        (
            "the same entry",
            entry(Gone),
            entry(End),
            9,
            Err(Refusal::NotUnique),
        ),
        ("entries in turn", entry(Start), entry(End), 9, Ok(11)),
        ("entries in turn", entry(End), entry(Start), 9, Ok(11)),
        (
            "entries in turn",
            entry(KeyUntil::EndOr(Timestamp(5_000))),
            entry(End),
            9,
            Ok(11),
        ),
    ];
    for (why, holder, new, first, expected) in table {
        let mut broker = Broker::new();
        let again = if holder.0.kind == QueueKind::Cycle {
            entry(End)
        } else {
            work(End)
        };
        assert_eq!(adopt(&mut broker, job(9, holder), 9), Ok(9));
        assert_eq!(adopt(&mut broker, job(11, new), first), expected, "{why}");
        let holder = expected.unwrap_or(9);
        assert_eq!(
            words(&broker.hear(1, again)),
            [format!("1 kept j{holder}")],
            "{why}: the holder"
        );
    }
}

#[test]
fn a_lease_is_cut_to_the_limit_and_proved_by_its_attempts() {
    let mut broker = Broker::limited(|limits| limits.lease_ms_max = 60_000);
    let lease = |holder, until| {
        JobState::Leased(Box::new(Lease::new(
            holder,
            Token(4),
            Timestamp(900),
            until,
            OnExpiry::Requeue,
        )))
    };
    let named = || Holder::Named(b"w1".as_slice().into());
    for (id, until, expected) in [
        (5, Timestamp(2_000), 2_000),
        (6, Timestamp(u64::MAX - 1), 61_000),
    ] {
        let leased = Job {
            state: lease(named(), until),
            ..job(id, push("q"))
        };
        assert_eq!(adopt(&mut broker, leased, 1), Ok(id));
        let found = broker.engine.job(JobId(id)).unwrap();
        let lease = found.lease().unwrap();
        assert_eq!(
            (lease.until, lease.token, found.attempts),
            (Timestamp(expected), Token(1), 1)
        );
    }
    let bound = Job {
        state: lease(Holder::Connection(ClientId(1)), Timestamp::NEVER),
        ..job(7, push("q"))
    };
    assert_eq!(adopt(&mut broker, bound, 1), Err(Refusal::OutOfPlace));
    for (now, left) in [(2_000, "leased until 61000"), (61_000, "ready")] {
        broker.at(now, []);
        assert_eq!(
            (broker.place(5).as_str(), broker.place(6).as_str()),
            ("ready", left)
        );
    }
}

#[test]
fn impossible_jobs_are_refused() {
    let (parked, done) = (JobState::Parked, JobState::Done(Timestamp(9_000)));
    let table = [
        (
            "parked work",
            Job {
                state: parked.clone(),
                ..job(5, push("q"))
            },
            Some(Refusal::OutOfPlace),
        ),
        (
            "a parked entry",
            Job {
                state: parked,
                ..job(5, push("q").cycle())
            },
            None,
        ),
        (
            "done work",
            Job {
                state: done.clone(),
                ..job(5, push("q"))
            },
            None,
        ),
        (
            "a done entry",
            Job {
                state: done,
                ..job(5, push("q").cycle())
            },
            Some(Refusal::OutOfPlace),
        ),
    ];
    for (what, job, expected) in table {
        let mut broker = Broker::new();
        assert_eq!(adopt(&mut broker, job, 1).err(), expected, "{what}");
    }
    let mut broker = Broker::new();
    broker.says(1, create("q", QueueKind::Cycle), ["1 done"]);
    assert_eq!(
        adopt(&mut broker, job(5, push("q")), 1),
        Err(Refusal::WrongKind)
    );
}

// ---- batches -------------------------------------------------------------------------------------------------------

/// A batch of another engine with this number and this progress.
fn batch(id: u64, change: impl FnOnce(&mut Batch)) -> Batch {
    let mut other = Broker::new();
    let callback = || {
        Some(Box::new(NewJob::new(
            Protocol::FAKTORY,
            name("callbacks"),
            name("body"),
        )))
    };
    let new = NewBatch {
        protocol: Protocol::FAKTORY,
        name: name("b"),
        parent: None,
        about: name("what for"),
        meta: name(""),
        complete: callback(),
        success: callback(),
        expires_ms: 1_800_000,
    };
    other.hear(1, BatchCommand::New(Box::new(new)));
    let mut batch = Batch {
        id: JobId(id),
        ..other.engine.batches().next().unwrap().clone()
    };
    (
        batch.progress.total,
        batch.progress.ran,
        batch.progress.succeeded,
    ) = (3, 2, 1);
    batch.progress.committed = true;
    change(&mut batch);
    batch
}

fn adopt_batch(broker: &mut Broker, batch: Batch) -> Result<u64, Refusal> {
    let mut context = Context::new(Timestamp(broker.now), 1);
    broker
        .engine
        .adopt_batch(batch, &mut context)
        .map(|id| id.0)
}

#[test]
fn impossible_batches_are_refused() {
    type Case = (&'static str, fn(&mut Batch), bool);
    let table: [Case; 15] = [
        ("as it was", |_| {}, true),
        (
            "all have run and succeeded",
            |b| (b.progress.ran, b.progress.succeeded) = (3, 3),
            true,
        ),
        ("more ran than there are", |b| b.progress.ran = 4, false),
        (
            "more succeeded than ran",
            |b| b.progress.succeeded = 3,
            false,
        ),
        (
            "a callback stays that was pushed",
            |b| b.progress.complete = Stage::Enqueued,
            false,
        ),
        (
            "it was pushed",
            |b| {
                (b.progress.complete, b.complete) = (Stage::Enqueued, None);
            },
            true,
        ),
        (
            "the other one stays that was pushed",
            |b| {
                (b.progress.complete, b.complete, b.progress.success) =
                    (Stage::Passed, None, Stage::Enqueued)
            },
            false,
        ),
        (
            "both were pushed",
            |b| {
                (b.progress.complete, b.complete) = (Stage::Succeeded, None);
                (b.progress.success, b.success) = (Stage::Enqueued, None);
            },
            true,
        ),
        (
            "it succeeded before it was complete",
            |b| (b.progress.success, b.success) = (Stage::Enqueued, None),
            false,
        ),
        (
            "it is held",
            |b| b.progress.held_until = Some(Timestamp(9_000)),
            true,
        ),
        (
            "it is held before its commit",
            |b| (b.progress.held_until, b.progress.committed) = (Some(Timestamp(9_000)), false),
            false,
        ),
        (
            "nothing is left to hold",
            |b| {
                b.progress.held_until = Some(Timestamp(9_000));
                (b.progress.complete, b.complete) = (Stage::Succeeded, None);
                (b.progress.success, b.success) = (Stage::Enqueued, None);
            },
            false,
        ),
        (
            "one callback is left to hold",
            |b| {
                b.progress.held_until = Some(Timestamp(9_000));
                (b.progress.complete, b.complete) = (Stage::Succeeded, None);
            },
            true,
        ),
        (
            "it is not committed",
            |b| b.progress.committed = false,
            true,
        ),
        (
            "its name is too long",
            |b| b.name = vec![b'x'; 1 << 20].into(),
            false,
        ),
    ];
    for (what, change, expected) in table {
        let mut broker = Broker::new();
        let adopted = adopt_batch(&mut broker, batch(5, change));
        assert_eq!(adopted.is_ok(), expected, "{what}: {adopted:?}");
        assert_eq!(
            broker.engine.batches().count(),
            usize::from(expected),
            "{what}"
        );
    }
}

#[test]
fn a_batch_keeps_a_parent_that_is_there_and_older() {
    for (parent, expected) in [(4, 4), (5, 0), (9, 0), (3, 0)] {
        let mut broker = Broker::new();
        let root = batch(4, |batch| batch.name = name("root"));
        assert_eq!(adopt_batch(&mut broker, root), Ok(4));
        let child = batch(5, |batch| batch.parent = Some(JobId(parent)));
        assert_eq!(adopt_batch(&mut broker, child), Ok(5));
        assert_eq!(
            broker.engine.batch(JobId(5)).unwrap().parent,
            Some(JobId(expected)),
            "{parent}"
        );
    }
}

#[test]
fn a_job_keeps_the_role_that_its_batch_has_for_it() {
    let waiting = |_: &mut Batch| {};
    let pushed =
        |batch: &mut Batch| (batch.progress.complete, batch.complete) = (Stage::Enqueued, None);
    let complete = |batch: &mut Batch| {
        (batch.progress.complete, batch.complete) = (Stage::Succeeded, None);
        (batch.progress.success, batch.success) = (Stage::Enqueued, None);
    };
    type Case = (fn(&mut Batch), u64, Role, bool);
    let table: [Case; 8] = [
        (waiting, 4, Role::Job, true),
        (waiting, 9, Role::Job, false),
        (waiting, 4, Role::Complete, false),
        (waiting, 4, Role::Success, false),
        (pushed, 4, Role::Complete, true),
        (pushed, 4, Role::Success, false),
        (complete, 4, Role::Success, true),
        (complete, 9, Role::Success, false),
    ];
    for (change, called, role, expected) in table {
        let mut broker = Broker::new();
        assert_eq!(adopt_batch(&mut broker, batch(4, change)), Ok(4));
        let mut job = job(6, push("q").named("j").unique("k", Clash::Keep));
        job.extra.get_or_insert_default().member = Some(Member {
            batch: JobId(called),
            role,
            ran: false,
        });
        let rank = broker.engine.reserve_ranks(1);
        let mut context = Context::new(Timestamp(broker.now), 1);
        broker
            .engine
            .adopt_job(Job { rank, ..job }, &name("q"), JobId(1), &mut context)
            .unwrap();
        let member = broker
            .engine
            .job(JobId(6))
            .unwrap()
            .extra
            .as_deref()
            .and_then(|extra| extra.member);
        assert_eq!(member.is_some(), expected, "{role:?} in {called}");
    }
}

#[test]
fn recovery_refuses_a_job_without_its_queue_and_a_number_that_is_used() {
    let mut broker = Broker::new();
    broker.says(1, create("q", QueueKind::Work), ["1 done"]);
    let queue = broker.engine.queues().next().unwrap().image().id;
    let entry = Job {
        queue,
        ..job(5, push("q"))
    };
    assert!(
        !broker.engine.recall_job(Job {
            queue: QueueId(queue.0 + 1),
            ..entry.clone()
        }),
        "its queue is not there"
    );
    assert!(broker.engine.recall_job(entry.clone()));
    assert!(!broker.engine.recall_job(entry), "a job has its number");
    let mut other = Broker::new();
    other.hear(1, every(1_000, push("q")));
    let schedule = other.engine.schedules().next().unwrap().clone();
    assert!(
        !broker.engine.recall_schedule(Schedule {
            id: JobId(5),
            ..schedule
        }),
        "a job has its number"
    );
    assert_eq!(broker.engine.job_count(), 1);
}

#[test]
fn recovery_refuses_a_batch_whose_number_or_name_is_used() {
    let mut broker = Broker::new();
    let named = |id, text: &'static str| batch(id, |batch| batch.name = name(text));
    assert!(broker.engine.recall_batch(named(5, "a")));
    assert!(
        !broker.engine.recall_batch(named(5, "b")),
        "its number is used"
    );
    assert!(
        !broker.engine.recall_batch(named(6, "a")),
        "its name is used"
    );
    assert!(broker.engine.recall_batch(named(6, "b")));
    broker.engine.wake_up();
    broker.says(1, push("q"), ["1 new j7"]);
}

#[test]
fn an_orderly_stop_releases_the_reserved_job_numbers() {
    let mut broker = Broker::new();
    broker.says(1, push("q"), ["1 new j1"]);
    assert!(
        broker.engine.meta().reserved > broker.engine.meta().next_job,
        "{:?}",
        broker.engine.meta()
    );
    broker.engine.finish_meta();
    assert_eq!(broker.engine.meta().reserved, broker.engine.meta().next_job);
}
