//! What is readable of a store that recovery refuses: its records, and a list of what is missing.
//!
//! Not here: the files of a data directory (`files`), export as lines of JSON (`export`).
//!
//! No part relies on another part. Damaged entries and pages are skipped. The table takes precedence over commits of
//! the log before the table's point. A job whose end was lost may appear although it had ended: the reader of the
//! export decides.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use windlass_engine::{Batch, DAYS_KEPT, DayBegin, Job, JobId, Protocols, QueueId, QueueImage, Schedule};

use self::unnamed::{UNNAMED, unnamed_queue};
use crate::codec::Reader;
use crate::load::{Loaded, load};
use crate::log::records;
use crate::page::{Item, Key, Large, Page, Point, items};
use crate::record::{MetaRecord, Record};
use crate::store::{Error, Scan};

pub(crate) mod files;
pub(crate) mod unnamed;

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

impl Salvage {
    /// Whether nothing is missing.
    pub fn is_whole(&self) -> bool {
        self.commits_missing == 0 && self.unreadable.is_empty()
    }

    pub(crate) const fn meta(&self) -> Option<&MetaRecord> {
        self.meta.as_ref()
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
        let loaded = load(scan, 0, &mut |record, _| {
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
            scan.each_readable(&mut |key, value, _| {
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
            self.unreadable.push(format!("the names of queues ({}): they are called {UNNAMED}NUMBER", unnamed.len()));
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
