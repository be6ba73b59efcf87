//! Limits of single queues on their dead jobs.

use std::collections::BTreeSet;

use super::queue::Queue;
use super::table::Queues;
use crate::ids::{JobId, QueueId};
use crate::jobs::{JobStateKind, Jobs};

impl Queues {
    /// Lists the dead jobs of queues anew whose rules have changed. Looks at all dead jobs, once, if their number becomes
    /// limited anywhere.
    pub(crate) fn list_dead(&mut self, changed: &[QueueId], jobs: &Jobs) {
        let mut begun = BTreeSet::new();
        for id in changed {
            let Some(queue) = self.at_mut(*id) else { continue };
            let is_limited = queue.rules().is_some_and(|rules| rules.dead_max.is_some());
            if is_limited != queue.dead.is_some() {
                queue.dead = is_limited.then(BTreeSet::new);
                begun.extend(is_limited.then_some(*id));
            }
        }
        for (until, job) in jobs.timed(JobStateKind::Dead).into_iter().flatten().filter(|_| !begun.is_empty()) {
            let queue = jobs.get(*job).map(|job| job.queue).filter(|queue| begun.contains(queue));
            if let Some(dead) = queue.and_then(|queue| self.at_mut(queue)?.dead.as_mut()) {
                dead.insert((*until, *job));
            }
        }
        changed.iter().for_each(|id| self.note_dead(*id));
    }

    /// The number of dead jobs of a queue, or its limit, has changed.
    pub(super) fn note_dead(&mut self, id: QueueId) {
        if self.at(id).is_some_and(Queue::has_too_many_dead) {
            self.overfull.insert(id);
        } else {
            self.overfull.remove(&id);
        }
    }

    /// Of a queue with more dead jobs than its rules allow, the one whose time ends first.
    pub(crate) fn oldest_of_too_many_dead(&self) -> Option<JobId> {
        let dead = self.at(*self.overfull.first()?)?.dead.as_ref()?;
        dead.first().map(|(_, job)| *job)
    }
}
