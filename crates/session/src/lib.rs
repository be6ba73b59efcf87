//! The interface between a protocol and the engine: one connection without its socket.
//!
//! A [`Session`] receives bytes, events and ticks. It fills an [`Outbox`] with bytes for its peer and commands for the
//! engine, *in the order in which they take effect*: bytes placed after a command are sent after the events that answer
//! the command. A session can therefore answer `ECHO` at once, and the reply still leaves after the acknowledgement of
//! an earlier `SUBMIT`, which waits for the disk.
//!
//! The driver of a session (the server, or a test) calls, in this order: [`Session::on_open`] once;
//! [`Session::on_bytes`] when bytes have arrived; [`Session::on_event`] for each event of the engine for this client;
//! [`Session::on_tick`] when [`Session::next_deadline`] is reached; after [`Outbox::hang_up`] only `on_event`, for
//! events that are still due. The driver itself sends [`windlass_engine::ClientCommand::Close`] when the connection has
//! ended.
//!
//! A [`protocol::Protocol`] is what the server knows of a protocol: its listeners, how their sessions are made, and
//! what the protocol adds to the daemon's state.
//!
//! Every protocol's session is a [`Conversation`], which owns what all connections have in common. A protocol is a
//! [`Speaker`].
//!
//! The crate also holds code that several protocols share: [`cron`]; [`jid`], names for jobs without one; [`alias`], their
//! names of queues.

pub mod alias;
mod by_namespace;
mod conversation;
pub mod cron;
pub mod jid;
mod listen;
mod pending;
pub mod protocol;
mod speaker;
mod talk;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;

use bytes::{Bytes, BytesMut};
use windlass_engine::{ClientId, Command, Event, Right, Rights, Tag, Timestamp};

pub use by_namespace::ByNamespace;
pub use conversation::Conversation;
pub use listen::Listen;
pub use pending::Question;
pub use speaker::{Read, Speaker, Transport};
pub use talk::{LARGE_BYTES, Talk};

/// One connection's side of a protocol.
pub trait Session: Send + fmt::Debug {
    /// The connection has opened. Puts the protocol's greeting if the server speaks first, and then
    /// [`windlass_engine::ClientCommand::Open`], unless the peer's login will tell the namespace.
    fn on_open(&mut self, now: Timestamp, out: &mut Outbox);

    /// Takes complete messages from `input`, as many as the session accepts in flight, and leaves the rest. The driver
    /// calls again, with that rest at the front, when more bytes have arrived or when it has room for more output.
    fn on_bytes(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut Outbox);

    /// Handles an event of the engine. The output takes effect after everything put out before.
    fn on_event(&mut self, now: Timestamp, event: Event, out: &mut Outbox);

    /// A deadline has passed.
    fn on_tick(&mut self, _now: Timestamp, _out: &mut Outbox) {}

    /// When the driver must call [`Session::on_tick`] next, if ever.
    fn next_deadline(&self) -> Option<Timestamp> {
        None
    }

    /// Bytes still missing from a message that has begun: a hint for the reader, already checked against the session's
    /// limits.
    fn needs_bytes(&self) -> usize {
        0
    }

    /// Number of complete messages received. The driver allows each new message its own time to arrive.
    fn messages(&self) -> u64 {
        0
    }

    /// Bytes the session holds outside the input buffer: of a partly read message, or for the peer.
    fn held_bytes(&self) -> usize {
        0
    }

    /// The driver deliberately read nothing from the peer until now, because the peer does not take its answers or the
    /// disk is behind. The peer's silence must not be treated as a missed heartbeat. Called before each tick of such a
    /// time, and when reading resumes.
    fn reset_liveness(&mut self, _now: Timestamp) {}

    /// Encrypts bytes for the peer, if the session does that; `None`: they leave as they are. The driver passes all
    /// bytes for the peer through it, in the order in which they leave, those of other connections' publications too.
    fn seal(&mut self, _bytes: &[u8]) -> Option<BytesMut> {
        None
    }

    /// Whether [`Session::seal`] may encrypt.
    fn seals(&self) -> bool {
        false
    }

    /// The peer has closed its side. Output that is still due is sent; a session that waits for nothing hangs up.
    fn on_eof(&mut self, _now: Timestamp, out: &mut Outbox) {
        out.hang_up(Reason::PeerClosed);
    }

    /// The daemon is about to stop: the protocol's goodbye, if it has one.
    fn on_shutdown(&mut self, _now: Timestamp, _out: &mut Outbox) {}
}

/// A connection that can be ended from outside: to make room, or because another connection has replaced it.
pub trait Closer: Send + Sync + fmt::Debug {
    /// Ends the connection at once and discards unsent output. Can be called from any thread, and repeatedly: the first
    /// reason counts.
    fn close(&self, why: Reason);
}

/// A session's output, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    client: ClientId,
    rights: Rights,
    items: VecDeque<Item>,
    /// Bytes for the peer that are not an item yet; they become one item when something else follows.
    bytes: BytesMut,
    hang_up: Option<Reason>,
    stop: Option<Stop>,
    /// The namespace that the client has entered, until the driver has seen it.
    entered: Option<Box<str>>,
    /// The wall clock minus the time that sessions receive.
    skew_ms: i64,
}

/// A session's request to stop the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// As soon as no connection works on a job or waits for a job's result. Until then no new connection is accepted.
    Gracefully,
    /// Now.
    Now,
}

/// One unit of output.
#[derive(Debug)]
pub enum Item {
    /// For the engine. The engine's answer carries the same tag.
    Command(Tag, Command),
    /// In the place of a command that the client may not send. The driver answers it with `NotPermitted`.
    Forbidden(Tag),
    /// For the peer, sent after the answers to the preceding commands.
    Bytes(Bytes),
    /// Whole messages for the peers of other connections, sent after everything already queued for them. A connection
    /// without room for them misses them.
    Publish(Box<[ClientId]>, Bytes),
}

/// Why a session ends its connection; used only in the log and in metrics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The peer closed the connection, and no output is due.
    #[error("peer closed")]
    PeerClosed,
    /// The session ended by the protocol's own rules.
    #[error("session ended")]
    Ended,
    /// The peer violated the protocol.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// The peer sent a wrong password.
    #[error("wrong password")]
    WrongPassword,
    /// The peer missed a deadline.
    #[error("timed out: {0}")]
    TimedOut(&'static str),
    /// The peer exceeded a limit.
    #[error("limit exceeded: {0}")]
    Limit(&'static str),
    /// The worker missed its heartbeats, or another connection has taken its place.
    #[error("closed by the server")]
    ClosedByServer,
    /// The daemon is stopping.
    #[error("shutting down")]
    Shutdown,
}

impl Reason {
    /// Its kind as a name, for metrics.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::PeerClosed => "peer_closed",
            Self::Ended => "session_ended",
            Self::Protocol(_) => "protocol_error",
            Self::WrongPassword => "wrong_password",
            Self::TimedOut(_) => "timed_out",
            Self::Limit(_) => "limit",
            Self::ClosedByServer => "closed_by_server",
            Self::Shutdown => "shutdown",
        }
    }
}

impl Outbox {
    /// A buffer larger than this is given away whole instead of split: the kept part would hold on to its memory.
    const KEPT_BYTES_MAX: usize = 4 << 10;

    /// Room for more items than this is freed.
    const KEPT_ITEMS_MAX: usize = 1 << 10;

    /// An outbox for the session of this client.
    pub fn new(client: ClientId) -> Self {
        Self {
            client,
            ..Self::default()
        }
    }

    /// The outbox of a client with these rights only.
    #[must_use]
    pub const fn with_rights(mut self, rights: Rights) -> Self {
        self.rights = rights;
        self
    }

    /// The client enters this namespace with a name, or that without one.
    pub fn enter(&mut self, namespace: Option<Box<str>>) {
        self.entered = namespace;
    }

    /// The namespace with a name that the client has entered since the last call, if it has.
    pub fn entered(&mut self) -> Option<Box<str>> {
        self.entered.take()
    }

    /// What the client may do.
    pub const fn rights(&self) -> Rights {
        self.rights
    }

    /// The session's own number: other sessions can publish to it.
    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// Sets by how much the wall clock is now ahead of the engine's time, which sessions receive. The driver keeps it
    /// current.
    pub const fn set_skew_ms(&mut self, skew_ms: i64) {
        self.skew_ms = skew_ms;
    }

    /// The wall clock minus the engine's time.
    pub const fn skew_ms(&self) -> i64 {
        self.skew_ms
    }

    /// Converts the engine's time to wall-clock time, for times that are sent to peers.
    pub const fn wall(&self, at: Timestamp) -> Timestamp {
        at.shifted(self.skew_ms)
    }

    /// Converts wall-clock time to the engine's time, for times that peers send and that must not move when the clock
    /// is set.
    pub const fn by_engine(&self, at: Timestamp) -> Timestamp {
        at.shifted(self.skew_ms.saturating_neg())
    }

    /// Adds a command for the engine, which is refused if the client does not have the right.
    pub fn command(&mut self, tag: Tag, command: impl Into<Command>) {
        if self.hang_up.is_none() {
            let command = command.into();
            self.flush_bytes();
            let is_allowed = self.rights.allow(&command);
            self.items.push_back(if is_allowed {
                Item::Command(tag, command)
            } else {
                Item::Forbidden(tag)
            });
        }
    }

    /// Publishes whole messages to the peers of other connections, if the client may submit. See [`Item::Publish`].
    pub fn publish(&mut self, to: &[ClientId], bytes: Bytes) {
        if self.hang_up.is_none() && self.rights.include(Right::Submit) {
            self.flush_bytes();
            self.items.push_back(Item::Publish(to.into(), bytes));
        }
    }

    /// The buffer for bytes to the peer. Bytes written after [`Outbox::hang_up`] are not sent.
    pub const fn bytes(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// Appends bytes for the peer without a copy: for large bodies.
    pub fn share(&mut self, bytes: Bytes) {
        if self.hang_up.is_none() {
            self.flush_bytes();
            self.items.push_back(Item::Bytes(bytes));
        }
    }

    /// Ends the connection after everything put out before has been sent, including the answers to commands.
    pub fn hang_up(&mut self, reason: Reason) {
        if self.hang_up.is_none() {
            self.flush_bytes();
            self.hang_up = Some(reason);
        }
    }

    /// Requests that the daemon stop, if the client may administer. Everything put out before, on this connection too,
    /// is still done and answered.
    pub fn stop_daemon(&mut self, how: Stop) {
        if self.hang_up.is_none() && self.rights.include(Right::Administer) {
            self.stop = self.stop.max(Some(how));
        }
    }

    /// The session's request to stop the daemon, if it has made one since the last call.
    pub const fn take_stop(&mut self) -> Option<Stop> {
        self.stop.take()
    }

    /// Why the session ends its connection, if it has decided so since the last call. From then on the driver passes it
    /// no more bytes, only the events that are still due, and sends the session's output for them.
    pub fn take_reason(&mut self) -> Option<Reason> {
        let reason = self.hang_up.take();
        if reason.is_some() {
            self.bytes.clear();
        }
        reason
    }

    /// Whether the outbox holds nothing; a request to hang up or to stop counts as something.
    pub fn is_empty(&self) -> bool {
        self.is_empty_but_bytes() && self.bytes.is_empty()
    }

    /// Whether the outbox holds nothing beside bytes for the peer.
    pub fn is_empty_but_bytes(&self) -> bool {
        self.items.is_empty() && self.hang_up.is_none() && self.stop.is_none()
    }

    /// Whether the last item waits for a job: the peer sends nothing more until it is notified of one.
    pub fn ends_in_waiting(&self) -> bool {
        let wait = matches!(self.items.back(), Some(Item::Command(_, command)) if command.waits_for_work());
        wait && self.bytes.is_empty()
    }

    /// Removes all items, in order.
    pub fn drain(&mut self) -> std::collections::vec_deque::Drain<'_, Item> {
        self.flush_bytes();
        self.items.drain(..)
    }

    /// Appends all items to `items`, in order: for a driver that may stop between two items.
    pub fn move_behind(&mut self, items: &mut VecDeque<Item>) {
        self.flush_bytes();
        if items.is_empty() {
            std::mem::swap(items, &mut self.items);
        } else {
            items.append(&mut self.items);
        }
        if self.items.capacity() > Self::KEPT_ITEMS_MAX {
            self.items = VecDeque::new();
        }
    }

    /// Removes the bytes, if the outbox holds nothing else. A driver that has copied them [returns](Outbox::reuse) the
    /// buffer.
    pub fn take_bytes(&mut self) -> Option<BytesMut> {
        (self.items.is_empty() && !self.bytes.is_empty()).then(|| std::mem::take(&mut self.bytes))
    }

    /// Uses the buffer of earlier bytes for the next ones, unless it is large.
    pub fn reuse(&mut self, mut buffer: BytesMut) {
        if self.bytes.is_empty()
            && (self.bytes.capacity()..=Self::KEPT_BYTES_MAX).contains(&buffer.capacity())
        {
            buffer.clear();
            self.bytes = buffer;
        }
    }

    /// Removes the bytes before the first other item, if there are any.
    pub fn take_leading_bytes(&mut self) -> Option<Bytes> {
        if self.items.is_empty() {
            return self.take_bytes().map(BytesMut::freeze);
        }
        let is_bytes = matches!(self.items.front(), Some(Item::Bytes(_)));
        if is_bytes && let Some(Item::Bytes(bytes)) = self.items.pop_front() {
            Some(bytes)
        } else {
            None
        }
    }

    /// Makes the bytes an item. Bytes behind a reason to hang up are not sent.
    fn flush_bytes(&mut self) {
        if self.hang_up.is_some() {
            self.bytes.clear();
        }
        if !self.bytes.is_empty() {
            let is_large = self.bytes.capacity() > Self::KEPT_BYTES_MAX;
            let bytes = if is_large {
                std::mem::take(&mut self.bytes)
            } else {
                self.bytes.split()
            };
            self.items.push_back(Item::Bytes(bytes.freeze()));
        }
    }
}
