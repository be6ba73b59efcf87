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
use crate::command::QueueKind;
use crate::consumers::WaitKey;
use crate::engine::Engine;
use crate::ids::{ClientId, Origin, QueueId, Tag};
use crate::isolation::Audience;
use crate::line::{Slot, Standing};
use crate::queue::Queue;
use crate::throttle::Whose;
use crate::turn::Turn;

/// Stray queues, and the clients that wait for strays.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    /// By protocol; only protocols for which an ability has taken strays.
    watched: BTreeMap<Origin, Watch>,
    /// A stray queue and a client that waits for strays may now match.
    stirred: bool,
}

/// The strays of one protocol.
#[derive(Debug, Default)]
struct Watch {
    /// By the sort key of the first job.
    queues: BTreeSet<(Standing, QueueId)>,
    /// Clients with credits, each with the weight of its ability that takes strays.
    takers: BTreeMap<WaitKey, ClientId>,
}

impl Strays {
    pub(crate) fn are_watched(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Whether any ability has ever taken strays of this protocol.
    pub(crate) fn are_taken(&self, origin: Origin) -> bool {
        self.watched.contains_key(&origin)
    }

    /// Moves a queue from its old sort keys to its new ones.
    fn move_queue(&mut self, id: QueueId, before: &[(Origin, Standing)], now: &[(Origin, Standing)]) {
        for (origin, standing) in before.iter().filter(|stray| !now.contains(stray)) {
            if let Some(watch) = self.watched.get_mut(origin) {
                watch.queues.remove(&(*standing, id));
            }
        }
        for (origin, standing) in now {
            if let Some(watch) = self.watched.get_mut(origin) {
                watch.queues.insert((*standing, id));
                self.stirred |= !watch.takers.is_empty();
            }
        }
    }

    /// A client with credits begins to wait for strays on the terms of this ability, if it takes any.
    pub(crate) fn wait(&mut self, id: ClientId, seq: u64, served: Served) {
        if let Some(watch) = served.strays.and_then(|origin| self.watched.get_mut(&origin)) {
            watch.takers.insert(WaitKey::new(served.weight, seq), id);
            self.stirred |= !watch.queues.is_empty();
        }
    }

    /// The client stops waiting on the terms of this ability.
    pub(crate) fn leave(&mut self, seq: u64, served: Served) {
        if let Some(watch) = served.strays.and_then(|origin| self.watched.get_mut(&origin)) {
            watch.takers.remove(&WaitKey::new(served.weight, seq));
        }
    }
}

impl Engine {
    /// Starts to keep the stray queues of this protocol. Looks at all queues the first time.
    pub(crate) fn watch_strays(&mut self, origin: Origin) {
        if self.strays.watched.contains_key(&origin) {
            return;
        }
        self.strays.watched.insert(origin, Watch::default());
        (0..self.queues.numbers()).for_each(|id| self.note_stray(QueueId(id)));
    }

    /// Updates the strays of a queue after a change of its ready jobs, its free slots or its workers.
    pub(crate) fn note_stray(&mut self, id: QueueId) {
        if !self.strays.are_watched() {
            return;
        }
        let now = self.queues.at(id).map_or_else(Vec::new, |queue| self.stands_astray(queue));
        if let Some(queue) = self.queues.at_mut(id)
            && !(now.is_empty() && queue.strays.is_empty())
        {
            self.strays.move_queue(id, &queue.strays, &now);
            queue.strays = now;
        }
    }

    /// Removes a queue from the strays until it is noted again.
    pub(crate) fn forget_stray(&mut self, id: QueueId) {
        let Some(queue) = self.queues.at_mut(id) else { return };
        self.strays.move_queue(id, &std::mem::take(&mut queue.strays), &[]);
    }

    /// Updates the strays of this job's queue.
    pub(crate) fn note_stray_of(&mut self, slot: Slot) {
        if self.strays.are_watched()
            && let Some(queue) = self.jobs.at(slot).map(|job| job.queue)
        {
            self.note_stray(queue);
        }
    }

    /// The protocols, among those watched, of which the queue is a stray queue, with its sort keys.
    fn stands_astray(&self, queue: &Queue) -> Vec<(Origin, Standing)> {
        let strays = self.strays_of(queue).map(|(_, origin, standing, _)| (origin, standing));
        strays.filter(|(origin, _)| self.strays.are_taken(*origin)).collect()
    }

    /// The first job, with its protocol, of each audience that no client serves.
    fn strays_of<'a>(&'a self, queue: &'a Queue) -> impl Iterator<Item = (Audience, Origin, Standing, Slot)> + 'a {
        let queue = Some(queue).filter(|queue| queue.image.kind == QueueKind::Work && queue.has_work());
        let firsts = queue
            .into_iter()
            .flat_map(|queue| queue.line.firsts().filter(|(audience, ..)| !queue.is_served(*audience)));
        firsts.filter_map(|(audience, at, slot)| Some((audience, self.jobs.at(slot)?.origin, at, slot)))
    }

    /// The stray of protocol `wanted` that a client of protocol `own` gets from a queue, if it sees any.
    fn stray_for(&self, queue: &Queue, wanted: Origin, own: Option<Origin>) -> Option<(Standing, Slot)> {
        let strays = self.strays_of(queue).filter(|(audience, origin, ..)| *origin == wanted && audience.includes(own));
        strays.map(|(.., standing, slot)| (standing, slot)).min_by_key(|(standing, _)| *standing)
    }

    /// The stray that a client gets next on the terms of this ability, if it takes any.
    pub(crate) fn first_stray(
        &self,
        (id, own): (ClientId, Option<Origin>),
        served: &Served,
    ) -> Option<(Standing, Slot)> {
        let origin = served.strays?;
        let watch = self.strays.watched.get(&origin)?;
        let whose = Whose::taking(id, served.lease, &[]);
        let queues = watch.queues.iter().filter_map(|(_, queue)| self.queues.at(*queue));
        queues.filter(|queue| queue.admits(whose)).find_map(|queue| self.stray_for(queue, origin, own))
    }

    /// Hands strays to waiting clients: the first stray first, to the client with the heaviest ability, then to the first come.
    /// Returns whether there was one.
    pub(crate) fn serve_strays(&mut self, turn: &mut Turn) -> bool {
        if !self.strays.stirred {
            return false;
        }
        let mut any = false;
        while let Some((id, served, slot)) = self.next_stray() {
            self.use_credit(id);
            self.hand_out(id, Tag::NONE, slot, served, &[], turn);
            any = true;
        }
        self.strays.stirred = false;
        any
    }

    fn next_stray(&self) -> Option<(ClientId, Served, Slot)> {
        let waited_for = self.strays.watched.iter().filter(|(_, watch)| !watch.takers.is_empty());
        waited_for
            .flat_map(|(origin, watch)| watch.queues.iter().map(move |(_, queue)| (*origin, watch, *queue)))
            .find_map(|(origin, watch, queue)| {
                let queue = self.queues.at(queue)?;
                watch.takers.iter().find_map(|(key, id)| {
                    let client = self.clients.get(id)?;
                    let (_, slot) = self.stray_for(queue, origin, client.info.origin)?;
                    let takes = client.takes_strays(origin, key.weight.0);
                    let may = |served: &&Served| queue.admits(Whose::taking(*id, served.lease, &[]));
                    Some((*id, *takes.into_iter().find(may)?, slot))
                })
            })
    }

    /// Asserts that the stray queues are right, and that no stray waits together with a client that takes it.
    pub(crate) fn check_strays(&self) {
        assert!(!self.strays.stirred, "strays are left");
        let mut queues = 0;
        for queue in self.queues.iter() {
            let strays = self.stands_astray(queue);
            assert_eq!(queue.strays, strays, "{:?}, left: recorded, right: actual", queue.image.name);
            for (origin, standing) in strays {
                let watch = self.strays.watched.get(&origin);
                assert!(watch.is_some_and(|watch| watch.queues.contains(&(standing, queue.image.id))), "{origin:?}");
                queues += 1;
            }
        }
        let watched = self.strays.watched.values();
        assert_eq!(queues, watched.map(|watch| watch.queues.len()).sum::<usize>(), "stray queues");
        for (origin, watch) in &self.strays.watched {
            for (key, id) in &watch.takers {
                let client = self.clients.get(id).filter(|client| client.credit.left > 0);
                let waits = client.filter(|client| client.credit.seq == key.seq);
                let takes = waits.and_then(|client| client.takes_strays(*origin, key.weight.0).next());
                assert!(takes.is_some() && !self.is_quiet(*id, &[]), "{id:?} does not wait for strays of {origin:?}");
            }
        }
        for (id, client) in self.clients.iter().filter(|(_, client)| client.credit.left > 0) {
            for served in client.abilities.iter().filter(|_| !self.is_quiet(*id, &[])) {
                let Some(origin) = served.strays else { continue };
                let taker = self
                    .strays
                    .watched
                    .get(&origin)
                    .and_then(|watch| watch.takers.get(&WaitKey::new(served.weight, client.credit.seq)));
                assert_eq!(taker, Some(id), "{id:?} takes strays of {origin:?}");
            }
        }
        assert!(self.next_stray().is_none(), "a stray waits, and so does a client that takes it");
    }
}

impl Client {
    /// The abilities that take strays of this protocol with this weight.
    pub(crate) fn takes_strays(&self, origin: Origin, weight: u32) -> impl Iterator<Item = &Served> {
        self.abilities.iter().filter(move |served| served.strays == Some(origin) && served.weight == weight)
    }
}
