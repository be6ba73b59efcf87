//! A token bucket that limits starts per time. It is stored as the moment at which it would be full
//! (GCRA's theoretical arrival time), so that it continues correctly after a restart.

use super::Rate;
use crate::ids::Timestamp;

/// The tokens of a rate, exact to a fraction of a millisecond. A token is `per_ms` parts, and each
/// millisecond adds `jobs` parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bucket {
    rate: Rate,
    /// When it is full: the millisecond, and the parts after it.
    full_at: Timestamp,
    parts: u32,
    /// The last moment that it was updated for.
    at: Timestamp,
}

impl Bucket {
    /// A bucket that is full from this moment on; for a new bucket, the start of time.
    pub(super) const fn new(rate: Rate, full_at: Timestamp) -> Self {
        Self {
            rate,
            full_at,
            parts: 0,
            at: Timestamp(0),
        }
    }

    /// The bucket of a rate that replaces another rate or no rate. Without a previous bucket it is
    /// full.
    pub(super) fn renewed(
        before: Option<Self>,
        rate: Option<Rate>,
        now: Timestamp,
    ) -> Option<Self> {
        let rate = rate?;
        Some(match before {
            Some(before) if before.rate == rate => before,
            Some(before) => before.at_rate(rate, now),
            None => Self {
                at: now,
                ..Self::new(rate, Timestamp(0))
            },
        })
    }

    /// The time for one token, in milliseconds.
    pub(super) fn token_ms(&self) -> u64 {
        self.token() / self.per_millisecond()
    }

    /// Sets the rate. Missing tokens are added as late as before, but not later than an empty
    /// bucket would be full.
    fn at_rate(self, rate: Rate, now: Timestamp) -> Self {
        let empty = now
            .after_ms(u64::from(rate.burst) * u64::from(rate.per_ms) / u64::from(rate.jobs.max(1)));
        Self {
            at: now,
            ..Self::new(rate, self.full_at().min(empty))
        }
    }

    /// Adds the tokens up to a moment.
    pub(super) fn refill(&mut self, now: Timestamp) {
        self.at = self.at.max(now);
    }

    /// Takes a token if there is one.
    pub(super) fn spend(&mut self, now: Timestamp) {
        self.refill(now);
        if self.tokens() == 0 {
            return;
        }
        if self.full_at < self.at {
            self.full_at = self.at;
            self.parts = 0;
        }
        let jobs = self.per_millisecond();
        let parts = self.token() + u64::from(self.parts);
        self.full_at = self.full_at.after_ms(parts / jobs);
        self.parts = u32::try_from(parts % jobs).unwrap_or(0);
    }

    /// The number of tokens at the last update.
    pub(super) fn tokens(&self) -> u32 {
        let lacks = if self.full_at < self.at {
            0
        } else {
            let ms = self.full_at.ms_since(self.at);
            let parts = ms.saturating_mul(self.per_millisecond());
            parts.saturating_add(self.parts.into())
        };
        u32::try_from(self.all().saturating_sub(lacks) / self.token()).unwrap_or(u32::MAX)
    }

    /// When there is a token.
    pub(super) fn next_at(&self) -> Timestamp {
        self.before_full(self.all() - self.token())
    }

    /// When the bucket is full.
    pub(super) fn full_at(&self) -> Timestamp {
        self.before_full(0)
    }

    /// Returns true if the bucket is full.
    pub(super) fn is_full(&self) -> bool {
        self.full_at() <= self.at
    }

    /// When no more than these parts are missing.
    fn before_full(&self, lacks: u64) -> Timestamp {
        let jobs = self.per_millisecond();
        let parts = u64::from(self.parts);
        let at = match parts.checked_sub(lacks) {
            Some(later) => self.full_at.after_ms(later.div_ceil(jobs)),
            None => Timestamp(self.full_at.0.saturating_sub((lacks - parts) / jobs)),
        };
        at.max(self.at)
    }

    /// The parts of all tokens.
    fn all(&self) -> u64 {
        u64::from(self.rate.burst.max(1)) * self.token()
    }

    fn token(&self) -> u64 {
        self.rate.per_ms.max(1).into()
    }

    fn per_millisecond(&self) -> u64 {
        self.rate.jobs.max(1).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spends tokens as soon as possible, and returns when each was spent.
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
        for (jobs, per_ms, burst) in [
            (100, 60_000, 20),
            (7, 1_000, 1),
            (3, 7, 3),
            (5_000, 1_000, 5_000),
            (1, 3_600_000, 1),
        ] {
            let rate = Rate {
                jobs,
                per_ms,
                burst,
            };
            let (from, until) = (10 * u64::from(per_ms), 20 * u64::from(per_ms));
            let spent = spent(rate, from, until);
            let most = |ms: u64| u64::from(burst) + ms * u64::from(jobs) / u64::from(per_ms);
            let first = spent.iter().take_while(|at| **at == from).count();
            assert_eq!(first, burst as usize, "{rate:?}: what was saved up");
            for (index, begin) in spent.iter().enumerate().step_by(spent.len() / 100 + 1) {
                for (more, end) in spent
                    .iter()
                    .skip(index)
                    .enumerate()
                    .step_by(spent.len() / 100 + 1)
                {
                    assert!(
                        more as u64 <= most(end - begin),
                        "{rate:?}: {more} from {begin} to {end}"
                    );
                }
            }
            let all = 10 * u64::from(jobs) + u64::from(burst);
            let last = 1 + u64::from(jobs / per_ms);
            assert!(
                (all - last..=all).contains(&(spent.len() as u64)),
                "{rate:?}: {} of {all}",
                spent.len()
            );
        }
    }

    #[test]
    fn a_bucket_is_full_at_first_and_goes_on_from_its_moment() {
        let rate = Rate {
            jobs: 2,
            per_ms: 1_000,
            burst: 3,
        };
        let mut bucket = Bucket::new(rate, Timestamp(0));
        bucket.refill(Timestamp(50));
        assert_eq!((bucket.tokens(), bucket.is_full()), (3, true));
        (0..3).for_each(|_| bucket.spend(Timestamp(50)));
        assert_eq!(
            (bucket.tokens(), bucket.next_at(), bucket.full_at()),
            (0, Timestamp(550), Timestamp(1_550))
        );
        let mut again = Bucket::new(rate, bucket.full_at());
        for bucket in [&mut bucket, &mut again] {
            bucket.refill(Timestamp(549));
            assert_eq!(bucket.tokens(), 0);
            bucket.refill(Timestamp(550));
            assert_eq!(
                (bucket.tokens(), bucket.next_at(), bucket.full_at()),
                (1, Timestamp(550), Timestamp(1_550))
            );
            bucket.refill(Timestamp(9_999));
            let all = (bucket.tokens(), bucket.next_at(), bucket.full_at());
            assert_eq!(all, (3, Timestamp(9_999), Timestamp(9_999)));
        }
    }

    #[test]
    fn another_rate_gives_back_nothing_and_keeps_no_one_waiting_longer_than_an_empty_bucket() {
        let slow = Rate {
            jobs: 1,
            per_ms: 60_000,
            burst: 1,
        };
        let mut bucket = Bucket::new(slow, Timestamp(0));
        bucket.spend(Timestamp(1_000));
        let mut fast = bucket.at_rate(
            Rate {
                jobs: 10,
                per_ms: 1_000,
                burst: 10,
            },
            Timestamp(1_000),
        );
        assert_eq!(
            (fast.tokens(), fast.next_at(), fast.full_at()),
            (0, Timestamp(1_100), Timestamp(2_000))
        );
        fast.refill(Timestamp(3_000));
        assert_eq!(
            fast.at_rate(slow, Timestamp(3_000)).tokens(),
            1,
            "a full one stays full"
        );
    }
}
