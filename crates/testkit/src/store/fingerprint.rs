//! The journalled part of an engine in a comparable form: for tests of recovery.

use std::collections::BTreeMap;
use std::fmt;

use windlass_engine::{
    Batch, DayBegin, Engine, EngineMeta, Job, JobId, JobStateKind, Queue, QueueId, QueueImage,
    Schedule,
};
use windlass_store::Record;

/// Everything that recovery must restore.
#[derive(Clone, PartialEq)]
pub struct Fingerprint {
    /// The journalled part of every durable job.
    pub jobs: BTreeMap<JobId, Job>,
    /// Every queue that is stored or holds durable jobs.
    pub queues: BTreeMap<QueueId, QueueImage>,
    /// Every schedule.
    pub schedules: BTreeMap<JobId, Schedule>,
    /// Every batch.
    pub batches: BTreeMap<JobId, Batch>,
    /// The counters when each day began.
    pub days: Vec<DayBegin>,
    /// The engine meta's counters. Its numbers only grow.
    pub meta: EngineMeta,
}

impl Fingerprint {
    /// The fingerprint of an engine.
    ///
    /// It omits state that ends with the daemon (listeners, connection-bound leases and their deliveries), and state
    /// that the engine changes without reporting it: progress.
    #[must_use]
    pub fn of(engine: &Engine) -> Self {
        let jobs = engine
            .jobs()
            .filter(|job| job.durable)
            .map(|job| (job.id, keepable(job)))
            .collect();
        let lasting = |id: QueueId| engine.jobs().any(|job| job.durable && job.queue == id);
        let queues = engine
            .queues()
            .filter(|queue| is_stored(queue))
            .filter(|queue| queue.image().is_known() || lasting(queue.image().id))
            .map(|queue| (queue.image().id, queue.image().clone()))
            .collect();
        let schedules = engine
            .schedules()
            .map(|schedule| (schedule.id, schedule.clone()))
            .collect();
        let batches = engine
            .batches()
            .map(|batch| (batch.id, batch.clone()))
            .collect();
        let days = engine.days().copied().collect();
        Self {
            jobs,
            queues,
            schedules,
            batches,
            days,
            meta: engine.meta().clone(),
        }
    }
}

/// Whether the journal has a queue's settings.
fn is_stored(queue: &Queue) -> bool {
    queue.image().is_known() || JobStateKind::ALL.iter().any(|state| queue.jobs(*state) > 0)
}

/// A job as the journal restores it.
fn keepable(job: &Job) -> Job {
    let mut bytes = Vec::new();
    Record::Put(job.clone()).encode(&mut bytes);
    let Some(Ok(Record::Put(mut job))) = Record::all(&bytes).next() else {
        return job.clone();
    };
    if let Some(extra) = &mut job.extra {
        extra.progress = None;
        if **extra == windlass_engine::Extra::default() {
            job.extra = None;
        }
    }
    job
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ready = self
            .jobs
            .values()
            .filter(|job| job.state.kind() == JobStateKind::Ready)
            .count();
        let (jobs, queues) = (self.jobs.len(), self.queues.len());
        let (schedules, batches, meta) = (self.schedules.len(), self.batches.len(), &self.meta);
        write!(
            f,
            "{jobs} jobs ({ready} ready), {queues} queues, {schedules} schedules, {batches} batches, {meta:?}"
        )
    }
}

impl Fingerprint {
    /// A text with the first difference; `None` if there is none. Assigned numbers may have advanced.
    #[must_use]
    pub fn differs_from(&self, other: &Self) -> Option<String> {
        let differs = of_each(&self.jobs, &other.jobs)
            .or_else(|| of_each(&self.queues, &other.queues))
            .or_else(|| of_each(&self.schedules, &other.schedules))
            .or_else(|| of_each(&self.batches, &other.batches));
        if differs.is_some() {
            return differs;
        }
        if self.days != other.days {
            return Some(format!("days:\n  {:?}\n  {:?}", self.days, other.days));
        }
        let totals = |meta: &EngineMeta| (meta.totals, meta.protocols.clone());
        let (one, two) = (totals(&self.meta), totals(&other.meta));
        (one != two).then(|| format!("totals:\n  {one:?}\n  {two:?}"))
    }
}

fn of_each<K: Ord + fmt::Debug, V: PartialEq + fmt::Debug>(
    ours: &BTreeMap<K, V>,
    theirs: &BTreeMap<K, V>,
) -> Option<String> {
    let mut all = ours
        .keys()
        .chain(theirs.keys())
        .map(|id| (id, ours.get(id), theirs.get(id)));
    all.find(|(_, one, two)| one != two)
        .map(|(id, one, two)| format!("{id:?}:\n  {one:?}\n  {two:?}"))
}
