//! The real clock. The only place that reads it for the engine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use windlass_engine::Timestamp;

/// Now, in milliseconds since the epoch. A clock set before 1970 reads as 1970.
pub(crate) fn now() -> Timestamp {
    Timestamp(u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX))
}

/// Now, in nanoseconds since the epoch.
pub(crate) fn now_ns() -> u64 {
    u64::try_from(since_epoch().as_nanos()).unwrap_or(u64::MAX)
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

/// How long until a moment; nothing if it has passed.
pub(crate) fn until(at: Timestamp) -> Duration {
    Duration::from_millis(at.ms_since(now()))
}
