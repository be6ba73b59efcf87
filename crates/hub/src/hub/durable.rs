//! What is on disk and what is not yet: which commit is durable, what waits for a later one, which
//! thread writes it, and whether the store accepts it.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use foldhash::HashMap;
use windlass_engine::{ClientId, Engine};
use windlass_store::{Commit, Journal};

use super::store_health::StoreHealth;
use super::unwritten::Unwritten;
use super::{Core, Cut, Durability, Hub};
use crate::broker::CommitDuty;
use crate::mailbox::Mailbox;
use crate::waking::{Idle, OnDisk, Waiting};

/// The part that threads use without the hub's lock.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(super) durability: Durability,
    /// The interval of [`Durability::Soon`]; without one, no acknowledgement waits however slow the
    /// disk is.
    pub(super) interval: Option<Duration>,
    /// Whether a client's next job waits until the end of its last one is on disk, even if that end
    /// is not acknowledged.
    pub(super) hand_out_after_commit: bool,
    pub(super) newest: OnDisk,
    /// The first commit of this run.
    first: u64,
    /// Whether the store responds and has space.
    pub(crate) store: StoreHealth,
    /// Whether serving threads handle the commits of their visits.
    has_turns: AtomicBool,
    /// Whether serving threads commit at the end of their turns.
    commit_in_turns: AtomicBool,
    /// Whether the committing thread is parked.
    idle: Idle,
    committer: Mutex<Option<Thread>>,
}

/// The part that the hub's lock guards: the commits that are not on disk, and what waits for them.
#[derive(Debug)]
pub(super) struct Pending {
    /// Mailboxes to wake for a commit, ordered by commit.
    pub(super) waiting: Waiting<Arc<Mailbox>>,
    /// The age of changes not on disk, if acknowledgements do not wait for each commit.
    unwritten: Unwritten,
    /// The number of acknowledgements that wait for the pending commit.
    acknowledgements: usize,
    /// The newest commit that an acknowledgement waits for.
    awaited: Option<NonZeroU64>,
    /// Whether the pending commit began without acknowledgements, and a serving thread was notified
    /// of it.
    pub(super) gathers: bool,
    /// Per client: the commit that contains the end of its last job. Its next job is held until
    /// that commit is durable.
    pub(super) ends: HashMap<ClientId, NonZeroU64>,
    /// The commit with the newest large job. Once it is durable, no large job is in flight.
    pub(super) large_until: Option<u64>,
}

impl Pending {
    pub(super) fn new() -> Self {
        Self {
            waiting: Waiting::new(),
            unwritten: Unwritten::default(),
            acknowledgements: 0,
            awaited: None,
            gathers: false,
            ends: HashMap::default(),
            large_until: None,
        }
    }

    /// Counts mail that waits for this commit, while `next` is the commit that is not cut yet.
    pub(super) fn await_commit(&mut self, commit: NonZeroU64, next: u64) {
        self.acknowledgements += usize::from(commit.get() >= next);
        self.awaited = self.awaited.max(Some(commit));
    }
}

impl Core {
    /// Whether a client waits for the pending commit, or a full commit is ready to be written.
    fn is_urgent(&self) -> bool {
        self.pending.awaited >= NonZeroU64::new(self.journal.pending_seq())
            || self.journal.is_behind()
    }
}

/// Who commits.
impl Durable {
    pub(super) fn new(durability: Durability, first: u64) -> Self {
        Self {
            durability,
            interval: None,
            hand_out_after_commit: false,
            // Recovered commits are on disk; the first of this run is not.
            newest: OnDisk::new(first.saturating_sub(1)),
            first,
            store: StoreHealth::default(),
            has_turns: AtomicBool::new(false),
            commit_in_turns: AtomicBool::new(false),
            idle: Idle::new(),
            committer: Mutex::new(None),
        }
    }

    fn committer(&self) -> MutexGuard<'_, Option<Thread>> {
        self.committer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the thread that commits.
    pub(crate) fn set_committer(&self, thread: Thread) {
        *self.committer() = Some(thread);
    }

    /// Wakes the committing thread.
    pub(crate) fn wake_committer(&self) {
        if self.idle.must_wake() {
            self.unpark_committer();
        }
    }

    /// Unparks the committing thread unconditionally.
    pub(crate) fn unpark_committer(&self) {
        if let Some(thread) = &*self.committer() {
            thread.unpark();
        }
    }

    /// Whether the committing thread, which sees no work, may park.
    pub(crate) fn committer_may_park(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.idle.may_park(has_work)
    }

    /// Leaves the commits of their visits to serving threads.
    pub(crate) fn leave_commits_to_turns(&self) {
        self.has_turns.store(true, Ordering::Release);
    }

    pub(super) fn has_turns(&self) -> bool {
        self.has_turns.load(Ordering::Acquire)
    }

    /// Sets whether serving threads commit at the end of their turns, or leave that to the
    /// committing thread.
    pub(crate) fn set_commit_in_turns(&self, yes: bool) {
        self.commit_in_turns.store(yes, Ordering::Release);
    }

    /// Whether serving threads commit in their turns.
    pub(crate) fn commits_in_turns(&self) -> bool {
        self.commit_in_turns.load(Ordering::Acquire)
    }

    /// Whether acknowledgements wait for the disk: always, or while it is behind by more than the
    /// durability allows. `has_changes`: the pending commit contains changes.
    pub(super) fn acknowledgements_wait(&self, core: &mut Core, has_changes: bool) -> bool {
        if self.durability == Durability::Durable {
            return true;
        }
        let Some(interval) = self.interval else {
            return false;
        };
        let Pending { unwritten, .. } = &mut core.pending;
        let now = core.context.now;
        if has_changes {
            unwritten.note(core.journal.pending_seq(), now);
        }
        unwritten.is_behind(now, core.journal.uncommitted_bytes(), interval)
    }

    /// What a serving thread must do about the pending changes. The committing thread does the
    /// rest.
    pub(super) fn duty(&self, core: &mut Core, in_turn: bool) -> CommitDuty {
        if self.durability == Durability::Soon {
            // The committing thread does everything, but it does not wait for its interval if a
            // commit is full or clients wait for one.
            if core.is_urgent() {
                self.wake_committer();
            }
            CommitDuty::None
        } else if in_turn && !core.is_urgent() {
            let is_known = std::mem::replace(&mut core.pending.gathers, true);
            if is_known {
                CommitDuty::None
            } else {
                CommitDuty::Later
            }
        } else if in_turn && self.commits_in_turns() {
            let acknowledgements = if core.journal.is_behind() {
                usize::MAX
            } else {
                core.pending.acknowledgements
            };
            CommitDuty::Now { acknowledgements }
        } else {
            self.wake_committer();
            CommitDuty::None
        }
    }
}

/// The hub as threads that commit use it.
impl Hub {
    /// Whether there is something to commit immediately.
    pub fn is_urgent(&self) -> bool {
        let core = self.lock();
        let pending = !core.journal.is_empty() || core.journal.is_behind();
        pending && (core.is_urgent() || !core.pending.gathers)
    }

    /// Whether a client waits for the pending commit, or a full commit is ready to be written.
    pub fn has_urgent(&self) -> bool {
        self.lock().is_urgent()
    }

    /// Whether there are changes that no client waits for.
    pub fn is_gathering(&self) -> bool {
        let core = self.lock();
        core.pending.gathers && !core.is_urgent()
    }

    /// Cuts the pending commit, unless it is empty. Reads the bodies in it that are not in memory.
    pub fn cut(&self) -> Option<Cut> {
        let mut core = self.lock();
        let Core {
            engine,
            journal,
            pending,
            ..
        } = &mut *core;
        let mut commit = journal.cut(engine)?;
        pending.gathers = false;
        let acknowledgements = std::mem::take(&mut pending.acknowledgements);
        drop(core);
        self.load_bodies_of(&mut commit);
        Some(Cut {
            commit,
            acknowledgements,
        })
    }

    /// Runs a closure on the engine and its journal, under the lock.
    pub fn with_journal<T>(&self, run: impl FnOnce(&mut Engine, &mut Journal) -> T) -> T {
        let mut core = self.lock();
        let Core {
            engine, journal, ..
        } = &mut *core;
        run(engine, journal)
    }

    /// Records that a commit is on disk. Returns the mailboxes whose acknowledgements waited for
    /// it, and those whose jobs now fit into memory; the caller must wake them.
    pub fn committed(&self, commit: Commit) -> Vec<Arc<Mailbox>> {
        let mut core = self.lock();
        let seq = commit.seq();
        core.journal.committed(seq);
        core.journal.reuse(commit);
        core.pending.unwritten.committed(seq);
        let mut rung = core.pending.waiting.publish(&self.durable.newest, seq);
        rung.extend(self.take_with_room(&mut core));
        rung
    }

    /// The newest commit that was on disk when this run began.
    pub const fn recovered(&self) -> u64 {
        self.durable.first.saturating_sub(1)
    }

    /// The newest commit on disk.
    pub fn durable(&self) -> u64 {
        self.durable.newest.get()
    }

    /// Whether the store fails.
    pub fn failed(&self) -> bool {
        self.durable.store.has_failed()
    }

    /// Sets whether the store has failed. When it fails, all clients that wait for a commit learn
    /// that the outcome is unknown.
    pub fn set_failed(&self, failed: bool) {
        self.durable.store.set_failed(failed);
        if failed {
            // They are woken again for their commits, because the store may respond again by the
            // time their threads check.
            let mut core = self.lock();
            let mut waiting = core.pending.waiting.mailboxes();
            waiting.extend(self.take_with_room(&mut core));
            drop(core);
            waiting.iter().for_each(|mailbox| mailbox.ring());
        }
    }

    /// Waits until this run has begun.
    pub async fn first_commit(&self) {
        const LOOK_EVERY: Duration = Duration::from_millis(1);
        while !self.has_begun() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Whether the first commit of this run is on disk. A single daemon may begin with a failed
    /// store. A successor may not, because the next leader must know which numbers it has issued.
    pub fn has_begun(&self) -> bool {
        let steps_down = if self.has_tenure() {
            self.deposed().is_some()
        } else {
            self.failed()
        };
        steps_down || self.durable() >= self.durable.first
    }
}
