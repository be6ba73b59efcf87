//! The commit that is being gathered: one record at most for each job, encoded as it comes.
//!
//! Not here: what a record overrides (`ledger`), and when the commit is cut (`journal`).

use std::collections::BTreeSet;

use windlass_engine::{JobId, QueueId};

use crate::commit::Piece;
use crate::record::Tail;

/// A tail longer than this is shared with the engine until the commit is framed, and copied without its lock.
pub(crate) const INLINE_BYTES_MAX: usize = 1024;
/// Bytes of overwritten records that may lie about before the rest is moved together.
const HOLES_BYTES_MAX: usize = 1 << 20;
/// Records that came to nothing that may lie about.
const VOIDS_MAX: usize = 4096;
/// Room that is made for a commit before it is needed, at most.
const ROOM_BYTES_MAX: usize = 1 << 20;
const ROOM_RECORDS_MAX: usize = 1 << 13;

/// What a record of the pending commit is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Put,
    Moved,
    Gone,
    /// Came to nothing.
    Void,
}

#[derive(Debug)]
struct Written {
    job: JobId,
    kind: Kind,
    /// It overrides a record that the store holds: if it comes to nothing, that must still be said.
    overrides: bool,
    at: usize,
    len: usize,
    tail: Option<Box<Tail>>,
}

impl Written {
    fn bytes(&self) -> usize {
        self.len + self.tail.as_deref().map_or(0, Tail::len)
    }
}

/// The pending commit.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) seq: u64,
    /// Its place in the ledger.
    pub(crate) slot: u32,
    /// Something was appended, even if it has come to nothing since: somebody may wait for it.
    pub(crate) touched: bool,
    /// Queues to be read from the engine when it is cut.
    pub(crate) queues: BTreeSet<QueueId>,
    arena: Vec<u8>,
    records: Vec<Written>,
    /// Bytes of records that stand.
    bytes: u64,
    holes: usize,
    voids: usize,
}

/// What the pending commit turned out to be.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) arena: Vec<u8>,
    pub(crate) pieces: Vec<Piece>,
}

impl Pending {
    pub(crate) fn new(seq: u64, slot: u32, arena_bytes: usize, records: usize) -> Self {
        Self {
            seq,
            slot,
            touched: false,
            queues: BTreeSet::new(),
            arena: Vec::with_capacity(arena_bytes),
            records: Vec::with_capacity(records),
            bytes: 0,
            holes: 0,
            voids: 0,
        }
    }

    /// Bytes of the records that stand.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a record. Returns which it is.
    pub(crate) fn add(
        &mut self,
        kind: Kind,
        job: JobId,
        overrides: bool,
        encode: impl FnOnce(&mut Vec<u8>) -> Option<Box<Tail>>,
    ) -> u32 {
        let at = self.arena.len();
        let tail = encode(&mut self.arena);
        let record = Written { job, kind, overrides, at, len: self.arena.len() - at, tail };
        self.bytes += record.bytes() as u64;
        self.records.push(record);
        u32::try_from(self.records.len() - 1).unwrap_or(u32::MAX)
    }

    /// Writes a record anew, over itself if it fits there.
    pub(crate) fn rewrite(&mut self, index: u32, kind: Kind, encode: impl FnOnce(&mut Vec<u8>) -> Option<Box<Tail>>) {
        let Some(record) = self.records.get_mut(index as usize) else { return };
        self.bytes -= record.bytes() as u64;
        let at = self.arena.len();
        record.tail = encode(&mut self.arena);
        record.kind = kind;
        let len = self.arena.len() - at;
        if len <= record.len {
            self.arena.copy_within(at.., record.at);
            self.arena.truncate(at);
            self.holes += record.len - len;
        } else {
            self.holes += record.len;
            record.at = at;
        }
        record.len = len;
        self.bytes += record.bytes() as u64;
    }

    /// A record comes to nothing. Returns whether it overrides one that the store holds.
    pub(crate) fn void(&mut self, index: u32) -> bool {
        let Some(record) = self.records.get_mut(index as usize) else { return false };
        self.bytes -= record.bytes() as u64;
        self.holes += record.len;
        self.voids += 1;
        (record.kind, record.len, record.tail) = (Kind::Void, 0, None);
        record.overrides
    }

    /// A job's own record comes to nothing, or only to the word that it is gone.
    pub(crate) fn drop_put(&mut self, index: u32, encode_gone: impl FnOnce(&mut Vec<u8>)) {
        if !self.void(index) {
            return;
        }
        self.voids -= 1;
        self.rewrite(index, Kind::Gone, |out| {
            encode_gone(out);
            None
        });
    }

    /// Appends bytes that belong to no job.
    pub(crate) fn append(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> u32 {
        let index = self.add(Kind::Gone, JobId(0), false, |out| {
            encode(out);
            None
        });
        self.size(index)
    }

    /// Bytes of a record, for the ledger.
    pub(crate) fn size(&self, index: u32) -> u32 {
        let bytes = self.records.get(index as usize).map_or(0, Written::bytes);
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// The records that stand: what they are, whose, and which.
    pub(crate) fn standing(&self) -> impl Iterator<Item = (Kind, JobId, u32)> {
        let records = (0..).zip(&self.records).filter(|(_, record)| record.kind != Kind::Void);
        records.map(|(index, record)| (record.kind, record.job, index))
    }

    /// Whether too much lies about.
    pub(crate) fn is_cluttered(&self) -> bool {
        (self.holes > HOLES_BYTES_MAX && self.holes > self.arena.len() / 2)
            || (self.voids > VOIDS_MAX && self.voids > self.records.len() / 2)
    }

    /// Moves together what stands. Records keep their order but not their indexes.
    pub(crate) fn tidy(&mut self) {
        let mut arena = Vec::with_capacity(self.arena.len() - self.holes);
        self.records.retain(|record| record.kind != Kind::Void);
        for record in &mut self.records {
            let bytes = self.arena.get(record.at..record.at + record.len).unwrap_or_default();
            record.at = arena.len();
            arena.extend_from_slice(bytes);
        }
        self.arena = arena;
        (self.holes, self.voids) = (0, 0);
    }

    /// Ends the gathering.
    pub(crate) fn finish(self) -> Gathered {
        let stands = self.records.into_iter().filter(|record| record.kind != Kind::Void);
        let pieces = stands.map(|record| Piece { at: record.at, len: record.len, tail: record.tail }).collect();
        Gathered { arena: self.arena, pieces }
    }

    /// Room that the next commit will probably need.
    pub(crate) fn room(&self) -> (usize, usize) {
        (self.arena.len().min(ROOM_BYTES_MAX), self.records.len().min(ROOM_RECORDS_MAX))
    }
}
