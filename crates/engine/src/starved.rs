//! Queues with jobs and takers that wait because a visit had no room for more bytes of jobs. Requests for work wait in
//! [`crate::deferred`] then.

use std::collections::BTreeSet;

use crate::ids::{QueueId, Timestamp};

/// How soon a visit with room is tried for, in milliseconds.
const AGAIN_MS: u64 = 20;

/// What to serve when there is room.
#[derive(Debug, Default)]
pub(crate) struct Starved {
    queues: BTreeSet<QueueId>,
    /// Unclaimed jobs and clients that take them.
    unclaimed: bool,
    /// When it is tried again; `None`: nothing waits for room.
    again_at: Option<Timestamp>,
}

impl Starved {
    /// There is no room for the jobs of this queue.
    pub(crate) fn add(&mut self, queue: QueueId, now: Timestamp) {
        self.queues.insert(queue);
        self.wait(now);
    }

    /// There is no room for unclaimed jobs.
    pub(crate) fn add_unclaimed(&mut self, now: Timestamp) {
        self.unclaimed = true;
        self.wait(now);
    }

    /// There is no room for what a request for work would get.
    pub(crate) fn wait(&mut self, now: Timestamp) {
        self.again_at.get_or_insert(now.after_ms(AGAIN_MS));
    }

    /// When it is tried again, if anything waits.
    pub(crate) const fn again_at(&self) -> Option<Timestamp> {
        self.again_at
    }

    /// Whether something waits, and it is too early to try again.
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

    /// Takes everything, if it is time to try again: the queues to serve, and whether there are unclaimed jobs.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<(BTreeSet<QueueId>, bool)> {
        let is_due = self.again_at.is_some_and(|at| at <= now);
        is_due
            .then(|| std::mem::take(self))
            .map(|starved| (starved.queues, starved.unclaimed))
    }
}
