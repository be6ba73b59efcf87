//! One connection: greeting, handshake, then messages and commands as they come.
//!
//! Reading order: this file, what a connection goes through; `handshake`, one function for each mechanism; `traffic`, frames to
//! messages; `heartbeat`, who has to say something when; `send`, messages to frames; `version2`, how peers of ZMTP 2.0 begin;
//! `settings` and `close`.
//!
//! Spec: RFC 37, "Overall Behavior".

mod close;
mod handshake;
mod heartbeat;
mod send;
mod settings;
mod traffic;
mod version2;

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use windlass_engine::Timestamp;

pub use close::Close;
pub use handshake::Ready;
pub use send::Unsent;
pub use settings::{Limits, Login, Mechanism, Role, Settings};

use crate::message::Message;
use crate::wire::{Command, GREETING_BYTES, Greeting, Metadata, Revision, SIGNATURE_BYTES};
use handshake::Step;
use heartbeat::Heart;
use traffic::Frames;

/// The other side of one connection.
///
/// [`Peer::open`] once; [`Peer::read`] again and again when bytes have come, until there is nothing more to be had or it
/// is over; [`Peer::tick`] when [`Peer::next_deadline`] has come. Each of them may append to `out` what the peer
/// is to be told, and so does everything that sends. After an error all that is left to do is to send `out` and hang up.
///
/// ```
/// # use std::sync::Arc;
/// # use bytes::BytesMut;
/// # use windlass_engine::Timestamp;
/// use windlass_zmtp::{Close, Event, Peer, Role, Settings};
///
/// /// Answers every request with one byte, whatever envelope it came in.
/// fn on_bytes(peer: &mut Peer, now: Timestamp, input: &mut BytesMut, out: &mut BytesMut) -> Result<(), Close> {
///     while let Some(event) = peer.read(now, input, out)? {
///         if let Event::Message(message) = event {
///             let _ = peer.reply(&message.envelope(), 1, out, |out| out.extend_from_slice(b"!"));
///         }
///     }
///     Ok(())
/// }
///
/// # let now = Timestamp(0);
/// let mut server = Peer::new(Arc::new(Settings::new(Role::Router)));
/// let mut client = Peer::new(Arc::new(Settings::new(Role::Dealer)));
/// let (mut to_server, mut to_client) = (BytesMut::new(), BytesMut::new());
/// server.open(now, &mut to_client);
/// client.open(now, &mut to_server);
/// on_bytes(&mut server, now, &mut to_server, &mut to_client)?;
/// assert!(matches!(client.read(now, &mut to_client, &mut to_server), Ok(Some(Event::Ready(_)))));
///
/// client.send([&b"cookie"[..], b"?"], &mut to_server).unwrap();
/// on_bytes(&mut server, now, &mut to_server, &mut to_client)?;
/// assert_eq!(&to_client[..], b"\x01\x06cookie\x00\x01!");
/// # Ok::<(), Close>(())
/// ```
#[derive(Debug)]
pub struct Peer {
    settings: Arc<Settings>,
    stage: Stage,
    frames: Frames,
    heart: Heart,
    /// Bytes of input that were there, and stayed, the last time.
    left_bytes: usize,
    /// The peer understands PING: it speaks 3.1 at least.
    pings: bool,
    /// The peer may send commands between messages: it speaks 3.0 at least.
    commands: bool,
}

/// How far a connection has come.
#[derive(Debug)]
enum Stage {
    /// The peer's version is not known yet.
    Signature,
    /// It is 3.0 or later, and the 64 bytes are not there yet.
    Greeting,
    /// It is 2.0: socket type and identity are not there yet.
    GreetingV2,
    /// Commands of the mechanism.
    Handshake(Step),
    /// Messages.
    Traffic,
    /// Nothing more.
    Over(Close),
}

/// What a peer has to say to whoever uses the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The handshake is done: once, and before everything else.
    Ready(Box<Ready>),
    /// A message. A [`Role::Pub`] gets none.
    Message(Message),
    /// The peer wants messages that begin with this. Only a [`Role::Pub`] hears of it.
    Subscribe(Bytes),
    /// It does not want them any more.
    Cancel(Bytes),
}

impl Peer {
    /// A connection that has just been accepted.
    #[must_use]
    pub fn new(settings: Arc<Settings>) -> Self {
        Self {
            settings,
            stage: Stage::Signature,
            frames: Frames::default(),
            heart: Heart::default(),
            left_bytes: 0,
            pings: false,
            commands: true,
        }
    }

    /// Greets, as far as all versions agree: a peer that says the first ten bytes and waits must hear something.
    pub fn open(&mut self, now: Timestamp, out: &mut BytesMut) {
        self.open_as(Bytes::new(), now, out);
    }

    /// Greets as somebody: a [`Role::Dealer`] says this identity, if it is not empty. At most 255 bytes; the other roles have none.
    pub fn open_as(&mut self, identity: Bytes, now: Timestamp, out: &mut BytesMut) {
        self.heart.begin(now);
        Greeting::encode_signature(out);
        if self.settings.role.is_client() {
            // A client of ours speaks 3.1 whatever the other side speaks.
            self.greeting().encode_rest(out);
            // "The client SHALL send a READY command and then wait for a READY command in reply."
            Command::Ready(Metadata { identity, ..self.settings.metadata() }).encode(out);
        }
    }

    /// Takes the next thing out of `input`: always the same buffer, with bytes added at its end and none taken away. `None` when
    /// there is none yet.
    ///
    /// # Errors
    /// It is over. Asking again gives the same again.
    pub fn read(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut BytesMut) -> Result<Option<Event>, Close> {
        if input.len() > self.left_bytes {
            self.heart.heard(now);
        }
        let found = self.next(now, input, out);
        if let Err(close) = &found {
            self.end(close, out);
            input.clear();
        }
        self.left_bytes = input.len();
        found
    }

    /// How many more bytes are needed at least before [`Peer::read`] can take the next thing; 0 between messages. Never more
    /// than a frame may have. For a reader that would reserve them, or has stopped reading.
    #[must_use]
    pub fn bytes_wanted(&self) -> usize {
        match self.stage {
            Stage::Signature => SIGNATURE_BYTES.saturating_sub(self.left_bytes),
            Stage::Greeting => GREETING_BYTES.saturating_sub(self.left_bytes),
            // Its length is known only with its last frame's header; it is short.
            Stage::GreetingV2 => 0,
            Stage::Handshake(_) | Stage::Traffic => self.frames.bytes_wanted(),
            Stage::Over(_) => 0,
        }
    }

    /// How many whole messages have come. Commands between the parts of one are none: they do not bring it to its end.
    #[must_use]
    pub const fn messages(&self) -> u64 {
        self.frames.messages()
    }

    /// Bytes of a message that is not whole and stand no longer in the buffer it is read into.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.frames.held_bytes()
    }

    /// Whether the handshake is done, and it is not over.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Traffic)
    }

    fn next(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut BytesMut) -> Result<Option<Event>, Close> {
        loop {
            match &self.stage {
                Stage::Signature => match Greeting::revision(input)? {
                    Some(Revision::V3) => self.greet_v3(out),
                    Some(Revision::V2) => self.greet_v2(out)?,
                    None => return Ok(None),
                },
                Stage::Greeting => match Greeting::decode(input) {
                    Some(greeting) => {
                        input.advance(GREETING_BYTES);
                        self.greeted(&greeting)?;
                    }
                    None => return Ok(None),
                },
                Stage::GreetingV2 => {
                    let ready = self.greeted_v2(now, input)?;
                    return Ok(ready.map(|ready| Event::Ready(Box::new(ready))));
                }
                Stage::Handshake(_) => {
                    let Some(body) = self.frames.next_command(input)? else { return Ok(None) };
                    if let Some(ready) = self.shake(&body, now, out)? {
                        return Ok(Some(Event::Ready(Box::new(ready))));
                    }
                }
                Stage::Traffic => return self.traffic(input, out),
                Stage::Over(close) => return Err(close.clone()),
            }
        }
    }

    /// Ours, as 3.1 has it.
    fn greeting(&self) -> Greeting {
        let mechanism = self.settings.mechanism();
        Greeting::new(mechanism.name(), mechanism.is_server())
    }

    fn greet_v3(&mut self, out: &mut BytesMut) {
        if !self.settings.role.is_client() {
            self.greeting().encode_rest(out);
        }
        self.stage = Stage::Greeting;
    }

    fn greeted(&mut self, greeting: &Greeting) -> Result<(), Close> {
        // "If the mechanism that the peer received does not exactly match the mechanism it sent, it MUST close."
        if greeting.mechanism != self.greeting().mechanism {
            let ours = self.greeting().mechanism_text();
            return Err(Close::Mechanism { theirs: greeting.mechanism_text(), ours });
        }
        self.pings = greeting.version >= [3, 1];
        self.stage = Stage::Handshake(self.first_step());
        Ok(())
    }

    /// Nothing counts from here on. A peer amid a handshake is told why, if the protocol has a word for it.
    fn end(&mut self, close: &Close, out: &mut BytesMut) {
        if let (Stage::Handshake(_), Some(reason)) = (&self.stage, close.told()) {
            Command::Error(reason).encode(out);
        }
        self.stage = Stage::Over(close.clone());
    }
}
