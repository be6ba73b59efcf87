//! The pace of work that takes many visits to the engine.

use std::time::Duration;

use tokio::time::Instant;

/// A visit lasts up to half a millisecond. At least as long as that, the engine is free for others.
const PAUSE: Duration = Duration::from_millis(1);

/// How long a request goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    end: Instant,
}

impl Pace {
    pub(super) fn new(time_max: Duration) -> Self {
        Self {
            end: Instant::now() + time_max,
        }
    }

    /// Pauses between two visits. Returns whether there is time for another one.
    pub(super) async fn goes_on(self) -> bool {
        tokio::time::sleep(PAUSE).await;
        Instant::now() < self.end
    }
}
