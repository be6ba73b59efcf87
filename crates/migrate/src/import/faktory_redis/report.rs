//! The output of the import: a line for each job that is left, a line for each key, and a total.

use std::collections::BTreeMap;
use std::io::{self, Write};

use windlass_server::Failure;

use crate::import::report::{outcome, write_before};

use super::layout::{Entry, Layout, Source};

/// How many bytes are shown of a job without a name.
const SHOWN_BYTES: usize = 60;

/// Counts, by key and in total.
#[derive(Debug, Default)]
pub(super) struct Report {
    keys: BTreeMap<String, u64>,
    /// Jobs looked at.
    pub(super) jobs: u64,
    taken: u64,
    /// Jobs of an earlier import, and jobs whose names exist here already.
    pub(super) before: u64,
    pub(super) known: u64,
    /// Whether jobs of batches that do not exist here are imported without their batch, and how many were.
    pub(super) without_batches: bool,
    pub(super) outside: u64,
    /// Jobs, queues and keys that could not be imported.
    left: u64,
    /// Jobs removed from Redis.
    pub(super) removed: Option<u64>,
}

impl Report {
    pub(super) fn new(without_batches: bool) -> Self {
        Self { without_batches, ..Self::default() }
    }

    pub(super) fn took(&mut self, source: &Source) {
        self.taken += 1;
        *self.keys.entry(source.to_string()).or_default() += 1;
    }

    /// Prints at once why a job is left: there may be many. Names the job, or shows it if it has no name.
    pub(super) fn leave(
        &mut self,
        out: &mut dyn Write,
        entry: &Entry<'_>,
        jid: Option<&[u8]>,
        why: &str,
    ) -> io::Result<()> {
        self.left += 1;
        let Entry { source, number, text, .. } = entry;
        match jid {
            Some(jid) => writeln!(out, "{source}, job {number} left: jid \"{}\": {why}", jid.escape_ascii()),
            None => {
                let shown = text.get(..SHOWN_BYTES).unwrap_or(text).escape_ascii();
                writeln!(out, "{source}, job {number} left: `{shown}`: {why}")
            }
        }
    }

    pub(super) fn leave_queue(&mut self, out: &mut dyn Write, queue: &[u8], why: &str) -> io::Result<()> {
        self.left += 1;
        writeln!(out, "queue \"{}\" left: {why}", queue.escape_ascii())
    }

    /// Prints which parts of the database are not imported.
    pub(super) fn survey(&mut self, out: &mut dyn Write, layout: &Layout) -> io::Result<()> {
        for (key, is) in &layout.odd {
            self.left += 1;
            writeln!(out, "key \"{}\" left: it {is}", key.escape_ascii())?;
        }
        if layout.counters {
            writeln!(out, "not taken: Faktory's counters of jobs processed and failed; they begin anew")?;
        }
        for key in &layout.others {
            writeln!(out, "not taken: key \"{}\", which does not hold jobs of a Faktory", key.escape_ascii())?;
        }
        match layout.more_others {
            0 => Ok(()),
            more => writeln!(out, "not taken: {more} more such keys"),
        }
    }

    /// Prints the counts.
    pub(super) fn write(&self, out: &mut dyn Write, dry_run: bool) -> io::Result<()> {
        let taken = if dry_run { "would be taken" } else { "taken" };
        for (key, count) in &self.keys {
            writeln!(out, "{count} {taken}: {key}")?;
        }
        let Self { jobs, taken: count, known, before, .. } = self;
        writeln!(out, "{jobs} jobs: {count} {taken}")?;
        if self.outside > 0 {
            writeln!(out, "{} of these {taken} without their batches, which do not exist here", self.outside)?;
        }
        if *known > 0 {
            writeln!(out, "{known} here already, with the same jid")?;
        }
        write_before(out, *before, "jobs")?;
        self.removed.map_or(Ok(()), |removed| writeln!(out, "{removed} removed from Redis"))
    }

    /// The result that determines the exit code: all jobs imported, or not.
    pub(super) fn outcome(&self) -> Result<(), Failure> {
        outcome(self.left, "of them", "of them")
    }
}
