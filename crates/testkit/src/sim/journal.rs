//! A journal in memory that keeps only what the engine's changes name: an engine rebuilt from it must equal the one
//! that crashed. Rules: the documentation of [`windlass_engine::Change`].

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass_engine::{
    Batch, Change, DAYS_KEPT, DayBegin, Engine, EngineMeta, Extra, Job, JobId, JobState, Lease,
    Limits, Namespace, NamespaceImage, QueueId, QueueImage, Schedule, Unfit,
};

use super::bodies::Bodies;
use super::on_dead::Reports;

/// The records.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    meta: Option<EngineMeta>,
    queues: BTreeMap<QueueId, QueueImage>,
    jobs: BTreeMap<JobId, Job>,
    schedules: BTreeMap<JobId, Schedule>,
    batches: BTreeMap<JobId, Batch>,
    namespaces: BTreeMap<Namespace, NamespaceImage>,
    /// By number, modulo [`DAYS_KEPT`].
    days: BTreeMap<u64, DayBegin>,
}

impl Journal {
    /// Records the changes of a turn, with the engine's state right after it.
    pub(crate) fn write(&mut self, engine: &Engine, changes: &[Change], bodies: &Bodies) {
        for change in changes {
            match change.clone() {
                Change::JobPut(id) | Change::JobKept(id) => self
                    .jobs
                    .extend(engine.job(id).map(|job| (id, bodies.whole(image(job))))),
                Change::JobMoved(id) => {
                    if let Some(job) = engine.job(id) {
                        let Some(kept) = self.jobs.get_mut(&id) else {
                            panic!("{id:?} moved but was never put")
                        };
                        move_image(kept, &image(job));
                    }
                }
                Change::JobGone(id) => {
                    self.jobs.remove(&id);
                }
                Change::QueueSet(id) => {
                    self.queues
                        .extend(engine.queue(id).map(|queue| (id, queue.image().clone())));
                }
                // A new queue may have the number.
                Change::QueueGone(id) => {
                    match engine.queue(id).map(windlass_engine::Queue::image) {
                        Some(queue)
                            if queue.is_known()
                                || queue.throttle.is_some()
                                || queue.rules.is_some() =>
                        {
                            self.queues.insert(id, queue.clone());
                        }
                        now => {
                            let in_it = |job: &Job| job.queue == id && now.is_none();
                            assert!(
                                !self.jobs.values().any(in_it),
                                "{id:?} is gone before its jobs"
                            );
                            self.queues.remove(&id);
                        }
                    }
                }
                Change::SchedulePut(id) => {
                    self.schedules
                        .extend(engine.schedule(id).map(|schedule| (id, schedule.clone())));
                }
                Change::ScheduleMoved(id) => {
                    if let Some(schedule) = engine.schedule(id) {
                        let Some(kept) = self.schedules.get_mut(&id) else {
                            panic!("{id:?} moved but was never put")
                        };
                        let Schedule {
                            next_at,
                            runs_left,
                            last,
                            ..
                        } = schedule.clone();
                        (kept.next_at, kept.runs_left, kept.last) = (next_at, runs_left, last);
                    }
                }
                Change::ScheduleGone(id) => {
                    self.schedules.remove(&id);
                }
                Change::BatchPut(id) => self
                    .batches
                    .extend(engine.batch(id).map(|batch| (id, batch.clone()))),
                Change::BatchMoved(id) => {
                    if let Some(batch) = engine.batch(id) {
                        let Some(kept) = self.batches.get_mut(&id) else {
                            panic!("{id:?} moved but was never put")
                        };
                        kept.progress = batch.progress;
                    }
                }
                Change::BatchGone(id) => {
                    self.batches.remove(&id);
                }
                Change::DayBegan(number) => {
                    let begin = engine
                        .days()
                        .find(|begin| begin.number == number)
                        .expect("the day has begun");
                    self.days.insert(number % DAYS_KEPT, *begin);
                }
                Change::NamespaceSet(id) => {
                    self.namespaces.remove(&id);
                    let image = engine.namespace(id).cloned();
                    self.namespaces.extend(image.map(|image| (id, image)));
                }
                Change::Ended(_) | Change::Meta => {}
            }
        }
        // Every commit includes the engine meta.
        self.meta = Some(engine.meta().clone());
        self.compare(engine);
    }

    /// Asserts that no required record is missing or stale.
    fn compare(&self, engine: &Engine) {
        let clock = |meta: &EngineMeta| (meta.clock.skew_ms, meta.clock.boot, meta.clock.ahead_ms);
        assert_eq!(
            self.meta.as_ref().map(clock),
            Some(clock(engine.meta())),
            "left: the journal's clock, right: the engine's"
        );
        let durable = engine.jobs().filter(|job| job.durable);
        assert_eq!(durable.count(), self.jobs.len(), "jobs in the journal");
        for (id, kept) in &self.jobs {
            let Some(job) = engine.job(*id) else {
                panic!("{id:?} is still in the journal")
            };
            let mut now = image(job);
            // The journal does not record a delivery that ends with the daemon, nor progress alone.
            if job.lease().is_some_and(Lease::connection_bound) && kept.attempts + 1 == now.attempts
            {
                now.attempts = kept.attempts;
            }
            // Nor that the job is over for which one waited: it is due after a restart.
            let ahead = now
                .extra
                .as_deref()
                .and_then(|extra| engine.job(extra.coalesced.as_deref()?.behind?));
            let waits = ahead
                .is_some_and(|job| !matches!(job.state, JobState::Dead(_) | JobState::Done(_)));
            if kept.state == JobState::Parked
                && matches!(now.state, JobState::Scheduled(_))
                && !waits
            {
                now.state = JobState::Parked;
                let track = kept.extra.as_deref().and_then(|extra| extra.track);
                now.extra.iter_mut().for_each(|extra| extra.track = track);
            }
            assert_eq!(
                rested(kept),
                rested(&now),
                "left: the journal, right: the engine"
            );
            assert!(
                self.queues.contains_key(&job.queue),
                "{id:?} is in a queue that is not in the journal"
            );
        }
        let mut days: Vec<_> = self.days.values().collect();
        days.sort_unstable_by_key(|begin| begin.number);
        assert_eq!(
            days,
            engine.days().collect::<Vec<_>>(),
            "left: the journal's days, right: the engine's"
        );
        let schedules: Vec<_> = engine.schedules().collect();
        assert_eq!(
            self.schedules.values().collect::<Vec<_>>(),
            schedules,
            "left: the journal, right: the engine"
        );
        let batches: Vec<_> = engine.batches().collect();
        assert_eq!(
            self.batches.values().collect::<Vec<_>>(),
            batches,
            "left: the journal, right: the engine"
        );
        for queue in engine.queues().map(windlass_engine::Queue::image) {
            let kept = self.queues.get(&queue.id);
            assert!(
                kept.is_none_or(|kept| kept == queue),
                "left: {kept:?} in the journal, right: {queue:?}"
            );
            assert!(
                kept.is_some() || !queue.is_known(),
                "{queue:?} is not in the journal"
            );
        }
        for id in self.queues.keys() {
            assert!(
                engine.queue(*id).is_some(),
                "{id:?} is still in the journal"
            );
        }
    }

    /// The engine after a restart. `clean`: the daemon was stopped; otherwise it crashed.
    pub(crate) fn recover(&self, limits: Limits, hash_seed: u64, clean: bool) -> Engine {
        let mut engine = Engine::new(limits, hash_seed);
        engine.set_on_dead(Some(Arc::new(Reports)));
        engine.keep_history(true);
        if let Some(meta) = self.meta.clone() {
            engine.recall_meta(meta, clean);
        }
        self.days
            .values()
            .for_each(|begin| engine.recall_day(*begin));
        self.namespaces
            .values()
            .for_each(|image| engine.recall_namespace(image.clone()));
        self.queues
            .values()
            .for_each(|queue| engine.recall_queue(queue.clone()));
        for batch in self.batches.values() {
            assert!(
                engine.recall_batch(batch.clone()),
                "{:?} is refused",
                batch.id
            );
        }
        for job in self.jobs.values() {
            assert!(engine.recall_job(job.clone()), "{:?} is refused", job.id);
        }
        for schedule in self.schedules.values() {
            assert!(
                engine.recall_schedule(schedule.clone()),
                "{:?} is refused",
                schedule.id
            );
        }
        engine.wake_up();
        engine
    }
}

/// A job as the journal keeps it: without state that ends with the daemon's connections.
fn image(job: &Job) -> Job {
    let mut job = job.clone();
    job.unfit = Unfit::NONE;
    match &job.state {
        JobState::Leased(lease) if lease.connection_bound() => job.state = JobState::Ready,
        JobState::Leased(lease) => {
            let lease = Lease::new(
                lease.holder.clone(),
                lease.token,
                lease.taken_at,
                lease.until,
                lease.on_expiry,
            );
            job.state = JobState::Leased(Box::new(lease));
        }
        JobState::Ready
        | JobState::Scheduled(_)
        | JobState::Retrying(_)
        | JobState::Dead(_)
        | JobState::Parked
        | JobState::Done(_) => {}
    }
    if let Some(extra) = job.extra.as_deref_mut() {
        extra.listeners.clear();
        extra.taken_back = false;
        extra.output = None;
    }
    job
}

/// Writes a job's new standing and nothing else.
fn move_image(kept: &mut Job, now: &Job) {
    kept.state = now.state.clone();
    kept.rank = now.rank;
    kept.ready_at = now.ready_at;
    (kept.attempts, kept.failures) = (now.attempts, now.failures);
    if let Some(extra) = now.extra.as_deref() {
        let kept = kept.extra.get_or_insert_default();
        (kept.cycle, kept.failure, kept.progress) =
            (extra.cycle, extra.failure.clone(), extra.progress.clone());
        (kept.losses, kept.attempts) = (extra.losses, extra.attempts.clone());
        if let (Some(kept), Some(now)) = (&mut kept.track, extra.track) {
            kept.updated_at = now.updated_at;
        }
        if let (Some(kept), Some(now)) = (&mut kept.member, extra.member) {
            kept.ran = now.ran;
        }
    }
}

/// A job without the fields that may lag behind in the journal.
fn rested(job: &Job) -> Job {
    let mut extra = job.extra.as_deref().cloned().unwrap_or_default();
    extra.progress = None;
    Job {
        extra: (extra != Extra::default()).then(|| Box::new(extra)),
        ..job.clone()
    }
}
