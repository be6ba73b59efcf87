//! Every line that answers a text command, to the byte. The session chooses which to send.
//!
//! Spec: `PROTOCOL`, "Administrative Protocol", for the lists; all other lines are worded as gearmand's. Lists end
//! their lines with LF, refusals and acknowledgements with CRLF. Names are written unescaped: a name with a tab or a line
//! feed breaks its row, as in gearmand.

use bytes::{BufMut, BytesMut};

/// The end of a list.
pub const END: &[u8] = b".\n";
/// `cancel`, `requeue`, `create`, `drop` or `maxqueue` succeeded, or `shutdown` was accepted.
pub const DONE: &[u8] = b"OK\r\n";
/// `show` with unknown arguments.
pub const UNKNOWN_SHOW: &[u8] = b"ERR UNKNOWN_SHOW_ARGUMENTS\r\n";
/// `cancel` with unknown arguments.
pub const UNKNOWN_CANCEL: &[u8] = b"ERR UNKNOWN_ERROR\r\n";
/// `cancel job` or `requeue job` found no such job.
pub const UNKNOWN_JOB: &[u8] = b"ERR UNKNOWN_JOB\r\n";
/// `drop function` found no such function.
pub const FUNCTION_NOT_FOUND: &[u8] = b"ERR function not found\r\n";
/// `drop function` found workers or running jobs.
pub const FUNCTION_BUSY: &[u8] = b"ERR there are still connected workers or executing clients\r\n";

/// Longest message in `show dead jobs`, in bytes.
const DEAD_MESSAGE_BYTES_MAX: usize = 200;

/// The answer to a verb, as typed, that is unknown.
pub fn unknown_command(verb: &[u8]) -> Vec<u8> {
    [b"ERR UNKNOWN_COMMAND Unknown+server+command", verb, b"\r\n"].concat()
}

/// The answer to a verb, as typed, that requires other arguments.
pub fn wrong_arguments(verb: &[u8]) -> Vec<u8> {
    let text = b"An+incomplete+set+of+arguments+was+sent+to+this+command+";
    [b"ERR INVALID_ARGUMENTS ", &text[..], verb, b"\r\n"].concat()
}

/// Appends the answer to `version`, `getpid` or `verbose`.
pub fn value(out: &mut BytesMut, text: &str) {
    join(out, &[b"OK ", text.as_bytes(), b"\n"]);
}

/// Appends a row of a list: a function with the number of its jobs, of those that run and of its workers (`status`), or of
/// its queued jobs by priority and of its workers (`prioritystatus`); a job's handle with how often it came back from a
/// worker, whether it is ignored, and whether it is a background job (`show jobs`); a unique id (`show unique jobs`).
pub fn row(out: &mut BytesMut, name: &[u8], columns: &[u64]) {
    out.put_slice(name);
    for column in columns {
        join(
            out,
            &[b"\t", itoa::Buffer::new().format(*column).as_bytes()],
        );
    }
    out.put_u8(b'\n');
}

/// Appends a row of `show dead jobs`: a job with its last failure. Bytes outside printable ASCII are escaped, and a long
/// message is cut.
pub fn dead_row(
    out: &mut BytesMut,
    handle: &[u8],
    protocol: &str,
    function: &[u8],
    failures: u64,
    kind: &[u8],
    message: &[u8],
) {
    let message = message.get(..DEAD_MESSAGE_BYTES_MAX).unwrap_or(message);
    join(out, &[handle, b"\t", protocol.as_bytes(), b"\t"]);
    out.extend(function.escape_ascii());
    join(
        out,
        &[
            b"\t",
            itoa::Buffer::new().format(failures).as_bytes(),
            b"\t",
        ],
    );
    out.extend(kind.escape_ascii());
    out.put_u8(b'\t');
    out.extend(message.escape_ascii());
    out.put_u8(b'\n');
}

/// Begins a row of `workers`, for one connection. `address` has no port; `id` is `-` until the peer sets one.
pub fn worker_row_begin(out: &mut BytesMut, fd: u64, address: &str, id: &[u8]) {
    join(
        out,
        &[
            itoa::Buffer::new().format(fd).as_bytes(),
            b" ",
            address.as_bytes(),
            b" ",
            id,
            b" :",
        ],
    );
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

fn join(out: &mut BytesMut, parts: &[&[u8]]) {
    parts.iter().for_each(|part| out.put_slice(part));
}
