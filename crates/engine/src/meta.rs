//! The engine's persistent values: the IDs that it assigns, the counters, and the clock.

use serde::{Deserialize, Serialize};

use crate::change::Change;
use crate::clock::Clock;
use crate::ids::{JobId, Protocol, Timestamp};
use crate::query::Totals;

/// Job IDs are reserved in the journal in blocks of this size. After a crash, assignment continues after the
/// block.
const ID_BLOCK: u64 = 1 << 16;

/// The maximum age of the engine's time in the journal, while there are commits.
const AT_AGE_MS: u64 = 60_000;

/// Sort keys start in the middle: jobs inserted at the front count down from here, all other jobs
/// up.
const RANK_MIDDLE: u64 = 1 << 62;

/// The engine's persistent values in the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct EngineMeta {
    /// The next job's number.
    pub next_job: u64,
    /// Jobs that are not journalled may use IDs below this one. After an orderly stop there are no such IDs,
    /// and it equals [`next_job`](Self::next_job), or the ID after it if policy keys are blocked by jobs that
    /// a previous daemon may have delivered.
    pub reserved: u64,
    /// Number of times that a daemon has opened this journal. It distinguishes tokens of different runs,
    /// because tokens are sent before they are journalled.
    pub boot_count: u64,
    /// The relation of the engine's time to other clocks.
    pub clock: Clock,
    /// The counters of all protocols together.
    pub totals: Totals,
    /// The counters of each protocol in the namespace without a name since the last flush, in order of protocol.
    pub protocols: Vec<(Protocol, Totals)>,
}

/// The owner of the engine meta, and of the ranks of jobs.
#[derive(Debug)]
pub(crate) struct Meta {
    kept: EngineMeta,
    /// IDs below this were assigned before this engine started.
    first_new: u64,
    /// No job has this rank or a higher one.
    rank_back: u64,
    /// No job has a lower rank.
    rank_front: u64,
}

impl Meta {
    pub(crate) fn new() -> Self {
        let kept = EngineMeta {
            next_job: 1,
            reserved: 1,
            ..EngineMeta::default()
        };
        Self {
            kept,
            first_new: 0,
            rank_back: RANK_MIDDLE,
            rank_front: RANK_MIDDLE,
        }
    }

    pub(crate) const fn kept(&self) -> &EngineMeta {
        &self.kept
    }

    /// Restores the engine meta. `clean` means that the daemon stopped in order, so the journal has every job number in
    /// use.
    pub(crate) fn recall(&mut self, kept: EngineMeta, clean: bool) {
        let next_job = if clean {
            kept.next_job
        } else {
            kept.next_job.max(kept.reserved)
        };
        self.kept = EngineMeta {
            next_job,
            reserved: next_job,
            boot_count: kept.boot_count.saturating_add(1),
            ..kept
        };
    }

    /// Before an orderly stop: releases the reserved job IDs, except one if policy keys are in doubt, and
    /// records the time.
    pub(crate) fn release_numbers(&mut self, now: Timestamp, is_in_doubt: bool) {
        self.kept.reserved = self.kept.next_job.saturating_add(is_in_doubt.into());
        if self.kept.clock != Clock::default() {
            self.kept.clock.at = now;
        }
    }

    /// Adopts the clocks of a context. Returns true if the wall clock was set back, which the journal
    /// records.
    pub(crate) fn set_clock(
        &mut self,
        clock: Clock,
        now: Timestamp,
        changes: &mut Vec<Change>,
    ) -> bool {
        let before = self.kept.clock;
        if clock.differs(&before) {
            self.kept.clock = Clock { at: now, ..clock };
            changes.push(Change::Meta);
            return clock.skew_ms < before.skew_ms;
        }
        if before != Clock::default() && now.ms_since(before.at) > AT_AGE_MS {
            self.kept.clock.at = now;
        }
        false
    }

    // ---- IDs and sort keys
    // -----------------------------------------------------------------------------------------

    pub(crate) fn new_job_id(&mut self, changes: &mut Vec<Change>) -> JobId {
        let id = self.kept.next_job;
        self.kept.next_job += 1;
        if self.kept.next_job > self.kept.reserved {
            self.kept.reserved = self.kept.next_job + ID_BLOCK;
            changes.push(Change::Meta);
        }
        JobId(id)
    }

    /// The lowest unassigned ID.
    pub(crate) const fn next_job(&self) -> u64 {
        self.kept.next_job
    }

    /// Declares that all IDs in use were assigned before this engine started.
    pub(crate) const fn begin_numbers(&mut self) {
        self.first_new = self.kept.next_job;
    }

    /// Returns true if the job is older than this engine.
    pub(crate) const fn is_of_before(&self, job: JobId) -> bool {
        job.0 < self.first_new
    }

    /// Records that a job with this ID was restored from the journal.
    pub(crate) fn recall_number(&mut self, id: JobId) {
        self.kept.next_job = self.kept.next_job.max(id.0 + 1);
        self.kept.reserved = self.kept.reserved.max(self.kept.next_job);
    }

    /// Skips IDs below `next`.
    pub(crate) fn skip_numbers(&mut self, next: u64, changes: &mut Vec<Change>) {
        self.kept.next_job = next;
        self.kept.reserved = self.kept.reserved.max(next);
        changes.push(Change::Meta);
    }

    // ---- ranks -----------------------------------------------------------------------------------------------------

    /// A rank before or behind those of all jobs.
    pub(crate) const fn rank(&mut self, front: bool) -> u64 {
        if front {
            self.rank_front -= 1;
            self.rank_front
        } else {
            self.rank_back += 1;
            self.rank_back - 1
        }
    }

    /// Reserves `many` ranks behind those of all jobs. Returns the first of them.
    pub(crate) const fn reserve_ranks(&mut self, many: u64) -> u64 {
        self.rank_back += many;
        self.rank_back - many
    }

    /// A job has this rank.
    pub(crate) fn recall_rank(&mut self, rank: u64) {
        self.rank_back = self.rank_back.max(rank + 1);
        self.rank_front = self.rank_front.min(rank);
    }

    // ---- counters --------------------------------------------------------------------------------------------------

    /// Adds an event of a job of this protocol, in the namespace without a name, to the counters.
    #[inline]
    pub(crate) fn count(&mut self, protocol: Protocol, add: impl Fn(&mut Totals)) {
        add(&mut self.kept.totals);
        match self
            .kept
            .protocols
            .iter_mut()
            .find(|(other, _)| *other == protocol)
        {
            Some((_, totals)) => add(totals),
            None => self.begin_count(protocol, add),
        }
    }

    #[cold]
    fn begin_count(&mut self, protocol: Protocol, add: impl Fn(&mut Totals)) {
        let protocols = &mut self.kept.protocols;
        let at = protocols.partition_point(|(other, _)| *other < protocol);
        let mut totals = Totals::default();
        add(&mut totals);
        protocols.insert(at, (protocol, totals));
    }

    /// Adds an event to the counters of all protocols together only: that of a namespace with a name, which has
    /// counters of its own, or of no protocol.
    pub(crate) fn count_beside(&mut self, add: impl Fn(&mut Totals)) {
        add(&mut self.kept.totals);
    }

    /// Resets the counters of this protocol.
    pub(crate) fn forget_protocol(&mut self, protocol: Protocol, changes: &mut Vec<Change>) {
        self.kept.protocols.retain(|(other, _)| *other != protocol);
        changes.push(Change::Meta);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_reserves_numbers_in_blocks() {
        let (mut meta, mut changes) = (Meta::new(), Vec::new());
        let mut next = || {
            (
                meta.new_job_id(&mut changes).0,
                meta.kept().reserved,
                changes.len(),
            )
        };
        assert_eq!(next(), (1, ID_BLOCK + 2, 1));
        let last = (0..ID_BLOCK).map(|_| next()).last();
        assert_eq!(last, Some((ID_BLOCK + 1, ID_BLOCK + 2, 1)));
        assert_eq!(next(), (ID_BLOCK + 2, 2 * ID_BLOCK + 3, 2));
    }
}
