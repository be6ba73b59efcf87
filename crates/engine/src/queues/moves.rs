//! State transitions of jobs in a queue. Every job does this several times, and most queues have
//! neither a policy nor a throttle, so the code for those is separate.

use super::audience::Class;
use super::policy::NO_KEY;
use super::ready::SortKey;
use super::table::Queues;
use crate::ids::Timestamp;
use crate::jobs::{Job, JobState, Slot};
use crate::timers::Timers;

impl Queues {
    /// Counts a job in the state that it has entered, and adds it to the ready jobs or takes a
    /// slot.
    #[inline]
    pub(crate) fn enter(&mut self, job: &Job, slot: Slot, now: Timestamp, timers: &mut Timers) {
        let used = self.uses.next();
        let Some(queue) = self
            .by_id
            .get_mut(job.queue.index() as usize)
            .and_then(Option::as_mut)
        else {
            return;
        };
        queue.used = used;
        queue.count(job.protocol, job.state.kind(), 1);
        let is_ruled = queue.is_ruled();
        if matches!(job.state, JobState::Ready)
            && queue.ready.insert(SortKey::of(job), Class::of(job), slot)
        {
            queue.recount();
        }
        if is_ruled {
            self.enter_ruled(job, slot, now, timers);
        }
        if self.watches_unclaimed() {
            self.note_unclaimed(job.queue);
        }
    }

    /// The part that depends on a queue's policy, throttle and limit of dead jobs.
    #[inline(never)]
    fn enter_ruled(&mut self, job: &Job, slot: Slot, now: Timestamp, timers: &mut Timers) {
        let Self {
            by_id, job_keys, ..
        } = self;
        let Some(queue) = by_id
            .get_mut(job.queue.index() as usize)
            .and_then(Option::as_mut)
        else {
            return;
        };
        if let Some(gate) = queue.gate.as_deref_mut() {
            gate.enter(job, job_keys.get(job.id).unwrap_or(NO_KEY), slot, timers);
        }
        if let (JobState::Dead(until), Some(dead)) = (&job.state, queue.dead.as_mut()) {
            dead.insert((*until, job.id));
            self.note_dead(job.queue);
        } else if let Some((lease, slots)) = job.lease().zip(queue.slots.as_deref_mut()) {
            slots.hold(job.id, lease, now, timers);
        }
    }

    /// Called before a job leaves a state.
    #[inline]
    pub(crate) fn leave(&mut self, job: &Job) {
        let Some(queue) = self
            .by_id
            .get_mut(job.queue.index() as usize)
            .and_then(Option::as_mut)
        else {
            return;
        };
        queue.count(job.protocol, job.state.kind(), -1);
        let is_ruled = queue.is_ruled();
        if matches!(job.state, JobState::Ready) {
            queue.ready.remove(SortKey::of(job), Class::of(job));
        }
        if is_ruled {
            self.leave_ruled(job);
        }
    }

    #[inline(never)]
    fn leave_ruled(&mut self, job: &Job) {
        let Self {
            by_id,
            job_keys,
            freed,
            ..
        } = self;
        let Some(queue) = by_id
            .get_mut(job.queue.index() as usize)
            .and_then(Option::as_mut)
        else {
            return;
        };
        if let Some(gate) = queue.gate.as_deref_mut()
            && gate.leave(job, job_keys.get(job.id).unwrap_or(NO_KEY))
        {
            freed.push_back(job.queue);
        }
        if let (JobState::Dead(until), Some(dead)) = (&job.state, queue.dead.as_mut()) {
            dead.remove(&(*until, job.id));
            self.note_dead(job.queue);
        } else if let Some((lease, slots)) = job.lease().zip(queue.slots.as_deref_mut())
            && slots.release(job.id, lease)
            && freed.back() != Some(&job.queue)
        {
            freed.push_back(job.queue);
        }
    }
}
