//! The policies of all queues: setting them, and updating them as jobs and time change.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::policy::{Facts, Gate, Hold, KeyRow, KeySource, NO_KEY, Policy, PolicyRow, Starts};
use super::queue::Queue;
use super::table::Queues;
use crate::change::Change;
use crate::condition::JobReader;
use crate::held::Held;
use crate::ids::{JobId, Namespace, Protocol, QueueId, Timestamp};
use crate::jobs::{Job, JobStateKind, Jobs, Slot};
use crate::timers::Timers;

impl Queue {
    /// The same queue with a policy.
    pub(super) fn behind(mut self, gate: Option<Box<Gate>>) -> Self {
        self.gate = gate;
        self
    }

    /// The policy that applies to the queue.
    pub(crate) fn policy(&self) -> Option<&Policy> {
        self.gate.as_deref().map(|gate| &**gate.policy())
    }

    /// Returns true if jobs of the same key exclude each other.
    pub(crate) fn excludes(&self) -> bool {
        self.gate
            .as_deref()
            .is_some_and(|gate| gate.has_keys() && gate.policy().is_exclusive())
    }

    /// Returns true if the policy uses keys.
    pub(crate) fn has_keys(&self) -> bool {
        self.gate.as_deref().is_some_and(Gate::has_keys)
    }

    /// The number of waiting jobs of a key.
    pub(crate) fn waiting_of(&self, key: &[u8]) -> u32 {
        self.gate.as_deref().map_or(0, |gate| gate.waiting(key))
    }

    /// The order in which the policy lets ready jobs start: all of them, or those of a protocol.
    pub(crate) fn starts(&self, own: Option<Protocol>, now: Timestamp) -> Option<Starts<'_>> {
        let view = self.ready_in(self.scope(own));
        self.gate
            .as_deref()
            .map(|gate| gate.starts(&self.ready, view, now))
    }

    /// The policy, and what it currently permits.
    pub(crate) fn policy_row(&self) -> Option<PolicyRow> {
        let own = self.image.policy.as_deref();
        let gate = self.gate.as_deref()?;
        Some(PolicyRow {
            set: own.map(|own| (own.by.clone(), own.at)),
            ..gate.row()
        })
    }

    /// Keys with waiting or running jobs, starting at a number.
    pub(crate) fn keys_from(&self, number: u32) -> impl Iterator<Item = (u32, KeyRow)> {
        self.gate
            .as_deref()
            .into_iter()
            .flat_map(move |gate| gate.keys_from(number))
    }

    /// Replaces the policy. Returns `true` if jobs retain their keys.
    fn obey(
        &mut self,
        policy: Option<Arc<Policy>>,
        now: Timestamp,
        timers: &mut Timers,
        held: &Held,
    ) -> bool {
        let Some(policy) = policy else {
            if let Some(gate) = self.gate.take() {
                timers.cancel(gate.timer_at());
            }
            return false;
        };
        if let Some(gate) = &mut self.gate {
            return gate.change(policy, &self.image, now, timers, held);
        }
        let mut gate = Gate::new(&self.image, policy, self.bridged, held);
        gate.set_timer(timers);
        self.gate = Some(Box::new(gate));
        false
    }

    /// Updates the keys after a change of which clients see which jobs.
    pub(super) fn relist(&mut self, clear_unfit: bool) {
        if let Some(gate) = &mut self.gate {
            gate.relist(self.bridged, clear_unfit);
        }
    }
}

impl Queues {
    /// Determines the policies of these queues again. Returns the queues with a different policy.
    /// If there are any, this examines all jobs.
    pub(crate) fn renew_policies(
        &mut self,
        ids: &[QueueId],
        jobs: &mut Jobs,
        now: Timestamp,
        timers: &mut Timers,
    ) -> Vec<QueueId> {
        let mut changed = Vec::new();
        // Queues of jobs that enter again, and those among them with new keys.
        let mut entered = BTreeSet::new();
        let mut unkeyed = BTreeSet::new();
        let held = self.keys_held.clone();
        for id in ids {
            let Some(queue) = self.at(*id) else { continue };
            let policy = self.policy_of(&queue.image);
            let is_same = queue.policy() == policy.map(|policy| &**policy);
            let policy = policy.cloned();
            let Some(queue) = self.at_mut(*id) else {
                continue;
            };
            if is_same {
                if let Some(gate) = &mut queue.gate
                    && gate.pause(&queue.image.paused_keys)
                {
                    changed.push(*id);
                }
                continue;
            }
            changed.push(*id);
            entered.insert(*id);
            if !queue.obey(policy, now, timers, &held) {
                unkeyed.insert(*id);
            }
        }
        let has_jobs = |id| self.at(id).is_some_and(|queue| queue.total() > 0);
        if entered.iter().any(|id| has_jobs(*id)) {
            jobs.visit(|slot, job| {
                if entered.contains(&job.queue) {
                    if unkeyed.contains(&job.queue) {
                        self.job_keys.remove(job.id);
                    }
                    self.enter_gate(job, slot, timers);
                }
            });
        }
        for id in &changed {
            self.note_unclaimed(*id);
        }
        changed
    }

    /// The key by which the policy of its queue treats a job; empty if it has none.
    pub(crate) fn key_text(&self, job: &Job) -> Bytes {
        let number = self.job_keys.get(job.id).unwrap_or(NO_KEY);
        let gate = self.at(job.queue).and_then(|queue| queue.gate.as_deref());
        gate.and_then(|gate| gate.key_text(number))
            .unwrap_or_default()
    }

    fn enter_gate(&mut self, job: &Job, slot: Slot, timers: &mut Timers) {
        let number = self.job_keys.get(job.id).unwrap_or(NO_KEY);
        if let Some(gate) = self.gate_mut(job.queue) {
            gate.enter(job, number, slot, timers);
        }
    }

    fn gate_mut(&mut self, id: QueueId) -> Option<&mut Gate> {
        self.at_mut(id)?.gate.as_deref_mut()
    }

    /// The key of a job in a queue; empty if it has no key.
    pub(crate) fn key_of(
        &self,
        queue: QueueId,
        facts: Facts<'_>,
        reader: Option<&dyn JobReader>,
    ) -> Vec<u8> {
        self.policy(queue)
            .and_then(|policy| policy.key.as_ref())
            .map(|key| key.read(facts, reader))
            .unwrap_or_default()
    }

    /// Returns true if the policy of a queue reads keys from bodies.
    pub(crate) fn keys_are_in_bodies(&self, queue: QueueId) -> bool {
        let policy = self.policy(queue);
        let key = policy.and_then(|policy| policy.key.as_ref());
        key.is_some_and(|key| !matches!(key, KeySource::Unique(_)))
    }

    /// The key of a job; the body is passed in if it is not in memory. `None`: the key is in a body
    /// that is not available.
    fn read(
        &self,
        job: &Job,
        lent: Option<&[u8]>,
        reader: Option<&dyn JobReader>,
    ) -> Option<Vec<u8>> {
        if !self.at(job.queue).is_some_and(Queue::has_keys) {
            return Some(Vec::new());
        }
        let body = if job.payload.stored().is_none() {
            Some(job.body())
        } else {
            lent
        };
        let facts = Facts {
            protocol: job.protocol,
            body,
            unique: job.key(),
        };
        (body.is_some() || !self.keys_are_in_bodies(job.queue))
            .then(|| self.key_of(job.queue, facts, reader))
    }

    /// Assigns a key to a job, before the job enters the first state.
    pub(crate) fn add_key(&mut self, job: &Job, reader: Option<&dyn JobReader>, now: Timestamp) {
        if self.at(job.queue).is_none_or(|queue| queue.gate.is_none()) {
            return;
        }
        if let Some(key) = self.read(job, None, reader).filter(|key| !key.is_empty()) {
            self.set_key(job, &key, now);
        }
    }

    fn set_key(&mut self, job: &Job, key: &[u8], now: Timestamp) {
        let number = self
            .gate_mut(job.queue)
            .map_or(NO_KEY, |gate| gate.add(key, now));
        if number != NO_KEY {
            self.job_keys.set(job.id, number);
        }
    }

    /// Called when a job is removed, after it has left the last state.
    #[inline]
    pub(crate) fn job_removed(&mut self, job: &Job, timers: &mut Timers) {
        if self.watches_unclaimed() {
            self.note_unclaimed(job.queue);
        }
        if self.at(job.queue).is_some_and(|queue| queue.gate.is_some()) || !self.job_keys.is_empty()
        {
            self.remove_key(job, timers);
        }
    }

    fn remove_key(&mut self, job: &Job, timers: &mut Timers) {
        let number = if self.job_keys.is_empty() {
            None
        } else {
            self.job_keys.remove(job.id)
        };
        if let Some(gate) = self.gate_mut(job.queue) {
            gate.remove(number, timers);
        }
    }

    /// Returns true if a job has no key although the policy of the queue uses keys.
    pub(crate) fn lacks_key(&self, job: &Job) -> bool {
        self.at(job.queue).is_some_and(Queue::has_keys) && self.job_keys.get(job.id).is_none()
    }

    /// Records that no key could be read in a new job.
    pub(crate) fn note_keyless(&mut self, id: QueueId) {
        if let Some(gate) = self.gate_mut(id) {
            gate.note_keyless();
        }
    }

    /// Returns true if a job has this key in the queue.
    pub(crate) fn is_of_key(&self, job: &Job, key: &[u8]) -> bool {
        let gate = self
            .at(job.queue)
            .and_then(|queue| queue.gate.as_deref())
            .filter(|gate| gate.has_keys());
        gate.is_some_and(|gate| gate.is_called(self.job_keys.get(job.id).unwrap_or(NO_KEY), key))
    }

    /// Reads the key of a job again, which must be in a state. Returns `true` if the key is
    /// different.
    pub(crate) fn read_key(
        &mut self,
        job: &Job,
        slot: Slot,
        lent: Option<&[u8]>,
        reader: Option<&dyn JobReader>,
        now: Timestamp,
        timers: &mut Timers,
    ) -> bool {
        let before = self.job_keys.get(job.id).unwrap_or(NO_KEY);
        let Some(key) = self.read(job, lent, reader) else {
            return false;
        };
        let Some(gate) = self.gate_mut(job.queue) else {
            return false;
        };
        if gate.is_called(before, &key) {
            return false;
        }
        gate.leave(job, before);
        self.remove_key(job, timers);
        if !key.is_empty() {
            self.set_key(job, &key, now);
        }
        self.enter_gate(job, slot, timers);
        self.freed.push_back(job.queue);
        self.note_unclaimed(job.queue);
        true
    }

    /// Called before a job is delivered. Returns `true` if it excludes other jobs of the same key.
    pub(crate) fn start(&mut self, job: &Job, now: Timestamp, timers: &mut Timers) -> bool {
        let Self {
            by_id,
            job_keys,
            freed,
            unsaved,
            ..
        } = self;
        let queue = by_id
            .get_mut(job.queue.index() as usize)
            .and_then(Option::as_mut);
        let Some(gate) = queue.and_then(|queue| queue.gate.as_deref_mut()) else {
            return false;
        };
        let before = gate.free();
        if gate.start(job_keys.get(job.id).unwrap_or(NO_KEY), now, timers) {
            unsaved.push(job.queue);
        }
        // Tokens may have been added meanwhile.
        if gate.free() >= before && before < u32::MAX {
            freed.push_back(job.queue);
        }
        gate.has_keys() && gate.policy().is_exclusive()
    }

    /// Adds the tokens of a queue up to a moment.
    pub(crate) fn refill(&mut self, id: QueueId, now: Timestamp) {
        if let Some(gate) = self.gate_mut(id) {
            gate.refill(now);
        }
    }

    /// The timer of a queue's policy has fired.
    pub(crate) fn gate_due(
        &mut self,
        id: QueueId,
        at: Timestamp,
        now: Timestamp,
        timers: &mut Timers,
    ) {
        timers.cancel(at);
        let has_ready = self
            .at(id)
            .is_some_and(|queue| queue.jobs(JobStateKind::Ready) > 0);
        if let Some(gate) = self.gate_mut(id) {
            if gate.come_due(has_ready, now, timers) {
                self.unsaved.push(id);
            }
            self.note_unclaimed(id);
            self.freed.push_back(id);
            self.drop_if_unknown(id);
        }
    }

    /// What prevents a ready job from starting.
    pub(crate) fn hold(&self, job: &Job) -> Option<Hold> {
        self.at(job.queue)?
            .gate
            .as_deref()?
            .hold(self.job_keys.get(job.id).unwrap_or(NO_KEY), job.rank)
    }

    /// The number of ready jobs that precede a ready job of the same key, up to a limit.
    pub(crate) fn before_in_key(&self, job: &Job, max: u32) -> u32 {
        let gate = self.at(job.queue).and_then(|queue| queue.gate.as_deref());
        gate.map_or(0, |gate| {
            gate.before_in_key(self.job_keys.get(job.id).unwrap_or(NO_KEY), job, max)
        })
    }

    /// Returns true if two jobs of a queue have the same key.
    pub(crate) fn share_key(&self, one: JobId, other: JobId) -> bool {
        let key = |job| self.job_keys.get(job).unwrap_or(NO_KEY);
        key(one) == key(other)
    }

    /// Returns true if a leased job prevents ready jobs of the same key from starting.
    pub(crate) fn keeps_back(&self, job: &Job) -> bool {
        let gate = self.at(job.queue).and_then(|queue| queue.gate.as_deref());
        gate.is_some_and(|gate| gate.keeps_back(self.job_keys.get(job.id).unwrap_or(NO_KEY)))
    }

    /// Returns true if jobs of a key start in order in this queue; for `None`, in any queue.
    pub(crate) fn are_ordered(&self, namespace: Namespace, name: Option<&[u8]>) -> bool {
        let is_ordered = |queue: &Queue| queue.policy().is_some_and(|policy| policy.ordered);
        match name {
            Some(name) => self
                .named(namespace, name)
                .and_then(|id| self.at(id))
                .is_some_and(is_ordered),
            None => self.iter().any(is_ordered),
        }
    }

    // ---- across restarts
    // --------------------------------------------------------------------------------

    /// Called when all jobs are recovered, to start the timers of policies.
    pub(crate) fn set_gate_timers(&mut self, timers: &mut Timers) {
        for gate in self.gates() {
            gate.set_timer(timers);
        }
    }

    /// Called at startup, because a killed daemon may have delivered jobs with leases that were not
    /// stored.
    pub(crate) fn doubt_keys(&mut self, until: Timestamp, timers: &mut Timers) {
        for gate in self.gates() {
            gate.doubt(until, timers);
        }
    }

    /// Returns true if keys are blocked because of such jobs.
    pub(crate) fn are_in_doubt(&self) -> bool {
        self.by_id
            .iter()
            .flatten()
            .filter_map(|queue| queue.gate.as_deref())
            .any(Gate::is_in_doubt)
    }

    fn gates(&mut self) -> impl Iterator<Item = &mut Gate> {
        self.by_id
            .iter_mut()
            .flatten()
            .filter_map(|queue| queue.gate.as_deref_mut())
    }

    /// Saves the buckets that differ enough from the saved values; at an orderly stop, all of them
    /// exactly.
    pub(crate) fn save_buckets(
        &mut self,
        all: bool,
        now: Timestamp,
        timers: &mut Timers,
        changes: &mut Vec<Change>,
    ) {
        if all {
            let gated = self
                .iter()
                .filter(|queue| queue.gate.is_some())
                .map(|queue| queue.image.id);
            self.unsaved = gated.collect();
        }
        let mut unsaved = std::mem::take(&mut self.unsaved);
        unsaved.dedup();
        for id in unsaved {
            let mut saved = None;
            if let Some(gate) = self.gate_mut(id) {
                saved = gate.save(all, now);
                gate.set_timer(timers);
            }
            if self.at(id).is_some_and(|queue| queue.image.saved != saved) {
                self.set(id, |image| image.saved = saved, changes);
            }
        }
    }

    /// Returns true if buckets must be saved.
    pub(crate) const fn has_unsaved(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// Asserts that policies agree with the jobs.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn check_gates(&self, jobs: &Jobs) {
        for queue in self.iter() {
            let name = &queue.image.name;
            let policy = self.policy_of(&queue.image).map(|policy| &**policy);
            assert_eq!(queue.policy(), policy, "{name:?}: its policy");
            let own = jobs.iter().filter(|(_, job)| job.queue == queue.image.id);
            let keyed = own.map(|(slot, job)| {
                (
                    slot,
                    self.job_keys.get(job.id).unwrap_or(NO_KEY),
                    job.clone(),
                )
            });
            if let Some(gate) = &queue.gate {
                gate.check(&queue.image.paused_keys, keyed);
            }
        }
        assert!(
            self.job_keys.len() <= jobs.len(),
            "keys of jobs that are gone"
        );
    }
}
