//! Moving a job from place to place, with every index that depends on where it is. Nothing else writes `Job::place`.

use crate::alarm::Alarm;
use crate::engine::Engine;
use crate::gather::member;
use crate::ids::Timestamp;
use crate::job::{Holder, Job, KeyUntil, Lease, Place, PlaceKind};
use crate::line::{Slot, Standing};
use crate::table::Jobs;
use crate::turn::{Change, Turn};

impl Engine {
    /// Takes a job in: into the slab, its place and its alarms.
    pub(crate) fn insert_job(&mut self, job: Job) -> Slot {
        let (id, expires_at, key_limit) = (job.id, expiry(&job), key_limit(&job));
        let wants_key = Jobs::wants_key(&job);
        let slot = self.jobs.insert(job);
        if wants_key && self.jobs.claim_key(slot) {
            self.alarms.set(key_limit, Alarm::Key(id));
        }
        self.alarms.set(expires_at, Alarm::Expiry(id));
        self.arrive(slot);
        self.note_stray_of(slot);
        slot
    }

    /// The last step of recalling a job: what only lived with the old daemon's connections is not there any more.
    pub(crate) fn settle_recalled(&mut self, mut job: Job) {
        if job.lease().is_some_and(Lease::connection_bound) {
            job.place = Place::Ready;
        }
        // Of two jobs with one key the younger was born when the older had let it go.
        if let Some(other) = job.key().and_then(|key| self.jobs.keyed(job.queue, job.origin, key))
            && Jobs::wants_key(&job)
            && self.jobs.at(other).is_some_and(|other| other.id < job.id)
        {
            self.release_key(other);
        }
        self.insert_job(job);
    }

    /// Removes a job from everything, and from the journal if it was there. Its listeners are the caller's business.
    pub(crate) fn remove_job(&mut self, slot: Slot, turn: &mut Turn) -> Option<Job> {
        self.depart(slot);
        self.note_stray_of(slot);
        self.ran_in_batch(slot, turn);
        self.release_key(slot);
        let job = self.jobs.remove(slot)?;
        self.alarms.forget(expiry(&job));
        for listener in job.listeners() {
            if let Some(client) = self.clients.get_mut(listener) {
                client.hears.remove(&job.id);
            }
        }
        if job.durable {
            turn.remember(Change::JobGone(job.id));
        }
        self.drop_if_unknown(job.queue);
        Some(job)
    }

    /// Moves a job to another place. The caller sees to the journal and to those who wait.
    pub(crate) fn move_job(&mut self, slot: Slot, place: Place) {
        self.depart(slot);
        let now = self.wall();
        if let Some(job) = self.jobs.at_mut(slot) {
            job.place = place;
            // A lease that ends with its connection is not remembered, and neither would this be.
            if !job.lease().is_some_and(Lease::connection_bound) {
                job.touch(now);
            }
        }
        self.arrive(slot);
        self.note_stray_of(slot);
    }

    /// Into every index that depends on the job's place.
    fn arrive(&mut self, slot: Slot) {
        let Some(job) = self.jobs.at_mut(slot) else { return };
        let (id, kind, member) = (job.id, job.place.kind(), member(job));
        self.census.count(job.origin, kind, 1);
        if let Some(queue) = self.queues.at_mut(job.queue) {
            queue.count(kind, 1);
            match &job.place {
                Place::Ready => queue.line.insert(Standing::of(job), queue.audience_of(job), slot),
                Place::Leased(lease) => {
                    if let Some((at, before)) = queue.hold_slot(id, lease, self.now) {
                        self.alarms.forget(before);
                        self.alarms.set(at, Alarm::Slots(job.queue));
                    }
                }
                Place::Scheduled(_) | Place::Retrying(_) | Place::Dead(_) | Place::Shelved | Place::Done(_) => {}
            }
        }
        if let Some((set, at)) = self.sets.of_mut(&job.place) {
            set.insert((at, id));
        }
        if let Place::Leased(lease) = &mut job.place {
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
        if kind == PlaceKind::Dead {
            self.jobs.count_dead(slot, true);
        }
        if key_is_over {
            self.release_key(slot);
        }
        self.count_live(member, kind, 1);
    }

    /// Out of every index that depends on the job's place.
    fn depart(&mut self, slot: Slot) {
        let Some(job) = self.jobs.at_mut(slot) else { return };
        let (id, kind, member) = (job.id, job.place.kind(), member(job));
        self.census.count(job.origin, kind, -1);
        if let Some(queue) = self.queues.at_mut(job.queue) {
            queue.count(kind, -1);
            match &job.place {
                Place::Ready => queue.line.remove(Standing::of(job), queue.audience_of(job)),
                Place::Leased(lease) => {
                    if queue.free_slot(id, lease) && self.freed.back() != Some(&job.queue) {
                        self.freed.push_back(job.queue);
                    }
                }
                Place::Scheduled(_) | Place::Retrying(_) | Place::Dead(_) | Place::Shelved | Place::Done(_) => {}
            }
        }
        if let Some((set, at)) = self.sets.of_mut(&job.place) {
            set.remove(&(at, id));
        }
        if let Place::Leased(lease) = &job.place {
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
        if kind == PlaceKind::Dead {
            self.jobs.count_dead(slot, false);
        }
        self.count_live(member, kind, -1);
    }

    /// Lets a job's key go, and the alarm that would have done so.
    pub(crate) fn release_key(&mut self, slot: Slot) {
        if self.jobs.release_key(slot)
            && let Some(job) = self.jobs.at(slot)
        {
            self.alarms.forget(key_limit(job));
        }
    }

    /// A job that was out of the running is back in: it holds its key again if nobody else does, and loses it otherwise.
    pub(crate) fn reclaim_key(&mut self, slot: Slot, turn: &mut Turn) {
        let Some(job) = self.jobs.at(slot) else { return };
        let (id, limit, now) = (job.id, key_limit(job), self.now);
        if !Jobs::wants_key(job) || self.jobs.keyed(job.queue, job.origin, job.key().unwrap_or_default()) == Some(slot)
        {
            return;
        }
        if limit > now && self.jobs.claim_key(slot) {
            self.alarms.set(limit, Alarm::Key(id));
        } else {
            self.jobs.reweigh(slot, |job| job.payload = job.payload.without_key());
            self.remember_put(slot, turn);
        }
    }

    /// Remembers a job's new standing, if the journal knows the job.
    pub(crate) fn remember_move(&self, slot: Slot, turn: &mut Turn) {
        if let Some(job) = self.jobs.at(slot).filter(|job| job.durable) {
            turn.remember(Change::JobMoved(job.id));
        }
    }

    /// Remembers all of a job, if the journal is to know it.
    pub(crate) fn remember_put(&self, slot: Slot, turn: &mut Turn) {
        if let Some(job) = self.jobs.at(slot).filter(|job| job.durable) {
            turn.remember(Change::JobPut(job.id));
        }
    }
}

/// When a job's time to be worked on is over.
pub(crate) fn expiry(job: &Job) -> Timestamp {
    job.extra.as_deref().and_then(|extra| extra.expires_at).unwrap_or(Timestamp::NEVER)
}

/// When a job's hold on its key is over, whatever becomes of it.
pub(crate) fn key_limit(job: &Job) -> Timestamp {
    match job.extra.as_deref().map(|extra| extra.key_until) {
        Some(KeyUntil::EndOr(at) | KeyUntil::StartOr(at)) => at,
        Some(KeyUntil::End | KeyUntil::Start | KeyUntil::Gone) | None => Timestamp::NEVER,
    }
}
