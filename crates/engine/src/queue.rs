//! A queue: its settings, its line of ready jobs, and who waits at it. And the table of all queues.
//!
//! Not here: what makes jobs move (`push`, `take`, `end`), who is served next (`wait`).

use std::collections::BTreeSet;

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::command::QueueKind;
use crate::consumers::Consumers;
use crate::event::{QueueRow, Refusal};
use crate::ids::{Origin, Priority, QueueId, Timestamp};
use crate::isolation::{Bridge, Noticed};
use crate::job::PlaceKind;
use crate::line::{Line, Standing};
use crate::rules::QueueRules;
use crate::throttle::{Slots, Throttle};

/// What the journal keeps of a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueImage {
    /// Its number.
    pub id: QueueId,
    /// Its name.
    pub name: Bytes,
    /// Its kind.
    pub kind: QueueKind,
    /// Shown in listings. A queue somebody merely waits for is not.
    pub known: bool,
    /// Nothing is handed out.
    pub paused: bool,
    /// Jobs it may hold at a submit of each priority, by [`Priority::lane`].
    pub jobs_max: [Option<u32>; Priority::COUNT],
    /// What of it may be worked on at once. As long as there is one the queue is not forgotten, known or not.
    pub throttle: Option<Throttle>,
    /// What holds for its jobs; nothing if that is the default. They keep the queue as a throttle does.
    pub rules: Option<Box<QueueRules>>,
    /// `cycle` queues: the serial number, which priorities and lend keys are made of. Starts at 1.
    pub serial: u64,
}

impl QueueImage {
    /// Whether somebody has set a limit for it.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.jobs_max.iter().any(Option::is_some)
    }
}

/// A queue. Read it through [`Queue::image`] and its counts.
#[derive(Debug)]
pub struct Queue {
    pub(crate) image: QueueImage,
    /// Which of all queues there ever were: other than its number, never used again.
    pub(crate) birth: u64,
    /// The journal has heard of it.
    pub(crate) journalled: bool,
    pub(crate) line: Line,
    /// Jobs by place, ready ones included.
    pub(crate) places: [u32; PlaceKind::ALL.len()],
    /// There if it is throttled.
    pub(crate) slots: Option<Box<Slots>>,
    /// Those who work on its jobs, by protocol, in the order in which protocols came.
    pub(crate) consumers: Vec<Consumers>,
    /// Where it stands among the stray queues of origins that are asked for, in order.
    pub(crate) strays: Vec<(Origin, Standing)>,
    /// All protocols share its jobs.
    pub(crate) bridged: bool,
    /// What was last said of it, and when.
    pub(crate) noticed: Noticed,
}

impl Queue {
    fn new(image: QueueImage, birth: u64, bridged: bool) -> Self {
        Self {
            line: Line::new(image.kind),
            birth,
            journalled: false,
            slots: image.throttle.map(|_| Box::new(Slots::new())),
            image,
            places: [0; PlaceKind::ALL.len()],
            consumers: Vec::new(),
            strays: Vec::new(),
            bridged,
            noticed: Noticed::default(),
        }
    }

    /// What the journal keeps of it.
    #[must_use]
    pub const fn image(&self) -> &QueueImage {
        &self.image
    }

    /// Jobs in one kind of place.
    #[must_use]
    pub fn jobs(&self, place: PlaceKind) -> u32 {
        self.places.get(place as usize).copied().unwrap_or_default()
    }

    /// Jobs that wait, are worked on or will be.
    #[must_use]
    pub fn live(&self) -> u32 {
        let dead_or_done = self.jobs(PlaceKind::Dead) + self.jobs(PlaceKind::Done) + self.jobs(PlaceKind::Shelved);
        self.total() - dead_or_done
    }

    pub(crate) fn total(&self) -> u32 {
        self.places.iter().sum()
    }

    pub(crate) fn count(&mut self, place: PlaceKind, by: i32) {
        if let Some(n) = self.places.get_mut(place as usize) {
            debug_assert!(n.checked_add_signed(by).is_some(), "{place:?} of {:?} below nothing", self.image.name);
            *n = n.saturating_add_signed(by);
        }
    }

    /// Whether a job could be handed out, if not to everybody.
    pub(crate) fn has_work(&self) -> bool {
        self.jobs(PlaceKind::Ready) > 0 && !self.image.paused && self.free_slots() > 0
    }

    /// Whether nothing but its name keeps it alive.
    pub(crate) fn is_idle(&self) -> bool {
        let nobody = !self.consumers.iter().any(Consumers::are_there);
        self.total() == 0 && nobody && self.image.throttle.is_none() && self.image.rules.is_none()
    }

    /// Its figures; the oldest ready job is the caller's to find.
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
    /// How many are known.
    known: u32,
    /// Those with a throttle or rules.
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

    /// Whether all protocols share this queue. Not those whose entries go round.
    pub(crate) fn bridges(&self, image: &QueueImage) -> bool {
        image.kind == QueueKind::Work && self.bridge.includes(&image.name)
    }

    /// How many numbers queues have had at once: all of theirs are below it.
    pub(crate) fn numbers(&self) -> u32 {
        u32::try_from(self.by_id.len()).unwrap_or(u32::MAX)
    }

    /// How many there ever were.
    pub(crate) const fn births(&self) -> u64 {
        self.births
    }

    /// Those that are known.
    pub(crate) const fn known(&self) -> u32 {
        self.known
    }

    /// Those with a throttle or rules.
    pub(crate) fn special(&self) -> impl Iterator<Item = &Queue> {
        self.special.iter().filter_map(|id| self.at(*id))
    }

    /// Changes what the journal keeps of a queue. Says whether it is there.
    pub(crate) fn change(&mut self, id: QueueId, set: impl FnOnce(&mut QueueImage)) -> bool {
        let Some(queue) = self.at_mut(id) else { return false };
        let was_known = queue.image.known;
        set(&mut queue.image);
        queue.journalled = true;
        self.count(id, was_known);
        true
    }

    /// A queue is new, or what the journal keeps of it has changed.
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

    /// Asserts that they are counted right.
    pub(crate) fn check(&self) {
        let known = self.iter().filter(|queue| queue.image.known).count();
        assert_eq!(known, self.known as usize, "queues known");
        let is_special = |queue: &&Queue| queue.image.throttle.is_some() || queue.image.rules.is_some();
        let special: Vec<QueueId> = self.iter().filter(is_special).map(|queue| queue.image.id).collect();
        assert!(self.special.iter().eq(&special), "queues with a throttle or rules");
    }

    /// In order of their numbers.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Queue> {
        self.by_id.iter().flatten()
    }

    /// The queue of this name, made (unknown as yet) if there is none.
    pub(crate) fn find_or_make(&mut self, name: &Bytes, kind: QueueKind, limit: u32) -> Result<QueueId, Refusal> {
        if let Some(id) = self.named(name) {
            let same = self.at(id).is_some_and(|queue| queue.image.kind == kind);
            return if same { Ok(id) } else { Err(Refusal::WrongKind) };
        }
        let full = Refusal::QueuesFull { limit };
        if self.len() >= limit as usize {
            return Err(full);
        }
        let id = match self.free.pop() {
            Some(id) => id,
            None => u32::try_from(self.by_id.len()).map_err(|_| full)?,
        };
        // The name outlives the read buffer it came in.
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
        if let Some(place) = self.by_id.get_mut(index) {
            let before = place.replace(Queue::new(image, self.births, bridged));
            self.births += 1;
            self.count(id, before.is_some_and(|queue| queue.image.known));
        }
    }

    /// Puts a queue back that the journal remembers.
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
