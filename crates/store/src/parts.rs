//! Opening a store from the two parts, wherever they are stored: the log supplies the commits after the
//! table's point.
//!
//! Not here: the files of these parts (`directory`).

use std::fmt::Display;
use std::sync::Arc;

use windlass_engine::Limits;

use crate::body_file::Overflow;
use crate::checkpoint::{Checkpointer, Start, StoreFigures, StoreLimits};
use crate::damage::{Damage, Loss, OpenError};
use crate::log::scan::ShowEntry;
use crate::page::{POINT_KEY, Point};
use crate::recover::{Recovered, Replay, Report, load_table};
use crate::store::{Log, LogTail, Scan, Table};

/// The contents of a table, and of the log after it as far as that was read.
///
/// A standby daemon can read both before it opens the store: see [`Found::of_table`] and [`Found::follow`].
pub struct Found {
    pub(crate) replay: Replay,
    pub(crate) point: Point,
    /// The valid candidate of the table.
    pub(crate) candidate: usize,
    /// The last commit that was read.
    last: u64,
}

impl Found {
    /// Reads a table of a store that may be in use. Bodies that do not fit into memory are stored as
    /// `overflow` specifies. The result may be used for opening only if it [is still current](Found::is_of).
    ///
    /// # Errors
    ///
    /// The table cannot be read, or is damaged.
    pub fn of_table(table: &dyn Scan, overflow: Option<&Overflow>) -> Result<Self, OpenError> {
        Self::of_table_at(table, "table", overflow)
    }

    fn of_table_at(
        table: &dyn Scan,
        place: impl Display,
        overflow: Option<&Overflow>,
    ) -> Result<Self, OpenError> {
        let (replay, point, candidate) = load_table(table, place, overflow)?;
        Ok(Self {
            replay,
            last: point.seq,
            point,
            candidate,
        })
    }

    /// Returns true if a table with this value of its [point](point_key) has the same records.
    pub fn is_of(&self, point: &[u8]) -> bool {
        self.point.encode() == point
    }

    /// Reads the commits after those that were read. The log may be in use, so the call can be repeated for
    /// further commits.
    ///
    /// # Errors
    ///
    /// The log cannot be read, or a commit is missing.
    pub fn follow(&mut self, tail: &dyn LogTail) -> Result<(), OpenError> {
        let Self { replay, last, .. } = self;
        *last = show_behind(
            tail,
            *last,
            &mut |entry, file| Ok(replay.take(entry, file)?),
        )?;
        Ok(())
    }

    /// Reads a table and the log after its point. `behind` receives the point and passes on every later
    /// commit in order. Also returns the result of `behind`.
    pub(crate) fn read<T>(
        table: &dyn Scan,
        place: impl Display,
        overflow: Option<&Overflow>,
        behind: impl FnOnce(&Point, &mut ShowEntry<'_>) -> Result<T, OpenError>,
    ) -> Result<(Self, T), OpenError> {
        let mut found = Self::of_table_at(table, place, overflow)?;
        let Self { replay, point, .. } = &mut found;
        let read = behind(point, &mut |entry, file| Ok(replay.take(entry, file)?))?;
        Ok((found, read))
    }

    /// Builds the engine and the checkpointer.
    pub(crate) fn open(
        self,
        table: Box<dyn Table>,
        tail: Arc<dyn LogTail>,
        checkpoints: &StoreLimits,
        limits: Limits,
        seed: u64,
    ) -> Result<(Checkpointer, Recovered), OpenError> {
        let Self {
            replay,
            point,
            candidate,
            ..
        } = self;
        let mut recovered = replay.build(limits, seed, tail.newest())?;
        recovered.report.table_seq = point.seq;
        let (start, figures) = (
            Start { point, candidate },
            Arc::new(StoreFigures::default()),
        );
        Ok((
            Checkpointer::new(table, tail, checkpoints.clone(), start, figures),
            recovered,
        ))
    }
}

/// The key of a table's point. The value is different after each checkpoint.
pub const fn point_key() -> &'static [u8] {
    POINT_KEY
}

/// The key and the value that a new table must contain: the point of an empty log.
pub fn new_table() -> (&'static [u8], Vec<u8>) {
    (POINT_KEY, Point::start(0).encode())
}

/// Opens a store from its parts. `seed` keys the engine's hash tables.
///
/// # Errors
///
/// A part cannot be read, or required data is missing.
pub fn open_parts(
    log: &dyn Log,
    table: Box<dyn Table>,
    checkpoints: &StoreLimits,
    limits: Limits,
    seed: u64,
) -> Result<(Checkpointer, Recovered), OpenError> {
    let found = Found::of_table(&*table.scan()?, checkpoints.overflow.as_ref())?;
    open_found(found, log, table, checkpoints, limits, seed)
}

/// The same for a table that was already read.
///
/// # Errors
///
/// The log cannot be read, or required data is missing.
pub fn open_found(
    mut found: Found,
    log: &dyn Log,
    table: Box<dyn Table>,
    checkpoints: &StoreLimits,
    limits: Limits,
    seed: u64,
) -> Result<(Checkpointer, Recovered), OpenError> {
    let tail = log.tail();
    found.follow(&*tail)?;
    found.open(table, tail, checkpoints, limits, seed)
}

/// Reads a store's parts as a start of the daemon would, without modifying them.
///
/// # Errors
///
/// The reason why the daemon would not start.
pub fn verify_parts(
    tail: &dyn LogTail,
    table: &dyn Scan,
    overflow: Option<&Overflow>,
    limits: Limits,
) -> Result<Report, OpenError> {
    let mut found = Found::of_table(table, overflow)?;
    found.follow(tail)?;
    let mut report = found
        .replay
        .build(limits, 0, tail.newest().max(found.point.seq))?
        .report;
    report.table_seq = found.point.seq;
    Ok(report)
}

/// Shows the commits after `after`, all of which must exist. Returns the last one.
fn show_behind(tail: &dyn LogTail, after: u64, show: &mut ShowEntry<'_>) -> Result<u64, OpenError> {
    // A log in use may get more commits while it is read.
    let newest = tail.newest().max(after);
    let (mut last, mut shown) = (after, Ok(()));
    tail.read(after, &mut |entry| {
        shown = if entry.seq == last + 1 {
            show(entry, None)
        } else {
            Err(missing(last + 1, entry.seq - 1))
        };
        last = entry.seq;
        if shown.is_ok() {
            std::ops::ControlFlow::Continue(())
        } else {
            std::ops::ControlFlow::Break(())
        }
    })?;
    shown?;
    if last >= newest {
        Ok(last)
    } else {
        Err(missing(last + 1, newest))
    }
}

fn missing(first: u64, last: u64) -> OpenError {
    Damage {
        place: "log".to_owned(),
        what: "commits are missing".to_owned(),
        loss: Some(Loss { first, last }),
    }
    .into()
}
