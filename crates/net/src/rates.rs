//! Rate limits per address, with a burst. The table of addresses is bounded.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Maximum number of addresses in a table. Beyond it, the address whose allowance is full soonest
/// is dropped.
const ADDRESSES_MAX: usize = 4_096;

/// A rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    at_once: u32,
    every: Duration,
}

impl Allowance {
    /// This many in a burst, and as many per minute after that; `None` if that is 0.
    pub fn per_minute(times: u32) -> Option<Self> {
        let every = Duration::from_secs(60).checked_div(times)?;
        Some(Self {
            at_once: times,
            every,
        })
    }
}

/// The part of an address that is limited: one host of IPv4, one network of IPv6.
pub fn source(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits() & !u128::from(u64::MAX),
    }
}

/// Rate limit per source (GCRA): the time at which its allowance is full again.
#[derive(Debug, Default)]
pub struct Rates(HashMap<u128, Instant>);

impl Rates {
    /// Whether a source is within the limit.
    #[must_use]
    pub fn admit(&self, source: u128, now: Instant, allowance: Allowance) -> bool {
        let most = allowance.every * allowance.at_once.saturating_sub(1);
        self.0
            .get(&source)
            .is_none_or(|forgiven_at| forgiven_at.saturating_duration_since(now) <= most)
    }

    /// Counts one use.
    pub fn count(&mut self, source: u128, now: Instant, allowance: Allowance) {
        if self.0.len() >= ADDRESSES_MAX && !self.0.contains_key(&source) {
            self.0.retain(|_, forgiven_at| *forgiven_at > now);
            if self.0.len() >= ADDRESSES_MAX
                && let Some(soonest) = self
                    .0
                    .iter()
                    .min_by_key(|(_, at)| **at)
                    .map(|(source, _)| *source)
            {
                self.0.remove(&soonest);
            }
        }
        let forgiven_at = self.0.entry(source).or_insert(now);
        *forgiven_at = (*forgiven_at).max(now) + allowance.every;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_at_once_then_one_after_the_other() {
        let (mut rates, begun) = (Rates::default(), Instant::now());
        let ten = Allowance::per_minute(10).unwrap();
        let mut tries = |source, after_s| {
            let now = begun + Duration::from_secs(after_s);
            (0..100)
                .take_while(|_| {
                    rates
                        .admit(source, now, ten)
                        .then(|| rates.count(source, now, ten))
                        .is_some()
                })
                .count()
        };
        assert_eq!(
            (tries(1, 0), tries(1, 1), tries(1, 7), tries(2, 7)),
            (10, 0, 1, 10)
        );
        assert_eq!(tries(1, 3_600), 10, "forgiven");
        assert_eq!(Allowance::per_minute(0), None);
    }

    #[test]
    fn the_table_is_bounded() {
        let (mut rates, now, ten) = (
            Rates::default(),
            Instant::now(),
            Allowance::per_minute(10).unwrap(),
        );
        (0..10).for_each(|_| rates.count(u128::MAX, now, ten));
        (0..10_000).for_each(|source| rates.count(source, now, ten));
        assert_eq!(rates.0.len(), ADDRESSES_MAX);
        assert!(
            !rates.admit(u128::MAX, now, ten),
            "the one that does most stays"
        );
        let is_there = |rates: &Rates| {
            (0..10_000)
                .filter(|source| rates.0.contains_key(source))
                .count()
        };
        rates.count(u128::MAX, now, ten);
        assert_eq!(
            is_there(&rates),
            ADDRESSES_MAX - 1,
            "one that is there needs no room"
        );
    }

    #[test]
    fn sources() {
        let of = |text: &str| source(text.parse().unwrap());
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }
}
