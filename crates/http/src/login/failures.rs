//! Failed logins by address: a few at once, then one every few seconds. The table is bounded.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Failures that an address may have at once.
const AT_ONCE: u32 = 10;

/// An address may have one more after this time.
const EVERY: Duration = Duration::from_secs(6);

/// Addresses in the table. Beyond this number the address that is free soonest is forgotten.
const ADDRESSES_MAX: usize = 4_096;

/// Failed logins by address. An address is in the table until its failures are forgiven: when each has cost it `EVERY`.
#[derive(Debug, Default)]
pub(super) struct Failures(HashMap<u128, Instant>);

impl Failures {
    /// Whether an address may try to log in.
    pub(super) fn admit(&self, address: u128, now: Instant) -> bool {
        let most = EVERY * (AT_ONCE - 1);
        self.0.get(&address).is_none_or(|forgiven_at| forgiven_at.saturating_duration_since(now) <= most)
    }

    /// Counts a failure.
    pub(super) fn count(&mut self, address: u128, now: Instant) {
        if self.0.len() >= ADDRESSES_MAX && !self.0.contains_key(&address) {
            self.0.retain(|_, forgiven_at| *forgiven_at > now);
            if self.0.len() >= ADDRESSES_MAX
                && let Some(soonest) = self.0.iter().min_by_key(|(_, at)| **at).map(|(address, _)| *address)
            {
                self.0.remove(&soonest);
            }
        }
        let forgiven_at = self.0.entry(address).or_insert(now);
        *forgiven_at = (*forgiven_at).max(now) + EVERY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_become_rare() {
        let (mut failures, begun) = (Failures::default(), Instant::now());
        let mut tries = |address, after_s| {
            let now = begun + Duration::from_secs(after_s);
            (0..100)
                .take_while(|_| failures.admit(address, now).then(|| failures.count(address, now)).is_some())
                .count()
        };
        assert_eq!((tries(1, 0), tries(1, 1), tries(1, 7), tries(2, 7)), (10, 0, 1, 10));
        assert_eq!(tries(1, 3_600), 10, "forgiven");
    }

    #[test]
    fn the_table_is_bounded() {
        let (mut failures, now) = (Failures::default(), Instant::now());
        (0..AT_ONCE).for_each(|_| failures.count(u128::MAX, now));
        (0..10_000).for_each(|address| failures.count(address, now));
        assert_eq!(failures.0.len(), ADDRESSES_MAX);
        assert!(!failures.admit(u128::MAX, now), "the one that guesses most stays");
    }
}
