//! Requests for work that wait: while hand-outs are held, or until there is room for more bytes of jobs.

use std::collections::{BTreeMap, VecDeque};

use crate::command::TakeCommand;
use crate::ids::{ClientId, Tag, Timestamp};

/// Requests that may wait for one client.
const CLIENT_MAX: u32 = 1 << 16;

/// Requests for work, in their order.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    /// No job is handed out before.
    held_until: Timestamp,
    takes: VecDeque<(ClientId, Tag, TakeCommand)>,
    /// How many of `takes` are whose.
    waiting: BTreeMap<ClientId, u32>,
}

impl Deferred {
    /// No job is handed out before this time.
    pub(crate) const fn hold_until(&mut self, until: Timestamp) {
        self.held_until = until;
    }

    /// Whether no job is handed out yet.
    pub(crate) fn is_held(&self, now: Timestamp) -> bool {
        now < self.held_until
    }

    /// Until when no job is handed out.
    pub(crate) const fn held_until(&self) -> Timestamp {
        self.held_until
    }

    /// Whether a request must wait: behind others even after the end.
    pub(crate) fn must_wait(&self, now: Timestamp) -> bool {
        self.is_held(now) || self.has_any()
    }

    /// Whether any request waits.
    pub(crate) fn has_any(&self) -> bool {
        !self.takes.is_empty()
    }

    /// Whether a request of the client waits.
    pub(crate) fn has_any_of(&self, client: ClientId) -> bool {
        self.waiting.get(&client).is_some_and(|waiting| *waiting > 0)
    }

    /// A request waits from now on. Returns whether there is room for it.
    pub(crate) fn add(&mut self, client: ClientId, tag: Tag, take: TakeCommand) -> bool {
        let waiting = self.waiting.entry(client).or_default();
        if *waiting >= CLIENT_MAX {
            return false;
        }
        *waiting += 1;
        self.takes.push_back((client, tag, take));
        true
    }

    /// The client asks for work no more.
    pub(crate) fn forget(&mut self, client: ClientId) {
        if self.waiting.remove(&client).is_some() {
            self.takes.retain(|(waiting, ..)| *waiting != client);
        }
    }

    /// The request that has waited longest.
    pub(crate) fn pop(&mut self) -> Option<(ClientId, Tag, TakeCommand)> {
        let take = self.takes.pop_front()?;
        if self.takes.is_empty() {
            self.waiting.clear();
        } else if let Some(waiting) = self.waiting.get_mut(&take.0) {
            *waiting -= 1;
        }
        Some(take)
    }
}
