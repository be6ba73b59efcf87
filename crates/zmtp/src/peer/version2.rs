//! Peers that speak ZMTP 2.0: libzmq 3 and its contemporaries. After the signature each side sends its socket type and
//! its identity. Then come frames as in 3.x, but no commands, so there are no heartbeats and no password.
//!
//! Spec: RFC 15, "Framing" and "Version Negotiation".

use bytes::{Buf, BufMut, Bytes, BytesMut};
use windlass_engine::Timestamp;

use super::handshake::Ready;
use super::{Close, Mechanism, Peer, Stage};
use crate::wire::{Flags, Header, Metadata, SIGNATURE_BYTES, SocketType};

/// Bytes from the signature to the socket type.
const TYPE_BYTES: usize = SIGNATURE_BYTES + 1;

impl Peer {
    /// Sends the rest of a 2.0 greeting, to a peer whose signature shows 2.0.
    pub(super) fn greet_v2(&mut self, out: &mut BytesMut) -> Result<(), Close> {
        if *self.settings.mechanism() != Mechanism::Null {
            let ours = self.greeting().mechanism_text();
            return Err(Close::Mechanism {
                theirs: "none, as in ZMTP 2.0".to_owned(),
                ours,
            });
        }
        out.put_u8(self.settings.role.socket_type().number());
        // An empty identity.
        Header::encode(Flags::LAST, 0, out);
        self.stage = Stage::GreetingV2;
        Ok(())
    }

    /// The peer's socket type and identity, once they have come.
    pub(super) fn greeted_v2(
        &mut self,
        now: Timestamp,
        input: &mut BytesMut,
    ) -> Result<Option<Ready>, Close> {
        let Some((greeting, rest)) = input.split_at_checked(TYPE_BYTES) else {
            return Ok(None);
        };
        let socket_type = greeting.last().copied().and_then(SocketType::numbered);
        let Some(header) = Header::decode(rest)? else {
            return Ok(None);
        };
        if header.flags.is_command() || header.flags.is_more() {
            return Err(Close::Unexpected {
                found: "another frame".to_owned(),
                due: "an identity",
            });
        }
        let bytes = usize::try_from(header.body_bytes).unwrap_or(usize::MAX);
        // Checked before its bytes have come.
        let identity_bytes = Self::check_identity_bytes(bytes)?;
        let whole_bytes = TYPE_BYTES + header.header_bytes + identity_bytes;
        if input.len() < whole_bytes {
            return Ok(None);
        }
        let mut greeting = input.split_to(whole_bytes);
        greeting.advance(whole_bytes - identity_bytes);
        let identity = Bytes::copy_from_slice(&greeting);
        let ready = self.introduced(
            Metadata {
                socket_type,
                identity,
                ..Metadata::default()
            },
            None,
        )?;
        self.stage = Stage::Traffic;
        self.commands = false;
        self.heart.received(now);
        Ok(Some(ready))
    }
}
