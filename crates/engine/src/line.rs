//! The order in which a queue's ready jobs are taken.
//!
//! Not here: what a rank means (`push`, `cycle`). A line only keeps slots sorted and finds the first.

use std::collections::BTreeMap;

use crate::command::QueueKind;
use crate::ids::Priority;
use crate::job::Job;

/// A job's place in the engine's slab.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Slot(pub(crate) u32);

/// Where a job stands: by urgency, then by rank. Smaller is taken first.
///
/// For a `work` queue `(lane, rank, 0)`, for a `cycle` queue `(0, priority, rank)`. Ranks are unique in the engine, so standings are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Standing {
    pub(crate) lane: u8,
    pub(crate) major: u64,
    pub(crate) minor: u64,
}

impl Standing {
    pub(crate) fn of(job: &Job) -> Self {
        match job.cycle() {
            Some(cycle) => Self { lane: 0, major: cycle.priority, minor: job.rank },
            None => Self { lane: u8::try_from(job.priority.lane()).unwrap_or(u8::MAX), major: job.rank, minor: 0 },
        }
    }
}

/// A queue's ready jobs in order.
#[derive(Debug)]
pub(crate) enum Line {
    /// One tree a priority in use, most urgent first.
    Work(Vec<Lane>),
    /// One tree by (priority, insertion).
    Cycle(BTreeMap<(u64, u64), Slot>),
}

/// The ready jobs of one priority.
#[derive(Debug)]
pub(crate) struct Lane {
    number: u8,
    jobs: BTreeMap<u64, Slot>,
}

impl Line {
    pub(crate) const fn new(kind: QueueKind) -> Self {
        match kind {
            QueueKind::Work => Self::Work(Vec::new()),
            QueueKind::Cycle => Self::Cycle(BTreeMap::new()),
        }
    }

    pub(crate) fn insert(&mut self, at: Standing, slot: Slot) {
        let before = match self {
            Self::Cycle(jobs) => jobs.insert((at.major, at.minor), slot),
            Self::Work(lanes) => {
                let index = match lanes.binary_search_by_key(&at.lane, |lane| lane.number) {
                    Ok(index) => index,
                    Err(index) => {
                        lanes.insert(index, Lane { number: at.lane, jobs: BTreeMap::new() });
                        index
                    }
                };
                lanes.get_mut(index).and_then(|lane| lane.jobs.insert(at.major, slot))
            }
        };
        debug_assert!(before.is_none(), "two jobs at {at:?}");
    }

    /// Takes the job out; a lane that empties is kept, there are nine at most.
    pub(crate) fn remove(&mut self, at: Standing) {
        let gone = match self {
            Self::Cycle(jobs) => jobs.remove(&(at.major, at.minor)),
            Self::Work(lanes) => {
                lanes.iter_mut().find(|lane| lane.number == at.lane).and_then(|lane| lane.jobs.remove(&at.major))
            }
        };
        debug_assert!(gone.is_some(), "no job at {at:?}");
    }

    /// Who is next.
    pub(crate) fn first(&self) -> Option<(Standing, Slot)> {
        self.after(None)
    }

    /// The first job that stands behind `at`.
    pub(crate) fn after(&self, at: Option<Standing>) -> Option<(Standing, Slot)> {
        use std::ops::Bound::{Excluded, Unbounded};
        match self {
            Self::Cycle(jobs) => {
                let from = at.map_or(Unbounded, |at| Excluded((at.major, at.minor)));
                let ((major, minor), slot) = jobs.range((from, Unbounded)).next()?;
                Some((Standing { lane: 0, major: *major, minor: *minor }, *slot))
            }
            Self::Work(lanes) => lanes.iter().find_map(|lane| {
                let from = match at {
                    Some(at) if lane.number < at.lane => return None,
                    Some(at) if lane.number == at.lane => Excluded(at.major),
                    Some(_) | None => Unbounded,
                };
                let (rank, slot) = lane.jobs.range((from, Unbounded)).next()?;
                Some((Standing { lane: lane.number, major: *rank, minor: 0 }, *slot))
            }),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Cycle(jobs) => jobs.is_empty(),
            Self::Work(lanes) => lanes.iter().all(|lane| lane.jobs.is_empty()),
        }
    }

    /// Jobs by lane; a `cycle` queue counts all as normal.
    pub(crate) fn counts(&self) -> [u32; Priority::COUNT] {
        let mut counts = [0; Priority::COUNT];
        let mut add = |lane: usize, n: usize| {
            if let Some(count) = counts.get_mut(lane) {
                *count = u32::try_from(n).unwrap_or(u32::MAX);
            }
        };
        match self {
            Self::Cycle(jobs) => add(Priority::NORMAL.lane(), jobs.len()),
            Self::Work(lanes) => lanes.iter().for_each(|lane| add(lane.number.into(), lane.jobs.len())),
        }
        counts
    }

    /// The smallest priority number of a `cycle` line, 0 if it is empty.
    pub(crate) fn cycle_head(&self) -> u64 {
        self.first().map_or(0, |(at, _)| at.major)
    }

    pub(crate) fn slots(&self) -> Box<dyn Iterator<Item = Slot> + '_> {
        match self {
            Self::Cycle(jobs) => Box::new(jobs.values().copied()),
            Self::Work(lanes) => Box::new(lanes.iter().flat_map(|lane| lane.jobs.values().copied())),
        }
    }
}
