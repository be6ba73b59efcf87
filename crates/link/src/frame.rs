//! A stream of frames, in one direction.
//!
//! ```text
//! 4 bytes   the length of what follows, little endian, at least 1
//! 1 byte    the version of the frames
//! …         items: each is its length and its bytes, as `windlass_codec` writes them
//! ```
//!
//! An item may have fields that its reader does not know, and the reverse: daemons of different versions are one broker
//! while they are upgraded one after the other.

use std::marker::PhantomData;

use bytes::{Buf, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_codec::{DecodeError, Number, Reader, decode, encode};

/// The version of the frames. It changes only if the format itself does, not with the items.
pub const VERSION: u8 = 6;

/// The longest frame unless a stream sets another limit, in bytes.
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// Bytes of the length.
const LENGTH: usize = size_of::<u32>();

/// Bytes before the items: the length and the version.
const HEAD: usize = LENGTH + 1;

/// A frame with more items than fill this ends, so that its reader may begin.
const FRAME_BYTES_USUAL: usize = 64 << 10;

/// What one direction of a stream consists of.
pub trait Item: Serialize + DeserializeOwned {
    /// What stands for an item with a part that this program does not know, given the item's bytes. `None`: nothing.
    fn in_place_of(unknown: &[u8]) -> Option<Self>;
}

/// An item does not fit into a frame. The stream is as if it had not been offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an item exceeds the longest frame of {bytes_max} bytes")]
pub struct TooLong {
    /// The limit, in bytes.
    pub bytes_max: usize,
}

/// The bytes are no stream of frames. The peer must be disconnected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// A frame is longer than allowed.
    #[error("frame of {bytes} bytes, limit {bytes_max}")]
    TooLong {
        /// Its length, as claimed.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// A frame without a version.
    #[error("frame without a version")]
    Empty,
    /// A frame has another version than [`VERSION`].
    #[error("frame of version {0} of the link; this program reads version {VERSION}")]
    Version(u8),
    /// A frame has bytes that are no item.
    #[error("not an item: {0}")]
    Item(#[from] DecodeError),
}

/// Turns items into frames, which stay here until they are taken.
#[derive(Debug)]
pub struct Encoder<T> {
    /// Whole frames, and the one that grows.
    out: Vec<u8>,
    /// Where the frame that grows begins, if one does.
    begun: Option<usize>,
    bytes_max: usize,
    items: PhantomData<fn(&T)>,
}

impl<T: Serialize> Encoder<T> {
    /// An empty stream whose frames are at most this long.
    pub const fn new(bytes_max: usize) -> Self {
        Self {
            out: Vec::new(),
            begun: None,
            bytes_max,
            items: PhantomData,
        }
    }

    /// Adds an item.
    ///
    /// # Errors
    ///
    /// The item alone is longer than a frame may be.
    pub fn push(&mut self, item: &T) -> Result<(), TooLong> {
        if self
            .begun
            .is_some_and(|begun| self.out.len() - begun >= FRAME_BYTES_USUAL)
        {
            self.end_frame();
        }
        let before = self.out.len();
        let had_begun = self.begun;
        let begun = self.begun.unwrap_or_else(|| {
            self.out.extend_from_slice(&[0, 0, 0, 0, VERSION]);
            before
        });
        self.begun = Some(begun);
        if self.write(item, begun) {
            return Ok(());
        }
        self.out.truncate(before);
        self.begun = had_begun;
        match had_begun {
            // It may fit into a frame of its own.
            Some(_) => {
                self.end_frame();
                self.push(item)
            }
            None => Err(TooLong {
                bytes_max: self.bytes_max,
            }),
        }
    }

    /// Writes an item into the frame that begins there, and returns whether it fits.
    fn write(&mut self, item: &T, begun: usize) -> bool {
        let before = self.out.len();
        if encode(item, &mut self.out).is_err() {
            return false;
        }
        let length = Number::of((self.out.len() - before) as u64);
        self.out.splice(before..before, length.iter().copied());
        self.out.len() - begun - LENGTH <= self.bytes_max.min(u32::MAX as usize)
    }

    fn end_frame(&mut self) {
        let Some(begun) = self.begun.take() else {
            return;
        };
        let bytes = self.out.len() - begun - LENGTH;
        if let (Ok(bytes), Some(head)) = (
            u32::try_from(bytes),
            self.out.get_mut(begun..begun + LENGTH),
        ) {
            head.copy_from_slice(&bytes.to_le_bytes());
        }
    }

    /// Bytes written and not taken.
    pub const fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether nothing was written since the last call of [`Encoder::take`].
    pub const fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Ends the frame, and returns everything that was written since the last call.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        self.end_frame();
        std::mem::take(&mut self.out)
    }

    /// Ends the frame, and appends everything that was written since the last call to `into`. The memory is used again.
    pub fn take_into(&mut self, into: &mut Vec<u8>) {
        self.end_frame();
        if into.is_empty() {
            std::mem::swap(into, &mut self.out);
        } else {
            into.append(&mut self.out);
        }
    }
}

/// Frames to items.
#[derive(Debug)]
pub struct Decoder<T> {
    /// Begins with the items of a frame that are not read yet, if `left` is not 0, else with a frame.
    input: BytesMut,
    /// Bytes of items at the front of `input`.
    left: usize,
    bytes_max: usize,
    failed: Option<FrameError>,
    items: PhantomData<fn() -> T>,
}

impl<T: Item> Decoder<T> {
    /// A stream whose frames are at most this long.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            input: BytesMut::new(),
            left: 0,
            bytes_max,
            failed: None,
            items: PhantomData,
        }
    }

    /// Bytes that have arrived and are not read: append those that arrive here. It holds at most a frame, beside what
    /// is appended between two calls of [`Decoder::next`] that return `None`.
    pub const fn input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// The next item; `None` if it has not arrived.
    ///
    /// # Errors
    ///
    /// The bytes are no stream of frames. Every later call returns the same error.
    #[expect(
        clippy::should_implement_trait,
        reason = "None is not the end: more may arrive"
    )]
    pub fn next(&mut self) -> Result<Option<T>, FrameError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.read()
            .inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn read(&mut self) -> Result<Option<T>, FrameError> {
        loop {
            while self.left == 0 {
                if !self.begin_frame()? {
                    return Ok(None);
                }
            }
            let items = self.input.get(..self.left).unwrap_or_default();
            let mut rest = Reader::new(items);
            let bytes = rest.bytes()?;
            let item = match decode(&mut Reader::new(bytes)) {
                Ok(item) => Some(item),
                Err(DecodeError::Variant(_)) => T::in_place_of(bytes),
                Err(error) => return Err(error.into()),
            };
            let read = self.left - rest.left();
            self.left -= read;
            self.input.advance(read);
            if item.is_some() {
                return Ok(item);
            }
        }
    }

    /// Goes to the items of the next frame. Returns whether all of them have arrived.
    fn begin_frame(&mut self) -> Result<bool, FrameError> {
        let Some(length) = self.input.first_chunk::<LENGTH>() else {
            return Ok(false);
        };
        let bytes = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if bytes == 0 {
            return Err(FrameError::Empty);
        }
        if bytes > self.bytes_max {
            return Err(FrameError::TooLong {
                bytes,
                bytes_max: self.bytes_max,
            });
        }
        let Some(&version) = self.input.get(LENGTH) else {
            return Ok(false);
        };
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        if self.input.len() < LENGTH + bytes {
            return Ok(false);
        }
        self.input.advance(HEAD);
        self.left = bytes - 1;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Texts = Encoder<String>;

    impl Item for String {
        fn in_place_of(_: &[u8]) -> Option<Self> {
            None
        }
    }

    fn items(decoder: &mut Decoder<String>) -> Vec<String> {
        std::iter::from_fn(|| decoder.next().unwrap()).collect()
    }

    #[test]
    fn a_frame_has_a_length_a_version_and_items() {
        let mut encoder = Texts::new(100);
        assert!(encoder.is_empty());
        encoder.push(&"one".to_owned()).unwrap();
        encoder.push(&String::new()).unwrap();
        assert_eq!(encoder.len(), 12);
        assert_eq!(encoder.take(), b"\x08\0\0\0\x06\x04\x03one\x01\0");
        assert!(encoder.is_empty() && encoder.take().is_empty());
        encoder.push(&"two".to_owned()).unwrap();
        let mut taken = b"before ".to_vec();
        encoder.take_into(&mut taken);
        assert_eq!(taken, b"before \x06\0\0\0\x06\x04\x03two");
    }

    #[test]
    fn items_arrive_however_the_stream_is_cut() {
        let mut encoder = Texts::new(FRAME_BYTES_MAX);
        let sent: Vec<String> = (0..300).map(|n| "x".repeat(n * 7 % 5_000)).collect();
        sent.iter().for_each(|text| encoder.push(text).unwrap());
        let mut bytes = encoder.take();
        assert!(bytes.len() > 2 * FRAME_BYTES_USUAL, "several frames");
        bytes.extend_from_slice(&[1, 0, 0, 0, VERSION]);
        for piece in [1, 3, 4_096, usize::MAX] {
            let mut decoder = Decoder::new(FRAME_BYTES_MAX);
            let mut got = Vec::new();
            for piece in bytes.chunks(piece.min(bytes.len())) {
                decoder.input().extend_from_slice(piece);
                got.append(&mut items(&mut decoder));
            }
            assert_eq!(got, sent, "in pieces of {piece}");
            assert!(decoder.input().is_empty());
        }
    }

    #[test]
    fn a_frame_is_bounded() {
        let mut encoder = Texts::new(10);
        assert_eq!(
            encoder.push(&"eight ch".to_owned()),
            Err(TooLong { bytes_max: 10 })
        );
        assert!(encoder.is_empty());
        encoder.push(&"abcd".to_owned()).unwrap();
        assert_eq!(
            encoder.push(&"eight ch".to_owned()),
            Err(TooLong { bytes_max: 10 })
        );
        encoder.push(&"efgh777".to_owned()).unwrap();
        let bytes = encoder.take();
        let mut decoder = Decoder::new(10);
        decoder.input().extend_from_slice(&bytes);
        assert_eq!(items(&mut decoder), ["abcd", "efgh777"]);
        let mut strict = Decoder::<String>::new(9);
        strict.input().extend_from_slice(&bytes);
        assert_eq!(strict.next(), Ok(Some("abcd".to_owned())));
        let error = Err(FrameError::TooLong {
            bytes: 10,
            bytes_max: 9,
        });
        assert_eq!((strict.next(), strict.next()), (error.clone(), error));
    }

    #[test]
    fn noise_is_refused() {
        let table: [(&str, &[u8], Result<(), FrameError>); 8] = [
            ("nothing", b"", Ok(())),
            ("a part of a length", b"\xff\xff\xff", Ok(())),
            (
                "too long",
                b"\xff\xff\xff\xff",
                Err(FrameError::TooLong {
                    bytes: 0xffff_ffff,
                    bytes_max: 100,
                }),
            ),
            ("empty", b"\0\0\0\0", Err(FrameError::Empty)),
            (
                "another version, before the frame is there",
                b"\x09\0\0\0\x07",
                Err(FrameError::Version(7)),
            ),
            (
                "an item that is cut",
                b"\x02\0\0\0\x06\x05",
                Err(FrameError::Item(DecodeError::Short)),
            ),
            (
                "an item of another type",
                b"\x04\0\0\0\x06\x02\x01\xff",
                Err(FrameError::Item(DecodeError::Refused(
                    "a text that is not UTF-8".into(),
                ))),
            ),
            ("a frame that goes on", b"\x05\0\0\0\x06\x05ab", Ok(())),
        ];
        for (name, bytes, expected) in table {
            let mut decoder = Decoder::<String>::new(100);
            decoder.input().extend_from_slice(bytes);
            assert_eq!(
                decoder.next().map(|item| assert_eq!(item, None)),
                expected,
                "{name}"
            );
        }
    }
}
