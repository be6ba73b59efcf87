//! The text protocol on the same port: what a line asks for and every line of an answer. The state that
//! answers report is the session's to gather.
//!
//! Spec: `PROTOCOL`, "Administrative Protocol"; commands and replies that it does not list are
//! gearmand's, to the byte.

mod reply;
mod request;

pub use reply::{AdminReply, worker_row_begin, worker_row_end, worker_row_functions};
pub use request::{AdminError, AdminRequest, QueueLimits};
