//! Which queues have unclaimed jobs, and which clients wait for such jobs: kept as queues and clients change.

use std::collections::BTreeMap;

use super::consumers::WaitKey;
use super::queue::Queue;
use super::table::Queues;
use super::unclaimed::Watch;
use crate::ids::{ClientId, Protocol, QueueId};

impl Queues {
    /// Starts to keep the unclaimed queues of this protocol. Looks at all queues the first time.
    pub(crate) fn watch_unclaimed(&mut self, protocol: Protocol) {
        if !self.unclaimed.are_taken(protocol) {
            self.unclaimed.watched.insert(protocol, Watch::default());
            (0..self.numbers()).for_each(|id| self.note_unclaimed(QueueId(id)));
        }
    }

    /// Whether any subscription has ever taken unclaimed jobs.
    pub(crate) fn watches_unclaimed(&self) -> bool {
        !self.unclaimed.watched.is_empty()
    }

    /// Updates the unclaimed jobs of a queue after a change of its ready jobs, its free slots or its workers.
    pub(crate) fn note_unclaimed(&mut self, id: QueueId) {
        if !self.watches_unclaimed() {
            return;
        }
        let now = self.at(id).map_or_else(Vec::new, |queue| self.unclaimed.of(queue));
        let Some(queue) = self.at_mut(id).filter(|queue| !(now.is_empty() && queue.unclaimed.is_empty())) else {
            return;
        };
        let before = std::mem::take(&mut queue.unclaimed);
        self.unclaimed.move_queue(id, &before, &now);
        if let Some(queue) = self.at_mut(id) {
            queue.unclaimed = now;
        }
    }

    /// A client with credits begins to wait for unclaimed jobs of this protocol.
    pub(crate) fn add_unclaimed_waiter(&mut self, protocol: Protocol, key: WaitKey, client: ClientId) {
        if let Some(watch) = self.unclaimed.watched.get_mut(&protocol) {
            watch.takers.insert(key, client);
            self.unclaimed.is_dirty |= !watch.queues.is_empty();
        }
    }

    /// A client that may wait for unclaimed jobs takes them on other terms now, which a throttle may admit.
    pub(crate) fn retry_unclaimed(&mut self) {
        let may_match = |watch: &Watch| !watch.takers.is_empty() && !watch.queues.is_empty();
        self.unclaimed.is_dirty |= self.unclaimed.watched.values().any(may_match);
    }

    /// A client stops waiting for unclaimed jobs of this protocol.
    pub(crate) fn remove_unclaimed_waiter(&mut self, protocol: Protocol, key: WaitKey) {
        if let Some(watch) = self.unclaimed.watched.get_mut(&protocol) {
            watch.takers.remove(&key);
        }
    }

    /// The queues with an unclaimed job of this protocol, in order of these jobs.
    pub(crate) fn unclaimed(&self, protocol: Protocol) -> impl Iterator<Item = &Queue> {
        let queues = self.unclaimed.watched.get(&protocol).into_iter().flat_map(|watch| &watch.queues);
        queues.filter_map(|(_, queue)| self.at(*queue))
    }

    /// The protocols of which unclaimed jobs are waited for, with the waiting clients, those to serve first in front.
    pub(crate) fn unclaimed_waiters(&self) -> impl Iterator<Item = (Protocol, &BTreeMap<WaitKey, ClientId>)> {
        self.unclaimed.watched.iter().map(|(protocol, watch)| (*protocol, &watch.takers)).filter(|(_, t)| !t.is_empty())
    }

    /// Whether an unclaimed job and a client that waits for it may match.
    pub(crate) const fn may_serve_unclaimed(&self) -> bool {
        self.unclaimed.is_dirty
    }

    /// No unclaimed job matches a waiting client any more.
    pub(crate) const fn unclaimed_are_served(&mut self) {
        self.unclaimed.is_dirty = false;
    }

    /// Asserts that the unclaimed queues are right.
    pub(super) fn check_unclaimed(&self) {
        assert!(!self.unclaimed.is_dirty, "unclaimed jobs are left to serve");
        let mut queues = 0;
        for queue in self.iter() {
            let unclaimed = self.unclaimed.of(queue);
            assert_eq!(queue.unclaimed, unclaimed, "{:?}, left: recorded, right: actual", queue.image.name);
            for (protocol, at) in unclaimed {
                let watch = self.unclaimed.watched.get(&protocol);
                assert!(watch.is_some_and(|watch| watch.queues.contains(&(at, queue.image.id))), "{protocol:?}");
                queues += 1;
            }
        }
        let watched = self.unclaimed.watched.values();
        assert_eq!(queues, watched.map(|watch| watch.queues.len()).sum::<usize>(), "unclaimed queues");
    }
}
