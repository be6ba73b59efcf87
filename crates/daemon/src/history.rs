//! The history of ended jobs, as the configuration asks for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use windlass_config::Failure;
use windlass_history::{Book, Keeper, Limits, resume_from};
use windlass_store::Checkpointer;

use crate::config::Config;

/// Its folder in the data directory.
const FOLDER: &str = "history";

/// Free space below which nothing is written to the history: the store refuses new jobs only when much less is left
/// (`windlass_hub`, `commit/room.rs`).
const FREE_BYTES_MIN: u64 = 512 << 20;

fn folder(config: &Config) -> PathBuf {
    config.data_dir.join(FOLDER)
}

/// Whether rows are written.
pub(crate) fn is_kept(config: &Config) -> bool {
    let by_queue = config.queues.values().filter_map(|queue| queue.history);
    let keeps = !config.history.keep.is_zero()
        || by_queue
            .filter_map(|rule| rule.keep)
            .any(|keep| !keep.is_zero());
    keeps && !config.ephemeral && config.remote.is_none()
}

/// The last commit after which the log must be there when the store is opened.
pub(crate) fn keep_from(config: &Config) -> Option<u64> {
    is_kept(config).then(|| resume_from(&folder(config)).unwrap_or(0))
}

/// The history, to be asked. A daemon without a data directory of its own has none.
pub(crate) fn book(config: &Config) -> Option<Book> {
    let has_folder = !config.ephemeral && config.remote.is_none();
    has_folder.then(|| Book::new(folder(config)))
}

pub(crate) const fn limits(config: &Config) -> Limits {
    Limits {
        bytes_max: config.history.bytes_max.0,
        free_bytes_min: FREE_BYTES_MIN,
    }
}

/// Starts the thread that writes rows, if any are written. Checkpoints leave to it what it has not read of the log.
///
/// # Errors
///
/// Its folder cannot be created, or the thread cannot be started.
pub(crate) fn start(
    checkpointer: &mut Checkpointer,
    config: &Config,
) -> Result<Option<Keeper>, Failure> {
    if !is_kept(config) {
        return Ok(None);
    }
    let read_to = Arc::new(AtomicU64::new(0));
    let keeper = Keeper::start(
        folder(config),
        checkpointer.store_id(),
        checkpointer.log(),
        Arc::clone(&read_to),
        limits(config),
    );
    let keeper = keeper.map_err(|error| Failure::Runtime(error.to_string()))?;
    checkpointer.keep_behind(read_to);
    Ok(Some(keeper))
}
