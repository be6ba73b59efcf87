//! Detects connections that have work but never get a turn. That is a bug, a state change without a
//! wake-up, and the client would wait forever. So a connection with work gets a turn after a while
//! in any case, and counts whether it was neglected.

use std::time::Duration;

use windlass_engine::Timestamp;

use super::Connection;
use windlass_hub::{Visited, clock, warn_limited};

const PATIENCE: Duration = Duration::from_secs(5);

/// The watchdog of one connection.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// When the connection gets a turn although nothing has happened.
    until: Option<Timestamp>,
    /// Whether its socket or its mailbox has woken it.
    was_woken: bool,
    /// Whether the visit of this turn had no wake-up.
    is_unannounced: bool,
}

impl Watch {
    pub(super) const fn wake(&mut self) {
        self.was_woken = true;
    }

    /// Whether items may be executable without a wake-up.
    pub(super) const fn is_unannounced(&self) -> bool {
        self.is_unannounced
    }

    pub(super) const fn until(&self) -> Option<Timestamp> {
        self.until
    }
}

impl Connection {
    /// Called when the turn ends and the connection waits.
    pub(super) fn begin_watch(&mut self) {
        let has_input = self.io.readable && !self.io.eof && !self.is_ending();
        let has_work = !self.work.items.is_empty() || has_input;
        let until = has_work.then(|| clock::after(self.now, PATIENCE));
        self.watch = Watch {
            until,
            ..Watch::default()
        };
    }

    /// Called when a turn begins. Whether items can be executed is known, except for those that
    /// need a wake-up, which are tried.
    pub(super) fn end_watch(&mut self) {
        let Watch {
            until, was_woken, ..
        } = std::mem::take(&mut self.watch);
        if was_woken || until.is_none_or(|at| self.now < at) {
            return;
        }
        self.report_if(self.may_visit() || (self.io.readable && self.wants_to_read()));
        self.watch.is_unannounced =
            self.work.visited == Visited::UntilRung && !self.work.items.is_empty();
    }

    /// Called after the visit.
    pub(super) fn look_after_visit(&mut self) {
        let tried = std::mem::take(&mut self.watch.is_unannounced);
        self.report_if(tried && self.work.visited != Visited::UntilRung);
    }

    fn report_if(&self, was_forgotten: bool) {
        debug_assert!(!was_forgotten, "a connection was neglected: {self:?}");
        if was_forgotten {
            self.counts.forgotten();
            warn_limited!(
                "forgotten",
                client = self.id.client.0,
                "a ready connection was not served for a while: a bug"
            );
        }
    }
}
