//! The client's side of the binary protocol: packets from slices, packets into a buffer. No sockets, no allocation per
//! packet. Only what the load needs; deliberately shares no code with the daemon's codec.
//!
//! Spec: the Gearman protocol, "Binary Packet".

use crate::error::Error;
use crate::stamp::Stamp;

/// The function of all jobs.
pub(crate) const FUNCTION: &[u8] = b"bench";
/// Magic, type and size, 4 bytes each.
const HEADER_BYTES: usize = 12;
/// More than any server has reason to send here; a larger size means that the stream is out of step.
const BODY_BYTES_MAX: usize = 1 << 20;
/// What follows the stamp in a job of 100 bytes.
const FILLER: [u8; 84] = [b'x'; 84];

/// The type of a packet. An unknown number is not a decoding error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(pub(crate) u32);

impl Kind {
    pub(crate) const CAN_DO: Kind = Kind(1);
    pub(crate) const PRE_SLEEP: Kind = Kind(4);
    pub(crate) const NOOP: Kind = Kind(6);
    pub(crate) const SUBMIT_JOB: Kind = Kind(7);
    pub(crate) const JOB_CREATED: Kind = Kind(8);
    pub(crate) const GRAB_JOB: Kind = Kind(9);
    pub(crate) const NO_JOB: Kind = Kind(10);
    pub(crate) const JOB_ASSIGN: Kind = Kind(11);
    pub(crate) const WORK_COMPLETE: Kind = Kind(13);
    pub(crate) const ECHO_REQ: Kind = Kind(16);
    pub(crate) const ECHO_RES: Kind = Kind(17);
    pub(crate) const SUBMIT_JOB_BG: Kind = Kind(18);
    pub(crate) const ERROR: Kind = Kind(19);
}

/// A response: its type and its body, still joined by NULs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packet<'a> {
    pub(crate) kind: Kind,
    pub(crate) body: &'a [u8],
}

/// The first response in `bytes` and the bytes after it, or `None` if more bytes are needed. [`Error::Protocol`] if the stream
/// is out of step.
#[inline]
pub(crate) fn split(bytes: &[u8]) -> Result<Option<(Packet<'_>, &[u8])>, Error> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let [m0, m1, m2, m3, k0, k1, k2, k3, s0, s1, s2, s3] = *header;
    if [m0, m1, m2, m3] != *b"\0RES" {
        return Err(Error::Protocol(format!("bad magic {:?}", [m0, m1, m2, m3])));
    }
    let size = usize::try_from(u32::from_be_bytes([s0, s1, s2, s3])).unwrap_or(usize::MAX);
    if size > BODY_BYTES_MAX {
        return Err(Error::Protocol(format!("a body of {size} bytes is over the limit of {BODY_BYTES_MAX}")));
    }
    let kind = Kind(u32::from_be_bytes([k0, k1, k2, k3]));
    Ok(rest.split_at_checked(size).map(|(body, rest)| (Packet { kind, body }, rest)))
}

/// Appends a request whose body consists of `parts`.
#[inline]
pub(crate) fn put<const PARTS: usize>(out: &mut Vec<u8>, kind: Kind, parts: [&[u8]; PARTS]) {
    let size = u32::try_from(parts.iter().map(|part| part.len()).sum::<usize>()).unwrap_or(u32::MAX);
    let [k0, k1, k2, k3] = kind.0.to_be_bytes();
    let [s0, s1, s2, s3] = size.to_be_bytes();
    out.extend_from_slice(&[0, b'R', b'E', b'Q', k0, k1, k2, k3, s0, s1, s2, s3]);
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Appends the submit of a job of 100 bytes.
#[inline]
pub(crate) fn put_submit(out: &mut Vec<u8>, kind: Kind, unique: &[u8], stamp: Stamp) {
    put(out, kind, [FUNCTION, b"\0", unique, b"\0", &stamp.to_bytes(), &FILLER]);
}

/// Appends an ECHO_REQ of 100 bytes.
#[inline]
pub(crate) fn put_echo(out: &mut Vec<u8>, stamp: Stamp) {
    put(out, Kind::ECHO_REQ, [&stamp.to_bytes(), &FILLER]);
}

/// Appends WORK_COMPLETE with an 8-byte result.
#[inline]
pub(crate) fn put_complete(out: &mut Vec<u8>, handle: &[u8], result: u64) {
    put(out, Kind::WORK_COMPLETE, [handle, b"\0", &result.to_le_bytes()]);
}

/// The handle of a JOB_ASSIGN and the stamp of the job, if it is one of ours.
#[inline]
pub(crate) fn assignment(arguments: &[u8]) -> Option<(&[u8], Stamp)> {
    let (handle, rest) = cut_at_nul(arguments)?;
    let (function, body) = cut_at_nul(rest)?;
    Some((handle, Stamp::of(body)?)).filter(|_| function == FUNCTION && !handle.is_empty())
}

/// The bytes before and after the first NUL.
#[inline]
pub(crate) fn cut_at_nul(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == 0)?;
    let (before, rest) = bytes.split_at_checked(at)?;
    Some((before, rest.split_first()?.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = u32::try_from(body.len()).unwrap();
        [b"\0RES", &kind.to_be_bytes()[..], &size.to_be_bytes(), body].concat()
    }

    /// The specification's example (section "Example"), and one line for each other request sent here.
    #[test]
    fn requests_to_the_byte() {
        let made = |put: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            put(&mut out);
            out
        };
        let stamp = Stamp { number: 1, sent_nanos: 258 };
        let body = [&b"\x01\0\0\0\0\0\0\0\x02\x01\0\0\0\0\0\0"[..], &[b'x'; 84]].concat();
        let cases: [(Vec<u8>, &[u8]); 6] = [
            (made(&|out| put(out, Kind::CAN_DO, [b"reverse"])), b"\0REQ\0\0\0\x01\0\0\0\x07reverse"),
            (made(&|out| put(out, Kind::GRAB_JOB, [])), b"\0REQ\0\0\0\x09\0\0\0\0"),
            (made(&|out| put(out, Kind::PRE_SLEEP, [])), b"\0REQ\0\0\0\x04\0\0\0\0"),
            (
                made(&|out| put_submit(out, Kind::SUBMIT_JOB_BG, b"u", stamp)),
                &[b"\0REQ\0\0\0\x12\0\0\0\x6cbench\0u\0", &body[..]].concat(),
            ),
            (made(&|out| put_echo(out, stamp)), &[b"\0REQ\0\0\0\x10\0\0\0\x64", &body[..]].concat()),
            (made(&|out| put_complete(out, b"H:lap:1", 7)), b"\0REQ\0\0\0\x0d\0\0\0\x10H:lap:1\0\x07\0\0\0\0\0\0\0"),
        ];
        for (found, expected) in cases {
            assert_eq!(found, expected, "{}", expected.escape_ascii());
        }
    }

    #[test]
    fn responses() {
        let whole = response(8, b"H:lap:1");
        assert_eq!(split(&whole).unwrap(), Some((Packet { kind: Kind::JOB_CREATED, body: b"H:lap:1" }, &b""[..])));
        assert_eq!(split(&response(4_000_000_000, b"")).unwrap().unwrap().0.kind, Kind(4_000_000_000));
        let wrong: [&[u8]; 2] = [b"\0REQ\0\0\0\x08\0\0\0\0", b"\0RES\0\0\0\x08\xff\0\0\0"];
        assert!(wrong.iter().all(|bytes| split(bytes).is_err()));
    }

    #[test]
    fn assignments() {
        let stamp = Stamp { number: 0, sent_nanos: 0x0100 };
        let job = [&[0; 9][..], b"\x01\0\0\0\0\0\0and more"].concat();
        let table = [
            (&b"H:lap:1\0bench\0"[..], Some((&b"H:lap:1"[..], stamp))),
            (b"H:lap:1\0reverse\0", None),
            (b"\0bench\0", None),
            (b"H:lap:1bench", None),
        ];
        for (head, expected) in table {
            assert_eq!(assignment(&[head, &job].concat()), expected, "{}", head.escape_ascii());
        }
    }
}
