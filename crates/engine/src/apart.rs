//! Queues whose jobs stay among their own protocol ([`QueueRules::apart`](crate::QueueRules::apart)): who sees which jobs.
//!
//! Such a queue's line is one of each origin. Whoever takes, sleeps or waits there is asked for its own origin, and so those
//! who wait are looked at until one is found that sees a job: as many as do not are passed over. Other queues know nothing
//! of all this but that they are not apart.

use std::collections::BTreeMap;

use crate::client::Waiting;
use crate::command::QueueKind;
use crate::engine::Engine;
use crate::ids::{ClientId, Origin, QueueId};
use crate::line::{Line, Slot, Standing};
use crate::queue::{Queue, QueueImage};
use crate::turn::Turn;

/// What a queue that is apart knows of each protocol besides its line.
#[derive(Debug, Default)]
pub(crate) struct Apart {
    /// By the protocol they speak; those who say none see all jobs.
    hands: BTreeMap<Option<Origin>, Hands>,
    /// Where its jobs stand among the strays of origins that are asked for.
    pub(crate) strays: Vec<(Origin, Standing)>,
}

/// How many of one protocol are there for a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Hands {
    /// Abilities registered.
    pub(crate) workers: u32,
    /// Sleepers woken for it who have not asked for work since.
    pub(crate) woken: u32,
}

impl Apart {
    /// Sleepers on their way who may take what one of this protocol sees.
    fn woken_beside(&self, origin: Option<Origin>) -> u32 {
        let woken = |whose| self.hands.get(&whose).map_or(0, |hands: &Hands| hands.woken);
        match origin {
            Some(_) => woken(origin) + woken(None),
            None => self.hands.values().map(|hands| hands.woken).sum(),
        }
    }

    /// Whether somebody serves the jobs of this origin.
    fn serves(&self, origin: Origin) -> bool {
        [Some(origin), None].iter().any(|whose| self.hands.get(whose).is_some_and(|hands| hands.workers > 0))
    }
}

impl QueueImage {
    /// Whether its jobs stay among their own protocol.
    pub(crate) fn is_apart(&self) -> bool {
        self.kind == QueueKind::Work && self.rules.as_deref().is_some_and(|rules| rules.apart)
    }
}

impl Queue {
    /// There are more of those who serve it, or less.
    pub(crate) fn count_workers(&mut self, origin: Option<Origin>, by: i32) {
        self.workers = self.workers.saturating_add_signed(by);
        if let Some(apart) = &mut self.apart {
            let hands = apart.hands.entry(origin).or_default();
            hands.workers = hands.workers.saturating_add_signed(by);
        }
    }

    /// There are more of those who were woken for it, or less.
    pub(crate) fn count_woken(&mut self, origin: Option<Origin>, by: i32) {
        self.woken = self.woken.saturating_add_signed(by);
        if let Some(apart) = &mut self.apart {
            let hands = apart.hands.entry(origin).or_default();
            hands.woken = hands.woken.saturating_add_signed(by);
        }
    }

    /// Whether there is more for one of this protocol than woken sleepers are on their way to. One who sees all jobs is on
    /// its way to any of them.
    fn has_unclaimed_for(&self, origin: Option<Origin>) -> bool {
        let Some(apart) = &self.apart else { return self.has_unclaimed() };
        self.free_slots() > self.woken && self.line.len_of(origin) > apart.woken_beside(origin)
    }

    /// Where its jobs stand among the strays, of each origin that none of its own serves.
    pub(crate) fn strays_apart(&self) -> Vec<(Origin, Standing)> {
        let Some(apart) = self.apart.as_deref().filter(|_| self.has_work()) else { return Vec::new() };
        let unserved = self.line.origins().filter(|origin| !apart.serves(*origin));
        unserved.filter_map(|origin| Some((origin, self.line.first_of(Some(origin))?.0))).collect()
    }

    /// Asserts that these are those who serve it and were woken for it.
    pub(crate) fn check_hands(&self, there: &BTreeMap<Option<Origin>, Hands>) {
        assert_eq!(self.apart.is_some(), self.image.is_apart(), "{:?} is apart", self.image.name);
        assert_eq!(self.line.is_apart(), self.image.is_apart(), "the line of {:?} is apart", self.image.name);
        let Some(apart) = &self.apart else { return };
        let known = apart.hands.iter().filter(|(_, hands)| **hands != Hands::default());
        assert!(known.eq(there), "{:?}, left: {:?}, right: {there:?}", self.image.name, apart.hands);
    }
}

impl Engine {
    /// The protocol a client speaks, if it said so.
    pub(crate) fn origin_of(&self, client: ClientId) -> Option<Origin> {
        self.clients.get(&client).and_then(|client| client.info.origin)
    }

    /// The first job of a queue that a client sees.
    pub(crate) fn first_for(&self, queue: &Queue, client: ClientId) -> Option<(Standing, Slot)> {
        match queue.apart {
            None => queue.line.first(),
            Some(_) => queue.line.first_of(self.origin_of(client)),
        }
    }

    /// Whether a job of a queue could be handed to a client, if others do not forbid it.
    pub(crate) fn has_work_for(&self, queue: &Queue, client: ClientId) -> bool {
        queue.has_work() && (queue.apart.is_none() || self.first_for(queue, client).is_some())
    }

    /// Whether a client that sleeps at a queue with work may be woken, as far as others on their way are concerned.
    pub(crate) fn has_unclaimed_for(&self, queue: &Queue, client: ClientId) -> bool {
        if queue.apart.is_none() { queue.has_unclaimed() } else { queue.has_unclaimed_for(self.origin_of(client)) }
    }

    /// The stray of this origin that a client gets of a stray queue, if it sees it.
    pub(crate) fn stray_for(&self, queue: &Queue, origin: Origin, client: ClientId) -> Option<(Standing, Slot)> {
        if queue.apart.is_none() {
            return queue.line.first();
        }
        let sees = self.origin_of(client).is_none_or(|own| own == origin);
        if sees { queue.line.first_of(Some(origin)) } else { None }
    }

    /// A queue's jobs stay among their own protocol from now on, or do no more. Looks at all its ready jobs and at all
    /// connections.
    pub(crate) fn part_queue(&mut self, id: QueueId, turn: &mut Turn) {
        self.forget_stray(id);
        let hands = self.hands_by_origin(id);
        let Some(queue) = self.queues.at_mut(id) else { return };
        let is_apart = queue.image.is_apart();
        let mut line = Line::new(queue.image.kind, is_apart);
        for slot in queue.line.slots() {
            if let Some(job) = self.jobs.at(slot) {
                line.insert(Standing::of(job), job.origin, slot);
            }
        }
        queue.line = line;
        queue.apart = is_apart.then(|| Box::new(Apart { hands, strays: Vec::new() }));
        self.note_stray(id);
        self.serve(id, turn);
    }

    /// Those who serve a queue, and those woken for it.
    pub(crate) fn hands_by_origin(&self, id: QueueId) -> BTreeMap<Option<Origin>, Hands> {
        let mut hands = BTreeMap::new();
        for client in self.clients.values() {
            let workers = client.abilities.iter().filter(|served| served.queue == id).count();
            let woken = matches!(client.waiting, Waiting::Awake { queue, .. } if queue == id);
            if workers > 0 || woken {
                let sum: &mut Hands = hands.entry(client.info.origin).or_default();
                sum.workers += u32::try_from(workers).unwrap_or(u32::MAX);
                sum.woken += u32::from(woken);
            }
        }
        hands
    }
}
