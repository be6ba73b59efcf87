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
        if !self.stopping {
            // The kernel may not have reported yet that the socket has bytes.
            (self.stopping, self.readable) = (true, true);
            (self.heard_at, self.parts_at) = (self.now, clock::after(self.now, LAST_BYTES));
        } else if self.is_to_part() {
            self.heard_at = self.now;
            self.session.on_shutdown(self.now, &mut self.outbox);
            self.outbox.hang_up(Reason::Shutdown);
        }
    }

    /// Whether the daemon stops and everything is read, or the peer has had its time.
    pub(super) fn is_to_part(&self) -> bool {
        let has_read = (!self.readable || self.eof) && self.items.is_empty();
        self.stopping && self.ending.is_none() && (has_read || self.parts_at <= self.now)
    }

    /// When the connection parts from a peer that goes on sending, if the daemon stops.
    pub(super) fn parts_at(&self) -> Option<Timestamp> {
        (self.stopping && self.ending.is_none()).then_some(self.parts_at)
    }
}
