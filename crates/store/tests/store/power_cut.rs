//! Simulated power cuts: writes since the last completed sync survive in part only, sector by sector, name by name, at
//! random. Every acknowledged commit must survive.
//!
//! The power fails in and between the steps of commits, new segments, checkpoints and rebuilds, openings (also after a
//! power cut), creating a store, and stops. Before that, syncs may fail, and daemons may be killed and restarted, with
//! or without such a failure.
//!
//! `WINDLASS_SEED=n` runs one seed, `WINDLASS_CUTS=n` sets the number of cuts.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use windlass_engine::{Limits, Timestamp};
use windlass_store::{StoreConfig, StoreLimits, salvage, verify};

use crate::disk::{Image, Watcher, restore};
use crate::files::{Daemon, Expected, home, small, tight};
use crate::rng::Rng;

/// The limit of nested openings that are cut.
const DEPTH_MAX: u32 = 3;
const JOBS_MAX: usize = 120;

struct Life {
    seed: u64,
    rng: Rng,
    home: PathBuf,
    places: u64,
    cuts: u64,
    cuts_max: u64,
    /// Cuts while opening a directory that another cut had left.
    in_openings: u64,
    /// Cuts before there was a store.
    unbegun: u64,
    failed_syncs: u64,
}

/// The outcome of a commit.
enum Committed {
    Yes(Expected),
    /// The sync has failed, so the daemon is killed.
    Killed(Expected),
}

impl Life {
    fn place(&mut self) -> PathBuf {
        self.places += 1;
        self.home.join(self.places.to_string())
    }

    fn config(&mut self, path: &Path) -> StoreConfig {
        let mut config = small(path);
        config.segment_bytes = self.rng.one_of(&[16 << 10, 32 << 10, 64 << 10]);
        let (log_bytes, table_multiple) = (1, 2 + self.rng.roll(3));
        let keep_bytes = self.rng.one_of(&[0, 20_000, 60_000]);
        let table_floor_bytes = self.rng.one_of(&[1 << 20, 4 << 20]);
        config.checkpoints = StoreLimits {
            log_bytes,
            keep_bytes,
            table_floor_bytes,
            table_multiple,
            overflow: None,
            keep_from: None,
        };
        config
    }

    fn failed(&self, why: impl std::fmt::Display) -> ! {
        panic!("seed {}, cut {}: {why}", self.seed, self.cuts)
    }

    /// A run of a daemon from a directory on, with power cuts at random. Returns the images after the cuts.
    fn run(&mut self, path: &Path, expected: &Expected) -> Vec<(Image, Expected)> {
        let config = self.config(path);
        let one_in = self.rng.one_of(&[4, 10, 30]);
        let watcher = Watcher::new(path, Rng(self.rng.roll(u64::MAX)), one_in, expected.clone());
        let now = Timestamp(1_000_000 + self.places * 100_000);
        let (mut daemon, mut known) = self.start(&config, now, expected, &watcher);
        let mut ended = false;
        for _ in 0..self.rng.roll(25) {
            if self.rng.one_in(5) {
                if self.checkpoint(&mut daemon, &watcher) {
                    drop(daemon);
                    (daemon, known) = self.start(&config, now, &known, &watcher);
                }
                continue;
            }
            daemon.work(&mut self.rng, JOBS_MAX);
            match self.commit(&mut daemon, &watcher, known) {
                Committed::Yes(all) if !self.rng.one_in(15) => known = all,
                Committed::Yes(expected) | Committed::Killed(expected) => {
                    drop(daemon);
                    (daemon, known) = self.start(&config, now, &expected, &watcher);
                }
            }
        }
        if self.rng.one_in(3) {
            daemon.engine.finish_meta();
            daemon.journal.stop_in_order();
            ended = matches!(self.commit(&mut daemon, &watcher, known), Committed::Yes(_));
        }
        if ended {
            daemon.log.close().unwrap();
        }
        drop(daemon);
        self.failed_syncs += watcher.failed_syncs();
        watcher.end()
    }

    /// Starts a daemon, and expects the recovered state after later cuts.
    fn start(
        &self,
        config: &StoreConfig,
        now: Timestamp,
        expected: &Expected,
        watcher: &Watcher,
    ) -> (Daemon, Expected) {
        let mut daemon =
            Daemon::start(config, self.seed, now).unwrap_or_else(|why| self.failed(why));
        expected
            .check(&daemon.engine)
            .unwrap_or_else(|why| self.failed(why));
        // The recovered state must survive, whatever it was.
        let known = Expected::of(daemon.print());
        watcher.expect(known.clone());
        daemon.open_clients();
        (daemon, known)
    }

    /// Makes a checkpoint. Returns `true` if a failure of it kills the daemon.
    fn checkpoint(&mut self, daemon: &mut Daemon, watcher: &Watcher) -> bool {
        if self.rng.one_in(4) {
            daemon.checkpointer.ask_for_rebuild();
        }
        let all = self.rng.one_in(2);
        let fails = self.rng.one_in(4);
        watcher.fail_syncs(fails.then_some(3));
        let made = daemon.checkpointer.run(all);
        watcher.fail_syncs(None);
        if let Err(why) = made
            && !fails
        {
            self.failed(why);
        }
        daemon.log.tail().make_room().unwrap();
        fails && self.rng.one_in(2)
    }

    fn commit(&mut self, daemon: &mut Daemon, watcher: &Watcher, mut known: Expected) -> Committed {
        while let Some(commit) = daemon.cut() {
            let print = Rc::new(daemon.print());
            known = Expected {
                on_its_way: Some(Rc::clone(&print)),
                ..known
            };
            watcher.expect(known.clone());
            watcher.fail_syncs(Some(20));
            let appended = daemon.append(&commit);
            watcher.fail_syncs(None);
            if appended.is_err() {
                if self.rng.one_in(2) {
                    return Committed::Killed(known);
                }
                daemon
                    .log
                    .reopen()
                    .and_then(|()| daemon.append(&commit))
                    .unwrap_or_else(|why| self.failed(why));
            }
            known = Expected {
                acknowledged: print,
                on_its_way: None,
            };
            watcher.expect(known.clone());
        }
        Committed::Yes(known)
    }

    /// The image of a cut is as expected and can be opened. That opening may be cut too.
    fn check(&mut self, image: &Image, expected: &Expected, depth: u32) {
        self.cuts += 1;
        let path = self.place();
        restore(image, &path);
        let config = self.config(&path);
        let tight = tight(&path, self.cuts);
        let verdict = verify(&tight, Limits::default())
            .unwrap_or_else(|why| self.failed(format!("verify: {why}")));
        let found = salvage(&tight).unwrap_or_else(|why| self.failed(format!("salvage: {why}")));
        if !found.is_whole() || found.job_count != verdict.jobs {
            self.failed(format!(
                "{verdict:?}, but salvage reads {} jobs: {:?}",
                found.job_count, found.unreadable
            ));
        }
        self.unbegun += u64::from(!path.join("store").exists());
        let one_in = if depth < DEPTH_MAX { 20 } else { u64::MAX };
        let watcher = Watcher::new(
            &path,
            Rng(self.rng.roll(u64::MAX)),
            one_in,
            expected.clone(),
        );
        let daemon =
            Daemon::start(&config, self.seed, Timestamp(0)).unwrap_or_else(|why| self.failed(why));
        let cuts = watcher.end();
        expected
            .check(&daemon.engine)
            .unwrap_or_else(|why| self.failed(why));
        if daemon.report != verdict {
            self.failed(format!(
                "opening reports {:?}, verify {verdict:?}",
                daemon.report
            ));
        }
        drop(daemon);
        fs::remove_dir_all(&path).unwrap();
        for (image, expected) in cuts.iter().take(1) {
            self.in_openings += 1;
            self.check(image, expected, depth + 1);
        }
    }

    fn live(&mut self) {
        let mut path = self.place();
        fs::create_dir_all(&path).unwrap();
        let mut expected = Expected::nothing();
        while self.cuts < self.cuts_max {
            let cuts = self.run(&path, &expected);
            for (image, expected) in &cuts {
                self.check(image, expected, 0);
            }
            fs::remove_dir_all(&path).unwrap();
            let Some((image, known)) = cuts.into_iter().nth(self.rng.index(5)) else {
                // There was no cut: start again.
                path = self.place();
                expected = Expected::nothing();
                fs::create_dir_all(&path).unwrap();
                continue;
            };
            path = self.place();
            restore(&image, &path);
            expected = known;
        }
    }
}

/// Returns the number of cuts, of cuts in openings, of cuts before there was a store, and of failed syncs.
fn live(seed: u64, cuts_max: u64) -> (u64, u64, u64, u64) {
    let home = home();
    let (rng, home) = (Rng(seed), home.path().to_owned());
    let mut life = Life {
        seed,
        rng,
        home,
        places: 0,
        cuts: 0,
        cuts_max,
        in_openings: 0,
        unbegun: 0,
        failed_syncs: 0,
    };
    life.live();
    (life.cuts, life.in_openings, life.unbegun, life.failed_syncs)
}

#[test]
fn power_cuts_lose_nothing() {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse::<u64>().ok())
    };
    const CUTS_OF_A_LIFE: u64 = 100;
    if let Some(seed) = number("WINDLASS_SEED") {
        println!("seed {seed}: {:?}", live(seed, CUTS_OF_A_LIFE));
        return;
    }
    let wanted = number("WINDLASS_CUTS").unwrap_or(400);
    let (mut cuts, mut in_openings, mut unbegun, mut failed, mut seed) = (0, 0, 0, 0, 0);
    while cuts < wanted {
        let (more, openings, before, syncs) = live(seed, CUTS_OF_A_LIFE);
        cuts += more;
        in_openings += openings;
        unbegun += before;
        failed += syncs;
        seed += 1;
    }
    println!(
        "{cuts} cuts, {in_openings} of them in openings, in {seed} lives, {failed} syncs failed"
    );
    assert!(
        in_openings > cuts / 10,
        "{in_openings} of {cuts} cuts in openings"
    );
    assert!(unbegun > 0, "no cut before there was a store");
    assert!(failed > cuts / 100, "{failed} syncs failed");
}
