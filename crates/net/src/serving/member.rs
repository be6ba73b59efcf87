//! A connection on a serving thread, with the thread's data about it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio_util::task::task_tracker::TaskTrackerToken;
use windlass_session::Reason;

use super::arrival::{Debt, Label, Place};
use super::timers::Timer;
use crate::connection::Connection;

/// A connection of a thread.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) connection: Connection,
    pub(super) timer: Timer,
    pub(super) is_ready: bool,
    /// Whether the kernel reports when the socket accepts bytes.
    pub(super) waits_to_write: bool,
    /// Its namespace, once it has entered one with a name.
    pub(super) namespace: Option<Box<str>>,
    /// The number of its namespace on this thread.
    pub(super) tenant: usize,
    /// Whether it had much to do in its last turn.
    pub(super) is_deep: bool,
    /// The last load window in which it has sent commands.
    pub(super) worked_in: u64,
    /// Whether it moves to another thread after its turn.
    pub(super) leaves: bool,
    pub(super) label: Label,
    pub(super) debt: Debt,
    pub(super) place: Place,
    pub(super) _token: TaskTrackerToken,
}

impl Member {
    pub(super) fn make_ready(&mut self, ready: &mut Vec<usize>) {
        if !std::mem::replace(&mut self.is_ready, true) {
            ready.push(self.connection.id().index);
        }
    }

    /// Calls the connection, and closes it if it panics, so that a bug affects one connection
    /// instead of the daemon.
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
