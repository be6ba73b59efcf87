//! Strays: ready jobs of queues that nobody serves, for clients whose credits bring them what is left lying.
//!
//! A `work` queue without workers is a stray queue of the origin of the first job in its line, as long as it has work: the
//! jobs behind the first are looked at when it is their turn. Stray queues are kept in order from the first ability on that
//! asks for strays of their origin, for the rest of the engine's life, so that abilities that come and go do not have
//! all queues looked at again; before that, all of this costs one comparison. Strays are handed out at the end of a visit:
//! whoever waits at a queue itself has had its turn by then.

use std::collections::{BTreeMap, BTreeSet};

use crate::client::{Client, Served};
use crate::command::QueueKind;
use crate::engine::Engine;
use crate::ids::{ClientId, Origin, QueueId, Tag};
use crate::line::{Slot, Standing};
use crate::queue::{Queue, WaitKey};
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

    /// A queue stood there, and stands here now.
    fn move_queue(&mut self, id: QueueId, before: Option<(Origin, Standing)>, now: Option<(Origin, Standing)>) {
        if before != now
            && let Some((origin, standing)) = before
            && let Some(watch) = self.watched.get_mut(&origin)
        {
            watch.queues.remove(&(standing, id));
        }
        if let Some((origin, standing)) = now
            && let Some(watch) = self.watched.get_mut(&origin)
        {
            watch.queues.insert((standing, id));
            self.stirred |= !watch.takers.is_empty();
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
        if self.queues.at(id).is_some_and(|queue| queue.apart.is_some()) {
            return self.note_strays_apart(id);
        }
        let now = self.queues.at(id).and_then(|queue| self.stands_astray(queue));
        if let Some(queue) = self.queues.at_mut(id) {
            let before = std::mem::replace(&mut queue.stray, now);
            self.strays.move_queue(id, before, now);
        }
    }

    /// The same for a queue whose jobs stay among their own protocol: it may be a stray queue of each.
    fn note_strays_apart(&mut self, id: QueueId) {
        let mut now = self.queues.at(id).map_or_else(Vec::new, Queue::strays_apart);
        now.retain(|(origin, _)| self.strays.watched.contains_key(origin));
        let apart = self.queues.at_mut(id).and_then(|queue| queue.apart.as_deref_mut());
        let before = apart.map_or_else(Vec::new, |apart| std::mem::replace(&mut apart.strays, now.clone()));
        before.into_iter().filter(|stray| !now.contains(stray)).for_each(|stray| {
            self.strays.move_queue(id, Some(stray), None);
        });
        now.into_iter().for_each(|stray| self.strays.move_queue(id, None, Some(stray)));
    }

    /// A queue is no stray queue until it is noted again.
    pub(crate) fn forget_stray(&mut self, id: QueueId) {
        let Some(queue) = self.queues.at_mut(id) else { return };
        let apart = queue.apart.as_deref_mut().map_or_else(Vec::new, |apart| std::mem::take(&mut apart.strays));
        let strays = apart.into_iter().chain(queue.stray.take());
        strays.for_each(|stray| self.strays.move_queue(id, Some(stray), None));
    }

    /// The same for the queue of this job.
    pub(crate) fn note_stray_of(&mut self, slot: Slot) {
        if self.strays.are_watched()
            && let Some(queue) = self.jobs.at(slot).map(|job| job.queue)
        {
            self.note_stray(queue);
        }
    }

    /// Where a queue stands among the stray queues, and of which origin, if it is one that is asked for.
    fn stands_astray(&self, queue: &Queue) -> Option<(Origin, Standing)> {
        if queue.workers > 0 || queue.image.kind != QueueKind::Work || !queue.has_work() {
            return None;
        }
        let (standing, slot) = queue.line.first()?;
        let origin = self.jobs.at(slot)?.origin;
        self.strays.watched.contains_key(&origin).then_some((origin, standing))
    }

    /// The stray this client gets next on the terms of this ability, if it takes any.
    pub(crate) fn first_stray(&self, id: ClientId, served: &Served) -> Option<(Standing, Slot)> {
        let origin = served.strays?;
        let watch = self.strays.watched.get(&origin)?;
        let whose = Whose::taking(id, served.lease, &[]);
        let queues = watch.queues.iter().filter_map(|(_, queue)| self.queues.at(*queue));
        queues.filter(|queue| queue.admits(whose)).find_map(|queue| self.stray_for(queue, origin, id))
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
                    let (_, slot) = self.stray_for(queue, origin, *id)?;
                    let takes = self.clients.get(id)?.takes_strays(origin, key.weight.0);
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
            let plain = if queue.apart.is_some() { None } else { self.stands_astray(queue) };
            assert_eq!(queue.stray, plain, "{:?}, left: known, right: so it is", queue.image.name);
            let mut apart = queue.strays_apart();
            apart.retain(|(origin, _)| self.strays.watched.contains_key(origin));
            let known = queue.apart.as_deref().map_or(&[][..], |apart| &apart.strays);
            assert_eq!(known, apart, "{:?}, left: known, right: so it is", queue.image.name);
            for (origin, standing) in apart.into_iter().chain(plain) {
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
