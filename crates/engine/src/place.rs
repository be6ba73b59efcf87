//! State changes of a job, with every index that depends on its state. Nothing else writes `Job::place`.

use crate::alarm::Alarm;
use crate::context::{Change, Context};
use crate::engine::Engine;
use crate::gather::member;
use crate::ids::Timestamp;
use crate::job::{Holder, Job, JobState, JobStateKind, KeyUntil, Lease};
use crate::ready::{Slot, SortKey};
use crate::table::Jobs;

impl Engine {
    /// Inserts a job: into the slab, the indexes of its state, and its alarms.
    pub(crate) fn insert_job(&mut self, job: Job) -> Slot {
        let (id, expires_at, key_limit) = (job.id, expiry(&job), key_limit(&job));
        let wants_key = Jobs::wants_key(&job);
        let slot = self.jobs.insert(job);
        if wants_key && self.jobs.claim_key(slot) {
            self.alarms.set(key_limit, Alarm::Key(id));
        }
        self.alarms.set(expires_at, Alarm::Expiry(id));
        self.arrive(slot);
        self.note_unclaimed_of(slot);
        slot
    }

    /// The last step of recalling a job: releases what ended with the old daemon's connections.
    pub(crate) fn settle_recalled(&mut self, mut job: Job) {
        if job.lease().is_some_and(Lease::connection_bound) {
            job.state = JobState::Ready;
        }
        // If two jobs have one key, the younger was created after the older had released it.
        if let Some(other) = job.key().and_then(|key| self.jobs.keyed(job.queue, job.protocol, key))
            && Jobs::wants_key(&job)
            && self.jobs.at(other).is_some_and(|other| other.id < job.id)
        {
            self.release_key(other);
        }
        self.insert_job(job);
    }

    /// Removes a job from all indexes, and from the journal if it was there. The caller notifies the listeners.
    pub(crate) fn remove_job(&mut self, slot: Slot, context: &mut Context) -> Option<Job> {
        self.depart(slot);
        self.note_unclaimed_of(slot);
        self.ran_in_batch(slot, context);
        self.release_key(slot);
        let job = self.jobs.remove(slot)?;
        self.alarms.forget(expiry(&job));
        for listener in job.listeners() {
            if let Some(client) = self.clients.get_mut(listener) {
                client.hears.remove(&job.id);
            }
        }
        if job.durable {
            context.remember(Change::JobGone(job.id));
        }
        self.drop_if_unknown(job.queue);
        Some(job)
    }

    /// Moves a job to another state. The caller updates the journal and serves waiting clients.
    pub(crate) fn move_job(&mut self, slot: Slot, state: JobState) {
        self.depart(slot);
        let now = self.wall();
        if let Some(job) = self.jobs.at_mut(slot) {
            job.state = state;
            // A connection-bound lease is not journalled, so it must not change a journalled time.
            if !job.lease().is_some_and(Lease::connection_bound) {
                job.touch(now);
            }
        }
        self.arrive(slot);
        self.note_unclaimed_of(slot);
    }

    /// Adds the job to every index that depends on its state.
    fn arrive(&mut self, slot: Slot) {
        let Some(job) = self.jobs.at_mut(slot) else { return };
        let (id, kind, member) = (job.id, job.state.kind(), member(job));
        self.census.count(job.protocol, kind, 1);
        if let Some(queue) = self.queues.at_mut(job.queue) {
            queue.count(kind, 1);
            match &job.state {
                JobState::Ready => queue.line.insert(SortKey::of(job), queue.audience_of(job), slot),
                JobState::Leased(lease) => {
                    if let Some((at, before)) = queue.hold_slot(id, lease, self.now) {
                        self.alarms.forget(before);
                        self.alarms.set(at, Alarm::Slots(job.queue));
                    }
                }
                JobState::Scheduled(_)
                | JobState::Retrying(_)
                | JobState::Dead(_)
                | JobState::Parked
                | JobState::Done(_) => {}
            }
        }
        if let Some((set, at)) = self.sets.of_mut(&job.state) {
            set.insert((at, id));
        }
        if let JobState::Leased(lease) = &mut job.state {
            lease.alarm_at = lease.until;
            self.alarms.set(lease.until, Alarm::Lease(id));
            match &lease.holder {
                Holder::Connection(holder) => {
                    if let Some(client) = self.clients.get_mut(holder) {
                        client.held.insert(id);
                    }
                }
                Holder::Named(name) => {
                    if let Some(worker) = self.worker_names.get(name).and_then(|n| self.workers.get_mut(n)) {
                        worker.held.insert(id);
                    }
                }
            }
        }
        let key_is_over = job.payload.has_key() && !Jobs::wants_key(job);
        self.jobs.name_place(slot);
        if kind == JobStateKind::Dead {
            self.jobs.count_dead(slot, true);
        }
        if key_is_over {
            self.release_key(slot);
        }
        self.count_live(member, kind, 1);
    }

    /// Removes the job from every index that depends on its state.
    fn depart(&mut self, slot: Slot) {
        let Some(job) = self.jobs.at_mut(slot) else { return };
        let (id, kind, member) = (job.id, job.state.kind(), member(job));
        self.census.count(job.protocol, kind, -1);
        if let Some(queue) = self.queues.at_mut(job.queue) {
            queue.count(kind, -1);
            match &job.state {
                JobState::Ready => queue.line.remove(SortKey::of(job), queue.audience_of(job)),
                JobState::Leased(lease) => {
                    if queue.free_slot(id, lease) && self.freed.back() != Some(&job.queue) {
                        self.freed.push_back(job.queue);
                    }
                }
                JobState::Scheduled(_)
                | JobState::Retrying(_)
                | JobState::Dead(_)
                | JobState::Parked
                | JobState::Done(_) => {}
            }
        }
        if let Some((set, at)) = self.sets.of_mut(&job.state) {
            set.remove(&(at, id));
        }
        if let JobState::Leased(lease) = &job.state {
            self.alarms.forget(lease.alarm_at);
            match &lease.holder {
                Holder::Connection(holder) => {
                    if let Some(client) = self.clients.get_mut(holder) {
                        client.held.remove(&id);
                    }
                }
                Holder::Named(name) => {
                    if let Some(worker) = self.worker_names.get(name).and_then(|n| self.workers.get_mut(n)) {
                        worker.held.remove(&id);
                    }
                }
            }
        }
        self.jobs.unname_place(slot);
        if kind == JobStateKind::Dead {
            self.jobs.count_dead(slot, false);
        }
        self.count_live(member, kind, -1);
    }

    /// Releases a job's key and forgets the key's alarm.
    pub(crate) fn release_key(&mut self, slot: Slot) {
        if self.jobs.release_key(slot)
            && let Some(job) = self.jobs.at(slot)
        {
            self.alarms.forget(key_limit(job));
        }
    }

    /// A job that was over is live again: it takes its key again if no other job holds it, and loses the key otherwise.
    pub(crate) fn reclaim_key(&mut self, slot: Slot, context: &mut Context) {
        let Some(job) = self.jobs.at(slot) else { return };
        let (id, limit, now) = (job.id, key_limit(job), self.now);
        if !Jobs::wants_key(job)
            || self.jobs.keyed(job.queue, job.protocol, job.key().unwrap_or_default()) == Some(slot)
        {
            return;
        }
        if limit > now && self.jobs.claim_key(slot) {
            self.alarms.set(limit, Alarm::Key(id));
        } else {
            self.jobs.reweigh(slot, |job| job.payload = job.payload.without_key());
            self.remember_put(slot, context);
        }
    }

    /// Journals a job's new state, if the journal has the job.
    pub(crate) fn remember_move(&self, slot: Slot, context: &mut Context) {
        if let Some(job) = self.jobs.at(slot).filter(|job| job.durable) {
            context.remember(Change::JobMoved(job.id));
        }
    }

    /// Journals all of a job, if the job is durable.
    pub(crate) fn remember_put(&self, slot: Slot, context: &mut Context) {
        if let Some(job) = self.jobs.at(slot).filter(|job| job.durable) {
            context.remember(Change::JobPut(job.id));
        }
    }
}

/// When a job expires.
pub(crate) fn expiry(job: &Job) -> Timestamp {
    job.extra.as_deref().and_then(|extra| extra.expires_at).unwrap_or(Timestamp::NEVER)
}

/// When a job releases its key at the latest.
pub(crate) fn key_limit(job: &Job) -> Timestamp {
    match job.extra.as_deref().map(|extra| extra.key_until) {
        Some(KeyUntil::EndOr(at) | KeyUntil::StartOr(at)) => at,
        Some(KeyUntil::End | KeyUntil::Start | KeyUntil::Gone) | None => Timestamp::NEVER,
    }
}
