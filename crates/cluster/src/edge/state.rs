//! The state of an edge's clients and of its link, behind one lock.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::{HashMap, HashSet};
use windlass_engine::{ClientId, Event, Refusal, Reply, Tag};
use windlass_hub::{Mail, Mailbox, Visited};
use windlass_link::{Bounds, Edge as EdgeNumber, Ledger, ToLeader};
use windlass_session::{Item, Reason};

/// Client numbers from here on are used for the daemon's own requests, one number per request.
pub(super) const OWN_REQUESTS: u64 = 1 << 39;

pub(super) const ASKED: Tag = Tag(1);

/// Maximum bytes of all clients in flight to the leader.
pub(super) const UNDER_WAY_MAX: usize = 16 << 20;

/// Maximum items and bytes of one client in flight.
pub(super) const ITEMS_MAX: usize = 1 << 10;
pub(super) const BYTES_MAX: usize = 4 << 20;

/// Maximum bytes of replies in flight to one client or buffered here for its session.
pub(super) const ROOM_BYTES: u64 = 256 << 10;

/// Overhead charged for each item in addition to its body.
pub(super) const ITEM_BYTES: usize = 128;

/// Limits of the ledger, for all clients together and for each.
pub(super) const LEDGER: Bounds = Bounds {
    bytes_max: 64 << 20,
    client_bytes_max: 4 << 20,
};

#[derive(Debug)]
pub(super) struct State {
    pub(super) link: LinkState,
    /// This daemon's number at its leader, which is part of its clients' numbers there.
    pub(super) number: Option<EdgeNumber>,
    /// The leader's epoch.
    pub(super) epoch: u64,
    pub(super) ledger: Ledger,
    pub(super) clients: HashMap<ClientId, Member>,
    /// Mailboxes to wake for a commit, ordered by commit.
    pub(super) waiting: VecDeque<(u64, Arc<Mailbox>)>,
    pub(super) to_leader: Vec<ToLeader>,
    pub(super) under_way_bytes: usize,
    /// Clients whose items cannot be sent until the link is up or has capacity.
    pub(super) blocked: Vec<ClientId>,
    /// Pending requests of the daemon itself, with their replies.
    pub(super) questions: HashMap<ClientId, Option<Result<Reply, Refusal>>>,
    pub(super) asked: u64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            link: LinkState::Sought,
            number: None,
            epoch: 0,
            ledger: Ledger::new(LEDGER),
            clients: HashMap::default(),
            waiting: VecDeque::new(),
            to_leader: Vec::new(),
            under_way_bytes: 0,
            blocked: Vec::new(),
            questions: HashMap::default(),
            asked: 0,
        }
    }
}

/// The state of the connection to the leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkState {
    /// Not connected: clients wait.
    Sought,
    /// Without a leader for longer than `cluster.hold`: clients that send a request are
    /// disconnected.
    Lost,
    Open,
    /// This daemon is the leader.
    Ours,
}

/// A client of this daemon.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) mailbox: Arc<Mailbox>,
    /// The bytes behind each place-holder, in order.
    pub(super) kept: VecDeque<Bytes>,
    /// The sizes of its commands in flight.
    pub(super) under_way: VecDeque<usize>,
    pub(super) under_way_bytes: usize,
    pub(super) is_blocked: bool,
    /// Whether the leader knows the client.
    pub(super) has_spoken: bool,
}

impl Member {
    pub(super) const fn new(mailbox: Arc<Mailbox>) -> Self {
        Self {
            mailbox,
            kept: VecDeque::new(),
            under_way: VecDeque::new(),
            under_way_bytes: 0,
            is_blocked: false,
            has_spoken: false,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.under_way.len() >= ITEMS_MAX || self.under_way_bytes >= BYTES_MAX
    }

    pub(super) fn is_evicted(&self) -> bool {
        self.mailbox.close_reason().is_some()
    }

    /// The number of items whose replies, or positions among the replies, are outstanding.
    pub(super) fn unanswered(&self) -> usize {
        self.under_way.len() + self.kept.len()
    }

    pub(super) fn count(&self) {
        self.mailbox.forwarding.set_under_way(self.unanswered());
    }

    /// Records that an item of this size was sent.
    pub(super) fn sent(&mut self, bytes: usize, of_all: &mut usize) {
        self.under_way.push_back(bytes);
        self.under_way_bytes += bytes;
        *of_all += bytes;
        self.count();
    }
}

/// Bytes published by a client, and the mailboxes of the subscribers.
pub(super) type Published = (Bytes, Vec<Arc<Mailbox>>);

impl State {
    /// Sends as many of a client's items as the in-flight limits allow.
    pub(super) fn go(
        &mut self,
        client: ClientId,
        items: &mut VecDeque<Item>,
        published: &mut Vec<Published>,
    ) -> Visited {
        while let Some(item) = items.front() {
            let bytes = ITEM_BYTES + body_bytes(item);
            let Some(member) = self.clients.get_mut(&client) else {
                break;
            };
            if matches!(self.link, LinkState::Lost | LinkState::Ours) {
                member.mailbox.evict(Reason::ClosedByServer);
                return Visited::UntilRung;
            }
            if self.link == LinkState::Sought
                || self.under_way_bytes >= UNDER_WAY_MAX
                || member.is_full()
            {
                if !std::mem::replace(&mut member.is_blocked, true) {
                    self.blocked.push(client);
                }
                return Visited::UntilRung;
            }
            let Some(item) = items.pop_front() else { break };
            if !std::mem::replace(&mut member.has_spoken, true) {
                self.open(client);
            }
            self.send(client, item, bytes, published);
        }
        Visited::All
    }

    pub(super) fn send(
        &mut self,
        client: ClientId,
        item: Item,
        size: usize,
        published: &mut Vec<Published>,
    ) {
        let Some(member) = self.clients.get_mut(&client) else {
            return;
        };
        match item {
            Item::Command(tag, mut command) => {
                member.sent(size, &mut self.under_way_bytes);
                if let Some(number) = self.at_leader(client) {
                    self.ledger.prove(number, &mut command);
                }
                self.ask_for(client, |client| ToLeader::Command {
                    client,
                    tag,
                    command,
                });
            }
            Item::Forbidden(tag) => {
                member.sent(size, &mut self.under_way_bytes);
                self.ask_for(client, |client| ToLeader::Forbidden { client, tag });
            }
            // No reply of the leader can precede these bytes.
            Item::Bytes(bytes) if member.unanswered() == 0 => {
                let mut filling = member.mailbox.fill();
                filling.push(None, Mail::Bytes(bytes), None);
                filling.finish();
            }
            Item::Bytes(bytes) => {
                member.kept.push_back(bytes);
                member.count();
                self.ask_for(client, |client| ToLeader::OwnBytes { client, count: 1 });
            }
            Item::Publish(to, bytes) => {
                let to = to
                    .iter()
                    .filter_map(|to| self.clients.get(to))
                    .map(|to| Arc::clone(&to.mailbox));
                published.push((bytes, to.collect()));
            }
        }
    }

    /// Sends an item about a client, using the client's number at the leader. Without a link only
    /// the ledger records it, because the next leader may assign this daemon another number.
    pub(super) fn ask_for(&mut self, client: ClientId, item: impl FnOnce(ClientId) -> ToLeader) {
        let Some(number) = self.at_leader(client) else {
            return;
        };
        let item = item(number);
        // The daemon's own requests are not repeated at the next leader.
        if client.0 < OWN_REQUESTS {
            self.ledger.sent(&item);
        }
        if self.link == LinkState::Open {
            self.to_leader.push(item);
        }
    }

    /// The clients' state that the next leader needs ([`Ledger::claims`]). Clients that did not fit
    /// into the ledger are disconnected.
    pub(super) fn claims(&mut self, reached: Option<u64>) -> Vec<ToLeader> {
        let claims = self.ledger.claims(reached);
        let known: HashSet<ClientId> = self
            .ledger
            .clients()
            .map(|client| self.own(client))
            .collect();
        for (client, member) in &self.clients {
            if member.has_spoken && !known.contains(client) {
                member.mailbox.evict(Reason::ClosedByServer);
            }
        }
        claims
    }

    /// Records that a command is in flight again, to another leader.
    pub(super) fn note_sent_again(&mut self, item: &ToLeader) {
        let client = item
            .client()
            .map(|client| self.own(client))
            .filter(|_| item.is_counted());
        if let Some(member) = client.and_then(|client| self.clients.get_mut(&client)) {
            member.sent(0, &mut self.under_way_bytes);
        }
    }

    /// Resets the commit numbers, which start over in each epoch.
    pub(super) fn begin_epoch(&mut self, reached: u64) {
        self.waiting.clear();
        self.clients
            .values()
            .for_each(|member| member.mailbox.begin_epoch(reached));
    }

    /// Drops everything in flight. Bytes whose position followed a lost reply come next.
    pub(super) fn stop_waiting(&mut self) {
        self.under_way_bytes = 0;
        for member in self.clients.values_mut() {
            member.under_way.clear();
            member.under_way_bytes = 0;
            let mut filling = member.mailbox.fill();
            for bytes in member.kept.drain(..) {
                filling.push(None, Mail::Bytes(bytes), None);
            }
            filling.finish();
            member.count();
        }
    }

    pub(super) fn open(&mut self, client: ClientId) {
        self.ask_for(client, |client| ToLeader::Open {
            client,
            room: ROOM_BYTES,
        });
    }

    /// Translates a client's number to the leader's.
    pub(super) fn at_leader(&self, client: ClientId) -> Option<ClientId> {
        self.number
            .map(|number| ClientId(number.first_client().0 | client.0))
    }

    /// Translates the leader's number of a client to this daemon's.
    pub(super) fn own(&self, client: ClientId) -> ClientId {
        ClientId(client.0 ^ self.number.map_or(0, |number| number.first_client().0))
    }

    /// Records that the leader has executed this many of a client's commands.
    pub(super) fn applied(&mut self, client: ClientId, count: u32) {
        let Some(member) = self.clients.get_mut(&client) else {
            return;
        };
        let done = member.under_way.len().min(count as usize);
        let bytes: usize = member.under_way.drain(..done).sum();
        member.under_way_bytes -= bytes;
        member.count();
        let was_full = self.under_way_bytes >= UNDER_WAY_MAX;
        self.under_way_bytes -= bytes;
        if was_full && self.under_way_bytes < UNDER_WAY_MAX {
            self.unblock_all();
        } else if member.is_blocked && self.under_way_bytes < UNDER_WAY_MAX && !member.is_full() {
            member.is_blocked = false;
            self.blocked.retain(|blocked| *blocked != client);
            member.mailbox.ring();
        }
    }

    pub(super) fn unblock_all(&mut self) {
        for client in std::mem::take(&mut self.blocked) {
            if let Some(member) = self.clients.get_mut(&client) {
                member.is_blocked = false;
                member.mailbox.ring();
            }
        }
    }

    /// Stores the reply to one of the daemon's own requests.
    pub(super) fn note_reply(&mut self, client: ClientId, event: Event) {
        if let (Event::Reply(ASKED, reply), Some(place)) = (event, self.questions.get_mut(&client))
        {
            *place = Some(if let Reply::Refused(why) = reply {
                Err(why)
            } else {
                Ok(reply)
            });
        }
    }

    pub(super) fn close_clients(&mut self, which: impl Fn(&Member) -> bool) {
        let closed = self.clients.values().filter(|member| which(member));
        closed.for_each(|member| member.mailbox.evict(Reason::ClosedByServer));
    }
}

/// The size of an item's body in bytes.
pub(super) fn body_bytes(item: &Item) -> usize {
    match item {
        Item::Command(_, command) => command.new_job().map_or(0, |job| job.body.len()),
        Item::Bytes(bytes) => bytes.len(),
        Item::Forbidden(_) | Item::Publish(..) => 0,
    }
}
