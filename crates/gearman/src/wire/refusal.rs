//! Every constant ERROR packet: a code, a NUL and a text. The session chooses which to send, except for malformed
//! packets, which the parser of requests refuses.
//!
//! Spec: `PROTOCOL`, "ERROR", which names no code. These are gearmand's, to the byte. The last four are ours, for
//! packets that gearmand does not answer or does not refuse.

use bytes::BytesMut;

use super::response::Response;

/// The two arguments of an ERROR packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorReply {
    /// Upper-case code.
    pub code: &'static str,
    /// A sentence for people.
    pub text: &'static str,
}

impl ErrorReply {
    /// The packet's magic is `\0RES`.
    pub const INVALID_MAGIC: Self = Self::new("INVALID_MAGIC", "Request magic expected");
    /// Only servers send this packet type.
    pub const INVALID_COMMAND: Self = Self::new("INVALID_COMMAND", "Command not expected");
    /// A unique, or a reducer, is longer than 64 bytes.
    pub const UNIQUE_TOO_LARGE: Self = Self::new("ARGUMENT_TOO_LARGE", "Unique value too large");
    /// A handle has 64 bytes or more.
    pub const HANDLE_TOO_LARGE: Self = Self::new(
        "ARGUMENT_TOO_LARGE",
        "Error occurred due to GEARMAND_JOB_HANDLE_SIZE being too small from snprintf",
    );
    /// `maxqueue` allows no further job of this priority.
    pub const QUEUE_FULL: Self = Self::new("QUEUE_ERROR", "Job queue is full");
    /// The job could not be made durable and is not queued.
    pub const QUEUE_ERROR: Self = Self::new("QUEUE_ERROR", "QUEUE_ERROR");
    /// OPTION_REQ for something other than `exceptions`.
    pub const UNKNOWN_OPTION: Self =
        Self::new("UNKNOWN_OPTION", "Server does not recognize given option");
    /// WORK_COMPLETE, WORK_FAIL or WORK_STATUS for a job that this connection does not hold.
    pub const JOB_NOT_FOUND_FOR_RESULT: Self =
        Self::new("JOB_NOT_FOUND", "Job given in work result not found");
    /// WORK_DATA or WORK_WARNING for a job that this connection does not hold.
    pub const JOB_NOT_FOUND_FOR_DATA: Self =
        Self::new("JOB_NOT_FOUND", "Job does not exist on server");
    /// WORK_EXCEPTION for a job that this connection does not hold.
    pub const JOB_NOT_FOUND_FOR_EXCEPTION: Self = Self::new(
        "JOB_NOT_FOUND",
        "An exception was received for a job that does not exist",
    );
    /// A body has fewer NULs than its type needs; gearmand reads on into the next packet instead.
    pub const TOO_FEW_ARGUMENTS: Self =
        Self::new("INVALID_ARGUMENTS", "Packet has too few arguments");
    /// An epoch beyond 63 bits; gearmand sends nothing.
    pub const EPOCH_OUT_OF_RANGE: Self = Self::new("INVALID_ARGUMENTS", "Epoch time out of range");
    /// A function name too long for gearmand's buffer; gearmand hangs up.
    pub const FUNCTION_TOO_LARGE: Self = Self::new("ARGUMENT_TOO_LARGE", "Function name too large");
    /// The listener does not permit it; gearmand permits everything.
    pub const NOT_PERMITTED: Self = Self::new("NOT_PERMITTED", "Not permitted at this address");

    const fn new(code: &'static str, text: &'static str) -> Self {
        Self { code, text }
    }

    /// Appends the ERROR packet.
    pub fn encode(self, out: &mut BytesMut) {
        Response::from(self).encode(out);
    }
}

impl From<ErrorReply> for Response<'static> {
    fn from(reply: ErrorReply) -> Self {
        Response::Error {
            code: reply.code.as_bytes(),
            text: reply.text.as_bytes(),
        }
    }
}
