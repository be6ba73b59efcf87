//! Retries for `server.in_use_timeout` while an address or the data directory is in use by another
//! process.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::config::Config;

/// How often the daemon retries an address or a data directory in use.
pub(crate) const TRY_EVERY: Duration = Duration::from_millis(100);

/// Allows retries for a limited time.
pub(crate) struct Retry {
    timeout: Duration,
    since: Option<Instant>,
}

impl Retry {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            timeout: config.server.in_use_timeout.into(),
            since: None,
        }
    }

    /// Whether to try again. The first call logs a warning.
    pub(crate) fn goes_on(&mut self, what: &dyn Display) -> bool {
        let since = *self.since.get_or_insert_with(|| {
            if !self.timeout.is_zero() {
                tracing::warn!(%what, seconds = self.timeout.as_secs_f64(), "in use: retrying for a while");
            }
            Instant::now()
        });
        since.elapsed() < self.timeout
    }
}

#[cfg(test)]
mod tests {
    use windlass_config::Period;

    use super::*;
    use crate::config::fixture;
    use windlass_hub::testing::captured;

    #[test]
    fn it_tries_again_until_the_timeout_and_says_so_once() {
        for (seconds, goes_on, lines) in [(0, false, 0), (3_600, true, 1)] {
            let mut config = fixture::config("");
            config.server.in_use_timeout = Period::from_secs(seconds);
            let mut trying = Retry::new(&config);
            let said = captured(|| {
                assert_eq!(
                    [(); 3].map(|()| trying.goes_on(&"the address")),
                    [goes_on; 3]
                )
            });
            assert_eq!(said.matches("in use: retrying").count(), lines, "{said}");
        }
    }
}
