//! A connection with CURVE: its handshake, and its frames, which come and go in boxes.
//!
//! Frames that come are decrypted in their own memory and then read like any others. Frames that leave are encrypted
//! last, in the order in which they leave ([`Peer::seal`]): each box has a number, and an answer that waited for the
//! disk may leave before bytes that were put out earlier.
//!
//! Spec: RFC 26; `crate::curve` has the commands.

use std::sync::Arc;

use bytes::BytesMut;
use windlass_engine::Timestamp;

use super::handshake::{Ready, Step};
use super::traffic::{Found, Frames};
use super::{Close, Limits, Peer, Stage};
use crate::curve::{self, CurveServer, Secured};
use crate::wire::Command;

/// What a connection with CURVE has besides others.
#[derive(Debug)]
pub(super) struct Curve {
    server: Arc<CurveServer>,
    /// Present after the handshake.
    secured: Option<Secured>,
    /// Frames in boxes.
    boxed: Frames,
    /// Frames out of their boxes, of a message that is not whole.
    plain: BytesMut,
    /// Bytes of the handshake that have not left: they are not encrypted.
    unsealed_bytes: usize,
}

impl Curve {
    pub(super) fn new(server: Arc<CurveServer>) -> Self {
        Self {
            server,
            secured: None,
            boxed: Frames::default(),
            plain: BytesMut::new(),
            unsealed_bytes: 0,
        }
    }

    pub(super) const fn put_out(&mut self, bytes: usize) {
        self.unsealed_bytes += bytes;
    }

    pub(super) const fn bytes_wanted(&self) -> usize {
        self.boxed.bytes_wanted()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.plain.capacity()
    }

    /// The next command or message. `frames` reads the frames that are out of their boxes.
    pub(super) fn next(
        &mut self,
        frames: &mut Frames,
        input: &mut BytesMut,
        limits: &Limits,
    ) -> Result<Option<Found>, Close> {
        let frame_bytes_max = limits.frame_bytes_max.max(limits.command_bytes_max);
        loop {
            if let Some(found) = frames.next(&mut self.plain, limits)? {
                return Ok(Some(found));
            }
            let Some(secured) = &mut self.secured else {
                return Ok(None);
            };
            let most = frame_bytes_max.saturating_add(Secured::OVERHEAD_BYTES);
            let Some((sealed, is_dedicated)) = self.boxed.next_frame(input, most)? else {
                return Ok(None);
            };
            let frame = secured.open(sealed)?;
            if self.plain.is_empty() {
                frames.begin(is_dedicated);
                self.plain = frame;
            } else {
                self.plain.extend_from_slice(&frame);
            }
        }
    }
}

impl Peer {
    /// Encrypts bytes that this peer has put out, if its mechanism does. `None`: they leave as they are. Call it with
    /// all bytes, in the order in which they leave, and with whole messages.
    pub fn seal(&mut self, bytes: &[u8]) -> Option<BytesMut> {
        let curve = self.curve.as_deref_mut()?;
        let (handshake, frames) = bytes
            .split_at_checked(curve.unsealed_bytes)
            .unwrap_or((bytes, b""));
        curve.unsealed_bytes -= handshake.len();
        let mut out = BytesMut::with_capacity(bytes.len() + Secured::OVERHEAD_BYTES);
        out.extend_from_slice(handshake);
        if let Some(secured) = &mut curve.secured {
            secured.seal(frames, &mut out);
        }
        Some(out)
    }

    /// Handles one command of the handshake. Returns the result after its last command.
    pub(super) fn shake_curve(
        &mut self,
        body: &[u8],
        now: Timestamp,
        out: &mut BytesMut,
    ) -> Result<Option<Ready>, Close> {
        let (Stage::Handshake(step), Some(curve)) = (&self.stage, self.curve.as_deref_mut()) else {
            return Ok(None);
        };
        let mut copy = body.to_vec();
        match step {
            Step::CurveHello => {
                let data = curve::hello(&mut copy).ok_or_else(|| unexpected(body, "HELLO"))?;
                let awaited = curve.server.hello(data, out)?;
                self.stage = Stage::Handshake(Step::CurveInitiate(Box::new(awaited)));
                Ok(None)
            }
            Step::CurveInitiate(awaited) => {
                let data =
                    curve::initiate(&mut copy).ok_or_else(|| unexpected(body, "INITIATE"))?;
                let (client, metadata, secured) = curve.server.initiate(awaited, data)?;
                let ready = self.introduced(metadata, Some(client.to_string().into()))?;
                let ours = self.settings.metadata();
                if let Some(curve) = self.curve.as_deref_mut() {
                    curve.secured.insert(secured).ready(&ours, out);
                }
                self.stage = Stage::Traffic;
                self.heart.received(now);
                Ok(Some(ready))
            }
            Step::NullReady | Step::PlainHello | Step::PlainInitiate { .. } => Ok(None),
        }
    }
}

/// The error for another command than was due.
fn unexpected(body: &[u8], due: &'static str) -> Close {
    match Command::parse(body) {
        Ok(Command::Error(reason)) => Close::PeerError(reason.escape_ascii().to_string()),
        Ok(command) => Close::Unexpected {
            found: super::handshake::name(&command),
            due,
        },
        Err(malformed) => malformed.into(),
    }
}
