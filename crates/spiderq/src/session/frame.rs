//! A request's frame, whichever way it came, and what of it may be kept.
//!
//! A key is copied by the engine, and so is a small value: views of the read buffer will do for them. A larger value would
//! hold on to the whole buffer, so it is copied, unless the buffer was made for it.

use bytes::{Bytes, BytesMut};
use windlass_engine::Payload;
use windlass_zmtp::{Envelope, Message};

/// From here on a bare request gets memory of its own while it is read.
pub(super) const LARGE_BYTES: usize = 256 << 10;

/// Where a request's bytes are.
#[derive(Debug)]
pub(super) enum Frame {
    /// The last part of a message.
    Message(Message),
    /// All of these bytes; whether the buffer was made for them.
    Bare(Bytes, bool),
}

impl Frame {
    /// The request.
    pub(super) fn payload(&self) -> &[u8] {
        match self {
            Self::Message(message) => message.last(),
            Self::Bare(bytes, _) => bytes,
        }
    }

    /// What its answer repeats first.
    pub(super) fn envelope(&self) -> Envelope {
        match self {
            Self::Message(message) => message.envelope(),
            Self::Bare(..) => Envelope::default(),
        }
    }

    /// A piece of the payload, for a command that keeps none of it.
    pub(super) fn view(&self, piece: &[u8]) -> Bytes {
        match self {
            Self::Message(message) => message.view(piece),
            Self::Bare(bytes, _) => bytes.slice_ref(piece),
        }
    }

    /// A piece of the payload, for a command that keeps what is not small.
    pub(super) fn value(&self, piece: &[u8]) -> Bytes {
        match self {
            _ if piece.len() <= Payload::COPY_MAX => self.view(piece),
            Self::Message(message) => message.keep(piece),
            Self::Bare(bytes, true) if piece.len() >= LARGE_BYTES => bytes.slice_ref(piece),
            Self::Bare(..) => Bytes::copy_from_slice(piece),
        }
    }
}

/// Moves the beginning of a large bare request into a buffer of its own, where it grows as the rest comes.
pub(super) fn dedicate(input: &mut BytesMut) {
    *input = BytesMut::from(&**input);
}
