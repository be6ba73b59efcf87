//! The history of ended jobs, as the configuration asks for it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use windlass_config::Failure;
use windlass_history::shelf::{Owner, Shelf};
use windlass_history::{Book, Folder, Keeper, Limits};
use windlass_store::{Checkpointer, Tenure};

use crate::config::Config;

/// Its folder in the data directory.
const FOLDER: &str = "history";

/// Free space below which nothing is written to the history: the store refuses new jobs only when much less is left
/// (`windlass_hub`, `commit/room.rs`).
const FREE_BYTES_MIN: u64 = 512 << 20;

/// Patience at shutdown with a database that stores the history.
const REMOTE_PATIENCE: Duration = Duration::from_secs(5);

/// Stores the history beside the jobs, and not at all in an ephemeral daemon.
fn shelf(config: &Config) -> Option<Arc<dyn Shelf>> {
    if config.ephemeral {
        return None;
    }
    let remote = config.remote_history.clone();
    Some(remote.unwrap_or_else(|| Arc::new(Folder::new(config.data_dir.join(FOLDER)))))
}

/// Whether rows are written.
pub(crate) fn is_kept(config: &Config) -> bool {
    let by_queue = config.queues.values().filter_map(|queue| queue.history);
    let keeps = !config.history.keep.is_zero()
        || by_queue
            .filter_map(|rule| rule.keep)
            .any(|keep| !keep.is_zero());
    keeps && !config.ephemeral
}

/// The last commit after which the log must be there when the store is opened.
pub(crate) fn keep_from(config: &Config) -> Option<u64> {
    let shelf = shelf(config).filter(|_| is_kept(config))?;
    Some(shelf.keep_from())
}

/// Answers questions about the history, at every daemon of a cluster.
pub(crate) fn book(config: &Config) -> Option<Book> {
    shelf(config).map(Book::new)
}

pub(crate) const fn limits(config: &Config) -> Limits {
    Limits {
        bytes_max: config.history.bytes_max.0,
        free_bytes_min: FREE_BYTES_MIN,
    }
}

/// Starts the thread that writes rows, if any are written. Checkpoints leave to it what it has not read of the log.
/// `tenure`: the daemon's right to a store in a database.
///
/// # Errors
///
/// The address of the database is wrong, or the thread cannot be started.
pub(crate) fn start(
    checkpointer: &mut Checkpointer,
    tenure: Option<&dyn Tenure>,
    config: &Config,
) -> Result<Option<Keeper>, Failure> {
    let Some(shelf) = shelf(config).filter(|_| is_kept(config)) else {
        return Ok(None);
    };
    let owner = Owner {
        store: checkpointer.store_id(),
        epoch: tenure.map(Tenure::epoch),
    };
    let writer = shelf.writer(owner);
    let writer = writer.map_err(|error| Failure::Runtime(error.to_string()))?;
    let read_to = Arc::new(AtomicU64::new(0));
    let log = checkpointer.log();
    let keeper = Keeper::start(writer, log, Arc::clone(&read_to), limits(config));
    let keeper = keeper.map_err(Failure::no_threads)?;
    checkpointer.keep_behind(read_to);
    Ok(Some(keeper))
}

/// Writes the rows in the log. Gives up if a database does not answer.
pub(crate) fn finish(keeper: Keeper, has_tenure: bool) {
    keeper.finish(has_tenure.then_some(REMOTE_PATIENCE));
}
