//! The bounds of the dead set: how much of it is kept, and that it makes way for whatever is new.
//!
//! Dead jobs are for people to look at, and must cost nobody else anything. Whatever is beyond `dead_max` or
//! `dead_bytes_max` leaves, the oldest first: the job that would be forgotten first by time. The dead never keep anybody
//! from pushing: `jobs_max` and `jobs_bytes_max` are judged without them, and the oldest leave for what comes in.
//!
//! One command drops no more than `page_max` of them. The rest goes with the commands and ticks that follow, and is due at
//! once; until then there may be more than the limits say, by what the dead set holds.

use crate::engine::Engine;
use crate::event::Refusal;
use crate::turn::Turn;

/// Dead jobs that were dropped before their time, since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadDropped {
    /// Because the dead set was full.
    pub full: u64,
    /// Because all jobs together were as many, or as large, as they may be.
    pub made_way: u64,
}

impl DeadDropped {
    /// All of them.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.full + self.made_way
    }
}

impl Engine {
    /// Dead jobs that were dropped before their time, since the engine was made.
    #[must_use]
    pub const fn dead_dropped(&self) -> DeadDropped {
        self.dropped_dead
    }

    /// Whether dead jobs are to leave, because there are too many of them or too much of everything.
    #[must_use]
    pub fn has_dead_to_drop(&self) -> bool {
        !self.sets.dead.is_empty() && (self.is_dead_set_full() || self.is_short_of_room(0, 0))
    }

    fn is_dead_set_full(&self) -> bool {
        self.sets.dead.len() as u64 > self.limits.dead_max || self.jobs.dead_bytes() > self.limits.dead_bytes_max
    }

    /// Whether so many jobs more, and so many bytes, are more than there may be.
    fn is_short_of_room(&self, jobs: u64, bytes: u64) -> bool {
        (self.jobs.len() as u64).saturating_add(jobs) > self.limits.jobs_max
            || self.bytes().saturating_add(bytes) > self.limits.jobs_bytes_max
    }

    /// Drops the oldest dead jobs while there is more than there may be, one page of them at most.
    pub(crate) fn drop_dead(&mut self, turn: &mut Turn) {
        for _ in 0..self.page(u32::MAX) {
            if !self.has_dead_to_drop() {
                return;
            }
            if self.is_dead_set_full() {
                self.dropped_dead.full += 1;
            } else {
                self.dropped_dead.made_way += 1;
            }
            self.drop_oldest_dead(turn);
        }
    }

    /// Whether one job more, with a body of so many bytes, may be taken in once the dead have made way.
    ///
    /// # Errors
    ///
    /// There would be too many jobs, or too many bytes of them, without any dead one.
    pub(crate) fn check_room_for(&self, body_bytes: usize) -> Result<(), Refusal> {
        let (held, limit) = (self.jobs.len() as u64, self.limits.jobs_max);
        if held.saturating_sub(self.sets.dead.len() as u64) >= limit {
            return Err(Refusal::JobsFull { held, limit });
        }
        self.check_bytes_for(body_bytes as u64, 0)
    }

    /// Whether so many bytes more may be taken in once the dead, and so many other bytes, have made way.
    ///
    /// # Errors
    ///
    /// There would be too many.
    pub(crate) fn check_bytes_for(&self, bytes: u64, less: u64) -> Result<(), Refusal> {
        let (held, limit) = (self.bytes(), self.limits.jobs_bytes_max);
        let stays = held.saturating_sub(self.jobs.dead_bytes()).saturating_sub(less);
        if stays.saturating_add(bytes) > limit { Err(Refusal::BytesFull { held, limit }) } else { Ok(()) }
    }

    /// Something is about to be taken in: the oldest dead jobs make way, one page of them at most. A queue without a name of
    /// its own may go with its last job.
    pub(crate) fn make_way(&mut self, jobs: u64, bytes: u64, turn: &mut Turn) {
        for _ in 0..self.page(u32::MAX) {
            if self.sets.dead.is_empty() || !self.is_short_of_room(jobs, bytes) {
                return;
            }
            self.dropped_dead.made_way += 1;
            self.drop_oldest_dead(turn);
        }
    }

    fn drop_oldest_dead(&mut self, turn: &mut Turn) {
        let Some((_, id)) = self.sets.dead.first().copied() else { return };
        let Some(slot) = self.jobs.slot(id) else { return };
        self.spend(crate::work::CHANGE);
        self.count(slot, |totals| totals.purged += 1);
        self.remove_job(slot, turn);
    }
}
