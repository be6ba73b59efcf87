//! The codec: bytes to greetings, frames, commands and back. Pure and stateless. [`Peer`](crate::Peer) keeps the state
//! of a conversation.
//!
//! Spec: RFC 37, "Formal Grammar"; RFC 15 (ZMTP 2.0), which has the same frames and no commands.

mod command;
mod frame;
mod greeting;
mod metadata;

pub use command::{Command, PING_CONTEXT_BYTES_MAX};
pub use frame::{BadFlags, Flags, HEADER_BYTES_MAX, Header};
pub use greeting::{
    GREETING_BYTES, Greeting, GreetingError, MECHANISM_BYTES_MAX, Revision, SIGNATURE_BYTES,
};
pub use metadata::{Metadata, SocketType};

/// A command or its metadata does not match the grammar.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed {what}")]
pub struct Malformed {
    /// The malformed part.
    pub what: &'static str,
}
