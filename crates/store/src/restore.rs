//! Creates a store with the records of a complete export.
//!
//! The store is built with a temporary name and renamed when it is complete: an interruption leaves no store,
//! and the export can be restored again. Bodies that do not fit into memory are stored in a file until then.
//! Numbers, order, counters and clocks are those of the exported store.

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
    /// Locks a directory without a store. `None` if it has one, or had one.
    ///
    /// # Errors
    ///
    /// Another process has the directory open, or the file system fails.
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

    /// Adds a record, which replaces previous records of the same subject.
    pub fn take(&mut self, record: Record) {
        self.replay.apply(record, None);
    }

    /// Creates the store. Calls `ready` when it is complete and durable, immediately before it is renamed.
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
