//! A token bucket: starts per time. It is empty at first, so that a daemon that begins again starts nothing early.

use super::Rate;
use crate::ids::Timestamp;

/// The tokens of a rate, exact to the millisecond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bucket {
    rate: Rate,
    /// A token is `per_ms` parts, and each millisecond brings `jobs` of them.
    parts: u64,
    /// When the parts were counted.
    at: Timestamp,
}

impl Bucket {
    /// A bucket that was empty at a moment.
    pub(super) const fn new(rate: Rate, empty_at: Timestamp) -> Self {
        Self { rate, parts: 0, at: empty_at }
    }

    /// Brings the tokens up to a moment.
    pub(super) fn refill(&mut self, now: Timestamp) {
        let full = u64::from(self.rate.burst) * self.token();
        let gained = now.ms_since(self.at).saturating_mul(self.rate.jobs.into());
        self.parts = self.parts.saturating_add(gained).min(full);
        self.at = self.at.max(now);
    }

    /// Takes a token, if there is one.
    pub(super) fn spend(&mut self, now: Timestamp) {
        self.refill(now);
        self.parts = self.parts.saturating_sub(self.token());
    }

    /// Tokens at the last moment that it knows of.
    pub(super) fn tokens(&self) -> u32 {
        u32::try_from(self.parts / self.token()).unwrap_or(u32::MAX)
    }

    /// When there is a token.
    pub(super) fn next_at(&self) -> Timestamp {
        self.has_at(self.token())
    }

    /// When there are as many tokens as it can hold.
    pub(super) fn full_at(&self) -> Timestamp {
        self.has_at(u64::from(self.rate.burst) * self.token())
    }

    /// Whether all tokens are there.
    pub(super) fn is_full(&self) -> bool {
        self.full_at() <= self.at
    }

    fn has_at(&self, parts: u64) -> Timestamp {
        let left = parts.saturating_sub(self.parts);
        self.at.after_ms(left.div_ceil(u64::from(self.rate.jobs.max(1))))
    }

    fn token(&self) -> u64 {
        self.rate.per_ms.max(1).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spends a token as soon as there is one, and returns when each was spent.
    fn spent(rate: Rate, from: u64, until: u64) -> Vec<u64> {
        let mut bucket = Bucket::new(rate, Timestamp(0));
        let (mut now, mut spent) = (Timestamp(from), Vec::new());
        while now.0 < until {
            bucket.refill(now);
            while bucket.tokens() > 0 {
                bucket.spend(now);
                spent.push(now.0);
            }
            now = bucket.next_at();
            assert!(now.0 > *spent.last().unwrap_or(&0), "a time that comes");
        }
        spent
    }

    #[test]
    fn no_window_has_more_than_its_rate_and_a_burst() {
        for (jobs, per_ms, burst) in
            [(100, 60_000, 20), (7, 1_000, 1), (3, 7, 3), (5_000, 1_000, 5_000), (1, 3_600_000, 1)]
        {
            let rate = Rate { jobs, per_ms, burst };
            let (from, until) = (10 * u64::from(per_ms), 20 * u64::from(per_ms));
            let spent = spent(rate, from, until);
            let most = |ms: u64| u64::from(burst) + ms * u64::from(jobs) / u64::from(per_ms);
            let first = spent.iter().take_while(|at| **at == from).count();
            assert_eq!(first, burst as usize, "{rate:?}: what was saved up");
            for (index, begin) in spent.iter().enumerate().step_by(spent.len() / 100 + 1) {
                for (more, end) in spent.iter().skip(index).enumerate().step_by(spent.len() / 100 + 1) {
                    assert!(more as u64 <= most(end - begin), "{rate:?}: {more} from {begin} to {end}");
                }
            }
            let all = 10 * u64::from(jobs) + u64::from(burst);
            let last = 1 + u64::from(jobs / per_ms);
            assert!((all - last..=all).contains(&(spent.len() as u64)), "{rate:?}: {} of {all}", spent.len());
        }
    }

    #[test]
    fn a_bucket_is_empty_at_first_and_full_at_a_time() {
        let mut bucket = Bucket::new(Rate { jobs: 2, per_ms: 1_000, burst: 3 }, Timestamp(50));
        assert_eq!((bucket.tokens(), bucket.next_at(), bucket.full_at()), (0, Timestamp(550), Timestamp(1_550)));
        bucket.refill(Timestamp(549));
        assert_eq!(bucket.tokens(), 0);
        bucket.refill(Timestamp(9_999));
        assert_eq!((bucket.tokens(), bucket.next_at(), bucket.full_at()), (3, Timestamp(9_999), Timestamp(9_999)));
    }
}
