//! The codec: requests and replies as bytes, in both dialects. Pure: no sockets, no clock.
//!
//! Reading order: [`Dialect`], [`Request`], [`Fault`] (an invalid request), [`Reply`]; `stream`, which splits bare
//! requests that stand back to back.
//!
//! Spec: `spiderq-protocol`. Numbers are big-endian. A key or a value is a length of four bytes followed by its bytes.

mod fault;
mod reader;
mod reply;
mod request;
mod stream;

pub use fault::{Fault, Flaw};
pub use reply::{Counts, Reply};
pub use request::{Dialect, Mode, Patience, Request, Status};
pub use stream::{Cut, Uncut, cut};

use reader::Reader;
