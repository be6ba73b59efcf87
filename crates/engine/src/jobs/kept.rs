//! Bytes of finished jobs, by the reason for retention.

use super::job::Job;
use super::state::JobState;

/// Sums of [`Job::weight_bytes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Dead jobs.
    pub(crate) dead: u64,
    /// Dead jobs without bodies, which may be stored on disk.
    pub(crate) dead_memory: u64,
    /// Done jobs: results, outcomes, and records for repeated submits.
    pub(crate) done: u64,
    /// The part of `done` with outcomes that are retained for clients.
    pub(crate) uncollected: u64,
}

impl Kept {
    pub(super) fn of(job: &Job) -> Self {
        match job.state {
            JobState::Dead(_) => {
                let dead = job.weight_bytes();
                let dead_memory = dead.saturating_sub(job.payload.body_len() as u64);
                Self {
                    dead,
                    dead_memory,
                    ..Self::default()
                }
            }
            JobState::Done(_) => {
                let done = job.weight_bytes();
                Self {
                    done,
                    uncollected: if job.collector().is_empty() { 0 } else { done },
                    ..Self::default()
                }
            }
            JobState::Ready
            | JobState::Leased(_)
            | JobState::Scheduled(_)
            | JobState::Retrying(_)
            | JobState::Parked => Self::default(),
        }
    }

    pub(super) const fn add(&mut self, other: Self) {
        self.dead += other.dead;
        self.dead_memory += other.dead_memory;
        self.done += other.done;
        self.uncollected += other.uncollected;
    }

    pub(super) const fn subtract(&mut self, other: Self) {
        self.dead -= other.dead;
        self.dead_memory -= other.dead_memory;
        self.done -= other.done;
        self.uncollected -= other.uncollected;
    }
}
