//! The refusals of recovery and their texts: contradictory records, missing commits, entries torn or damaged at every
//! byte, missing parts of a directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use windlass_engine::{
    Batch, BatchProgress, Cycle, DayBegin, EngineMeta, Extra, Job, JobCommand, JobId, JobState,
    Limits, Member, Namespace, NamespaceImage, NewJob, Protocol, Protocols, QueueId, QueueImage,
    QueueKind, Role, Schedule, Stage, Timestamp, Totals,
};
use windlass_store::{
    BatchMoved, Error, Found, Log as _, Loss, MetaRecord, Moved, NextRun, OpenError, Record,
    Recovered, StoreLimits, Table as _, new_table, open, open_found, point_key, verify_parts,
};
use windlass_table_sled::SledTables;
use windlass_testkit::store::{Fingerprint, MemoryLog, MemoryTable};

use crate::daemon::{Daemon, opened, recovered};
use crate::disk::{Image, image_of, restore};
use crate::files::{self, home, small};
use crate::jobs;

// ---- commits of arbitrary records -----------------------------------------------------------------------------------

/// A log of commits with these records and an engine meta.
fn framed(commits: &[Vec<Record>]) -> MemoryLog {
    let meta = EngineMeta {
        next_job: 20,
        reserved: 20,
        ..EngineMeta::default()
    };
    let meta = Record::Meta(MetaRecord { meta, clean: false });
    let framed = |records: &Vec<Record>| {
        let mut bytes = Vec::new();
        for record in records.iter().chain([&meta]) {
            let mut one = Vec::new();
            record.encode(&mut one);
            put_length(one.len(), &mut bytes);
            bytes.extend(one);
        }
        bytes
    };
    MemoryLog::with(commits.iter().map(framed).collect())
}

/// Seven bits per byte, low bits first.
fn put_length(mut len: usize, out: &mut Vec<u8>) {
    while len >= 0x80 {
        out.push(u8::try_from(len & 0x7f).unwrap() | 0x80);
        len >>= 7;
    }
    out.push(u8::try_from(len).unwrap());
}

fn callback(kind: QueueKind) -> Option<Box<NewJob>> {
    Some(Box::new(NewJob {
        kind,
        ..NewJob::new(Protocol::FAKTORY, Bytes::new(), Bytes::new())
    }))
}

fn pushed(batch: &mut Batch) {
    (batch.complete, batch.progress.complete) = (callback(QueueKind::Work), Stage::Enqueued);
}

fn cyclic(batch: &mut Batch) {
    batch.success = callback(QueueKind::Cycle);
}

/// Records about few jobs and few queues. They are consistent as often as not.
fn any_record() -> impl Strategy<Value = Record> {
    let job = (jobs::any_job(), 1u64..9, 0u32..3, 0u64..30, any::<bool>()).prop_map(
        |(mut job, id, queue, rank, fits)| {
            (job.id, job.queue, job.rank) = (JobId(id), QueueId(queue), (1 << 62) + rank);
            if let Some(extra) = job.extra.as_mut().filter(|_| fits) {
                extra.cycle = None;
                extra
                    .member
                    .iter_mut()
                    .for_each(|member| member.batch = JobId(10 + member.batch.0 % 4));
            }
            job
        },
    );
    let job = job.boxed();
    let schedule = (jobs::any_schedule(), 7u64..12).prop_map(|(schedule, id)| Schedule {
        id: JobId(id),
        ..schedule
    });
    let schedule = schedule.boxed();
    let batch = (jobs::any_batch(), 10u64..14, any::<bool>()).prop_map(|(batch, id, fits)| {
        let parent = batch.parent.map(|parent| JobId(parent.0 % id));
        let callback = |job: Option<Box<NewJob>>| {
            job.map(|job| {
                Box::new(NewJob {
                    kind: QueueKind::Work,
                    ..*job
                })
            })
            .filter(|_| fits)
        };
        let (complete, success) = (callback(batch.complete), callback(batch.success));
        Batch {
            id: JobId(id),
            parent,
            complete,
            success,
            ..batch
        }
    });
    let batch = batch.boxed();
    prop_oneof![
        6 => job.clone().prop_map(Record::Put),
        2 => job.prop_map(|job| {
            let extra = job.extra.unwrap_or_default();
            let (cycle, failure, progress) = (extra.cycle, extra.failure, extra.progress);
            let ran = extra.member.is_some_and(|member| member.ran);
            // For a tracked job, it is in every change.
            let updated_at = Some(extra.track.map_or(Timestamp(0), |track| track.updated_at));
            let (losses, past) = (extra.losses, extra.attempts);
            let Job { id, state, rank, ready_at, attempts, failures, .. } = job;
            Record::Moved(Moved { job: id, state, rank, ready_at, attempts, failures, cycle, failure, progress, ran, updated_at, losses, past })
        }),
        2 => (1u64..9).prop_map(|id| Record::Gone(JobId(id))),
        4 => (jobs::any_queue(), 0u32..3).prop_map(|(image, id)| {
            let kind = if id == 2 { QueueKind::Cycle } else { QueueKind::Work };
            Record::QueueSet(QueueImage { id: QueueId(id), kind, ..image })
        }),
        1 => (0u32..3).prop_map(|id| Record::QueueGone(QueueId(id))),
        1 => (1u64..600, 0u64..9, 0u64..9).prop_map(|(number, day, pushed)| {
            Record::Day(DayBegin { number, day, totals: Totals { pushed, ..Totals::default() } })
        }),
        2 => batch.clone().prop_map(|batch| Record::Batch(Box::new(batch))),
        1 => batch.prop_map(|batch| {
            Record::BatchMoved(BatchMoved { batch: batch.id, progress: batch.progress })
        }),
        2 => schedule.clone().prop_map(|schedule| Record::Schedule(Box::new(schedule))),
        1 => schedule.prop_map(|Schedule { id, next_at, runs_left, last, .. }| {
            Record::NextRun(NextRun { schedule: id, next_at, runs_left, last })
        }),
    ]
}

proptest! {
    /// Recovery refuses, or creates a consistent engine that is journalled again without differences.
    #[test]
    fn well_framed_nonsense_does_no_harm(commits in prop::collection::vec(prop::collection::vec(any_record(), 0..8), 1..8)) {
        let (mut log, table) = (framed(&commits), MemoryTable::new());
        let Ok((mut checkpointer, recovered)) = opened(&log, &table) else { return Ok(()) };
        let Recovered { engine, mut journal, .. } = recovered;
        engine.check();
        let print = Fingerprint::of(&engine);
        let commit = journal.cut(&engine).unwrap();
        log.append(&commit).unwrap();
        for _ in 0..2 {
            let again = crate::daemon::recovered(&log, &table).unwrap();
            prop_assert_eq!(Fingerprint::of(&again.engine).differs_from(&print), None);
            checkpointer.run(true).unwrap();
        }
    }
}

fn queue(id: u32, name: &'static str, kind: QueueKind) -> Record {
    let (name, jobs_max) = (Bytes::from_static(name.as_bytes()), [None; 9]);
    let (known, paused) = (Protocols::ALL, Protocols::NONE);
    let (paused_at, jobs_max_of, throttle, rules) = (None, None, None, None);
    Record::QueueSet(QueueImage {
        id: QueueId(id),
        name,
        kind,
        known,
        paused,
        paused_at,
        jobs_max,
        jobs_max_of,
        throttle,
        rules,
        policy: None,
        paused_keys: std::collections::BTreeSet::new(),
        saved: None,
        serial: 1,
    })
}

fn batch(id: u64, name: &'static str, change: impl FnOnce(&mut Batch)) -> Record {
    let mut batch = jobs::plain_batch(JobId(id), name, Timestamp(0));
    change(&mut batch);
    Record::Batch(Box::new(batch))
}

#[test]
fn contradictions_are_named() {
    let work = || queue(0, "q", QueueKind::Work);
    let schedule = |id: u64| {
        let mut daemon = Daemon::new();
        let set = daemon.schedule(b"");
        Record::Schedule(Box::new(Schedule {
            id: JobId(id),
            ..daemon.engine.schedule(set).unwrap().clone()
        }))
    };
    let put = |id: u64, rank: u64| {
        Record::Put(Job {
            id: JobId(id),
            rank,
            ..jobs::plain()
        })
    };
    let entry = |id: u64, rank: u64| {
        let extra = Some(Box::new(Extra {
            cycle: Some(Cycle {
                priority: 3,
                boost: 0,
            }),
            ..Extra::default()
        }));
        Record::Put(Job {
            id: JobId(id),
            rank,
            extra,
            ..jobs::plain()
        })
    };
    let namespace = |id: u16, name: &'static str| {
        Record::Namespace(Box::new(NamespaceImage {
            id: Namespace(id),
            name: name.into(),
            ..NamespaceImage::default()
        }))
    };
    let member = |id: u64, batch: u64| {
        let member = Member {
            batch: JobId(batch),
            role: Role::Job,
            ran: false,
        };
        let extra = Some(Box::new(Extra {
            member: Some(member),
            ..Extra::default()
        }));
        Record::Put(Job {
            id: JobId(id),
            extra,
            ..jobs::plain()
        })
    };
    let clash_1 = "something else has the number or the name of JobId(1)";
    let clash_2 = "something else has the number or the name of JobId(2)";
    let table = [
        (
            "JobId(1) is in QueueId(0), which does not exist",
            vec![put(1, 5)],
        ),
        (
            "JobId(1) does not fit the kind of QueueId(0)",
            vec![queue(0, "q", QueueKind::Cycle), put(1, 5)],
        ),
        ("rank 5 occurs twice", vec![work(), put(1, 5), put(2, 5)]),
        (
            "rank 5 occurs twice",
            vec![queue(0, "q", QueueKind::Cycle), entry(1, 5), entry(2, 5)],
        ),
        (
            "QueueId(1) and QueueId(0) have the same name",
            vec![work(), queue(1, "q", QueueKind::Work)],
        ),
        (clash_1, vec![work(), put(1, 5), schedule(1)]),
        (clash_2, vec![schedule(1), schedule(2)]),
        (clash_1, vec![work(), put(1, 5), batch(1, "b", |_| {})]),
        (clash_2, vec![batch(1, "b", |_| {}), batch(2, "b", |_| {})]),
        (
            "JobId(2) has more jobs than it counts",
            vec![work(), batch(2, "b", |_| {}), member(1, 2)],
        ),
        (
            "JobId(1) changed as something else than it is",
            vec![
                batch(1, "b", |_| {}),
                Record::NextRun(NextRun {
                    schedule: JobId(1),
                    next_at: Timestamp(5),
                    runs_left: None,
                    last: None,
                }),
            ],
        ),
        (
            "JobId(1) has a callback that was pushed",
            vec![batch(1, "b", pushed)],
        ),
        (
            "JobId(1) succeeded before it was complete",
            vec![batch(1, "b", |b| b.progress.success = Stage::Passed)],
        ),
        (
            "JobId(1) has an invalid callback",
            vec![batch(1, "b", cyclic)],
        ),
        (
            "QueueId(1000000) is beyond the limit of 1000000 queues",
            vec![queue(1_000_000, "q", QueueKind::Work)],
        ),
        (
            "QueueId(3145728) is in Namespace(3), which does not exist",
            vec![queue(3 << 20, "q", QueueKind::Work)],
        ),
        (
            "QueueId(3145733) and QueueId(5) have the same index",
            vec![
                namespace(3, "shop"),
                queue(5, "q", QueueKind::Work),
                queue(5 | 3 << 20, "q", QueueKind::Work),
            ],
        ),
        (
            "QueueId(3145734) and QueueId(3145733) have the same name",
            vec![
                namespace(3, "shop"),
                queue(5 | 3 << 20, "q", QueueKind::Work),
                queue(6 | 3 << 20, "q", QueueKind::Work),
            ],
        ),
        (
            "Namespace(4) and Namespace(3) have the same name",
            vec![namespace(3, "shop"), namespace(4, "shop")],
        ),
    ];
    for (what, records) in table {
        let why = recovered(&framed(&[records]), &MemoryTable::new()).unwrap_err();
        assert!(matches!(why, OpenError::Damaged(_)), "{why}");
        assert_eq!(
            why.to_string(),
            format!("the store is inconsistent: {what}")
        );
    }
    assert_eq!(
        recovered(
            &framed(&[vec![work(), put(1, 5), put(2, 6)]]),
            &MemoryTable::new()
        )
        .unwrap()
        .report
        .jobs,
        2
    );
}

/// A job that has run can no longer add to the batch's count of jobs that ran, nor one that is done to that of successes.
#[test]
fn a_batch_counts_at_least_its_jobs() {
    // Number of jobs in the batch, of those that ran and that succeeded; `true` if the only job ran, and
    // `true` if it is done.
    let table = [
        ((1, 0, 0), false, false, true),
        ((2, 1, 0), false, false, true),
        ((1, 1, 0), true, false, true),
        ((1, 1, 1), true, true, true),
        ((2, 1, 1), false, false, true),
        ((0, 0, 0), false, false, false),
        ((0, 0, 0), true, false, false),
        ((1, 1, 0), false, false, false),
        ((1, 1, 1), true, false, false),
        ((2, 2, 1), false, true, false),
    ];
    for ((total, ran, succeeded), has_run, is_done, is_right) in table {
        let member = Member {
            batch: JobId(2),
            role: Role::Job,
            ran: has_run,
        };
        let extra = Some(Box::new(Extra {
            member: Some(member),
            ..Extra::default()
        }));
        let state = if is_done {
            JobState::Done(Timestamp::NEVER)
        } else {
            JobState::Ready
        };
        let job = Job {
            id: JobId(1),
            state,
            extra,
            ..jobs::plain()
        };
        let counted = batch(2, "b", |batch| {
            batch.progress = BatchProgress {
                total,
                ran,
                succeeded,
                ..batch.progress
            };
        });
        let records = vec![queue(0, "q", QueueKind::Work), counted, Record::Put(job)];
        let is = recovered(&framed(&[records]), &MemoryTable::new()).map_err(|why| why.to_string());
        let expected = "the store is inconsistent: JobId(2) has more jobs than it counts";
        assert_eq!(
            is.as_ref().map(drop).map_err(String::as_str),
            if is_right { Ok(()) } else { Err(expected) }
        );
    }
}

#[test]
fn an_empty_store_is_an_empty_engine() {
    let found = recovered(&MemoryLog::new(), &MemoryTable::new()).unwrap();
    assert_eq!(found.report, windlass_store::Report::default());
    assert_eq!(found.journal.pending_seq(), 1);
}

#[test]
fn missing_commits_are_named() {
    let mut daemon = Daemon::new();
    for n in 0..5 {
        daemon.push(&[n; 10]);
        daemon.commit();
        if n == 1 {
            daemon.checkpoint();
        }
    }
    let table = daemon.table.cut(|| false);
    assert!(recovered(&daemon.log, &table).is_ok());
    daemon.log.tail().forget(4).unwrap();
    let why = recovered(&daemon.log, &table).unwrap_err();
    let OpenError::Damaged(damage) = why else {
        panic!("{why}")
    };
    assert_eq!(damage.loss, Some(Loss { first: 3, last: 4 }));
    assert_eq!(
        damage.to_string(),
        "log: commits are missing (commits 3 to 4 are missing)"
    );
}

#[test]
fn a_commit_that_cannot_be_read_is_damage() {
    let mut daemon = Daemon::new();
    daemon.push(b"one");
    daemon.commit();
    daemon.log.damage(1, |records| records[1] = 77);
    let why = recovered(&daemon.log, &daemon.table).unwrap_err();
    assert_eq!(
        why.to_string(),
        "commit 1 cannot be read: unknown record kind 77"
    );
    assert!(
        daemon.checkpointer.run(true).is_err(),
        "nor is it taken to the table"
    );
}

/// As in a standby daemon.
#[test]
fn a_store_in_use_is_read_ahead_and_opened_later() {
    let mut daemon = Daemon::new();
    daemon.push(b"in the table");
    daemon.commit();
    daemon.checkpoint();
    let point = |daemon: &Daemon| daemon.table.values()[point_key()].clone();
    let mut found = Found::of_table(&*daemon.table.scan().unwrap(), None).unwrap();
    assert!(found.is_of(&point(&daemon)) && !found.is_of(&new_table().1));
    for body in [b"one", b"two"] {
        daemon.push(body);
        daemon.commit();
        found.follow(&*daemon.log.tail()).unwrap();
    }
    daemon.log.tail().forget(2).unwrap();
    daemon.push(b"last");
    daemon.commit();
    let table = Box::new(daemon.table.clone());
    let limits = StoreLimits::default();
    let (_, opened) = open_found(found, &daemon.log, table, &limits, Limits::default(), 3).unwrap();
    assert_eq!(
        Fingerprint::of(&opened.engine).differs_from(&Fingerprint::of(&daemon.engine)),
        None
    );
    assert_eq!(
        (
            opened.report.table_seq,
            opened.report.last_seq,
            opened.report.jobs
        ),
        (1, 4, 4)
    );

    let found = Found::of_table(&*daemon.table.scan().unwrap(), None).unwrap();
    assert!(
        open_found(
            found,
            &daemon.log,
            Box::new(daemon.table.clone()),
            &limits,
            Limits::default(),
            3
        )
        .is_err()
    );
    let mut later = Found::of_table(&*daemon.table.scan().unwrap(), None).unwrap();
    assert!(
        later.follow(&*daemon.log.tail()).is_err(),
        "a commit after the table's is missing"
    );
}

#[test]
fn the_parts_of_a_store_are_verified_as_they_are_opened() {
    let mut daemon = Daemon::new();
    let (key, value) = new_table();
    assert_eq!(MemoryTable::new().values(), [(key.to_vec(), value)].into());
    daemon.push(b"in the table");
    daemon.commit();
    daemon.checkpoint();
    daemon.push(b"in the log");
    daemon.commit();
    let scan = daemon.table.scan().unwrap();
    let report = verify_parts(&*daemon.log.tail(), &*scan, None, Limits::default()).unwrap();
    assert_eq!(
        (
            report.table_seq,
            report.last_seq,
            report.jobs,
            report.queues
        ),
        (1, 2, 2, 1)
    );
    daemon.log.tail().forget(2).unwrap();
    let why = verify_parts(&*daemon.log.tail(), &*scan, None, Limits::default()).unwrap_err();
    assert_eq!(
        why.to_string(),
        "log: commits are missing (commit 2 is missing)"
    );
}

// ---- a directory ----------------------------------------------------------------------------------------------------

/// A directory with a few commits, after a kill; the range of the last entry, and the images before and with
/// it.
pub(crate) struct Few {
    pub(crate) image: Image,
    segment: PathBuf,
    entry: std::ops::Range<usize>,
    before: Fingerprint,
    with: Fingerprint,
    seq: u64,
    /// The mark before that entry was written.
    older_mark: Vec<u8>,
}

pub(crate) fn few(path: &Path) -> Few {
    let mut daemon = files::Daemon::start(&small(path), 1, Timestamp(1_000)).unwrap();
    daemon.open_clients();
    let push = |daemon: &mut files::Daemon, body: &[u8]| {
        let job = NewJob::new(
            Protocol::FAKTORY,
            Bytes::from_static(b"q"),
            Bytes::copy_from_slice(body),
        );
        daemon.apply(windlass_engine::Command::Job(JobCommand::Push(Box::new(
            job,
        ))));
        daemon.commit();
    };
    (0..5).for_each(|n| push(&mut daemon, &[n + 1; 300]));
    let (before, first) = (daemon.durable.clone(), image_of(path));
    push(&mut daemon, &[0x77; 300]);
    let (with, image) = (daemon.durable.clone(), image_of(path));
    let seq = daemon.log.tail().newest();
    let changed = |name: &&PathBuf| {
        name.starts_with("store/log") && !name.ends_with("mark") && first[*name] != image[*name]
    };
    let segment = image.keys().find(changed).unwrap().clone();
    let [old, new] = [&first, &image].map(|image| image[&segment].clone().unwrap());
    let differs: Vec<usize> = (0..new.len()).filter(|at| old[*at] != new[*at]).collect();
    // The padding of an entry to a multiple of 8 is not part of the last record.
    let entry = differs[0] / 8 * 8..differs.last().unwrap() + 1;
    drop(daemon);
    fs::remove_dir_all(path).unwrap();
    let older_mark = first[Path::new("store/log/mark")].clone().unwrap();
    Few {
        image,
        segment,
        entry,
        before,
        with,
        seq,
        older_mark,
    }
}

#[test]
fn a_tear_anywhere_in_an_acknowledged_entry_is_detected() {
    let home = home();
    let path = home.path().join("data");
    let Few {
        image,
        segment,
        entry,
        before,
        with,
        seq,
        older_mark,
    } = few(&path);
    type Tear = fn(&mut Vec<u8>, usize, usize);
    let tears: [(&str, Tear); 3] = [
        ("cut off", |bytes, at, _| bytes.truncate(at)),
        ("zeros from", |bytes, at, end| bytes[at..end].fill(0)),
        ("a bit of", |bytes, at, _| bytes[at] ^= 0x10),
    ];
    for (what, tear) in tears {
        for at in entry.clone() {
            let mut image = image.clone();
            let bytes = image.get_mut(&segment).unwrap().as_mut().unwrap();
            let whole = bytes.clone();
            tear(bytes, at, entry.end);
            if *bytes == whole {
                continue;
            }
            restore(&image, &path);
            let why = open(&small(&path), Limits::default(), 1).unwrap_err();
            let OpenError::Damaged(damage) = why else {
                panic!("{what} {at}: {why}")
            };
            let lost = damage
                .loss
                .unwrap_or_else(|| panic!("{what} {at}: {damage}"));
            assert_eq!(lost.last, seq, "{what} byte {at}: {damage}");
            fs::remove_dir_all(&path).unwrap();
        }
    }
    // Without the tear everything is found.
    restore(&image, &path);
    let opened = open(&small(&path), Limits::default(), 1).unwrap();
    assert_eq!(
        Fingerprint::of(&opened.recovered.engine).differs_from(&with),
        None
    );
    drop(opened);

    // A power cut may leave an older mark. Then the entry may never have been acknowledged, and is dropped.
    for (what, tear) in tears {
        for at in entry.clone() {
            let mut image = image.clone();
            image.insert("store/log/mark".into(), Some(older_mark.clone()));
            let bytes = image.get_mut(&segment).unwrap().as_mut().unwrap();
            let whole = bytes.clone();
            tear(bytes, at, entry.end);
            if *bytes == whole {
                continue;
            }
            fs::remove_dir_all(&path).unwrap();
            restore(&image, &path);
            let why = |why| panic!("{what} byte {at}: {why}");
            let opened = open(&small(&path), Limits::default(), 1).unwrap_or_else(why);
            assert_eq!(
                Fingerprint::of(&opened.recovered.engine).differs_from(&before),
                None,
                "{what} byte {at}"
            );
            assert_eq!(
                opened.recovered.report.last_seq,
                seq - 1,
                "{what} byte {at}"
            );
        }
    }
}

/// A simulated full disk: the shell limits the size of files and ignores the signal.
#[test]
fn a_full_disk_stops_only_operations_that_need_more_space() {
    let home = home();
    let script =
        "trap '' XFSZ; ulimit -S -f 2048; exec \"$0\" --exact recovery::on_a_full_disk --nocapture";
    let this = std::env::current_exe().unwrap();
    let done = Process::new("bash")
        .args(["-c", script])
        .arg(this)
        .env("FULL_DISK", home.path())
        .output()
        .unwrap();
    let text = [done.stdout, done.stderr]
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .concat();
    assert!(
        done.status.success() && text.contains("the disk was full"),
        "{text}"
    );
}

/// The other half of the test above; by itself it does nothing. The size of files is limited to 2
/// MiB.
#[test]
fn on_a_full_disk() {
    let Some(path) = std::env::var_os("FULL_DISK") else {
        return;
    };
    let path = Path::new(&path).join("data");
    let mut config = small(&path);
    config.tables = Arc::new(SledTables {
        cache_bytes: 1 << 20,
        segment_bytes: 512 << 10,
    });
    let push = |daemon: &mut files::Daemon, bytes: usize| {
        let body = Bytes::from(vec![7; bytes]);
        let job = NewJob::new(Protocol::FAKTORY, Bytes::from_static(b"q"), body);
        daemon.apply(windlass_engine::Command::Job(JobCommand::Push(Box::new(
            job,
        ))));
    };
    let mut daemon = files::Daemon::start(&config, 1, Timestamp(1_000)).unwrap();
    daemon.open_clients();
    push(&mut daemon, 100);
    daemon.commit();

    // An entry larger than the limit: the write and every retry fail, and no data is lost.
    push(&mut daemon, 3 << 20);
    let commit = daemon.cut().unwrap();
    assert!(matches!(daemon.append(&commit), Err(Error::Io { .. })));
    assert!(matches!(daemon.append(&commit), Err(Error::Closed)));
    daemon.log.reopen().unwrap();
    assert!(matches!(daemon.append(&commit), Err(Error::Io { .. })));
    let before = daemon.durable.clone();
    let left = image_of(&path);
    let other = path.with_file_name("other");
    restore(&left, &other);
    let killed = open(&small(&other), Limits::default(), 1).unwrap();
    assert_eq!(
        Fingerprint::of(&killed.recovered.engine).differs_from(&before),
        None
    );

    // There is space again: the daemon continues with the commit that failed.
    let unlimited = rustix::process::Rlimit {
        current: None,
        maximum: None,
    };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, unlimited).unwrap();
    daemon.log.reopen().unwrap();
    daemon.append(&commit).unwrap();
    push(&mut daemon, 100);
    daemon.commit();
    let print = daemon.durable.clone();
    drop(daemon);
    let again = open(&config, Limits::default(), 1).unwrap();
    assert_eq!(
        Fingerprint::of(&again.recovered.engine).differs_from(&print),
        None
    );
    println!("the disk was full");
}
