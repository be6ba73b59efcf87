//! Limits the concurrent jobs of a queue, in total and per worker.
//!
//! Each lease of a throttled queue occupies a slot until the lease ends or the throttle's timeout
//! has passed. Other queues have no slots. Not here: which client is served when a slot becomes
//! free (`engine/serve`).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::{ClientId, JobId, QueueId, Timestamp};
use crate::jobs::{Holder, Lease};
use crate::request::LeaseTerms;
use crate::timers::{Timer, Timers};

/// Limits the concurrent jobs of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct Throttle {
    /// Maximum number of jobs in total.
    pub leased_max: Option<u32>,
    /// Maximum number of jobs per worker. A connection-bound lease is attributed to the connection,
    /// a time-bound one to the worker named in the take. All takes without a name are attributed to
    /// a single worker, together with the jobs of these connections.
    pub per_worker_max: Option<u32>,
    /// Milliseconds after which a leased job no longer occupies a slot, so that jobs forgotten by
    /// workers do not block a queue. The lease continues.
    pub timeout_ms: Option<u64>,
    /// True if the configuration set it. It is then removed when the configuration no longer names it. A
    /// throttle set by an operator stays.
    pub configured: bool,
}

impl Throttle {
    /// When a lease taken at `taken_at` releases the slot.
    pub(crate) const fn over_at(&self, taken_at: Timestamp) -> Timestamp {
        match self.timeout_ms {
            Some(ms) => taken_at.after_ms(ms),
            None => Timestamp::NEVER,
        }
    }
}

/// The worker to which a lease is attributed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose<'a> {
    Connection(ClientId),
    Named(&'a [u8]),
    /// A worker without a name that makes reservations, and has some jobs by a connection.
    Nameless(ClientId),
}

impl<'a> Whose<'a> {
    /// The worker to which this take is attributed.
    pub(crate) const fn taking(client: ClientId, lease: LeaseTerms, worker: &'a [u8]) -> Self {
        match worker {
            _ if lease.connection_bound => Self::Connection(client),
            [] if lease.is_reservation() => Self::Nameless(client),
            worker => Self::Named(worker),
        }
    }
}

/// The slots in use of a throttled queue.
#[derive(Debug)]
pub(super) struct Slots {
    queue: QueueId,
    throttle: Throttle,
    /// By the start of the lease.
    held: BTreeSet<(Timestamp, JobId)>,
    by_connection: BTreeMap<ClientId, u32>,
    by_name: BTreeMap<Box<[u8]>, u32>,
    /// When the engine next checks for slots that have timed out, no later than the first timeout.
    timer_at: Timestamp,
}

impl Slots {
    pub(super) const fn new(queue: QueueId, throttle: Throttle) -> Self {
        Self {
            queue,
            throttle,
            held: BTreeSet::new(),
            by_connection: BTreeMap::new(),
            by_name: BTreeMap::new(),
            timer_at: Timestamp::NEVER,
        }
    }

    pub(super) const fn throttle(&self) -> Throttle {
        self.throttle
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }

    pub(super) const fn timer_at(&self) -> Timestamp {
        self.timer_at
    }

    /// The jobs that occupy slots.
    pub(super) fn holders(&self) -> impl Iterator<Item = JobId> {
        self.held.iter().map(|(_, job)| *job)
    }

    /// The number of free slots.
    pub(super) fn free(&self) -> u32 {
        self.throttle
            .leased_max
            .map_or(u32::MAX, |max| max.saturating_sub(self.len()))
    }

    /// Returns true if the limit per worker permits another slot for this worker.
    pub(super) fn admits(&self, whose: Whose<'_>) -> bool {
        self.throttle
            .per_worker_max
            .is_none_or(|max| self.of(whose) < max)
    }

    fn of(&self, whose: Whose<'_>) -> u32 {
        let of_connection = |client| self.by_connection.get(&client).copied().unwrap_or_default();
        let of_name = |name: &[u8]| self.by_name.get(name).copied().unwrap_or_default();
        match whose {
            Whose::Connection(client) => of_connection(client),
            Whose::Named(name) => of_name(name),
            Whose::Nameless(client) => of_name(&[]).saturating_add(of_connection(client)),
        }
    }

    /// Takes a slot for a lease, unless the lease has already timed out.
    pub(super) fn hold(&mut self, id: JobId, lease: &Lease, now: Timestamp, timers: &mut Timers) {
        let over_at = self.throttle.over_at(lease.taken_at);
        if over_at <= now {
            return;
        }
        self.insert(id, lease);
        if over_at < self.timer_at {
            timers.cancel(self.timer_at);
            self.timer_at = over_at;
            timers.set(over_at, Timer::Slots(self.queue));
        }
    }

    fn insert(&mut self, id: JobId, lease: &Lease) {
        if self.held.insert((lease.taken_at, id)) {
            match &lease.holder {
                Holder::Connection(client) => *self.by_connection.entry(*client).or_default() += 1,
                Holder::Named(name) => *self.by_name.entry(name.clone()).or_default() += 1,
                Holder::Away(_) => {}
            }
        }
    }

    /// Releases the slot of a lease. Returns `true` if there was one.
    pub(super) fn release(&mut self, id: JobId, lease: &Lease) -> bool {
        if !self.held.remove(&(lease.taken_at, id)) {
            return false;
        }
        match &lease.holder {
            Holder::Connection(client) => one_less(&mut self.by_connection, client),
            Holder::Named(name) => one_less(&mut self.by_name, name),
            Holder::Away(_) => {}
        }
        true
    }

    /// Called when the timer fires: releases the slots of leases that have timed out.
    pub(super) fn release_due<'a>(
        &mut self,
        at: Timestamp,
        lease_of: impl Fn(JobId) -> Option<&'a Lease>,
        timers: &mut Timers,
    ) {
        self.timer_at = Timestamp::NEVER;
        while let Some((taken_at, job)) = self.held.first().copied() {
            let over_at = self.throttle.over_at(taken_at);
            if over_at > at {
                self.timer_at = over_at;
                break;
            }
            if !lease_of(job).is_some_and(|lease| self.release(job, lease)) {
                debug_assert!(false, "{job:?} has a slot but no lease");
                self.held.remove(&(taken_at, job));
            }
        }
        timers.set(self.timer_at, Timer::Slots(self.queue));
    }

    /// Asserts that exactly the leases that have not timed out occupy a slot.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn check<'a>(
        &self,
        name: &[u8],
        leases: impl Iterator<Item = (JobId, &'a Lease)>,
        now: Timestamp,
    ) {
        let mut expected = Self::new(self.queue, self.throttle);
        let counts = leases.filter(|(_, lease)| self.throttle.over_at(lease.taken_at) > now);
        counts.for_each(|(id, lease)| expected.insert(id, lease));
        let of = |slots: &Self| {
            (
                slots.held.clone(),
                slots.by_connection.clone(),
                slots.by_name.clone(),
            )
        };
        assert_eq!(
            of(self),
            of(&expected),
            "slots of {name:?}, left: held, right: leased"
        );
        let next = self.held.first().map_or(Timestamp::NEVER, |(taken_at, _)| {
            self.throttle.over_at(*taken_at)
        });
        assert!(self.timer_at <= next, "{name:?} has slots until {next:?}");
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
