//! Messages to frames. Whole messages are appended to the caller's buffer, and nothing ever blocks.

use bytes::BytesMut;

use super::Peer;
use crate::message::{Envelope, write_parts};
use crate::wire::{Flags, Header};

/// Why a message was not appended. No part of it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unsent {
    /// The handshake is not done, or the connection is over.
    #[error("not connected")]
    NotReady,
    /// Too many bytes are waiting for the peer. A publisher drops the message; other callers should hang up.
    #[error("outbound_bytes_max")]
    Full,
}

impl Peer {
    /// Appends a message of these parts. Without parts it has one empty part.
    ///
    /// # Errors
    /// [`Unsent`]: there is no peer, or no room.
    pub fn send<'a, P>(&self, parts: P, out: &mut BytesMut) -> Result<(), Unsent>
    where
        P: IntoIterator<Item = &'a [u8]>,
        P::IntoIter: Clone,
    {
        let parts = parts.into_iter();
        self.admit(
            parts
                .clone()
                .map(|part| Header::frame_bytes(part.len()))
                .sum(),
            out,
        )?;
        write_parts(parts, out);
        Ok(())
    }

    /// Appends the answer to a message: its envelope, and a last part of `payload_bytes` that `write` appends.
    ///
    /// # Errors
    /// [`Unsent`]: there is no peer, or no room; `write` was not called.
    #[inline]
    pub fn reply(
        &self,
        envelope: &Envelope,
        payload_bytes: usize,
        out: &mut BytesMut,
        write: impl FnOnce(&mut BytesMut),
    ) -> Result<(), Unsent> {
        self.admit(
            envelope
                .frames()
                .len()
                .saturating_add(Header::frame_bytes(payload_bytes)),
            out,
        )?;
        out.extend_from_slice(envelope.frames());
        Header::encode(Flags::LAST, payload_bytes, out);
        let begin = out.len();
        write(out);
        debug_assert_eq!(
            out.len() - begin,
            payload_bytes,
            "the payload differs from its announced length"
        );
        Ok(())
    }

    fn admit(&self, bytes: usize, out: &BytesMut) -> Result<(), Unsent> {
        if !self.is_ready() {
            return Err(Unsent::NotReady);
        }
        let fits = out.len().saturating_add(bytes) <= self.settings.limits.outbound_bytes_max;
        if fits { Ok(()) } else { Err(Unsent::Full) }
    }
}
