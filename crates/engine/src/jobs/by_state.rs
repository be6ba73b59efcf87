//! The indexes by state: part of [`Jobs`](super::Jobs), which updates them whenever a job enters or leaves a
//! state.

use std::collections::BTreeMap;

use foldhash::fast::FixedState;

use super::counts::Counts;
use super::holders::Holders;
use super::job::Job;
use super::kept::Kept;
use super::names::Names;
use super::state::JobState;
use super::timed::Timed;
use crate::held::Held;
use crate::ids::Namespace;
use crate::timers::{Timer, Timers};

/// The indexes that depend on a job's state.
#[derive(Debug)]
pub(super) struct ByState {
    pub(super) names: Names,
    pub(super) timed: Timed,
    pub(super) holders: Holders,
    pub(super) counts: Counts,
    pub(super) kept: Kept,
    /// The part of `kept` in each namespace with a name.
    kept_in: BTreeMap<Namespace, Kept>,
}

impl ByState {
    pub(super) fn new(hasher: FixedState, held: &Held) -> Self {
        Self {
            holders: Holders::new(&hasher, held),
            names: Names::new(hasher),
            timed: Timed::default(),
            counts: Counts::default(),
            kept: Kept::default(),
            kept_in: BTreeMap::new(),
        }
    }

    /// Adds a job to the indexes of the state.
    #[inline]
    pub(super) fn enter(&mut self, job: &Job, timers: &mut Timers) {
        self.counts.count(job.realm(), job.state.kind(), 1);
        match &job.state {
            JobState::Ready | JobState::Parked => {}
            JobState::Leased(lease) => {
                timers.set(lease.alarm_at, Timer::Lease(job.id));
                self.holders.hold(job, lease);
                self.names.enter(job);
            }
            JobState::Scheduled(_)
            | JobState::Retrying(_)
            | JobState::Dead(_)
            | JobState::Done(_) => {
                self.enter_timed(job);
            }
        }
    }

    #[inline(never)]
    fn enter_timed(&mut self, job: &Job) {
        self.timed.insert(job.id, &job.state);
        self.names.enter(job);
        if job.is_over() {
            self.keep(job.queue.namespace(), Kept::of(job));
        }
    }

    /// Adds bytes of a finished job.
    pub(super) fn keep(&mut self, namespace: Namespace, kept: Kept) {
        self.kept.add(kept);
        if namespace != Namespace::UNNAMED {
            self.kept_in.entry(namespace).or_default().add(kept);
        }
    }

    /// Subtracts bytes of a finished job.
    pub(super) fn keep_no_more(&mut self, namespace: Namespace, kept: Kept) {
        self.kept.subtract(kept);
        if let Some(of) = self.kept_in.get_mut(&namespace) {
            of.subtract(kept);
        }
    }

    /// The bytes of finished jobs in a namespace; for `None`, in all.
    pub(super) fn kept_in(&self, namespace: Option<Namespace>) -> Kept {
        let mut kept = self.kept;
        match namespace {
            None => {}
            Some(Namespace::UNNAMED) => self.kept_in.values().for_each(|of| kept.subtract(*of)),
            Some(namespace) => kept = self.kept_in.get(&namespace).copied().unwrap_or_default(),
        }
        kept
    }

    /// Removes a job from the indexes of the state.
    #[inline]
    pub(super) fn leave(&mut self, job: &Job, timers: &mut Timers) {
        self.counts.count(job.realm(), job.state.kind(), -1);
        match &job.state {
            JobState::Ready | JobState::Parked => {}
            JobState::Leased(lease) => {
                timers.cancel(lease.alarm_at);
                self.holders.release(job, lease);
                self.names.leave(job);
            }
            JobState::Scheduled(_)
            | JobState::Retrying(_)
            | JobState::Dead(_)
            | JobState::Done(_) => {
                self.leave_timed(job);
            }
        }
    }

    #[inline(never)]
    fn leave_timed(&mut self, job: &Job) {
        self.timed.remove(job.id, &job.state);
        self.names.leave(job);
        if job.is_over() {
            self.keep_no_more(job.queue.namespace(), Kept::of(job));
        }
    }
}
