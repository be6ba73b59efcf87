//! Frames to messages, and the commands between them.
//!
//! A message stays in its read buffer until its last frame has come. Then it is one view of that buffer. Arriving bytes
//! cause no frame's header to be read again, except that of the incomplete frame.
//!
//! Commands may stand between the frames of a message: libzmq sends its heartbeats there if they fall due in the
//! middle. They are answered, and the message is assembled around them.
//!
//! Spec: RFC 37, "Framing", "The Publish-Subscribe Pattern", and RFC 23 for subscriptions that are messages.

use bytes::{Buf, Bytes, BytesMut};

use super::{Close, Event, Limits, Peer, Role};
use crate::message::{LARGE_BYTES, Message};
use crate::wire::{Command, HEADER_BYTES_MAX, Header};

/// The largest command in a handshake. A peer may send that much metadata before its own limits apply.
const HANDSHAKE_COMMAND_BYTES_MAX: usize = 8 << 10;

/// Splits the stream into frames. Holds the state of the message at the front of the buffer.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// Frames of the message that were moved out of the buffer because a command followed them.
    moved: BytesMut,
    /// Bytes of the message at the front of the buffer that were read already: whole frames.
    seen_bytes: usize,
    parts: usize,
    body_bytes: usize,
    bytes_wanted: usize,
    /// The buffer was allocated for this message.
    dedicated: bool,
    /// Number of whole messages so far.
    messages: u64,
}

/// What was found in the buffer.
pub(super) enum Found {
    Command(Bytes),
    Message(Message),
}

impl Frames {
    pub(super) const fn bytes_wanted(&self) -> usize {
        self.bytes_wanted
    }

    pub(super) const fn messages(&self) -> u64 {
        self.messages
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.moved.capacity()
    }

    /// The body of the next frame, whatever its kind, and whether its buffer was allocated for it. Used for frames in
    /// boxes.
    pub(super) fn next_frame(
        &mut self,
        input: &mut BytesMut,
        most: usize,
    ) -> Result<Option<(BytesMut, bool)>, Close> {
        let Some(header) = self.header(input)? else {
            return Ok(None);
        };
        let body_bytes = within("frame_bytes_max", header.body_bytes, most)?;
        let frame_bytes = header.header_bytes + body_bytes;
        if !self.is_there(input, frame_bytes) {
            return Ok(None);
        }
        let mut frame = input.split_to(frame_bytes);
        frame.advance(header.header_bytes);
        Ok(Some((frame, std::mem::take(&mut self.dedicated))))
    }

    /// A message begins, in a buffer that was allocated for it or not.
    pub(super) const fn begin(&mut self, is_dedicated: bool) {
        self.dedicated = is_dedicated;
    }

    /// The body of the next command. Used where only commands are allowed.
    pub(super) fn next_command(&mut self, input: &mut BytesMut) -> Result<Option<Bytes>, Close> {
        let Some(header) = self.header(input)? else {
            return Ok(None);
        };
        if !header.flags.is_command() {
            return Err(Close::Unexpected {
                found: "a message".to_owned(),
                due: "a command",
            });
        }
        let body_bytes = within(
            "command_bytes_max",
            header.body_bytes,
            HANDSHAKE_COMMAND_BYTES_MAX,
        )?;
        Ok(self.command(input, header, body_bytes))
    }

    /// The next command or message. Always a part of its callers: a message would be moved for each of them.
    #[inline(always)]
    pub(super) fn next(
        &mut self,
        input: &mut BytesMut,
        limits: &Limits,
    ) -> Result<Option<Found>, Close> {
        loop {
            let Some(header) = self.header(input)? else {
                return Ok(None);
            };
            if header.flags.is_command() {
                let body_bytes = within(
                    "command_bytes_max",
                    header.body_bytes,
                    limits.command_bytes_max,
                )?;
                return Ok(self.command(input, header, body_bytes).map(Found::Command));
            }
            let body_bytes = within("frame_bytes_max", header.body_bytes, limits.frame_bytes_max)?;
            let message_bytes = self.body_bytes.saturating_add(body_bytes);
            within(
                "message_bytes_max",
                message_bytes as u64,
                limits.message_bytes_max,
            )?;
            within("parts_max", self.parts as u64 + 1, limits.parts_max)?;
            let frame_bytes = header.header_bytes + body_bytes;
            if !self.is_there(input, frame_bytes) {
                return Ok(None);
            }
            let at = self.seen_bytes;
            self.seen_bytes += frame_bytes;
            self.parts += 1;
            self.body_bytes = message_bytes;
            if !header.flags.is_more() {
                return Ok(Some(Found::Message(self.message(input, at))));
            }
        }
    }

    /// The header of the next unread frame.
    #[inline]
    fn header(&mut self, input: &BytesMut) -> Result<Option<Header>, Close> {
        let rest = input.get(self.seen_bytes..).unwrap_or_default();
        let header = Header::decode(rest)?;
        if header.is_none() {
            let amid = self.parts > 0 || !rest.is_empty();
            self.bytes_wanted = if amid { Header::bytes_missing(rest) } else { 0 };
        }
        Ok(header)
    }

    /// Whether the next unread frame is whole. If it is incomplete and large, the message moves into a buffer of its
    /// own, which grows as the rest arrives.
    fn is_there(&mut self, input: &mut BytesMut, frame_bytes: usize) -> bool {
        self.bytes_wanted = (self.seen_bytes + frame_bytes).saturating_sub(input.len());
        if self.bytes_wanted >= LARGE_BYTES && !self.dedicated {
            *input = BytesMut::from(&**input);
            self.dedicated = true;
        }
        self.bytes_wanted == 0
    }

    /// Takes a command out once it is whole. It may stand between the frames of a message.
    fn command(
        &mut self,
        input: &mut BytesMut,
        header: Header,
        body_bytes: usize,
    ) -> Option<Bytes> {
        let frame_bytes = header.header_bytes + body_bytes;
        if !self.is_there(input, frame_bytes) {
            return None;
        }
        if self.seen_bytes > 0 {
            self.moved
                .extend_from_slice(&input.split_to(self.seen_bytes));
            self.seen_bytes = 0;
        }
        Some(
            input
                .split_to(frame_bytes)
                .freeze()
                .slice(header.header_bytes..),
        )
    }

    /// Takes out the message. `last_at` is the offset of its last frame in the buffer.
    #[inline(always)]
    fn message(&mut self, input: &mut BytesMut, last_at: usize) -> Message {
        let frames = input.split_to(std::mem::take(&mut self.seen_bytes));
        let (parts, dedicated) = (
            std::mem::take(&mut self.parts),
            std::mem::take(&mut self.dedicated),
        );
        self.body_bytes = 0;
        self.messages += 1;
        if self.moved.is_empty() {
            return Message::of_frames(frames.freeze(), last_at, parts, dedicated);
        }
        let mut moved = std::mem::take(&mut self.moved);
        let last_at = moved.len() + last_at;
        moved.extend_from_slice(&frames);
        Message::of_frames(moved.freeze(), last_at, parts, true)
    }
}

/// Converts `given` to a size, or fails if it exceeds `allowed`.
#[inline]
fn within(what: &'static str, given: u64, allowed: usize) -> Result<usize, Close> {
    match usize::try_from(given) {
        // Leaves room for a header, so that sums cannot overflow.
        Ok(size) if size <= allowed && size <= usize::MAX - HEADER_BYTES_MAX => Ok(size),
        _ => Err(Close::Limit {
            what,
            given,
            allowed,
        }),
    }
}

impl Peer {
    /// Takes messages and answers commands, until there is an event for the caller.
    #[inline(always)]
    pub(super) fn traffic(
        &mut self,
        input: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<Option<Event>, Close> {
        loop {
            let settings = &self.settings;
            let topics;
            let limits = if settings.role == Role::Pub {
                topics = settings.limits.for_topics();
                &topics
            } else {
                &settings.limits
            };
            let found = match &mut self.curve {
                None => self.frames.next(input, limits)?,
                Some(curve) => curve.next(&mut self.frames, input, limits)?,
            };
            let Some(found) = found else { return Ok(None) };
            let event = match found {
                Found::Message(message) => self.message(message),
                Found::Command(_) if !self.commands => {
                    return Err(Close::Unexpected {
                        found: "a command".to_owned(),
                        due: "a message of ZMTP 2.0",
                    });
                }
                Found::Command(body) => self.command(&body, out)?,
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    #[inline(always)]
    fn message(&self, message: Message) -> Option<Event> {
        if self.settings.role == Role::Pub {
            Self::subscription(&message)
        } else {
            Some(Event::Message(message))
        }
    }

    fn subscription(message: &Message) -> Option<Event> {
        // ZMTP 3.0: "a message consisting of a single frame that begins with 1 or 0". A publisher discards all other
        // messages.
        let mut parts = message.parts();
        let event = match (parts.len(), parts.next()?.split_first()?) {
            (1, (1, topic)) => Event::Subscribe(Bytes::copy_from_slice(topic)),
            (1, (0, topic)) => Event::Cancel(Bytes::copy_from_slice(topic)),
            _ => return None,
        };
        Some(event)
    }

    fn command(&mut self, body: &Bytes, out: &mut BytesMut) -> Result<Option<Event>, Close> {
        let publisher = self.settings.role == Role::Pub;
        match Command::parse(body)? {
            Command::Ping { ttl_ds, context } => {
                self.heart.was_pinged(ttl_ds);
                Command::Pong(context).encode(out);
                // Bounds the answers to a flood of PINGs.
                within(
                    "outbound_bytes_max",
                    out.len() as u64,
                    self.settings.limits.outbound_bytes_max,
                )?;
            }
            Command::Subscribe(topic) if publisher => {
                return Ok(Some(Event::Subscribe(Bytes::copy_from_slice(topic))));
            }
            Command::Cancel(topic) if publisher => {
                return Ok(Some(Event::Cancel(Bytes::copy_from_slice(topic))));
            }
            Command::Error(reason) => {
                return Err(Close::PeerError(reason.escape_ascii().to_string()));
            }
            // Reading a PONG has already reset the heartbeat. The other commands mean nothing after the handshake.
            Command::Pong(_)
            | Command::Subscribe(_)
            | Command::Cancel(_)
            | Command::Ready(_)
            | Command::Hello { .. }
            | Command::Welcome
            | Command::Initiate(_)
            | Command::Unknown { .. } => {}
        }
        Ok(None)
    }
}

impl Limits {
    /// A publisher receives only topics, which are no longer than a command.
    fn for_topics(self) -> Self {
        let topic_frame_bytes_max = self.command_bytes_max.saturating_add(1);
        Self {
            frame_bytes_max: self.frame_bytes_max.min(topic_frame_bytes_max),
            ..self
        }
    }
}
