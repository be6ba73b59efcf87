//! A commit: the records of one write to the log.
//!
//! It is taken from the journal under the engine's lock and framed without the lock. Until then large bodies are
//! shared, not copied.

use bytes::Bytes;

use crate::codec::put_u64;
use crate::record::Tail;

/// The records that become durable together. A commit that fails is written again unchanged.
#[derive(Clone, Debug)]
pub struct Commit {
    pub(crate) seq: u64,
    pub(crate) arena: Vec<u8>,
    pub(crate) pieces: Vec<Piece>,
    /// Bytes of its records.
    pub(crate) bytes: u64,
}

/// One record: bytes of the arena, and a tail that was too large to copy.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) tail: Option<Box<Tail>>,
}

impl Piece {
    pub(crate) fn bytes(&self) -> usize {
        self.len + self.tail.as_deref().map_or(0, Tail::len)
    }
}

impl Commit {
    /// Its number. Commits are numbered consecutively over the life of the data directory.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// Bytes of its records.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends the records, each preceded by its length, to `out`. Large tails are not copied: they go to `tails`, each
    /// with its offset in `out`.
    pub(crate) fn write_records(&self, out: &mut Vec<u8>, tails: &mut Vec<(usize, Bytes)>) {
        for piece in &self.pieces {
            put_u64(out, piece.bytes() as u64);
            out.extend_from_slice(self.arena.get(piece.at..piece.at + piece.len).unwrap_or_default());
            let Some(tail) = piece.tail.as_deref() else { continue };
            let shared = [&tail.result, &tail.body].into_iter().filter(|bytes| !bytes.is_empty());
            tails.extend(shared.map(|bytes| (out.len(), bytes.clone())));
        }
    }

    /// The records, each preceded by its length, in one piece.
    #[must_use]
    pub fn records(&self) -> Vec<u8> {
        let (mut out, mut tails) = (Vec::new(), Vec::new());
        self.write_records(&mut out, &mut tails);
        let (mut whole, mut done) = (Vec::new(), 0);
        for (at, tail) in tails {
            whole.extend_from_slice(out.get(done..at).unwrap_or_default());
            whole.extend_from_slice(&tail);
            done = at;
        }
        whole.extend_from_slice(out.get(done..).unwrap_or_default());
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::records;

    #[test]
    fn large_tails_are_inserted_at_their_offsets() {
        let (mut arena, mut pieces, mut expected) = (vec![0xee; 3], Vec::new(), Vec::new());
        for (n, (inline, result, body)) in (1u8..).zip([(5, 0, 0), (300, 0, 2_000), (7, 9_000, 1), (1, 0, 0)]) {
            let tail = Tail { result: Bytes::from(vec![n; result]), body: Bytes::from(vec![n + 100; body]) };
            let mut whole = vec![n + 200; inline];
            tail.append_to(&mut whole);
            expected.push(whole);
            pieces.push(Piece { at: arena.len(), len: inline, tail: (tail.len() > 0).then(|| Box::new(tail)) });
            arena.extend(vec![n + 200; inline]);
            arena.push(0xee);
        }
        let commit = Commit { seq: 3, arena, pieces, bytes: 0 };
        let bytes = commit.records();
        let read: Vec<Vec<u8>> = records(&bytes).map(|record| record.unwrap().1.to_vec()).collect();
        assert_eq!(read, expected);
    }
}
