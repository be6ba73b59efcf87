//! The bounds of the dead-letter queue: how much of it is kept, and how it makes room for new jobs.
//!
//! Dead jobs are for inspection and must not cost other clients anything. Beyond `dead_max` or `dead_bytes_max` the oldest are
//! dropped first: those that would expire first. Dead jobs never block a push: `jobs_max` and `jobs_bytes_max` are checked
//! without them, and the oldest make room for new jobs.
//!
//! One command drops at most `page_max` dead jobs. Later commands and ticks drop the rest, which is due at once. Until then the
//! limits may be exceeded, by at most the size of the dead-letter queue.

use crate::context::Context;
use crate::engine::Engine;
use crate::refusal::{Capacity, Refusal};

/// Dead jobs dropped before their time, since the engine was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadDropped {
    /// Because the dead-letter queue was full.
    pub full: u64,
    /// Because all jobs together had reached their limit of number or bytes.
    pub made_way: u64,
}

impl DeadDropped {
    /// Both together.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.full + self.made_way
    }
}

impl Engine {
    /// Dead jobs dropped before their time, since the engine was created.
    #[must_use]
    pub const fn dead_dropped(&self) -> DeadDropped {
        self.dropped_dead
    }

    /// Whether dead jobs must be dropped, because they or all jobs together exceed a limit.
    #[must_use]
    pub fn has_dead_to_drop(&self) -> bool {
        !self.sets.dead.is_empty() && (self.is_dead_set_full() || self.is_short_of_room(0, 0))
    }

    fn is_dead_set_full(&self) -> bool {
        self.sets.dead.len() as u64 > self.limits.dead_max || self.jobs.dead_bytes() > self.limits.dead_bytes_max
    }

    /// Whether `jobs` more jobs, with `bytes` more bytes, exceed a limit.
    fn is_short_of_room(&self, jobs: u64, bytes: u64) -> bool {
        (self.jobs.len() as u64).saturating_add(jobs) > self.limits.jobs_max
            || self.bytes().saturating_add(bytes) > self.limits.jobs_bytes_max
    }

    /// Drops the oldest dead jobs while a limit is exceeded, at most one page of them.
    pub(crate) fn drop_dead(&mut self, context: &mut Context) {
        for _ in 0..self.page(u32::MAX) {
            if !self.has_dead_to_drop() {
                return;
            }
            if self.is_dead_set_full() {
                self.dropped_dead.full += 1;
            } else {
                self.dropped_dead.made_way += 1;
            }
            self.drop_oldest_dead(context);
        }
    }

    /// Whether one more job with a body of this size fits, once dead jobs have made room.
    ///
    /// # Errors
    ///
    /// There would be too many jobs or too many bytes, even without the dead ones.
    pub(crate) fn check_room_for(&self, body_bytes: usize) -> Result<(), Refusal> {
        let (held, limit) = (self.jobs.len() as u64, self.limits.jobs_max);
        if held.saturating_sub(self.sets.dead.len() as u64) >= limit {
            return Err(Capacity::Jobs.exceeded(held, limit));
        }
        self.check_bytes_for(body_bytes as u64, 0)
    }

    /// Whether `bytes` more bytes fit, once dead jobs and `less` other bytes have made room.
    ///
    /// # Errors
    ///
    /// There would be too many bytes.
    pub(crate) fn check_bytes_for(&self, bytes: u64, less: u64) -> Result<(), Refusal> {
        let (held, limit) = (self.bytes(), self.limits.jobs_bytes_max);
        let stays = held.saturating_sub(self.jobs.dead_bytes()).saturating_sub(less);
        if stays.saturating_add(bytes) > limit { Err(Capacity::JobBytes.exceeded(held, limit)) } else { Ok(()) }
    }

    /// Drops the oldest dead jobs to make room for a new job, at most one page of them. A queue that is not known may be
    /// dropped with its last job.
    pub(crate) fn make_way(&mut self, jobs: u64, bytes: u64, context: &mut Context) {
        for _ in 0..self.page(u32::MAX) {
            if self.sets.dead.is_empty() || !self.is_short_of_room(jobs, bytes) {
                return;
            }
            self.dropped_dead.made_way += 1;
            self.drop_oldest_dead(context);
        }
    }

    fn drop_oldest_dead(&mut self, context: &mut Context) {
        let Some((_, id)) = self.sets.dead.first().copied() else { return };
        let Some(slot) = self.jobs.slot(id) else { return };
        self.spend(crate::work::CHANGE);
        self.count(slot, |totals| totals.purged += 1);
        self.remove_job(slot, context);
    }
}
