//! The broker of a daemon that is not the leader. It forwards its clients' commands to the leader
//! over the link. Replies go to the clients' mailboxes together with the commit that they depend
//! on, and are sent once the leader has reported that commit as durable.
//!
//! Bytes addressed to a peer stay on the edge. A place-holder is sent instead, so that they keep
//! their position among the leader's replies.
//!
//! Back-pressure: the number of items in flight to the leader is bounded, per client and in total.
//! Further items stay with the connections.
//!
//! A ledger records the clients' state at the engine. When the leader changes, the edge replays the
//! ledger to the new leader, so that connections survive with the jobs that they hold or listen to.
//! A reply that depends on a commit is valid if the new leader's journal contains that commit;
//! otherwise its outcome is unknown.
//!
//! The socket is in `link`.

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

use self::state::{LEDGER, LinkState, Member, OWN_REQUESTS, Published, State};

mod broker;
#[cfg(test)]
mod leaders;
mod state;
#[cfg(test)]
mod tests;

/// How long the daemon waits for a reply to its own requests.
const ASK_MAX: Duration = Duration::from_secs(10);

/// The bytes that a session can accept are reported to the leader in steps of this size.
const ROOM_STEP: usize = 32 << 10;

/// The connection to the leader, and this daemon's clients.
#[derive(Debug, Default)]
pub struct Edge {
    state: Mutex<State>,
    /// The newest commit known to be durable at the leader.
    durable: AtomicU64,
    /// Whether the leader's store has stopped responding.
    failed: AtomicBool,
    /// Whether the leader is alive but not certain of its lease.
    in_doubt: AtomicBool,
    stopping: AtomicBool,
    budget: Arc<Budget>,
    /// Notified when there are items to send.
    pub to_send: Notify,
    /// Notified when one of the daemon's own requests has its reply.
    replied: Condvar,
}

impl Edge {
    /// Creates an edge without clients.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self {
            budget,
            ..Self::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No holder of this lock can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `None` if this daemon leads, because items from a previous leader are then obsolete.
    fn lock_unless_leading(&self) -> Option<MutexGuard<'_, State>> {
        Some(self.lock()).filter(|state| state.link != LinkState::Ours)
    }

    // ---- interface of the link
    // --------------------------------------------------------------------------

    /// This daemon's knowledge of its previous leader.
    pub fn known(&self) -> Option<Known> {
        let state = self.lock();
        let commit = self.durable.load(Ordering::Acquire);
        state.number.map(|edge| Known {
            edge,
            epoch: state.epoch,
            commit,
        })
    }

    /// Called when the link to a leader is up.
    pub fn open_link(&self, welcome: &Welcome) {
        let Some(mut state) = self.lock_unless_leading() else {
            return;
        };
        clock::follow(&welcome.clock);
        // The same leader over a new link: it has kept the clients, and its commit numbers
        // continue.
        let again = state.number.is_some() && state.epoch == welcome.epoch && welcome.reaches > 0;
        if again {
            state.ledger.renumber(welcome.edge);
        } else if state.number != Some(welcome.edge) {
            state.close_clients(|member| member.has_spoken);
            state.ledger = Ledger::new(LEDGER);
        }
        (state.link, state.number, state.epoch) =
            (LinkState::Open, Some(welcome.edge), welcome.epoch);
        // Commits that the previous leader reported as durable are in every later store.
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

    /// Called when the leader is alive but not certain of its lease. It sends nothing else until it
    /// is.
    pub fn note_doubt(&self) {
        let Some(state) = self.lock_unless_leading() else {
            return;
        };
        self.in_doubt.store(true, Ordering::Release);
        self.stand_still(&state);
    }

    /// Stops the clients' time while no leader may act, so that they do not time out. A stopping
    /// edge has separate deadlines.
    fn stand_still(&self, _unless_leading: &MutexGuard<'_, State>) {
        if !self.stopping.load(Ordering::Acquire) {
            clock::stand_still();
        }
    }

    /// Whether the leader has last reported that it is not certain of its lease.
    pub fn in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Acquire)
    }

    /// Called when the link is lost. The outcome of unanswered requests is unknown.
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

    /// Called when this daemon becomes leader and has recovered the previous epoch up to this
    /// commit. Returns the mailboxes of the remaining clients, and the items that restore their
    /// state in the engine, in order.
    pub fn hand_over(&self, epoch: u64, recovered: u64) -> Handover {
        self.close_link();
        let mut state = self.lock();
        // The link thread may still be processing items from the previous leader.
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
        // Clients that have not sent anything are unknown to the engine.
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

    /// Disconnects waiting clients: there has been no leader for too long.
    pub fn close_waiting(&self) {
        let mut state = self.lock();
        if state.link == LinkState::Sought {
            state.link = LinkState::Lost;
            state.close_clients(|member| member.is_blocked);
        }
    }

    /// Called when this daemon has lost leadership: its clients wait for another leader.
    pub fn begin(&self) {
        let mut state = self.lock();
        state.link = LinkState::Sought;
        self.stand_still(&state);
    }

    /// Whether the leader has requests of these clients that it has not executed.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_busy(&self) -> bool {
        let state = self.lock();
        !state.to_leader.is_empty()
            || state
                .clients
                .values()
                .any(|member| !member.under_way.is_empty())
    }

    /// Moves the items to send into `into`.
    pub fn take_outgoing(&self, into: &mut Vec<ToLeader>) {
        into.append(&mut self.lock().to_leader);
    }

    /// Handles items from the leader.
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
                    if client.0 < OWN_REQUESTS {
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
                    for bytes in kept {
                        self.deliver(&mut state, client, 0, Mail::Bytes(bytes));
                    }
                    if let Some(member) = state.clients.get(&client) {
                        member.count();
                    }
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
                // The link itself handles greetings, goodbyes, doubt and publications.
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
        Mailbox::ring_all(&due);
    }

    /// Delivers bytes published on another daemon to these clients' mailboxes.
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
        let gate = Some(gate).filter(|commit| *commit > self.durable.load(Ordering::Acquire));
        let hold = if let Mail::Event(event) = &mail {
            Hold::on(event, &mut None, &self.budget)
        } else {
            None
        };
        let mut filling = mailbox.fill();
        if let Some(commit) = filling.push(gate, mail, hold) {
            waiting.push_back((commit, Arc::clone(mailbox)));
        }
        filling.finish();
    }
}

#[cfg(any(test, feature = "testing"))]
impl Edge {
    /// The claims that a new leader would receive. The ledger keeps them.
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

/// The state that a new leader restores for its own clients.
#[derive(Debug, Default)]
pub struct Handover {
    /// The clients and their mailboxes.
    pub mailboxes: Vec<(ClientId, Arc<Mailbox>)>,
    /// The clients' claims.
    pub commands: Vec<(ClientId, Tag, Command)>,
}
