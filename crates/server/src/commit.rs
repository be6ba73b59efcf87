//! The thread that commits: cuts what is pending, writes it, and says so. While it writes, the next commit gathers.
//!
//! When the store fails, nothing more is acknowledged; the same commit is tried again until the store takes it. Nothing
//! that was acknowledged is forgotten meanwhile, because nothing is ever taken out of the engine for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use windlass_store::{Commit, Guard, Log, LogTail};

use crate::clock;
use crate::hub::Hub;

/// How the committer goes about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Gather for this long before each commit; `None` = commit as soon as there is anything.
    pub(crate) interval: Option<Duration>,
    /// How long after a failure the store is tried again.
    pub(crate) retry: Duration,
    /// A commit that takes longer counts as a store that does not answer.
    pub(crate) timeout: Duration,
    /// A store that does not answer for this long ends the daemon: a supervisor's restart beats a silent hang.
    pub(crate) abort: Duration,
}

/// The handle on the committing thread.
#[derive(Debug)]
pub(crate) struct Committer {
    thread: JoinHandle<bool>,
    shared: Arc<Shared>,
    hub: Arc<Hub>,
    room: Room,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// When the write in progress began, in milliseconds since the epoch; 0 = none is.
    writing_since: AtomicU64,
}

/// How long the committing thread may run before others do, on a busy machine: it sleeps again long before.
const SLICE: Duration = Duration::from_micros(100);

/// So much of the log is kept for jobs to end in, when the disk has no more: some, …
const RESERVE_BYTES: u64 = 8 << 20;
/// … and this for each job, which is taken and ended in a commit each: some 100 to 130 bytes a commit.
const RESERVE_PER_JOB: u64 = 384;
/// New jobs are refused when so much is left besides, and the table needs some too. What was taken and is not on the disk yet
/// has been taken off what is left.
const SLACK_BYTES: u64 = 16 << 20;
/// How often it is looked how much is left: after so many commits, and after so many bytes.
const LOOK_COMMITS: u32 = 64;
const LOOK_BYTES: u64 = 256 << 10;

struct Work {
    hub: Arc<Hub>,
    log: Box<dyn Log>,
    room: Room,
    /// Commits and bytes since it was looked how much room is left.
    unseen: (u32, u64),
    pace: Pace,
    shared: Arc<Shared>,
    // Last: other processes are kept out until everything else is closed.
    _guard: Option<Guard>,
}

/// What is left for the log, and what follows from that.
#[derive(Clone)]
struct Room {
    hub: Arc<Hub>,
    tail: Arc<dyn LogTail>,
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Room")
    }
}

impl Room {
    /// Refuses new jobs before the room is gone in which those that are there can end, and takes that room from the disk
    /// then. Takes them again once there is more.
    fn look(&self) {
        let (jobs, on_its_way) =
            self.hub.with_journal(|engine, journal| (engine.job_count() as u64, journal.in_flight_bytes()));
        let needed = RESERVE_BYTES + jobs.saturating_mul(RESERVE_PER_JOB);
        let free = self.tail.free_bytes();
        let left = self.tail.room_bytes().saturating_add(free);
        let spare = left.saturating_sub(needed.saturating_add(SLACK_BYTES));
        // A large job gets a file of its own. Whether what was on its way has arrived when it was looked is not known.
        let room = spare.min(free).saturating_sub(on_its_way);
        self.hub.with_journal(|_, journal| self.hub.set_room(room.saturating_sub(journal.uncommitted_bytes())));
        if self.hub.full() {
            if spare >= SLACK_BYTES && self.tail.reserve(0).and_then(|()| self.tail.make_room()).is_ok() {
                self.hub.set_full(false);
                tracing::warn!("the disk has room again: new jobs are taken");
            } else {
                // What has become free is not for others. Without it things go on as they were.
                let _ = self.tail.reserve(needed);
            }
        } else if spare == 0 {
            let reserved = self.tail.reserve(needed).err().map(tracing::field::display);
            self.hub.set_full(true);
            tracing::error!(
                left,
                jobs,
                reserved,
                "the disk is full: no new jobs are taken, those that are there go on"
            );
        }
    }
}

impl Committer {
    pub(crate) fn start(hub: Arc<Hub>, log: Box<dyn Log>, guard: Option<Guard>, pace: Pace) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let room = Room { hub: Arc::clone(&hub), tail: log.tail() };
        let (for_thread, unseen) = (Arc::clone(&shared), (LOOK_COMMITS, 0));
        let work =
            Work { hub: Arc::clone(&hub), log, room: room.clone(), unseen, pace, shared: for_thread, _guard: guard };
        let thread = thread::Builder::new().name("commit".into()).spawn(move || work.run())?;
        hub.set_committer(thread.thread().clone());
        Ok(Self { thread, shared, hub, room })
    }

    /// Watches over the thread: to be called every second or so. Says what to die of, if it has come to that.
    pub(crate) fn watch(&self, pace: Pace) -> Option<&'static str> {
        if self.thread.is_finished() && !self.shared.stop.load(Ordering::Acquire) {
            return Some("the committing thread has died");
        }
        // While new jobs are refused there may be no commits after which to look.
        if self.hub.full() {
            self.room.look();
        }
        let since = self.shared.writing_since.load(Ordering::Acquire);
        if since == 0 {
            return None;
        }
        let writing = Duration::from_millis(clock::now().0.saturating_sub(since));
        if writing > pace.abort {
            return Some("a commit has not come back from the store for longer than store.commit_abort");
        }
        if writing > pace.timeout && !self.hub.failed() {
            tracing::error!(
                seconds = writing.as_secs(),
                "a commit has not come back from the store: nothing is acknowledged until it does"
            );
            self.hub.set_failed(true);
        }
        None
    }

    /// Commits what is left, numbers settled, and ends. Says whether everything is on the disk.
    pub(crate) fn finish(self) -> bool {
        self.shared.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or(false)
    }
}

impl Work {
    fn run(mut self) -> bool {
        // Without it a commit on a busy machine waits for a processor ten times as long as for the disk.
        if let Err(error) = windlass_sched::shorten_slices(SLICE) {
            tracing::debug!(%error, "the committing thread has slices of the usual length");
        }
        while !self.stopping() {
            if !self.commit_once() {
                self.rest();
            }
            // What was promised for this interval may be more than one commit.
            while self.hub.with_journal(|_, journal| journal.is_behind()) && self.commit_once() {}
            if let Some(interval) = self.pace.interval {
                self.sleep(interval);
            }
        }
        self.hub.with_journal(|engine, journal| {
            engine.settle_head();
            journal.stop_in_order();
        });
        while let Some(commit) = self.hub.cut() {
            if !self.write(&commit) {
                return false;
            }
        }
        let closed = self.log.close();
        if let Err(error) = &closed {
            tracing::error!(%error, "the log could not be closed");
        }
        closed.is_ok()
    }

    /// Commits what is pending. Says whether there was anything.
    fn commit_once(&mut self) -> bool {
        match self.hub.cut() {
            Some(commit) => self.write(&commit),
            None => false,
        }
    }

    /// Nothing to do: waits until there is. Whoever makes the journal non-empty after this thread has called itself
    /// idle unparks it, so nothing is missed between looking and parking.
    fn rest(&mut self) {
        if self.pace.interval.is_some() {
            return;
        }
        self.hub.committer_is_idle();
        if !self.commit_once() && !self.stopping() {
            thread::park();
        }
    }

    /// Writes a commit, however often it takes. Says no only if the daemon is to stop and the store does not answer.
    fn write(&mut self, commit: &Commit) -> bool {
        let mut tries = 0_u64;
        loop {
            self.shared.writing_since.store(clock::now().0, Ordering::Release);
            let outcome = if tries == 0 {
                self.log.append(commit)
            } else {
                self.log.reopen().and_then(|()| self.log.append(commit))
            };
            self.shared.writing_since.store(0, Ordering::Release);
            match outcome {
                Ok(()) => break,
                Err(error) => {
                    if tries == 0 {
                        tracing::error!(%error, "the store failed: nothing is acknowledged until it answers");
                        self.hub.set_failed(true);
                    }
                    tries += 1;
                }
            }
            if self.stopping() && tries > 3 {
                tracing::error!("stopping with a commit the store did not take");
                return false;
            }
            self.sleep(self.pace.retry);
        }
        self.hub.committed(commit.seq());
        self.unseen = (self.unseen.0 + 1, self.unseen.1 + commit.bytes());
        if self.unseen.0 >= LOOK_COMMITS || self.unseen.1 >= LOOK_BYTES {
            self.unseen = (0, 0);
            self.room.look();
        }
        if self.hub.failed() {
            tracing::warn!(tries, "the store answers again");
            self.hub.set_failed(false);
        }
        true
    }

    fn stopping(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    /// Sleeps, but not past a stop.
    fn sleep(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.stopping() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::park_timeout(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use bytes::Bytes;
    use windlass_engine::{ClientId, Command, Engine, Limits, NewJob, Origin, Tag};
    use windlass_session::Outbox;
    use windlass_store::{Entry, Error, Journal, MemoryLog, Place};

    use super::*;
    use crate::hub::Promise;

    /// A log on a disk of so many bytes.
    struct SmallDisk {
        log: MemoryLog,
        bytes: u64,
    }

    impl LogTail for SmallDisk {
        fn newest(&self) -> u64 {
            self.log.tail().newest()
        }
        fn bytes_behind(&self, seq: u64) -> u64 {
            self.log.tail().bytes_behind(seq)
        }
        fn behind_bytes(&self, bytes: u64) -> u64 {
            self.log.tail().behind_bytes(bytes)
        }
        fn read(&self, after: u64, each: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>) -> Result<(), Error> {
            self.log.tail().read(after, each)
        }
        fn fetch(&self, place: Place, len: usize, into: &mut Vec<u8>) -> Result<(), Error> {
            self.log.tail().fetch(place, len, into)
        }
        fn forget(&self, upto: u64) -> Result<(), Error> {
            self.log.tail().forget(upto)
        }
        fn disk_bytes(&self) -> u64 {
            self.log.tail().disk_bytes()
        }
        fn room_bytes(&self) -> u64 {
            0
        }
        fn free_bytes(&self) -> u64 {
            self.bytes.saturating_sub(self.disk_bytes())
        }
        fn make_room(&self) -> Result<(), Error> {
            Ok(())
        }
    }

    #[test]
    fn what_is_on_its_way_is_no_room_for_new_jobs() {
        const BODY_BYTES: u64 = 4 << 20;
        // Where nobody waits for the disk, large jobs do not wait for one another either.
        let hub = Arc::new(Hub::new(Engine::new(Limits::default(), 7), Journal::new(), Promise::Soon, 7));
        let mut log = MemoryLog::new();
        let bytes = RESERVE_BYTES + SLACK_BYTES + 11 * BODY_BYTES / 4;
        let room = Room { hub: Arc::clone(&hub), tail: Arc::new(SmallDisk { log: log.clone(), bytes }) };
        let mut outbox = Outbox::default();
        outbox.command(Tag::NONE, Command::Open(Default::default()));
        let jobs = || hub.with_journal(|engine, _| engine.job_count());
        let mut push = |bytes: u64| {
            let before = jobs();
            let body = Bytes::from(vec![7; usize::try_from(bytes).unwrap()]);
            let job = NewJob::new(Origin::GEARMAN, Bytes::from_static(b"large"), body);
            outbox.command(Tag(1), Command::Push(Box::new(job)));
            hub.visit(ClientId(1), &clock::read(), &mut outbox.drain().collect());
            jobs() > before
        };
        // However often it is looked, what was taken stays taken: in the pending commit, and on its way to the disk.
        let mut look_and_push = || {
            room.look();
            push(BODY_BYTES)
        };
        let taken: Vec<bool> = (0..4).map(|_| look_and_push()).collect();
        assert_eq!(taken, [true, true, false, false]);
        while let Some(commit) = hub.cut() {
            assert!(!look_and_push(), "nor is what is on its way to the disk");
            log.append(&commit).unwrap();
            hub.committed(commit.seq());
        }
        assert!(!hub.full(), "nothing is told to be full that is not");
    }

    #[test]
    fn all_that_was_gathered_in_an_interval_is_committed_after_it() {
        const BODY_BYTES: usize = 3 << 20;
        let hub = Arc::new(Hub::new(Engine::new(Limits::default(), 7), Journal::new(), Promise::Soon, 7));
        let mut outbox = Outbox::default();
        outbox.command(Tag::NONE, Command::Open(Default::default()));
        for _ in 0..8 {
            let body = Bytes::from(vec![7; BODY_BYTES]);
            let job = NewJob::new(Origin::GEARMAN, Bytes::from_static(b"large"), body);
            outbox.command(Tag(1), Command::Push(Box::new(job)));
            assert!(hub.visit(ClientId(1), &clock::read(), &mut outbox.drain().collect()));
        }
        let (log, hour) = (MemoryLog::new(), Duration::from_secs(3600));
        let pace = Pace { interval: Some(hour), retry: hour, timeout: hour, abort: hour };
        let committer = Committer::start(Arc::clone(&hub), Box::new(log.clone()), None, pace).unwrap();
        let last = hub.with_journal(|_, journal| journal.pending_seq());
        // One commit more: the daemon begins it while the first ones are written.
        while log.seqs().last().is_none_or(|seq| seq + 1 < last) {
            thread::yield_now();
        }
        assert!(log.commits() > 3, "more than one commit: {}", log.commits());
        assert!(committer.finish());
    }
}
