//! A queue: its settings, its ready jobs, and the clients waiting at it. Also the table of all queues.
//!
//! Not here: what makes jobs move (`push`, `take`, `end`), and which client is served next (`wait`).

use std::collections::BTreeSet;

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::consumers::Consumers;
use crate::ids::{Priority, Protocol, QueueId, Timestamp};
use crate::isolation::{Bridge, Noticed};
use crate::job::JobStateKind;
use crate::query::QueueRow;
use crate::ready::{ReadyQueue, SortKey};
use crate::refusal::{Capacity, Refusal};
use crate::request::QueueKind;
use crate::rules::QueueRules;
use crate::throttle::{Slots, Throttle};

/// The part of a queue that the journal keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueImage {
    /// Its number.
    pub id: QueueId,
    /// Its name.
    pub name: Bytes,
    /// Its kind.
    pub kind: QueueKind,
    /// Whether listings show it. They omit a queue at which clients only wait.
    pub known: bool,
    /// Nothing is handed out.
    pub paused: bool,
    /// How many jobs it may hold when a job of each priority is submitted, by [`Priority::lane`].
    pub jobs_max: [Option<u32>; Priority::COUNT],
    /// How much of it may be worked on at once. A queue with a throttle is never forgotten, known or not.
    pub throttle: Option<Throttle>,
    /// The rules for its jobs; `None` means the defaults. Rules keep the queue, as a throttle does.
    pub rules: Option<Box<QueueRules>>,
    /// `cycle` queues: the serial number, which the priorities and lend keys derive from. Starts at 1.
    pub serial: u64,
}

impl QueueImage {
    /// Whether a client has set a limit for it.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.jobs_max.iter().any(Option::is_some)
    }
}

/// A queue. Read it through [`Queue::image`] and its counts.
#[derive(Debug)]
pub struct Queue {
    pub(crate) image: QueueImage,
    /// Its number in the order of creation. Unlike `QueueImage::id`, it is never used again.
    pub(crate) birth: u64,
    /// Whether the journal has the queue.
    pub(crate) journalled: bool,
    pub(crate) line: ReadyQueue,
    /// Jobs by state, ready ones included.
    pub(crate) places: [u32; JobStateKind::ALL.len()],
    /// Present if the queue is throttled.
    pub(crate) slots: Option<Box<Slots>>,
    /// The consumers of its jobs, by protocol, in the order in which protocols first appeared.
    pub(crate) consumers: Vec<Consumers>,
    /// Its sort keys among the stray queues of watched protocols, in order.
    pub(crate) unclaimed: Vec<(Protocol, SortKey)>,
    /// Whether all protocols share its jobs.
    pub(crate) bridged: bool,
    /// When the last notice about it was given.
    pub(crate) noticed: Noticed,
}

impl Queue {
    fn new(image: QueueImage, birth: u64, bridged: bool) -> Self {
        Self {
            line: ReadyQueue::new(image.kind),
            birth,
            journalled: false,
            slots: image.throttle.map(|_| Box::new(Slots::new())),
            image,
            places: [0; JobStateKind::ALL.len()],
            consumers: Vec::new(),
            unclaimed: Vec::new(),
            bridged,
            noticed: Noticed::default(),
        }
    }

    /// The part that the journal keeps.
    #[must_use]
    pub const fn image(&self) -> &QueueImage {
        &self.image
    }

    /// Jobs in a state of this kind.
    #[must_use]
    pub fn jobs(&self, state: JobStateKind) -> u32 {
        self.places.get(state as usize).copied().unwrap_or_default()
    }

    /// Jobs that wait, are leased, or will become ready.
    #[must_use]
    pub fn live(&self) -> u32 {
        let dead_or_done =
            self.jobs(JobStateKind::Dead) + self.jobs(JobStateKind::Done) + self.jobs(JobStateKind::Parked);
        self.total() - dead_or_done
    }

    pub(crate) fn total(&self) -> u32 {
        self.places.iter().sum()
    }

    pub(crate) fn count(&mut self, state: JobStateKind, by: i32) {
        if let Some(n) = self.places.get_mut(state as usize) {
            debug_assert!(n.checked_add_signed(by).is_some(), "{state:?} of {:?} below zero", self.image.name);
            *n = n.saturating_add_signed(by);
        }
    }

    /// Whether a job could be handed out, at least to some client.
    pub(crate) fn has_work(&self) -> bool {
        self.jobs(JobStateKind::Ready) > 0 && !self.image.paused && self.free_slots() > 0
    }

    /// Whether only its name keeps it alive.
    pub(crate) fn is_idle(&self) -> bool {
        let nobody = !self.consumers.iter().any(Consumers::are_there);
        self.total() == 0 && nobody && self.image.throttle.is_none() && self.image.rules.is_none()
    }

    /// Its row in a listing. The caller finds the oldest ready job.
    pub(crate) fn row(&self, oldest_ready_at: Option<Timestamp>) -> QueueRow {
        QueueRow {
            name: self.image.name.clone(),
            kind: self.image.kind,
            paused: self.image.paused,
            throttle: self.image.throttle,
            rules: self.image.rules(),
            bridged: self.bridged,
            slots_held: self.slots.as_deref().map_or(0, Slots::len),
            ready: self.line.counts(),
            places: self.places,
            workers: self.workers(),
            oldest_ready_at,
        }
    }
}

/// All queues, by number and by name.
#[derive(Debug)]
pub(crate) struct Queues {
    by_id: Vec<Option<Queue>>,
    free: Vec<u32>,
    by_name: HashMap<Bytes, QueueId, FixedState>,
    /// The number of known queues.
    known: u32,
    /// Queues with a throttle or rules.
    special: BTreeSet<QueueId>,
    births: u64,
    pub(crate) bridge: Bridge,
}

impl Queues {
    pub(crate) fn new(seed: u64) -> Self {
        let by_name = HashMap::with_hasher(FixedState::with_seed(seed));
        let (special, bridge) = (BTreeSet::new(), Bridge::default());
        Self { by_id: Vec::new(), free: Vec::new(), by_name, known: 0, special, births: 0, bridge }
    }

    pub(crate) fn named(&self, name: &[u8]) -> Option<QueueId> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn at(&self, id: QueueId) -> Option<&Queue> {
        self.by_id.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn at_mut(&mut self, id: QueueId) -> Option<&mut Queue> {
        self.by_id.get_mut(id.0 as usize)?.as_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether all protocols share this queue. `cycle` queues are never shared.
    pub(crate) fn bridges(&self, image: &QueueImage) -> bool {
        image.kind == QueueKind::Work && self.bridge.includes(&image.name)
    }

    /// An upper bound of the numbers in use: the most queues that ever existed at once.
    pub(crate) fn numbers(&self) -> u32 {
        u32::try_from(self.by_id.len()).unwrap_or(u32::MAX)
    }

    /// The number of queues ever created.
    pub(crate) const fn births(&self) -> u64 {
        self.births
    }

    /// The number of known queues.
    pub(crate) const fn known(&self) -> u32 {
        self.known
    }

    /// Queues with a throttle or rules.
    pub(crate) fn special(&self) -> impl Iterator<Item = &Queue> {
        self.special.iter().filter_map(|id| self.at(*id))
    }

    /// Changes the part of a queue that the journal keeps. Returns whether the queue exists.
    pub(crate) fn change(&mut self, id: QueueId, set: impl FnOnce(&mut QueueImage)) -> bool {
        let Some(queue) = self.at_mut(id) else { return false };
        let was_known = queue.image.known;
        set(&mut queue.image);
        queue.journalled = true;
        self.count(id, was_known);
        true
    }

    /// Updates the counters after a queue was created or its image has changed.
    fn count(&mut self, id: QueueId, was_known: bool) {
        let Some(image) = self.at(id).map(|queue| &queue.image) else { return };
        let (is_known, is_special) = (image.known, image.throttle.is_some() || image.rules.is_some());
        self.known = self.known + u32::from(is_known) - u32::from(was_known);
        if is_special {
            self.special.insert(id);
        } else {
            self.special.remove(&id);
        }
    }

    /// Asserts the counters.
    pub(crate) fn check(&self) {
        let known = self.iter().filter(|queue| queue.image.known).count();
        assert_eq!(known, self.known as usize, "queues known");
        let is_special = |queue: &&Queue| queue.image.throttle.is_some() || queue.image.rules.is_some();
        let special: Vec<QueueId> = self.iter().filter(is_special).map(|queue| queue.image.id).collect();
        assert!(self.special.iter().eq(&special), "queues with a throttle or rules");
    }

    /// All queues, in order of their numbers.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Queue> {
        self.by_id.iter().flatten()
    }

    /// The queue of this name. Creates it (not yet known) if there is none.
    pub(crate) fn find_or_make(&mut self, name: &Bytes, kind: QueueKind, limit: u32) -> Result<QueueId, Refusal> {
        if let Some(id) = self.named(name) {
            let same = self.at(id).is_some_and(|queue| queue.image.kind == kind);
            return if same { Ok(id) } else { Err(Refusal::WrongKind) };
        }
        let full = Capacity::Queues.exceeded(limit, limit);
        if self.len() >= limit as usize {
            return Err(full);
        }
        let id = match self.free.pop() {
            Some(id) => id,
            None => u32::try_from(self.by_id.len()).map_err(|_| full)?,
        };
        // Copy the name: it outlives the read buffer in which it arrived.
        let name = Bytes::copy_from_slice(name);
        self.put(QueueImage {
            id: QueueId(id),
            name,
            kind,
            known: false,
            paused: false,
            jobs_max: [None; Priority::COUNT],
            throttle: None,
            rules: None,
            serial: 1,
        });
        Ok(QueueId(id))
    }

    /// Puts a queue at its number.
    fn put(&mut self, image: QueueImage) {
        let index = image.id.0 as usize;
        if index >= self.by_id.len() {
            let first = u32::try_from(self.by_id.len()).unwrap_or(u32::MAX);
            self.free.extend(first..image.id.0);
            self.by_id.resize_with(index + 1, || None);
        }
        self.by_name.insert(image.name.clone(), image.id);
        let (id, bridged) = (image.id, self.bridges(&image));
        if let Some(state) = self.by_id.get_mut(index) {
            let before = state.replace(Queue::new(image, self.births, bridged));
            self.births += 1;
            self.count(id, before.is_some_and(|queue| queue.image.known));
        }
    }

    /// Restores a queue from the journal.
    pub(crate) fn recall(&mut self, image: QueueImage) {
        let id = image.id;
        self.free.retain(|free| *free != id.0);
        self.put(image);
        if let Some(queue) = self.at_mut(id) {
            queue.journalled = true;
        }
    }

    pub(crate) fn remove(&mut self, id: QueueId) {
        if let Some(queue) = self.by_id.get_mut(id.0 as usize).and_then(Option::take) {
            self.by_name.remove(&queue.image.name);
            self.known -= u32::from(queue.image.known);
            self.special.remove(&id);
            self.free.push(id.0);
        }
    }
}
