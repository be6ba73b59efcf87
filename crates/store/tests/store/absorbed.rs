//! Commits that the log still has from before the table's point: damage to them is harmless, a table with a damaged
//! newest point needs them, and salvage does not let them override newer state.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use windlass_engine::{Job, JobCommand, JobId, JobRef, Limits, NewJob, Protocol, Timestamp};
use windlass_store::{
    Error, Loss, OpenError, Scan, StoreLimits, Table, open_parts, salvage, verify,
};
use windlass_testkit::store::{Fingerprint, MemoryTable};

use crate::daemon;
use crate::disk::{Image, image_of, restore};
use crate::files::{Daemon, home, small};

fn push(daemon: &mut Daemon, body: &[u8]) -> JobId {
    let job = NewJob::new(
        Protocol::FAKTORY,
        Bytes::from_static(b"q"),
        Bytes::copy_from_slice(body),
    );
    daemon.apply(JobCommand::Push(Box::new(job)));
    daemon.commit();
    JobId(daemon.engine.meta().next_job - 1)
}

/// The entries of the log by file: their commits, and the range of bytes of each.
fn entries(image: &Image) -> Vec<(u64, PathBuf, usize, usize)> {
    let mut all = Vec::new();
    for (name, bytes) in image
        .iter()
        .filter_map(|(name, bytes)| Some((name, bytes.as_ref()?)))
    {
        for at in (0..bytes.len().saturating_sub(32))
            .step_by(8)
            .filter(|at| &bytes[at + 4..at + 8] == b"WLE1")
        {
            let len = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap());
            let seq = u64::from_le_bytes(bytes[at + 16..at + 24].try_into().unwrap());
            all.push((seq, name.clone(), at, 32 + usize::try_from(len).unwrap()));
        }
    }
    all.sort();
    all
}

fn damaged(image: &Image, name: &Path, at: usize) -> Image {
    let mut image = image.clone();
    image.get_mut(name).unwrap().as_mut().unwrap()[at] ^= 0x10;
    image
}

#[test]
fn damage_to_commits_in_the_table_is_harmless() {
    let home = home();
    let path = home.path().join("data");
    // Everything is in the table, or the last commits are only in the log.
    for behind in [0, 3] {
        let mut daemon = Daemon::start(&small(&path), 1, Timestamp(1_000)).unwrap();
        daemon.open_clients();
        (0..6).for_each(|n| _ = push(&mut daemon, &[n; 301]));
        daemon.checkpointer.run(true).unwrap();
        let point = daemon.log.tail().newest();
        (0..behind).for_each(|n| _ = push(&mut daemon, &[n; 303]));
        let (print, image) = (daemon.durable.clone(), image_of(&path));
        drop(daemon);
        fs::remove_dir_all(&path).unwrap();
        for (seq, name, at, len) in entries(&image) {
            restore(&damaged(&image, &name, at + len / 2), &path);
            let config = small(&path);
            let verdict = verify(&config, Limits::default());
            if seq > point {
                let Err(OpenError::Damaged(damage)) = verdict else {
                    panic!("commit {seq}: {verdict:?}")
                };
                assert_eq!(
                    damage.loss,
                    Some(Loss {
                        first: seq,
                        last: seq
                    }),
                    "{damage}"
                );
                assert!(Daemon::start(&config, 1, Timestamp(1_000)).is_err());
            } else {
                let report = verdict.unwrap();
                let [harmless] = &report.harmless[..] else {
                    panic!("commit {seq}: {report:?}")
                };
                assert_eq!(
                    (&harmless.place, harmless.loss),
                    (&path.join(&name).display().to_string(), None)
                );
                assert!(
                    harmless.what.contains(&format!("{seq} to {seq}")),
                    "commit {seq}: {harmless}"
                );
                assert!(salvage(&config).unwrap().is_whole(), "nothing is lost");
                let mut daemon = Daemon::start(&config, 1, Timestamp(1_000)).unwrap();
                assert_eq!(daemon.report, report);
                assert_eq!(daemon.print().differs_from(&print), None, "commit {seq}");
                // The segment gets no more entries, and is removed when it is no longer needed.
                let before = fs::read(path.join(&name)).unwrap();
                push(&mut daemon, b"more");
                assert_eq!(fs::read(path.join(&name)).unwrap(), before, "commit {seq}");
                for _ in 0..2 {
                    daemon.checkpointer.run(true).unwrap();
                    push(&mut daemon, b"more");
                }
                daemon.checkpointer.run(true).unwrap();
                assert!(!path.join(&name).exists(), "commit {seq}");
            }
            fs::remove_dir_all(&path).unwrap();
        }
    }
}

#[test]
fn a_flipped_bit_between_two_entries_is_harmless() {
    let home = home();
    let path = home.path().join("data");
    let mut daemon = Daemon::start(&small(&path), 1, Timestamp(1_000)).unwrap();
    daemon.open_clients();
    (0..9).for_each(|n| _ = push(&mut daemon, &vec![n; 300 + usize::from(n)]));
    let (print, image) = (daemon.durable.clone(), image_of(&path));
    drop(daemon);
    let mut between = 0;
    for (seq, name, at, len) in entries(&image).into_iter().filter(|(.., len)| len % 8 != 0) {
        fs::remove_dir_all(&path).unwrap();
        restore(&damaged(&image, &name, at + len), &path);
        let daemon = Daemon::start(&small(&path), 1, Timestamp(1_000)).unwrap();
        assert_eq!(daemon.print().differs_from(&print), None, "commit {seq}");
        assert_eq!(
            daemon.report.harmless.len(),
            1,
            "commit {seq}: {:?}",
            daemon.report
        );
        between += 1;
    }
    assert!(between > 4, "{between}");
}

#[test]
fn a_table_with_a_damaged_point_falls_back_to_the_previous_point() {
    let home = home();
    let path = home.path().join("data");
    let mut daemon = Daemon::start(&small(&path), 1, Timestamp(1_000)).unwrap();
    daemon.open_clients();
    let mut points = Vec::new();
    for n in 0..4 {
        // In each round the log continues in new segments, so dropped commits disappear.
        (0..20).for_each(|m| _ = push(&mut daemon, &vec![n * 20 + m; 4_000]));
        daemon.checkpointer.run(true).unwrap();
        points.push(daemon.log.tail().newest());
        // Free space is reused.
        (0..10).for_each(|m| _ = push(&mut daemon, &vec![m; 4_000]));
    }
    let (print, image) = (daemon.durable.clone(), image_of(&path));
    drop(daemon);
    let db = image.keys().find(|name| name.ends_with("db")).unwrap();
    let bytes = image[db].as_ref().unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    // The point is the last write.
    let mut before = 0;
    for at in used.saturating_sub(60)..used {
        fs::remove_dir_all(&path).unwrap();
        restore(&damaged(&image, db, at), &path);
        let found = match Daemon::start(&small(&path), 1, Timestamp(1_000)) {
            Ok(daemon) => (daemon.report.table_seq, daemon.print().differs_from(&print)),
            Err(why) => panic!("byte {at} of {used}: {why}"),
        };
        assert!(
            points[2..].contains(&found.0) && found.1.is_none(),
            "byte {at} of {used}: {found:?}, {points:?}"
        );
        before += u64::from(found.0 == points[2]);
    }
    assert!(before > 0, "the newest point was not damaged");
}

#[test]
fn salvage_keeps_the_tables_state_over_older_commits() {
    let home = home();
    let path = home.path().join("data");
    let mut daemon = Daemon::start(&small(&path), 1, Timestamp(1_000)).unwrap();
    daemon.open_clients();
    let changed = push(&mut daemon, b"as it was first");
    let ended = push(&mut daemon, b"has ended since");
    let fill = |daemon: &mut Daemon| (0..24).for_each(|n| _ = push(daemon, &vec![n; 4_000]));
    (0..3).for_each(|_| fill(&mut daemon));
    daemon.checkpointer.run(true).unwrap();
    daemon.apply(JobCommand::Replace {
        job: JobRef::Id(changed),
        body: Bytes::from_static(b"as it is"),
    });
    daemon.apply(JobCommand::Cancel(JobRef::Id(ended)));
    daemon.commit();
    for _ in 0..6 {
        fill(&mut daemon);
        daemon.checkpointer.run(true).unwrap();
    }
    let acknowledged = daemon.durable.clone();
    let (image, newest) = (image_of(&path), daemon.log.tail().newest());
    drop(daemon);
    let first = entries(&image).first().unwrap().0;
    assert!(
        first <= 4,
        "a freed segment still holds old commits: {first}"
    );
    assert!(
        entries(&image)
            .iter()
            .map(|(seq, ..)| *seq)
            .collect::<Vec<_>>()
            .windows(2)
            .any(|two| two[0] + 1 < two[1])
    );
    let db = image.keys().find(|name| name.ends_with("db")).unwrap();
    let used = image[db]
        .as_ref()
        .unwrap()
        .iter()
        .rposition(|byte| *byte != 0)
        .unwrap();
    let (mut refused, mut right, mut older) = (0, 0, 0);
    for at in (0..used).step_by(used / 150) {
        fs::remove_dir_all(&path).unwrap();
        restore(&damaged(&image, db, at), &path);
        if verify(&small(&path), Limits::default()).is_ok() {
            continue;
        }
        refused += 1;
        let found = salvage(&small(&path)).unwrap();
        assert!(!found.is_whole());
        assert_eq!(
            found.commits_missing, 0,
            "byte {at}: of {newest} the table has all: {:?}",
            found.unreadable
        );
        right += u64::from(
            found
                .jobs()
                .get(&changed)
                .is_some_and(|job| job.body() == b"as it is".as_slice()),
        );
        // The job may appear as in an older version of the page, if that page is damaged.
        let is_older = |(id, job): (&JobId, &Job)| {
            acknowledged
                .jobs
                .get(id)
                .is_none_or(|it| it.body() != job.body())
        };
        older += u64::from(found.jobs().iter().any(is_older));
    }
    assert!(
        refused > 20 && right * 10 > refused * 9,
        "{refused} refused, {right} with the job as it is"
    );
    assert!(
        older * 10 < refused,
        "{refused} refused, {older} with something as it was before"
    );
}

/// A table that records its calls.
struct Told {
    table: MemoryTable,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Told {
    fn call(&self, what: &str, key: &[u8]) {
        self.calls
            .lock()
            .unwrap()
            .push(format!("{what} {}", key.escape_ascii()));
    }
}

impl Table for Told {
    fn scan(&self) -> Result<Box<dyn Scan>, Error> {
        self.table.scan()
    }
    fn is_writable(&self) -> bool {
        self.table.is_writable()
    }
    fn begin_anew(&mut self) -> Result<(), Error> {
        self.table.begin_anew()
    }
    fn end_anew(&mut self) -> Result<(), Error> {
        self.table.end_anew()
    }
    fn abandon(&mut self) {
        self.table.abandon();
    }
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.table.get(key)
    }
    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.call("set", key);
        self.table.set(key, value)
    }
    fn remove(&mut self, key: &[u8]) -> Result<(), Error> {
        self.call("remove", key);
        self.table.remove(key)
    }
    fn sync(&mut self) -> Result<(), Error> {
        self.call("sync", b"");
        self.table.sync()
    }
    fn disk_bytes(&self) -> u64 {
        self.table.disk_bytes()
    }
}

#[test]
fn a_point_is_written_after_its_pages_are_durable_and_then_synced() {
    let mut daemon = daemon::Daemon::new();
    let calls = Arc::default();
    let told = Told {
        table: daemon.table.clone(),
        calls: Arc::clone(&calls),
    };
    let limits = StoreLimits::default();
    let (mut checkpointer, _) =
        open_parts(&daemon.log, Box::new(told), &limits, Limits::default(), 3).unwrap();
    for n in 0..4 {
        daemon.push(&[n; 3_000]);
        daemon.commit();
        calls.lock().unwrap().clear();
        assert!(checkpointer.run(true).unwrap());
        let calls = calls.lock().unwrap();
        let point = calls
            .iter()
            .position(|call| call == "set \\x00point")
            .unwrap();
        assert_eq!(calls[point + 1..], ["sync "], "{calls:?}");
        // A rebuilt table does not exist until it is synced as a whole.
        assert!(n == 0 || calls[point - 1] == "sync ", "{calls:?}");
    }
}

/// A checkpoint is not due while it would leave everything to the next one.
#[test]
fn a_checkpoint_that_would_take_no_commits_is_not_due() {
    let home = home();
    let mut config = small(&home.path().join("data"));
    (config.checkpoints.log_bytes, config.checkpoints.keep_bytes) = (1_000, 250);
    let mut daemon = Daemon::start(&config, 1, Timestamp(1_000)).unwrap();
    daemon.open_clients();
    let mut made = 0;
    for n in 0..200 {
        push(&mut daemon, &[n; 900]);
        for _ in 0..3 {
            if daemon.checkpointer.is_due() {
                assert!(
                    daemon.checkpointer.run(false).unwrap(),
                    "commit {n}: it was due and took no commits"
                );
                made += 1;
            }
        }
    }
    assert!((2..20).contains(&made), "once a segment: {made}");
    let print: Fingerprint = daemon.durable.clone();
    drop(daemon);
    assert_eq!(
        Daemon::start(&config, 1, Timestamp(1_000))
            .unwrap()
            .print()
            .differs_from(&print),
        None
    );
}
