//! The header of a frame: flags, and a length in one byte or in eight.
//!
//! Spec: RFC 37, "Framing". The codec accepts any length. Its callers check limits.

use bytes::{BufMut, BytesMut};

/// Bytes of the longest header: flags and eight bytes of length.
pub const HEADER_BYTES_MAX: usize = 9;
const HEADER_BYTES_SHORT: usize = 2;

/// The first byte of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(u8);

impl Flags {
    /// The last part of a message.
    pub const LAST: Self = Self(0);
    /// A part of a message that is not its last.
    pub const MORE: Self = Self(1);
    /// A command.
    pub const COMMAND: Self = Self(4);
    /// The length has eight bytes. Private, because the length alone decides it when a header is written.
    const LONG: u8 = 2;

    /// Whether more parts of the message follow.
    pub const fn is_more(self) -> bool {
        self.0 & Self::MORE.0 != 0
    }

    /// Whether it is a command.
    pub const fn is_command(self) -> bool {
        self.0 & Self::COMMAND.0 != 0
    }

    const fn is_long(self) -> bool {
        self.0 & Self::LONG != 0
    }

    const fn check(byte: u8) -> Result<Self, BadFlags> {
        let reserved = byte & !(Self::MORE.0 | Self::LONG | Self::COMMAND.0) != 0;
        let flags = Self(byte);
        // "This bit SHALL be zero on command frames."
        if reserved || (flags.is_command() && flags.is_more()) {
            Err(BadFlags(byte))
        } else {
            Ok(flags)
        }
    }
}

/// A reserved bit is set, or a command has the flag for more parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("frame with flags {0:#04x}")]
pub struct BadFlags(pub u8);

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The kind of frame.
    pub flags: Flags,
    /// The announced length of the body. A peer can send any number.
    pub body_bytes: u64,
    /// Length of the header itself.
    pub header_bytes: usize,
}

impl Header {
    /// The header at the front of `input`; `None` until all of it has come.
    ///
    /// # Errors
    /// The flags are invalid; the first byte shows it.
    #[inline]
    pub fn decode(input: &[u8]) -> Result<Option<Self>, BadFlags> {
        let Some((&first, rest)) = input.split_first() else {
            return Ok(None);
        };
        let flags = Flags::check(first)?;
        let length = if flags.is_long() {
            rest.first_chunk()
                .map(|bytes| (u64::from_be_bytes(*bytes), HEADER_BYTES_MAX))
        } else {
            rest.first()
                .map(|byte| (u64::from(*byte), HEADER_BYTES_SHORT))
        };
        Ok(length.map(|(body_bytes, header_bytes)| Self {
            flags,
            body_bytes,
            header_bytes,
        }))
    }

    /// The number of bytes missing from an incomplete header.
    pub fn bytes_missing(input: &[u8]) -> usize {
        let long = input.first().is_some_and(|byte| Flags(*byte).is_long());
        let header_bytes = if long {
            HEADER_BYTES_MAX
        } else {
            HEADER_BYTES_SHORT
        };
        header_bytes.saturating_sub(input.len())
    }

    /// Appends the header in its shortest form. The caller appends the body next.
    #[inline]
    pub fn encode(flags: Flags, body_bytes: usize, out: &mut BytesMut) {
        out.reserve(HEADER_BYTES_MAX + body_bytes);
        if let Ok(byte) = u8::try_from(body_bytes) {
            out.put_slice(&[flags.0, byte]);
        } else {
            out.put_u8(flags.0 | Flags::LONG);
            out.put_u64(body_bytes as u64);
        }
    }

    /// Writes the header over the first bytes of a buffer, which must have room for it.
    pub(crate) fn overwrite(flags: Flags, body_bytes: usize, buffer: &mut [u8]) {
        let mut header = [0; HEADER_BYTES_MAX];
        let [kind, rest @ ..] = &mut header;
        if let Ok(byte) = u8::try_from(body_bytes) {
            *kind = flags.0;
            rest[0] = byte;
        } else {
            *kind = flags.0 | Flags::LONG;
            *rest = (body_bytes as u64).to_be_bytes();
        }
        let header_bytes = Self::frame_bytes(body_bytes) - body_bytes;
        buffer
            .iter_mut()
            .zip(header.iter().take(header_bytes))
            .for_each(|(to, from)| *to = *from);
    }

    /// The length of a frame with a body of this length.
    pub const fn frame_bytes(body_bytes: usize) -> usize {
        let header_bytes = if body_bytes <= u8::MAX as usize {
            HEADER_BYTES_SHORT
        } else {
            HEADER_BYTES_MAX
        };
        body_bytes.saturating_add(header_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_decoded() {
        let found = |flags, body_bytes, header_bytes| {
            Ok(Some(Header {
                flags: Flags(flags),
                body_bytes,
                header_bytes,
            }))
        };
        let table = [
            ("nothing", "", Ok(None)),
            ("flags alone", "00", Ok(None)),
            ("empty last part", "0000", found(0, 0, 2)),
            ("more", "0105", found(1, 5, 2)),
            ("command", "04ff", found(4, 255, 2)),
            ("long, one byte short", "0200000000000001", Ok(None)),
            ("long", "020000000000000100", found(2, 256, 9)),
            ("long for no reason", "030000000000000001", found(3, 1, 9)),
            ("long command", "060000010000000000", found(6, 1 << 40, 9)),
            (
                "as long as can be",
                "02ffffffffffffffff",
                found(2, u64::MAX, 9),
            ),
            ("command with more to come", "05", Err(BadFlags(5))),
            ("reserved", "08", Err(BadFlags(8))),
            ("reserved", "80", Err(BadFlags(0x80))),
        ];
        for (name, bytes, expected) in table {
            assert_eq!(
                Header::decode(&hex::decode(bytes).unwrap()),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn the_missing_bytes_of_a_header_are_counted() {
        for (bytes, missing) in [
            ("", 2),
            ("00", 1),
            ("02", 8),
            ("0200000000000001", 1),
            ("0000", 0),
            ("0400ff", 0),
        ] {
            assert_eq!(
                Header::bytes_missing(&hex::decode(bytes).unwrap()),
                missing,
                "{bytes}"
            );
        }
    }

    #[test]
    fn the_shortest_form_is_written() {
        let table = [
            (Flags::LAST, 0, "0000"),
            (Flags::MORE, 255, "01ff"),
            (Flags::COMMAND, 256, "060000000000000100"),
            (Flags::LAST, 65_536, "020000000000010000"),
        ];
        for (flags, body_bytes, bytes) in table {
            let mut out = BytesMut::new();
            Header::encode(flags, body_bytes, &mut out);
            assert_eq!(hex::encode(&out), bytes);
            assert_eq!(Header::frame_bytes(body_bytes), out.len() + body_bytes);
        }
    }
}
