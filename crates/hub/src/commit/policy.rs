//! Which threads commit: serving threads at the end of their turns, or the committing thread.
//!
//! While a serving thread writes, it serves no client. That costs nothing as long as all its clients wait for this very
//! commit. So serving threads commit as long as the disk is quick, few clients wait for a commit, and hardly any others
//! sent something while it was written. Otherwise the committing thread does it while the serving threads go on.

use std::time::Duration;

/// A commit that takes longer means a slow disk.
const QUICK_MAX: Duration = Duration::from_millis(1);
/// More acknowledgements in a commit come from many clients that have several requests in flight. Serving their next
/// requests takes longer than the disk: then the committing thread writes in parallel. Below it, parallel writes give
/// clients with many requests in flight up to a quarter more jobs a second, at a third more CPU for each
/// (docs/decisions/where-commits-are-made.md).
const ACKNOWLEDGEMENTS_MAX: usize = 384;
/// Serving threads begin to commit after this many quick and small commits in a row. The number grows when they have
/// held up clients again.
const RUN_MIN: u32 = 16;
const RUN_MAX: u32 = 4096;
/// The most it grows to after a commit with too many acknowledgements.
const RUN_AFTER_LARGE_MAX: u32 = 256;
/// After this many commits of serving threads in a row it is [`RUN_MIN`] again.
const RUN_GOOD: u32 = 256;
/// The credit of serving threads when they begin to commit, and the most they may save up.
const CREDIT_FIRST: usize = 8;
const CREDIT_MAX: usize = 64;

/// Decides from measurements.
#[derive(Debug)]
pub(super) struct Policy {
    in_turns: bool,
    /// Quick and small commits in a row.
    run: u32,
    /// How long that row must be.
    run_min: u32,
    /// Twice the clients that commits in turns acknowledged, less the clients that such a commit held up without need.
    /// Twice, because a hand-over to the committing thread and back costs more than the disk's time
    /// (docs/decisions/where-commits-are-made.md).
    credit: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            in_turns: false,
            run: 0,
            run_min: RUN_MIN,
            credit: 0,
        }
    }
}

impl Policy {
    /// Whether serving threads commit.
    pub(super) const fn in_turns(&self) -> bool {
        self.in_turns
    }

    /// Records a commit: how long it took, and how many acknowledgements waited for it.
    pub(super) fn committed(&mut self, took: Duration, acknowledgements: usize) {
        if took > QUICK_MAX {
            return self.leave_turns();
        }
        if acknowledgements > ACKNOWLEDGEMENTS_MAX {
            return self.leave_turns_until(RUN_AFTER_LARGE_MAX);
        }
        self.run = self.run.saturating_add(1);
        if self.in_turns && self.run >= self.run_min.saturating_add(RUN_GOOD) {
            self.run_min = RUN_MIN;
        }
        if !self.in_turns && self.run >= self.run_min {
            self.in_turns = true;
            self.credit = CREDIT_FIRST;
        }
    }

    /// Records that the store did not take a commit.
    pub(super) fn failed(&mut self) {
        self.leave_turns();
    }

    /// Records a commit of a serving thread: how many of its clients it acknowledged, and how many others had sent
    /// something meanwhile.
    pub(super) fn committed_in_turn(&mut self, acknowledged: usize, held_up: usize) {
        match (self.credit + 2 * acknowledged).checked_sub(held_up) {
            Some(credit) if credit < CREDIT_MAX => self.credit = credit,
            Some(_) => self.credit = CREDIT_MAX,
            None if self.in_turns => self.leave_turns_until(RUN_MAX),
            None => {}
        }
    }

    /// Serving threads have held up clients, if they committed. Their next attempt is later then, up to a row of `most`
    /// commits.
    fn leave_turns_until(&mut self, most: u32) {
        if self.in_turns {
            self.run_min = (self.run_min * 4).min(most).max(self.run_min);
        }
        self.leave_turns();
    }

    const fn leave_turns(&mut self) {
        (self.in_turns, self.run) = (false, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_micros(100);

    fn in_turns() -> Policy {
        let mut policy = Policy::default();
        (0..RUN_MIN).for_each(|_| policy.committed(QUICK, 1));
        assert!(policy.in_turns());
        policy
    }

    #[test]
    fn serving_threads_commit_after_a_row_of_quick_and_small_commits() {
        let mut policy = Policy::default();
        for _ in 1..RUN_MIN {
            policy.committed(QUICK, ACKNOWLEDGEMENTS_MAX);
        }
        assert!(!policy.in_turns());
        policy.committed(QUICK_MAX, 0);
        assert!(policy.in_turns());
    }

    #[test]
    fn one_slow_large_or_failed_commit_ends_it() {
        let slow = |policy: &mut Policy| policy.committed(QUICK_MAX + QUICK, 1);
        let large = |policy: &mut Policy| policy.committed(QUICK, ACKNOWLEDGEMENTS_MAX + 1);
        let table = [
            ("slow", slow as fn(&mut Policy), RUN_MIN),
            ("large", large, 4 * RUN_MIN),
            ("failed", Policy::failed, RUN_MIN),
        ];
        for (name, ends, row) in table {
            let mut policy = in_turns();
            ends(&mut policy);
            assert!(!policy.in_turns(), "{name}");
            (1..row).for_each(|_| policy.committed(QUICK, 1));
            assert!(!policy.in_turns(), "{name}: the row begins anew");
            policy.committed(QUICK, 1);
            assert!(policy.in_turns(), "{name}");
        }
    }

    #[test]
    fn serving_threads_stop_when_they_hold_up_twice_the_clients_they_acknowledge() {
        let mut policy = in_turns();
        for _ in 0..100 {
            policy.committed_in_turn(4, 8);
        }
        assert!(policy.in_turns(), "twice as many");
        policy.committed_in_turn(1, CREDIT_FIRST + 3);
        assert!(!policy.in_turns());
    }

    #[test]
    fn each_failed_attempt_makes_the_next_one_later_until_one_goes_well() {
        let mut policy = in_turns();
        let attempt = |policy: &mut Policy, held_up: usize| {
            let mut commits = 0;
            while !policy.in_turns() {
                policy.committed(QUICK, 1);
                commits += 1;
            }
            policy.committed_in_turn(CREDIT_MAX, held_up);
            commits
        };
        let commits: Vec<u32> = (0..6).map(|_| attempt(&mut policy, usize::MAX)).collect();
        assert_eq!(commits, [0, 64, 256, 1024, 4096, 4096]);
        attempt(&mut policy, 0);
        (0..RUN_GOOD).for_each(|_| policy.committed(QUICK, 1));
        policy.failed();
        assert_eq!(attempt(&mut policy, 0), RUN_MIN);
    }

    #[test]
    fn an_attempt_goes_well_if_it_lasts_long_enough() {
        for (commits, next_row) in [(RUN_GOOD - 1, 4 * RUN_MIN), (RUN_GOOD, RUN_MIN)] {
            let mut policy = in_turns();
            policy.committed_in_turn(0, usize::MAX);
            (0..4 * RUN_MIN).for_each(|_| policy.committed(QUICK, 1));
            assert!(policy.in_turns());
            (0..commits).for_each(|_| policy.committed(QUICK, 1));
            policy.failed();
            (1..next_row).for_each(|_| policy.committed(QUICK, 1));
            assert!(!policy.in_turns(), "after {commits} commits");
            policy.committed(QUICK, 1);
            assert!(policy.in_turns(), "after {commits} commits");
        }
    }

    #[test]
    fn clients_with_large_commits_again_and_again_are_left_to_the_committing_thread() {
        let mut policy = Policy::default();
        let turns = (0..10_000).filter(|_| {
            let in_turns = policy.in_turns();
            policy.committed(
                QUICK,
                if in_turns {
                    ACKNOWLEDGEMENTS_MAX + 1
                } else {
                    1
                },
            );
            in_turns
        });
        let turns = turns.count();
        assert!((10..50).contains(&turns), "{turns}");
    }

    /// The committing thread had taken over while a serving thread wrote.
    #[test]
    fn a_late_commit_of_a_serving_thread_does_not_end_the_row() {
        let mut policy = Policy::default();
        (1..RUN_MIN).for_each(|_| policy.committed(QUICK, 1));
        policy.committed_in_turn(0, usize::MAX);
        policy.committed(QUICK, 1);
        assert!(policy.in_turns());
    }

    #[test]
    fn the_credit_of_serving_threads_has_a_limit() {
        for (held_up, in_turns) in [(CREDIT_MAX, true), (CREDIT_MAX + 1, false)] {
            let mut policy = self::in_turns();
            (0..CREDIT_MAX).for_each(|_| policy.committed_in_turn(1, 0));
            policy.committed_in_turn(0, held_up);
            assert_eq!(policy.in_turns(), in_turns, "{held_up}");
        }
    }
}
