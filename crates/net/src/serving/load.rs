//! How busy a thread is, and how many commands its turns have.

use std::time::{Duration, Instant};

/// The period of observation before each decision.
const WINDOW: Duration = Duration::from_millis(10);

/// Average number of commands of one connection per turn: from the first value on a turn is deep,
/// below the second it is shallow.
const DEEP: u64 = 8;
const SHALLOW: u64 = 3;

/// A thread is busy if it waits for less than this fraction of the time.
const BUSY_PART: u32 = 8;

/// Consecutive windows that must agree before connections move.
const AGREE: u32 = 3;

/// The common result of the last windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The thread has no spare time, and turns are deep.
    Full,
    /// Turns are shallow, or the thread is mostly idle.
    Light,
    /// Neither, or not for long enough.
    Other,
}

/// The activity of a thread in this window.
#[derive(Debug)]
pub(super) struct Load {
    since: Instant,
    waited: Duration,
    batches: u64,
    commands: u64,
    last: Kind,
    /// Consecutive windows with that result.
    times: u32,
}

impl Load {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            since: now,
            waited: Duration::ZERO,
            batches: 0,
            commands: 0,
            last: Kind::Other,
            times: 0,
        }
    }

    /// Makes the next decision return this.
    #[cfg(test)]
    pub(super) fn after(now: Instant, kind: Kind) -> Self {
        // A test may be delayed in between.
        let windows = 1_000;
        let (waited, commands) = match kind {
            Kind::Light => (WINDOW * windows, 0),
            Kind::Other => (Duration::ZERO, SHALLOW),
            Kind::Full => (Duration::ZERO, DEEP),
        };
        let since = now.checked_sub(WINDOW * windows).unwrap_or(now);
        Self {
            waited,
            batches: 1 << 20,
            commands: commands << 20,
            last: kind,
            times: AGREE,
            ..Self::new(since)
        }
    }

    pub(super) fn add_wait(&mut self, waited: Duration) {
        self.waited += waited;
    }

    /// Records that a connection has this many commands in this turn.
    pub(super) const fn add_batch(&mut self, commands: usize) {
        self.batches += 1;
        self.commands += commands as u64;
    }

    /// Returns the result at the end of a window.
    pub(super) fn look(&mut self, now: Instant) -> Option<Kind> {
        let passed = now - self.since;
        if passed < WINDOW {
            return None;
        }
        let kind = if self.commands < self.batches * SHALLOW || self.waited > passed / 2 {
            Kind::Light
        } else if self.commands >= self.batches * DEEP && self.waited < passed / BUSY_PART {
            Kind::Full
        } else {
            Kind::Other
        };
        let times = if kind == self.last { self.times + 1 } else { 1 };
        *self = Self {
            last: kind,
            times,
            ..Self::new(now)
        };
        Some(if times >= AGREE { kind } else { Kind::Other })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows in which the thread waits for `waited` fortieths of the time, and has `commands` per
    /// connection and turn.
    fn looks(
        load: &mut Load,
        now: &mut Instant,
        windows: u32,
        waited: u32,
        commands: usize,
    ) -> Vec<Kind> {
        let mut look = |_| {
            load.add_wait(WINDOW * waited / 40);
            (0..10).for_each(|_| load.add_batch(commands));
            assert_eq!(load.look(*now + WINDOW / 2), None, "in the window");
            *now += WINDOW;
            load.look(*now).unwrap()
        };
        (0..windows).map(&mut look).collect()
    }

    #[test]
    fn a_thread_is_full_if_it_has_no_time_left_and_its_turns_are_deep() {
        let table = [
            (0, 8, Kind::Full),
            (4, 100, Kind::Full),
            (0, 7, Kind::Other),
            (5, 100, Kind::Other),
            (0, 3, Kind::Other),
            (0, 2, Kind::Light),
            (20, 100, Kind::Other),
            (21, 100, Kind::Light),
            (40, 0, Kind::Light),
        ];
        for (waited, commands, expected) in table {
            let mut now = Instant::now();
            let mut load = Load::new(now);
            let shown = looks(&mut load, &mut now, AGREE, waited, commands);
            let before = vec![Kind::Other; AGREE as usize - 1];
            assert_eq!(
                shown,
                [before, vec![expected]].concat(),
                "{waited} {commands}"
            );
        }
    }

    #[test]
    fn one_window_of_another_kind_begins_anew() {
        let mut now = Instant::now();
        let mut load = Load::new(now);
        assert_eq!(
            looks(&mut load, &mut now, AGREE + 1, 0, 9).last(),
            Some(&Kind::Full)
        );
        assert_eq!(looks(&mut load, &mut now, 1, 0, 1), [Kind::Other]);
        assert_eq!(
            looks(&mut load, &mut now, AGREE - 1, 0, 9).last(),
            Some(&Kind::Other)
        );
        assert_eq!(looks(&mut load, &mut now, 1, 0, 9), [Kind::Full]);
    }

    #[test]
    fn a_thread_without_turns_is_light() {
        let now = Instant::now();
        let mut load = Load::new(now);
        load.add_wait(WINDOW * 30);
        assert_eq!(
            load.look(now + WINDOW * 30),
            Some(Kind::Other),
            "only one window"
        );
    }
}
