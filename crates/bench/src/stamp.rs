//! The identity of a job: its number, the time it was sent, a random id.

use uuid::Uuid;

/// A unique id has the form of a UUID: 32 hexadecimal digits and 4 hyphens, as stock clients write it.
pub(crate) const UNIQUE_BYTES: usize = 36;
/// The size of a binary job: a stamp, and filler bytes.
pub(crate) const BODY_BYTES: usize = 100;
/// Both numbers of a stamp as hexadecimal digits.
pub(crate) const STAMP_DIGITS: usize = 32;

/// The beginning of every job's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The job's number within the run, from 0.
    pub(crate) number: u64,
    /// When it was sent, ns since the generator's epoch.
    pub(crate) sent_nanos: u64,
}

impl Stamp {
    /// The body of a binary job.
    #[inline]
    pub(crate) fn to_body(self) -> [u8; BODY_BYTES] {
        let mut body = [b'x'; BODY_BYTES];
        let stamp = (u128::from(self.sent_nanos) << 64 | u128::from(self.number)).to_le_bytes();
        body.iter_mut()
            .zip(stamp)
            .for_each(|(place, byte)| *place = byte);
        body
    }

    /// Reads the stamp of a binary job. `None` if the rest of the body is another one.
    #[inline]
    pub(crate) fn of_body(body: &[u8]) -> Option<Self> {
        let (number, rest) = body.split_first_chunk()?;
        let (sent_nanos, filler) = rest.split_first_chunk()?;
        let stamp = Self {
            number: u64::from_le_bytes(*number),
            sent_nanos: u64::from_le_bytes(*sent_nanos),
        };
        (body.len() == BODY_BYTES && filler.iter().all(|byte| *byte == b'x')).then_some(stamp)
    }

    /// The digits in a body of JSON.
    #[inline]
    pub(crate) fn to_digits(self) -> [u8; STAMP_DIGITS] {
        digits((u128::from(self.number) << 64 | u128::from(self.sent_nanos)).to_be_bytes())
    }

    /// Reads these digits.
    #[inline]
    pub(crate) fn of_digits(digits: &[u8]) -> Option<Self> {
        let (number, sent) = digits.split_at_checked(STAMP_DIGITS / 2)?;
        Some(Self {
            number: number_in(number)?,
            sent_nanos: number_in(sent)?,
        })
    }
}

/// A UUID of two numbers.
#[inline]
pub(crate) fn uuid(high: u64, low: u64) -> [u8; UNIQUE_BYTES] {
    let mut text = [0; UNIQUE_BYTES];
    Uuid::from_u64_pair(high, low)
        .hyphenated()
        .encode_lower(&mut text);
    text
}

/// The second number of a UUID.
#[inline]
pub(crate) fn low_of(uuid: &[u8]) -> Option<u64> {
    Some(Uuid::try_parse_ascii(uuid).ok()?.as_u64_pair().1)
}

/// Lower-case hexadecimal digits; twice as many as there are bytes.
#[inline]
pub(crate) fn digits<const BYTES: usize, const DIGITS: usize>(bytes: [u8; BYTES]) -> [u8; DIGITS] {
    let mut digits = [b'0'; DIGITS];
    let written = hex::encode_to_slice(bytes, &mut digits);
    debug_assert_eq!(written, Ok(()));
    digits
}

#[inline]
fn number_in(digits: &[u8]) -> Option<u64> {
    let mut bytes = [0; 8];
    hex::decode_to_slice(digits, &mut bytes).ok()?;
    Some(u64::from_be_bytes(bytes))
}

/// A random unique id. What stands before its first hyphen is one of 100,000 values: the keys of `windlass-fair`.
pub(crate) fn unique(rng: &mut fastrand::Rng) -> [u8; UNIQUE_BYTES] {
    uuid(
        rng.u64(..100_000) << 32 | u64::from(rng.u32(..)),
        rng.u64(..),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unique_ids_look_like_uuids_and_differ() {
        let mut rng = fastrand::Rng::with_seed(1);
        let ids: std::collections::HashSet<_> = (0..10_000).map(|_| unique(&mut rng)).collect();
        assert_eq!(ids.len(), 10_000);
        assert_eq!(
            &uuid(0x89, 0x0123_4567_89ab_cdef),
            b"00000000-0000-0089-0123-456789abcdef"
        );
    }

    proptest! {
        #[test]
        fn stamps_and_numbers_survive(number: u64, sent_nanos: u64) {
            let stamp = Stamp { number, sent_nanos };
            prop_assert_eq!(Stamp::of_body(&stamp.to_body()), Some(stamp));
            prop_assert_eq!(Stamp::of_digits(&stamp.to_digits()), Some(stamp));
            prop_assert_eq!(low_of(&uuid(sent_nanos, number)), Some(number));
        }

        #[test]
        fn noise_never_panics(noise: Vec<u8>) {
            let _ = (Stamp::of_body(&noise), Stamp::of_digits(&noise), low_of(&noise));
        }
    }
}
