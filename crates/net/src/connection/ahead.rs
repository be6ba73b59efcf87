//! How far a connection reads on while its peer takes no answers.
//!
//! Reading stops while many bytes of answers wait, so that a peer which pipelines pays for its answers with its own
//! memory. A peer that reads nothing before it has written everything would then wait for the daemon for ever, and the
//! daemon for the peer. So the bound doubles for as long as the peer sends and takes nothing, until the connection holds
//! more than `outbound_bytes_max` and ends.

use std::time::Duration;

use windlass_engine::Timestamp;

use windlass_hub::clock;

/// Reading stops while more than this waits to be written: the peer must take its answers first.
pub(super) const WRITE_HIGH_BYTES: usize = 256 * 1024;

/// A peer that has taken nothing for so long, and has sent more, may be unable to read.
const PATIENCE: Duration = Duration::from_millis(100);

/// The bound, and since when the peer has been at it.
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
    /// Reading stops while more than this waits to be written.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The peer has taken some of its answers, and this much is left.
    pub(super) const fn progress(&mut self, left: usize) {
        self.stuck_since = None;
        if left < WRITE_HIGH_BYTES {
            self.bytes = WRITE_HIGH_BYTES;
        }
    }

    /// The turn ends. `is_stuck`: the peer has sent more, which the connection does not read because of this bound.
    pub(super) fn end_turn(&mut self, is_stuck: bool, now: Timestamp) {
        self.stuck_since = is_stuck.then(|| self.stuck_since.unwrap_or(now));
    }

    /// When the bound doubles.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.stuck_since.map(|since| clock::after(since, PATIENCE))
    }

    /// Doubles the bound, if that is due.
    pub(super) fn begin_turn(&mut self, now: Timestamp) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.bytes = self.bytes.saturating_mul(2);
            self.stuck_since = None;
        }
    }
}
