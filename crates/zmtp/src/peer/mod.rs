//! One connection: greeting, handshake, then messages and commands as they come.
//!
//! Reading order: this file, the stages of a connection; `handshake`, one function for each mechanism; `traffic`,
//! frames to messages; `heartbeat`, PING and the time-outs; `send`, messages to frames; `version2`, the handshake of
//! ZMTP 2.0; `settings` and `close`; `curve`, for connections that are encrypted.
//!
//! Spec: RFC 37, "Overall Behavior".

mod close;
mod curve;
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
use curve::Curve;
use handshake::Step;
use heartbeat::Heart;
use traffic::Frames;

/// The other side of one connection.
///
/// Call [`Peer::open`] once. Call [`Peer::read`] when bytes have come, again and again until it returns `None` or an
/// error. Call [`Peer::tick`] when [`Peer::next_deadline`] has come. Each of them, and every function that sends, may
/// append output for the peer to `out`. After an error, send `out` and hang up.
///
/// ```
/// # use std::sync::Arc;
/// # use bytes::BytesMut;
/// # use windlass_engine::Timestamp;
/// use windlass_zmtp::{Close, Event, Peer, Role, Settings};
///
/// /// Answers every request with one byte, and repeats its envelope.
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
    /// Length of `input` after the last call of [`Peer::read`].
    left_bytes: usize,
    /// The peer understands PING: it speaks 3.1 or later.
    pings: bool,
    /// The peer may send commands between messages: it speaks 3.0 or later.
    commands: bool,
    /// Present with CURVE.
    curve: Option<Box<Curve>>,
}

/// The stages of a connection.
#[derive(Debug)]
enum Stage {
    /// The peer's version is not known yet.
    Signature,
    /// The peer speaks 3.0 or later, and its 64 bytes have not all come yet.
    Greeting,
    /// The peer speaks 2.0, and its socket type and identity have not come yet.
    GreetingV2,
    /// Commands of the mechanism.
    Handshake(Step),
    /// Messages.
    Traffic,
    /// The connection is over.
    Over(Close),
}

/// What a peer delivers to the user of the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The handshake is done. Comes once, before all other events.
    Ready(Box<Ready>),
    /// A message. A [`Role::Pub`] gets none.
    Message(Message),
    /// The peer subscribes to messages that begin with this. Only for a [`Role::Pub`].
    Subscribe(Bytes),
    /// The peer cancels one subscription.
    Cancel(Bytes),
}

impl Peer {
    /// A connection that has just been accepted.
    pub fn new(settings: Arc<Settings>) -> Self {
        let curve = match settings.mechanism() {
            Mechanism::Curve(server) => Some(Box::new(Curve::new(Arc::clone(server)))),
            Mechanism::Null | Mechanism::Plain(_) => None,
        };
        Self {
            settings,
            curve,
            stage: Stage::Signature,
            frames: Frames::default(),
            heart: Heart::default(),
            left_bytes: 0,
            pings: false,
            commands: true,
        }
    }

    /// Sends the beginning of a greeting that all versions share: a peer may send ten bytes and wait for ours.
    pub fn open(&mut self, now: Timestamp, out: &mut BytesMut) {
        self.open_as(Bytes::new(), now, out);
    }

    /// Sends a greeting with an identity: a [`Role::Dealer`] sends this one, if it is not empty. At most 255 bytes. The
    /// other roles have none.
    pub fn open_as(&mut self, identity: Bytes, now: Timestamp, out: &mut BytesMut) {
        self.heart.begin(now);
        let before = out.len();
        Greeting::encode_signature(out);
        self.put_out(out.len() - before);
        if self.settings.role.is_client() {
            // Our client speaks 3.1, whatever the other side speaks.
            self.greeting().encode_rest(out);
            // "The client SHALL send a READY command and then wait for a READY command in reply."
            Command::Ready(Metadata {
                identity,
                ..self.settings.metadata()
            })
            .encode(out);
        }
    }

    /// Takes the next event out of `input`. It must always be the same buffer, with bytes added at its end and none
    /// taken away. `None` if there is no event yet.
    ///
    /// # Errors
    /// The connection is over. Further calls return the same error.
    pub fn read(
        &mut self,
        now: Timestamp,
        input: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<Option<Event>, Close> {
        if input.len() > self.left_bytes {
            self.heart.received(now);
        }
        let (is_ready, before) = (self.is_ready(), out.len());
        let found = if is_ready {
            self.traffic(input, out)
        } else {
            self.next(now, input, out)
        };
        if let Err(close) = &found {
            self.end(close, out);
            input.clear();
        }
        if !is_ready {
            self.put_out(out.len() - before);
        }
        self.left_bytes = input.len();
        found
    }

    /// Minimum number of further bytes before [`Peer::read`] can return the next event; 0 between messages. Never more
    /// than a frame may have. For a reader that reserves memory, or has stopped reading.
    pub fn bytes_wanted(&self) -> usize {
        match self.stage {
            Stage::Signature => SIGNATURE_BYTES.saturating_sub(self.left_bytes),
            Stage::Greeting => GREETING_BYTES.saturating_sub(self.left_bytes),
            // Its length is only known from its last header. It is short.
            Stage::GreetingV2 => 0,
            Stage::Handshake(_) | Stage::Traffic => self
                .frames
                .bytes_wanted()
                .max(self.curve.as_ref().map_or(0, |curve| curve.bytes_wanted())),
            Stage::Over(_) => 0,
        }
    }

    /// Number of whole messages received. Commands between the parts of a message do not count: they do not complete
    /// it.
    pub const fn messages(&self) -> u64 {
        self.frames.messages()
    }

    /// Bytes of an incomplete message that were moved out of the read buffer.
    pub fn held_bytes(&self) -> usize {
        self.frames.held_bytes() + self.curve.as_ref().map_or(0, |curve| curve.held_bytes())
    }

    /// The settings of its listener.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether the handshake is done and the connection is not over.
    pub const fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Traffic)
    }

    /// Bytes of the handshake, or before it.
    fn put_out(&mut self, bytes: usize) {
        if let Some(curve) = &mut self.curve {
            curve.put_out(bytes);
        }
    }

    fn next(
        &mut self,
        now: Timestamp,
        input: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<Option<Event>, Close> {
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
                    let Some(body) = self.frames.next_command(input)? else {
                        return Ok(None);
                    };
                    if let Some(ready) = self.shake(&body, now, out)? {
                        return Ok(Some(Event::Ready(Box::new(ready))));
                    }
                }
                Stage::Traffic => return self.traffic(input, out),
                Stage::Over(close) => return Err(close.clone()),
            }
        }
    }

    /// Our greeting, as 3.1 defines it.
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
            return Err(Close::Mechanism {
                theirs: greeting.mechanism_text(),
                ours,
            });
        }
        self.pings = greeting.version >= [3, 1];
        self.stage = Stage::Handshake(self.first_step());
        Ok(())
    }

    /// Ends the connection. A peer in the handshake receives an ERROR, if the protocol has one for the reason.
    fn end(&mut self, close: &Close, out: &mut BytesMut) {
        if let (Stage::Handshake(_), Some(reason)) = (&self.stage, close.error_reason()) {
            Command::Error(reason).encode(out);
        }
        self.stage = Stage::Over(close.clone());
    }
}
