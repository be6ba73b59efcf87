//! The journal, step by step: what a commit holds, what goes and when, what becomes of a commit that fails.

use std::thread;

use bytes::Bytes;
use windlass_engine::{
    Ability, Clash, Command, Cursor, Engine, Filter, From, JobId, JobRef, KeyUntil, LeaseTerms, Limits, Mutation,
    NewJob, Origin, PlaceKind, Proof, QueueKind, Retry, ScheduleRef, Select, Take, Timestamp, Unique, Wait,
};
use windlass_store::{
    Commit, Error, Fault, Fingerprint, Journal, JournalLimits, MemoryStore, Record, Store, VALUE_BYTES_MAX, recover,
};

use crate::daemon::{Daemon, QUEUE, recovered};

const HEADER_BYTES: usize = 25;

/// The records of a commit in short words, the head left out.
fn words(commit: &Commit) -> Vec<String> {
    let (mut values, mut bytes) = (commit.values(), Vec::new());
    while let Some((_, value)) = values.next() {
        assert!(value.len() <= VALUE_BYTES_MAX);
        bytes.extend_from_slice(&value[HEADER_BYTES..]);
    }
    let records: Vec<Record> = Record::all(&bytes).collect::<Result<_, _>>().unwrap();
    assert!(matches!(records.last(), Some(Record::Head(_))), "every commit has a head");
    let words = records.iter().filter_map(|record| match record {
        Record::Put(job) => Some(format!("put {}", job.id.0)),
        Record::Moved(moved) => Some(format!("moved {}", moved.job.0)),
        Record::Gone(id) => Some(format!("gone {}", id.0)),
        Record::QueueSet(image) => Some(format!("queue {}", String::from_utf8_lossy(&image.name))),
        Record::QueueGone(id) => Some(format!("no queue {}", id.0)),
        Record::Schedule(schedule) => Some(format!("schedule {}", schedule.id.0)),
        Record::Batch(batch) => Some(format!("batch {}", batch.id.0)),
        Record::BatchMoved(moved) => Some(format!("batch moved {}", moved.batch.0)),
        Record::NextRun(next) => Some(format!("next run {}", next.schedule.0)),
        Record::Head(_) => None,
    });
    words.collect()
}

#[test]
fn a_commit_holds_one_record_for_each_job() {
    let mut daemon = Daemon::new();
    let one = daemon.push(b"one");
    let two = daemon.push(&[2; 5_000]);
    assert_eq!(daemon.take(false), one);
    assert_eq!(words(&daemon.commit()), ["put 1", "put 2", "queue resize"], "put and moved are one");

    let until = Timestamp(9_000);
    for _ in 0..3 {
        daemon.apply(Command::Extend { job: JobRef::Id(one), proof: Proof::AnyLease, until, only_later: false });
    }
    assert_eq!(words(&daemon.commit()), ["moved 1"], "moved thrice is one");

    daemon.apply(Command::Extend { job: JobRef::Id(one), proof: Proof::AnyLease, until, only_later: false });
    daemon.apply(Command::Replace { job: JobRef::Id(one), body: Bytes::from_static(b"new") });
    daemon.apply(Command::Replace { job: JobRef::Id(two), body: Bytes::from(vec![3; 9_000]) });
    assert_eq!(
        words(&daemon.commit()),
        ["put 1", "put 2", "queue resize"],
        "a standing is in its job; the queue was moved"
    );

    daemon.apply(Command::Replace { job: JobRef::Id(two), body: Bytes::from_static(b"newer") });
    daemon.finish(one);
    daemon.cancel(two);
    assert_eq!(words(&daemon.commit()), ["gone 2", "gone 1"]);
    assert_eq!(daemon.again().engine.job_count(), 0);
}

#[test]
fn a_run_is_in_one_commit_with_its_schedule() {
    let mut daemon = Daemon::new();
    let id = daemon.schedule(&[5; 3_000]);
    assert_eq!(words(&daemon.commit()), ["schedule 1", "queue resize"]);
    daemon.tick(Timestamp(61_000));
    assert_eq!(words(&daemon.commit()), ["put 2", "next run 1"]);
    daemon.tick(Timestamp(121_000));
    let commit = daemon.cut();
    assert_eq!(words(&commit), ["put 3", "next run 1"]);

    // The commit is lost: so is the run, and it is made up for.
    let mut again = Daemon::on(daemon.store);
    assert_eq!(again.engine.schedule(id).unwrap().next_at, Timestamp(121_000));
    again.tick(Timestamp(122_000));
    let run = again.engine.jobs().map(|job| job.id).max().unwrap();
    assert_eq!((again.engine.job_count(), again.job(run).body()), (2, &[5; 3_000][..]));
    assert_eq!(again.engine.schedule(id).unwrap().next_at, Timestamp(181_000));

    again.commit();
    again.apply(Command::RemoveSchedule(ScheduleRef::Id(id)));
    assert_eq!(
        words(&again.commit()),
        ["gone 1", "queue resize"],
        "the queue is moved out of a commit that is hardly alive"
    );
    assert_eq!(again.again().engine.schedules().count(), 0);
}

#[test]
fn a_schedule_outlives_the_commits_it_was_in() {
    let mut daemon = Daemon::new();
    let id = daemon.schedule(&[5; 3_000]);
    daemon.commit();
    for n in 1..2_000 {
        daemon.tick(Timestamp(1_000 + n * 60_000));
        let run = daemon.engine.jobs().map(|job| job.id).max().unwrap();
        daemon.cancel(run);
        daemon.commit();
    }
    let stats = daemon.journal.stats();
    assert!(stats.commits < 20 && stats.jobs == 1, "{stats:?}");
    let before = daemon.engine.schedule(id).cloned();
    assert_eq!(daemon.again().engine.schedule(id).cloned(), before);
}

#[test]
fn what_comes_and_goes_within_a_commit_never_reaches_the_disk() {
    let mut daemon = Daemon::new();
    daemon.push(b"stays");
    daemon.commit();
    assert!(daemon.journal.is_empty());
    for _ in 0..10_000 {
        let id = daemon.push(b"comes and goes");
        daemon.cancel(id);
    }
    assert!(!daemon.journal.is_empty(), "somebody waits for the acknowledgement all the same");
    assert_eq!(daemon.journal.pending_bytes(), 0);
    assert_eq!(words(&daemon.commit()), [""; 0]);
    let stays = daemon.take(true);
    daemon.finish(stays);
    assert_eq!(words(&daemon.commit()), ["gone 1"], "taking under a connection is no change");
}

#[test]
fn a_pending_commit_is_tidied_up() {
    let mut daemon = Daemon::new();
    let kept = daemon.push(&[1; 700]);
    for round in 0..6_000u32 {
        let id = daemon.push(&[2; 900]);
        daemon.cancel(id);
        if round % 1_000 == 0 {
            daemon.apply(Command::Replace { job: JobRef::Id(kept), body: Bytes::from(vec![3; 600 + round as usize]) });
        }
    }
    let late = daemon.push(b"late");
    daemon.cancel(late);
    let last = daemon.push(b"last");
    assert_eq!(words(&daemon.commit()), [format!("put {}", kept.0), format!("put {}", last.0), "queue resize".into()]);
    let body = daemon.job(kept).payload.clone();
    assert_eq!(daemon.again().job(kept).payload, body);
}

#[test]
fn one_commit_at_a_time() {
    let mut daemon = Daemon::new();
    daemon.push(b"one");
    assert_eq!(daemon.journal.pending_seq(), 1);
    let first = daemon.cut();
    assert_eq!((first.seq(), daemon.journal.pending_seq()), (1, 2));
    daemon.push(b"two");
    assert!(!daemon.journal.is_empty());
    assert!(!daemon.journal.wants_cut() && daemon.journal.cut(&daemon.engine).is_none(), "the first is on its way");
    daemon.store.commit(&first).unwrap();
    daemon.journal.committed(1);
    assert!(daemon.journal.wants_cut());
    assert_eq!(daemon.commit().seq(), 2);
    assert!(!daemon.journal.wants_cut());
}

#[test]
fn a_large_commit_is_several_values() {
    let mut daemon = Daemon::new();
    let bodies = [vec![1; 10], vec![2; 300_000], vec![3; 1_023], vec![4; 1_025], vec![5; VALUE_BYTES_MAX]];
    let ids: Vec<JobId> = bodies.iter().map(|body| daemon.push(body)).collect();
    let commit = daemon.commit();
    assert_eq!(u64::from(commit.parts()), daemon.store.values().len() as u64);
    assert_eq!(commit.parts() as usize, 306_200_usize.div_ceil(VALUE_BYTES_MAX - HEADER_BYTES));
    let again = daemon.again();
    for (id, body) in ids.into_iter().zip(bodies) {
        assert_eq!(again.job(id).body(), body);
    }
}

#[test]
fn the_word_that_a_job_is_gone_outlives_the_job() {
    // One job of the first commit stays, so the commit does; the word on the other must stay as long.
    let mut daemon = Daemon::new();
    let stays = daemon.push(b"stays");
    let goes = daemon.push(b"goes");
    daemon.commit();
    daemon.cancel(goes);
    daemon.commit();
    for _ in 0..20 {
        let id = daemon.push(b"passes");
        daemon.commit();
        daemon.cancel(id);
        daemon.commit();
    }
    let mut daemon = daemon.again();
    assert_eq!(daemon.engine.jobs().map(|job| job.id).collect::<Vec<_>>(), [stays]);
    // Now nothing keeps anything but the queue.
    daemon.cancel(stays);
    daemon.commit();
    daemon.apply(Command::RemoveQueue { queue: QUEUE, only_idle: false });
    daemon.commit();
    for name in ["a", "b", "c"] {
        daemon.apply(Command::CreateQueue { queue: Bytes::from(name), kind: QueueKind::Work });
        daemon.commit();
    }
    let daemon = daemon.again();
    assert!(daemon.journal.stats().commits <= 4, "{:?}", daemon.journal.stats());
    assert_eq!(daemon.engine.job_count(), 0);
}

#[test]
fn endless_churn_takes_a_bounded_place() {
    let limits = JournalLimits { floor_bytes: 50_000, step_bytes: 1_000, ..JournalLimits::default() };
    let mut daemon = Daemon::new();
    daemon.journal = Journal::new(limits.clone());
    daemon.engine = Engine::new(Limits::default(), 1);
    let (mut ids, mut peak) = (Vec::new(), 0);
    for round in 0..3_000_usize {
        ids.extend((0..5).map(|n| daemon.push(&[1; 100][..50 + n])));
        // Two in three go soon, the others at random much later: every commit is a mixture.
        while ids.len() > 300 {
            let at = if round % 3 == 0 { round * 7919 % ids.len() } else { ids.len() - 1 };
            let id = ids.swap_remove(at);
            daemon.cancel(id);
        }
        daemon.commit();
        if round > 500 {
            peak = peak.max(daemon.journal.stats().bytes);
        }
    }
    let stats = daemon.journal.stats();
    assert!(stats.compactions > 5, "{stats:?}");
    assert!(peak < 120_000, "{peak} bytes at most for {stats:?}");
    assert_eq!(daemon.store.disk_bytes(), stats.bytes, "the books and the disk");
    let print = Fingerprint::of(&daemon.engine);
    let again = recover(&daemon.store, Limits::default(), limits, 1).unwrap();
    assert_eq!(Fingerprint::of(&again.engine).differs_from(&print), None);
}

#[test]
fn many_small_commits_are_merged() {
    let mut daemon = Daemon::new();
    daemon.journal = Journal::new(JournalLimits { commits_max: 100, ..JournalLimits::default() });
    daemon.engine = Engine::new(Limits::default(), 1);
    for n in 0..1_000u32 {
        daemon.push(&n.to_le_bytes());
        daemon.commit();
    }
    assert!(daemon.journal.stats().commits < 150, "{:?}", daemon.journal.stats());
    assert_eq!(daemon.again().engine.job_count(), 1_000);
}

#[test]
fn a_failed_commit_is_written_again_and_nothing_is_lost() {
    for fault in [Fault::Nothing, Fault::Half, Fault::Everything] {
        let mut daemon = Daemon::new();
        daemon.push(b"before");
        daemon.commit();
        daemon.store.fail(0, fault, true);
        daemon.push(&[7; 100_000]);
        let commit = daemon.cut();
        assert!(matches!(daemon.store.commit(&commit), Err(Error::Asked)), "{fault:?}");
        assert!(matches!(daemon.store.commit(&commit), Err(Error::Closed)), "{fault:?}");
        assert!(daemon.store.reopen().is_err(), "{fault:?} is lasting");
        // A daemon that dies now loses what was not acknowledged at most.
        let jobs = recovered(&daemon.store).unwrap().engine.job_count();
        assert!((1..=2).contains(&jobs), "{fault:?}: {jobs}");
        daemon.push(b"meanwhile");
        daemon.store.heal();
        daemon.store.reopen().unwrap();
        daemon.store.commit(&commit).unwrap();
        daemon.journal.committed(commit.seq());
        daemon.commit();
        assert_eq!(daemon.again().engine.job_count(), 3, "{fault:?}");
    }
}

#[test]
fn a_store_can_be_made_to_hang() {
    let store = MemoryStore::new();
    let mut daemon = Daemon::on(store.clone());
    daemon.push(b"one");
    let commit = daemon.cut();
    store.block();
    let mut writer = store.clone();
    let hangs = thread::spawn(move || writer.commit(&commit));
    store.wait_until_stuck();
    assert_eq!(store.commits(), 0);
    store.unblock();
    hangs.join().unwrap().unwrap();
    assert_eq!(store.commits(), 1);
}

#[test]
fn numbers_are_not_used_again() {
    let mut daemon = Daemon::new();
    let last = daemon.push(b"durable");
    daemon.commit();
    // Foreground jobs: the journal never hears of them, but of the numbers set aside for them.
    let foreground = NewJob { durable: false, listen: true, ..NewJob::new(Origin::GEARMAN, QUEUE, Bytes::new()) };
    let unheard = daemon.push_job(foreground);
    let mut daemon = daemon.again();
    assert!(daemon.engine.head().next_job > unheard.0, "after a crash");
    let first = daemon.push(b"after the crash");
    assert!(first > last);

    daemon.engine.settle_head();
    daemon.journal.stop_in_order();
    daemon.commit();
    let (next, report) = (daemon.engine.head().next_job, recovered(&daemon.store).unwrap().report);
    assert!(report.clean);
    let mut daemon = daemon.again();
    assert_eq!(daemon.engine.head().next_job, next, "after a stop in order");
    assert!(!daemon.journal.is_empty(), "that the daemon runs is to be written at once");
    daemon.commit();
    assert!(!recovered(&daemon.store).unwrap().report.clean);
}

#[test]
fn a_key_that_went_to_another_job_stays_with_it() {
    let mut daemon = Daemon::new();
    let unique = Unique { key: Bytes::from_static(b"k"), clash: Clash::Refuse, until: KeyUntil::End };
    let retry = Retry { failures_max: -1, ..Retry::NONE };
    let job = NewJob { unique: Some(unique), retry, ..NewJob::new(Origin::FAKTORY, QUEUE, Bytes::new()) };
    let first = daemon.push_job(job.clone());
    assert_eq!(daemon.take(false), first);
    daemon.apply(Command::Fail { job: JobRef::Id(first), proof: Proof::AnyLease, failure: Box::default() });
    let second = daemon.push_job(job);
    assert_ne!(first, second, "the dead do not hold their keys");
    daemon.commit();
    let filter = Filter { place: Some(PlaceKind::Dead), ..Filter::default() };
    let action = Mutation::Requeue;
    daemon.apply(Command::Mutate { filter, action, after: Cursor::default(), limit: 10 });
    assert_eq!(daemon.job(first).key(), None);
    daemon.commit();
    let daemon = daemon.again();
    assert_eq!(daemon.job(first).key(), None);
    assert_eq!(daemon.job(second).key(), Some(&b"k"[..]));
}

#[test]
fn queues_that_are_only_waited_at_are_not_remembered() {
    let mut daemon = Daemon::new();
    let lease = LeaseTerms::CONNECTION;
    let from = From::Listed { queues: vec![Bytes::from_static(b"nothing here")], lease };
    daemon.apply(Command::Take(Take { from, select: Select::ListOrder, wait: Wait::Forever, worker: Bytes::new() }));
    daemon.apply(Command::Serve(Ability { queue: Bytes::from_static(b"served"), weight: 0, lease, strays: None }));
    assert_eq!(words(&daemon.commit()), ["queue served"]);
    let names: Vec<Bytes> = daemon.again().engine.queues().map(|queue| queue.image().name.clone()).collect();
    assert_eq!(names, ["served"]);
}
