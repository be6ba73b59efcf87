//! The codec: bytes to messages and back. Pure: no sockets, no clock, no engine.
//!
//! In reading order: [`packet`] is the header and the numbers of the packet types, [`frames`] cuts a stream into
//! packets and text lines, [`request`], [`response`] and [`report`] are the contents of packets, [`refusal`] is every constant
//! ERROR packet, [`handle`] is the job handle, [`admin`] the text protocol.
//!
//! Invariants: a body is never copied while it is read. No byte of a stream is read again because later bytes came in
//! small pieces. An announced length alone allocates nothing.
//!
//! Spec: gearmand's `PROTOCOL`, all of it. Limits below that it does not name are gearmand's own. If such a limit is a
//! defect in gearmand (a unique of 64 bytes loses its last one), it works here.

pub mod admin;
pub mod frames;
pub mod handle;
mod number;
pub mod packet;
pub mod refusal;
pub mod report;
pub mod request;
pub mod response;
#[cfg(test)]
mod tests;

pub use admin::{AdminError, AdminRequest, QueueLimits, reply};
pub use frames::{DecodeError, Frames, Limits, Message};
pub use handle::{Handle, HandlePrefix, HandlePrefixError};
pub use number::status_number;
pub use packet::{HEADER_BYTES, Kind, Magic, Packet};
pub use refusal::ErrorReply;
pub use report::Report;
pub use request::{AssignForm, Priority, Request, Schedule, Submission, is_exceptions};
pub use response::{Response, ResponseError, Status};

/// Longest job handle without its terminator. Spec: "Binary Packet" (64 bytes with the NUL).
pub const HANDLE_BYTES_MAX: usize = 63;
/// Longest handle prefix: with `:` and the 20 digits of the largest number it fills a handle.
pub const HANDLE_PREFIX_BYTES_MAX: usize = HANDLE_BYTES_MAX - 1 - 20;
/// Longest unique id; a longer one is refused.
pub const UNIQUE_BYTES_MAX: usize = 64;
/// Longest reducer name; gearmand applies the limit for uniques.
pub const REDUCER_BYTES_MAX: usize = 64;
/// Longest function name that fits into gearmand's receive buffer.
pub const FUNCTION_BYTES_MAX: usize = 8192;
/// Longest option name; a longer one cannot be the name of any option.
pub const OPTION_BYTES_MAX: usize = 63;
/// Longest client id. The rest is cut off, not refused.
pub const CLIENT_ID_BYTES_MAX: usize = 127;
/// Default for the longest text line without its ending: gearmand's receive buffer.
pub const LINE_BYTES_MAX_DEFAULT: usize = 8192;
/// Most words on a text line. One more closes the connection.
pub const ADMIN_WORDS_MAX: usize = 8;
