//! What mail and unsent replies of one client cost the daemon, and whether the peer reads them. A
//! peer that does not is disconnected, never waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use windlass_engine::Timestamp;
use windlass_session::Reason;

use super::Mailbox;
use super::mail::Sizes;
use crate::budget::{Budget, Evictable, SMALL_BYTES, Share};
use crate::shared::Flag;

/// Disconnect a peer that reads no job bytes for this long, in milliseconds, while others wait for
/// buffer space.
const STALL_MS: u64 = 2_000;

/// The bytes that wait for one client, in its mailbox and in its owner's buffers. All of it is
/// readable without the mailbox's lock, because the budget compares all connections.
#[derive(Debug)]
pub struct Pressure {
    pub(super) bytes_max: usize,
    overflowed: Flag,
    budget: Arc<Budget>,
    /// The counted bytes of the queued mail, without posts and without bytes counted by a hold.
    share: Share,
    /// The counted bytes of the owner's buffers.
    buffers: Share,
    /// Bytes of queued mail without jobs.
    queued: AtomicUsize,
    /// Bytes of the owner's buffers that the peer has not read, without jobs.
    unsent: AtomicUsize,
    /// Bytes of jobs among the owner's buffers.
    sending: AtomicUsize,
    /// When the peer last read some bytes, or had none to read.
    moved_at: AtomicU64,
    /// Whether the peer seems to read nothing of its jobs, while others wait for buffer space.
    suspected: Flag,
}

impl Pressure {
    pub(super) fn new(bytes_max: usize, budget: Arc<Budget>) -> Self {
        Self {
            bytes_max,
            overflowed: Flag::default(),
            budget,
            share: Share::default(),
            buffers: Share::default(),
            queued: AtomicUsize::default(),
            unsent: AtomicUsize::default(),
            sending: AtomicUsize::default(),
            moved_at: AtomicU64::default(),
            suspected: Flag::default(),
        }
    }

    /// Publishes the bytes of the queued mail and reports them to the budget.
    pub(super) fn count(&self, sizes: Sizes) {
        self.queued.store(sizes.without_jobs(), Ordering::Release);
        let own = sizes.all - sizes.posted - sizes.held;
        // A share is 0 or at least `SMALL_BYTES`, so that of an empty mailbox is cleared too.
        if own.abs_diff(self.share.bytes()) >= SMALL_BYTES {
            self.budget.report(&self.share, own);
        }
    }

    /// Checks, after mail was added, whether more is queued than the client may leave unread.
    pub(super) fn limit(&self, sizes: Sizes) {
        if sizes.without_jobs() > self.bytes_max {
            self.overflowed.set(true);
        }
    }

    /// Whether more was queued than the client may leave unread.
    pub fn overflowed(&self) -> bool {
        self.overflowed.get()
    }

    /// Sets how many bytes the owner's buffers have now. The caller must call [`Budget::relieve`]
    /// soon.
    pub fn set_buffers(&self, bytes: usize) {
        let before = self.buffers.bytes();
        if bytes.abs_diff(before) >= SMALL_BYTES || (bytes < SMALL_BYTES && before != 0) {
            self.budget.report(&self.buffers, bytes);
        }
    }

    /// Sets how many bytes of the owner's buffers the peer has not read: of jobs, and others.
    pub fn set_unsent(&self, jobs: usize, others: usize) {
        self.sending.store(jobs, Ordering::Relaxed);
        self.unsent.store(others, Ordering::Relaxed);
    }

    /// Called when the peer has read some bytes, or had none to read.
    pub fn moved(&self, now: Timestamp) {
        self.moved_at.store(now.0, Ordering::Relaxed);
    }

    /// Bytes that wait for the client.
    pub fn holds(&self) -> usize {
        self.queued.load(Ordering::Acquire) + self.buffers.bytes()
    }

    /// Whether the peer seems to read nothing of its jobs while others wait for buffer space. The
    /// owner then tries to write even if the kernel has not reported the socket as writable,
    /// because the kernel does so only once much of its buffer is free.
    pub fn is_suspected(&self) -> bool {
        self.suspected.get()
    }

    fn has_stalled(&self, now: Timestamp) -> bool {
        let waits_ms = now.ms_since(Timestamp(self.moved_at.load(Ordering::Relaxed)));
        self.sending.load(Ordering::Relaxed) > 0 && waits_ms >= STALL_MS
    }

    fn badness(&self, now: Timestamp) -> usize {
        let jobs = if self.has_stalled(now) {
            self.sending.load(Ordering::Relaxed)
        } else {
            0
        };
        let not_taken = self.queued.load(Ordering::Acquire) + self.unsent.load(Ordering::Relaxed);
        self.holds()
            .saturating_add(3 * not_taken)
            .saturating_add(4 * jobs)
    }
}

impl Mailbox {
    /// Closes the owner's connection if others wait for buffer space and the peer reads nothing of
    /// its jobs. The owner has just tried to write, in a turn that began `now`.
    pub fn check_stall(&self, now: Timestamp) {
        let was_suspected = self.pressure.suspected.replace(false);
        if was_suspected && self.pressure.has_stalled(now) {
            self.evict(Reason::Limit("buffer_bytes_max"));
        }
    }
}

impl Evictable for Mailbox {
    fn badness(&self, now: Timestamp) -> usize {
        if self.close_reason().is_none() {
            self.pressure.badness(now)
        } else {
            0
        }
    }

    fn suspect(&self, now: Timestamp) {
        if self.pressure.has_stalled(now) {
            self.pressure.suspected.set(true);
            self.ring();
        }
    }

    fn evict(&self, why: Reason) {
        Self::evict(self, why);
        self.pressure.set_buffers(0);
    }
}

impl Drop for Pressure {
    fn drop(&mut self) {
        self.budget.report(&self.share, 0);
    }
}
