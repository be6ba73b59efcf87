//! The commit that is being gathered: one record at most for each job, encoded as it comes.
//!
//! Not here: when the commit is cut (`journal`).

use std::collections::BTreeSet;

use windlass_engine::{JobId, Numbered, QueueId};

use crate::commit::{Commit, Piece};
use crate::record::{Tail, encode_gone};

/// A tail longer than this is shared with the engine until the commit is written, and copied without its lock, if at all.
pub(crate) const INLINE_BYTES_MAX: usize = 1024;
/// Bytes of overwritten records that may lie about before the rest is moved together.
const HOLES_BYTES_MAX: usize = 1 << 20;
/// Records that came to nothing that may lie about.
const VOIDS_MAX: usize = 4096;
/// Room that is made for a commit before it is needed, at most.
const ROOM_BYTES_MAX: usize = 1 << 20;
const ROOM_RECORDS_MAX: usize = 1 << 13;
const NO_RECORD: u32 = u32::MAX;

/// What a record of the pending commit is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A job, a schedule or a batch, whole.
    Put,
    /// The part of it that changes.
    Moved,
    /// It is gone.
    Gone,
    /// The record came to nothing.
    Void,
    /// A queue, or the head.
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
    /// Something was appended, even if it has come to nothing since: somebody may wait for it.
    pub(crate) touched: bool,
    /// Queues to be read from the engine when it is cut.
    pub(crate) queues: BTreeSet<QueueId>,
    /// Which record is about this job, schedule or batch.
    index: Numbered<u32>,
    /// What has this number or a higher one was born in this commit: no other commit knows it.
    first_new: JobId,
    arena: Vec<u8>,
    records: Vec<Written>,
    /// Bytes of records that stand.
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
            records: Vec::new(),
            bytes: 0,
            holes: 0,
            voids: 0,
        }
    }

    /// Bytes of the records that stand.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it was born in this commit.
    pub(crate) fn is_born(&self, id: JobId) -> bool {
        id >= self.first_new
    }

    /// Whether no other commit knows it.
    pub(crate) fn is_new(&self, id: JobId) -> bool {
        self.is_born(id) || self.index.get(id).is_some_and(|index| self.kind(index) == Kind::Put)
    }

    /// Writes it whole.
    pub(crate) fn put(&mut self, id: JobId, encode: impl FnOnce(&mut Vec<u8>) -> Option<Box<Tail>>) {
        self.write(id, Kind::Put, encode);
    }

    /// Writes the part of it that changes.
    pub(crate) fn moved(&mut self, id: JobId, encode: impl FnOnce(&mut Vec<u8>)) {
        self.write(id, Kind::Moved, |out| {
            encode(out);
            None
        });
    }

    /// Writes that it is gone. What was born in this commit comes to nothing.
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

    /// Appends a record that is about no job.
    pub(crate) fn append(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.add(JobId(0), Kind::Other, |out| {
            encode(out);
            None
        });
    }

    /// Moves together what stands, if too much lies about between it.
    pub(crate) fn tidy_if_cluttered(&mut self) {
        let holes = self.holes > HOLES_BYTES_MAX && self.holes > self.arena.len() / 2;
        if holes || (self.voids > VOIDS_MAX && self.voids > self.records.len() / 2) {
            self.tidy();
        }
    }

    /// Ends the gathering and begins the next commit. From `first_new` on everything will be new there.
    pub(crate) fn close(&mut self, first_new: JobId) -> Commit {
        let room = (self.arena.len().min(ROOM_BYTES_MAX), self.records.len().min(ROOM_RECORDS_MAX));
        let arena = std::mem::replace(&mut self.arena, Vec::with_capacity(room.0));
        let records = std::mem::replace(&mut self.records, Vec::with_capacity(room.1));
        let mut pieces = Vec::with_capacity(records.len());
        for record in records {
            if record.kind != Kind::Other {
                self.index.remove(record.id);
            }
            if record.kind != Kind::Void {
                pieces.push(Piece { at: record.at, len: record.len, tail: record.tail });
            }
        }
        let seq = self.seq;
        (self.seq, self.touched, self.first_new) = (seq + 1, false, first_new);
        (self.bytes, self.holes, self.voids) = (0, 0, 0);
        Commit { seq, arena, pieces }
    }

    // ---- one record --------------------------------------------------------------------------------------------------

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

    /// Adds a record. Returns which it is.
    fn add(&mut self, id: JobId, kind: Kind, encode: impl FnOnce(&mut Vec<u8>) -> Option<Box<Tail>>) -> u32 {
        let at = self.arena.len();
        let tail = encode(&mut self.arena);
        let record = Written { id, kind, at, len: self.arena.len() - at, tail };
        self.bytes += record.bytes() as u64;
        self.records.push(record);
        u32::try_from(self.records.len() - 1).unwrap_or(NO_RECORD)
    }

    /// Writes a record anew, over itself if it fits there.
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

    /// A record comes to nothing.
    fn void(&mut self, index: u32) {
        let Some(record) = self.records.get_mut(index as usize) else { return };
        self.bytes -= record.bytes() as u64;
        self.holes += record.len;
        self.voids += 1;
        (record.kind, record.len, record.tail) = (Kind::Void, 0, None);
    }

    /// Moves together what stands.
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
