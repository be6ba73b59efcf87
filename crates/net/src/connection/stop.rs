//! The daemon stops: what a peer has sent by then still counts.

use std::time::Duration;

use windlass_engine::Timestamp;
use windlass_session::Reason;

use super::Connection;
use windlass_hub::clock;

/// How long a connection goes on reading once the daemon stops, if its peer goes on sending.
const LAST_BYTES: Duration = Duration::from_millis(200);

impl Connection {
    /// The daemon stops. The connection reads what the peer has sent by now, and then says goodbye.
    pub(super) fn prepare_to_stop(&mut self) {
        if !self.is_stopping() {
            // The kernel may not have reported yet that the socket has bytes.
            self.io.readable = true;
            (self.active_at, self.parts_at) = (self.now, Some(clock::after(self.now, LAST_BYTES)));
        } else if self.is_to_part() {
            self.active_at = self.now;
            self.session.on_shutdown(self.now, &mut self.outbox);
            self.outbox.hang_up(Reason::Shutdown);
        }
    }

    /// Whether the daemon stops and everything is read, or the peer has had its time.
    pub(super) fn is_to_part(&self) -> bool {
        let has_read = (!self.io.readable || self.io.eof) && self.work.items.is_empty();
        self.parts_at().is_some_and(|at| has_read || at <= self.now)
    }

    /// When the connection parts from a peer that goes on sending, if the daemon stops.
    pub(super) fn parts_at(&self) -> Option<Timestamp> {
        self.parts_at.filter(|_| !self.is_ending())
    }

    /// Whether the daemon stops.
    pub(super) const fn is_stopping(&self) -> bool {
        self.parts_at.is_some()
    }
}
