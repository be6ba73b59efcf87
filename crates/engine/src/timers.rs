//! Timers: a heap for each of the two clocks. [`Timers::cancel`] only marks a timer, which stays in the heap
//! at first.
//!
//! A cancelled timer is dropped when it fires, or by a sweep once cancelled timers outnumber live ones. Not
//! here: the times of job states, of schedules and of batches. The owners have these sorted by time for
//! listings anyway.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use crate::ids::{ClientId, JobId, QueueId, Timestamp};

/// When the first of these things is due.
pub(crate) fn first_at(due: &BTreeSet<(Timestamp, JobId)>) -> Timestamp {
    due.first().map_or(Timestamp::NEVER, |(at, _)| *at)
}

/// The event that may be due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// A lease may have run out.
    Lease(JobId),
    /// A job's expiry by the calendar may be due.
    Expiry(JobId),
    /// A job's expiry by age may be due.
    Age(JobId),
    /// The time limit of a job's coalescing key may be due.
    Key(JobId),
    /// A blocked take may have reached the deadline.
    Wait(ClientId),
    /// A named worker may have missed a heartbeat.
    Beat(u64),
    /// A lease in a throttled queue may have outlived the throttle's timeout.
    Slots(QueueId),
    /// A policy may have a token for a job of a queue.
    Gate(QueueId),
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Timestamp, Timer)>>,
    /// Timers by the wall clock: [`Timer::Expiry`].
    by_wall: BinaryHeap<Reverse<(Timestamp, Timer)>>,
    /// Timers in both heaps that are not cancelled.
    live: usize,
    /// Woken clients, with the time by which they must request work. In order of that time, because all get the same
    /// period.
    woken: VecDeque<(Timestamp, ClientId, u64)>,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Timestamp, timer: Timer) {
        if at < Timestamp::NEVER {
            self.live += 1;
            let by_wall = matches!(timer, Timer::Expiry(_));
            let heap = if by_wall {
                &mut self.by_wall
            } else {
                &mut self.heap
            };
            heap.push(Reverse((at, timer)));
        }
    }

    /// Cancels a timer that was set for a time other than `NEVER`.
    pub(crate) const fn cancel(&mut self, at: Timestamp) {
        if at.0 < Timestamp::NEVER.0 {
            self.live = self.live.saturating_sub(1);
        }
    }

    /// Returns true if a timer may have fired, a sleeper was woken, or a sweep pays.
    #[inline]
    pub(crate) fn have_due(&self, now: Timestamp, wall: Timestamp) -> bool {
        let is_due = |heap: &BinaryHeap<Reverse<(Timestamp, Timer)>>, by: Timestamp| {
            heap.peek().is_some_and(|Reverse((at, _))| *at <= by)
        };
        is_due(&self.heap, now)
            || is_due(&self.by_wall, wall)
            || !self.woken.is_empty()
            || self.is_cluttered()
    }

    /// When the earliest timer fires, by the engine's time.
    pub(crate) fn next_at(&self, skew_ms: i64) -> Timestamp {
        let at = |heap: &BinaryHeap<Reverse<(Timestamp, Timer)>>| {
            heap.peek().map_or(Timestamp::NEVER, |next| next.0.0)
        };
        at(&self.heap).min(at(&self.by_wall).shifted(skew_ms.saturating_neg()))
    }

    /// Removes the next timer and returns it, with the time for which it was set. If it is live, the caller
    /// must call [`Timers::cancel`].
    pub(crate) fn pop(&mut self, skew_ms: i64) -> Option<(Timestamp, Timer)> {
        let next = self.heap.peek().map(|Reverse(next)| *next);
        let by_wall = self
            .by_wall
            .peek()
            .map(|Reverse((at, timer))| (at.shifted(skew_ms.saturating_neg()), *timer));
        let is_by_wall = by_wall.is_some_and(|by_wall| next.is_none_or(|next| by_wall <= next));
        let heap = if is_by_wall {
            &mut self.by_wall
        } else {
            &mut self.heap
        };
        heap.pop().map(|Reverse(entry)| entry)
    }

    /// The jobs with leases that may expire. Includes jobs of cancelled timers, and may contain a job twice.
    pub(crate) fn leases(&self) -> impl Iterator<Item = JobId> {
        self.heap.iter().filter_map(|Reverse((_, timer))| {
            if let Timer::Lease(job) = timer {
                Some(*job)
            } else {
                None
            }
        })
    }

    /// Returns true if cancelled timers outnumber live ones by so much that a sweep is worthwhile.
    pub(crate) fn is_cluttered(&self) -> bool {
        self.len() > 2 * self.live + 1024
    }

    /// Drops the cancelled timers. A timer that was cancelled and set again for the same time is present
    /// twice: it is counted once, so only one copy is retained.
    pub(crate) fn sweep(&mut self, is_live: impl Fn(Timestamp, Timer) -> bool) {
        for heap in [&mut self.heap, &mut self.by_wall] {
            let mut kept = std::mem::take(heap).into_vec();
            kept.retain(|Reverse((at, timer))| is_live(*at, *timer));
            kept.sort_unstable();
            kept.dedup();
            *heap = kept.into();
        }
        self.live = self.len();
    }

    /// Records that a client was woken at this turn, and must request work by this time.
    pub(crate) fn set_wake(&mut self, by: Timestamp, client: ClientId, turn: u64) {
        self.woken.push_back((by, client, turn));
    }

    /// When the first woken client must have requested work.
    pub(crate) fn next_wake_at(&self) -> Timestamp {
        self.woken.front().map_or(Timestamp::NEVER, |(by, ..)| *by)
    }

    pub(crate) fn pop_wake(&mut self) -> Option<(ClientId, u64)> {
        self.woken
            .pop_front()
            .map(|(_, client, turn)| (client, turn))
    }

    /// Drops the first wake deadlines if the clients have already requested work. Nearly all clients do so
    /// immediately, so a tick a second later would be wasted.
    pub(crate) fn drop_wakes(&mut self, came: impl Fn(ClientId, u64) -> bool) {
        while self
            .woken
            .front()
            .is_some_and(|(_, client, turn)| came(*client, *turn))
        {
            self.woken.pop_front();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len() + self.by_wall.len()
    }

    /// Asserts the number of live timers. Two equal timers for the same time are counted as one.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(crate) fn check(&self, is_live: impl Fn(Timestamp, Timer) -> bool) {
        let all = self
            .heap
            .iter()
            .chain(&self.by_wall)
            .map(|Reverse(entry)| *entry);
        let live: BTreeSet<(Timestamp, Timer)> =
            all.filter(|(at, timer)| is_live(*at, *timer)).collect();
        assert_eq!(
            live.len(),
            self.live,
            "timers that mean something, left: set, right: counted"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that receives a job immediately may wait again in the same millisecond.
    #[test]
    fn a_timer_that_is_set_again_for_the_same_time_counts_once_after_a_sweep() {
        let mut timers = Timers::default();
        let (wait, lease) = (Timer::Wait(ClientId(1)), Timer::Expiry(JobId(1)));
        for _ in 0..3 {
            timers.set(Timestamp(5), wait);
            timers.set(Timestamp(7), lease);
            timers.cancel(Timestamp(5));
            timers.cancel(Timestamp(7));
        }
        timers.set(Timestamp(5), wait);
        timers.set(Timestamp(7), lease);
        timers.check(|_, _| true);
        timers.sweep(|_, _| true);
        timers.check(|_, _| true);
        assert_eq!((timers.len(), timers.live), (2, 2));
    }
}
