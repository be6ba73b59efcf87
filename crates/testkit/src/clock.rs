//! Clocks that only move when told.

use windlass_engine::{Clock, Reading, Timekeeper, Timestamp};

/// The clocks of a machine with a daemon on it, as a test decides them: they jump, the daemon stands still, somebody sets
/// the wall clock, the machine is booted again.
#[derive(Clone, Debug)]
pub struct Machine {
    /// What has really passed since some time long ago, in milliseconds.
    passed_ms: u64,
    boot: u64,
    booted_at_ms: u64,
    /// The wall clock minus what has really passed.
    wall_ms: i64,
    keeper: Timekeeper,
}

impl Machine {
    /// A machine booted a while ago, with a wall clock that shows `wall`.
    #[must_use]
    pub fn new(wall: Timestamp) -> Self {
        const LONG_MS: u64 = 1_000_000_000;
        let keeper = Timekeeper::start(&Clock::default(), 1, LONG_MS, wall);
        let wall_ms = wall.0.cast_signed().saturating_sub_unsigned(LONG_MS);
        Self { passed_ms: LONG_MS, boot: 1, booted_at_ms: 0, wall_ms, keeper }
    }

    /// What has really passed since some time long ago, in milliseconds.
    #[must_use]
    pub const fn passed_ms(&self) -> u64 {
        self.passed_ms
    }

    /// What the daemon's clocks show.
    pub fn read(&mut self) -> Reading {
        self.keeper.read(self.since_boot_ms(), self.wall())
    }

    /// Time passes, and the daemon does what it always does.
    pub fn advance_ms(&mut self, ms: u64) {
        self.passed_ms += ms;
        self.keeper.kept_reading(self.since_boot_ms());
    }

    /// Time passes until the daemon's clock shows `at`, if that is not over.
    pub fn advance_to(&mut self, at: Timestamp) {
        // It may stand still for a moment first.
        for _ in 0..3 {
            let left_ms = at.ms_since(self.read().now);
            self.advance_ms(left_ms);
        }
    }

    /// Time passes, and the daemon stands still.
    pub const fn pause_ms(&mut self, ms: u64) {
        self.passed_ms += ms;
    }

    /// Somebody sets the wall clock.
    pub const fn step_wall_ms(&mut self, ms: i64) {
        self.wall_ms = self.wall_ms.saturating_add(ms);
    }

    /// The machine is booted; the daemon is not running.
    pub const fn boot(&mut self) {
        self.boot += 1;
        self.booted_at_ms = self.passed_ms;
    }

    /// The daemon starts from what its journal keeps.
    pub fn start(&mut self, kept: &Clock) {
        self.keeper = Timekeeper::start(kept, self.boot, self.since_boot_ms(), self.wall());
    }

    const fn since_boot_ms(&self) -> u64 {
        self.passed_ms - self.booted_at_ms
    }

    const fn wall(&self) -> Timestamp {
        Timestamp(self.passed_ms.saturating_add_signed(self.wall_ms))
    }
}
