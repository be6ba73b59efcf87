//! The pace of work that needs many visits to the engine.

use std::time::Duration;

use tokio::time::Instant;

/// A visit takes up to half a millisecond. The pause is at least as long, so that other clients can
/// use the engine.
const PAUSE: Duration = Duration::from_millis(1);

/// The time limit of a request.
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

    /// Pauses between two visits. Returns `true` if there is time for another one.
    pub(super) async fn goes_on(self) -> bool {
        tokio::time::sleep(PAUSE).await;
        Instant::now() < self.end
    }
}
