//! Statistics: a latency histogram with bounded error, medians, ratios. Pure.

/// Steps per doubling, as a power of two: 64 steps keep the error of a quantile below 1.6 %.
const STEP_BITS: u32 = 6;
const STEPS: u64 = 1 << STEP_BITS;
/// Enough slots for every `u64`.
const SLOTS: usize = 64 * (64 - STEP_BITS as usize + 1);

/// Counts of durations in nanoseconds, in slots whose width grows with the value.
#[derive(Debug, Clone)]
pub struct Histogram {
    slots: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { slots: vec![0; SLOTS], total: 0 }
    }
}

impl Histogram {
    /// Counts one duration of `nanos`.
    pub fn record(&mut self, nanos: u64) {
        if let Some(count) = self.slots.get_mut(slot(nanos)) {
            *count += 1;
            self.total += 1;
        }
    }

    /// Clears all counts and keeps the memory.
    pub fn clear(&mut self) {
        self.slots.fill(0);
        self.total = 0;
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The duration in nanoseconds that `per_mille` thousandths of the counted ones do not exceed (within 1.6 %), or
    /// `None` if nothing was counted.
    pub fn quantile(&self, per_mille: u64) -> Option<u64> {
        let rank = (self.total.saturating_mul(per_mille)).div_ceil(1000).max(1);
        let mut passed = 0;
        self.slots.iter().zip(0_u64..).find_map(|(count, index)| {
            passed += count;
            (*count > 0 && passed >= rank).then(|| middle(index))
        })
    }
}

/// The slot of a duration: itself below [`STEPS`], then [`STEPS`] slots per doubling.
fn slot(nanos: u64) -> usize {
    let index = if nanos < STEPS {
        nanos
    } else {
        let shift = nanos.ilog2() - STEP_BITS;
        STEPS * u64::from(shift) + (nanos >> shift)
    };
    usize::try_from(index).unwrap_or(SLOTS)
}

/// The middle of a slot, in nanoseconds.
fn middle(index: u64) -> u64 {
    if index < 2 * STEPS {
        return index;
    }
    let shift = index / STEPS - 1;
    let low = (index - STEPS * shift) << shift;
    low + (1 << shift) / 2
}

/// The median of `values`, or `None` if there are none. Of an even number, the mean of the two in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(*upper);
    }
    let lower = sorted.get(sorted.len() / 2 - 1)?;
    Some(f64::midpoint(*lower, *upper))
}

/// The spread of the values: (largest − smallest) / median, in per cent.
pub fn spread_percent(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (middle > 0.0).then(|| 100.0 * (high - low) / middle)
}

/// Two ratios of ours to theirs; they differ when the machine's speed changed between runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Median of ours divided by the median of theirs.
    pub of_medians: f64,
    /// Median of the quotients of runs in the same round.
    pub of_pairs: f64,
}

/// Both ratios of `ours` to `theirs`, whose entries at one index are from one round. `None` if there is nothing to divide.
pub fn ratio(ours: &[f64], theirs: &[f64]) -> Option<Ratio> {
    let (our_median, their_median) = (median(ours)?, median(theirs)?);
    let quotients: Vec<f64> = ours.iter().zip(theirs).filter(|(_, b)| **b > 0.0).map(|(a, b)| a / b).collect();
    let of_pairs = median(&quotients)?;
    (their_median > 0.0).then(|| Ratio { of_medians: our_median / their_median, of_pairs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn medians() {
        let cases: [(&str, &[f64], Option<f64>); 4] = [
            ("nothing", &[], None),
            ("one", &[7.0], Some(7.0)),
            ("odd, unsorted", &[9.0, 1.0, 5.0], Some(5.0)),
            ("even", &[4.0, 1.0, 2.0, 100.0], Some(3.0)),
        ];
        for (name, values, expected) in cases {
            assert_eq!(median(values), expected, "{name}");
        }
    }

    #[test]
    fn the_ratio_of_medians_differs_from_that_of_pairs() {
        // The machine was twice as fast in the second round: each pair has ratio 2, the medians another one.
        let found = ratio(&[20.0, 40.0, 20.0], &[10.0, 20.0, 20.0]).unwrap();
        assert_eq!(found, Ratio { of_medians: 1.0, of_pairs: 2.0 });
        assert_eq!(ratio(&[1.0], &[0.0]), None, "a zero divides nothing");
        assert_eq!(ratio(&[], &[1.0]), None);
    }

    #[test]
    fn spread_is_in_per_cent_of_the_median() {
        assert_eq!(spread_percent(&[90.0, 100.0, 120.0]), Some(30.0));
        assert_eq!(spread_percent(&[]), None);
    }

    #[test]
    fn quantiles_of_a_known_distribution() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(500), None);
        (1..=1000).for_each(|micros| histogram.record(micros * 1000));
        for (per_mille, expected) in [(500, 500_000.0), (990, 990_000.0), (1000, 1_000_000.0), (0, 1000.0)] {
            let found = histogram.quantile(per_mille).unwrap() as f64;
            assert!((found / expected - 1.0).abs() < 0.017, "{per_mille}: {found} against {expected}");
        }
        histogram.clear();
        assert_eq!((histogram.count(), histogram.quantile(500)), (0, None));
    }

    proptest! {
        #[test]
        fn every_duration_has_a_slot_near_it(nanos: u64) {
            prop_assert!(slot(nanos) < SLOTS);
            let mut histogram = Histogram::default();
            histogram.record(nanos);
            let found = histogram.quantile(500).unwrap();
            prop_assert!(found.abs_diff(nanos) <= nanos / 64, "{} became {}", nanos, found);
        }

        #[test]
        fn slots_keep_the_order(a: u64, b: u64) {
            prop_assert!(a > b || slot(a) <= slot(b));
        }
    }
}
