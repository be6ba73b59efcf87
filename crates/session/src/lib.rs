//! The plug between a protocol and the engine: what one connection is, without a socket.
//!
//! A [`Session`] gets bytes, events and ticks, and fills an [`Outbox`] with bytes for its peer and commands for the engine,
//! *in the order in which they are to take effect*: bytes put behind a command are sent behind the events that answer it.
//! So a session that answers `ECHO` at once keeps its place behind a `SUBMIT` whose acknowledgement waits for the disk.
//!
//! Whoever drives a session (the server, or a test) does, in this order:
//! [`Session::on_open`] once; [`Session::on_bytes`] when bytes have come; [`Session::on_event`] for each event of the
//! engine for this client; [`Session::on_tick`] when [`Session::next_deadline`] has come; after [`Outbox::hang_up`] only the events still due.
//! The driver sends [`windlass_engine::Command::Close`] itself when the connection is gone.
//!
//! Beside it what more than one protocol needs: [`cron`]; [`jid`], what a job without a name is called; [`alias`], a session
//! under other names.

pub mod alias;
pub mod cron;
pub mod jid;

use std::collections::VecDeque;
use std::fmt;

use bytes::{Bytes, BytesMut};
use windlass_engine::{Command, Event, Tag, Timestamp};

/// One connection's side of a protocol.
pub trait Session: Send + fmt::Debug {
    /// The connection is there. Puts [`Command::Open`] first, and whatever the protocol says before it is spoken to.
    fn on_open(&mut self, now: Timestamp, out: &mut Outbox);

    /// More bytes are there. Takes from `input` every message that is complete, or as many as it wants to have in
    /// flight at once, and leaves the rest: it is called again, with the same rest at the front, when more has come or
    /// when the driver has room for more.
    fn on_bytes(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut Outbox);

    /// The engine has something to tell. What is put out here takes effect behind everything put out before.
    fn on_event(&mut self, now: Timestamp, event: Event, out: &mut Outbox);

    /// A deadline has come.
    fn on_tick(&mut self, _now: Timestamp, _out: &mut Outbox) {}

    /// When [`Session::on_tick`] is to be called next, if ever.
    fn next_deadline(&self) -> Option<Timestamp> {
        None
    }

    /// How many bytes more a message that has begun needs before it can be taken: a hint for the reader, already
    /// judged against the session's limits.
    fn needs_bytes(&self) -> usize {
        0
    }

    /// How many whole messages the peer has sent: each new one has time of its own to come in.
    fn messages(&self) -> u64 {
        0
    }

    /// Bytes it holds besides those in the input buffer: of a message half read, or for the peer.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Nothing was read from the peer until now, on purpose: it does not take its answers, or the disk is behind. Its
    /// silence is no sign of death. Told before a tick meanwhile, and when reading begins again.
    fn excuse(&mut self, _now: Timestamp) {}

    /// The peer has closed its side. Whatever is due to it is still sent; a session that has nothing to wait for hangs up.
    fn on_eof(&mut self, _now: Timestamp, out: &mut Outbox) {
        out.hang_up(Reason::PeerClosed);
    }

    /// The daemon is about to stop: last words, if the protocol has any.
    fn on_shutdown(&mut self, _now: Timestamp, _out: &mut Outbox) {}
}

/// A connection, to those who may have to end it from outside: to make room, or because another has taken its place.
pub trait Dismiss: Send + Sync + fmt::Debug {
    /// Ends it at once; what its peer is still owed is not sent. May be called from any thread, and more than once: the
    /// first reason counts.
    fn dismiss(&self, why: Reason);
}

/// A connection, to other connections that have something for its peer.
pub trait Post: Dismiss {
    /// Puts whole messages behind everything that is on its way to the peer already. `false`: there is no room for them, and
    /// nothing was taken; whether they are dropped then is for the sender to say. May be called from any thread.
    #[must_use]
    fn post(&self, words: Bytes) -> bool;
}

/// What a session wants done, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    items: VecDeque<Item>,
    /// Bytes being gathered for the peer; they become one item when something else follows.
    bytes: BytesMut,
    hang_up: Option<Reason>,
    stop: Option<Stop>,
    /// The wall clock minus the time that sessions are told.
    skew_ms: i64,
}

/// What a session may ask for that is not about its own connection: that the daemon stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// As soon as no connection works on a job or waits for the result of one. Until then nobody new is let in.
    Gracefully,
    /// Now.
    Now,
}

/// One thing to be done.
#[derive(Debug)]
pub enum Item {
    /// For the engine; the tag comes back with the answer.
    Command(Tag, Command),
    /// For the peer, behind the answers to the commands before.
    Bytes(Bytes),
}

/// Why a session ends its connection: for the log, and for nothing else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Nothing more to say to each other.
    #[error("peer closed")]
    PeerClosed,
    /// The protocol's own goodbye.
    #[error("session ended")]
    Ended,
    /// The peer sent what its protocol does not allow.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// The peer does not know the password.
    #[error("wrong password")]
    WrongPassword,
    /// The peer did not do in time what it had to.
    #[error("timed out: {0}")]
    TimedOut(&'static str),
    /// The peer asked for more than it may have.
    #[error("limit exceeded: {0}")]
    Limit(&'static str),
    /// The engine has given the peer up.
    #[error("dismissed")]
    Dismissed,
    /// The daemon stops.
    #[error("shutting down")]
    Shutdown,
}

impl Outbox {
    /// A buffer larger than this goes out whole, not as a part of one that is kept: what is kept would hold on to its memory.
    const KEPT_BYTES_MAX: usize = 4 << 10;

    /// Room for more items than this is given back.
    const KEPT_ITEMS_MAX: usize = 1 << 10;

    /// One for a session that lives while the wall clock is so much ahead of the engine's.
    #[must_use]
    pub fn at(skew_ms: i64) -> Self {
        Self { skew_ms, ..Self::default() }
    }

    /// The wall clock is so much ahead of the engine's time now, which is what sessions are told. To be kept up by whoever
    /// drives the session.
    pub const fn set_skew_ms(&mut self, skew_ms: i64) {
        self.skew_ms = skew_ms;
    }

    /// The wall clock minus the engine's time.
    #[must_use]
    pub const fn skew_ms(&self) -> i64 {
        self.skew_ms
    }

    /// What the wall clock shows at a moment of the engine's: for moments that peers are told.
    #[must_use]
    pub const fn wall(&self, at: Timestamp) -> Timestamp {
        at.shifted(self.skew_ms)
    }

    /// The engine's time at a moment of the wall clock's: for moments that peers name and that must not move when somebody
    /// sets the clock.
    #[must_use]
    pub const fn by_engine(&self, at: Timestamp) -> Timestamp {
        at.shifted(self.skew_ms.saturating_neg())
    }

    /// Asks the engine for something.
    pub fn command(&mut self, tag: Tag, command: Command) {
        if self.hang_up.is_none() {
            self.flush_bytes();
            self.items.push_back(Item::Command(tag, command));
        }
    }

    /// Where bytes for the peer are written. What is written after [`Outbox::hang_up`] is not sent.
    pub const fn bytes(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// Ends the connection once everything put out before has been sent, the answers to commands included.
    pub fn hang_up(&mut self, reason: Reason) {
        if self.hang_up.is_none() {
            self.flush_bytes();
            self.hang_up = Some(reason);
        }
    }

    /// Asks for the daemon to stop. Everything put out before, on this connection too, is still done and answered.
    pub fn stop_daemon(&mut self, how: Stop) {
        if self.hang_up.is_none() {
            self.stop = self.stop.max(Some(how));
        }
    }

    /// Whether the session wants the daemon to stop, if it has said so since the last time.
    pub const fn take_stop(&mut self) -> Option<Stop> {
        self.stop.take()
    }

    /// Why the session wants to end, if it has said so since the last time. From then on the driver gives it no more
    /// bytes, only the events that are still due, and what it makes of those is sent.
    pub fn take_reason(&mut self) -> Option<Reason> {
        let reason = self.hang_up.take();
        if reason.is_some() {
            self.bytes.clear();
        }
        reason
    }

    /// Whether there is nothing to be done, hanging up and stopping included.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.bytes.is_empty() && self.hang_up.is_none() && self.stop.is_none()
    }

    /// Whether the last thing to be done is to wait for a job: the peer says nothing more until it is told of one.
    #[must_use]
    pub fn ends_in_waiting(&self) -> bool {
        let wait = matches!(
            self.items.back(),
            Some(Item::Command(_, Command::Take(_) | Command::Sleep | Command::Credit { .. }))
        );
        wait && self.bytes.is_empty()
    }

    /// Takes out what is to be done, in order.
    pub fn drain(&mut self) -> std::collections::vec_deque::Drain<'_, Item> {
        if self.hang_up.is_some() {
            self.bytes.clear();
        }
        self.flush_bytes();
        self.items.drain(..)
    }

    /// Moves what is to be done behind what is there, in order: for a driver that may stop between two things.
    pub fn move_behind(&mut self, items: &mut VecDeque<Item>) {
        if self.hang_up.is_some() {
            self.bytes.clear();
        }
        self.flush_bytes();
        items.append(&mut self.items);
        if self.items.capacity() > Self::KEPT_ITEMS_MAX {
            self.items = VecDeque::new();
        }
    }

    /// Takes out the bytes, if they are all there is to be done.
    pub fn take_bytes(&mut self) -> Option<BytesMut> {
        (self.items.is_empty() && !self.bytes.is_empty()).then(|| self.split_bytes())
    }

    /// Takes out the bytes that stand before the first command, if there are any.
    pub fn take_leading_bytes(&mut self) -> Option<Bytes> {
        if self.items.is_empty() {
            return self.take_bytes().map(BytesMut::freeze);
        }
        match self.items.pop_front()? {
            Item::Bytes(bytes) => Some(bytes),
            item @ Item::Command(..) => {
                self.items.push_front(item);
                None
            }
        }
    }

    fn flush_bytes(&mut self) {
        if !self.bytes.is_empty() {
            let bytes = self.split_bytes().freeze();
            self.items.push_back(Item::Bytes(bytes));
        }
    }

    fn split_bytes(&mut self) -> BytesMut {
        if self.bytes.capacity() > Self::KEPT_BYTES_MAX { std::mem::take(&mut self.bytes) } else { self.bytes.split() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_harder_of_two_stops_counts() {
        let mut out = Outbox::default();
        out.stop_daemon(Stop::Now);
        out.stop_daemon(Stop::Gracefully);
        assert!(!out.is_empty());
        assert_eq!((out.take_stop(), out.take_stop()), (Some(Stop::Now), None));
        assert!(out.is_empty());
        out.hang_up(Reason::Ended);
        out.stop_daemon(Stop::Now);
        assert_eq!(out.take_stop(), None, "behind the end nothing counts");
    }

    #[test]
    fn what_is_moved_keeps_its_order_and_what_is_large_its_memory() {
        let mut out = Outbox::default();
        let mut items = VecDeque::new();
        out.bytes().extend_from_slice(b"small");
        out.command(Tag(1), Command::Stats);
        out.bytes().resize(1 << 20, 7);
        out.move_behind(&mut items);
        assert_eq!(out.bytes().capacity(), 0, "the large buffer is not kept");
        assert!(out.is_empty());
        (0..1 + Outbox::KEPT_ITEMS_MAX).for_each(|_| out.command(Tag(2), Command::Stats));
        out.hang_up(Reason::Ended);
        out.bytes().extend_from_slice(b"never sent");
        out.move_behind(&mut items);
        assert_eq!(out.items.capacity(), 0, "nor is the room for many things");
        let name = |item| match item {
            Item::Command(tag, _) => format!("command {}", tag.0),
            Item::Bytes(bytes) => format!("{} bytes", bytes.len()),
        };
        assert_eq!(items.len(), 4 + Outbox::KEPT_ITEMS_MAX);
        let first: Vec<_> = items.drain(..4).map(name).collect();
        assert_eq!(first, ["5 bytes", "command 1", "1048576 bytes", "command 2"]);
    }

    #[test]
    fn bytes_keep_their_place_among_commands() {
        let mut out = Outbox::default();
        out.bytes().extend_from_slice(b"a");
        out.bytes().extend_from_slice(b"b");
        out.command(Tag(1), Command::Stats);
        out.bytes().extend_from_slice(b"c");
        out.hang_up(Reason::Ended);
        out.bytes().extend_from_slice(b"never sent");
        out.command(Tag(2), Command::Stats);
        assert_eq!(out.take_leading_bytes().as_deref(), Some(&b"ab"[..]));
        let items: Vec<String> = out
            .drain()
            .map(|item| match item {
                Item::Command(tag, _) => format!("command {}", tag.0),
                Item::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            })
            .collect();
        assert_eq!(items, ["command 1", "c"]);
        assert_eq!(out.take_reason(), Some(Reason::Ended));
        assert!(out.is_empty());
        out.bytes().extend_from_slice(b"still due");
        assert_eq!(out.take_leading_bytes().as_deref(), Some(&b"still due"[..]));
    }
}
