//! The text protocol on the same port: parses lines into commands and writes the lines of answers. The session supplies
//! the data of an answer.
//!
//! Spec: `PROTOCOL`, "Administrative Protocol"; commands and replies that it does not list are gearmand's, to the byte.

pub mod reply;
mod request;
#[cfg(any(test, feature = "testing"))]
mod testing;

pub use request::{AdminError, AdminRequest, QueueLimits};
