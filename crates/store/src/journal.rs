//! The journal gathers the engine's changes into commits, under the engine's lock. No I/O: a driver writes
//! the commits to a [`crate::Log`].
//!
//! ```text
//! visit:     engine.apply(…); journal.append(&engine, &context.changes)        under the lock
//! commit:    lock { journal.cut(&engine) } → log.append(&commit) → lock { journal.committed(seq) }
//! ```
//!
//! A change names a subject. Jobs are read from the engine and encoded immediately, queues and the engine
//! meta when the commit is cut. There is a single commit in flight, and it is written again unchanged until
//! it is on the disk.

use std::collections::VecDeque;
use std::io;

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use windlass_engine::{
    Batch, Change, Engine, Job, JobId, JobStateKind, Queue, QueueId, QueueImage, Schedule,
};

use crate::body_file::BodyReader;
use crate::commit::Commit;
use crate::pending::{INLINE_BYTES_MAX, Pending};
use crate::record::{
    MetaRecord, Tail, encode_batch, encode_batch_moved, encode_day, encode_ended, encode_meta,
    encode_moved, encode_namespace, encode_namespace_gone, encode_next_run, encode_put,
    encode_queue, encode_queue_gone, encode_schedule,
};
use crate::store::{Error, Log};

/// A commit of this size is closed, and the next change starts a new one.
const COMMIT_BYTES_MAX: u64 = 4 << 20;

/// The pending writes.
#[derive(Debug)]
pub struct Journal {
    pending: Pending,
    /// Complete commits that wait for the one in flight, and the sum of bytes.
    full: VecDeque<Commit>,
    full_bytes: u64,
    /// Number and bytes of the commit in flight.
    in_flight: Option<(u64, u64)>,
    /// Queues in the log or in a previous commit.
    queues: HashSet<QueueId, FixedState>,
    /// Queues of jobs that are written in full in the pending commit.
    used: HashSet<QueueId, FixedState>,
    /// The next commit records a clean shutdown.
    clean: bool,
}

impl Journal {
    /// The journal of an empty store.
    pub fn new() -> Self {
        Self::resume(1, 1, std::iter::empty())
    }

    /// A journal that continues after commit `next_seq - 1`, when these queues existed and the next job was
    /// `next_job`. It has a commit to write immediately, which records that the daemon is running.
    pub(crate) fn resume(
        next_seq: u64,
        next_job: u64,
        queues: impl Iterator<Item = QueueId>,
    ) -> Self {
        let mut pending = Pending::new(next_seq, JobId(next_job));
        pending.touched = true;
        let mut known = HashSet::with_hasher(FixedState::default());
        known.extend(queues);
        let used = HashSet::with_hasher(FixedState::default());
        Self {
            pending,
            full: VecDeque::new(),
            full_bytes: 0,
            in_flight: None,
            queues: known,
            used,
            clean: false,
        }
    }

    /// Records the changes of a visit to the engine. Call it before the next visit starts.
    pub fn append(&mut self, engine: &Engine, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        for change in changes {
            match change {
                Change::JobPut(id) => engine
                    .job(*id)
                    .into_iter()
                    .for_each(|job| self.put_job(job)),
                Change::JobKept(id) => {
                    self.pending.keep(*id);
                    engine
                        .job(*id)
                        .into_iter()
                        .for_each(|job| self.put_job(job));
                }
                Change::JobMoved(id) => engine.job(*id).into_iter().for_each(|job| self.moved(job)),
                Change::SchedulePut(id) => engine
                    .schedule(*id)
                    .into_iter()
                    .for_each(|schedule| self.put(schedule)),
                Change::ScheduleMoved(id) => engine
                    .schedule(*id)
                    .into_iter()
                    .for_each(|schedule| self.moved(schedule)),
                Change::BatchPut(id) => engine
                    .batch(*id)
                    .into_iter()
                    .for_each(|batch| self.put(batch)),
                Change::BatchMoved(id) => engine
                    .batch(*id)
                    .into_iter()
                    .for_each(|batch| self.moved(batch)),
                Change::JobGone(id) | Change::ScheduleGone(id) | Change::BatchGone(id) => {
                    self.pending.gone(*id)
                }
                Change::QueueSet(id) | Change::QueueGone(id) => {
                    self.pending.queues.insert(*id);
                }
                Change::NamespaceSet(id) => {
                    self.pending.namespaces.insert(*id);
                }
                Change::DayBegan(number) => {
                    let begun = engine.days().find(|begin| begin.number == *number);
                    begun
                        .into_iter()
                        .for_each(|begin| self.pending.append(|out| encode_day(begin, out)));
                }
                Change::Ended(row) => self.pending.append(|out| encode_ended(row, out)),
                Change::Meta => {}
            }
        }
        self.pending.touched = true;
        self.clean = false;
        self.pending.tidy_if_cluttered();
        // Close the commit before the next visit's changes. Queues and the engine meta are read from the
        // engine, which would then be ahead of the jobs in this commit, and a deleted queue could be missing.
        if self.pending.bytes() > COMMIT_BYTES_MAX {
            self.complete(engine);
            // A client that depends on these changes waits for the pending commit.
            self.pending.touched = true;
        }
    }

    /// Closes the pending commit unless it is empty, so that small changes that follow need not wait for a
    /// large commit. Nothing may have changed since the last [`Journal::append`].
    pub fn begin_anew(&mut self, engine: &Engine) {
        if self.pending.touched {
            self.complete(engine);
        }
    }

    /// Closes the pending commit, which is written after the one in flight.
    fn complete(&mut self, engine: &Engine) {
        let commit = self.close(engine);
        self.full_bytes += commit.bytes();
        self.full.push_back(commit);
    }

    /// Appends the complete contents of an engine as new, for a store that starts with the contents of
    /// another. Passes each complete commit to `write`. Packed jobs are packed again after the page was
    /// appended.
    ///
    /// # Errors
    ///
    /// An error of `write`, immediately.
    pub fn append_all<E>(
        &mut self,
        engine: &mut Engine,
        mut write: impl FnMut(Commit) -> Result<(), E>,
    ) -> Result<(), E> {
        self.pending
            .namespaces
            .extend(engine.namespaces().map(|namespace| namespace.id));
        self.pending
            .queues
            .extend(engine.queues().map(|queue| queue.image().id));
        engine
            .days()
            .for_each(|begin| self.pending.append(|out| encode_day(begin, out)));
        engine.batches().for_each(|batch| self.put(batch));
        engine.schedules().for_each(|schedule| self.put(schedule));
        for page in engine.job_pages() {
            for job in engine.jobs_in(page).filter(|job| job.durable) {
                self.put_job(job);
                if self.pending.bytes() > COMMIT_BYTES_MAX {
                    write(self.close(engine))?;
                }
            }
            engine.close_page(page);
        }
        write(self.close(engine))
    }

    /// The same, to a log, including the bodies that are not in memory.
    ///
    /// # Errors
    ///
    /// A body cannot be read, or the log cannot be written.
    pub fn store_all(
        &mut self,
        engine: &mut Engine,
        bodies: Option<&BodyReader>,
        log: &mut dyn Log,
    ) -> Result<(), Error> {
        let read = |stored| bodies.ok_or(io::ErrorKind::NotFound)?.read(stored);
        let failed = |why| Error::Io {
            doing: "reading",
            place: "the body of a job".to_owned(),
            why,
        };
        self.append_all(engine, |mut commit| {
            commit.load(read).map_err(failed)?;
            log.append(&commit)
        })
    }

    /// Returns true if these changes concern a job in a commit before the pending one. Otherwise they may
    /// cancel out within the pending commit.
    pub fn knows_any(&self, changes: &[Change]) -> bool {
        let is_known = |id| !self.pending.is_born(id);
        let mut all = changes.iter();
        all.any(
            |change| matches!(change, Change::JobPut(id) | Change::JobKept(id) | Change::JobMoved(id) | Change::JobGone(id) if is_known(*id)),
        )
    }

    /// Returns true if nothing was appended since the last complete commit.
    pub const fn is_empty(&self) -> bool {
        !self.pending.touched
    }

    /// The number of the commit for changes that are appended now.
    pub const fn pending_seq(&self) -> u64 {
        self.pending.seq
    }

    /// Bytes that wait to be cut, without queues and engine meta.
    pub const fn pending_bytes(&self) -> u64 {
        self.pending.bytes()
    }

    /// Bytes of the commit in flight.
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight.map_or(0, |(_, bytes)| bytes)
    }

    /// Bytes appended and not yet committed.
    pub fn uncommitted_bytes(&self) -> u64 {
        self.pending.bytes() + self.full_bytes + self.in_flight_bytes()
    }

    /// Returns true if a complete commit is ready to be cut.
    pub fn is_behind(&self) -> bool {
        !self.full.is_empty()
    }

    /// The next commit. `None` while one is in flight, or if there is nothing to write.
    pub fn cut(&mut self, engine: &Engine) -> Option<Commit> {
        if self.in_flight.is_some() {
            return None;
        }
        let commit = match self.full.pop_front() {
            Some(commit) => {
                self.full_bytes -= commit.bytes();
                commit
            }
            None if self.pending.touched => self.close(engine),
            None => return None,
        };
        self.in_flight = Some((commit.seq, commit.bytes()));
        Some(commit)
    }

    /// Records that a commit is on the disk.
    pub fn committed(&mut self, seq: u64) {
        debug_assert_eq!(
            self.in_flight.map(|(seq, _)| seq),
            Some(seq),
            "another commit is in flight"
        );
        self.in_flight = None;
    }

    /// Reuses the memory of a commit that is on the disk.
    pub fn reuse(&mut self, commit: Commit) {
        self.pending.reuse(commit.arena);
    }

    /// Prepares a clean shutdown (call [`Engine::finish_meta`] first): the next commit, which is now written
    /// even without changes, records the shutdown unless more is appended before.
    pub const fn stop_in_order(&mut self) {
        self.pending.touched = true;
        self.clean = true;
    }

    /// Writes a full job, which needs the queue. If the body cannot be read when the commit is written, only
    /// the changing part is written, provided that a previous commit has the job.
    fn put_job(&mut self, job: &Job) {
        self.used.insert(job.queue);
        self.put(job);
    }

    /// Writes a full job, schedule or batch.
    fn put(&mut self, what: &impl Entity) {
        let is_known = self.pending.is_known(what.id());
        self.pending.put(what.id(), |out| {
            let mut tail = what.encode_whole(INLINE_BYTES_MAX, out);
            let cold = tail
                .as_deref_mut()
                .filter(|tail| tail.stored.is_some() && is_known);
            cold.into_iter()
                .for_each(|tail| what.encode_standing(&mut tail.moved));
            tail
        });
    }

    /// Writes the changing part of an entity, or all of it if it is new in the pending commit.
    fn moved(&mut self, what: &impl Entity) {
        let id = what.id();
        if self.pending.is_new(id) {
            return self.put(what);
        }
        self.pending.moved(id, |out| what.encode_standing(out));
    }

    // ---- the cut ----------------------------------------------------------------------------------------------------

    /// Closes the pending commit and starts the next.
    fn close(&mut self, engine: &Engine) -> Commit {
        for id in std::mem::take(&mut self.pending.namespaces) {
            self.pending.append(|out| match engine.namespace(id) {
                Some(image) => encode_namespace(image, out),
                None => encode_namespace_gone(id, out),
            });
        }
        let mut settings = Vec::new();
        for id in std::mem::take(&mut self.pending.queues) {
            match engine.queue(id).filter(|queue| is_worth_remembering(queue)) {
                Some(queue) => {
                    self.queues.insert(id);
                    let record = queue_record(queue);
                    self.pending.append(|out| out.extend_from_slice(&record));
                    settings.push((id, Some(record.into())));
                }
                None if self.queues.remove(&id) => {
                    self.pending.append(|out| encode_queue_gone(id, out));
                    settings.push((id, None));
                }
                None => {}
            }
        }
        let meta = MetaRecord {
            meta: engine.meta().clone(),
            clean: self.clean,
        };
        self.pending.append(|out| encode_meta(&meta, out));
        let queues = self.used.drain().collect();
        Commit {
            queues,
            settings,
            ..self.pending.close(JobId(engine.meta().next_job))
        }
    }
}

impl Default for Journal {
    fn default() -> Self {
        Self::new()
    }
}

/// An entity with a number that is written in full, or only in the frequently changing part.
pub(crate) trait Entity {
    fn id(&self) -> JobId;
    fn encode_whole(&self, inline_max: usize, out: &mut Vec<u8>) -> Option<Box<Tail>>;
    fn encode_standing(&self, out: &mut Vec<u8>);
}

impl Entity for Job {
    fn id(&self) -> JobId {
        self.id
    }

    fn encode_whole(&self, inline_max: usize, out: &mut Vec<u8>) -> Option<Box<Tail>> {
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

    fn encode_whole(&self, _: usize, out: &mut Vec<u8>) -> Option<Box<Tail>> {
        encode_schedule(self, out);
        None
    }

    fn encode_standing(&self, out: &mut Vec<u8>) {
        encode_next_run(self, out);
    }
}

impl Entity for Batch {
    fn id(&self) -> JobId {
        self.id
    }

    fn encode_whole(&self, _: usize, out: &mut Vec<u8>) -> Option<Box<Tail>> {
        encode_batch(self, out);
        None
    }

    fn encode_standing(&self, out: &mut Vec<u8>) {
        encode_batch_moved(self, out);
    }
}

/// The record of a queue.
fn queue_record(queue: &Queue) -> Vec<u8> {
    let mut record = Vec::new();
    encode_queue(queue.image(), &mut record);
    record
}

/// The records of all queues that are stored.
pub(crate) fn queue_records(engine: &Engine) -> impl Iterator<Item = (QueueId, Vec<u8>)> {
    engine
        .queues()
        .filter(|queue| is_worth_remembering(queue))
        .map(|queue| (queue.image().id, queue_record(queue)))
}

/// Returns false for a queue that only waiting clients use, or that only has settings from the
/// configuration, because storing such queues is unnecessary.
pub(crate) fn is_worth_remembering(queue: &Queue) -> bool {
    let QueueImage {
        policy,
        paused_keys,
        saved,
        throttle,
        ..
    } = queue.image();
    let is_set = policy.is_some() || !paused_keys.is_empty() || saved.is_some();
    let is_throttled = throttle.is_some_and(|throttle| !throttle.configured);
    is_set
        || is_throttled
        || queue.image().is_known()
        || JobStateKind::ALL.iter().any(|place| queue.jobs(*place) > 0)
}

#[cfg(test)]
mod tests {
    use windlass_engine::Limits;

    use super::*;
    use crate::record::plain_job;

    /// A plain job with a body of this size.
    fn job(body: usize) -> Job {
        Job {
            payload: windlass_engine::Payload::copy(None, b"", &vec![7; body]),
            ..plain_job(5)
        }
    }

    #[test]
    fn a_body_is_copied_up_to_a_size_and_shared_beyond() {
        let table = [
            (0, None),
            (INLINE_BYTES_MAX, None),
            (INLINE_BYTES_MAX + 1, Some(INLINE_BYTES_MAX + 1)),
        ];
        for (bytes, shared) in table {
            let tail = job(bytes).encode_whole(INLINE_BYTES_MAX, &mut Vec::new());
            assert_eq!(
                tail.map(|tail| tail.len()),
                shared,
                "a body of {bytes} bytes"
            );
        }
    }

    #[test]
    fn the_buffer_of_a_written_commit_is_used_again() {
        let (engine, mut journal) = (Engine::new(Limits::default(), 1), Journal::new());
        let mut commit = || {
            journal.stop_in_order();
            let commit = journal.cut(&engine).unwrap();
            journal.committed(commit.seq());
            let buffer = commit.arena.as_ptr();
            journal.reuse(commit);
            buffer
        };
        let first = commit();
        commit();
        assert_eq!(commit(), first);
    }
}
