//! The journalled part of an engine in a comparable form: for tests of recovery.

use std::collections::BTreeMap;
use std::fmt;

use windlass_engine::{Batch, DayBegin, Engine, EngineMeta, Job, JobId, JobStateKind, QueueId, QueueImage, Schedule};

use crate::journal::is_worth_remembering;
use crate::record::Record;

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
        let jobs = engine.jobs().filter(|job| job.durable).map(|job| (job.id, keepable(job))).collect();
        let lasting = |id: QueueId| engine.jobs().any(|job| job.durable && job.queue == id);
        let queues = engine
            .queues()
            .filter(|queue| is_worth_remembering(queue))
            .filter(|queue| queue.image().is_known() || lasting(queue.image().id))
            .map(|queue| (queue.image().id, queue.image().clone()))
            .collect();
        let schedules = engine.schedules().map(|schedule| (schedule.id, schedule.clone())).collect();
        let batches = engine.batches().map(|batch| (batch.id, batch.clone())).collect();
        let days = engine.days().copied().collect();
        Self { jobs, queues, schedules, batches, days, meta: engine.meta().clone() }
    }
}

/// A job as the journal restores it.
fn keepable(job: &Job) -> Job {
    let mut bytes = Vec::new();
    Record::Put(job.clone()).encode(&mut bytes);
    let Some(Ok(Record::Put(mut job))) = Record::all(&bytes).next() else { return job.clone() };
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
        let ready = self.jobs.values().filter(|job| job.state.kind() == JobStateKind::Ready).count();
        let (jobs, queues) = (self.jobs.len(), self.queues.len());
        let (schedules, batches, meta) = (self.schedules.len(), self.batches.len(), &self.meta);
        write!(f, "{jobs} jobs ({ready} ready), {queues} queues, {schedules} schedules, {batches} batches, {meta:?}")
    }
}

impl Fingerprint {
    /// A text with the first difference; `None` if there is none. Assigned numbers may have advanced.
    #[must_use]
    pub fn differs_from(&self, other: &Self) -> Option<String> {
        let ids = self.jobs.keys().chain(other.jobs.keys());
        for id in ids {
            let (one, two) = (self.jobs.get(id), other.jobs.get(id));
            if one != two {
                return Some(format!("{id:?}:\n  {one:?}\n  {two:?}"));
            }
        }
        let ids = self.queues.keys().chain(other.queues.keys());
        for id in ids {
            let (one, two) = (self.queues.get(id), other.queues.get(id));
            if one != two {
                return Some(format!("{id:?}:\n  {one:?}\n  {two:?}"));
            }
        }
        let ids = self.schedules.keys().chain(other.schedules.keys());
        for id in ids {
            let (one, two) = (self.schedules.get(id), other.schedules.get(id));
            if one != two {
                return Some(format!("{id:?}:\n  {one:?}\n  {two:?}"));
            }
        }
        let ids = self.batches.keys().chain(other.batches.keys());
        for id in ids {
            let (one, two) = (self.batches.get(id), other.batches.get(id));
            if one != two {
                return Some(format!("{id:?}:\n  {one:?}\n  {two:?}"));
            }
        }
        if self.days != other.days {
            return Some(format!("days:\n  {:?}\n  {:?}", self.days, other.days));
        }
        let totals = |meta: &EngineMeta| (meta.totals, meta.protocols.clone());
        let (one, two) = (totals(&self.meta), totals(&other.meta));
        (one != two).then(|| format!("totals:\n  {one:?}\n  {two:?}"))
    }
}
