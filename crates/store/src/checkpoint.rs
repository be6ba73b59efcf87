//! Checkpoints: copy live records from a range of the log to the table, so that the log may drop the range.
//!
//! A checkpoint does not use the engine or the engine's lock, and delays no acknowledgement. The steps, and
//! the state after a power cut or an error in each of them:
//!
//! 1. *Read* the log after the table's point and keep the latest record of each subject. Nothing is modified.
//! 2. *Remove* the keys that the previous checkpoint left behind. They belong to no point that the log could
//!    return to.
//! 3. *Write* pieces and pages of the next generation. The table is still at the old point: pages of the next
//!    generation are replaced in the census by the pages they overwrote, and processing the log again gives
//!    the same pages.
//! 4. *Sync* them, write the *point*, and sync that. Before the last sync either point may be on the disk;
//!    both are valid.
//! 5. The log *drops* commits before the **old** point. If the new point cannot be read at the next start,
//!    the table is still at the old one, and the log has all commits since then. For a table [that is
//!    atomic](Table::is_atomic) the log may drop commits up to the new point.
//!
//! A table that another process wrote is never opened for writing. The first checkpoint of a process builds a
//! new table from the old one and the log; it replaces the old one when it is complete and durable. A
//! checkpoint also builds a new table when the table is too large for its live records, and while a
//! [`Picture`] of the present table is being read.

use std::iter::Peekable;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use self::merge::{Fetch, Records, damaged, merge, older};
use crate::body_file::Overflow;
use crate::digest::{Digest, Update};
use crate::page::{Key, Large, POINT_KEY, Page, Point, seal_page};
use crate::picture::Picture;
use crate::store::{Error, LogTail, Scan, Table};

mod merge;

/// Minimum bytes of log for a checkpoint.
const AT_ONCE_BYTES: u64 = 64 << 20;

/// When checkpoints are made, and the resources for opening a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// A checkpoint is due with this many bytes of log after the table's point.
    pub log_bytes: u64,
    /// The newest bytes of log, left for the next checkpoint, because many of the jobs in them
    /// finish soon.
    pub keep_bytes: u64,
    /// The table is rebuilt when it is larger than this, in bytes …
    pub table_floor_bytes: u64,
    /// … and larger than this multiple of the live records.
    pub table_multiple: u64,
    /// The place for bodies that do not fit into memory while the store is opened; `None`: all fit.
    pub overflow: Option<Overflow>,
    /// The log keeps all commits after this one when the store is opened, because the history has not read them.
    pub keep_from: Option<u64>,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            log_bytes: 64 << 20,
            keep_bytes: 16 << 20,
            table_floor_bytes: 32 << 20,
            table_multiple: 2,
            overflow: None,
            keep_from: None,
        }
    }
}

/// Figures of a store, for monitoring. Shared with the checkpoint thread.
#[derive(Debug, Default)]
pub struct StoreFigures {
    /// Completed checkpoints.
    pub checkpoints: AtomicU64,
    /// Checkpoints that rebuilt the table.
    pub rebuilds: AtomicU64,
    /// The last commit in the table.
    pub point: AtomicU64,
    /// Full records in the table.
    pub records: AtomicU64,
    /// Bytes of records in the table.
    pub live_bytes: AtomicU64,
    /// Bytes of the table on disk.
    pub table_bytes: AtomicU64,
    /// Bytes of the log on disk.
    pub log_bytes: AtomicU64,
    /// Bytes of log after the point with which the next checkpoint is due, about.
    pub due_bytes: AtomicU64,
}

/// Makes checkpoints. Used by a single thread.
pub struct Checkpointer {
    table: Box<dyn Table>,
    tail: Arc<dyn LogTail>,
    limits: StoreLimits,
    point: Point,
    /// The valid candidate of a table that another process wrote.
    candidate: usize,
    /// Records and bytes of the table as it is; an unfinished checkpoint may have changed them.
    held: Held,
    /// Keys to remove at the start of the next checkpoint, and of the one after it.
    garbage: Vec<Vec<u8>>,
    garbage_next: Vec<Vec<u8>>,
    /// The log has dropped commits up to here, as far as known.
    forgotten: u64,
    /// Rebuild the table whatever the size.
    wants_rebuild: bool,
    /// Present while a picture of the present table is being read.
    pin: Weak<()>,
    /// The log keeps the commits after this one: the history has not read them.
    read_to: Arc<AtomicU64>,
    /// Bytes of living jobs, about.
    living: Box<dyn Fn() -> u64 + Send>,
    figures: Arc<StoreFigures>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    records: u64,
    bytes: u64,
}

/// Where checkpoints continue: the result of opening a store.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) point: Point,
    pub(crate) candidate: usize,
}

impl Checkpointer {
    pub(crate) fn new(
        table: Box<dyn Table>,
        tail: Arc<dyn LogTail>,
        limits: StoreLimits,
        start: Start,
        figures: Arc<StoreFigures>,
    ) -> Self {
        let Start { point, candidate } = start;
        let held = Held {
            records: point.records,
            bytes: point.bytes,
        };
        let (garbage, garbage_next) = (Vec::new(), Vec::new());
        let keep_from = limits.keep_from.unwrap_or(u64::MAX);
        let made = Self {
            table,
            tail,
            limits,
            point,
            candidate,
            held,
            garbage,
            garbage_next,
            forgotten: point.before,
            wants_rebuild: false,
            pin: Weak::new(),
            read_to: Arc::new(AtomicU64::new(keep_from)),
            living: Box::new(|| u64::MAX),
            figures,
        };
        made.publish_figures();
        made
    }

    /// Sets the estimator for the size of a rebuilt table, in bytes. Default: the size of the current one.
    #[must_use]
    pub fn estimated_by(self, living: impl Fn() -> u64 + Send + 'static) -> Self {
        Self {
            living: Box::new(living),
            ..self
        }
    }

    /// Which store this is: two stores have different numbers. Their commits are not the same.
    pub const fn store_id(&self) -> u64 {
        self.point.log
    }

    /// From now on the log keeps all commits after the number in here, which another thread reads from
    /// [`Checkpointer::log`].
    pub fn keep_behind(&mut self, read_to: Arc<AtomicU64>) {
        self.read_to = read_to;
    }

    /// The log, for another thread.
    pub fn log(&self) -> Arc<dyn LogTail> {
        Arc::clone(&self.tail)
    }

    /// The log, for reading.
    pub fn tail(&self) -> &dyn LogTail {
        &*self.tail
    }

    /// The figures of the store.
    pub fn figures(&self) -> Arc<StoreFigures> {
        Arc::clone(&self.figures)
    }

    /// Returns true if a checkpoint is due by the bytes appended since the last one, without those left for
    /// the next.
    pub fn is_due(&self) -> bool {
        let behind = self.tail.bytes_behind(self.point.seq);
        let is_worth_it = || self.table.is_writable() || behind >= self.rebuild_worth();
        let is_much = || behind >= self.limits.log_bytes && is_worth_it();
        self.wants_rebuild
            || is_much() && self.tail.behind_bytes(self.limits.keep_bytes) > self.point.seq
    }

    /// The bytes of log that justify writing a new table: the size of the table or a gigabyte, whichever is
    /// smaller, but at least a quarter of the table. A start therefore does not write a large table for a
    /// small backlog.
    fn rebuild_worth(&self) -> u64 {
        let table = self.table.disk_bytes().min((self.living)());
        table.min((table / 4).max(1 << 30))
    }

    /// Returns true if a checkpoint is worthwhile while the daemon is idle.
    pub fn is_worth_while(&self) -> bool {
        let behind = self.tail.bytes_behind(self.point.seq);
        // Rebuilding a table for very few changes costs more than it saves.
        behind > 0
            && (self.table.is_writable() && !self.is_pinned() || behind >= self.rebuild_worth())
    }

    /// Whether the log still keeps commits that the last checkpoint put into the table. One more checkpoint lets the
    /// log forget them, even if nothing was committed since.
    pub fn holds_back(&self) -> bool {
        self.forgotten < self.forgettable(self.point.seq)
    }

    /// The newest commit up to this one that nobody needs.
    fn forgettable(&self, upto: u64) -> u64 {
        upto.min(self.read_to.load(Ordering::Acquire))
    }

    /// Makes the next checkpoint rebuild the table at the smallest size.
    pub fn ask_for_rebuild(&mut self) {
        self.wants_rebuild = true;
    }

    /// Makes a checkpoint of the log after the table's point: with `all` of the full log, otherwise without
    /// the newest part. Of a very long log it processes only a part. Returns `true` if the table's point has
    /// advanced.
    ///
    /// # Errors
    ///
    /// The table or the log cannot be read or written. No data is lost, and the next checkpoint repeats the
    /// work.
    pub fn run(&mut self, all: bool) -> Result<bool, Error> {
        let newest = if all {
            self.tail.newest()
        } else {
            self.tail.behind_bytes(self.limits.keep_bytes)
        };
        let newest = newest.min(self.most_at_once());
        let upto = if self.wants_rebuild {
            newest.max(self.point.seq)
        } else {
            newest
        };
        let forgets = all && self.holds_back();
        if upto <= self.point.seq && !self.wants_rebuild && !forgets {
            return Ok(false);
        }
        let made = self.make(upto);
        if made.is_err() {
            self.table.abandon();
        }
        made.map(|()| true)
    }

    /// The last commit that a checkpoint includes, because it needs memory for each record.
    fn most_at_once(&self) -> u64 {
        let most = AT_ONCE_BYTES.max(2 * self.limits.log_bytes);
        let rest = self.tail.bytes_behind(self.point.seq).saturating_sub(most);
        let upto = if rest > 0 {
            self.tail.behind_bytes(rest)
        } else {
            0
        };
        if upto > self.point.seq {
            upto
        } else {
            u64::MAX
        }
    }

    /// Makes a checkpoint of everything durable, and returns the contents of the store at that commit.
    /// Subsequent checkpoints do not modify them.
    ///
    /// # Errors
    ///
    /// As [`Checkpointer::run`].
    pub fn picture(&mut self) -> Result<Picture, Error> {
        let newest = self.tail.newest();
        // A table that another process wrote may have pages of a checkpoint that did not end.
        self.wants_rebuild |= !self.table.is_writable();
        while (self.point.seq < newest || self.wants_rebuild) && self.run(true)? {}
        let pin = self.pin.upgrade().unwrap_or_default();
        self.pin = Arc::downgrade(&pin);
        Ok(Picture {
            scan: self.table.scan()?,
            point: self.point,
            _pin: pin,
        })
    }

    /// Returns true if a picture of the present table is read.
    fn is_pinned(&self) -> bool {
        self.pin.strong_count() > 0
    }

    fn make(&mut self, upto: u64) -> Result<(), Error> {
        let digest = Digest::read(&*self.tail, self.point.seq, upto, self.point.next_job)?;
        let rebuild = self.wants_rebuild
            || self.is_pinned()
            || !self.table.is_writable()
            || self.is_bloated();
        let point = if rebuild {
            self.rebuild(&digest)?
        } else {
            self.update(&digest)?
        };
        let before = std::mem::replace(&mut self.point, point);
        (self.candidate, self.wants_rebuild) = (0, false);
        if rebuild {
            self.pin = Weak::new();
        }
        self.garbage = std::mem::take(&mut self.garbage_next);
        self.figures.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.figures
            .rebuilds
            .fetch_add(rebuild.into(), Ordering::Relaxed);
        let needless = if self.table.is_atomic() {
            self.point.seq
        } else {
            before.seq
        };
        let needless = self.forgettable(needless);
        self.tail.forget(needless)?;
        self.forgotten = needless;
        self.publish_figures();
        Ok(())
    }

    fn is_bloated(&self) -> bool {
        let (bytes, limits) = (self.table.disk_bytes(), &self.limits);
        bytes > limits.table_floor_bytes
            && bytes > limits.table_multiple.saturating_mul(self.held.bytes)
    }

    fn publish_figures(&self) {
        let figures = &self.figures;
        let set = |figure: &AtomicU64, value| figure.store(value, Ordering::Relaxed);
        set(&figures.point, self.point.seq);
        set(&figures.records, self.point.records);
        set(&figures.live_bytes, self.point.bytes);
        set(&figures.table_bytes, self.table.disk_bytes());
        set(&figures.log_bytes, self.tail.disk_bytes());
        let worth = if self.table.is_writable() {
            0
        } else {
            self.rebuild_worth()
        };
        set(&figures.due_bytes, self.limits.log_bytes.max(worth));
    }

    // ---- pages changed in place -------------------------------------------------------------------------------------

    fn update(&mut self, digest: &Digest) -> Result<Point, Error> {
        for key in std::mem::take(&mut self.garbage) {
            self.table.remove(&key)?;
        }
        let mut census = self.point.census;
        let mut records = Records::of(&*self.tail, digest);
        for (key, updates) in digest.pages() {
            let old = self.table.get(&key)?;
            let old_page = match &old {
                Some(value) => Page::open(&key, value).map_err(|why| damaged(&key, &why))?,
                None => Page::NONE,
            };
            let mut fetch = Fetch {
                records: &mut records,
                table: &mut *self.table,
            };
            let merged = merge(&key, old_page.items, &updates, &mut fetch)?;
            self.garbage_next
                .extend(merged.dropped.into_iter().flat_map(Large::keys));
            if merged.items == old_page.items {
                continue;
            }
            let replaced = old_page.weight_at(self.point.generation);
            let (value, weight) =
                seal_page(&key, self.point.generation + 1, replaced, &merged.items);
            self.table.set(&key, &value)?;
            self.held.records = self
                .held
                .records
                .wrapping_add(merged.records.wrapping_sub(merged.records_before));
            self.held.bytes = self
                .held
                .bytes
                .wrapping_add(merged.bytes.wrapping_sub(merged.bytes_before));
            if merged.items.is_empty() {
                self.garbage_next.push(key);
            }
            census = census.wrapping_add(weight).wrapping_sub(replaced);
        }
        self.table.sync()?;
        let point = self.next_point(digest, census);
        self.table.set(POINT_KEY, &point.encode())?;
        self.table.sync()?;
        Ok(point)
    }

    fn next_point(&self, digest: &Digest, census: u64) -> Point {
        Point {
            generation: self.point.generation + 1,
            seq: digest.seq,
            log: self.point.log,
            census,
            next_job: digest.next_job.unwrap_or(self.point.next_job),
            records: self.held.records,
            bytes: self.held.bytes,
            before: self.point.seq,
        }
    }

    // ---- rebuilding the table
    // ----------------------------------------------------------------------------------------

    fn rebuild(&mut self, digest: &Digest) -> Result<Point, Error> {
        let scan = self.table.scan()?;
        let mut candidate = self.candidate;
        let (census, held) = loop {
            self.table.begin_anew()?;
            let mut records = Records::of(&*self.tail, digest);
            let pages: Pages<'_> = Box::new(digest.pages());
            let mut build = Build {
                fetch: Fetch {
                    records: &mut records,
                    table: &mut *self.table,
                },
                updates: pages.peekable(),
                generation: self.point.generation + 1,
                old: self.point,
                old_census: 0,
                census: 0,
                held: Held::default(),
                keep: Vec::new(),
            };
            let built = build.from(&*scan, candidate)?;
            if built && build.old_census == self.point.census {
                break (build.census, build.held);
            }
            if !built {
                let what = "the table has changed since it was opened".to_owned();
                return Err(Error::damaged("table", what));
            }
            candidate = candidate.wrapping_add(1);
        };
        let held_before = std::mem::replace(&mut self.held, held);
        let point = self.next_point(digest, census);
        let placed = self
            .table
            .set(POINT_KEY, &point.encode())
            .and_then(|()| self.table.sync())
            .and_then(|()| self.table.end_anew());
        if let Err(why) = placed {
            self.held = held_before;
            return Err(why);
        }
        (self.garbage, self.garbage_next) = (Vec::new(), Vec::new());
        Ok(point)
    }
}

impl std::fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpointer")
            .field("point", &self.point)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

type Pages<'a> = Box<dyn Iterator<Item = (Vec<u8>, Vec<Update>)> + 'a>;

/// Merges the old table and the updates, in order of keys.
struct Build<'a, 'b> {
    fetch: Fetch<'a, 'b>,
    updates: Peekable<Pages<'a>>,
    generation: u64,
    /// The old table's point, and the census so far.
    old: Point,
    old_census: u64,
    census: u64,
    held: Held,
    /// Large records of the last page read, which stay.
    keep: Vec<Large>,
}

impl Build<'_, '_> {
    /// Returns `true` if this candidate exists.
    fn from(&mut self, scan: &dyn Scan, candidate: usize) -> Result<bool, Error> {
        let mut failed = Ok(());
        let there = scan.each(
            candidate,
            &mut |key, value, _| match self.take(key, value) {
                Ok(()) => ControlFlow::Continue(()),
                Err(why) => {
                    failed = Err(why);
                    ControlFlow::Break(())
                }
            },
        )?;
        failed?;
        self.new_pages(None)?;
        Ok(there)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        match Key::of(key) {
            Key::Page => {
                self.new_pages(Some(key))?;
                let page = Page::open(key, value).map_err(|why| damaged(key, &why))?;
                self.old_census = self
                    .old_census
                    .wrapping_add(page.weight_at(self.old.generation));
                let is_unfinished = page.generation > self.old.generation;
                let older = if is_unfinished {
                    Some(older(key, page.items, self.old.next_job)?)
                } else {
                    None
                };
                let updates = self
                    .updates
                    .next_if(|(first, _)| first == key)
                    .map_or_else(Vec::new, |(_, updates)| updates);
                self.page(key, older.as_deref().unwrap_or(page.items), &updates)
            }
            Key::Piece { number, place, .. } => {
                let stays = self
                    .keep
                    .iter()
                    .any(|large| (large.number, large.place) == (number, place));
                if stays {
                    self.fetch.table.set(key, value)
                } else {
                    Ok(())
                }
            }
            Key::Point | Key::Unknown => Ok(()),
        }
    }

    /// Writes the pages before this one that the old table lacks.
    fn new_pages(&mut self, before: Option<&[u8]>) -> Result<(), Error> {
        let is_before = |key: &[u8]| before.is_none_or(|end| key < end);
        while let Some((key, updates)) = self.updates.next_if(|(key, _)| is_before(key)) {
            self.page(&key, &[], &updates)?;
        }
        Ok(())
    }

    fn page(&mut self, key: &[u8], old: &[u8], updates: &[Update]) -> Result<(), Error> {
        let merged = merge(key, old, updates, &mut self.fetch)?;
        self.keep = merged.kept;
        if merged.items.is_empty() {
            return Ok(());
        }
        let (value, weight) = seal_page(key, self.generation, 0, &merged.items);
        self.fetch.table.set(key, &value)?;
        self.census = self.census.wrapping_add(weight);
        self.held.records += merged.records;
        self.held.bytes += merged.bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
