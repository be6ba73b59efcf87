//! The hub as tests use it.

use std::collections::VecDeque;
use std::sync::Arc;

use windlass_engine::{ClientId, Reading};

use super::Hub;
use crate::broker::{Batch, Broker as _, CommitDuty, Visited};
use crate::mailbox::Mailbox;

impl Hub {
    /// Runs one visit with unlimited space for replies. Returns whether it executed everything.
    pub fn visit_all(
        &self,
        client: ClientId,
        now: &Reading,
        items: &mut VecDeque<windlass_session::Item>,
    ) -> bool {
        self.visit_one(client, now, items, usize::MAX) == Visited::All
    }

    /// Visits with the items of one client.
    pub fn visit_one(
        &self,
        client: ClientId,
        now: &Reading,
        items: &mut VecDeque<windlass_session::Item>,
        room: usize,
    ) -> Visited {
        let mut visited = Visited::All;
        let batch = Batch {
            client,
            items,
            room,
            visited: &mut visited,
        };
        if self.visit(now, &mut std::iter::once(batch)) > CommitDuty::None {
            self.durable.wake_committer();
        }
        visited
    }

    /// The number of the newest connection; 0 before the first.
    pub fn newest_client(&self) -> u64 {
        self.lock()
            .mailboxes
            .keys()
            .map(|client| client.0)
            .max()
            .unwrap_or_default()
    }

    /// Whether serving threads commit in their turns.
    pub fn commits_in_turns(&self) -> bool {
        self.durable.commit_in_turns.get()
    }

    /// All mailboxes.
    pub fn mailboxes(&self) -> Vec<Arc<Mailbox>> {
        self.lock().mailboxes.values().cloned().collect()
    }
}
