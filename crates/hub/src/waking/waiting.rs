//! Which mailboxes are woken for which commit, and how a commit becomes durable.

use std::collections::VecDeque;

use super::sync::{AtomicU64, Ordering};

/// The newest commit on disk, readable by all threads and advanced by [`Waiting::publish`].
#[derive(Debug)]
pub(crate) struct OnDisk(AtomicU64);

impl OnDisk {
    pub(crate) fn new(commit: u64) -> Self {
        Self(AtomicU64::new(commit))
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Mailboxes with the commits for which they are woken, ordered by commit. Guarded by the hub's
/// lock, so that a mailbox too late for [`publish`](Self::publish) finds its commit durable.
#[derive(Debug)]
pub(crate) struct Waiting<M>(VecDeque<(u64, M)>);

impl<M> Default for Waiting<M> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<M: Clone> Waiting<M> {
    /// Wakes the mailbox once this commit is durable. Most are added in order, but a large job may
    /// wait for an older one.
    pub(crate) fn add(&mut self, commit: u64, mailbox: &M) {
        let at = match self.0.back() {
            Some((last, _)) if *last > commit => {
                self.0.partition_point(|(gate, _)| *gate <= commit)
            }
            Some(_) | None => self.0.len(),
        };
        self.0.insert(at, (commit, mailbox.clone()));
    }

    /// Wakes the mailbox once this commit is durable, unless it already is. Returns whether it is
    /// not.
    pub(crate) fn add_unless(&mut self, durable: &OnDisk, commit: u64, mailbox: &M) -> bool {
        let waits = commit > durable.get();
        if waits {
            self.add(commit, mailbox);
        }
        waits
    }

    /// Records that the commit is on disk. Takes the mailboxes that wait for it or for an earlier
    /// one; the caller must wake them.
    pub(crate) fn publish(&mut self, durable: &OnDisk, commit: u64) -> Vec<M> {
        durable.0.store(commit, Ordering::Release);
        let due = self.0.partition_point(|(gate, _)| *gate <= commit);
        self.0.drain(..due).map(|(_, mailbox)| mailbox).collect()
    }

    pub(crate) fn mailboxes(&self) -> Vec<M> {
        self.0.iter().map(|(_, mailbox)| mailbox.clone()).collect()
    }
}
