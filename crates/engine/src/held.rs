//! Memory besides jobs that grows at the request of clients: names, subscriptions, waits, keys. Each part
//! reports a size, which is subtracted when the part is dropped.
//!
//! The figures are estimates of the allocator's use, from the sizes and lengths of the parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of all parts of a kind. A clone is the same sum.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held(Arc<AtomicU64>);

/// The bytes of a part, subtracted from the sum when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Share {
    of: Held,
    bytes: u64,
}

impl Held {
    /// A part without any bytes yet.
    pub(crate) fn share(&self) -> Share {
        Share {
            of: self.clone(),
            bytes: 0,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    // Only the owner of the engine updates sums, so that a load and a store are never interleaved, and cost
    // less than an atomic addition, which locks the bus.
    fn replace(&self, before: u64, now: u64) {
        self.0.store(
            self.bytes().wrapping_sub(before).wrapping_add(now),
            Ordering::Relaxed,
        );
    }
}

impl Share {
    pub(crate) fn set(&mut self, bytes: u64) {
        self.of
            .replace(std::mem::replace(&mut self.bytes, bytes), bytes);
    }

    pub(crate) fn add(&mut self, bytes: u64) {
        self.set(self.bytes.saturating_add(bytes));
    }

    pub(crate) fn subtract(&mut self, bytes: u64) {
        debug_assert!(
            bytes <= self.bytes,
            "{bytes} bytes less than {}",
            self.bytes
        );
        self.set(self.bytes.saturating_sub(bytes));
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Memory for an allocation of this size: the allocator has eight size classes for each power of
/// two.
pub(crate) const fn heap(bytes: usize) -> u64 {
    if bytes == 0 {
        0
    } else {
        (bytes + bytes / 16 + 8) as u64
    }
}

/// Memory for a separately allocated name that several parts share.
pub(crate) const fn shared(bytes: usize) -> u64 {
    heap(bytes) + heap(3 * size_of::<usize>())
}

/// Memory for a sorted set or map. The nodes have space for eleven entries, and contain seven when entries
/// are inserted in order.
pub(crate) const fn tree(entries: usize, entry_bytes: usize) -> u64 {
    const ROOM: usize = 11;
    const USUAL: usize = 7;
    let nodes = if entries <= ROOM {
        entries.div_ceil(ROOM)
    } else {
        entries.div_ceil(USUAL)
    };
    nodes as u64 * heap(ROOM * entry_bytes + 16)
}

/// Memory for an entry of a hash table with a load between seven sixteenths and seven eighths.
pub(crate) const fn hashed(entry_bytes: usize) -> u64 {
    (entry_bytes + entry_bytes * 5 / 8 + 2) as u64
}
