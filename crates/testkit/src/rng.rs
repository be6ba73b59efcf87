//! Random numbers determined by one seed (splitmix64): the same seed reproduces a failure.

/// A sequence of numbers determined by a seed.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The sequence of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, anywhere in 64 bits.
    pub const fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 if `n` is 0.
    pub const fn below(&mut self, n: u64) -> u64 {
        match self.throw().checked_rem(n) {
            Some(n) => n,
            None => 0,
        }
    }

    /// A number from `low` to `high`, both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of a hundred calls.
    pub const fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A random element, if there is one.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let at = self.below(from.len() as u64);
        from.get(usize::try_from(at).unwrap_or_default())
    }

    /// A random element of a non-empty array.
    pub fn one_of<T: Copy, const N: usize>(&mut self, from: [T; N]) -> T {
        const { assert!(N > 0) };
        let [first, ..] = from.as_slice() else {
            unreachable!("there is at least one")
        };
        self.pick(&from).copied().unwrap_or(*first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_throws_the_same() {
        let throws = |seed| {
            let mut rng = Rng::new(seed);
            std::iter::repeat_with(|| rng.throw())
                .take(8)
                .collect::<Vec<_>>()
        };
        assert_eq!(throws(7), throws(7));
        assert_ne!(throws(7), throws(8));
        // The published first value of splitmix64 from seed 0.
        assert_eq!(throws(0)[0], 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn throws_stay_within_their_bounds() {
        let mut rng = Rng::new(1);
        let mut seen = [false; 6];
        for _ in 0..1_000 {
            seen[usize::try_from(rng.below(6)).unwrap()] = true;
            assert!((3..=5).contains(&rng.between(3, 5)));
            assert!(!rng.chance(0) && rng.chance(100));
            assert!([1, 2].contains(&rng.one_of([1, 2])));
        }
        assert_eq!(seen, [true; 6]);
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.pick::<u8>(&[]), None);
    }
}
