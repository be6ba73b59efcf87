//! The two clocks, and the part of them that is journalled.
//!
//! The engine's time is monotonic: it counts elapsed time, continues over restarts, and ignores changes of
//! the wall clock. Leases, heartbeats, waits, backoffs and all other durations use it. Calendar times
//! (`not_before`, [`Expiry::At`](crate::Expiry::At), cron) use the wall clock, and so do all times shown to
//! clients. The skew is the difference between the two.

use serde::{Deserialize, Serialize};

use crate::ids::Timestamp;

/// A difference in skew up to this is ignored, because two clocks are not read at the same moment and are
/// rounded differently.
const JITTER_MS: u64 = 5;

/// A difference in skew beyond this is a step: it is journalled, and calendar times are checked
/// again.
const STEP_MS: u64 = 1_000;

/// The relation of the engine's time to other clocks. All zero means that both clocks agree, which is the
/// default for a journal without clock data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Clock {
    /// The wall clock minus the engine's time, in milliseconds.
    pub skew_ms: i64,
    /// The boot of the machine to which `ahead_ms` applies; 0 = unknown.
    pub boot: u64,
    /// The engine's time minus the time since that boot, in milliseconds.
    pub ahead_ms: i64,
    /// The engine's time when this was recorded, so a lower bound of the time now.
    pub at: Timestamp,
}

impl Clock {
    /// A wall clock that is ahead of the engine's time by `skew_ms`.
    pub const fn skewed(skew_ms: i64) -> Self {
        Self {
            skew_ms,
            boot: 0,
            ahead_ms: 0,
            at: Timestamp(0),
        }
    }

    /// Returns true if the journal must record this change.
    pub(crate) const fn differs(&self, other: &Self) -> bool {
        self.boot != other.boot
            || self.ahead_ms != other.ahead_ms
            || self.skew_ms.abs_diff(other.skew_ms) > STEP_MS
    }
}

/// The longest interval at which the daemon reads the clock, in milliseconds
/// ([`Timekeeper::read`]).
pub const TICK_MS: u64 = 1_000;

/// A reading that is late by more than this is a pause.
const LATE_MS: u64 = 2_000;

/// How long the engine's time is frozen after a pause, so that the daemon first reads the data in sockets.
const SETTLE_MS: u64 = 1_000;

/// Computes the engine's time from the machine's clocks: the time since boot, including the machine's sleep,
/// minus the pauses in which the daemon was suspended.
///
/// Pure: the caller reads the clocks, at least every [`TICK_MS`].
#[derive(Clone, Debug)]
pub struct Timekeeper {
    boot: u64,
    ahead_ms: i64,
    /// The time since boot at the last reading.
    read_ms: u64,
    /// The engine's time at the last reading.
    now: Timestamp,
    /// The skew. Updated only if it differs by more than [`JITTER_MS`].
    skew_ms: i64,
}

/// A reading of the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Reading {
    /// The engine's time.
    pub now: Timestamp,
    /// The relation of other clocks to it.
    pub clock: Clock,
    /// The pause that has just been detected, if any, in milliseconds.
    pub pause_ms: Option<u64>,
}

impl Reading {
    /// The wall clock.
    pub const fn wall(&self) -> Timestamp {
        self.now.shifted(self.clock.skew_ms)
    }

    /// Returns true if a context with this time and these clocks is from a later reading. Only a pause lowers
    /// `ahead_ms`, and the time is frozen after a pause, so that equal times may be from before and after it.
    pub const fn is_older_than(&self, now: Timestamp, clock: &Clock) -> bool {
        let same_boot = self.clock.boot == clock.boot && clock.boot != 0;
        self.now.0 < now.0 || same_boot && self.clock.ahead_ms > clock.ahead_ms
    }
}

impl Timekeeper {
    /// Continues from the clock in the journal. `boot` identifies this boot of the machine (0: unknown),
    /// `since_boot_ms` is the time since then. In the same boot the time continues exactly; after another
    /// boot the wall clock gives the elapsed time.
    pub fn start(kept: &Clock, boot: u64, since_boot_ms: u64, wall: Timestamp) -> Self {
        let same_boot = boot != 0 && kept.boot == boot;
        let exact = Timestamp(since_boot_ms).shifted(kept.ahead_ms);
        let by_wall = wall.shifted(kept.skew_ms.saturating_neg());
        let now = if same_boot { exact } else { by_wall }.max(kept.at);
        Self {
            boot,
            ahead_ms: difference(now.0, since_boot_ms),
            read_ms: since_boot_ms,
            now,
            skew_ms: kept.skew_ms,
        }
    }

    /// Reads the time, given the time since boot and the wall clock.
    pub fn read(&mut self, since_boot_ms: u64, wall: Timestamp) -> Reading {
        let passed_ms = since_boot_ms.saturating_sub(self.read_ms);
        let pause_ms = Some(passed_ms).filter(|passed_ms| *passed_ms > TICK_MS + LATE_MS);
        if let Some(pause_ms) = pause_ms {
            self.ahead_ms = self.ahead_ms.saturating_sub_unsigned(pause_ms);
            self.settle();
        }
        self.kept_reading(since_boot_ms);
        self.now = self.now.max(Timestamp(self.read_ms).shifted(self.ahead_ms));
        let skew_ms = difference(wall.0, self.now.0);
        if skew_ms.abs_diff(self.skew_ms) > JITTER_MS {
            self.skew_ms = skew_ms;
        }
        let clock = Clock {
            skew_ms: self.skew_ms,
            boot: self.boot,
            ahead_ms: self.ahead_ms,
            at: self.now,
        };
        Reading {
            now: self.now,
            clock,
            pause_ms,
        }
    }

    /// Reads the clock while the daemon may not act. The time is frozen since the last reading.
    pub fn stand_still(&mut self, since_boot_ms: u64) {
        let passed_ms = since_boot_ms.saturating_sub(self.read_ms);
        self.ahead_ms = self.ahead_ms.saturating_sub_unsigned(passed_ms);
        self.kept_reading(since_boot_ms);
    }

    /// Starts the time again, after a delay in which the daemon reads the data in sockets.
    pub fn settle(&mut self) {
        self.ahead_ms = self.ahead_ms.saturating_sub_unsigned(SETTLE_MS);
    }

    /// Declares that the clock was read continuously until then, so that the elapsed time is not a pause. For
    /// simulated clocks that jump.
    pub fn kept_reading(&mut self, since_boot_ms: u64) {
        self.read_ms = self.read_ms.max(since_boot_ms);
    }
}

fn difference(one: u64, other: u64) -> i64 {
    i64::try_from(i128::from(one) - i128::from(other)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: Timestamp = Timestamp(1_700_000_000_000);

    fn keeper() -> Timekeeper {
        Timekeeper::start(&Clock::default(), 7, 50_000, WALL)
    }

    #[test]
    fn a_first_start_takes_the_wall_clock_s_time() {
        let reading = keeper().read(50_010, WALL.after_ms(10));
        assert_eq!(
            (reading.now, reading.clock.skew_ms, reading.pause_ms),
            (WALL.after_ms(10), 0, None)
        );
    }

    #[test]
    fn a_step_of_the_wall_clock_moves_the_skew_and_nothing_else() {
        for step in [-3_600_000, 3_600_000] {
            let reading = keeper().read(50_010, WALL.after_ms(10).shifted(step));
            assert_eq!(
                (reading.now, reading.clock.skew_ms),
                (WALL.after_ms(10), step)
            );
        }
    }

    #[test]
    fn a_small_change_of_the_skew_is_ignored() {
        for (change, skew_ms) in [(5, 0), (6, 6), (-5, 0), (-6, -6)] {
            let reading = keeper().read(50_010, WALL.after_ms(10).shifted(change));
            assert_eq!(reading.clock.skew_ms, skew_ms, "{change}");
        }
    }

    #[test]
    fn the_journal_records_a_change_of_the_skew_beyond_a_second() {
        let before = Clock::skewed(500);
        for (skew_ms, differs) in [
            (500, false),
            (1_500, false),
            (1_501, true),
            (-500, false),
            (-501, true),
        ] {
            assert_eq!(
                Clock::skewed(skew_ms).differs(&before),
                differs,
                "{skew_ms}"
            );
        }
    }

    #[test]
    fn a_pause_does_not_count_and_neither_does_the_moment_after_it() {
        let mut keeper = keeper();
        let at = |keeper: &mut Timekeeper, ms| {
            let reading = keeper.read(50_000 + ms, WALL.after_ms(ms));
            (
                reading.now.ms_since(WALL),
                reading.clock.skew_ms,
                reading.pause_ms,
            )
        };
        assert_eq!(at(&mut keeper, 500), (500, 0, None));
        assert_eq!(
            at(&mut keeper, 3_500),
            (3_500, 0, None),
            "late, but not so late"
        );
        assert_eq!(at(&mut keeper, 13_500), (3_500, 10_000, Some(10_000)));
        assert_eq!(
            at(&mut keeper, 14_400),
            (3_500, 10_900, None),
            "it stands still for a moment"
        );
        assert_eq!(
            at(&mut keeper, 14_600),
            (3_600, 11_000, None),
            "and goes on"
        );
        assert_eq!(
            at(&mut keeper, 14_000),
            (3_600, 10_400, None),
            "and never back"
        );
    }

    /// As for a leader with an uncertain lease.
    #[test]
    fn time_in_which_the_daemon_may_not_act_does_not_count() {
        let mut keeper = keeper();
        keeper.read(50_500, WALL.after_ms(500));
        for second in 1..=90 {
            let ms = 500 + second * 1_000;
            keeper.stand_still(50_000 + ms);
            let reading = keeper.read(50_000 + ms, WALL.after_ms(ms));
            assert_eq!(
                (reading.now, reading.pause_ms),
                (WALL.after_ms(500), None),
                "{second}"
            );
        }
        keeper.settle();
        let after = |keeper: &mut Timekeeper, ms| {
            keeper
                .read(50_000 + ms, WALL.after_ms(ms))
                .now
                .ms_since(WALL)
        };
        assert_eq!(
            [91_400, 91_600, 93_500].map(|ms| after(&mut keeper, ms)),
            [500, 600, 2_500]
        );
    }

    #[test]
    fn a_reading_from_before_a_pause_is_older_at_the_same_time() {
        let mut keeper = keeper();
        let before = keeper.read(50_500, WALL.after_ms(500));
        let after = keeper.read(63_500, WALL.after_ms(13_500));
        assert_eq!(before.now, after.now);
        assert!(before.is_older_than(after.now, &after.clock));
        assert!(
            !after.is_older_than(before.now, &before.clock)
                && !after.is_older_than(after.now, &after.clock)
        );
        assert!(before.is_older_than(before.now.after_ms(1), &before.clock));
    }

    #[test]
    fn a_restart_right_after_a_pause_does_not_take_the_time_back() {
        let mut before = keeper();
        before.read(50_500, WALL.after_ms(500));
        let kept = before.read(63_500, WALL.after_ms(13_500)).clock;
        let (since_boot_ms, wall) = (64_000, WALL.after_ms(14_000));
        let mut after = Timekeeper::start(&kept, 7, since_boot_ms, wall);
        assert_eq!(
            after.read(since_boot_ms, wall).now,
            WALL.after_ms(500),
            "the time noted with the pause"
        );
    }

    #[test]
    fn the_engines_time_continues_over_a_restart() {
        let mut before = keeper();
        before.read(52_000, WALL.after_ms(2_000));
        let kept = before.read(70_000, WALL.after_ms(20_000)).clock;
        assert_eq!(kept.skew_ms, 18_000, "after a pause");
        let table = [
            ("same boot", 7, 80_000, WALL.after_ms(30_000), 11_000),
            (
                "same boot, and the wall clock was set meanwhile",
                7,
                80_000,
                WALL.shifted(-3_600_000),
                11_000,
            ),
            ("another boot", 8, 5_000, WALL.after_ms(30_000), 12_000),
            (
                "another boot, by a clock that is far behind",
                8,
                5_000,
                Timestamp(0),
                2_000,
            ),
            (
                "no boot has a name",
                0,
                80_000,
                WALL.after_ms(30_000),
                12_000,
            ),
        ];
        for (name, boot, since_boot_ms, wall, expected) in table {
            let mut after = Timekeeper::start(&kept, boot, since_boot_ms, wall);
            assert_eq!(
                after.read(since_boot_ms, wall).now,
                WALL.after_ms(expected),
                "{name}"
            );
        }
    }
}
