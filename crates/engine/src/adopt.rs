//! Takes over the contents of another engine: queue settings, jobs in any state, schedules, batches. Meant for imports, not for
//! clients: the caller has the engine alone, and calls [`Engine::wake_up`] at the end.
//!
//! The daemon's limits apply. A queue's limits do not: a job that was accepted once is not refused when it returns. Nothing
//! that is due runs here.

use bytes::Bytes;

use crate::batch::{Batch, Role, Stage};
use crate::context::{Change, Context};
use crate::engine::Engine;
use crate::ids::{JobId, QueueId, Token};
use crate::job::{Job, JobState, Lease};
use crate::queue::QueueImage;
use crate::refusal::{Capacity, Refusal, Thing};
use crate::request::QueueKind;
use crate::schedule::{NewSchedule, Schedule};
use crate::table::Jobs;

/// Higher numbers are replaced by new ones: a producer that invents numbers must not use up the number space.
const KEPT_BELOW: u64 = 1 << 53;

impl Engine {
    /// Takes over a queue with its settings and returns true. If a queue of this name exists, it keeps its own settings, and
    /// the result is false.
    ///
    /// # Errors
    ///
    /// The queue exists with the other kind, its name is too long, or there are too many queues.
    pub fn adopt_queue(&mut self, image: QueueImage, context: &mut Context) -> Result<bool, Refusal> {
        self.check_name(&image.name)?;
        let is_new = self.queues.named(&image.name).is_none();
        let id = self.queues.find_or_make(&image.name, image.kind, self.limits.queues_max)?;
        if is_new {
            self.queues.recall(QueueImage { id, name: Self::own(&image.name), ..image });
            context.remember(Change::QueueSet(id));
        } else {
            self.raise_serial(id, image.serial, context);
        }
        Ok(is_new)
    }

    /// Takes over a job that was in a queue of this name. The job keeps its number if that number was never given here. Its
    /// `rank` decides its position, so no other job may have that rank ([`Engine::reserve_ranks`]). It stays in its batch if
    /// its `member` names a batch of this engine. If two jobs have the same key, the younger job gets the key, but jobs below
    /// `first` keep theirs.
    ///
    /// # Errors
    ///
    /// Its key is held by a job that keeps it (`NotUnique`), its state is impossible, a limit does not allow it, or the queue
    /// has the other kind.
    pub fn adopt_job(
        &mut self,
        mut job: Job,
        queue: &Bytes,
        first: JobId,
        context: &mut Context,
    ) -> Result<JobId, Refusal> {
        let kind = if job.cycle().is_some() { QueueKind::Cycle } else { QueueKind::Work };
        [queue, job.name(), job.key().unwrap_or_default()].into_iter().try_for_each(|name| self.check_name(name))?;
        if !is_possible(&job.state, kind) {
            return Err(Refusal::OutOfPlace);
        }
        self.check_room_for(job.body().len())?;
        job.queue = self.queues.find_or_make(queue, kind, self.limits.queues_max)?;
        let holder = job.key().and_then(|key| self.jobs.at(self.jobs.keyed(job.queue, job.protocol, key)?));
        let keeps = |holder: &Job| holder.id < first || kind == QueueKind::Cycle;
        if holder.is_some_and(|holder| keeps(holder) && Jobs::wants_key(&job)) {
            return Err(Refusal::NotUnique);
        }
        job.id = self.adopt_number(job.id, context);
        job.durable = true;
        job.rank = job.rank.max(1);
        if let Some(extra) = &mut job.extra {
            extra.listeners.clear();
            extra.member =
                extra.member.filter(|member| kind == QueueKind::Work && self.is_called(member.batch, member.role));
        }
        if let JobState::Leased(lease) = &mut job.state {
            let longest = self.now.after_ms(self.limits.lease_ms_max);
            lease.until = lease.until.min(longest);
            job.attempts = job.attempts.max(1);
            if kind == QueueKind::Work {
                lease.token = Token(job.attempts.into());
            }
        }
        let (id, queue, serial) = (job.id, job.queue, job.cycle().map_or(0, |cycle| cycle.priority));
        self.make_known(queue, context);
        self.raise_serial(queue, serial, context);
        self.rank_back = self.rank_back.max(job.rank + 1);
        self.rank_front = self.rank_front.min(job.rank.saturating_sub(1));
        self.settle_recalled(job);
        let Some(slot) = self.jobs.slot(id) else { return Err(Refusal::NotFound(Thing::Job)) };
        self.count(slot, |totals| totals.pushed += 1);
        self.remember_put(slot, context);
        self.drop_dead(context);
        self.tell_dropped(context);
        Ok(id)
    }

    /// Takes over a schedule, with its grid and its next run.
    ///
    /// # Errors
    ///
    /// A schedule of this name exists (`NotUnique`), or a client could not set this schedule here.
    pub fn adopt_schedule(&mut self, mut schedule: Schedule, context: &mut Context) -> Result<JobId, Refusal> {
        let (key, job, recurrence) = (schedule.key.clone(), schedule.job.clone(), schedule.recurrence);
        let new = NewSchedule { key, job, recurrence, at_once: false, keep_grid: false, runs: schedule.runs_left };
        self.check_new_schedule(&new)?;
        let queue = self.queues.find_or_make(&schedule.job.queue, schedule.job.kind, self.limits.queues_max)?;
        self.make_known(queue, context);
        schedule.id = self.adopt_number(schedule.id, context);
        let id = schedule.id;
        self.schedules.put(schedule);
        context.remember(Change::SchedulePut(id));
        Ok(id)
    }

    /// Takes over a batch as it stands. If its `parent` is not here, the batch goes on without a parent. Take over a batch
    /// before its jobs.
    ///
    /// # Errors
    ///
    /// A batch of this name exists (`NotUnique`), its state is impossible, or a limit does not allow it.
    pub fn adopt_batch(&mut self, mut batch: Batch, context: &mut Context) -> Result<JobId, Refusal> {
        self.check_name(&batch.name)?;
        if self.batches.named(&batch.name).is_some() {
            return Err(Refusal::NotUnique);
        }
        let callbacks = [&batch.complete, &batch.success].into_iter().flatten();
        callbacks.clone().try_for_each(|job| self.check_callback(job))?;
        if !batch.is_possible() {
            return Err(Refusal::OutOfPlace);
        }
        let limit = self.limits.batches_max;
        if self.batches.len() >= limit as usize {
            return Err(Capacity::Batches.exceeded(limit, limit));
        }
        self.check_bytes_for(callbacks.map(|job| job.body.len() as u64).sum(), 0)?;
        batch.id = self.adopt_number(batch.id, context);
        // No batch has the number 0. With it, only the parent's name remains.
        let here = batch.parent.filter(|parent| *parent < batch.id && self.batches.at(*parent).is_some());
        batch.parent = batch.parent.map(|_| here.unwrap_or(JobId(0)));
        let id = batch.id;
        self.batches.insert(batch);
        context.remember(Change::BatchPut(id));
        Ok(id)
    }

    /// The engine gives no number below `next` from now on: clients may know those numbers.
    pub fn adopt_numbers(&mut self, next: u64, context: &mut Context) {
        if next < KEPT_BELOW && next > self.head.next_job {
            self.head.next_job = next;
            self.head.reserved = self.head.reserved.max(next);
            context.remember(Change::Head);
        }
    }

    /// Reserves `many` ranks behind those of all jobs, for jobs to take over. Returns the first of these ranks.
    pub const fn reserve_ranks(&mut self, many: u64) -> u64 {
        self.rank_back += many;
        self.rank_back - many
    }

    fn adopt_number(&mut self, wanted: JobId, context: &mut Context) -> JobId {
        if wanted.0 < self.head.next_job || wanted.0 >= KEPT_BELOW {
            return self.new_job_id(context);
        }
        self.adopt_numbers(wanted.0 + 1, context);
        wanted
    }

    /// Whether a job can have this role in a batch of this engine.
    fn is_called(&self, batch: JobId, role: Role) -> bool {
        self.batches.at(batch).is_some_and(|batch| match role {
            Role::Job => true,
            Role::Complete => batch.standing.complete != Stage::Waiting,
            Role::Success => batch.standing.success != Stage::Waiting,
        })
    }

    fn raise_serial(&mut self, queue: QueueId, serial: u64, context: &mut Context) {
        if self.queues.at(queue).is_some_and(|queue| queue.image.serial < serial) {
            self.set_queue(queue, |image| image.serial = serial, context);
        }
    }
}

impl Batch {
    /// Whether this state of a batch is possible.
    fn is_possible(&self) -> bool {
        let at = &self.standing;
        let kept = |stage: Stage, callback: &Option<_>| stage != Stage::Waiting && callback.is_some();
        at.succeeded <= at.ran
            && at.ran <= at.total
            && !kept(at.complete, &self.complete)
            && !kept(at.success, &self.success)
            && (at.success == Stage::Waiting || at.complete.is_over())
            && (at.held_until.is_none() || at.committed && at.has_stages_left())
    }
}

fn is_possible(state: &JobState, kind: QueueKind) -> bool {
    match state {
        JobState::Ready | JobState::Scheduled(_) | JobState::Retrying(_) | JobState::Dead(_) => true,
        JobState::Leased(lease) => !Lease::connection_bound(lease),
        JobState::Parked => kind == QueueKind::Cycle,
        JobState::Done(_) => kind == QueueKind::Work,
    }
}
