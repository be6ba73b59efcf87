//! Pages: how the table stores jobs, queues and the engine meta. Pure.
//!
//! Records of neighbouring numbers share one value, so that the jobs of a queue that is processed in order are stored
//! and removed together. A record that is too large for that is stored beside its page, in pieces.
//!
//! ```text
//! keys, in this order
//!   0 "head"                                 a page of one record: the engine's own numbers
//!   0 "point"                                how far the table has come: see `Point`
//!   0 255 page(7) 0                          a page of namespaces: numbers page << 5 to page << 5 | 31
//!   1 page(8) 0                              a page of queues, likewise
//!   2 page(8) 0                              a page of jobs, schedules and batches, likewise
//!   3 page(8) 0                              a page of days, likewise
//!   0 to 3 page(8) 1 number(8) place(8) n(4) piece n of a large record of the page before; numbers are big-endian
//!
//! page     bytes 0..4    crc32 of the key and of all bytes from 4 on
//!                4       version, 2
//!                5..13   generation: the checkpoint that wrote it
//!                13..21  weight of the page it replaced, as of the checkpoint before
//!                21..    items in order of numbers; of each number first the whole record, then the part that changed
//!
//! item     varint 2 × length, record
//!          or 1, kind of the record, varint number, place(8), varint length, crc32(4): it is stored in pieces
//!
//! point    bytes 0..4    crc32 of the key and of all bytes from 4 on
//!                4       version, 2
//!                5..     varints: generation, number of the last commit, id of the log, census, next job, records,
//!                        bytes of them, number of the last commit of the point before (missing in older points)
//! ```
//! Numbers in values are little-endian.
//!
//! The *census* is the sum of the weights of all pages: it verifies that the table has exactly the right pages. A page
//! of the generation after the point's was written by an unfinished checkpoint, and counts as the page it replaced.
//! Processing the same range of the log again gives the same page.

use windlass_engine::JobId;

use crate::record::{COUNT_MAX, Effect, Subject, Tag};
use windlass_codec::{DecodeError, Reader, put_u64};

/// The low bits of a number that select a record within a page.
const PAGE_BITS: u32 = 5;
/// A longer whole record is stored separately from the page …
const LARGE_BYTES: usize = 2 << 10;
/// … and so is a longer changed part. The size of a page is therefore limited to some 96 KiB.
const LARGE_PART_BYTES: usize = 1 << 10;
/// Maximum bytes of a piece of a large record.
pub(crate) const PIECE_BYTES: usize = 16 << 10;
/// Added to the number of a page of namespaces. The key follows that of the point and precedes those of queues: an
/// export reads the table in order, and writes the names of namespaces in the lines of queues and jobs.
const BEHIND_POINT: u64 = 0xff << 56;
const VERSION: u8 = 2;
const HEADER_BYTES: usize = 21;

pub(crate) const HEAD_KEY: &[u8] = b"\0head";
pub(crate) const POINT_KEY: &[u8] = b"\0point";

/// Why a value of the table cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum PageError {
    #[error("the checksum does not match")]
    Torn,
    #[error("unknown format version {0}")]
    Version(u8),
    #[error(transparent)]
    Record(#[from] DecodeError),
}

/// The number of a page among those of the same kind.
pub(crate) const fn page_number(subject: Subject, number: u64) -> u64 {
    match subject {
        Subject::Meta => 0,
        Subject::Namespace => BEHIND_POINT | number >> PAGE_BITS,
        Subject::Queue | Subject::Entity | Subject::Day => number >> PAGE_BITS,
    }
}

/// The key of the page that contains this number.
pub(crate) fn page_key(subject: Subject, number: u64) -> Vec<u8> {
    let kind = match subject {
        Subject::Meta => return HEAD_KEY.to_vec(),
        Subject::Namespace => 0,
        Subject::Queue => 1,
        Subject::Entity => 2,
        Subject::Day => 3,
    };
    let mut key = vec![kind];
    key.extend(page_number(subject, number).to_be_bytes());
    key.push(0);
    key
}

/// The meaning of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Key {
    Point,
    Page,
    /// Piece `n` of the large record of `number` that was at `place` in the log.
    Piece {
        number: u64,
        place: u64,
        n: u32,
    },
    Unknown,
}

impl Key {
    pub(crate) fn of(key: &[u8]) -> Self {
        match key {
            POINT_KEY => Self::Point,
            HEAD_KEY | [0, 0xff, _, _, _, _, _, _, _, 0] | [1..=3, _, _, _, _, _, _, _, _, 0] => {
                Self::Page
            }
            [0, 0xff, _, _, _, _, _, _, _, 1, rest @ ..]
            | [1..=3, _, _, _, _, _, _, _, _, 1, rest @ ..] => {
                piece_of(rest).unwrap_or(Self::Unknown)
            }
            _ => Self::Unknown,
        }
    }
}

fn piece_of(rest: &[u8]) -> Option<Key> {
    let (number, rest) = rest.split_first_chunk()?;
    let (place, rest) = rest.split_first_chunk()?;
    let (n, rest) = rest.split_first_chunk()?;
    let [number, place] = [number, place].map(|bytes| u64::from_be_bytes(*bytes));
    rest.is_empty().then_some(Key::Piece {
        number,
        place,
        n: u32::from_be_bytes(*n),
    })
}

/// A decoded page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Page<'a> {
    pub(crate) generation: u64,
    replaced: u64,
    weight: u64,
    pub(crate) items: &'a [u8],
}

impl<'a> Page<'a> {
    /// Represents a missing page.
    pub(crate) const NONE: Page<'static> = Page {
        generation: 0,
        replaced: 0,
        weight: 0,
        items: &[],
    };

    pub(crate) fn open(key: &[u8], value: &'a [u8]) -> Result<Self, PageError> {
        let (header, items) = value
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(PageError::Torn)?;
        check(key, value)?;
        let number = |at: usize| {
            header
                .get(at..)?
                .first_chunk()
                .copied()
                .map(u64::from_le_bytes)
        };
        let (generation, replaced) = number(5).zip(number(13)).ok_or(PageError::Torn)?;
        Ok(Self {
            generation,
            replaced,
            weight: weight(key, value, items),
            items,
        })
    }

    /// The share of the page in the census of a point.
    pub(crate) const fn weight_at(&self, generation: u64) -> u64 {
        if self.generation <= generation {
            self.weight
        } else {
            self.replaced
        }
    }
}

/// Encodes a page. Returns the page with the weight.
pub(crate) fn seal_page(
    key: &[u8],
    generation: u64,
    replaced: u64,
    items: &[u8],
) -> (Vec<u8>, u64) {
    let mut value = vec![0, 0, 0, 0, VERSION];
    value.extend(generation.to_le_bytes());
    value.extend(replaced.to_le_bytes());
    value.extend_from_slice(items);
    seal(key, &mut value);
    let weight = weight(key, &value, items);
    (value, weight)
}

/// Fills in the checksum.
fn seal(key: &[u8], value: &mut [u8]) {
    let sum = checksum(key, value);
    value
        .iter_mut()
        .zip(sum.to_le_bytes())
        .for_each(|(to, from)| *to = from);
}

fn check(key: &[u8], value: &[u8]) -> Result<(), PageError> {
    let sum = value
        .first_chunk()
        .copied()
        .map(u32::from_le_bytes)
        .ok_or(PageError::Torn)?;
    if sum != checksum(key, value) {
        return Err(PageError::Torn);
    }
    match value.get(4) {
        Some(&VERSION) => Ok(()),
        Some(version) => Err(PageError::Version(*version)),
        None => Err(PageError::Torn),
    }
}

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(value.get(4..).unwrap_or_default());
    hasher.finalize()
}

/// A page without items has the weight 0, like a missing page.
fn weight(key: &[u8], value: &[u8], items: &[u8]) -> u64 {
    if items.is_empty() {
        return 0;
    }
    let sum = value.first_chunk().copied().map_or(0, u32::from_le_bytes);
    mix(u64::from(crc32fast::hash(key)) << 32 | u64::from(sum))
}

/// A permutation in which every bit depends on every other.
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

// ---- items ----------------------------------------------------------------------------------------------------------

/// A item of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Item<'a> {
    /// A record.
    Record(&'a [u8]),
    /// A record stored separately from the page.
    Large(Large),
}

/// A record in pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Large {
    kind: u8,
    pub(crate) number: u64,
    /// The position in the log. It distinguishes the record from an older one of the same number.
    pub(crate) place: u64,
    pub(crate) bytes: usize,
    checksum: u32,
}

impl Large {
    /// Returns true if a record is stored separately from the page. Never so for the engine meta, which is
    /// never large.
    pub(crate) const fn applies(record: &[u8], tag: Tag) -> bool {
        match (tag.subject, tag.effect) {
            (Subject::Meta, _) => false,
            (_, Effect::Part) => record.len() > LARGE_PART_BYTES,
            (_, Effect::Whole | Effect::Gone) => record.len() > LARGE_BYTES,
        }
    }

    /// The reference to a large record.
    pub(crate) fn of(record: &[u8], tag: Tag, place: u64) -> Self {
        let kind = record.first().copied().unwrap_or_default();
        Self {
            kind,
            number: tag.number,
            place,
            bytes: record.len(),
            checksum: crc32fast::hash(record),
        }
    }

    /// Returns true if these are the bytes of the record.
    pub(crate) fn is(&self, record: &[u8]) -> bool {
        record.len() == self.bytes && crc32fast::hash(record) == self.checksum
    }

    /// The keys of the pieces, in order.
    pub(crate) fn keys(self) -> impl Iterator<Item = Vec<u8>> {
        let pieces = u32::try_from(self.bytes.div_ceil(PIECE_BYTES)).unwrap_or(u32::MAX);
        let subject = self.tag().map_or(Subject::Entity, |tag| tag.subject);
        (0..pieces).map(move |n| {
            let mut key = page_key(subject, self.number);
            key.pop();
            key.push(1);
            key.extend(self.number.to_be_bytes());
            key.extend(self.place.to_be_bytes());
            key.extend(n.to_be_bytes());
            key
        })
    }

    /// The record's tag, from kind and number.
    fn tag(self) -> Result<Tag, DecodeError> {
        Tag::new(self.kind, self.number)
    }
}

/// The items of a page, each with the tag and the encoded bytes.
pub(crate) fn items(
    bytes: &[u8],
) -> impl Iterator<Item = Result<(Tag, Item<'_>, &[u8]), DecodeError>> {
    Reader::new(bytes).each(move |reader| {
        let start = bytes.len() - reader.left();
        let (tag, item) = read_item(reader)?;
        Ok((
            tag,
            item,
            bytes
                .get(start..bytes.len() - reader.left())
                .unwrap_or_default(),
        ))
    })
}

fn read_item<'a>(reader: &mut Reader<'a>) -> Result<(Tag, Item<'a>), DecodeError> {
    let coded = reader.u64()?;
    if coded & 1 == 0 {
        let record = reader.slice(coded >> 1)?;
        return Ok((Tag::of(record)?, Item::Record(record)));
    }
    let kind = reader.u8()?;
    let number = reader.below("a number", COUNT_MAX)?;
    let place = reader
        .slice(8)?
        .first_chunk()
        .copied()
        .map_or(0, u64::from_le_bytes);
    let bytes = usize::try_from(reader.u64()?).map_err(|_| DecodeError::Short)?;
    let checksum = reader
        .slice(4)?
        .first_chunk()
        .copied()
        .map_or(0, u32::from_le_bytes);
    let large = Large {
        kind,
        number,
        place,
        bytes,
        checksum,
    };
    Ok((large.tag()?, Item::Large(large)))
}

pub(crate) fn put_record(out: &mut Vec<u8>, record: &[u8]) {
    put_u64(out, (record.len() as u64) << 1);
    out.extend_from_slice(record);
}

pub(crate) fn put_large(out: &mut Vec<u8>, large: Large) {
    put_u64(out, 1);
    out.push(large.kind);
    put_u64(out, large.number);
    out.extend(large.place.to_le_bytes());
    put_u64(out, large.bytes as u64);
    out.extend(large.checksum.to_le_bytes());
}

// ---- the point ------------------------------------------------------------------------------------------------------

/// The position of a table: it contains everything up to a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Point {
    /// Number of the checkpoint.
    pub(crate) generation: u64,
    /// The last commit in the table.
    pub(crate) seq: u64,
    /// The log it belongs to.
    pub(crate) log: u64,
    /// The sum of the weights of all pages.
    pub(crate) census: u64,
    /// The number of the first job created after it.
    pub(crate) next_job: JobId,
    /// Full records in the table.
    pub(crate) records: u64,
    /// Bytes of all records in the table.
    pub(crate) bytes: u64,
    /// The last commit of the previous point. The log retains commits after it.
    pub(crate) before: u64,
}

impl Point {
    /// The point of an empty table.
    pub(crate) const fn start(log: u64) -> Self {
        Self {
            generation: 0,
            seq: 0,
            log,
            census: 0,
            next_job: JobId(0),
            records: 0,
            bytes: 0,
            before: 0,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = vec![0, 0, 0, 0, VERSION];
        let Self {
            generation,
            seq,
            log,
            census,
            next_job,
            records,
            bytes,
            before,
        } = *self;
        [
            generation, seq, log, census, next_job.0, records, bytes, before,
        ]
        .into_iter()
        .for_each(|n| put_u64(&mut value, n));
        seal(POINT_KEY, &mut value);
        value
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self, PageError> {
        check(POINT_KEY, value)?;
        let mut from = Reader::new(value.get(5..).unwrap_or_default());
        let mut point = Self {
            generation: from.below("a generation", COUNT_MAX)?,
            seq: from.below("a commit's number", COUNT_MAX)?,
            log: from.u64()?,
            census: from.u64()?,
            next_job: JobId(from.below("the next job's number", COUNT_MAX)?),
            records: from.u64()?,
            bytes: from.u64()?,
            before: 0,
        };
        point.before = if from.left() > 0 {
            from.below("a commit's number", COUNT_MAX)?
        } else {
            point.seq
        };
        Ok(point)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::encode_gone;

    #[test]
    fn keys_are_in_order_and_decode_to_their_meaning() {
        let job = Large {
            kind: 1,
            number: 0x1234,
            place: 7,
            bytes: PIECE_BYTES + 1,
            checksum: 0,
        };
        let queue = Large {
            kind: 4,
            number: 900,
            bytes: PIECE_BYTES,
            ..job
        };
        let namespace = Large {
            kind: 15,
            number: 1,
            ..queue
        };
        let mut keys = vec![
            HEAD_KEY.to_vec(),
            POINT_KEY.to_vec(),
            page_key(Subject::Namespace, 1),
        ];
        keys.extend(namespace.keys());
        keys.push(page_key(Subject::Namespace, 4_095));
        keys.push(page_key(Subject::Queue, 900));
        keys.extend(queue.keys());
        keys.push(page_key(Subject::Queue, 960));
        keys.push(page_key(Subject::Entity, 0x1234));
        keys.extend(job.keys());
        keys.push(page_key(Subject::Entity, 0x1240));
        assert!(keys.is_sorted());
        let kinds: Vec<_> = keys.iter().map(|key| Key::of(key)).collect();
        let of_namespace = Key::Piece {
            number: 1,
            place: 7,
            n: 0,
        };
        let (of_queue, of_job) = (
            Key::Piece {
                number: 900,
                place: 7,
                n: 0,
            },
            |n| Key::Piece {
                number: 0x1234,
                place: 7,
                n,
            },
        );
        let page = Key::Page;
        assert_eq!(
            kinds,
            [
                page,
                Key::Point,
                page,
                of_namespace,
                page,
                page,
                of_queue,
                page,
                page,
                of_job(0),
                of_job(1),
                page
            ]
        );
        assert_eq!(
            [Key::of(b""), Key::of(&[2, 0]), Key::of(&[9; 10])],
            [Key::Unknown; 3]
        );
    }

    #[test]
    fn the_bytes_of_a_page_and_of_a_point() {
        let mut items = Vec::new();
        put_record(&mut items, &[3, 9]);
        put_large(
            &mut items,
            Large {
                kind: 1,
                number: 300,
                place: 5,
                bytes: 70_000,
                checksum: 0x0a0b_0c0d,
            },
        );
        let (value, weight) = seal_page(HEAD_KEY, 0x0102, 0x0304, &items);
        assert_eq!(
            weight, 0x78cb_40cb_6fc6_41f4,
            "the tables that exist have it in their census"
        );
        let hex: String = value[4..]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let expected =
            "02020100000000000004030000000000000403090101ac020500000000000000f0a2040d0c0b0a";
        assert_eq!(hex, expected);
        let point = Point {
            records: 300,
            before: 6,
            ..Point {
                generation: 2,
                seq: 9,
                census: 5,
                ..Point::start(7)
            }
        };
        let mut value = point.encode();
        let hex: String = value[4..]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, "020209070500ac020006");
        assert_eq!(Point::decode(&value), Ok(point));
        value.pop();
        seal(POINT_KEY, &mut value);
        assert_eq!(
            Point::decode(&value),
            Ok(Point { before: 9, ..point }),
            "an older point lacks it"
        );
    }

    #[test]
    fn long_records_are_stored_beside_their_page() {
        let table = [
            (Subject::Entity, Effect::Whole, LARGE_BYTES),
            (Subject::Entity, Effect::Part, LARGE_PART_BYTES),
            (Subject::Queue, Effect::Whole, LARGE_BYTES),
            (Subject::Meta, Effect::Whole, usize::MAX),
        ];
        for (subject, effect, longest) in table {
            let tag = Tag {
                subject,
                number: 7,
                effect,
            };
            for len in [
                LARGE_PART_BYTES,
                LARGE_PART_BYTES + 1,
                LARGE_BYTES,
                LARGE_BYTES + 1,
            ] {
                assert_eq!(
                    Large::applies(&vec![1; len], tag),
                    len > longest,
                    "{subject:?}, {effect:?}, {len}"
                );
            }
        }
    }

    #[test]
    fn a_record_in_pieces_is_recognized() {
        let tag = Tag {
            subject: Subject::Entity,
            number: 7,
            effect: Effect::Whole,
        };
        let large = Large::of(b"record", tag, 9);
        assert!(large.is(b"record"));
        assert!(!large.is(b"Record") && !large.is(b"records"));
        let same_sum = Large { bytes: 5, ..large };
        assert!(!same_sum.is(b"record"), "the length counts, too");
    }

    #[test]
    fn a_page_of_an_unfinished_checkpoint_counts_as_what_it_replaced() {
        let mut items = Vec::new();
        put_record(&mut items, &[3, 9]);
        let (old, old_weight) = seal_page(HEAD_KEY, 4, 1, &items);
        let (new, new_weight) = seal_page(HEAD_KEY, 5, old_weight, &[]);
        let [old, new] = [&old, &new].map(|value| Page::open(HEAD_KEY, value).unwrap());
        assert_ne!(old_weight, 0);
        assert_eq!(
            (old.weight_at(4), new.weight_at(4)),
            (old_weight, old_weight)
        );
        assert_eq!(
            (new_weight, new.weight_at(5)),
            (0, 0),
            "without items it weighs nothing"
        );
    }

    proptest! {
        #[test]
        fn written_items_read_back(records in prop::collection::vec((0u64..1 << 40, any::<bool>()), 0..20)) {
            let mut bytes = Vec::new();
            let mut expected = Vec::new();
            for (number, large) in records {
                let mut record = Vec::new();
                encode_gone(JobId(number), &mut record);
                let tag = Tag::of(&record).unwrap();
                let as_large = Large::of(&record, tag, number ^ 5);
                if large { put_large(&mut bytes, as_large) } else { put_record(&mut bytes, &record) }
                expected.push((number, large.then_some(as_large)));
            }
            let mut encoded = Vec::new();
            let read: Vec<_> = items(&bytes).map(|item| {
                let (tag, item, raw) = item.unwrap();
                encoded.extend_from_slice(raw);
                (tag.number, if let Item::Large(large) = item { Some(large) } else { None })
            }).collect();
            prop_assert_eq!(read, expected);
            prop_assert_eq!(encoded, bytes);
        }

        #[test]
        fn noise_does_not_decode_as_a_page(key in any::<Vec<u8>>(), noise in any::<Vec<u8>>()) {
            prop_assert!(Page::open(&key, &noise).is_err());
            prop_assert!(Point::decode(&noise).is_err());
            prop_assert!(items(&noise).count() <= noise.len());
        }

        #[test]
        fn any_bit_that_flips_is_found(items in any::<Vec<u8>>(), at in any::<prop::sample::Index>(), bit in 0u32..8) {
            let (mut value, _) = seal_page(HEAD_KEY, 1, 2, &items);
            prop_assert!(Page::open(HEAD_KEY, &value).is_ok());
            prop_assert!(Page::open(POINT_KEY, &value).is_err(), "under another key");
            let at = at.index(value.len());
            value[at] ^= 1u8 << bit;
            prop_assert!(Page::open(HEAD_KEY, &value).is_err());
        }
    }
}
