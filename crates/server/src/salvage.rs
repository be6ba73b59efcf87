//! Saving what can be read of a data directory the daemon does not start from.

use std::io::{BufWriter, Write};
use std::path::Path;

use windlass_store::{SledConfig, SledStore};

use crate::failure::Failure;

/// Writes every job and every schedule that can be read to `out`, a line of JSON each, and says in words how much that was.
///
/// # Errors
///
/// There is no such directory, a daemon has it, the store cannot be opened at all, or `out` takes no more.
pub fn salvage(data_dir: &Path, out: &mut dyn Write) -> Result<String, Failure> {
    if !data_dir.is_dir() {
        return Err(Failure::data(data_dir, "there is no such directory"));
    }
    let store = SledStore::open(SledConfig::new(data_dir)).map_err(|error| Failure::data(data_dir, error))?;
    let found = windlass_store::salvage(&store).map_err(|error| Failure::data(data_dir, error))?;
    let mut out = BufWriter::new(out);
    found
        .export(&mut out)
        .and_then(|()| out.flush())
        .map_err(|error| Failure::Runtime(format!("cannot write: {error}")))?;
    let damage: String = found.damaged.iter().map(|(key, why)| format!("\nvalue {key} lost: {why}")).collect();
    let (jobs, schedules, queues) = (found.jobs.len(), found.schedules.len(), found.queues.len());
    Ok(format!("{jobs} jobs of {queues} queues and {schedules} schedules from {} values{damage}", found.values))
}
