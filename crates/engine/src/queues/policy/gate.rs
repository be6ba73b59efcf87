//! The state of the policy of one queue.

use std::sync::Arc;

use super::bucket::Bucket;
use super::key::place_of;
use super::keys::{KeyNumber, Keys, NO_KEY, Turns};
use super::starts::{Order, Starts};
use super::{Hold, KeyRow, Policy, PolicyRow, SavedRates};
use crate::held::Held;
use crate::ids::{QueueId, Timestamp};
use crate::jobs::{Job, Slot};
use crate::queues::audience::{Class, View};
use crate::queues::ready::{ReadyQueue, SortKey};
use crate::request::QueueKind;
use crate::timers::{Timer, Timers};

/// How much later than its true value a fast bucket may be saved, in milliseconds. Then such a
/// queue is saved at most once in that time, and a daemon that was killed starts jobs up to that
/// much later.
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
    /// Until when keys wait for jobs that a killed daemon may have handed out; `NEVER` if none
    /// does.
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
        queue: QueueId,
        kind: QueueKind,
        policy: Arc<Policy>,
        saved: Option<&SavedRates>,
        bridged: bool,
        held: &Held,
    ) -> Self {
        let full_at = saved.map_or(Timestamp(0), |saved| saved.full_at);
        let kept = saved.map(|saved| saved.keys.as_slice()).unwrap_or_default();
        let is_keyed = policy.has_keys() && kind == QueueKind::Work;
        let keys = is_keyed.then(|| Keys::new(&policy, bridged, kept, held));
        let bucket = policy.rate.map(|rate| Bucket::new(rate, full_at));
        let (timer_at, doubt_until) = (Timestamp::NEVER, Timestamp::NEVER);
        Self {
            queue,
            policy,
            bucket,
            saved: full_at,
            doubt_until,
            keys,
            bridged,
            timer_at,
            rate_waits: 0,
            keyless: 0,
        }
    }

    /// Changes the policy. Returns whether the keys of its jobs are forgotten. All jobs must enter
    /// again.
    pub(in crate::queues) fn change(
        &mut self,
        policy: &Arc<Policy>,
        kind: QueueKind,
        bridged: bool,
        now: Timestamp,
        timers: &mut Timers,
        held: &Held,
    ) -> bool {
        let is_keyed = policy.has_keys() && kind == QueueKind::Work;
        let keeps = is_keyed && policy.key == self.policy.key && self.keys.is_some();
        if !keeps {
            (self.keys, self.keyless) =
                (is_keyed.then(|| Keys::new(policy, bridged, &[], held)), 0);
        }
        self.bucket = Bucket::renewed(self.bucket, policy.rate, now);
        (self.policy, self.bridged) = (Arc::clone(policy), bridged);
        if let Some(keys) = &mut self.keys {
            keys.reset(policy, bridged, now);
        }
        self.set_timer(timers);
        !keeps
    }

    /// Pauses and resumes keys, if the new policy differs in nothing else.
    pub(in crate::queues) fn pause(&mut self, policy: &Arc<Policy>) -> bool {
        let is_all = Policy {
            paused: self.policy.paused.clone(),
            ..(**policy).clone()
        } == *self.policy;
        if is_all {
            let before = std::mem::replace(&mut self.policy, Arc::clone(policy));
            let changed = before.paused.symmetric_difference(&policy.paused);
            self.keys
                .iter_mut()
                .for_each(|keys| changed.clone().for_each(|key| keys.renew(key, policy)));
        }
        is_all
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
        self.keys
            .iter_mut()
            .zip(number)
            .for_each(|(keys, number)| keys.remove(number));
        self.set_timer(timers);
    }

    /// A job enters its state.
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

    /// Called when a job leaves its state. Returns whether another may start because of that.
    #[inline(never)]
    pub(in crate::queues) fn leave(&mut self, job: &Job, number: KeyNumber) -> bool {
        self.keys
            .as_mut()
            .is_some_and(|keys| keys.leave(job, number, &self.policy))
    }

    /// Called before a job is handed out. Returns whether the buckets must be saved.
    #[inline(never)]
    pub(in crate::queues) fn start(
        &mut self,
        number: KeyNumber,
        now: Timestamp,
        timers: &mut Timers,
    ) -> bool {
        self.bucket.iter_mut().for_each(|bucket| bucket.spend(now));
        if let Some(keys) = &mut self.keys {
            keys.start(number, &self.policy, now);
        }
        self.set_timer(timers);
        self.must_save(now)
    }

    /// Whether the saved buckets permit, or soon will permit, starts that the real ones do not.
    /// Keys are saved periodically.
    fn must_save(&self, now: Timestamp) -> bool {
        let is_later = self
            .bucket
            .as_ref()
            .is_some_and(|bucket| bucket.full_at() > self.saved);
        is_later || self.keys.as_ref().is_some_and(|keys| keys.save_at() <= now)
    }

    /// The buckets as they are saved: exact, or so that no start until the next time exceeds it.
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

    /// Called at startup because a killed daemon may have handed out jobs of these keys: keys with
    /// a limit on running jobs wait until this time.
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
        self.bucket.iter_mut().for_each(|bucket| bucket.refill(now));
    }

    /// When a token is added that a job may wait for, the bucket is full, or something must be
    /// saved.
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

    /// Called when the timer fires, with whether jobs were ready. Returns whether the buckets must
    /// be saved.
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

    /// How many jobs may start now by the rate of the queue.
    pub(in crate::queues) fn free(&self) -> u32 {
        self.policy
            .rate
            .map_or(u32::MAX, |_| self.bucket.as_ref().map_or(0, Bucket::tokens))
    }

    /// The next job to start among those in this view. `None`: the order of the queue decides.
    pub(in crate::queues) fn first_of(&self, view: View) -> Option<Option<(SortKey, Slot)>> {
        self.keys.as_ref().map(|keys| keys.first_of(view))
    }

    /// The next job to start of each class. `None`: the order of the queue decides.
    pub(in crate::queues) fn firsts(&self) -> Option<impl Iterator<Item = (Class, SortKey, Slot)>> {
        self.keys.as_ref().map(Keys::firsts)
    }

    /// A lower bound of the number of jobs in this view that may start now, and at least 1 if there
    /// are any. `None`: all ready jobs.
    pub(in crate::queues) fn len_of(&self, view: View) -> Option<u32> {
        self.keys
            .as_ref()
            .filter(|_| self.policy.limits_keys())
            .map(|keys| keys.len_of(view))
    }

    /// The next starts, of the jobs in a view.
    pub(in crate::queues) fn starts<'a>(
        &'a self,
        ready: &'a ReadyQueue,
        view: View,
        now: Timestamp,
    ) -> Starts<'a> {
        let mut bucket = self.bucket;
        bucket.iter_mut().for_each(|bucket| bucket.refill(now));
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
        let Some(key) = self.keys.as_ref().and_then(|keys| keys.at(number)) else {
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
        let key = self.keys.as_ref().and_then(|keys| keys.at(number));
        if let Some(key) = key
            .map(|key| key.text())
            .filter(|key| self.policy.paused.contains(key))
        {
            return Some(Hold::Paused { key });
        }
        if let Some((key, jobs)) = key.and_then(|key| Some((key, key.holders(rank, &self.policy)?)))
        {
            return Some(Hold::Key {
                key: key.text(),
                jobs,
            });
        }
        let is_out = |bucket: &&Bucket| bucket.tokens() == 0;
        if let Some((key, bucket)) =
            key.and_then(|key| Some((key, key.bucket.as_ref().filter(is_out)?)))
        {
            return Some(Hold::KeyRate {
                key: key.text(),
                until: bucket.next_at(),
            });
        }
        self.bucket
            .as_ref()
            .filter(is_out)
            .map(|bucket| Hold::Rate {
                until: bucket.next_at(),
            })
    }

    /// Whether other ready jobs wait for a leased job of this key.
    pub(in crate::queues) fn keeps_back(&self, number: KeyNumber) -> bool {
        let key = self
            .keys
            .as_ref()
            .filter(|_| self.policy.is_exclusive())
            .and_then(|keys| keys.at(number));
        key.is_some_and(|key| key.is_waited_for(&self.policy))
    }

    /// Whether the key with this number has this text, or there are no keys.
    pub(in crate::queues) fn is_called(&self, number: KeyNumber, text: &[u8]) -> bool {
        self.keys
            .as_ref()
            .is_none_or(|keys| keys.at(number).is_some_and(|key| key.text() == text))
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
            keys_paused: u32::try_from(self.policy.paused.len()).unwrap_or(u32::MAX),
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
            let (text, waiting, running) = (key.text(), key.waiting, key.running());
            (
                number,
                KeyRow {
                    paused: self.policy.paused.contains(&text),
                    key: text,
                    waiting,
                    running,
                },
            )
        })
    }

    /// Asserts that it agrees with the jobs of its queue, given each with the number of its key.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(in crate::queues) fn check(&self, jobs: impl Iterator<Item = (Slot, KeyNumber, Job)>) {
        assert!(
            self.timer_at <= self.next_at(),
            "no timer is set for a token"
        );
        assert!(self.bucket.is_none() || self.policy.rate.is_some());
        if let Some(keys) = &self.keys {
            keys.check(&self.policy, jobs);
        }
    }
}
