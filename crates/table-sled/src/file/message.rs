//! Segments and messages of sled's log: their positions, and whether they are intact. Pure: bytes in, slices of them
//! out.
//!
//! Source: sled 0.34.7, `pagecache/logger.rs`, `pagecache/constants.rs`, `serialization.rs`.
//!
//! ```text
//! segment  0..4    complement of the crc32 of bytes 4..20
//!          4..12   its place in the log, a multiple of its size, xor i64::MAX
//!          12..20  up to where the log was on the disk when the segment was begun, xor i64::MAX
//!          20..    messages
//! message  0..4    complement of the crc32 of the body, followed by the header from byte 4 on
//!          4       kind
//!          5..     three numbers: bytes of the body; the segment's place divided by its size; the page
//!          ..      the body
//! ```
//! Fixed numbers are little-endian. The others take a byte up to 240 and up to nine beyond ([`Cursor::number`]).

/// Length of a segment's header.
pub(super) const SEGMENT_HEADER_BYTES: usize = 20;
/// The longest header of a message. A message never begins closer to the end of a segment.
pub(super) const HEADER_BYTES_MAX: usize = 32;
/// A message larger than this fraction of a segment goes to a file of its own.
const MESSAGES_MIN: usize = 4;
const KINDS: std::ops::RangeInclusive<u8> = 1..=11;

/// Why a place in the file cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// No message begins here.
    NoMessage,
    /// The file or the segment ends within the message.
    Short,
    /// The message is damaged.
    Checksum,
    /// The message is of this segment.
    Segment(u64),
    /// The message is of this page.
    Page(u64),
    /// The message is invalid for its kind.
    Nonsense,
    /// The page is too large.
    Large,
    /// The file with the message's contents is missing or damaged.
    Blob,
    /// The disk cannot read it.
    Disk,
}

/// Reads from the front of bytes. `None`: they end too early.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.fixed().map(|[byte]| byte)
    }

    pub(super) fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// A number in sled's encoding: a small one in a byte, a large one after a byte with the number of bytes that
    /// follow.
    pub(super) fn number(&mut self) -> Option<u64> {
        Some(match self.byte()? {
            small @ 0..=240 => u64::from(small),
            high @ 241..=248 => 240 + 256 * u64::from(high - 241) + u64::from(self.byte()?),
            249 => 2288 + u64::from(u16::from_be_bytes(self.fixed()?)),
            length => {
                let mut bytes = [0; 8];
                let given = self.take(usize::from(length) - 247)?;
                bytes
                    .iter_mut()
                    .zip(given)
                    .for_each(|(to, from)| *to = *from);
                u64::from_le_bytes(bytes)
            }
        })
    }

    /// A byte string after its length.
    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        let bytes = usize::try_from(self.number()?).ok()?;
        self.take(bytes)
    }
}

/// A segment's header: its position in the log and in the file, and the log's end on the disk when the segment was
/// begun.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Segment {
    pub(super) lsn: u64,
    pub(super) offset: u64,
    pub(super) stable: u64,
}

impl Segment {
    /// `None`: blank, damaged, or of a log with another segment size.
    pub(super) fn read(
        header: &[u8; SEGMENT_HEADER_BYTES],
        offset: u64,
        segment_bytes: usize,
    ) -> Option<Self> {
        let mut cursor = Cursor(header);
        let sum = u32::from_le_bytes(cursor.fixed()?);
        if crc32fast::hash(cursor.0) != !sum {
            return None;
        }
        let lsn = u64::try_from(i64::from_le_bytes(cursor.fixed()?) ^ i64::MAX).ok()?;
        let stable = i64::from_le_bytes(cursor.fixed()?) ^ i64::MAX;
        // When the first segment is begun nothing is stable yet: the field is -1.
        let stable = u64::try_from(stable).unwrap_or(0);
        lsn.is_multiple_of(segment_bytes as u64).then_some(Self {
            lsn,
            offset,
            stable,
        })
    }
}

/// The subject of a message. Irrelevant ones are `Nothing`: cancelled messages, and markers of a batch's extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Nothing,
    /// The rest of the segment is unused.
    Cap,
    /// The page is free.
    Free,
    /// A whole page.
    Counter,
    Meta,
    Node,
    /// A change to a page.
    Link,
}

/// A message's header, which may be any bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    sum: u32,
    tag: u8,
    pub(super) body_bytes: usize,
    pub(super) segment: u64,
    pub(super) page: u64,
    pub(super) bytes: usize,
}

impl Head {
    /// Decodes the header at the start of `bytes`.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor(bytes);
        let sum = u32::from_le_bytes(cursor.fixed()?);
        let tag = cursor.byte().filter(|tag| KINDS.contains(tag))?;
        let body_bytes = usize::try_from(cursor.number()?).ok()?;
        let (segment, page) = (cursor.number()?, cursor.number()?);
        Some(Self {
            sum,
            tag,
            body_bytes,
            segment,
            page,
            bytes: bytes.len() - cursor.0.len(),
        })
    }

    pub(super) const fn kind(&self) -> Kind {
        match self.tag {
            2 => Kind::Cap,
            4 => Kind::Free,
            5 => Kind::Counter,
            6 | 7 => Kind::Meta,
            8 | 9 => Kind::Node,
            10 | 11 => Kind::Link,
            _ => Kind::Nothing,
        }
    }
}

/// An intact message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    pub(super) kind: Kind,
    /// The kind in sled's encoding.
    pub(super) tag: u8,
    /// The number of its segment.
    pub(super) segment: u64,
    pub(super) page: u64,
    pub(super) body: &'a [u8],
    /// Header and body.
    pub(super) bytes: usize,
}

impl<'a> Message<'a> {
    /// Decodes the message at the start of `bytes`.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Flaw> {
        let short = if bytes.len() < HEADER_BYTES_MAX {
            Flaw::Short
        } else {
            Flaw::NoMessage
        };
        Self::behind(Head::read(bytes).ok_or(short)?, bytes)
    }

    fn behind(head: Head, bytes: &'a [u8]) -> Result<Self, Flaw> {
        let (header, rest) = bytes.split_at_checked(head.bytes).ok_or(Flaw::Short)?;
        let body = rest.get(..head.body_bytes).ok_or(Flaw::Short)?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(body);
        hasher.update(header.get(4..).unwrap_or_default());
        if hasher.finalize() != !head.sum {
            return Err(Flaw::Checksum);
        }
        let bytes = header.len() + body.len();
        Ok(Self {
            kind: head.kind(),
            tag: head.tag,
            segment: head.segment,
            page: head.page,
            body,
            bytes,
        })
    }

    /// The name of the file with its contents, if they are not in the log.
    pub(super) fn blob(&self) -> Option<Result<u64, Flaw>> {
        let id = || u64::try_from(i64::from_le_bytes(self.body.try_into().ok()?)).ok();
        matches!(self.tag, 7 | 9 | 11).then(|| id().ok_or(Flaw::Nonsense))
    }
}

/// The messages of a segment with their offsets, up to the first missing or damaged one.
#[derive(Debug)]
pub(super) struct Messages<'a> {
    bytes: &'a [u8],
    segment_bytes: usize,
    number: u64,
    at: usize,
    /// Where the messages ended too early, and why. Set after the last message.
    pub(super) tear: Option<(usize, Flaw)>,
}

impl<'a> Messages<'a> {
    /// The messages of the segment at this position in the log. `bytes` are all of it, or the part in the file.
    pub(super) fn of(bytes: &'a [u8], lsn: u64, segment_bytes: usize) -> Self {
        let number = lsn / segment_bytes as u64;
        Self {
            bytes,
            segment_bytes,
            number,
            at: SEGMENT_HEADER_BYTES,
            tear: None,
        }
    }

    /// Continues after a tear, at the next message of this segment. Each attempt costs a checksum; `spare` limits the
    /// bytes checked.
    pub(super) fn resume(&mut self, spare: &mut usize) -> bool {
        let Some((tear, _)) = self.tear else {
            return false;
        };
        let number = self.number;
        let next = find(self.bytes, tear + 1, self.segment_bytes, spare, |head| {
            head.segment == number
        });
        if let Some((at, _)) = next {
            (self.at, self.tear) = (at, None);
        }
        next.is_some()
    }

    fn message(&self) -> Result<Message<'a>, Flaw> {
        let message = Message::read(self.bytes.get(self.at..).unwrap_or_default())?;
        if message.segment == self.number {
            Ok(message)
        } else {
            Err(Flaw::Segment(message.segment))
        }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = (usize, Message<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let full = self.at + HEADER_BYTES_MAX > self.segment_bytes;
        if full || self.tear.is_some() {
            return None;
        }
        match self.message() {
            Ok(Message {
                kind: Kind::Cap, ..
            }) => {
                self.at = self.segment_bytes;
                None
            }
            Ok(message) => {
                let at = self.at;
                self.at += message.bytes;
                Some((at, message))
            }
            // Just enough space for a header: sled flushes such a segment without a cap, and may continue with the
            // next.
            Err(_) if self.at + HEADER_BYTES_MAX == self.segment_bytes => None,
            Err(flaw) => {
                self.tear = Some((self.at, flaw));
                None
            }
        }
    }
}

/// The segment's number according to its first message: for segments without a header.
pub(super) fn segment_number(bytes: &[u8], segment_bytes: usize, mut spare: usize) -> Option<u64> {
    let numbers_max = i64::MAX.unsigned_abs() / segment_bytes as u64;
    let fits = |head: &Head| head.segment < numbers_max;
    find(bytes, SEGMENT_HEADER_BYTES, segment_bytes, &mut spare, fits)
        .map(|(_, message)| message.segment)
}

/// The next message at any offset. It ignores caps, which end a segment.
fn find<'a>(
    bytes: &'a [u8],
    from: usize,
    segment_bytes: usize,
    spare: &mut usize,
    fits: impl Fn(&Head) -> bool,
) -> Option<(usize, Message<'a>)> {
    let body_bytes_max = segment_bytes / MESSAGES_MIN;
    for at in from..bytes.len() {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(head) = Head::read(rest) else {
            continue;
        };
        if !fits(&head) || head.tag == 2 || head.body_bytes > body_bytes_max {
            continue;
        }
        *spare = spare.checked_sub(head.body_bytes)?;
        if let Ok(message) = Message::behind(head, rest) {
            return Some((at, message));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let cases: [(&[u8], Option<u64>); 16] = [
            (&[0], Some(0)),
            (&[240], Some(240)),
            (&[241, 0], Some(240)),
            (&[241, 1], Some(241)),
            (&[248, 255], Some(2_287)),
            (&[249, 0, 0], Some(2_288)),
            (&[249, 1, 2], Some(2_546)),
            (&[249, 255, 255], Some(67_823)),
            (&[250, 240, 8, 1], Some(67_824)),
            (&[251, 0, 0, 0, 1], Some(1 << 24)),
            (
                &[255, 255, 255, 255, 255, 255, 255, 255, 255],
                Some(u64::MAX),
            ),
            (&[], None),
            (&[241], None),
            (&[249, 1], None),
            (&[250, 1, 1], None),
            (&[255, 1, 1, 1, 1, 1, 1, 1], None),
        ];
        for (bytes, number) in cases {
            assert_eq!(Cursor(bytes).number(), number, "{bytes:?}");
        }
    }

    #[test]
    fn fewer_bytes_than_a_header_are_short() {
        let table = [
            (0, Flaw::Short),
            (HEADER_BYTES_MAX - 1, Flaw::Short),
            (HEADER_BYTES_MAX, Flaw::NoMessage),
            (HEADER_BYTES_MAX + 1, Flaw::NoMessage),
        ];
        for (bytes, flaw) in table {
            assert_eq!(
                Message::read(&vec![0; bytes]).err(),
                Some(flaw),
                "{bytes} bytes"
            );
        }
    }
}
