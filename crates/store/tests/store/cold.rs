//! Stores of more bodies than fit into memory.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use windlass_engine::{
    Backoff, Change, Clash, ClientId, Context, JobCommand, JobId, JobRef, Limits, NewJob, Protocol,
    Retry, Stored, Tag, Timestamp, Unique,
};
use windlass_store::{
    BodyFile, Found, Opened, Overflow, Recovered, StoreConfig, StoreLimits, open, open_found,
    open_parts,
};

use crate::daemon::{Daemon, QUEUE};
use crate::files::{self, small};

/// Bytes of a body.
const BODY: usize = 1_000;

fn body(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(BODY / 8)
}

/// Pushes jobs with these bodies.
fn push(daemon: &mut Daemon, numbers: RangeInclusive<u64>) {
    for number in numbers {
        daemon.push(&body(number));
    }
}

fn limits(folder: impl Into<PathBuf>, memory: u64) -> StoreLimits {
    StoreLimits {
        overflow: Some(Overflow {
            folder: folder.into(),
            memory,
        }),
        ..StoreLimits::default()
    }
}

fn reopened(daemon: &Daemon, limits: &StoreLimits) -> Recovered {
    open_parts(
        &daemon.log,
        Box::new(daemon.table.clone()),
        limits,
        Limits::default(),
        3,
    )
    .unwrap()
    .1
}

/// Every job with its body, wherever that is stored: number, `true` if it is in memory, and the
/// body.
fn all_bodies(recovered: &Recovered) -> Vec<(u64, bool, Bytes)> {
    let read = |stored| {
        recovered
            .bodies
            .as_ref()
            .unwrap()
            .reader()
            .read(stored)
            .unwrap()
    };
    let mut all: Vec<_> = recovered
        .engine
        .jobs()
        .map(|job| match job.payload.stored() {
            Some(stored) => (job.id.0, false, read(stored)),
            None => (job.id.0, true, job.payload.share_body()),
        })
        .collect();
    all.sort();
    all
}

/// Compares all bodies, and checks that the file contains exactly those that are not in memory. Returns the
/// number of these.
#[track_caller]
fn compare(daemon: &Daemon, recovered: &Recovered) -> u64 {
    recovered.engine.check();
    let mut expected: Vec<(u64, Bytes)> = daemon
        .engine
        .jobs()
        .map(|job| (job.id.0, job.payload.share_body()))
        .collect();
    expected.sort();
    let found = all_bodies(recovered)
        .into_iter()
        .map(|(id, _, body)| (id, body));
    assert!(found.eq(expected));
    let (jobs, bytes) = recovered.engine.stored();
    assert_eq!(recovered.bodies.as_ref().map_or(0, BodyFile::bytes), bytes);
    jobs
}

#[test]
fn bodies_that_exceed_memory_are_in_the_file() {
    let mut daemon = Daemon::new();
    push(&mut daemon, 1..=300);
    daemon.commit();
    for checkpointed in [false, true] {
        assert!(!checkpointed || daemon.checkpoint());
        for (memory, stored) in [(0, 300..=300), (130_000, 190..=210), (10_000_000, 0..=0)] {
            let recovered = reopened(&daemon, &limits(std::env::temp_dir(), memory));
            let found = compare(&daemon, &recovered);
            assert!(
                stored.contains(&found),
                "{memory} bytes: {found} bodies are in the file"
            );
            // The first jobs are needed first.
            let is_ordered =
                all_bodies(&recovered).is_sorted_by_key(|(_, in_memory, _)| !in_memory);
            assert!(is_ordered, "{memory} bytes");
        }
    }
}

/// A job uses 250 bytes without the body, and far less when it is packed.
#[test]
fn jobs_that_exceed_memory_are_packed() {
    let mut daemon = Daemon::new();
    for number in 1..=20_000_u64 {
        daemon.push(&number.to_le_bytes());
    }
    daemon.commit();
    let resident = |memory| {
        reopened(&daemon, &limits(std::env::temp_dir(), memory))
            .engine
            .resident_bytes()
    };
    let (all, few) = (resident(u64::MAX), resident(0));
    // With memory for all of them, only the last few thousand are not packed.
    assert!(
        (1_600_000..2_400_000).contains(&all) && few < 1_200_000,
        "{all} and {few} bytes"
    );
    assert!(daemon.checkpoint());
    let recovered = reopened(&daemon, &limits(std::env::temp_dir(), 100_000));
    assert!(recovered.engine.resident_bytes() < 1_500_000);
    assert_eq!(compare(&daemon, &recovered), 0);
}

#[test]
fn what_the_log_changes_leaves_no_body_behind() {
    let mut daemon = Daemon::new();
    push(&mut daemon, 1..=60);
    daemon.commit();
    assert!(daemon.checkpoint());
    (1..=10).for_each(|id| daemon.replace(JobId(id), &body(1_000 + id)));
    (1..=5).for_each(|id| daemon.replace(JobId(id), b"short"));
    (20..=30).for_each(|id| daemon.cancel(JobId(id)));
    daemon.commit();
    (55..=60).for_each(|id| daemon.replace(JobId(id), &body(2_000 + id)));
    daemon.cancel(JobId(60));
    push(&mut daemon, 61..=70);
    daemon.commit();
    for memory in [0, 5_000, 20_000, 50_000] {
        let recovered = reopened(&daemon, &limits(std::env::temp_dir(), memory));
        assert!(compare(&daemon, &recovered) > 0, "{memory} bytes");
    }
}

/// A failure makes a job larger; it is finished after that.
#[test]
fn jobs_that_failed_and_ended_do_not_upset_the_count() {
    let mut daemon = Daemon::new();
    for round in 0..50 {
        let mut new = NewJob::new(Protocol::GEARMAN, QUEUE, body(round).into());
        new.retry = Retry {
            failures_max: 25,
            backoff: Backoff::None,
            ..new.retry
        };
        let id = daemon.push_job(new);
        daemon.commit();
        assert_eq!(daemon.take(true), id);
        daemon.fail(id);
        daemon.commit();
        daemon.cancel(id);
        daemon.commit();
    }
    push(&mut daemon, 1..=50);
    daemon.commit();
    let recovered = reopened(&daemon, &limits(std::env::temp_dir(), 30_000));
    assert!((20..=40).contains(&compare(&daemon, &recovered)));
}

#[test]
fn bodies_that_take_no_memory_stay() {
    let mut daemon = Daemon::new();
    for bytes in [0, 1, 47, 48, 49] {
        daemon.push(&vec![7; bytes]);
    }
    daemon.commit();
    let recovered = reopened(&daemon, &limits(std::env::temp_dir(), 0));
    assert_eq!(compare(&daemon, &recovered), 2);
    assert!(
        all_bodies(&recovered)
            .iter()
            .all(|(_, in_memory, body)| *in_memory == (body.len() < 48))
    );
}

/// A job with a time-bound lease was delivered before: when it is finished, the body is in memory.
#[test]
fn the_body_of_a_job_that_is_handed_out_is_in_memory() {
    let mut daemon = Daemon::new();
    push(&mut daemon, 1..=20);
    daemon.commit();
    assert!(daemon.checkpoint());
    let id = daemon.take(false);
    daemon.commit();
    let recovered = reopened(&daemon, &limits(std::env::temp_dir(), 0));
    assert_eq!(compare(&daemon, &recovered), 19);
    let job = recovered.engine.job(id).unwrap();
    assert!(job.lease().is_some() && job.payload.stored().is_none());
}

#[test]
fn keys_and_names_stay_with_jobs_whose_bodies_are_in_the_file() {
    let mut daemon = Daemon::new();
    let unique = Unique {
        key: Bytes::from_static(b"key"),
        clash: Clash::Keep,
        until: Default::default(),
    };
    let new = NewJob {
        unique: Some(unique),
        name: Some("jid".into()),
        ..NewJob::new(Protocol::GEARMAN, QUEUE, body(1).into())
    };
    let id = daemon.push_job(new.clone());
    daemon.commit();
    let recovered = reopened(&daemon, &limits(std::env::temp_dir(), 0));
    let job = recovered.engine.job(id).unwrap();
    assert_eq!(
        (job.key(), job.name(), job.payload.body_len()),
        (Some(&b"key"[..]), &b"jid"[..], body(1).len())
    );
    assert_eq!(compare(&daemon, &recovered), 1);
    // The key is still taken.
    let mut again = Daemon {
        engine: recovered.engine,
        journal: recovered.journal,
        ..Daemon::new()
    };
    again.apply(windlass_engine::ClientCommand::Open(Default::default()));
    again.push_job(new);
    assert_eq!(again.engine.job_count(), 1);
}

/// Another daemon's store is read while it is in use; further commits are read later.
#[test]
fn a_store_that_is_read_ahead_keeps_bodies_out_of_memory_too() {
    let mut daemon = Daemon::new();
    push(&mut daemon, 1..=50);
    daemon.commit();
    assert!(daemon.checkpoint());
    let limits = limits(std::env::temp_dir(), 20_000);
    let mut found = Found::of_table(
        &*windlass_store::Table::scan(&daemon.table).unwrap(),
        limits.overflow.as_ref(),
    )
    .unwrap();
    (1..=5).for_each(|id| daemon.cancel(JobId(id)));
    push(&mut daemon, 51..=60);
    daemon.commit();
    found
        .follow(&*windlass_store::Log::tail(&daemon.log))
        .unwrap();
    let table = Box::new(daemon.table.clone());
    let (_, recovered) =
        open_found(found, &daemon.log, table, &limits, Limits::default(), 3).unwrap();
    assert!((30..=45).contains(&compare(&daemon, &recovered)));
}

/// Sizes of bodies: in a page, in one piece, in several pieces.
const SIZES: [usize; 3] = [1_000, 10_000, 40_000];

fn size_of(id: u64) -> usize {
    SIZES[usize::try_from(id % 3).unwrap()]
}

fn sized_body(id: u64) -> Vec<u8> {
    id.to_le_bytes().repeat(size_of(id) / 8)
}

/// A store in a directory, with 600 jobs in the table of a process that has stopped.
fn left_behind(config: &StoreConfig) {
    assert!(left_in_log(config, 0).checkpointer.run(true).unwrap());
}

/// A store in a directory with 600 jobs in the log, after some finished ones.
fn left_in_log(config: &StoreConfig, ended: u64) -> files::Daemon {
    let mut daemon = files::Daemon::start(config, 1, Timestamp(1_000)).unwrap();
    daemon.open_clients();
    for id in 1..=ended + 600 {
        let body = sized_body(id).into();
        daemon.apply(JobCommand::Push(Box::new(NewJob::new(
            Protocol::GEARMAN,
            QUEUE,
            body,
        ))));
        if id <= ended {
            daemon.commit();
            daemon.apply(JobCommand::Cancel(JobRef::Id(JobId(id))));
            daemon.commit();
        }
    }
    while let Some(commit) = daemon.cut() {
        daemon.append(&commit).unwrap();
    }
    daemon
}

/// Opens it with all bodies outside of memory.
fn opened_cold(config: &StoreConfig) -> (Opened, BodyFile, Vec<(u64, Stored)>) {
    let mut opened = open(config, Limits::default(), 2).unwrap();
    let bodies = opened.recovered.bodies.take().unwrap();
    let stored: Vec<_> = opened
        .recovered
        .engine
        .jobs()
        .map(|job| (job.id.0, job.payload.stored().unwrap()))
        .collect();
    assert!(stored.len() == 600 && are_right(&bodies, &stored));
    (opened, bodies, stored)
}

fn are_right(bodies: &BodyFile, stored: &[(u64, Stored)]) -> bool {
    stored.iter().all(|(id, stored)| {
        bodies
            .reader()
            .read(*stored)
            .is_ok_and(|body| body == sized_body(*id))
    })
}

fn cold_config(folder: &Path) -> StoreConfig {
    let mut config = small(folder);
    config.checkpoints.overflow = Some(Overflow {
        folder: folder.into(),
        memory: 0,
    });
    config
}

/// Bodies in the table's file are not copied, and the disk space of that file is freed when another table has
/// replaced it.
#[test]
fn bodies_stay_in_the_file_of_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let config = cold_config(dir.path());
    left_behind(&config);
    let (mut opened, mut bodies, stored) = opened_cold(&config);
    let copied = bodies.disk_bytes();
    assert!(
        (8_000_000..16_000_000).contains(&copied),
        "{copied} bytes are copied: those in several pieces"
    );
    // Another table replaces it.
    let commit = opened
        .recovered
        .journal
        .cut(&opened.recovered.engine)
        .unwrap();
    opened.log.append(&commit).unwrap();
    assert!(opened.checkpointer.run(true).unwrap());
    assert!(are_right(&bodies, &stored));
    let both = bodies.disk_bytes();
    assert!(both > copied + 2_000_000, "the removed file counts");
    let here: Vec<_> = stored
        .into_iter()
        .filter(|(id, _)| size_of(*id) < 40_000)
        .collect();
    let (first, second): (Vec<_>, Vec<_>) = here.into_iter().partition(|(id, _)| *id <= 300);
    first
        .into_iter()
        .for_each(|(_, stored)| bodies.free(stored));
    let half = bodies.disk_bytes();
    assert!(half < both - 500_000, "{half} of {both} bytes");
    assert!(are_right(&bodies, &second));
    second
        .into_iter()
        .for_each(|(_, stored)| bodies.free(stored));
    assert_eq!(bodies.disk_bytes(), copied, "nothing is left of it");
}

/// Commits the pending changes, and makes checkpoints until the log has dropped all previous
/// commits.
fn forget_all(opened: &mut Opened) {
    for _ in 0..3 {
        let Recovered {
            engine, journal, ..
        } = &mut opened.recovered;
        let queue = engine.queues().next().unwrap().image().id;
        journal.append(engine, &[Change::QueueSet(queue)]);
        while let Some(commit) = journal.cut(engine) {
            opened.log.append(&commit).unwrap();
            journal.committed(commit.seq());
        }
        opened.checkpointer.run(true).unwrap();
    }
}

/// Bodies in the log are not copied either. The files are not reused before all these bodies are gone.
#[test]
fn bodies_stay_in_the_files_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let config = cold_config(dir.path());
    drop(left_in_log(&config, 0));
    let (mut opened, mut bodies, stored) = opened_cold(&config);
    assert_eq!(
        bodies.disk_bytes(),
        0,
        "none is copied, and the files are the store's"
    );
    forget_all(&mut opened);
    assert!(are_right(&bodies, &stored));
    let (all, size): (u64, usize) = (
        bodies.disk_bytes(),
        stored.iter().map(|(id, _)| size_of(*id)).sum(),
    );
    assert!(
        all > size as u64,
        "the files have been removed from the log"
    );
    // New jobs replace the others.
    let mut context = Context::new(Timestamp(2_000), 3);
    for id in 601..=700 {
        let new = NewJob::new(Protocol::GEARMAN, QUEUE, sized_body(id).into());
        opened.recovered.engine.apply(
            ClientId(0),
            Tag(1),
            JobCommand::Push(Box::new(new)),
            &mut context,
        );
    }
    opened
        .recovered
        .journal
        .append(&opened.recovered.engine, &context.changes);
    forget_all(&mut opened);
    assert!(are_right(&bodies, &stored));
    let (first, second): (Vec<_>, Vec<_>) = stored.into_iter().partition(|(id, _)| *id <= 300);
    first
        .into_iter()
        .for_each(|(_, stored)| bodies.free(stored));
    let half = bodies.disk_bytes();
    assert!(
        (all / 3..all / 3 * 2).contains(&half),
        "{half} of {all} bytes"
    );
    assert!(are_right(&bodies, &second));
    second
        .into_iter()
        .for_each(|(_, stored)| bodies.free(stored));
    assert_eq!((bodies.disk_bytes(), bodies.bytes()), (0, 0));
}

/// All bodies of a file of the log disappear while it is read, and others follow.
#[test]
fn bodies_that_follow_others_that_ended_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let config = cold_config(dir.path());
    drop(left_in_log(&config, 9));
    let (mut opened, bodies, stored) = opened_cold(&config);
    forget_all(&mut opened);
    assert!(are_right(&bodies, &stored));
}

/// The next start needs it.
#[test]
fn the_file_of_the_present_table_stays_as_it_is_when_bodies_go() {
    let dir = tempfile::tempdir().unwrap();
    let config = cold_config(dir.path());
    left_behind(&config);
    for gone in [300, 600] {
        let (opened, mut bodies, stored) = opened_cold(&config);
        stored
            .into_iter()
            .filter(|(id, _)| *id <= gone)
            .for_each(|(_, stored)| bodies.free(stored));
        drop(opened);
    }
    opened_cold(&config);
}

/// A missing folder: all jobs are in memory, and the daemon starts.
#[test]
fn without_a_file_all_bodies_stay_in_memory() {
    let mut daemon = Daemon::new();
    push(&mut daemon, 1..=20);
    daemon.replace(JobId(3), &body(33));
    daemon.cancel(JobId(4));
    daemon.commit();
    let recovered = reopened(&daemon, &limits("/no/such/folder", 1_000));
    assert_eq!(compare(&daemon, &recovered), 0);
}
