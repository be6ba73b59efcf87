//! The ledger: the state of an edge's clients at the engine, to be claimed of a new leader.
//!
//! The ledger sees every item in both directions, in order, and keeps the state that is not in the journal: for each
//! client its description, the queues it serves, its waits, its leases, and the jobs it listens to. A command takes
//! effect when [`ToEdge::Applied`] counts it. So at the end of each frame the ledger has what the leader's engine has, beside the
//! commands that are on their way.
//!
//! Not here: the edge's mail, and its words that are on their way.

mod client;
mod effect;
mod has;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::BTreeMap;

use windlass_engine::{ClientId, Command, Proof, Tag, Token};

use self::client::Client;
use self::waits::Waits;
use crate::number::Edge;
use crate::to_edge::ToEdge;
use crate::to_leader::ToLeader;

/// What a ledger may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// For all clients, in bytes as the ledger counts them.
    pub bytes_max: usize,
    /// For one client.
    pub client_bytes_max: usize,
}

/// The token of no lease.
const NO_LEASE: Token = Token(u64::MAX);

/// What an edge's clients have at the engine.
#[derive(Debug)]
pub struct Ledger {
    bounds: Bounds,
    clients: BTreeMap<ClientId, Entry>,
    bytes: usize,
    /// The order of waits of different clients.
    turn: u64,
    /// The newest commit that is in the leader's store.
    durable: u64,
}

/// One client's entry.
#[derive(Debug)]
enum Entry {
    Kept(Box<Client>),
    /// It had more than the ledger may hold.
    Lost,
}

impl Ledger {
    /// Nothing yet.
    pub const fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            clients: BTreeMap::new(),
            bytes: 0,
            turn: 0,
            durable: 0,
        }
    }

    /// Makes a report of a client, which the edge is about to send, one about the lease that the client knows: it gets
    /// that lease's token. Otherwise it would count for any lease that the client has when it arrives, also for one
    /// that the client does not know. Clients that are lost report as they did.
    pub fn prove(&self, client: ClientId, command: &mut Command) {
        let Command::Lease(report) = command else {
            return;
        };
        let Some(Entry::Kept(client)) = self.clients.get(&client) else {
            return;
        };
        let (job, proof) = report.proof_mut();
        if *proof == Proof::Connection {
            *proof = Proof::Token(client.token_of(job).unwrap_or(NO_LEASE));
        }
    }

    /// Notes what the edge sends.
    pub fn sent(&mut self, item: &ToLeader) {
        match item {
            ToLeader::Open { client, room } => {
                self.forget(*client);
                let entry = Client::new(*room);
                self.bytes += entry.bytes();
                self.clients.insert(*client, Entry::Kept(Box::new(entry)));
                self.change(*client, |_, _| {});
            }
            ToLeader::Close { client } => self.forget(*client),
            ToLeader::Command {
                client,
                tag,
                command,
            } => self.change(*client, |entry, _| entry.asked(*tag, command)),
            ToLeader::Forbidden { client, tag } => {
                self.change(*client, |entry, _| entry.forbidden(*tag))
            }
            ToLeader::Room { client, bytes } => {
                self.change(*client, |entry, _| entry.add_room(*bytes))
            }
            ToLeader::Claim { client, claim } => {
                self.change(*client, |entry, _| entry.claim(claim))
            }
            ToLeader::Hello(_)
            | ToLeader::OwnBytes { .. }
            | ToLeader::Publish { .. }
            | ToLeader::Claimed
            | ToLeader::Bye
            | ToLeader::Sent { .. }
            | ToLeader::About(_) => {}
        }
    }

    /// Notes what the leader has sent.
    pub fn received(&mut self, item: &ToEdge) {
        let durable = self.durable;
        if let ToEdge::Applied { client, count } = item {
            self.change(*client, |entry, turn| entry.applied(*count, turn, durable));
        } else if let ToEdge::Event {
            client,
            gate,
            event,
        } = item
        {
            let gate = if *gate > durable { *gate } else { 0 };
            self.change(*client, |entry, turn| entry.event(event, gate, turn));
        } else if let ToEdge::Durable { commit } = item {
            self.durable = *commit;
        }
    }

    /// The commits that the leader's store has when the edge is linked.
    pub const fn begin(&mut self, durable: u64) {
        self.durable = durable;
    }

    /// The leader is gone. Returns the commands that get no answer from it any more: their outcome is unknown. Takes
    /// are not among them, because the claims repeat them.
    #[must_use]
    pub fn unanswered(&mut self) -> Vec<(ClientId, Tag)> {
        let kept = self
            .clients
            .iter_mut()
            .filter_map(|(id, entry)| Some((*id, entry.kept()?)));
        kept.flat_map(|(id, client)| client.take_unanswered().map(move |tag| (id, tag)))
            .collect()
    }

    /// The clients that had more than the ledger may hold. A new leader cannot know them: their connections must end.
    pub fn lost(&self) -> impl Iterator<Item = ClientId> {
        self.clients
            .iter()
            .filter(|(_, entry)| matches!(entry, Entry::Lost))
            .map(|(id, _)| *id)
    }

    /// The clients in the ledger, without those that are lost.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.clients
            .iter()
            .filter(|(_, entry)| matches!(entry, Entry::Kept(_)))
            .map(|(id, _)| *id)
    }

    /// Bytes that the ledger counts.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Everything as a new leader must get it, from the first [`ToLeader::Open`] to [`ToLeader::Claimed`]: the clients with what
    /// they serve, hold and listen to; then their waits, in the order in which the old leader would have served them.
    /// Commands that are on their way count as done, except that a job whose end is on its way is not claimed.
    ///
    /// The new leader's store has the commits up to `reached` of the leader before: takes that got a lease in a later one
    /// wait again. `None`: it is the same leader, whose commits go on.
    ///
    /// The ledger begins anew with what it returns, which must be sent as it is. Its commands have the tag
    /// [`Tag::NONE`], except for takes, which have their own.
    #[must_use]
    pub fn claims(&mut self, reached: Option<u64>) -> Vec<ToLeader> {
        let (mut to_leader, mut waits, mut granted) = (Vec::new(), Waits::default(), Vec::new());
        for (id, entry) in std::mem::take(&mut self.clients) {
            if let Entry::Kept(mut client) = entry {
                match reached {
                    Some(reached) => client.lose_grants(reached),
                    None => granted.push((id, client.take_grants())),
                }
                client.claims(id, &mut self.turn, &mut to_leader, &mut waits);
            }
        }
        to_leader.extend(waits.into_asks());
        to_leader.push(ToLeader::Claimed);
        (self.bytes, self.turn) = (0, 0);
        to_leader.iter().for_each(|item| self.sent(item));
        for (id, granted) in granted
            .into_iter()
            .filter(|(_, granted)| !granted.is_empty())
        {
            self.change(id, |client, _| client.keep_grants(granted));
        }
        to_leader
    }

    /// The leader knows the edge, and so its clients, under another number from now on.
    pub fn renumber(&mut self, edge: Edge) {
        let own = |client: ClientId| ClientId(client.0 & ((1 << ClientId::OWN_BITS) - 1));
        let renumbered = |client| ClientId(edge.first_client().0 | own(client).0);
        let clients = std::mem::take(&mut self.clients);
        self.clients = clients
            .into_iter()
            .map(|(client, entry)| (renumbered(client), entry))
            .collect();
    }

    /// Changes a client's entry, and keeps the bounds.
    fn change(&mut self, id: ClientId, change: impl FnOnce(&mut Client, &mut u64)) {
        let Some(entry) = self.clients.get_mut(&id) else {
            return;
        };
        let Some(client) = entry.kept() else { return };
        let before = client.bytes();
        change(client, &mut self.turn);
        let after = client.bytes();
        self.bytes = (self.bytes + after).saturating_sub(before);
        if after > self.bounds.client_bytes_max || self.bytes > self.bounds.bytes_max {
            *entry = Entry::Lost;
            self.bytes = self.bytes.saturating_sub(after);
        }
    }

    fn forget(&mut self, id: ClientId) {
        if let Some(Entry::Kept(client)) = self.clients.remove(&id) {
            self.bytes = self.bytes.saturating_sub(client.bytes());
        }
    }
}

impl Entry {
    fn kept(&mut self) -> Option<&mut Client> {
        match self {
            Self::Kept(client) => Some(client),
            Self::Lost => None,
        }
    }
}
