//! Limits the number of queue names: an unused queue is removed for a new one, least recently used
//! first.
//!
//! A name belongs to the protocol of the client that created the queue; names created by operators
//! belong to no protocol. Each protocol has a reserved share of the names. When the rest is used
//! up, protocols above their share lose queues, or cannot create new ones.
//!
//! A queue is used when a job enters a state in it, and when a client names it to take jobs. Queues
//! are examined only when the limit is reached, many at a time.

use std::collections::{BTreeMap, VecDeque};

use super::queue::Queue;
use super::table::Queues;
use crate::ids::{Priority, Protocol, QueueId};
use crate::refusal::{Capacity, Outcome};
use crate::request::QueueKind;

/// This fraction of the names is reserved for each protocol. With small limits no names are
/// reserved.
const OWN_SHARE: usize = 64;

/// The fraction of all queues that is selected per search.
const FOUND_SHARE: usize = 16;

/// The operator is warned when this many tenths of the names are in use.
const WARN_TENTHS: usize = 9;

/// The use counter, and the queues that may be removed.
#[derive(Debug, Default)]
pub(super) struct Uses {
    count: u64,
    /// Number of names by the protocol that created them.
    made: BTreeMap<Protocol, usize>,
    /// `count` at the start of the command. Queues used since then must not be removed, because a
    /// caller may have the IDs.
    begun: u64,
    /// Unused queues, with the last use when they were found, least recently used first.
    found: VecDeque<(u64, QueueId)>,
    /// The value of `count` from which all queues may be examined again.
    look_at: u64,
    forgotten: u64,
    is_nearly_full: bool,
}

/// The limits for a new name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// The protocol of the client that creates it.
    pub(super) maker: Option<Protocol>,
    /// Maximum number of names.
    pub(super) names: usize,
    /// Maximum bytes of names and clients before it is added.
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
    /// Returns true if a removal would lose only counters.
    fn is_unused(&self) -> bool {
        let image = self.image();
        let is_plain = image.paused.is_empty() && image.jobs_max == [None; Priority::COUNT];
        image.kind == QueueKind::Work && is_plain && self.is_idle()
    }
}

impl Queues {
    /// Called at the start of a command or of due work.
    pub(crate) const fn begin(&mut self) {
        self.uses.begun = self.uses.count;
    }

    /// The number of queues removed so far to make space for new ones.
    pub(crate) const fn forgotten(&self) -> u64 {
        self.uses.forgotten
    }

    /// Marks all queues as unused.
    pub(crate) fn forget_uses(&mut self) {
        self.uses = Uses {
            made: std::mem::take(&mut self.uses.made),
            ..Uses::default()
        };
        for queue in self.by_id.iter_mut().flatten() {
            queue.used = 0;
        }
    }

    /// Returns true if most names have been used up since the last call.
    pub(crate) const fn take_nearly_full(&mut self) -> bool {
        std::mem::replace(&mut self.uses.is_nearly_full, false)
    }

    /// Updates the counts for a name that was added or removed.
    pub(super) fn count_name(&mut self, maker: Option<Protocol>, is_there: bool) {
        let Some(maker) = maker else { return };
        let made = self.uses.made.entry(maker).or_default();
        *made = if is_there {
            *made + 1
        } else {
            made.saturating_sub(1)
        };
    }

    /// Asserts the sum of names.
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

    /// Records that a queue was created.
    pub(super) const fn note_made(&mut self, len: usize, limit: usize) {
        self.uses.is_nearly_full |= len == limit.saturating_mul(WARN_TENTHS) / 10 + 1;
    }

    /// Returns true if a protocol may have another name without those reserved for other protocols.
    fn has_name_for(
        &self,
        Room {
            maker,
            names: limit,
            ..
        }: Room,
    ) -> bool {
        // Names of operators and imports are counted first.
        let others = Protocol::ALL
            .into_iter()
            .map(|row| row.id)
            .filter(|other| maker.is_some_and(|maker| maker != *other));
        let kept: usize = others
            .map(|other| (limit / OWN_SHARE).saturating_sub(self.made_by(other)))
            .sum();
        self.len() + kept < limit
    }

    /// Returns true if there is memory for a new name. Operators' names, which are few, are always
    /// allowed.
    fn has_bytes_for(&self, room: Room) -> bool {
        room.maker.is_none() || self.held.bytes() <= room.bytes
    }

    fn made_by(&self, maker: Protocol) -> usize {
        self.uses.made.get(&maker).copied().unwrap_or_default()
    }

    /// Returns true if the creator of a queue exceeds the share, so that the queue may be removed.
    fn is_above_share(&self, queue: &Queue, limit: usize) -> bool {
        queue
            .maker
            .is_none_or(|maker| self.made_by(maker) > limit / OWN_SHARE)
    }

    /// Removes unused queues until there is space for a new one.
    ///
    /// # Errors
    ///
    /// The protocol has no names left, or there is no memory for it.
    pub(super) fn make_room(&mut self, room: Room) -> Outcome {
        loop {
            let has_name = self.has_name_for(room);
            if has_name && self.has_bytes_for(room) {
                return Ok(());
            }
            // Shares apply to names. Memory is common to all protocols.
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

    /// Removes the first selected queue that is still unused. Returns `true` if there was one.
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

    /// Examines all queues. A search is used by many later calls, so the cost is not included in
    /// the cost of the visit.
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
