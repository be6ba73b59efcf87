//! The identity of a job: its number, the time it was sent, a random id.

/// A unique id is written as 32 hexadecimal digits and 4 hyphens, as stock clients do.
pub const UNIQUE_BYTES: usize = 36;

/// The beginning of every job's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The job's number within the run, from 0.
    pub number: u64,
    /// When it was sent, ns since the generator's epoch.
    pub sent_nanos: u64,
}

impl Stamp {
    /// Reads the stamp of a job's body.
    #[inline]
    pub fn of(body: &[u8]) -> Option<Self> {
        let (number, rest) = body.split_first_chunk::<8>()?;
        let sent = rest.first_chunk::<8>()?;
        Some(Self { number: u64::from_le_bytes(*number), sent_nanos: u64::from_le_bytes(*sent) })
    }
}

/// A seeded random generator (splitmix64) for unique ids: the same seed gives the same ids, so runs are repeatable.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A unique id in the form of a UUID.
    pub fn unique(&mut self) -> [u8; UNIQUE_BYTES] {
        let mut digits = u128::from(self.roll()) << 64 | u128::from(self.roll());
        let mut text = [b'-'; UNIQUE_BYTES];
        let places = text.iter_mut().zip(0_u8..).filter(|(_, at)| ![8, 13, 18, 23].contains(at));
        for (place, _) in places {
            let nibble = u8::try_from(digits & 15).unwrap_or(0);
            *place = if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
            digits >>= 4;
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_ids_look_like_uuids_and_differ() {
        let mut rng = Random::new(1);
        let ids: std::collections::HashSet<_> = (0..10_000).map(|_| rng.unique()).collect();
        assert_eq!(ids.len(), 10_000);
        let text = String::from_utf8(Random::new(9).unique().to_vec()).unwrap();
        assert_eq!(text.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{text}");
        assert!(text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()), "{text}");
    }
}
