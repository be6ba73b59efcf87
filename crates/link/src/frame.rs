//! A stream of frames, in one direction.
//!
//! ```text
//! 4 bytes   the length of what follows, little endian, at least 1
//! 1 byte    the version
//! …         items, one after another, as postcard writes them
//! ```

use std::marker::PhantomData;

use bytes::{Buf, BytesMut};
use postcard::ser_flavors::Flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The newest version of the frames and of every item.
pub const VERSION: u8 = 5;

/// The oldest version that this program reads and writes: daemons of two neighbouring versions form one broker, so that
/// they can be upgraded one after the other.
pub const OLDEST: u8 = VERSION - 1;

/// The longest frame unless a stream sets another limit, in bytes.
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// Bytes of the length.
const LENGTH: usize = size_of::<u32>();

/// Bytes before the items: the length and the version.
const HEAD: usize = LENGTH + 1;

/// A frame with more items than fill this ends, so that its reader may begin.
const FRAME_BYTES_USUAL: usize = 64 << 10;

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
    /// A frame has none of the versions from [`OLDEST`] to [`VERSION`], or another one than the stream's first frame.
    #[error("frame of version {0} of the link; this program reads versions {OLDEST} to {VERSION}")]
    Version(u8),
    /// A frame has bytes that are no item.
    #[error("not an item: {0}")]
    Item(postcard::Error),
}

/// Turns items into frames, which stay here until they are taken.
#[derive(Debug)]
pub struct Encoder<T> {
    /// Whole frames, and the one that grows.
    out: Vec<u8>,
    /// Where the frame that grows begins, if one does.
    begun: Option<usize>,
    bytes_max: usize,
    version: u8,
    items: PhantomData<fn(&T)>,
}

impl<T: Serialize> Encoder<T> {
    /// An empty stream whose frames are at most this long.
    pub const fn new(bytes_max: usize) -> Self {
        Self {
            out: Vec::new(),
            begun: None,
            bytes_max,
            version: VERSION,
            items: PhantomData,
        }
    }

    /// From the next frame on, writes a version that the reader knows: from [`OLDEST`] to [`VERSION`].
    pub fn speak(&mut self, version: u8) {
        self.version = version.clamp(OLDEST, VERSION);
    }

    /// The version that it writes. An item that is newer must not be offered.
    pub const fn version(&self) -> u8 {
        self.version
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
            self.out.extend_from_slice(&[0, 0, 0, 0, self.version]);
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
        let end = begun
            .saturating_add(LENGTH)
            .saturating_add(self.bytes_max.min(u32::MAX as usize));
        postcard::serialize_with_flavor(
            item,
            Sink {
                out: &mut self.out,
                end,
            },
        )
        .is_ok()
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

/// A buffer that grows up to an end.
struct Sink<'a> {
    out: &'a mut Vec<u8>,
    end: usize,
}

impl Flavor for Sink<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        if self.out.len() >= self.end {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.out.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        if self.end.saturating_sub(self.out.len()) < bytes.len() {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
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
    /// Of all frames, once the first one has begun.
    version: Option<u8>,
    failed: Option<FrameError>,
    items: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Decoder<T> {
    /// A stream whose frames are at most this long.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            input: BytesMut::new(),
            left: 0,
            bytes_max,
            version: None,
            failed: None,
            items: PhantomData,
        }
    }

    /// Bytes that have arrived and are not read: append those that arrive here. It holds at most a frame, beside what
    /// is appended between two calls of [`Decoder::next`] that return `None`.
    pub const fn input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// The version of the stream; `None` before its first frame.
    pub const fn version(&self) -> Option<u8> {
        self.version
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
        while self.left == 0 {
            if !self.begin_frame()? {
                return Ok(None);
            }
        }
        let items = self.input.get(..self.left).unwrap_or_default();
        let (item, rest) = postcard::take_from_bytes(items).map_err(FrameError::Item)?;
        let read = self.left - rest.len();
        self.left -= read;
        self.input.advance(read);
        // A kind of item without bytes would never end.
        if read == 0 {
            Err(FrameError::Item(postcard::Error::SerdeDeCustom))
        } else {
            Ok(Some(item))
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
        let is_known = self
            .version
            .map_or((OLDEST..=VERSION).contains(&version), |known| {
                known == version
            });
        if !is_known {
            return Err(FrameError::Version(version));
        }
        self.version = Some(version);
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

    fn items(decoder: &mut Decoder<String>) -> Vec<String> {
        std::iter::from_fn(|| decoder.next().unwrap()).collect()
    }

    #[test]
    fn a_frame_has_a_length_a_version_and_items() {
        let mut encoder = Texts::new(100);
        assert!(encoder.is_empty());
        encoder.push(&"one".to_owned()).unwrap();
        encoder.push(&String::new()).unwrap();
        assert_eq!(encoder.len(), 10);
        assert_eq!(encoder.take(), b"\x06\0\0\0\x05\x03one\0");
        assert!(encoder.is_empty() && encoder.take().is_empty());
        encoder.push(&"two".to_owned()).unwrap();
        let mut taken = b"before ".to_vec();
        encoder.take_into(&mut taken);
        assert_eq!(taken, b"before \x05\0\0\0\x05\x03two");
    }

    #[test]
    fn a_stream_has_one_of_two_versions() {
        let frame = |version: u8| vec![1, 0, 0, 0, version];
        let table = [
            (vec![VERSION, VERSION], Ok(VERSION)),
            (vec![OLDEST, OLDEST], Ok(OLDEST)),
            (vec![OLDEST, VERSION], Err(VERSION)),
            (vec![VERSION, OLDEST], Err(OLDEST)),
            (vec![VERSION + 1], Err(VERSION + 1)),
            (vec![OLDEST - 1], Err(OLDEST - 1)),
        ];
        for (versions, expected) in table {
            let mut decoder = Decoder::<String>::new(100);
            versions
                .iter()
                .for_each(|version| decoder.input().extend_from_slice(&frame(*version)));
            let read = decoder.next().map(|_| decoder.version().unwrap());
            assert_eq!(read, expected.map_err(FrameError::Version), "{versions:?}");
        }
        let mut encoder = Texts::new(100);
        for (spoken, written) in [
            (OLDEST, OLDEST),
            (VERSION, VERSION),
            (0, OLDEST),
            (u8::MAX, VERSION),
        ] {
            encoder.speak(spoken);
            encoder.push(&String::new()).unwrap();
            assert_eq!(
                (encoder.version(), encoder.take()),
                (written, vec![2, 0, 0, 0, written, 0]),
                "{spoken}"
            );
        }
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
            encoder.push(&"nine char".to_owned()),
            Err(TooLong { bytes_max: 10 })
        );
        assert!(encoder.is_empty());
        encoder.push(&"abcd".to_owned()).unwrap();
        assert_eq!(
            encoder.push(&"nine char".to_owned()),
            Err(TooLong { bytes_max: 10 })
        );
        encoder.push(&"efgh8888".to_owned()).unwrap();
        let bytes = encoder.take();
        let mut decoder = Decoder::new(10);
        decoder.input().extend_from_slice(&bytes);
        assert_eq!(items(&mut decoder), ["abcd", "efgh8888"]);
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
                b"\x02\0\0\0\x05\x05",
                Err(FrameError::Item(postcard::Error::DeserializeUnexpectedEnd)),
            ),
            (
                "an item of another type",
                b"\x03\0\0\0\x05\x01\xff",
                Err(FrameError::Item(postcard::Error::DeserializeBadUtf8)),
            ),
            ("a frame that goes on", b"\x05\0\0\0\x05\x05ab", Ok(())),
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
