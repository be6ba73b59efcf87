//! The pending commit: no more than one record for each job, encoded on arrival in the log's
//! format.
//!
//! Not here: when the commit is cut (`journal`).

use std::collections::BTreeSet;

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use windlass_engine::{JobId, Namespace, Numbered, QueueId};

use crate::commit::{Commit, Run};
use crate::record::{Tail, encode_gone};
use windlass_codec::Number;

/// A longer tail is shared with the engine until the commit is written, so that it is never copied while the
/// lock is held.
pub(crate) const INLINE_BYTES_MAX: usize = 1024;
/// Bytes of overwritten records before the rest is compacted.
const HOLES_BYTES_MAX: usize = 1 << 20;
/// Number of void records before the rest is compacted.
const VOIDS_MAX: usize = 4096;
/// Maximum capacity that is reserved for a commit in advance.
const ROOM_BYTES_MAX: usize = 1 << 20;
/// Capacity for more records than this is released when commits no longer need it.
const ROOM_RECORDS_MAX: usize = 1 << 13;
/// A buffer is not reused if a commit has filled less than one part in `SPARE_PART` of it.
const SPARE_PART: usize = 4;
/// Buffers retained for later commits: while one commit is being written, another may be ready.
const SPARES_MAX: usize = 2;
const NO_RECORD: u32 = u32::MAX;

/// The kind of a record in the pending commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A full job, schedule or batch.
    Put,
    /// The changing part.
    Moved,
    /// The deletion.
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
    /// The offset in the arena of the record's length and bytes.
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
    /// Something was appended, even if it has cancelled out since: a client may be waiting for this commit.
    pub(crate) touched: bool,
    /// Queues to read from the engine at the cut.
    pub(crate) queues: BTreeSet<QueueId>,
    pub(crate) namespaces: BTreeSet<Namespace>,
    /// The record of each job, schedule or batch.
    index: Numbered<u32>,
    /// Numbers from this one on were assigned in this commit. No other commit has them.
    first_new: JobId,
    /// Older jobs that no previous commit has.
    kept: HashSet<JobId, FixedState>,
    arena: Vec<u8>,
    /// Empty arenas of previous commits.
    spares: Vec<Vec<u8>>,
    records: Vec<Written>,
    /// Size of the length of the last record, as a guess for the next record.
    length_bytes: usize,
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
            namespaces: BTreeSet::new(),
            index: Numbered::new(NO_RECORD),
            first_new,
            kept: HashSet::with_hasher(FixedState::default()),
            arena: Vec::new(),
            spares: Vec::new(),
            records: Vec::new(),
            length_bytes: 1,
            bytes: 0,
            holes: 0,
            voids: 0,
        }
    }

    /// Bytes of the valid records.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns true if it was created in this commit.
    pub(crate) fn is_born(&self, id: JobId) -> bool {
        id >= self.first_new
    }

    /// Returns true if a previous commit has the entity.
    pub(crate) fn is_known(&self, id: JobId) -> bool {
        !self.is_born(id) && !self.kept.contains(&id)
    }

    /// Records that no previous commit has this job, although it is older.
    pub(crate) fn keep(&mut self, id: JobId) {
        self.kept.insert(id);
    }

    /// Returns true if no other commit has it.
    pub(crate) fn is_new(&self, id: JobId) -> bool {
        self.is_born(id)
            || self
                .index
                .get(id)
                .is_some_and(|index| self.kind(index) == Kind::Put)
    }

    /// Writes the full entity.
    pub(crate) fn put(
        &mut self,
        id: JobId,
        encode: impl FnOnce(&mut Vec<u8>) -> Option<Box<Tail>>,
    ) {
        self.write(id, Kind::Put, encode);
    }

    /// Writes the changing part.
    pub(crate) fn moved(&mut self, id: JobId, encode: impl FnOnce(&mut Vec<u8>)) {
        self.write(id, Kind::Moved, |out| {
            encode(out);
            None
        });
    }

    /// Writes the deletion. Creation and deletion in this commit cancel out.
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

    /// Appends a record of another kind than a job.
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

    /// Returns the commit and starts the next, in which numbers from `first_new` on are new.
    pub(crate) fn close(&mut self, first_new: JobId) -> Commit {
        let mut next = self.spares.pop().unwrap_or_default();
        next.reserve(self.arena.len().min(ROOM_BYTES_MAX));
        let arena = std::mem::replace(&mut self.arena, next);
        let runs = self.take_runs();
        let (seq, bytes) = (self.seq, self.bytes);
        (self.seq, self.touched, self.first_new) = (seq + 1, false, first_new);
        (self.bytes, self.holes, self.voids) = (0, 0, 0);
        self.kept.clear();
        Commit {
            seq,
            arena,
            runs,
            bytes,
            ..Commit::default()
        }
    }

    /// Removes all records. Returns the valid parts of the arena.
    fn take_runs(&mut self) -> Vec<Run> {
        let (mut runs, taken) = (Vec::<Run>::new(), self.records.len());
        for mut record in self.records.drain(..) {
            if record.kind != Kind::Other {
                self.index.remove(record.id);
            }
            record
                .tail
                .iter_mut()
                .for_each(|tail| tail.inline = record.len);
            let range = record.at..record.at + record.len;
            match runs.last_mut() {
                _ if record.kind == Kind::Void => {}
                Some(last) if last.tail.is_none() && last.range.end == range.start => {
                    (last.range.end, last.tail) = (range.end, record.tail);
                }
                _ => runs.push(Run {
                    range,
                    tail: record.tail,
                }),
            }
        }
        if self.records.capacity() > ROOM_RECORDS_MAX.max(SPARE_PART * taken) {
            self.records = Vec::new();
        }
        runs
    }

    /// Reuses a buffer after the records were copied, if the size is justified.
    pub(crate) fn reuse(&mut self, mut arena: Vec<u8>) {
        let is_needed = arena.len() >= arena.capacity() / SPARE_PART;
        if !is_needed {
            self.spares.pop();
        } else if arena.capacity() > 0 && self.spares.len() < SPARES_MAX {
            arena.clear();
            self.spares.push(arena);
        }
    }

    // ---- one record -------------------------------------------------------------------------------------------------

    fn kind(&self, index: u32) -> Kind {
        self.records
            .get(index as usize)
            .map_or(Kind::Void, |record| record.kind)
    }

    fn write(
        &mut self,
        id: JobId,
        kind: Kind,
        encode: impl FnOnce(&mut Vec<u8>) -> Option<Box<Tail>>,
    ) {
        match self.index.get(id) {
            Some(index) => self.rewrite(index, kind, encode),
            None => {
                let index = self.add(id, kind, encode);
                self.index.set(id, index);
            }
        }
    }

    /// Adds a record. Returns the index of the record.
    fn add(
        &mut self,
        id: JobId,
        kind: Kind,
        encode: impl FnOnce(&mut Vec<u8>) -> Option<Box<Tail>>,
    ) -> u32 {
        let at = self.arena.len();
        let tail = self.encode(encode);
        let record = Written {
            id,
            kind,
            at,
            len: self.arena.len() - at,
            tail,
        };
        self.bytes += record.bytes() as u64;
        self.records.push(record);
        u32::try_from(self.records.len() - 1).unwrap_or(NO_RECORD)
    }

    /// Rewrites a record, in place if it fits.
    fn rewrite(
        &mut self,
        index: u32,
        kind: Kind,
        encode: impl FnOnce(&mut Vec<u8>) -> Option<Box<Tail>>,
    ) {
        let at = self.arena.len();
        let tail = self.encode(encode);
        let len = self.arena.len() - at;
        let Some(record) = self.records.get_mut(index as usize) else {
            return;
        };
        self.bytes -= record.bytes() as u64;
        (record.kind, record.tail) = (kind, tail);
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

    /// Appends a record's bytes to the arena, preceded by the length of the full record. Returns the tail.
    fn encode(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>) -> Option<Box<Tail>>,
    ) -> Option<Box<Tail>> {
        let at = self.arena.len();
        let begin = at + self.length_bytes;
        self.arena.resize(begin, 0);
        let tail = encode(&mut self.arena);
        let length = self.arena.len() - begin + tail.as_deref().map_or(0, Tail::len);
        let length = Number::of(length as u64);
        match self.arena.get_mut(at..begin) {
            Some(room) if room.len() == length.len() => room.copy_from_slice(&length),
            _ => {
                self.arena.splice(at..begin, length.iter().copied());
                self.length_bytes = length.len();
            }
        }
        tail
    }

    /// Cancels a record.
    fn void(&mut self, index: u32) {
        let Some(record) = self.records.get_mut(index as usize) else {
            return;
        };
        self.bytes -= record.bytes() as u64;
        self.holes += record.len;
        self.voids += 1;
        (record.kind, record.len, record.tail) = (Kind::Void, 0, None);
    }

    /// Compacts the records.
    fn tidy(&mut self) {
        let mut arena = self.spares.pop().unwrap_or_default();
        arena.reserve(self.arena.len() - self.holes);
        self.records.retain(|record| record.kind != Kind::Void);
        for (index, record) in (0..).zip(&mut self.records) {
            let bytes = self
                .arena
                .get(record.at..record.at + record.len)
                .unwrap_or_default();
            record.at = arena.len();
            arena.extend_from_slice(bytes);
            if record.kind != Kind::Other {
                self.index.set(record.id, index);
            }
        }
        let cluttered = std::mem::replace(&mut self.arena, arena);
        self.reuse(cluttered);
        (self.holes, self.voids) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;

    use super::*;
    use crate::log::records;

    /// A record with this many inline bytes, and a tail of this many bytes.
    fn put(pending: &mut Pending, id: u64, inline: usize, tail: usize) -> Vec<u8> {
        let tail = Tail {
            body: Bytes::from(vec![8; tail]),
            ..Tail::default()
        };
        let mut whole = vec![id.to_le_bytes()[0]; inline];
        pending.put(JobId(id), |out| {
            out.extend_from_slice(&whole);
            (tail.len() > 0).then(|| Box::new(tail.clone()))
        });
        tail.append_to(&mut whole);
        whole
    }

    fn read(commit: &Commit) -> Vec<Vec<u8>> {
        let bytes = commit.records();
        records(&bytes)
            .map(|record| record.unwrap().1.to_vec())
            .collect()
    }

    #[test]
    fn lengths_of_one_to_three_bytes_stand_before_their_records() {
        let mut pending = Pending::new(1, JobId(1));
        let sizes = [
            (5, 0),
            (300, 0),
            (127, 0),
            (128, 2_000),
            (7, 9_000),
            (20_000, 0),
            (1, 1),
            (100, 100),
            (1, 0),
        ];
        let expected: Vec<_> = (1..)
            .zip(sizes)
            .map(|(id, (inline, tail))| put(&mut pending, id, inline, tail))
            .collect();
        let commit = pending.close(JobId(100));
        assert_eq!(read(&commit), expected);
        assert_eq!(
            commit.runs.len(),
            5,
            "a run ends with a tail, or with the commit"
        );
    }

    #[test]
    fn records_without_tails_are_one_run() {
        let mut pending = Pending::new(1, JobId(1));
        let expected: Vec<_> = (1..50)
            .zip(90..)
            .map(|(id, inline)| put(&mut pending, id, inline, 0))
            .collect();
        let commit = pending.close(JobId(50));
        assert_eq!((read(&commit), commit.runs.len()), (expected, 1));
    }

    #[test]
    fn rewritten_and_cancelled_records_leave_no_trace() {
        // Number, inline bytes and tail; without bytes: the job is deleted.
        let steps = [
            (8, 20, 2_000),
            (1, 200, 0),
            (2, 10, 0),
            (3, 10, 3_000),
            (1, 50, 0),
            (2, 500, 0),
            (4, 30, 0),
            (3, 12, 0),
            (4, 0, 0),
            (8, 0, 0),
        ];
        let mut pending = Pending::new(1, JobId(1));
        let mut expected = BTreeMap::new();
        for (id, inline, tail) in steps {
            if inline == 0 {
                pending.gone(JobId(id));
                expected.remove(&id);
            } else {
                expected.insert(id, put(&mut pending, id, inline, tail));
            }
        }
        let used = |pending: &Pending| {
            pending
                .records
                .iter()
                .map(|record| record.len)
                .sum::<usize>()
        };
        assert_eq!((pending.records.len(), pending.voids), (5, 2));
        assert_eq!(pending.arena.len() - pending.holes, used(&pending));
        pending.tidy();
        assert_eq!(
            (pending.records.len(), pending.arena.len()),
            (3, used(&pending))
        );
        expected.insert(2, put(&mut pending, 2, 700, 0));
        put(&mut pending, 9, 40, 0);
        pending.gone(JobId(9));
        let commit = pending.close(JobId(10));
        assert_eq!(read(&commit), expected.into_values().collect::<Vec<_>>());
        assert_eq!(commit.bytes, commit.records().len() as u64);
        assert_eq!(
            read(&pending.close(JobId(10))),
            Vec::<Vec<u8>>::new(),
            "the next commit begins empty"
        );
    }

    #[test]
    fn a_cancelled_record_behind_a_tail_is_no_run() {
        let mut pending = Pending::new(1, JobId(1));
        let expected = put(&mut pending, 1, 10, 2_000);
        put(&mut pending, 2, 10, 0);
        pending.gone(JobId(2));
        let commit = pending.close(JobId(3));
        assert_eq!((read(&commit), commit.runs.len()), (vec![expected], 1));
    }

    #[test]
    fn cancelled_records_are_compacted_once_there_are_many() {
        let mut pending = Pending::new(1, JobId(1));
        for id in 1..=VOIDS_MAX as u64 + 1 {
            put(&mut pending, id, 1, 0);
            pending.gone(JobId(id));
            pending.tidy_if_cluttered();
        }
        assert!(pending.records.is_empty() && pending.arena.is_empty());
    }

    #[test]
    fn no_more_buffers_are_kept_than_commits_are_on_their_way() {
        let mut pending = Pending::new(1, JobId(1));
        for buffers in 1..5 {
            pending.reuse(vec![0; 100]);
            assert_eq!(pending.spares.len(), buffers.min(SPARES_MAX));
        }
    }

    #[test]
    fn buffers_are_used_again_while_commits_need_them() {
        let mut pending = Pending::new(1, JobId(1));
        put(&mut pending, 1, 5_000, 0);
        let commit = pending.close(JobId(2));
        let buffer = commit.arena.as_ptr();
        pending.reuse(commit.arena);
        let empty = pending.close(JobId(2));
        put(&mut pending, 2, 4_000, 0);
        let commit = pending.close(JobId(3));
        assert_eq!((commit.arena.as_ptr(), read(&commit).len()), (buffer, 1));
        put(&mut pending, 3, 10, 0);
        pending.reuse(commit.arena);
        assert_eq!(pending.spares.len(), 1);
        pending.reuse(empty.arena);
        assert_eq!(
            pending.spares.len(),
            0,
            "a commit that needs no buffer gives one back"
        );
    }

    #[test]
    fn records_are_compacted_once_more_than_half_of_them_is_unused() {
        const HOLES: usize = HOLES_BYTES_MAX + 1;
        const VOIDS: usize = VOIDS_MAX + 1;
        // Unused bytes, all bytes, cancelled records, all records.
        let table = [
            (HOLES, 2 * HOLES - 1, 0, 0, true),
            (HOLES, 2 * HOLES, 0, 0, false),
            (HOLES - 1, HOLES, 0, 0, false),
            (0, 0, VOIDS, 2 * VOIDS - 1, true),
            (0, 0, VOIDS, 2 * VOIDS, false),
            (0, 0, VOIDS - 1, VOIDS, false),
            (HOLES, 2 * HOLES, VOIDS, 2 * VOIDS, false),
            (0, HOLES, 0, VOIDS, false),
        ];
        for (holes, bytes, voids, records, is_compacted) in table {
            let mut pending = Pending::new(1, JobId(1));
            (0..records).for_each(|_| {
                pending.records.push(Written {
                    id: JobId(0),
                    kind: Kind::Other,
                    at: 0,
                    len: 0,
                    tail: None,
                })
            });
            (pending.holes, pending.voids, pending.arena) = (holes, voids, vec![0; bytes]);
            pending.tidy_if_cluttered();
            let left = (
                if is_compacted { 0 } else { bytes },
                if is_compacted { 0 } else { holes + voids },
            );
            assert_eq!(
                (pending.arena.len(), pending.holes + pending.voids),
                left,
                "{holes} of {bytes}, {voids} of {records}"
            );
        }
    }
}
