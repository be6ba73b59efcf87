//! What a worker has been given, and what it is ready for.

use std::collections::HashMap;

use bytes::Bytes;
use windlass_engine::{JobId, Timestamp};

/// The jobs a connection works on, by the identifier of their request.
#[derive(Debug, Default)]
pub(super) struct Held {
    // The identifiers are chosen by peers: a table whose hash they cannot guess.
    jobs: HashMap<Bytes, HeldJob>,
    /// Jobs whose identifier another job of this worker has as well: two queues were sent the same.
    shadowed: Vec<(Bytes, HeldJob)>,
}

/// One of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HeldJob {
    /// Its number.
    pub(super) job: JobId,
    /// The queue it came from.
    pub(super) queue: Bytes,
    /// When it was given.
    pub(super) since: Timestamp,
    /// Somebody wants the result.
    pub(super) heard: bool,
}

impl Held {
    /// One more.
    pub(super) fn insert(&mut self, id: Bytes, job: HeldJob) {
        if let Some(before) = self.jobs.insert(id.clone(), job) {
            self.shadowed.push((id, before));
        }
    }

    /// The worker has answered for one. Of two with the same identifier it is the one that was given last.
    pub(super) fn take(&mut self, id: &[u8]) -> Option<HeldJob> {
        let (id, job) = self.jobs.remove_entry(id)?;
        if let Some(at) = self.shadowed.iter().rposition(|(shadowed, _)| *shadowed == id) {
            let (id, before) = self.shadowed.swap_remove(at);
            self.jobs.insert(id, before);
        }
        Some(job)
    }

    /// The identifier of the only one, if there is only one.
    pub(super) fn only(&self) -> Option<Bytes> {
        if self.len() == 1 { self.jobs.keys().next().cloned() } else { None }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.jobs.len() + self.shadowed.len()
    }
}

/// What a worker is ready for. The engine is told of so much of it that jobs and credits together stay within a bound; it
/// hears of the rest when jobs are done.
#[derive(Debug, Default)]
pub(super) struct Credits {
    /// How often it was ready, and got no job for it.
    open: u32,
    /// How many of these the engine knows.
    lent: u32,
}

impl Credits {
    /// The worker is ready for one more.
    pub(super) fn add(&mut self) {
        self.open = self.open.saturating_add(1);
    }

    /// It got a job.
    pub(super) fn spend(&mut self) {
        self.open = self.open.saturating_sub(1);
        self.lent = self.lent.saturating_sub(1);
    }

    /// How many more the engine is to be told of, when so many jobs are held and there may be so many together. From now
    /// on it knows them.
    pub(super) fn lend(&mut self, held: usize, jobs_max: u32) -> u32 {
        let room = jobs_max.saturating_sub(u32::try_from(held).unwrap_or(u32::MAX));
        let more = self.open.min(room).saturating_sub(self.lent);
        self.lent += more;
        more
    }

    /// How often it was ready, and got no job for it.
    pub(super) const fn open(&self) -> u32 {
        self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(job: u64) -> HeldJob {
        HeldJob { job: JobId(job), queue: Bytes::new(), since: Timestamp(0), heard: false }
    }

    #[test]
    fn of_two_jobs_with_the_same_identifier_none_is_forgotten() {
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
    fn the_engine_knows_of_no_more_credits_than_may_be() {
        let mut credits = Credits::default();
        (0..10).for_each(|_| credits.add());
        assert_eq!((credits.lend(0, 4), credits.lend(0, 4), credits.open()), (4, 0, 10));
        credits.spend();
        assert_eq!((credits.lend(1, 4), credits.lend(0, 4), credits.open()), (0, 1, 9));
        // A job that came though nothing was ready for it any more.
        (0..20).for_each(|_| credits.spend());
        assert_eq!((credits.open(), credits.lend(0, 4)), (0, 0));
    }
}
