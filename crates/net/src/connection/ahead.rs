//! How far a connection reads ahead while its peer does not read replies.
//!
//! Reading stops while many reply bytes are pending, so that a peer which pipelines must hold its
//! own backlog. But a peer that writes everything before it reads would then deadlock with the
//! daemon. Therefore the bound doubles as long as the peer sends and reads nothing, until the
//! connection exceeds `outbound_bytes_max` and is closed.

use std::time::Duration;

use windlass_engine::Timestamp;

use windlass_hub::clock;

/// Reading stops while more bytes than this are pending, until the peer reads its replies.
pub(super) const WRITE_HIGH_BYTES: usize = 256 * 1024;

/// A peer that has read nothing for this long, and has sent more, may be unable to read.
const PATIENCE: Duration = Duration::from_millis(100);

/// The bound, and when the peer reached it.
#[derive(Debug)]
pub(super) struct Ahead {
    bytes: usize,
    stuck_since: Option<Timestamp>,
}

impl Default for Ahead {
    fn default() -> Self {
        Self {
            bytes: WRITE_HIGH_BYTES,
            stuck_since: None,
        }
    }
}

impl Ahead {
    /// Reading stops while more bytes than this are pending.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Called when the peer has read some replies and this much is pending.
    pub(super) const fn progress(&mut self, left: usize) {
        self.stuck_since = None;
        if left < WRITE_HIGH_BYTES {
            self.bytes = WRITE_HIGH_BYTES;
        }
    }

    /// Called at the end of a turn. `is_stuck`: the peer has sent more, which is not read because
    /// of this bound.
    pub(super) fn end_turn(&mut self, is_stuck: bool, now: Timestamp) {
        self.stuck_since = is_stuck.then(|| self.stuck_since.unwrap_or(now));
    }

    /// When the bound doubles.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.stuck_since.map(|since| clock::after(since, PATIENCE))
    }

    /// Doubles the bound if it is time.
    pub(super) fn begin_turn(&mut self, now: Timestamp) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.bytes = self.bytes.saturating_mul(2);
            self.stuck_since = None;
        }
    }
}
