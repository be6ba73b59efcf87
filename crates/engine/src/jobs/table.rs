//! All jobs: the owner of every index that depends on a job alone.
//!
//! Not here: holders and listeners of jobs (`listeners`), the order among ready jobs (`queues`), and the
//! effects of a state change on other objects (`place`).

use std::collections::BTreeSet;

use bytes::Bytes;
use foldhash::fast::FixedState;

use super::bodies::Bodies;
use super::by_state::ByState;
use super::counts::StateCounts;
use super::extra::{Expiry, KeyUntil, Role};
use super::job::{Job, Unfit};
use super::kept::Kept;
use super::keys::{Claimed, Keys};
use super::numbered::Numbered;
use super::payload::Payload;
use super::slab::{Slab, Slot};
use super::state::{JobState, JobStateKind, Lease};
use super::stored::Stored;
use crate::by_namespace::{Sum, Sums};
use crate::held::Held;
use crate::ids::{JobId, NameIn, Namespace, Protocol, QueueId, Realm, Timestamp};
use crate::timers::{Timer, Timers};

/// Returns true if a job has this name in this namespace.
fn is_named(job: &Job, NameIn(namespace, name): NameIn<'_>) -> bool {
    job.queue.namespace() == namespace && job.name() == name
}

/// The jobs, with indexes by ID, key, name, time of state, holder and listener. The timers of a job are also
/// set and cancelled here.
#[derive(Debug)]
pub(crate) struct Jobs {
    pub(super) slab: Slab,
    by_id: Numbered<Slot>,
    keys: Keys,
    pub(super) by_state: ByState,
    sums: Sums,
    bodies: Bodies,
}

impl Jobs {
    pub(crate) fn new(seed: u64, held: &Held) -> Self {
        let hasher = FixedState::with_seed(seed);
        Self {
            slab: Slab::default(),
            by_id: Numbered::new(Slot::NONE),
            keys: Keys::new(hasher.clone()),
            by_state: ByState::new(hasher, held),
            sums: Sums::default(),
            bodies: Bodies::default(),
        }
    }

    // ---- reading ---------------------------------------------------------------------------------------------------

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.sums.all().bytes
    }

    /// The jobs of a namespace; for `None`, of all.
    pub(crate) fn sum_of(&self, namespace: Option<Namespace>) -> Sum {
        self.sums.of(namespace)
    }

    /// Bytes in memory.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.bytes()
            .saturating_sub(self.bodies.saved_bytes() + self.slab.saved_bytes())
    }

    /// Bytes of bodies in memory.
    pub(crate) const fn bodies_here(&self) -> u64 {
        self.bodies.here_bytes()
    }

    /// Jobs without bodies in memory, and the bytes of these bodies.
    pub(crate) const fn stored(&self) -> (u64, u64) {
        self.bodies.stored()
    }

    /// The places of bodies that no job needs.
    pub(crate) fn take_freed(&mut self) -> Vec<Stored> {
        self.bodies.take_freed()
    }

    /// Returns true if a lookup of this job would unpack the neighbours.
    pub(crate) fn is_packed(&self, slot: Slot) -> bool {
        self.slab.is_packed(slot)
    }

    /// Bytes of bodies in the page of a packed job that could be stored on disk.
    pub(crate) fn packed_bodies(&self, slot: Slot) -> u64 {
        self.slab.can_leave(slot)
    }

    /// Returns true if the next new job would bring this one back into memory, if it were packed.
    pub(crate) fn is_beside_next(&self, slot: Slot) -> bool {
        self.slab.is_filling(slot)
    }

    /// Packs the pages of these jobs, which are close together, if no job in them is needed.
    pub(crate) fn pack(&mut self, slots: impl Iterator<Item = Slot>) {
        let mut last = None;
        for slot in slots {
            if !last
                .replace(slot)
                .is_some_and(|last| Slab::share_page(last, slot))
            {
                self.slab.pack(slot);
            }
        }
    }

    /// The first slot of each page.
    pub(crate) fn pages(&self) -> impl Iterator<Item = Slot> + use<> {
        self.slab.firsts()
    }

    /// Closes the page of a slot, if it is packed and open.
    pub(crate) fn close(&mut self, slot: Slot) {
        self.slab.close(slot);
    }

    /// Visits all jobs without unpacking them permanently.
    pub(crate) fn visit(&mut self, show: impl FnMut(Slot, &Job)) {
        self.slab.visit(show);
    }

    /// Bytes of jobs that are over.
    pub(crate) const fn kept(&self) -> Kept {
        self.by_state.kept
    }

    /// Bytes of jobs in a namespace that are over; for `None`, in all.
    pub(crate) fn kept_in(&self, namespace: Option<Namespace>) -> Kept {
        self.by_state.kept_in(namespace)
    }

    pub(crate) fn dead_count(&self) -> u64 {
        self.by_state.timed.dead().len() as u64
    }

    pub(crate) fn done_count(&self) -> u64 {
        self.by_state.timed.done().len() as u64
    }

    pub(crate) fn slot(&self, id: JobId) -> Option<Slot> {
        self.by_id.get(id)
    }

    pub(crate) fn at(&self, slot: Slot) -> Option<&Job> {
        self.slab.at(slot)
    }

    /// A job by ID.
    pub(crate) fn get(&self, id: JobId) -> Option<&Job> {
        self.slab.at(self.by_id.get(id)?)
    }

    /// All jobs with slots, in arbitrary order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &Job)> {
        self.slab.iter()
    }

    /// The jobs up to a number, newest first.
    pub(crate) fn newest_from(&self, id: JobId) -> impl Iterator<Item = (JobId, Slot)> {
        self.by_id.down_from(id)
    }

    /// The jobs from a number on, oldest first.
    pub(crate) fn oldest_from(&self, id: JobId) -> impl Iterator<Item = (JobId, Slot)> {
        self.by_id.up_from(id)
    }

    /// The jobs in states of this kind by the time of the state, if such states have a time.
    pub(crate) const fn timed(&self, kind: JobStateKind) -> Option<&BTreeSet<(Timestamp, JobId)>> {
        self.by_state.timed.of(kind)
    }

    /// The next end of a job's state, by the engine's time.
    pub(crate) fn next_timed_at(&self, skew_ms: i64) -> Timestamp {
        self.by_state.timed.next_at(skew_ms)
    }

    /// Returns true if the state of a job is due to end, by the engine's time or by the wall clock.
    pub(crate) const fn has_timed_due(&self, now: Timestamp, wall: Timestamp) -> bool {
        self.by_state.timed.has_due(now, wall)
    }

    /// The job with the next state to end.
    pub(crate) fn next_timed(&self, skew_ms: i64) -> Option<Slot> {
        self.slot(self.by_state.timed.next(skew_ms)?.1)
    }

    /// The dead job with the earliest end of retention.
    pub(crate) fn oldest_dead(&self) -> Option<Slot> {
        self.slot(self.by_state.timed.dead().first()?.1)
    }

    /// The done job with the earliest end of retention.
    pub(crate) fn oldest_done(&self) -> Option<Slot> {
        self.slot(self.by_state.timed.done().first()?.1)
    }

    /// The jobs of each state, for each realm that has any.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Realm, StateCounts)> {
        self.by_state.counts.iter()
    }

    /// The job that has a key.
    pub(crate) fn keyed(&self, queue: QueueId, protocol: Protocol, key: &[u8]) -> Option<Slot> {
        self.keys.find(&self.slab, queue, protocol, key)
    }

    /// A job that has a key in any queue of a realm, always the same one while it stays. All queues have indexes
    /// below `queues`.
    pub(crate) fn keyed_anywhere(&self, realm: Realm, key: &[u8], queues: u32) -> Option<Slot> {
        self.keys.find_anywhere(&self.slab, realm, key, queues)
    }

    fn holds_key(&self, slot: Slot, job: &Job) -> bool {
        job.key()
            .is_some_and(|key| self.keyed(job.queue, job.protocol, key) == Some(slot))
    }

    /// The job for a public name among those that `accepts` admits: the leased job with the oldest lease; if
    /// no job is leased, the oldest. A dead or done job only if there are no other candidates; then the
    /// youngest.
    pub(crate) fn named(
        &self,
        namespace: Namespace,
        name: &[u8],
        accepts: impl Fn(&Job) -> bool,
    ) -> Option<Slot> {
        let name = NameIn(namespace, name);
        let is_it = |slot: &Slot| {
            self.at(*slot)
                .is_some_and(|job| is_named(job, name) && accepts(job))
        };
        self.by_state
            .names
            .find(name, |id| self.slot(id).filter(is_it))
    }

    /// All jobs with a public name from an ID on, oldest first.
    pub(crate) fn all_named<'a>(
        &'a self,
        namespace: Namespace,
        name: &'a [u8],
        first: JobId,
    ) -> impl Iterator<Item = (JobId, Slot)> + 'a {
        let name = NameIn(namespace, name);
        let slots = self
            .by_state
            .names
            .from(name, first)
            .filter_map(|id| Some((id, self.slot(id)?)));
        slots.filter(move |(_, slot)| self.at(*slot).is_some_and(|job| is_named(job, name)))
    }

    // ---- state transitions
    // -----------------------------------------------------------------------------------------

    /// Adds a job. It can be found only by ID and name, until it is [listed](Self::list).
    pub(crate) fn insert(&mut self, job: Job) -> Slot {
        let id = job.id;
        self.by_state.names.insert(&job);
        let slot = self.slab.insert(job);
        self.by_id.set(id, slot);
        slot
    }

    /// Sets the jobs of an empty table. They can be found only by ID, until they are named and listed.
    pub(crate) fn take_over(&mut self, slab: Slab, by_id: Numbered<Slot>) {
        (self.slab, self.by_id) = (slab, by_id);
    }

    /// Adds the jobs of a page to the index of names. Doing this for adjacent jobs takes half the time of
    /// doing it among other work, because the lookups of several names in the index overlap.
    pub(crate) fn name_page(&mut self, first: Slot) {
        let Self { slab, by_state, .. } = self;
        Slab::slots_of(first)
            .filter_map(|slot| slab.at(slot))
            .for_each(|job| by_state.names.insert(job));
    }

    /// Adds a job to all other indexes. It gets the coalescing key unless another job has it.
    pub(crate) fn list(&mut self, slot: Slot, timers: &mut Timers) -> Option<&Job> {
        let job = self.slab.at(slot)?;
        self.sums.add(job.queue.namespace(), job.weight_bytes());
        self.bodies.add(&job.payload);
        if job.extra.is_some() {
            let (expires_at, timer) = expiry_of(job);
            timers.set(expires_at, timer);
            self.by_state.holders.add_collector(job);
        }
        self.by_state.enter(job, timers);
        if job.payload.has_key() {
            self.claim_key(slot, timers);
        }
        self.slab.at(slot)
    }

    /// Removes a job from all indexes.
    pub(crate) fn remove(&mut self, slot: Slot, timers: &mut Timers) -> Option<Job> {
        if self.at(slot)?.payload.has_key() {
            self.release_key(slot, timers);
        }
        let job = self.slab.remove(slot)?;
        self.by_state.leave(&job, timers);
        self.by_id.remove(job.id);
        self.by_state.names.remove(&job);
        if job.extra.is_some() {
            job.listeners()
                .iter()
                .for_each(|listener| self.by_state.holders.unlisten(job.id, *listener, 1));
            self.by_state.holders.remove_collector(&job);
            timers.cancel(expiry_of(&job).0);
        }
        self.sums
            .subtract(job.queue.namespace(), job.weight_bytes());
        self.bodies.remove(&job.payload);
        if self.by_id.is_empty() {
            self.slab.shrink_empty();
        }
        self.keys.shrink();
        Some(job)
    }

    /// Moves a job to another state. Tracked jobs record the time, by the wall clock.
    pub(crate) fn set_state(
        &mut self,
        slot: Slot,
        state: JobState,
        wall: Timestamp,
        timers: &mut Timers,
    ) -> Option<&Job> {
        let job = self.slab.at_mut(slot)?;
        self.by_state.leave(job, timers);
        job.state = state;
        // A connection-bound lease is not journalled, so it must not change a journalled time.
        if !job.lease().is_some_and(Lease::connection_bound) {
            job.touch(wall);
        }
        self.by_state.enter(job, timers);
        if job.payload.has_key() && !job.wants_key() {
            self.release_key(slot, timers);
        }
        self.slab.at(slot)
    }

    // ---- other changes ---------------------------------------------------------------------------------------------

    /// Modifies a field of a job on which no index depends: not the state, ID, queue, protocol, key, name,
    /// time of expiry, listeners or collector; and while it is ready, not the sort key or the conversion
    /// errors.
    pub(crate) fn update<T>(
        &mut self,
        slot: Slot,
        change: impl FnOnce(&mut Job) -> T,
    ) -> Option<T> {
        #[cfg(debug_assertions)]
        let indexed = self.at(slot).map(Job::indexed);
        let out = self.change(slot, change);
        #[cfg(debug_assertions)]
        assert_eq!(
            indexed,
            self.at(slot).map(Job::indexed),
            "the fields of a job on which an index depends"
        );
        out
    }

    /// Modifies a job, and updates the sum of bytes.
    pub(super) fn change<T>(
        &mut self,
        slot: Slot,
        change: impl FnOnce(&mut Job) -> T,
    ) -> Option<T> {
        let job = self.slab.at_mut(slot)?;
        let (before, was_kept) = (job.weight_bytes(), Kept::of(job));
        let (stored, body_bytes) = (job.payload.stored(), job.payload.body_len());
        let out = change(job);
        self.bodies.replace(stored, body_bytes, &job.payload);
        let namespace = job.queue.namespace();
        self.sums.move_to(namespace, before, job.weight_bytes());
        let kept = Kept::of(job);
        if kept != was_kept {
            self.by_state.keep_no_more(namespace, was_kept);
            self.by_state.keep(namespace, kept);
        }
        Some(out)
    }

    /// Increases the deliveries of a job. Returns the deliveries so far.
    pub(crate) fn count_attempt(&mut self, slot: Slot) -> Option<u32> {
        let job = self.slab.at_mut(slot)?;
        job.attempts = job.attempts.saturating_add(1);
        Some(job.attempts)
    }

    /// Records that a job of a batch has run. Returns the batch unless that was already recorded.
    pub(crate) fn set_ran(&mut self, slot: Slot) -> Option<JobId> {
        let member = self
            .slab
            .at_mut(slot)?
            .extra
            .as_deref_mut()?
            .member
            .as_mut()?;
        let first = member.role == Role::Job && !member.ran;
        member.ran |= first;
        first.then_some(member.batch)
    }

    /// Clears the conversion errors of a ready job. The ready queue must have cleared them already.
    pub(crate) fn clear_unfit(&mut self, slot: Slot) {
        self.change(slot, |job| job.unfit = Unfit::NONE);
    }

    /// Gives the job the key, if it should have it and no other job is using it. Returns `true` if the job
    /// has it now.
    pub(crate) fn claim_key(&mut self, slot: Slot, timers: &mut Timers) -> bool {
        let Some(job) = self.slab.at(slot).filter(|job| job.wants_key()) else {
            return false;
        };
        let claimed = self.keys.claim(&self.slab, slot);
        // A job that already had it has a timer; another one would be counted and never be cancelled.
        if claimed == Claimed::Now {
            timers.set(job.key_limit(), Timer::Key(job.id));
        }
        claimed != Claimed::No
    }

    /// Releases a job's key, if the job has it.
    pub(crate) fn release_key(&mut self, slot: Slot, timers: &mut Timers) {
        if self.keys.release(&self.slab, slot)
            && let Some(job) = self.slab.at(slot)
        {
            timers.cancel(job.key_limit());
        }
    }

    /// Claims the key for a finished job that is unfinished again; it loses the key if another job has it,
    /// and returns `true` in that case.
    pub(crate) fn reclaim_key(&mut self, slot: Slot, now: Timestamp, timers: &mut Timers) -> bool {
        let Some(job) = self.at(slot) else {
            return false;
        };
        if !job.wants_key()
            || self.holds_key(slot, job)
            || (job.key_limit() > now && self.claim_key(slot, timers))
        {
            return false;
        }
        self.change(slot, |job| job.payload = job.payload.without_key());
        true
    }

    /// Sets the time of a job's expiry, or removes it.
    pub(crate) fn set_expiry(&mut self, slot: Slot, expires: Expiry, timers: &mut Timers) {
        let Some(before) = self
            .at(slot)
            .filter(|job| job.expiry() != expires)
            .map(expiry_of)
        else {
            return;
        };
        timers.cancel(before.0);
        self.change(slot, |job| job.extra_mut().expires = expires);
        if let Some((at, timer)) = self.at(slot).map(expiry_of) {
            timers.set(at, timer);
        }
    }

    /// Sets the time at which a job releases the key.
    pub(crate) fn hold_key_until(&mut self, slot: Slot, until: KeyUntil, timers: &mut Timers) {
        self.release_key(slot, timers);
        self.change(slot, |job| job.extra_mut().key_until = until);
        self.claim_key(slot, timers);
    }

    /// Replaces name, body and session bytes of a ready or scheduled job with those of another submit.
    pub(crate) fn resubmit(&mut self, slot: Slot, name: &[u8], body: &Bytes, meta: &Bytes) {
        self.slab
            .at(slot)
            .into_iter()
            .for_each(|job| self.by_state.names.remove(job));
        self.change(slot, |job| {
            job.payload = Payload::new(job.key(), name, body);
            job.extra_mut().meta = meta.clone();
        });
        self.slab
            .at(slot)
            .into_iter()
            .for_each(|job| self.by_state.names.insert(job));
    }

    /// Sets the expiry of a lease, if there is one. With `only_later` it is never set to an earlier time.
    pub(crate) fn move_lease_end(
        &mut self,
        slot: Slot,
        until: Timestamp,
        only_later: bool,
        now: Timestamp,
        timers: &mut Timers,
    ) {
        let Some(job) = self.slab.at_mut(slot) else {
            return;
        };
        let JobState::Leased(lease) = &mut job.state else {
            return;
        };
        if only_later && until <= lease.until {
            return;
        }
        lease.until = until;
        // An extension is noticed when the timer fires; a shorter lease needs a new timer.
        if until < lease.alarm_at {
            timers.cancel(lease.alarm_at);
            lease.alarm_at = until.max(now);
            timers.set(lease.alarm_at, Timer::Lease(job.id));
        }
    }

    /// Handles the timer of a lease. Returns the job if the lease has expired. If the lease was extended
    /// since, the timer is set again.
    pub(crate) fn lease_due(
        &mut self,
        id: JobId,
        at: Timestamp,
        timers: &mut Timers,
    ) -> Option<Slot> {
        let slot = self.slot(id)?;
        let JobState::Leased(lease) = &mut self.slab.at_mut(slot)?.state else {
            return None;
        };
        if lease.until <= at {
            return Some(slot);
        }
        lease.alarm_at = lease.until;
        timers.cancel(at);
        timers.set(lease.until, Timer::Lease(id));
        None
    }

    /// Returns true if a job's timer that was set for this time is still live.
    pub(crate) fn has_timer(&self, at: Timestamp, timer: Timer) -> bool {
        match timer {
            Timer::Lease(id) => self
                .get(id)
                .and_then(Job::lease)
                .is_some_and(|lease| lease.alarm_at == at),
            Timer::Expiry(id) | Timer::Age(id) => self
                .get(id)
                .is_some_and(|job| expiry_of(job) == (at, timer)),
            Timer::Key(id) => {
                let keyed = self.slot(id).and_then(|slot| Some((slot, self.at(slot)?)));
                keyed.is_some_and(|(slot, job)| job.key_limit() == at && self.holds_key(slot, job))
            }
            Timer::Wait(_) | Timer::Beat(_) | Timer::Slots(_) | Timer::Gate(_) => false,
        }
    }

    // ---- invariants ------------------------------------------------------------------------------------------------

    /// Asserts that every index agrees with the jobs.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(crate) fn check(&self) {
        let jobs = || self.iter().map(|(_, job)| job);
        let (mut count, mut keyed, mut bytes, mut kept) = (0, 0, 0, Kept::default());
        for (slot, job) in self.iter() {
            count += 1;
            bytes += job.weight_bytes();
            kept.add(Kept::of(job));
            assert_eq!(
                self.slot(job.id),
                Some(slot),
                "{:?} is not where its number says",
                job.id
            );
            let holds = self.holds_key(slot, job);
            assert!(
                !holds || job.wants_key(),
                "{:?} holds a key it should have let go",
                job.id
            );
            keyed += usize::from(holds);
        }
        assert_eq!(bytes, self.bytes(), "bytes of jobs");
        assert_eq!(kept, self.by_state.kept, "bytes of jobs that are over");
        assert_eq!(count, self.by_id.len(), "jobs by number");
        assert_eq!(keyed, self.keys.len(), "jobs by key");
        self.by_state.names.check(jobs());
        self.by_state.timed.check(jobs());
        self.by_state.holders.check(jobs());
        self.by_state
            .counts
            .check(jobs().map(|job| (job.realm(), job.state.kind())));
    }
}

/// When a job expires, by the clock of the returned timer.
fn expiry_of(job: &Job) -> (Timestamp, Timer) {
    match job.expiry() {
        Expiry::At(at) => (at, Timer::Expiry(job.id)),
        Expiry::By(at) => (at, Timer::Age(job.id)),
        Expiry::Never => (Timestamp::NEVER, Timer::Age(job.id)),
    }
}
