//! The transport of requests and replies: ZMTP or bare. The first byte shows which.

use windlass_session::Reason;
use windlass_zmtp::{Envelope, Link, Unsent};

use super::Talk;
use crate::wire::Reply;

/// The first byte of every ZMTP greeting. No request begins with it.
pub(super) const ZMTP_FIRST_BYTE: u8 = 0xFF;

/// How a peer frames its requests.
#[derive(Debug)]
pub(super) enum Transport {
    /// No byte has come yet.
    Unknown(Box<Link>),
    /// ZMTP messages.
    Zmtp(Box<Link>),
    /// Bare frames, back to back.
    Bare,
}

impl Transport {
    /// Appends a reply.
    ///
    /// # Errors
    ///
    /// The peer does not read its replies, and the output buffer is full.
    pub(super) fn write(
        &self,
        envelope: &Envelope,
        reply: &Reply<'_>,
        talk: &mut Talk<'_>,
    ) -> Result<(), Reason> {
        match self {
            Self::Unknown(_) | Self::Bare => reply.encode(talk.bytes()),
            Self::Zmtp(link) => {
                let sent = link
                    .peer()
                    .reply(envelope, reply.bytes(), talk.bytes(), |out| {
                        reply.encode(out)
                    });
                if sent == Err(Unsent::Full) {
                    return Err(Reason::Limit("outbound_bytes_max"));
                }
            }
        }
        Ok(())
    }
}
