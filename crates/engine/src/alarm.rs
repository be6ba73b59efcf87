//! Alarms: one heap for each of the two clocks. [`Alarms::forget`] cancels an alarm, which stays in its heap at first.
//!
//! A cancelled alarm is dropped when it rings, or by a sweep once cancelled alarms outnumber live ones. The states that have a
//! time (scheduled, retrying, dead, done) use sorted sets instead: see [`Sets`].

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use crate::ids::{ClientId, JobId, QueueId, Timestamp};
use crate::job::JobState;

/// What may be due, besides the jobs in [`Sets`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Alarm {
    /// A lease may have run out.
    Lease(JobId),
    /// A job's `expires_at` may have come.
    Expiry(JobId),
    /// The time limit of a job's hold on its key may have come.
    Key(JobId),
    /// A blocked take may have reached its deadline.
    Wait(ClientId),
    /// A named worker may have missed its heartbeat.
    Beat(u64),
    /// A lease in a throttled queue may have outlived the throttle's timeout.
    Slots(QueueId),
}

#[derive(Debug, Default)]
pub(crate) struct Alarms {
    heap: BinaryHeap<Reverse<(Timestamp, Alarm)>>,
    /// Alarms by the wall clock: [`Alarm::Expiry`].
    by_wall: BinaryHeap<Reverse<(Timestamp, Alarm)>>,
    /// Alarms in both heaps that are not cancelled.
    live: usize,
}

impl Alarms {
    pub(crate) fn set(&mut self, at: Timestamp, alarm: Alarm) {
        if at < Timestamp::NEVER {
            self.live += 1;
            let by_wall = matches!(alarm, Alarm::Expiry(_));
            let heap = if by_wall { &mut self.by_wall } else { &mut self.heap };
            heap.push(Reverse((at, alarm)));
        }
    }

    /// Cancels an alarm that was set for a time other than `NEVER`.
    pub(crate) const fn forget(&mut self, at: Timestamp) {
        if at.0 < Timestamp::NEVER.0 {
            self.live = self.live.saturating_sub(1);
        }
    }

    /// The earliest alarm, and when it rings by the engine's time.
    pub(crate) fn next(&self, skew_ms: i64) -> Option<(Timestamp, Alarm)> {
        [self.heap.peek().map(|Reverse(entry)| *entry), self.next_by_wall(skew_ms)].into_iter().flatten().min()
    }

    /// Removes the earliest alarm and returns it, with the time for which it was set. If it is live, its handler must call
    /// [`Alarms::forget`].
    pub(crate) fn pop(&mut self, skew_ms: i64) -> Option<(Timestamp, Alarm)> {
        let next = self.next(skew_ms)?;
        let heap = if self.next_by_wall(skew_ms) == Some(next) { &mut self.by_wall } else { &mut self.heap };
        heap.pop().map(|Reverse(entry)| entry)
    }

    fn next_by_wall(&self, skew_ms: i64) -> Option<(Timestamp, Alarm)> {
        self.by_wall.peek().map(|Reverse((at, alarm))| (at.shifted(skew_ms.saturating_neg()), *alarm))
    }

    /// Whether cancelled alarms outnumber live ones so far that a sweep pays.
    pub(crate) fn is_cluttered(&self) -> bool {
        self.len() > 2 * self.live + 1024
    }

    /// Keeps the alarms that are not cancelled.
    pub(crate) fn sweep(&mut self, means_something: impl Fn(Timestamp, Alarm) -> bool) {
        self.heap.retain(|Reverse((at, alarm))| means_something(*at, *alarm));
        self.by_wall.retain(|Reverse((at, alarm))| means_something(*at, *alarm));
        self.live = self.len();
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len() + self.by_wall.len()
    }

    /// Asserts the count of live alarms. Two equal alarms for the same time count once.
    pub(crate) fn check(&self, means_something: impl Fn(Timestamp, Alarm) -> bool) {
        let all = self.heap.iter().chain(&self.by_wall).map(|Reverse(entry)| *entry);
        let live: BTreeSet<(Timestamp, Alarm)> = all.filter(|(at, alarm)| means_something(*at, *alarm)).collect();
        assert_eq!(live.len(), self.live, "alarms that mean something, left: set, right: counted");
    }
}

/// Jobs in the states that have a time, sorted by it: `scheduled` by the wall clock, the others by the engine's time.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    pub(crate) scheduled: BTreeSet<(Timestamp, JobId)>,
    pub(crate) retrying: BTreeSet<(Timestamp, JobId)>,
    pub(crate) dead: BTreeSet<(Timestamp, JobId)>,
    pub(crate) done: BTreeSet<(Timestamp, JobId)>,
}

impl Sets {
    /// The set for a state, and the time by which it sorts the job.
    pub(crate) const fn of_mut(&mut self, state: &JobState) -> Option<(&mut BTreeSet<(Timestamp, JobId)>, Timestamp)> {
        match state {
            JobState::Scheduled(at) => Some((&mut self.scheduled, *at)),
            JobState::Retrying(at) => Some((&mut self.retrying, *at)),
            JobState::Dead(at) => Some((&mut self.dead, *at)),
            JobState::Done(at) => Some((&mut self.done, *at)),
            JobState::Ready | JobState::Leased(_) | JobState::Parked => None,
        }
    }

    /// The first job due in any set, and when that is by the engine's time.
    pub(crate) fn next(&self, skew_ms: i64) -> Option<(Timestamp, JobId)> {
        let scheduled = self.scheduled.first().map(|(at, id)| (at.shifted(skew_ms.saturating_neg()), *id));
        let others = [&self.retrying, &self.dead, &self.done].into_iter().filter_map(|set| set.first().copied());
        others.chain(scheduled).min()
    }
}
