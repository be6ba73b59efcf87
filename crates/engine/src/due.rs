//! Timers: everything due runs before the next command, in the order in which it fell due.

use crate::alarm::Alarm;
use crate::context::{Change, Context};
use crate::engine::Engine;
use crate::ids::{JobId, Timestamp};
use crate::job::JobState;
use crate::outcome::End;
use crate::place::{expiry, key_limit};
use crate::warning::WarningKind;

impl Engine {
    /// Advances the engine to `context.now`. A time in the past is ignored.
    pub(crate) fn catch_up(&mut self, context: &mut Context) {
        self.now = self.now.max(context.now);
        context.now = self.now;
        self.take_clock(context);
        self.forget_who_came();
        while let Some(due) = self.next_due() {
            match due {
                Due::Alarm => self.ring(context),
                Due::Set(id) => self.place_due(id, context),
                Due::Schedule(id) => self.run_schedule(id, context),
                Due::Batch(id) => self.batch_due(id, context),
                Due::Awake => {
                    if let Some((_, client, seq)) = self.awake.pop_front() {
                        self.overslept(client, seq, context);
                    }
                }
            }
            self.settle(context);
        }
        if self.has_dead_to_drop() {
            self.drop_dead(context);
            self.settle(context);
        }
        self.tell_dropped(context);
        if self.alarms.is_cluttered() {
            self.sweep_alarms();
        }
    }

    /// Drops the wake deadlines of sleepers that came for work. Nearly all come at once, and need no tick a second later.
    fn forget_who_came(&mut self) {
        while let Some((_, id, seq)) = self.awake.front()
            && !self.clients.get(id).is_some_and(|client| client.is_awake(*seq))
        {
            self.awake.pop_front();
        }
    }

    /// Removes dropped queues from the journal too.
    pub(crate) fn tell_dropped(&mut self, context: &mut Context) {
        for queue in self.dropped.drain(..) {
            context.remember(Change::QueueGone(queue));
        }
    }

    fn next_due(&self) -> Option<Due> {
        let alarm = self.alarms.next(self.skew_ms).map(|(at, _)| (at, Due::Alarm));
        let set = self.sets.next(self.skew_ms).map(|(at, id)| (at, Due::Set(id)));
        let awake = self.awake.front().map(|(at, ..)| (*at, Due::Awake));
        let schedule = self.schedules.next(self.skew_ms).map(|(at, id)| (at, Due::Schedule(id)));
        let batch = self.batches.next().map(|(at, id)| (at, Due::Batch(id)));
        let first = [set, alarm, awake, schedule, batch].into_iter().flatten().min_by_key(|(at, _)| *at);
        first.filter(|(at, _)| *at <= self.now).map(|(_, due)| due)
    }

    /// The time of a job in a timed state has come.
    fn place_due(&mut self, id: JobId, context: &mut Context) {
        let Some(slot) = self.jobs.slot(id) else { return };
        match self.jobs.at(slot).map(|job| &job.state) {
            Some(state @ (JobState::Scheduled(_) | JobState::Retrying(_))) => {
                let first = matches!(state, JobState::Scheduled(_));
                self.count(slot, |totals| *(if first { &mut totals.released } else { &mut totals.retried }) += 1);
                let rank = self.rank(false);
                self.make_ready(slot, Some(rank), context);
            }
            Some(state @ (JobState::Dead(_) | JobState::Done(_))) => {
                let dead = matches!(state, JobState::Dead(_));
                self.count(slot, |totals| totals.purged += u64::from(dead));
                self.remove_job(slot, context);
            }
            Some(JobState::Ready | JobState::Leased(_) | JobState::Parked) | None => {}
        }
    }

    fn ring(&mut self, context: &mut Context) {
        let Some((at, alarm)) = self.alarms.pop(self.skew_ms) else { return };
        if !self.means_something(at, alarm) {
            return;
        }
        match alarm {
            Alarm::Lease(id) => self.lease_due(id, at, context),
            Alarm::Expiry(id) => self.expire_job(id, context),
            Alarm::Key(id) => {
                if let Some(slot) = self.jobs.slot(id) {
                    self.release_key(slot);
                }
            }
            Alarm::Wait(client) => self.give_up_waiting(client, context),
            Alarm::Beat(worker) => self.miss_beat(worker, at, context),
            Alarm::Slots(queue) => self.slots_due(queue, at),
        }
    }

    /// A lease has run out, or its end has moved since the alarm was set. In the latter case the alarm is set anew.
    fn lease_due(&mut self, id: JobId, at: Timestamp, context: &mut Context) {
        let Some(slot) = self.jobs.slot(id) else { return };
        let Some(JobState::Leased(lease)) = self.jobs.at_mut(slot).map(|job| &mut job.state) else { return };
        if lease.until > at {
            lease.alarm_at = lease.until;
            self.alarms.forget(at);
            self.alarms.set(lease.until, Alarm::Lease(id));
        } else {
            self.expire_lease(slot, context);
        }
    }

    /// A job's `expires_at` has come: the job is removed unless it is leased, dead, done or shelved.
    pub(crate) fn expire_job(&mut self, id: JobId, context: &mut Context) {
        let Some(slot) = self.jobs.slot(id) else { return };
        // The alarm has rung.
        let at = self.jobs.reweigh(slot, |job| job.extra_mut().expires_at.take()).flatten();
        self.alarms.forget(at.unwrap_or(Timestamp::NEVER));
        match self.jobs.at(slot).map(|job| &job.state) {
            Some(JobState::Ready | JobState::Scheduled(_) | JobState::Retrying(_)) => {
                self.count(slot, |totals| totals.expired += 1);
                self.warn_job(WarningKind::Expired, slot, context);
                self.tell_end(slot, &End::Expired, context);
                self.end_badly(slot, context);
            }
            // It was taken in time, which must hold after a restart too.
            Some(JobState::Leased(_) | JobState::Dead(_) | JobState::Done(_) | JobState::Parked) => {
                self.remember_put(slot, context)
            }
            None => {}
        }
    }

    /// Whether an alarm set for this time is still live.
    pub(crate) fn means_something(&self, at: Timestamp, alarm: Alarm) -> bool {
        let job = |id: JobId| self.jobs.slot(id).and_then(|slot| Some((slot, self.jobs.at(slot)?)));
        match alarm {
            Alarm::Lease(id) => job(id).and_then(|(_, job)| job.lease()).is_some_and(|lease| lease.alarm_at == at),
            Alarm::Expiry(id) => job(id).is_some_and(|(_, job)| expiry(job) == at),
            Alarm::Key(id) => job(id).is_some_and(|(slot, job)| {
                let key = job.key().unwrap_or_default();
                key_limit(job) == at && self.jobs.keyed(job.queue, job.protocol, key) == Some(slot)
            }),
            Alarm::Wait(client) => self.clients.get(&client).is_some_and(|client| client.waits_until() == Some(at)),
            Alarm::Beat(worker) => self.workers.get(&worker).is_some_and(|worker| worker.alarm_at == at),
            Alarm::Slots(queue) => {
                let slots = self.queues.at(queue).and_then(|queue| queue.slots.as_deref());
                slots.is_some_and(|slots| slots.alarm_at() == at)
            }
        }
    }

    /// Throws cancelled alarms away.
    fn sweep_alarms(&mut self) {
        let mut alarms = std::mem::take(&mut self.alarms);
        alarms.sweep(|at, alarm| self.means_something(at, alarm));
        self.alarms = alarms;
    }
}

enum Due {
    Alarm,
    Set(JobId),
    Awake,
    Schedule(JobId),
    Batch(JobId),
}
