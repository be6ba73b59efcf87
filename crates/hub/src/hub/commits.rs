//! The hub as committing threads use it: pending changes and their clients, the cut, and the end of
//! a commit.

use std::sync::Arc;
use std::time::Duration;

use windlass_engine::Engine;
use windlass_store::{Commit, Journal};

use super::{Core, Cut, Durability, Hub};
use crate::broker::CommitDuty;
use crate::mailbox::Mailbox;

impl Hub {
    /// Whether acknowledgements wait for the disk: always, or while it is behind by more than the
    /// durability allows. `has_changes`: the pending commit contains changes.
    pub(super) fn acknowledgements_wait(&self, core: &mut Core, has_changes: bool) -> bool {
        if self.durable.durability == Durability::Durable {
            return true;
        }
        let Some(interval) = self.durable.interval else {
            return false;
        };
        let unwritten = &mut core.pending.unwritten;
        let now = core.context.now;
        if has_changes {
            unwritten.note(core.journal.pending_seq(), now);
        }
        unwritten.is_behind(now, core.journal.uncommitted_bytes(), interval)
    }

    /// What a serving thread must do about the pending changes. The committing thread does the
    /// rest.
    pub(super) fn duty(&self, core: &mut Core, in_turn: bool) -> CommitDuty {
        if self.durable.durability == Durability::Soon {
            // The committing thread does everything, but it does not wait for its interval if a
            // commit is full or clients wait for one.
            if core.is_urgent() {
                self.durable.wake_committer();
            }
            CommitDuty::None
        } else if in_turn && !core.is_urgent() {
            // One thread that looks again is enough.
            if std::mem::replace(&mut core.pending.gathers, true) {
                CommitDuty::None
            } else {
                CommitDuty::Later
            }
        } else if in_turn && self.durable.commit_in_turns.get() {
            let acknowledgements = if core.journal.is_behind() {
                usize::MAX
            } else {
                core.pending.acknowledgements
            };
            CommitDuty::Now { acknowledgements }
        } else {
            self.durable.wake_committer();
            CommitDuty::None
        }
    }

    /// Whether there is something to commit immediately.
    pub fn is_urgent(&self) -> bool {
        let core = self.lock();
        (!core.journal.is_empty() || core.journal.is_behind())
            && (core.is_urgent() || !core.pending.gathers)
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
        let core = &mut *self.lock();
        run(&mut core.engine, &mut core.journal)
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
        self.durable.failed.get()
    }

    /// Sets whether the store has failed. When it fails, all clients that wait for a commit learn
    /// that the outcome is unknown.
    pub fn set_failed(&self, failed: bool) {
        self.durable.failed.set(failed);
        if failed {
            // They are woken again for their commits, because the store may respond again by the
            // time their threads check.
            let mut core = self.lock();
            let mut waiting = core.pending.waiting.mailboxes();
            waiting.extend(self.take_with_room(&mut core));
            drop(core);
            Mailbox::ring_all(&waiting);
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
