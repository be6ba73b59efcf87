//! An edge's clients at the leader: the edge's items become visits to the hub, and the clients'
//! mail becomes items for the edge.
//!
//! Mail is sent to the edge before its commit is durable, with the commit's number; the edge holds
//! it back until the leader reports that commit. Mailboxes here are empty after each turn, because
//! mail waits at the edge or in the link's bounded buffer.
//!
//! The socket is in `link`.

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::HashMap;
use tokio::sync::Notify;
use windlass_engine::{ClientId, Command, Tag, TakeCommand};
use windlass_link::{Edge as EdgeNumber, ToEdge, ToLeader};
use windlass_session::Item;

use super::link::BEAT;
use windlass_hub::{
    Batch, Broker as _, ConnectionId, Hold, Home, Hub, Mail, Mailbox, QueuedMail, Visited, Waker,
    WithMail, clock,
};

#[cfg(test)]
mod tests;

/// Maximum bytes of replies to one client per turn.
const ROOM_BYTES: usize = 256 << 10;

/// Maximum place-holders in one item.
const WORDS_MAX: u32 = 1 << 10;

/// One edge, as its leader sees it.
#[derive(Debug)]
pub struct EdgeClients {
    hub: Arc<Hub>,
    /// Part of all its clients' numbers.
    number: EdgeNumber,
    bytes_max: usize,
    with_mail: Arc<WithMail>,
    clients: HashMap<ClientId, Member>,
    /// Clients with executable items, without duplicates.
    ready: VecDeque<ClientId>,
    /// Clients whose connections have closed.
    closing: Vec<ClientId>,
    /// Woken when the newest commit that the edge waits for is durable.
    commit_mailbox: Arc<Mailbox>,
    /// The newest commit that the edge waits for.
    awaited_commit: u64,
    /// The last durable commit that was reported to the edge.
    durable: u64,
    failed: bool,
    /// The last time that was sent to the edge, in milliseconds since boot.
    sent_ms: u64,
    /// When the edge was last told about workers that wait for buffer space, in the same clock.
    starved_ms: u64,
    /// The commit that `commit_mailbox` is registered for.
    registered_commit: u64,
    /// Clients of earlier links of this edge in this epoch. They keep their state until the edge
    /// has claimed it again.
    before: Vec<Self>,
    /// The number of items received before [`ToLeader::Claimed`] and not yet executed. `None`: the
    /// edge is still sending claims.
    claims_left: Option<usize>,
    /// Whether the leader has recorded that all claims are executed.
    has_claimed: bool,
    is_suspended: bool,
}

#[derive(Debug)]
struct Member {
    mailbox: Arc<Mailbox>,
    items: VecDeque<Item>,
    is_ready: bool,
    /// Bytes of replies that the edge can accept for this client. At zero its items wait.
    room: u64,
    /// Whether the hub will wake the client when its next item can be executed.
    waits: bool,
    /// Whether the connection has closed. The client is removed once its items are executed.
    closes: bool,
    /// This client's share of [`EdgeClients::claims_left`].
    claims_left: usize,
    /// Large jobs that the peer has not received. They count towards this daemon's buffer budget,
    /// which would otherwise not limit what edges hold.
    jobs: VecDeque<Arc<Hold>>,
}

impl Member {
    /// Marks the client as ready. Returns whether it must be added to the ready queue.
    fn may_go(&mut self) -> bool {
        let may = !self.waits && !self.is_ready && self.room > 0 && !self.items.is_empty();
        self.is_ready |= may;
        may
    }
}

impl EdgeClients {
    /// `rung` is notified when there are items to send.
    pub fn new(hub: Arc<Hub>, number: EdgeNumber, bytes_max: usize, rung: Arc<Notify>) -> Self {
        let with_mail = Arc::new(WithMail::new(rung));
        let home = home(&with_mail, ClientId(u64::MAX));
        let commit_mailbox = Arc::new(Mailbox::forwarding(
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
            commit_mailbox,
            awaited_commit: 0,
            durable,
            failed,
            sent_ms: clock::since_boot_ms(),
            starved_ms: 0,
            registered_commit: 0,
            before: Vec::new(),
            claims_left: None,
            has_claimed: false,
            is_suspended: false,
        }
    }

    /// These clients were at this leader by an earlier link of the same edge. They end when the edge has claimed anew
    /// what it knows of.
    pub fn succeed(&mut self, mut before: Self) {
        self.before.append(&mut before.before);
        before.suspend();
        self.before.push(before);
    }

    /// Whether clients of earlier links of the edge still exist.
    #[cfg(any(test, feature = "testing"))]
    pub const fn keeps(&self) -> bool {
        !self.before.is_empty()
    }

    /// The edge's number.
    #[cfg(any(test, feature = "testing"))]
    pub const fn number(&self) -> EdgeNumber {
        self.number
    }

    /// Whether the link has closed.
    pub const fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    /// Called when the link has closed and the edge may reconnect. Until then its clients keep
    /// their state but request nothing more; items that have arrived are executed.
    pub fn suspend(&mut self) {
        if std::mem::replace(&mut self.is_suspended, true) {
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

    /// Handles an item from the edge.
    ///
    /// # Errors
    ///
    /// No edge sends such an item.
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

    /// Called when the edge has sent all claims, some of which may be pending.
    fn note_claims(&mut self) {
        self.clients
            .values_mut()
            .for_each(|member| member.claims_left = member.items.len());
        self.claims_left = Some(self.clients.values().map(|member| member.claims_left).sum());
    }

    /// Records that some of a client's items were executed or discarded.
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

    /// Queues an item for a client, unless that client is closed.
    fn add(&mut self, client: ClientId, item: Item) {
        let Some(member) = self.clients.get_mut(&client) else {
            return;
        };
        member.items.push_back(item);
        if member.may_go() {
            self.ready.push_back(client);
        }
    }

    /// Called when the client's session has accepted this many bytes of replies.
    fn give_room(&mut self, client: ClientId, bytes: u64) {
        let Some(member) = self.clients.get_mut(&client) else {
            return;
        };
        member.room = member.room.saturating_add(bytes);
        if member.may_go() {
            self.ready.push_back(client);
        }
    }

    /// Called when the client's peer has received this many large jobs.
    fn note_sent(&mut self, client: ClientId, jobs: u32) {
        let Some(member) = self.clients.get_mut(&client) else {
            return;
        };
        let sent = member.jobs.len().min(jobs as usize);
        member.jobs.drain(..sent);
    }

    /// Called when a client's connection has closed. Its earlier requests are executed and its mail
    /// is sent, but its session accepts no more bytes.
    fn close(&mut self, client: ClientId) {
        if let Some(member) = self.clients.get_mut(&client)
            && !std::mem::replace(&mut member.closes, true)
        {
            self.closing.push(client);
            self.give_room(client, u64::MAX);
        }
    }

    /// Removes closed clients without pending items.
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

    /// Executes what is ready and collects the results. Returns whether more is ready. Visits the
    /// hub only while this daemon holds the store.
    pub fn turn(&mut self, to_edge: &mut Vec<ToEdge>) -> bool {
        for before in &mut self.before {
            before.turn(&mut Vec::new());
        }
        // Earlier mail must precede `Applied` of this visit, and its replies must follow, because
        // the edge's ledger relies on that order.
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
        // The edge processes everything up to here as one unit.
        if !to_edge.is_empty() || is_beat_since(self.sent_ms) {
            self.sent_ms = now_ms;
            to_edge.push(ToEdge::Clock(clock::read()));
        }
        !self.ready.is_empty()
    }

    /// Visits the hub once for all clients with items. Returns the number of executed commands of
    /// each client, and the clients that have more to execute.
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
        self.hub.visit_for_edge(&clock::read(), &mut batches);
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

    /// Collects the pending mail of all clients.
    fn collect(&mut self, to_edge: &mut Vec<ToEdge>) {
        let mut mail = Vec::new();
        for ConnectionId { client, .. } in self.with_mail.take() {
            let Some(member) = self.clients.get_mut(&client) else {
                continue;
            };
            let _ = member.mailbox.wake_flag().look();
            let waited = std::mem::take(&mut member.waits);
            member.mailbox.take_early(&mut mail);
            for QueuedMail { gate, mail, hold } in mail.drain(..) {
                let gate = gate.unwrap_or_default();
                self.awaited_commit = self.awaited_commit.max(gate);
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
                    // Publications go to the edge once, not per client: see `relay`.
                    Mail::Posted(_) => {}
                }
            }
            if waited && member.may_go() {
                self.ready.push_back(client);
            }
            // The daemon has exhausted its buffer budget, and this client holds the most.
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
        if self.awaited_commit > durable.max(self.registered_commit) {
            self.registered_commit = self.awaited_commit;
            let _ = self.commit_mailbox.wake_flag().look();
            self.hub
                .ring_when_durable(self.awaited_commit, &self.commit_mailbox);
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

/// The items of a client's next visit: all of them, or up to the first [`TakeCommand::Unwait`].
/// Jobs for the waits that it ends follow [`ToEdge::Applied`] of that visit. If the visit also
/// began new waits, the edge would count those jobs against them and claim too few waits at the
/// next leader.
fn together(items: &mut VecDeque<Item>) -> VecDeque<Item> {
    let is_unwait =
        |item: &Item| matches!(item, Item::Command(_, Command::Take(TakeCommand::Unwait)));
    let rest = items
        .iter()
        .position(is_unwait)
        .map_or_else(VecDeque::new, |at| items.split_off(at + 1));
    std::mem::replace(items, rest)
}

/// The number of commands among the items, excluding claims.
fn commands(items: &VecDeque<Item>) -> usize {
    let is_counted = |item: &&Item| match item {
        Item::Command(_, command) => !matches!(command, Command::Claim(_)),
        Item::Forbidden(_) => true,
        Item::Bytes(_) | Item::Publish(..) => false,
    };
    items.iter().filter(is_counted).count()
}

/// Disconnects all clients of the edge.
impl Drop for EdgeClients {
    fn drop(&mut self) {
        let mut clients: Vec<_> = self.clients.keys().copied().collect();
        // The engine hands their jobs to other clients, in an order that must not depend on
        // hashing.
        clients.sort_unstable();
        clients.into_iter().for_each(|client| self.forget(client));
    }
}
