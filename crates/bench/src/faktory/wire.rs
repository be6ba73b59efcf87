//! The client's side of FWP: replies from slices, commands into a buffer. No allocation per reply. Only what the load needs;
//! deliberately shares no code with the daemon's codec.
//!
//! Spec: Faktory Work Protocol, "Protocol Basics".

use crate::error::Error;
use crate::stamp::{Random, STAMP_DIGITS, Stamp, digits};

/// The first reply on a connection.
pub(super) const GREETING: Reply<'_> = Reply::Simple(b"HI {\"v\":2}");
/// From the queue of all jobs.
pub(super) const FETCH: &[u8] = b"FETCH bench\r\n";
/// A jid is written as 24 hexadecimal digits, as stock clients do.
pub(super) const JID_BYTES: usize = 24;
/// More than any server has reason to send here; a larger reply means that the stream is out of step.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// A reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply<'a> {
    /// `+…`
    Simple(&'a [u8]),
    /// `-…`
    Error(&'a [u8]),
    /// `$n` and the bytes.
    Bulk(&'a [u8]),
    /// `$-1`
    Null,
}

/// The first reply in `bytes` and the bytes after it, or `None` if more bytes are needed. [`Error::Protocol`] if the stream
/// is out of step.
#[inline]
pub(super) fn split(bytes: &[u8]) -> Result<Option<(Reply<'_>, &[u8])>, Error> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() > REPLY_BYTES_MAX { Err(out_of_step(bytes)) } else { Ok(None) };
    };
    let (line, rest) = bytes.split_at_checked(end + 1).unwrap_or((bytes, b""));
    let line = line.strip_suffix(b"\r\n").ok_or_else(|| out_of_step(bytes))?;
    match line.split_first() {
        Some((b'+', text)) => Ok(Some((Reply::Simple(text), rest))),
        Some((b'-', text)) => Ok(Some((Reply::Error(text), rest))),
        Some((b'$', b"-1")) => Ok(Some((Reply::Null, rest))),
        Some((b'$', digits)) => {
            let size = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<usize>().ok());
            let size = size.filter(|size| *size <= REPLY_BYTES_MAX).ok_or_else(|| out_of_step(bytes))?;
            let Some((body, rest)) = rest.split_at_checked(size) else {
                return Ok(None);
            };
            match rest {
                [b'\r', b'\n', rest @ ..] => Ok(Some((Reply::Bulk(body), rest))),
                [] | [b'\r'] => Ok(None),
                _ => Err(out_of_step(bytes)),
            }
        }
        _ => Err(out_of_step(bytes)),
    }
}

#[cold]
fn out_of_step(bytes: &[u8]) -> Error {
    let shown = bytes.get(..bytes.len().min(60)).unwrap_or_default();
    Error::Protocol(format!("no reply: {}", shown.escape_ascii()))
}

/// Appends HELLO, as the worker `wid` or as a client that only pushes.
pub(super) fn put_hello(out: &mut Vec<u8>, wid: Option<usize>) {
    let wid = wid.map_or(String::new(), |wid| format!("{},\"pid\":1,\"labels\":[],", named(wid)));
    out.extend_from_slice(format!("HELLO {{{wid}\"hostname\":\"bench\",\"v\":2}}\r\n").as_bytes());
}

/// Appends the heartbeat of worker `wid`.
pub(super) fn put_beat(out: &mut Vec<u8>, wid: usize) {
    out.extend_from_slice(format!("BEAT {{{}}}\r\n", named(wid)).as_bytes());
}

fn named(wid: usize) -> String {
    format!("\"wid\":\"bench{wid:08}\"")
}

#[inline]
pub(super) fn put_ack(out: &mut Vec<u8>, jid: &[u8; JID_BYTES]) {
    out.extend_from_slice(b"ACK {\"jid\":\"");
    out.extend_from_slice(jid);
    out.extend_from_slice(b"\"}\r\n");
}

/// Appends a job: a random jid, queue, type, and its stamp as the only argument; 105 bytes.
#[inline]
pub(super) fn put_job(out: &mut Vec<u8>, stamp: Stamp, rng: &mut Random) {
    let jid: [u8; 32] = digits((u128::from(rng.next()) << 64 | u128::from(rng.next())).to_be_bytes());
    out.extend_from_slice(b"{\"jid\":\"");
    out.extend_from_slice(jid.first_chunk::<JID_BYTES>().unwrap_or(&[b'0'; JID_BYTES]));
    out.extend_from_slice(b"\",\"queue\":\"bench\",\"jobtype\":\"bench\",\"args\":[\"");
    out.extend_from_slice(&stamp.to_digits());
    out.extend_from_slice(b"\"]}");
}

/// The parts of a job that a worker needs: its jid, and the stamp among its arguments.
#[inline]
pub(super) fn job_of(text: &[u8]) -> Option<(&[u8; JID_BYTES], Stamp)> {
    let jid = behind(text, b"\"jid\":\"")?.first_chunk()?;
    Some((jid, Stamp::of_digits(behind(text, b"\"args\":[\"")?.first_chunk::<STAMP_DIGITS>()?)?))
}

#[inline]
fn behind<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let at = text.windows(key.len()).position(|window| window == key)?;
    text.get(at + key.len()..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies() {
        let cases: [(&[u8], Reply<'_>); 5] = [
            (b"+OK\r\n", Reply::Simple(b"OK")),
            (b"-ERR no\r\n", Reply::Error(b"ERR no")),
            (b"$-1\r\n", Reply::Null),
            (b"$2\r\n{}\r\n", Reply::Bulk(b"{}")),
            (b"$4\r\na\r\nb\r\n", Reply::Bulk(b"a\r\nb")),
        ];
        for (bytes, expected) in cases {
            let more = [bytes, b"+"].concat();
            assert_eq!(split(&more).unwrap(), Some((expected, &b"+"[..])), "{}", bytes.escape_ascii());
            for cut in 0..bytes.len() {
                assert_eq!(split(&bytes[..cut]).unwrap(), None, "{}", bytes[..cut].escape_ascii());
            }
        }
        for wrong in [&b"OK\r\n"[..], b"+OK\n", b"$x\r\n", b"$99999999999\r\n", b"$1\r\nab\r\n", b"\r\n"] {
            assert!(split(wrong).is_err(), "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn a_job_to_the_byte() {
        let mut out = Vec::new();
        put_job(&mut out, Stamp { number: 1, sent_nanos: 255 }, &mut Random::new(1));
        let text = String::from_utf8(out).unwrap();
        let (head, tail) = text.split_at(8 + JID_BYTES);
        assert!(head.starts_with("{\"jid\":\"") && head[8..].bytes().all(|byte| byte.is_ascii_hexdigit()), "{head}");
        let expected = "\",\"queue\":\"bench\",\"jobtype\":\"bench\",\"args\":[\"000000000000000100000000000000ff\"]}";
        assert_eq!(tail, expected);
    }
}
