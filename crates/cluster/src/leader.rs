//! An edge's clients at the leader: the edge's items become visits to the hub, and the clients' mail becomes the
//! leader's items for the edge.
//!
//! Mail goes out before its commit is durable, together with the commit's number. The edge keeps it until the leader
//! reports the commit as durable. A mailbox here is empty after each turn: mail waits at the edge, or in the link's
//! buffer, which is bounded.
//!
//! No socket here: see `link`.

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::HashMap;
use tokio::sync::Notify;
use windlass_engine::{ClientId, Command, Tag, TakeCommand};
use windlass_link::{Edge as EdgeNumber, ToEdge, ToLeader};
use windlass_session::Item;

use super::link::BEAT;
use windlass_hub::{
    Batch, Broker as _, ConnectionId, Hold, Home, Hub, Letter, Mail, Mailbox, Visited, Waker,
    WithMail, clock,
};

#[cfg(test)]
mod tests;

/// The bytes that one client's answers may have in a turn.
const ROOM_BYTES: usize = 256 << 10;

/// Place-holders of one item.
const WORDS_MAX: u32 = 1 << 10;

/// One edge, at its leader.
#[derive(Debug)]
pub struct EdgeClients {
    hub: Arc<Hub>,
    /// All its clients' numbers contain it.
    number: EdgeNumber,
    bytes_max: usize,
    with_mail: Arc<WithMail>,
    clients: HashMap<ClientId, Member>,
    /// Clients with items that may be done now, each once.
    ready: VecDeque<ClientId>,
    /// Clients whose connections have ended.
    closing: Vec<ClientId>,
    /// Rung when the newest commit that the edge waits for is durable.
    bell: Arc<Mailbox>,
    /// The newest commit that the edge waits for.
    gate: u64,
    /// The durable commit that was reported to the edge last.
    durable: u64,
    failed: bool,
    /// The time that was sent to the edge last, in milliseconds since boot.
    sent_ms: u64,
    /// The same of workers that wait for room.
    starved_ms: u64,
    /// The commit that the bell is to ring for.
    bell_for: u64,
    /// The clients of earlier links of this edge in this epoch. They keep what they have until it is claimed anew.
    before: Vec<Self>,
    /// Items that came before [`ToLeader::Claimed`] and are not done. `None`: the edge has not made all its claims.
    claims_left: Option<usize>,
    /// The leader was told that all claims are done.
    has_claimed: bool,
    rests: bool,
}

#[derive(Debug)]
struct Member {
    mailbox: Arc<Mailbox>,
    items: VecDeque<Item>,
    is_ready: bool,
    /// Bytes that its answers may have until its session has taken some. Without room its items wait.
    room: u64,
    /// The hub rings when the next item may be done.
    waits: bool,
    /// Its connection has ended: it ends here when its items are done.
    closes: bool,
    /// Its part of [`EdgeClients::claims_left`].
    claims_left: usize,
    /// Large jobs that its peer has not taken. They count in this daemon's budget, so that no edge gets more of them
    /// than it may have.
    jobs: VecDeque<Arc<Hold>>,
}

impl Member {
    /// Whether the client must be added to those that are ready. From now on it counts as ready then.
    fn may_go(&mut self) -> bool {
        let may = !self.waits && !self.is_ready && self.room > 0 && !self.items.is_empty();
        self.is_ready |= may;
        may
    }
}

impl EdgeClients {
    /// `rung` is notified when there is something to send.
    pub fn new(hub: Arc<Hub>, number: EdgeNumber, bytes_max: usize, rung: Arc<Notify>) -> Self {
        let with_mail = Arc::new(WithMail::new(rung));
        let home = home(&with_mail, ClientId(u64::MAX));
        let bell = Arc::new(Mailbox::forwarding(
            bytes_max,
            Arc::clone(&hub.budget),
            home,
        ));
        let (durable, failed) = (hub.durable(), hub.failed());
        Self {
            hub,
            number,
            bytes_max,
            with_mail,
            clients: HashMap::default(),
            ready: VecDeque::new(),
            closing: Vec::new(),
            bell,
            gate: 0,
            durable,
            failed,
            sent_ms: clock::since_boot_ms(),
            starved_ms: 0,
            bell_for: 0,
            before: Vec::new(),
            claims_left: None,
            has_claimed: false,
            rests: false,
        }
    }

    /// These clients were at this leader by an earlier link of the same edge. They end when the edge has claimed anew
    /// what it knows of.
    pub fn succeed(&mut self, mut before: Self) {
        self.before.append(&mut before.before);
        before.rest();
        self.before.push(before);
    }

    /// Whether clients of earlier links of the edge are still here.
    #[cfg(any(test, feature = "testing"))]
    pub const fn keeps(&self) -> bool {
        !self.before.is_empty()
    }

    /// The edge's number.
    #[cfg(any(test, feature = "testing"))]
    pub const fn number(&self) -> EdgeNumber {
        self.number
    }

    /// Whether the link has ended.
    pub const fn rests(&self) -> bool {
        self.rests
    }

    /// The link has ended, and its edge may come back: until then its clients keep what they have, and ask for nothing
    /// more. Items that have arrived are done.
    pub fn rest(&mut self) {
        if std::mem::replace(&mut self.rests, true) {
            return;
        }
        let mut clients: Vec<_> = self.clients.keys().copied().collect();
        clients.sort_unstable();
        self.ready.clear();
        for client in clients {
            let Some(member) = self.clients.get_mut(&client) else {
                continue;
            };
            member
                .items
                .push_back(Item::Command(Tag::NONE, TakeCommand::Unwait.into()));
            (member.room, member.waits, member.is_ready) = (u64::MAX, false, true);
            self.ready.push_back(client);
        }
    }

    /// What the edge asks.
    ///
    /// # Errors
    ///
    /// No edge asks that.
    pub fn receive(&mut self, item: ToLeader) -> Result<(), &'static str> {
        if item
            .client()
            .is_some_and(|client| !self.number.owns(client))
        {
            return Err("a client of another edge");
        }
        match item {
            ToLeader::Open { client, room } => self.open(client, room),
            ToLeader::Command {
                command: Command::Claim(_),
                ..
            } => return Err("a claim as a client's command"),
            ToLeader::Command {
                client,
                tag,
                command,
            } => self.add(client, Item::Command(tag, command)),
            ToLeader::Claim { client, claim } => {
                self.add(
                    client,
                    Item::Command(Tag::NONE, Command::Claim(Box::new(claim))),
                );
            }
            ToLeader::Forbidden { client, tag } => self.add(client, Item::Forbidden(tag)),
            ToLeader::OwnBytes { client, count } => {
                (0..count.min(WORDS_MAX))
                    .for_each(|_| self.add(client, Item::Bytes(bytes::Bytes::new())));
            }
            ToLeader::Close { client } => self.close(client),
            ToLeader::Room { client, bytes } => self.give_room(client, bytes),
            ToLeader::Sent { client, jobs } => self.note_sent(client, jobs),
            ToLeader::Claimed => self.note_claims(),
            // The link handles these.
            ToLeader::Publish { .. } | ToLeader::About(_) => {}
            ToLeader::Hello(_) => return Err("a second greeting"),
            ToLeader::Bye => return Err("it ends the link"),
        }
        Ok(())
    }

    fn open(&mut self, client: ClientId, room: u64) {
        let home = home(&self.with_mail, client);
        let mailbox = Arc::new(Mailbox::forwarding(
            self.bytes_max,
            Arc::clone(&self.hub.budget),
            home,
        ));
        self.hub.open(client, Arc::clone(&mailbox));
        let member = Member {
            mailbox,
            items: VecDeque::new(),
            is_ready: false,
            room,
            waits: false,
            closes: false,
            claims_left: 0,
            jobs: VecDeque::new(),
        };
        self.clients.insert(client, member);
    }

    /// The edge has made all its claims, which may not be done yet.
    fn note_claims(&mut self) {
        self.clients
            .values_mut()
            .for_each(|member| member.claims_left = member.items.len());
        self.claims_left = Some(self.clients.values().map(|member| member.claims_left).sum());
    }

    /// Some of a client's items are done, or will not be done.
    const fn claimed(left: &mut Option<usize>, member: &mut Member, done: usize) {
        let claims = if done < member.claims_left {
            done
        } else {
            member.claims_left
        };
        member.claims_left -= claims;
        if let Some(left) = left {
            *left -= claims;
        }
    }

    /// Adds an item for a client. A client that is closed has none.
    fn add(&mut self, client: ClientId, item: Item) {
        let Some(member) = self.clients.get_mut(&client) else {
            return;
        };
        member.items.push_back(item);
        if member.may_go() {
            self.ready.push_back(client);
        }
    }

    /// The client's session has taken answers of this many bytes.
    fn give_room(&mut self, client: ClientId, bytes: u64) {
        let Some(member) = self.clients.get_mut(&client) else {
            return;
        };
        member.room = member.room.saturating_add(bytes);
        if member.may_go() {
            self.ready.push_back(client);
        }
    }

    /// The client's peer has taken this many large jobs.
    fn note_sent(&mut self, client: ClientId, jobs: u32) {
        let Some(member) = self.clients.get_mut(&client) else {
            return;
        };
        let sent = member.jobs.len().min(jobs as usize);
        member.jobs.drain(..sent);
    }

    /// A client's connection has ended. What it has asked before is done first, and its mail goes out. Its session
    /// makes no more room.
    fn close(&mut self, client: ClientId) {
        if let Some(member) = self.clients.get_mut(&client)
            && !std::mem::replace(&mut member.closes, true)
        {
            self.closing.push(client);
            self.give_room(client, u64::MAX);
        }
    }

    /// Ends the clients that have nothing more to do.
    fn end_clients(&mut self, to_edge: &mut Vec<ToEdge>) {
        for client in std::mem::take(&mut self.closing) {
            if self
                .clients
                .get(&client)
                .is_some_and(|member| !member.items.is_empty())
            {
                self.closing.push(client);
            } else {
                self.forget(client);
                to_edge.push(ToEdge::Closed { client });
            }
        }
    }

    fn forget(&mut self, client: ClientId) {
        if let Some(mut member) = self.clients.remove(&client) {
            Self::claimed(&mut self.claims_left, &mut member, usize::MAX);
            while !self.hub.close(client) {}
        }
    }

    /// Does what may be done now, and sends the results. Returns whether there is more to do. Visits only while
    /// the store belongs to this daemon.
    pub fn turn(&mut self, to_edge: &mut Vec<ToEdge>) -> bool {
        for before in &mut self.before {
            before.turn(&mut Vec::new());
        }
        // Earlier mail stands before `Applied` of the visit, and the replies stand behind it: the edge's ledger depends
        // on that.
        self.collect(to_edge);
        let (done, parts) = self.visit();
        let done = done.into_iter().filter(|(_, count)| *count > 0);
        to_edge.extend(done.map(|(client, count)| ToEdge::Applied { client, count }));
        self.collect(to_edge);
        for client in parts {
            if self.clients.get_mut(&client).is_some_and(Member::may_go) {
                self.ready.push_back(client);
            }
        }
        self.end_clients(to_edge);
        if self.claims_left == Some(0) {
            self.before.clear();
            if !std::mem::replace(&mut self.has_claimed, true) {
                self.hub.has_claimed(self.number.number());
            }
        }
        self.note_commits(to_edge);
        let now_ms = clock::since_boot_ms();
        let is_beat_since =
            |sent_ms: u64| u128::from(now_ms.saturating_sub(sent_ms)) >= BEAT.as_millis();
        if self.hub.is_starved() && is_beat_since(self.starved_ms) {
            self.starved_ms = now_ms;
            to_edge.push(ToEdge::Starved);
        }
        // The edge takes everything up to here at once.
        if !to_edge.is_empty() || is_beat_since(self.sent_ms) {
            self.sent_ms = now_ms;
            to_edge.push(ToEdge::Clock(clock::read()));
        }
        !self.ready.is_empty()
    }

    /// Visits the hub once for all clients that have items. Returns how many commands of each are done, and which have
    /// more to do.
    fn visit(&mut self) -> (Vec<(ClientId, u32)>, Vec<ClientId>) {
        if self.ready.is_empty() || !self.hub.may_act() {
            return Default::default();
        }
        let mut going = Vec::with_capacity(self.ready.len());
        for client in self.ready.drain(..) {
            if let Some(member) = self.clients.get_mut(&client) {
                member.is_ready = false;
                let items = together(&mut member.items);
                let room = usize::try_from(member.room)
                    .unwrap_or(usize::MAX)
                    .min(ROOM_BYTES);
                going.push((
                    client,
                    room,
                    (commands(&items), items.len()),
                    items,
                    Visited::All,
                ));
            }
        }
        let mut batches = going
            .iter_mut()
            .map(|(client, room, _, items, visited)| Batch {
                client: *client,
                items,
                room: *room,
                visited,
            });
        self.hub.visit_from_afar(&clock::read(), &mut batches);
        drop(batches);
        let (mut all_done, mut parts) = (Vec::with_capacity(going.len()), Vec::new());
        for (client, _, (before, items_before), mut items, visited) in going {
            let done = u32::try_from(before - commands(&items)).unwrap_or(u32::MAX);
            all_done.push((client, done));
            let Some(member) = self.clients.get_mut(&client) else {
                continue;
            };
            Self::claimed(&mut self.claims_left, member, items_before - items.len());
            let is_all = items.is_empty();
            items.append(&mut member.items);
            member.items = items;
            member.waits = visited == Visited::UntilRung;
            if visited == Visited::Part || (is_all && !member.items.is_empty()) {
                parts.push(client);
            }
        }
        (all_done, parts)
    }

    /// Collects the mail of all clients that have some.
    fn collect(&mut self, to_edge: &mut Vec<ToEdge>) {
        let mut mail = Vec::new();
        for ConnectionId { client, .. } in self.with_mail.take() {
            let Some(member) = self.clients.get_mut(&client) else {
                continue;
            };
            let _ = member.mailbox.bell().look();
            let waited = std::mem::take(&mut member.waits);
            member.mailbox.take_early(&mut mail);
            for Letter { gate, mail, hold } in mail.drain(..) {
                self.gate = self.gate.max(gate);
                match mail {
                    Mail::Event(event) => {
                        let is_handed_out = event.handed_out().is_some();
                        member.jobs.extend(hold.filter(|_| is_handed_out));
                        member.room = member.room.saturating_sub(event.bytes() as u64);
                        to_edge.push(ToEdge::Event {
                            client,
                            gate,
                            event,
                        });
                    }
                    Mail::Bytes(_) => to_edge.push(ToEdge::OwnBytes { client, count: 1 }),
                    // A publication from elsewhere goes to the edge once, not to each client: see `relay`.
                    Mail::Posted(_) => {}
                }
            }
            if waited && member.may_go() {
                self.ready.push_back(client);
            }
            // The daemon has run out of memory for buffers, and this client had the most.
            if member.mailbox.close_reason().is_some()
                && !std::mem::replace(&mut member.closes, true)
            {
                member.items.clear();
                self.closing.push(client);
            }
        }
    }

    fn note_commits(&mut self, to_edge: &mut Vec<ToEdge>) {
        let (durable, failed) = (self.hub.durable(), self.hub.failed());
        if durable != self.durable {
            self.durable = durable;
            to_edge.push(ToEdge::Durable { commit: durable });
        }
        if failed != self.failed {
            self.failed = failed;
            to_edge.push(ToEdge::Failed(failed));
        }
        if self.gate > durable.max(self.bell_for) {
            self.bell_for = self.gate;
            let _ = self.bell.bell().look();
            self.hub.ring_when_durable(self.gate, &self.bell);
        }
    }
}

/// Where the owner of a client's mailbox is.
fn home(with_mail: &Arc<WithMail>, client: ClientId) -> Home {
    Home {
        waker: Arc::clone(with_mail) as Arc<dyn Waker>,
        connection: ConnectionId { index: 0, client },
    }
}

/// The items of a client's next visit: all, or up to its first [`TakeCommand::Unwait`]. Jobs for waits that it ends go to the
/// edge behind [`ToEdge::Applied`] of their visit. If that visit began new waits too, the edge would count these jobs
/// against them, and would claim too few of the next leader.
fn together(items: &mut VecDeque<Item>) -> VecDeque<Item> {
    let is_unwait =
        |item: &Item| matches!(item, Item::Command(_, Command::Take(TakeCommand::Unwait)));
    let rest = items
        .iter()
        .position(is_unwait)
        .map_or_else(VecDeque::new, |at| items.split_off(at + 1));
    std::mem::replace(items, rest)
}

/// The commands among the items, without claims.
fn commands(items: &VecDeque<Item>) -> usize {
    let is_counted = |item: &&Item| match item {
        Item::Command(_, command) => !matches!(command, Command::Claim(_)),
        Item::Forbidden(_) => true,
        Item::Bytes(_) | Item::Publish(..) => false,
    };
    items.iter().filter(is_counted).count()
}

/// The edge is gone, and its clients with it.
impl Drop for EdgeClients {
    fn drop(&mut self) {
        let mut clients: Vec<_> = self.clients.keys().copied().collect();
        // The engine gives their jobs to others, in an order that does not depend on the table.
        clients.sort_unstable();
        clients.into_iter().for_each(|client| self.forget(client));
    }
}
