//! Commits: the pending changes are cut, written to the log, and acknowledged. Meanwhile the next commit gathers.
//!
//! Two kinds of threads commit, one at a time. A **serving thread** commits at the end of its turn (`turn`), as long as
//! the disk is quick and commits are small: no work is handed from thread to thread then, which costs more than a quick
//! disk takes. The **committing thread** (here) does the rest: `durability = "interval"`, large commits, a slow disk,
//! and the commits that the store did not take. `policy` decides between the two.
//!
//! When the store fails, the daemon acknowledges nothing more and tries the same commit again until the store takes it.
//! The engine keeps all that was acknowledged meanwhile.

mod gather;
mod policy;
mod room;
mod times;
mod turn;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use windlass_store::{Guard, Log};

use self::policy::Policy;
use self::room::Room;
pub(crate) use self::times::CommitTimes;
pub use self::times::{BOUNDS_US, CommitDurations};
pub(crate) use self::turn::TurnCommits;
use crate::clock;
use crate::hub::{Cut, Hub};
use crate::mailbox::Mailbox;
use crate::serving::Ringer;

/// Times of the committing thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Gather for this long before each commit; `None` = commit as soon as there is anything.
    pub(crate) interval: Option<Duration>,
    /// How long after a failure the committing thread tries the store again.
    pub(crate) retry: Duration,
}

/// How long a commit may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitTimeouts {
    /// If a commit takes longer, the store counts as failed.
    pub(crate) timeout: Duration,
    /// If the store does not respond for this long, the daemon ends: a supervisor's restart beats a silent hang.
    pub(crate) abort: Duration,
}

/// The handle on the committing thread.
#[derive(Debug)]
pub(crate) struct Committer {
    thread: JoinHandle<bool>,
    commits: Arc<Commits>,
    room: Room,
}

/// Where commits are written, by one thread at a time.
#[derive(Debug)]
pub(crate) struct Commits {
    hub: Arc<Hub>,
    writer: Mutex<Writer>,
    /// Has a lock of its own: a thread that finds the writer locked relies on its holder to pass the next commit on.
    policy: Mutex<Policy>,
    /// Threads whose turn ended while another thread wrote.
    queue: Mutex<Vec<Arc<Ringer>>>,
    times: Arc<CommitTimes>,
    pace: Pace,
    stop: AtomicBool,
    /// When the write in progress began, in milliseconds of the engine's clock; 0 = none.
    writing_since: AtomicU64,
}

/// State of the thread that writes.
struct Writer {
    log: Box<dyn Log>,
    room: Room,
    /// Commits and bytes since the last measurement of the room.
    unseen: (u32, u64),
    /// The commit that the store did not take.
    failed: Option<Cut>,
    // Last: keeps other processes out until everything else is closed.
    _guard: Option<Guard>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Writer")
    }
}

/// How long the committing thread may run before others do, on a busy machine: it sleeps again long before.
const SLICE: Duration = Duration::from_micros(100);

/// The committing thread measures the room after this many commits, and after this many bytes.
const LOOK_COMMITS: u32 = 64;
const LOOK_BYTES: u64 = 256 << 10;

impl Committer {
    pub(crate) fn start(hub: Arc<Hub>, log: Box<dyn Log>, guard: Option<Guard>, pace: Pace) -> std::io::Result<Self> {
        let room = Room::new(Arc::clone(&hub), log.tail());
        let commits = Arc::new(Commits::new(Arc::clone(&hub), log, room.clone(), guard, pace));
        let for_thread = Arc::clone(&commits);
        let thread = thread::Builder::new().name("commit".into()).spawn(move || for_thread.run())?;
        hub.set_committer(thread.thread().clone());
        Ok(Self { thread, commits, room })
    }

    /// Where serving threads commit at the end of a turn.
    pub(crate) const fn commits(&self) -> &Arc<Commits> {
        &self.commits
    }

    /// How long commits take.
    pub(crate) fn times(&self) -> Arc<CommitTimes> {
        Arc::clone(&self.commits.times)
    }

    /// Checks on commits. The main thread calls this every second or so. Returns the reason to die, if there is one.
    pub(crate) fn watch(&self, timeouts: CommitTimeouts) -> Option<&'static str> {
        let hub = &self.commits.hub;
        let has_died = self.thread.is_finished() || self.commits.writer.is_poisoned();
        if has_died && !self.commits.stopping() && hub.deposed().is_none() {
            return Some("a thread that commits has died");
        }
        // While new jobs are refused there may be no commits, after which the room is usually measured.
        if hub.full() {
            self.room.look();
        }
        let since = self.commits.writing_since.load(Ordering::Acquire);
        if since == 0 {
            return None;
        }
        let writing = Duration::from_millis(clock::now().0.saturating_sub(since));
        if writing > timeouts.abort {
            return Some("the store has not completed a commit for longer than store.commit_abort");
        }
        if writing > timeouts.timeout && !hub.failed() {
            tracing::error!(
                seconds = writing.as_secs(),
                "the store has not completed a commit: nothing is acknowledged until it does"
            );
            hub.set_failed(true);
        }
        None
    }

    /// Settles the engine's numbers, commits the rest, and ends. Returns whether everything is on the disk.
    pub(crate) fn finish(self) -> bool {
        self.commits.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or(false)
    }
}

/// The committing thread.
impl Commits {
    fn run(&self) -> bool {
        // Without it, on a busy machine, a commit waits ten times as long for a processor as for the disk.
        if let Err(error) = windlass_sched::shorten_slices(SLICE) {
            tracing::debug!(%error, "cannot shorten the time slices of the committing thread");
        }
        while !self.stopping() && self.hub.deposed().is_none() {
            if let Some(interval) = self.pace.interval {
                // The changes of this interval may need more than one commit.
                while self.commit() && self.hub.with_journal(|_, journal| journal.is_behind()) {}
                self.sleep(interval);
            } else {
                self.rest();
                self.commit();
                while !self.pass_on() && self.commit() {}
            }
        }
        self.hub.with_journal(|engine, journal| {
            engine.finish_meta();
            journal.stop_in_order();
        });
        // At least the commit that records the clean stop.
        while self.commit() {}
        if self.writer().failed.is_some() {
            return false;
        }
        let closed = self.writer().log.close();
        if let Err(error) = &closed {
            tracing::error!(%error, "the log could not be closed");
        }
        closed.is_ok()
    }

    /// Waits until there is something to do. A thread that makes the journal non-empty after the call of
    /// `committer_is_idle` unparks this one, so it misses nothing between the check and parking.
    fn rest(&self) {
        self.hub.committer_is_idle();
        if !self.hub.is_urgent() && !self.stopping() {
            thread::park();
        }
    }

    /// Commits the pending changes, with as many tries as it takes. Returns `false` if there are none, or if the daemon
    /// stops and the store does not respond.
    fn commit(&self) -> bool {
        let mut writer = self.writer();
        let mut tries = 0_u64;
        while let Some(cut) = writer.failed.take().or_else(|| self.hub.cut()) {
            let again = self.hub.failed();
            if let Some(acknowledged) = self.append(&mut writer, cut, again) {
                drop(writer);
                acknowledged.iter().for_each(|mailbox| mailbox.ring());
                return true;
            }
            tries += 1;
            if self.hub.deposed().is_some() {
                // No try will ever succeed. The main thread ends the daemon.
                return false;
            }
            if self.stopping() && tries > 3 {
                tracing::error!("stopping with a commit the store did not take");
                return false;
            }
            self.sleep(self.pace.retry);
        }
        false
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

/// For both kinds of threads.
impl Commits {
    fn new(hub: Arc<Hub>, log: Box<dyn Log>, room: Room, guard: Option<Guard>, pace: Pace) -> Self {
        // The first commit is followed by a measurement of the room.
        let writer = Writer { log, room, unseen: (LOOK_COMMITS, 0), failed: None, _guard: guard };
        Self {
            hub,
            writer: Mutex::new(writer),
            policy: Mutex::default(),
            queue: Mutex::default(),
            times: Arc::default(),
            pace,
            stop: AtomicBool::new(false),
            writing_since: AtomicU64::new(0),
        }
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A panic of another thread that held this lock ends the daemon: `watch`.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a measurement, and who commits from now on.
    fn decide(&self, record: impl FnOnce(&mut Policy)) {
        // Nothing that holds this lock can panic half way through a change.
        let mut policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        record(&mut policy);
        self.hub.set_commit_in_turns(policy.in_turns());
    }

    /// Writes a commit, once. Returns the mailboxes with acknowledgements that waited for it, for the caller to ring.
    /// `None`: the store did not take it, it is kept in the writer, and nothing is acknowledged until the store does.
    fn append(&self, writer: &mut Writer, cut: Cut, again: bool) -> Option<Vec<Arc<Mailbox>>> {
        let begun = Instant::now();
        self.writing_since.store(clock::now().0, Ordering::Release);
        let reopened = if again { writer.log.reopen() } else { Ok(()) };
        let outcome = reopened.and_then(|()| writer.log.append(&cut.commit));
        self.writing_since.store(0, Ordering::Release);
        if let Err(error) = outcome {
            if error.is_deposed() {
                tracing::error!(%error, commit = cut.commit.seq(), "a commit was refused");
            } else if !again {
                tracing::error!(%error, "the store failed: nothing is acknowledged until it answers");
            }
            if !again {
                self.hub.set_failed(true);
            }
            writer.failed = Some(cut);
            self.decide(Policy::failed);
            self.hub.unpark_committer();
            return None;
        }
        writer.unseen = (writer.unseen.0 + 1, writer.unseen.1 + cut.commit.bytes());
        let acknowledged = self.hub.committed(cut.commit);
        let took = begun.elapsed();
        self.times.record(took);
        self.decide(|policy| policy.committed(took, cut.acknowledgements));
        if writer.unseen.0 >= LOOK_COMMITS || writer.unseen.1 >= LOOK_BYTES {
            writer.unseen = (0, 0);
            writer.room.look();
        }
        if self.hub.failed() {
            tracing::warn!("the store answers again");
            self.hub.set_failed(false);
        }
        Some(acknowledged)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use bytes::Bytes;
    use windlass_engine::{ClientCommand, ClientId, Engine, JobCommand, Limits, NewJob, Protocol, Tag};
    use windlass_session::{Item, Outbox};
    use windlass_store::{Commit, Error, Journal, LogTail, MemoryLog};

    use super::room::tests::SmallDisk;
    use super::*;
    use crate::broker::{Batch, Broker as _, CommitDuty, Visited};
    use crate::hub::Durability;
    use crate::logging::captured;
    use crate::serving::nowhere;

    /// A hub that has one client.
    pub(super) fn hub(durability: Durability) -> Arc<Hub> {
        let hub = Arc::new(Hub::new(Engine::new(Limits::default(), 7), Journal::new(), durability, 7));
        hub.open(ClientId(1), Arc::new(Mailbox::new(usize::MAX, Arc::clone(&hub.budget), nowhere())));
        let mut outbox = Outbox::default();
        outbox.command(Tag::NONE, ClientCommand::Open(Default::default()));
        assert!(hub.visit_all(ClientId(1), &clock::read(), &mut outbox.drain().collect()));
        hub
    }

    /// Where commits are written, without a thread that does it. All that is pending has been committed.
    pub(super) fn commits(hub: &Arc<Hub>, log: Box<dyn Log>, room: Option<Room>) -> Arc<Commits> {
        let room = room.unwrap_or_else(|| Room::new(Arc::clone(hub), log.tail()));
        let pace = Pace { interval: None, retry: Duration::ZERO };
        let commits = Commits::new(Arc::clone(hub), log, room, None, pace);
        while commits.commit() {}
        Arc::new(commits)
    }

    /// The client pushes a job of this size, and waits for its commit.
    pub(super) fn push_bytes(hub: &Hub, bytes: usize) {
        let job = NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"f"), Bytes::from(vec![7; bytes]));
        let mut items = [Item::Command(Tag(1), JobCommand::Push(Box::new(job)).into())].into();
        while !hub.visit_all(ClientId(1), &clock::read(), &mut items) {}
    }

    /// A log that does not take its next commits, and that records the calls.
    struct Recorded {
        log: MemoryLog,
        failures: u32,
        calls: Arc<Mutex<Vec<&'static str>>>,
    }

    impl Log for Recorded {
        fn append(&mut self, commit: &Commit) -> Result<(), Error> {
            self.calls.lock().unwrap().push("append");
            if let Some(left) = self.failures.checked_sub(1) {
                self.failures = left;
                let why = std::io::Error::other("no room");
                return Err(Error::Io { doing: "write", place: "the log".to_owned(), why });
            }
            self.log.append(commit)
        }
        fn tail(&self) -> Arc<dyn LogTail> {
            self.log.tail()
        }
        fn reopen(&mut self) -> Result<(), Error> {
            self.calls.lock().unwrap().push("reopen");
            self.log.reopen()
        }
        fn close(&mut self) -> Result<(), Error> {
            self.log.close()
        }
    }

    #[test]
    fn a_commit_that_the_store_did_not_take_is_tried_on_a_log_that_was_reopened() {
        let (hub, calls) = (hub(Durability::Durable), Arc::<Mutex<Vec<_>>>::default());
        let mut log = Recorded { log: MemoryLog::new(), failures: 0, calls: Arc::clone(&calls) };
        while let Some(cut) = hub.cut() {
            log.append(&cut.commit).unwrap();
            hub.committed(cut.commit);
        }
        log.failures = 3;
        let commits = commits(&hub, Box::new(log), None);
        let commit = || {
            calls.lock().unwrap().clear();
            push_bytes(&hub, 10);
            let logged = captured(|| assert!(commits.commit()));
            (calls.lock().unwrap().clone(), logged.matches("the store failed").count(), hub.failed())
        };
        let tried_again = ["reopen", "append"].repeat(3);
        assert_eq!(commit(), ([&["append"][..], &tried_again].concat(), 1, false));
        assert_eq!(commit(), (vec!["append"], 0, false));
    }

    #[test]
    fn the_room_is_measured_after_many_commits_or_many_bytes() {
        let is_full_after = |(commits, bytes): (u32, u64)| {
            let (hub, log) = (hub(Durability::Soon), MemoryLog::new());
            let disk = Arc::new(SmallDisk::new(log.clone(), u64::MAX));
            let room = Room::new(Arc::clone(&hub), Arc::clone(&disk) as Arc<dyn LogTail>);
            let writes = self::commits(&hub, Box::new(log), Some(room));
            writes.writer().unseen = (0, 0);
            disk.resize(0);
            for _ in 0..commits {
                push_bytes(&hub, usize::try_from(bytes).unwrap());
                assert!(writes.commit());
            }
            hub.full()
        };
        let few = LOOK_COMMITS - 1;
        let table =
            [(1, 10), (few, 10), (LOOK_COMMITS, 10), (1, LOOK_BYTES - 5000), (1, LOOK_BYTES), (2, LOOK_BYTES / 2)];
        assert_eq!(table.map(is_full_after), [false, false, true, false, true, true]);
    }

    #[test]
    fn a_thread_that_panicked_while_it_wrote_ends_the_daemon() {
        let hour = Duration::from_secs(3600);
        let pace = Pace { interval: Some(hour), retry: hour };
        let committer = Committer::start(hub(Durability::Soon), Box::new(MemoryLog::new()), None, pace).unwrap();
        let timeouts = CommitTimeouts { timeout: hour, abort: hour };
        assert_eq!(committer.watch(timeouts), None);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _writer = committer.commits.writer();
            panic!("a bug, as this test has it")
        }));
        assert!(panicked.is_err());
        assert_eq!(committer.watch(timeouts), Some("a thread that commits has died"));
        assert!(committer.finish());
    }

    #[test]
    fn changes_that_gather_are_left_to_serving_threads() {
        let (hub, log) = (hub(Durability::Durable), MemoryLog::new());
        let pace = Pace { interval: None, retry: Duration::ZERO };
        let committer = Committer::start(Arc::clone(&hub), Box::new(log.clone()), None, pace).unwrap();
        committer.commits().leave_to_turns();
        while hub.durable() == 0 || hub.with_journal(|_, journal| !journal.is_empty() || journal.is_behind()) {
            thread::yield_now();
        }
        let (before, mut visited) = (log.commits(), Visited::All);
        let job = NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"f"), Bytes::new());
        let mut items = [Item::Command(Tag::NONE, JobCommand::Push(Box::new(job)).into())].into();
        let batch = Batch { client: ClientId(1), items: &mut items, room: usize::MAX, visited: &mut visited };
        assert_eq!(hub.visit(&clock::read(), &mut std::iter::once(batch)), CommitDuty::Later);
        // Time for a commit that must not come.
        (0..1000).for_each(|_| thread::yield_now());
        assert_eq!(log.commits(), before);
        hub.unpark_committer();
        while log.commits() == before {
            thread::yield_now();
        }
        assert!(committer.finish());
    }

    #[test]
    fn all_that_was_gathered_in_an_interval_is_committed_after_it() {
        const BODY_BYTES: usize = 3 << 20;
        let hub = Arc::new(Hub::new(Engine::new(Limits::default(), 7), Journal::new(), Durability::Soon, 7));
        let mut outbox = Outbox::default();
        outbox.command(Tag::NONE, ClientCommand::Open(Default::default()));
        for _ in 0..8 {
            let body = Bytes::from(vec![7; BODY_BYTES]);
            let job = NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"large"), body);
            outbox.command(Tag(1), JobCommand::Push(Box::new(job)));
            assert!(hub.visit_all(ClientId(1), &clock::read(), &mut outbox.drain().collect()));
        }
        let (log, hour) = (MemoryLog::new(), Duration::from_secs(3600));
        let pace = Pace { interval: Some(hour), retry: hour };
        let committer = Committer::start(Arc::clone(&hub), Box::new(log.clone()), None, pace).unwrap();
        let last = hub.with_journal(|_, journal| journal.pending_seq());
        // One commit more: the daemon begins it while it writes the first ones.
        while log.seqs().last().is_none_or(|seq| seq + 1 < last) {
            thread::yield_now();
        }
        assert!(log.commits() > 3, "more than one commit: {}", log.commits());
        assert!(committer.finish());
    }

    #[test]
    fn a_commit_that_takes_too_long_fails_the_store_and_then_ends_the_daemon() {
        let hub = Arc::new(Hub::new(Engine::new(Limits::default(), 7), Journal::new(), Durability::Soon, 7));
        let mut outbox = Outbox::default();
        outbox.command(Tag::NONE, ClientCommand::Open(Default::default()));
        let job = NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"f"), Bytes::new());
        outbox.command(Tag(1), JobCommand::Push(Box::new(job)));
        assert!(hub.visit_all(ClientId(1), &clock::read(), &mut outbox.drain().collect()));
        let hour = Duration::from_secs(3600);
        let pace = Pace { interval: Some(hour), retry: hour };
        let committer = Committer::start(Arc::clone(&hub), Box::new(MemoryLog::new()), None, pace).unwrap();
        while hub.durable() == 0 || hub.with_journal(|_, journal| journal.is_behind()) {
            thread::yield_now();
        }
        // The committing thread holds the writer until the end of its commit.
        drop(committer.commits.writer());
        let timeouts = CommitTimeouts { timeout: Duration::from_secs(100), abort: Duration::from_secs(1000) };
        let watch = |writes_for_s: Option<u64>| {
            let since = writes_for_s.map_or(0, |seconds| clock::now().0 - 1000 * seconds);
            committer.commits.writing_since.store(since, Ordering::Release);
            (committer.watch(timeouts), hub.failed())
        };
        assert_eq!(watch(None), (None, false));
        assert_eq!(watch(Some(10)), (None, false));
        assert_eq!(watch(Some(500)), (None, true));
        assert_eq!(watch(Some(500)), (None, true));
        hub.set_failed(false);
        assert_eq!(
            watch(Some(5000)),
            (Some("the store has not completed a commit for longer than store.commit_abort"), false)
        );
        assert_eq!(watch(None), (None, false));
        assert!(committer.finish());
    }

    /// A log during whose first commits a client pushes a job.
    struct Busy(MemoryLog, Arc<Hub>);

    fn push(hub: &Hub) {
        let job = NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"f"), Bytes::new());
        let mut outbox = Outbox::default();
        outbox.command(Tag(1), JobCommand::Push(Box::new(job)));
        assert!(hub.visit_all(ClientId(1), &clock::read(), &mut outbox.drain().collect()));
    }

    impl Log for Busy {
        fn append(&mut self, commit: &windlass_store::Commit) -> Result<(), windlass_store::Error> {
            if self.0.commits() < 5 {
                push(&self.1);
            }
            self.0.append(commit)
        }
        fn tail(&self) -> Arc<dyn windlass_store::LogTail> {
            self.0.tail()
        }
        fn reopen(&mut self) -> Result<(), windlass_store::Error> {
            self.0.reopen()
        }
        fn close(&mut self) -> Result<(), windlass_store::Error> {
            self.0.close()
        }
    }

    #[test]
    fn changes_that_come_during_a_commit_wait_for_the_next_interval() {
        let hub = Arc::new(Hub::new(Engine::new(Limits::default(), 7), Journal::new(), Durability::Soon, 7));
        let mut outbox = Outbox::default();
        outbox.command(Tag::NONE, ClientCommand::Open(Default::default()));
        assert!(hub.visit_all(ClientId(1), &clock::read(), &mut outbox.drain().collect()));
        push(&hub);
        let (log, hour) = (MemoryLog::new(), Duration::from_secs(3600));
        let pace = Pace { interval: Some(hour), retry: hour };
        let busy = Box::new(Busy(log.clone(), Arc::clone(&hub)));
        let committer = Committer::start(Arc::clone(&hub), busy, None, pace).unwrap();
        while hub.durable() == 0 {
            thread::yield_now();
        }
        // Time for a commit that must not come.
        (0..1000).for_each(|_| thread::yield_now());
        assert_eq!(log.commits(), 1);
        assert!(committer.finish());
    }
}
