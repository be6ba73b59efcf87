//! All connections.

use std::collections::BTreeSet;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::client::Client;
use crate::held::Held;
use crate::ids::{ClientId, Protocol, Timestamp};
use crate::refusal::{Outcome, Refusal};
use crate::request::ClientInfo;

/// The connections.
#[derive(Debug)]
pub(crate) struct Clients {
    by_id: HashMap<ClientId, Client, FixedState>,
    /// The keys of `by_id`, in order.
    order: BTreeSet<ClientId>,
    last_turn: u64,
    held: Held,
}

impl Clients {
    pub(crate) fn new(seed: u64, held: Held) -> Self {
        let by_id = HashMap::with_hasher(FixedState::with_seed(seed));
        Self {
            by_id,
            order: BTreeSet::new(),
            last_turn: 0,
            held,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn open(&mut self, id: ClientId, info: ClientInfo) -> Outcome {
        if self.by_id.contains_key(&id) {
            return Err(Refusal::OutOfPlace);
        }
        self.by_id.insert(id, Client::new(info, &self.held));
        self.order.insert(id);
        Ok(())
    }

    /// Removes a connection without subscriptions and waits. Returns the number of the worker, if any.
    pub(crate) fn close(&mut self, id: ClientId) -> Option<u64> {
        self.order.remove(&id);
        self.by_id.remove(&id)?.worker
    }

    pub(crate) fn get(&self, id: ClientId) -> Option<&Client> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ClientId) -> Option<&mut Client> {
        self.by_id.get_mut(&id)
    }

    /// An open connection.
    pub(crate) fn opened(&mut self, id: ClientId) -> Outcome<&mut Client> {
        self.by_id.get_mut(&id).ok_or(Refusal::OutOfPlace)
    }

    /// All connections, in arbitrary order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClientId, &Client)> {
        self.by_id.iter().map(|(id, client)| (*id, client))
    }

    /// The connections from a number on, in order.
    pub(crate) fn ids_from(&self, first: ClientId) -> impl Iterator<Item = ClientId> {
        self.order.range(first..).copied()
    }

    /// The client's protocol, if it gave one.
    pub(crate) fn protocol_of(&self, id: ClientId) -> Option<Protocol> {
        self.get(id).and_then(Client::protocol)
    }

    /// Assigns connections to a worker, or to no worker.
    pub(crate) fn set_worker(&mut self, ids: impl Iterator<Item = ClientId>, worker: Option<u64>) {
        for id in ids {
            if let Some(client) = self.by_id.get_mut(&id) {
                client.worker = worker;
            }
        }
    }

    /// The sum of the bytes of clients.
    pub(super) fn held(&self) -> Held {
        self.held.clone()
    }

    /// The next place in the order of arrival.
    pub(super) const fn next_turn(&mut self) -> u64 {
        self.last_turn += 1;
        self.last_turn
    }

    /// Returns true if a client's timer that was set for this time is still live.
    pub(crate) fn has_wait_timer(&self, at: Timestamp, id: ClientId) -> bool {
        self.get(id)
            .is_some_and(|client| client.waits_until() == Some(at))
    }

    /// Asserts that the order and the bytes agree.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(crate) fn check(&self) {
        self.by_id.values().for_each(Client::check);
        assert!(
            self.by_id.len() == self.order.len()
                && self.by_id.keys().all(|id| self.order.contains(id))
        );
    }
}
