//! The hub as committing threads use it: pending changes and their clients, the cut, and the end of
//! a commit.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use windlass_engine::Engine;
use windlass_store::{Commit, Journal};

use super::{Core, Cut, Durability, Hub};
use crate::broker::CommitDuty;
use crate::mailbox::Mailbox;

impl Hub {
    /// Whether acknowledgements wait although the durability does not require it, because the disk
    /// is behind by more than it allows. `pending`: the pending commit contains changes.
    pub(super) fn is_behind(&self, core: &mut Core, pending: bool) -> bool {
        let Some(interval) = self.interval else {
            return false;
        };
        let Core {
            unwritten,
            journal,
            context,
            ..
        } = core;
        if pending {
            unwritten.note(journal.pending_seq(), context.now);
        }
        unwritten.is_behind(context.now, journal.uncommitted_bytes(), interval)
    }

    /// Registers the thread that commits.
    pub fn set_committer(&self, thread: Thread) {
        *self
            .committer
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(thread);
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
            let is_known = std::mem::replace(&mut core.gathers, true);
            if is_known {
                CommitDuty::None
            } else {
                CommitDuty::Later
            }
        } else if in_turn && self.commits_in_turns() {
            let acknowledgements = if core.journal.is_behind() {
                usize::MAX
            } else {
                core.acknowledgements
            };
            CommitDuty::Now { acknowledgements }
        } else {
            self.wake_committer();
            CommitDuty::None
        }
    }

    /// Whether there is something to commit immediately.
    pub fn is_urgent(&self) -> bool {
        let core = self.lock();
        let pending = !core.journal.is_empty() || core.journal.is_behind();
        pending && (core.is_urgent() || !core.gathers)
    }

    /// Whether a client waits for the pending commit, or a full commit is ready to be written.
    pub fn has_urgent(&self) -> bool {
        self.lock().is_urgent()
    }

    /// Whether there are changes that no client waits for.
    pub fn is_gathering(&self) -> bool {
        let core = self.lock();
        core.gathers && !core.is_urgent()
    }

    /// Wakes the committing thread.
    pub fn wake_committer(&self) {
        if self.idle.must_wake() {
            self.unpark_committer();
        }
    }

    /// Unparks the committing thread unconditionally.
    pub fn unpark_committer(&self) {
        if let Some(thread) = &*self
            .committer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
        {
            thread.unpark();
        }
    }

    /// Whether the committing thread, which sees no work, may park.
    pub fn committer_may_park(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.idle.may_park(has_work)
    }

    /// Cuts the pending commit, unless it is empty. Reads the bodies in it that are not in memory.
    pub fn cut(&self) -> Option<Cut> {
        let mut core = self.lock();
        let Core {
            engine,
            journal,
            acknowledgements,
            gathers,
            ..
        } = &mut *core;
        let mut commit = journal.cut(engine)?;
        *gathers = false;
        let acknowledgements = std::mem::take(acknowledgements);
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
        let (mut core, seq) = (self.lock(), commit.seq());
        core.journal.committed(seq);
        core.journal.reuse(commit);
        core.unwritten.committed(seq);
        let mut rung = core.waiting.publish(&self.durable, seq);
        rung.extend(self.take_with_room(&mut core));
        rung
    }

    /// Wakes a mailbox when a commit is durable.
    pub fn ring_when_durable(&self, commit: u64, mailbox: &Arc<Mailbox>) {
        let mut core = self.lock();
        if self.failed() || !core.waiting.add_unless(&self.durable, commit, mailbox) {
            mailbox.ring();
        }
    }

    /// The newest commit that was on disk when this run began.
    pub const fn recovered(&self) -> u64 {
        self.first.saturating_sub(1)
    }

    /// The newest commit on disk.
    pub fn durable(&self) -> u64 {
        self.durable.get()
    }

    /// Leaves the commits of their visits to serving threads.
    pub fn leave_commits_to_turns(&self) {
        self.has_turns.store(true, Ordering::Release);
    }

    /// Sets whether serving threads commit at the end of their turns, or leave that to the
    /// committing thread.
    pub fn set_commit_in_turns(&self, yes: bool) {
        self.commit_in_turns.store(yes, Ordering::Release);
    }

    /// Whether serving threads commit in their turns.
    pub fn commits_in_turns(&self) -> bool {
        self.commit_in_turns.load(Ordering::Acquire)
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
        steps_down || self.durable() >= self.first
    }
}
