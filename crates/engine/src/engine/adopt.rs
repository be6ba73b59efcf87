//! Imports the contents of another engine: queue settings, jobs in any state, schedules, batches; or, after a
//! change of leader, only the IDs it has used. Not for clients: the caller must have exclusive access to the
//! engine. An import calls [`Engine::wake_up`] at the end.
//!
//! The daemon's limits apply. A queue's limits do not, because a job that was already accepted must not be
//! rejected when it moves. Nothing that is due is executed here.

use bytes::Bytes;

use super::Engine;
use super::batches::check_callback;
use super::place::{count, recall_job, remember_put};
use super::room::{check_bytes_for, check_room_for, drop_past};
use super::schedules::check_new_schedule;
use super::state::{State, own};
use crate::batches::{Batch, Stage};
use crate::change::Change;
use crate::context::Context;
use crate::ids::{JobId, Namespace, QueueId, Timestamp, Token};
use crate::jobs::{Job, JobState, Lease, Role};
use crate::namespaces::NamespaceImage;
use crate::queues::QueueImage;
use crate::refusal::{Capacity, Refusal};
use crate::request::QueueKind;
use crate::schedules::{NewSchedule, Schedule};
use crate::succession::Succession;

/// Higher IDs are replaced by new ones, because a producer that invents IDs must not exhaust the ID space.
const KEPT_BELOW: u64 = 1 << 53;

/// IDs that an engine may have assigned beyond those in the journal, because it assigns an ID before the
/// journal records it.
const NUMBERS_UNKNOWN: u64 = 1 << 20;

impl Engine {
    /// Makes this engine the successor of another one on the same journal. Clients of that engine may send
    /// claims. No job is delivered until [`Engine::end_grace_at`]. New jobs get IDs that the other engine
    /// cannot have assigned. Call it before the first command.
    pub fn succeed(&mut self, context: &mut Context) {
        let next = self.state.meta.next_job().saturating_add(NUMBERS_UNKNOWN);
        self.adopt_numbers(next, context);
        self.state.meta.begin_numbers();
        self.state.succession = Some(Succession::new(self.state.meta.next_job()));
        self.state.deferred.hold_until(Timestamp::NEVER);
    }

    /// Sets the end of the grace. Requests for work are then served in the order in which they arrived. Has
    /// no effect on an engine without a predecessor.
    pub const fn end_grace_at(&mut self, until: Timestamp) {
        if self.state.succession.is_some() {
            self.state.deferred.hold_until(until);
        }
    }

    /// Imports a namespace with a name. If one with this name exists, it is that, with its limits. Returns the
    /// number here.
    ///
    /// # Errors
    ///
    /// The name is invalid, or there are as many namespaces as can be.
    pub fn adopt_namespace(
        &mut self,
        image: &NamespaceImage,
        context: &mut Context,
    ) -> Result<Namespace, Refusal> {
        let namespaces = self.state.queues.namespaces_mut();
        let is_new = namespaces.named(&image.name).is_none();
        let id = namespaces.find_or_make(&image.name)?;
        if is_new {
            namespaces.set_limits(id, image.limits);
        }
        namespaces.remember_changed(&mut context.changes);
        Ok(id)
    }

    /// Imports a queue with the settings and returns true. If a queue with this name exists, the settings
    /// stay as they are, and the result is false.
    ///
    /// # Errors
    ///
    /// The queue exists with another kind, the name is too long, or there are too many queues.
    pub fn adopt_queue(
        &mut self,
        image: QueueImage,
        context: &mut Context,
    ) -> Result<bool, Refusal> {
        let state = &mut self.state;
        state.check_name(&image.name)?;
        let namespace = image.id.namespace();
        let is_new = state.queues.named(namespace, &image.name).is_none();
        let id = state.find_or_make(namespace, &image.name, image.kind, None)?;
        if is_new {
            state.queues.recall(QueueImage {
                id,
                name: own(&image.name),
                ..image
            });
            context.remember(Change::QueueSet(id));
        } else {
            raise_serial(state, id, image.serial, context);
        }
        Ok(is_new)
    }

    /// Imports a job that was in a queue of this name. The job retains the ID if it was never assigned here.
    /// The job's `rank` determines its position, so no other job may have that rank
    /// ([`Engine::reserve_ranks`]). It stays in a batch if `member` names a batch of this engine. If two jobs
    /// have the same key, the younger job gets the key, but jobs below `first` retain theirs. A `cycle` entry
    /// retains the key against another entry if both have the key until they are removed, because both are
    /// then the same entry.
    ///
    /// # Errors
    ///
    /// Another job has the key and retains it (`NotUnique`), the job's state is impossible, a limit does not
    /// allow it, or the queue has another kind.
    pub fn adopt_job(
        &mut self,
        mut job: Job,
        queue: &Bytes,
        first: JobId,
        context: &mut Context,
    ) -> Result<JobId, Refusal> {
        let state = &mut self.state;
        let kind = if job.cycle().is_some() {
            QueueKind::Cycle
        } else {
            QueueKind::Work
        };
        [queue, job.name(), job.key().unwrap_or_default()]
            .into_iter()
            .try_for_each(|name| state.check_name(name))?;
        if !is_possible(&job, kind) {
            return Err(Refusal::OutOfPlace);
        }
        check_room_for(state, job.body().len())?;
        job.queue = state.find_or_make(job.queue.namespace(), queue, kind, None)?;
        let holder = job.key().and_then(|key| {
            state
                .jobs
                .at(state.jobs.keyed(job.queue, job.protocol, key)?)
        });
        let is_same =
            |holder: &Job| kind == QueueKind::Cycle && holder.keeps_key() && job.keeps_key();
        let keeps = |holder: &Job| holder.id < first || is_same(holder);
        if holder.is_some_and(|holder| keeps(holder) && job.wants_key()) {
            return Err(Refusal::NotUnique);
        }
        job.id = adopt_number(state, job.id, context);
        job.durable = true;
        job.rank = job.rank.max(1);
        if let Some(extra) = &mut job.extra {
            extra.listeners.clear();
            // The job that it was queued behind may have a different ID here.
            extra.coalesced = None;
            extra.member = extra.member.filter(|member| {
                kind == QueueKind::Work && is_called(state, member.batch, member.role)
            });
        }
        if job.state == JobState::Parked && kind == QueueKind::Work {
            job.state = JobState::Scheduled(state.wall());
        }
        if let JobState::Leased(lease) = &mut job.state {
            lease.end_by(state.now.after_ms(state.limits.lease_ms_max));
            job.attempts = job.attempts.max(1);
            // The holder proves the lease with the token that it received.
            if kind == QueueKind::Work && lease.token.delivery() != job.attempts {
                lease.token = Token::of(state.meta.kept().boot_count, job.attempts);
            }
        }
        let id = job.id;
        let queue = job.queue;
        let serial = job.cycle().map_or(0, |cycle| cycle.priority);
        state
            .queues
            .make_known(queue, Some(job.protocol), &mut context.changes);
        raise_serial(state, queue, serial, context);
        let slot = recall_job(state, job);
        count(state, slot, |totals| totals.pushed += 1);
        remember_put(state, slot, context);
        drop_past(state, context);
        state.queues.remember_dropped(&mut context.changes);
        Ok(id)
    }

    /// Imports a schedule, with the grid and the next occurrence. The record of the last occurrence is
    /// dropped, because jobs may get new IDs.
    ///
    /// # Errors
    ///
    /// A schedule with this name exists (`NotUnique`), or a client could not set this schedule here.
    pub fn adopt_schedule(
        &mut self,
        mut schedule: Schedule,
        context: &mut Context,
    ) -> Result<JobId, Refusal> {
        let state = &mut self.state;
        let key = schedule.key.clone();
        let job = schedule.job.clone();
        let recurrence = schedule.recurrence;
        let new = NewSchedule {
            key,
            job,
            recurrence,
            at_once: false,
            keep_grid: false,
            runs: schedule.runs_left,
        };
        check_new_schedule(state, &new)?;
        let new = &schedule.job;
        let queue = state.find_or_make(new.namespace, &new.queue, new.kind, None)?;
        state
            .queues
            .make_known(queue, Some(schedule.job.protocol), &mut context.changes);
        schedule.id = adopt_number(state, schedule.id, context);
        schedule.last = None;
        let id = schedule.id;
        state.schedules.set(schedule, &mut context.changes);
        Ok(id)
    }

    /// Imports a batch in the present state. If the `parent` does not exist here, the batch continues without
    /// a parent. Import a batch before its jobs.
    ///
    /// # Errors
    ///
    /// A batch with this name exists (`NotUnique`), its state is impossible, or a limit does not allow it.
    pub fn adopt_batch(
        &mut self,
        mut batch: Batch,
        context: &mut Context,
    ) -> Result<JobId, Refusal> {
        let state = &mut self.state;
        state.check_name(&batch.name)?;
        if state.batches.named(batch.namespace, &batch.name).is_some() {
            return Err(Refusal::NotUnique);
        }
        let callbacks = [&batch.complete, &batch.success].into_iter().flatten();
        callbacks
            .clone()
            .try_for_each(|job| check_callback(state, job))?;
        if !batch.is_possible() {
            return Err(Refusal::OutOfPlace);
        }
        let limit = state.limits.batches_max;
        if state.batches.len() >= limit as usize {
            return Err(Capacity::Batches.exceeded(limit, limit));
        }
        check_bytes_for(state, callbacks.map(|job| job.body.len() as u64).sum(), 0)?;
        batch.id = adopt_number(state, batch.id, context);
        // The ID 0 is never assigned. With it, only the parent's name remains.
        let here = batch
            .parent
            .filter(|parent| *parent < batch.id && state.batches.at(*parent).is_some());
        batch.parent = batch.parent.map(|_| here.unwrap_or(JobId(0)));
        let id = batch.id;
        state.batches.insert(batch);
        context.remember(Change::BatchPut(id));
        Ok(id)
    }

    /// Skips IDs below `next`, because clients may know them.
    pub fn adopt_numbers(&mut self, next: u64, context: &mut Context) {
        skip_numbers(&mut self.state, next, context);
    }

    /// Reserves `many` ranks behind those of all jobs, for jobs to import. Returns the first of these ranks.
    pub const fn reserve_ranks(&mut self, many: u64) -> u64 {
        self.state.meta.reserve_ranks(many)
    }
}

fn skip_numbers(state: &mut State, next: u64, context: &mut Context) {
    if next < KEPT_BELOW && next > state.meta.next_job() {
        state.meta.skip_numbers(next, &mut context.changes);
    }
}

fn adopt_number(state: &mut State, wanted: JobId, context: &mut Context) -> JobId {
    // The next number must be below the limit, too.
    let next = wanted.0.saturating_add(1);
    if wanted.0 < state.meta.next_job() || next >= KEPT_BELOW {
        return state.meta.new_job_id(&mut context.changes);
    }
    skip_numbers(state, next, context);
    wanted
}

/// Returns true if a job can have this role in a batch of this engine.
fn is_called(state: &State, batch: JobId, role: Role) -> bool {
    state.batches.at(batch).is_some_and(|batch| match role {
        Role::Job => true,
        Role::Complete => batch.progress.complete != Stage::Waiting,
        Role::Success => batch.progress.success != Stage::Waiting,
    })
}

fn raise_serial(state: &mut State, queue: QueueId, serial: u64, context: &mut Context) {
    if state
        .queues
        .at(queue)
        .is_some_and(|queue| queue.image().serial < serial)
    {
        state
            .queues
            .set(queue, |image| image.serial = serial, &mut context.changes);
    }
}

fn is_possible(job: &Job, kind: QueueKind) -> bool {
    match &job.state {
        JobState::Ready | JobState::Scheduled(_) | JobState::Retrying(_) | JobState::Dead(_) => {
            true
        }
        JobState::Leased(lease) => !Lease::connection_bound(lease),
        JobState::Parked => kind == QueueKind::Cycle || job.behind().is_some(),
        JobState::Done(_) => kind == QueueKind::Work,
    }
}
