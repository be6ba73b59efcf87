//! How much of a queue may be worked on at once, in total and by one worker.
//!
//! Each lease of a throttled queue holds a slot until the lease ends or the throttle's timeout has passed. Other queues have no
//! slots. Not here: which client is served when a slot becomes free (`wait`).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::alarm::Alarm;
use crate::consumers::WaitKey;
use crate::context::Context;
use crate::engine::Engine;
use crate::ids::{ClientId, JobId, QueueId, Tag, Timestamp};
use crate::job::{Holder, JobStateKind, Lease};
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::request::{LeaseTerms, QueueKind};

/// How much of a queue may be worked on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Throttle {
    /// Jobs in all.
    pub leased_max: Option<u32>,
    /// Jobs of one worker. A connection-bound lease counts for its connection, a time-bound one for the worker named in the
    /// take. All takes without a name count as one worker.
    pub per_worker_max: Option<u32>,
    /// After this many milliseconds a leased job no longer counts, so that jobs forgotten by their workers do not stop a queue.
    /// The lease continues.
    pub timeout_ms: Option<u64>,
}

impl Throttle {
    /// When a lease taken at `taken_at` no longer counts.
    pub(crate) const fn over_at(&self, taken_at: Timestamp) -> Timestamp {
        match self.timeout_ms {
            Some(ms) => taken_at.after_ms(ms),
            None => Timestamp::NEVER,
        }
    }
}

/// The worker for which a lease counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose<'a> {
    Connection(ClientId),
    Named(&'a [u8]),
}

impl<'a> Whose<'a> {
    /// The worker for which this take counts.
    pub(crate) const fn taking(client: ClientId, terms: LeaseTerms, worker: &'a [u8]) -> Self {
        if terms.connection_bound { Self::Connection(client) } else { Self::Named(worker) }
    }
}

/// The slots in use of a throttled queue.
#[derive(Debug)]
pub(crate) struct Slots {
    /// By the start of the lease.
    held: BTreeSet<(Timestamp, JobId)>,
    by_connection: BTreeMap<ClientId, u32>,
    by_name: BTreeMap<Box<[u8]>, u32>,
    /// When the engine next looks for slots that have timed out; not after the first one does.
    alarm_at: Timestamp,
}

impl Slots {
    pub(crate) const fn new() -> Self {
        Self {
            held: BTreeSet::new(),
            by_connection: BTreeMap::new(),
            by_name: BTreeMap::new(),
            alarm_at: Timestamp::NEVER,
        }
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }

    pub(crate) const fn alarm_at(&self) -> Timestamp {
        self.alarm_at
    }

    /// When the first slot times out.
    pub(crate) fn next_over_at(&self, throttle: Throttle) -> Timestamp {
        self.held.first().map_or(Timestamp::NEVER, |(taken_at, _)| throttle.over_at(*taken_at))
    }

    fn of(&self, whose: Whose<'_>) -> u32 {
        let held = match whose {
            Whose::Connection(client) => self.by_connection.get(&client),
            Whose::Named(name) => self.by_name.get(name),
        };
        held.copied().unwrap_or_default()
    }

    fn insert(&mut self, id: JobId, lease: &Lease) {
        if self.held.insert((lease.taken_at, id)) {
            let held = match &lease.holder {
                Holder::Connection(client) => self.by_connection.entry(*client).or_default(),
                Holder::Named(name) => self.by_name.entry(name.clone()).or_default(),
            };
            *held += 1;
        }
    }

    /// Removes the slot of a lease. Returns whether there was one.
    fn remove(&mut self, id: JobId, lease: &Lease) -> bool {
        if !self.held.remove(&(lease.taken_at, id)) {
            return false;
        }
        match &lease.holder {
            Holder::Connection(client) => one_less(&mut self.by_connection, client),
            Holder::Named(name) => one_less(&mut self.by_name, name),
        }
        true
    }

    /// Asserts that exactly these leases hold a slot.
    pub(crate) fn check<'a>(&self, name: &[u8], leases: impl Iterator<Item = (JobId, &'a Lease)>) {
        let mut expected = Self::new();
        leases.for_each(|(id, lease)| expected.insert(id, lease));
        let of = |slots: &Self| (slots.held.clone(), slots.by_connection.clone(), slots.by_name.clone());
        assert_eq!(of(self), of(&expected), "slots of {name:?}, left: held, right: leased");
    }
}

/// Subtracts one, and removes a worker at 0.
fn one_less<K: Ord>(held: &mut BTreeMap<K, u32>, whose: &K) {
    if let Some(n) = held.get_mut(whose) {
        *n = n.saturating_sub(1);
        if *n == 0 {
            held.remove(whose);
        }
    }
}

impl Queue {
    /// How many more leases it has slots for.
    pub(crate) fn free_slots(&self) -> u32 {
        let Some((throttle, slots)) = self.image.throttle.zip(self.slots.as_deref()) else { return u32::MAX };
        throttle.leased_max.map_or(u32::MAX, |max| max.saturating_sub(slots.len()))
    }

    /// Whether this worker's own limit allows another slot.
    pub(crate) fn admits(&self, whose: Whose<'_>) -> bool {
        let Some((throttle, slots)) = self.image.throttle.zip(self.slots.as_deref()) else { return true };
        throttle.per_worker_max.is_none_or(|max| slots.of(whose) < max)
    }

    /// Whether its limit depends on the worker.
    pub(crate) fn knows_workers_apart(&self) -> bool {
        self.image.throttle.is_some_and(|throttle| throttle.per_worker_max.is_some())
    }

    /// Takes a slot for a lease. Returns the time for which to set an alarm, and the time of the alarm to forget.
    pub(crate) fn hold_slot(&mut self, id: JobId, lease: &Lease, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let (throttle, slots) = self.image.throttle.zip(self.slots.as_deref_mut())?;
        let over_at = throttle.over_at(lease.taken_at);
        if over_at <= now {
            return None;
        }
        slots.insert(id, lease);
        (over_at < slots.alarm_at).then(|| (over_at, std::mem::replace(&mut slots.alarm_at, over_at)))
    }

    /// Releases a lease's slot. Returns whether there was one.
    pub(crate) fn free_slot(&mut self, id: JobId, lease: &Lease) -> bool {
        self.slots.as_deref_mut().is_some_and(|slots| slots.remove(id, lease))
    }
}

impl Engine {
    pub(crate) fn throttle_queue(
        &mut self,
        client: ClientId,
        tag: Tag,
        name: &Bytes,
        throttle: Option<Throttle>,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        self.check_name(name)?;
        let id = match self.queues.named(name) {
            Some(id) => Some(id),
            None if throttle.is_none() => None,
            None => Some(self.queues.find_or_make(name, QueueKind::Work, self.limits.queues_max)?),
        };
        if let Some(id) = id
            && self.queues.at(id).is_some_and(|queue| queue.image.throttle != throttle)
        {
            self.set_queue(id, |image| image.throttle = throttle, context);
            self.count_slots(id);
            self.note_unclaimed(id);
            self.serve(id, context);
            self.drop_if_unknown(id);
        }
        self.tell_done(client, tag, context);
        Ok(())
    }

    /// Recounts the slots of a queue after a change of its throttle. Looks at all jobs if the queue has leases.
    fn count_slots(&mut self, id: QueueId) {
        let Some(queue) = self.queues.at_mut(id) else { return };
        if let Some(slots) = queue.slots.take() {
            self.alarms.forget(slots.alarm_at);
        }
        if queue.image.throttle.is_none() {
            return;
        }
        queue.slots = Some(Box::new(Slots::new()));
        let leases = self.jobs.slots_from(0).filter(|(_, job)| job.queue == id);
        let leases = leases.filter_map(|(_, job)| Some((job.id, job.lease()?)));
        for (job, lease) in leases.take(queue.jobs(JobStateKind::Leased) as usize) {
            if let Some((at, before)) = queue.hold_slot(job, lease, self.now) {
                self.alarms.forget(before);
                self.alarms.set(at, Alarm::Slots(id));
            }
        }
    }

    /// Releases the slots of leases that have timed out.
    pub(crate) fn slots_due(&mut self, id: QueueId, at: Timestamp) {
        self.alarms.forget(at);
        let Some(queue) = self.queues.at_mut(id) else { return };
        let Some((throttle, slots)) = queue.image.throttle.zip(queue.slots.as_deref_mut()) else { return };
        slots.alarm_at = Timestamp::NEVER;
        while let Some((taken_at, job)) = slots.held.first().copied() {
            let over_at = throttle.over_at(taken_at);
            if over_at > at {
                slots.alarm_at = over_at;
                break;
            }
            let lease = self.jobs.slot(job).and_then(|slot| self.jobs.at(slot)?.lease());
            if !lease.is_some_and(|lease| slots.remove(job, lease)) {
                debug_assert!(false, "{job:?} has a slot but no lease");
                slots.held.remove(&(taken_at, job));
            }
        }
        self.alarms.set(slots.alarm_at, Alarm::Slots(id));
        self.note_unclaimed(id);
        self.freed.push_back(id);
    }

    /// Serves the queues that have free slots again.
    pub(crate) fn serve_freed(&mut self, context: &mut Context) {
        while let Some(queue) = self.freed.pop_front() {
            self.serve(queue, context);
        }
    }

    /// Whether a queue has a slot for a waiting client: for its blocked take if it is queued with this key, otherwise as a
    /// sleeper or on credit.
    pub(crate) fn admits_waiter(&self, queue: &Queue, id: ClientId, key: WaitKey) -> bool {
        if !queue.knows_workers_apart() {
            return true;
        }
        let id_of = queue.image.id;
        let Some(client) = self.clients.get(&id) else { return false };
        let (sources, worker) = client.takes_from(key.seq);
        let served = sources.iter().find(|served| served.queue == id_of);
        served.is_some_and(|served| queue.admits(Whose::taking(id, served.lease, worker)))
    }
}
