//! What carries requests and replies: ZMTP, or nothing at all. The first byte tells.

use windlass_session::{Outbox, Reason};
use windlass_zmtp::{Envelope, Peer, Unsent};

use crate::wire::Reply;

/// The first byte of every ZMTP greeting. No request begins so.
pub(super) const ZMTP_FIRST_BYTE: u8 = 0xFF;

/// How a peer talks.
#[derive(Debug)]
pub(super) enum Transport {
    /// It has said nothing.
    Unknown,
    /// Messages.
    Zmtp(Box<Peer>),
    /// Frames back to back.
    Bare {
        /// The buffer was made for the request that is being read.
        dedicated: bool,
        /// Bytes that are missing of it at least.
        wanted: usize,
    },
}

impl Transport {
    /// Puts a reply out.
    ///
    /// # Errors
    ///
    /// The peer does not take what it asked for.
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
