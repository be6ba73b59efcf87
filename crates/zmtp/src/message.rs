//! A message: one or more parts, kept as the frames they came in, headers included.
//!
//! Reading a message costs one view of the read buffer, whatever the number of its parts. Forwarding it, or echoing the
//! parts before its last, costs one copy.

use bytes::{BufMut, Bytes, BytesMut};

use crate::wire::{Flags, Header};

/// A part this large is kept as a view of its read buffer, if the buffer holds nothing else.
pub(crate) const LARGE_BYTES: usize = 256 << 10;

/// A whole message. It shares the memory of its read buffer. Take out with [`Message::keep`] what must outlive the
/// visit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    frames: Bytes,
    /// Offset of the last frame.
    last_at: usize,
    parts: usize,
    /// The buffer was allocated for this message.
    owned: bool,
}

/// The parts before the last part of a message, as frames. A ROUTER must repeat them in front of its answer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Envelope(Bytes);

impl Message {
    /// `frames` must hold exactly one message.
    pub(crate) const fn of_frames(
        frames: Bytes,
        last_at: usize,
        parts: usize,
        owned: bool,
    ) -> Self {
        Self {
            frames,
            last_at,
            parts,
            owned,
        }
    }

    /// A message for many receivers, encoded once. Without parts it has one empty part.
    pub fn new<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut frames = BytesMut::new();
        let (last_at, parts) = write_parts(parts, &mut frames);
        Self {
            frames: frames.freeze(),
            last_at,
            parts,
            owned: true,
        }
    }

    /// All parts, in order.
    pub fn parts(&self) -> Parts<'_> {
        Parts {
            frames: &self.frames,
            left: self.parts,
        }
    }

    /// The last part: the payload, for protocols that put an envelope in front of it.
    pub fn last(&self) -> &[u8] {
        let frames = self.frames.get(self.last_at..).unwrap_or_default();
        Parts { frames, left: 1 }.next().unwrap_or_default()
    }

    /// The parts before the last. Copied, unless there are none or only the usual delimiter, because an envelope may be
    /// kept for long.
    pub fn envelope(&self) -> Envelope {
        /// The empty part that a REQ puts first.
        const DELIMITER: &[u8] = &[1, 0];
        match self.frames.get(..self.last_at).unwrap_or_default() {
            [] => Envelope::default(),
            DELIMITER => Envelope(Bytes::from_static(DELIMITER)),
            frames => Envelope(Bytes::copy_from_slice(frames)),
        }
    }

    /// The whole message as frames, headers included.
    pub fn frames(&self) -> &[u8] {
        &self.frames
    }

    /// The whole message as frames, as a view.
    pub fn into_frames(self) -> Bytes {
        self.frames
    }

    /// A part, or a piece of one, that may be kept: a view if it is large and the buffer holds little else, otherwise a
    /// copy.
    pub fn keep(&self, piece: &[u8]) -> Bytes {
        if self.owned && piece.len() >= LARGE_BYTES {
            self.view(piece)
        } else {
            Bytes::copy_from_slice(piece)
        }
    }

    /// A view for the duration of the visit: it keeps the whole read buffer alive. Bytes outside this message are
    /// copied.
    pub fn view(&self, piece: &[u8]) -> Bytes {
        if let Some(at) = (piece.as_ptr() as usize).checked_sub(self.frames.as_ptr() as usize)
            && at
                .checked_add(piece.len())
                .is_some_and(|end| end <= self.frames.len())
        {
            return self.frames.slice(at..at + piece.len());
        }
        Bytes::copy_from_slice(piece)
    }
}

impl Envelope {
    /// The parts as frames. Each has the flag that more parts follow.
    pub fn frames(&self) -> &[u8] {
        &self.0
    }
}

/// Iterates over the parts of a message.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    frames: &'a [u8],
    left: usize,
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let header = Header::decode(self.frames).ok()??;
        let body = self.frames.get(header.header_bytes..)?;
        let (body, rest) = body.split_at_checked(usize::try_from(header.body_bytes).ok()?)?;
        self.left = self.left.checked_sub(1)?;
        self.frames = rest;
        Some(body)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Parts<'_> {}

/// The first part of a message's frames; `None`: they are none.
pub fn first_part(frames: &[u8]) -> Option<&[u8]> {
    Parts { frames, left: 1 }.next()
}

/// Appends a message. Returns the offset of its last frame from the message's start, and the number of frames.
pub(crate) fn write_parts<'a>(
    parts: impl IntoIterator<Item = &'a [u8]>,
    out: &mut BytesMut,
) -> (usize, usize) {
    let begin = out.len();
    let mut parts = parts.into_iter();
    let (mut part, mut count) = (parts.next().unwrap_or_default(), 1);
    for next in parts {
        write_part(Flags::MORE, part, out);
        (part, count) = (next, count + 1);
    }
    let last_at = out.len() - begin;
    write_part(Flags::LAST, part, out);
    (last_at, count)
}

fn write_part(flags: Flags, part: &[u8], out: &mut BytesMut) {
    Header::encode(flags, part.len(), out);
    out.put_slice(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_frames_of_messages() {
        let long = [7; 300];
        let table: [(&[&[u8]], &str); 5] = [
            (&[], "0000"),
            (&[b""], "0000"),
            (&[b"", b"\x0b"], "010000010b"),
            (&[b"id", b"", b"abc"], "010269640100 0003616263"),
            (
                &[&long, b"x"],
                &format!("03000000000000012c{}000178", "07".repeat(300)),
            ),
        ];
        for (parts, frames) in table {
            let message = Message::new(parts.iter().copied());
            assert_eq!(hex::encode(message.frames()), frames.replace(' ', ""));
            let expected = if parts.is_empty() {
                vec![&b""[..]]
            } else {
                parts.to_vec()
            };
            assert_eq!(message.parts().len(), expected.len());
            assert_eq!(message.parts().collect::<Vec<_>>(), expected);
            assert_eq!(Some(&message.last()), expected.last());
            assert_eq!(first_part(message.frames()), expected.first().copied());
            let envelope = Message::of_frames(message.envelope().0, 0, expected.len() - 1, false);
            assert_eq!(
                envelope.parts().collect::<Vec<_>>(),
                &expected[..expected.len() - 1]
            );
        }
    }

    #[test]
    fn only_a_large_part_alone_in_its_buffer_is_kept_as_a_view() {
        let body = vec![1; LARGE_BYTES + 10];
        let message = Message::new([&b"head"[..], &body]);
        let piece = &message.last()[4..];
        assert_eq!(message.keep(piece).as_ptr(), piece.as_ptr());
        assert_eq!(message.keep(&piece[..100]), &piece[..100]);
        assert_ne!(message.keep(&piece[..100]).as_ptr(), piece.as_ptr());
        assert_eq!(message.keep(&body), body, "bytes of another buffer");
        assert_eq!(message.view(&piece[..100]).as_ptr(), piece.as_ptr());
        assert_eq!(
            message.view(&body[..100]),
            &body[..100],
            "bytes of another buffer"
        );
        let shared = Message {
            owned: false,
            ..message.clone()
        };
        assert_ne!(shared.keep(piece).as_ptr(), piece.as_ptr());
    }
}
