//! The engine and its journal on a store in a directory, with short methods.

use std::path::Path;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use windlass_engine::{ClientId, Command, Context, Engine, Limits, Tag, Timestamp};
use windlass_store::{
    Checkpointer, Commit, Error, Guard, Journal, Log, OpenError, Opened, Overflow, Report,
    StoreConfig, StoreLimits, open,
};
use windlass_table_sled::SledTables;
use windlass_testkit::store::Fingerprint;

use crate::rng::Rng;
use crate::world::{any_command, discard_all, open_clients};

/// The time limit of waits, reached only by a failure.
const PATIENCE: Duration = Duration::from_secs(10);

/// A directory in memory if possible, because the tests decide what is durable, not the disk.
pub(crate) fn home() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    }
    .unwrap()
}

/// A store with files so small that every event of a file occurs soon.
pub(crate) fn small(path: &Path) -> StoreConfig {
    let mut config = StoreConfig::new(
        path,
        SledTables {
            cache_bytes: 1 << 20,
            segment_bytes: 2 << 20,
        },
    );
    config.segment_bytes = 32 << 10;
    config.checkpoints = StoreLimits {
        log_bytes: 1,
        keep_bytes: 40 << 10,
        table_floor_bytes: 1 << 20,
        table_multiple: 4,
        overflow: None,
        keep_from: None,
    };
    config
}

/// The same for the work on a store at rest, with so little memory, for some seeds, that bodies stay in files.
pub(crate) fn tight(path: &Path, seed: u64) -> StoreConfig {
    let mut config = small(path);
    let memory = [None, Some(0), Some(3_000)][usize::try_from(seed % 3).unwrap()];
    config.checkpoints.overflow = memory.map(|memory| Overflow {
        folder: path.to_owned(),
        memory,
    });
    config
}

/// Opens a store that was just closed. A program that another test is starting at this moment has a copy of
/// this process's open files, including locks, until it executes.
fn open_soon(config: &StoreConfig, seed: u64) -> Result<Opened, OpenError> {
    let end = Instant::now() + PATIENCE;
    loop {
        match open(config, Limits::default(), seed) {
            Err(OpenError::Store(Error::InUse { .. })) if Instant::now() < end => {
                thread::yield_now()
            }
            opened => return opened,
        }
    }
}

/// The acknowledged state, and the state that may exist instead.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) acknowledged: Rc<Fingerprint>,
    pub(crate) on_its_way: Option<Rc<Fingerprint>>,
}

impl Expected {
    pub(crate) fn of(print: Fingerprint) -> Self {
        Self {
            acknowledged: Rc::new(print),
            on_its_way: None,
        }
    }

    /// The state of an empty store.
    pub(crate) fn nothing() -> Self {
        Self::of(Fingerprint::of(&Engine::new(Limits::default(), 1)))
    }

    /// Compares an engine with these states; returns a difference if no state is equal.
    pub(crate) fn check(&self, engine: &Engine) -> Result<(), String> {
        engine.check();
        let is = Fingerprint::of(engine);
        let Some(one) = is.differs_from(&self.acknowledged) else {
            return Ok(());
        };
        let Some(on_its_way) = &self.on_its_way else {
            return Err(format!("not the acknowledged state: {one}"));
        };
        let Some(two) = is.differs_from(on_its_way) else {
            return Ok(());
        };
        Err(format!(
            "neither the acknowledged state: {one}\nnor the one in flight: {two}"
        ))
    }
}

/// A daemon without connections, on a store in a directory.
pub(crate) struct Daemon {
    pub(crate) engine: Engine,
    pub(crate) journal: Journal,
    pub(crate) log: Box<dyn Log>,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) report: Report,
    pub(crate) context: Context,
    /// The state at the cut of the last durable commit. Some figures change without a commit.
    pub(crate) durable: Fingerprint,
    _guard: Guard,
}

impl Daemon {
    pub(crate) fn start(
        config: &StoreConfig,
        seed: u64,
        now: Timestamp,
    ) -> Result<Self, OpenError> {
        let Opened {
            log,
            checkpointer,
            recovered,
            guard,
        } = open_soon(config, seed)?;
        let context = Context::new(now, seed);
        let (engine, journal, report) = (recovered.engine, recovered.journal, recovered.report);
        let durable = Fingerprint::of(&engine);
        Ok(Self {
            engine,
            journal,
            log,
            checkpointer,
            report,
            context,
            durable,
            _guard: guard,
        })
    }

    pub(crate) fn open_clients(&mut self) {
        self.context.changes.clear();
        open_clients(&mut self.engine, &mut self.context);
        self.journal.append(&self.engine, &self.context.changes);
    }

    pub(crate) fn apply(&mut self, command: impl Into<Command>) {
        self.apply_as(ClientId(0), command);
    }

    fn apply_as(&mut self, client: ClientId, command: impl Into<Command>) {
        self.context.changes.clear();
        self.context.events.clear();
        self.engine
            .apply(client, Tag(1), command, &mut self.context);
        self.journal.append(&self.engine, &self.context.changes);
    }

    /// A visit: jobs arrive, others are taken and finish. There are never more than `jobs_max`.
    pub(crate) fn work(&mut self, rng: &mut Rng, jobs_max: usize) {
        let step = if rng.one_in(20) { 20_000 } else { 300 };
        self.context.now = self.context.now.after_ms(rng.roll(step));
        for _ in 0..=rng.roll(8) {
            let (client, command) = any_command(rng, &self.engine, self.context.now);
            self.apply_as(client, command);
        }
        if self.engine.job_count() > jobs_max {
            self.apply(discard_all());
        }
    }

    pub(crate) fn cut(&mut self) -> Option<Commit> {
        self.journal.cut(&self.engine)
    }

    pub(crate) fn append(&mut self, commit: &Commit) -> Result<(), Error> {
        self.log.append(commit)?;
        self.journal.committed(commit.seq());
        Ok(())
    }

    pub(crate) fn commit(&mut self) {
        while let Some(commit) = self.cut() {
            let print = self.print();
            self.append(&commit).unwrap();
            self.durable = print;
        }
    }

    pub(crate) fn print(&self) -> Fingerprint {
        Fingerprint::of(&self.engine)
    }

    /// Stops cleanly. Returns the durable state.
    pub(crate) fn stop(mut self) -> Fingerprint {
        self.engine.finish_meta();
        self.journal.stop_in_order();
        self.commit();
        self.log.close().unwrap();
        self.durable
    }
}
