//! Lives from seeds: how many a simulator's test wants, and all of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::Tally;

/// The number in an environment variable; `None` if it is not set.
///
/// # Panics
///
/// It is not a number.
#[must_use]
pub fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {value}")))
}

/// Lives the seeds from 0 on, on as many threads as there are processors, and adds up what happened.
///
/// # Panics
///
/// A life panics.
pub fn live_all(seeds: u64, live: impl Fn(u64) -> Tally + Sync) -> Tally {
    let next = AtomicU64::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let worker = || {
        let mut tally = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return tally;
            }
            tally.add(&live(seed));
        }
    };
    let mut tally = Tally::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().for_each(|worker| tally.add(&worker.join().expect("a life failed: its seed is above")));
    });
    tally
}
