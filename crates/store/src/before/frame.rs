//! The frame around a slice of a commit of version 0.1.0: the commit, the part and number of parts, and a checksum of
//! it all.
//!
//! A commit's records are concatenated and cut into slices. Each slice in its frame is one value under its own key. The
//! parts of a commit have consecutive keys, and later commits higher ones. Not here: the meaning of records (`record`),
//! and which values belong together (`replay`).
//!
//! ```text
//! bytes 0..4    crc32 of the key (big-endian) and all bytes from 4 on
//!       4       version, 1
//!       5..13   number of the commit
//!       13..17  part, from 0
//!       17..21  parts
//!       21..25  where the first record that begins in this slice begins; the slice's length if none does
//!       25..    the slice
//! ```
//! Numbers are little-endian. Checksum and version keep their positions in every later version.

use crate::codec::DecodeError;
use crate::record::COUNT_MAX;

/// The version that was written.
pub(super) const VERSION: u8 = 1;
const HEADER_BYTES: usize = 25;

/// Why a value is not a frame of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// It is damaged.
    #[error("the checksum does not match")]
    Torn,
    /// It is intact, but of an unknown version.
    #[error("unknown format version {0}")]
    Version(u8),
    /// It is intact, but inconsistent.
    #[error("the frame is inconsistent")]
    Nonsense,
    /// It is intact, but its records are invalid.
    #[error(transparent)]
    Record(#[from] DecodeError),
}

/// A decoded value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) seq: u64,
    pub(crate) part: u32,
    pub(crate) parts: u32,
    pub(crate) starts_at: u32,
    pub(crate) slice: &'a [u8],
}

/// Decodes a value.
pub(crate) fn open(key: u64, value: &[u8]) -> Result<Frame<'_>, FrameError> {
    let (sum, rest) = value.split_first_chunk::<4>().ok_or(FrameError::Torn)?;
    if u32::from_le_bytes(*sum) != checksum(key, value) {
        return Err(FrameError::Torn);
    }
    let (version, rest) = rest.split_first().ok_or(FrameError::Nonsense)?;
    if *version != VERSION {
        return Err(FrameError::Version(*version));
    }
    let fields = || {
        let (seq, rest) = rest.split_first_chunk::<8>()?;
        let (part, rest) = rest.split_first_chunk::<4>()?;
        let (parts, rest) = rest.split_first_chunk::<4>()?;
        let (starts_at, slice) = rest.split_first_chunk::<4>()?;
        let [part, parts, starts_at] = [part, parts, starts_at].map(|field| u32::from_le_bytes(*field));
        Some(Frame { seq: u64::from_le_bytes(*seq), part, parts, starts_at, slice })
    };
    let frame = fields().ok_or(FrameError::Nonsense)?;
    let sensible = frame.part < frame.parts && frame.starts_at as usize <= frame.slice.len();
    let placed = u64::from(frame.part) <= key && frame.seq < COUNT_MAX;
    if sensible && placed { Ok(frame) } else { Err(FrameError::Nonsense) }
}

/// The commit number in a value that is known to be intact, under any key.
pub(crate) fn seq(value: &[u8]) -> Option<u64> {
    let version = value.get(4)?;
    let seq = value.get(5..)?.first_chunk().copied().map(u64::from_le_bytes)?;
    (*version == VERSION && value.len() >= HEADER_BYTES && seq < COUNT_MAX).then_some(seq)
}

/// The checksum of a value with its key, so that a value under another key is detected.
fn checksum(key: u64, value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&key.to_be_bytes());
    hasher.update(value.get(4..).unwrap_or_default());
    hasher.finalize()
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Fills in the header, for which `value` has space.
    pub(in crate::before) fn seal(key: u64, seq: u64, (part, parts): (u32, u32), starts_at: u32, value: &mut [u8]) {
        let mut header = [0; HEADER_BYTES];
        let fields = [VERSION]
            .into_iter()
            .chain(seq.to_le_bytes())
            .chain(part.to_le_bytes())
            .chain(parts.to_le_bytes())
            .chain(starts_at.to_le_bytes());
        header.iter_mut().skip(4).zip(fields).for_each(|(to, from)| *to = from);
        if let Some(place) = value.first_chunk_mut::<HEADER_BYTES>() {
            *place = header;
        }
        let sum = checksum(key, value).to_le_bytes();
        if let Some(place) = value.first_chunk_mut::<4>() {
            *place = sum;
        }
    }

    fn sealed(key: u64, slice: &[u8]) -> Vec<u8> {
        let mut value = vec![0; HEADER_BYTES];
        value.extend_from_slice(slice);
        seal(key, 77, (2, 5), 3, &mut value);
        value
    }

    #[test]
    fn a_commit_s_number_is_read_from_a_whole_header_of_this_version() {
        let value = |version: u8, seq: u64| [&[0; 4][..], &[version], &seq.to_le_bytes(), &[0; 12]].concat();
        let last = COUNT_MAX - 1;
        let table = [
            (value(VERSION, 77), Some(77)),
            (value(VERSION, last), Some(last)),
            (value(VERSION, COUNT_MAX), None),
            (value(VERSION + 1, 77), None),
            (value(VERSION, 77)[..HEADER_BYTES - 1].to_vec(), None),
            (value(VERSION + 1, 77)[..HEADER_BYTES - 1].to_vec(), None),
            (value(VERSION, 77)[..5].to_vec(), None),
        ];
        for (value, expected) in table {
            assert_eq!(seq(&value), expected, "{value:?}");
        }
    }

    #[test]
    fn a_commit_s_number_has_a_limit() {
        let opened = |seq: u64| {
            let mut value = vec![0; HEADER_BYTES];
            seal(9, seq, (0, 1), 0, &mut value);
            open(9, &value).map(|frame| frame.seq)
        };
        assert_eq!(opened(COUNT_MAX - 1), Ok(COUNT_MAX - 1));
        assert_eq!(opened(COUNT_MAX), Err(FrameError::Nonsense));
    }

    #[test]
    fn a_later_version_is_distinguished_from_damage() {
        let mut value = sealed(9, b"records");
        value[4] = 2;
        assert_eq!(open(9, &value), Err(FrameError::Torn));
        let sum = checksum(9, &value).to_le_bytes();
        value[..4].copy_from_slice(&sum);
        assert_eq!(open(9, &value), Err(FrameError::Version(2)));
    }

    #[test]
    fn inconsistent_frames_are_refused() {
        for (part, parts, starts_at) in [(5, 5, 0), (0, 0, 0), (0, 1, 8), (10, 11, 0)] {
            let mut value = vec![0; HEADER_BYTES];
            value.extend_from_slice(b"records");
            seal(9, 1, (part, parts), starts_at, &mut value);
            assert_eq!(open(9, &value), Err(FrameError::Nonsense), "part {part} of {parts} from {starts_at}");
        }
    }

    proptest! {
        #[test]
        fn any_bit_that_flips_is_found(slice in any::<Vec<u8>>(), at in any::<prop::sample::Index>(), bit in 0u32..8) {
            prop_assume!(slice.len() >= 3);
            let mut value = sealed(9, &slice);
            let whole = Frame { seq: 77, part: 2, parts: 5, starts_at: 3, slice: &slice };
            prop_assert_eq!(open(9, &value), Ok(whole));
            prop_assert_eq!(open(8, &value), Err(FrameError::Torn), "under another key");
            let at = at.index(value.len());
            value[at] ^= 1u8 << bit;
            prop_assert_eq!(open(9, &value), Err(FrameError::Torn));
        }

        #[test]
        fn noise_does_not_decode_as_a_frame(key in any::<u64>(), noise in any::<Vec<u8>>()) {
            prop_assert!(open(key, &noise).is_err());
        }
    }
}
