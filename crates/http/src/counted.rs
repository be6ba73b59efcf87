//! Counters of the last hour, for irregular readers.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Counters of the last hour: two that started at 0 with this daemon, and between them one that is stored.
#[derive(Debug)]
pub(crate) struct Counted(Mutex<[Counter; 3]>);

/// A counter, with recent increases.
#[derive(Debug, Default)]
struct Counter {
    last: Option<u64>,
    /// Increases by minute: the first time, the last time, and the amount.
    grown: VecDeque<(Instant, Instant, u64)>,
}

impl Default for Counted {
    fn default() -> Self {
        let own = || Counter {
            last: Some(0),
            ..Counter::default()
        };
        Self(Mutex::new([own(), Counter::default(), own()]))
    }
}

impl Counted {
    /// Records the counters. Returns the increase of each in the last hour, and the time of the
    /// last increase.
    pub(crate) fn note(&self, counts: [u64; 3], now: Instant) -> [Option<(u64, Instant)>; 3] {
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = counts.into_iter();
        counters
            .each_mut()
            .map(|counter| counts.next().and_then(|count| counter.note(count, now)))
    }
}

impl Counter {
    fn note(&mut self, count: u64, now: Instant) -> Option<(u64, Instant)> {
        const MINUTE: Duration = Duration::from_secs(60);
        // Events before the first reading by this daemon are not of this hour.
        let more = count.saturating_sub(self.last.replace(count).unwrap_or(count));
        match self
            .grown
            .back_mut()
            .filter(|(began, ..)| now.duration_since(*began) < MINUTE)
        {
            _ if more == 0 => {}
            Some((_, last, grown)) => (*last, *grown) = (now, *grown + more),
            None => self.grown.push_back((now, now, more)),
        }
        self.grown
            .retain(|(_, last, _)| now.duration_since(*last) <= 60 * MINUTE);
        let (_, last, _) = self.grown.back()?;
        Some((self.grown.iter().map(|(.., grown)| grown).sum(), *last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_tells_what_it_has_counted_in_the_last_hour() {
        let (mut counter, begun) = (Counter::default(), Instant::now());
        let mut at = |minute: u64, count: u64| {
            let now = begun + Duration::from_secs(60 * minute);
            counter
                .note(count, now)
                .map(|(grown, last)| (grown, last.duration_since(begun).as_secs() / 60))
        };
        assert_eq!(at(0, 1_000), None, "that was before");
        assert_eq!(at(1, 1_000), None);
        assert_eq!(at(2, 1_003), Some((3, 2)));
        assert_eq!(at(40, 1_004), Some((4, 40)));
        assert_eq!(at(50, 1_004), Some((4, 40)));
        assert_eq!(at(63, 1_004), Some((1, 40)));
        assert_eq!(at(101, 1_004), None);
    }

    #[test]
    fn what_this_daemon_counts_is_told_from_its_start_on() {
        let grown = Counted::default()
            .note([1, 1_000, 2], Instant::now())
            .map(|it| it.map(|(grown, _)| grown));
        assert_eq!(grown, [Some(1), None, Some(2)]);
    }
}
