//! Strays: ready jobs of queues that nobody serves, for clients whose credits bring them what is left lying.
//!
//! A `work` queue without workers is a stray queue of the origin of the first job in its line, as long as it has work: the
//! jobs behind the first are looked at when it is their turn. Where jobs have several audiences (`isolation`), that holds for
//! each of their lines and those who see it. Stray queues are kept in order from the first ability on that
//! asks for strays of their origin, for the rest of the engine's life, so that abilities that come and go do not have
//! all queues looked at again; before that, all of this costs one comparison. Strays are handed out at the end of a visit:
//! whoever waits at a queue itself has had its turn by then.

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

/// Stray queues and who waits for strays.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    /// Those of an origin that some ability has asked for.
    watched: BTreeMap<Origin, Watch>,
    /// A stray queue and a client that waits for strays may have come together.
    stirred: bool,
}

/// The strays of one origin.
#[derive(Debug, Default)]
struct Watch {
    /// By where the first in their line stands.
    queues: BTreeSet<(Standing, QueueId)>,
    /// Clients with credits, each with the weight of the ability that takes strays.
    takers: BTreeMap<WaitKey, ClientId>,
}

impl Strays {
    pub(crate) fn are_watched(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Whether anybody has ever asked for those of this origin.
    pub(crate) fn are_taken(&self, origin: Origin) -> bool {
        self.watched.contains_key(&origin)
    }

    /// A queue stood in these places, and stands in those now.
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

    /// A client with credits waits for strays on the terms of this ability, if it takes any.
    pub(crate) fn wait(&mut self, id: ClientId, seq: u64, served: Served) {
        if let Some(watch) = served.strays.and_then(|origin| self.watched.get_mut(&origin)) {
            watch.takers.insert(WaitKey::new(served.weight, seq), id);
            self.stirred |= !watch.queues.is_empty();
        }
    }

    /// It does so no more.
    pub(crate) fn leave(&mut self, seq: u64, served: Served) {
        if let Some(watch) = served.strays.and_then(|origin| self.watched.get_mut(&origin)) {
            watch.takers.remove(&WaitKey::new(served.weight, seq));
        }
    }
}

impl Engine {
    /// From now on it is known which queues are stray queues of this origin. Looks at all queues the first time.
    pub(crate) fn watch_strays(&mut self, origin: Origin) {
        if self.strays.watched.contains_key(&origin) {
            return;
        }
        self.strays.watched.insert(origin, Watch::default());
        (0..self.queues.numbers()).for_each(|id| self.note_stray(QueueId(id)));
    }

    /// A queue's line has changed, or how much of it may be worked on, or whether anybody serves it.
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

    /// A queue is no stray queue until it is noted again.
    pub(crate) fn forget_stray(&mut self, id: QueueId) {
        let Some(queue) = self.queues.at_mut(id) else { return };
        self.strays.move_queue(id, &std::mem::take(&mut queue.strays), &[]);
    }

    /// The same for the queue of this job.
    pub(crate) fn note_stray_of(&mut self, slot: Slot) {
        if self.strays.are_watched()
            && let Some(queue) = self.jobs.at(slot).map(|job| job.queue)
        {
            self.note_stray(queue);
        }
    }

    /// Where a queue stands among the stray queues, and of which origins, as far as those are asked for.
    fn stands_astray(&self, queue: &Queue) -> Vec<(Origin, Standing)> {
        let strays = self.strays_of(queue).map(|(_, origin, standing, _)| (origin, standing));
        strays.filter(|(origin, _)| self.strays.are_taken(*origin)).collect()
    }

    /// The first job of each audience of which nobody serves a queue, with its origin.
    fn strays_of<'a>(&'a self, queue: &'a Queue) -> impl Iterator<Item = (Audience, Origin, Standing, Slot)> + 'a {
        let queue = Some(queue).filter(|queue| queue.image.kind == QueueKind::Work && queue.has_work());
        let firsts = queue
            .into_iter()
            .flat_map(|queue| queue.line.firsts().filter(|(audience, ..)| !queue.is_served(*audience)));
        firsts.filter_map(|(audience, at, slot)| Some((audience, self.jobs.at(slot)?.origin, at, slot)))
    }

    /// The stray of this origin that one who speaks this protocol gets of a queue, if it sees any.
    fn stray_for(&self, queue: &Queue, wanted: Origin, own: Option<Origin>) -> Option<(Standing, Slot)> {
        let strays = self.strays_of(queue).filter(|(audience, origin, ..)| *origin == wanted && audience.includes(own));
        strays.map(|(.., standing, slot)| (standing, slot)).min_by_key(|(standing, _)| *standing)
    }

    /// The stray a client, who speaks this protocol, gets next on the terms of this ability, if it takes any.
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

    /// Hands strays to those who wait for them: the first stray first, the heaviest ability first, then first come. Says
    /// whether there was one.
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

    /// Asserts that stray queues are known as such, and that none waits together with somebody who takes its stray.
    pub(crate) fn check_strays(&self) {
        assert!(!self.strays.stirred, "strays are left");
        let mut queues = 0;
        for queue in self.queues.iter() {
            let strays = self.stands_astray(queue);
            assert_eq!(queue.strays, strays, "{:?}, left: known, right: so it is", queue.image.name);
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
                assert!(takes.is_some() && !self.is_quiet(*id, &[]), "{id:?} waits for no strays of {origin:?}");
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
        assert!(self.next_stray().is_none(), "a stray waits with somebody who takes it");
    }
}

impl Client {
    /// The abilities that take strays of this origin with this weight.
    pub(crate) fn takes_strays(&self, origin: Origin, weight: u32) -> impl Iterator<Item = &Served> {
        self.abilities.iter().filter(move |served| served.strays == Some(origin) && served.weight == weight)
    }
}
