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

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use windlass_engine::{
    ClientCommand, ClientId, ClientInfo, Command, Event, JobRef, LeaseCommand, Proof, Reading,
    Refusal, Reply, Tag, TakeCommand,
};
use windlass_link::{Known, Ledger, ToEdge, ToLeader, Welcome};
use windlass_session::Reason;

use windlass_hub::{
    Batch, Broker, Budget, CommitDuty, Health, Hold, Mail, Mailbox, Publication, clock,
};

use self::state::{LEDGER, LinkState, Member, OURSELVES, Published, State};

mod broker;
#[cfg(test)]
mod leaders;
mod state;
#[cfg(test)]
mod tests;

/// How long the daemon itself waits for a reply.
const ASK_MAX: Duration = Duration::from_secs(10);

/// A session's room is reported to the leader in steps of this many bytes.
const ROOM_STEP: usize = 32 << 10;

/// The way to the leader, and this daemon's clients.
#[derive(Debug, Default)]
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

impl Edge {
    /// An edge without clients.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self {
            budget,
            ..Self::default()
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
        state.number.map(|edge| Known {
            edge,
            epoch: state.epoch,
            commit,
        })
    }

    /// There is a way to a leader.
    pub fn open_link(&self, welcome: &Welcome) {
        let Some(mut state) = self.lock_unless_leading() else {
            return;
        };
        clock::follow(&welcome.clock);
        // The same leader, by another link: it has kept the clients, and the numbers of commits go on.
        let again = state.number.is_some() && state.epoch == welcome.epoch && welcome.reaches > 0;
        if again {
            state.ledger.renumber(welcome.edge);
        } else if state.number != Some(welcome.edge) {
            state.close_clients(|member| member.has_spoken);
            state.ledger = Ledger::new(LEDGER);
        }
        (state.link, state.number, state.epoch) =
            (LinkState::Open, Some(welcome.edge), welcome.epoch);
        // What the earlier leader reported as durable is in every later store.
        let reached = welcome
            .reaches
            .max(self.durable.swap(welcome.durable, Ordering::AcqRel));
        self.failed.store(false, Ordering::Release);
        self.in_doubt.store(false, Ordering::Release);
        if again {
            state.waiting.iter().for_each(|(_, mailbox)| mailbox.ring());
        } else {
            state.begin_epoch(reached);
        }
        let claims = state.claims(Some(reached).filter(|_| !again));
        state.ledger.begin(welcome.durable);
        for item in claims {
            state.note_sent_again(&item);
            state.to_leader.push(item);
        }
        state.unblock_all();
    }

    /// The leader lives, and sends nothing else until its right to lead is certain again.
    pub fn note_doubt(&self) {
        let Some(state) = self.lock_unless_leading() else {
            return;
        };
        self.in_doubt.store(true, Ordering::Release);
        self.stand_still(&state);
    }

    /// Without a leader that may act, no time passes for clients. An edge that stops has deadlines of its own.
    fn stand_still(&self, _unless_leading: &MutexGuard<'_, State>) {
        if !self.stopping.load(Ordering::Acquire) {
            clock::stand_still();
        }
    }

    /// Whether the leader's last word was that it does not know whether it leads.
    pub fn in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Acquire)
    }

    /// The way to the leader is lost. Requests without an answer are unknown.
    pub fn close_link(&self) {
        let Some(mut state) = self.lock_unless_leading() else {
            return;
        };
        state.link = LinkState::Sought;
        self.in_doubt.store(false, Ordering::Release);
        state.to_leader.clear();
        let unanswered = state.ledger.unanswered();
        for (client, tag) in unanswered {
            let client = state.own(client);
            self.deliver(
                &mut state,
                client,
                0,
                Mail::Event(Event::Reply(tag, Reply::Refused(Refusal::Unknown))),
            );
        }
        state.stop_waiting();
        self.stand_still(&state);
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
        let reached = if epoch == state.epoch + 1 {
            recovered
        } else {
            0
        }
        .max(self.durable.load(Ordering::Acquire));
        state.begin_epoch(reached);
        let claims = state.claims(Some(reached));
        let mut handover = Handover::default();
        for item in claims {
            match item {
                ToLeader::Open { client, .. } => {
                    let client = state.own(client);
                    if let Some(member) = state.clients.get(&client) {
                        handover
                            .mailboxes
                            .push((client, Arc::clone(&member.mailbox)));
                    }
                }
                ToLeader::Command {
                    client,
                    tag,
                    command,
                } => handover.commands.push((state.own(client), tag, command)),
                ToLeader::Claim { client, claim } => {
                    handover.commands.push((
                        state.own(client),
                        Tag::NONE,
                        Command::Claim(Box::new(claim)),
                    ));
                }
                ToLeader::Hello(_)
                | ToLeader::Forbidden { .. }
                | ToLeader::OwnBytes { .. }
                | ToLeader::Publish { .. }
                | ToLeader::Room { .. }
                | ToLeader::Close { .. }
                | ToLeader::Claimed
                | ToLeader::Sent { .. }
                | ToLeader::About(_)
                | ToLeader::Bye => {}
            }
        }
        // Those that have sent nothing yet have no place at the engine.
        let silent = state
            .clients
            .iter()
            .filter(|(_, member)| !member.has_spoken && !member.is_evicted());
        handover
            .mailboxes
            .extend(silent.map(|(client, member)| (*client, Arc::clone(&member.mailbox))));
        *state = State {
            link: LinkState::Ours,
            ..State::default()
        };
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
        let mut state = self.lock();
        state.link = LinkState::Sought;
        self.stand_still(&state);
    }

    /// Whether the leader has not yet done all that clients have asked.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_busy(&self) -> bool {
        let state = self.lock();
        !state.to_leader.is_empty()
            || state
                .clients
                .values()
                .any(|member| !member.under_way.is_empty())
    }

    /// Takes the items to send.
    pub fn take_outgoing(&self, into: &mut Vec<ToLeader>) {
        into.append(&mut self.lock().to_leader);
    }

    /// Handles the leader's items.
    pub fn receive(&self, to_edge: impl IntoIterator<Item = ToEdge>) {
        let Some(mut state) = self.lock_unless_leading() else {
            return;
        };
        let mut due = Vec::new();
        for item in to_edge {
            state.ledger.received(&item);
            match item {
                ToEdge::Event {
                    client,
                    gate,
                    event,
                } => {
                    let client = state.own(client);
                    if client.0 < OURSELVES {
                        self.deliver(&mut state, client, gate, Mail::Event(event));
                    } else {
                        state.note_reply(client, event);
                        self.replied.notify_all();
                    }
                }
                ToEdge::OwnBytes { client, count } => {
                    let client = state.own(client);
                    let Some(member) = state.clients.get_mut(&client) else {
                        continue;
                    };
                    let count = member.kept.len().min(count as usize);
                    let kept: Vec<_> = member.kept.drain(..count).collect();
                    let (mailbox, left) = (Arc::clone(&member.mailbox), member.unanswered());
                    kept.into_iter()
                        .for_each(|bytes| self.deliver(&mut state, client, 0, Mail::Bytes(bytes)));
                    mailbox.set_under_way(left);
                }
                ToEdge::Applied { client, count } => {
                    let client = state.own(client);
                    state.applied(client, count);
                }
                ToEdge::Closed { client } => {
                    if let Some(member) = state.clients.get(&state.own(client)) {
                        member.mailbox.evict(Reason::ClosedByServer);
                    }
                }
                ToEdge::Durable { commit } => {
                    self.durable.store(commit, Ordering::Release);
                    let ready = state
                        .waiting
                        .iter()
                        .take_while(|(gate, _)| *gate <= commit)
                        .count();
                    due.extend(state.waiting.drain(..ready).map(|(_, mailbox)| mailbox));
                }
                ToEdge::Failed(failed) => {
                    self.failed.store(failed, Ordering::Release);
                    if failed {
                        due.extend(state.waiting.iter().map(|(_, mailbox)| Arc::clone(mailbox)));
                    }
                }
                ToEdge::Clock(reading) => {
                    clock::follow(&reading);
                    self.in_doubt.store(false, Ordering::Release);
                }
                ToEdge::Starved => self.budget.cut_stalled(clock::now()),
                // The link handles the beginning and the end, doubt, and what is published.
                ToEdge::Welcome(_)
                | ToEdge::Refused(_)
                | ToEdge::Published { .. }
                | ToEdge::Bye
                | ToEdge::Beat
                | ToEdge::Edges(_)
                | ToEdge::About(_) => {}
            }
        }
        drop(state);
        due.iter().for_each(|mailbox| mailbox.ring());
    }

    /// Puts bytes that a connection of another daemon has published into the mailboxes of these clients.
    pub fn publish_to(&self, to: &[ClientId], bytes: Bytes) {
        let mailboxes = {
            let state = self.lock();
            to.iter()
                .filter_map(|to| state.clients.get(to))
                .map(|to| Arc::clone(&to.mailbox))
                .collect()
        };
        self.publish(vec![(bytes, mailboxes)]);
    }

    fn publish(&self, published: Vec<Published>) {
        published
            .into_iter()
            .for_each(|(bytes, to)| Publication::new(bytes, &self.budget).post(&to));
    }

    fn deliver(&self, state: &mut State, client: ClientId, gate: u64, mail: Mail) {
        let State {
            clients, waiting, ..
        } = state;
        let Some(Member { mailbox, .. }) = clients.get(&client) else {
            return;
        };
        let gate = if gate > self.durable.load(Ordering::Acquire) {
            gate
        } else {
            0
        };
        let hold = if let Mail::Event(event) = &mail {
            Hold::on(event, &mut None, &self.budget)
        } else {
            None
        };
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
    pub fn claims(&self) -> Vec<ToLeader> {
        let mut state = self.lock();
        let claims = state.ledger.claims(None);
        let clients: Vec<_> = state.ledger.clients().collect();
        clients.into_iter().for_each(|client| {
            state.ledger.received(&ToEdge::Applied {
                client,
                count: u32::MAX,
            })
        });
        claims
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
