//! Whether a thread polls for work before it sleeps.
//!
//! Waking a sleeping core can cost more than a job, so an idle thread polls briefly if polling has
//! recently found work. It does not yield the core, because the kernel charges each yield like a
//! full time slice. Instead it stops polling for a while if it had to wait for its core itself,
//! which means that others need it: a sleeping thread gets a core sooner than one that has used up
//! its slice.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use crate::polling::Polling;
use windlass_hub::Attempts;

/// How long a thread polls with [`Polling::Auto`], about as long as waking a core takes.
const AUTO: Duration = Duration::from_micros(50);

/// After this many polls, and this much time, the thread checks how long it has waited for its
/// core.
const LOOK_POLLS: u32 = 64;
const LOOK_MIN: Duration = Duration::from_millis(5);

/// Others need the core if the thread has waited for it for more than this fraction of the time.
const DELAY_PART: u32 = 10;

/// How long a thread stops polling when others need the core. This doubles while they do.
const BARRED_MIN: Duration = Duration::from_millis(100);
const BARRED_MAX: Duration = Duration::from_secs(3);

/// Decides by the results of recent waits.
#[derive(Debug, Default)]
pub(super) struct Idle {
    mode: Polling,
    attempts: Attempts<8>,
    /// Polls since the last check.
    polls: u32,
    /// The thread's file in `/proc`, once opened; `None` inside if the kernel has none.
    schedstat: Option<Option<File>>,
    /// The time of the last check, and how long the thread had waited for its core by then.
    looked: Option<(Instant, Duration)>,
    /// Polling is off until then, because others need the core.
    barred_until: Option<Instant>,
    barred_for: Duration,
}

impl Idle {
    pub(super) fn new(mode: Polling) -> Self {
        Self {
            mode,
            barred_for: BARRED_MIN,
            ..Self::default()
        }
    }

    /// How long to poll in this wait; `None`: not at all.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Duration> {
        match self.mode {
            Polling::Off => return None,
            Polling::For(duration) => return Some(duration),
            Polling::Auto => {}
        }
        if !self.attempts.begin() {
            return None;
        }
        if self.barred_until.is_some_and(|until| now < until) {
            return None;
        }
        self.polls += 1;
        if self.polls >= LOOK_POLLS {
            self.polls = 0;
            if let Some(delay) = self.delay() {
                self.look(now, delay);
            }
        }
        Some(AUTO)
    }

    /// Records whether a poll has found work.
    pub(super) fn end(&mut self, found: bool) {
        self.attempts.end(found);
    }

    /// How long the calling thread has waited for its core so far.
    fn delay(&mut self) -> Option<Duration> {
        let file = self
            .schedstat
            .get_or_insert_with(|| File::open("/proc/thread-self/schedstat").ok())
            .as_ref()?;
        let mut line = [0; 64];
        let read = file.read_at(&mut line, 0).ok()?;
        run_delay(line.get(..read)?)
    }

    /// Stops polling for a while if the thread has had to wait for its core.
    fn look(&mut self, now: Instant, delay: Duration) {
        let Some((before, delay_before)) = self.looked else {
            return self.looked = Some((now, delay));
        };
        let passed = now - before;
        if passed < LOOK_MIN {
            return;
        }
        self.looked = Some((now, delay));
        if self.barred_until.is_some_and(|until| before < until) {
            return;
        }
        if delay.saturating_sub(delay_before) > passed / DELAY_PART {
            self.barred_until = Some(now + self.barred_for);
            self.barred_for = (self.barred_for * 2).min(BARRED_MAX);
        } else if self
            .barred_until
            .is_some_and(|until| now > until + self.barred_for)
        {
            self.barred_for = BARRED_MIN;
        }
    }
}

/// Parses the time a thread has waited for its core, the second number of its line in `/proc`
/// (sched-stats.rst), in nanoseconds.
fn run_delay(line: &[u8]) -> Option<Duration> {
    let ns = std::str::from_utf8(line).ok()?.split(' ').nth(1)?;
    ns.trim_end().parse().ok().map(Duration::from_nanos)
}

/// Polls until there is work, or `limit` has passed. Returns whether there is work.
pub(super) fn poll(limit: Duration, mut has_work: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if has_work() {
            return true;
        }
        if begun.elapsed() > limit {
            return false;
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polls(idle: &mut Idle, now: Instant, waits: u32) -> u32 {
        (0..waits)
            .filter(|_| idle.begin(now).is_some())
            .count()
            .try_into()
            .unwrap()
    }

    #[test]
    fn it_polls_while_work_comes_soon_and_hardly_ever_while_none_does() {
        let (now, mut idle) = (Instant::now(), Idle::new(Polling::Auto));
        for _ in 0..1000 {
            assert_eq!(idle.begin(now), Some(AUTO));
            idle.end(true);
        }
        let mut polled = 0;
        for _ in 0..100_000 {
            if idle.begin(now).is_some() {
                idle.end(false);
                polled += 1;
            }
        }
        assert!((2..500).contains(&polled), "{polled}");
        // After one success, each wait polls again.
        while idle.begin(now).is_none() {}
        idle.end(true);
        assert_eq!(polls(&mut idle, now, 10), 10);
    }

    #[test]
    fn each_poll_in_vain_doubles_the_waits_without_one() {
        let (now, mut idle) = (Instant::now(), Idle::new(Polling::Auto));
        let mut waits_without = || {
            let waits = std::iter::repeat_with(|| idle.begin(now))
                .take_while(Option::is_none)
                .count();
            idle.end(false);
            waits
        };
        assert_eq!(
            [(); 10].map(|()| waits_without()),
            [0, 1, 3, 7, 15, 31, 63, 127, 255, 255]
        );
    }

    #[test]
    fn it_looks_after_a_number_of_polls() {
        let (now, mut idle) = (Instant::now(), Idle::new(Polling::Auto));
        assert_eq!(polls(&mut idle, now, LOOK_POLLS - 1), LOOK_POLLS - 1);
        assert!(idle.looked.is_none());
        idle.begin(now);
        assert!(idle.looked.is_some());
        assert_eq!(idle.polls, 0);
    }

    #[test]
    fn it_leaves_the_core_to_others_for_longer_and_longer() {
        let (mut now, mut idle) = (Instant::now(), Idle::new(Polling::Auto));
        let mut delay = Duration::ZERO;
        let mut times = Vec::new();
        for _ in 0..7 {
            // The time without polling does not count.
            idle.look(now, delay);
            now += LOOK_MIN;
            delay += LOOK_MIN / 2;
            idle.look(now, delay);
            let begun = now;
            while polls(&mut idle, now, 1) == 0 {
                now += Duration::from_millis(10);
            }
            times.push((now - begun).as_millis());
        }
        assert_eq!(times, [100, 200, 400, 800, 1600, 3000, 3000]);
        // It starts over after a while without delays.
        for _ in 0..3 {
            now += Duration::from_secs(4);
            idle.look(now, delay);
        }
        now += LOOK_MIN;
        idle.look(now, delay + LOOK_MIN);
        assert_eq!(polls(&mut idle, now, 1), 0);
        assert_eq!(polls(&mut idle, now + BARRED_MIN, 1), 1);
    }

    #[test]
    fn a_moment_without_delays_does_not_shorten_the_next_time() {
        let (begun, mut idle) = (Instant::now(), Idle::new(Polling::Auto));
        idle.look(begun, Duration::ZERO);
        let delayed = begun + LOOK_MIN;
        idle.look(delayed, LOOK_MIN);
        let over = delayed + BARRED_MIN + LOOK_MIN;
        // The first check follows the time without polling, and the second finds no delay.
        idle.look(over, LOOK_MIN);
        idle.look(over + LOOK_MIN, LOOK_MIN);
        idle.look(over + 2 * LOOK_MIN, 2 * LOOK_MIN);
        assert_eq!(
            idle.barred_until,
            Some(over + 2 * LOOK_MIN + 2 * BARRED_MIN)
        );
    }

    #[test]
    fn other_modes_are_fixed() {
        let now = Instant::now();
        let (mut off, mut fixed) = (
            Idle::new(Polling::Off),
            Idle::new(Polling::For(Duration::from_micros(7))),
        );
        for found in [true, false, false] {
            off.end(found);
            fixed.end(found);
            assert_eq!(
                (off.begin(now), fixed.begin(now)),
                (None, Some(Duration::from_micros(7)))
            );
        }
    }

    #[test]
    fn a_poll_ends_with_work_or_its_time() {
        let mut looks = 0;
        let third = |looks: &mut u32| {
            *looks += 1;
            *looks == 3
        };
        assert!(poll(Duration::from_secs(20), || third(&mut looks)));
        assert!(!poll(Duration::ZERO, || false));
    }

    #[test]
    fn the_kernels_line_about_a_thread() {
        assert_eq!(
            run_delay(b"123456 7890 42\n"),
            Some(Duration::from_nanos(7890))
        );
        for wrong in [&b""[..], b"12", b"a b c", b"1 -2 3", &[0xff; 30]] {
            assert_eq!(run_delay(wrong), None);
        }
        let schedstat = std::fs::read("/proc/thread-self/schedstat");
        assert!(schedstat.is_err() || schedstat.is_ok_and(|line| run_delay(&line).is_some()));
    }
}
