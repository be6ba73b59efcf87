//! A clock that only moves when told.

use windlass_engine::Timestamp;

/// Time as a test decides it. Never goes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JumpingClock {
    now: Timestamp,
}

impl JumpingClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub const fn new(now: Timestamp) -> Self {
        Self { now }
    }

    /// What time it is.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Moves on by `ms` milliseconds.
    pub const fn advance_ms(&mut self, ms: u64) {
        self.now = self.now.after_ms(ms);
    }

    /// Moves on to `at`; stays where it is if that is past.
    pub fn jump_to(&mut self, at: Timestamp) {
        self.now = self.now.max(at);
    }
}
