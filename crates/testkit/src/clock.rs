//! Clocks that move only on request.

use windlass_engine::{Clock, Reading, Timekeeper, Timestamp};

/// The clocks of a machine with a daemon on it, controlled by a test: clocks jump, the daemon pauses, the wall clock is
/// set, the machine reboots.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Physical time since an arbitrary moment long ago, in milliseconds.
    passed_ms: u64,
    boot: u64,
    booted_at_ms: u64,
    /// The wall clock minus the physical time.
    wall_ms: i64,
    keeper: Timekeeper,
}

impl Machine {
    /// A machine booted a while ago, with the wall clock at `wall`.
    #[must_use]
    pub fn new(wall: Timestamp) -> Self {
        const LONG_MS: u64 = 1_000_000_000;
        let keeper = Timekeeper::start(&Clock::default(), 1, LONG_MS, wall);
        let wall_ms = wall.0.cast_signed().saturating_sub_unsigned(LONG_MS);
        Self {
            passed_ms: LONG_MS,
            boot: 1,
            booted_at_ms: 0,
            wall_ms,
            keeper,
        }
    }

    /// Physical time since an arbitrary moment long ago, in milliseconds.
    #[must_use]
    pub const fn passed_ms(&self) -> u64 {
        self.passed_ms
    }

    /// The readings of the daemon's clocks.
    pub fn read(&mut self) -> Reading {
        self.keeper.read(self.since_boot_ms(), self.wall())
    }

    /// Time passes, and the daemon runs normally.
    pub fn advance_ms(&mut self, ms: u64) {
        self.passed_ms += ms;
        self.keeper.kept_reading(self.since_boot_ms());
    }

    /// Time passes until the daemon's clock shows `at`, unless that has passed.
    pub fn advance_to(&mut self, at: Timestamp) {
        // The daemon may pause for a moment first.
        for _ in 0..3 {
            let left_ms = at.ms_since(self.read().now);
            self.advance_ms(left_ms);
        }
    }

    /// Time passes while the daemon is paused.
    pub const fn pause_ms(&mut self, ms: u64) {
        self.passed_ms += ms;
    }

    /// Sets the wall clock.
    pub const fn step_wall_ms(&mut self, ms: i64) {
        self.wall_ms = self.wall_ms.saturating_add(ms);
    }

    /// Reboots the machine; the daemon is not running.
    pub const fn boot(&mut self) {
        self.boot += 1;
        self.booted_at_ms = self.passed_ms;
    }

    /// Starts the daemon with the clock in its journal.
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
