//! What is on disk and what is not yet: which commit is durable, what waits for a later one, which
//! thread writes it, and whether the store accepts it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use foldhash::HashMap;
use windlass_engine::ClientId;

use super::unwritten::Unwritten;
use crate::mailbox::Mailbox;
use crate::shared::Flag;
use crate::waking::{Idle, OnDisk, Waiting};

/// Whether acknowledgements wait for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// An acknowledged change is on disk.
    Durable,
    /// An acknowledged change will be on disk within the commit interval, as long as the disk keeps
    /// up.
    Soon,
}

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
    pub(super) first: u64,
    /// Whether the store does not respond, so that nothing is acknowledged.
    pub(super) failed: Flag,
    /// Whether the disk has no space for new jobs.
    pub(crate) full: Flag,
    /// Bytes that large jobs may still add before the disk is full.
    room: AtomicU64,
    /// Whether serving threads handle the commits of their visits.
    pub(crate) has_turns: Flag,
    /// Whether serving threads commit at the end of their turns.
    pub(crate) commit_in_turns: Flag,
    /// Whether the committing thread is parked.
    pub(crate) idle: Idle,
    committer: OnceLock<Thread>,
}

/// The part that the hub's lock guards: the commits that are not on disk, and what waits for them.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Mailboxes to wake for a commit, ordered by commit.
    pub(super) waiting: Waiting<Arc<Mailbox>>,
    /// The age of changes not on disk, if acknowledgements do not wait for each commit.
    pub(super) unwritten: Unwritten,
    /// The number of acknowledgements that wait for the pending commit.
    pub(super) acknowledgements: usize,
    /// The newest commit that an acknowledgement waits for.
    pub(super) awaited: Option<u64>,
    /// Whether the pending commit began without acknowledgements, and a serving thread was notified
    /// of it.
    pub(super) gathers: bool,
    /// Per client: the commit that contains the end of its last job. Its next job is held until
    /// that commit is durable.
    pub(super) ends: HashMap<ClientId, u64>,
    /// The commit with the newest large job. Once it is durable, no large job is in flight.
    pub(super) large_until: Option<u64>,
}

impl Pending {
    /// Counts mail that waits for this commit, while `next` is the commit that is not cut yet.
    pub(super) fn await_commit(&mut self, commit: u64, next: u64) {
        self.acknowledgements += usize::from(commit >= next);
        self.awaited = self.awaited.max(Some(commit));
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
            failed: Flag::default(),
            full: Flag::default(),
            room: AtomicU64::new(u64::MAX),
            has_turns: Flag::default(),
            commit_in_turns: Flag::default(),
            idle: Idle::new(),
            committer: OnceLock::new(),
        }
    }

    /// Registers the thread that commits.
    pub(crate) fn set_committer(&self, thread: Thread) {
        // A hub has one committing thread.
        let _ = self.committer.set(thread);
    }

    /// Wakes the committing thread.
    pub(crate) fn wake_committer(&self) {
        if self.idle.must_wake() {
            self.unpark_committer();
        }
    }

    /// Unparks the committing thread unconditionally.
    pub(crate) fn unpark_committer(&self) {
        if let Some(thread) = self.committer.get() {
            thread.unpark();
        }
    }

    /// Sets how many bytes large jobs may add before the disk is full. The caller must hold the
    /// hub's lock: `bytes` already excludes the uncommitted part of the journal.
    pub(crate) fn set_room(&self, bytes: u64) {
        self.room.store(bytes, Ordering::Release);
    }

    /// Takes space for a large job. Returns whether there was enough.
    pub(super) fn take_room(&self, bytes: u64) -> bool {
        let take = |room: u64| room.checked_sub(bytes);
        self.room
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
            .is_ok()
    }
}
