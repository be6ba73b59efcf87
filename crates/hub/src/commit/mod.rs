//! Commits: the pending changes are cut, written to the log, and acknowledged, while the next
//! commit gathers.
//!
//! Two kinds of threads commit, one at a time. A **serving thread** commits at the end of its turn
//! (`turn`), as long as the disk is fast and commits are small, because passing the work to another
//! thread costs more than a fast disk takes. The **committing thread** (here) does the rest:
//! `durability = "interval"`, large commits, a slow disk, and commits that the store did not
//! accept. `policy` decides between the two.
//!
//! When the store fails, the daemon stops acknowledging and retries the same commit until the store
//! accepts it. The engine keeps all that was acknowledged before.

mod gather;
mod policy;
mod room;
#[cfg(test)]
mod tests;
mod times;
mod turn;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use windlass_engine::Context;
use windlass_store::{Guard, Log};

use self::policy::Policy;
use self::room::Room;
pub use self::times::CommitTimes;
pub use self::times::{BOUNDS_US, CommitDurations};
pub use self::turn::TurnCommits;
use crate::clock;
use crate::hub::{Cut, Hub};
use crate::mailbox::Mailbox;
use crate::shared::{Flag, lock};
use crate::waker::Waker;
use crate::waking::HandOver;

/// Timing of the committing thread.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long changes gather before each commit; `None`: commit as soon as there is anything.
    pub interval: Option<Duration>,
    /// How soon the committing thread retries after a failure.
    pub retry: Duration,
}

/// Timeouts of a commit.
#[derive(Clone, Copy, Debug)]
pub struct CommitTimeouts {
    /// After this the store counts as failed.
    pub timeout: Duration,
    /// After this the daemon exits, because a restart by the supervisor is better than hanging
    /// silently.
    pub abort: Duration,
}

/// The handle of the committing thread.
pub struct Committer {
    thread: JoinHandle<bool>,
    commits: Arc<Commits>,
    room: Room,
}

/// Writes commits, by one thread at a time.
pub struct Commits {
    hub: Arc<Hub>,
    /// The writer, and threads whose turn ended while another thread was writing.
    hand_over: HandOver<Writer, Arc<dyn Waker>>,
    /// Has its own lock: a thread that finds the writer locked relies on the holder to pass the
    /// next commit on.
    policy: Mutex<Policy>,
    times: Arc<CommitTimes>,
    pace: Pace,
    stop: Flag,
    /// When the write in progress began, in milliseconds of the engine's clock; 0 = none.
    writing_since: AtomicU64,
}

impl std::fmt::Debug for Commits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Commits")
    }
}

/// State of the writing thread.
struct Writer {
    log: Box<dyn Log>,
    room: Room,
    /// Commits and bytes since free space was last measured.
    unseen: (u32, u64),
    /// The commit that the store did not accept.
    failed: Option<Cut>,
    // Last, because it locks out other processes until everything else is closed.
    _guard: Option<Guard>,
}

/// Time slice of the committing thread on a busy machine. It sleeps again long before.
const SLICE: Duration = Duration::from_micros(100);

/// The committing thread measures free space after this many commits or bytes.
const LOOK_COMMITS: u32 = 64;
const LOOK_BYTES: u64 = 256 << 10;

impl Committer {
    /// Starts the committing thread.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(
        hub: Arc<Hub>,
        log: Box<dyn Log>,
        guard: Option<Guard>,
        pace: Pace,
    ) -> std::io::Result<Self> {
        let room = Room::new(Arc::clone(&hub), log.tail());
        let commits = Arc::new(Commits::new(
            Arc::clone(&hub),
            log,
            room.clone(),
            guard,
            pace,
        ));
        let for_thread = Arc::clone(&commits);
        let thread = thread::Builder::new()
            .name("commit".into())
            .spawn(move || for_thread.run())?;
        hub.durable.set_committer(thread.thread().clone());
        Ok(Self {
            thread,
            commits,
            room,
        })
    }

    /// For serving threads, which commit at the end of a turn.
    pub const fn commits(&self) -> &Arc<Commits> {
        &self.commits
    }

    /// The durations of commits.
    pub fn times(&self) -> Arc<CommitTimes> {
        Arc::clone(&self.commits.times)
    }

    /// Supervises commits; called by the main thread about once a second. Returns the reason if the
    /// daemon must exit.
    pub fn watch(&self, timeouts: CommitTimeouts) -> Option<&'static str> {
        let hub = &self.commits.hub;
        let has_died = self.thread.is_finished() || self.commits.hand_over.writer().is_poisoned();
        if has_died && !self.commits.stopping() && hub.deposed().is_none() {
            return Some("a thread that commits has died");
        }
        // Free space is usually measured after commits, but there may be none while new jobs are
        // refused.
        if hub.durable.full.get() {
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

    /// Stores the engine's final counters, commits the rest, and stops. Returns whether everything
    /// is on disk.
    pub fn finish(self) -> bool {
        self.commits.stop.set(true);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or(false)
    }
}

/// The committing thread.
impl Commits {
    fn run(&self) -> bool {
        // Without this, a commit on a busy machine waits ten times as long for a processor as for
        // the disk.
        if let Err(error) = windlass_sched::shorten_slices(SLICE) {
            tracing::debug!(%error, "cannot shorten the time slices of the committing thread");
        }
        while !self.stopping() && self.hub.deposed().is_none() {
            if let Some(interval) = self.pace.interval {
                self.commit();
                self.rest_for(interval);
            } else {
                self.rest();
                self.commit();
                while !self.pass_on() && self.commit() {}
            }
        }
        self.hub.with_journal(|engine, journal| {
            let mut context = Context::new(clock::now(), 0);
            engine.finish_rates(&mut context);
            journal.append(engine, &context.changes);
            engine.finish_meta();
            journal.stop_in_order();
        });
        // This includes at least the commit that records the clean stop.
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

    /// Waits for work.
    fn rest(&self) {
        if self
            .hub
            .durable
            .idle
            .may_park(|| self.hub.is_urgent() || self.stopping())
        {
            thread::park();
        }
    }

    /// Waits for the next interval, but less if a commit is full, so that its memory is freed soon,
    /// or if clients wait for a commit.
    fn rest_for(&self, interval: Duration) {
        self.sleep(interval, || {
            !self.hub.durable.idle.may_park(|| self.hub.has_urgent())
        });
    }

    /// Commits the pending changes, retrying as often as necessary. Returns `false` if there are
    /// none, or if the daemon is stopping and the store does not respond.
    fn commit(&self) -> bool {
        let mut writer = self.writer();
        let mut attempts = 0_u64;
        while let Some(cut) = writer.failed.take().or_else(|| self.hub.cut()) {
            let again = self.hub.failed();
            if let Some(acknowledged) = self.append(&mut writer, cut, again) {
                drop(writer);
                Mailbox::ring_all(&acknowledged);
                return true;
            }
            attempts += 1;
            if self.hub.deposed().is_some() {
                // Retrying can never succeed. The main thread stops the daemon.
                return false;
            }
            if self.stopping() && attempts > 3 {
                tracing::error!("stopping with a commit the store did not take");
                return false;
            }
            self.sleep(self.pace.retry, || false);
        }
        false
    }

    /// Sleeps for this time, or until the daemon stops or something is due, which it checks before
    /// it sleeps and whenever it is unparked.
    fn sleep(&self, time: Duration, is_due: impl Fn() -> bool) {
        let end = Instant::now() + time;
        while !self.stopping() && !is_due() {
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
        // Free space is measured after the first commit.
        let writer = Writer {
            log,
            room,
            unseen: (LOOK_COMMITS, 0),
            failed: None,
            _guard: guard,
        };
        Self {
            hub,
            hand_over: HandOver::new(writer),
            policy: Mutex::default(),
            times: Arc::default(),
            pace,
            stop: Flag::default(),
            writing_since: AtomicU64::new(0),
        }
    }

    fn stopping(&self) -> bool {
        self.stop.get()
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.hand_over.lock()
    }

    /// Records a measurement, and decides which threads commit next.
    fn decide(&self, record: impl FnOnce(&mut Policy)) {
        let mut policy = lock(&self.policy);
        record(&mut policy);
        self.hub.durable.commit_in_turns.set(policy.in_turns());
    }

    /// Writes a commit, once. Returns the mailboxes whose acknowledgements waited for it, which the
    /// caller must wake. `None`: the store did not accept it; the writer keeps it, and nothing is
    /// acknowledged until the store does.
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
            self.hub.durable.unpark_committer();
            return None;
        }
        writer.unseen.0 += 1;
        writer.unseen.1 += cut.commit.bytes();
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
