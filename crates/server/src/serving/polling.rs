//! Whether a thread looks for work for a while before it sleeps.
//!
//! Waking a sleeping core can cost more than a job. So a thread that has nothing to do polls for a moment, if work has lately come
//! that soon. It yields the core in between. A core that others want is given to them for long: then the thread sleeps at once for
//! a while, because the kernel wakes a sleeping thread sooner than it returns to one that has yielded.

use std::time::{Duration, Instant};

use crate::config::Polling;

/// How long a thread polls with [`Polling::Auto`]: waking a core takes about as long.
const AUTO: Duration = Duration::from_micros(50);

/// A yield that takes longer has given the core to another thread. Each of them costs a time slice in the kernel's eyes.
const YIELD_MAX: Duration = Duration::from_micros(10);

/// A yield that takes longer than this has given it to a thread that computes.
const COMPUTES_MIN: Duration = Duration::from_micros(250);

/// After a poll without success the next 1, 3, 7, ... waits have none, up to this power of two.
const FAILURES_MAX: u32 = 8;

/// How long a thread does not poll when others want the core. The time doubles as long as they do.
const BARRED_MIN: Duration = Duration::from_millis(100);
const BARRED_MAX: Duration = Duration::from_secs(3);

/// Decides from how the last waits ended.
#[derive(Debug)]
pub(super) struct Idle {
    mode: Polling,
    /// Polls in a row that found nothing.
    failures: u32,
    /// How many waits to come have no poll.
    skipped: u32,
    /// Others want the core until then.
    barred_until: Option<Instant>,
    barred_for: Duration,
}

/// How a poll ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Polled {
    /// There is work.
    Work,
    /// There was none, or the core is shared.
    Nothing,
    /// Another thread computes on the core.
    Contended,
}

impl Idle {
    pub(super) const fn new(mode: Polling) -> Self {
        Self { mode, failures: 0, skipped: 0, barred_until: None, barred_for: BARRED_MIN }
    }

    /// How long to poll in this wait; `None` = not at all.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Duration> {
        match self.mode {
            Polling::Off => return None,
            Polling::For(duration) => return Some(duration),
            Polling::Auto => {}
        }
        if self.barred_until.is_some_and(|until| now < until) {
            return None;
        }
        match self.skipped.checked_sub(1) {
            Some(left) => {
                self.skipped = left;
                None
            }
            None => Some(AUTO),
        }
    }

    /// Records how a poll ended.
    pub(super) fn end(&mut self, now: Instant, polled: Polled) {
        match polled {
            Polled::Work => {
                self.failures = 0;
                // Others have stopped wanting the core a while ago.
                if self.barred_until.is_some_and(|until| now > until + self.barred_for) {
                    self.barred_for = BARRED_MIN;
                }
            }
            Polled::Nothing => {
                self.failures = (self.failures + 1).min(FAILURES_MAX);
                self.skipped = (1 << self.failures) - 1;
            }
            Polled::Contended => {
                self.barred_until = Some(now + self.barred_for);
                self.barred_for = (self.barred_for * 2).min(BARRED_MAX);
            }
        }
    }
}

/// Yields, and looks for work in between, for as long as `limit`.
pub(super) fn poll(limit: Duration, mut has_work: impl FnMut() -> bool) -> Polled {
    let begun = Instant::now();
    let mut before = begun;
    loop {
        if has_work() {
            return Polled::Work;
        }
        std::thread::yield_now();
        let now = Instant::now();
        let yielded = now - before;
        if yielded > COMPUTES_MIN {
            return Polled::Contended;
        }
        if now - begun > limit || yielded > YIELD_MAX {
            return if has_work() { Polled::Work } else { Polled::Nothing };
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polls(idle: &mut Idle, now: Instant, waits: u32) -> u32 {
        (0..waits).filter(|_| idle.begin(now).is_some()).count().try_into().unwrap()
    }

    #[test]
    fn it_polls_while_work_comes_soon_and_hardly_ever_while_none_does() {
        let (now, mut idle) = (Instant::now(), Idle::new(Polling::Auto));
        for _ in 0..1000 {
            assert_eq!(idle.begin(now), Some(AUTO));
            idle.end(now, Polled::Work);
        }
        let mut polled = 0;
        for _ in 0..100_000 {
            if idle.begin(now).is_some() {
                idle.end(now, Polled::Nothing);
                polled += 1;
            }
        }
        assert!((2..500).contains(&polled), "{polled}");
        // One success, and each wait has a poll again.
        while idle.begin(now).is_none() {}
        idle.end(now, Polled::Work);
        assert_eq!(polls(&mut idle, now, 10), 10);
    }

    #[test]
    fn it_leaves_the_core_to_others_for_longer_and_longer() {
        let (mut now, mut idle) = (Instant::now(), Idle::new(Polling::Auto));
        let mut times = Vec::new();
        for _ in 0..7 {
            idle.end(now, Polled::Contended);
            let begun = now;
            while polls(&mut idle, now, 1) == 0 {
                now += Duration::from_millis(10);
            }
            times.push((now - begun).as_millis());
        }
        assert_eq!(times, [100, 200, 400, 800, 1600, 3000, 3000]);
        // Long afterwards it begins anew.
        now += Duration::from_secs(60);
        idle.end(now, Polled::Work);
        idle.end(now, Polled::Contended);
        assert_eq!(polls(&mut idle, now + BARRED_MIN, 1), 1);
    }

    #[test]
    fn other_modes_are_fixed() {
        let now = Instant::now();
        let (mut off, mut fixed) = (Idle::new(Polling::Off), Idle::new(Polling::For(Duration::from_micros(7))));
        for polled in [Polled::Work, Polled::Nothing, Polled::Contended] {
            off.end(now, polled);
            fixed.end(now, polled);
            assert_eq!((off.begin(now), fixed.begin(now)), (None, Some(Duration::from_micros(7))));
        }
    }

    #[test]
    fn a_poll_ends_with_work_or_its_time() {
        let mut looks = 0;
        let third = |looks: &mut u32| {
            *looks += 1;
            *looks == 3
        };
        let polled = poll(Duration::from_secs(20), || third(&mut looks));
        assert!(matches!(polled, Polled::Work | Polled::Contended));
        assert_ne!(poll(Duration::ZERO, || false), Polled::Work);
    }
}
