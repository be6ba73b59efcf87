//! When the next checkpoint is due.

use std::time::{Duration, Instant};

/// With less free disk space than this, the log must shrink soon, so that new jobs can be accepted.
/// It shortens the required idle time, and the longest pause after a failure.
const PRESSED_BYTES: u64 = 64 << 20;
const PRESSED_QUIET: Duration = Duration::from_secs(1);
const PRESSED_RETRY: Duration = Duration::from_secs(5);
/// The first and the longest pause after failures.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// The state of the store as the thread sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The newest commit.
    pub(super) newest: u64,
    pub(super) free_bytes: u64,
    /// Whether the log keeps commits that another checkpoint would release.
    pub(super) holds_back: bool,
    /// Whether a checkpoint is due although the daemon is busy.
    pub(super) is_due: bool,
}

/// What a checkpoint covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Everything,
    /// The oldest part of the log.
    Oldest,
}

/// The pauses of the thread: until the daemon is idle, and after failures.
#[derive(Debug)]
pub(super) struct Pace {
    /// How long nothing must have been committed before a checkpoint of everything.
    quiet: Duration,
    newest: u64,
    since: Instant,
    /// The pause after the next failure.
    retry: Duration,
}

impl Pace {
    pub(super) const fn new(quiet: Duration, newest: u64, now: Instant) -> Self {
        Self {
            quiet,
            newest,
            since: now,
            retry: RETRY,
        }
    }

    /// The due checkpoint, if any. `is_worthwhile` is called only while the daemon is idle, because
    /// it may read the size of the table.
    pub(super) fn due(
        &mut self,
        now: Instant,
        seen: &Seen,
        is_worth_while: impl FnOnce() -> bool,
    ) -> Option<Scope> {
        if seen.newest != self.newest {
            self.newest = seen.newest;
            self.since = now;
        }
        let pressed = is_pressed(seen);
        let quiet = if pressed {
            self.quiet.min(PRESSED_QUIET)
        } else {
            self.quiet
        };
        // The log keeps some segments only for safety. When the disk is almost full, space for new
        // jobs has priority.
        let frees = pressed && seen.holds_back;
        if now.duration_since(self.since) >= quiet && (frees || is_worth_while()) {
            Some(Scope::Everything)
        } else {
            seen.is_due.then_some(Scope::Oldest)
        }
    }

    pub(super) const fn succeeded(&mut self) {
        self.retry = RETRY;
    }

    /// The pause after a failed checkpoint, which doubles each time.
    pub(super) fn failed(&mut self, seen: &Seen) -> Duration {
        let most = if is_pressed(seen) {
            PRESSED_RETRY
        } else {
            RETRY_MAX
        };
        let pause = self.retry.min(most);
        self.retry = (pause * 2).min(most);
        pause
    }
}

const fn is_pressed(seen: &Seen) -> bool {
    seen.free_bytes < PRESSED_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: Seen = Seen {
        newest: 7,
        free_bytes: PRESSED_BYTES,
        holds_back: false,
        is_due: false,
    };
    const FULL: Seen = Seen {
        free_bytes: PRESSED_BYTES - 1,
        ..SEEN
    };
    const QUIET: Duration = Duration::from_secs(3);

    #[test]
    fn a_checkpoint_of_everything_waits_until_the_daemon_is_idle() {
        let (none, all, oldest) = (None, Some(Scope::Everything), Some(Scope::Oldest));
        let due = |seen| Seen {
            is_due: true,
            ..seen
        };
        let holds = |seen| Seen {
            holds_back: true,
            ..seen
        };
        // Milliseconds without a commit, the state, and whether a checkpoint is worthwhile.
        let table = [
            (9_000, SEEN, false, none),
            (2_999, SEEN, true, none),
            (3_000, SEEN, true, all),
            (2_999, due(SEEN), true, oldest),
            (3_000, due(SEEN), true, all),
            (9_000, due(SEEN), false, oldest),
            (9_000, holds(SEEN), false, none),
            (9_000, FULL, false, none),
            (999, FULL, true, none),
            (1_000, FULL, true, all),
            (999, holds(FULL), false, none),
            (1_000, holds(FULL), false, all),
        ];
        let begun = Instant::now();
        for (ms, seen, is_worth_while, expected) in table {
            let mut pace = Pace::new(QUIET, 7, begun);
            let due = pace.due(begun + Duration::from_millis(ms), &seen, || is_worth_while);
            assert_eq!(due, expected, "{ms} ms, {is_worth_while}: {seen:?}");
        }
    }

    #[test]
    fn a_busy_daemon_is_not_asked_whether_a_checkpoint_is_worthwhile() {
        let begun = Instant::now();
        let mut pace = Pace::new(QUIET, 7, begun);
        assert_eq!(
            pace.due(begun + QUIET / 2, &SEEN, || panic!("it is busy")),
            None
        );
    }

    #[test]
    fn a_commit_begins_the_wait_again() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut pace = Pace::new(QUIET, 7, begun);
        let mut due = |seconds| pace.due(at(seconds), &Seen { newest: 8, ..SEEN }, || true);
        assert_eq!(
            [2, 4, 5].map(&mut due),
            [None, None, Some(Scope::Everything)]
        );
    }

    #[test]
    fn pauses_after_failures_grow_to_a_maximum() {
        for (seen, expected) in [(SEEN, [1, 2, 4, 8, 10, 10]), (FULL, [1, 2, 4, 5, 5, 5])] {
            let mut pace = Pace::new(QUIET, 7, Instant::now());
            for _ in 0..2 {
                assert_eq!(expected.map(|_| pace.failed(&seen).as_secs()), expected);
                pace.succeeded();
            }
        }
    }
}
