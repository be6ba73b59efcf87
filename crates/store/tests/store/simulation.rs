//! A daemon's life from a single seed: visits, failing commits, failing checkpoints, crashes in the middle of
//! either, recoveries. After each crash the engine must be as it was at the last durable commit.
//!
//! `WINDLASS_SEED=n` runs one seed, `WINDLASS_SEEDS=n` more of them.

use windlass_engine::{
    ClientCommand, ClientId, Command, Context, Engine, Limits, QueueCommand, QueueKind, Tag,
    Timestamp,
};
use windlass_store::{
    Checkpointer, Commit, Error, Journal, Log as _, Recovered, StoreLimits, open_parts,
};
use windlass_testkit::store::{Fault, Fingerprint, MemoryLog, MemoryTable};

use crate::rng::Rng;
use crate::world::{any_command, discard_all, open_clients, queue_names, unschedule};

const STEPS: u64 = 300;

/// A commit that may not be durable yet.
struct OnItsWay {
    commit: Commit,
    print: Fingerprint,
    /// A failed attempt has written it.
    is_there: bool,
}

/// The events of a life.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    recoveries: u64,
    /// Commits in flight at a crash and missing after it.
    lost: u64,
    /// … and present after it.
    kept: u64,
    checkpoints: u64,
    rebuilds: u64,
    failed_checkpoints: u64,
    /// Crashes with part of a checkpoint in the table.
    torn_tables: u64,
}

struct Daemon {
    seed: u64,
    rng: Rng,
    engine: Engine,
    journal: Journal,
    log: MemoryLog,
    table: MemoryTable,
    checkpointer: Checkpointer,
    limits: StoreLimits,
    context: Context,
    durable: Fingerprint,
    on_its_way: Option<OnItsWay>,
    seen: Seen,
}

impl Daemon {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let limits = StoreLimits {
            log_bytes: 1,
            keep_bytes: [0, 1, 500, 5_000, 100_000][usize::try_from(rng.roll(5)).unwrap()],
            table_floor_bytes: rng.one_of(&[0, 10_000, 1 << 30]),
            table_multiple: 1 + rng.roll(4),
            overflow: None,
            keep_from: None,
        };
        let (log, table) = (MemoryLog::new(), MemoryTable::new());
        let (
            checkpointer,
            Recovered {
                engine, journal, ..
            },
        ) = open(seed, &log, &table, &limits);
        let context = Context::new(Timestamp(1_000_000), seed);
        let durable = Fingerprint::of(&engine);
        let (on_its_way, seen) = (None, Seen::default());
        let mut daemon = Self {
            seed,
            rng,
            engine,
            journal,
            log,
            table,
            checkpointer,
            limits,
            context,
            durable,
            on_its_way,
            seen,
        };
        open_clients(&mut daemon.engine, &mut daemon.context);
        daemon
    }

    fn visit(&mut self) {
        let step = if self.rng.one_in(20) { 20_000 } else { 300 };
        self.context.now = self.context.now.after_ms(self.rng.roll(step));
        self.context.changes.clear();
        self.context.events.clear();
        for _ in 0..=self.rng.roll(4) {
            let (client, command) = any_command(&mut self.rng, &self.engine, self.context.now);
            self.engine
                .apply(client, Tag(1), command, &mut self.context);
        }
        self.journal.append(&self.engine, &self.context.changes);
    }

    fn apply(&mut self, command: impl Into<Command>) {
        self.context.changes.clear();
        self.engine
            .apply(ClientId(0), Tag(1), command, &mut self.context);
        self.journal.append(&self.engine, &self.context.changes);
    }

    fn cut(&mut self) {
        if self.on_its_way.is_some() {
            return;
        }
        if let Some(commit) = self.journal.cut(&self.engine) {
            let print = Fingerprint::of(&self.engine);
            self.on_its_way = Some(OnItsWay {
                commit,
                print,
                is_there: false,
            });
        }
    }

    /// Tries to write the commit in flight.
    fn write(&mut self) {
        let Some(on_its_way) = self.on_its_way.take() else {
            return;
        };
        let fault = self
            .rng
            .one_in(6)
            .then(|| self.rng.one_of(&[Fault::Nothing, Fault::Everything]));
        if let Some(fault) = fault {
            self.log.fail(0, fault, false);
        }
        match self.log.append(&on_its_way.commit) {
            Ok(()) => {
                self.journal.committed(on_its_way.commit.seq());
                self.durable = on_its_way.print;
            }
            Err(why) => {
                assert!(fault.is_some(), "seed {}: {why}", self.seed);
                self.log.reopen().unwrap();
                let is_there = on_its_way.is_there || fault == Some(Fault::Everything);
                self.on_its_way = Some(OnItsWay {
                    is_there,
                    ..on_its_way
                });
            }
        }
    }

    fn commit_all(&mut self) {
        loop {
            self.cut();
            if self.on_its_way.is_none() {
                return;
            }
            self.write();
        }
    }

    /// Makes a checkpoint, which may fail anywhere. Returns `true` if it failed.
    fn checkpoint(&mut self, may_fail: bool) -> bool {
        let changes = self.rng.one_of(&[5, 10, 20]);
        let fault = (may_fail && self.rng.one_in(6))
            .then(|| u32::try_from(self.rng.roll(changes)).unwrap());
        if let Some(after) = fault {
            self.table.fail(after);
        }
        if self.rng.one_in(20) {
            self.checkpointer.ask_for_rebuild();
        }
        let figures = self.checkpointer.figures();
        let rebuilds = figures.rebuilds.load(std::sync::atomic::Ordering::Relaxed);
        let all = self.rng.one_in(2);
        let made = self.checkpointer.run(all);
        // An unused fault must not affect the next checkpoint.
        self.table.heal();
        match made {
            Ok(made) => {
                self.seen.checkpoints += u64::from(made);
                self.seen.rebuilds +=
                    figures.rebuilds.load(std::sync::atomic::Ordering::Relaxed) - rebuilds;
                false
            }
            Err(why) => {
                assert!(
                    fault.is_some() && matches!(why, Error::Asked),
                    "seed {}: {why}",
                    self.seed
                );
                self.seen.failed_checkpoints += 1;
                true
            }
        }
    }

    /// The power fails, possibly in the middle of a commit and of a checkpoint. Then a new daemon starts on the
    /// remains.
    fn crash(&mut self) {
        let on_its_way = self.on_its_way.take();
        let arrives = self.rng.one_in(2);
        self.log = self
            .log
            .cut(on_its_way.as_ref().map(|it| &it.commit).filter(|_| arrives));
        if let Some(OnItsWay {
            print, is_there, ..
        }) = on_its_way
        {
            if arrives || is_there {
                self.durable = print;
                self.seen.kept += 1;
            } else {
                self.seen.lost += 1;
            }
        }
        let (chance, new_is_likely) = (self.rng.one_of(&[2, 3, 20]), self.rng.one_in(2));
        let (mut old, mut new) = (0, 0);
        let table = self.table.cut(|| {
            let survives = self.rng.one_in(chance) == new_is_likely;
            *(if survives { &mut new } else { &mut old }) += 1;
            survives
        });
        self.table = table;
        self.seen.torn_tables += u64::from(old > 0 && new > 0);
        self.recover();
    }

    fn recover(&mut self) {
        let seed = self.seed;
        let (checkpointer, recovered) = open(seed, &self.log, &self.table, &self.limits);
        let print = Fingerprint::of(&recovered.engine);
        if let Some(difference) = print.differs_from(&self.durable) {
            panic!("seed {seed}: recovered (first) and durable (second) differ: {difference}");
        }
        recovered.engine.check();
        let (next, was) = (recovered.engine.meta().next_job, self.durable.meta.next_job);
        assert!(next >= was, "seed {seed}: numbers would be used again");
        self.seen.recoveries += 1;
        (self.engine, self.journal, self.checkpointer) =
            (recovered.engine, recovered.journal, checkpointer);
        self.context = Context::new(self.context.now, seed + self.seen.recoveries);
        open_clients(&mut self.engine, &mut self.context);
        // Everything that became due during the downtime is done by now.
        self.journal.append(&self.engine, &self.context.changes);
    }

    /// Discards everything.
    fn discard(&mut self) {
        while self.engine.schedules().next().is_some() {
            let command = unschedule(&mut self.rng, &self.engine);
            self.apply(command);
        }
        for _ in 0..4 {
            // Batches push their remaining callbacks, finish and are forgotten.
            self.context.now = self.context.now.after_ms(1_000_000_000_000);
            self.apply(discard_all());
            self.apply(ClientCommand::Close);
        }
        queue_names().for_each(|queue| {
            self.apply(QueueCommand::Remove {
                queue,
                only_idle: false,
            })
        });
        self.commit_all();
        let left = (self.engine.job_count(), self.engine.batches().count());
        assert_eq!(
            left,
            (0, 0),
            "seed {}: jobs and batches are left",
            self.seed
        );
    }

    /// Makes a checkpoint of everything. Returns the commit.
    fn checkpoint_all(&mut self, paused: bool) -> u64 {
        let queue = queue_names().next().unwrap();
        self.apply(QueueCommand::Create {
            queue: queue.clone(),
            kind: QueueKind::Work,
        });
        self.apply(QueueCommand::Pause { queue, paused });
        self.commit_all();
        let seed = self.seed;
        let made = self
            .checkpointer
            .run(true)
            .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert!(made, "seed {seed}: there was something new");
        self.checkpointer
            .figures()
            .point
            .load(std::sync::atomic::Ordering::Relaxed)
    }
}

fn open(
    seed: u64,
    log: &MemoryLog,
    table: &MemoryTable,
    limits: &StoreLimits,
) -> (Checkpointer, Recovered) {
    open_parts(
        log,
        Box::new(table.clone()),
        limits,
        Limits::default(),
        seed,
    )
    .unwrap_or_else(|why| panic!("seed {seed}: {why}"))
}

fn live(seed: u64) -> Seen {
    let mut daemon = Daemon::new(seed);
    for _ in 0..STEPS {
        match daemon.rng.roll(16) {
            0..=5 => daemon.visit(),
            6..=8 => daemon.cut(),
            9..=11 => daemon.write(),
            12 | 13 => {
                let failed = daemon.checkpoint(true);
                (failed && !daemon.rng.one_in(4)).then(|| daemon.crash());
            }
            _ if daemon.rng.one_in(12) => daemon.crash(),
            _ => {}
        }
    }
    daemon.commit_all();
    daemon.crash();
    if daemon.rng.one_in(2) {
        daemon.checkpoint(true);
    }
    daemon.discard();
    let first = daemon.checkpoint_all(true);
    daemon.checkpoint_all(false);
    let keys = daemon.table.values().into_keys();
    // The first byte of a key identifies the engine meta, queues or jobs (`page`).
    let jobs: Vec<Vec<u8>> = keys.filter(|key| key.first() == Some(&2)).collect();
    assert!(
        jobs.is_empty(),
        "seed {seed}: the table holds {jobs:02x?} when there are no jobs"
    );
    let kept = daemon.log.seqs();
    assert!(
        kept.iter().all(|seq| *seq > first),
        "seed {seed}: the log keeps {kept:?} after a checkpoint at {first}"
    );
    daemon.crash();
    daemon.seen
}

#[test]
fn every_crash_recovers_what_was_durable() {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse::<u64>().ok())
    };
    if let Some(seed) = number("WINDLASS_SEED") {
        println!("seed {seed}: {:?}", live(seed));
        return;
    }
    let seeds = number("WINDLASS_SEEDS").unwrap_or(400);
    let mut sum = Seen::default();
    for seed in 0..seeds {
        let Seen {
            recoveries,
            lost,
            kept,
            checkpoints,
            rebuilds,
            failed_checkpoints,
            torn_tables,
        } = live(seed);
        sum.recoveries += recoveries;
        sum.lost += lost;
        sum.kept += kept;
        sum.checkpoints += checkpoints;
        sum.rebuilds += rebuilds;
        sum.failed_checkpoints += failed_checkpoints;
        sum.torn_tables += torn_tables;
    }
    println!("{seeds} lives: {sum:?}");
    // The seed must have produced every kind of event.
    let Seen {
        recoveries,
        lost,
        kept,
        checkpoints,
        rebuilds,
        failed_checkpoints,
        torn_tables,
    } = sum;
    let updates = checkpoints - rebuilds;
    let found = [
        recoveries,
        lost,
        kept,
        updates,
        rebuilds,
        failed_checkpoints,
        torn_tables,
    ];
    assert!(
        found.iter().all(|sum| *sum > seeds / 8),
        "{sum:?} in {seeds} lives"
    );
}
