//! Whether a serving thread waits for more clients before it commits.
//!
//! A client that has its acknowledgement often sends its next request at once, too late for a commit that begins in the
//! same turn. Without a wait such clients fall into two groups, each of which waits for the other's commit: half as
//! many jobs in a commit, and twice the latency. So the thread gives them a moment to come back, if that has lately
//! paid.

use std::time::{Duration, Instant};

use crate::attempts::Attempts;

/// The longest wait. It is never longer than the last commit took.
const WAIT_MAX: Duration = Duration::from_micros(150);

/// Decides from how the last waits ended.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// Acknowledgements that wait for the pending commit.
    waiting: usize,
    /// How many there are when the clients of the last commit have come back.
    expected: usize,
    /// How long the last commit took.
    took: Duration,
    /// The acknowledgements of the last commit have left, and the next commit may wait.
    is_open: bool,
    /// The wait in progress: how many acknowledgements there were when it began, and when it ends.
    wait: Option<(usize, Instant)>,
    attempts: Attempts<5>,
}

impl Gather {
    /// A visit has ended: this many acknowledgements wait for the pending commit.
    pub(super) fn add(&mut self, waiting: usize, now: impl FnOnce() -> Instant) {
        self.waiting = waiting;
        self.begin(now);
    }

    /// The pending commit is on the disk.
    pub(super) fn committed(&mut self, took: Duration) {
        if let Some((begun_with, _)) = self.wait.take() {
            let (came, missing) = (
                self.waiting.saturating_sub(begun_with),
                self.expected.saturating_sub(begun_with),
            );
            self.attempts.end(2 * came >= missing);
        }
        (self.expected, self.waiting, self.took, self.is_open) = (self.waiting, 0, took, false);
    }

    /// The acknowledgements of the last commit have left.
    pub(super) fn replied(&mut self, now: Instant) {
        self.expected = self.expected.saturating_add(self.waiting);
        if self.attempts.begin() {
            self.is_open = true;
            self.begin(|| now);
        }
    }

    /// The wait begins with the first request that would have been committed without it.
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

    /// A commit with the acknowledgements that wait, after which this many others wait.
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
