//! The pending commit: at most one record for each job, encoded on arrival.
//!
//! Not here: when the commit is cut (`journal`).

use std::collections::BTreeSet;

use windlass_engine::{JobId, Numbered, QueueId};

use crate::commit::{Commit, Piece};
use crate::record::{Tail, encode_gone};

/// A longer tail is shared with the engine until the commit is written. If it is copied at all, the lock is not held.
pub(crate) const INLINE_BYTES_MAX: usize = 1024;
/// Bytes of overwritten records before the rest is compacted.
const HOLES_BYTES_MAX: usize = 1 << 20;
/// Number of void records before the rest is compacted.
const VOIDS_MAX: usize = 4096;
/// Capacity reserved for a commit in advance, at most.
const ROOM_BYTES_MAX: usize = 1 << 20;
const ROOM_RECORDS_MAX: usize = 1 << 13;
/// A buffer that a commit has filled to less than one part in `SPARE_PART` is not used again.
const SPARE_PART: usize = 4;
const NO_RECORD: u32 = u32::MAX;

/// The kind of a record in the pending commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A whole job, schedule or batch.
    Put,
    /// Its changing part.
    Moved,
    /// Its deletion.
    Gone,
    /// A cancelled record.
    Void,
    /// A queue, or the engine meta.
    Other,
}

#[derive(Debug)]
struct Written {
    id: JobId,
    kind: Kind,
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
    /// Something was appended, even if it has cancelled out since: a client may wait for this commit.
    pub(crate) touched: bool,
    /// Queues to read from the engine at the cut.
    pub(crate) queues: BTreeSet<QueueId>,
    /// The record of each job, schedule or batch.
    index: Numbered<u32>,
    /// This number and higher ones were assigned in this commit. No other commit has them.
    first_new: JobId,
    arena: Vec<u8>,
    /// The empty arena of an earlier commit.
    spare: Vec<u8>,
    records: Vec<Written>,
    /// Bytes of valid records.
    bytes: u64,
    holes: usize,
    voids: usize,
}

impl Pending {
    pub(crate) fn new(seq: u64, first_new: JobId) -> Self {
        Self {
            seq,
            touched: false,
            queues: BTreeSet::new(),
            index: Numbered::new(NO_RECORD),
            first_new,
            arena: Vec::new(),
            spare: Vec::new(),
            records: Vec::new(),
            bytes: 0,
            holes: 0,
            voids: 0,
        }
    }

    /// Bytes of the valid records.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it was created in this commit.
    pub(crate) fn is_born(&self, id: JobId) -> bool {
        id >= self.first_new
    }

    /// Whether no other commit has it.
    pub(crate) fn is_new(&self, id: JobId) -> bool {
        self.is_born(id) || self.index.get(id).is_some_and(|index| self.kind(index) == Kind::Put)
    }

    /// Writes it whole.
    pub(crate) fn put(&mut self, id: JobId, encode: impl FnOnce(&mut Vec<u8>) -> Option<Box<Tail>>) {
        self.write(id, Kind::Put, encode);
    }

    /// Writes its changing part.
    pub(crate) fn moved(&mut self, id: JobId, encode: impl FnOnce(&mut Vec<u8>)) {
        self.write(id, Kind::Moved, |out| {
            encode(out);
            None
        });
    }

    /// Writes its deletion. Creation and deletion in this commit cancel out.
    pub(crate) fn gone(&mut self, id: JobId) {
        if id < self.first_new {
            self.write(id, Kind::Gone, |out| {
                encode_gone(id, out);
                None
            });
        } else if let Some(index) = self.index.remove(id) {
            self.void(index);
        }
    }

    /// Appends a record that is not about a job.
    pub(crate) fn append(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.add(JobId(0), Kind::Other, |out| {
            encode(out);
            None
        });
    }

    /// Compacts the records if too many bytes are unused.
    pub(crate) fn tidy_if_cluttered(&mut self) {
        let holes = self.holes > HOLES_BYTES_MAX && self.holes > self.arena.len() / 2;
        if holes || (self.voids > VOIDS_MAX && self.voids > self.records.len() / 2) {
            self.tidy();
        }
    }

    /// Returns the commit and begins the next. There, `first_new` and higher numbers are new.
    pub(crate) fn close(&mut self, first_new: JobId) -> Commit {
        let mut next = std::mem::take(&mut self.spare);
        next.reserve(self.arena.len().min(ROOM_BYTES_MAX));
        let arena = std::mem::replace(&mut self.arena, next);
        let records = Vec::with_capacity(self.records.len().min(ROOM_RECORDS_MAX));
        let records = std::mem::replace(&mut self.records, records);
        let mut pieces = Vec::with_capacity(records.len());
        for record in records {
            if record.kind != Kind::Other {
                self.index.remove(record.id);
            }
            if record.kind != Kind::Void {
                pieces.push(Piece { at: record.at, len: record.len, tail: record.tail });
            }
        }
        let (seq, bytes) = (self.seq, self.bytes);
        (self.seq, self.touched, self.first_new) = (seq + 1, false, first_new);
        (self.bytes, self.holes, self.voids) = (0, 0, 0);
        Commit { seq, arena, pieces, bytes }
    }

    /// Uses the buffer of a commit that is on the disk again, if the commit has needed it.
    pub(crate) fn reuse(&mut self, mut arena: Vec<u8>) {
        let is_needed = arena.len() >= arena.capacity() / SPARE_PART;
        if is_needed && arena.capacity() > self.spare.capacity() {
            arena.clear();
            self.spare = arena;
        }
    }

    // ---- one record -------------------------------------------------------------------------------------------------

    fn kind(&self, index: u32) -> Kind {
        self.records.get(index as usize).map_or(Kind::Void, |record| record.kind)
    }

    fn write(&mut self, id: JobId, kind: Kind, encode: impl FnOnce(&mut Vec<u8>) -> Option<Box<Tail>>) {
        match self.index.get(id) {
            Some(index) => self.rewrite(index, kind, encode),
            None => {
                let index = self.add(id, kind, encode);
                self.index.set(id, index);
            }
        }
    }

    /// Adds a record. Returns its index.
    fn add(&mut self, id: JobId, kind: Kind, encode: impl FnOnce(&mut Vec<u8>) -> Option<Box<Tail>>) -> u32 {
        let at = self.arena.len();
        let tail = encode(&mut self.arena);
        let record = Written { id, kind, at, len: self.arena.len() - at, tail };
        self.bytes += record.bytes() as u64;
        self.records.push(record);
        u32::try_from(self.records.len() - 1).unwrap_or(NO_RECORD)
    }

    /// Rewrites a record, in place if it fits.
    fn rewrite(&mut self, index: u32, kind: Kind, encode: impl FnOnce(&mut Vec<u8>) -> Option<Box<Tail>>) {
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

    /// Cancels a record.
    fn void(&mut self, index: u32) {
        let Some(record) = self.records.get_mut(index as usize) else { return };
        self.bytes -= record.bytes() as u64;
        self.holes += record.len;
        self.voids += 1;
        (record.kind, record.len, record.tail) = (Kind::Void, 0, None);
    }

    /// Compacts the records.
    fn tidy(&mut self) {
        let mut arena = Vec::with_capacity(self.arena.len() - self.holes);
        self.records.retain(|record| record.kind != Kind::Void);
        for (index, record) in (0..).zip(&mut self.records) {
            let bytes = self.arena.get(record.at..record.at + record.len).unwrap_or_default();
            record.at = arena.len();
            arena.extend_from_slice(bytes);
            if record.kind != Kind::Other {
                self.index.set(record.id, index);
            }
        }
        self.arena = arena;
        (self.holes, self.voids) = (0, 0);
    }
}
