//! Damage to every file of a directory, after clean stops and after kills. Opening either reports damage and
//! refuses, or finds exactly the acknowledged state.
//!
//! `WINDLASS_SEED=n` runs one directory, `WINDLASS_DAMAGES=n` sets the number of damages.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use windlass_engine::{Job, Limits, Timestamp};
use windlass_store::{OpenError, Salvage, accept_loss, salvage, verify};
use windlass_testkit::store::Fingerprint;

use crate::disk::{Image, image_of, restore};
use crate::files::{Daemon, home, small, tight};
use crate::rng::Rng;

const JOBS_MAX: usize = 250;
const DAMAGES_OF_A_DIRECTORY: u64 = 25;
const PATIENCE: Duration = Duration::from_secs(20);

/// A directory, the final acknowledged state, and an older image of the directory.
struct Directory {
    image: Image,
    acknowledged: Fingerprint,
    older: Vec<Image>,
}

fn directory(rng: &mut Rng, home: &Path) -> Directory {
    let path = home.join("living");
    let mut older = Vec::new();
    let mut acknowledged = None;
    for _ in 0..=rng.roll(2) {
        let now = Timestamp(1_000_000 + 100_000 * older.len() as u64);
        let mut daemon = Daemon::start(&small(&path), rng.roll(u64::MAX), now).unwrap();
        daemon.open_clients();
        for n in 0..30 + rng.roll(30) {
            daemon.work(rng, JOBS_MAX);
            daemon.commit();
            if rng.one_in(6) {
                if rng.one_in(6) {
                    daemon.checkpointer.ask_for_rebuild();
                }
                daemon.checkpointer.run(rng.one_in(2)).unwrap();
            }
            if n % 8 == 0 {
                older.push(image_of(&path));
            }
        }
        // A kill leaves the files as they are. Dropping the daemon would let sled write its buffers.
        let (image, print) = (image_of(&path), daemon.durable.clone());
        acknowledged = Some(if rng.one_in(2) {
            (daemon.stop(), image_of(&path))
        } else {
            (print, image)
        });
    }
    fs::remove_dir_all(&path).unwrap();
    let (acknowledged, image) = acknowledged.unwrap();
    Directory {
        image,
        acknowledged,
        older,
    }
}

/// Damages a directory. Returns a description; `None`: it is unchanged.
fn damage(directory: &Directory, rng: &mut Rng) -> Option<(String, Image)> {
    let mut image = directory.image.clone();
    let names: Vec<PathBuf> = image
        .iter()
        .filter(|(_, bytes)| bytes.is_some())
        .map(|(name, _)| name.clone())
        .collect();
    let name = &names[rng.index(names.len())];
    let other = &names[rng.index(names.len())];
    let copy = rng.index(directory.older.len());
    let bytes = image.get_mut(name)?.as_mut()?;
    // Most of a file may be unused space.
    let used = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    let reach = if rng.one_in(8) { bytes.len() } else { used };
    let at = rng.index(reach);
    let what = match rng.roll(11) {
        0 | 1 => {
            let bit = rng.roll(8);
            *bytes.get_mut(at)? ^= 1 << bit;
            format!("bit {bit} of byte {at} of {} flipped in", bytes.len())
        }
        2 => {
            *bytes.get_mut(at)? = rng.roll(256).to_le_bytes()[0];
            format!("byte {at} changed in")
        }
        3 => blank(bytes, at, 4 << 10),
        4 => blank(bytes, at, 64 << 10),
        5 => blank(bytes, at, 512),
        6 => {
            bytes.truncate(at);
            format!("cut off at byte {at}:")
        }
        7 => {
            let page = 4 << 10;
            let (from, to) = ((rng.index(reach) / page) * page, (at / page) * page);
            let end = bytes.len().min(from + page);
            let len = (end - from).min(bytes.len() - to);
            bytes.copy_within(from..from + len, to);
            format!("page at {from} copied to {to} in")
        }
        8 => {
            image.remove(name);
            "removed:".to_owned()
        }
        9 => {
            let (one, two) = (image.get(name)?.clone(), image.get(other)?.clone());
            image.insert(name.clone(), two);
            image.insert(other.clone(), one);
            format!("{} swapped with", other.display())
        }
        _ => {
            *bytes = directory.older.get(copy)?.get(name)?.clone()?;
            format!("older copy {copy} of")
        }
    };
    (image != directory.image).then(|| (format!("{what} {}", name.display()), image))
}

fn blank(bytes: &mut [u8], at: usize, len: usize) -> String {
    let from = at / len * len;
    let end = bytes.len().min(from + len);
    bytes[from..end].fill(0);
    format!("bytes {from} to {end} blanked in")
}

/// Outcomes of damages.
#[derive(Debug, Default)]
struct Sum {
    damages: u64,
    refused: u64,
    /// Opened completely, with a report of the damage.
    harmless: u64,
    /// Jobs in refused directories, and the number of them that were not salvaged.
    jobs: u64,
    not_saved: u64,
    /// The most jobs not saved after one changed bit or byte.
    worst: (u64, String),
}

struct Case<'a> {
    what: String,
    seed: u64,
    directory: &'a Directory,
    path: &'a Path,
}

impl Case<'_> {
    fn fail(&self, why: impl std::fmt::Display) -> ! {
        panic!("seed {}, {}: {why}", self.seed, self.what)
    }

    fn guarded<T>(&self, doing: &str, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = catch_unwind(AssertUnwindSafe(call))
            .unwrap_or_else(|_| self.fail(format!("{doing} panics")));
        if begun.elapsed() > PATIENCE {
            self.fail(format!("{doing} takes {:?}", begun.elapsed()));
        }
        done
    }

    fn check(&self, damaged: &Image, sum: &mut Sum) {
        restore(damaged, self.path);
        let config = tight(self.path, self.seed);
        let mut found = self
            .guarded("salvage", || salvage(&config))
            .unwrap_or_else(|why| self.fail(why));
        let about = windlass_store::About {
            daemon: "0.1.0",
            written_at: windlass_engine::Timestamp(0),
            namespace: None,
        };
        self.guarded("export", || found.export(about, &mut std::io::sink()))
            .unwrap();
        let verdict = self.guarded("verify", || verify(&config, Limits::default()));
        if image_of(self.path) != *damaged {
            self.fail("salvage or verify has changed something");
        }
        let opened = self.guarded("opening", || {
            Daemon::start(&small(self.path), 1, Timestamp(0))
        });
        sum.damages += 1;
        match (opened, verdict) {
            (Ok(daemon), Ok(verdict)) => {
                daemon.engine.check();
                if !found.is_whole() {
                    self.fail(format!(
                        "opened, but salvage misses a part: {:?}",
                        found.unreadable
                    ));
                }
                if let Some(difference) = daemon.print().differs_from(&self.directory.acknowledged)
                {
                    self.fail(format!(
                        "the opened state differs from the acknowledged one: {difference}"
                    ));
                }
                if daemon.report != verdict {
                    self.fail(format!(
                        "opening reports {:?}, verify {:?}",
                        daemon.report, verdict
                    ));
                }
                sum.harmless += u64::from(!daemon.report.harmless.is_empty());
                self.go_on(daemon);
            }
            (Err(OpenError::Damaged(_)), Err(OpenError::Damaged(why))) => {
                sum.refused += 1;
                if found.is_whole() {
                    self.fail(format!(
                        "refused, but salvage reports everything as saved: {why}"
                    ));
                }
                self.check_saved(&found, sum);
                self.accept(damaged, &found);
            }
            (opened, verdict) => {
                let opened = opened.map(|daemon| daemon.report);
                self.fail(format!("opening reports {opened:?}, verify {verdict:?}"))
            }
        }
    }

    /// A daemon that has opened a damaged directory continues, and leaves a directory in order after a few checkpoints.
    fn go_on(&self, mut daemon: Daemon) {
        let mut rng = Rng(self.seed);
        daemon.open_clients();
        for n in 0..4 {
            daemon.work(&mut rng, JOBS_MAX);
            daemon.commit();
            if n < 3 {
                daemon
                    .checkpointer
                    .run(true)
                    .unwrap_or_else(|why| self.fail(why));
            }
        }
        let print = daemon.durable.clone();
        drop(daemon);
        let daemon =
            Daemon::start(&small(self.path), 1, Timestamp(0)).unwrap_or_else(|why| self.fail(why));
        if let Some(difference) = daemon.print().differs_from(&print) {
            self.fail(format!("the state differs after a reopening: {difference}"));
        }
        if !daemon.report.harmless.is_empty() {
            self.fail(format!(
                "damaged files are still in use: {:?}",
                daemon.report
            ));
        }
    }

    /// Checks how much of the acknowledged state was saved.
    fn check_saved(&self, found: &Salvage, sum: &mut Sum) {
        let (acknowledged, found) = (&self.directory.acknowledged.jobs, found.jobs());
        let not_saved = acknowledged
            .iter()
            .filter(|(id, job)| !is_same(found.get(id), job))
            .count() as u64;
        sum.jobs += acknowledged.len() as u64;
        sum.not_saved += not_saved;
        let is_small = self.what.starts_with("bit") || self.what.starts_with("byte ");
        if is_small && not_saved > sum.worst.0 {
            sum.worst = (not_saved, format!("seed {}, {}", self.seed, self.what));
        }
    }

    /// A store made of the salvaged data can be opened, and the old one is set aside unchanged.
    fn accept(&self, damaged: &Image, found: &Salvage) {
        fs::remove_dir_all(self.path).unwrap();
        restore(damaged, self.path);
        let config = tight(self.path, self.seed);
        let accepted = self.guarded("accepting", || accept_loss(&config, Limits::default(), 1));
        let (again, aside) = accepted.unwrap_or_else(|why| self.fail(why));
        let all = |found: &Salvage| {
            let Salvage {
                job_count,
                commit,
                commits,
                commits_missing,
                ..
            } = *found;
            let unreadable = found.unreadable.clone();
            let things = (
                found.queues.clone(),
                found.schedules.clone(),
                found.batches.clone(),
                found.days.clone(),
            );
            (
                (job_count, commit, commits, commits_missing),
                unreadable,
                things,
            )
        };
        if all(&again) != all(found) {
            self.fail("the accepted state differs from the salvaged one");
        }
        let store = |image: &Image, below: &Path| -> BTreeMap<PathBuf, Option<Vec<u8>>> {
            let files = image
                .iter()
                .filter_map(|(name, bytes)| Some((name.strip_prefix(below).ok()?, bytes)));
            files
                .map(|(name, bytes)| (name.to_owned(), bytes.clone()))
                .collect()
        };
        let aside = aside.strip_prefix(self.path).unwrap();
        if store(&image_of(self.path), aside) != store(damaged, Path::new("store")) {
            self.fail("the store set aside differs from the old store");
        }
        let verdict = verify(&config, Limits::default()).unwrap_or_else(|why| self.fail(why));
        let daemon =
            Daemon::start(&small(self.path), 1, Timestamp(0)).unwrap_or_else(|why| self.fail(why));
        daemon.engine.check();
        let jobs = found.jobs();
        let differs = daemon.engine.jobs().find(|job| {
            jobs.get(&job.id)
                .is_none_or(|saved| saved.body() != job.body())
        });
        if let Some(job) = differs {
            self.fail(format!(
                "job {} has another body than the salvaged one",
                job.id.0
            ));
        }
        if daemon.report != verdict || daemon.engine.job_count() > jobs.len() {
            self.fail(format!(
                "{:?} after {verdict:?} of {} jobs",
                daemon.report,
                jobs.len()
            ));
        }
    }
}

/// Returns true if a salvaged job equals the acknowledged one.
fn is_same(saved: Option<&Job>, job: &Job) -> bool {
    let told = |job: &Job| {
        (
            job.id,
            job.body().to_vec(),
            job.queue,
            job.state.kind(),
            job.attempts,
        )
    };
    saved.is_some_and(|saved| told(saved) == told(job))
}

fn live(seed: u64, sum: &mut Sum) {
    let home = home();
    let mut rng = Rng(seed);
    let directory = directory(&mut rng, home.path());
    for _ in 0..DAMAGES_OF_A_DIRECTORY {
        let Some((what, damaged)) = damage(&directory, &mut rng) else {
            continue;
        };
        let path = home.path().join("damaged");
        Case {
            what,
            seed,
            directory: &directory,
            path: &path,
        }
        .check(&damaged, sum);
        fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn damage_is_detected_or_harmless() {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse::<u64>().ok())
    };
    let mut sum = Sum::default();
    if let Some(seed) = number("WINDLASS_SEED") {
        live(seed, &mut sum);
        println!("seed {seed}: {sum:?}");
        return;
    }
    let wanted = number("WINDLASS_DAMAGES").unwrap_or(300);
    for seed in 0.. {
        live(seed, &mut sum);
        if sum.damages >= wanted {
            break;
        }
    }
    println!("{sum:?}");
    assert!(
        sum.refused > sum.damages / 10 && sum.refused < sum.damages,
        "{sum:?}"
    );
    assert!(sum.harmless > sum.damages / 100, "{sum:?}");
}
