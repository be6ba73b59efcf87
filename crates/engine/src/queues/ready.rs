//! The ready queue: the order in which the ready jobs of a queue are taken.
//!
//! Ranks are assigned elsewhere in the engine. A ready queue only sorts slots and finds the first.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

use super::audience::{Class, View};
use crate::held::heap;
use crate::ids::Priority;
use crate::jobs::{Job, Slot, Unfit};
use crate::request::QueueKind;

/// A sort key: first the urgency, then the rank. Smaller keys are taken first.
///
/// For a `work` queue `(lane, rank, 0)`, for a `cycle` queue `(0, priority, rank)`. Ranks are
/// unique in the engine, so sort keys are too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SortKey {
    pub(crate) lane: u8,
    pub(crate) major: u64,
    pub(crate) minor: u64,
}

impl SortKey {
    pub(crate) fn of(job: &Job) -> Self {
        match job.cycle() {
            Some(cycle) => Self {
                lane: 0,
                major: cycle.priority,
                minor: job.rank,
            },
            None => Self {
                lane: u8::try_from(job.priority.lane()).unwrap_or(u8::MAX),
                major: job.rank,
                minor: 0,
            },
        }
    }
}

/// The ready jobs of a queue, in order.
#[derive(Debug)]
pub(crate) enum ReadyQueue {
    /// A `work` queue: a lane for each class and priority in use, in this order. There is nearly
    /// always one. Empty lanes are kept.
    Work(Vec<Part>),
    /// A `cycle` queue: a tree by (priority, insertion).
    Cycle(BTreeMap<(u64, u64), Slot>),
}

/// The ready jobs of a class and priority.
#[derive(Debug)]
pub(crate) struct Part {
    class: Class,
    number: u8,
    lane: Lane,
}

impl Part {
    /// Returns true if it contains jobs of this class and lane.
    #[inline]
    fn is_of(&self, at: SortKey, class: Class) -> bool {
        self.number == at.lane && self.class == class
    }

    /// The first job after a position in the queue.
    fn after(&self, at: Option<SortKey>) -> Option<(SortKey, Slot)> {
        let (major, slot) = match at {
            Some(at) if self.number < at.lane => return None,
            Some(at) if self.number == at.lane => self.lane.after(Some(at.major))?,
            Some(_) | None => self.lane.first()?,
        };
        Some((
            SortKey {
                lane: self.number,
                major,
                minor: 0,
            },
            slot,
        ))
    }
}

impl ReadyQueue {
    pub(crate) const fn new(kind: QueueKind) -> Self {
        match kind {
            QueueKind::Work => Self::Work(Vec::new()),
            QueueKind::Cycle => Self::Cycle(BTreeMap::new()),
        }
    }

    /// The memory of the lanes, without jobs.
    pub(crate) fn parts_bytes(&self) -> u64 {
        self.parts().len() as u64 * PART_BYTES
    }

    /// Adds a job of this class. Returns `true` if it is the first of the lane.
    #[inline]
    pub(crate) fn insert(&mut self, at: SortKey, class: Class, slot: Slot) -> bool {
        let mut is_first = false;
        match self {
            Self::Cycle(jobs) => {
                jobs.insert((at.major, at.minor), slot);
            }
            Self::Work(parts) => match parts.as_mut_slice() {
                [part] if part.is_of(at, class) => part.lane.insert(at.major, slot),
                _ => is_first = Self::insert_among(parts, at, class, slot),
            },
        }
        is_first
    }

    #[inline(never)]
    fn insert_among(parts: &mut Vec<Part>, at: SortKey, class: Class, slot: Slot) -> bool {
        let found = parts.binary_search_by_key(&(class, at.lane), |part| (part.class, part.number));
        let (Ok(index) | Err(index)) = found;
        if found.is_err() {
            parts.reserve_exact(1);
            parts.insert(
                index,
                Part {
                    class,
                    number: at.lane,
                    lane: Lane::default(),
                },
            );
        }
        if let Some(part) = parts.get_mut(index) {
            part.lane.insert(at.major, slot);
        }
        found.is_err()
    }

    /// Removes a job of this class.
    #[inline]
    pub(crate) fn remove(&mut self, at: SortKey, class: Class) {
        let gone = match self {
            Self::Cycle(jobs) => jobs.remove(&(at.major, at.minor)).is_some(),
            Self::Work(parts) => {
                let part = parts.iter_mut().find(|part| part.is_of(at, class));
                part.is_some_and(|part| part.lane.remove(at.major))
            }
        };
        debug_assert!(gone, "no job at {at:?}");
    }

    /// The next job.
    pub(crate) fn first(&self) -> Option<(SortKey, Slot)> {
        self.first_of(View::ALL)
    }

    /// The next job in this view.
    pub(crate) fn first_of(&self, view: View) -> Option<(SortKey, Slot)> {
        self.after_of(view, None)
    }

    /// The classes of present and former jobs, possibly with duplicates.
    pub(crate) fn classes(&self) -> impl Iterator<Item = Class> {
        self.parts().iter().map(|part| part.class)
    }

    fn parts(&self) -> &[Part] {
        if let Self::Work(parts) = self {
            parts
        } else {
            &[]
        }
    }

    /// The number of jobs in this view.
    pub(crate) fn len_of(&self, view: View) -> u32 {
        match self {
            Self::Work(parts) => {
                let jobs = parts
                    .iter()
                    .filter(|part| view.includes(part.class))
                    .map(|part| part.lane.len());
                u32::try_from(jobs.sum::<usize>()).unwrap_or(u32::MAX)
            }
            Self::Cycle(jobs) => u32::try_from(jobs.len()).unwrap_or(u32::MAX),
        }
    }

    /// The first job of each class in a `work` queue.
    pub(crate) fn firsts(&self) -> impl Iterator<Item = (Class, SortKey, Slot)> {
        self.firsts_of(View::ALL, None)
    }

    /// The first job of a class of a `work` queue after `at`.
    pub(crate) fn after_in(&self, class: Class, at: Option<SortKey>) -> Option<(SortKey, Slot)> {
        self.parts()
            .iter()
            .filter(|part| part.class == class)
            .find_map(|part| part.after(at))
    }

    /// The first job of each class in a view of a `work` queue after `at`.
    fn firsts_of(
        &self,
        view: View,
        at: Option<SortKey>,
    ) -> impl Iterator<Item = (Class, SortKey, Slot)> {
        let mut last = None;
        self.parts()
            .iter()
            .filter(move |part| view.includes(part.class))
            .filter_map(move |part| {
                let (at, slot) = (last != Some(part.class)).then(|| part.after(at))??;
                last = Some(part.class);
                Some((part.class, at, slot))
            })
    }

    /// Sorts all jobs of a `work` queue as if every conversion had succeeded. Returns the jobs with
    /// failed conversions.
    pub(crate) fn clear_unfit(&mut self) -> Vec<Slot> {
        let Self::Work(parts) = self else {
            return Vec::new();
        };
        let unfit: Vec<_> = parts
            .extract_if(.., |part| part.class.unfit != Unfit::NONE)
            .collect();
        let mut cleared = Vec::new();
        for part in unfit {
            for (at, slot) in
                std::iter::successors(part.after(None), |(at, _)| part.after(Some(*at)))
            {
                self.insert(
                    at,
                    Class {
                        unfit: Unfit::NONE,
                        ..part.class
                    },
                    slot,
                );
                cleared.push(slot);
            }
        }
        cleared
    }

    /// The first job after `at`.
    pub(crate) fn after(&self, at: Option<SortKey>) -> Option<(SortKey, Slot)> {
        self.after_of(View::ALL, at)
    }

    /// The first job in this view after `at`. All clients see all jobs of a `cycle` queue.
    #[inline]
    pub(crate) fn after_of(&self, view: View, at: Option<SortKey>) -> Option<(SortKey, Slot)> {
        match self {
            Self::Cycle(jobs) => {
                let from = at.map_or(Unbounded, |at| Excluded((at.major, at.minor)));
                let ((major, minor), slot) = jobs.range((from, Unbounded)).next()?;
                Some((
                    SortKey {
                        lane: 0,
                        major: *major,
                        minor: *minor,
                    },
                    *slot,
                ))
            }
            Self::Work(parts) => match parts.as_slice() {
                [part] => part.after(at).filter(|_| view.includes(part.class)),
                _ => self
                    .firsts_of(view, at)
                    .map(|(_, at, slot)| (at, slot))
                    .min_by_key(|(at, _)| *at),
            },
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// The number of jobs in this view by lane. In a `cycle` queue all jobs count as normal.
    pub(crate) fn counts(&self, view: View) -> [u32; Priority::COUNT] {
        let mut counts = [0; Priority::COUNT];
        match self {
            Self::Cycle(jobs) => add(&mut counts, Priority::NORMAL.lane(), jobs.len()),
            Self::Work(parts) => {
                let seen = parts.iter().filter(|part| view.includes(part.class));
                for part in seen {
                    add(&mut counts, part.number.into(), part.lane.len());
                }
            }
        }
        counts
    }

    /// The smallest priority number of a `cycle` queue, 0 if it is empty.
    pub(crate) fn cycle_head(&self) -> u64 {
        self.first().map_or(0, |(at, _)| at.major)
    }

    /// All jobs, in order.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.slots_of(View::ALL)
    }

    /// The jobs in this view, in order.
    pub(crate) fn slots_of(&self, view: View) -> impl Iterator<Item = Slot> + '_ {
        std::iter::successors(self.first_of(view), move |(at, _)| {
            self.after_of(view, Some(*at))
        })
        .map(|(_, slot)| slot)
    }
}

fn add(counts: &mut [u32; Priority::COUNT], lane: usize, n: usize) {
    if let Some(count) = counts.get_mut(lane) {
        *count = count.saturating_add(u32::try_from(n).unwrap_or(u32::MAX));
    }
}

/// The ready jobs of a priority, by rank.
///
/// Nearly every job is added at the back and taken from the front, so these jobs are in a ring, at
/// eight bytes each. Removing a job from the middle leaves a hole. A job that returns where the
/// ring has no hole goes to the tree.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Sorted by rank, stored as the distance from `base`. The front is never a hole.
    ring: VecDeque<(u32, Slot)>,
    base: u64,
    holes: usize,
    tree: BTreeMap<u64, Slot>,
}

/// Fewer holes than this are not closed.
const HOLES_FEW: usize = 64;

/// The memory of a lane with a small ring.
pub(in crate::queues) const PART_BYTES: u64 =
    heap(size_of::<Part>()) + heap(4 * size_of::<(u32, Slot)>());

/// Rings up to this size are not shrunk, so a queue without jobs occupies up to a kilobyte.
const RING_SMALL: usize = 128;

/// The range of ranks that fit after the base once `make_room` was called.
const ROOM: u64 = 1 << 31;

impl Lane {
    fn insert(&mut self, rank: u64, slot: Slot) {
        if self.ring.is_empty() {
            self.base = rank;
        }
        let back = self
            .ring
            .back()
            .map(|(back, _)| self.base + u64::from(*back));
        if back.is_none_or(|back| back < rank) {
            if rank - self.base > u64::from(u32::MAX) {
                self.make_room(rank);
            }
            let distance = u32::try_from(rank - self.base).unwrap_or(u32::MAX);
            self.ring.push_back((distance, slot));
            return;
        }
        match self.find(rank) {
            Ok(index) => {
                // It returns to the previous hole.
                if let Some(state) = self.ring.get_mut(index) {
                    state.1 = slot;
                    self.holes = self.holes.saturating_sub(1);
                }
            }
            Err(_) => {
                self.tree.insert(rank, slot);
            }
        }
    }

    /// Removes the job of this rank, and returns `true` if there was one.
    fn remove(&mut self, rank: u64) -> bool {
        match self.find(rank) {
            Ok(0) => drop(self.ring.pop_front()),
            Ok(index) => {
                let Some(state) = self
                    .ring
                    .get_mut(index)
                    .filter(|state| state.1 != Slot::NONE)
                else {
                    return false;
                };
                state.1 = Slot::NONE;
                self.holes += 1;
            }
            Err(_) => return self.tree.remove(&rank).is_some(),
        }
        self.tidy();
        true
    }

    /// The index of a rank in the ring, or the index at which it would be inserted.
    #[inline]
    fn find(&self, rank: u64) -> Result<usize, usize> {
        let Some(distance) = rank.checked_sub(self.base) else {
            return Err(0);
        };
        let Ok(distance) = u32::try_from(distance) else {
            return Err(self.ring.len());
        };
        match self.ring.front() {
            Some((front, _)) if *front == distance => Ok(0),
            Some(_) | None => self
                .ring
                .binary_search_by_key(&distance, |(distance, _)| *distance),
        }
    }

    /// Advances the base so that a rank far from it fits into the ring. Jobs too old for the new
    /// base move to the tree.
    fn make_room(&mut self, rank: u64) {
        let old = self.base;
        let base = rank - ROOM;
        while let Some((distance, slot)) = self
            .ring
            .front()
            .filter(|(d, _)| old + u64::from(*d) < base)
            .copied()
        {
            self.ring.pop_front();
            match slot {
                Slot::NONE => self.holes = self.holes.saturating_sub(1),
                slot => drop(self.tree.insert(old + u64::from(distance), slot)),
            }
        }
        self.base = base;
        for (distance, _) in &mut self.ring {
            *distance = u32::try_from(old + u64::from(*distance) - base).unwrap_or(u32::MAX);
        }
        self.tidy();
    }

    /// Closes holes at the front, and all holes once they are the majority; then releases memory.
    fn tidy(&mut self) {
        while self
            .ring
            .front()
            .is_some_and(|(_, slot)| *slot == Slot::NONE)
        {
            self.ring.pop_front();
            self.holes = self.holes.saturating_sub(1);
        }
        if self.holes > HOLES_FEW && self.holes > self.ring.len() / 2 {
            self.ring.retain(|(_, slot)| *slot != Slot::NONE);
            self.holes = 0;
        }
        if self.ring.capacity() > RING_SMALL && self.ring.len() < self.ring.capacity() / 8 {
            self.ring.shrink_to(self.ring.len() * 2);
        }
    }

    fn first(&self) -> Option<(u64, Slot)> {
        let ring = self
            .ring
            .front()
            .map(|(distance, slot)| (self.base + u64::from(*distance), *slot));
        if self.tree.is_empty() {
            ring
        } else {
            self.after(None)
        }
    }

    /// The first job with a rank greater than `rank`.
    fn after(&self, rank: Option<u64>) -> Option<(u64, Slot)> {
        let from = rank.map_or(0, |rank| {
            self.find(rank)
                .map_or_else(|index| index, |index| index + 1)
        });
        let ring = self
            .ring
            .range(from..)
            .find(|(_, slot)| *slot != Slot::NONE);
        let ring = ring.map(|(distance, slot)| (self.base + u64::from(*distance), *slot));
        let tree = self
            .tree
            .range((rank.map_or(Unbounded, Excluded), Unbounded))
            .next()
            .map(|(rank, slot)| (*rank, *slot));
        match (ring, tree) {
            (Some(ring), Some(tree)) => Some(if ring.0 < tree.0 { ring } else { tree }),
            (one, other) => one.or(other),
        }
    }

    fn len(&self) -> usize {
        self.ring.len() - self.holes + self.tree.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::ids::Timestamp;

    /// The ring has a 32-bit distance from the base.
    #[test]
    fn jobs_stay_in_order_however_far_apart_their_ranks_are() {
        const LAST: u64 = u32::MAX as u64;
        for base in [0, 1, 1_000] {
            for apart in [1, LAST - 1, LAST, LAST + 1, 5 * LAST] {
                let mut lane = Lane::default();
                let ranks = [base, base + apart, base + apart + 1];
                for (rank, slot) in ranks.into_iter().zip(0..) {
                    lane.insert(rank, Slot(slot));
                }
                let walk = std::iter::successors(lane.first(), |(rank, _)| lane.after(Some(*rank)));
                assert_eq!(
                    walk.map(|(rank, _)| rank).collect::<Vec<_>>(),
                    ranks,
                    "{apart} after {base}"
                );
                assert!(
                    ranks.into_iter().all(|rank| lane.remove(rank)),
                    "{apart} after {base}"
                );
                assert_eq!(lane.len(), 0);
            }
        }
    }

    #[test]
    fn jobs_that_join_at_the_back_are_in_the_ring() {
        let mut lane = Lane::default();
        (10..20).for_each(|rank| lane.insert(rank, Slot(0)));
        assert_eq!((lane.ring.len(), lane.tree.len()), (10, 0));
    }

    /// Random operations on a lane, compared with a sorted map.
    #[test]
    fn a_lane_is_a_sorted_map() {
        for seed in 0..200 {
            let mut rng = Context::new(Timestamp(0), seed);
            let (mut lane, mut model) = (Lane::default(), BTreeMap::new());
            let (mut next, mut away) = (1_000_u64, Vec::new());
            for step in 0..600 {
                match rng.roll(5) {
                    0 | 1 => {
                        lane.insert(next, Slot(step));
                        model.insert(next, Slot(step));
                        // Sometimes a lane is idle while four billion jobs go to others.
                        next += if rng.roll(50) == 0 {
                            3 << 30
                        } else {
                            1 + rng.roll(3)
                        };
                    }
                    2 if !model.is_empty() => {
                        let pick = if rng.roll(2) == 0 {
                            0
                        } else {
                            rng.roll(model.len() as u64)
                        };
                        let rank = *model.keys().nth(usize::try_from(pick).unwrap()).unwrap();
                        assert!(lane.remove(rank), "seed {seed}");
                        away.push((rank, model.remove(&rank).unwrap()));
                    }
                    3 if !away.is_empty() => {
                        let pick = usize::try_from(rng.roll(away.len() as u64)).unwrap();
                        let (rank, slot) = away.swap_remove(pick);
                        lane.insert(rank, slot);
                        model.insert(rank, slot);
                    }
                    _ => assert!(!lane.remove(next + rng.roll(1 << 34)), "seed {seed}"),
                }
                let walk: Vec<_> =
                    std::iter::successors(lane.first(), |(rank, _)| lane.after(Some(*rank)))
                        .collect();
                assert_eq!(lane.first(), lane.after(None), "seed {seed} step {step}");
                assert_eq!(
                    walk,
                    model.iter().map(|(r, s)| (*r, *s)).collect::<Vec<_>>(),
                    "seed {seed} step {step}"
                );
                assert_eq!(lane.len(), model.len(), "seed {seed}");
            }
        }
    }
}
