//! The output of an import of gearmand's jobs: a line for each job that is left, a line for each function, and a total.

use std::collections::BTreeMap;
use std::io::{self, Write};

use bytes::Bytes;
use windlass_server::Failure;

use super::report::{outcome, write_before};

/// Counts, by function and in total.
#[derive(Debug, Default)]
pub(super) struct Report {
    functions: BTreeMap<Bytes, u64>,
    /// Jobs looked at.
    pub(super) rows: u64,
    /// Jobs that are queued now.
    pub(super) taken: u64,
    /// Of these, jobs that run later.
    pub(super) later: u64,
    /// Of these, jobs without a unique id.
    pub(super) nameless: u64,
    /// Jobs that the data directory has already, by function and unique id.
    pub(super) known: u64,
    /// Jobs that an earlier import of the same source took.
    pub(super) before: u64,
    /// Jobs that could not be imported.
    pub(super) left: u64,
}

impl Report {
    pub(super) fn took(&mut self, function: &Bytes) {
        self.taken += 1;
        *self.functions.entry(function.clone()).or_default() += 1;
    }

    /// Prints at once why a job is left: there may be many.
    pub(super) fn leave(
        &mut self,
        out: &mut dyn Write,
        row: i64,
        function: &[u8],
        unique: &[u8],
        why: &str,
    ) -> io::Result<()> {
        self.left += 1;
        let (function, unique) = (function.escape_ascii(), unique.escape_ascii());
        writeln!(out, "row {row} left: function \"{function}\", unique id \"{unique}\": {why}")
    }

    /// Prints the counts.
    pub(super) fn write(&self, out: &mut dyn Write, dry_run: bool) -> io::Result<()> {
        let taken = if dry_run { "would be taken" } else { "taken" };
        for (function, count) in &self.functions {
            writeln!(out, "{count} {taken}: function \"{}\"", function.escape_ascii())?;
        }
        let Self { rows, taken: count, later, nameless, known, before, .. } = self;
        writeln!(out, "{rows} rows: {count} {taken} ({later} to run later, {nameless} without a unique id)")?;
        if *known > 0 {
            writeln!(out, "{known} queued already, with the same function and unique id")?;
        }
        write_before(out, *before, "rows")
    }

    /// The result that determines the exit code: all rows imported, or not.
    pub(super) fn outcome(&self) -> Result<(), Failure> {
        outcome(self.left, "row", "rows")
    }
}
