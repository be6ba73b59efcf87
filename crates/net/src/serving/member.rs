//! A connection on a serving thread, with what the thread keeps beside it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio_util::task::task_tracker::TaskTrackerToken;
use windlass_session::Reason;

use super::arrival::{Label, Place};
use super::timers::Timer;
use crate::connection::Connection;

/// A connection of a thread.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) connection: Connection,
    pub(super) timer: Timer,
    pub(super) is_ready: bool,
    /// The kernel is asked to report when the socket takes bytes.
    pub(super) waits_to_write: bool,
    /// The last window of the thread's load in which it has sent commands.
    pub(super) worked_in: u64,
    /// It moves to another thread after its turn.
    pub(super) leaves: bool,
    pub(super) label: Label,
    pub(super) place: Place,
    pub(super) _token: TaskTrackerToken,
}

impl Member {
    pub(super) fn make_ready(&mut self, ready: &mut Vec<usize>) {
        if !std::mem::replace(&mut self.is_ready, true) {
            ready.push(self.connection.id().index);
        }
    }

    /// Calls the connection. A bug in one connection ends that connection, not the daemon.
    pub(super) fn guard(&mut self, act: impl FnOnce(&mut Connection)) {
        let Self {
            connection, label, ..
        } = self;
        let _inside = label.span.enter();
        if catch_unwind(AssertUnwindSafe(|| act(connection))).is_err() {
            tracing::error!(
                protocol = label.protocol,
                "a connection panicked: closed it"
            );
            connection.end(Reason::Ended);
        }
    }
}
