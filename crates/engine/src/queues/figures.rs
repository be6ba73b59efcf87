//! Statistics of a queue since startup: counters by protocol, and the times that jobs waited and
//! ran. Not journalled; they are deleted with the queue.

use serde::{Deserialize, Serialize};

use crate::held::heap;
use crate::ids::Protocol;
use crate::query::Totals;

/// The figures of a queue.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct QueueFigures {
    /// The counters of each protocol, in the order of the first event.
    pub totals: Vec<(Protocol, Totals)>,
    /// Times from ready to taken.
    pub waited: Histogram,
    /// Times from taken to the worker's report.
    pub ran: Histogram,
}

/// The number of durations in each bucket of [`Histogram::BOUNDS_MS`].
///
/// Daemons exchange it with the fewer bounds of the first versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "Coarse", into = "Coarse")]
pub struct Histogram {
    /// By bound. The last has no bound.
    pub counts: [u64; Histogram::BOUNDS_MS.len() + 1],
    /// The sum of all durations, in milliseconds.
    pub sum_ms: u64,
    /// The maximum, in milliseconds.
    pub max_ms: u64,
}

impl Histogram {
    /// The upper bounds of the buckets, in milliseconds. A bound is no more than twice the previous
    /// one.
    pub const BOUNDS_MS: [u64; 28] = [
        1, 2, 4, 8, 16, 32, 64, 125, 250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 30_000, 60_000,
        120_000, 240_000, 480_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000,
        28_800_000, 57_600_000, 86_400_000,
    ];

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Counts a duration.
    #[inline]
    pub fn observe(&mut self, ms: u64) {
        // Searched from the front, because most durations are short.
        let index = Self::BOUNDS_MS
            .iter()
            .position(|bound| ms <= *bound)
            .unwrap_or(Self::BOUNDS_MS.len());
        if let Some(count) = self.counts.get_mut(index) {
            *count += 1;
        }
        self.sum_ms = self.sum_ms.saturating_add(ms);
        self.max_ms = self.max_ms.max(ms);
    }

    /// Merges two histograms bucket by bucket.
    #[must_use]
    pub fn merged(&self, other: &Self, merge: fn(u64, u64) -> u64) -> Self {
        let mut counts = self.counts;
        for (count, other) in counts.iter_mut().zip(other.counts) {
            *count = merge(*count, other);
        }
        Self {
            counts,
            sum_ms: merge(self.sum_ms, other.sum_ms),
            max_ms: self.max_ms.max(other.max_ms),
        }
    }

    /// The duration, in milliseconds, that this fraction of all durations (per thousand) does not
    /// exceed: interpolated between two bounds, and limited by the maximum. 0 without durations.
    pub fn quantile_ms(&self, per_mille: u64) -> u64 {
        let wanted = self
            .count()
            .saturating_mul(per_mille)
            .div_ceil(1_000)
            .max(1);
        let lower = [0].into_iter().chain(Self::BOUNDS_MS);
        let upper = Self::BOUNDS_MS.into_iter().chain([u64::MAX]);
        let mut seen = 0;
        for ((lower, upper), count) in lower.zip(upper).zip(self.counts) {
            if count > 0 && seen + count >= wanted {
                let upper = upper.min(self.max_ms).max(lower);
                let part =
                    u128::from(upper - lower) * u128::from(wanted - seen) / u128::from(count);
                return (lower + u64::try_from(part).unwrap_or(u64::MAX)).min(self.max_ms);
            }
            seen += count;
        }
        0
    }
}

/// The form that daemons exchange: a count for each of these bounds, and one beyond.
#[derive(Deserialize, Serialize)]
struct Coarse {
    counts: [u64; Coarse::BOUNDS_MS.len() + 1],
    sum_ms: u64,
}

impl Coarse {
    const BOUNDS_MS: [u64; 14] = [
        5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 10_000, 60_000, 300_000, 3_600_000, 86_400_000,
    ];
}

impl From<Histogram> for Coarse {
    fn from(fine: Histogram) -> Self {
        let mut coarse = Self {
            counts: Default::default(),
            sum_ms: fine.sum_ms,
        };
        for (bound, count) in Histogram::BOUNDS_MS
            .into_iter()
            .chain([u64::MAX])
            .zip(fine.counts)
        {
            let at = Self::BOUNDS_MS.partition_point(|coarse| *coarse < bound);
            if let Some(sum) = coarse.counts.get_mut(at) {
                *sum = sum.saturating_add(count);
            }
        }
        coarse
    }
}

impl From<Coarse> for Histogram {
    /// Each count goes into the bucket with the highest bound within the coarse one.
    fn from(coarse: Coarse) -> Self {
        let mut fine = Self {
            sum_ms: coarse.sum_ms,
            ..Self::default()
        };
        for (bound, count) in Coarse::BOUNDS_MS
            .into_iter()
            .chain([u64::MAX])
            .zip(coarse.counts)
        {
            let beyond = Self::BOUNDS_MS.partition_point(|fine| *fine <= bound);
            let at = if bound == u64::MAX {
                beyond
            } else {
                beyond.saturating_sub(1)
            };
            if let Some(place) = fine.counts.get_mut(at) {
                *place = count;
            }
            if count > 0 {
                fine.max_ms = if bound == u64::MAX {
                    Self::BOUNDS_MS.last().copied().unwrap_or_default()
                } else {
                    bound
                };
            }
        }
        fine
    }
}

impl QueueFigures {
    /// The memory, with the totals of this many protocols.
    pub(crate) const fn bytes_for(protocols: usize) -> u64 {
        heap(size_of::<Self>()) + heap(protocols * size_of::<(Protocol, Totals)>())
    }

    /// The counters of all protocols together.
    pub fn total(&self) -> Totals {
        self.totals.iter().fold(Totals::default(), |sum, (_, it)| {
            sum.merged(it, u64::saturating_add)
        })
    }

    /// Adds other figures to these.
    pub fn add(&mut self, other: &Self) {
        for (protocol, totals) in &other.totals {
            match self.totals.iter_mut().find(|(known, _)| known == protocol) {
                Some((_, sum)) => *sum = sum.merged(totals, u64::saturating_add),
                None => self.totals.push((*protocol, *totals)),
            }
        }
        self.waited = self.waited.merged(&other.waited, u64::saturating_add);
        self.ran = self.ran.merged(&other.ran, u64::saturating_add);
    }

    /// The increase of each counter since a previous value.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before =
            |protocol: Protocol| earlier.totals.iter().find(|(known, _)| *known == protocol);
        let above = |(protocol, totals): &(Protocol, Totals)| {
            let before = before(*protocol)
                .map(|(_, totals)| *totals)
                .unwrap_or_default();
            (*protocol, totals.merged(&before, u64::saturating_sub))
        };
        Self {
            totals: self.totals.iter().map(above).collect(),
            waited: self.waited.merged(&earlier.waited, u64::saturating_sub),
            ran: self.ran.merged(&earlier.ran, u64::saturating_sub),
        }
    }

    #[inline]
    pub(crate) fn count(&mut self, protocol: Protocol, add: impl Fn(&mut Totals)) {
        match self.totals.iter_mut().find(|(other, _)| *other == protocol) {
            Some((_, totals)) => add(totals),
            None => self.begin(protocol, add),
        }
    }

    #[cold]
    fn begin(&mut self, protocol: Protocol, add: impl Fn(&mut Totals)) {
        let mut totals = Totals::default();
        add(&mut totals);
        self.totals.reserve_exact(1);
        self.totals.push((protocol, totals));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_at_its_bound() {
        let mut histogram = Histogram::default();
        for ms in [0, 4, 5, 86_400_000, 86_400_001] {
            histogram.observe(ms);
        }
        let mut expected = [0; Histogram::BOUNDS_MS.len() + 1];
        (
            expected[0],
            expected[2],
            expected[3],
            expected[27],
            expected[28],
        ) = (1, 1, 1, 1, 1);
        assert_eq!(
            (histogram.counts, histogram.count(), histogram.sum_ms),
            (expected, 5, 172_800_010)
        );
        assert_eq!(histogram.max_ms, 86_400_001);
    }

    #[test]
    fn what_another_daemon_gets_is_the_same_for_it() {
        let mut histogram = Histogram::default();
        [0, 3, 7, 300, 40_000, 90_000_000]
            .into_iter()
            .for_each(|ms| histogram.observe(ms));
        let there = Histogram::from(Coarse::from(histogram));
        assert_eq!(
            (there.count(), there.sum_ms, there.max_ms),
            (6, histogram.sum_ms, 86_400_000)
        );
        let again = Coarse::from(there).counts;
        assert_eq!(again, Coarse::from(histogram).counts);
        assert_eq!(again.iter().sum::<u64>(), 6);
    }

    #[test]
    fn quantiles_lie_between_two_bounds_and_below_the_longest() {
        let of = |durations: &[u64]| {
            let mut histogram = Histogram::default();
            durations.iter().for_each(|ms| histogram.observe(*ms));
            [500, 950, 990].map(|per_mille| histogram.quantile_ms(per_mille))
        };
        assert_eq!(of(&[]), [0; 3]);
        assert_eq!(of(&[3_700]), [3_700; 3]);
        assert_eq!(of(&[100; 9]), [84, 100, 100]);
        let even: Vec<u64> = (1..=1_000).collect();
        let [half, most, nearly] = of(&even);
        assert!(
            (495..=505).contains(&half)
                && (940..=960).contains(&most)
                && (980..=1_000).contains(&nearly)
        );
        assert_eq!(of(&[1, 1, 90_000_000]), [1, 90_000_000, 90_000_000]);
        assert!(
            Histogram::BOUNDS_MS
                .windows(2)
                .all(|pair| pair[1] <= 2 * pair[0])
        );
    }
}
