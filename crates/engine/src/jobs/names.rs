//! The index by public name. Names are not unique, so it chooses among the jobs that share a name.
//!
//! It stores hashes instead of names: a search compares the names of the jobs found.

use std::collections::BTreeSet;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::half_hash::HalfHash;
use super::job::Job;
use crate::ids::{JobId, NameIn, Timestamp};

/// The named jobs, by the hash of the name.
#[derive(Debug)]
pub(super) struct Names {
    /// Jobs that are neither dead nor done, by ID.
    live: Live,
    /// Dead and done jobs, by ID.
    over: BTreeSet<(HalfHash, JobId)>,
    /// Leased jobs, by the start of the lease.
    leased: BTreeSet<(HalfHash, Timestamp, JobId)>,
    hasher: FixedState,
}

impl Names {
    pub(super) fn new(hasher: FixedState) -> Self {
        Self {
            live: Live::default(),
            over: BTreeSet::new(),
            leased: BTreeSet::new(),
            hasher,
        }
    }

    /// The hash of a job's name, if it has one.
    fn hash(&self, job: &Job) -> Option<HalfHash> {
        let name = job.name();
        (!name.is_empty()).then(|| self.hash_of(NameIn(job.queue.namespace(), name)))
    }

    #[inline(never)]
    fn hash_of(&self, name: NameIn<'_>) -> HalfHash {
        HalfHash::of(self.hasher.hash_one(name))
    }

    /// Adds a job that is neither leased nor over yet.
    pub(super) fn insert(&mut self, job: &Job) {
        if let Some(hash) = self.hash(job) {
            self.live.insert(hash, job.id);
        }
    }

    /// Removes a job that is no longer leased, dead or done.
    pub(super) fn remove(&mut self, job: &Job) {
        if let Some(hash) = self.hash(job) {
            self.live.remove(hash, job.id);
        }
    }

    /// Updates the index when the job has entered a state.
    #[inline]
    pub(super) fn enter(&mut self, job: &Job) {
        if !job.name().is_empty() {
            self.enter_named(job);
        }
    }

    #[inline(never)]
    fn enter_named(&mut self, job: &Job) {
        if let Some(lease) = job.lease() {
            self.hash(job)
                .map(|hash| self.leased.insert((hash, lease.taken_at, job.id)));
        } else if job.is_over()
            && let Some(hash) = self.hash(job)
        {
            self.live.remove(hash, job.id);
            self.over.insert((hash, job.id));
        }
    }

    /// Updates the index when the job is about to leave a state.
    #[inline]
    pub(super) fn leave(&mut self, job: &Job) {
        if !job.name().is_empty() {
            self.leave_named(job);
        }
    }

    #[inline(never)]
    fn leave_named(&mut self, job: &Job) {
        if let Some(lease) = job.lease() {
            self.hash(job)
                .map(|hash| self.leased.remove(&(hash, lease.taken_at, job.id)));
        } else if job.is_over()
            && let Some(hash) = self.hash(job)
        {
            self.over.remove(&(hash, job.id));
            self.live.insert(hash, job.id);
        }
    }

    /// The first candidate for a name that `found` accepts: the leased job with the oldest lease; if no job
    /// is leased, the oldest. A dead or done job only if there are no other candidates; then the youngest.
    pub(super) fn find<T>(
        &self,
        name: NameIn<'_>,
        found: impl Fn(JobId) -> Option<T>,
    ) -> Option<T> {
        let hash = self.hash_of(name);
        let (first, last) = (JobId(0), JobId(u64::MAX));
        let leased = self
            .leased
            .range((hash, Timestamp(0), first)..=(hash, Timestamp::NEVER, last));
        let leased = leased.map(|(.., id)| *id).find_map(&found);
        let live = || self.live.from(hash, first).find_map(&found);
        let over = || {
            self.over
                .range((hash, first)..=(hash, last))
                .rev()
                .find_map(|(_, id)| found(*id))
        };
        leased.or_else(live).or_else(over)
    }

    /// The candidates for a name from a number on, oldest first.
    pub(super) fn from(&self, name: NameIn<'_>, first: JobId) -> impl Iterator<Item = JobId> {
        let hash = self.hash_of(name);
        let mut live = self.live.from(hash, first).peekable();
        let mut over = self
            .over
            .range((hash, first)..=(hash, JobId(u64::MAX)))
            .map(|(_, id)| *id)
            .peekable();
        std::iter::from_fn(move || match (live.peek(), over.peek()) {
            (Some(one), Some(other)) if other < one => over.next(),
            (Some(_), _) => live.next(),
            (None, _) => over.next(),
        })
    }

    /// Asserts that the index contains exactly these jobs.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn check<'a>(&self, jobs: impl Iterator<Item = &'a Job>) {
        let (mut named, mut leased) = (0, 0);
        for job in jobs {
            let Some(hash) = self.hash(job) else { continue };
            named += 1;
            let is_found = match job.is_over() {
                true => self.over.contains(&(hash, job.id)),
                false => self.live.from(hash, job.id).next() == Some(job.id),
            };
            assert!(is_found, "{:?} is not found by name", job.id);
            if let Some(lease) = job.lease() {
                leased += 1;
                assert!(
                    self.leased.contains(&(hash, lease.taken_at, job.id)),
                    "{:?} is leased",
                    job.id
                );
            }
        }
        assert_eq!(named, self.live.len() + self.over.len(), "jobs by name");
        assert_eq!(leased, self.leased.len(), "leased jobs by name");
    }
}

/// A table that grows moves all entries, and the visit stalls for that long. It is split into parts, which
/// grow separately.
const PARTS: usize = 64;

/// A part that is nearly empty retains space for this many.
const KEEP: usize = 64;

/// The jobs of each hash, oldest first. Most hashes have only one job; the rest is in an ordered set.
#[derive(Debug)]
struct Live {
    oldest: [HashTable<Oldest>; PARTS],
    others: BTreeSet<(HalfHash, JobId)>,
}

/// The oldest job of a hash.
#[derive(Clone, Copy, Debug)]
struct Oldest {
    hash: HalfHash,
    /// The ID, as bytes: a `u64` would align the entry to 16 bytes instead of 12.
    id: [u8; 8],
}

impl Oldest {
    const fn new(hash: HalfHash, id: JobId) -> Self {
        Self {
            hash,
            id: id.0.to_ne_bytes(),
        }
    }

    const fn id(&self) -> JobId {
        JobId(u64::from_ne_bytes(self.id))
    }
}

impl Default for Live {
    fn default() -> Self {
        Self {
            oldest: [const { HashTable::new() }; PARTS],
            others: BTreeSet::new(),
        }
    }
}

impl Live {
    fn insert(&mut self, hash: HalfHash, id: JobId) {
        let Some(part) = self.oldest.get_mut(hash.part(PARTS)) else {
            return;
        };
        match part.entry(
            hash.spread(),
            |oldest| oldest.hash == hash,
            |oldest| oldest.hash.spread(),
        ) {
            Entry::Vacant(place) => {
                place.insert(Oldest::new(hash, id));
            }
            Entry::Occupied(mut place) => {
                let oldest = place.get().id();
                *place.get_mut() = Oldest::new(hash, oldest.min(id));
                self.others.insert((hash, oldest.max(id)));
            }
        }
    }

    fn remove(&mut self, hash: HalfHash, id: JobId) {
        let Some(part) = self.oldest.get_mut(hash.part(PARTS)) else {
            return;
        };
        let Ok(mut place) = part.find_entry(hash.spread(), |oldest| oldest.hash == hash) else {
            return;
        };
        if place.get().id() != id {
            self.others.remove(&(hash, id));
            return;
        }
        let next = self
            .others
            .range((hash, JobId(0))..=(hash, JobId(u64::MAX)))
            .next()
            .copied();
        if let Some(next) = next {
            self.others.remove(&next);
            *place.get_mut() = Oldest::new(hash, next.1);
            return;
        }
        place.remove();
        if part.capacity() > KEEP && part.len() < part.capacity() / 16 {
            part.shrink_to(part.len() * 4, |oldest| oldest.hash.spread());
        }
    }

    /// The jobs of a hash from a number on.
    fn from(&self, hash: HalfHash, first: JobId) -> impl Iterator<Item = JobId> {
        let part = self.oldest.get(hash.part(PARTS));
        let oldest = part
            .and_then(|part| part.find(hash.spread(), |oldest| oldest.hash == hash))
            .map(Oldest::id);
        let others = self
            .others
            .range((hash, first)..=(hash, JobId(u64::MAX)))
            .map(|(_, id)| *id);
        oldest.filter(|id| *id >= first).into_iter().chain(others)
    }

    #[cfg(any(test, debug_assertions, feature = "testing"))]
    fn len(&self) -> usize {
        self.oldest.iter().map(HashTable::len).sum::<usize>() + self.others.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_one_hash_are_found_oldest_first_in_whatever_order_they_come_and_go() {
        let (mut live, hash) = (Live::default(), HalfHash::of(7 << 32));
        let all = |live: &Live, first| {
            live.from(hash, JobId(first))
                .map(|id| id.0)
                .collect::<Vec<_>>()
        };
        for id in [5, 2, 9, 7] {
            live.insert(hash, JobId(id));
        }
        live.insert(HalfHash::of(8 << 32), JobId(1));
        assert_eq!(
            (all(&live, 0), all(&live, 6), live.len()),
            (vec![2, 5, 7, 9], vec![7, 9], 5)
        );
        live.remove(hash, JobId(2));
        live.remove(hash, JobId(7));
        live.remove(hash, JobId(3));
        assert_eq!(
            (all(&live, 0), all(&live, 6), live.len()),
            (vec![5, 9], vec![9], 3)
        );
        live.insert(hash, JobId(1));
        assert_eq!(all(&live, 0), [1, 5, 9]);
        for id in [1, 5, 9] {
            live.remove(hash, JobId(id));
        }
        assert_eq!((all(&live, 0), live.len()), (vec![], 1));
    }

    #[test]
    fn a_part_that_is_emptied_returns_its_memory() {
        let mut live = Live::default();
        let hashes = || (0..100_000_u64).map(|n| (HalfHash::of(n << 32), JobId(n)));
        hashes().for_each(|(hash, id)| live.insert(hash, id));
        assert_eq!(live.len(), live.oldest[0].len());
        hashes().for_each(|(hash, id)| live.remove(hash, id));
        assert!(
            live.oldest[0].capacity() <= KEEP,
            "{}",
            live.oldest[0].capacity()
        );
    }
}
