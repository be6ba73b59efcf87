//! All connections.

use std::collections::BTreeSet;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::client::Client;
use crate::by_namespace::Sums;
use crate::held::Held;
use crate::ids::{ClientId, Namespace, Protocol, Timestamp};
use crate::refusal::{Outcome, Refusal};
use crate::request::ClientInfo;

/// The connections.
#[derive(Debug)]
pub(crate) struct Clients {
    by_id: HashMap<ClientId, Client, FixedState>,
    /// The keys of `by_id`, in order.
    order: BTreeSet<ClientId>,
    last_turn: u64,
    sums: Sums,
    /// Those of fleets.
    of_fleets: Sums,
    held: Held,
}

impl Clients {
    pub(crate) fn new(seed: u64, held: Held) -> Self {
        let by_id = HashMap::with_hasher(FixedState::with_seed(seed));
        Self {
            by_id,
            order: BTreeSet::new(),
            last_turn: 0,
            sums: Sums::default(),
            of_fleets: Sums::default(),
            held,
        }
    }

    /// The number of connections in a namespace; for `None`, in all.
    pub(crate) fn count_of(&self, namespace: Option<Namespace>) -> u32 {
        u32::try_from(self.sums.of(namespace).count).unwrap_or(u32::MAX)
    }

    pub(crate) fn open(&mut self, id: ClientId, info: ClientInfo, namespace: Namespace) -> Outcome {
        if self.by_id.contains_key(&id) {
            return Err(Refusal::OutOfPlace);
        }
        if info.is_of_fleet() {
            self.of_fleets.add(namespace, 0);
        }
        self.by_id
            .insert(id, Client::new(info, namespace, &self.held));
        self.order.insert(id);
        self.sums.add(namespace, 0);
        Ok(())
    }

    /// Removes a connection without subscriptions and waits. Returns the number of the worker, if any.
    pub(crate) fn close(&mut self, id: ClientId) -> Option<u64> {
        self.order.remove(&id);
        let client = self.by_id.remove(&id)?;
        self.sums.subtract(client.namespace(), 0);
        if client.info().is_of_fleet() {
            self.of_fleets.subtract(client.namespace(), 0);
        }
        client.worker
    }

    /// The number of connections of fleets in a namespace.
    pub(crate) fn of_fleets_in(&self, namespace: Namespace) -> u32 {
        u32::try_from(self.of_fleets.of(Some(namespace)).count).unwrap_or(u32::MAX)
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

    /// The namespace of the names in the client's commands.
    pub(crate) fn namespace_of(&self, id: ClientId) -> Namespace {
        self.get(id).map_or(Namespace::UNNAMED, Client::namespace)
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
