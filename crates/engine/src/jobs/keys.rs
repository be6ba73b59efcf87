//! The index by coalescing key: which job holds a key in (queue, protocol).
//!
//! An entry holds a slot and half of its hash. The key itself stays in the job.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::half_hash::HalfHash;
use super::job::Job;
use super::slab::{Slab, Slot};
use crate::ids::{Protocol, QueueId};

/// A key is hashed with its queue's number modulo this. A search without the queue takes at most this many lookups, and
/// no memory. A key that is held in very many queues causes runs of equal hashes in the index, which this makes shorter
/// by the same factor.
const QUEUE_GROUPS: u32 = 256;

/// The jobs that hold their keys.
#[derive(Debug)]
pub(super) struct Keys {
    table: HashTable<Entry>,
    hasher: FixedState,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: HalfHash,
    slot: Slot,
}

/// Whether a job holds its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claimed {
    /// Since now.
    Now,
    /// It held it before.
    Before,
    /// Another job holds it, or it has none.
    No,
}

impl Keys {
    pub(super) const fn new(hasher: FixedState) -> Self {
        Self {
            table: HashTable::new(),
            hasher,
        }
    }

    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    fn hash(&self, queue: QueueId, protocol: Protocol, key: &[u8]) -> HalfHash {
        self.group_hash(queue.0 % QUEUE_GROUPS, protocol, key)
    }

    fn group_hash(&self, group: u32, protocol: Protocol, key: &[u8]) -> HalfHash {
        HalfHash::of(self.hasher.hash_one((group, protocol, key)))
    }

    /// The job that holds a key.
    pub(super) fn find(
        &self,
        jobs: &Slab,
        queue: QueueId,
        protocol: Protocol,
        key: &[u8],
    ) -> Option<Slot> {
        self.find_by_hash(jobs, self.hash(queue, protocol, key), queue, protocol, key)
    }

    fn find_by_hash(
        &self,
        jobs: &Slab,
        hash: HalfHash,
        queue: QueueId,
        protocol: Protocol,
        key: &[u8],
    ) -> Option<Slot> {
        let same = |keyed: &Entry| {
            keyed.hash == hash
                && jobs.at(keyed.slot).is_some_and(|j| {
                    j.queue == queue && j.protocol == protocol && j.key() == Some(key)
                })
        };
        self.table.find(hash.spread(), same).map(|keyed| keyed.slot)
    }

    /// A job that holds a key in any queue: the oldest one in the first group of queues that has one. All queues have
    /// numbers below `queues`.
    pub(super) fn find_anywhere(
        &self,
        jobs: &Slab,
        protocol: Protocol,
        key: &[u8],
        queues: u32,
    ) -> Option<Slot> {
        (0..queues.min(QUEUE_GROUPS)).find_map(|group| {
            let slots = self
                .table
                .iter_hash(self.group_hash(group, protocol, key).spread())
                .map(|keyed| keyed.slot);
            let same = |job: &&Job| {
                job.queue.0 % QUEUE_GROUPS == group
                    && job.protocol == protocol
                    && job.key() == Some(key)
            };
            let held = slots.filter_map(|slot| Some((jobs.at(slot).filter(same)?.id, slot)));
            held.min_by_key(|(id, _)| *id).map(|(_, slot)| slot)
        })
    }

    /// Makes the job hold its key, if it has one and no other job holds it. Returns whether the job holds it now.
    pub(super) fn claim(&mut self, jobs: &Slab, slot: Slot) -> Claimed {
        let Some((queue, protocol, key)) = jobs
            .at(slot)
            .and_then(|j| Some((j.queue, j.protocol, j.key()?)))
        else {
            return Claimed::No;
        };
        let hash = self.hash(queue, protocol, key);
        if let Some(holder) = self.find_by_hash(jobs, hash, queue, protocol, key) {
            return if holder == slot {
                Claimed::Before
            } else {
                Claimed::No
            };
        }
        self.table
            .insert_unique(hash.spread(), Entry { hash, slot }, |keyed| {
                keyed.hash.spread()
            });
        Claimed::Now
    }

    /// Releases the job's key. Returns whether the job held it.
    pub(super) fn release(&mut self, jobs: &Slab, slot: Slot) -> bool {
        let Some((queue, protocol, key)) = jobs
            .at(slot)
            .and_then(|j| Some((j.queue, j.protocol, j.key()?)))
        else {
            return false;
        };
        let hash = self.hash(queue, protocol, key);
        match self
            .table
            .find_entry(hash.spread(), |keyed| keyed.slot == slot)
        {
            Ok(entry) => {
                entry.remove();
                true
            }
            Err(_) => false,
        }
    }

    /// Releases memory once the index is nearly empty.
    pub(super) fn shrink(&mut self) {
        const KEEP: usize = 4096;
        if self.table.capacity() > KEEP && self.table.len() < self.table.capacity() / 16 {
            self.table
                .shrink_to(self.table.len() * 4, |entry| entry.hash.spread());
        }
    }
}
