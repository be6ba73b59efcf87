//! Choices in `[gearman]`. The section itself is in `sections`.

use serde::{Deserialize, Serialize};

/// The effect of a worker's timeout on its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnTimeout {
    /// `Requeue` in `windlass gearmand`, otherwise `Fail`.
    Auto,
    /// The job fails, and its clients are notified (the specification).
    Fail,
    /// The job returns to its queue, and its clients are not notified (gearmand).
    Requeue,
}

/// The unit of the number in `CAN_DO_TIMEOUT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeoutUnit {
    /// Milliseconds (the specification, gearmand).
    Ms,
    /// Seconds (Perl's workers).
    S,
}
