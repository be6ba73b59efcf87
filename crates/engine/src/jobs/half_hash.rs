//! Half of a hash, stored in the entries of an index: they are small, and can move when the table grows
//! without reading the job.

/// 32 bits of a hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct HalfHash(u32);

impl HalfHash {
    pub(super) fn of(hash: u64) -> Self {
        Self(u32::try_from(hash >> 32).unwrap_or_default())
    }

    /// For a table that needs 64 varying bits.
    pub(super) const fn spread(self) -> u64 {
        (self.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// The part of a table with `of` parts. Uses the upper bits, because a table places entries by the lower
    /// ones.
    pub(super) const fn part(self, of: usize) -> usize {
        (self.0 as usize * of) >> u32::BITS
    }
}
