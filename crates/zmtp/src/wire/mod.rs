//! The codec: bytes to greetings, frames, commands and back. Pure, and without memory from one call to the next; what belongs together in
//! a conversation is [`Peer`](crate::Peer)'s business.
//!
//! Spec: RFC 37, "Formal Grammar"; RFC 15 (ZMTP 2.0), which has the same frames and no commands.

mod command;
mod frame;
mod greeting;
mod metadata;

pub use command::{Command, PING_CONTEXT_BYTES_MAX};
pub use frame::{BadFlags, Flags, HEADER_BYTES_MAX, Header};
pub use greeting::{GREETING_BYTES, Greeting, GreetingError, MECHANISM_BYTES_MAX, Revision, SIGNATURE_BYTES};
pub use metadata::{Metadata, SocketType};

/// A command or its metadata is not what the grammar says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed {what}")]
pub struct Malformed {
    /// What it was meant to be.
    pub what: &'static str,
}
