//! Whether the store accepts changes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether the store responds, and has space for jobs.
#[derive(Debug)]
pub(crate) struct StoreHealth {
    /// Whether it does not respond, so that nothing is acknowledged.
    failed: AtomicBool,
    /// Whether the disk has no space for new jobs.
    full: AtomicBool,
    /// Bytes that large jobs may still add before the disk is full.
    room: AtomicU64,
}

impl Default for StoreHealth {
    fn default() -> Self {
        Self {
            failed: AtomicBool::new(false),
            full: AtomicBool::new(false),
            room: AtomicU64::new(u64::MAX),
        }
    }
}

impl StoreHealth {
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    pub(super) fn set_failed(&self, failed: bool) {
        self.failed.store(failed, Ordering::Release);
    }

    /// Whether the disk has no space for new jobs.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// Sets whether the disk has no space for new jobs. Returns the previous value.
    pub(crate) fn set_full(&self, full: bool) -> bool {
        self.full.swap(full, Ordering::AcqRel)
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
