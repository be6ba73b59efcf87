//! The bytes of a log: segment headers, followed by entries. Pure.
//!
//! ```text
//! segment   header, then entries, each beginning at a multiple of 8; after the last one arbitrary bytes
//!
//! header    bytes 0..4    crc32 of the log's id and of bytes 4..64
//!                 4..8    "WLS1"
//!                 8..16   the log's id
//!                 16..24  number of the segment
//!                 24..32  number of the commit in its first entry
//!                 32..36  checksum of the entry before that
//!                 36..64  zeros
//!
//! entry     bytes 0..4    crc32 of the log's id and of all bytes from 4 to the entry's end
//!                 4..8    "WLE1"
//!                 8..12   length of the records
//!                 12..16  checksum of the entry before this one; 0 for the first of a log
//!                 16..24  number of the commit
//!                 24..28  crc32 of the log's id and of bytes 4..24
//!                 28      1: zeros fill the entry up to the next multiple of 8. 0, in older entries: arbitrary bytes do
//!                 29..32  zeros
//!                 32..    the records, each after its length (a varint)
//! ```
//! Numbers are little-endian. The id is random and secret. So a client cannot send a body that reads as an entry or
//! slows a search for entries, and entries of another directory do not count. Magic and checksum keep their positions
//! in every later version.

use std::ops::Range;

pub(crate) const HEADER_BYTES: usize = 64;
pub(crate) const ENTRY_HEADER_BYTES: usize = 32;
const SEGMENT_MAGIC: [u8; 4] = *b"WLS1";
const ENTRY_MAGIC: [u8; 4] = *b"WLE1";
/// Entries begin at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;
/// Padding of an entry up to that multiple.
pub(crate) const PADDING: [u8; ALIGNMENT] = [0; ALIGNMENT];
/// Position of the flag that marks a padded entry.
const PADDED_AT: usize = 28;

/// A log's id: random, and part of every checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogId(pub(crate) u64);

impl LogId {
    /// A checksum seeded with the id, so that only bytes of this log match.
    pub(crate) fn hasher(self) -> crc32fast::Hasher {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.0.to_le_bytes());
        hasher
    }

    pub(crate) fn checksum(self, bytes: &[u8]) -> u32 {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        hasher.finalize()
    }

    /// A block: the checksum of the rest, the kind, and the fields.
    pub(crate) fn sealed(self, kind: [u8; 4], fields: [u64; 4]) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let rest = kind
            .into_iter()
            .chain(fields.into_iter().flat_map(u64::to_le_bytes));
        bytes
            .iter_mut()
            .skip(4)
            .zip(rest)
            .for_each(|(to, from)| *to = from);
        let sum = self.checksum(bytes.get(4..).unwrap_or_default());
        bytes
            .iter_mut()
            .zip(sum.to_le_bytes())
            .for_each(|(to, from)| *to = from);
        bytes
    }
}

/// The contents of a segment header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    pub(crate) number: u64,
    /// The commit of the first entry.
    pub(crate) first_seq: u64,
    /// The checksum of the entry before that one.
    pub(crate) before: u32,
}

impl SegmentHeader {
    pub(crate) fn encode(self, id: LogId) -> [u8; HEADER_BYTES] {
        id.sealed(
            SEGMENT_MAGIC,
            [id.0, self.number, self.first_seq, self.before.into()],
        )
    }

    /// The header at the start of a segment, if it belongs to this log.
    pub(crate) fn decode(id: LogId, bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        let whole = id.checksum(header.get(4..)?) == u32_at(header, 0)?;
        let ours = header.get(4..8)? == SEGMENT_MAGIC && u64_at(header, 8)? == id.0;
        let header = Self {
            number: u64_at(header, 16)?,
            first_seq: u64_at(header, 24)?,
            before: u32_at(header, 32)?,
        };
        (whole && ours).then_some(header)
    }
}

/// A complete entry: the fields of the header, and the range of the records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) seq: u64,
    pub(crate) before: u32,
    pub(crate) checksum: u32,
    /// Range of the records in the segment.
    pub(crate) records: Range<usize>,
    /// The padding after it is intact. Damaged padding loses no data.
    pub(crate) padded: bool,
}

impl Found {
    /// Offset of the next entry.
    pub(crate) const fn end(&self) -> usize {
        self.records.end.next_multiple_of(ALIGNMENT)
    }
}

/// The bytes of an entry with this many bytes of records.
pub(crate) const fn entry_bytes(payload: u32) -> usize {
    (ENTRY_HEADER_BYTES + payload as usize).next_multiple_of(ALIGNMENT)
}

/// Fills in an entry's header. `header` is the entry's first bytes; `parts` are all bytes after them. Returns the
/// checksum.
pub(crate) fn seal<'a>(
    id: LogId,
    seq: u64,
    before: u32,
    len: u32,
    header: &mut [u8; ENTRY_HEADER_BYTES],
    parts: impl Iterator<Item = &'a [u8]>,
) -> u32 {
    let fields = ENTRY_MAGIC
        .into_iter()
        .chain(len.to_le_bytes())
        .chain(before.to_le_bytes())
        .chain(seq.to_le_bytes());
    header
        .iter_mut()
        .skip(4)
        .zip(fields)
        .for_each(|(to, from)| *to = from);
    let sum = id
        .checksum(header.get(4..24).unwrap_or_default())
        .to_le_bytes();
    header
        .iter_mut()
        .skip(24)
        .zip(sum.into_iter().chain([1, 0, 0, 0]))
        .for_each(|(to, from)| *to = from);
    let mut hasher = id.hasher();
    hasher.update(header.get(4..).unwrap_or_default());
    parts.for_each(|part| hasher.update(part));
    let sum = hasher.finalize();
    header
        .iter_mut()
        .zip(sum.to_le_bytes())
        .for_each(|(to, from)| *to = from);
    sum
}

/// The entry that starts at `at`, if it is complete.
pub(crate) fn entry_at(id: LogId, segment: &[u8], at: usize) -> Option<Found> {
    let bytes = segment.get(at..)?;
    let header = bytes.first_chunk::<ENTRY_HEADER_BYTES>()?;
    if header.get(4..8)? != ENTRY_MAGIC || id.checksum(header.get(4..24)?) != u32_at(header, 24)? {
        return None;
    }
    let len = usize::try_from(u32_at(header, 8)?).ok()?;
    let entry = bytes.get(..ENTRY_HEADER_BYTES.checked_add(len)?)?;
    let checksum = u32_at(header, 0)?;
    if id.checksum(entry.get(4..)?) != checksum {
        return None;
    }
    let records = at + ENTRY_HEADER_BYTES..at + entry.len();
    let padding = segment.get(records.end..records.end.next_multiple_of(ALIGNMENT));
    let is_zeros = padding.is_some_and(|padding| padding.iter().all(|byte| *byte == 0));
    let padded = is_zeros || header.get(PADDED_AT) != Some(&1);
    Some(Found {
        seq: u64_at(header, 16)?,
        before: u32_at(header, 12)?,
        checksum,
        records,
        padded,
    })
}

/// The first complete entry at or after `at` with a number of at least `seq`, with the offset.
pub(crate) fn next_entry(id: LogId, segment: &[u8], at: usize, seq: u64) -> Option<(usize, Found)> {
    let first = at.next_multiple_of(ALIGNMENT);
    let candidates = (first..segment.len()).step_by(ALIGNMENT);
    let found = |at: usize| {
        entry_at(id, segment, at)
            .filter(|entry| entry.seq >= seq)
            .map(|entry| (at, entry))
    };
    candidates
        .filter(|at| segment.get(at + 4..at + 8) == Some(&ENTRY_MAGIC))
        .find_map(found)
}

/// Returns true if the bytes resemble the start of this commit's entry, whether complete or torn.
pub(crate) fn resembles_entry(segment: &[u8], at: usize, seq: u64) -> bool {
    let here = |from: usize, to: usize| segment.get(at + from..at + to);
    here(4, 8) == Some(&ENTRY_MAGIC) && here(16, 24) == Some(&seq.to_le_bytes())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: LogId = LogId(0x0123_4567_89ab_cdef);

    fn entry(seq: u64, before: u32, records: &[u8]) -> (Vec<u8>, u32) {
        let mut header = [0; ENTRY_HEADER_BYTES];
        let len = u32::try_from(records.len()).unwrap();
        let sum = seal(ID, seq, before, len, &mut header, [records].into_iter());
        (
            header.into_iter().chain(records.iter().copied()).collect(),
            sum,
        )
    }

    #[test]
    fn the_bytes_of_a_header() {
        let header = SegmentHeader {
            number: 3,
            first_seq: 900,
            before: 0xdead_beef,
        };
        let bytes = header.encode(ID);
        assert_eq!(
            hex(&bytes[4..40]),
            "574c5331efcdab89674523010300000000000000840300000000000\
                                        0efbeadde00000000"
        );
        assert_eq!(SegmentHeader::decode(ID, &bytes), Some(header));
        assert_eq!(
            SegmentHeader::decode(LogId(1), &bytes),
            None,
            "another log's"
        );
        assert_eq!(SegmentHeader::decode(ID, &bytes[..63]), None);
        let (mut flipped, mut later) = (bytes, bytes);
        flipped[16] ^= 1;
        assert_eq!(
            SegmentHeader::decode(ID, &flipped),
            None,
            "a bit has flipped"
        );
        later[7] = b'2';
        let sum = ID.checksum(&later[4..]);
        later[..4].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(
            SegmentHeader::decode(ID, &later),
            None,
            "of a later version"
        );
    }

    #[test]
    fn the_bytes_of_an_entry() {
        let (bytes, sum) = entry(0x0102, 0x0a0b_0c0d, b"records");
        assert_eq!(
            hex(&bytes[4..24]),
            "574c4531070000000d0c0b0a0201000000000000"
        );
        assert_eq!(
            (&bytes[28..32], &bytes[32..]),
            (&[1, 0, 0, 0][..], &b"records"[..])
        );
        let bytes = [&bytes[..], &[0]].concat();
        let found = Found {
            seq: 0x0102,
            before: 0x0a0b_0c0d,
            checksum: sum,
            records: 32..39,
            padded: true,
        };
        let end = found.end();
        assert_eq!((entry_at(ID, &bytes, 0), end), (Some(found), 40));
        assert_eq!(entry_at(LogId(1), &bytes, 0), None, "another log's");
    }

    #[test]
    fn an_entry_of_a_later_version_is_not_read() {
        let (mut bytes, _) = entry(1, 0, b"records!");
        bytes[7] = b'2';
        let head = ID.checksum(&bytes[4..24]);
        bytes[24..28].copy_from_slice(&head.to_le_bytes());
        let sum = ID.checksum(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(entry_at(ID, &bytes, 0), None);
    }

    #[test]
    fn padding_is_checked_except_in_old_entries() {
        let (mut bytes, _) = entry(1, 0, b"records");
        assert!(
            !entry_at(ID, &bytes, 0).unwrap().padded,
            "padding is missing"
        );
        bytes.push(0);
        assert!(entry_at(ID, &bytes, 0).unwrap().padded);
        bytes[39] = 0x20;
        assert!(
            !entry_at(ID, &bytes, 0).unwrap().padded,
            "a bit has flipped"
        );
        // An entry of the older format, without the padding flag.
        bytes[PADDED_AT] = 0;
        let sum = ID.checksum(&bytes[4..39]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        assert!(entry_at(ID, &bytes, 0).unwrap().padded);
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn a_whole_entry_after_damage_is_found_unless_its_number_is_too_low() {
        let (mut segment, _) = entry(5, 0, &[1; 30]);
        segment.resize(segment.len().next_multiple_of(8) + 40, 0);
        let at = segment.len();
        segment.extend(entry(6, 0, &[2; 9]).0);
        segment[10] ^= 1;
        assert_eq!(
            next_entry(ID, &segment, 0, 5).map(|(at, found)| (at, found.seq)),
            Some((at, 6))
        );
        assert_eq!(next_entry(ID, &segment, 0, 7), None);
        assert!(resembles_entry(&segment, 0, 5) && !resembles_entry(&segment, 0, 6));
    }

    proptest! {
        #[test]
        fn any_bit_that_flips_is_found(records in any::<Vec<u8>>(), at in any::<prop::sample::Index>(), bit in 0u32..8) {
            let (mut bytes, _) = entry(77, 5, &records);
            prop_assert!(entry_at(ID, &bytes, 0).is_some());
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            prop_assert_eq!(entry_at(ID, &bytes, 0), None);
        }

        #[test]
        fn noise_does_not_decode_as_an_entry(noise in any::<Vec<u8>>(), at in 0usize..300) {
            prop_assert_eq!(entry_at(ID, &noise, at), None);
            prop_assert_eq!(SegmentHeader::decode(ID, &noise), None);
            prop_assert_eq!(next_entry(ID, &noise, at, 0), None);
        }
    }
}
