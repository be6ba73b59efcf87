//! A commit: what is written and removed in one step, ready to be framed.
//!
//! Taken from the journal under the engine's lock, framed without it: until then large bodies are shared, not copied.

use crate::frame::{HEADER_BYTES, SLICE_BYTES_MAX, seal};
use crate::record::Tail;

/// What one commit writes and removes. To be written once, and again as it is if that failed.
#[derive(Clone, Debug)]
pub struct Commit {
    pub(crate) seq: u64,
    pub(crate) first_key: u64,
    pub(crate) parts: u32,
    pub(crate) arena: Vec<u8>,
    pub(crate) pieces: Vec<Piece>,
    /// What is left of a torn commit: to be removed before anything is written behind it.
    pub(crate) litter: Vec<u64>,
    /// Values of commits that are superfluous.
    pub(crate) removals: Vec<u64>,
}

/// One record: bytes of the arena, and a tail that was too large to copy.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) tail: Option<Box<Tail>>,
}

impl Commit {
    /// Its number. Commits are numbered one after the other for the life of the data directory.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// How many values it writes.
    #[must_use]
    pub const fn parts(&self) -> u32 {
        self.parts
    }

    /// The values it writes, of at most [`crate::VALUE_BYTES_MAX`] bytes each, in order of their keys.
    #[must_use]
    pub fn values(&self) -> Values<'_> {
        Values { commit: self, part: 0, piece: 0, done: 0, value: Vec::new() }
    }

    /// The steps in which it is to be written, of so many values each. Each is to be atomic, all of it survives or
    /// nothing, unless nothing is removed: then it is enough that no value survives without those before it. Whatever
    /// part of the row survives, what was there before the commit can be read still.
    pub fn batches(&self, values_max: u32) -> impl Iterator<Item = Batch<'_>> {
        let values_max = values_max.max(1);
        let count = self.parts.div_ceil(values_max) as usize;
        let share = self.removals.len().div_ceil(count.max(1)).max(1);
        // Never a removal without a value, nor the last value without all removals: recovery counts commits.
        let mut removals = self.removals.chunks(share);
        (0..self.parts).step_by(values_max as usize).map(move |part| Batch {
            litter: if part == 0 { &self.litter } else { &[] },
            removals: removals.next().unwrap_or_default(),
            values: values_max.min(self.parts - part),
        })
    }
}

/// A part of a commit that is to be written atomically.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    litter: &'a [u64],
    removals: &'a [u64],
    values: u32,
}

impl Batch<'_> {
    /// Keys to be removed.
    pub fn removals(&self) -> impl Iterator<Item = u64> {
        self.litter.iter().chain(self.removals).copied()
    }

    /// How many of the commit's next values are to be written.
    #[must_use]
    pub const fn values(&self) -> u32 {
        self.values
    }
}

/// Frames a commit's values one after the other, in one buffer.
#[derive(Debug)]
pub struct Values<'a> {
    commit: &'a Commit,
    part: u32,
    piece: usize,
    /// Bytes of the present piece that earlier parts have.
    done: usize,
    value: Vec<u8>,
}

impl Values<'_> {
    /// The next key and its value.
    #[expect(clippy::should_implement_trait, reason = "what it returns lives in its own buffer: no iterator can")]
    pub fn next(&mut self) -> Option<(u64, &[u8])> {
        let commit = self.commit;
        if self.part >= commit.parts {
            return None;
        }
        let starts_at = self.fill();
        let key = commit.first_key + u64::from(self.part);
        seal(key, commit.seq, (self.part, commit.parts), starts_at, &mut self.value);
        self.part += 1;
        Some((key, &self.value))
    }

    /// Copies the next slice into the buffer. Returns where the first record in it begins.
    fn fill(&mut self) -> u32 {
        self.value.clear();
        self.value.resize(HEADER_BYTES, 0);
        let mut starts_at = None;
        let mut room = SLICE_BYTES_MAX;
        while let Some(piece) = self.commit.pieces.get(self.piece).filter(|_| room > 0) {
            if self.done == 0 && starts_at.is_none() {
                starts_at = Some(SLICE_BYTES_MAX - room);
            }
            let empty = &[][..];
            let inline = self.commit.arena.get(piece.at..piece.at + piece.len).unwrap_or(empty);
            let tail = piece.tail.as_deref();
            let mut skip = self.done;
            for bytes in [inline, tail.map_or(empty, |t| &t.result), tail.map_or(empty, |t| &t.body)] {
                let fresh = bytes.get(skip..).unwrap_or(empty);
                skip = skip.saturating_sub(bytes.len());
                let taken = fresh.get(..room).unwrap_or(fresh);
                self.value.extend_from_slice(taken);
                self.done += taken.len();
                room -= taken.len();
            }
            if self.done == piece.len + tail.map_or(0, Tail::len) {
                self.piece += 1;
                self.done = 0;
            }
        }
        let starts_at = starts_at.unwrap_or(self.value.len() - HEADER_BYTES);
        u32::try_from(starts_at).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::frame::{open, parts_of};

    fn commit(sizes: &[(usize, usize, usize)]) -> (Commit, Vec<u8>, Vec<usize>) {
        let (mut arena, mut pieces, mut whole, mut starts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (n, (inline, result, body)) in (1u8..).zip(sizes) {
            starts.push(whole.len());
            let tail = Tail { result: Bytes::from(vec![n; *result]), body: Bytes::from(vec![n + 100; *body]) };
            pieces.push(Piece { at: arena.len(), len: *inline, tail: Some(Box::new(tail.clone())) });
            arena.extend(vec![n + 200; *inline]);
            whole.extend(vec![n + 200; *inline]);
            tail.append_to(&mut whole);
        }
        let parts = parts_of(whole.len() as u64);
        (
            Commit { seq: 3, first_key: 10, parts, arena, pieces, litter: Vec::new(), removals: Vec::new() },
            whole,
            starts,
        )
    }

    #[test]
    fn slices_are_the_records_in_a_row() {
        let max = SLICE_BYTES_MAX;
        let table: [&[(usize, usize, usize)]; 8] = [
            &[(1, 0, 0)],
            &[(max, 0, 0)],
            &[(max, 0, 0), (1, 0, 0)],
            &[(10, max, max), (10, 0, 3)],
            &[(max - 1, 1, 1), (5, 5, 5)],
            &[(1, 0, 3 * max - 1), (7, 0, 0)],
            &[(5, 0, 0), (5, 200_000, 0), (5, 0, 0), (5, 0, 0)],
            &[(9, 0, max - 9), (1, 0, 0)],
        ];
        for sizes in table {
            let (commit, whole, starts) = commit(sizes);
            let (mut values, mut read, mut keys) = (commit.values(), Vec::new(), Vec::new());
            while let Some((key, value)) = values.next() {
                assert!(value.len() <= crate::VALUE_BYTES_MAX);
                let frame = open(key, value).unwrap();
                let begins = read.len() + frame.starts_at as usize;
                let end = read.len() + frame.slice.len();
                let first = starts.iter().copied().find(|start| *start >= read.len()).unwrap_or(end).min(end);
                assert_eq!(begins, first, "{sizes:?} part {}", frame.part);
                read.extend_from_slice(frame.slice);
                keys.push(key);
            }
            assert_eq!(read, whole, "{sizes:?}");
            assert_eq!(keys, (10..10 + u64::from(commit.parts)).collect::<Vec<_>>(), "{sizes:?}");
        }
    }

    proptest! {
        #[test]
        fn batches_are_the_commit_in_steps(parts in 1u32..40, removals in 0u64..100, values_max in 1u32..10) {
            let commit = Commit { parts, removals: (0..removals).collect(), litter: vec![901, 902], ..commit(&[]).0 };
            let batches: Vec<_> = commit.batches(values_max).collect();
            prop_assert_eq!(batches.iter().map(Batch::values).sum::<u32>(), parts);
            prop_assert!(batches.iter().all(|batch| (1..=values_max).contains(&batch.values())));
            let keys: Vec<u64> = batches.iter().flat_map(Batch::removals).collect();
            prop_assert_eq!(keys, [901, 902].into_iter().chain(0..removals).collect::<Vec<_>>());
            prop_assert_eq!(batches[0].litter.len(), 2);
        }
    }
}
