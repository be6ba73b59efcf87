//! All queues: the owner of settings, counts, ready jobs and consumers.
//!
//! Not here: the effects of a state transition on other objects, and which client is served when
//! work arrives.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::ahead::Ahead;
use super::bridge::Bridge;
use super::consumers::{Consumers, WaitKey, WaitsAs};
use super::figures::QueueFigures;
use super::names::{Room, Uses};
use super::patterns::Patterns;
use super::policy::{Gate, KeyNumber, NO_KEY, Policy};
use super::queue::{Queue, QueueImage};
use super::rules::QueueRules;
use super::throttle::Slots;
use super::unclaimed::Unclaimed;
use crate::by_namespace::Sums;
use crate::change::Change;
use crate::held::Held;
use crate::ids::{ClientId, NameIn, Named, Namespace, Protocol, Protocols, QueueId, Timestamp};
use crate::jobs::{Job, JobStateKind, Jobs, Numbered};
use crate::namespaces::Namespaces;
use crate::refusal::{Capacity, Outcome, Refusal};
use crate::request::QueueKind;
use crate::timers::{Timer, Timers};

/// Minimum interval between two notices about a queue.
const NOTICE_PAUSE_MS: u64 = 60_000;

/// All queues, by ID and by name.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(super) by_id: Vec<Option<Queue>>,
    free: BTreeSet<u32>,
    by_name: HashMap<Named<Bytes>, QueueId, FixedState>,
    /// The IDs in use. Those of a namespace follow each other.
    pub(super) order: BTreeSet<QueueId>,
    /// All queues, by namespace.
    pub(super) sums: Sums,
    /// Listed queues, by namespace.
    pub(super) known: Sums,
    /// Queues with a throttle or rules.
    pub(super) special: BTreeSet<QueueId>,
    births: u64,
    bridge: Bridge,
    pub(super) namespaces: Namespaces,
    /// Rules and policies by pattern.
    pub(super) patterns: Patterns<(QueueRules, Arc<Policy>)>,
    pub(super) unclaimed: Unclaimed,
    /// Queues with more dead jobs than the rules permit.
    pub(super) overfull: BTreeSet<QueueId>,
    /// The keys of jobs in queues with policies by key. A job without an entry has no key.
    pub(super) job_keys: Numbered<KeyNumber>,
    /// Queues with newly free slots, or jobs that may start now, to serve at the end of the visit.
    pub(super) freed: VecDeque<QueueId>,
    /// Queues that were removed without a record in the context's changes yet.
    dropped: Vec<QueueId>,
    /// Queues with buckets that must be saved at the end of the visit.
    pub(super) unsaved: Vec<QueueId>,
    pub(super) uses: Uses,
    /// Bytes of names, and of clients that wait at queues.
    pub(super) held: Held,
    /// Bytes of keys, which are added and removed with jobs.
    pub(super) keys_held: Held,
}

impl Queues {
    pub(crate) fn new(seed: u64, held: Held, keys_held: Held) -> Self {
        Self {
            by_id: Vec::new(),
            free: BTreeSet::new(),
            by_name: HashMap::with_hasher(FixedState::with_seed(seed)),
            order: BTreeSet::new(),
            sums: Sums::default(),
            known: Sums::default(),
            special: BTreeSet::new(),
            births: 0,
            bridge: Bridge::default(),
            namespaces: Namespaces::default(),
            patterns: Patterns::default(),
            unclaimed: Unclaimed::default(),
            job_keys: Numbered::new(NO_KEY),
            freed: VecDeque::new(),
            overfull: BTreeSet::new(),
            dropped: Vec::new(),
            unsaved: Vec::new(),
            uses: Uses::default(),
            held,
            keys_held,
        }
    }

    // ---- reading ---------------------------------------------------------------------------------------------------

    pub(crate) fn named(&self, namespace: Namespace, name: &[u8]) -> Option<QueueId> {
        self.by_name.get(&NameIn(namespace, name)).copied()
    }

    pub(crate) fn at(&self, id: QueueId) -> Option<&Queue> {
        self.by_id.get(id.index() as usize)?.as_ref()
    }

    /// The IDs in use from this one on, in order: those of a namespace follow each other.
    pub(crate) fn ids_from(&self, first: QueueId) -> impl Iterator<Item = QueueId> {
        self.order.range(first..).copied()
    }

    pub(crate) fn name(&self, id: QueueId) -> Option<&Bytes> {
        Some(&self.at(id)?.image.name)
    }

    /// The rules that apply to the jobs of a queue; `None`: the defaults.
    pub(crate) fn rules(&self, id: QueueId) -> Option<&QueueRules> {
        self.at(id)?.rules()
    }

    pub(crate) fn policy(&self, id: QueueId) -> Option<&Policy> {
        self.at(id)?.policy()
    }

    pub(super) fn at_mut(&mut self, id: QueueId) -> Option<&mut Queue> {
        self.by_id.get_mut(id.index() as usize)?.as_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// An upper bound of the indexes in use: the maximum number of queues that have existed at the
    /// same time.
    pub(crate) fn numbers(&self) -> u32 {
        u32::try_from(self.by_id.len()).unwrap_or(u32::MAX)
    }

    /// The number of queues created so far.
    pub(crate) const fn births(&self) -> u64 {
        self.births
    }

    /// The number of queues in a namespace, listed or not; for `None`, in all.
    pub(crate) fn count_of(&self, namespace: Option<Namespace>) -> u64 {
        self.sums.of(namespace).count
    }

    /// The number of listed queues in a namespace; for `None`, in all.
    pub(crate) fn known(&self, namespace: Option<Namespace>) -> u32 {
        u32::try_from(self.known.of(namespace).count).unwrap_or(u32::MAX)
    }

    /// Queues with a throttle or rules in a namespace; for `None`, in all.
    pub(crate) fn special_of(&self, namespace: Option<Namespace>) -> impl Iterator<Item = &Queue> {
        let first = namespace.map_or(QueueId(0), |namespace| QueueId::new(namespace, 0));
        let seen = move |id: &&QueueId| namespace.is_none_or(|own| own == id.namespace());
        let special = self.special.range(first..).take_while(seen);
        special.filter_map(|id| self.at(*id))
    }

    /// All queues, in order of their indexes.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Queue> {
        self.by_id.iter().flatten()
    }

    /// Returns true if all protocols share a queue with this image. `cycle` queues are never
    /// shared.
    pub(super) fn bridges(&self, image: &QueueImage) -> bool {
        image.kind == QueueKind::Work && self.bridge.includes(&self.setting_name(image))
    }

    pub(crate) const fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    pub(crate) const fn namespaces_mut(&mut self) -> &mut Namespaces {
        &mut self.namespaces
    }

    /// The name of a queue's namespace; empty for that without a name.
    pub(crate) fn namespace_name(&self, id: QueueId) -> Bytes {
        self.namespaces.name(id.namespace())
    }

    /// The text that the patterns of settings are compared with: the name, in a namespace with a name behind that
    /// name and a slash.
    pub(crate) fn setting_name<'a>(&self, image: &'a QueueImage) -> Cow<'a, [u8]> {
        self.namespaces.qualified(image.id.namespace(), &image.name)
    }

    // ---- created, changed, removed ---------------------------------------------------------------------------------

    /// Finds the queue of this name, and marks it as used.
    pub(crate) fn find(
        &mut self,
        namespace: Namespace,
        name: &[u8],
        kind: QueueKind,
    ) -> Outcome<Option<QueueId>> {
        let used = self.uses.next();
        let Some(id) = self.named(namespace, name) else {
            return Ok(None);
        };
        let queue = self
            .at_mut(id)
            .filter(|queue| queue.image.kind == kind)
            .ok_or(Refusal::WrongKind)?;
        queue.used = used;
        Ok(Some(id))
    }

    /// Creates a queue, which is not listed yet, for a protocol. The name must be unused.
    /// `bytes_max` limits the memory of all names and clients, including the new queue.
    pub(crate) fn make(
        &mut self,
        namespace: Namespace,
        name: &Bytes,
        kind: QueueKind,
        maker: Option<Protocol>,
        limit: u32,
        bytes_max: u64,
    ) -> Outcome<QueueId> {
        let own = self.namespaces.at(namespace);
        if let Some(limit) = own.and_then(|own| own.limits.queues_max)
            && self.count_of(Some(namespace)) >= limit.into()
        {
            return Err(Capacity::NamespaceQueues.exceeded(limit, limit));
        }
        let room = Room {
            maker,
            names: limit as usize,
            bytes: bytes_max.saturating_sub(Queue::bytes_for(name.len())),
        };
        self.make_room(room)?;
        let used = self.uses.last();
        let index = match self.free.pop_first() {
            Some(index) => index,
            None => u32::try_from(self.by_id.len())
                .ok()
                .filter(|index| *index < QueueId::COUNT_MAX)
                .ok_or(Capacity::Queues.exceeded(limit, limit))?,
        };
        let id = QueueId::new(namespace, index);
        // Copy the name, because it outlives the read buffer in which it arrived.
        let name = Bytes::copy_from_slice(name);
        self.put(QueueImage::new(id, name, kind), maker);
        if let Some(queue) = self.at_mut(id) {
            queue.used = used;
        }
        self.note_made(self.len(), limit as usize);
        Ok(id)
    }

    /// Inserts a queue at the index given by the ID.
    fn put(&mut self, image: QueueImage, maker: Option<Protocol>) {
        let index = image.id.index() as usize;
        if index >= self.by_id.len() {
            let first = u32::try_from(self.by_id.len()).unwrap_or(u32::MAX);
            self.free.extend(first..image.id.index());
            self.by_id.resize_with(index + 1, || None);
        }
        self.by_name
            .insert(Named(image.id.namespace(), image.name.clone()), image.id);
        self.order.insert(image.id);
        let id = image.id;
        let bridged = self.bridges(&image);
        let rules = self.rules_of(&image);
        let gate = self
            .policy_of(&image)
            .map(|policy| Gate::new(&image, Arc::clone(policy), bridged, &self.keys_held));
        if let Some(state) = self.by_id.get_mut(index) {
            let before = state.replace(
                Queue::new(image, maker, self.births, bridged, rules)
                    .behind(gate.map(Box::new))
                    .counted(&self.held),
            );
            self.births += 1;
            if before.is_none() {
                self.sums.add(id.namespace(), 0);
            }
            self.count_name(maker, true);
            self.count_name(before.as_ref().and_then(|queue| queue.maker), false);
            self.count_image(id, before.is_some_and(|queue| queue.image.is_known()));
        }
    }

    /// Gives a new queue the settings of another one.
    pub(crate) fn copy_settings(&mut self, from: QueueId, to: QueueId, changes: &mut Vec<Change>) {
        let Some(image) = self.at(from).map(|queue| QueueImage {
            id: to,
            saved: None,
            ..queue.image.clone()
        }) else {
            return;
        };
        self.put(image, None);
        self.set(to, |_| (), changes);
    }

    /// Restores a queue from the journal.
    pub(crate) fn recall(&mut self, image: QueueImage) {
        let id = image.id;
        self.free.remove(&id.index());
        // The first protocol that lists it. A queue listed by all protocols belongs to none.
        let maker = Protocol::ALL
            .into_iter()
            .map(|row| row.id)
            .find(|it| image.known != Protocols::ALL && image.known.has(*it));
        self.put(image, maker);
        if let Some(queue) = self.at_mut(id) {
            queue.journalled = true;
        }
    }

    /// Sets the journalled part of a queue. A new throttle takes effect with
    /// [`Queues::count_slots`].
    #[inline(never)]
    pub(crate) fn set(
        &mut self,
        id: QueueId,
        set: impl FnOnce(&mut QueueImage),
        changes: &mut Vec<Change>,
    ) {
        let Some(queue) = self.at_mut(id) else { return };
        let before = (queue.image.is_known(), queue.image.is_special());
        let had_rates = queue.image.saved.is_some();
        set(&mut queue.image);
        queue.journalled = true;
        if had_rates || queue.image.saved.is_some() {
            queue.recount();
        }
        if before != (queue.image.is_known(), queue.image.is_special()) {
            self.count_image(id, before.0);
        }
        changes.push(Change::QueueSet(id));
        self.note_unclaimed(id);
    }

    /// Updates the counters after a queue was created or the image was replaced.
    fn count_image(&mut self, id: QueueId, was_known: bool) {
        let Some(image) = self.at(id).map(|queue| &queue.image) else {
            return;
        };
        let is_known = image.is_known();
        let is_special = image.is_special();
        match (was_known, is_known) {
            (false, true) => self.known.add(id.namespace(), 0),
            (true, false) => self.known.subtract(id.namespace(), 0),
            _ => {}
        }
        if is_special {
            self.special.insert(id);
        } else {
            self.special.remove(&id);
        }
    }

    /// Makes the queue journalled, and listed by one protocol or by all.
    pub(crate) fn make_known(
        &mut self,
        id: QueueId,
        to: Option<Protocol>,
        changes: &mut Vec<Change>,
    ) {
        let to = Protocols::of(to);
        if self
            .at(id)
            .is_some_and(|queue| !queue.image.known.include(to))
        {
            self.set(id, |image| image.known = image.known.and(to), changes);
        }
    }

    /// The next serial number of a `cycle` queue.
    pub(crate) fn next_serial(&mut self, id: QueueId, changes: &mut Vec<Change>) -> u64 {
        self.set(id, |image| image.serial += 1, changes);
        self.at(id).map_or(0, |queue| queue.image.serial)
    }

    /// Removes an unlisted queue once nothing needs the name.
    pub(crate) fn drop_if_unknown(&mut self, id: QueueId) {
        if self
            .at(id)
            .is_some_and(|queue| !queue.image.is_known() && queue.is_idle())
        {
            self.forget(id);
        }
    }

    /// Removes a queue that nothing needs.
    pub(super) fn forget(&mut self, id: QueueId) {
        let Some(queue) = self
            .by_id
            .get_mut(id.index() as usize)
            .and_then(Option::take)
        else {
            return;
        };
        if queue.journalled {
            self.dropped.push(id);
        }
        if queue.image.is_known() {
            self.known.subtract(id.namespace(), 0);
        }
        self.sums.subtract(id.namespace(), 0);
        self.by_name
            .remove(&NameIn(id.namespace(), &queue.image.name));
        self.order.remove(&id);
        self.count_name(queue.maker, false);
        self.special.remove(&id);
        self.overfull.remove(&id);
        self.free.insert(id.index());
    }

    /// Removes dropped queues from the journal too.
    pub(crate) fn remember_dropped(&mut self, changes: &mut Vec<Change>) {
        changes.extend(self.dropped.drain(..).map(Change::QueueGone));
    }

    /// Returns true if there are any dropped queues.
    pub(crate) const fn has_dropped(&self) -> bool {
        !self.dropped.is_empty()
    }

    // ---- jobs ------------------------------------------------------------------------------------------------------

    /// Replaces the set of queues shared by all protocols. Returns the queues that changed.
    /// Examines all queues, but no jobs.
    pub(crate) fn set_bridge(&mut self, bridge: Bridge) -> Vec<QueueId> {
        self.bridge = bridge;
        let changes = |queue: &&Queue| queue.bridged != self.bridges(&queue.image);
        let changed: Vec<QueueId> = self
            .iter()
            .filter(changes)
            .map(|queue| queue.image.id)
            .collect();
        for id in &changed {
            if let Some(queue) = self.at_mut(*id) {
                queue.bridged = !queue.bridged;
                queue.relist(false);
            }
            self.note_unclaimed(*id);
        }
        changed
    }

    /// Called for a new codec of a queue, because the codec decides which protocols can express a
    /// job: clears the conversion errors of ready jobs. Examines only jobs with errors.
    pub(crate) fn clear_unfit(&mut self, id: QueueId, jobs: &mut Jobs) {
        let Some(queue) = self.at_mut(id) else { return };
        for slot in queue.ready.clear_unfit() {
            jobs.clear_unfit(slot);
        }
        queue.recount();
        queue.relist(true);
        self.note_unclaimed(id);
    }

    // ---- throttles -------------------------------------------------------------------------------------------------

    /// Recounts the slots of a queue for a new throttle.
    pub(crate) fn count_slots(
        &mut self,
        id: QueueId,
        jobs: &Jobs,
        now: Timestamp,
        timers: &mut Timers,
    ) {
        let Some(queue) = self.at_mut(id) else { return };
        if let Some(slots) = queue.slots.take() {
            timers.cancel(slots.timer_at());
        }
        if let Some(throttle) = queue.image.throttle {
            let mut slots = Box::new(Slots::new(id, throttle));
            let count = queue.jobs(JobStateKind::Leased) as usize;
            for job in jobs.leased_in(id, count, timers) {
                if let Some(lease) = jobs.get(job).and_then(Job::lease) {
                    slots.hold(job, lease, now, timers);
                }
            }
            queue.slots = Some(slots);
        }
        self.note_unclaimed(id);
    }

    /// Called when the timer of a queue fires: releases the slots of leases that have timed out.
    pub(crate) fn slots_due(
        &mut self,
        id: QueueId,
        at: Timestamp,
        jobs: &Jobs,
        timers: &mut Timers,
    ) {
        timers.cancel(at);
        let Some(slots) = self.at_mut(id).and_then(|queue| queue.slots.as_deref_mut()) else {
            return;
        };
        slots.release_due(at, |job| jobs.get(job)?.lease(), timers);
        self.note_unclaimed(id);
        self.freed.push_back(id);
    }

    /// Returns true if a timer of this queue that was set for this time is still valid.
    pub(crate) fn has_timer(&self, at: Timestamp, timer: Timer) -> bool {
        match timer {
            Timer::Slots(id) => {
                self.at(id)
                    .and_then(|queue| queue.slots.as_deref())
                    .map(Slots::timer_at)
                    == Some(at)
            }
            Timer::Gate(id) => {
                self.at(id)
                    .and_then(|queue| queue.gate.as_deref())
                    .map(Gate::timer_at)
                    == Some(at)
            }
            Timer::Lease(_)
            | Timer::Expiry(_)
            | Timer::Age(_)
            | Timer::Key(_)
            | Timer::Wait(_)
            | Timer::Beat(_) => false,
        }
    }

    /// The next queue with newly free slots or jobs that may start now.
    pub(crate) fn pop_freed(&mut self) -> Option<QueueId> {
        self.freed.pop_front()
    }

    // ---- consumers -------------------------------------------------------------------------------------------------

    fn consumers_mut(&mut self, id: QueueId, own: Option<Protocol>) -> Option<&mut Consumers> {
        self.at_mut(id)?.consumers.of_mut(own)
    }

    /// Adds a waiting client to a queue.
    pub(crate) fn add_waiter(
        &mut self,
        id: QueueId,
        own: Option<Protocol>,
        role: WaitsAs,
        key: WaitKey,
        client: ClientId,
    ) {
        if let Some(queue) = self.at_mut(id) {
            queue.consumers.add_waiter(own, role, key, client);
        }
    }

    /// Removes a waiting client from a queue.
    pub(crate) fn remove_waiter(
        &mut self,
        id: QueueId,
        own: Option<Protocol>,
        role: WaitsAs,
        key: WaitKey,
    ) {
        if let Some(queue) = self.at_mut(id) {
            queue.consumers.remove_waiter(own, role, key);
        }
    }

    /// Adds a subscription of this protocol to the count of a queue (1), or subtracts it (-1).
    pub(crate) fn count_workers(&mut self, id: QueueId, own: Option<Protocol>, by: i32) {
        if let Some(consumers) = self.consumers_mut(id, own) {
            consumers.count_workers(by);
        }
    }

    /// Adds a sleeper of this protocol that is woken for a queue to the count (1), or subtracts one
    /// that has requested work or left (-1).
    pub(crate) fn count_woken(&mut self, id: QueueId, own: Option<Protocol>, by: i32) {
        if let Some(consumers) = self.consumers_mut(id, own) {
            consumers.count_woken(by);
        }
    }

    /// Records that a client takes from a queue by name, or no longer does.
    pub(crate) fn set_taker(
        &mut self,
        id: QueueId,
        own: Option<Protocol>,
        client: ClientId,
        takes: bool,
    ) {
        if let Some(queue) = self.at_mut(id) {
            queue.consumers.set_taker(own, client, takes);
        }
    }

    /// The part of a queue that is loaded in advance.
    pub(crate) fn ahead_mut(&mut self, id: QueueId) -> Option<&mut Ahead> {
        self.at_mut(id).map(|queue| &mut queue.ahead)
    }

    /// The statistics of a queue.
    pub(crate) fn figures_mut(&mut self, id: QueueId) -> Option<&mut QueueFigures> {
        let queue = self.at_mut(id)?;
        if queue.figures.is_none() {
            queue.begin_figures();
        }
        queue.figures.as_deref_mut()
    }

    /// Records that clients of this protocol take from a queue. Returns the queue's birth number.
    pub(crate) fn add_protocol(&mut self, id: QueueId, own: Option<Protocol>) -> Option<u64> {
        let queue = self.at_mut(id)?;
        queue.consumers.of_mut(own);
        Some(queue.birth())
    }

    /// Finds jobs of a protocol that are ready where only workers of other protocols serve, because
    /// an operator may have meant to bridge the queue. Returns the queue's name for operators, the protocol of
    /// the jobs and those of the workers, no more than once a minute per queue.
    pub(crate) fn take_unserved(
        &mut self,
        id: QueueId,
        now: Timestamp,
    ) -> Option<(Bytes, Protocol, Vec<Protocol>)> {
        let (jobs, workers) = self.at(id)?.unserved_beside_others()?;
        if self.unclaimed_subscriptions(id.realm(jobs)) > 0 {
            return None;
        }
        let queue = self.at_mut(id)?;
        let is_due = queue
            .unserved_noticed_at
            .is_none_or(|at| now >= at.after_ms(NOTICE_PAUSE_MS));
        if !is_due {
            return None;
        }
        queue.unserved_noticed_at = Some(now);
        let title = self.setting_name(&self.at(id)?.image).into_owned();
        Some((title.into(), jobs, workers))
    }

    // ---- invariants ------------------------------------------------------------------------------------------------
}
