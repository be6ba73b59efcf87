//! A queue: its settings, its ready jobs, and the clients waiting at it.
//!
//! Not here: the changes of a queue (`table`), and which client is served next.

use bytes::Bytes;

use super::audience::{Class, View};
use super::consumers::{AllConsumers, Consumers};
use super::figures::QueueFigures;
use super::ready::{ReadyQueue, SortKey};
use super::rules::QueueRules;
use super::throttle::{Slots, Throttle, Whose};
use crate::ids::{JobId, Priority, Protocol, QueueId, Timestamp};
use crate::jobs::{JobStateKind, Slot};
use crate::request::QueueKind;

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
    /// Since when it is paused (wall clock). Earlier versions did not record it.
    pub paused_at: Option<Timestamp>,
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

    /// Pauses it at a moment, or resumes it.
    pub(crate) const fn pause(&mut self, at: Option<Timestamp>) {
        (self.paused, self.paused_at) = (at.is_some(), at);
    }

    /// Its rules.
    #[must_use]
    pub fn rules(&self) -> QueueRules {
        self.rules.as_deref().copied().unwrap_or_default()
    }

    /// Whether it has a throttle or rules, which keep it.
    pub(super) const fn is_special(&self) -> bool {
        self.throttle.is_some() || self.rules.is_some()
    }
}

/// A queue. Read it through [`Queue::image`] and its counts.
#[derive(Debug)]
pub struct Queue {
    pub(super) image: QueueImage,
    /// Its number in the order of creation. Unlike `QueueImage::id`, it is never used again.
    birth: u64,
    /// Whether the journal has the queue.
    pub(super) journalled: bool,
    pub(super) ready: ReadyQueue,
    /// Jobs by state, ready ones included.
    states: [u32; JobStateKind::ALL.len()],
    /// Present if the queue is throttled.
    pub(super) slots: Option<Box<Slots>>,
    /// The consumers of its jobs.
    pub(super) consumers: AllConsumers,
    /// Its sort keys among the unclaimed jobs of watched protocols, in order.
    pub(super) unclaimed: Vec<(Protocol, SortKey)>,
    /// Whether all protocols share its jobs.
    pub(super) bridged: bool,
    /// When the last notice that its jobs wait beside workers of other protocols was given.
    pub(super) unserved_noticed_at: Option<Timestamp>,
    /// Present since its first event.
    pub(super) figures: Option<Box<QueueFigures>>,
}

impl Queue {
    pub(super) fn new(image: QueueImage, birth: u64, bridged: bool) -> Self {
        Self {
            ready: ReadyQueue::new(image.kind),
            birth,
            journalled: false,
            slots: image.throttle.map(|throttle| Box::new(Slots::new(image.id, throttle))),
            image,
            states: [0; JobStateKind::ALL.len()],
            consumers: AllConsumers::default(),
            unclaimed: Vec::new(),
            bridged,
            unserved_noticed_at: None,
            figures: None,
        }
    }

    // ---- settings and counts ---------------------------------------------------------------------------------------

    /// The part that the journal keeps.
    #[must_use]
    pub const fn image(&self) -> &QueueImage {
        &self.image
    }

    pub(crate) const fn birth(&self) -> u64 {
        self.birth
    }

    pub(crate) const fn is_bridged(&self) -> bool {
        self.bridged
    }

    /// Jobs in a state of this kind.
    #[must_use]
    pub fn jobs(&self, state: JobStateKind) -> u32 {
        self.states.get(state as usize).copied().unwrap_or_default()
    }

    /// Jobs by state, in the order of [`JobStateKind::ALL`].
    pub(crate) const fn states(&self) -> [u32; JobStateKind::ALL.len()] {
        self.states
    }

    /// Jobs that wait, are leased, or will become ready.
    #[must_use]
    pub fn live(&self) -> u32 {
        let dead_or_done =
            self.jobs(JobStateKind::Dead) + self.jobs(JobStateKind::Done) + self.jobs(JobStateKind::Parked);
        self.total() - dead_or_done
    }

    /// What happened in it, if anything has.
    pub(crate) fn figures(&self) -> Option<&QueueFigures> {
        self.figures.as_deref()
    }

    pub(crate) fn total(&self) -> u32 {
        self.states.iter().sum()
    }

    pub(super) fn count(&mut self, state: JobStateKind, by: i32) {
        if let Some(n) = self.states.get_mut(state as usize) {
            debug_assert!(n.checked_add_signed(by).is_some(), "{state:?} of {:?} below zero", self.image.name);
            *n = n.saturating_add_signed(by);
        }
    }

    /// Whether only its name keeps it alive.
    pub(super) fn is_idle(&self) -> bool {
        self.total() == 0 && !self.image.is_special() && !self.consumers.iter().any(Consumers::are_there)
    }

    // ---- ready jobs ------------------------------------------------------------------------------------------------

    pub(crate) const fn ready(&self) -> &ReadyQueue {
        &self.ready
    }

    /// What a client of this protocol sees of the queue.
    pub(super) const fn view(&self, own: Option<Protocol>) -> View {
        match own {
            None => View::All,
            Some(own) if self.bridged => View::Fit(own),
            Some(own) => View::Own(own),
        }
    }

    /// The next job that a client of this protocol sees.
    pub(crate) fn first_of(&self, own: Option<Protocol>) -> Option<(SortKey, Slot)> {
        self.ready.first_of(self.view(own))
    }

    /// Whether a client that sees these jobs has registered for the queue.
    pub(super) fn serves(&self, class: Class) -> bool {
        self.consumers
            .iter()
            .any(|consumers| consumers.workers() > 0 && self.view(consumers.protocol()).includes(class))
    }

    /// Whether a job could be handed out, at least to some client.
    pub(crate) fn has_work(&self) -> bool {
        self.jobs(JobStateKind::Ready) > 0 && !self.image.paused && self.free_slots() > 0
    }

    /// The job that a client of this protocol gets next, for this worker.
    pub(crate) fn first_for(&self, own: Option<Protocol>, whose: Whose<'_>) -> Option<(SortKey, Slot)> {
        if self.has_work() && self.admits(whose) { self.first_of(own) } else { None }
    }

    // ---- slots -----------------------------------------------------------------------------------------------------

    /// Throttle slots that leases hold.
    pub(crate) fn slots_held(&self) -> u32 {
        self.slots.as_deref().map_or(0, Slots::len)
    }

    /// How many more leases it has slots for.
    fn free_slots(&self) -> u32 {
        self.slots.as_deref().map_or(u32::MAX, Slots::free)
    }

    /// The jobs whose leases hold slots, those leased first before others.
    pub(crate) fn slot_holders(&self) -> impl Iterator<Item = JobId> {
        self.slots.as_deref().into_iter().flat_map(Slots::holders)
    }

    /// Whether this worker's own limit allows another slot.
    pub(crate) fn admits(&self, whose: Whose<'_>) -> bool {
        self.slots.as_deref().is_none_or(|slots| slots.admits(whose))
    }

    /// Whether its limit depends on the worker.
    pub(crate) fn knows_workers_apart(&self) -> bool {
        self.slots.as_deref().is_some_and(|slots| slots.throttle().per_worker_max.is_some())
    }

    // ---- consumers -------------------------------------------------------------------------------------------------

    /// Its consumers by protocol.
    pub(crate) fn consumers(&self) -> impl Iterator<Item = &Consumers> {
        self.consumers.iter()
    }

    /// The consumers of one protocol.
    pub(crate) fn consumers_of(&self, protocol: Option<Protocol>) -> Option<&Consumers> {
        self.consumers.of(protocol)
    }

    /// Subscriptions registered.
    pub(crate) fn workers(&self) -> u32 {
        self.consumers.workers()
    }

    /// Whether these consumers see more jobs than the sleepers already woken will take. A sleeper without a protocol may take
    /// any job.
    pub(crate) fn has_unclaimed_for(&self, consumers: &Consumers) -> bool {
        let own = consumers.protocol();
        let beside =
            |other: &&Consumers| self.bridged || own.is_none() || other.protocol().is_none() || other.protocol() == own;
        let woken: u32 = self.consumers.iter().filter(beside).map(Consumers::woken).sum();
        self.free_slots() > self.consumers.woken() && self.ready.len_of(self.view(own)) > woken
    }

    /// The jobs that go with the queue if a client of this protocol removes it: in an isolated queue, those of its protocol.
    pub(crate) const fn removed_by(&self, own: Option<Protocol>) -> View {
        if self.bridged { View::All } else { self.view(own) }
    }

    /// Whether clients of other protocols use an isolated queue from which a client of this protocol has removed its jobs.
    pub(crate) fn is_used_beside(&self, own: Option<Protocol>) -> bool {
        let isolated = own.is_some() && !self.bridged && self.image.kind == QueueKind::Work;
        let mut others = self.consumers.iter().filter(|consumers| consumers.protocol() != own);
        isolated && (!self.ready.is_empty() || others.any(Consumers::are_there))
    }

    /// A protocol whose jobs wait although no client that sees them ever asked for them, and the protocols of the queue's
    /// consumers.
    pub(super) fn unserved_beside_others(&self) -> Option<(Protocol, Vec<Protocol>)> {
        if self.bridged || self.image.kind != QueueKind::Work {
            return None;
        }
        let mut waiting = self.ready.firsts().map(|(class, ..)| class.protocol);
        let waiting = waiting.find(|protocol| !self.consumers.have(*protocol))?;
        let others = self.consumers.iter().filter(|consumers| consumers.are_there());
        let others: Vec<Protocol> = others.filter_map(Consumers::protocol).collect();
        if others.is_empty() { None } else { Some((waiting, others)) }
    }
}
