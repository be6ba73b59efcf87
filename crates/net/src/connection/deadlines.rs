//! The deadlines of a connection, and what happens when they pass.

use std::time::Duration;

use windlass_engine::Timestamp;
use windlass_session::Reason;

use super::Connection;
use super::phase::Phase;
use windlass_hub::{Visited, clock};

/// How long a peer may take to read its last replies once the connection closes.
const LINGER: Duration = Duration::from_secs(10);

/// How long a peer may read nothing once the daemon stops.
const STOP_LINGER: Duration = Duration::from_secs(1);

impl Connection {
    /// Calls the session because its deadline has passed.
    pub(super) fn tick(&mut self) {
        // The request that the session waits for may be among bytes that were not read yet.
        if self.incoming.paused || self.outgoing.left_behind.is_some() {
            self.session.reset_liveness(self.now);
        }
        self.session.on_tick(self.now, &mut self.outbox);
    }

    /// Returns why the connection is closed, if a deadline for that has passed.
    pub(super) fn times_out(&mut self) -> Option<Reason> {
        let is_silent = self.silent_until().is_some_and(|at| at <= self.now);
        if is_silent && self.stalls_the_stop() {
            Some(Reason::TimedOut("not reading while the daemon stops"))
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

    /// Whether the daemon is stopping and this connection waits only for its peer.
    fn stalls_the_stop(&self) -> bool {
        self.is_stopping() && !self.outgoing.output.is_empty()
    }

    /// Whether the peer's message is overdue. The time in which nothing is read from the peer does
    /// not count.
    fn is_late(&self) -> bool {
        let is_read = !self.incoming.paused && !self.io.eof && !self.is_ending();
        is_read
            && self
                .incoming
                .pending
                .deadline(self.shared.bounds.patience)
                .is_some_and(|at| at <= self.now)
    }

    /// When the peer will have been silent for too long.
    fn silent_until(&self) -> Option<Timestamp> {
        let silence_max = match self.phase {
            Phase::Handshake(_) | Phase::Open => self.shared.bounds.idle_max,
            // The connection waits for the disk, not for the peer.
            Phase::Ending(_) | Phase::Over(_) if self.work.visited == Visited::UntilRung => None,
            Phase::Ending(_) | Phase::Over(_) if self.stalls_the_stop() => Some(STOP_LINGER),
            Phase::Ending(_) | Phase::Over(_) => Some(LINGER),
        };
        silence_max.map(|max| clock::after(self.active_at, max))
    }

    /// The latest time of the connection's next turn.
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
            self.incoming.rests_until.filter(|at| *at > self.now),
        ];
        // Plain comparisons, because filtering with an iterator would make each turn noticeably
        // slower.
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
