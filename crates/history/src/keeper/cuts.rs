//! Power cuts: the rows of all commits in the log are in the files once, whenever the power fails.
//!
//! A keeper runs in another process, which is recorded and killed. The record gives the directory that a power cut leaves, at any
//! moment. There a keeper continues with the log of that moment, without the commits that the log was allowed to forget. The
//! next record starts from one of these directories.
//!
//! `WINDLASS_TEST_HISTORY_CUTS=1000` makes as many (40 by default), `WINDLASS_TEST_HISTORY_SEED=7` begins with another seed.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use windlass_engine::{Ended, Excerpt};
use windlass_testkit::power::{Image, Note, Recorder, note, place};
use windlass_testkit::rng::Rng;

use super::tests::{NO_LIMITS, Place};
use super::*;
use crate::cases::ended;
use crate::file_id::DAY_MS;
use crate::folder::{self, path};

/// The variable with the arguments of the recorded process: a seed, the commits of the log, and the number of forgotten ones.
const LIFE: &str = "WINDLASS_TEST_HISTORY_LIFE";

/// Cuts of one record.
const CUTS_OF_A_RECORD: u64 = 20;

/// 2026-11-28.
const TODAY: u64 = 20_785;

/// The history's folder. The recorder has the folder around it.
const FOLDER: &str = "history";

/// The rows of a commit, always the same ones. The job's number names a row.
fn rows_of(commit: u64) -> impl Iterator<Item = Ended> {
    let mut rng = Rng::new(commit);
    (0..rng.between(1, 3)).map(move |n| {
        // So many days and times that some files are closed before others are opened.
        let at = (TODAY - rng.below(3)) * DAY_MS + rng.below(1_000);
        let mut row = ended(commit * 4 + n, at);
        row.keep_ms = rng.one_of([7, 7, 7, 30, 90]) * DAY_MS;
        row.body = Excerpt::of(&[b'x'; 60_000], rng.one_of([0, 0, 0, 60_000]));
        row
    })
}

/// A log that has all commits up to one, but for the first ones.
fn log_of(upto: u64, forgotten: u64) -> Place {
    let mut place = Place::new();
    (1..=upto).for_each(|commit| place.commit(rows_of(commit)));
    place.forget(forgotten);
    place
}

fn work_in(root: &Path, place: &Place) -> Work {
    let folder = root.join(FOLDER);
    place.work_in(&folder, NO_LIMITS)
}

/// The recorded process: commits are made and rows written, until it is killed.
fn live(life: &str) {
    let numbers: Vec<u64> = life.split(' ').map(|it| it.parse().unwrap()).collect();
    let [seed, upto, forgotten] = numbers[..] else {
        panic!("{life}")
    };
    let root = std::env::var_os("POWER_ROOT").unwrap();
    let mut rng = Rng::new(seed);
    let mut place = log_of(upto, forgotten);
    let folder = Path::new(&root).join(FOLDER);
    let mut work = work_in(Path::new(&root), &place);
    let mut readers = Vec::new();
    for _ in 0..rng.between(20, 60) {
        // Other tools read a file meanwhile, so that SQLite cannot move all of its log into the file.
        let files = folder::list(&folder).unwrap();
        if rng.chance(5)
            && let Some(id) = rng.pick(&files)
        {
            let reader = rusqlite::Connection::open(path(&folder, *id)).unwrap();
            reader
                .execute_batch("BEGIN; SELECT count(*) FROM ended")
                .unwrap();
            readers.push(reader);
        }
        for _ in 0..rng.below(20) {
            place.commit(rows_of(place.newest() + 1));
        }
        note(&format!("log {}", place.newest()));
        work.catch_up().unwrap();
        if rng.chance(25) {
            work.sync().unwrap();
            let forgotten = place.read_to();
            place.forget(forgotten);
            note(&format!("forgotten {forgotten}"));
        }
    }
    std::process::abort();
}

/// The numbers in the last notes of these kinds before a cut.
fn noted(notes: &[Note], kind: &str, before: u64) -> Option<u64> {
    let before = notes.iter().rev().skip_while(|note| note.before >= before);
    let mut numbers = before.filter_map(|note| note.text.strip_prefix(kind)?.trim().parse().ok());
    numbers.next()
}

/// Every row is in the right file once, and counted once in the hour.
fn check(place: &Place, folder: &Path, what: &str) {
    let mut expected = BTreeMap::<FileId, Vec<u64>>::new();
    for row in (1..=place.newest()).flat_map(rows_of) {
        let id = FileId::of(row.ended_at.0, row.keep_ms);
        expected.entry(id).or_default().push(row.job.0);
    }
    let mut found = BTreeMap::new();
    for id in folder::list(folder).unwrap() {
        let db = rusqlite::Connection::open(path(folder, id)).unwrap();
        let number = |sql: &str| db.query_row(sql, [], |row| row.get::<_, u64>(0)).unwrap();
        let mut jobs = db.prepare("SELECT job FROM ended ORDER BY n").unwrap();
        let jobs = jobs.query_map([], |row| row.get(0)).unwrap();
        let jobs: Vec<u64> = jobs.map(Result::unwrap).collect();
        assert_eq!(
            number("SELECT sum(done) FROM hours"),
            jobs.len() as u64,
            "{what}: {id}"
        );
        let state: String = db
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(state, "ok", "{what}: {id}");
        found.insert(id, jobs);
    }
    for (id, jobs) in &expected {
        let there = found.remove(id).unwrap_or_default();
        let lost: Vec<_> = jobs.iter().filter(|job| !there.contains(job)).collect();
        assert!(lost.is_empty(), "{what}: {id} has lost {lost:?}");
        assert_eq!(&there, jobs, "{what}: {id}");
    }
    assert!(found.is_empty(), "{what}: {found:?}");
    let names = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let aside: Vec<_> = names
        .filter(|name| name.to_string_lossy().contains("damaged"))
        .collect();
    assert!(aside.is_empty(), "{what}: {aside:?}");
}

/// A directory after a cut, and the log of that time.
struct After {
    image: Image,
    upto: u64,
    forgotten: u64,
}

/// Records a life that begins with a directory. Returns the directories after cuts.
fn cut(home: &Path, before: &After, rng: &mut Rng) -> Vec<After> {
    let root = home.join("root");
    before.image.restore(&root).unwrap();
    let recorder = Recorder::new(home, &root);
    let name = "keeper::cuts::every_row_of_the_log_is_there_once_after_a_power_cut";
    let life = format!("{} {} {}", rng.throw() >> 1, before.upto, before.forgotten);
    let ended = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(LIFE, life)
        // A killed process leaves temporary folders.
        .env("TMPDIR", home)
        .envs(recorder.variables())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(
        !ended.status.success() && !text.contains("panicked"),
        "{text}"
    );
    let mut disk = recorder.end();
    let notes = disk.notes();
    let count = disk.count();
    let mut moments: Vec<u64> = (0..CUTS_OF_A_RECORD)
        .map(|_| 1 + rng.below(count))
        .collect();
    moments.sort_unstable();
    let mut after = Vec::new();
    for moment in moments {
        disk.go_to(moment);
        after.push(After {
            image: disk.cut(rng),
            upto: noted(&notes, "log", moment).unwrap_or(before.upto),
            forgotten: noted(&notes, "forgotten", moment).unwrap_or(before.forgotten),
        });
    }
    std::fs::remove_dir_all(&root).unwrap();
    after
}

#[test]
fn every_row_of_the_log_is_there_once_after_a_power_cut() {
    if let Ok(life) = std::env::var(LIFE) {
        return live(&life);
    }
    let from_env = |name, default| {
        let text = std::env::var(name).ok();
        text.and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let wanted: u64 = from_env("WINDLASS_TEST_HISTORY_CUTS", 40);
    let mut rng = Rng::new(from_env("WINDLASS_TEST_HISTORY_SEED", 1));
    let home = tempfile::tempdir_in(place()).unwrap();
    let nothing = || After {
        image: Image::default(),
        upto: 0,
        forgotten: 0,
    };
    let mut before = nothing();
    let mut cuts = 0;
    let mut lives = 0;
    while cuts < wanted {
        let mut all = cut(home.path(), &before, &mut rng);
        for After {
            image,
            upto,
            forgotten,
        } in &all
        {
            let root = home.path().join("after");
            image.restore(&root).unwrap();
            let what = format!("life {lives}, cut {cuts}, log from {forgotten} to {upto}");
            let mut place = log_of(*upto, *forgotten);
            let mut work = work_in(&root, &place);
            work.catch_up().unwrap();
            check(&place, &root.join(FOLDER), &what);
            // The next commit has the number of one that the cut may have taken.
            place.commit(rows_of(upto + 1));
            work.catch_up().unwrap();
            work.sync().unwrap();
            drop(work);
            check(&place, &root.join(FOLDER), &what);
            std::fs::remove_dir_all(&root).unwrap();
            cuts += 1;
        }
        lives += 1;
        let at = usize::try_from(rng.below(CUTS_OF_A_RECORD)).unwrap();
        before = if lives % 4 == 0 {
            nothing()
        } else {
            all.swap_remove(at)
        };
    }
    println!("{cuts} cuts in {lives} lives");
}
