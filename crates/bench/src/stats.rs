//! Statistics: medians, spreads and ratios. Pure.

/// The median of `values`, or `None` if there are none. Of an even number, the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
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
pub(crate) fn spread_percent(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (middle > 0.0).then(|| 100.0 * (high - low) / middle)
}

/// Two ratios of ours to theirs; they differ when the machine's speed changed between runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio {
    /// Median of ours divided by the median of theirs.
    pub(crate) of_medians: f64,
    /// Median of the quotients of runs in the same round.
    pub(crate) of_pairs: f64,
}

/// Both ratios of `ours` to `theirs`, whose entries at one index are from one round. `None` if there is nothing to
/// divide.
pub(crate) fn ratio(ours: &[f64], theirs: &[f64]) -> Option<Ratio> {
    let (our_median, their_median) = (median(ours)?, median(theirs)?);
    let quotients: Vec<f64> = ours
        .iter()
        .zip(theirs)
        .filter(|(_, b)| **b > 0.0)
        .map(|(a, b)| a / b)
        .collect();
    let of_pairs = median(&quotients)?;
    (their_median > 0.0).then(|| Ratio {
        of_medians: our_median / their_median,
        of_pairs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(
            found,
            Ratio {
                of_medians: 1.0,
                of_pairs: 2.0
            }
        );
        assert_eq!(ratio(&[1.0], &[0.0]), None, "a zero divides nothing");
        assert_eq!(ratio(&[], &[1.0]), None);
    }

    #[test]
    fn spread_is_in_per_cent_of_the_median() {
        assert_eq!(spread_percent(&[90.0, 100.0, 120.0]), Some(30.0));
        assert_eq!(spread_percent(&[]), None);
    }
}
