//! The contents of a commit, the order of commits, and a commit that fails.

use std::thread;

use bytes::Bytes;
use windlass_engine::{
    BulkCommand, Clash, Cursor, Filter, JobCommand, JobId, JobRef, JobStateKind, KeyUntil,
    LeaseCommand, Listen, Mutation, NewJob, Proof, Protocol, QueueCommand, QueueKind, Retry,
    ScheduleCommand, ScheduleRef, Timestamp, Unique,
};
use windlass_store::{Commit, Error, Log as _, Record, records};
use windlass_testkit::store::{Fault, Fingerprint, MemoryLog, MemoryTable};

use crate::daemon::{Daemon, QUEUE, recovered};

pub(crate) fn records_of(commit: &Commit) -> Vec<Record> {
    let bytes = commit.records();
    let framed: Vec<&[u8]> = records(&bytes).map(|record| record.unwrap().1).collect();
    let one = |bytes: &[u8]| {
        let records: Vec<Record> = Record::all(bytes).collect::<Result<_, _>>().unwrap();
        assert_eq!(records.len(), 1, "each record has a length of its own");
        records.into_iter().next().unwrap()
    };
    framed.into_iter().map(one).collect()
}

/// The records of a commit as short texts, without the engine meta.
pub(crate) fn words(commit: &Commit) -> Vec<String> {
    let records = records_of(commit);
    assert!(
        matches!(records.last(), Some(Record::Meta(_))),
        "every commit has an engine meta"
    );
    let words = records.iter().filter_map(|record| match record {
        Record::Put(job) => Some(format!("put {}", job.id.0)),
        Record::Moved(moved) => Some(format!("moved {}", moved.job.0)),
        Record::Gone(id) => Some(format!("gone {}", id.0)),
        Record::QueueSet(image) => Some(format!("queue {}", String::from_utf8_lossy(&image.name))),
        Record::Namespace(namespace) => Some(format!("namespace {}", namespace.id.0)),
        Record::NamespaceGone(namespace) => Some(format!("namespace {} gone", namespace.0)),
        Record::QueueGone(id) => Some(format!("no queue {}", id.0)),
        Record::Schedule(schedule) => Some(format!("schedule {}", schedule.id.0)),
        Record::Batch(batch) => Some(format!("batch {}", batch.id.0)),
        Record::BatchMoved(moved) => Some(format!("batch moved {}", moved.batch.0)),
        Record::NextRun(next) => Some(format!("next run {}", next.schedule.0)),
        Record::Day(begin) => Some(format!("day {}", begin.number)),
        Record::Ended(row) => Some(format!("ended {}", row.job.0)),
        Record::Meta(_) => None,
    });
    words.collect()
}

#[test]
fn a_commit_holds_one_record_for_each_job() {
    let mut daemon = Daemon::new();
    let one = daemon.push(b"one");
    let two = daemon.push(&[2; 5_000]);
    assert_eq!(daemon.take(false), one);
    assert_eq!(
        words(&daemon.commit()),
        ["put 1", "put 2", "queue resize"],
        "put and moved are one"
    );

    (0..3).for_each(|_| daemon.extend(one, 9_000));
    assert_eq!(words(&daemon.commit()), ["moved 1"], "moved thrice is one");

    daemon.extend(one, 9_000);
    daemon.replace(one, b"new");
    daemon.replace(two, &[3; 9_000]);
    assert_eq!(
        words(&daemon.commit()),
        ["put 1", "put 2"],
        "a standing is in its job"
    );

    daemon.replace(one, b"newer");
    daemon.extend(one, 9_500);
    let commit = daemon.commit();
    assert_eq!(
        words(&commit),
        ["put 1"],
        "what is written whole is not moved besides"
    );
    let Record::Put(written) = &records_of(&commit)[0] else {
        panic!("{commit:?}")
    };
    assert_eq!(
        written.lease().map(|lease| lease.until),
        Some(Timestamp(9_500)),
        "with its last standing"
    );

    daemon.replace(two, b"newer");
    daemon.finish(one);
    daemon.cancel(two);
    assert_eq!(words(&daemon.commit()), ["gone 2", "gone 1"]);
    assert_eq!(daemon.again().engine.job_count(), 0);
}

#[test]
fn a_job_that_ends_in_the_commit_that_created_it_is_not_written() {
    // A change to a job, the records written for a new job, and for a job in a previous commit.
    type Step = fn(&mut Daemon, JobId);
    type Case = (
        &'static str,
        &'static [Step],
        &'static [&'static str],
        &'static [&'static str],
    );
    const PUT: Step = |daemon, id| daemon.replace(id, b"other");
    const MOVED: Step = |daemon, id| daemon.extend(id, 9_000);
    const GONE: Step = |daemon, id| daemon.cancel(id);
    let table: [Case; 8] = [
        ("nothing", &[], &["put"], &[]),
        ("put", &[PUT], &["put"], &["put"]),
        ("moved", &[MOVED], &["put"], &["moved"]),
        ("put, moved", &[PUT, MOVED], &["put"], &["put"]),
        ("moved, put", &[MOVED, PUT], &["put"], &["put"]),
        ("gone", &[GONE], &[], &["gone"]),
        ("put, gone", &[PUT, GONE], &[], &["gone"]),
        ("moved, gone", &[MOVED, GONE], &[], &["gone"]),
    ];
    for (name, steps, new, old) in table {
        for (is_new, expected) in [(true, new), (false, old)] {
            let mut daemon = Daemon::new();
            let id = daemon.push(b"one");
            daemon.take(false);
            if !is_new {
                daemon.commit();
            }
            steps.iter().for_each(|step| step(&mut daemon, id));
            if !is_new && steps.is_empty() {
                assert!(
                    daemon.journal.cut(&daemon.engine).is_none(),
                    "{name}: nothing to write"
                );
                continue;
            }
            let is = words(&daemon.commit());
            let about: Vec<&str> = is
                .iter()
                .filter_map(|word| word.strip_suffix(" 1"))
                .collect();
            assert_eq!(
                about,
                expected,
                "{name}, {}",
                if is_new { "new" } else { "older" }
            );
        }
    }
}

#[test]
fn numbers_of_a_commit_in_flight_are_not_new() {
    let mut daemon = Daemon::new();
    let one = daemon.push(b"one");
    let first = daemon.cut();
    daemon.cancel(one);
    assert_eq!(words(&first), ["put 1", "queue resize"]);
    daemon.log.append(&first).unwrap();
    daemon.journal.committed(first.seq());
    let second = daemon.commit();
    assert_eq!(words(&second)[..1], ["gone 1"]);
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

    // The commit did not survive, and neither did the record of the occurrence, which is repeated.
    let mut again = daemon.again();
    assert_eq!(
        again.engine.schedule(id).unwrap().next_at,
        Timestamp(121_000)
    );
    again.tick(Timestamp(122_000));
    let run = again.engine.jobs().map(|job| job.id).max().unwrap();
    assert_eq!(
        (again.engine.job_count(), again.job(run).body()),
        (2, &[5; 3_000][..])
    );
    assert_eq!(
        again.engine.schedule(id).unwrap().next_at,
        Timestamp(181_000)
    );

    again.commit();
    again.apply(ScheduleCommand::Remove(ScheduleRef::Id(id)));
    assert_eq!(words(&again.commit()), ["gone 1"]);
    assert_eq!(again.again().engine.schedules().count(), 0);
}

#[test]
fn a_schedule_outlives_the_commits_it_was_in() {
    let mut daemon = Daemon::new();
    let id = daemon.schedule(&[5; 3_000]);
    daemon.commit();
    for n in 1..200 {
        daemon.tick(Timestamp(1_000 + n * 60_000));
        let run = daemon.engine.jobs().map(|job| job.id).max().unwrap();
        daemon.cancel(run);
        daemon.commit();
        if n % 10 == 0 {
            daemon.checkpoint();
        }
    }
    assert!(daemon.log.seqs().len() <= 20, "{:?}", daemon.log.seqs());
    let before = daemon.engine.schedule(id).cloned();
    assert_eq!(daemon.again().engine.schedule(id).cloned(), before);
}

#[test]
fn jobs_that_come_and_go_within_a_commit_never_reach_the_disk() {
    let mut daemon = Daemon::new();
    daemon.push(b"stays");
    daemon.commit();
    assert!(daemon.journal.is_empty());
    for _ in 0..10_000 {
        let id = daemon.push(b"comes and goes");
        daemon.cancel(id);
    }
    assert!(
        !daemon.journal.is_empty(),
        "a client still waits for the acknowledgement"
    );
    assert_eq!(daemon.journal.pending_bytes(), 0);
    assert_eq!(words(&daemon.commit()), [""; 0]);
    let stays = daemon.take(true);
    daemon.finish(stays);
    assert_eq!(
        words(&daemon.commit()),
        ["gone 1"],
        "taking under a connection is no change"
    );
}

#[test]
fn a_pending_commit_is_tidied_up() {
    let mut daemon = Daemon::new();
    let kept = daemon.push(&[1; 700]);
    for round in 0..6_000u32 {
        let id = daemon.push(&[2; 900]);
        daemon.cancel(id);
        if round % 1_000 == 0 {
            daemon.apply(JobCommand::Replace {
                job: JobRef::Id(kept),
                body: Bytes::from(vec![3; 600 + round as usize]),
            });
        }
    }
    let late = daemon.push(b"late");
    daemon.cancel(late);
    let last = daemon.push(b"last");
    assert_eq!(
        words(&daemon.commit()),
        [
            format!("put {}", kept.0),
            format!("put {}", last.0),
            "queue resize".into()
        ]
    );
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
    assert!(
        daemon.journal.cut(&daemon.engine).is_none(),
        "the first is on its way"
    );
    daemon.log.append(&first).unwrap();
    daemon.journal.committed(1);
    assert_eq!(daemon.commit().seq(), 2);
    assert!(daemon.journal.cut(&daemon.engine).is_none() && daemon.journal.is_empty());
}

#[test]
fn large_bodies_are_shared_and_small_ones_copied() {
    for (bytes, shared) in [(1 << 20, true), (1_025, true), (1_024, false)] {
        let mut daemon = Daemon::new();
        let body = Bytes::from(vec![7; bytes]);
        daemon.push_job(NewJob::new(Protocol::GEARMAN, QUEUE, body.clone()));
        let before = !body.is_unique();
        let commit = daemon.cut();
        drop(daemon);
        assert_eq!(
            !body.is_unique(),
            shared && before,
            "a body of {bytes} bytes"
        );
        let Record::Put(job) = &records_of(&commit)[0] else {
            panic!("{commit:?}")
        };
        assert_eq!(job.body(), body);
        drop(commit);
        assert!(body.is_unique());
    }
}

#[test]
fn bodies_of_every_size_come_back() {
    let mut daemon = Daemon::new();
    let sizes = [
        0, 1, 10, 1_023, 1_024, 1_025, 4_000, 4_096, 4_097, 16_384, 16_385, 40_000, 300_000,
    ];
    let bodies: Vec<Vec<u8>> = (1u8..).zip(sizes).map(|(n, size)| vec![n; size]).collect();
    let ids: Vec<JobId> = bodies.iter().map(|body| daemon.push(body)).collect();
    daemon.commit();
    let mut again = daemon.again();
    for checkpoints in 0..3 {
        for (id, body) in ids.iter().zip(&bodies) {
            assert_eq!(
                again.job(*id).body(),
                body,
                "{} bytes after {checkpoints} checkpoints",
                body.len()
            );
        }
        again.commit();
        assert!(again.checkpoint());
        again = again.again();
    }
}

/// Bytes after which a commit is closed: lower and upper bound.
const FULL: [u64; 2] = [1 << 20, 16 << 20];

#[test]
fn a_commit_that_has_grown_large_is_closed_and_the_next_begins() {
    let mut daemon = Daemon::new();
    let before = daemon.push(b"before");
    let body = vec![7; 1 << 20];
    let mut bodies = 0;
    while daemon.journal.pending_seq() == 1 {
        daemon.push(&body);
        bodies += 1;
        assert!(bodies << 20 <= 2 * FULL[1], "no commit is closed");
    }
    assert!(bodies << 20 >= FULL[0], "a commit of {bodies} MB is closed");
    // A job created in the previous commit is not new in this one.
    daemon.cancel(before);
    let late = daemon.push(b"late");
    assert!(!daemon.journal.is_empty());

    let print = Fingerprint::of(&daemon.engine);
    let first = daemon.cut();
    assert!(
        daemon.journal.cut(&daemon.engine).is_none(),
        "the first is on its way"
    );
    let on_its_way = words(&first);
    assert_eq!((first.seq(), on_its_way[0].as_str()), (1, "put 1"));
    daemon.log.append(&first).unwrap();
    daemon.journal.committed(1);

    // Each commit by itself gives a state that an engine can have had.
    let middle = recovered(&daemon.log, &daemon.table).unwrap();
    middle.engine.check();
    assert_eq!(
        middle.engine.job(before).map(|job| job.body().to_vec()),
        Some(b"before".to_vec())
    );

    let mut rest = Vec::new();
    while let Some(commit) = daemon.journal.cut(&daemon.engine) {
        assert_eq!(commit.seq(), rest.len() as u64 + 2);
        rest.push(words(&commit));
        daemon.log.append(&commit).unwrap();
        daemon.journal.committed(commit.seq());
    }
    let rest = rest.concat();
    assert!(
        rest.contains(&"gone 1".to_owned()) && rest.contains(&format!("put {}", late.0)),
        "{rest:?}"
    );
    assert_eq!(
        Fingerprint::of(&daemon.again().engine).differs_from(&print),
        None
    );
}

#[test]
fn a_queue_deleted_by_the_visit_that_closes_a_commit_is_in_that_commit() {
    for fresh in [true, false] {
        let mut daemon = Daemon::new();
        if !fresh {
            daemon.apply(QueueCommand::Create {
                queue: QUEUE,
                kind: QueueKind::Work,
            });
            daemon.commit();
        }
        let body = vec![7; 1 << 20];
        // One visit less than closes the commit, then one that removes everything: either may close it.
        for visits in 1..=((2 * FULL[1]) >> 20) {
            if daemon.journal.pending_seq() > 1 + u64::from(!fresh) {
                break;
            }
            for _ in 0..visits {
                daemon.push(&body);
            }
            daemon.apply(QueueCommand::Remove {
                queue: QUEUE,
                only_idle: false,
            });
        }
        while let Some(commit) = daemon.journal.cut(&daemon.engine) {
            daemon.log.append(&commit).unwrap();
            daemon.journal.committed(commit.seq());
            recovered(&daemon.log, &daemon.table)
                .unwrap_or_else(|why| panic!("commit {}: {why}", commit.seq()));
        }
    }
}

#[test]
fn endless_churn_takes_bounded_space() {
    let mut daemon = Daemon::new();
    let (mut ids, mut peak) = (Vec::new(), 0);
    for round in 0..3_000_usize {
        ids.extend((0..5).map(|n| daemon.push(&[1; 100][..50 + n])));
        // Two in three jobs finish soon, the rest at random much later, so that every commit is a
        // mixture.
        while ids.len() > 300 {
            let at = if round % 3 == 0 {
                round * 7919 % ids.len()
            } else {
                ids.len() - 1
            };
            let id = ids.swap_remove(at);
            daemon.cancel(id);
        }
        daemon.commit();
        if round % 50 == 49 {
            daemon.checkpoint();
        }
        if round > 500 {
            let values = daemon.table.values();
            peak = peak.max(
                values
                    .iter()
                    .map(|(key, value)| key.len() + value.len())
                    .sum(),
            );
        }
    }
    assert!(peak < 100_000, "{peak} bytes at most for 300 jobs");
    assert!(
        daemon.log.seqs().len() <= 100,
        "{} commits are kept",
        daemon.log.seqs().len()
    );
    let print = Fingerprint::of(&daemon.engine);
    assert_eq!(
        Fingerprint::of(&daemon.again().engine).differs_from(&print),
        None
    );
}

#[test]
fn a_failed_commit_is_written_again_and_nothing_is_lost() {
    for fault in [Fault::Nothing, Fault::Everything] {
        let mut daemon = Daemon::new();
        daemon.push(b"before");
        daemon.commit();
        daemon.log.fail(0, fault, true);
        daemon.push(&[7; 100_000]);
        let commit = daemon.cut();
        assert!(
            matches!(daemon.log.append(&commit), Err(Error::Asked)),
            "{fault:?}"
        );
        assert!(
            matches!(daemon.log.append(&commit), Err(Error::Closed)),
            "{fault:?}"
        );
        assert!(daemon.log.reopen().is_err(), "{fault:?} is lasting");
        // A daemon that is killed now loses only changes that were not acknowledged.
        let jobs = recovered(&daemon.log.cut(None), &daemon.table)
            .unwrap()
            .engine
            .job_count();
        assert_eq!(
            jobs,
            if fault == Fault::Nothing { 1 } else { 2 },
            "{fault:?}"
        );
        daemon.push(b"meanwhile");
        daemon.log.heal();
        daemon.log.reopen().unwrap();
        daemon.log.append(&commit).unwrap();
        daemon.journal.committed(commit.seq());
        daemon.commit();
        assert_eq!(daemon.log.seqs(), [1, 2, 3], "{fault:?}");
        assert_eq!(daemon.again().engine.job_count(), 3, "{fault:?}");
    }
}

#[test]
fn a_log_can_be_made_to_hang() {
    let log = MemoryLog::new();
    let mut daemon = Daemon::on(log.clone(), MemoryTable::new());
    daemon.push(b"one");
    let commit = daemon.cut();
    log.block();
    let mut writer = log.clone();
    let hangs = thread::spawn(move || writer.append(&commit));
    log.wait_until_stuck();
    assert_eq!(log.commits(), 0);
    log.unblock();
    hangs.join().unwrap().unwrap();
    assert_eq!(log.commits(), 1);
}

#[test]
fn numbers_are_not_used_again() {
    let mut daemon = Daemon::new();
    let last = daemon.push(b"durable");
    daemon.commit();
    // Foreground jobs are not journalled, but the numbers reserved for them are.
    let foreground = NewJob {
        durable: false,
        listen: Listen::Yes,
        ..NewJob::new(Protocol::GEARMAN, QUEUE, Bytes::new())
    };
    let unheard = daemon.push_job(foreground);
    let mut daemon = daemon.again();
    assert!(daemon.engine.meta().next_job > unheard.0, "after a crash");
    let first = daemon.push(b"after the crash");
    assert!(first > last);

    daemon.engine.finish_meta();
    daemon.journal.stop_in_order();
    daemon.commit();
    let report = recovered(&daemon.log, &daemon.table).unwrap().report;
    let next = daemon.engine.meta().next_job;
    assert!(report.clean);
    let mut daemon = daemon.again();
    assert_eq!(daemon.engine.meta().next_job, next, "after a stop in order");
    assert!(
        !daemon.journal.is_empty(),
        "the running state must be written at once"
    );
    daemon.commit();
    assert!(!recovered(&daemon.log, &daemon.table).unwrap().report.clean);
}

#[test]
fn a_clean_stop_is_recorded_by_its_own_commit_unless_a_change_follows() {
    let clean = |commit: &Commit| match records_of(commit).pop() {
        Some(Record::Meta(meta)) => meta.clean,
        other => panic!("{other:?}"),
    };
    let mut daemon = Daemon::new();
    daemon.commit();
    daemon.journal.stop_in_order();
    assert!(!daemon.journal.is_empty(), "there is a commit to record it");
    daemon.push(b"after all");
    assert!(!clean(&daemon.commit()));
    assert!(daemon.journal.cut(&daemon.engine).is_none());
    daemon.journal.stop_in_order();
    let last = daemon.commit();
    assert!(clean(&last) && words(&last).is_empty());
}

#[test]
fn a_key_that_went_to_another_job_stays_with_it() {
    let mut daemon = Daemon::new();
    let unique = Unique {
        key: Bytes::from_static(b"k"),
        clash: Clash::Refuse,
        until: KeyUntil::End,
    };
    let retry = Retry {
        failures_max: -1,
        ..Retry::NONE
    };
    let job = NewJob {
        unique: Some(unique),
        retry,
        ..NewJob::new(Protocol::FAKTORY, QUEUE, Bytes::new())
    };
    let first = daemon.push_job(job.clone());
    assert_eq!(daemon.take(false), first);
    daemon.apply(LeaseCommand::Fail {
        job: JobRef::Id(first),
        proof: Proof::AnyLease,
        failure: Box::default(),
    });
    let second = daemon.push_job(job);
    assert_ne!(first, second, "the dead do not hold their keys");
    daemon.commit();
    let filter = Filter {
        state: Some(JobStateKind::Dead),
        ..Filter::default()
    };
    let action = Mutation::Requeue;
    daemon.apply(BulkCommand::Mutate {
        filter: filter.into(),
        action,
        after: Cursor::default(),
        limit: 10,
    });
    assert_eq!(daemon.job(first).key(), None);
    daemon.commit();
    let daemon = daemon.again();
    assert_eq!(daemon.job(first).key(), None);
    assert_eq!(daemon.job(second).key(), Some(&b"k"[..]));
}
