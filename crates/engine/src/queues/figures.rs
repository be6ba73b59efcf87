//! What happened in a queue since the daemon started: counters by protocol, and how long jobs waited and ran. Not
//! journalled; the figures go with their queue.

use serde::{Deserialize, Serialize};

use crate::ids::Protocol;
use crate::query::Totals;

/// The figures of a queue.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct QueueFigures {
    /// The counters of each protocol, in the order of their first event.
    pub totals: Vec<(Protocol, Totals)>,
    /// From ready to taken.
    pub waited: Histogram,
    /// From taken to the worker's report.
    pub ran: Histogram,
}

/// How often a duration was at most each of [`Histogram::BOUNDS_MS`], but not at most the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Histogram {
    /// By bound. The last has no bound.
    pub counts: [u64; Histogram::BOUNDS_MS.len() + 1],
    /// All durations together, in milliseconds.
    pub sum_ms: u64,
}

impl Histogram {
    /// The bounds of the counts, in milliseconds.
    pub const BOUNDS_MS: [u64; 14] =
        [5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 10_000, 60_000, 300_000, 3_600_000, 86_400_000];

    /// All durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn observe(&mut self, ms: u64) {
        // From the front: most durations are short.
        let index = Self::BOUNDS_MS.iter().position(|bound| ms <= *bound).unwrap_or(Self::BOUNDS_MS.len());
        if let Some(count) = self.counts.get_mut(index) {
            *count += 1;
        }
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }
}

impl QueueFigures {
    pub(crate) fn count(&mut self, protocol: Protocol, add: impl Fn(&mut Totals)) {
        let index = self.totals.iter().position(|(other, _)| *other == protocol).unwrap_or_else(|| {
            self.totals.push((protocol, Totals::default()));
            self.totals.len() - 1
        });
        if let Some((_, totals)) = self.totals.get_mut(index) {
            add(totals);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_at_its_bound() {
        let mut histogram = Histogram::default();
        for ms in [0, 5, 6, 86_400_000, 86_400_001] {
            histogram.observe(ms);
        }
        let mut expected = [0; Histogram::BOUNDS_MS.len() + 1];
        (expected[0], expected[1], expected[13], expected[14]) = (2, 1, 1, 1);
        assert_eq!((histogram.counts, histogram.count(), histogram.sum_ms), (expected, 5, 172_800_012));
    }
}
