//! From a store back to an engine equal to the one that died, and to the journal that goes on where the old one stopped.
//!
//! Not here: putting values together to commits (`replay`).

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use windlass_engine::{
    Batch, Engine, Job, JobId, Limits, Numbered, Place, QueueId, QueueImage, QueueKind, Role, Schedule, Stage,
};

use crate::codec::Reader;
use crate::frame::FrameError;
use crate::journal::{Journal, JournalLimits, Resume};
use crate::ledger::{Home, Ledger, Shape};
use crate::record::{HeadRecord, Record};
use crate::replay::{Assembler, RecoverError, Torn, Whole};
use crate::roll::RollWriter;
use crate::store::Store;

/// Jobs per page of those that are read: pages are given back one by one while the engine takes the jobs up.
const PAGE: usize = 1024;
/// Numbers of queues that are taken up whatever the limit says: it may have been lowered since.
const QUEUES_MIN: u32 = 1 << 16;

/// What was recovered.
#[derive(Debug)]
pub struct Recovered {
    /// As it was after the last commit.
    pub engine: Engine,
    /// Goes on behind the last commit. It has something to write at once.
    pub journal: Journal,
    /// What was found.
    pub report: Report,
}

/// What was found in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Commits.
    pub commits: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Jobs.
    pub jobs: u64,
    /// Queues.
    pub queues: u64,
    /// Schedules.
    pub schedules: u64,
    /// Batches.
    pub batches: u64,
    /// The last whole commit.
    pub last_seq: u64,
    /// The daemon had stopped in order.
    pub clean: bool,
    /// A last commit that was not whole, and is dropped: nothing in it was acknowledged.
    pub torn: Option<Torn>,
}

/// Reads a store and rebuilds what it holds. `seed` keys the engine's hash tables.
///
/// # Errors
///
/// If the store cannot be read, or holds anything but whole commits and possibly a torn last one.
pub fn recover(
    store: &dyn Store,
    limits: Limits,
    journal: JournalLimits,
    seed: u64,
) -> Result<Recovered, RecoverError> {
    let (mut replay, mut assembler, mut failure) = (Replay::new(), Assembler::default(), None);
    store.scan(&mut |key, value| match assembler.push(key, value, |whole| replay.take(whole)) {
        Ok(()) => ControlFlow::Continue(()),
        Err(why) => {
            failure = Some(why);
            ControlFlow::Break(())
        }
    })?;
    if let Some(why) = failure {
        return Err(why);
    }
    let (last_seq, last_key) = (assembler.last_seq(), assembler.last_key());
    let torn = assembler.finish()?;
    replay.check_census(last_seq, torn.as_ref())?;
    if let Some(torn) = &torn {
        let (seq, values) = (torn.seq, torn.keys.len());
        tracing::warn!(seq, values, "the last commit of the journal is torn; it was never acknowledged and is dropped");
    }
    let torn_seq = torn.as_ref().and_then(|torn| torn.seq).unwrap_or(last_seq);
    let resume = Resume {
        next_seq: last_seq.max(torn_seq) + 1,
        next_key: last_key + 1,
        litter: torn.as_ref().map(|torn| torn.keys.clone()).unwrap_or_default(),
    };
    let ledger_figures = (replay.ledger.commits, replay.ledger.bytes);
    let clean = replay.head.as_ref().is_some_and(|(_, head)| head.clean);
    let (engine, ledger) = replay.build(limits, seed)?;
    let report = Report {
        commits: ledger_figures.0,
        bytes: ledger_figures.1,
        jobs: engine.job_count() as u64,
        queues: engine.queues().count() as u64,
        schedules: engine.schedules().count() as u64,
        batches: engine.batches().count() as u64,
        last_seq,
        clean,
        torn,
    };
    Ok(Recovered { engine, journal: Journal::resume(journal, ledger, resume), report })
}

/// What the commits so far add up to.
struct Replay {
    ledger: Ledger,
    jobs: Vec<Vec<Option<Job>>>,
    count: u32,
    index: Numbered<u32>,
    queues: BTreeMap<QueueId, QueueImage>,
    schedules: BTreeMap<JobId, Schedule>,
    batches: BTreeMap<JobId, Batch>,
    /// The last head, and the commit it was in.
    head: Option<(u64, HeadRecord)>,
}

impl Replay {
    fn new() -> Self {
        Self {
            ledger: Ledger::new(),
            jobs: Vec::new(),
            count: 0,
            index: Numbered::new(u32::MAX),
            queues: BTreeMap::new(),
            schedules: BTreeMap::new(),
            batches: BTreeMap::new(),
            head: None,
        }
    }

    fn take(&mut self, whole: &Whole<'_>) -> Result<(), RecoverError> {
        let slot = self.ledger.begin(whole.seq);
        let (mut roll, mut queues, mut reader) = (RollWriter::default(), Vec::new(), Reader::new(whole.records));
        while reader.left() > 0 {
            let left = reader.left();
            let record = Record::decode(&mut reader).map_err(|why| RecoverError::Damaged {
                key: whole.first_key,
                after: whole.seq - 1,
                why: FrameError::Record(why),
            })?;
            let size = u32::try_from(left - reader.left()).unwrap_or(u32::MAX);
            match &record {
                Record::Put(job) => roll.push(job.id),
                Record::Moved(moved) => roll.push(moved.job),
                Record::Schedule(schedule) => roll.push(schedule.id),
                Record::NextRun(next) => roll.push(next.schedule),
                Record::Batch(batch) => roll.push(batch.id),
                Record::BatchMoved(moved) => roll.push(moved.batch),
                Record::QueueSet(image) => queues.push(image.id),
                Record::Gone(_) | Record::QueueGone(_) | Record::Head(_) => {}
            }
            self.apply(record, whole.seq, Home { slot, size });
        }
        let (first_key, parts, bytes) = (whole.first_key, whole.parts, whole.bytes());
        let shape = Shape { first_key, parts, bytes, jobs: roll.finish(), queues: queues.into_boxed_slice() };
        self.ledger.complete(slot, shape);
        Ok(())
    }

    fn apply(&mut self, record: Record, seq: u64, home: Home) {
        match record {
            Record::Put(job) => {
                self.ledger.put(job.id, home);
                self.put(job);
            }
            Record::Moved(moved) => {
                // Of a job that is gone, its own record with it, an old standing may still be there.
                if self.index.get(moved.job).is_some() {
                    self.ledger.moved(moved.job, home);
                    if let Some(job) = self.job_mut(moved.job) {
                        moved.apply(job);
                    }
                }
            }
            Record::Gone(id) => {
                self.ledger.gone(id, home.slot);
                self.schedules.remove(&id);
                self.batches.remove(&id);
                if let Some(place) = self.index.remove(id).and_then(|index| self.place_mut(index)) {
                    *place = None;
                }
            }
            Record::QueueSet(image) => {
                self.ledger.queue_set(image.id, home);
                self.queues.insert(image.id, image);
            }
            Record::QueueGone(id) => {
                self.ledger.queue_gone(id, home.slot);
                self.queues.remove(&id);
            }
            Record::Schedule(schedule) => {
                self.ledger.put(schedule.id, home);
                self.schedules.insert(schedule.id, *schedule);
            }
            Record::NextRun(next) => {
                // Of a schedule that is gone, as of a job.
                if let Some(schedule) = self.schedules.get_mut(&next.schedule) {
                    self.ledger.moved(next.schedule, home);
                    next.apply(schedule);
                }
            }
            Record::Batch(batch) => {
                self.ledger.put(batch.id, home);
                self.batches.insert(batch.id, *batch);
            }
            Record::BatchMoved(moved) => {
                // Of a batch that is gone, as of a job.
                if let Some(batch) = self.batches.get_mut(&moved.batch) {
                    self.ledger.moved(moved.batch, home);
                    batch.standing = moved.standing;
                }
            }
            Record::Head(head) => {
                self.ledger.head(home);
                self.head = Some((seq, head));
            }
        }
    }

    fn put(&mut self, job: Job) {
        let (count, id) = (self.count, job.id);
        if let Some(index) = self.index.get(id) {
            if let Some(place) = self.place_mut(index) {
                *place = Some(job);
            }
            return;
        }
        self.index.set(id, count);
        self.count += 1;
        match self.jobs.last_mut().filter(|page| page.len() < PAGE) {
            Some(page) => page.push(Some(job)),
            None => {
                let mut page = Vec::with_capacity(PAGE);
                page.push(Some(job));
                self.jobs.push(page);
            }
        }
    }

    fn place_mut(&mut self, index: u32) -> Option<&mut Option<Job>> {
        let index = index as usize;
        self.jobs.get_mut(index / PAGE)?.get_mut(index % PAGE)
    }

    fn job_mut(&mut self, id: JobId) -> Option<&mut Job> {
        let index = self.index.get(id)?;
        self.place_mut(index)?.as_mut()
    }

    /// Whether all commits are there that the last one says there are.
    fn check_census(&self, last_seq: u64, torn: Option<&Torn>) -> Result<(), RecoverError> {
        let ledger = &self.ledger;
        let head = match &self.head {
            Some((seq, head)) if *seq == last_seq => head,
            Some(_) | None if ledger.commits == 0 => return Ok(()),
            Some(_) | None => return Err(RecoverError::Nonsense(format!("commit {last_seq} has no head"))),
        };
        // A commit that was torn may have removed what was superfluous: it is gone, and nothing is lost.
        if torn.is_none() && (head.commits, head.census) != (ledger.commits, ledger.census) {
            return Err(RecoverError::Lost { expected: head.commits, found: ledger.commits });
        }
        Ok(())
    }

    /// Hands everything to a new engine, after looking whether an engine can have been in this state.
    fn build(self, limits: Limits, seed: u64) -> Result<(Engine, Ledger), RecoverError> {
        let queues_max = limits.queues_max.max(QUEUES_MIN);
        check_queues(&self.queues, queues_max)?;
        self.check_jobs()?;
        self.check_schedules()?;
        self.check_batches()?;
        drop(self.index);
        let mut engine = Engine::new(limits, seed);
        if let Some((_, head)) = self.head {
            engine.recall_head(head.head, head.clean);
        }
        self.queues.into_values().for_each(|image| engine.recall_queue(image));
        for batch in self.batches.into_values() {
            engine.recall_batch(batch);
        }
        for job in self.jobs.into_iter().flatten().flatten() {
            engine.recall_job(job);
        }
        for schedule in self.schedules.into_values() {
            engine.recall_schedule(schedule);
        }
        engine.wake_up();
        Ok((engine, self.ledger))
    }

    fn check_jobs(&self) -> Result<(), RecoverError> {
        let mut ranks = Vec::with_capacity(self.index.len());
        for job in self.jobs.iter().flatten().flatten() {
            let Some(queue) = self.queues.get(&job.queue) else {
                return Err(RecoverError::Nonsense(format!("{:?} is in {:?}, which is not there", job.id, job.queue)));
            };
            if job.cycle().is_some() != (queue.kind == QueueKind::Cycle) {
                return Err(RecoverError::Nonsense(format!("{:?} does not fit the kind of {:?}", job.id, job.queue)));
            }
            ranks.push(job.rank);
        }
        ranks.sort_unstable();
        match ranks.windows(2).find(|pair| pair.first() == pair.last()) {
            Some(pair) => Err(RecoverError::Nonsense(format!("rank {} is given twice", pair.first().unwrap_or(&0)))),
            None => Ok(()),
        }
    }

    fn check_batches(&self) -> Result<(), RecoverError> {
        let mut open = Open::new();
        let members = self.jobs.iter().flatten().flatten().filter_map(|job| Some((job, job.extra.as_deref()?.member?)));
        for (job, member) in members.filter(|(_, member)| member.role == Role::Job) {
            let counts = open.entry(member.batch).or_default();
            counts.0 += u64::from(!member.ran);
            counts.1 += u64::from(!matches!(job.place, Place::Done(_)));
        }
        let mut names = BTreeMap::new();
        for (id, batch) in &self.batches {
            if self.index.get(*id).is_some() || self.schedules.contains_key(id) {
                return Err(RecoverError::Nonsense(format!("{id:?} is a batch and something else")));
            }
            if let Some(other) = names.insert(&batch.name, id) {
                return Err(RecoverError::Nonsense(format!("{id:?} and {other:?} are batches of the same name")));
            }
            check_batch(batch, open.get(id).copied().unwrap_or_default()).map_err(RecoverError::Nonsense)?;
        }
        Ok(())
    }

    fn check_schedules(&self) -> Result<(), RecoverError> {
        let mut names = BTreeMap::new();
        for (id, schedule) in &self.schedules {
            if self.index.get(*id).is_some() {
                return Err(RecoverError::Nonsense(format!("{id:?} is a job and a schedule")));
            }
            let name = schedule.key.as_ref().map(|key| (schedule.job.origin, key));
            if let Some(other) = name.and_then(|name| names.insert(name, id)) {
                return Err(RecoverError::Nonsense(format!("{id:?} and {other:?} are schedules of the same name")));
            }
        }
        Ok(())
    }
}

/// What a batch's jobs may still add to its counts: those that have not run, those that have not succeeded.
type Open = BTreeMap<JobId, (u64, u64)>;

/// Whether a batch can stand as it does.
fn check_batch(batch: &Batch, (unran, open): (u64, u64)) -> Result<(), String> {
    let (id, at) = (batch.id, &batch.standing);
    if unran > at.total - at.ran || open > at.total - at.succeeded {
        return Err(format!("{id:?} has more jobs than it counts"));
    }
    let kept = |stage: Stage, callback: &Option<_>| stage != Stage::Waiting && callback.is_some();
    if kept(at.complete, &batch.complete) || kept(at.success, &batch.success) {
        return Err(format!("{id:?} has a callback that was pushed"));
    }
    if at.success != Stage::Waiting && !at.complete.is_over() {
        return Err(format!("{id:?} succeeded before it was complete"));
    }
    let misplaced = |job: &windlass_engine::NewJob| job.kind != QueueKind::Work || !job.durable || job.listen;
    if [&batch.complete, &batch.success].into_iter().flatten().any(|job| misplaced(job)) {
        return Err(format!("{id:?} has a callback that cannot be one"));
    }
    Ok(())
}

fn check_queues(queues: &BTreeMap<QueueId, QueueImage>, queues_max: u32) -> Result<(), RecoverError> {
    let mut names = BTreeMap::new();
    for (id, image) in queues {
        if id.0 >= queues_max {
            return Err(RecoverError::Nonsense(format!("{id:?} is beyond the limit of {queues_max} queues")));
        }
        if let Some(other) = names.insert(&image.name, id) {
            return Err(RecoverError::Nonsense(format!("{id:?} and {other:?} have the same name")));
        }
    }
    Ok(())
}
