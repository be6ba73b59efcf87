//! The clients that wait for memory.

use std::collections::VecDeque;

/// Mailboxes of clients with a job that did not fit into memory, in order of arrival. The list is
/// guarded by the hub's lock, as is everything that takes or frees memory, so a thread that frees
/// memory finds all clients waiting for it.
#[derive(Debug)]
pub(crate) struct ForRoom<M> {
    waiting: VecDeque<(u64, M)>,
    sizes: Sizes,
}

/// No waiting job has fewer bytes than `least`, or more than `most`.
#[derive(Debug)]
struct Sizes {
    least: u64,
    most: u64,
}

const NONE_WAITS: Sizes = Sizes {
    least: u64::MAX,
    most: 0,
};

impl Sizes {
    fn widen(&mut self, bytes: u64) {
        self.least = self.least.min(bytes);
        self.most = self.most.max(bytes);
    }
}

impl<M: Clone> ForRoom<M> {
    pub(crate) const fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            sizes: NONE_WAITS,
        }
    }

    /// Bytes of the largest job that may wait; 0 if none does.
    pub(crate) const fn most(&self) -> u64 {
        self.sizes.most
    }

    /// Wakes the mailbox when this many bytes are free. `is_same` recognizes the mailbox of a
    /// client that already waits, because each waits with one job.
    pub(crate) fn add(&mut self, bytes: u64, mailbox: &M, is_same: impl Fn(&M) -> bool) {
        self.sizes.widen(bytes);
        match self.waiting.iter_mut().find(|(_, who)| is_same(who)) {
            Some(waits) => waits.0 = bytes,
            None => self.waiting.push_back((bytes, mailbox.clone())),
        }
    }

    /// Called with the free bytes, and `reach`, the most that can ever be free. Takes the mailboxes
    /// whose jobs fit together, and those whose jobs never will; the caller must wake them. A job
    /// that must wait does not block the ones after it.
    pub(crate) fn take(&mut self, mut room: u64, reach: u64) -> Vec<M> {
        let mut rung = Vec::new();
        if room < self.sizes.least && self.sizes.most <= reach {
            return rung;
        }
        let mut sizes = NONE_WAITS;
        self.waiting.retain(|(bytes, mailbox)| {
            let left = room.checked_sub(*bytes);
            if left.is_none() && *bytes <= reach {
                sizes.widen(*bytes);
                return true;
            }
            room = left.unwrap_or(room);
            rung.push(mailbox.clone());
            false
        });
        self.sizes = sizes;
        rung
    }
}
