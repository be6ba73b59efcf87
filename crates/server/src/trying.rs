//! What is in use by another process: an address, or the data directory. The daemon tries again for
//! `server.in_use_timeout`.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::config::Config;

/// How often the daemon tries an address or a data directory again that is in use.
pub(crate) const TRY_EVERY: Duration = Duration::from_millis(100);

/// Tries again for a limited time while something is in use.
pub(crate) struct Trying {
    timeout: Duration,
    since: Option<Instant>,
}

impl Trying {
    pub(crate) fn new(config: &Config) -> Self {
        Self { timeout: config.server.in_use_timeout.into(), since: None }
    }

    /// Whether to try again. The first call logs a warning.
    pub(crate) fn goes_on(&mut self, what: &dyn Display) -> bool {
        let since = *self.since.get_or_insert_with(|| {
            if !self.timeout.is_zero() {
                tracing::warn!(%what, seconds = self.timeout.as_secs_f64(), "in use: trying again for a while");
            }
            Instant::now()
        });
        since.elapsed() < self.timeout
    }
}
