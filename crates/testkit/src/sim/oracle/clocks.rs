//! The two clocks, and the consequences of setting one.

use std::collections::BTreeMap;

use windlass_engine::{Clock, DAYS_KEPT, Reply, Timestamp, Totals};

use super::{Answer, Oracle};

impl Oracle {
    /// The wall clock minus the engine's.
    pub(crate) const fn skew_ms(&self) -> i64 {
        self.turn.1.skew_ms
    }

    pub(super) const fn wall(&self) -> Timestamp {
        self.now.shifted(self.skew_ms())
    }

    /// Converts a time of the wall clock to the engine's.
    pub(super) const fn by_engine(&self, at: Timestamp) -> Timestamp {
        at.shifted(-self.skew_ms())
    }

    /// Whether the clocks have diverged: one was set, or paused.
    pub(crate) const fn is_upset(&self, clock: Clock) -> bool {
        let Clock {
            skew_ms,
            boot,
            ahead_ms,
            ..
        } = self.clock;
        clock.boot != boot || clock.ahead_ms != ahead_ms || clock.skew_ms.abs_diff(skew_ms) > 1_000
    }

    pub(super) fn look_at_clocks(&mut self) {
        let clock = self.turn.1;
        if self.is_upset(clock) {
            let before = std::mem::replace(&mut self.clock, clock);
            if clock.skew_ms < before.skew_ms {
                self.rewind_schedules();
            }
        }
    }

    pub(super) fn look_at_day(&mut self) {
        let day = self.wall().0 / 86_400_000;
        if self.days.last().is_none_or(|(last, _)| *last != day) {
            self.days.push((day, Totals::default()));
        }
        if self.days.len() as u64 > DAYS_KEPT {
            self.days.remove(0);
        }
    }

    pub(super) fn count_days(&mut self) -> Answer {
        let mut days = BTreeMap::<u64, Totals>::new();
        for (day, counted) in &self.days {
            let sum = days.entry(*day).or_default();
            *sum = sum.merged(counted, |one, other| one + other);
        }
        Ok(Some(Reply::Days(days)))
    }
}
