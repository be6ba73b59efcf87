//! The jobs of each key of a queue, and which key is next.
//!
//! A key is in the tree of a class if the first job of the key may start now. The tree is ordered
//! by priority, turn and rank. With `fair` a turn is virtual time: each start advances a key, by
//! less the higher the weight is, and a new key waits only for turns that have already started.
//! Without `fair` all turns are equal, and ranks decide. A key without jobs is removed as soon as
//! the bucket is full.

mod turns;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher as _;

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::Policy;
use super::bucket::Bucket;
use super::key::{Heads, Key, Place, counts, is_ahead, place_of};
use crate::held::{Held, Share};
use crate::ids::Timestamp;
use crate::jobs::{Job, JobState, Slot};
use crate::queues::audience::{Class, View};
use crate::queues::ready::{PART_BYTES, SortKey};

/// The minimum interval between saves of the keys' buckets, in milliseconds, plus a millisecond for
/// each bucket. A crash loses the starts since the last save.
const SAVE_MS: u64 = 1_000;

/// Additional buckets are not saved.
const SAVED_MAX: usize = 1 << 16;

pub(super) use self::turns::Turns;

/// The number of a key in the queue.
pub(in crate::queues) type KeyNumber = u32;

/// The empty key, of all jobs without a key.
pub(in crate::queues) const NO_KEY: KeyNumber = 0;

/// First jobs of keys, with the numbers of the keys.
type Tree = BTreeMap<Place, (KeyNumber, Slot)>;

/// All keys of a queue.
#[derive(Debug)]
pub(super) struct Keys {
    /// By the hashes of the texts.
    numbers: HashTable<KeyNumber>,
    hasher: RandomState,
    keys: Vec<Option<Box<Key>>>,
    free: Vec<KeyNumber>,
    /// The first jobs of keys that may start, by class. Empty trees stay.
    heads: Vec<(Class, Tree)>,
    /// The turn of the last start.
    turn: u64,
    due: BTreeSet<(Timestamp, KeyNumber)>,
    /// Paused keys, including keys without jobs.
    pub(super) paused: BTreeSet<Bytes>,
    bridged: bool,
    /// When the buckets are saved; `NEVER` if they have not been used since.
    save_at: Timestamp,
    /// The earliest time of the next save.
    save_after: Timestamp,
    held: Share,
}

impl Keys {
    /// Creates keys without jobs, with these saved buckets.
    pub(super) fn new(
        policy: &Policy,
        bridged: bool,
        kept: &[(Bytes, Timestamp)],
        held: &Held,
    ) -> Self {
        let bucket = policy.key_rate.map(|rate| Bucket::new(rate, Timestamp(0)));
        let mut keys = Self {
            numbers: HashTable::new(),
            hasher: RandomState::default(),
            keys: vec![Some(Box::new(Key::new(&[], bucket)))],
            free: Vec::new(),
            heads: Vec::new(),
            turn: 0,
            due: BTreeSet::new(),
            paused: BTreeSet::new(),
            bridged,
            save_at: Timestamp::NEVER,
            save_after: Timestamp(0),
            held: held.share(),
        };
        for (text, full_at) in kept {
            let Some(rate) = policy.key_rate else { break };
            let number = keys.number_or_new(text, policy, Timestamp(0));
            if let Some(key) = keys.at_mut(number) {
                key.bucket = Some(Bucket::new(rate, *full_at));
            }
            keys.note_due(number);
        }
        keys.held.set(keys.bytes());
        keys
    }

    /// Resets the counts of all keys for a policy: no job is ready, waits or occupies a key. Jobs
    /// that have a key retain it.
    pub(super) fn reset(&mut self, policy: &Policy, bridged: bool, now: Timestamp) {
        for key in self.keys.iter_mut().flatten() {
            **key = Key {
                jobs: key.jobs,
                is_in_doubt: key.is_in_doubt,
                is_paused: key.is_paused,
                ..Key::new(&key.text, Bucket::renewed(key.bucket, policy.key_rate, now))
            };
        }
        self.held.set(self.bytes());
        self.heads = Vec::new();
        self.due = BTreeSet::new();
        self.turn = 0;
        self.bridged = bridged;
        for number in self.all_numbers() {
            self.forget_if_idle(number);
            self.note_due(number);
        }
    }

    // ---- across restarts
    // --------------------------------------------------------------------------------

    /// When the buckets are saved.
    pub(super) const fn save_at(&self) -> Timestamp {
        self.save_at
    }

    /// The buckets that lack tokens. If there are too many, those that take longest to fill.
    pub(super) fn save(&mut self, now: Timestamp) -> Vec<(Bytes, Timestamp)> {
        let mut saved = Vec::new();
        for key in self.keys.iter().flatten() {
            if let Some(bucket) = &key.bucket
                && bucket.full_at() > now
            {
                saved.push((key.text(), bucket.full_at()));
            }
        }
        if saved.len() > SAVED_MAX {
            saved.sort_unstable_by_key(|(_, at)| Reverse(*at));
            saved.truncate(SAVED_MAX);
        }
        self.save_at = Timestamp::NEVER;
        self.save_after = now.after_ms(SAVE_MS + saved.len() as u64);
        saved
    }

    /// Prevents keys with waiting jobs from starting any for a while.
    pub(super) fn doubt(&mut self, policy: &Policy) {
        self.change_all(policy, |key| key.is_in_doubt = key.waiting > 0);
    }

    /// Unblocks keys that were blocked because of a crash.
    pub(super) fn doubt_no_more(&mut self, policy: &Policy) {
        self.change_all(policy, |key| key.is_in_doubt = false);
    }

    fn change_all(&mut self, policy: &Policy, change: impl Fn(&mut Key)) {
        for number in self.all_numbers() {
            self.change(number, policy, &change);
        }
    }

    fn all_numbers(&self) -> std::ops::Range<KeyNumber> {
        0..u32::try_from(self.keys.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn at(&self, number: KeyNumber) -> Option<&Key> {
        self.keys.get(number as usize)?.as_deref()
    }

    fn at_mut(&mut self, number: KeyNumber) -> Option<&mut Key> {
        self.keys.get_mut(number as usize)?.as_deref_mut()
    }

    /// The key with this text, if it has jobs.
    pub(super) fn named(&self, text: &[u8]) -> Option<&Key> {
        self.at(self.number_of(text)?)
    }

    fn number_of(&self, text: &[u8]) -> Option<KeyNumber> {
        if text.is_empty() {
            return Some(NO_KEY);
        }
        let is_called = |number: &KeyNumber| self.at(*number).is_some_and(|key| *key.text == *text);
        self.numbers
            .find(self.hasher.hash_one(text), is_called)
            .copied()
    }

    /// The number of keys, excluding the empty one.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Pauses these keys and resumes all others.
    pub(super) fn pause(&mut self, paused: &BTreeSet<Bytes>, policy: &Policy) {
        let before = std::mem::replace(&mut self.paused, paused.clone());
        for text in before.symmetric_difference(paused) {
            if let Some(number) = self.number_of(text) {
                self.change(number, policy, |key| key.is_paused = !key.is_paused);
            }
        }
    }

    /// Keys with jobs, starting at a number.
    pub(super) fn from(&self, number: KeyNumber) -> impl Iterator<Item = (KeyNumber, &Key)> {
        let numbered = (0..)
            .zip(&self.keys)
            .skip(number as usize)
            .filter_map(|(n, key)| Some((n, key.as_deref()?)));
        numbered.filter(|(_, key)| key.waiting > 0 || key.held > 0)
    }

    // ---- jobs of keys
    // -------------------------------------------------------------------------------------------

    /// Adds a job to a key. Returns the key's number.
    pub(super) fn add(&mut self, text: &[u8], policy: &Policy, now: Timestamp) -> KeyNumber {
        let number = self.number_or_new(text, policy, now);
        if let Some(key) = self.at_mut(number) {
            key.jobs += 1;
        }
        self.note_due(number);
        number
    }

    fn number_or_new(&mut self, text: &[u8], policy: &Policy, now: Timestamp) -> KeyNumber {
        self.number_of(text).unwrap_or_else(|| {
            let bucket = Bucket::renewed(None, policy.key_rate, now);
            // A returning key starts at the current virtual time, just before a key that has
            // started a job in this turn, so that leaving and returning gives no advantage.
            let turn = self.turn + policy.step_of(text).saturating_sub(1);
            let key = Key {
                turn,
                is_paused: self.paused.contains(text),
                ..Key::new(text, bucket)
            };
            self.held.add(key.bytes());
            let number = self.free.pop().unwrap_or_else(|| {
                self.keys.push(None);
                u32::try_from(self.keys.len() - 1).unwrap_or(u32::MAX)
            });
            if let Some(place) = self.keys.get_mut(number as usize) {
                *place = Some(Box::new(key));
            }
            let hash_of = |number: &KeyNumber| {
                let key = self.keys.get(*number as usize).and_then(Option::as_deref);
                self.hasher
                    .hash_one(key.map(|key| &*key.text).unwrap_or_default())
            };
            self.numbers
                .insert_unique(self.hasher.hash_one(text), number, hash_of);
            number
        })
    }

    /// Removes a job from a key.
    pub(super) fn remove(&mut self, number: KeyNumber) {
        if let Some(key) = self.at_mut(number) {
            key.jobs = key.jobs.saturating_sub(1);
        }
        self.forget_if_idle(number);
        self.note_due(number);
    }

    /// Removes a key without jobs, unless it lacks tokens.
    fn forget_if_idle(&mut self, number: KeyNumber) {
        let is_idle = |key: &&Key| key.jobs == 0 && key.bucket.as_ref().is_none_or(Bucket::is_full);
        let Some(key) = self.at(number).filter(is_idle).filter(|_| number != NO_KEY) else {
            return;
        };
        let hash = self.hasher.hash_one(&*key.text);
        let due_at = key.due_at;
        self.held.subtract(key.bytes());
        self.due.remove(&(due_at, number));
        if let Ok(known) = self.numbers.find_entry(hash, |known| *known == number) {
            known.remove();
        }
        if let Some(place) = self.keys.get_mut(number as usize) {
            *place = None;
            self.free.push(number);
        }
    }

    /// Adds a job of a key that enters a state.
    pub(super) fn enter(&mut self, job: &Job, number: KeyNumber, slot: Slot, policy: &Policy) {
        let (waits, holds) = counts(&job.state);
        let mut is_first = false;
        self.change(number, policy, |key| {
            key.waiting += u32::from(waits);
            key.held += u32::from(holds);
            key.is_starting &= !holds;
            if is_ahead(job, policy) {
                key.retrying.insert(job.rank);
            }
            if job.state == JobState::Ready {
                is_first = key
                    .ready
                    .insert(place_of(job, policy), Class::of(job), slot);
            }
        });
        if is_first {
            self.held.add(PART_BYTES);
        }
    }

    /// Called when a job of a key leaves a state. Returns `true` if the key may now start a job
    /// that it could not start before.
    pub(super) fn leave(&mut self, job: &Job, number: KeyNumber, policy: &Policy) -> bool {
        let (waits, holds) = counts(&job.state);
        self.change(number, policy, |key| {
            key.waiting = key.waiting.saturating_sub(waits.into());
            key.held = key.held.saturating_sub(holds.into());
            if is_ahead(job, policy) {
                key.retrying.remove(&job.rank);
            }
            if job.state == JobState::Ready {
                key.ready.remove(place_of(job, policy), Class::of(job));
            }
        })
    }

    /// Called before a job of a key is delivered, which completes the key's turn. The key starts no
    /// other job until this one is leased.
    pub(super) fn start(&mut self, number: KeyNumber, policy: &Policy, now: Timestamp) {
        let turn = self.at(number).map_or(0, |key| key.turn);
        self.turn = self.turn.max(turn);
        self.change(number, policy, |key| {
            key.is_starting = true;
            if let Some(bucket) = &mut key.bucket {
                bucket.spend(now);
            }
            key.turn += policy.step_of(&key.text);
        });
        if policy.key_rate.is_some() {
            self.save_at = self.save_after.max(now).min(self.save_at);
        }
    }

    /// Handles keys that are due: they may have tokens again, or are removed.
    pub(super) fn come_due(&mut self, now: Timestamp, policy: &Policy) {
        while let Some((_, number)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.pop_first();
            self.change(number, policy, |key| {
                key.due_at = Timestamp::NEVER;
                if let Some(bucket) = &mut key.bucket {
                    bucket.refill(now);
                }
            });
            self.forget_if_idle(number);
        }
    }

    /// When [`Self::come_due`] must be called next.
    pub(super) fn next_due(&self) -> Timestamp {
        self.due.first().map_or(Timestamp::NEVER, |(at, _)| *at)
    }

    /// Modifies a key, and updates the entries in the trees. Returns `true` if it was added to the
    /// trees.
    fn change(
        &mut self,
        number: KeyNumber,
        policy: &Policy,
        change: impl FnOnce(&mut Key),
    ) -> bool {
        let turn = self.turn;
        let bridged = self.bridged;
        let Some(key) = self.at_mut(number) else {
            return false;
        };
        change(key);
        let before = std::mem::take(&mut key.heads);
        let was_listed = before.first.is_some();
        if !was_listed {
            key.turn = key.turn.max(turn);
        }
        let after = key.heads(policy, bridged);
        let came = after.first.is_some() && !was_listed;
        if before != after {
            for (class, place, _) in before.iter() {
                if let Some(tree) = self.tree(*class) {
                    tree.remove(place);
                }
            }
            for (class, place, slot) in after.iter() {
                if let Some(tree) = self.tree(*class) {
                    tree.insert(*place, (number, *slot));
                }
            }
        }
        if let Some(key) = self.at_mut(number) {
            key.heads = after;
        }
        self.note_due(number);
        came
    }

    fn tree(&mut self, class: Class) -> Option<&mut Tree> {
        let index = self
            .heads
            .binary_search_by_key(&class, |(other, _)| *other)
            .unwrap_or_else(|index| {
                self.heads.insert(index, (class, BTreeMap::new()));
                index
            });
        self.heads.get_mut(index).map(|(_, tree)| tree)
    }

    fn note_due(&mut self, number: KeyNumber) {
        let Some(key) = self.at_mut(number) else {
            return;
        };
        let before = key.due_at;
        let at = key.next_due();
        if before != at {
            key.due_at = at;
            self.due.remove(&(before, number));
            if at < Timestamp::NEVER {
                self.due.insert((at, number));
            }
        }
    }

    /// Called when queues were bridged or isolated, or jobs can be converted again.
    pub(super) fn relist(&mut self, policy: &Policy, bridged: bool, clear_unfit: bool) {
        self.heads = Vec::new();
        self.bridged = bridged;
        for number in self.all_numbers() {
            let Some(key) = self.at_mut(number) else {
                continue;
            };
            key.heads = Heads::default();
            if clear_unfit {
                key.ready.clear_unfit();
            }
            self.change(number, policy, |_| {});
        }
        self.held.set(self.bytes());
    }

    /// The memory of the keys, without jobs.
    fn bytes(&self) -> u64 {
        self.keys.iter().flatten().map(|key| key.bytes()).sum()
    }

    // ---- which key is next
    // ------------------------------------------------------------------------------

    /// The next job to start among those in this view.
    pub(super) fn first_of(&self, view: View) -> Option<(SortKey, Slot)> {
        let trees = self.heads.iter().filter(|(class, _)| view.includes(*class));
        let first = trees
            .filter_map(|(_, tree)| tree.first_key_value())
            .min_by_key(|(place, _)| **place);
        first.map(|(place, (_, slot))| (place.sort_key(), *slot))
    }

    /// The next job to start of each class.
    pub(super) fn firsts(&self) -> impl Iterator<Item = (Class, SortKey, Slot)> {
        let first = |(class, tree): &(Class, Tree)| {
            let (place, (_, slot)) = tree.first_key_value()?;
            Some((*class, place.sort_key(), *slot))
        };
        self.heads.iter().filter_map(first)
    }

    /// The number of keys that may start a job in this view; a key with jobs of several classes is
    /// counted for each.
    pub(super) fn len_of(&self, view: View) -> u32 {
        let trees = self.heads.iter().filter(|(class, _)| view.includes(*class));
        u32::try_from(trees.map(|(_, tree)| tree.len()).sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// Asserts that the keys agree with the jobs of the queue. Each job is given with the number of the key.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn check(
        &self,
        policy: &Policy,
        jobs: impl Iterator<Item = (Slot, KeyNumber, Job)>,
    ) {
        let mut expected: BTreeMap<KeyNumber, Expected> = BTreeMap::new();
        for (_, number, job) in jobs {
            let (waits, holds) = counts(&job.state);
            let sum = expected.entry(number).or_default();
            sum.jobs += 1;
            sum.waiting += u32::from(waits);
            sum.held += u32::from(holds);
            if job.state == JobState::Ready {
                sum.ready.insert(place_of(&job, policy));
            }
            if is_ahead(&job, policy) {
                sum.retrying.insert(job.rank);
            }
        }
        let mut listed = 0;
        let mut due = 0;
        for (number, key) in (0..)
            .zip(&self.keys)
            .filter_map(|(number, key)| Some((number, key.as_deref()?)))
        {
            let Expected {
                jobs,
                waiting,
                held,
                ready,
                retrying,
            } = expected.remove(&number).unwrap_or_default();
            let text = &key.text;
            assert!(number == NO_KEY || key.jobs == jobs, "{text:?}: jobs");
            assert_eq!(
                (key.waiting, key.held),
                (waiting, held),
                "{text:?}: waiting and held"
            );
            assert_eq!(key.retrying, retrying, "{text:?}: jobs that retry");
            let own =
                std::iter::successors(key.ready.first(), |(at, _)| key.ready.after(Some(*at)));
            assert!(own.map(|(at, _)| at).eq(ready), "{text:?}: ready jobs");
            assert!(!key.is_starting, "{text:?} is starting");
            let is_paused = self.paused.contains(&**text);
            assert_eq!(key.is_paused, is_paused, "{text:?} is paused");
            assert_eq!(
                key.heads,
                key.heads(policy, self.bridged),
                "{text:?} is listed"
            );
            for (class, place, slot) in key.heads.iter() {
                let tree = self
                    .heads
                    .iter()
                    .find(|(other, _)| other == class)
                    .and_then(|(_, tree)| tree.get(place));
                assert_eq!(tree, Some(&(number, *slot)), "{text:?}: its head");
                listed += 1;
            }
            assert_eq!(key.due_at, key.next_due(), "{text:?}: its bucket");
            assert!(
                key.jobs > 0 || number == NO_KEY || key.due_at < Timestamp::NEVER,
                "{text:?} costs memory"
            );
            due += usize::from(key.due_at < Timestamp::NEVER);
        }
        assert_eq!(
            (listed, due),
            (
                self.heads.iter().map(|(_, tree)| tree.len()).sum(),
                self.due.len()
            )
        );
        assert_eq!(self.held.bytes(), self.bytes(), "bytes of keys");
        assert!(
            expected.is_empty(),
            "keys of jobs that are unknown: {expected:?}"
        );
    }
}

/// The state of a key as derived from the jobs.
#[cfg(any(test, debug_assertions, feature = "testing"))]
#[derive(Debug, Default)]
struct Expected {
    jobs: u32,
    waiting: u32,
    held: u32,
    ready: BTreeSet<SortKey>,
    retrying: BTreeSet<u64>,
}
