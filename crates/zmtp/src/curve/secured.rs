//! Frames in boxes: each frame of ZMTP is the text of one `MESSAGE`.
//!
//! Spec: RFC 26, "MESSAGE". The numbers of both directions count up, so that no box can be repeated or left out
//! unnoticed.

use std::fmt;

use bytes::{Buf, BufMut, BytesMut};
use crypto_box::SalsaBox;

use super::MESSAGE;
use super::boxes::{self, Forged, TAG_BYTES};
use crate::peer::Close;
use crate::wire::{Flags, HEADER_BYTES_MAX, Header, Malformed};

/// The flags of a frame in its box.
const MORE: u8 = 1;
const COMMAND: u8 = 2;

/// Both directions of a connection, as one side sees them: the prefixes of its nonces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction {
    sends: &'static [u8; 16],
    hears: &'static [u8; 16],
}

impl Direction {
    const CLIENT: &[u8; 16] = b"CurveZMQMESSAGEC";
    const SERVER: &[u8; 16] = b"CurveZMQMESSAGES";

    /// The server's view.
    pub(super) const TO_CLIENT: Self = Self {
        sends: Self::SERVER,
        hears: Self::CLIENT,
    };

    /// The client's view.
    pub(super) const TO_SERVER: Self = Self {
        sends: Self::CLIENT,
        hears: Self::SERVER,
    };
}

/// The keys of a connection after its handshake.
pub(crate) struct Secured {
    crypto: SalsaBox,
    direction: Direction,
    /// The number in the last nonce that was sent.
    sent: u64,
    /// The number in the last nonce that came.
    seen: u64,
}

impl Secured {
    /// Bytes that a box adds to the body of a frame.
    pub(crate) const OVERHEAD_BYTES: usize = MESSAGE.len() + 8 + TAG_BYTES + 1;

    /// `seen`: the number in the last nonce of the handshake that came.
    pub(super) const fn new(crypto: SalsaBox, direction: Direction, seen: u64) -> Self {
        Self {
            crypto,
            direction,
            sent: 0,
            seen,
        }
    }

    /// The same, with the number of the last nonce that was sent, too.
    pub(super) const fn after(mut self, sent: u64) -> Self {
        self.sent = sent;
        self
    }

    /// Appends the next number, and a box with this text.
    pub(super) fn put_numbered(&mut self, prefix: &[u8; 16], text: &[&[u8]], out: &mut BytesMut) {
        self.sent += 1;
        out.put_u64(self.sent);
        boxes::put(&self.crypto, &boxes::numbered(prefix, self.sent), text, out);
    }

    /// Opens a box with the next number: a number, and the box.
    pub(super) fn open_numbered<'a>(
        &mut self,
        prefix: &[u8; 16],
        data: &'a mut [u8],
    ) -> Result<&'a mut [u8], Forged> {
        let (number, sealed) = data.split_first_chunk_mut().ok_or(Forged)?;
        let number = u64::from_be_bytes(*number);
        if number <= self.seen {
            return Err(Forged);
        }
        let text = boxes::open(&self.crypto, &boxes::numbered(prefix, number), sealed)?;
        self.seen = number;
        Ok(text)
    }

    /// Appends whole frames, each in a box.
    pub(crate) fn seal(&mut self, mut frames: &[u8], out: &mut BytesMut) {
        while let Ok(Some(Header {
            flags,
            header_bytes,
            body_bytes,
        })) = Header::decode(frames)
        {
            let frame_bytes = usize::try_from(body_bytes)
                .ok()
                .and_then(|bytes| header_bytes.checked_add(bytes));
            let Some((frame, rest)) = frame_bytes.and_then(|bytes| frames.split_at_checked(bytes))
            else {
                break;
            };
            let body = frame.get(header_bytes..).unwrap_or_default();
            let flags = if flags.is_more() { MORE } else { 0 }
                | if flags.is_command() { COMMAND } else { 0 };
            Header::encode(Flags::LAST, body.len() + Self::OVERHEAD_BYTES, out);
            out.put_slice(MESSAGE);
            self.put_numbered(self.direction.sends, &[&[flags], body], out);
            frames = rest;
        }
        debug_assert!(frames.is_empty(), "a frame that is not whole");
    }

    /// Takes the frame out of the body of a `MESSAGE`, in its own memory.
    pub(crate) fn open(&mut self, mut body: BytesMut) -> Result<BytesMut, Close> {
        const CUT: Malformed = Malformed { what: "MESSAGE" };
        let data = body
            .strip_prefix(MESSAGE)
            .map(<[u8]>::len)
            .and_then(|bytes| {
                let at = body.len() - bytes;
                body.get_mut(at..)
            });
        let prefix = self.direction.hears;
        let text = self
            .open_numbered(prefix, data.ok_or(CUT)?)
            .map_err(|Forged| Close::Forged { what: "MESSAGE" })?;
        let (flags, text) = text.split_first().ok_or(CUT)?;
        let flags = match (flags & MORE != 0, flags & COMMAND != 0) {
            (false, false) => Flags::LAST,
            (true, false) => Flags::MORE,
            (false, true) => Flags::COMMAND,
            (true, true) => return Err(CUT.into()),
        };
        let header = Header::frame_bytes(text.len()) - text.len();
        let text_bytes = text.len();
        body.advance(Self::OVERHEAD_BYTES - header);
        Header::overwrite(flags, text_bytes, &mut body);
        Ok(body)
    }
}

// A header is written over what stood before the text.
const _: () = assert!(Secured::OVERHEAD_BYTES >= HEADER_BYTES_MAX);

impl fmt::Debug for Secured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secured")
            .field("sent", &self.sent)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}
