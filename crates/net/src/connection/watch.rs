//! A connection that could go on and never has a turn is a bug: something has changed and not rung. Its client would wait
//! for ever. So a connection with work has a turn after a while in any case, and shows whether it was forgotten.

use std::time::Duration;

use windlass_engine::Timestamp;

use super::Connection;
use windlass_hub::{Visited, clock, warn_limited};

const PATIENCE: Duration = Duration::from_secs(5);

/// The watch over one connection.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// When the connection has a turn although nothing has happened.
    until: Option<Timestamp>,
    /// Something has happened: its socket or its mailbox has woken it.
    was_woken: bool,
    /// The visit of this turn was not announced.
    is_unannounced: bool,
}

impl Watch {
    pub(super) const fn wake(&mut self) {
        self.was_woken = true;
    }

    /// Whether items may be done that no one has announced.
    pub(super) const fn is_unannounced(&self) -> bool {
        self.is_unannounced
    }

    pub(super) const fn until(&self) -> Option<Timestamp> {
        self.until
    }
}

impl Connection {
    /// The turn ends, and the connection waits.
    pub(super) fn begin_watch(&mut self) {
        let has_input = self.io.readable && !self.io.eof && !self.is_ending();
        let has_work = !self.work.items.is_empty() || has_input;
        let until = has_work.then(|| clock::after(self.now, PATIENCE));
        self.watch = Watch {
            until,
            ..Watch::default()
        };
    }

    /// A turn begins. Whether it may go on is known; a visit that must be announced is tried.
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

    /// The visit is over.
    pub(super) fn look_after_visit(&mut self) {
        let tried = std::mem::take(&mut self.watch.is_unannounced);
        self.report_if(tried && self.work.visited != Visited::UntilRung);
    }

    fn report_if(&self, was_forgotten: bool) {
        debug_assert!(
            !was_forgotten,
            "a ready connection was not served: {self:?}"
        );
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
