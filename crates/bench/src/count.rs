//! Waiting until a server's own count of its jobs is what it should be.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::interrupt::Interrupt;

/// How long counts may take to become what they should be.
const SETTLE_WITHIN: Duration = Duration::from_secs(120);
/// Between two questions.
const ASK_EVERY: Duration = Duration::from_millis(2);

/// Waits until `jobs`, which asks a server, counts exactly `expected`.
///
/// # Errors
/// [`Error::Mismatch`] if it still does not after two minutes; what `jobs` reports; [`Error::Interrupted`].
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
