//! Examines a store that recovery refuses, and reads as much of it as possible. Nothing is written to the store.
//!
//! Not here: export as lines of JSON (`export`).
//!
//! No part relies on another part. Damaged entries and pages are skipped. The table takes precedence over commits of
//! the log before the table's point. A job whose end was lost may appear although it had ended: the reader of the
//! export decides.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use windlass_engine::{
    Batch, DAYS_KEPT, DayBegin, Engine, Job, JobId, Limits, Protocols, QueueId, QueueImage, Schedule,
};

use self::unnamed::{UNNAMED, unnamed_queue};
use crate::codec::Reader;
use crate::damage::OpenError;
use crate::directory::{self, LOG, Read, STORE, StoreConfig};
use crate::files::Lock;
use crate::load::{Loaded, load};
use crate::log::entry::LogId;
use crate::log::records;
use crate::log::scan::scan_loosely;
use crate::page::{Item, Key, Large, Page, Point, items};
use crate::record::{MetaRecord, Record};
use crate::recover::{Report, repaired};
use crate::sled_file::SledFile;
use crate::store::{Error, Scan, Table as _};
use crate::table::sled::{DB, SledTable};

pub(crate) mod unnamed;

/// Reads a store as a start of the daemon would, and changes nothing.
///
/// # Errors
///
/// The reason why the daemon would not start.
pub fn verify(config: &StoreConfig, limits: Limits) -> Result<Report, OpenError> {
    let _lock = Lock::look(&config.path)?;
    let Read { found, scanned, .. } = directory::read(config, &config.path.join(STORE))?;
    let mut report = found.replay.build(limits, 0, scanned.last.0)?.report;
    (report.table_seq, report.torn, report.harmless) = (found.point.seq, scanned.torn, scanned.harmless);
    Ok(report)
}

/// The queues of a store, as a start of the daemon would find them; none where there is no store yet.
///
/// # Errors
///
/// The reason why the daemon would not start.
pub fn queues(config: &StoreConfig) -> Result<Vec<QueueImage>, OpenError> {
    let lock = Lock::look(&config.path)?;
    let store = config.path.join(STORE);
    if !store.exists() && !lock.had_store {
        return Ok(Vec::new());
    }
    Ok(directory::read(config, &store)?.found.replay.into_queues())
}

/// Reads a store as a start of the daemon would.
fn read_strictly(config: &StoreConfig, store: &Path) -> Result<(), OpenError> {
    let Read { found, scanned, .. } = directory::read(config, store)?;
    found.replay.build(Limits::default(), 0, scanned.last.0)?;
    Ok(())
}

/// How far a table has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reached {
    /// It holds all commits up to this one.
    Whole(u64),
    /// It is damaged. Its readable pages are of this commit of this log, or of later ones.
    AtLeast { seq: u64, log: u64 },
    /// Unknown.
    Unknown,
}

/// The salvaged data, and the losses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Salvage {
    /// Jobs by number, in their last state.
    pub jobs: BTreeMap<JobId, Job>,
    /// Schedules by number, in their last state.
    pub schedules: BTreeMap<JobId, Schedule>,
    /// Batches by number, in their last state.
    pub batches: BTreeMap<JobId, Batch>,
    /// Queues by number.
    pub queues: BTreeMap<QueueId, QueueImage>,
    /// The beginnings of days, by number modulo [`DAYS_KEPT`].
    pub days: BTreeMap<u64, DayBegin>,
    /// The last commit that was read.
    pub commit: u64,
    /// Commits of the log that were read.
    pub commits: u64,
    /// Commits of the log that should exist and were not read.
    pub commits_missing: u64,
    /// The parts that could not be read, and why.
    pub unreadable: Vec<String>,
    meta: Option<MetaRecord>,
    /// Deleted queues. One of them may be the only source of the name of a job's queue.
    gone: BTreeSet<QueueId>,
}

/// The readable pages of a table. Of each page the last existing version counts.
#[derive(Default)]
struct Pages {
    /// The last existing point.
    point: Option<Point>,
    pages: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
    pieces: Pieces,
}

/// Pieces of large records, by number and place.
type Pieces = BTreeMap<(u64, u64), BTreeMap<u32, Vec<u8>>>;

impl Pages {
    /// Notes a value, if it can be read.
    fn see(&mut self, key: &[u8], value: &[u8]) {
        match Key::of(key) {
            Key::Page => {
                if let Ok(page) = Page::open(key, value)
                    && self.pages.get(key).is_none_or(|(generation, _)| *generation <= page.generation)
                {
                    self.pages.insert(key.to_vec(), (page.generation, page.items.to_vec()));
                }
            }
            Key::Piece { number, place, n } => {
                self.pieces.entry((number, place)).or_default().insert(n, value.to_vec());
            }
            Key::Point => {
                let last = Point::decode(value).ok().into_iter().chain(self.point);
                self.point = last.max_by_key(|point| point.generation);
            }
            Key::Unknown => {}
        }
    }
}

/// The records of a commit, as far as they can be read.
fn records_of(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    records(bytes).map_while(Result::ok).map(|(_, record)| record)
}

/// Reads as much as possible of a data directory, and changes nothing in it.
///
/// # Errors
///
/// If a daemon holds the directory, or it contains no store.
pub fn salvage(config: &StoreConfig) -> Result<Salvage, Error> {
    let _lock = Lock::look(&config.path)?;
    Ok(Salvage::of(config))
}

/// Creates a store from the readable part of this one, which is set aside. Returns the salvaged data, and the path of
/// the old store.
///
/// # Errors
///
/// If a daemon holds the directory, or the new store cannot be created.
pub fn accept_loss(config: &StoreConfig, limits: Limits, seed: u64) -> Result<(Salvage, PathBuf), OpenError> {
    let mut lock = Lock::take(&config.path)?;
    let found = Salvage::of(config);
    let engine: Engine = repaired(&found, limits, seed);
    let aside = directory::replace(config, &engine, seed)?;
    lock.has_store()?;
    Ok((found, aside))
}

impl Salvage {
    /// Whether nothing is missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.commits_missing == 0 && self.unreadable.is_empty()
    }

    fn of(config: &StoreConfig) -> Self {
        let store = config.path.join(STORE);
        let mut found = Self::default();
        let refusal = read_strictly(config, &store).err();
        let (table, log) = (found.take_table(config, &store, refusal.is_none()), store.join(LOG));
        found.take_log(&log, table);
        found.settle_queues();
        // Even if all could be read: the daemon does not start.
        found.unreadable.extend(refusal.map(|why| why.to_string()));
        found
    }

    pub(crate) const fn meta(&self) -> Option<&MetaRecord> {
        self.meta.as_ref()
    }

    /// Reads the table. Returns how far it has come. If the store is not in order, a complete table may be an outdated
    /// one that damage to later writes has exposed. Then only its readable pages count.
    fn take_table(&mut self, config: &StoreConfig, store: &Path, is_in_order: bool) -> Reached {
        let table = match SledTable::open(config.table(store)) {
            Ok(Some(table)) => table,
            Ok(None) => return self.cannot_read(&store.join("table"), &"it is missing"),
            Err(why) => return self.cannot_read(store, &why),
        };
        let scan = match table.scan() {
            Ok(scan) => scan,
            Err(why) => return self.cannot_read(&table.folder(), &why),
        };
        let (mut damage, file) = (None, table.folder().join(DB));
        for candidate in 0.. {
            let mut found = Self::default();
            let loaded = load(&*scan, candidate, &mut |record| {
                found.take(Record::decode(&mut Reader::new(record))?);
                Ok(())
            });
            match loaded {
                Ok(Loaded::Whole(point)) => {
                    let mut later = Self::default();
                    let last = if is_in_order { None } else { later.take_pages(&file, config.table_segment_bytes) };
                    if let Some(last) = last.filter(|last| last.seq > point.seq) {
                        *self = later;
                        self.cannot_read(&table.folder(), &"its last contents are damaged");
                        return Reached::AtLeast { seq: last.seq, log: last.log };
                    }
                    *self = found;
                    return Reached::Whole(point.seq);
                }
                Ok(Loaded::Damaged(what)) => drop(damage.get_or_insert(what)),
                Ok(Loaded::None) => break,
                Err(why) => drop(damage.replace(why.to_string())),
            }
        }
        let point = self.take_pages(&file, config.table_segment_bytes);
        self.cannot_read(&table.folder(), &damage.unwrap_or_default());
        point.map_or(Reached::Unknown, |point| Reached::AtLeast { seq: point.seq, log: point.log })
    }

    fn cannot_read(&mut self, path: &Path, why: &dyn std::fmt::Display) -> Reached {
        self.unreadable.push(format!("{}: {why}", path.display()));
        Reached::Unknown
    }

    /// Takes the readable pages of a table in a file. Returns the last existing point.
    fn take_pages(&mut self, path: &Path, segment_bytes: usize) -> Option<Point> {
        let mut pages = Pages::default();
        let read = SledFile::open(path, segment_bytes).and_then(|file| {
            file.for_each_leaf_entry(&mut |key, value, _| {
                pages.see(key, value);
                ControlFlow::Continue(())
            })
        });
        if let Err(why) = read {
            self.cannot_read(path, &why);
            return None;
        }
        self.take_all(&pages);
        pages.point
    }

    /// Takes the records of pages.
    fn take_all(&mut self, found: &Pages) {
        for (_, page) in found.pages.values() {
            for (_, item, _) in items(page).map_while(Result::ok) {
                match item {
                    Item::Record(record) => self.take_bytes(record),
                    Item::Large(large) => self.take_large(large, &found.pieces),
                }
            }
        }
    }

    /// Reads as much as possible of a store's parts. `log` shows the commits after the given one in order, each with
    /// its number and its records, or with the reason why it cannot be read.
    ///
    /// # Errors
    ///
    /// If the table or the log cannot be read at all.
    pub fn of_parts(
        scan: &dyn Scan,
        log: impl FnOnce(u64, &mut dyn FnMut(u64, Result<&[u8], String>)) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let (mut found, mut pages) = (Self::default(), Pages::default());
        let loaded = load(scan, 0, &mut |record| {
            found.take(Record::decode(&mut Reader::new(record))?);
            Ok(())
        })?;
        let after = if let Loaded::Whole(point) = loaded {
            point.seq
        } else {
            found = Self::default();
            if let Loaded::Damaged(what) = loaded {
                found.unreadable.push(format!("the table: {what}"));
            }
            scan.each(0, &mut |key, value| {
                pages.see(key, value);
                ControlFlow::Continue(())
            })?;
            found.take_all(&pages);
            pages.point.map_or(0, |point| point.seq)
        };
        found.commit = after;
        let mut last = after;
        log(after, &mut |seq, records| found.take_commit(&mut last, seq, records))?;
        found.settle_queues();
        Ok(found)
    }

    /// Takes a commit of a log, and counts those missing before it.
    fn take_commit(&mut self, last: &mut u64, seq: u64, records: Result<&[u8], String>) {
        let missing = seq.saturating_sub(*last + 1);
        if missing > 0 {
            self.commits_missing += missing;
            self.unreadable.push(format!("commits {} to {} of the log are missing", *last + 1, seq - 1));
        }
        *last = seq;
        match records {
            Ok(bytes) => {
                self.commits += 1;
                self.commit = seq;
                records_of(bytes).for_each(|record| self.take_bytes(record));
            }
            Err(why) => {
                self.commits_missing += 1;
                self.unreadable.push(why);
            }
        }
    }

    fn take_large(&mut self, large: Large, pieces: &Pieces) {
        let record: Vec<u8> = pieces
            .get(&(large.number, large.place))
            .into_iter()
            .flat_map(|it| it.values().flatten().copied())
            .collect();
        if large.is(&record) {
            self.take_bytes(&record);
        } else {
            self.unreadable.push(format!("a piece of the record of number {} is missing", large.number));
        }
    }

    fn take_bytes(&mut self, record: &[u8]) {
        match Record::decode(&mut Reader::new(record)) {
            Ok(record) => self.take(record),
            Err(why) => self.unreadable.push(why.to_string()),
        }
    }

    /// Takes the readable part of the log after the table. If the table is damaged, commits before its point are
    /// applied again from the start of the unbroken range that reaches it: the last of them on each subject is what the
    /// table should hold. Before a gap it would not be the last.
    fn take_log(&mut self, folder: &Path, table: Reached) {
        let (after, from) = match table {
            Reached::Whole(seq) => (seq, seq + 1),
            Reached::AtLeast { seq, log } => match scan_loosely(folder, &mut |_| {}) {
                Ok(loose) if loose.id == Some(LogId(log)) => (seq, loose.unbroken_to(seq)),
                Ok(_) | Err(_) => (0, 0),
            },
            Reached::Unknown => (0, 0),
        };
        let (mut taken, mut last) = (0, after);
        let scanned = scan_loosely(folder, &mut |entry| {
            if entry.seq >= from {
                last = last.max(entry.seq);
                taken += u64::from(entry.seq > after);
                records_of(entry.records).for_each(|record| self.take_bytes(record));
            }
        });
        let loose = match scanned {
            Ok(loose) => loose,
            Err(why) => {
                self.cannot_read(folder, &why);
                return;
            }
        };
        (self.commits, self.commit) = (taken, last);
        if loose.mark.is_none() {
            self.unreadable.push(format!("{}: its mark is missing, damaged or of another store", folder.display()));
        }
        for (path, why) in loose.unreadable {
            self.unreadable.push(format!("{}: {why}", path.display()));
        }
        let mut missing: BTreeSet<(u64, u64)> = loose.missing.into_iter().filter(|(_, last)| *last > after).collect();
        if let Some(first) = loose.first.filter(|first| *first > after + 1) {
            missing.insert((after + 1, first - 1));
        }
        for (first, last) in missing {
            let first = first.max(after + 1);
            self.commits_missing += last - first + 1;
            self.unreadable.push(format!("commits {first} to {last} of the log are missing"));
        }
    }

    /// Forgets deleted queues without jobs, and makes up names for jobs whose queue has none.
    fn settle_queues(&mut self) {
        let used: BTreeSet<QueueId> = self.jobs.values().map(|job| job.queue).collect();
        let gone = std::mem::take(&mut self.gone);
        self.queues.retain(|id, _| used.contains(id) || !gone.contains(id));
        let mut unnamed = BTreeMap::<QueueId, QueueImage>::new();
        for job in self.jobs.values().filter(|job| !self.queues.contains_key(&job.queue)) {
            let image = unnamed.entry(job.queue).or_insert_with(|| unnamed_queue(job));
            image.known = image.known.and(Protocols::of(Some(job.protocol)));
            image.serial = image.serial.max(job.cycle().map_or(0, |cycle| cycle.priority));
        }
        if !unnamed.is_empty() {
            self.unreadable.push(format!("the names of {} queues: they are called {UNNAMED}NUMBER", unnamed.len()));
        }
        self.queues.extend(unnamed);
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Put(job) => drop(self.jobs.insert(job.id, job)),
            Record::Moved(moved) => {
                if let Some(job) = self.jobs.get_mut(&moved.job) {
                    moved.apply(job);
                }
            }
            Record::Gone(id) => drop((self.jobs.remove(&id), self.schedules.remove(&id), self.batches.remove(&id))),
            Record::Schedule(schedule) => drop(self.schedules.insert(schedule.id, *schedule)),
            Record::NextRun(next) => {
                if let Some(schedule) = self.schedules.get_mut(&next.schedule) {
                    next.apply(schedule);
                }
            }
            Record::Batch(batch) => drop(self.batches.insert(batch.id, *batch)),
            Record::BatchMoved(moved) => {
                if let Some(batch) = self.batches.get_mut(&moved.batch) {
                    batch.progress = moved.progress;
                }
            }
            Record::QueueSet(image) => {
                self.gone.remove(&image.id);
                self.queues.insert(image.id, image);
            }
            Record::QueueGone(id) => drop(self.gone.insert(id)),
            Record::Day(begin) => drop(self.days.insert(begin.number % DAYS_KEPT, begin)),
            Record::Meta(meta) => self.meta = Some(meta),
        }
    }
}

#[cfg(test)]
mod tests;
