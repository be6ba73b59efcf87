//! Sessions on one engine, without sockets: the work of the server's driver, done in memory and at once.
//!
//! When a session requests a stop of the daemon, every connection ends, as in the server. It keeps the order that
//! `windlass_session` promises and gates nothing: every commit counts as durable when it is made. Not here: the
//! conversation (`transcript`), and whether the engine is correct (the simulator).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use windlass_engine::{
    ClientCommand, ClientId, ClientInfo, Command, Context, Engine, Event, JobReader, Limits,
    Refusal, Reply, Rights, Tag, Timestamp,
};
use windlass_session::{Item, Outbox, Reason, Session, Stop};

/// A client number that no connection has.
const NOBODY: ClientId = ClientId(0);

/// An engine and the connections to it.
#[derive(Debug)]
pub struct MemoryHub {
    engine: Engine,
    context: Context,
    peers: BTreeMap<ClientId, Peer>,
    next_client: u64,
    /// The stop that a session has requested, if any.
    stop: Option<Stop>,
}

#[derive(Debug)]
struct Peer {
    session: Box<dyn Session>,
    /// From the peer, not yet taken by the session.
    input: BytesMut,
    /// For the peer, not yet taken by the test.
    output: BytesMut,
    outbox: Outbox,
    mail: VecDeque<Mail>,
    /// Why the session has asked to end, if it has.
    ending: Option<Reason>,
    /// Why it has ended.
    ended: Option<Reason>,
}

#[derive(Debug)]
enum Mail {
    Event(Event),
    Bytes(Bytes),
}

impl Peer {
    fn say(&mut self, bytes: &[u8]) {
        match self.session.seal(bytes) {
            Some(sealed) => self.output.extend_from_slice(&sealed),
            None => self.output.extend_from_slice(bytes),
        }
    }

    /// Records the session's request to end; it takes effect once all earlier output is processed.
    fn heed(&mut self) {
        if let Some(reason) = self.outbox.take_reason()
            && self.ending.is_none()
        {
            self.ending = Some(reason);
            self.input.clear();
        }
    }
}

impl MemoryHub {
    /// An engine at `now` without connections.
    #[must_use]
    pub fn new(limits: Limits, now: Timestamp, seed: u64) -> Self {
        Self {
            engine: Engine::new(limits, seed),
            context: Context::new(now, seed),
            peers: BTreeMap::new(),
            next_client: 1,
            stop: None,
        }
    }

    /// Reads jobs with this, for conditions that depend on a protocol.
    #[must_use]
    pub fn reading(mut self, reader: Arc<dyn JobReader>) -> Self {
        self.engine.set_reader(reader);
        self
    }

    /// Opens a connection from 127.0.0.1 with a new session.
    pub fn open(&mut self, greet: impl FnOnce(ClientInfo) -> Box<dyn Session>) -> ClientId {
        self.open_with(Rights::ALL, greet)
    }

    /// Opens a connection that may do no more than this.
    pub fn open_with(
        &mut self,
        rights: Rights,
        greet: impl FnOnce(ClientInfo) -> Box<dyn Session>,
    ) -> ClientId {
        let client = ClientId(self.next_client);
        let number = u32::try_from(self.next_client).unwrap_or(u32::MAX);
        self.next_client += 1;
        let mut peer = Peer {
            session: greet(ClientInfo {
                namespace: None,
                address: "127.0.0.1".into(),
                protocol: None,
                number,
            }),
            input: BytesMut::new(),
            output: BytesMut::new(),
            outbox: Outbox::new(client).with_rights(rights),
            mail: VecDeque::new(),
            ending: None,
            ended: None,
        };
        peer.session.on_open(self.context.now, &mut peer.outbox);
        self.peers.insert(client, peer);
        self.settle(client);
        client
    }

    /// Delivers bytes from a peer and processes all their consequences, for all connections.
    pub fn send(&mut self, client: ClientId, bytes: &[u8]) {
        let now = self.context.now;
        let Some(peer) = self.open_peer(client) else {
            return;
        };
        peer.input.extend_from_slice(bytes);
        peer.session
            .on_bytes(now, &mut peer.input, &mut peer.outbox);
        self.settle(client);
    }

    /// Applies a command of no connection and processes all its consequences.
    pub fn command(&mut self, command: impl Into<Command>) {
        self.engine
            .apply(NOBODY, Tag::NONE, command, &mut self.context);
        self.post(NOBODY, VecDeque::new());
        self.settle_all();
    }

    /// A peer closes its sending side and continues to receive.
    pub fn half_close(&mut self, client: ClientId) {
        let now = self.context.now;
        let Some(peer) = self.open_peer(client) else {
            return;
        };
        peer.session.on_eof(now, &mut peer.outbox);
        self.settle(client);
    }

    /// A connection breaks without notice. Output that it should still get can be read.
    pub fn close(&mut self, client: ClientId) {
        self.finish(client, Reason::PeerClosed);
        self.settle_all();
    }

    /// Takes the output for a peer.
    pub fn take_output(&mut self, client: ClientId) -> BytesMut {
        self.peers
            .get_mut(&client)
            .map(|peer| peer.output.split())
            .unwrap_or_default()
    }

    /// Why a connection is no longer open.
    #[must_use]
    pub fn end_of(&self, client: ClientId) -> Option<&Reason> {
        self.peers.get(&client)?.ended.as_ref()
    }

    /// The current time.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.context.now
    }

    /// Moves the clock forward, processing every deadline on the way.
    pub fn advance_ms(&mut self, ms: u64) {
        let target = self.context.now.after_ms(ms);
        while let Some(due) = self.next_deadline().filter(|due| *due <= target) {
            self.context.now = self.context.now.max(due);
            self.tick();
            let now = self.context.now;
            assert!(
                self.next_deadline().is_none_or(|next| next > now),
                "due at {due:?} and still due after that"
            );
        }
        self.context.now = target;
    }

    /// The engine, for inspection.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    // ---- time ------------------------------------------------------------------------------------------------------

    fn next_deadline(&self) -> Option<Timestamp> {
        let open = self
            .peers
            .values()
            .filter(|peer| peer.ended.is_none() && peer.ending.is_none());
        open.filter_map(|peer| peer.session.next_deadline())
            .chain(self.engine.next_deadline())
            .min()
    }

    fn tick(&mut self) {
        let now = self.context.now;
        self.engine.tick(&mut self.context);
        self.post(NOBODY, VecDeque::new());
        for peer in self
            .peers
            .values_mut()
            .filter(|peer| peer.ended.is_none() && peer.ending.is_none())
        {
            if peer.session.next_deadline().is_some_and(|due| due <= now) {
                peer.session.on_tick(now, &mut peer.outbox);
            }
        }
        self.settle_all();
    }

    // ---- the driver ------------------------------------------------------------------------------------------------

    fn open_peer(&mut self, client: ClientId) -> Option<&mut Peer> {
        self.peers
            .get_mut(&client)
            .filter(|peer| peer.ended.is_none() && peer.ending.is_none())
    }

    /// Processes one connection completely, then all connections with new mail.
    fn settle(&mut self, client: ClientId) {
        self.settle_one(client);
        self.settle_all();
    }

    fn settle_all(&mut self) {
        let busy =
            |peer: &Peer| peer.ended.is_none() && !(peer.mail.is_empty() && peer.outbox.is_empty());
        while let Some(client) = self
            .peers
            .iter()
            .find(|(_, peer)| busy(peer))
            .map(|(client, _)| *client)
        {
            self.settle_one(client);
        }
        let stops = self.stop == Some(Stop::Now)
            || self.stop.is_some()
                && self
                    .engine
                    .work_left(ClientId::default().daemon())
                    .is_at_rest;
        if stops && let Some(client) = self.first_open() {
            self.shut_down(client);
            self.settle(client);
        }
    }

    fn first_open(&self) -> Option<ClientId> {
        self.peers
            .iter()
            .find(|(_, peer)| peer.ended.is_none() && peer.ending.is_none())
            .map(|(client, _)| *client)
    }

    /// Final processing of one connection when the daemon stops.
    fn shut_down(&mut self, client: ClientId) {
        let now = self.context.now;
        let Some(peer) = self.open_peer(client) else {
            return;
        };
        peer.session.on_shutdown(now, &mut peer.outbox);
        peer.outbox.hang_up(Reason::Shutdown);
    }

    fn settle_one(&mut self, client: ClientId) {
        loop {
            self.visit(client);
            if !self.read_mail(client) && !self.reread(client) {
                break;
            }
        }
        let Some(peer) = self.peers.get_mut(&client) else {
            return;
        };
        if let Some(reason) = peer.ending.take() {
            self.finish(client, reason);
        }
    }

    /// Applies everything in a connection's outbox, in order.
    fn visit(&mut self, client: ClientId) {
        let Some(peer) = self.peers.get_mut(&client) else {
            return;
        };
        peer.heed();
        self.stop = self.stop.max(peer.outbox.take_stop());
        let (mut words, mut published) = (VecDeque::new(), Vec::new());
        for item in peer.outbox.drain() {
            match item {
                Item::Command(tag, command) => {
                    self.engine.apply(client, tag, command, &mut self.context)
                }
                Item::Forbidden(tag) => {
                    let refused = Event::Reply(tag, Reply::Refused(Refusal::NotPermitted));
                    self.context.events.push((client, refused));
                }
                Item::Bytes(bytes) => words.push_back((self.context.events.len(), bytes)),
                Item::Publish(to, bytes) => published.push((to, bytes)),
            }
        }
        for (to, bytes) in published {
            to.into_iter()
                .for_each(|client| deliver(&mut self.peers, client, Mail::Bytes(bytes.clone())));
        }
        self.post(client, words);
    }

    /// Sends events to their clients' mailboxes, with the session's own bytes in their places between them.
    fn post(&mut self, speaker: ClientId, mut words: VecDeque<(usize, Bytes)>) {
        self.context.changes.clear();
        for (index, (client, event)) in self.context.events.drain(..).enumerate() {
            while words.front().is_some_and(|(place, _)| *place <= index) {
                let said = words.pop_front();
                said.into_iter()
                    .for_each(|(_, bytes)| deliver(&mut self.peers, speaker, Mail::Bytes(bytes)));
            }
            deliver(&mut self.peers, client, Mail::Event(event));
        }
        words
            .into_iter()
            .for_each(|(_, bytes)| deliver(&mut self.peers, speaker, Mail::Bytes(bytes)));
    }

    /// Passes its mail to the session. Returns whether there was any.
    fn read_mail(&mut self, client: ClientId) -> bool {
        let now = self.context.now;
        let Some(peer) = self.peers.get_mut(&client) else {
            return false;
        };
        let mail = std::mem::take(&mut peer.mail);
        let any = !mail.is_empty();
        for mail in mail {
            let Some(peer) = self.peers.get_mut(&client) else {
                return any;
            };
            match mail {
                Mail::Bytes(bytes) => peer.say(&bytes),
                Mail::Event(event) => {
                    peer.session.on_event(now, event, &mut peer.outbox);
                    // Bytes that the session answers at once precede the rest of the mail; its commands are new.
                    if let Some(bytes) = peer.outbox.take_leading_bytes() {
                        peer.say(&bytes);
                    }
                    self.visit(client);
                }
            }
        }
        any
    }

    /// Resumes a session that left input unprocessed. Returns whether it did anything.
    fn reread(&mut self, client: ClientId) -> bool {
        let now = self.context.now;
        let Some(peer) = self.open_peer(client).filter(|peer| !peer.input.is_empty()) else {
            return false;
        };
        let before = peer.input.len();
        peer.session
            .on_bytes(now, &mut peer.input, &mut peer.outbox);
        let read = before != peer.input.len() || !peer.outbox.is_empty();
        peer.heed();
        read || peer.ending.is_some()
    }

    fn finish(&mut self, client: ClientId, reason: Reason) {
        let Some(peer) = self
            .peers
            .get_mut(&client)
            .filter(|peer| peer.ended.is_none())
        else {
            return;
        };
        peer.ended = Some(reason);
        peer.mail.clear();
        self.engine
            .apply(client, Tag::NONE, ClientCommand::Close, &mut self.context);
        self.post(client, VecDeque::new());
    }
}

fn deliver(peers: &mut BTreeMap<ClientId, Peer>, client: ClientId, mail: Mail) {
    if let Some(peer) = peers.get_mut(&client).filter(|peer| peer.ended.is_none()) {
        peer.mail.push_back(mail);
    }
}
