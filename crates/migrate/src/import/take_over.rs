//! Imports gearmand's SQLite queue at the start of `windlass gearmand`, before it listens. The operator has named the
//! file; a daemon that started empty would silently ignore the jobs in it.
//!
//! This is the import of `gearmand_sqlite`: it only reads the file, and does not import a row twice. Its output goes to
//! the log.

use std::path::Path;

use windlass_config::Failure;

use crate::intake::{self, Importer};

use super::gearmand_sqlite::{Counts, NOUNS, Queue, take_all, wait_for};
use super::report::Report;
use crate::configured::Configured;

/// The name of these lines in the log.
const TARGET: &str = "windlass::import::take_over";

/// How many of the rows that are left are logged.
const LINES_MAX: u32 = 100;

/// Imports the rows of this table in this file.
///
/// # Errors
/// The file is not a queue of gearmand, its folder does not exist, a process has it open, or the data directory cannot
/// be written to.
pub fn take_over(file: &Path, table: &str, config: &Configured) -> Result<(), Failure> {
    let shown = file.display();
    if !file.exists() {
        let folder = file
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            let folder = folder.display();
            return Err(Failure::Runtime(format!(
                "Error while initializing the queue: {folder}: no such folder"
            )));
        }
        tracing::info!(target: TARGET, file = %shown, "gearmand queue not found; nothing imported");
        return Ok(());
    }
    wait_for(file, config.server.server.in_use_timeout.into())?;
    let Some(queue) = Queue::find(file, table)? else {
        tracing::warn!(target: TARGET, file = %shown, table, "gearmand table not found; nothing imported");
        return Ok(());
    };
    let (source, rows) = queue.source()?;
    if rows == 0 {
        tracing::info!(target: TARGET, file = %shown, "gearmand's queue is empty; nothing imported");
        return Ok(());
    }
    if intake::was_taken(&config.server, &source, rows) {
        tracing::info!(target: TARGET, file = %shown, rows, "gearmand's queue was taken over before");
        return Ok(());
    }
    let gearman = config.gearman.settings(&config.daemon(&config.gearman)?)?;
    let importer = Importer::open(&config.server, &source, false)?;
    let mut lines = 0;
    let log = move |line: &str| {
        lines += 1;
        if lines <= LINES_MAX {
            tracing::warn!(target: TARGET, "{}", line.trim_end());
        }
        Ok(())
    };
    let mut report = Report::new(&NOUNS, false, Box::new(log));
    let Counts { later, .. } = take_all(&queue, &gearman, importer, &mut report)?;
    let Report {
        items: rows,
        taken,
        known,
        before,
        left,
        ..
    } = report;
    tracing::info!(target: TARGET, file = %shown, rows, taken, later, known, before, left, "imported gearmand's queue");
    if left > 0 {
        tracing::warn!(target: TARGET, file = %shown, left, "rows are left in gearmand's queue: the next start tries them again");
    }
    Ok(())
}
