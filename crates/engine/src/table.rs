//! All jobs: a slab, and the indexes to find one (by number, coalescing key, public name).
//!
//! Not here: order (`line`) and time (`alarm`). An index holds slots. It holds no copies of its keys, except a hash that it
//! needs when it grows.

use std::collections::BTreeSet;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::ids::{JobId, Protocol, QueueId, Timestamp};
use crate::job::{Job, JobState, KeyUntil};
use crate::numbered::Numbered;
use crate::ready::Slot;

/// Jobs per slab page. A page is allocated and freed whole, so that a drained queue returns its memory. A page of this size
/// fills a block of 24 KiB; one more job, with the allocator's overhead, would need a block of 28 KiB.
const PAGE: usize = 255;

/// A key is hashed with its queue's number modulo this. A search without the queue takes at most this many lookups, and no
/// memory. A key that is held in very many queues causes runs of equal hashes in the index, which this makes shorter by the
/// same factor.
const QUEUE_GROUPS: u32 = 256;

#[derive(Debug)]
struct Page {
    jobs: Vec<Option<Job>>,
    used: usize,
}

/// The jobs and their indexes.
#[derive(Debug)]
pub(crate) struct Jobs {
    pages: Vec<Option<Page>>,
    free: Vec<Slot>,
    by_id: Numbered<Slot>,
    by_key: HashTable<Entry>,
    /// Named jobs by (hash of the name, number), except those that are dead or done.
    by_name: BTreeSet<(u64, JobId)>,
    /// Named jobs that are dead or done, also by (hash of the name, number).
    over_by_name: BTreeSet<(u64, JobId)>,
    /// Named jobs that are leased, by (hash of the name, start of the lease, number).
    leased_by_name: BTreeSet<(u64, Timestamp, JobId)>,
    hasher: FixedState,
    bytes: u64,
    /// The part of `bytes` that dead jobs hold.
    dead_bytes: u64,
}

/// An entry of the index by key: a slot, and half of its hash. With the hash the entry can move when the table grows, without a
/// look at the job.
#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u32,
    slot: Slot,
}

impl Entry {
    /// The table needs 64 bits that all vary.
    const fn spread(hash: u32) -> u64 {
        (hash as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Jobs {
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        Self {
            pages: Vec::new(),
            free: Vec::new(),
            by_id: Numbered::new(Slot::NONE),
            by_key: HashTable::new(),
            by_name: BTreeSet::new(),
            over_by_name: BTreeSet::new(),
            leased_by_name: BTreeSet::new(),
            hasher,
            bytes: 0,
            dead_bytes: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) const fn dead_bytes(&self) -> u64 {
        self.dead_bytes
    }

    pub(crate) fn slot(&self, id: JobId) -> Option<Slot> {
        self.by_id.get(id)
    }

    pub(crate) fn at(&self, slot: Slot) -> Option<&Job> {
        let index = slot.0 as usize;
        self.pages.get(index / PAGE)?.as_ref()?.jobs.get(index % PAGE)?.as_ref()
    }

    pub(crate) fn at_mut(&mut self, slot: Slot) -> Option<&mut Job> {
        let index = slot.0 as usize;
        self.pages.get_mut(index / PAGE)?.as_mut()?.jobs.get_mut(index % PAGE)?.as_mut()
    }

    /// Adds a job to the slab and to the indexes by number and name. The caller claims its key separately.
    pub(crate) fn insert(&mut self, job: Job) -> Slot {
        let id = job.id;
        self.bytes += job.weight_bytes();
        if !job.name().is_empty() {
            self.by_name.insert((self.hasher.hash_one(job.name()), id));
        }
        let slot = self.free_slot();
        let index = slot.0 as usize;
        if let Some(Some(page)) = self.pages.get_mut(index / PAGE) {
            page.used += 1;
            if let Some(state) = page.jobs.get_mut(index % PAGE) {
                *state = Some(job);
            }
        }
        self.by_id.set(id, slot);
        slot
    }

    /// Removes a job from the slab and from all indexes of this table. The caller has released its key.
    pub(crate) fn remove(&mut self, slot: Slot) -> Option<Job> {
        let index = slot.0 as usize;
        let page = self.pages.get_mut(index / PAGE)?;
        let job = page.as_mut()?.jobs.get_mut(index % PAGE)?.take()?;
        if let Some(inside) = page {
            inside.used -= 1;
            if inside.used == 0 {
                *page = None;
            }
        }
        self.free.push(slot);
        self.by_id.remove(job.id);
        if !job.name().is_empty() {
            self.by_name.remove(&(self.hasher.hash_one(job.name()), job.id));
        }
        self.bytes -= job.weight_bytes();
        self.shrink();
        Some(job)
    }

    /// Applies a change that may alter a job's weight.
    pub(crate) fn reweigh<T>(&mut self, slot: Slot, change: impl FnOnce(&mut Job) -> T) -> Option<T> {
        let job = self.at_mut(slot)?;
        let before = job.weight_bytes();
        let out = change(job);
        let (after, is_dead) = (job.weight_bytes(), matches!(job.state, JobState::Dead(_)));
        self.bytes = self.bytes - before + after;
        if is_dead {
            self.dead_bytes = self.dead_bytes - before + after;
        }
        Some(out)
    }

    /// The caller must call this after a job has become dead, and before it leaves that state.
    pub(crate) fn count_dead(&mut self, slot: Slot, comes: bool) {
        let bytes = self.at(slot).map_or(0, Job::weight_bytes);
        self.dead_bytes = if comes { self.dead_bytes + bytes } else { self.dead_bytes.saturating_sub(bytes) };
    }

    fn free_slot(&mut self) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            // Fill the new page's free list backwards, so that slots are used in order.
            let page = u32::try_from(self.pages.len()).unwrap_or(u32::MAX / 1024);
            let size = u32::try_from(PAGE).unwrap_or(u32::MAX);
            self.pages.push(None);
            self.free.extend((page * size + 1..(page + 1) * size).rev().map(Slot));
            Slot(page * size)
        });
        if let Some(page) = self.pages.get_mut(slot.0 as usize / PAGE) {
            page.get_or_insert_with(|| Page { jobs: std::iter::repeat_with(|| None).take(PAGE).collect(), used: 0 });
        }
        slot
    }

    /// Releases memory of the slab and the indexes once they are nearly empty.
    fn shrink(&mut self) {
        const KEEP: usize = 4096;
        if self.by_id.is_empty() && self.pages.len() > KEEP / PAGE {
            self.pages = Vec::new();
            self.free = Vec::new();
        }
        if self.by_key.capacity() > KEEP && self.by_key.len() < self.by_key.capacity() / 16 {
            self.by_key.shrink_to(self.by_key.len() * 4, |entry| Entry::spread(entry.hash));
        }
    }

    /// Slots in use from `first` on, in order.
    pub(crate) fn slots_from(&self, first: u32) -> impl Iterator<Item = (Slot, &Job)> {
        let first = first as usize;
        self.pages.iter().enumerate().skip(first / PAGE).filter_map(|(n, page)| Some((n, page.as_ref()?))).flat_map(
            move |(n, page)| {
                page.jobs.iter().enumerate().filter_map(move |(i, job)| {
                    let index = n * PAGE + i;
                    (index >= first).then_some(())?;
                    Some((Slot(u32::try_from(index).ok()?), job.as_ref()?))
                })
            },
        )
    }

    /// Slab places from `first` on, in order, with their jobs. Of a freed page only the first place.
    pub(crate) fn places_from(&self, first: u32) -> impl Iterator<Item = (Slot, Option<&Job>)> {
        let first = first as usize;
        let pages = self.pages.iter().enumerate().skip(first / PAGE);
        pages.flat_map(move |(n, page)| {
            let from = if n == first / PAGE { first % PAGE } else { 0 };
            let jobs = page.as_ref().and_then(|page| page.jobs.get(from..));
            let gone = jobs.is_none().then_some(None);
            let jobs = jobs.unwrap_or_default().iter().map(Option::as_ref).chain(gone);
            let slot = move |(i, job)| Some((Slot(u32::try_from(n * PAGE + from + i).ok()?), job));
            jobs.enumerate().filter_map(slot)
        })
    }

    // ---- coalescing keys -------------------------------------------------------------------------------------------

    fn key_hash(&self, queue: QueueId, protocol: Protocol, key: &[u8]) -> u32 {
        self.group_hash(queue.0 % QUEUE_GROUPS, protocol, key)
    }

    fn group_hash(&self, group: u32, protocol: Protocol, key: &[u8]) -> u32 {
        let hash = self.hasher.hash_one((group, protocol, key));
        // `Entry::spread` computes the other half from this one.
        u32::try_from(hash >> 32).unwrap_or_default()
    }

    /// The job that holds a key.
    pub(crate) fn keyed(&self, queue: QueueId, protocol: Protocol, key: &[u8]) -> Option<Slot> {
        self.keyed_by_hash(self.key_hash(queue, protocol, key), queue, protocol, key)
    }

    fn keyed_by_hash(&self, hash: u32, queue: QueueId, protocol: Protocol, key: &[u8]) -> Option<Slot> {
        let same = |keyed: &Entry| {
            keyed.hash == hash
                && self
                    .at(keyed.slot)
                    .is_some_and(|j| j.queue == queue && j.protocol == protocol && j.key() == Some(key))
        };
        self.by_key.find(Entry::spread(hash), same).map(|keyed| keyed.slot)
    }

    /// A job that holds a key in any queue: the oldest one in the first group of queues that has one. All queues have numbers
    /// below `queues`.
    pub(crate) fn keyed_anywhere(&self, protocol: Protocol, key: &[u8], queues: u32) -> Option<Slot> {
        (0..queues.min(QUEUE_GROUPS)).find_map(|group| {
            let slots =
                self.by_key.iter_hash(Entry::spread(self.group_hash(group, protocol, key))).map(|keyed| keyed.slot);
            let same =
                |job: &&Job| job.queue.0 % QUEUE_GROUPS == group && job.protocol == protocol && job.key() == Some(key);
            let held = slots.filter_map(|slot| Some((self.at(slot).filter(same)?.id, slot)));
            held.min_by_key(|(id, _)| *id).map(|(_, slot)| slot)
        })
    }

    /// Makes the job hold its key, if it has one and no other job holds it. Returns whether the job holds it now.
    pub(crate) fn claim_key(&mut self, slot: Slot) -> bool {
        let Some((queue, protocol, key)) = self.at(slot).and_then(|j| Some((j.queue, j.protocol, j.key()?))) else {
            return false;
        };
        let hash = self.key_hash(queue, protocol, key);
        if let Some(holder) = self.keyed_by_hash(hash, queue, protocol, key) {
            return holder == slot;
        }
        self.by_key.insert_unique(Entry::spread(hash), Entry { hash, slot }, |keyed| Entry::spread(keyed.hash));
        true
    }

    /// Releases the job's key. Returns whether the job held it.
    pub(crate) fn release_key(&mut self, slot: Slot) -> bool {
        let Some((queue, protocol, key)) = self.at(slot).and_then(|j| Some((j.queue, j.protocol, j.key()?))) else {
            return false;
        };
        let hash = self.key_hash(queue, protocol, key);
        match self.by_key.find_entry(Entry::spread(hash), |keyed| keyed.slot == slot) {
            Ok(entry) => {
                entry.remove();
                true
            }
            Err(_) => false,
        }
    }

    /// Whether a job in this state should hold its key.
    pub(crate) fn wants_key(job: &Job) -> bool {
        let until = job.extra.as_deref().map(|extra| extra.key_until).unwrap_or_default();
        let is_free = match until {
            KeyUntil::End | KeyUntil::EndOr(_) => is_over(job),
            KeyUntil::Start | KeyUntil::StartOr(_) => is_over(job) || job.attempts > 0,
            KeyUntil::Gone => matches!(job.state, JobState::Dead(_)),
        };
        job.payload.has_key() && !is_free
    }

    // ---- public names ----------------------------------------------------------------------------------------------

    /// The job for a public name: the one leased first; if none is leased, the oldest. A dead or done job only if there is no
    /// other; of those the youngest.
    pub(crate) fn named(&self, name: &[u8]) -> Option<Slot> {
        let hash = self.hasher.hash_one(name);
        let found = |id: JobId| self.slot(id).filter(|slot| self.at(*slot).is_some_and(|job| job.name() == name));
        let (first, last) = (JobId(0), JobId(u64::MAX));
        let leased = self.leased_by_name.range((hash, Timestamp(0), first)..=(hash, Timestamp::NEVER, last));
        let leased = leased.map(|(.., id)| *id).find_map(found);
        let live = || self.by_name.range((hash, first)..=(hash, last)).find_map(|(_, id)| found(*id));
        let over = || self.over_by_name.range((hash, first)..=(hash, last)).rev().find_map(|(_, id)| found(*id));
        leased.or_else(live).or_else(over)
    }

    /// All jobs with a public name from a number on, oldest first.
    pub(crate) fn all_named<'a>(&'a self, name: &'a [u8], first: JobId) -> impl Iterator<Item = (JobId, Slot)> + 'a {
        let hash = self.hasher.hash_one(name);
        let same_hash = |index: &'a BTreeSet<(u64, JobId)>| {
            index.range((hash, first)..=(hash, JobId(u64::MAX))).map(|(_, id)| *id).peekable()
        };
        let (mut live, mut over) = (same_hash(&self.by_name), same_hash(&self.over_by_name));
        let merged = std::iter::from_fn(move || match (live.peek(), over.peek()) {
            (Some(one), Some(other)) if other < one => over.next(),
            (Some(_), _) => live.next(),
            (None, _) => over.next(),
        });
        let slots = merged.filter_map(|id| Some((id, self.slot(id)?)));
        slots.filter(move |(_, slot)| self.at(*slot).is_some_and(|job| job.name() == name))
    }

    /// The caller must call this after a job has entered a state.
    pub(crate) fn name_place(&mut self, slot: Slot) {
        let Some(job) = self.at(slot).filter(|job| !job.name().is_empty()) else { return };
        let (hash, id) = (self.hasher.hash_one(job.name()), job.id);
        if let Some(taken_at) = job.lease().map(|lease| lease.taken_at) {
            self.leased_by_name.insert((hash, taken_at, id));
        } else if is_over(job) {
            self.by_name.remove(&(hash, id));
            self.over_by_name.insert((hash, id));
        }
    }

    /// The caller must call this before a job leaves its state.
    pub(crate) fn unname_place(&mut self, slot: Slot) {
        let Some(job) = self.at(slot).filter(|job| !job.name().is_empty()) else { return };
        let (hash, id) = (self.hasher.hash_one(job.name()), job.id);
        if let Some(taken_at) = job.lease().map(|lease| lease.taken_at) {
            self.leased_by_name.remove(&(hash, taken_at, id));
        } else if is_over(job) {
            self.over_by_name.remove(&(hash, id));
            self.by_name.insert((hash, id));
        }
    }

    /// Asserts the invariants between the indexes of this table.
    pub(crate) fn check(&self) {
        let (mut bytes, mut dead_bytes) = (0, 0);
        let mut count = 0;
        let (mut keyed, mut named, mut leased_named) = (0, 0, 0);
        for (slot, job) in self.slots_from(0) {
            count += 1;
            bytes += job.weight_bytes();
            dead_bytes += if matches!(job.state, JobState::Dead(_)) { job.weight_bytes() } else { 0 };
            assert_eq!(self.slot(job.id), Some(slot), "{:?} is not where its number says", job.id);
            if let Some(key) = job.key() {
                let holds = self.keyed(job.queue, job.protocol, key) == Some(slot);
                assert!(!holds || Self::wants_key(job), "{:?} holds a key it should have let go", job.id);
                keyed += usize::from(holds);
            }
            if !job.name().is_empty() {
                named += 1;
                leased_named += usize::from(job.lease().is_some());
                let (hash, id) = (self.hasher.hash_one(job.name()), job.id);
                let index = if is_over(job) { &self.over_by_name } else { &self.by_name };
                assert!(index.contains(&(hash, id)), "{id:?} is not found by name");
                if let Some(lease) = job.lease() {
                    assert!(self.leased_by_name.contains(&(hash, lease.taken_at, id)), "{id:?} is leased");
                }
            }
        }
        assert_eq!(bytes, self.bytes, "bytes of jobs");
        assert_eq!(dead_bytes, self.dead_bytes, "bytes of dead jobs");
        assert_eq!(count, self.by_id.len(), "jobs by number");
        assert_eq!(keyed, self.by_key.len(), "jobs by key");
        assert_eq!(named, self.by_name.len() + self.over_by_name.len(), "jobs by name");
        assert_eq!(leased_named, self.leased_by_name.len(), "leased jobs by name");
    }
}

/// Whether the job will not run again unless a client asks for it.
const fn is_over(job: &Job) -> bool {
    matches!(job.state, JobState::Dead(_) | JobState::Done(_))
}
