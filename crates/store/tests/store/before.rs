//! Directories of version 0.1.0: everything in them is taken over, or the start is refused.
//!
//! `WINDLASS_SEED=n` runs one directory, `WINDLASS_DAMAGES=n` sets the number of damages, `WINDLASS_OLD_JOBS=n` that of
//! jobs.

use std::fs;
use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use windlass_engine::{JobCommand, Limits, NewJob, Protocol, Timestamp};
use windlass_store::{Fingerprint, OpenError, accept_loss, salvage, verify};

use crate::disk::{Image, image_of, restore};
use crate::files::{Daemon, home, small};
use crate::old;
use crate::rng::Rng;
use crate::world::{commits_of_a_life, commits_of_pushes};

fn make(rng: &mut Rng, path: &Path) -> Vec<Fingerprint> {
    let visits = 3 + rng.roll(30);
    let (commits, prints) = commits_of_a_life(rng, visits, 6);
    old::write(path, 512 << 10, &commits);
    prints
}

#[test]
fn an_old_journal_is_taken_over_and_stays_until_the_first_checkpoint() {
    for seed in 0..10 {
        let home = home();
        let path = home.path().join("data");
        let prints = make(&mut Rng(seed), &path);
        let expected = prints.last().unwrap();
        let journal = path.join("journal");
        let old = image_of(&journal);
        let config = small(&path);

        let verdict = verify(&config, Limits::default()).unwrap();
        assert!(verdict.before, "seed {seed}: the journal is an old one");
        assert_eq!(verdict.report.jobs, expected.jobs.len() as u64, "seed {seed}");
        assert!(!path.join("store").exists() && image_of(&journal) == old, "seed {seed}: verify changes nothing");
        let found = salvage(&config).unwrap();
        assert_eq!((found.jobs.len(), found.commits), (expected.jobs.len(), prints.len() as u64), "seed {seed}");
        assert!(found.is_whole(), "seed {seed}: {:?}", found.unreadable);

        for start in 0..2 {
            let daemon = Daemon::start(&config, seed, Timestamp(0)).unwrap();
            assert_eq!(daemon.print().differs_from(expected), None, "seed {seed}, start {start}");
            assert!(image_of(&journal) == old, "seed {seed}: it is unchanged");
            drop(daemon);
        }
        assert!(!verify(&config, Limits::default()).unwrap().before, "seed {seed}: the store has its place");
        fs::rename(path.join("store"), path.join("away")).unwrap();
        let verdict = verify(&config, Limits::default());
        assert!(matches!(verdict, Err(OpenError::Damaged(_))), "seed {seed}: not taken over again, but {verdict:?}");
        fs::rename(path.join("away"), path.join("store")).unwrap();

        let mut daemon = Daemon::start(&config, seed, Timestamp(0)).unwrap();
        daemon.open_clients();
        let job = NewJob::new(Protocol::FAKTORY, Bytes::from_static(b"new"), Bytes::new());
        daemon.apply(JobCommand::Push(Box::new(job)));
        daemon.commit();
        let print = daemon.print();
        drop(daemon);
        assert_eq!(salvage(&config).unwrap().jobs.len(), print.jobs.len(), "seed {seed}: of the store");
        let mut daemon = Daemon::start(&config, seed, Timestamp(0)).unwrap();
        daemon.commit();
        let print = daemon.print();
        assert!(daemon.checkpointer.run(true).unwrap());
        assert!(!journal.exists(), "seed {seed}: its jobs are in the table now");
        drop(daemon);
        let daemon = Daemon::start(&config, seed, Timestamp(0)).unwrap();
        assert_eq!(daemon.print().differs_from(&print), None, "seed {seed}");
    }
}

/// A backup as version 0.1.0 made it: the log's length, and pieces of files.
fn backup(length: u64, pieces: &[(&str, usize, &[u8])]) -> Vec<u8> {
    let mut rest = length.to_le_bytes().to_vec();
    for (name, offset, bytes) in pieces {
        for number in [name.len(), *offset, bytes.len()] {
            rest.extend_from_slice(&(number as u64).to_le_bytes());
        }
        rest.extend_from_slice(name.as_bytes());
        rest.extend_from_slice(bytes);
    }
    let mut backup = crc32fast::hash(&rest).to_le_bytes().to_vec();
    backup.extend_from_slice(&rest);
    backup
}

/// sled wrote over the log's end and its snapshot when version 0.1.0 opened the journal, and was interrupted.
#[test]
fn an_interrupted_opening_is_undone_from_its_backup() {
    let home = home();
    let path = home.path().join("data");
    let prints = make(&mut Rng(3), &path);
    let expected = prints.last().unwrap();
    let (journal, kept) = (path.join("journal"), path.join("opening"));
    fs::write(journal.join("snap.00000000000000AA"), b"a snapshot").unwrap();
    let old = image_of(&journal);
    let log = fs::read(journal.join("db")).unwrap();
    let used = log.iter().rposition(|byte| *byte != 0).unwrap();
    let (from, middle) = (used / 2, used / 2 + 100);
    let backup = backup(
        log.len() as u64,
        &[
            ("db", from, &log[from..middle]),
            ("db", middle, &log[middle..]),
            ("snap.00000000000000AA", 0, b"a snapshot"),
        ],
    );

    let interrupt = |backup: &[u8]| {
        let mut written = log.clone();
        written[from..].fill(0x55);
        written.extend_from_slice(&[0x66; 1_000]);
        fs::write(journal.join("db"), written).unwrap();
        fs::remove_file(journal.join("snap.00000000000000AA")).unwrap();
        fs::write(journal.join("snap.00000000000000BB"), b"a newer snapshot").unwrap();
        fs::write(journal.join("snap.00000000000000CC.generating"), b"half").unwrap();
        fs::write(&kept, backup).unwrap();
    };
    let config = small(&path);
    interrupt(&backup);
    let interrupted = image_of(&journal);
    let Err(OpenError::Damaged(damage)) = verify(&config, Limits::default()) else { panic!("verify sees it") };
    assert!(damage.to_string().contains("interrupted"), "{damage}");
    assert!(image_of(&journal) == interrupted, "verify changes nothing");
    let daemon = Daemon::start(&config, 3, Timestamp(0)).unwrap();
    assert_eq!(daemon.print().differs_from(expected), None);
    assert!(image_of(&journal) == old, "the journal is as it was before");
    drop(daemon);
    fs::remove_dir_all(&path).unwrap();
}

/// It was written before sled changed anything: one that is incomplete was never needed.
#[test]
fn an_incomplete_backup_is_ignored() {
    let home = home();
    let path = home.path().join("data");
    let prints = make(&mut Rng(4), &path);
    let expected = prints.last().unwrap();
    let journal = path.join("journal");
    let old = image_of(&journal);
    let whole = backup(0, &[("db", 0, b"nonsense")]);
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for backup in [&whole[..whole.len() - 1], &whole[..5], &whole[..4], &[0; 4], &[], &flipped] {
        fs::write(path.join("opening"), backup).unwrap();
        let verdict = verify(&small(&path), Limits::default()).unwrap();
        assert_eq!(verdict.report.jobs, expected.jobs.len() as u64, "{backup:02x?}");
        let daemon = Daemon::start(&small(&path), 4, Timestamp(0)).unwrap();
        assert_eq!(daemon.print().differs_from(expected), None, "{backup:02x?}");
        assert!(image_of(&journal) == old, "{backup:02x?}");
    }
}

/// An upgrade: prints how long the first start and the first checkpoint take.
#[test]
fn many_jobs_of_an_old_journal_are_taken_over() {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let jobs = number("WINDLASS_OLD_JOBS").unwrap_or(5_000);
    let home = home();
    let path = home.path().join("data");
    let (commits, expected) = commits_of_pushes(&mut Rng(1), jobs);
    assert_eq!(expected.jobs.len() as u64, jobs);
    old::write(&path, 8 << 20, &commits);
    drop(commits);
    let config = small(&path);
    let begun = Instant::now();
    let mut daemon = Daemon::start(&config, 1, Timestamp(0)).unwrap();
    let started = begun.elapsed();
    assert_eq!(daemon.print().differs_from(&expected), None);
    daemon.commit();
    let begun = Instant::now();
    assert!(daemon.checkpointer.run(true).unwrap());
    println!("{jobs} jobs: started in {started:?}, converted in {:?}", begun.elapsed());
    let print = daemon.print();
    drop(daemon);
    assert!(!path.join("journal").exists());
    let daemon = Daemon::start(&config, 1, Timestamp(0)).unwrap();
    assert_eq!(daemon.print().differs_from(&print), None);
}

/// Damages sled's log in a used place. Returns whether intact data remains after the damage.
fn damage(image: &Image, rng: &mut Rng) -> (String, Image, bool) {
    let mut image = image.clone();
    let bytes = image.get_mut(Path::new("journal/db")).unwrap().as_mut().unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    let at = rng.index(used);
    let mut goes_on = true;
    let what = match rng.roll(4) {
        0 | 1 => {
            bytes[at] ^= 1 << rng.roll(8);
            format!("a bit of byte {at} of {used} flipped")
        }
        2 => {
            let (from, end) = (at / 4096 * 4096, bytes.len().min(at / 4096 * 4096 + 4096));
            bytes[from..end].fill(0);
            // A message that begins inside and ends beyond the damage cannot be distinguished from no message.
            goes_on = end + (64 << 10) <= used;
            format!("bytes {from} to {end} of {used} blanked")
        }
        _ => {
            bytes.truncate(at);
            goes_on = false;
            format!("cut off at byte {at} of {used}")
        }
    };
    (what, image, goes_on)
}

#[test]
fn a_damaged_old_journal_is_refused_except_for_its_last_commit() {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let wanted = number("WINDLASS_DAMAGES").unwrap_or(200);
    let (mut damages, mut refused) = (0, 0);
    for seed in number("WINDLASS_SEED").into_iter().chain(0..) {
        let home = home();
        let (path, mut rng) = (home.path().join("data"), Rng(seed));
        let prints = make(&mut rng, &path);
        let image = image_of(&path);
        for _ in 0..10 {
            let (what, damaged, goes_on) = damage(&image, &mut rng);
            fs::remove_dir_all(&path).unwrap();
            restore(&damaged, &path);
            let config = small(&path);
            let found = salvage(&config).unwrap();
            damages += 1;
            match Daemon::start(&config, seed, Timestamp(0)) {
                Ok(daemon) => {
                    // The last commit may never have been acknowledged. And a file cut between two commits shows no
                    // trace of later ones: that is why the format was replaced.
                    let last = prints.iter().rev().take(if goes_on { 2 } else { usize::MAX });
                    let is = daemon.print();
                    let known =
                        last.clone().any(|print| is.differs_from(print).is_none()) || is.jobs.is_empty() && !goes_on;
                    assert!(known, "seed {seed}, {what}: {:?} instead of {:?}", is, last.collect::<Vec<_>>());
                }
                Err(OpenError::Damaged(_)) => {
                    refused += 1;
                    assert!(!found.is_whole(), "seed {seed}, {what}: refused, but salvage reports everything as saved");
                    let (again, aside) = accept_loss(&config, Limits::default(), seed).unwrap();
                    assert_eq!(again.jobs, found.jobs, "seed {seed}, {what}");
                    assert!(aside.join("db").exists() && !path.join("journal").exists(), "seed {seed}: {aside:?}");
                    let daemon = Daemon::start(&config, seed, Timestamp(0)).unwrap();
                    assert!(daemon.engine.job_count() <= found.jobs.len(), "seed {seed}, {what}");
                    let lost = found.jobs.values().filter(|job| found.queues.contains_key(&job.queue));
                    let lost = lost.filter(|job| daemon.engine.job(job.id).is_none()).count();
                    assert_eq!(lost, 0, "seed {seed}, {what}: of {} jobs that were saved", found.jobs.len());
                }
                Err(why) => panic!("seed {seed}, {what}: {why}"),
            }
        }
        if damages >= wanted || number("WINDLASS_SEED").is_some() {
            break;
        }
    }
    println!("{damages} damages, {refused} refused");
    assert!(refused > damages / 4, "{refused} of {damages} refused");
}

/// A commit was begun only after the previous one was acknowledged: traces of two later commits are damage.
#[test]
fn an_old_journal_that_ends_before_acknowledged_commits_is_refused() {
    for (removed, loss) in [(0, None), (1, None), (2, Some((5, 5))), (4, Some((3, 5)))] {
        let home = home();
        let path = home.path().join("data");
        let mut daemon = crate::daemon::Daemon::new();
        let commits: Vec<_> = (0..6).map(|n| (daemon.push(&[n; 10]), daemon.commit()).1).collect();
        // Each commit is one value.
        old::write_without(&path, 512 << 10, &commits, removed);
        let is = match verify(&small(&path), Limits::default()) {
            Ok(verdict) => Ok(verdict.report.jobs),
            Err(OpenError::Damaged(damage)) => Err(damage.loss.map(|loss| (loss.first, loss.last))),
            Err(why) => panic!("{why}"),
        };
        assert_eq!(is, loss.map_or(Ok(6 - removed), |loss| Err(Some(loss))), "without the last {removed}");
    }
}
