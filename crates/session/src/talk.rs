//! A speaker's way to the engine and to its peer during one call.

use bytes::{Bytes, BytesMut};
use windlass_engine::{ClientCommand, ClientId, ClientInfo, Command, Right, Tag, Timestamp};

use crate::pending::Pending;
use crate::{Outbox, Question, Reason, Stop};

/// A body this large is read into a buffer of its own, and kept without a copy.
pub const LARGE_BYTES: usize = 256 << 10;

/// Reading stops for a moment when the publications of one call have this many recipients.
pub(crate) const RECIPIENTS_MAX: usize = 4 << 10;

/// The tag of the command behind [`ClientCommand::Open`]. No question has it: their tags count from 1.
pub(crate) const ENTERED: Tag = Tag(u64::MAX >> 1);

/// The output of one call, in the order in which it takes effect.
#[derive(Debug)]
pub struct Talk<'a, Q> {
    pub(crate) now: Timestamp,
    pub(crate) out: &'a mut Outbox,
    pub(crate) state: &'a mut State<Q>,
}

/// A conversation without its speaker.
#[derive(Debug)]
pub(crate) struct State<Q> {
    /// For the engine, until it is told of the connection.
    pub(crate) info: Option<ClientInfo>,
    /// The engine was told, and may still refuse the connection.
    pub(crate) entering: bool,
    pub(crate) pending: Pending<Q>,
    /// Recipients of the publications since reading began.
    pub(crate) recipients: usize,
    /// Number of messages on the bare stream.
    pub(crate) messages: u64,
    /// Bytes that an incomplete message lacks at least.
    pub(crate) needs_bytes: usize,
    /// The buffer was allocated for the message that is being read.
    pub(crate) dedicated: bool,
    /// The buffer holds unread bytes.
    pub(crate) unread: bool,
    /// The peer has closed its side.
    pub(crate) eof: bool,
    /// The connection is ending: nothing sent after the reason counts.
    pub(crate) over: bool,
}

impl<Q> Default for State<Q> {
    fn default() -> Self {
        Self {
            info: None,
            entering: false,
            pending: Pending::default(),
            recipients: 0,
            messages: 0,
            needs_bytes: 0,
            dedicated: false,
            unread: false,
            eof: false,
            over: false,
        }
    }
}

impl<Q: Question> Talk<'_, Q> {
    /// The engine's time.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// The connection's own number.
    pub const fn client(&self) -> ClientId {
        self.out.client()
    }

    /// Whether the client has a right: for what is no command, and for a refusal in the protocol's own words.
    pub const fn may(&self, right: Right) -> bool {
        self.out.rights().include(right)
    }

    /// See [`Outbox::wall`].
    pub const fn wall(&self, at: Timestamp) -> Timestamp {
        self.out.wall(at)
    }

    /// See [`Outbox::by_engine`].
    pub const fn by_engine(&self, at: Timestamp) -> Timestamp {
        self.out.by_engine(at)
    }

    /// See [`Outbox::skew_ms`].
    pub const fn skew_ms(&self) -> i64 {
        self.out.skew_ms()
    }

    /// The buffer for bytes to the peer. They are sent after the replies to earlier commands.
    pub const fn bytes(&mut self) -> &mut BytesMut {
        self.out.bytes()
    }

    /// Sends bytes to the peer behind those of [`Talk::bytes`], without a copy: for bodies of at least [`LARGE_BYTES`].
    /// Not for a protocol with a transport, which frames its bytes.
    pub fn share(&mut self, bytes: Bytes) {
        self.out.share(bytes);
    }

    /// Tells the engine of the connection: in the namespace of its address, or else in this one. Only the first call
    /// counts.
    ///
    /// The engine may refuse a connection to a namespace with a name, at a limit of the namespace. It would carry out the
    /// commands of such a client in the namespace without a name, so nothing more is read until it has let this one in.
    pub fn enter(&mut self, namespace: Option<&str>) {
        let Some(info) = self.state.info.take() else {
            return;
        };
        let namespace = info.namespace.or_else(|| namespace.map(Box::from));
        self.state.entering = namespace.is_some();
        self.out.enter(namespace.clone());
        self.send(ClientCommand::Open(ClientInfo { namespace, ..info }));
        if self.state.entering {
            self.out.command(ENTERED, Command::Barrier);
        }
    }

    /// Sends a command to the engine. [`Speaker::reply`](crate::Speaker::reply) gets the question back with the reply.
    pub fn ask(&mut self, question: Q, command: impl Into<Command>) {
        let tag = self.state.pending.push(question);
        self.out.command(tag, command);
    }

    /// Sends a command that has no reply.
    pub fn send(&mut self, command: impl Into<Command>) {
        self.out.command(Tag::NONE, command);
    }

    /// Sends a command that has no reply unless it is refused; then [`Speaker::refused`](crate::Speaker::refused) gets
    /// the code, which is below 2^63.
    pub fn send_as(&mut self, code: u64, command: impl Into<Command>) {
        self.out.command(Tag::silent(code), command);
    }

    /// Publishes whole messages to the peers of other connections. Those without room for them miss them.
    pub fn publish(&mut self, to: &[ClientId], bytes: Bytes) {
        self.state.recipients += to.len();
        self.out.publish(to, bytes);
    }

    /// Takes the last question back if it is such a one, and returns whether it was. Its reply, if it still comes, is
    /// ignored.
    pub fn withdraw_last_if(&mut self, is_such: impl FnOnce(&Q) -> bool) -> bool {
        self.state.pending.withdraw_last_if(is_such)
    }

    /// Bytes of the current message that outlive the input buffer: without a copy if the buffer was allocated for them.
    pub fn keep(&self, bytes: &Bytes) -> Bytes {
        let own = self.state.dedicated && bytes.len() >= LARGE_BYTES;
        if own {
            bytes.clone()
        } else {
            Bytes::copy_from_slice(bytes)
        }
    }

    /// See [`Outbox::stop_daemon`].
    pub fn stop_daemon(&mut self, how: Stop) {
        self.out.stop_daemon(how);
    }

    /// Ends the connection after everything put out before has been sent, including the replies to commands. Nothing
    /// more is read.
    pub fn end(&mut self, reason: Reason) {
        self.state.over = true;
        self.out.hang_up(reason);
    }

    pub(crate) const fn must_wait(&self) -> bool {
        self.state.must_wait()
    }

    pub(crate) const fn must_pause(&self) -> bool {
        self.state.must_pause()
    }
}

impl<Q: Question> State<Q> {
    /// Whether reading must stop: until a reply has come, or for good.
    pub(crate) const fn must_wait(&self) -> bool {
        self.over || self.entering || self.pending.is_full()
    }

    /// Whether reading must stop at least until the driver has processed the output.
    pub(crate) const fn must_pause(&self) -> bool {
        self.must_wait() || self.recipients >= RECIPIENTS_MAX
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::Query;

    use super::*;
    use crate::Item;

    #[test]
    fn a_talk_has_the_outboxes_times_and_number() {
        let (mut out, mut state) = (Outbox::new(ClientId(3)), State::<usize>::default());
        out.set_skew_ms(7);
        let talk = Talk {
            now: Timestamp(5),
            out: &mut out,
            state: &mut state,
        };
        let times = (
            talk.wall(Timestamp(5)),
            talk.by_engine(Timestamp(12)),
            talk.skew_ms(),
        );
        assert_eq!(
            (talk.now(), talk.client(), times),
            (Timestamp(5), ClientId(3), (Timestamp(12), Timestamp(5), 7))
        );
    }

    #[test]
    fn commands_and_stops_reach_the_outbox() {
        let (mut out, mut state) = (Outbox::default(), State::<usize>::default());
        let mut talk = Talk {
            now: Timestamp(5),
            out: &mut out,
            state: &mut state,
        };
        talk.ask(1, Query::Stats);
        let withdrawn = [2, 1].map(|weight| talk.withdraw_last_if(|question| *question == weight));
        talk.send(Query::Stats);
        talk.stop_daemon(Stop::Gracefully);
        assert_eq!(
            (withdrawn, out.take_stop()),
            ([false, true], Some(Stop::Gracefully))
        );
        let items: Vec<_> = out.drain().collect();
        assert!(
            matches!(
                items.as_slice(),
                [Item::Command(Tag(1), _), Item::Command(Tag::NONE, _)]
            ),
            "{items:?}"
        );
    }

    #[test]
    fn only_large_bytes_in_their_own_buffer_are_kept_without_a_copy() {
        for (bytes, dedicated, own) in [
            (LARGE_BYTES, true, true),
            (LARGE_BYTES, false, false),
            (LARGE_BYTES - 1, true, false),
        ] {
            let (mut out, mut state) = (
                Outbox::default(),
                State::<usize> {
                    dedicated,
                    ..State::default()
                },
            );
            let talk = Talk {
                now: Timestamp(5),
                out: &mut out,
                state: &mut state,
            };
            let body = Bytes::from(vec![7; bytes]);
            assert_eq!(
                talk.keep(&body).as_ptr() == body.as_ptr(),
                own,
                "{bytes} bytes, dedicated: {dedicated}"
            );
        }
    }
}
