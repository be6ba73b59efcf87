//! A queue: its settings, ready jobs, and waiting clients.
//!
//! Not here: modifying a queue (`table`), and which client is served next.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::ahead::Ahead;
use super::audience::{Class, View};
use super::consumers::{AllConsumers, Consumers};
use super::figures::QueueFigures;
use super::policy::{Gate, OwnPolicy, SavedRates};
use super::ready::{ReadyQueue, SortKey};
use super::rules::QueueRules;
use super::throttle::{Slots, Throttle, Whose};
use serde::{Deserialize, Serialize};

use crate::held::{Held, Share, hashed, heap, shared};
use crate::ids::{JobId, Named, Priority, Protocol, Protocols, QueueId, Timestamp};
use crate::jobs::{JobStateKind, Slot};
use crate::request::QueueKind;

/// The journalled part of a queue.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct QueueImage {
    /// The number.
    pub id: QueueId,
    /// The name.
    pub name: Bytes,
    /// The kind.
    pub kind: QueueKind,
    /// The protocols that list it, as long as it is isolated. Queues at which clients only wait are
    /// not listed.
    pub known: Protocols,
    /// The protocols with paused jobs.
    pub paused: Protocols,
    /// The start of the pause (wall clock). Not recorded by older versions.
    pub paused_at: Option<Timestamp>,
    /// The size at which the queue refuses new jobs, by [`Priority::lane`] of the new job.
    pub jobs_max: [Option<u32>; Priority::COUNT],
    /// The protocol to which that limit applies; `None`: the limit is for the jobs of all protocols
    /// together.
    pub jobs_max_of: Option<Protocol>,
    /// Limit on running jobs. A queue with a throttle is never removed.
    pub throttle: Option<Throttle>,
    /// Rules set for this queue; `None`: those of the first pattern that matches the name apply. A
    /// queue with such rules is never removed.
    pub rules: Option<Box<QueueRules>>,
    /// A policy set for this queue; `None`: that of the first pattern that matches the name
    /// applies. A queue with such a policy or paused keys is never removed.
    pub policy: Option<Box<OwnPolicy>>,
    /// Keys with paused jobs, while the policy uses keys.
    pub paused_keys: BTreeSet<Bytes>,
    /// The buckets of the policy, if they lack tokens.
    pub saved: Option<Box<SavedRates>>,
    /// `cycle` queues: the serial number from which priorities and lend keys derive. Starts at 1.
    pub serial: u64,
}

impl QueueImage {
    /// A queue with default settings, which no protocol lists.
    pub fn new(id: QueueId, name: Bytes, kind: QueueKind) -> Self {
        Self {
            id,
            name,
            kind,
            serial: 1,
            ..Self::default()
        }
    }

    /// Returns true if any protocol lists it.
    pub const fn is_known(&self) -> bool {
        !self.known.is_empty()
    }

    /// Pauses it for these protocols at a moment, or resumes it.
    pub(crate) fn pause(&mut self, protocols: Protocols, at: Option<Timestamp>) {
        if at.is_some() {
            self.paused = self.paused.and(protocols);
            self.paused_at = self.paused_at.or(at);
        } else {
            self.paused = self.paused.but(protocols);
            self.paused_at = self.paused_at.filter(|_| !self.paused.is_empty());
        }
    }

    /// The size at which the queue refuses new jobs of this protocol and priority.
    pub(crate) fn limit(&self, protocol: Protocol, priority: Priority) -> Option<u32> {
        let limit = self.jobs_max.get(priority.lane()).copied().flatten();
        limit.filter(|_| self.jobs_max_of.is_none_or(|of| of == protocol))
    }

    /// The limits for jobs of a protocol; for `None`, all limits.
    pub(crate) fn limits(&self, protocol: Option<Protocol>) -> [Option<u32>; Priority::COUNT] {
        let is_other = protocol
            .zip(self.jobs_max_of)
            .is_some_and(|(own, of)| own != of);
        if is_other {
            [None; Priority::COUNT]
        } else {
            self.jobs_max
        }
    }

    /// Sets the limits, for the jobs of a protocol or for all.
    pub(crate) const fn set_limits(
        &mut self,
        jobs_max: [Option<u32>; Priority::COUNT],
        of: Option<Protocol>,
    ) {
        self.jobs_max = jobs_max;
        self.jobs_max_of = of;
    }

    /// Removes it from the listings of these protocols, with the settings that they have made.
    pub(crate) fn forget(&mut self, protocols: Protocols) {
        self.known = self.known.but(protocols);
        self.pause(protocols, None);
        if protocols.include(Protocols::of(self.jobs_max_of)) {
            self.set_limits([None; Priority::COUNT], None);
        }
    }

    /// The rules set for this queue.
    pub fn rules(&self) -> QueueRules {
        self.rules.as_deref().copied().unwrap_or_default()
    }

    /// Returns true if it has settings that prevent a removal.
    pub(crate) fn is_special(&self) -> bool {
        self.throttle.is_some()
            || self.rules.is_some()
            || self.policy.is_some()
            || !self.paused_keys.is_empty()
    }
}

/// Jobs of each state, in the order of [`JobStateKind::ALL`].
type States = [u32; JobStateKind::ALL.len()];

/// A queue. Read it through [`Queue::image`] and the counts.
#[derive(Debug)]
pub struct Queue {
    pub(super) image: QueueImage,
    /// The number in the order of creation. Unlike `QueueImage::id`, it is never reused.
    birth: u64,
    /// The protocol of the client that created it.
    pub(super) maker: Option<Protocol>,
    /// The last use, as a value of the use counter.
    pub(super) used: u64,
    /// True if the queue is in the journal.
    pub(super) journalled: bool,
    pub(super) ready: ReadyQueue,
    /// Jobs by protocol and state, including ready ones, in the order in which protocols first
    /// appeared.
    states: Vec<(Protocol, States)>,
    /// The rules that apply to the jobs, set for this queue or for a pattern, unless they are the
    /// defaults.
    pub(super) rules: Option<Box<QueueRules>>,
    /// Present if the queue is throttled.
    pub(super) slots: Option<Box<Slots>>,
    /// Present if the queue has a policy.
    pub(super) gate: Option<Box<Gate>>,
    /// The consumers of the jobs.
    pub(super) consumers: AllConsumers,
    /// The dead jobs in the order of the end of retention, if the number is limited.
    pub(super) dead: Option<BTreeSet<(Timestamp, JobId)>>,
    /// The sort keys among the unclaimed jobs of watched protocols, in order.
    pub(super) unclaimed: Vec<(Protocol, SortKey)>,
    /// True if all protocols share the jobs.
    pub(super) bridged: bool,
    /// When operators were last notified that jobs are ready while only workers of other protocols
    /// serve the queue.
    pub(super) unserved_noticed_at: Option<Timestamp>,
    /// Present since the first event.
    pub(super) figures: Option<Box<QueueFigures>>,
    /// The part that is loaded in advance.
    pub(super) ahead: Ahead,
    /// The memory, without consumers and keys.
    pub(super) held: Share,
}

impl Queue {
    pub(super) fn new(
        image: QueueImage,
        maker: Option<Protocol>,
        birth: u64,
        bridged: bool,
        rules: Option<QueueRules>,
    ) -> Self {
        Self {
            ready: ReadyQueue::new(image.kind),
            birth,
            maker,
            used: 0,
            journalled: false,
            slots: image
                .throttle
                .map(|throttle| Box::new(Slots::new(image.id, throttle))),
            gate: None,
            image,
            states: Vec::new(),
            consumers: AllConsumers::default(),
            dead: rules
                .and_then(|rules| rules.dead_max)
                .map(|_| BTreeSet::new()),
            rules: rules.map(Box::new),
            unclaimed: Vec::new(),
            bridged,
            unserved_noticed_at: None,
            figures: None,
            ahead: Ahead::default(),
            held: Share::default(),
        }
    }

    /// The same queue, with the memory accounted for.
    pub(super) fn counted(mut self, held: &Held) -> Self {
        self.held = held.share();
        self.consumers = AllConsumers::new(held);
        self.recount();
        self
    }

    /// Recalculates the memory after a rare part was added.
    #[cold]
    #[inline(never)]
    pub(super) fn recount(&mut self) {
        self.held.set(self.own_bytes());
    }

    #[cold]
    pub(super) fn begin_figures(&mut self) {
        self.figures = Some(Box::default());
        self.recount();
    }

    /// The memory, without consumers, keys and jobs.
    pub(super) fn own_bytes(&self) -> u64 {
        let states = heap(self.states.capacity() * size_of::<(Protocol, States)>());
        let figures = self
            .figures
            .as_deref()
            .map_or(0, |_| QueueFigures::bytes_for(self.states.len()));
        let saved = self.image.saved.as_deref().map_or(0, SavedRates::bytes);
        Self::bytes_for(self.image.name.len()) + states + self.ready.parts_bytes() + figures + saved
    }

    /// The minimum memory of a queue with a name of this size.
    pub(crate) const fn bytes_for(name_bytes: usize) -> u64 {
        // Its share of a node of the sorted IDs.
        const ORDER: u64 = 16;
        size_of::<Option<Self>>() as u64
            + hashed(size_of::<(Named<Bytes>, QueueId)>())
            + ORDER
            + shared(name_bytes)
    }

    // ---- settings and counts ---------------------------------------------------------------------------------------

    /// The part that is journalled.
    pub const fn image(&self) -> &QueueImage {
        &self.image
    }

    /// The rules that apply to the jobs; `None`: the defaults.
    pub(crate) fn rules(&self) -> Option<&QueueRules> {
        self.rules.as_deref()
    }

    /// Returns true if it has more dead jobs than the rules permit.
    pub(super) fn has_too_many_dead(&self) -> bool {
        let max = self
            .rules()
            .and_then(|rules| rules.dead_max)
            .unwrap_or(u32::MAX);
        self.dead
            .as_ref()
            .is_some_and(|dead| dead.len() > max as usize)
    }

    pub(crate) const fn birth(&self) -> u64 {
        self.birth
    }

    pub(crate) const fn is_bridged(&self) -> bool {
        self.bridged
    }

    /// Returns true if a client of this protocol can use it. A `cycle` queue belongs to spiderq,
    /// whatever the name is.
    pub(crate) fn is_open_to(&self, own: Option<Protocol>) -> bool {
        self.image.kind == QueueKind::Work || own.is_none_or(|own| own == Protocol::SPIDERQ)
    }

    /// The protocol to which the queue is limited for a client of this protocol; `None` if the
    /// client can use all of it, because the queue is bridged or a `cycle` queue, or the client has
    /// no protocol.
    pub(crate) fn scope(&self, own: Option<Protocol>) -> Option<Protocol> {
        own.filter(|_| !self.bridged && self.image.kind == QueueKind::Work)
    }

    /// Returns true if it is listed for a client of this protocol.
    pub(crate) fn is_known_to(&self, own: Option<Protocol>) -> bool {
        self.is_open_to(own)
            && self
                .scope(own)
                .map_or_else(|| self.image.is_known(), |own| self.image.known.has(own))
    }

    /// The number of jobs in a state of this kind.
    pub fn jobs(&self, state: JobStateKind) -> u32 {
        self.states
            .iter()
            .filter_map(|(_, states)| states.get(state as usize))
            .sum()
    }

    /// Jobs of each state, in the order of [`JobStateKind::ALL`]: those of a protocol, or all.
    pub(crate) fn states(&self, of: Option<Protocol>) -> States {
        let mut sum = States::default();
        for (_, states) in self
            .states
            .iter()
            .filter(|(protocol, _)| of.is_none_or(|of| of == *protocol))
        {
            for (sum, jobs) in sum.iter_mut().zip(states) {
                *sum += jobs;
            }
        }
        sum
    }

    /// The number of jobs that are ready, leased, or will become ready: those of a protocol, or
    /// all.
    pub fn live(&self, of: Option<Protocol>) -> u32 {
        let live = |(state, jobs): (JobStateKind, u32)| if state.is_live() { jobs } else { 0 };
        JobStateKind::ALL
            .into_iter()
            .zip(self.states(of))
            .map(live)
            .sum()
    }

    /// The part that is loaded in advance.
    pub(crate) const fn ahead(&self) -> Ahead {
        self.ahead
    }

    /// Returns true if state transitions of jobs affect more than counts and ready jobs.
    pub(super) const fn is_ruled(&self) -> bool {
        self.gate.is_some() || self.slots.is_some() || self.dead.is_some()
    }

    /// The statistics, if there are any.
    pub(crate) fn figures(&self) -> Option<&QueueFigures> {
        self.figures.as_deref()
    }

    pub(crate) fn total(&self) -> u32 {
        self.states.iter().flat_map(|(_, states)| states).sum()
    }

    #[inline]
    pub(super) fn count(&mut self, protocol: Protocol, state: JobStateKind, by: i32) {
        let Some((_, states)) = self.states.iter_mut().find(|(other, _)| *other == protocol) else {
            return self.count_first(protocol, state, by);
        };
        if let Some(n) = states.get_mut(state as usize) {
            debug_assert!(
                n.checked_add_signed(by).is_some(),
                "{state:?} of {:?} below zero",
                self.image.name
            );
            *n = n.saturating_add_signed(by);
        }
    }

    #[cold]
    fn count_first(&mut self, protocol: Protocol, state: JobStateKind, by: i32) {
        self.states.reserve_exact(1);
        self.states.push((protocol, States::default()));
        self.recount();
        self.count(protocol, state, by);
    }

    /// Returns true if it has only a name.
    pub(super) fn is_idle(&self) -> bool {
        self.total() == 0
            && !self.image.is_special()
            && !self.consumers.iter().any(Consumers::are_there)
            && self
                .gate
                .as_deref()
                .is_none_or(|gate| gate.timer_at() == Timestamp::NEVER)
    }

    // ---- ready jobs ------------------------------------------------------------------------------------------------

    pub(crate) const fn ready(&self) -> &ReadyQueue {
        &self.ready
    }

    /// The jobs of the queue that a client of this protocol sees.
    pub(super) const fn view(&self, own: Option<Protocol>) -> View {
        View::of(own, self.bridged)
    }

    /// The jobs that may be delivered to a client of this protocol.
    const fn open_view(&self, own: Option<Protocol>) -> View {
        self.view(own).without(self.image.paused)
    }

    /// The next job that may be delivered to a client of this protocol.
    pub(crate) fn first_of(&self, own: Option<Protocol>) -> Option<(SortKey, Slot)> {
        let view = self.open_view(own);
        match &self.gate {
            Some(gate) => gate.first_of(&self.ready, view),
            None => self.ready.first_of(view),
        }
    }

    /// The first job of each class that may be delivered.
    pub(super) fn firsts(&self) -> impl Iterator<Item = (Class, SortKey, Slot)> {
        let open = self.open_view(None);
        let by_key = self.gate.as_deref().and_then(Gate::firsts);
        let plain = by_key.is_none().then(|| self.ready.firsts());
        by_key
            .into_iter()
            .flatten()
            .chain(plain.into_iter().flatten())
            .filter(move |(class, ..)| open.includes(*class))
    }

    /// Returns true if a client that sees these jobs has subscribed to the queue.
    pub(super) fn serves(&self, class: Class) -> bool {
        self.consumers.iter().any(|consumers| {
            consumers.workers() > 0 && self.view(consumers.protocol()).includes(class)
        })
    }

    /// The job that a client of this protocol gets next, for this worker.
    pub(crate) fn first_for(
        &self,
        own: Option<Protocol>,
        whose: Whose<'_>,
    ) -> Option<(SortKey, Slot)> {
        if self.free_slots() > 0 && self.admits(whose) {
            self.first_of(own)
        } else {
            None
        }
    }

    // ---- slots -----------------------------------------------------------------------------------------------------

    /// The number of throttle slots that leases occupy.
    pub(crate) fn slots_held(&self) -> u32 {
        self.slots.as_deref().map_or(0, Slots::len)
    }

    /// Returns true if leases occupy all slots of the throttle.
    pub(crate) fn is_throttled(&self) -> bool {
        self.slots.as_deref().is_some_and(|slots| slots.free() == 0)
    }

    /// The number of further leases for which there are slots and tokens. 0 for a paused `cycle` queue.
    pub(crate) fn free_slots(&self) -> u32 {
        if self.image.kind == QueueKind::Cycle && !self.image.paused.is_empty() {
            return 0;
        }
        let tokens = self.gate.as_deref().map_or(u32::MAX, Gate::free);
        let slots = self.slots.as_deref().map_or(u32::MAX, Slots::free);
        slots.min(tokens)
    }

    /// The jobs with leases that occupy slots, in the order of the leases.
    pub(crate) fn slot_holders(&self) -> impl Iterator<Item = JobId> {
        self.slots.as_deref().into_iter().flat_map(Slots::holders)
    }

    /// Returns true if the limit per worker permits another slot for this worker.
    pub(crate) fn admits(&self, whose: Whose<'_>) -> bool {
        self.slots
            .as_deref()
            .is_none_or(|slots| slots.admits(whose))
    }

    /// Returns true if clients wait here, or tokens may have been added.
    pub(crate) fn needs_serving(&self) -> bool {
        self.gate.is_some() || self.consumers.wait()
    }

    /// Returns true if the limit depends on the worker.
    pub(crate) fn knows_workers_apart(&self) -> bool {
        self.slots
            .as_deref()
            .is_some_and(|slots| slots.throttle().per_worker_max.is_some())
    }

    // ---- consumers -------------------------------------------------------------------------------------------------

    /// The consumers by protocol.
    pub(crate) fn consumers(&self) -> impl Iterator<Item = &Consumers> {
        self.consumers.iter()
    }

    /// The consumers of a protocol.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(crate) fn consumers_of(&self, protocol: Option<Protocol>) -> Option<&Consumers> {
        self.consumers.of(protocol)
    }

    /// Returns true if these consumers see more jobs that may start than the sleepers already woken will
    /// take. A sleeper without a protocol may take any job.
    pub(crate) fn has_unclaimed_for(&self, consumers: &Consumers) -> bool {
        if self.free_slots() <= self.consumers.woken() {
            return false;
        }
        let own = consumers.protocol();
        let beside = |other: &&Consumers| {
            self.bridged || own.is_none() || other.protocol().is_none() || other.protocol() == own
        };
        let woken: u32 = self
            .consumers
            .iter()
            .filter(beside)
            .map(Consumers::woken)
            .sum();
        let view = self.open_view(own);
        let may_start = match &self.gate {
            Some(gate) => gate.len_of(&self.ready, view),
            None => self.ready.len_of(view),
        };
        may_start > woken
    }

    /// The ready jobs in this scope.
    pub(crate) const fn ready_in(&self, scope: Option<Protocol>) -> View {
        View::of(scope, false)
    }

    /// Returns true if other protocols have jobs or clients in an isolated queue.
    pub(crate) fn is_used_beside(&self, own: Protocol) -> bool {
        let mut others = self
            .consumers
            .iter()
            .filter(|consumers| consumers.protocol() != Some(own));
        self.total() > self.states(Some(own)).iter().sum() || others.any(Consumers::are_there)
    }

    /// Protocols with settings that are deleted when a client of `own` removes the queue: that
    /// protocol, or all if the queue belongs to no protocol and no other protocol uses it.
    pub(crate) fn removed_with(&self, own: Option<Protocol>) -> Protocols {
        let is_shared =
            |own: &Protocol| self.image.known != Protocols::ALL || self.is_used_beside(*own);
        Protocols::of(self.scope(own).filter(is_shared))
    }

    /// The number of subscriptions of clients that see the jobs of a protocol, or of all clients.
    pub(crate) fn workers_of(&self, scope: Option<Protocol>) -> u32 {
        let Some(own) = scope else {
            return self.consumers.workers();
        };
        let seeing = |consumers: &&Consumers| consumers.protocol().is_none_or(|other| other == own);
        self.consumers
            .iter()
            .filter(seeing)
            .map(Consumers::workers)
            .sum()
    }

    /// Returns true if jobs may stay ready although workers of other protocols serve the queue.
    #[inline]
    pub(crate) fn may_be_unserved(&self) -> bool {
        !self.bridged
            && self.image.kind == QueueKind::Work
            && self.consumers.are_mixed(&self.states)
    }

    /// A protocol with ready jobs that no client that sees them ever requested, and the protocols
    /// of the queue's consumers.
    pub(super) fn unserved_beside_others(&self) -> Option<(Protocol, Vec<Protocol>)> {
        let mut waiting = self.ready.firsts().map(|(class, ..)| class.protocol);
        let waiting = waiting.find(|protocol| !self.consumers.have(*protocol))?;
        let others = self
            .consumers
            .iter()
            .filter(|consumers| consumers.are_there());
        let others: Vec<Protocol> = others.filter_map(Consumers::protocol).collect();
        if others.is_empty() {
            None
        } else {
            Some((waiting, others))
        }
    }
}
