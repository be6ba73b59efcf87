//! Room for the names of queues: a queue that only its name keeps gives way to a new one, the one unused for longest first.
//!
//! A name belongs to the protocol whose client made the queue; operators' names belong to none. Each protocol has a
//! share of the names that no other can take. Once the rest is gone, protocols above their share lose queues, or are
//! refused new ones.
//!
//! A queue is used when a job enters a state there, and when a client names it to take jobs. Whether a queue is in use is
//! looked at only when there is no room, for many queues at once.

use std::collections::{BTreeMap, VecDeque};

use super::queue::Queue;
use super::table::Queues;
use crate::ids::{Priority, Protocol, QueueId};
use crate::refusal::{Capacity, Outcome};
use crate::request::QueueKind;

/// Each protocol has this share of the names for itself. Small limits leave it none.
const OWN_SHARE: usize = 64;

/// How many queues are found at once: this share of all.
const FOUND_SHARE: usize = 16;

/// The operator is warned when this many of ten names are in use.
const WARN_TENTHS: usize = 9;

/// The uses of queues so far, and the queues that may give way.
#[derive(Debug, Default)]
pub(super) struct Uses {
    count: u64,
    /// Names by the protocols that have made them.
    made: BTreeMap<Protocol, usize>,
    /// `count` at the beginning of the command: a queue used since then has a caller that knows its number.
    begun: u64,
    /// Unused queues, with their last use at the time when they were found, the longest unused first.
    found: VecDeque<(u64, QueueId)>,
    /// At this count all queues may be looked at again.
    look_at: u64,
    forgotten: u64,
    is_nearly_full: bool,
}

/// The room for a new name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// The protocol whose client makes it.
    pub(super) maker: Option<Protocol>,
    /// The most names.
    pub(super) names: usize,
    /// The most bytes of names and clients before it comes.
    pub(super) bytes: u64,
}

impl Uses {
    pub(super) const fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    pub(super) const fn last(&self) -> u64 {
        self.count
    }
}

impl Queue {
    /// Whether only its name keeps it: nothing but its counters would be lost.
    fn is_unused(&self) -> bool {
        let image = self.image();
        let is_plain = image.paused.is_empty() && image.jobs_max == [None; Priority::COUNT];
        image.kind == QueueKind::Work && is_plain && self.is_idle()
    }
}

impl Queues {
    /// A command begins, or something is due.
    pub(crate) const fn begin(&mut self) {
        self.uses.begun = self.uses.count;
    }

    /// Queues forgotten so far to make room for others.
    pub(crate) const fn forgotten(&self) -> u64 {
        self.uses.forgotten
    }

    /// All queues have been unused until now.
    pub(crate) fn forget_uses(&mut self) {
        self.uses = Uses {
            made: std::mem::take(&mut self.uses.made),
            ..Uses::default()
        };
        for queue in self.by_id.iter_mut().flatten() {
            queue.used = 0;
        }
    }

    /// Whether most names have come into use since the last call.
    pub(crate) const fn take_nearly_full(&mut self) -> bool {
        std::mem::replace(&mut self.uses.is_nearly_full, false)
    }

    /// A queue is there, or gone.
    pub(super) fn count_name(&mut self, maker: Option<Protocol>, is_there: bool) {
        let Some(maker) = maker else { return };
        let made = self.uses.made.entry(maker).or_default();
        *made = if is_there {
            *made + 1
        } else {
            made.saturating_sub(1)
        };
    }

    /// Asserts that names are counted.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn check_names(&self) {
        for maker in Protocol::ALL.map(|row| row.id) {
            let made = self
                .iter()
                .filter(|queue| queue.maker == Some(maker))
                .count();
            assert_eq!(made, self.made_by(maker), "names that {maker:?} has made");
        }
    }

    /// A queue has been made.
    pub(super) const fn note_made(&mut self, len: usize, limit: usize) {
        self.uses.is_nearly_full |= len == limit.saturating_mul(WARN_TENTHS) / 10 + 1;
    }

    /// Whether a protocol may have one more name without those that are kept for others.
    fn has_name_for(
        &self,
        Room {
            maker,
            names: limit,
            ..
        }: Room,
    ) -> bool {
        // Operators' names, and those of imports, come before all.
        let others = Protocol::ALL
            .into_iter()
            .map(|row| row.id)
            .filter(|other| maker.is_some_and(|maker| maker != *other));
        let kept: usize = others
            .map(|other| (limit / OWN_SHARE).saturating_sub(self.made_by(other)))
            .sum();
        self.len() + kept < limit
    }

    /// Whether there is memory for a new name. Operators' names, which are few, need no room.
    fn has_bytes_for(&self, room: Room) -> bool {
        room.maker.is_none() || self.held.bytes() <= room.bytes
    }

    fn made_by(&self, maker: Protocol) -> usize {
        self.uses.made.get(&maker).copied().unwrap_or_default()
    }

    /// Whether the maker of a queue has more than its share, so that the queue may give way.
    fn is_above_share(&self, queue: &Queue, limit: usize) -> bool {
        queue
            .maker
            .is_none_or(|maker| self.made_by(maker) > limit / OWN_SHARE)
    }

    /// Forgets unused queues while there is no room for a new one.
    ///
    /// # Errors
    ///
    /// The protocol has no name left, or memory has no room for it.
    pub(super) fn make_room(&mut self, room: Room) -> Outcome {
        loop {
            let has_name = self.has_name_for(room);
            if has_name && self.has_bytes_for(room) {
                return Ok(());
            }
            // Shares are of names. Memory is the same for all protocols.
            let limit = if has_name { 0 } else { room.names };
            if self.forget_found(limit) {
                continue;
            }
            if self.uses.count >= self.uses.look_at {
                self.find_unused(limit);
            }
            if self.uses.found.is_empty() {
                return Err(match has_name {
                    false => Capacity::Queues.exceeded(self.len() as u64, room.names as u64),
                    true => Capacity::JobBytes.exceeded(self.held.bytes(), room.bytes),
                });
            }
        }
    }

    /// Forgets the first of the queues found that is unused still. Returns whether there was one.
    fn forget_found(&mut self, limit: usize) -> bool {
        while let Some((used, id)) = self.uses.found.pop_front() {
            let is_free = |queue: &Queue| {
                queue.used == used && queue.is_unused() && self.is_above_share(queue, limit)
            };
            if self.at(id).is_some_and(is_free) {
                self.forget(id);
                self.uses.forgotten += 1;
                return true;
            }
        }
        false
    }

    /// Looks at all queues. One look serves many uses, so its cost does not count.
    fn find_unused(&mut self, limit: usize) {
        let is_free = |queue: &&Queue| {
            queue.used <= self.uses.begun && queue.is_unused() && self.is_above_share(queue, limit)
        };
        let mut found: Vec<_> = self
            .iter()
            .filter(is_free)
            .map(|queue| (queue.used, queue.image().id))
            .collect();
        found.sort_unstable();
        let many = self.len() / FOUND_SHARE;
        found.truncate(many + 1);
        self.uses.look_at = self.uses.count + many as u64;
        self.uses.found = found.into();
    }
}
