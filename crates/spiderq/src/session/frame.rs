//! A request's frame, over ZMTP or bare, and which of its bytes may be kept.
//!
//! The engine copies keys and small values, so views of the read buffer are enough for them. A view of a larger value
//! would keep the whole buffer alive. It is copied, unless the buffer was allocated for this request.

use bytes::Bytes;
use windlass_engine::Payload;
use windlass_zmtp::{Envelope, Message};

use super::Talk;

/// A request's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Frame<'a> {
    /// The last part of a message.
    Message(&'a Message),
    /// All bytes of a bare request.
    Bare(&'a Bytes),
}

impl<'a> Frame<'a> {
    /// The request itself.
    pub(super) fn payload(self) -> &'a [u8] {
        match self {
            Self::Message(message) => message.last(),
            Self::Bare(bytes) => bytes,
        }
    }

    /// The parts that the reply must repeat first.
    pub(super) fn envelope(self) -> Envelope {
        match self {
            Self::Message(message) => message.envelope(),
            Self::Bare(..) => Envelope::default(),
        }
    }

    /// A view of a piece of the payload, for a command that does not keep it.
    pub(super) fn view(self, piece: &[u8]) -> Bytes {
        match self {
            Self::Message(message) => message.view(piece),
            Self::Bare(bytes) => bytes.slice_ref(piece),
        }
    }

    /// A piece of the payload, for a command that keeps it unless it is small.
    pub(super) fn value(self, piece: &[u8], talk: &Talk<'_>) -> Bytes {
        match self {
            _ if piece.len() <= Payload::COPY_MAX => self.view(piece),
            Self::Message(message) => message.keep(piece),
            Self::Bare(bytes) => talk.keep(&bytes.slice_ref(piece)),
        }
    }
}
