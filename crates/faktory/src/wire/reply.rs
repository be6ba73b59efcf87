//! Replies: the parts of RESP that FWP uses.
//!
//! Spec: "Server Protocol Sender …": simple strings, errors, bulk strings and the null bulk string.

use bytes::{BufMut, BytesMut};
use serde::Serialize;

/// The null bulk string.
pub const NULL: &[u8] = b"$-1\r\n";

/// The reply to most commands.
pub const OK: &[u8] = b"+OK\r\n";

/// `+OK`.
pub fn ok(out: &mut BytesMut) {
    out.extend_from_slice(OK);
}

/// `$-1`, the null bulk string.
pub fn null(out: &mut BytesMut) {
    out.extend_from_slice(NULL);
}

/// A bulk string.
pub fn bulk(bytes: &[u8], out: &mut BytesMut) {
    out.reserve(bytes.len() + 24);
    bulk_head(bytes.len(), out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// A bulk string of JSON.
pub fn json(value: &impl Serialize, out: &mut BytesMut) {
    // Structs of texts and numbers always have a form in JSON.
    bulk(&serde_json::to_vec(value).unwrap_or_default(), out);
}

/// The head of a bulk string of this many bytes. The bytes and CRLF must follow.
pub fn bulk_head(bytes: usize, out: &mut BytesMut) {
    out.put_u8(b'$');
    out.extend_from_slice(itoa::Buffer::new().format(bytes).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// `-ERR …`.
pub fn error(text: impl AsRef<[u8]>, out: &mut BytesMut) {
    coded_error("ERR", text, out);
}

/// `-CODE …`. A line end in the text, which may be the peer's, would end the reply: it becomes a blank.
pub fn coded_error(code: &str, text: impl AsRef<[u8]>, out: &mut BytesMut) {
    out.put_u8(b'-');
    out.extend_from_slice(code.as_bytes());
    out.put_u8(b' ');
    out.extend(
        text.as_ref()
            .iter()
            .map(|byte| if *byte == b'\n' { b' ' } else { *byte }),
    );
    out.extend_from_slice(b"\r\n");
}
