//! The state of a queue's policy.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::bucket::Bucket;
use super::key::{Key, place_of};
use super::keys::{KeyNumber, Keys, NO_KEY, Turns};
use super::starts::{Order, Starts};
use super::{Hold, KeyRow, Policy, PolicyRow, SavedRates};
use crate::held::Held;
use crate::ids::{QueueId, Timestamp};
use crate::jobs::{Job, Slot};
use crate::queues::audience::{Class, View};
use crate::queues::queue::QueueImage;
use crate::queues::ready::{ReadyQueue, SortKey};
use crate::request::QueueKind;
use crate::timers::{Timer, Timers};

/// How much later than the true value a fast bucket may be saved, in milliseconds. Such a queue is
/// then saved only once in that time, and after a crash, jobs start up to that much later.
const AHEAD_MS: u64 = 1_000;

/// Decides which jobs of a queue with a policy may start.
#[derive(Debug)]
pub(in crate::queues) struct Gate {
    queue: QueueId,
    policy: Arc<Policy>,
    /// Present if starts are limited.
    bucket: Option<Bucket>,
    /// When the saved bucket is full, which is not before the real one is.
    saved: Timestamp,
    /// Until when keys are blocked because of jobs that a killed daemon may have delivered; `NEVER`
    /// if no key is.
    doubt_until: Timestamp,
    /// Present if the policy uses keys.
    keys: Option<Keys>,
    bridged: bool,
    timer_at: Timestamp,
    rate_waits: u64,
    keyless: u64,
}

impl Gate {
    /// Entries of `cycle` queues have no keys. Saved buckets continue; new ones are full.
    pub(in crate::queues) fn new(
        image: &QueueImage,
        policy: Arc<Policy>,
        bridged: bool,
        held: &Held,
    ) -> Self {
        let saved = image.saved.as_deref();
        let full_at = saved.map_or(Timestamp(0), |saved| saved.full_at);
        let mut gate = Self {
            queue: image.id,
            bucket: policy.rate.map(|rate| Bucket::new(rate, full_at)),
            saved: full_at,
            doubt_until: Timestamp::NEVER,
            keys: None,
            policy,
            bridged,
            timer_at: Timestamp::NEVER,
            rate_waits: 0,
            keyless: 0,
        };
        let kept = saved.map(|saved| saved.keys.as_slice()).unwrap_or_default();
        gate.begin_keys(image, kept, held);
        gate.pause(&image.paused_keys);
        gate
    }

    fn begin_keys(&mut self, image: &QueueImage, kept: &[(Bytes, Timestamp)], held: &Held) {
        let is_keyed = self.policy.has_keys() && image.kind == QueueKind::Work;
        self.keys = is_keyed.then(|| Keys::new(&self.policy, self.bridged, kept, held));
        self.keyless = 0;
    }

    /// Replaces the policy. Returns `true` if jobs retain their keys. All jobs must enter again.
    pub(in crate::queues) fn change(
        &mut self,
        policy: Arc<Policy>,
        image: &QueueImage,
        now: Timestamp,
        timers: &mut Timers,
        held: &Held,
    ) -> bool {
        let keeps = policy.has_keys() && policy.key == self.policy.key && self.keys.is_some();
        self.bucket = Bucket::renewed(self.bucket, policy.rate, now);
        self.policy = policy;
        if !keeps {
            self.begin_keys(image, &[], held);
        }
        if let Some(keys) = &mut self.keys {
            keys.reset(&self.policy, self.bridged, now);
        }
        self.pause(&image.paused_keys);
        self.set_timer(timers);
        keeps
    }

    /// Pauses these keys, and resumes all others. Returns `true` if that has any effect.
    pub(in crate::queues) fn pause(&mut self, paused: &BTreeSet<Bytes>) -> bool {
        let Some(keys) = &mut self.keys else {
            return false;
        };
        let differs = keys.paused != *paused;
        if differs {
            keys.pause(paused, &self.policy);
        }
        differs
    }

    pub(in crate::queues) const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    pub(in crate::queues) const fn timer_at(&self) -> Timestamp {
        self.timer_at
    }

    pub(in crate::queues) const fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    // ---- jobs ------------------------------------------------------------------------------------------------------

    /// Adds a job with this key. Returns the key's number.
    pub(in crate::queues) fn add(&mut self, key: &[u8], now: Timestamp) -> KeyNumber {
        self.keys
            .as_mut()
            .map_or(NO_KEY, |keys| keys.add(key, &self.policy, now))
    }

    /// Records that no key could be read in a new job.
    pub(in crate::queues) const fn note_keyless(&mut self) {
        self.keyless += 1;
    }

    /// Removes a job of a key.
    pub(in crate::queues) fn remove(&mut self, number: Option<KeyNumber>, timers: &mut Timers) {
        if let Some(keys) = &mut self.keys
            && let Some(number) = number
        {
            keys.remove(number);
        }
        self.set_timer(timers);
    }

    /// Adds a job that enters a state.
    #[inline(never)]
    pub(in crate::queues) fn enter(
        &mut self,
        job: &Job,
        number: KeyNumber,
        slot: Slot,
        timers: &mut Timers,
    ) {
        if let Some(keys) = &mut self.keys {
            keys.enter(job, number, slot, &self.policy);
        }
        self.set_timer(timers);
    }

    /// Called when a job leaves a state. Returns `true` if another job may start because of that.
    #[inline(never)]
    pub(in crate::queues) fn leave(&mut self, job: &Job, number: KeyNumber) -> bool {
        self.keys
            .as_mut()
            .is_some_and(|keys| keys.leave(job, number, &self.policy))
    }

    /// Called before a job is delivered. Returns `true` if the buckets must be saved.
    #[inline(never)]
    pub(in crate::queues) fn start(
        &mut self,
        number: KeyNumber,
        now: Timestamp,
        timers: &mut Timers,
    ) -> bool {
        if let Some(bucket) = &mut self.bucket {
            bucket.spend(now);
        }
        if let Some(keys) = &mut self.keys {
            keys.start(number, &self.policy, now);
        }
        self.set_timer(timers);
        self.must_save(now)
    }

    /// Returns true if the saved buckets permit, or soon will permit, starts that the real ones do
    /// not. Buckets of keys are saved periodically instead.
    fn must_save(&self, now: Timestamp) -> bool {
        let is_later = self
            .bucket
            .as_ref()
            .is_some_and(|bucket| bucket.full_at() > self.saved);
        is_later || self.keys.as_ref().is_some_and(|keys| keys.save_at() <= now)
    }

    /// The buckets to save: exact, or such that no start before the next save exceeds the rate.
    pub(in crate::queues) fn save(
        &mut self,
        exactly: bool,
        now: Timestamp,
    ) -> Option<Box<SavedRates>> {
        let slow =
            |bucket: &Bucket| exactly || bucket.token_ms() >= AHEAD_MS || bucket.full_at() <= now;
        let keys = self
            .keys
            .as_mut()
            .map(|keys| keys.save(now))
            .unwrap_or_default();
        self.saved = match &self.bucket {
            None => Timestamp(0),
            Some(bucket) if slow(bucket) => bucket.full_at(),
            Some(bucket) => bucket.full_at().after_ms(AHEAD_MS + keys.len() as u64),
        };
        let is_full = self.saved <= now && keys.is_empty();
        (!is_full).then(|| {
            Box::new(SavedRates {
                full_at: self.saved,
                keys,
            })
        })
    }

    /// Called at startup because a killed daemon may have delivered jobs of these keys: keys with a
    /// limit on running jobs are blocked until this time.
    pub(in crate::queues) fn doubt(&mut self, until: Timestamp, timers: &mut Timers) {
        if let Some(keys) = self.keys.as_mut().filter(|_| self.policy.is_exclusive()) {
            keys.doubt(&self.policy);
            self.doubt_until = until;
            self.set_timer(timers);
        }
    }

    pub(in crate::queues) fn is_in_doubt(&self) -> bool {
        self.doubt_until < Timestamp::NEVER
    }

    /// Called when the visibility of jobs has changed.
    pub(in crate::queues) fn relist(&mut self, bridged: bool, clear_unfit: bool) {
        self.bridged = bridged;
        if let Some(keys) = &mut self.keys {
            keys.relist(&self.policy, bridged, clear_unfit);
        }
    }

    // ---- time ------------------------------------------------------------------------------------------------------

    /// Adds the tokens up to a moment.
    pub(in crate::queues) fn refill(&mut self, now: Timestamp) {
        if let Some(bucket) = &mut self.bucket {
            bucket.refill(now);
        }
    }

    /// The next time at which a blocked job gets a token, the bucket is full, or a save is due.
    fn next_at(&self) -> Timestamp {
        let keys = self
            .keys
            .as_ref()
            .map_or(Timestamp::NEVER, |keys| keys.next_due().min(keys.save_at()));
        let bucket = self.bucket.as_ref().filter(|bucket| !bucket.is_full());
        let next_at = |bucket: &Bucket| {
            if bucket.tokens() == 0 {
                bucket.next_at()
            } else {
                bucket.full_at()
            }
        };
        bucket
            .map_or(Timestamp::NEVER, next_at)
            .min(keys)
            .min(self.doubt_until)
    }

    pub(in crate::queues) fn set_timer(&mut self, timers: &mut Timers) {
        let at = self.next_at();
        if at < self.timer_at {
            timers.cancel(self.timer_at);
            self.timer_at = at;
            timers.set(at, Timer::Gate(self.queue));
        }
    }

    /// Called when the timer fires. `has_ready` is true if jobs were ready. Returns `true` if the
    /// buckets must be saved.
    pub(in crate::queues) fn come_due(
        &mut self,
        has_ready: bool,
        now: Timestamp,
        timers: &mut Timers,
    ) -> bool {
        self.timer_at = Timestamp::NEVER;
        let was_out = self.free() == 0;
        self.refill(now);
        self.rate_waits += u64::from(was_out && self.free() > 0 && has_ready);
        if let Some(keys) = &mut self.keys {
            keys.come_due(now, &self.policy);
            if self.doubt_until <= now {
                keys.doubt_no_more(&self.policy);
                self.doubt_until = Timestamp::NEVER;
            }
        }
        let must_save = self.must_save(now);
        if !must_save {
            self.set_timer(timers);
        }
        must_save
    }

    // ---- which jobs may start
    // ---------------------------------------------------------------------------

    /// The number of jobs that may start now by the rate of the queue.
    pub(in crate::queues) fn free(&self) -> u32 {
        self.policy
            .rate
            .map_or(u32::MAX, |_| self.bucket.as_ref().map_or(0, Bucket::tokens))
    }

    /// The job of this view that starts next.
    pub(in crate::queues) fn first_of(
        &self,
        ready: &ReadyQueue,
        view: View,
    ) -> Option<(SortKey, Slot)> {
        match &self.keys {
            Some(keys) => keys.first_of(view),
            None => ready.first_of(view),
        }
    }

    /// The next job to start of each class. `None`: the order of the queue decides.
    pub(in crate::queues) fn firsts(&self) -> Option<impl Iterator<Item = (Class, SortKey, Slot)>> {
        self.keys.as_ref().map(Keys::firsts)
    }

    /// A number of jobs in this view that may start now: if there are any, at least one.
    pub(in crate::queues) fn len_of(&self, ready: &ReadyQueue, view: View) -> u32 {
        match &self.keys {
            Some(keys) if self.policy.limits_keys() || !keys.paused.is_empty() => keys.len_of(view),
            Some(_) | None => ready.len_of(view),
        }
    }

    /// The next starts, of the jobs in a view.
    pub(in crate::queues) fn starts<'a>(
        &'a self,
        ready: &'a ReadyQueue,
        view: View,
        now: Timestamp,
    ) -> Starts<'a> {
        let mut bucket = self.bucket;
        if let Some(bucket) = &mut bucket {
            bucket.refill(now);
        }
        let order = match &self.keys {
            Some(keys) => Order::Turns(Turns::new(keys, &self.policy, view, self.doubt_until)),
            None => Order::Ranks {
                ready,
                view,
                after: None,
            },
        };
        Starts { now, bucket, order }
    }

    /// The number of ready jobs of this key that precede a job, up to a limit.
    pub(in crate::queues) fn before_in_key(&self, number: KeyNumber, job: &Job, max: u32) -> u32 {
        let own = place_of(job, &self.policy);
        let Some(key) = self.key(number) else {
            return 0;
        };
        let all = std::iter::successors(key.ready.first(), |(at, _)| key.ready.after(Some(*at)));
        let before = all
            .take(max as usize)
            .take_while(|(at, _)| *at < own)
            .count();
        u32::try_from(before).unwrap_or(max)
    }

    /// What prevents a ready job of this key from starting.
    pub(in crate::queues) fn hold(&self, number: KeyNumber, rank: u64) -> Option<Hold> {
        let is_out = |bucket: &&Bucket| bucket.tokens() == 0;
        if let Some(key) = self.key(number) {
            if key.is_paused {
                return Some(Hold::Paused { key: key.text() });
            }
            if let Some(jobs) = key.holders(rank, &self.policy) {
                return Some(Hold::Key {
                    key: key.text(),
                    jobs,
                });
            }
            if let Some(bucket) = key.bucket.as_ref().filter(is_out) {
                return Some(Hold::KeyRate {
                    key: key.text(),
                    until: bucket.next_at(),
                });
            }
        }
        let bucket = self.bucket.as_ref().filter(is_out)?;
        Some(Hold::Rate {
            until: bucket.next_at(),
        })
    }

    fn key(&self, number: KeyNumber) -> Option<&Key> {
        self.keys.as_ref()?.at(number)
    }

    /// The text of the key with this number.
    pub(in crate::queues) fn key_text(&self, number: KeyNumber) -> Option<Bytes> {
        self.key(number)
            .map(|key| Bytes::copy_from_slice(&key.text))
    }

    /// Whether other ready jobs wait for a leased job of this key.
    pub(in crate::queues) fn keeps_back(&self, number: KeyNumber) -> bool {
        self.policy.is_exclusive()
            && self
                .key(number)
                .is_some_and(|key| key.is_waited_for(&self.policy))
    }

    /// Returns true if the key with this number has this text, or there are no keys.
    pub(in crate::queues) fn is_called(&self, number: KeyNumber, text: &[u8]) -> bool {
        self.keys.is_none() || self.key(number).is_some_and(|key| *key.text == *text)
    }

    /// The number of waiting jobs of a key.
    pub(in crate::queues) fn waiting(&self, key: &[u8]) -> u32 {
        self.keys
            .as_ref()
            .and_then(|keys| keys.named(key))
            .map_or(0, |key| key.waiting)
    }

    /// The policy, and what it currently permits.
    pub(in crate::queues) fn row(&self) -> PolicyRow {
        let next = self
            .bucket
            .as_ref()
            .filter(|bucket| bucket.tokens() == 0)
            .map(Bucket::next_at);
        let tokens = self.policy.rate.map(|_| self.free());
        PolicyRow {
            policy: (*self.policy).clone(),
            tokens,
            next_start_at: next,
            rate_waits: self.rate_waits,
            keys: self
                .keys
                .as_ref()
                .map_or(0, |keys| u32::try_from(keys.len()).unwrap_or(u32::MAX)),
            keys_paused: self.keys.as_ref().map_or(0, |keys| {
                u32::try_from(keys.paused.len()).unwrap_or(u32::MAX)
            }),
            keyless: self.keyless,
            set: None,
            section: None,
        }
    }

    /// Keys with waiting or running jobs, starting at a number.
    pub(in crate::queues) fn keys_from(
        &self,
        number: KeyNumber,
    ) -> impl Iterator<Item = (KeyNumber, KeyRow)> {
        let keys = self
            .keys
            .as_ref()
            .into_iter()
            .flat_map(move |keys| keys.from(number));
        keys.map(|(number, key)| {
            let row = KeyRow {
                key: key.text(),
                waiting: key.waiting,
                running: key.running(),
                paused: key.is_paused,
            };
            (number, row)
        })
    }

    /// Asserts that it agrees with the jobs of the queue. Each job is given with the number of the
    /// key.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(in crate::queues) fn check(
        &self,
        paused: &BTreeSet<Bytes>,
        jobs: impl Iterator<Item = (Slot, KeyNumber, Job)>,
    ) {
        assert!(
            self.timer_at <= self.next_at(),
            "no timer is set for a token"
        );
        assert!(self.bucket.is_none() || self.policy.rate.is_some());
        if let Some(keys) = &self.keys {
            assert_eq!(keys.paused, *paused, "paused keys");
            keys.check(&self.policy, jobs);
        }
    }
}
