//! The readable contents of a store that recovery refuses: the records, and a list of losses.
//!
//! Not here: the files of a data directory (`files`), export as lines of JSON (`export`).
//!
//! Each part is read independently. Damaged entries and pages are skipped. The table takes precedence over
//! commits of the log before the table's point. If the end of a job is missing, the job may appear although
//! it had finished; the reader of the export must decide.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use windlass_engine::{
    Batch, DAYS_KEPT, DayBegin, Job, JobId, Namespace, NamespaceImage, Protocols, QueueId,
    QueueImage, Schedule,
};

use self::pages::Pages;
use self::unnamed::{UNNAMED, UNNAMED_NAMESPACE, unnamed_namespace, unnamed_queue};
use crate::body_file::{BodyFile, Overflow};
use crate::jobs::{Jobs, with_body};
use crate::load::{Loaded, load};
use crate::log::records;
use crate::page::{Item, Large, items};
use crate::record::{MetaRecord, Record};
use crate::store::{Error, Scan};
use windlass_codec::{DecodeError, Reader};

pub(crate) mod files;
mod pages;
pub(crate) mod unnamed;

/// The salvaged data, and the losses. It needs no more memory than a start.
#[derive(Debug, Default)]
pub struct Salvage {
    pub(crate) jobs: Jobs,
    /// The number of jobs.
    pub job_count: u64,
    /// Schedules by number, in the last state.
    pub schedules: BTreeMap<JobId, Schedule>,
    /// Batches by number, in the last state.
    pub batches: BTreeMap<JobId, Batch>,
    /// Queues by number.
    pub queues: BTreeMap<QueueId, QueueImage>,
    /// Namespaces with names.
    pub namespaces: BTreeMap<Namespace, NamespaceImage>,
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
    /// Deleted queues. They may be the only source for the name of a job's queue.
    gone: BTreeSet<QueueId>,
}

/// The records of a commit, as far as they can be read, and where they end in it.
fn records_of(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    records(bytes)
        .map_while(Result::ok)
        .map(|(at, record)| (at + record.len(), record))
}

impl Salvage {
    /// Returns true if nothing is missing.
    pub fn is_whole(&self) -> bool {
        self.commits_missing == 0 && self.unreadable.is_empty()
    }

    /// All jobs with bodies, in memory: for tests. Without jobs with unreadable bodies.
    #[doc(hidden)]
    pub fn jobs(&self) -> BTreeMap<JobId, Job> {
        let bodies = self.jobs.file().map(BodyFile::reader);
        let jobs = self
            .jobs
            .slab
            .iter()
            .filter_map(|(_, job)| with_body(job, bodies.as_ref()).ok());
        jobs.map(|job| (job.id, job)).collect()
    }

    /// Adds a job: for tests.
    #[doc(hidden)]
    pub fn put(&mut self, job: Job) {
        self.jobs.put(job, None);
    }

    pub(crate) const fn meta(&self) -> Option<&MetaRecord> {
        self.meta.as_ref()
    }

    /// An empty salvage. If `overflow` is set, bodies that exceed that memory are stored in a file.
    pub(crate) fn new(overflow: Option<&Overflow>) -> Self {
        Self {
            jobs: Jobs::new(overflow),
            ..Self::default()
        }
    }

    /// Adds the records of pages.
    fn take_all(&mut self, found: Pages) {
        self.jobs.read_from(None);
        let (pages, mut pieces) = found.into_parts();
        let read = |held: io::Result<Vec<u8>>, found: &mut Self| match held {
            Ok(page) => page,
            Err(why) => {
                found.unreadable.push(why.to_string());
                Vec::new()
            }
        };
        for page in pages {
            let page = read(pieces.take(page), self);
            for (_, item, _) in items(&page).map_while(Result::ok) {
                match item {
                    Item::Record(record) => self.take_bytes(record, None),
                    Item::Large(large) => {
                        let record = read(pieces.of(large), self);
                        self.take_large(large, &record);
                    }
                }
            }
        }
    }

    /// Reads as much as possible of a store's parts. `log` passes on the commits after the given one in
    /// order, each with the number and the records, or with the reason why it cannot be read. Bodies that do
    /// not fit into memory are stored as `overflow` specifies.
    ///
    /// # Errors
    ///
    /// The table or the log cannot be read at all.
    pub fn of_parts(
        scan: &dyn Scan,
        overflow: Option<&Overflow>,
        log: impl FnOnce(u64, &mut dyn FnMut(u64, Result<&[u8], String>)) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let mut found = Self::new(overflow);
        found.jobs.read_from(scan.file());
        let loaded = load(scan, 0, &mut |record, at| found.take_at(record, at))?;
        let after = if let Loaded::Whole(point) = loaded {
            point.seq
        } else {
            found = Self::new(overflow);
            if let Loaded::Damaged(what) = loaded {
                found.unreadable.push(format!("the table: {what}"));
            }
            let pages = Pages::of(scan, overflow)?;
            let point = pages.point.map_or(0, |point| point.seq);
            found.take_all(pages);
            point
        };
        found.jobs.read_from(None);
        found.commit = after;
        let mut last = after;
        log(after, &mut |seq, records| {
            found.take_commit(&mut last, seq, records)
        })?;
        found.settle();
        Ok(found)
    }

    /// Adds a commit of a log, and the number of commits missing before it.
    fn take_commit(&mut self, last: &mut u64, seq: u64, records: Result<&[u8], String>) {
        let missing = seq.saturating_sub(*last + 1);
        if missing > 0 {
            self.commits_missing += missing;
            self.unreadable.push(format!(
                "commits {} to {} of the log are missing",
                *last + 1,
                seq - 1
            ));
        }
        *last = seq;
        match records {
            Ok(bytes) => {
                self.commits += 1;
                self.commit = seq;
                records_of(bytes).for_each(|(_, record)| self.take_bytes(record, None));
            }
            Err(why) => {
                self.commits_missing += 1;
                self.unreadable.push(why);
            }
        }
    }

    fn take_large(&mut self, large: Large, record: &[u8]) {
        if large.is(record) {
            self.take_bytes(record, None);
        } else {
            self.unreadable.push(format!(
                "a piece of the record of number {} is missing",
                large.number
            ));
        }
    }

    /// `end` is the end of the record in the file that is being read.
    fn take_bytes(&mut self, record: &[u8], end: Option<u64>) {
        match Record::decode(&mut Reader::new(record)) {
            Ok(record) => self.take(record, end),
            Err(why) => self.unreadable.push(why.to_string()),
        }
    }

    /// Adds a record of a table. `at` is the start in the file that is being read.
    fn take_at(&mut self, record: &[u8], at: Option<u64>) -> Result<(), DecodeError> {
        self.take(
            Record::decode(&mut Reader::new(record))?,
            at.map(|at| at + record.len() as u64),
        );
        Ok(())
    }

    /// Completes the salvage: removes deleted queues without jobs, and creates names for queues of jobs
    /// without one.
    fn settle(&mut self) {
        let (mut used, gone) = (BTreeSet::new(), std::mem::take(&mut self.gone));
        let (queues, mut unnamed) = (&self.queues, BTreeMap::<QueueId, QueueImage>::new());
        let shown: Result<(), ()> = self.jobs.each(|job| {
            used.insert(job.queue);
            if !queues.contains_key(&job.queue) {
                let image = unnamed
                    .entry(job.queue)
                    .or_insert_with(|| unnamed_queue(job));
                image.known = image.known.and(Protocols::of(Some(job.protocol)));
                image.serial = image
                    .serial
                    .max(job.cycle().map_or(0, |cycle| cycle.priority));
            }
            Ok(())
        });
        shown.unwrap_or_default();
        // An index is that of one queue at a time, of any namespace.
        let taken: BTreeSet<u32> = used.iter().map(|id| id.index()).collect();
        let is_free = |id: &QueueId| !gone.contains(id) && !taken.contains(&id.index());
        self.queues.retain(|id, _| used.contains(id) || is_free(id));
        if !unnamed.is_empty() {
            self.unreadable.push(format!(
                "the names of queues ({}): they are called {UNNAMED}NUMBER",
                unnamed.len()
            ));
        }
        self.queues.extend(unnamed);
        let namespaces = self.queues.keys().map(|id| id.namespace());
        let lost: BTreeSet<Namespace> = namespaces
            .filter(|id| *id != Namespace::UNNAMED && !self.namespaces.contains_key(id))
            .collect();
        if !lost.is_empty() {
            self.unreadable.push(format!(
                "the names of namespaces ({}): they are called {UNNAMED_NAMESPACE}NUMBER",
                lost.len()
            ));
        }
        let named = lost.into_iter().map(|id| (id, unnamed_namespace(id)));
        self.namespaces.extend(named);
        self.job_count = self.jobs.len() as u64;
    }

    fn take(&mut self, record: Record, end: Option<u64>) {
        match record {
            Record::Put(job) => self.jobs.put(job, end),
            Record::Moved(moved) => {
                if let Some(job) = self.jobs.get_mut(moved.job) {
                    moved.apply(job);
                }
            }
            Record::Gone(id) => {
                self.jobs.remove(id);
                drop((self.schedules.remove(&id), self.batches.remove(&id)));
            }
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
            Record::Ended(_) => {}
            // A deleted one may be the only source for the name of the namespace of a job's queue.
            Record::NamespaceGone(_) => {}
            Record::Namespace(image) => drop(self.namespaces.insert(image.id, *image)),
            Record::Meta(meta) => self.meta = Some(meta),
        }
    }
}
