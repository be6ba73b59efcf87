//! The engine's first visit: facts about the daemon before, and the work that recovery leaves.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::ids::{JobId, Protocol, Timestamp};
use crate::jobs::Slot;
use crate::schedules::Schedule;

/// The work that is postponed to the first visit, and the time of that visit.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    /// Set by the first visit.
    pub(super) first: Option<FirstVisit>,
    /// Nothing that is due is executed, because the configuration is not set yet.
    pub(super) holds_due: bool,
    /// The daemon before this one did not stop in order: jobs that it delivered over connections may still
    /// run.
    pub(super) was_killed: bool,
    /// Recovered jobs with workers that may return.
    pub(super) away: Vec<JobId>,
    /// Jobs that were merged with other jobs, to be journalled.
    pub(super) rejoined: Vec<Slot>,
    /// Jobs that were merged with a job that finished before the restart. The quiet time starts at the first
    /// visit.
    pub(super) left_alone: Vec<Slot>,
    /// Schedules that make up for no run from before it.
    pub(super) skip_missed: BTreeSet<(Protocol, Bytes)>,
}

/// The time of the first visit, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstVisit {
    pub(super) now: Timestamp,
    pub(super) wall: Timestamp,
}

impl Beginning {
    /// Returns true if the run of a schedule fell due before the first visit, and is not made up
    /// for.
    pub(super) fn skips(&self, schedule: &Schedule) -> bool {
        let Some(first) = self.first else {
            return false;
        };
        let Some(key) = &schedule.key else {
            return false;
        };
        let began = if schedule.recurrence.by_wall() {
            first.wall
        } else {
            first.now
        };
        let skipped = (schedule.job.protocol, key.clone());
        schedule.next_at < began && self.skip_missed.contains(&skipped)
    }
}
