//! The text protocol on the same port: parses lines into commands and writes the lines of answers. The session supplies
//! the data of an answer.
//!
//! Spec: `PROTOCOL`, "Administrative Protocol"; commands and replies that it does not list are gearmand's, to the byte.

mod reply;
mod request;

pub use reply::{AdminReply, worker_row_begin, worker_row_end, worker_row_functions};
pub use request::{AdminError, AdminRequest, QueueLimits};
