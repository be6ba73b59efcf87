//! Durations of commits, for metrics. One thread at a time records, others read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the histogram, in microseconds.
pub const BOUNDS_US: [u64; 15] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000,
];

/// Durations of commits, from the cut until the data is on disk.
#[derive(Debug, Default)]
pub struct CommitTimes {
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

/// A histogram with the bounds [`BOUNDS_US`]; the last bucket has no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitDurations {
    /// Counts by bucket.
    pub counts: [u64; BOUNDS_US.len() + 1],
    /// The sum of all durations, in microseconds.
    pub sum_us: u64,
}

impl CommitTimes {
    pub(super) fn record(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let index = BOUNDS_US.partition_point(|bound| *bound < us);
        if let Some(count) = self.counts.get(index) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// The durations so far.
    pub fn read(&self) -> CommitDurations {
        let mut counts = [0; BOUNDS_US.len() + 1];
        for (to, from) in counts.iter_mut().zip(&self.counts) {
            *to = from.load(Ordering::Relaxed);
        }
        CommitDurations {
            counts,
            sum_us: self.sum_us.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_at_its_bound() {
        let times = CommitTimes::default();
        for us in [100, 101, 20_000_000] {
            times.record(Duration::from_micros(us));
        }
        let CommitDurations { counts, sum_us } = times.read();
        assert_eq!(
            (
                counts[0],
                counts[1],
                counts[15],
                counts.iter().sum::<u64>(),
                sum_us
            ),
            (1, 1, 1, 3, 20_000_201)
        );
    }
}
