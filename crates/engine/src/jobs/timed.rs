//! Jobs in the states that have a time, sorted by it.

use std::collections::BTreeSet;

use super::state::{JobState, JobStateKind};
use crate::ids::{JobId, Timestamp};
use crate::timers::first_at;

/// Jobs by the time of the state: `scheduled` by the wall clock, all other sets by the engine's
/// time.
#[derive(Debug)]
pub(super) struct Timed {
    scheduled: BTreeSet<(Timestamp, JobId)>,
    retrying: BTreeSet<(Timestamp, JobId)>,
    dead: BTreeSet<(Timestamp, JobId)>,
    done: BTreeSet<(Timestamp, JobId)>,
    /// The first time of `scheduled`, and of the other sets. Cached because every command reads them, and a
    /// tree is slow to return the first entry.
    first_by_wall: Timestamp,
    first: Timestamp,
}

impl Default for Timed {
    fn default() -> Self {
        let [scheduled, retrying, dead, done] = Default::default();
        Self {
            scheduled,
            retrying,
            dead,
            done,
            first_by_wall: Timestamp::NEVER,
            first: Timestamp::NEVER,
        }
    }
}

impl Timed {
    #[inline]
    pub(super) fn insert(&mut self, id: JobId, state: &JobState) {
        if let Some((set, at)) = self.of_mut(state) {
            set.insert((at, id));
            self.note_first();
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, id: JobId, state: &JobState) {
        if let Some((set, at)) = self.of_mut(state) {
            set.remove(&(at, id));
            self.note_first();
        }
    }

    #[inline(never)]
    fn note_first(&mut self) {
        self.first_by_wall = first_at(&self.scheduled);
        self.first = first_at(&self.retrying)
            .min(first_at(&self.dead))
            .min(first_at(&self.done));
    }

    /// The set for a state, and the time by which it sorts the job.
    const fn of_mut(
        &mut self,
        state: &JobState,
    ) -> Option<(&mut BTreeSet<(Timestamp, JobId)>, Timestamp)> {
        match state {
            JobState::Scheduled(at) => Some((&mut self.scheduled, *at)),
            JobState::Retrying(at) => Some((&mut self.retrying, *at)),
            JobState::Dead(at) => Some((&mut self.dead, *at)),
            JobState::Done(at) => Some((&mut self.done, *at)),
            JobState::Ready | JobState::Leased(_) | JobState::Parked => None,
        }
    }

    /// The jobs in states of this kind, if such states have a time.
    pub(super) const fn of(&self, kind: JobStateKind) -> Option<&BTreeSet<(Timestamp, JobId)>> {
        match kind {
            JobStateKind::Scheduled => Some(&self.scheduled),
            JobStateKind::Retrying => Some(&self.retrying),
            JobStateKind::Dead => Some(&self.dead),
            JobStateKind::Done => Some(&self.done),
            JobStateKind::Ready | JobStateKind::Leased | JobStateKind::Parked => None,
        }
    }

    /// The dead jobs.
    pub(super) const fn dead(&self) -> &BTreeSet<(Timestamp, JobId)> {
        &self.dead
    }

    /// The done jobs.
    pub(super) const fn done(&self) -> &BTreeSet<(Timestamp, JobId)> {
        &self.done
    }

    /// When the first job is due in any set, by the engine's time.
    pub(super) const fn has_due(&self, now: Timestamp, wall: Timestamp) -> bool {
        self.first_by_wall.0 <= wall.0 || self.first.0 <= now.0
    }

    pub(super) fn next_at(&self, skew_ms: i64) -> Timestamp {
        self.first_by_wall
            .shifted(skew_ms.saturating_neg())
            .min(self.first)
    }

    /// The first job due in any set, and when, by the engine's time.
    pub(super) fn next(&self, skew_ms: i64) -> Option<(Timestamp, JobId)> {
        let mut next = self
            .scheduled
            .first()
            .map(|(at, id)| (at.shifted(skew_ms.saturating_neg()), *id));
        for first in [&self.retrying, &self.dead, &self.done]
            .into_iter()
            .filter_map(BTreeSet::first)
        {
            next = Some(next.map_or(*first, |next| next.min(*first)));
        }
        next
    }

    /// Asserts that the sets contain exactly these jobs.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn check<'a>(&self, jobs: impl Iterator<Item = &'a super::job::Job>) {
        let mut expected = Self::default();
        jobs.for_each(|job| expected.insert(job.id, &job.state));
        let sets = |timed: &Self| {
            [&timed.scheduled, &timed.retrying, &timed.dead, &timed.done].map(Clone::clone)
        };
        assert_eq!(
            sets(self),
            sets(&expected),
            "jobs in states with a time, left: indexed, right: actual"
        );
    }
}
