//! The clients that wait for room in memory.

use std::collections::VecDeque;

/// Mailboxes of clients with a job for which memory had no room, in the order in which they came. The list stands behind
/// the hub's lock, as all do that take room or leave some: a thread that leaves room finds all clients that wait for it.
#[derive(Debug)]
pub(crate) struct ForRoom<M> {
    waiting: VecDeque<(u64, M)>,
    sizes: Sizes,
}

/// No job that waits has fewer bytes than `least`, or more than `most`.
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

    /// Rings the mailbox when there is room for this many bytes. `is_same` recognises the mailbox of a client that waits
    /// already: it waits with one job.
    pub(crate) fn add(&mut self, bytes: u64, mailbox: &M, is_same: impl Fn(&M) -> bool) {
        self.sizes.widen(bytes);
        match self.waiting.iter_mut().find(|(_, who)| is_same(who)) {
            Some(waits) => waits.0 = bytes,
            None => self.waiting.push_back((bytes, mailbox.clone())),
        }
    }

    /// There is room for this many bytes, and never for more than `reach`. Takes out the mailboxes whose jobs fit together,
    /// and those whose jobs will never fit: the caller rings them. A job that must wait does not hold up the ones behind
    /// it.
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
