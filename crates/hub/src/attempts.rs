//! Exponential back-off for an action that pays only if it succeeds.

/// Decides by recent results whether to try this time. After consecutive failures the next 1, 3, 7,
/// ... tries are skipped, up to the power of two `FAILURES_MAX`.
#[derive(Debug, Default)]
pub struct Attempts<const FAILURES_MAX: u32> {
    /// Consecutive failures.
    failures: u32,
    /// How many of the next tries to skip.
    skipped: u32,
}

impl<const FAILURES_MAX: u32> Attempts<FAILURES_MAX> {
    /// Whether to try this time.
    pub const fn begin(&mut self) -> bool {
        match self.skipped.checked_sub(1) {
            Some(left) => {
                self.skipped = left;
                false
            }
            None => true,
        }
    }

    /// Records the result of a try.
    pub fn end(&mut self, success: bool) {
        if success {
            self.failures = 0;
        } else {
            self.failures = (self.failures + 1).min(FAILURES_MAX);
            self.skipped = (1 << self.failures) - 1;
        }
    }

    /// Consecutive failures.
    #[cfg(any(test, feature = "testing"))]
    pub const fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_doubles_the_times_without_a_try() {
        let mut attempts = Attempts::<8>::default();
        let mut times_without = || {
            let times = std::iter::repeat_with(|| attempts.begin())
                .take_while(|begins| !begins)
                .count();
            attempts.end(false);
            times
        };
        assert_eq!(
            [(); 10].map(|()| times_without()),
            [0, 1, 3, 7, 15, 31, 63, 127, 255, 255]
        );
    }

    #[test]
    fn after_a_success_there_is_a_try_each_time() {
        let mut attempts = Attempts::<8>::default();
        (0..3).for_each(|_| attempts.end(false));
        while !attempts.begin() {}
        attempts.end(true);
        assert_eq!([(); 3].map(|()| attempts.begin()), [true; 3]);
        attempts.end(false);
        assert_eq!(
            [(); 3].map(|()| attempts.begin()),
            [false, true, true],
            "the failures before do not count"
        );
    }
}
