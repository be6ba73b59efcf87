//! Whether a serving thread waits for more clients before it commits.
//!
//! A client that receives its acknowledgement often sends its next request immediately, but too
//! late for a commit that begins in the same turn. Without a wait, such clients would split into
//! two groups, each waiting for the other's commit: half as many jobs per commit, and twice the
//! latency. So the thread waits briefly for them, if that has recently paid off.

use std::time::{Duration, Instant};

use crate::attempts::Attempts;

/// The longest wait, which is also limited by the duration of the last commit.
const WAIT_MAX: Duration = Duration::from_micros(150);

/// Decides by the results of recent waits.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// Acknowledgements that wait for the pending commit.
    waiting: usize,
    /// Their number once the clients of the last commit have sent again.
    expected: usize,
    /// The duration of the last commit.
    took: Duration,
    /// Whether the acknowledgements of the last commit were sent, so that the next commit may wait.
    is_open: bool,
    /// The wait in progress: the number of acknowledgements when it began, and when it ends.
    wait: Option<(usize, Instant)>,
    attempts: Attempts<5>,
}

impl Gather {
    /// Called after a visit with the number of acknowledgements that wait for the pending commit.
    pub(super) fn add(&mut self, waiting: usize, now: impl FnOnce() -> Instant) {
        self.waiting = waiting;
        self.begin(now);
    }

    /// Called when the pending commit is on disk.
    pub(super) fn committed(&mut self, took: Duration) {
        if let Some((begun_with, _)) = self.wait.take() {
            let came = self.waiting.saturating_sub(begun_with);
            let missing = self.expected.saturating_sub(begun_with);
            self.attempts.end(2 * came >= missing);
        }
        self.expected = std::mem::take(&mut self.waiting);
        self.took = took;
        self.is_open = false;
    }

    /// Called when the acknowledgements of the last commit were sent.
    pub(super) fn replied(&mut self, now: Instant) {
        self.expected = self.expected.saturating_add(self.waiting);
        if self.attempts.begin() {
            self.is_open = true;
            self.begin(|| now);
        }
    }

    /// Begins the wait with the first request that would otherwise be committed.
    fn begin(&mut self, now: impl FnOnce() -> Instant) {
        if self.is_open && self.wait.is_none() && (1..self.expected).contains(&self.waiting) {
            self.wait = Some((self.waiting, now() + self.took.min(WAIT_MAX)));
        }
    }

    /// Until when the next commit waits.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        self.wait
            .filter(|_| self.waiting < self.expected)
            .map(|(_, until)| until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::from_micros(60);

    /// A commit with the waiting acknowledgements, after which this many others wait.
    fn commit(gather: &mut Gather, waiting: usize, now: Instant) {
        gather.committed(TOOK);
        gather.add(waiting, || now);
        gather.replied(now);
    }

    #[test]
    fn it_waits_for_those_of_the_last_commit() {
        let (now, mut gather) = (Instant::now(), Gather::default());
        gather.add(3, || now);
        assert_eq!(gather.waits_until(), None, "before the first commit");
        commit(&mut gather, 2, now);
        assert_eq!(gather.waits_until(), Some(now + TOOK));
        let later = now + Duration::from_micros(30);
        gather.add(4, || later);
        assert_eq!(
            gather.waits_until(),
            Some(now + TOOK),
            "since the first that waits"
        );
        gather.add(5, || later);
        assert_eq!(gather.waits_until(), None, "all are there");
        commit(&mut gather, 0, now);
        assert_eq!(gather.waits_until(), None, "no request waits");
        gather.add(1, || later);
        assert_eq!(gather.waits_until(), Some(later + TOOK));
        gather.add(5, || later);
        gather.committed(Duration::from_millis(1));
        gather.add(1, || now);
        gather.replied(now);
        assert_eq!(gather.waits_until(), Some(now + WAIT_MAX));
    }

    #[test]
    fn a_lone_client_never_waits() {
        let (now, mut gather) = (Instant::now(), Gather::default());
        for _ in 0..10 {
            gather.add(1, || now);
            commit(&mut gather, 0, now);
            gather.add(1, || now);
            assert_eq!(gather.waits_until(), None);
        }
    }

    #[test]
    fn waits_in_vain_become_rare() {
        let (now, mut gather) = (Instant::now(), Gather::default());
        let wait = |gather: &mut Gather, come_back: bool| {
            commit(gather, 1, now);
            let waits = gather.waits_until().is_some();
            gather.add(if come_back { 9 } else { 1 }, || now);
            waits
        };
        gather.add(9, || now);
        assert!((0..100).all(|_| wait(&mut gather, true)));
        let waits = (0..10_000).filter(|_| wait(&mut gather, false)).count();
        assert!((100..400).contains(&waits), "{waits}");
        while !wait(&mut gather, true) {}
        wait(&mut gather, true);
        assert!((0..100).all(|_| wait(&mut gather, true)));
    }

    #[test]
    fn each_wait_in_vain_doubles_the_commits_without_one() {
        let (now, mut gather) = (Instant::now(), Gather::default());
        gather.add(9, || now);
        let mut commits_without = || {
            let mut commits = 0;
            loop {
                commit(&mut gather, 1, now);
                if gather.waits_until().is_some() {
                    return commits;
                }
                commits += 1;
            }
        };
        assert_eq!(
            [(); 7].map(|()| commits_without()),
            [0, 1, 3, 7, 15, 31, 31]
        );
    }

    #[test]
    fn a_wait_has_paid_if_half_of_the_missing_came() {
        for (missing, came, paid) in [
            (8, 4, true),
            (8, 3, false),
            (7, 4, true),
            (7, 3, false),
            (1, 0, false),
        ] {
            let wait = Some((1, Instant::now()));
            let mut gather = Gather {
                waiting: 1 + came,
                expected: 1 + missing,
                wait,
                ..Gather::default()
            };
            gather.committed(TOOK);
            assert_eq!(gather.attempts.failures() == 0, paid, "{came} of {missing}");
        }
    }
}
