//! What a protocol supplies to a [`Conversation`](crate::Conversation): decoding, what a request means, how a reply and
//! a notice look. And what a [`Transport`] beneath the protocol supplies.

use std::fmt;

use bytes::BytesMut;
use windlass_engine::{Notice, Protocol, Refusal, Reply, Timestamp};

use crate::{Question, Reason, Talk};

/// One protocol's side of a connection.
pub trait Speaker: Send + fmt::Debug {
    /// The protocol, for the engine.
    const PROTOCOL: Protocol;

    /// What a command was for.
    type Question: Question;

    /// The peer's login tells its namespace: the speaker calls [`Talk::enter`] when it knows it, and sends no command
    /// before. Asked once, when the connection opens.
    fn awaits_login(&self) -> bool {
        false
    }

    /// The engine has not let the connection in: the protocol's words for that, if it has any. The connection then ends.
    fn turned_away(&mut self, _why: Refusal, _talk: &mut Talk<'_, Self::Question>) {}

    /// The connection has opened: the greeting, if the server speaks first. [`Talk::enter`] precedes commands.
    fn open(&mut self, _talk: &mut Talk<'_, Self::Question>) {}

    /// Takes one message from `input` and acts on it. Between two calls `input` only grows, or moves to another buffer.
    ///
    /// # Errors
    ///
    /// The connection ends for this reason, after what the message has put out.
    fn read(
        &mut self,
        input: &mut BytesMut,
        talk: &mut Talk<'_, Self::Question>,
    ) -> Result<Read, Reason>;

    /// Reading pauses, for whatever reason. `took`: bytes were taken from the input since it began.
    fn has_read(&mut self, _took: bool, _talk: &mut Talk<'_, Self::Question>) {}

    /// The engine's reply to a question.
    fn reply(
        &mut self,
        question: Self::Question,
        reply: Reply,
        talk: &mut Talk<'_, Self::Question>,
    );

    /// The engine has refused a command without a question. `code` is that of [`Talk::send_as`], 0 for [`Talk::send`].
    fn refused(&mut self, _code: u64, _why: Refusal, _talk: &mut Talk<'_, Self::Question>) {}

    /// A message of the engine that answers no command.
    fn notice(&mut self, notice: Notice, talk: &mut Talk<'_, Self::Question>);

    /// The protocol's deadline may have passed.
    fn tick(&mut self, _talk: &mut Talk<'_, Self::Question>) {}

    /// The protocol's next deadline, without the transport's.
    fn next_deadline(&self) -> Option<Timestamp> {
        None
    }

    /// The peer's silence until now must not count as a missed heartbeat.
    fn reset_liveness(&mut self, _now: Timestamp) {}

    /// The peer has closed its side. Earlier messages may still be unread.
    fn on_eof(&mut self, _talk: &mut Talk<'_, Self::Question>) {}

    /// The peer has closed its side and every message has been read: the last commands before the connection ends.
    fn leave(&mut self, _talk: &mut Talk<'_, Self::Question>) {}

    /// The connection is ending.
    fn ended(&mut self) {}

    /// The daemon is about to stop: the protocol's goodbye, if it has one.
    fn shutdown(&mut self, _talk: &mut Talk<'_, Self::Question>) {}

    /// Bytes held for the peer, outside the outbox.
    fn held_bytes(&self) -> usize {
        0
    }

    /// The transport beneath the messages; `None` if they are on the bare stream.
    fn transport(&self) -> Option<&dyn Transport> {
        None
    }

    /// The same, to change it.
    fn transport_mut(&mut self) -> Option<&mut dyn Transport> {
        None
    }
}

/// The outcome of one attempt to read a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// There was one.
    Message,
    /// It is incomplete: at least this many bytes are missing. 0 if none has begun.
    Needs(usize),
}

/// A transport with a handshake and heartbeats of its own. It counts its messages, and keeps large ones out of the
/// input buffer.
pub trait Transport {
    /// Number of complete messages received.
    fn messages(&self) -> u64;

    /// Bytes of an incomplete message that were moved out of the input buffer.
    fn held_bytes(&self) -> usize;

    /// When [`Transport::tick`] must be called next, if ever.
    fn next_deadline(&self) -> Option<Timestamp>;

    /// Acts on a deadline that has come. Does nothing before it.
    ///
    /// # Errors
    ///
    /// The peer took too long.
    fn tick(&mut self, now: Timestamp, out: &mut BytesMut) -> Result<(), Reason>;

    /// The peer's silence until now must not count as a missed heartbeat.
    fn reset_liveness(&mut self, now: Timestamp);

    /// See [`Session::seal`](crate::Session::seal).
    fn seal(&mut self, bytes: &[u8]) -> Option<BytesMut>;
}
