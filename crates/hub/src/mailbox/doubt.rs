//! Whether the peer takes the jobs that are on their way to it, while others wait for room.

use std::sync::atomic::Ordering;

use windlass_engine::Timestamp;
use windlass_session::Reason;

use super::Mailbox;

/// A peer that takes nothing of its jobs for so long, in milliseconds, gives way to workers that wait for theirs.
const STALL_MS: u64 = 2_000;

impl Mailbox {
    /// The peer has taken some of the owner's bytes, or had none to take.
    pub fn moved(&self, now: Timestamp) {
        self.moved_at.store(now.0, Ordering::Relaxed);
    }

    /// Whether the peer seems to take nothing of its jobs while others wait for room. The owner then tries to write, even
    /// if the kernel has not reported that it can: the kernel reports only once a large part of its buffer is free.
    pub fn is_doubted(&self) -> bool {
        self.doubted.load(Ordering::Acquire)
    }

    /// Ends the owner's connection if others wait for room and the peer takes nothing of its jobs. The owner has just tried
    /// to write, in a turn that began `now`.
    pub fn answer_doubt(&self, now: Timestamp) {
        if self.doubted.swap(false, Ordering::AcqRel) && self.has_stalled(now) {
            self.evict(Reason::Limit("buffer_bytes_max"));
        }
    }

    pub(super) fn has_stalled(&self, now: Timestamp) -> bool {
        let waits_ms = now.ms_since(Timestamp(self.moved_at.load(Ordering::Relaxed)));
        self.sending.load(Ordering::Relaxed) > 0 && waits_ms >= STALL_MS
    }
}
