//! Which jobs are queued behind unfinished jobs ([`crate::Coalesced::behind`]).

use std::collections::BTreeSet;

use crate::ids::JobId;

/// Pairs of a job that must finish first and a job queued behind it.
#[derive(Debug, Default)]
pub(super) struct Followers(BTreeSet<(JobId, JobId)>);

impl Followers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Moves a job from behind one job to behind another.
    pub(super) fn step(&mut self, id: JobId, from: Option<JobId>, to: Option<JobId>) {
        if let Some(ahead) = from {
            self.0.remove(&(ahead, id));
        }
        if let Some(ahead) = to {
            self.0.insert((ahead, id));
        }
    }

    /// The jobs behind this one, oldest first.
    pub(super) fn of(&self, ahead: JobId) -> impl Iterator<Item = JobId> {
        let range = (ahead, JobId(0))..=(ahead, JobId(u64::MAX));
        self.0.range(range).map(|(_, id)| *id)
    }

    /// All jobs that are queued behind a job.
    pub(super) fn iter(&self) -> impl Iterator<Item = JobId> {
        self.0.iter().map(|(_, id)| *id)
    }
}
