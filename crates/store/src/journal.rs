//! The journal's bookkeeping beside the engine, under the same lock. No I/O: it gathers what the engine changed into
//! commits, and a driver writes those to a [`crate::Log`].
//!
//! ```text
//! visit:     engine.apply(…); journal.append(&engine, &turn.changes)        under the lock
//! commit:    lock { journal.cut(&engine) } → log.append(&commit) → lock { journal.committed(seq) }
//! ```
//!
//! Changes name what changed; jobs are read from the engine and encoded at once, queues and the head when the commit is
//! cut. One commit is on its way at a time, and the same commit is written again until it is on the disk.

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use windlass_engine::{Batch, Change, Engine, Job, JobId, PlaceKind, Queue, QueueId, Schedule};

use crate::commit::Commit;
use crate::pending::{INLINE_BYTES_MAX, Pending};
use crate::record::{
    HeadRecord, Tail, encode_batch, encode_batch_moved, encode_head, encode_moved, encode_next_run, encode_put,
    encode_queue, encode_queue_gone, encode_schedule,
};

/// A commit that has grown to so many bytes takes no more changes: the next begins.
const COMMIT_BYTES_MAX: u64 = 4 << 20;

/// What is to be written next.
#[derive(Debug)]
pub struct Journal {
    pending: Pending,
    /// Commits that are complete and wait for the one that is on its way.
    full: VecDeque<Commit>,
    /// The commit that is on its way, and its bytes.
    in_flight: Option<(u64, u64)>,
    /// Queues the log or an earlier commit knows.
    queues: HashSet<QueueId, FixedState>,
    /// The next commit says that the daemon stopped in order.
    clean: bool,
}

impl Journal {
    /// The journal of an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::resume(1, 1, std::iter::empty())
    }

    /// The journal that goes on behind commit `next_seq - 1`, after which these queues are known and the next job is
    /// `next_job`. It has something to write at once: that the daemon runs.
    pub(crate) fn resume(next_seq: u64, next_job: u64, queues: impl Iterator<Item = QueueId>) -> Self {
        let mut pending = Pending::new(next_seq, JobId(next_job));
        pending.touched = true;
        let mut known = HashSet::with_hasher(FixedState::default());
        known.extend(queues);
        Self { pending, full: VecDeque::new(), in_flight: None, queues: known, clean: false }
    }

    /// Takes down what a visit to the engine changed. To be called before the next visit begins.
    pub fn append(&mut self, engine: &Engine, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        for change in changes {
            match *change {
                Change::JobPut(id) => engine.job(id).into_iter().for_each(|job| self.put(job)),
                Change::JobMoved(id) => engine.job(id).into_iter().for_each(|job| self.moved(job)),
                Change::SchedulePut(id) => engine.schedule(id).into_iter().for_each(|schedule| self.put(schedule)),
                Change::ScheduleMoved(id) => engine.schedule(id).into_iter().for_each(|schedule| self.moved(schedule)),
                Change::BatchPut(id) => engine.batch(id).into_iter().for_each(|batch| self.put(batch)),
                Change::BatchMoved(id) => engine.batch(id).into_iter().for_each(|batch| self.moved(batch)),
                Change::JobGone(id) | Change::ScheduleGone(id) | Change::BatchGone(id) => self.pending.gone(id),
                Change::QueueSet(id) | Change::QueueGone(id) => {
                    self.pending.queues.insert(id);
                }
                Change::Head => {}
            }
        }
        self.pending.touched = true;
        self.clean = false;
        self.pending.tidy_if_cluttered();
        // Not before the next visit's changes: queues and the head are read from the engine, which would be ahead of the
        // jobs in this commit then, and a queue that is gone could be missing from it.
        if self.pending.bytes() > COMMIT_BYTES_MAX {
            let commit = self.close(engine);
            self.full.push_back(commit);
            // Whoever waits for what was appended waits for the pending commit.
            self.pending.touched = true;
        }
    }

    /// Ends the pending commit if there is anything in it, so that what is appended next is in another: what is small does not
    /// have to wait for what is large. Nothing may have changed since the last [`Journal::append`].
    pub fn begin_anew(&mut self, engine: &Engine) {
        if self.pending.touched {
            let commit = self.close(engine);
            self.full.push_back(commit);
        }
    }

    /// Appends everything an engine holds, as if it were new: for a store that begins with what another one held. Hands
    /// over each commit that is complete.
    ///
    /// # Errors
    ///
    /// What `write` returns, at once.
    pub(crate) fn append_all<E>(
        &mut self,
        engine: &Engine,
        mut write: impl FnMut(&Commit) -> Result<(), E>,
    ) -> Result<(), E> {
        self.pending.queues.extend(engine.queues().map(|queue| queue.image().id));
        engine.batches().for_each(|batch| self.put(batch));
        engine.schedules().for_each(|schedule| self.put(schedule));
        for job in engine.jobs().filter(|job| job.durable) {
            self.put(job);
            if self.pending.bytes() > COMMIT_BYTES_MAX {
                write(&self.close(engine))?;
            }
        }
        write(&self.close(engine))
    }

    /// Whether these changes are about a job that a commit before the pending one knows. Others come to nothing with the pending one.
    #[must_use]
    pub fn knows_any(&self, changes: &[Change]) -> bool {
        changes.iter().any(|change| match *change {
            Change::JobPut(id) | Change::JobMoved(id) | Change::JobGone(id) => !self.pending.is_born(id),
            Change::SchedulePut(_)
            | Change::ScheduleMoved(_)
            | Change::ScheduleGone(_)
            | Change::BatchPut(_)
            | Change::BatchMoved(_)
            | Change::BatchGone(_)
            | Change::QueueSet(_)
            | Change::QueueGone(_)
            | Change::Head => false,
        })
    }

    /// Nothing was appended since the last commit that is complete.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        !self.pending.touched
    }

    /// The number of the commit that what is appended now will be part of.
    #[must_use]
    pub const fn pending_seq(&self) -> u64 {
        self.pending.seq
    }

    /// Bytes waiting to be cut, queues and head not counted.
    #[must_use]
    pub const fn pending_bytes(&self) -> u64 {
        self.pending.bytes()
    }

    /// Bytes of the commit that is on its way.
    #[must_use]
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight.map_or(0, |(_, bytes)| bytes)
    }

    /// Bytes that are not on the disk yet, as far as is known: all that was appended and not committed.
    #[must_use]
    pub fn uncommitted_bytes(&self) -> u64 {
        self.pending.bytes() + self.full.iter().map(Commit::bytes).sum::<u64>() + self.in_flight_bytes()
    }

    /// Whether so much was appended that a commit is complete and waits to be cut.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        !self.full.is_empty()
    }

    /// The next commit. `None` while one is on its way, and when there is nothing to write.
    pub fn cut(&mut self, engine: &Engine) -> Option<Commit> {
        if self.in_flight.is_some() {
            return None;
        }
        let commit = match self.full.pop_front() {
            Some(commit) => commit,
            None if self.pending.touched => self.close(engine),
            None => return None,
        };
        self.in_flight = Some((commit.seq, commit.bytes()));
        Some(commit)
    }

    /// A commit is on the disk.
    pub fn committed(&mut self, seq: u64) {
        debug_assert_eq!(self.in_flight.map(|(seq, _)| seq), Some(seq), "another commit was on its way");
        self.in_flight = None;
    }

    /// The daemon is about to stop in order (call [`Engine::settle_head`] first): the next commit, which there is now,
    /// will say so unless something else happens after all.
    pub const fn stop_in_order(&mut self) {
        self.pending.touched = true;
        self.clean = true;
    }

    /// Writes a job, a schedule or a batch whole.
    fn put(&mut self, what: &impl Entity) {
        self.pending.put(what.id(), |out| put_tail(what, out));
    }

    /// Writes the part of it that changes; all of it, if it is new in the pending commit.
    fn moved(&mut self, what: &impl Entity) {
        let id = what.id();
        if self.pending.is_new(id) {
            return self.put(what);
        }
        self.pending.moved(id, |out| what.encode_standing(out));
    }

    // ---- the cut -----------------------------------------------------------------------------------------------------

    /// Ends the pending commit and begins the next.
    fn close(&mut self, engine: &Engine) -> Commit {
        for id in std::mem::take(&mut self.pending.queues) {
            match engine.queue(id).filter(|queue| is_worth_remembering(queue)) {
                Some(queue) => {
                    self.queues.insert(id);
                    self.pending.append(|out| encode_queue(queue.image(), out));
                }
                None if self.queues.remove(&id) => self.pending.append(|out| encode_queue_gone(id, out)),
                None => {}
            }
        }
        let head = HeadRecord { head: engine.head().clone(), clean: self.clean, counted: None };
        self.pending.append(|out| encode_head(&head, out));
        self.pending.close(JobId(engine.head().next_job))
    }
}

impl Default for Journal {
    fn default() -> Self {
        Self::new()
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

/// Encodes something whole, but for a large tail.
fn put_tail(what: &impl Entity, out: &mut Vec<u8>) -> Option<Box<Tail>> {
    let tail = what.encode_whole(INLINE_BYTES_MAX, out);
    (tail.len() > 0).then(|| Box::new(tail))
}

/// A queue somebody merely waits for is nothing to remember.
pub(crate) fn is_worth_remembering(queue: &Queue) -> bool {
    queue.image().known || PlaceKind::ALL.iter().any(|place| queue.jobs(*place) > 0)
}
