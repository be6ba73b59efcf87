//! Queues with jobs and blocked takers because a visit had no space for more bytes of jobs. The requests for
//! work themselves are in [`crate::deferred`].

use std::collections::BTreeSet;

use crate::ids::{QueueId, Timestamp};

/// The delay before the next attempt, in milliseconds.
const AGAIN_MS: u64 = 20;

/// The queues to serve when there is space.
#[derive(Debug, Default)]
pub(crate) struct Starved {
    queues: BTreeSet<QueueId>,
    /// Unclaimed jobs and clients that take them.
    unclaimed: bool,
    /// The time of the next attempt; `None`: nothing is blocked.
    again_at: Option<Timestamp>,
}

impl Starved {
    /// Records that there is no space for the jobs of this queue.
    pub(crate) fn add(&mut self, queue: QueueId, now: Timestamp) {
        self.queues.insert(queue);
        self.wait(now);
    }

    /// Records that there is no space for unclaimed jobs.
    pub(crate) fn add_unclaimed(&mut self, now: Timestamp) {
        self.unclaimed = true;
        self.wait(now);
    }

    /// Records that there is no space for the job that a request would take.
    pub(crate) fn wait(&mut self, now: Timestamp) {
        self.again_at.get_or_insert(now.after_ms(AGAIN_MS));
    }

    /// The time of the next attempt, if anything is blocked.
    pub(crate) const fn again_at(&self) -> Option<Timestamp> {
        self.again_at
    }

    /// Returns true if anything is blocked and the next attempt is not due.
    pub(crate) fn waits(&self, now: Timestamp) -> bool {
        self.again_at.is_some_and(|at| now < at)
    }

    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(crate) fn has(&self, queue: QueueId) -> bool {
        self.queues.contains(&queue)
    }

    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(crate) const fn has_unclaimed(&self) -> bool {
        self.unclaimed
    }

    /// Takes all records if the next attempt is due: the queues to serve, and `true` if there are unclaimed
    /// jobs.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<(BTreeSet<QueueId>, bool)> {
        let is_due = self.again_at.is_some_and(|at| at <= now);
        is_due
            .then(|| std::mem::take(self))
            .map(|starved| (starved.queues, starved.unclaimed))
    }
}
