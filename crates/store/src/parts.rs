//! Opening a store from its two parts, wherever they are stored: the log supplies the commits after the table's point.
//!
//! Not here: the files they are in (`directory`).

use std::fmt::{self, Display};
use std::sync::Arc;

use windlass_engine::Limits;

use crate::checkpoint::{CheckpointLimits, Checkpointer, Start, StoreFigures};
use crate::damage::{Damage, Loss, OpenError};
use crate::page::{POINT_KEY, Point};
use crate::recover::{Recovered, Replay, Report, load_table};
use crate::store::{Entry, Log, LogTail, Scan, Table};

/// Receives a commit that is read back.
pub(crate) type ShowEntry<'a> = dyn FnMut(&Entry<'_>) -> Result<(), OpenError> + 'a;

/// The contents of a table, and of the log after it as far as that was read.
///
/// A table can be read before its store is opened, by a daemon that stands by: see [`Found::of_table`].
pub struct Found {
    pub(crate) replay: Replay,
    pub(crate) point: Point,
    /// Which candidate of the table is right.
    pub(crate) candidate: usize,
}

impl Found {
    /// Reads a table whose store may be in use. It counts for the opening only if it [is still the
    /// same](Found::is_of).
    ///
    /// # Errors
    ///
    /// The table cannot be read, or is damaged.
    pub fn of_table(table: &dyn Scan) -> Result<Self, OpenError> {
        Self::of_table_at(table, "table")
    }

    fn of_table_at(table: &dyn Scan, place: impl Display) -> Result<Self, OpenError> {
        let (replay, point, candidate) = load_table(table, place)?;
        Ok(Self { replay, point, candidate })
    }

    /// Whether a table with this value of its [point](point_key) has the same records.
    #[must_use]
    pub fn is_of(&self, point: &[u8]) -> bool {
        self.point.encode() == point
    }

    /// Reads a table and the log after its point. `behind` receives the point and shows every later commit in order.
    /// Also returns what `behind` returned.
    pub(crate) fn read<T>(
        table: &dyn Scan,
        place: impl Display,
        behind: impl FnOnce(&Point, &mut ShowEntry<'_>) -> Result<T, OpenError>,
    ) -> Result<(Self, T), OpenError> {
        Self::of_table_at(table, place)?.and_behind(behind)
    }

    /// Reads the log after the table's point.
    fn and_behind<T>(
        mut self,
        behind: impl FnOnce(&Point, &mut ShowEntry<'_>) -> Result<T, OpenError>,
    ) -> Result<(Self, T), OpenError> {
        let read = behind(&self.point, &mut |entry| Ok(self.replay.take(entry)?))?;
        Ok((self, read))
    }

    /// Builds the engine and the checkpointer.
    pub(crate) fn open(
        self,
        table: Box<dyn Table>,
        tail: Arc<dyn LogTail>,
        checkpoints: &CheckpointLimits,
        limits: Limits,
        seed: u64,
    ) -> Result<(Checkpointer, Recovered), OpenError> {
        let Self { replay, point, candidate } = self;
        let mut recovered = replay.build(limits, seed, tail.newest())?;
        recovered.report.table_seq = point.seq;
        let (start, figures) = (Start { point, candidate }, Arc::new(StoreFigures::default()));
        Ok((Checkpointer::new(table, tail, checkpoints.clone(), start, figures), recovered))
    }
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Found").field("point", &self.point).finish_non_exhaustive()
    }
}

/// The key of a table's point: its value changes with each checkpoint.
#[must_use]
pub const fn point_key() -> &'static [u8] {
    POINT_KEY
}

/// The key and the value that a new table must hold: the point of an empty log.
#[must_use]
pub fn new_table() -> (&'static [u8], Vec<u8>) {
    (POINT_KEY, Point::start(0).encode())
}

/// Opens a store from its parts. `seed` keys the engine's hash tables.
///
/// # Errors
///
/// If a part cannot be read, and if required data is missing.
pub fn open_parts(
    log: &dyn Log,
    table: Box<dyn Table>,
    checkpoints: &CheckpointLimits,
    limits: Limits,
    seed: u64,
) -> Result<(Checkpointer, Recovered), OpenError> {
    let found = Found::of_table(&*table.scan()?)?;
    open_found(found, log, table, checkpoints, limits, seed)
}

/// The same for a table that was read before.
///
/// # Errors
///
/// If the log cannot be read, and if required data is missing.
pub fn open_found(
    found: Found,
    log: &dyn Log,
    table: Box<dyn Table>,
    checkpoints: &CheckpointLimits,
    limits: Limits,
    seed: u64,
) -> Result<(Checkpointer, Recovered), OpenError> {
    let tail = log.tail();
    let (found, ()) = found.and_behind(|point, show| show_behind(&*tail, point.seq, show))?;
    found.open(table, tail, checkpoints, limits, seed)
}

/// Reads a store's parts as a start of the daemon would, and changes nothing.
///
/// # Errors
///
/// The reason why the daemon would not start.
pub fn verify_parts(tail: &dyn LogTail, table: &dyn Scan, limits: Limits) -> Result<Report, OpenError> {
    let (found, ()) = Found::of_table(table)?.and_behind(|point, show| show_behind(tail, point.seq, show))?;
    let mut report = found.replay.build(limits, 0, tail.newest().max(found.point.seq))?.report;
    report.table_seq = found.point.seq;
    Ok(report)
}

/// Shows the commits after `after`, all of which must exist.
fn show_behind(tail: &dyn LogTail, after: u64, show: &mut ShowEntry<'_>) -> Result<(), OpenError> {
    let (mut last, mut shown) = (after, Ok(()));
    tail.read(after, &mut |entry| {
        shown = if entry.seq == last + 1 { show(entry) } else { Err(missing(last + 1, entry.seq - 1)) };
        last = entry.seq;
        if shown.is_ok() { std::ops::ControlFlow::Continue(()) } else { std::ops::ControlFlow::Break(()) }
    })?;
    shown?;
    let newest = tail.newest().max(after);
    if last == newest { Ok(()) } else { Err(missing(last + 1, newest)) }
}

fn missing(first: u64, last: u64) -> OpenError {
    Damage { place: "log".to_owned(), what: "commits are missing".to_owned(), loss: Some(Loss { first, last }) }.into()
}
