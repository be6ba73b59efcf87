//! Mailboxes of clients whose commands go to another daemon. In a daemon that is alone, nothing is
//! forwarded and all counters here stay at zero.
//!
//! The client has a mailbox at each end of the link. The leader's takes mail before its commit is
//! durable and passes the number of the commit on. The edge's, which the connection reads, waits
//! for the leader's report about that commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Mailbox, QueuedMail};
use crate::budget::Budget;
use crate::waker::Home;

/// What is on its way between the two mailboxes of an edge's client.
#[derive(Debug, Default)]
pub struct Forwarding {
    /// Whether this is the leader's mailbox.
    pub(super) takes_early: bool,
    /// At the edge: the owner's items in flight to the leader.
    pub(super) under_way: AtomicUsize,
    /// At the edge: bytes that the owner has taken and not yet reported to the leader.
    taken: AtomicUsize,
}

impl Forwarding {
    /// Sets how many items of the owner are in flight to the leader.
    pub fn set_under_way(&self, items: usize) {
        self.under_way.store(items, Ordering::Release);
    }

    /// Records that the owner has taken this many bytes. Returns all bytes since the last report,
    /// if they reach a step.
    pub fn made_room(&self, bytes: usize, step: usize) -> Option<usize> {
        let is_step = bytes > 0 && self.taken.fetch_add(bytes, Ordering::AcqRel) + bytes >= step;
        is_step
            .then(|| self.taken.swap(0, Ordering::AcqRel))
            .filter(|bytes| *bytes != 0)
    }
}

impl Mailbox {
    /// Creates the leader's mailbox of an edge's client, whose mail is forwarded with the numbers
    /// of its commits: [`Mailbox::take_early`].
    pub fn forwarding(bytes_max: usize, budget: Arc<Budget>, home: Home) -> Self {
        let mut mailbox = Self::new(bytes_max, budget, home);
        mailbox.forwarding.takes_early = true;
        mailbox
    }

    /// Takes all mail before the first that waits for a body, each with the commit that must be
    /// durable before its client reads it.
    pub fn take_early(&self, into: &mut Vec<QueuedMail>) {
        self.change(|queue| queue.take_early(into));
    }

    /// Called at an edge when a new leader numbers its commits anew: acknowledgements of commits
    /// after `reached` can no longer be given, the others can. A take whose lease is lost gets no
    /// reply, because the caller repeats it.
    pub fn begin_epoch(&self, reached: u64) {
        self.change(|queue| queue.begin_epoch(reached));
        self.ring();
    }
}
