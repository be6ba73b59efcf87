//! Creates a store with the records of a complete export.
//!
//! The store is built beside its place and renamed when it is complete: an interruption leaves no store, and the export
//! can be restored again. Bodies that do not fit into memory wait in a file. Numbers, order, counters and clocks are those of the exported store.

use windlass_engine::Limits;

use crate::damage::OpenError;
use crate::directory::{self, STORE, StoreConfig};
use crate::files::Lock;
use crate::record::Record;
use crate::recover::{Recovered, Replay, Report};

/// A store that is being restored.
pub struct Restore {
    config: StoreConfig,
    lock: Lock,
    replay: Replay,
}

impl Restore {
    /// Holds a directory without a store. `None` if it has one, or had one.
    ///
    /// # Errors
    ///
    /// If another process holds the directory, or the file system fails.
    pub fn begin(config: &StoreConfig) -> Result<Option<Self>, OpenError> {
        let lock = Lock::take(&config.path)?;
        if config.path.join(STORE).exists() || lock.had_store() {
            return Ok(None);
        }
        Ok(Some(Self {
            config: config.clone(),
            lock,
            replay: Replay::new(config.checkpoints.overflow.as_ref()),
        }))
    }

    /// Takes a record. A later one about the same subject replaces it.
    pub fn take(&mut self, record: Record) {
        self.replay.apply(record, None);
    }

    /// Creates the store. Calls `ready` when it is complete and durable, right before it gets its place.
    ///
    /// # Errors
    ///
    /// The records contradict each other, the store cannot be written, or `ready` fails.
    pub fn finish(
        self,
        limits: Limits,
        seed: u64,
        ready: impl FnOnce() -> std::io::Result<()>,
    ) -> Result<Report, OpenError> {
        let Self {
            config,
            mut lock,
            replay,
        } = self;
        let Recovered {
            mut engine,
            bodies,
            report,
            ..
        } = replay.build(limits, seed, 0)?;
        directory::make_with(&config, (&mut engine, bodies.as_ref()), seed, ready)?;
        lock.has_store()?;
        Ok(report)
    }
}
