//! Stopping the daemon. What a peer has already sent is still processed.

use std::time::Duration;

use windlass_engine::Timestamp;
use windlass_session::Reason;

use super::Connection;
use windlass_hub::clock;

/// How long a connection of a stopping daemon continues to read from a peer that continues to send.
const LAST_BYTES: Duration = Duration::from_millis(200);

impl Connection {
    /// Called when the daemon stops. The connection reads what the peer has already sent, then says
    /// goodbye.
    pub(super) fn prepare_to_stop(&mut self) {
        if !self.is_stopping() {
            // The kernel may not have reported that the socket has bytes.
            self.io.readable = true;
            (self.active_at, self.parts_at) = (self.now, Some(clock::after(self.now, LAST_BYTES)));
        } else if self.is_to_part() {
            self.active_at = self.now;
            self.session.on_shutdown(self.now, &mut self.outbox);
            self.outbox.hang_up(Reason::Shutdown);
        }
    }

    /// Whether the daemon is stopping and everything is read, or the peer's time is up.
    pub(super) fn is_to_part(&self) -> bool {
        let has_read = (!self.io.readable || self.io.eof) && self.work.items.is_empty();
        self.parts_at().is_some_and(|at| has_read || at <= self.now)
    }

    /// When a connection of a stopping daemon says goodbye to a peer that continues to send.
    pub(super) fn parts_at(&self) -> Option<Timestamp> {
        self.parts_at.filter(|_| !self.is_ending())
    }

    /// Whether the daemon is stopping.
    pub(super) const fn is_stopping(&self) -> bool {
        self.parts_at.is_some()
    }
}
