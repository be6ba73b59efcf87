//! Recovery from the journal: the engine meta and the days, then namespaces, queues, then batches by number, jobs and schedules,
//! and at last [`Engine::wake_up`].

use super::Engine;
use super::joined::set_free;
use super::place::{ahead_of, is_used, list_recalled, recall_job};
use super::state::State;
use crate::batches::Batch;
use crate::context::Context;
use crate::days::DayBegin;
use crate::ids::{NameIn, QueueId, Timestamp};
use crate::jobs::{Holder, Job, JobState, Lease, Numbered, Slab, Slot};
use crate::meta::EngineMeta;
use crate::namespaces::NamespaceImage;
use crate::queues::QueueImage;
use crate::schedules::Schedule;

impl Engine {
    /// Restores the engine meta. `clean` means that the daemon stopped in order, so the journal has every job number in
    /// use.
    pub fn recall_meta(&mut self, meta: EngineMeta, clean: bool) {
        let was_in_doubt = meta.reserved == meta.next_job.saturating_add(1);
        self.state.skew_ms = meta.clock.skew_ms;
        self.state.beginning.was_killed = !clean || was_in_doubt;
        self.state.meta.recall(meta, clean);
    }

    /// Restores the beginning of a day.
    pub fn recall_day(&mut self, begin: DayBegin) {
        self.state.days.recall(begin);
    }

    /// Restores a namespace from the journal.
    pub fn recall_namespace(&mut self, image: NamespaceImage) {
        self.state.queues.namespaces_mut().put(image);
    }

    /// Restores a queue from the journal, in a namespace that was restored before.
    pub fn recall_queue(&mut self, image: QueueImage) {
        self.state.queues.recall(image);
    }

    /// Restores a job from the journal. Returns `false` if the queue was not restored before or the ID is
    /// used. The journal does not contain connection-bound leases, so a job with such a lease is ready.
    pub fn recall_job(&mut self, job: Job) -> bool {
        if self.state.queues.at(job.queue).is_none() || is_used(&self.state, job.id) {
            return false;
        }
        let slot = recall_job(&mut self.state, job);
        self.note_recalled(slot);
        true
    }

    /// Restores all jobs from the journal, as [`Engine::recall_job`] restores each, in the present slots and
    /// with the index by ID.
    ///
    /// # Errors
    ///
    /// The caller rejects a job, or an ID is used. The engine must then be discarded.
    pub fn recall_jobs(
        &mut self,
        jobs: Slab,
        numbers: Numbered<Slot>,
        mut accept: impl FnMut(&Job) -> Result<(), String>,
    ) -> Result<(), String> {
        self.state.jobs.take_over(jobs, numbers);
        for first in self.state.jobs.pages() {
            self.state.jobs.name_page(first);
            for slot in Slab::slots_of(first) {
                let Some(job) = self.state.jobs.at(slot) else {
                    continue;
                };
                accept(job)?;
                if self.state.batches.at(job.id).is_some() {
                    return Err(format!(
                        "something else has the number or the name of {:?}",
                        job.id
                    ));
                }
                list_recalled(&mut self.state, slot);
                self.note_recalled(slot);
            }
            self.state.jobs.close(first);
        }
        Ok(())
    }

    /// Records that the ID of a restored job is used, and that the worker may return.
    fn note_recalled(&mut self, slot: Slot) {
        let Some(job) = self.state.jobs.at(slot) else {
            return;
        };
        self.state.meta.recall_number(job.id);
        if let Some(worker) = job.lease().and_then(Lease::reserved_by) {
            let worker = NameIn(job.queue.namespace(), worker);
            self.state.workers.expect(worker, job.id);
        }
        if job
            .lease()
            .is_some_and(|lease| matches!(lease.holder, Holder::Away(_)))
        {
            self.state.beginning.away.push(job.id);
        }
    }

    /// Restores a schedule from the journal. Returns `false` if the ID or name is already used.
    pub fn recall_schedule(&mut self, schedule: Schedule) -> bool {
        let named = schedule
            .key
            .as_ref()
            .and_then(|key| self.state.schedules.named(schedule.job.realm(), key));
        if is_used(&self.state, schedule.id) || named.is_some() {
            return false;
        }
        self.state.meta.recall_number(schedule.id);
        self.state.schedules.put(schedule);
        true
    }

    /// Restores a batch from the journal. Returns `false` if the ID or name is already used.
    pub fn recall_batch(&mut self, batch: Batch) -> bool {
        let named = self.state.batches.named(batch.namespace, &batch.name);
        if is_used(&self.state, batch.id) || named.is_some() {
            return false;
        }
        self.state.meta.recall_number(batch.id);
        self.state.batches.insert(batch);
        true
    }

    /// The last step of recovery: drops unused queues and sets the timers of batches.
    pub fn wake_up(&mut self) {
        self.state.meta.begin_numbers();
        let unknown = self
            .state
            .queues
            .iter()
            .filter(|queue| !queue.image().is_known())
            .map(|queue| queue.image().id);
        let unknown: Vec<QueueId> = unknown.collect();
        for queue in unknown {
            self.state.queues.drop_if_unknown(queue);
        }
        self.state.queues.forget_uses();
        self.free_followers();
        self.state.queues.set_gate_timers(&mut self.state.timers);
        self.state.batches.recalled(self.state.limits.batch_keep_ms);
        self.check_in_debug();
    }

    /// Suspends everything that is due until [`Engine::release_due`]: a daemon first sets the configuration,
    /// so that it applies to everything that became due during the downtime. Clients connect after that.
    pub const fn hold_due(&mut self) {
        self.state.beginning.holds_due = true;
    }

    /// The configuration is set, and the keys of all jobs are read: the next visit does all that is due.
    pub const fn release_due(&mut self) {
        self.state.beginning.holds_due = false;
    }

    /// Makes jobs due if the predecessors finished without a record of it.
    fn free_followers(&mut self) {
        let state = &mut self.state;
        let is_free = |job: &Job| job.state == JobState::Parked && ahead_of(state, job).is_none();
        let followers = state.followers.iter();
        let slots = followers.filter_map(|id| state.jobs.slot(id));
        let mut free: Vec<_> = slots
            .filter(|slot| state.jobs.at(*slot).is_some_and(is_free))
            .collect();
        free.sort_by_key(|slot| std::cmp::Reverse(state.jobs.at(*slot).map(|job| job.id)));
        for slot in free {
            let job = state.jobs.at(slot);
            let was_part = job.is_some_and(Job::is_joined);
            let track = job.and_then(|job| job.extra.as_deref()?.track);
            if let Some(lead) = set_free(state, slot, Timestamp(0)) {
                state.beginning.rejoined.extend([lead, slot]);
            } else if was_part {
                state.beginning.left_alone.push(slot);
            }
            // The time is not known yet. A move would record the year 1970 as that of the last change, which
            // the client would read until the job moves again.
            state.jobs.update(slot, |job| {
                if let Some(extra) = &mut job.extra {
                    extra.track = track;
                }
            });
        }
    }

    /// Called before an orderly stop: records the exact state of all rates. After any other stop, the last
    /// recorded state applies.
    pub fn finish_rates(&mut self, context: &mut Context) {
        let State {
            queues,
            now,
            timers,
            ..
        } = &mut self.state;
        queues.save_buckets(true, *now, timers, &mut context.changes);
    }

    /// Called before an orderly stop: releases the reserved job IDs and records the time in the engine meta.
    ///
    /// A daemon that was killed shortly before may have delivered jobs to workers that have not returned yet.
    /// In that case an ID stays reserved, so that the next engine also blocks the keys. Otherwise it could
    /// start more jobs of a key than may run at the same time.
    pub fn finish_meta(&mut self) {
        let State {
            queues,
            meta,
            beginning,
            now,
            ..
        } = &mut self.state;
        let is_in_doubt =
            queues.are_in_doubt() || beginning.was_killed && beginning.first.is_none();
        meta.release_numbers(*now, is_in_doubt);
    }
}
