//! Unclaimed jobs: ready jobs of queues that no client serves, for clients with credits that
//! include such jobs.
//!
//! A `work` queue that has work but no workers is an unclaimed queue of the protocol of the first
//! job in the ready queue. Later jobs are examined when they become first. If the jobs have several
//! audiences (`audience`), this applies to each audience separately. The unclaimed queues of a
//! protocol are sorted from the first subscription that takes unclaimed jobs of this protocol until
//! the engine stops, so that later subscriptions do not cause a scan of all queues. Before that,
//! unclaimed jobs cost a single comparison. They are delivered at the end of a visit, after the
//! clients that are waiting at a queue itself.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::audience::Class;
use super::consumers::WaitKey;
use super::queue::Queue;
use super::ready::SortKey;
use super::table::Queues;
use crate::ids::{ClientId, Protocol, QueueId};
use crate::jobs::Slot;
use crate::request::QueueKind;

/// Unclaimed queues, and the clients that wait for unclaimed jobs.
#[derive(Debug, Default)]
pub(super) struct Unclaimed {
    /// By protocol, for protocols with unclaimed jobs that any subscription has taken.
    pub(super) watched: BTreeMap<Protocol, Watch>,
    /// True if an unclaimed queue and a client that is waiting for the jobs may match.
    is_dirty: bool,
}

/// The unclaimed jobs of a protocol.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The number of subscriptions that take them.
    subscriptions: usize,
    /// By the sort key of the first job.
    queues: BTreeSet<(SortKey, QueueId)>,
    /// Clients with credits, with the weights of subscriptions that take unclaimed jobs.
    takers: BTreeMap<WaitKey, ClientId>,
}

impl Unclaimed {
    /// Replaces the sort keys of a queue.
    fn move_queue(
        &mut self,
        id: QueueId,
        before: &[(Protocol, SortKey)],
        now: &[(Protocol, SortKey)],
    ) {
        for (protocol, at) in before
            .iter()
            .filter(|unclaimed_job| !now.contains(unclaimed_job))
        {
            if let Some(watch) = self.watched.get_mut(protocol) {
                watch.queues.remove(&(*at, id));
            }
        }
        for (protocol, at) in now {
            if let Some(watch) = self.watched.get_mut(protocol) {
                watch.queues.insert((*at, id));
                self.is_dirty |= !watch.takers.is_empty();
            }
        }
    }

    /// The watched protocols of which a queue has an unclaimed job, with the sort keys.
    fn of(&self, queue: &Queue) -> Vec<(Protocol, SortKey)> {
        let unclaimed = queue
            .unclaimed_jobs()
            .map(|(class, at, _)| (class.protocol, at));
        unclaimed
            .filter(|(protocol, _)| self.watched.contains_key(protocol))
            .collect()
    }
}

impl Queue {
    /// The unclaimed job of protocol `wanted` that a client of protocol `own` gets from this queue,
    /// if it sees any.
    pub(crate) fn first_unclaimed(
        &self,
        wanted: Protocol,
        own: Option<Protocol>,
    ) -> Option<(SortKey, Slot)> {
        let is_seen = |class: Class| class.protocol == wanted && self.view(own).includes(class);
        let unclaimed = self.unclaimed_jobs().filter(|(class, ..)| is_seen(*class));
        unclaimed
            .map(|(_, at, slot)| (at, slot))
            .min_by_key(|(at, _)| *at)
    }

    /// Returns true if every existing class of jobs is served by clients.
    fn is_claimed(&self) -> bool {
        self.ready.classes().all(|class| self.serves(class))
    }

    /// The first job of each audience that no client serves.
    fn unclaimed_jobs(&self) -> impl Iterator<Item = (Class, SortKey, Slot)> {
        let may_start = self.image.kind == QueueKind::Work && self.free_slots() > 0;
        let firsts = may_start.then(|| self.firsts()).into_iter().flatten();
        firsts.filter(|(class, at, _)| {
            let precedes = |(other, before, _): (Class, SortKey, Slot)| {
                before < *at && class.has_audience_of(other, self.bridged)
            };
            !self.serves(*class) && !self.firsts().any(precedes)
        })
    }
}

impl Queues {
    /// Adds a subscription that takes unclaimed jobs of this protocol. Examines all queues the
    /// first time.
    pub(crate) fn watch_unclaimed(&mut self, protocol: Protocol) {
        match self.unclaimed.watched.entry(protocol) {
            Entry::Occupied(entry) => entry.into_mut().subscriptions += 1,
            Entry::Vacant(entry) => {
                entry.insert(Watch {
                    subscriptions: 1,
                    ..Watch::default()
                });
                for id in 0..self.numbers() {
                    self.note_unclaimed(QueueId(id));
                }
            }
        }
    }

    /// Removes a subscription that takes unclaimed jobs of this protocol.
    pub(crate) fn watch_unclaimed_no_more(&mut self, protocol: Protocol) {
        if let Some(watch) = self.unclaimed.watched.get_mut(&protocol) {
            watch.subscriptions -= 1;
        }
    }

    /// The number of subscriptions that take unclaimed jobs of this protocol.
    pub(crate) fn unclaimed_subscriptions(&self, protocol: Protocol) -> usize {
        self.unclaimed
            .watched
            .get(&protocol)
            .map_or(0, |watch| watch.subscriptions)
    }

    /// Returns true if any subscription has ever taken unclaimed jobs.
    pub(crate) fn watches_unclaimed(&self) -> bool {
        !self.unclaimed.watched.is_empty()
    }

    /// Updates the unclaimed jobs of a queue after an update of ready jobs, free slots or workers.
    pub(crate) fn note_unclaimed(&mut self, id: QueueId) {
        if !self.watches_unclaimed() {
            return;
        }
        if self
            .at(id)
            .is_none_or(|queue| queue.unclaimed.is_empty() && queue.is_claimed())
        {
            return;
        }
        let now = self
            .at(id)
            .map_or_else(Vec::new, |queue| self.unclaimed.of(queue));
        let before = self
            .at_mut(id)
            .map(|queue| std::mem::take(&mut queue.unclaimed))
            .unwrap_or_default();
        self.unclaimed.move_queue(id, &before, &now);
        if let Some(queue) = self.at_mut(id) {
            queue.unclaimed = now;
        }
    }

    /// Adds a client with credits that is waiting for unclaimed jobs of this protocol.
    pub(crate) fn add_unclaimed_waiter(
        &mut self,
        protocol: Protocol,
        key: WaitKey,
        client: ClientId,
    ) {
        if let Some(watch) = self.unclaimed.watched.get_mut(&protocol) {
            watch.takers.insert(key, client);
            self.unclaimed.is_dirty |= !watch.queues.is_empty();
        }
    }

    /// Called when a client that may be waiting for unclaimed jobs takes them on different terms,
    /// which a throttle may admit.
    pub(crate) fn retry_unclaimed(&mut self) {
        let may_match = |watch: &Watch| !watch.takers.is_empty() && !watch.queues.is_empty();
        self.unclaimed.is_dirty |= self.unclaimed.watched.values().any(may_match);
    }

    /// Removes a client that is waiting for unclaimed jobs of this protocol.
    pub(crate) fn remove_unclaimed_waiter(&mut self, protocol: Protocol, key: WaitKey) {
        if let Some(watch) = self.unclaimed.watched.get_mut(&protocol) {
            watch.takers.remove(&key);
        }
    }

    /// The queues with an unclaimed job of this protocol, in order of these jobs.
    pub(crate) fn unclaimed(&self, protocol: Protocol) -> impl Iterator<Item = &Queue> {
        let queues = self
            .unclaimed
            .watched
            .get(&protocol)
            .into_iter()
            .flat_map(|watch| &watch.queues);
        queues.filter_map(|(_, queue)| self.at(*queue))
    }

    /// Per protocol: the clients that wait for unclaimed jobs, in serving order.
    pub(crate) fn unclaimed_waiters(
        &self,
    ) -> impl Iterator<Item = (Protocol, &BTreeMap<WaitKey, ClientId>)> {
        self.unclaimed
            .watched
            .iter()
            .map(|(protocol, watch)| (*protocol, &watch.takers))
            .filter(|(_, t)| !t.is_empty())
    }

    /// Returns true if an unclaimed job and a client that is waiting for it may match.
    pub(crate) const fn may_serve_unclaimed(&self) -> bool {
        self.unclaimed.is_dirty
    }

    /// Called when unclaimed jobs were blocked for lack of buffer space.
    pub(crate) const fn serve_unclaimed_again(&mut self) {
        self.unclaimed.is_dirty = true;
    }

    /// Called when no unclaimed job matches a waiting client, or there is no buffer space for it.
    pub(crate) const fn unclaimed_are_served(&mut self) {
        self.unclaimed.is_dirty = false;
    }

    /// Asserts that the unclaimed queues are right.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn check_unclaimed(&self) {
        assert!(!self.unclaimed.is_dirty, "unclaimed jobs are left to serve");
        let mut queues = 0;
        for queue in self.iter() {
            let unclaimed = self.unclaimed.of(queue);
            assert_eq!(
                queue.unclaimed, unclaimed,
                "{:?}, left: recorded, right: actual",
                queue.image.name
            );
            for (protocol, at) in unclaimed {
                let watch = self.unclaimed.watched.get(&protocol);
                assert!(
                    watch.is_some_and(|watch| watch.queues.contains(&(at, queue.image.id))),
                    "{protocol:?}"
                );
                queues += 1;
            }
        }
        let watched = self.unclaimed.watched.values();
        assert_eq!(
            queues,
            watched.map(|watch| watch.queues.len()).sum::<usize>(),
            "unclaimed queues"
        );
    }
}
