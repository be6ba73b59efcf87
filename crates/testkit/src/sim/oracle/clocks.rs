//! The two clocks, and what it means that one was set.

use windlass_engine::{Clock, Timestamp};

use super::Oracle;

impl Oracle {
    /// The wall clock minus the engine's.
    pub(crate) const fn skew_ms(&self) -> i64 {
        self.dice.clock.skew_ms
    }

    pub(super) const fn wall(&self) -> Timestamp {
        self.now.shifted(self.skew_ms())
    }

    /// When a moment of the wall clock's is by the engine's.
    pub(super) const fn by_engine(&self, at: Timestamp) -> Timestamp {
        at.shifted(-self.skew_ms())
    }

    /// Whether these clocks are not what they were: one was set, or stood still.
    pub(crate) const fn is_upset(&self, clock: Clock) -> bool {
        let Clock { skew_ms, boot, ahead_ms, .. } = self.clock;
        clock.boot != boot || clock.ahead_ms != ahead_ms || clock.skew_ms.abs_diff(skew_ms) > 1_000
    }

    pub(super) fn look_at_clocks(&mut self) {
        let clock = self.dice.clock;
        if self.is_upset(clock) {
            let before = std::mem::replace(&mut self.clock, clock);
            if clock.skew_ms < before.skew_ms {
                self.rewind_schedules();
            }
        }
    }
}
