//! Lives from seeds: how many a simulator's test wants, and all of them.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
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
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is not a number: {value}")),
    )
}

/// Lives the seeds from 0 on, on as many threads as there are processors, and adds up what happened. A life that fails does
/// not end the others: the seeds of all that failed are named together at the end, up to a few.
///
/// # Panics
///
/// A life panics.
pub fn live_all(seeds: u64, live: impl Fn(u64) -> Tally + Sync) -> Tally {
    const FAILURES_MAX: usize = 10;
    let (next, failed) = (AtomicU64::new(0), Mutex::new(BTreeSet::new()));
    let failed_seeds = || failed.lock().unwrap_or_else(PoisonError::into_inner);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let worker = || {
        let mut tally = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds || failed_seeds().len() >= FAILURES_MAX {
                return tally;
            }
            match catch_unwind(AssertUnwindSafe(|| live(seed))) {
                Ok(lived) => tally.add(&lived),
                Err(_) => drop(failed_seeds().insert(seed)),
            }
        }
    };
    let mut tally = Tally::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .for_each(|worker| tally.add(&worker.join().expect("a life that fails is caught")));
    });
    let failed = failed_seeds();
    assert!(
        failed.is_empty(),
        "lives failed, each as it says above. Replay with WINDLASS_SIM_SEED, one of {failed:?}"
    );
    drop(failed);
    tally
}
