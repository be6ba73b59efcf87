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
use crate::ids::{ClientId, Protocol, QueueId, Realm};
use crate::jobs::Slot;
use crate::request::QueueKind;

/// Unclaimed queues, and the clients that wait for unclaimed jobs.
#[derive(Debug, Default)]
pub(super) struct Unclaimed {
    /// By realm, for realms with unclaimed jobs that any subscription has taken.
    pub(super) watched: BTreeMap<Realm, Watch>,
    /// Realms where an unclaimed queue and a client that is waiting for the jobs may match.
    dirty: BTreeSet<Realm>,
}

/// The unclaimed jobs of a realm.
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
            if let Some(watch) = self.watched.get_mut(&id.realm(*protocol)) {
                watch.queues.remove(&(*at, id));
            }
        }
        for (protocol, at) in now {
            let realm = id.realm(*protocol);
            if let Some(watch) = self.watched.get_mut(&realm) {
                watch.queues.insert((*at, id));
                if !watch.takers.is_empty() {
                    self.dirty.insert(realm);
                }
            }
        }
    }

    /// The protocols in watched realms of which a queue has an unclaimed job, with the sort keys.
    fn of(&self, queue: &Queue) -> Vec<(Protocol, SortKey)> {
        let unclaimed = queue
            .unclaimed_jobs()
            .map(|(class, at, _)| (class.protocol, at));
        unclaimed
            .filter(|(protocol, _)| self.watched.contains_key(&queue.image.id.realm(*protocol)))
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
    /// Adds a subscription that takes unclaimed jobs of this realm. Examines all queues of the
    /// namespace the first time.
    pub(crate) fn watch_unclaimed(&mut self, realm: Realm) {
        match self.unclaimed.watched.entry(realm) {
            Entry::Occupied(entry) => entry.into_mut().subscriptions += 1,
            Entry::Vacant(entry) => {
                entry.insert(Watch {
                    subscriptions: 1,
                    ..Watch::default()
                });
                let first = QueueId::new(realm.namespace, 0);
                let own = |id: &QueueId| id.namespace() == realm.namespace;
                let ids: Vec<QueueId> = self.ids_from(first).take_while(own).collect();
                for id in ids {
                    self.note_unclaimed(id);
                }
            }
        }
    }

    /// Removes a subscription that takes unclaimed jobs of this realm.
    pub(crate) fn watch_unclaimed_no_more(&mut self, realm: Realm) {
        if let Some(watch) = self.unclaimed.watched.get_mut(&realm) {
            watch.subscriptions -= 1;
        }
    }

    /// The number of subscriptions that take unclaimed jobs of this realm.
    pub(crate) fn unclaimed_subscriptions(&self, realm: Realm) -> usize {
        self.unclaimed
            .watched
            .get(&realm)
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

    /// Adds a client with credits that is waiting for unclaimed jobs of this realm.
    pub(crate) fn add_unclaimed_waiter(&mut self, realm: Realm, key: WaitKey, client: ClientId) {
        if let Some(watch) = self.unclaimed.watched.get_mut(&realm) {
            watch.takers.insert(key, client);
            if !watch.queues.is_empty() {
                self.unclaimed.dirty.insert(realm);
            }
        }
    }

    /// Called when a client that may be waiting for unclaimed jobs takes them on different terms,
    /// which a throttle may admit, and when such jobs were blocked for lack of buffer space.
    pub(crate) fn retry_unclaimed(&mut self) {
        let watched = self.unclaimed.watched.iter();
        let may_match = watched
            .filter(|(_, watch)| !watch.takers.is_empty() && !watch.queues.is_empty())
            .map(|(realm, _)| *realm);
        self.unclaimed.dirty.extend(may_match);
    }

    /// Removes a client that is waiting for unclaimed jobs of this realm.
    pub(crate) fn remove_unclaimed_waiter(&mut self, realm: Realm, key: WaitKey) {
        if let Some(watch) = self.unclaimed.watched.get_mut(&realm) {
            watch.takers.remove(&key);
        }
    }

    /// The queues with an unclaimed job of this realm, in order of these jobs.
    pub(crate) fn unclaimed(&self, realm: Realm) -> impl Iterator<Item = &Queue> {
        let queues = self
            .unclaimed
            .watched
            .get(&realm)
            .into_iter()
            .flat_map(|watch| &watch.queues);
        queues.filter_map(|(_, queue)| self.at(*queue))
    }

    /// The clients that wait for unclaimed jobs of this realm, in serving order.
    pub(crate) fn unclaimed_waiters(&self, realm: Realm) -> Option<&BTreeMap<WaitKey, ClientId>> {
        self.unclaimed
            .watched
            .get(&realm)
            .map(|watch| &watch.takers)
    }

    /// Returns true if an unclaimed job and a client that is waiting for it may match.
    pub(crate) fn may_serve_unclaimed(&self) -> bool {
        !self.unclaimed.dirty.is_empty()
    }

    /// The first realm where they may match.
    pub(crate) fn unclaimed_to_serve(&self) -> Option<Realm> {
        self.unclaimed.dirty.first().copied()
    }

    /// Called when no unclaimed job of this realm matches a waiting client.
    pub(crate) fn unclaimed_are_served(&mut self, realm: Realm) {
        self.unclaimed.dirty.remove(&realm);
    }

    /// Called when there is no buffer space for unclaimed jobs.
    pub(crate) fn unclaimed_are_blocked(&mut self) {
        self.unclaimed.dirty.clear();
    }

    /// The realms with unclaimed jobs that any subscription has taken.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(crate) fn watched_realms(&self) -> impl Iterator<Item = Realm> {
        self.unclaimed.watched.keys().copied()
    }

    /// Asserts that the unclaimed queues are right.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn check_unclaimed(&self) {
        assert!(
            self.unclaimed.dirty.is_empty(),
            "unclaimed jobs are left to serve"
        );
        let mut queues = 0;
        for queue in self.iter() {
            let unclaimed = self.unclaimed.of(queue);
            assert_eq!(
                queue.unclaimed, unclaimed,
                "{:?}, left: recorded, right: actual",
                queue.image.name
            );
            for (protocol, at) in unclaimed {
                let watch = self.unclaimed.watched.get(&queue.image.id.realm(protocol));
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
