//! Which threads commit: serving threads at the end of their turns, or the committing thread.
//!
//! While a serving thread writes it serves nobody. That costs nothing as long as all its clients wait for this very commit. So
//! it commits as long as the disk is quick, few clients wait for a commit, and hardly any others had sent something when it was
//! written. Otherwise the committing thread does it while the serving threads go on.

use std::time::Duration;

/// A commit that takes longer is one of a slow disk.
const QUICK_MAX: Duration = Duration::from_millis(1);
/// With more acknowledgements in a commit, serving the next clients takes as long as the disk: both go on at the same time then.
const ACKNOWLEDGEMENTS_MAX: usize = 16;
/// So many quick and small commits in a row come before serving threads commit: at first, and after they were in the way of
/// others again and again.
const RUN_MIN: u32 = 16;
const RUN_MAX: u32 = 4096;
/// What serving threads may lose before they stop, when they begin to commit, and what they may save up.
const CREDIT_FIRST: usize = 8;
const CREDIT_MAX: usize = 64;

/// Decides from what was measured.
#[derive(Debug)]
pub(super) struct Policy {
    in_turns: bool,
    /// Quick and small commits in a row.
    run: u32,
    /// How long that row must be.
    run_min: u32,
    /// Clients that were acknowledged by commits in turns, less those that had to wait for such a commit without need.
    credit: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self { in_turns: false, run: 0, run_min: RUN_MIN, credit: 0 }
    }
}

impl Policy {
    /// Whether serving threads commit.
    pub(super) const fn in_turns(&self) -> bool {
        self.in_turns
    }

    /// A commit took so long, and so many acknowledgements waited for it.
    pub(super) fn committed(&mut self, took: Duration, acknowledgements: usize) {
        if took > QUICK_MAX || acknowledgements > ACKNOWLEDGEMENTS_MAX {
            return self.leave_turns();
        }
        self.run = self.run.saturating_add(1);
        if !self.in_turns && self.run >= self.run_min {
            self.in_turns = true;
            self.credit = CREDIT_FIRST;
        }
    }

    /// The store did not take a commit.
    pub(super) fn failed(&mut self) {
        self.leave_turns();
    }

    /// A serving thread committed. So many of its clients waited for that, and so many others had sent something meanwhile.
    pub(super) fn committed_in_turn(&mut self, acknowledged: usize, held_up: usize) {
        match (self.credit + acknowledged).checked_sub(held_up) {
            Some(credit) if credit < CREDIT_MAX => self.credit = credit,
            Some(_) => (self.credit, self.run_min) = (CREDIT_MAX, RUN_MIN),
            None if self.in_turns => {
                self.run_min = (self.run_min * 4).min(RUN_MAX);
                self.leave_turns();
            }
            None => {}
        }
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
        let table = [("slow", slow as fn(&mut Policy)), ("large", large), ("failed", Policy::failed)];
        for (name, ends) in table {
            let mut policy = in_turns();
            ends(&mut policy);
            assert!(!policy.in_turns(), "{name}");
            (1..RUN_MIN).for_each(|_| policy.committed(QUICK, 1));
            assert!(!policy.in_turns(), "{name}: the row begins anew");
            policy.committed(QUICK, 1);
            assert!(policy.in_turns(), "{name}");
        }
    }

    #[test]
    fn serving_threads_stop_when_they_hold_up_more_clients_than_they_acknowledge() {
        let mut policy = in_turns();
        for _ in 0..100 {
            policy.committed_in_turn(4, 4);
        }
        assert!(policy.in_turns(), "as many");
        policy.committed_in_turn(1, CREDIT_FIRST + 2);
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
        policy.failed();
        assert_eq!(attempt(&mut policy, 0), RUN_MIN);
    }
}
