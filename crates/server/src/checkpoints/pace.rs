//! When the next checkpoint is due.

use std::time::{Duration, Instant};

/// With less free disk space than this, the log must shrink soon, so that new jobs can be taken. How long the daemon
/// must be idle then, and the longest pause after a failure.
const PRESSED_BYTES: u64 = 64 << 20;
const PRESSED_QUIET: Duration = Duration::from_secs(1);
const PRESSED_RETRY: Duration = Duration::from_secs(5);
/// Pause after a failure: the first time, and at most.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// What the thread sees of the store.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// The newest commit.
    pub(super) newest: u64,
    pub(super) free_bytes: u64,
    /// Whether the log keeps commits that one more checkpoint lets it forget.
    pub(super) holds_back: bool,
    /// Whether a checkpoint is worthwhile while the daemon is idle, and whether one is due in any case.
    pub(super) is_worth_while: bool,
    pub(super) is_due: bool,
}

/// What a checkpoint takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Everything,
    /// What the log should forget.
    Oldest,
}

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
        Self { quiet, newest, since: now, retry: RETRY }
    }

    /// The checkpoint that is due, if any.
    pub(super) fn due(&mut self, now: Instant, seen: &Seen) -> Option<Scope> {
        if seen.newest != self.newest {
            (self.newest, self.since) = (seen.newest, now);
        }
        let pressed = is_pressed(seen);
        let quiet = if pressed { self.quiet.min(PRESSED_QUIET) } else { self.quiet };
        // The log keeps some segments only for safety. When the disk is almost full, room for new jobs comes first.
        let is_worth_while = seen.is_worth_while || pressed && seen.holds_back;
        if now.duration_since(self.since) >= quiet && is_worth_while {
            Some(Scope::Everything)
        } else {
            seen.is_due.then_some(Scope::Oldest)
        }
    }

    pub(super) const fn succeeded(&mut self) {
        self.retry = RETRY;
    }

    /// The pause after a checkpoint that has failed: twice as long each time.
    pub(super) fn failed(&mut self, seen: &Seen) -> Duration {
        let most = if is_pressed(seen) { PRESSED_RETRY } else { RETRY_MAX };
        let pause = self.retry.min(most);
        self.retry = pause * 2;
        pause
    }
}

const fn is_pressed(seen: &Seen) -> bool {
    seen.free_bytes < PRESSED_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: Seen =
        Seen { newest: 7, free_bytes: PRESSED_BYTES, holds_back: false, is_worth_while: false, is_due: false };
    const FULL: Seen = Seen { free_bytes: PRESSED_BYTES - 1, ..SEEN };
    const QUIET: Duration = Duration::from_secs(3);

    #[test]
    fn a_checkpoint_of_everything_waits_until_the_daemon_is_idle() {
        let (none, all, oldest) = (None, Some(Scope::Everything), Some(Scope::Oldest));
        let worth = |seen| Seen { is_worth_while: true, ..seen };
        let due = |seen| Seen { is_due: true, ..seen };
        let holds = |seen| Seen { holds_back: true, ..seen };
        let table = [
            (9_000, SEEN, none),
            (2_999, worth(SEEN), none),
            (3_000, worth(SEEN), all),
            (2_999, worth(due(SEEN)), oldest),
            (3_000, worth(due(SEEN)), all),
            (9_000, due(SEEN), oldest),
            (9_000, holds(SEEN), none),
            (9_000, FULL, none),
            (999, worth(FULL), none),
            (1_000, worth(FULL), all),
            (999, holds(FULL), none),
            (1_000, holds(FULL), all),
        ];
        let begun = Instant::now();
        for (ms, seen, expected) in table {
            let mut pace = Pace::new(QUIET, 7, begun);
            assert_eq!(pace.due(begun + Duration::from_millis(ms), &seen), expected, "{ms} ms: {seen:?}");
        }
    }

    #[test]
    fn a_commit_begins_the_wait_again() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut pace = Pace::new(QUIET, 7, begun);
        let seen = |newest| Seen { newest, is_worth_while: true, ..SEEN };
        assert_eq!(pace.due(at(2), &seen(8)), None);
        assert_eq!(pace.due(at(4), &seen(8)), None);
        assert_eq!(pace.due(at(5), &seen(8)), Some(Scope::Everything));
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
