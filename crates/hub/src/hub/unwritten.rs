//! The age of unwritten changes under `durability = "interval"`, and whether acknowledgements wait
//! for them.
//!
//! While the disk keeps up, acknowledgements are sent immediately. Otherwise they wait for their
//! commits, as with "sync". So all acknowledged changes that a crash can lose began within
//! [`INTERVALS_MAX`] intervals of the oldest one, and have at most [`BYTES_MAX`] bytes, however
//! slow the disk is.

use std::collections::VecDeque;
use std::time::Duration;

use windlass_engine::Timestamp;

use crate::clock;

/// Acknowledgements wait when the oldest unwritten change is older than this many intervals.
const INTERVALS_MAX: u32 = 2;

/// Acknowledgements wait when this many bytes are unwritten.
pub(super) const BYTES_MAX: u64 = 32 << 20;

/// The commits that are not durable.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    /// Their numbers, with the times of their first changes, oldest first.
    since: VecDeque<(u64, Timestamp)>,
}

impl Unwritten {
    /// Records that this commit, the newest, contains changes.
    pub(super) fn note(&mut self, commit: u64, now: Timestamp) {
        if self.since.back().is_none_or(|(newest, _)| *newest < commit) {
            self.since.push_back((commit, now));
        }
    }

    /// Records that all commits up to this one are durable.
    pub(super) fn committed(&mut self, commit: u64) {
        let done = self.since.partition_point(|(number, _)| *number <= commit);
        self.since.drain(..done);
    }

    /// Whether the disk is behind, so that a crash would lose more than `interval` permits.
    pub(super) fn is_behind(&self, now: Timestamp, bytes: u64, interval: Duration) -> bool {
        let longest_ms = clock::ms(interval * INTERVALS_MAX);
        bytes > BYTES_MAX
            || self
                .since
                .front()
                .is_some_and(|(_, since)| now.ms_since(*since) > longest_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_commit_that_is_not_durable_has_the_age() {
        let (mut unwritten, interval) = (Unwritten::default(), Duration::from_millis(100));
        let is_behind = |it: &Unwritten, now: u64| it.is_behind(Timestamp(now), 0, interval);
        assert!(!is_behind(&unwritten, 9_000), "there is none");
        for (commit, now) in [(5, 1_000), (5, 1_150), (7, 1_180)] {
            unwritten.note(commit, Timestamp(now));
        }
        assert_eq!(
            [1_200, 1_201].map(|now| is_behind(&unwritten, now)),
            [false, true]
        );
        unwritten.committed(4);
        assert!(is_behind(&unwritten, 1_201));
        unwritten.committed(6);
        assert_eq!(
            [1_380, 1_381].map(|now| is_behind(&unwritten, now)),
            [false, true]
        );
        unwritten.committed(7);
        assert!(!is_behind(&unwritten, 9_000));
    }

    #[test]
    fn many_bytes_are_too_many_at_any_age() {
        let unwritten = Unwritten::default();
        let is_behind = |bytes| unwritten.is_behind(Timestamp(1), bytes, Duration::from_secs(3600));
        assert_eq!([BYTES_MAX, BYTES_MAX + 1].map(is_behind), [false, true]);
    }
}
