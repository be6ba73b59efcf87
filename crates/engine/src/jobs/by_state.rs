//! What depends on the states of jobs: part of [`Jobs`](super::Jobs), which calls it whenever a job changes its state.

use foldhash::fast::FixedState;

use super::counts::Counts;
use super::holders::Holders;
use super::job::Job;
use super::names::Names;
use super::state::JobState;
use super::timed::Timed;
use crate::timers::{Timer, Timers};

/// The indexes that depend on a job's state.
#[derive(Debug)]
pub(super) struct ByState {
    pub(super) names: Names,
    pub(super) timed: Timed,
    pub(super) holders: Holders,
    pub(super) counts: Counts,
    /// Bytes of dead jobs.
    pub(super) dead_bytes: u64,
    /// The same without their bodies.
    pub(super) dead_memory_bytes: u64,
    /// Bytes of done jobs that are kept for their clients.
    pub(super) uncollected_bytes: u64,
}

impl ByState {
    pub(super) fn new(hasher: FixedState) -> Self {
        Self {
            holders: Holders::new(&hasher),
            names: Names::new(hasher),
            timed: Timed::default(),
            counts: Counts::default(),
            dead_bytes: 0,
            dead_memory_bytes: 0,
            uncollected_bytes: 0,
        }
    }

    /// A job has entered its state.
    pub(super) fn enter(&mut self, job: &Job, timers: &mut Timers) {
        self.counts.count(job.protocol, job.state.kind(), 1);
        self.timed.insert(job.id, &job.state);
        if let JobState::Leased(lease) = &job.state {
            timers.set(lease.alarm_at, Timer::Lease(job.id));
            self.holders.hold(job.id, lease);
        }
        self.names.enter(job);
        self.dead_bytes += job.dead_bytes();
        self.dead_memory_bytes += job.dead_memory_bytes();
        self.uncollected_bytes += job.uncollected_bytes();
    }

    /// A job is about to leave its state.
    pub(super) fn leave(&mut self, job: &Job, timers: &mut Timers) {
        self.counts.count(job.protocol, job.state.kind(), -1);
        self.timed.remove(job.id, &job.state);
        if let JobState::Leased(lease) = &job.state {
            timers.cancel(lease.alarm_at);
            self.holders.release(job.id, lease);
        }
        self.names.leave(job);
        self.dead_bytes -= job.dead_bytes();
        self.dead_memory_bytes -= job.dead_memory_bytes();
        self.uncollected_bytes -= job.uncollected_bytes();
    }
}
