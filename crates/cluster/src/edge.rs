//! The broker of a daemon that does not lead. It forwards its clients' commands to the leader over the link. Replies go
//! into the clients' mailboxes, each with the commit that it waits for, and leave once the leader has reported this
//! commit as durable.
//!
//! Bytes for a peer stay here. A place-holder travels in their stead, so that they keep their place among the leader's
//! replies.
//!
//! Back-pressure: the items on their way to the leader are bounded, for one client and for all. The rest stays with the
//! connections.
//!
//! When the leader changes, a ledger has what the clients have at the engine, and the new leader gets that again: their
//! connections go on, with the jobs that they hold or listen to. A reply that waits for a commit is true if the new
//! leader's journal has the commit, and unknown otherwise.
//!
//! No socket here: see `link`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use foldhash::{HashMap, HashSet};
use tokio::sync::Notify;
use windlass_engine::{
    ClientCommand, ClientId, ClientInfo, Command, Event, JobRef, LeaseCommand, Proof, Reading, Refusal, Reply, Tag,
    TakeCommand,
};
use windlass_link::{Ask, Bounds, Edge as EdgeNumber, Known, Ledger, Say, Welcome};
use windlass_session::{Item, Reason};

use windlass_hub::broker::{Batch, Broker, CommitDuty, Health, Visited};
use windlass_hub::budget::{Budget, Hold};
use windlass_hub::clock;
use windlass_hub::mailbox::{Mail, Mailbox};
use windlass_hub::published::Publication;

#[cfg(test)]
mod leaders;
#[cfg(test)]
mod tests;

/// The numbers from here on belong to the daemon's own questions, each of which is a client of its own.
const OURSELVES: u64 = 1 << 39;

const ASKED: Tag = Tag(1);

/// How long the daemon itself waits for a reply.
const ASK_MAX: Duration = Duration::from_secs(10);

/// Bytes of all clients that may be on their way to the leader.
const UNDER_WAY_MAX: usize = 16 << 20;

/// The same for one client: this many items, and bytes.
const ITEMS_MAX: usize = 1 << 10;
const BYTES_MAX: usize = 4 << 20;

/// Bytes of answers that may be on their way to a client, or wait here for its session.
const ROOM_BYTES: u64 = 256 << 10;

/// A session's room is reported to the leader in steps of this many bytes.
const ROOM_STEP: usize = 32 << 10;

/// Counted for each item besides its body.
const ITEM_BYTES: usize = 128;

/// The way to the leader, and this daemon's clients.
#[derive(Debug)]
pub struct Edge {
    state: Mutex<State>,
    /// The newest commit that is on the leader's disk.
    durable: AtomicU64,
    /// The leader's store does not respond.
    failed: AtomicBool,
    /// The leader lives, and its right to lead is uncertain.
    in_doubt: AtomicBool,
    stopping: AtomicBool,
    budget: Arc<Budget>,
    /// Notified when there is something to send.
    pub to_send: Notify,
    /// Notified when the daemon's own question has its reply.
    replied: Condvar,
}

/// What the ledger may hold, of all clients and of one.
const LEDGER: Bounds = Bounds { bytes_max: 64 << 20, client_bytes_max: 4 << 20 };

#[derive(Debug)]
struct State {
    link: LinkState,
    /// The number of this daemon at its leader, which its clients' numbers there contain.
    number: Option<EdgeNumber>,
    /// The leader's right to lead.
    epoch: u64,
    ledger: Ledger,
    clients: HashMap<ClientId, Member>,
    /// Mailboxes to ring for a commit, in order of commits.
    waiting: VecDeque<(u64, Arc<Mailbox>)>,
    asks: Vec<Ask>,
    under_way_bytes: usize,
    /// Clients with items that wait for the way to the leader.
    blocked: Vec<ClientId>,
    /// The daemon's own questions.
    questions: HashMap<ClientId, Option<Result<Reply, Refusal>>>,
    asked: u64,
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
            asks: Vec::new(),
            under_way_bytes: 0,
            blocked: Vec::new(),
            questions: HashMap::default(),
            asked: 0,
        }
    }
}

/// Whether there is a way to the leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LinkState {
    /// There is none yet: clients wait.
    Sought,
    /// No leader for longer than `cluster.hold`: clients that ask for something are closed.
    Lost,
    Open,
    /// This daemon leads.
    Ours,
}

/// A client of this daemon.
#[derive(Debug)]
struct Member {
    mailbox: Arc<Mailbox>,
    /// Bytes that place-holders stand for, in order.
    kept: VecDeque<Bytes>,
    /// The sizes of its commands on their way.
    under_way: VecDeque<usize>,
    under_way_bytes: usize,
    is_blocked: bool,
    /// The leader knows the client.
    has_spoken: bool,
}

impl Member {
    const fn new(mailbox: Arc<Mailbox>) -> Self {
        Self {
            mailbox,
            kept: VecDeque::new(),
            under_way: VecDeque::new(),
            under_way_bytes: 0,
            is_blocked: false,
            has_spoken: false,
        }
    }

    fn is_full(&self) -> bool {
        self.under_way.len() >= ITEMS_MAX || self.under_way_bytes >= BYTES_MAX
    }

    fn is_evicted(&self) -> bool {
        self.mailbox.close_reason().is_some()
    }

    /// Items whose replies, or places among the replies, are still to come.
    fn unanswered(&self) -> usize {
        self.under_way.len() + self.kept.len()
    }

    fn count(&self) {
        self.mailbox.set_under_way(self.unanswered());
    }

    /// An item of this size is on its way.
    fn sent(&mut self, bytes: usize, of_all: &mut usize) {
        self.under_way.push_back(bytes);
        self.under_way_bytes += bytes;
        *of_all += bytes;
        self.count();
    }
}

/// Bytes that a client publishes, and the mailboxes of their readers.
type Published = (Bytes, Vec<Arc<Mailbox>>);

impl Edge {
    /// An edge without clients.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self {
            state: Mutex::default(),
            durable: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            in_doubt: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            budget,
            to_send: Notify::new(),
            replied: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that holds this lock can panic half way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: this daemon leads, and items of another leader are old.
    fn lock_unless_leading(&self) -> Option<MutexGuard<'_, State>> {
        Some(self.lock()).filter(|state| state.link != LinkState::Ours)
    }

    // ---- for the link ----------------------------------------------------------------------------------------------

    /// What this daemon knows of the leader before.
    pub fn known(&self) -> Option<Known> {
        let state = self.lock();
        let commit = self.durable.load(Ordering::Acquire);
        state.number.map(|edge| Known { edge, epoch: state.epoch, commit })
    }

    /// There is a way to a leader.
    pub fn open_link(&self, welcome: &Welcome) {
        let Some(mut state) = self.lock_unless_leading() else { return };
        clock::follow(&welcome.clock);
        // The same leader, by another link: it has kept the clients, and the numbers of commits go on.
        let again = state.number.is_some() && state.epoch == welcome.epoch && welcome.reaches > 0;
        if again {
            state.ledger.renumber(welcome.edge);
        } else if state.number != Some(welcome.edge) {
            state.close_clients(|member| member.has_spoken);
            state.ledger = Ledger::new(LEDGER);
        }
        (state.link, state.number, state.epoch) = (LinkState::Open, Some(welcome.edge), welcome.epoch);
        self.durable.store(welcome.durable, Ordering::Release);
        self.failed.store(false, Ordering::Release);
        self.in_doubt.store(false, Ordering::Release);
        if again {
            state.waiting.iter().for_each(|(_, mailbox)| mailbox.ring());
        } else {
            state.begin_epoch(welcome.reaches);
        }
        let claims = state.claims();
        for ask in claims {
            state.note_sent_again(&ask);
            state.asks.push(ask);
        }
        state.unblock_all();
    }

    /// The leader lives, and sends nothing else until its right to lead is certain again.
    pub fn note_doubt(&self) {
        self.in_doubt.store(true, Ordering::Release);
    }

    /// Whether the leader's last word was that it does not know whether it leads.
    pub fn in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Acquire)
    }

    /// The way to the leader is lost. Requests without an answer are unknown.
    pub fn close_link(&self) {
        let Some(mut state) = self.lock_unless_leading() else { return };
        state.link = LinkState::Sought;
        self.in_doubt.store(false, Ordering::Release);
        state.asks.clear();
        let unanswered = state.ledger.unanswered();
        for (client, tag) in unanswered {
            let client = state.own(client);
            self.deliver(&mut state, client, 0, Mail::Event(Event::Reply(tag, Reply::Refused(Refusal::Unknown))));
        }
        state.stop_waiting();
        for reply in state.questions.values_mut() {
            let _ = reply.get_or_insert(Err(Refusal::Unknown));
        }
        self.replied.notify_all();
    }

    /// This daemon leads from now on, and its journal reaches this commit of the epoch before. Returns the mailboxes of
    /// the clients that go on, and the items that the engine needs for them, in order.
    pub fn hand_over(&self, epoch: u64, recovered: u64) -> Handover {
        self.close_link();
        let mut state = self.lock();
        // The link's thread may still have something of the leader before.
        state.link = LinkState::Ours;
        clock::lead();
        let reached = if epoch == state.epoch + 1 { recovered } else { 0 };
        state.begin_epoch(reached);
        let claims = state.claims();
        let mut handover = Handover::default();
        for ask in claims {
            match ask {
                Ask::Open { client, .. } => {
                    let client = state.own(client);
                    if let Some(member) = state.clients.get(&client) {
                        handover.mailboxes.push((client, Arc::clone(&member.mailbox)));
                    }
                }
                Ask::Command { client, tag, command } => handover.commands.push((state.own(client), tag, command)),
                Ask::Claim { client, claim } => {
                    handover.commands.push((state.own(client), Tag::NONE, Command::Claim(Box::new(claim))));
                }
                Ask::Hello(_)
                | Ask::Forbidden { .. }
                | Ask::Words { .. }
                | Ask::Publish { .. }
                | Ask::Room { .. }
                | Ask::Close { .. }
                | Ask::Claimed
                | Ask::Sent { .. }
                | Ask::Bye => {}
            }
        }
        // Those that have sent nothing yet have no place at the engine.
        let silent = state.clients.iter().filter(|(_, member)| !member.has_spoken && !member.is_evicted());
        handover.mailboxes.extend(silent.map(|(client, member)| (*client, Arc::clone(&member.mailbox))));
        *state = State { link: LinkState::Ours, ..State::default() };
        handover
    }

    /// There has been no way for too long: clients that wait for one are closed.
    pub fn give_up(&self) {
        let mut state = self.lock();
        if state.link == LinkState::Sought {
            state.link = LinkState::Lost;
            state.close_clients(|member| member.is_blocked);
        }
    }

    /// This daemon leads no more: its clients wait for another leader.
    pub fn begin(&self) {
        self.lock().link = LinkState::Sought;
    }

    /// Whether the leader has not yet done all that clients have asked.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let state = self.lock();
        !state.asks.is_empty() || state.clients.values().any(|member| !member.under_way.is_empty())
    }

    /// Takes the items to send.
    pub fn take_asks(&self, into: &mut Vec<Ask>) {
        into.append(&mut self.lock().asks);
    }

    /// Handles the leader's items.
    pub fn receive(&self, says: impl IntoIterator<Item = Say>) {
        let Some(mut state) = self.lock_unless_leading() else { return };
        let mut due = Vec::new();
        for say in says {
            state.ledger.heard(&say);
            match say {
                Say::Event { client, gate, event } => {
                    let client = state.own(client);
                    if client.0 < OURSELVES {
                        self.deliver(&mut state, client, gate, Mail::Event(event));
                    } else {
                        state.note_reply(client, event);
                        self.replied.notify_all();
                    }
                }
                Say::Words { client, count } => {
                    let client = state.own(client);
                    let Some(member) = state.clients.get_mut(&client) else { continue };
                    let count = member.kept.len().min(count as usize);
                    let kept: Vec<_> = member.kept.drain(..count).collect();
                    let (mailbox, left) = (Arc::clone(&member.mailbox), member.unanswered());
                    kept.into_iter().for_each(|bytes| self.deliver(&mut state, client, 0, Mail::Bytes(bytes)));
                    mailbox.set_under_way(left);
                }
                Say::Applied { client, count } => {
                    let client = state.own(client);
                    state.applied(client, count);
                }
                Say::Closed { client } => {
                    if let Some(member) = state.clients.get(&state.own(client)) {
                        member.mailbox.evict(Reason::ClosedByServer);
                    }
                }
                Say::Durable { commit } => {
                    self.durable.store(commit, Ordering::Release);
                    let ready = state.waiting.iter().take_while(|(gate, _)| *gate <= commit).count();
                    due.extend(state.waiting.drain(..ready).map(|(_, mailbox)| mailbox));
                }
                Say::Failed(failed) => {
                    self.failed.store(failed, Ordering::Release);
                    if failed {
                        due.extend(state.waiting.iter().map(|(_, mailbox)| Arc::clone(mailbox)));
                    }
                }
                Say::Clock(reading) => {
                    clock::follow(&reading);
                    self.in_doubt.store(false, Ordering::Release);
                }
                Say::Starved => self.budget.cut_stalled(clock::now()),
                // The link handles the beginning and the end, doubt, and what is published.
                Say::Welcome(_) | Say::Refused(_) | Say::Published { .. } | Say::Bye | Say::Beat => {}
            }
        }
        drop(state);
        due.iter().for_each(|mailbox| mailbox.ring());
    }

    /// Puts bytes that a connection of another daemon has published into the mailboxes of these clients.
    pub fn publish_to(&self, to: &[ClientId], bytes: Bytes) {
        let mailboxes = {
            let state = self.lock();
            to.iter().filter_map(|to| state.clients.get(to)).map(|to| Arc::clone(&to.mailbox)).collect()
        };
        self.publish(vec![(bytes, mailboxes)]);
    }

    fn publish(&self, published: Vec<Published>) {
        published.into_iter().for_each(|(bytes, to)| Publication::new(bytes, &self.budget).post(&to));
    }

    fn deliver(&self, state: &mut State, client: ClientId, gate: u64, mail: Mail) {
        let State { clients, waiting, .. } = state;
        let Some(Member { mailbox, .. }) = clients.get(&client) else { return };
        let gate = if gate > self.durable.load(Ordering::Acquire) { gate } else { 0 };
        let hold = if let Mail::Event(event) = &mail { Hold::on(event, &mut None, &self.budget) } else { None };
        let mut filling = mailbox.fill();
        if filling.push(gate, mail, hold) {
            waiting.push_back((gate, Arc::clone(mailbox)));
        }
        filling.finish();
    }
}

#[cfg(any(test, feature = "testing"))]
impl Edge {
    /// What a new leader would get. The ledger keeps it.
    #[must_use]
    pub fn claims(&self) -> Vec<Ask> {
        let mut state = self.lock();
        let claims = state.ledger.claims();
        let clients: Vec<_> = state.ledger.clients().collect();
        clients.into_iter().for_each(|client| state.ledger.heard(&Say::Applied { client, count: u32::MAX }));
        claims
    }
}

impl State {
    /// Sends a client's items, as many as may be on their way.
    fn go(&mut self, client: ClientId, items: &mut VecDeque<Item>, published: &mut Vec<Published>) -> Visited {
        while let Some(item) = items.front() {
            let bytes = ITEM_BYTES + body_bytes(item);
            let Some(member) = self.clients.get_mut(&client) else { break };
            if matches!(self.link, LinkState::Lost | LinkState::Ours) {
                member.mailbox.evict(Reason::ClosedByServer);
                return Visited::UntilRung;
            }
            if self.link == LinkState::Sought || self.under_way_bytes >= UNDER_WAY_MAX || member.is_full() {
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

    fn send(&mut self, client: ClientId, item: Item, size: usize, published: &mut Vec<Published>) {
        let Some(member) = self.clients.get_mut(&client) else { return };
        match item {
            Item::Command(tag, mut command) => {
                member.sent(size, &mut self.under_way_bytes);
                if let Some(number) = self.at_leader(client) {
                    self.ledger.prove(number, &mut command);
                }
                self.ask_for(client, |client| Ask::Command { client, tag, command });
            }
            Item::Forbidden(tag) => {
                member.sent(size, &mut self.under_way_bytes);
                self.ask_for(client, |client| Ask::Forbidden { client, tag });
            }
            // Nothing of the leader's is to come before it.
            Item::Bytes(bytes) if member.unanswered() == 0 => {
                let mut filling = member.mailbox.fill();
                filling.push(0, Mail::Bytes(bytes), None);
                filling.finish();
            }
            Item::Bytes(bytes) => {
                member.kept.push_back(bytes);
                member.count();
                self.ask_for(client, |client| Ask::Words { client, count: 1 });
            }
            Item::Publish(to, bytes) => {
                let to = to.iter().filter_map(|to| self.clients.get(to)).map(|to| Arc::clone(&to.mailbox));
                published.push((bytes, to.collect()));
            }
        }
    }

    /// Adds an item about a client, under the client's number at the leader. Without a way to the leader only the ledger
    /// learns of it: the next leader gets what the ledger has, and may know this daemon under another number.
    fn ask_for(&mut self, client: ClientId, ask: impl FnOnce(ClientId) -> Ask) {
        let Some(number) = self.at_leader(client) else { return };
        let ask = ask(number);
        // A question of the daemon's own is not asked again.
        if client.0 < OURSELVES {
            self.ledger.asked(&ask);
        }
        if self.link == LinkState::Open {
            self.asks.push(ask);
        }
    }

    /// What the next leader must know of the clients. Those that the ledger had no room for are closed.
    fn claims(&mut self) -> Vec<Ask> {
        let claims = self.ledger.claims();
        let known: HashSet<ClientId> = self.ledger.clients().map(|client| self.own(client)).collect();
        for (client, member) in &self.clients {
            if member.has_spoken && !known.contains(client) {
                member.mailbox.evict(Reason::ClosedByServer);
            }
        }
        claims
    }

    /// A command that was asked before is on its way to another leader.
    fn note_sent_again(&mut self, ask: &Ask) {
        let client = ask.client().map(|client| self.own(client)).filter(|_| ask.is_counted());
        if let Some(member) = client.and_then(|client| self.clients.get_mut(&client)) {
            member.sent(0, &mut self.under_way_bytes);
        }
    }

    /// The numbers of commits begin anew.
    fn begin_epoch(&mut self, reached: u64) {
        self.waiting.clear();
        self.clients.values().for_each(|member| member.mailbox.begin_epoch(reached));
    }

    /// Nothing more comes for what is on its way. Bytes that had a place among the replies are next.
    fn stop_waiting(&mut self) {
        self.under_way_bytes = 0;
        for member in self.clients.values_mut() {
            (member.under_way, member.under_way_bytes) = (VecDeque::new(), 0);
            let mut filling = member.mailbox.fill();
            for bytes in member.kept.drain(..) {
                filling.push(0, Mail::Bytes(bytes), None);
            }
            filling.finish();
            member.count();
        }
    }

    fn open(&mut self, client: ClientId) {
        self.ask_for(client, |client| Ask::Open { client, room: ROOM_BYTES });
    }

    /// The leader's number of a client.
    fn at_leader(&self, client: ClientId) -> Option<ClientId> {
        self.number.map(|number| ClientId(number.first_client().0 | client.0))
    }

    /// This daemon's number of a client.
    fn own(&self, client: ClientId) -> ClientId {
        ClientId(client.0 ^ self.number.map_or(0, |number| number.first_client().0))
    }

    /// The leader has done some of a client's commands.
    fn applied(&mut self, client: ClientId, count: u32) {
        let Some(member) = self.clients.get_mut(&client) else { return };
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

    fn unblock_all(&mut self) {
        for client in std::mem::take(&mut self.blocked) {
            if let Some(member) = self.clients.get_mut(&client) {
                member.is_blocked = false;
                member.mailbox.ring();
            }
        }
    }

    /// The reply to a question of the daemon's own.
    fn note_reply(&mut self, client: ClientId, event: Event) {
        if let (Event::Reply(ASKED, reply), Some(place)) = (event, self.questions.get_mut(&client)) {
            *place = Some(if let Reply::Refused(why) = reply { Err(why) } else { Ok(reply) });
        }
    }

    fn close_clients(&mut self, which: impl Fn(&Member) -> bool) {
        let closed = self.clients.values().filter(|member| which(member));
        closed.for_each(|member| member.mailbox.evict(Reason::ClosedByServer));
    }
}

/// What a daemon that begins to lead does for its clients.
#[derive(Debug, Default)]
pub struct Handover {
    /// The clients with their mailboxes.
    pub mailboxes: Vec<(ClientId, Arc<Mailbox>)>,
    /// What the clients claim.
    pub commands: Vec<(ClientId, Tag, Command)>,
}

/// The bytes of an item's body.
fn body_bytes(item: &Item) -> usize {
    match item {
        Item::Command(_, command) => command.new_job().map_or(0, |job| job.body.len()),
        Item::Bytes(bytes) => bytes.len(),
        Item::Forbidden(_) | Item::Publish(..) => 0,
    }
}

impl Broker for Edge {
    fn open(&self, client: ClientId, mailbox: Arc<Mailbox>) {
        self.lock().clients.insert(client, Member::new(mailbox));
    }

    fn visit(&self, _now: &Reading, batches: &mut dyn Iterator<Item = Batch<'_>>) -> CommitDuty {
        let (mut state, mut published) = (self.lock(), Vec::new());
        let had_any = !state.asks.is_empty();
        for Batch { client, items, visited, .. } in batches {
            *visited = state.go(client, items, &mut published);
        }
        let has_any = !state.asks.is_empty();
        drop(state);
        if has_any && !had_any {
            self.to_send.notify_one();
        }
        self.publish(published);
        self.budget.relieve();
        CommitDuty::None
    }

    fn visit_apart(&self, now: &Reading, batch: Batch<'_>) -> bool {
        self.visit(now, &mut std::iter::once(batch));
        true
    }

    fn mail_apart(&self, mailbox: &Mailbox, into: &mut Vec<Mail>) -> bool {
        self.mail(mailbox, usize::MAX, into);
        true
    }

    fn mail(&self, mailbox: &Mailbox, room: usize, into: &mut Vec<Mail>) -> Option<usize> {
        let before = into.len();
        let left = mailbox.take(self.durable.load(Ordering::Acquire), self.failed.load(Ordering::Acquire), room, into);
        let taken = into.iter().skip(before).map(|mail| if let Mail::Event(event) = mail { event.bytes() } else { 0 });
        if let Some(bytes) = mailbox.made_room(taken.sum(), ROOM_STEP) {
            self.lock().ask_for(mailbox.client(), |client| Ask::Room { client, bytes: bytes as u64 });
            self.to_send.notify_one();
        }
        left
    }

    fn sent_jobs(&self, client: ClientId, jobs: u32) {
        self.lock().ask_for(client, |client| Ask::Sent { client, jobs });
        self.to_send.notify_one();
    }

    fn close(&self, client: ClientId) -> bool {
        let mut state = self.lock();
        let Some(member) = state.clients.remove(&client) else { return true };
        state.under_way_bytes -= member.under_way_bytes;
        if member.has_spoken && !self.stopping.load(Ordering::Acquire) {
            let unsent = member.mailbox.take_unsent_jobs(usize::MAX);
            let release = |(job, token)| {
                let (job, proof) = (JobRef::Id(job), Proof::Token(token));
                LeaseCommand::Release { job, proof, front: false }.into()
            };
            let unwait = (!unsent.is_empty()).then(|| TakeCommand::Unwait.into());
            for command in unwait.into_iter().chain(unsent.into_iter().map(release)) {
                state.ask_for(client, |client| Ask::Command { client, tag: Tag::NONE, command });
            }
            state.ask_for(client, |client| Ask::Close { client });
            self.to_send.notify_one();
        }
        true
    }

    fn ask(&self, command: Command) -> Result<Reply, Refusal> {
        let mut state = self.lock();
        if state.link != LinkState::Open {
            return Err(Refusal::Unavailable);
        }
        state.asked += 1;
        let client = ClientId(OURSELVES + state.asked);
        state.questions.insert(client, None);
        state.open(client);
        let opening = Command::from(ClientCommand::Open(ClientInfo::default()));
        for (tag, command) in [(Tag::NONE, opening), (ASKED, command)] {
            state.ask_for(client, |client| Ask::Command { client, tag, command });
        }
        state.ask_for(client, |client| Ask::Close { client });
        self.to_send.notify_one();
        let waits = |state: &mut State| state.questions.get(&client).is_some_and(Option::is_none);
        let waited = self.replied.wait_timeout_while(state, ASK_MAX, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.questions.remove(&client).flatten().unwrap_or(Err(Refusal::Unknown))
    }

    fn health(&self) -> Health {
        let has_link = self.lock().link == LinkState::Open && !self.in_doubt();
        match (self.stopping.load(Ordering::Acquire), has_link && !self.failed.load(Ordering::Acquire)) {
            (true, _) => Health::Stopping,
            (false, false) => Health::StoreFailed,
            (false, true) => Health::Serving,
        }
    }

    /// The leader knows the jobs of the clients here: this broker is at rest when the clients have gone.
    fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let mailboxes: Vec<_> = self.lock().clients.values().map(|member| Arc::clone(&member.mailbox)).collect();
        mailboxes.iter().for_each(|mailbox| mailbox.ring());
    }
}
