//! Strays: ready jobs of queues that no client serves, for clients whose credits include such unclaimed jobs.
//!
//! A `work` queue that has work but no workers is a stray queue of one protocol: that of the first job in its ready queue. The
//! jobs behind the first are looked at when it is their turn. If its jobs have several audiences (`isolation`), this holds for
//! each audience separately. The engine keeps the stray queues of a protocol in order from the first ability on that takes
//! strays of this protocol, and then for the rest of its life, so that abilities that come and go do not cause a scan of all
//! queues. Before that, strays cost one comparison. Strays are handed out at the end of a visit, after the clients that wait at
//! a queue itself have had their turn.

use std::collections::{BTreeMap, BTreeSet};

use crate::client::{Client, Served};
use crate::consumers::WaitKey;
use crate::context::Context;
use crate::engine::Engine;
use crate::ids::{ClientId, Protocol, QueueId, Tag};
use crate::isolation::Audience;
use crate::queue::Queue;
use crate::ready::{Slot, SortKey};
use crate::request::QueueKind;
use crate::throttle::Whose;

/// Stray queues, and the clients that wait for strays.
#[derive(Debug, Default)]
pub(crate) struct Unclaimed {
    /// By protocol; only protocols for which an ability has taken strays.
    watched: BTreeMap<Protocol, Watch>,
    /// A stray queue and a client that waits for strays may now match.
    stirred: bool,
}

/// The strays of one protocol.
#[derive(Debug, Default)]
struct Watch {
    /// By the sort key of the first job.
    queues: BTreeSet<(SortKey, QueueId)>,
    /// Clients with credits, each with the weight of its ability that takes strays.
    takers: BTreeMap<WaitKey, ClientId>,
}

impl Unclaimed {
    pub(crate) fn are_watched(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Whether any ability has ever taken strays of this protocol.
    pub(crate) fn are_taken(&self, protocol: Protocol) -> bool {
        self.watched.contains_key(&protocol)
    }

    /// Moves a queue from its old sort keys to its new ones.
    fn move_queue(&mut self, id: QueueId, before: &[(Protocol, SortKey)], now: &[(Protocol, SortKey)]) {
        for (protocol, standing) in before.iter().filter(|unclaimed_job| !now.contains(unclaimed_job)) {
            if let Some(watch) = self.watched.get_mut(protocol) {
                watch.queues.remove(&(*standing, id));
            }
        }
        for (protocol, standing) in now {
            if let Some(watch) = self.watched.get_mut(protocol) {
                watch.queues.insert((*standing, id));
                self.stirred |= !watch.takers.is_empty();
            }
        }
    }

    /// A client with credits begins to wait for strays on the terms of this ability, if it takes any.
    pub(crate) fn wait(&mut self, id: ClientId, seq: u64, served: Served) {
        if let Some(watch) = served.unclaimed.and_then(|protocol| self.watched.get_mut(&protocol)) {
            watch.takers.insert(WaitKey::new(served.weight, seq), id);
            self.stirred |= !watch.queues.is_empty();
        }
    }

    /// The client stops waiting on the terms of this ability.
    pub(crate) fn leave(&mut self, seq: u64, served: Served) {
        if let Some(watch) = served.unclaimed.and_then(|protocol| self.watched.get_mut(&protocol)) {
            watch.takers.remove(&WaitKey::new(served.weight, seq));
        }
    }
}

impl Engine {
    /// Starts to keep the stray queues of this protocol. Looks at all queues the first time.
    pub(crate) fn watch_unclaimed(&mut self, protocol: Protocol) {
        if self.unclaimed.watched.contains_key(&protocol) {
            return;
        }
        self.unclaimed.watched.insert(protocol, Watch::default());
        (0..self.queues.numbers()).for_each(|id| self.note_unclaimed(QueueId(id)));
    }

    /// Updates the strays of a queue after a change of its ready jobs, its free slots or its workers.
    pub(crate) fn note_unclaimed(&mut self, id: QueueId) {
        if !self.unclaimed.are_watched() {
            return;
        }
        let now = self.queues.at(id).map_or_else(Vec::new, |queue| self.is_unclaimed(queue));
        if let Some(queue) = self.queues.at_mut(id)
            && !(now.is_empty() && queue.unclaimed.is_empty())
        {
            self.unclaimed.move_queue(id, &queue.unclaimed, &now);
            queue.unclaimed = now;
        }
    }

    /// Removes a queue from the strays until it is noted again.
    pub(crate) fn forget_unclaimed(&mut self, id: QueueId) {
        let Some(queue) = self.queues.at_mut(id) else { return };
        self.unclaimed.move_queue(id, &std::mem::take(&mut queue.unclaimed), &[]);
    }

    /// Updates the strays of this job's queue.
    pub(crate) fn note_unclaimed_of(&mut self, slot: Slot) {
        if self.unclaimed.are_watched()
            && let Some(queue) = self.jobs.at(slot).map(|job| job.queue)
        {
            self.note_unclaimed(queue);
        }
    }

    /// The protocols, among those watched, of which the queue is a stray queue, with its sort keys.
    fn is_unclaimed(&self, queue: &Queue) -> Vec<(Protocol, SortKey)> {
        let unclaimed = self.unclaimed_of(queue).map(|(_, protocol, standing, _)| (protocol, standing));
        unclaimed.filter(|(protocol, _)| self.unclaimed.are_taken(*protocol)).collect()
    }

    /// The first job, with its protocol, of each audience that no client serves.
    fn unclaimed_of<'a>(&'a self, queue: &'a Queue) -> impl Iterator<Item = (Audience, Protocol, SortKey, Slot)> + 'a {
        let queue = Some(queue).filter(|queue| queue.image.kind == QueueKind::Work && queue.has_work());
        let firsts = queue
            .into_iter()
            .flat_map(|queue| queue.line.firsts().filter(|(audience, ..)| !queue.is_served(*audience)));
        firsts.filter_map(|(audience, at, slot)| Some((audience, self.jobs.at(slot)?.protocol, at, slot)))
    }

    /// The stray of protocol `wanted` that a client of protocol `own` gets from a queue, if it sees any.
    fn unclaimed_for(&self, queue: &Queue, wanted: Protocol, own: Option<Protocol>) -> Option<(SortKey, Slot)> {
        let unclaimed =
            self.unclaimed_of(queue).filter(|(audience, protocol, ..)| *protocol == wanted && audience.includes(own));
        unclaimed.map(|(.., standing, slot)| (standing, slot)).min_by_key(|(standing, _)| *standing)
    }

    /// The stray that a client gets next on the terms of this ability, if it takes any.
    pub(crate) fn first_unclaimed(
        &self,
        (id, own): (ClientId, Option<Protocol>),
        served: &Served,
    ) -> Option<(SortKey, Slot)> {
        let protocol = served.unclaimed?;
        let watch = self.unclaimed.watched.get(&protocol)?;
        let whose = Whose::taking(id, served.lease, &[]);
        let queues = watch.queues.iter().filter_map(|(_, queue)| self.queues.at(*queue));
        queues.filter(|queue| queue.admits(whose)).find_map(|queue| self.unclaimed_for(queue, protocol, own))
    }

    /// Hands strays to waiting clients: the first stray first, to the client with the heaviest ability, then to the first come.
    /// Returns whether there was one.
    pub(crate) fn serve_unclaimed(&mut self, context: &mut Context) -> bool {
        if !self.unclaimed.stirred {
            return false;
        }
        let mut any = false;
        while let Some((id, served, slot)) = self.next_unclaimed() {
            self.use_credit(id);
            self.hand_out(id, Tag::NONE, slot, served, &[], context);
            any = true;
        }
        self.unclaimed.stirred = false;
        any
    }

    fn next_unclaimed(&self) -> Option<(ClientId, Served, Slot)> {
        let waited_for = self.unclaimed.watched.iter().filter(|(_, watch)| !watch.takers.is_empty());
        waited_for
            .flat_map(|(protocol, watch)| watch.queues.iter().map(move |(_, queue)| (*protocol, watch, *queue)))
            .find_map(|(protocol, watch, queue)| {
                let queue = self.queues.at(queue)?;
                watch.takers.iter().find_map(|(key, id)| {
                    let client = self.clients.get(id)?;
                    let (_, slot) = self.unclaimed_for(queue, protocol, client.info.protocol)?;
                    let takes = client.takes_unclaimed(protocol, key.weight.0);
                    let may = |served: &&Served| queue.admits(Whose::taking(*id, served.lease, &[]));
                    Some((*id, *takes.into_iter().find(may)?, slot))
                })
            })
    }

    /// Asserts that the stray queues are right, and that no stray waits together with a client that takes it.
    pub(crate) fn check_unclaimed(&self) {
        assert!(!self.unclaimed.stirred, "strays are left");
        let mut queues = 0;
        for queue in self.queues.iter() {
            let unclaimed = self.is_unclaimed(queue);
            assert_eq!(queue.unclaimed, unclaimed, "{:?}, left: recorded, right: actual", queue.image.name);
            for (protocol, standing) in unclaimed {
                let watch = self.unclaimed.watched.get(&protocol);
                assert!(watch.is_some_and(|watch| watch.queues.contains(&(standing, queue.image.id))), "{protocol:?}");
                queues += 1;
            }
        }
        let watched = self.unclaimed.watched.values();
        assert_eq!(queues, watched.map(|watch| watch.queues.len()).sum::<usize>(), "stray queues");
        for (protocol, watch) in &self.unclaimed.watched {
            for (key, id) in &watch.takers {
                let client = self.clients.get(id).filter(|client| client.credit.left > 0);
                let waits = client.filter(|client| client.credit.seq == key.seq);
                let takes = waits.and_then(|client| client.takes_unclaimed(*protocol, key.weight.0).next());
                assert!(
                    takes.is_some() && !self.is_quiet(*id, &[]),
                    "{id:?} does not wait for unclaimed jobs of {protocol:?}"
                );
            }
        }
        for (id, client) in self.clients.iter().filter(|(_, client)| client.credit.left > 0) {
            for served in client.subscriptions.iter().filter(|_| !self.is_quiet(*id, &[])) {
                let Some(protocol) = served.unclaimed else { continue };
                let taker = self
                    .unclaimed
                    .watched
                    .get(&protocol)
                    .and_then(|watch| watch.takers.get(&WaitKey::new(served.weight, client.credit.seq)));
                assert_eq!(taker, Some(id), "{id:?} takes unclaimed jobs of {protocol:?}");
            }
        }
        assert!(self.next_unclaimed().is_none(), "an unclaimed job waits, and so does a client that takes it");
    }
}

impl Client {
    /// The abilities that take strays of this protocol with this weight.
    pub(crate) fn takes_unclaimed(&self, protocol: Protocol, weight: u32) -> impl Iterator<Item = &Served> {
        self.subscriptions.iter().filter(move |served| served.unclaimed == Some(protocol) && served.weight == weight)
    }
}
