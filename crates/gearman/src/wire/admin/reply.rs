//! Writes every line that answers a text command, to the byte. The session chooses which to send.
//!
//! Spec: `PROTOCOL`, "Administrative Protocol", for the lists; all other lines are worded as gearmand's. Lists end
//! their lines with LF, refusals and acknowledgements with CRLF.

use bytes::{BufMut, BytesMut};

/// One line. Lists are rows followed by [`End`](Self::End). Names are written unescaped: a name with a tab or a line
/// feed breaks its row, as in gearmand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminReply<'a> {
    /// The answer to `version`.
    Version {
        /// Such as `1.1.20`.
        version: &'a str,
    },
    /// The answer to `getpid`.
    Pid {
        /// The daemon's process id.
        pid: u32,
    },
    /// The answer to `verbose`.
    Verbosity {
        /// Such as `INFO`.
        level: &'a str,
    },
    /// The end of a list.
    End,
    /// A row of `status`.
    StatusRow {
        /// The function's name.
        function: &'a [u8],
        /// Jobs queued or running.
        total: u64,
        /// Jobs running.
        running: u64,
        /// Workers that registered the function.
        workers: u64,
    },
    /// A row of `prioritystatus`.
    PriorityStatusRow {
        /// The function's name.
        function: &'a [u8],
        /// Jobs queued, not running.
        high: u64,
        /// Jobs queued, not running.
        normal: u64,
        /// Jobs queued, not running.
        low: u64,
        /// Workers that registered the function.
        workers: u64,
    },
    /// A row of `show jobs`.
    JobRow {
        /// The job's handle.
        handle: &'a [u8],
        /// How often the job came back from a worker.
        retries: u64,
        /// The job was cancelled or abandoned, and is not forgotten yet.
        ignored: bool,
        /// Whether it is a background job; gearmand heads the column "queued".
        background: bool,
    },
    /// A row of `show unique jobs`.
    UniqueRow {
        /// The job's unique id; may be empty.
        unique: &'a [u8],
    },
    /// A row of `show dead jobs`. Bytes outside printable ASCII are escaped, and a long message is cut.
    DeadRow {
        /// The job's handle.
        handle: &'a [u8],
        /// The protocol that the job was submitted in.
        protocol: &'a str,
        /// The job's queue.
        function: &'a [u8],
        /// How often the job failed.
        failures: u64,
        /// The kind of the last failure.
        kind: &'a [u8],
        /// The message of the last failure.
        message: &'a [u8],
    },
    /// `cancel`, `requeue`, `create`, `drop` or `maxqueue` succeeded, or `shutdown` was accepted.
    Done,
    /// Unknown verb.
    UnknownCommand {
        /// As typed.
        verb: &'a [u8],
    },
    /// The verb exists, but requires other arguments.
    WrongArguments {
        /// As typed.
        verb: &'a [u8],
    },
    /// `show` with unknown arguments.
    UnknownShow,
    /// `cancel` with unknown arguments.
    UnknownCancel,
    /// `cancel job` or `requeue job` found no such job.
    UnknownJob,
    /// `drop function` found no such function.
    FunctionNotFound,
    /// `drop function` found workers or running jobs.
    FunctionBusy,
}

/// Longest message in `show dead jobs`, in bytes.
const DEAD_MESSAGE_BYTES_MAX: usize = 200;

impl AdminReply<'_> {
    /// Appends the line.
    pub fn write(&self, out: &mut BytesMut) {
        match *self {
            Self::Version { version } => join(out, &[b"OK ", version.as_bytes(), b"\n"]),
            Self::Pid { pid } => join(out, &[b"OK ", itoa::Buffer::new().format(pid).as_bytes(), b"\n"]),
            Self::Verbosity { level } => join(out, &[b"OK ", level.as_bytes(), b"\n"]),
            Self::End => out.put_slice(b".\n"),
            Self::StatusRow { function, total, running, workers } => {
                row(out, function, &[total, running, workers]);
            }
            Self::PriorityStatusRow { function, high, normal, low, workers } => {
                row(out, function, &[high, normal, low, workers]);
            }
            Self::JobRow { handle, retries, ignored, background } => {
                row(out, handle, &[retries, ignored.into(), background.into()]);
            }
            Self::UniqueRow { unique } => row(out, unique, &[]),
            Self::DeadRow { handle, protocol, function, failures, kind, message } => {
                let message = message.get(..DEAD_MESSAGE_BYTES_MAX).unwrap_or(message);
                join(out, &[handle, b"\t", protocol.as_bytes(), b"\t"]);
                out.extend(function.escape_ascii());
                join(out, &[b"\t", itoa::Buffer::new().format(failures).as_bytes(), b"\t"]);
                out.extend(kind.escape_ascii());
                out.put_u8(b'\t');
                out.extend(message.escape_ascii());
                out.put_u8(b'\n');
            }
            Self::Done => out.put_slice(b"OK\r\n"),
            Self::UnknownCommand { verb } => {
                join(out, &[b"ERR UNKNOWN_COMMAND Unknown+server+command", verb, b"\r\n"]);
            }
            Self::WrongArguments { verb } => {
                let text = b"An+incomplete+set+of+arguments+was+sent+to+this+command+";
                join(out, &[b"ERR INVALID_ARGUMENTS ", text, verb, b"\r\n"]);
            }
            Self::UnknownShow => out.put_slice(b"ERR UNKNOWN_SHOW_ARGUMENTS\r\n"),
            Self::UnknownCancel => out.put_slice(b"ERR UNKNOWN_ERROR\r\n"),
            Self::UnknownJob => out.put_slice(b"ERR UNKNOWN_JOB\r\n"),
            Self::FunctionNotFound => out.put_slice(b"ERR function not found\r\n"),
            Self::FunctionBusy => {
                out.put_slice(b"ERR there are still connected workers or executing clients\r\n");
            }
        }
    }
}

/// Begins a row of `workers`, for one connection. `address` has no port; `id` is `-` until the peer sets one.
pub fn worker_row_begin(out: &mut BytesMut, fd: u64, address: &str, id: &[u8]) {
    join(out, &[itoa::Buffer::new().format(fd).as_bytes(), b" ", address.as_bytes(), b" ", id, b" :"]);
}

/// Continues the row with functions of the connection, in the given order (gearmand: the last registered first).
pub fn worker_row_functions<F>(out: &mut BytesMut, functions: F)
where
    F: IntoIterator,
    F::Item: AsRef<[u8]>,
{
    for function in functions {
        join(out, &[b" ", function.as_ref()]);
    }
}

/// Ends the row.
pub fn worker_row_end(out: &mut BytesMut) {
    out.put_u8(b'\n');
}

fn row(out: &mut BytesMut, name: &[u8], columns: &[u64]) {
    out.put_slice(name);
    for column in columns {
        join(out, &[b"\t", itoa::Buffer::new().format(*column).as_bytes()]);
    }
    out.put_u8(b'\n');
}

fn join(out: &mut BytesMut, parts: &[&[u8]]) {
    parts.iter().for_each(|part| out.put_slice(part));
}
