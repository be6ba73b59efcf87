//! The index by coalescing key: finds the job that has a key in (queue, protocol).
//!
//! An entry contains a slot and half of the hash. The key itself is stored in the job.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::half_hash::HalfHash;
use super::job::Job;
use super::slab::{Slab, Slot};
use crate::ids::{Protocol, QueueId, Realm};

/// A key is hashed with the namespace and the queue's index modulo this. A search in all queues of a namespace needs only this many lookups, and
/// no memory. A key that is in use in very many queues causes runs of equal hashes in the index, which are
/// shorter by the same factor.
const QUEUE_GROUPS: u32 = 256;

/// The first queue of a namespace with which a queue shares a group.
const fn group_of(queue: QueueId) -> QueueId {
    QueueId::new(queue.namespace(), queue.index() % QUEUE_GROUPS)
}

/// The jobs that have keys.
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

/// The result of a claim to a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claimed {
    /// The job has just received it.
    Now,
    /// The job already had it.
    Before,
    /// Another job has it, or the job has no key.
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
        self.group_hash(group_of(queue), protocol, key)
    }

    fn group_hash(&self, group: QueueId, protocol: Protocol, key: &[u8]) -> HalfHash {
        HalfHash::of(self.hasher.hash_one((group, protocol, key)))
    }

    /// The job that has a key.
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

    /// A job that has a key in any queue of a realm: the oldest job in the first group of queues that has one.
    /// All queues have indexes below `queues`.
    pub(super) fn find_anywhere(
        &self,
        jobs: &Slab,
        realm: Realm,
        key: &[u8],
        queues: u32,
    ) -> Option<Slot> {
        let Realm {
            namespace,
            protocol,
        } = realm;
        (0..queues.min(QUEUE_GROUPS)).find_map(|index| {
            let group = QueueId::new(namespace, index);
            let slots = self
                .table
                .iter_hash(self.group_hash(group, protocol, key).spread())
                .map(|keyed| keyed.slot);
            let same = |job: &&Job| {
                group_of(job.queue) == group && job.protocol == protocol && job.key() == Some(key)
            };
            let held = slots.filter_map(|slot| Some((jobs.at(slot).filter(same)?.id, slot)));
            held.min_by_key(|(id, _)| *id).map(|(_, slot)| slot)
        })
    }

    /// Gives the job the key, if it was pushed with one and no other job is using it.
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

    /// Releases the job's key. Returns `true` if the job had it.
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
