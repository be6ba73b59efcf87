//! Identifiers for the daemon's own messages, in the form of UUIDs of version 4. They are unique without coordination.

/// A connection's sequence of identifiers.
#[derive(Debug)]
pub(super) struct MessageIds {
    /// The first half of the UUID, with its version.
    high: u64,
    /// Identifiers made so far.
    count: u64,
}

/// Bytes of a UUID as text.
const TEXT_BYTES: usize = 36;

impl MessageIds {
    /// A sequence that starts with these random bits.
    pub(super) const fn new(rng: u64) -> Self {
        Self {
            high: rng & !0xF000 | 0x4000,
            count: 0,
        }
    }

    /// The next identifier.
    pub(super) fn next(&mut self) -> [u8; TEXT_BYTES] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        /// Numbers of digits before each dash.
        const DASHES: [usize; 4] = [8, 12, 16, 20];

        self.count += 1;
        // The two highest bits are the variant of RFC 9562.
        let low = self.count & (u64::MAX >> 2) | 1 << 63;
        let bits = u128::from(self.high) << 64 | u128::from(low);
        let mut text = [b'-'; TEXT_BYTES];
        let mut at = 0;
        for digit in 0..32 {
            if DASHES.contains(&digit) {
                at += 1;
            }
            let nibble = usize::try_from(bits >> (124 - 4 * digit) & 15).unwrap_or_default();
            if let (Some(state), Some(digit)) = (text.get_mut(at), DIGITS.get(nibble)) {
                *state = *digit;
            }
            at += 1;
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_look_like_uuids_and_differ() {
        let mut ids = MessageIds::new(0x0123_4567_89AB_CDEF);
        let mut next = || String::from_utf8(ids.next().to_vec()).unwrap();
        assert_eq!(next(), "01234567-89ab-4def-8000-000000000001");
        assert_eq!(next(), "01234567-89ab-4def-8000-000000000002");
    }
}
