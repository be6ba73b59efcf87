//! Unclaimed jobs: ready jobs of queues that no client serves, for clients whose credits include such jobs.
//!
//! A `work` queue that has work but no workers is an unclaimed queue of one protocol: that of the first job in its ready queue.
//! The jobs behind the first are looked at when it is their turn. If its jobs have several audiences (`audience`), this holds for
//! each audience separately. The unclaimed queues of a protocol are kept in order from the first subscription on that takes
//! unclaimed jobs of this protocol, and then for the rest of the engine's life, so that subscriptions that come and go do not
//! cause a scan of all queues. Before that, unclaimed jobs cost one comparison. They are handed out at the end of a visit, after
//! the clients that wait at a queue itself have had their turn.

use std::collections::{BTreeMap, BTreeSet};

use super::audience::Class;
use super::consumers::WaitKey;
use super::queue::Queue;
use super::ready::SortKey;
use crate::ids::{ClientId, Protocol, QueueId};
use crate::jobs::Slot;
use crate::request::QueueKind;

/// Unclaimed queues, and the clients that wait for unclaimed jobs.
#[derive(Debug, Default)]
pub(super) struct Unclaimed {
    /// By protocol; only protocols of which a subscription has taken unclaimed jobs.
    pub(super) watched: BTreeMap<Protocol, Watch>,
    /// An unclaimed queue and a client that waits for its jobs may now match.
    pub(super) is_dirty: bool,
}

/// The unclaimed jobs of one protocol.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// By the sort key of the first job.
    pub(super) queues: BTreeSet<(SortKey, QueueId)>,
    /// Clients with credits, each with the weight of its subscription that takes unclaimed jobs.
    pub(super) takers: BTreeMap<WaitKey, ClientId>,
}

impl Unclaimed {
    /// Whether any subscription has ever taken unclaimed jobs of this protocol.
    pub(super) fn are_taken(&self, protocol: Protocol) -> bool {
        self.watched.contains_key(&protocol)
    }

    /// Moves a queue from its old sort keys to its new ones.
    pub(super) fn move_queue(&mut self, id: QueueId, before: &[(Protocol, SortKey)], now: &[(Protocol, SortKey)]) {
        for (protocol, at) in before.iter().filter(|unclaimed_job| !now.contains(unclaimed_job)) {
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

    /// The protocols, among those watched, of which a queue has an unclaimed job, with the sort keys.
    pub(super) fn of(&self, queue: &Queue) -> Vec<(Protocol, SortKey)> {
        let unclaimed = queue.unclaimed_jobs().map(|(class, at, _)| (class.protocol, at));
        unclaimed.filter(|(protocol, _)| self.are_taken(*protocol)).collect()
    }
}

impl Queue {
    /// The unclaimed job of protocol `wanted` that a client of protocol `own` gets from this queue, if it sees any.
    pub(crate) fn first_unclaimed(&self, wanted: Protocol, own: Option<Protocol>) -> Option<(SortKey, Slot)> {
        let is_seen = |class: Class| class.protocol == wanted && self.view(own).includes(class);
        let unclaimed = self.unclaimed_jobs().filter(|(class, ..)| is_seen(*class));
        unclaimed.map(|(_, at, slot)| (at, slot)).min_by_key(|(at, _)| *at)
    }

    /// The first job of each audience that no client serves.
    fn unclaimed_jobs(&self) -> impl Iterator<Item = (Class, SortKey, Slot)> {
        let queue = Some(self).filter(|queue| queue.image.kind == QueueKind::Work && queue.has_work());
        let firsts = queue.into_iter().flat_map(|queue| queue.ready.firsts());
        firsts.filter(|(class, at, _)| {
            let precedes =
                |(other, before, _): (Class, SortKey, Slot)| before < *at && class.has_audience_of(other, self.bridged);
            !self.serves(*class) && !self.ready.firsts().any(precedes)
        })
    }
}
