//! Bytes to be written to one peer. Small pieces are gathered; large ones stay in their own memory.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

/// Pieces of at least this size are not copied.
pub(crate) const LARGE_BYTES: usize = 64 * 1024;

/// An empty buffer larger than this is freed.
const KEPT_BYTES_MAX: usize = 4 * 1024;

/// The bytes to write, in order.
#[derive(Debug, Default)]
pub(crate) struct Output {
    chunks: VecDeque<Chunk>,
    len: usize,
    allocated: usize,
    /// Whether the next bytes start a new piece.
    parted: bool,
}

#[derive(Debug)]
struct Chunk {
    data: Data,
    /// Allocated memory, including bytes already written.
    allocated: usize,
}

#[derive(Debug)]
enum Data {
    /// A buffer that can be appended to.
    Own(BytesMut),
    /// Shared bytes.
    Shared(Bytes),
}

impl Output {
    /// The number of bytes to write.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Allocated memory.
    pub(crate) const fn allocated(&self) -> usize {
        self.allocated
    }

    /// Starts a new piece: later bytes are not returned by [`Output::next`] together with earlier
    /// ones.
    pub(crate) const fn part(&mut self) {
        self.parted = self.len > 0;
    }

    /// Appends a copy.
    pub(crate) fn copy(&mut self, data: &[u8]) {
        self.len += data.len();
        match self.chunks.back_mut() {
            Some(Chunk {
                data: Data::Own(last),
                allocated,
            }) if !self.parted && last.len() + data.len() <= LARGE_BYTES => {
                last.extend_from_slice(data);
                self.allocated -= *allocated;
                *allocated = last.capacity().max(*allocated);
                self.allocated += *allocated;
            }
            _ => {
                let data = BytesMut::from(data);
                self.push(data.capacity(), Data::Own(data));
            }
        }
    }

    /// Appends bytes, without a copy if they are large or the first. Returns a buffer that is not
    /// needed.
    pub(crate) fn append(&mut self, data: BytesMut) -> Option<BytesMut> {
        if data.len() < LARGE_BYTES && !self.is_empty() {
            self.copy(&data);
            return Some(data);
        }
        self.len += data.len();
        self.push(data.capacity(), Data::Own(data))
    }

    /// Appends shared bytes, without a copy if they are large.
    pub(crate) fn append_shared(&mut self, data: Bytes) {
        if data.len() < LARGE_BYTES {
            self.copy(&data);
        } else {
            self.len += data.len();
            self.push(data.len(), Data::Shared(data));
        }
    }

    /// Returns the previous buffer for small pieces, which the new one replaces.
    fn push(&mut self, allocated: usize, data: Data) -> Option<BytesMut> {
        self.parted = false;
        self.allocated += allocated;
        let chunk = Chunk { data, allocated };
        let Some(kept) = self
            .chunks
            .front_mut()
            .filter(|chunk| chunk.data.bytes().is_empty())
        else {
            self.chunks.push_back(chunk);
            return None;
        };
        let kept = std::mem::replace(kept, chunk);
        self.allocated -= kept.allocated;
        if let Data::Own(kept) = kept.data {
            Some(kept)
        } else {
            None
        }
    }

    /// The next bytes to write, which may be a part of the output; empty only if the output is
    /// empty.
    pub(crate) fn next(&self) -> &[u8] {
        self.chunks.front().map_or(&[], |chunk| chunk.data.bytes())
    }

    /// Removes this many bytes of [`Output::next`] after they were written.
    pub(crate) fn advance(&mut self, bytes: usize) {
        let is_last = self.chunks.len() == 1;
        let Some(chunk) = self.chunks.front_mut() else {
            return;
        };
        match &mut chunk.data {
            Data::Own(data) => data.advance(bytes),
            Data::Shared(data) => data.advance(bytes),
        }
        self.len -= bytes;
        if !chunk.data.bytes().is_empty() {
            return;
        }
        // Keeps a small buffer for the next bytes.
        if !is_last || chunk.allocated > KEPT_BYTES_MAX {
            self.allocated -= chunk.allocated;
            self.chunks.pop_front();
        }
    }
}

impl Data {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(data) => data,
            Self::Shared(data) => data,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_all(output: &mut Output, step: usize) -> Vec<u8> {
        let mut written = Vec::new();
        while !output.is_empty() {
            let next = output.next();
            let bytes = next.len().min(step);
            written.extend_from_slice(&next[..bytes]);
            output.advance(bytes);
        }
        written
    }

    #[test]
    fn bytes_leave_in_order_across_chunks() {
        let mut output = Output::default();
        let (mut expected, sizes) = (
            Vec::new(),
            [
                10,
                3 * LARGE_BYTES,
                20,
                LARGE_BYTES - 10,
                700,
                LARGE_BYTES,
                5,
            ],
        );
        for round in 0..3 {
            for (n, size) in (0u8..).zip(sizes) {
                let data = vec![n + round; size];
                expected.extend_from_slice(&data);
                match round {
                    0 => output.copy(&data),
                    1 => drop(output.append(BytesMut::from(&*data))),
                    _ => output.append_shared(Bytes::from(data)),
                }
            }
            assert_eq!(output.len(), expected.len());
            assert!(output.allocated() >= output.len());
            if round == 1 {
                assert_eq!(write_all(&mut output, 1000), std::mem::take(&mut expected));
                assert!(output.next().is_empty() && output.allocated() <= KEPT_BYTES_MAX);
            }
        }
        assert_eq!(write_all(&mut output, usize::MAX), expected);
        // The kept buffer must not precede a large chunk.
        output.copy(b"small");
        assert_eq!(write_all(&mut output, 2), b"small");
        output.append(BytesMut::from(&vec![7; LARGE_BYTES][..]));
        assert_eq!(output.next().len(), LARGE_BYTES);
        output.advance(LARGE_BYTES);
        assert_eq!((output.len(), output.allocated()), (0, 0));
    }

    #[test]
    fn a_large_chunk_counts_until_it_has_left_and_is_not_copied() {
        let mut output = Output::default();
        let data = BytesMut::from(&vec![7; 1 << 20][..]);
        let place = data.as_ptr();
        output.append(data);
        assert_eq!(output.next().as_ptr(), place);
        output.advance((1 << 20) - 1);
        assert_eq!((output.len(), output.allocated()), (1, 1 << 20));
        output.advance(1);
        assert_eq!((output.len(), output.allocated()), (0, 0));
        let shared = Bytes::from(vec![7; 1 << 20]);
        output.append_shared(shared.clone());
        assert_eq!(output.next().as_ptr(), shared.as_ptr());
        output.copy(b"small");
        assert_eq!(
            (output.len(), output.next().len()),
            ((1 << 20) + 5, 1 << 20)
        );
    }

    #[test]
    fn small_pieces_are_gathered_up_to_a_large_one() {
        let first_chunk = |first: usize, second: usize| {
            let mut output = Output::default();
            output.copy(&vec![1; first]);
            output.copy(&vec![2; second]);
            output.next().len()
        };
        assert_eq!(first_chunk(LARGE_BYTES - 10, 10), LARGE_BYTES);
        assert_eq!(first_chunk(LARGE_BYTES - 10, 11), LARGE_BYTES - 10);
    }

    #[test]
    fn what_follows_a_part_is_a_piece_of_its_own() {
        let mut output = Output::default();
        output.part();
        for data in ["a", "b"] {
            output.copy(data.as_bytes());
        }
        output.part();
        for data in ["c", "d"] {
            output.copy(data.as_bytes());
        }
        for piece in ["ab", "cd", ""] {
            assert_eq!(output.next(), piece.as_bytes());
            output.advance(piece.len());
        }
    }

    #[test]
    fn pieces_from_a_size_on_are_not_copied() {
        for (bytes, is_copied) in [
            (LARGE_BYTES - 1, true),
            (LARGE_BYTES, false),
            (LARGE_BYTES + 1, false),
        ] {
            let (own, shared) = (
                BytesMut::from(&vec![7; bytes][..]),
                Bytes::from(vec![7; bytes]),
            );
            let places = [own.as_ptr(), shared.as_ptr()];
            let mut outputs = [Output::default(), Output::default()];
            outputs.iter_mut().for_each(|output| output.copy(b"x"));
            assert_eq!(
                outputs[0].append(own).is_some(),
                is_copied,
                "its buffer comes back"
            );
            outputs[1].append_shared(shared.clone());
            for (output, place) in outputs.iter().zip(places) {
                let last = output.chunks.back().unwrap();
                assert_eq!(last.data.bytes().as_ptr() != place, is_copied, "{bytes}");
            }
        }
    }

    #[test]
    fn the_first_bytes_are_not_copied_and_the_kept_buffer_comes_back() {
        let mut output = Output::default();
        let data = BytesMut::from("first");
        let place = data.as_ptr();
        assert_eq!(output.append(data), None);
        assert_eq!(
            (output.next(), output.next().as_ptr()),
            (&b"first"[..], place)
        );
        output.part();
        output.advance(5);
        let kept = output.append(BytesMut::from("second")).unwrap();
        assert_eq!((kept.len(), output.len(), output.chunks.len()), (0, 6, 1));
        assert_eq!(output.append(BytesMut::from(" third")).unwrap(), " third");
        assert_eq!(
            (output.next(), output.chunks.len()),
            (&b"second third"[..], 1)
        );
    }

    #[test]
    fn a_small_empty_buffer_is_kept() {
        for (allocated, kept) in [(KEPT_BYTES_MAX, KEPT_BYTES_MAX), (KEPT_BYTES_MAX + 1, 0)] {
            let mut output = Output::default();
            output.push(allocated, Data::Own(BytesMut::from("x")));
            output.len = 1;
            output.advance(1);
            assert_eq!(output.allocated(), kept);
        }
        let mut output = Output::default();
        output.push(10, Data::Own(BytesMut::from("x")));
        output.push(20, Data::Own(BytesMut::from("y")));
        output.len = 2;
        output.advance(1);
        assert_eq!(output.allocated(), 20, "one of several");
    }
}
