//! Which threads commit: serving threads at the end of their turns, or the committing thread.
//!
//! While a serving thread writes, it serves no clients. That is harmless while all its clients wait
//! for this very commit. So serving threads commit while the disk is fast, few acknowledgements
//! wait for a commit, and hardly any other clients send something during the write. Otherwise the
//! committing thread writes while the serving threads continue.

use std::time::Duration;

/// A disk is slow if a commit takes longer.
const QUICK_MAX: Duration = Duration::from_millis(1);
/// More acknowledgements per commit mean many clients with several requests in flight. Serving
/// their next requests takes longer than the disk, so the committing thread writes in parallel.
/// Below this, parallel writes give such clients up to a quarter more jobs per second, but need a
/// third more CPU for each (docs/decisions/where-commits-are-made.md).
const ACKNOWLEDGEMENTS_MAX: usize = 384;
/// Serving threads start to commit after this many consecutive fast and small commits. The number
/// grows each time they have delayed clients again.
const RUN_MIN: u32 = 16;
const RUN_MAX: u32 = 4096;
/// The maximum of that number after a commit with too many acknowledgements.
const RUN_AFTER_LARGE_MAX: u32 = 256;
/// After this many consecutive commits by serving threads the number is reset to [`RUN_MIN`].
const RUN_GOOD: u32 = 256;
/// The credit of serving threads when they start to commit, and the most that they can accumulate.
const CREDIT_FIRST: usize = 8;
const CREDIT_MAX: usize = 64;

/// Decides by measurements.
#[derive(Debug)]
pub(super) struct Policy {
    in_turns: bool,
    /// Consecutive fast and small commits.
    run: u32,
    /// The required number of those.
    run_min: u32,
    /// Twice the number of clients that commits in turns acknowledged, minus the number that they
    /// delayed unnecessarily. Twice, because passing work to the committing thread and back costs
    /// more than the disk's time (docs/decisions/where-commits-are-made.md).
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

    /// Records a commit, its duration, and the number of acknowledgements that waited for it.
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

    /// Records that the store did not accept a commit.
    pub(super) fn failed(&mut self) {
        self.leave_turns();
    }

    /// Records a commit by a serving thread: how many of its clients it acknowledged, and how many
    /// others had sent something meanwhile.
    pub(super) fn committed_in_turn(&mut self, acknowledged: usize, held_up: usize) {
        match (self.credit + 2 * acknowledged).checked_sub(held_up) {
            Some(credit) if credit < CREDIT_MAX => self.credit = credit,
            Some(_) => self.credit = CREDIT_MAX,
            None if self.in_turns => self.leave_turns_until(RUN_MAX),
            None => {}
        }
    }

    /// Stops commits in turns, because they have delayed clients. The next attempt requires more
    /// fast commits, up to `most`.
    fn leave_turns_until(&mut self, most: u32) {
        if self.in_turns {
            self.run_min = (self.run_min * 4).min(most).max(self.run_min);
        }
        self.leave_turns();
    }

    const fn leave_turns(&mut self) {
        self.in_turns = false;
        self.run = 0;
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

    /// The committing thread had taken over while a serving thread was writing.
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
