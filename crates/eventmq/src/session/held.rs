//! A worker's jobs and credits.

use std::collections::HashMap;

use bytes::Bytes;
use windlass_engine::{JobId, Timestamp};

/// The jobs of a connection, by the identifier of their request.
#[derive(Debug, Default)]
pub(super) struct Held {
    // Peers choose the identifiers, so the hash must be unpredictable.
    jobs: HashMap<Bytes, HeldJob>,
    /// Older jobs with the same identifier as another job in `jobs`: from two queues.
    shadowed: Vec<(Bytes, HeldJob)>,
}

/// A worker's job.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HeldJob {
    /// The job's number.
    pub(super) job: JobId,
    /// Its queue.
    pub(super) queue: Bytes,
    /// When the worker got it.
    pub(super) since: Timestamp,
    /// A client awaits the result.
    pub(super) heard: bool,
}

impl Held {
    /// Adds a job.
    pub(super) fn insert(&mut self, id: Bytes, job: HeldJob) {
        if let Some(before) = self.jobs.insert(id.clone(), job) {
            self.shadowed.push((id, before));
        }
    }

    /// Removes a job that has ended. Of several jobs with this identifier, the newest.
    pub(super) fn take(&mut self, id: &[u8]) -> Option<HeldJob> {
        let (id, job) = self.jobs.remove_entry(id)?;
        if let Some(at) = self
            .shadowed
            .iter()
            .rposition(|(shadowed, _)| *shadowed == id)
        {
            let (id, before) = self.shadowed.swap_remove(at);
            self.jobs.insert(id, before);
        }
        Some(job)
    }

    /// The identifier of the only job; `None` if there are none or several.
    pub(super) fn only(&self) -> Option<Bytes> {
        if self.len() == 1 {
            self.jobs.keys().next().cloned()
        } else {
            None
        }
    }

    /// Number of jobs.
    pub(super) fn len(&self) -> usize {
        self.jobs.len() + self.shadowed.len()
    }
}

/// A worker's credits. The engine gets them only as long as jobs and credits together stay within `jobs_max`; it
/// gets the rest when jobs have ended.
#[derive(Debug, Default)]
pub(super) struct Credits {
    /// Credits that no job has used.
    open: u32,
    /// The part of `open` that the engine has.
    lent: u32,
}

impl Credits {
    /// Adds a credit.
    pub(super) fn add(&mut self) {
        self.open = self.open.saturating_add(1);
    }

    /// A job uses a credit.
    pub(super) fn spend(&mut self) {
        self.open = self.open.saturating_sub(1);
        self.lent = self.lent.saturating_sub(1);
    }

    /// How many more credits to send to the engine, with `held` jobs and a limit of `jobs_max` for both together. They
    /// count as sent.
    pub(super) fn lend(&mut self, held: usize, jobs_max: u32) -> u32 {
        let room = jobs_max.saturating_sub(u32::try_from(held).unwrap_or(u32::MAX));
        let more = self.open.min(room).saturating_sub(self.lent);
        self.lent += more;
        more
    }

    /// Credits that no job has used.
    pub(super) const fn open(&self) -> u32 {
        self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(job: u64) -> HeldJob {
        HeldJob {
            job: JobId(job),
            queue: Bytes::new(),
            since: Timestamp(0),
            heard: false,
        }
    }

    #[test]
    fn two_jobs_with_the_same_identifier_are_both_kept() {
        let mut jobs = Held::default();
        for (id, job) in [("a", 1), ("b", 2), ("a", 3), ("a", 4)] {
            jobs.insert(id.into(), held(job));
        }
        assert_eq!((jobs.len(), jobs.only()), (4, None));
        assert_eq!(
            [b"a", b"a", b"a", b"a"].map(|id| jobs.take(id)),
            [Some(held(4)), Some(held(3)), Some(held(1)), None]
        );
        assert_eq!(jobs.only(), Some("b".into()));
    }

    #[test]
    fn jobs_and_credits_stay_within_the_limit() {
        let mut credits = Credits::default();
        (0..10).for_each(|_| credits.add());
        assert_eq!(
            (credits.lend(0, 4), credits.lend(0, 4), credits.open()),
            (4, 0, 10)
        );
        credits.spend();
        assert_eq!(
            (credits.lend(1, 4), credits.lend(0, 4), credits.open()),
            (0, 1, 9)
        );
        // A job that arrives without a credit left.
        (0..20).for_each(|_| credits.spend());
        assert_eq!((credits.open(), credits.lend(0, 4)), (0, 0));
    }
}
