//! The journal's bookkeeping beside the engine, under the same lock. No I/O: it says what is to be written, and a driver
//! writes it with a [`crate::Store`].
//!
//! ```text
//! visit:     engine.apply(…); journal.append(&engine, &turn.changes)        under the lock
//! commit:    lock { journal.cut(&engine) } → store.commit(&commit) → lock { journal.committed(seq) }
//! ```
//!
//! Changes name what changed; jobs are read from the engine and encoded at once, queues and the head when the commit is
//! cut. One commit is on its way at a time, and the same commit is written again until it is on the disk.

use windlass_engine::{Batch, Change, Engine, Job, JobId, PlaceKind, Queue, QueueId, Schedule};

use crate::commit::Commit;
use crate::compact::{Gain, Pass};
use crate::frame::{HEADER_BYTES, parts_of};
use crate::ledger::{Home, Ledger, Shape};
use crate::pending::{Gathered, INLINE_BYTES_MAX, Kind, Pending};
use crate::record::{
    HeadRecord, Tail, census_share, encode_batch, encode_batch_moved, encode_gone, encode_head, encode_moved,
    encode_next_run, encode_put, encode_queue, encode_queue_gone, encode_schedule,
};
use crate::roll::RollWriter;

/// Superfluous bytes that are worth a commit of their own.
const IDLE_REAP_BYTES: u64 = 1 << 20;
/// Superfluous bytes that go with each commit besides as many as it writes: a long row that falls must not hold it up.
const REAP_BYTES: u64 = 64 << 10;

/// When the journal is rewritten, and how much of it at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalLimits {
    /// Below this size, in bytes, nothing is rewritten.
    pub floor_bytes: u64,
    /// Nor while it is smaller than this many times what is alive in it.
    pub live_multiple: u64,
    /// Bytes rewritten with one commit, or twice what the commit holds anyway, whichever is more; never more than
    /// eight times this.
    pub step_bytes: u64,
    /// With more commits than this, small ones are merged.
    pub commits_max: u64,
}

impl Default for JournalLimits {
    fn default() -> Self {
        Self { floor_bytes: 32 << 20, live_multiple: 2, step_bytes: 64 << 10, commits_max: 1 << 16 }
    }
}

/// Figures of the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Commits the store holds.
    pub commits: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Bytes of the records in them that still count.
    pub live_bytes: u64,
    /// Jobs they hold, and schedules, and batches.
    pub jobs: u64,
    /// Bytes waiting for the next commit.
    pub pending_bytes: u64,
    /// Times rewriting began.
    pub compactions: u64,
    /// Bytes rewritten.
    pub rewritten_bytes: u64,
}

/// What the store holds, and what is to be written next.
#[derive(Debug)]
pub struct Journal {
    limits: JournalLimits,
    pub(crate) ledger: Ledger,
    pub(crate) pending: Pending,
    /// The commit that is on its way.
    in_flight: Option<u64>,
    next_key: u64,
    /// Keys of a torn commit, to be removed with the next.
    litter: Vec<u64>,
    /// The next commit says that the daemon stopped in order.
    clean: bool,
    pub(crate) pass: Option<Pass>,
    pub(crate) gain: Gain,
}

/// Where a journal that was read from a store goes on.
#[derive(Debug, Default)]
pub(crate) struct Resume {
    pub(crate) next_seq: u64,
    pub(crate) next_key: u64,
    pub(crate) litter: Vec<u64>,
}

impl Journal {
    /// The journal of an empty store.
    #[must_use]
    pub fn new(limits: JournalLimits) -> Self {
        Self::resume(limits, Ledger::new(), Resume { next_seq: 1, next_key: 1, litter: Vec::new() })
    }

    /// The journal of a store that holds what the ledger says. It has something to write at once: that the daemon runs.
    pub(crate) fn resume(limits: JournalLimits, mut ledger: Ledger, at: Resume) -> Self {
        let mut pending = Pending::new(at.next_seq, ledger.begin(at.next_seq), 0, 0);
        pending.touched = true;
        let (next_key, litter) = (at.next_key, at.litter);
        let (pass, gain) = (None, Gain::default());
        Self { limits, ledger, pending, in_flight: None, next_key, litter, clean: false, pass, gain }
    }

    /// Takes down what a visit to the engine changed. To be called before the next visit begins.
    pub fn append(&mut self, engine: &Engine, changes: &[Change]) {
        for change in changes {
            match *change {
                Change::JobPut(id) => engine.job(id).into_iter().for_each(|job| self.put(job)),
                Change::JobMoved(id) => engine.job(id).into_iter().for_each(|job| self.moved(job)),
                Change::SchedulePut(id) => engine.schedule(id).into_iter().for_each(|schedule| self.put(schedule)),
                Change::ScheduleMoved(id) => engine.schedule(id).into_iter().for_each(|schedule| self.moved(schedule)),
                Change::BatchPut(id) => engine.batch(id).into_iter().for_each(|batch| self.put(batch)),
                Change::BatchMoved(id) => engine.batch(id).into_iter().for_each(|batch| self.moved(batch)),
                Change::JobGone(id) | Change::ScheduleGone(id) | Change::BatchGone(id) => self.gone(id),
                Change::QueueSet(id) | Change::QueueGone(id) => {
                    self.pending.queues.insert(id);
                }
                Change::Head => {}
            }
        }
        if !changes.is_empty() {
            self.pending.touched = true;
            self.clean = false;
        }
        if self.pending.is_cluttered() {
            self.tidy();
        }
    }

    /// Nothing was appended since the last cut.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        !self.pending.touched
    }

    /// The number of the commit that what is appended now will be part of.
    #[must_use]
    pub const fn pending_seq(&self) -> u64 {
        self.pending.seq
    }

    /// Bytes waiting for the next commit, queues and head not counted.
    #[must_use]
    pub const fn pending_bytes(&self) -> u64 {
        self.pending.bytes()
    }

    /// Whether [`Journal::cut`] has something to do: something was appended, or there is something to rewrite or remove.
    #[must_use]
    pub fn wants_cut(&self) -> bool {
        let housework = self.pass.is_some() || self.ledger.dead_bytes() > IDLE_REAP_BYTES || self.wants_pass();
        self.in_flight.is_none() && (self.pending.touched || (housework && !self.clean))
    }

    /// The next commit. `None` while one is on its way, and when there is nothing to write; some housework may have
    /// been done all the same (see [`Journal::wants_cut`]).
    pub fn cut(&mut self, engine: &Engine) -> Option<Commit> {
        if self.in_flight.is_some() {
            return None;
        }
        if !self.clean {
            self.compact(engine);
        }
        if !self.pending.touched && (self.clean || self.ledger.dead_bytes() <= IDLE_REAP_BYTES) {
            return None;
        }
        let seq = self.pending.seq;
        let removals = self.ledger.reap(seq, self.pending.bytes() + REAP_BYTES);
        let queues = self.write_queues(engine);
        let head_bytes = self.write_head(engine);
        let commit = self.close(removals, queues, head_bytes);
        self.in_flight = Some(seq);
        Some(commit)
    }

    /// A commit is on the disk.
    pub fn committed(&mut self, seq: u64) {
        debug_assert_eq!(self.in_flight, Some(seq), "another commit was on its way");
        self.in_flight = None;
    }

    /// The daemon is about to stop in order (call [`Engine::settle_head`] first): the next commit, which there is now,
    /// will say so unless something else happens after all. Housework waits for the next start.
    pub const fn stop_in_order(&mut self) {
        self.pending.touched = true;
        self.clean = true;
    }

    /// Its figures.
    #[must_use]
    pub fn stats(&self) -> JournalStats {
        JournalStats {
            commits: self.ledger.commits,
            bytes: self.ledger.bytes,
            live_bytes: self.ledger.live_bytes,
            jobs: self.ledger.puts.len() as u64,
            pending_bytes: self.pending.bytes(),
            compactions: self.gain.passes,
            rewritten_bytes: self.gain.bytes,
        }
    }

    pub(crate) const fn limits(&self) -> &JournalLimits {
        &self.limits
    }

    // ---- one change --------------------------------------------------------------------------------------------------

    /// Writes a job or a schedule whole.
    pub(crate) fn put(&mut self, what: &impl Entity) {
        let (id, slot) = (what.id(), self.pending.slot);
        let before = self.ledger.puts.get(id);
        if let Some(home) = before.filter(|home| home.slot == slot) {
            return self.pending.rewrite(home.size, Kind::Put, |out| put_tail(what, out));
        }
        self.ledger.override_with(before, slot);
        self.drop_standing(id);
        let index = self.pending.add(Kind::Put, id, before.is_some(), |out| put_tail(what, out));
        self.ledger.puts.set(id, Home { slot, size: index });
    }

    /// Writes how a job stands, or when a schedule runs next; whole, if the store does not know it yet.
    pub(crate) fn moved(&mut self, what: &impl Entity) {
        let (id, slot) = (what.id(), self.pending.slot);
        if self.ledger.puts.get(id).is_none_or(|home| home.slot == slot) {
            return self.put(what);
        }
        let encode = |out: &mut Vec<u8>| {
            what.encode_standing(out);
            None
        };
        match self.ledger.standings.get(id) {
            Some(home) if home.slot == slot => self.pending.rewrite(home.size, Kind::Moved, encode),
            Some(_) | None => {
                self.ledger.forget_standing(id, slot);
                let index = self.pending.add(Kind::Moved, id, false, encode);
                self.ledger.standings.set(id, Home { slot, size: index });
            }
        }
    }

    fn gone(&mut self, id: JobId) {
        let slot = self.pending.slot;
        self.drop_standing(id);
        let Some(home) = self.ledger.puts.remove(id) else { return };
        if home.slot == slot {
            // Born and gone within one commit: nothing to tell, unless an older record of it is in the store.
            return self.pending.drop_put(home.size, |out| encode_gone(id, out));
        }
        self.ledger.override_with(Some(home), slot);
        self.pending.add(Kind::Gone, id, true, |out| {
            encode_gone(id, out);
            None
        });
    }

    /// A job's standing is told by another record now, or by none.
    fn drop_standing(&mut self, id: JobId) {
        match self.ledger.standings.get(id) {
            Some(home) if home.slot == self.pending.slot => {
                self.ledger.standings.remove(id);
                self.pending.void(home.size);
            }
            Some(_) => self.ledger.forget_standing(id, self.pending.slot),
            None => {}
        }
    }

    /// Moves together what the pending commit holds, and corrects where it is.
    fn tidy(&mut self) {
        self.pending.tidy();
        let slot = self.pending.slot;
        for (kind, job, size) in self.pending.standing() {
            match kind {
                Kind::Put => self.ledger.puts.set(job, Home { slot, size }),
                Kind::Moved => self.ledger.standings.set(job, Home { slot, size }),
                Kind::Gone | Kind::Void => None,
            };
        }
    }

    // ---- the cut -----------------------------------------------------------------------------------------------------

    /// Writes the queues that changed. Returns which of them are there, and the size of what was written of them.
    fn write_queues(&mut self, engine: &Engine) -> Vec<(QueueId, u32)> {
        let mut there = Vec::new();
        for id in std::mem::take(&mut self.pending.queues) {
            let queue = engine.queue(id).filter(|queue| is_worth_remembering(queue));
            match queue {
                Some(queue) => {
                    there.push((id, self.pending.append(|out| encode_queue(queue.image(), out))));
                }
                None if self.ledger.queue_gone(id, self.pending.slot) => {
                    self.pending.append(|out| encode_queue_gone(id, out));
                }
                None => {}
            }
        }
        there
    }

    fn write_head(&mut self, engine: &Engine) -> u32 {
        let record = HeadRecord {
            head: engine.head().clone(),
            clean: self.clean,
            commits: self.ledger.commits + 1,
            census: self.ledger.census.wrapping_add(census_share(self.pending.seq)),
        };
        self.pending.append(|out| encode_head(&record, out))
    }

    /// Ends the pending commit and begins the next.
    fn close(&mut self, removals: Vec<u64>, queues: Vec<(QueueId, u32)>, head_bytes: u32) -> Commit {
        let (seq, slot) = (self.pending.seq, self.pending.slot);
        let (arena_bytes, records) = self.pending.room();
        let mut roll = RollWriter::default();
        for (kind, job, index) in self.pending.standing() {
            let home = Home { slot, size: self.pending.size(index) };
            match kind {
                Kind::Put => self.ledger.puts.set(job, home),
                Kind::Moved => self.ledger.standings.set(job, home),
                Kind::Gone | Kind::Void => continue,
            };
            self.ledger.count(home);
            roll.push(job);
        }
        for (id, size) in &queues {
            self.ledger.queue_set(*id, Home { slot, size: *size });
        }
        self.ledger.head(Home { slot, size: head_bytes });
        let (parts, first_key) = (parts_of(self.pending.bytes()), self.next_key);
        let bytes = self.pending.bytes() + u64::from(parts) * HEADER_BYTES as u64;
        let queues = queues.into_iter().map(|(id, _)| id).collect();
        self.ledger.complete(slot, Shape { first_key, parts, bytes, jobs: roll.finish(), queues });
        self.next_key += u64::from(parts);
        let litter = std::mem::take(&mut self.litter);
        let next = Pending::new(seq + 1, self.ledger.begin(seq + 1), arena_bytes, records);
        let Gathered { arena, pieces } = std::mem::replace(&mut self.pending, next).finish();
        Commit { seq, first_key, parts, arena, pieces, litter, removals }
    }
}

/// What has a number, is written whole, and has a part that changes more often than the rest.
pub(crate) trait Entity {
    fn id(&self) -> JobId;
    fn encode_whole(&self, inline_max: usize, out: &mut Vec<u8>) -> Tail;
    fn encode_standing(&self, out: &mut Vec<u8>);
}

impl Entity for Job {
    fn id(&self) -> JobId {
        self.id
    }

    fn encode_whole(&self, inline_max: usize, out: &mut Vec<u8>) -> Tail {
        encode_put(self, inline_max, out)
    }

    fn encode_standing(&self, out: &mut Vec<u8>) {
        encode_moved(self, out);
    }
}

impl Entity for Schedule {
    fn id(&self) -> JobId {
        self.id
    }

    fn encode_whole(&self, inline_max: usize, out: &mut Vec<u8>) -> Tail {
        encode_schedule(self, inline_max, out)
    }

    fn encode_standing(&self, out: &mut Vec<u8>) {
        encode_next_run(self, out);
    }
}

impl Entity for Batch {
    fn id(&self) -> JobId {
        self.id
    }

    fn encode_whole(&self, _: usize, out: &mut Vec<u8>) -> Tail {
        encode_batch(self, out);
        Tail::default()
    }

    fn encode_standing(&self, out: &mut Vec<u8>) {
        encode_batch_moved(self, out);
    }
}

/// Encodes a job or a schedule whole, but for a large tail.
fn put_tail(what: &impl Entity, out: &mut Vec<u8>) -> Option<Box<Tail>> {
    let tail = what.encode_whole(INLINE_BYTES_MAX, out);
    (tail.len() > 0).then(|| Box::new(tail))
}

/// A queue somebody merely waits for is nothing to remember.
pub(crate) fn is_worth_remembering(queue: &Queue) -> bool {
    queue.image().known || PlaceKind::ALL.iter().any(|place| queue.jobs(*place) > 0)
}
