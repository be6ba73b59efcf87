//! The index by public name. Names are not unique, so it decides which of several jobs a name means.
//!
//! It holds hashes of names, not names: a search compares the names of the jobs found.

use std::collections::BTreeSet;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use super::job::Job;
use crate::ids::{JobId, Timestamp};

/// The named jobs, by the hash of their name.
#[derive(Debug)]
pub(super) struct Names {
    /// Those that are neither dead nor done, by number.
    live: BTreeSet<(u64, JobId)>,
    /// Those that are dead or done, by number.
    over: BTreeSet<(u64, JobId)>,
    /// Those that are leased, by the start of the lease.
    leased: BTreeSet<(u64, Timestamp, JobId)>,
    hasher: FixedState,
}

impl Names {
    pub(super) const fn new(hasher: FixedState) -> Self {
        Self { live: BTreeSet::new(), over: BTreeSet::new(), leased: BTreeSet::new(), hasher }
    }

    /// The hash of a job's name, if it has one.
    fn hash(&self, job: &Job) -> Option<u64> {
        let name = job.name();
        (!name.is_empty()).then(|| self.hasher.hash_one(name))
    }

    /// Adds a job that is neither leased nor over yet.
    pub(super) fn insert(&mut self, job: &Job) {
        if let Some(hash) = self.hash(job) {
            self.live.insert((hash, job.id));
        }
    }

    /// Removes a job that is neither leased nor over any more.
    pub(super) fn remove(&mut self, job: &Job) {
        if let Some(hash) = self.hash(job) {
            self.live.remove(&(hash, job.id));
        }
    }

    /// The job has entered its state.
    pub(super) fn enter(&mut self, job: &Job) {
        if let Some(lease) = job.lease() {
            self.hash(job).map(|hash| self.leased.insert((hash, lease.taken_at, job.id)));
        } else if job.is_over()
            && let Some(hash) = self.hash(job)
        {
            self.live.remove(&(hash, job.id));
            self.over.insert((hash, job.id));
        }
    }

    /// The job is about to leave its state.
    pub(super) fn leave(&mut self, job: &Job) {
        if let Some(lease) = job.lease() {
            self.hash(job).map(|hash| self.leased.remove(&(hash, lease.taken_at, job.id)));
        } else if job.is_over()
            && let Some(hash) = self.hash(job)
        {
            self.over.remove(&(hash, job.id));
            self.live.insert((hash, job.id));
        }
    }

    /// The first candidate for a name that `found` accepts: the job leased first; if none is leased, the oldest. A dead or done
    /// job only if there is no other; of those the youngest.
    pub(super) fn find<T>(&self, name: &[u8], found: impl Fn(JobId) -> Option<T>) -> Option<T> {
        let hash = self.hasher.hash_one(name);
        let (first, last) = (JobId(0), JobId(u64::MAX));
        let leased = self.leased.range((hash, Timestamp(0), first)..=(hash, Timestamp::NEVER, last));
        let leased = leased.map(|(.., id)| *id).find_map(&found);
        let live = || self.live.range((hash, first)..=(hash, last)).find_map(|(_, id)| found(*id));
        let over = || self.over.range((hash, first)..=(hash, last)).rev().find_map(|(_, id)| found(*id));
        leased.or_else(live).or_else(over)
    }

    /// The candidates for a name from a number on, oldest first.
    pub(super) fn from(&self, name: &[u8], first: JobId) -> impl Iterator<Item = JobId> {
        let hash = self.hasher.hash_one(name);
        let same_hash = (hash, first)..=(hash, JobId(u64::MAX));
        let mut live = self.live.range(same_hash.clone()).map(|(_, id)| *id).peekable();
        let mut over = self.over.range(same_hash).map(|(_, id)| *id).peekable();
        std::iter::from_fn(move || match (live.peek(), over.peek()) {
            (Some(one), Some(other)) if other < one => over.next(),
            (Some(_), _) => live.next(),
            (None, _) => over.next(),
        })
    }

    /// Asserts that the index holds these jobs and no others.
    pub(super) fn check<'a>(&self, jobs: impl Iterator<Item = &'a Job>) {
        let (mut named, mut leased) = (0, 0);
        for job in jobs {
            let Some(hash) = self.hash(job) else { continue };
            named += 1;
            let index = if job.is_over() { &self.over } else { &self.live };
            assert!(index.contains(&(hash, job.id)), "{:?} is not found by name", job.id);
            if let Some(lease) = job.lease() {
                leased += 1;
                assert!(self.leased.contains(&(hash, lease.taken_at, job.id)), "{:?} is leased", job.id);
            }
        }
        assert_eq!(named, self.live.len() + self.over.len(), "jobs by name");
        assert_eq!(leased, self.leased.len(), "leased jobs by name");
    }
}
