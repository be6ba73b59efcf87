//! Rebuilds from a store an engine equal to the last one, and the journal that continues after it.
//!
//! Not here: verifying that a table is complete (`load`), and finding the log's end (`log::scan`).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use windlass_engine::{
    Batch, DAYS_KEPT, DayBegin, Engine, JobId, JobState, Limits, Namespace, NamespaceImage,
    Numbered, QueueId, QueueImage, QueueKind, Role, Schedule, Slab, Slot, Stored,
};

use crate::body_file::{BodyFile, Overflow};
use crate::consistency::{Open, check_batch, check_namespaces, check_queues};
use crate::damage::{Damage, OpenError};
use crate::jobs::Jobs;
use crate::journal::Journal;
use crate::load::{Loaded, load};
use crate::log::records;
use crate::page::Point;
use crate::record::{MetaRecord, Record, is_ended};
use crate::salvage::Salvage;
use crate::store::{Entry, Scan, UNVERIFIED};
use windlass_codec::{DecodeError, Reader};

/// Queue numbers below this are accepted whatever the limit is, because the limit may have been
/// lowered since.
const QUEUES_MIN: u32 = 1 << 16;

/// The contents of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Jobs.
    pub jobs: u64,
    /// Queues.
    pub queues: u64,
    /// Schedules.
    pub schedules: u64,
    /// Batches.
    pub batches: u64,
    /// The last commit in the table.
    pub table_seq: u64,
    /// The last commit.
    pub last_seq: u64,
    /// The daemon had stopped cleanly.
    pub clean: bool,
    /// The last entry of the log was torn, and is dropped. It was never acknowledged, unless the disk has failed.
    pub torn: bool,
    /// Damage without loss of data, because the table contains the damaged commits.
    pub harmless: Vec<Damage>,
}

/// An engine and its journal, as of the last commit.
#[derive(Debug)]
pub struct Recovered {
    /// The engine.
    pub engine: Engine,
    /// Continues after the last commit. It has a commit to write immediately.
    pub journal: Journal,
    /// Bodies that did not fit into memory.
    pub bodies: Option<BodyFile>,
    /// The contents found.
    pub report: Report,
}

/// Reads a table into a new replay. Returns the replay, the table's point, and the candidate that was right.
pub(crate) fn load_table(
    scan: &dyn Scan,
    place: impl Display,
    overflow: Option<&Overflow>,
) -> Result<(Replay, Point, usize), OpenError> {
    let mut first_damage = None;
    for candidate in std::iter::once(UNVERIFIED).chain(0..) {
        let mut replay = Replay::new(overflow);
        replay.jobs.read_from(scan.file());
        let loaded = load(scan, candidate, &mut |record, at| {
            let end = at.map(|at| at + record.len() as u64);
            replay.apply(Record::decode(&mut Reader::new(record))?, end);
            Ok(())
        })?;
        match loaded {
            Loaded::Whole(point) => return Ok((replay, point, candidate)),
            Loaded::Damaged(_) | Loaded::None if candidate == UNVERIFIED => {}
            Loaded::Damaged(what) => drop(first_damage.get_or_insert(what)),
            Loaded::None => break,
        }
    }
    let what = first_damage.unwrap_or_else(|| "nothing in it can be read".to_owned());
    Err(Damage::of(
        place,
        format!("the table of living jobs is damaged: {what}"),
    )
    .into())
}

/// The net effect of all records so far.
pub(crate) struct Replay {
    pub(crate) jobs: Jobs,
    queues: BTreeMap<QueueId, QueueImage>,
    schedules: BTreeMap<JobId, Schedule>,
    batches: BTreeMap<JobId, Batch>,
    /// By number, modulo [`DAYS_KEPT`].
    days: BTreeMap<u64, DayBegin>,
    namespaces: BTreeMap<Namespace, NamespaceImage>,
    meta: Option<MetaRecord>,
    /// A changed part with the number of an entity of another kind.
    misplaced: Option<JobId>,
}

impl Replay {
    /// If `overflow` is set, bodies that exceed that memory are stored in a file.
    pub(crate) fn new(overflow: Option<&Overflow>) -> Self {
        Self {
            jobs: Jobs::new(overflow),
            queues: BTreeMap::new(),
            schedules: BTreeMap::new(),
            batches: BTreeMap::new(),
            days: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            meta: None,
            misplaced: None,
        }
    }

    /// Applies a commit, which may be in a file that stays as it is.
    pub(crate) fn take(&mut self, entry: &Entry<'_>, file: Option<&Path>) -> Result<(), Damage> {
        self.jobs.read_from(file.map(Path::to_owned));
        let taken = records(entry.records).try_for_each(|record| -> Result<(), DecodeError> {
            let (at, record) = record?;
            if is_ended(record) {
                return Ok(());
            }
            let end = (entry.place.0 & u64::from(u32::MAX)) + (at + record.len()) as u64;
            self.apply(Record::decode(&mut Reader::new(record))?, Some(end));
            Ok(())
        });
        taken.map_err(|why| Damage::of("", format!("commit {} cannot be read: {why}", entry.seq)))
    }

    /// `end` is the end of the record in the file that is being read.
    pub(crate) fn apply(&mut self, record: Record, end: Option<u64>) {
        match record {
            Record::Put(job) => self.jobs.put(job, end),
            Record::Moved(moved) => match self.jobs.get_mut(moved.job) {
                Some(job) => moved.apply(job),
                None => self.without_owner(moved.job),
            },
            Record::Gone(id) => {
                self.schedules.remove(&id);
                self.batches.remove(&id);
                self.jobs.remove(id);
            }
            Record::QueueSet(image) => drop(self.queues.insert(image.id, image)),
            Record::QueueGone(id) => drop(self.queues.remove(&id)),
            Record::Schedule(schedule) => drop(self.schedules.insert(schedule.id, *schedule)),
            Record::NextRun(next) => match self.schedules.get_mut(&next.schedule) {
                Some(schedule) => next.apply(schedule),
                None => self.without_owner(next.schedule),
            },
            Record::Batch(batch) => drop(self.batches.insert(batch.id, *batch)),
            Record::BatchMoved(moved) => match self.batches.get_mut(&moved.batch) {
                Some(batch) => batch.progress = moved.progress,
                None => self.without_owner(moved.batch),
            },
            Record::Day(begin) => drop(self.days.insert(begin.number % DAYS_KEPT, begin)),
            Record::Ended(_) => {}
            Record::Namespace(image) => drop(self.namespaces.insert(image.id, *image)),
            Record::NamespaceGone(id) => drop(self.namespaces.remove(&id)),
            Record::Meta(meta) => self.meta = Some(meta),
        }
    }

    /// Handles a changed part without an entity. It remains from a deleted entity, unless the number belongs
    /// to another one. A checkpoint stores a single changed part per number, so it could store the wrong one.
    fn without_owner(&mut self, id: JobId) {
        let is_other = self.schedules.contains_key(&id)
            || self.batches.contains_key(&id)
            || self.jobs.get_mut(id).is_some();
        self.misplaced = self.misplaced.or(is_other.then_some(id));
    }

    /// Only the queues.
    pub(crate) fn into_queues(self) -> Vec<QueueImage> {
        self.queues.into_values().collect()
    }

    /// Passes everything to a new engine, after checking that the state is consistent. The journal continues
    /// after commit `last_seq`.
    pub(crate) fn build(
        self,
        limits: Limits,
        seed: u64,
        last_seq: u64,
    ) -> Result<Recovered, Damage> {
        let queues_max = limits.queues_max.max(QUEUES_MIN);
        let nonsense = |what: String| Damage::of("", format!("the store is inconsistent: {what}"));
        if let Some(id) = self.misplaced {
            return Err(nonsense(format!(
                "{id:?} changed as something else than it is"
            )));
        }
        check_namespaces(&self.namespaces).map_err(nonsense)?;
        check_queues(&self.queues, &self.namespaces, queues_max).map_err(nonsense)?;
        let taken = |id: JobId, is_new: bool| {
            is_new.then_some(()).ok_or_else(|| {
                nonsense(format!(
                    "something else has the number or the name of {id:?}"
                ))
            })
        };
        let mut engine = Engine::new(limits, seed);
        let clean = self.meta.as_ref().is_some_and(|meta| meta.clean);
        if let Some(meta) = self.meta {
            engine.recall_meta(meta.meta, meta.clean);
        }
        self.days
            .into_values()
            .for_each(|begin| engine.recall_day(begin));
        self.namespaces
            .into_values()
            .for_each(|image| engine.recall_namespace(image));
        let kinds: BTreeMap<QueueId, QueueKind> = self
            .queues
            .iter()
            .map(|(id, queue)| (*id, queue.kind))
            .collect();
        self.queues
            .into_values()
            .for_each(|image| engine.recall_queue(image));
        for batch in self.batches.into_values() {
            taken(batch.id, engine.recall_batch(batch))?;
        }
        let ((slab, slots), mut cold) = self.jobs.into_parts();
        let (open, leased) = recall_jobs(&mut engine, slab, slots, &kinds).map_err(nonsense)?;
        cold.iter_mut()
            .for_each(|cold| cold.warm(&mut engine, &leased));
        for batch in engine.batches() {
            check_batch(batch, &open).map_err(nonsense)?;
        }
        for schedule in self.schedules.into_values() {
            taken(schedule.id, engine.recall_schedule(schedule))?;
        }
        engine.wake_up();
        let report = Report {
            jobs: engine.job_count() as u64,
            queues: engine.queues().count() as u64,
            schedules: engine.schedules().count() as u64,
            batches: engine.batches().count() as u64,
            last_seq,
            clean,
            ..Report::default()
        };
        let journal = Journal::resume(last_seq + 1, engine.meta().next_job, kinds.into_keys());
        let bodies = cold.and_then(|cold| cold.file);
        Ok(Recovered {
            engine,
            journal,
            bodies,
            report,
        })
    }
}

/// Passes jobs to an engine. Returns the remaining contribution of jobs to each batch's counts, and the
/// bodies of leased jobs.
fn recall_jobs(
    engine: &mut Engine,
    slab: Slab,
    slots: Numbered<Slot>,
    kinds: &BTreeMap<QueueId, QueueKind>,
) -> Result<(Open, Vec<(JobId, Stored)>), String> {
    let mut ranks = Vec::with_capacity(slots.len());
    let mut open = Open::new();
    let mut leased = Vec::new();
    let recalled = engine.recall_jobs(slab, slots, |job| {
        if let Some(member) = job
            .extra
            .as_deref()
            .and_then(|extra| extra.member)
            .filter(|of| of.role == Role::Job)
        {
            let counts = open.entry(member.batch).or_default();
            counts.0 += u64::from(!member.ran);
            counts.1 += u64::from(!matches!(job.state, JobState::Done(_)));
        }
        leased.extend(
            job.lease()
                .and(job.payload.stored())
                .map(|stored| (job.id, stored)),
        );
        ranks.push(job.rank);
        match kinds
            .get(&job.queue)
            .map(|kind| job.cycle().is_some() == (*kind == QueueKind::Cycle))
        {
            None => Err(format!(
                "{:?} is in {:?}, which does not exist",
                job.id, job.queue
            )),
            Some(false) => Err(format!(
                "{:?} does not fit the kind of {:?}",
                job.id, job.queue
            )),
            Some(true) => Ok(()),
        }
    });
    recalled?;
    ranks.sort_unstable();
    match ranks.windows(2).find(|pair| pair.first() == pair.last()) {
        Some(pair) => Err(format!("rank {} occurs twice", pair.first().unwrap_or(&0))),
        None => Ok((open, leased)),
    }
}

/// An engine with the salvaged contents, which are moved out of the salvage, and the reader of bodies that
/// are not in memory. Contradictory parts are omitted.
pub(crate) fn repaired(
    found: &mut Salvage,
    limits: Limits,
    seed: u64,
) -> Result<(Engine, Option<BodyFile>), Damage> {
    let (engine, bodies, left_out) = rebuilt(found, limits, seed)?;
    if left_out > 0 || !found.batches.is_empty() {
        tracing::warn!(
            jobs_and_schedules = left_out,
            batches = found.batches.len(),
            "some readable records could not be restored: see the directory set aside"
        );
    }
    Ok((engine, bodies))
}

/// Also returns the number of jobs and schedules that are omitted.
fn rebuilt(
    found: &mut Salvage,
    limits: Limits,
    seed: u64,
) -> Result<(Engine, Option<BodyFile>, u64), Damage> {
    let mut engine = Engine::new(limits, seed);
    if let Some(meta) = found.meta() {
        engine.recall_meta(meta.meta.clone(), false);
    }
    found
        .days
        .values()
        .for_each(|begin| engine.recall_day(*begin));
    found
        .namespaces
        .values()
        .for_each(|image| engine.recall_namespace(image.clone()));
    let (mut names, mut indexes) = (BTreeMap::new(), BTreeMap::new());
    for (id, image) in &found.queues {
        // If two queues have the same name or index, one of them must have been deleted. Of a name, it
        // is the older one.
        names.insert((id.namespace(), &image.name), *id);
        indexes.insert(id.index(), *id);
    }
    let is_there = |id: QueueId| {
        let is_one = |image: &&QueueImage| {
            names.get(&(id.namespace(), &image.name)) == Some(&id)
                && indexes.get(&id.index()) == Some(&id)
        };
        found.queues.get(&id).filter(is_one)
    };
    found
        .queues
        .keys()
        .filter_map(|id| is_there(*id))
        .for_each(|image| engine.recall_queue(image.clone()));
    let mut jobs = std::mem::take(&mut found.jobs);
    let mut left_out = jobs.repair(|job| {
        is_there(job.queue)
            .is_some_and(|queue| job.cycle().is_some() == (queue.kind == QueueKind::Cycle))
    });
    let ((slab, slots), mut cold) = jobs.into_parts();
    let mut leased = Vec::new();
    let recalled = engine.recall_jobs(slab, slots, |job| {
        leased.extend(
            job.lease()
                .and(job.payload.stored())
                .map(|stored| (job.id, stored)),
        );
        Ok(())
    });
    recalled.map_err(|what| Damage::of("", what))?;
    cold.iter_mut()
        .for_each(|cold| cold.warm(&mut engine, &leased));
    // The engine refuses a number or a key that is used.
    left_out += found
        .schedules
        .values()
        .filter(|schedule| !engine.recall_schedule((*schedule).clone()))
        .count() as u64;
    engine.wake_up();
    Ok((engine, cold.and_then(|cold| cold.file), left_out))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use windlass_engine::{
        Cycle, DayBegin, Extra, Job, Member, NewJob, Payload, Protocol, QueueId, QueueImage,
        QueueKind, Recurrence, Role, Schedule, Timestamp, Totals,
    };

    use super::*;
    use crate::record::plain_job;

    /// A salvage of these records.
    fn salvaged(records: Vec<Record>) -> Salvage {
        let mut found = Salvage::default();
        for record in records {
            if let Record::Put(job) = record {
                found.jobs.put(job, None);
            } else if let Record::QueueSet(image) = record {
                found.queues.insert(image.id, image);
            } else if let Record::Schedule(schedule) = record {
                found.schedules.insert(schedule.id, *schedule);
            } else if let Record::Day(day) = record {
                found.days.insert(day.number, day);
            } else {
                panic!("{record:?}");
            }
        }
        found
    }

    fn queue(id: u32, name: &'static str, kind: QueueKind) -> Record {
        Record::QueueSet(QueueImage::new(QueueId(id), name.into(), kind))
    }

    /// A job with this rank, above the middle one.
    fn job(id: u64, queue: u32, rank: u64, extra: Option<Extra>) -> Record {
        Record::Put(Job {
            queue: QueueId(queue),
            rank: (1 << 62) + rank,
            extra: extra.map(Box::new),
            ..plain_job(id)
        })
    }

    fn schedule(id: u64, key: Option<&'static str>) -> Record {
        Record::Schedule(Box::new(Schedule {
            id: JobId(id),
            key: key.map(Bytes::from),
            job: NewJob::new(Protocol::GEARMAN, "a".into(), "".into()),
            recurrence: Recurrence::Every { interval_ms: 60 },
            anchor: Timestamp(0),
            next_at: Timestamp(0),
            runs_left: None,
            last: None,
        }))
    }

    #[test]
    fn a_deletion_finds_its_job() {
        let (job, last) = (plain_job(1), 2_049);
        let mut replay = Replay::new(None);
        (1..=last).for_each(|id| {
            replay.apply(
                Record::Put(Job {
                    id: JobId(id),
                    ..job.clone()
                }),
                None,
            )
        });
        (2..=last)
            .step_by(2)
            .for_each(|id| replay.apply(Record::Gone(JobId(id)), None));
        let left: Vec<u64> = replay.jobs.slab.iter().map(|(_, job)| job.id.0).collect();
        assert_eq!(left, (1..=last).step_by(2).collect::<Vec<_>>());
    }

    #[test]
    fn jobs_that_exceed_memory_are_packed_while_others_are_read() {
        let mut replay = Replay::new(Some(&Overflow {
            folder: std::env::temp_dir(),
            memory: 0,
        }));
        for id in 1..=20_000 {
            let job = Job {
                payload: Payload::copy(None, b"", b"small"),
                ..plain_job(id)
            };
            replay.apply(Record::Put(job), None);
        }
        assert!(replay.jobs.slab.saved_bytes() > 0);
    }

    #[test]
    fn contradictory_parts_of_a_salvage_are_left_out() {
        let cycle = || {
            let cycle = Cycle {
                priority: 0,
                boost: 0,
            };
            Some(Extra {
                cycle: Some(cycle),
                ..Extra::default()
            })
        };
        let member = Some(Extra {
            member: Some(Member {
                batch: JobId(70),
                role: Role::Job,
                ran: false,
            }),
            ..Extra::default()
        });
        let pushed = Totals {
            pushed: 9,
            ..Totals::default()
        };
        let day = DayBegin {
            number: 4,
            day: 4,
            totals: pushed,
        };
        let mut found = salvaged(vec![
            queue(0, "a", QueueKind::Work),
            queue(1, "b", QueueKind::Cycle),
            queue(2, "a", QueueKind::Work),
            job(1, 2, 5, None),
            job(2, 2, 5, None),
            job(3, 0, 1, None),
            job(4, 1, 2, cycle()),
            job(5, 1, 3, None),
            job(6, 9, 4, None),
            job(7, 2, 6, member),
            job(8, 2, 9, cycle()),
            schedule(1, Some("x")),
            schedule(10, Some("k")),
            schedule(11, Some("k")),
            schedule(12, None),
            schedule(13, None),
            Record::Day(day),
        ]);
        let (engine, _, left_out) = rebuilt(&mut found, Limits::default(), 1).unwrap();
        engine.check();
        assert_eq!(
            left_out, 6,
            "two of a cycle that is none or the reverse, of a queue that is none, schedules"
        );
        let mut jobs: Vec<_> = engine
            .jobs()
            .map(|job| (job.id.0, job.rank - (1 << 62)))
            .collect();
        jobs.sort_unstable();
        assert_eq!(
            jobs,
            [(1, 5), (2, 6), (4, 2), (7, 7)],
            "with ranks of their own"
        );
        assert!(engine.jobs().all(|job| {
            job.extra
                .as_deref()
                .is_none_or(|extra| extra.member.is_none())
        }));
        let mut queues: Vec<_> = engine.queues().map(|queue| queue.image().id.0).collect();
        queues.sort_unstable();
        assert_eq!(queues, [1, 2], "of two queues with a name the younger");
        let mut schedules: Vec<_> = engine.schedules().map(|schedule| schedule.id.0).collect();
        schedules.sort_unstable();
        assert_eq!(schedules, [10, 12, 13]);
        assert_eq!(
            engine
                .days()
                .map(|day| day.totals.pushed)
                .collect::<Vec<_>>(),
            [9]
        );
    }
}
