//! Whether the peer reads the jobs in flight to it, while others wait for buffer space.

use std::sync::atomic::Ordering;

use windlass_engine::Timestamp;
use windlass_session::Reason;

use super::Mailbox;

/// Disconnect a peer that reads no job bytes for this long, in milliseconds, while others wait for
/// buffer space.
const STALL_MS: u64 = 2_000;

impl Mailbox {
    /// Called when the peer has read some bytes, or had none to read.
    pub fn moved(&self, now: Timestamp) {
        self.moved_at.store(now.0, Ordering::Relaxed);
    }

    /// Whether the peer seems to read nothing of its jobs while others wait for buffer space. The
    /// owner then tries to write even if the kernel has not reported the socket as writable,
    /// because the kernel does so only once much of its buffer is free.
    pub fn is_suspected(&self) -> bool {
        self.suspected.load(Ordering::Acquire)
    }

    /// Closes the owner's connection if others wait for buffer space and the peer reads nothing of
    /// its jobs. The owner has just tried to write, in a turn that began `now`.
    pub fn check_stall(&self, now: Timestamp) {
        if self.suspected.swap(false, Ordering::AcqRel) && self.has_stalled(now) {
            self.evict(Reason::Limit("buffer_bytes_max"));
        }
    }

    pub(super) fn has_stalled(&self, now: Timestamp) -> bool {
        let waits_ms = now.ms_since(Timestamp(self.moved_at.load(Ordering::Relaxed)));
        self.sending.load(Ordering::Relaxed) > 0 && waits_ms >= STALL_MS
    }
}
