//! Bytes in memory beside jobs, as clients make them grow: names, subscriptions, waits, keys. Each part reports its own,
//! and its bytes are gone from the sum when it is.
//!
//! The figures are estimates of what the allocator takes, from the sizes and lengths of the parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of all parts of a kind. A clone is the same sum.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held(Arc<AtomicU64>);

/// The bytes of one part. They leave the sum when it is dropped.
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

    // Only the owner of the engine changes sums, one after the other, so two steps lose nothing and cost less than one
    // that locks the bus.
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

/// What an allocation of this size takes: the allocator has eight sizes for each power of two.
pub(crate) const fn heap(bytes: usize) -> u64 {
    if bytes == 0 {
        0
    } else {
        (bytes + bytes / 16 + 8) as u64
    }
}

/// What a name takes in memory of its own that several parts share.
pub(crate) const fn shared(bytes: usize) -> u64 {
    heap(bytes) + heap(3 * size_of::<usize>())
}

/// What a sorted set or map takes. Its nodes have room for eleven entries, and hold seven when entries come in order.
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

/// What an entry of a hash table takes, which is filled to between seven sixteenths and seven eighths.
pub(crate) const fn hashed(entry_bytes: usize) -> u64 {
    (entry_bytes + entry_bytes * 5 / 8 + 2) as u64
}
