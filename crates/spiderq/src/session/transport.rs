//! The transport of requests and replies: ZMTP or bare. The first byte shows which.

use windlass_session::{Outbox, Reason};
use windlass_zmtp::{Envelope, Peer, Unsent};

use crate::wire::Reply;

/// The first byte of every ZMTP greeting. No request begins with it.
pub(super) const ZMTP_FIRST_BYTE: u8 = 0xFF;

/// How a peer frames its requests.
#[derive(Debug)]
pub(super) enum Transport {
    /// No byte has come yet.
    Unknown,
    /// ZMTP messages.
    Zmtp(Box<Peer>),
    /// Bare frames, back to back.
    Bare {
        /// The buffer was allocated for the request that is being read.
        dedicated: bool,
        /// Minimum number of bytes missing from that request.
        wanted: usize,
    },
}

impl Transport {
    /// Appends a reply.
    ///
    /// # Errors
    ///
    /// The peer does not read its replies, and the output buffer is full.
    pub(super) fn say(&self, envelope: &Envelope, reply: &Reply<'_>, out: &mut Outbox) -> Result<(), Reason> {
        match self {
            Self::Unknown | Self::Bare { .. } => reply.encode(out.bytes()),
            Self::Zmtp(peer) => {
                let sent = peer.reply(envelope, reply.bytes(), out.bytes(), |out| reply.encode(out));
                if sent == Err(Unsent::Full) {
                    return Err(Reason::Limit("outbound_bytes_max"));
                }
            }
        }
        Ok(())
    }
}
