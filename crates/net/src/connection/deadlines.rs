//! The times by which a connection must have done something, and what happens then.

use std::time::Duration;

use windlass_engine::Timestamp;
use windlass_session::Reason;

use super::Connection;
use super::phase::Phase;
use windlass_hub::{Visited, clock};

/// How long a peer may take to read the rest of its answers once the connection ends.
const LINGER: Duration = Duration::from_secs(10);

/// How long a peer may take none of its answers once the daemon stops.
const STOP_LINGER: Duration = Duration::from_secs(1);

impl Connection {
    /// Calls the session, whose deadline has passed.
    pub(super) fn tick(&mut self) {
        // The request that the session waits for may stand behind bytes that the connection has not read.
        if self.incoming.paused || self.outgoing.left_behind.is_some() {
            self.session.reset_liveness(self.now);
        }
        self.session.on_tick(self.now, &mut self.outbox);
    }

    /// Why the connection ends, if a deadline has passed that ends it.
    pub(super) fn times_out(&mut self) -> Option<Reason> {
        let is_silent = self.silent_until().is_some_and(|at| at <= self.now);
        if is_silent && self.stalls_the_stop() {
            Some(Reason::TimedOut(
                "not reading replies while the daemon stops",
            ))
        } else if is_silent {
            let Phase::Ending(why) = &self.phase else {
                return Some(Reason::TimedOut("idle"));
            };
            Some(why.clone())
        } else {
            self.is_late()
                .then_some(Reason::TimedOut("message incomplete"))
        }
    }

    /// Whether the daemon stops and this connection waits only for its peer.
    fn stalls_the_stop(&self) -> bool {
        self.is_stopping() && !self.outgoing.output.is_empty()
    }

    /// Whether the peer should have finished its message by now. It is not late while nothing is read from it.
    fn is_late(&self) -> bool {
        let is_read = !self.incoming.paused && !self.io.eof && !self.is_ending();
        is_read
            && self
                .incoming
                .pending
                .deadline(self.shared.bounds.patience)
                .is_some_and(|at| at <= self.now)
    }

    /// When the peer has been silent for too long.
    fn silent_until(&self) -> Option<Timestamp> {
        let silence_max = match self.phase {
            Phase::Handshake(_) | Phase::Open => self.shared.bounds.idle_max,
            // It waits for the disk, not for the peer.
            Phase::Ending(_) | Phase::Over(_) if self.work.visited == Visited::UntilRung => None,
            Phase::Ending(_) | Phase::Over(_) if self.stalls_the_stop() => Some(STOP_LINGER),
            Phase::Ending(_) | Phase::Over(_) => Some(LINGER),
        };
        silence_max.map(|max| clock::after(self.active_at, max))
    }

    /// When the connection must have a turn at the latest.
    pub(super) fn deadline(&self, reading: bool) -> Option<Timestamp> {
        let session = self.session.next_deadline().filter(|_| !self.is_ending());
        let late = self
            .incoming
            .pending
            .deadline(self.shared.bounds.patience)
            .filter(|_| reading);
        let others = [
            self.silent_until(),
            late,
            self.outgoing.ahead.deadline(),
            self.watch.until(),
            self.parts_at(),
        ];
        // Compared as numbers: an iterator that leaves out what is not there costs each turn much more.
        let soonest =
            |at: Timestamp, other: Option<Timestamp>| at.min(other.unwrap_or(Timestamp::NEVER));
        Some(
            others
                .into_iter()
                .fold(session.unwrap_or(Timestamp::NEVER), soonest),
        )
        .filter(|at| *at < Timestamp::NEVER)
    }
}
