//! What may be chosen in `[gearman]`. The section itself stands with the others, in `sections`.

use serde::{Deserialize, Serialize};

/// What becomes of a Gearman job whose worker took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnTimeout {
    /// As the server that is stood in for: `Requeue` in `windlass gearmand`, else `Fail`.
    Auto,
    /// It has failed, and its clients hear so (the specification).
    Fail,
    /// It goes back to its queue without a word (gearmand).
    Requeue,
}

/// What the number in `CAN_DO_TIMEOUT` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeoutUnit {
    /// Milliseconds (the specification, gearmand).
    Ms,
    /// Seconds (Perl's workers).
    S,
}
