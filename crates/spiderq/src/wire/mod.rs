//! The codec: requests and replies as bytes, in both dialects. Pure: no sockets, no clock, no engine.
//!
//! Reading order: [`Dialect`], [`Request`], [`Fault`] (what is wrong with one), [`Reply`]; `stream`, which cuts bare requests
//! that stand back to back.
//!
//! Spec: `spiderq-protocol`. Numbers are big-endian; a key or a value is its length in four bytes and itself.

mod fault;
mod reader;
mod reply;
mod request;
mod stream;
#[cfg(test)]
mod tests;

pub use fault::{Fault, Flaw};
pub use reply::{BadReply, Counts, Reply};
pub use request::{Dialect, Mode, Patience, Request, Status};
pub use stream::{Cut, Uncut, cut};

use reader::Reader;
