//! When something is due: alarms that are cancelled by being forgotten, in a heap for each of the two clocks they go by.
//!
//! An alarm that no longer means anything is thrown away when it rings, or when there are more of those than of live
//! ones. Places that are listed by time (scheduled, retrying, dead, done) are sorted sets instead: see [`Sets`].

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use crate::ids::{ClientId, JobId, QueueId, Timestamp};
use crate::job::Place;

/// What may be due besides a job's place in [`Sets`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Alarm {
    /// A lease may have run out.
    Lease(JobId),
    /// A job's time to be worked on may be over.
    Expiry(JobId),
    /// A job's hold on its key may be over.
    Key(JobId),
    /// A taker may have waited long enough.
    Wait(ClientId),
    /// A named worker may have been silent too long.
    Beat(u64),
    /// Slots of a throttled queue may be held for too long.
    Slots(QueueId),
}

#[derive(Debug, Default)]
pub(crate) struct Alarms {
    heap: BinaryHeap<Reverse<(Timestamp, Alarm)>>,
    /// Those that go by the wall clock: the ends of jobs' time.
    by_wall: BinaryHeap<Reverse<(Timestamp, Alarm)>>,
    /// How many in the heaps still mean something.
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

    /// One alarm set for a time other than `NEVER` means nothing any more.
    pub(crate) const fn forget(&mut self, at: Timestamp) {
        if at.0 < Timestamp::NEVER.0 {
            self.live = self.live.saturating_sub(1);
        }
    }

    /// The earliest alarm, and when it rings by the engine's clock.
    pub(crate) fn next(&self, skew_ms: i64) -> Option<(Timestamp, Alarm)> {
        [self.heap.peek().map(|Reverse(entry)| *entry), self.next_by_wall(skew_ms)].into_iter().flatten().min()
    }

    /// Takes the earliest alarm out, with the time it was set for. Whatever it stood for says with [`Alarms::forget`] that
    /// it is over.
    pub(crate) fn pop(&mut self, skew_ms: i64) -> Option<(Timestamp, Alarm)> {
        let next = self.next(skew_ms)?;
        let heap = if self.next_by_wall(skew_ms) == Some(next) { &mut self.by_wall } else { &mut self.heap };
        heap.pop().map(|Reverse(entry)| entry)
    }

    fn next_by_wall(&self, skew_ms: i64) -> Option<(Timestamp, Alarm)> {
        self.by_wall.peek().map(|Reverse((at, alarm))| (at.shifted(skew_ms.saturating_neg()), *alarm))
    }

    /// Whether dead alarms outnumber live ones so far that the heap should be swept.
    pub(crate) fn is_cluttered(&self) -> bool {
        self.len() > 2 * self.live + 1024
    }

    /// Keeps those that still mean something.
    pub(crate) fn sweep(&mut self, means_something: impl Fn(Timestamp, Alarm) -> bool) {
        self.heap.retain(|Reverse((at, alarm))| means_something(*at, *alarm));
        self.by_wall.retain(|Reverse((at, alarm))| means_something(*at, *alarm));
        self.live = self.len();
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len() + self.by_wall.len()
    }

    /// Asserts that the count of live alarms is right; one that was set twice for the same time counts once.
    pub(crate) fn check(&self, means_something: impl Fn(Timestamp, Alarm) -> bool) {
        let all = self.heap.iter().chain(&self.by_wall).map(|Reverse(entry)| *entry);
        let live: BTreeSet<(Timestamp, Alarm)> = all.filter(|(at, alarm)| means_something(*at, *alarm)).collect();
        assert_eq!(live.len(), self.live, "alarms that mean something, left: set, right: counted");
    }
}

/// Jobs in the places that have a time, sorted by it: `scheduled` by the wall clock, the others by the engine's.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    pub(crate) scheduled: BTreeSet<(Timestamp, JobId)>,
    pub(crate) retrying: BTreeSet<(Timestamp, JobId)>,
    pub(crate) dead: BTreeSet<(Timestamp, JobId)>,
    pub(crate) done: BTreeSet<(Timestamp, JobId)>,
}

impl Sets {
    /// The set a place belongs to, and the time it is sorted by there.
    pub(crate) const fn of_mut(&mut self, place: &Place) -> Option<(&mut BTreeSet<(Timestamp, JobId)>, Timestamp)> {
        match place {
            Place::Scheduled(at) => Some((&mut self.scheduled, *at)),
            Place::Retrying(at) => Some((&mut self.retrying, *at)),
            Place::Dead(at) => Some((&mut self.dead, *at)),
            Place::Done(at) => Some((&mut self.done, *at)),
            Place::Ready | Place::Leased(_) | Place::Shelved => None,
        }
    }

    /// The first job due, whatever its set, and when that is by the engine's clock.
    pub(crate) fn next(&self, skew_ms: i64) -> Option<(Timestamp, JobId)> {
        let scheduled = self.scheduled.first().map(|(at, id)| (at.shifted(skew_ms.saturating_neg()), *id));
        let others = [&self.retrying, &self.dead, &self.done].into_iter().filter_map(|set| set.first().copied());
        others.chain(scheduled).min()
    }
}
