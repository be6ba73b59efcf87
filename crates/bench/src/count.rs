//! Waits for a server's own count of jobs to reach the expected value.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::interrupt::Interrupt;

/// How long counts may take to reach it.
const SETTLE_WITHIN: Duration = Duration::from_secs(120);
/// The time between two requests.
const ASK_EVERY: Duration = Duration::from_millis(2);

/// Waits until `jobs`, which queries a server, returns exactly `expected`.
///
/// # Errors
/// [`Error::Mismatch`] if it still does not after two minutes; the errors of `jobs`; [`Error::Interrupted`].
pub fn settled(
    expected: u64,
    interrupt: &Interrupt,
    mut jobs: impl FnMut() -> Result<u64, Error>,
) -> Result<(), Error> {
    let begun = Instant::now();
    loop {
        let found = jobs()?;
        if found == expected {
            return Ok(());
        }
        interrupt.check()?;
        if begun.elapsed() > SETTLE_WITHIN {
            return Err(Error::Mismatch(format!("the server counts {found} jobs, {expected} were expected")));
        }
        std::thread::sleep(ASK_EVERY);
    }
}
