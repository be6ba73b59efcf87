//! Cuts the stream of one connection into packets and text lines, in any order. Packets are not interpreted: one with
//! wrong arguments or the wrong direction is still a packet, and the session answers it.
//!
//! Spec: `PROTOCOL`, "Binary Packet" and "Administrative Protocol" (the first byte decides). The same errors end a
//! connection as in gearmand: a wrong magic, an unknown type, an endless line.

use bytes::{Buf, Bytes, BytesMut};

use super::LINE_BYTES_MAX_DEFAULT;
use super::packet::{HEADER_BYTES, Kind, Magic, Packet};

/// Upper bound of every configured limit: sizes on the wire have 32 bits, and a body that came in must go out again
/// with a longer header.
pub const FRAME_BYTES_CEILING: usize = 1 << 30;

/// How much a peer may make us buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest packet, header included. [`FRAME_BYTES_CEILING`] at most.
    pub frame_bytes_max: usize,
    /// Longest text line, its LF excluded.
    pub line_bytes_max: usize,
}

impl Limits {
    /// The given limit for packets and gearmand's limit for lines.
    pub const fn new(frame_bytes_max: usize) -> Self {
        Self {
            frame_bytes_max,
            line_bytes_max: LINE_BYTES_MAX_DEFAULT,
        }
    }
}

/// A message of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A binary packet of either direction and a known type.
    Packet(Packet),
    /// A text command without its LF or CRLF; may be empty, and never starts with NUL.
    Line(Bytes),
}

/// The stream cannot be read any further: hang up without an answer. The magic is wrong, the packet type unknown, or a
/// packet or a line too long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(pub(super) String);

/// The decoder of one connection. It records how much of the buffer it has read. So it must be given the same buffer
/// every time, with bytes added at the end and none taken away.
#[derive(Debug, Clone)]
pub struct Frames {
    limits: Limits,
    stage: Stage,
    bytes_wanted: usize,
    /// Number of bytes read, so that a test can distinguish linear from quadratic work.
    #[cfg(test)]
    pub(super) bytes_examined: usize,
}

/// State of the message at the front of the buffer.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// No byte was read yet.
    Start,
    /// It is text, and no LF is among its first `scanned` bytes.
    Line { scanned: usize },
    /// It is a packet. Its header was valid and has been taken out of the buffer.
    Body(Header),
}

#[derive(Debug, Clone, Copy)]
struct Header {
    magic: Magic,
    kind: Kind,
    body_bytes: usize,
}

impl Frames {
    /// A decoder at the start of a stream.
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            stage: Stage::Start,
            bytes_wanted: 0,
            #[cfg(test)]
            bytes_examined: 0,
        }
    }

    /// Takes the next message out of `input`; `None` if it is incomplete. Bodies and lines are views of `input`'s
    /// memory, not copies.
    ///
    /// # Errors
    /// The connection must be closed. Further calls return the same error.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Message>, DecodeError> {
        match self.stage {
            Stage::Start => match input.first() {
                None => Ok(self.want(0)),
                Some(0) => match self.header(input)? {
                    Some(header) => Ok(self.body(input, header)),
                    None => Ok(self.want(HEADER_BYTES - input.len())),
                },
                Some(_) => self.line(input, 0),
            },
            Stage::Line { scanned } => self.line(input, scanned),
            Stage::Body(header) => Ok(self.body(input, header)),
        }
    }

    /// After a `None` from [`decode`](Self::decode): the minimum number of bytes that the incomplete message still
    /// needs. 0 between messages, 1 in a text line, else exactly the missing part of the header or of the body. Never
    /// more than `frame_bytes_max`. A reader may reserve that many at once, or in steps so that an announcement alone
    /// costs no memory.
    pub const fn bytes_wanted(&self) -> usize {
        self.bytes_wanted
    }

    fn want<T>(&mut self, bytes: usize) -> Option<T> {
        self.bytes_wanted = bytes;
        None
    }

    fn found(&mut self, message: Message) -> Option<Message> {
        self.stage = Stage::Start;
        self.bytes_wanted = 0;
        Some(message)
    }

    /// Checks as much of the header as has come, and takes it out once it is whole.
    fn header(&mut self, input: &mut BytesMut) -> Result<Option<Header>, DecodeError> {
        self.examined(input.len().min(HEADER_BYTES));
        let magic = magic(input)?;
        let kind = number_at(input, 4).map(Kind);
        if let Some(kind) = kind.filter(|kind| !kind.is_known()) {
            return Err(DecodeError(format!("unknown packet type {}", kind.0)));
        }
        let (Some(magic), Some(kind), Some(size)) = (magic, kind, number_at(input, 8)) else {
            return Ok(None);
        };
        let frame_bytes_max = self.limits.frame_bytes_max.min(FRAME_BYTES_CEILING);
        let body_bytes = size as usize;
        if body_bytes > frame_bytes_max.saturating_sub(HEADER_BYTES) {
            let frame_bytes = u64::from(size) + HEADER_BYTES as u64;
            let text = format!("{kind} packet of {frame_bytes} bytes, {frame_bytes_max} allowed");
            return Err(DecodeError(text));
        }
        input.advance(HEADER_BYTES);
        Ok(Some(Header {
            magic,
            kind,
            body_bytes,
        }))
    }

    fn body(&mut self, input: &mut BytesMut, header: Header) -> Option<Message> {
        let Header {
            magic,
            kind,
            body_bytes,
        } = header;
        if input.len() < body_bytes {
            self.stage = Stage::Body(header);
            return self.want(body_bytes - input.len());
        }
        // Most packets of a worker have no body. An empty view would still cost a shared buffer.
        let body = match body_bytes {
            0 => Bytes::new(),
            _ => input.split_to(body_bytes).freeze(),
        };
        self.found(Message::Packet(Packet { magic, kind, body }))
    }

    /// Searches the new bytes for the LF, never further than the longest line.
    fn line(
        &mut self,
        input: &mut BytesMut,
        scanned: usize,
    ) -> Result<Option<Message>, DecodeError> {
        let line_bytes_max = self.limits.line_bytes_max;
        let end = input.len().min(line_bytes_max.saturating_add(1));
        let unseen = input.get(scanned..end).unwrap_or_default();
        let unseen_bytes = unseen.len();
        let Some(ahead) = unseen.iter().position(|byte| *byte == b'\n') else {
            self.examined(unseen_bytes);
            if input.len() > line_bytes_max {
                return Err(DecodeError(format!(
                    "text line of more than {line_bytes_max} bytes"
                )));
            }
            self.stage = Stage::Line {
                scanned: scanned + unseen_bytes,
            };
            return Ok(self.want(1));
        };
        self.examined(ahead + 1);
        let line = input.split_to(scanned + ahead);
        input.advance(1);
        Ok(self.found(Message::Line(without_cr(line.freeze()))))
    }

    #[cfg(test)]
    fn examined(&mut self, bytes: usize) {
        self.bytes_examined += bytes;
    }

    #[cfg(not(test))]
    fn examined(&mut self, _bytes: usize) {}
}

/// The magic, once all four bytes have come. A wrong byte is an error as soon as it has come.
fn magic(input: &[u8]) -> Result<Option<Magic>, DecodeError> {
    match input.first_chunk() {
        Some(b"\0REQ") => return Ok(Some(Magic::Request)),
        Some(b"\0RES") => return Ok(Some(Magic::Response)),
        Some(_) | None => {}
    }
    for (offset, &byte) in input.iter().take(4).enumerate() {
        if !matches!((offset, byte), (0, 0) | (1, b'R') | (2, b'E')) {
            return Err(DecodeError(format!(
                "byte {offset} of a packet's magic is {byte:#04x}"
            )));
        }
    }
    Ok(None)
}

fn number_at(input: &[u8], offset: usize) -> Option<u32> {
    input
        .get(offset..)?
        .first_chunk()
        .map(|bytes| u32::from_be_bytes(*bytes))
}

fn without_cr(mut line: Bytes) -> Bytes {
    if line.last() == Some(&b'\r') {
        line.truncate(line.len() - 1);
    }
    line
}
