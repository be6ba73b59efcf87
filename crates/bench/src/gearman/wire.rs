//! The client's side of the binary protocol: packets from slices, packets into a buffer. No sockets, no allocation per
//! packet. Only what the load needs; deliberately shares no code with the daemon's codec.
//!
//! Spec: the Gearman protocol, "Binary Packet".

use crate::load::stamp::{Random, Stamp, UNIQUE_BYTES};

/// Magic, type and size, 4 bytes each.
pub const HEADER_BYTES: usize = 12;
/// More than any server has reason to send here; a larger size means that the stream is out of step.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// The smallest body of a job: its number and the time it was sent, 8 bytes each.
pub const JOB_BODY_BYTES_MIN: usize = 16;

const MAGIC_REQUEST: [u8; 4] = *b"\0REQ";
const MAGIC_RESPONSE: [u8; 4] = *b"\0RES";

/// The type of a packet. An unknown number is not a decoding error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind(pub u32);

#[expect(missing_docs, reason = "the names are the specification's")]
impl Kind {
    pub const CAN_DO: Kind = Kind(1);
    pub const PRE_SLEEP: Kind = Kind(4);
    pub const NOOP: Kind = Kind(6);
    pub const SUBMIT_JOB: Kind = Kind(7);
    pub const JOB_CREATED: Kind = Kind(8);
    pub const GRAB_JOB: Kind = Kind(9);
    pub const NO_JOB: Kind = Kind(10);
    pub const JOB_ASSIGN: Kind = Kind(11);
    pub const WORK_COMPLETE: Kind = Kind(13);
    pub const ECHO_REQ: Kind = Kind(16);
    pub const ECHO_RES: Kind = Kind(17);
    pub const SUBMIT_JOB_BG: Kind = Kind(18);
    pub const ERROR: Kind = Kind(19);
}

/// A response: its type and its body, still joined by NULs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The type.
    pub kind: Kind,
    /// All arguments.
    pub body: &'a [u8],
}

/// The server's bytes are not Gearman responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A response must begin with NUL and `RES`.
    #[error("bad magic {0:?}")]
    Magic([u8; 4]),
    /// The size field is too large.
    #[error("a body of {0} bytes is over the limit of {BODY_BYTES_MAX}")]
    Oversized(usize),
}

/// The first response in `bytes` and the bytes after it, or `None` if more bytes are needed.
///
/// # Errors
/// [`WireError`] if the stream is out of step.
#[inline]
pub fn split(bytes: &[u8]) -> Result<Option<(Packet<'_>, &[u8])>, WireError> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let [m0, m1, m2, m3, k0, k1, k2, k3, s0, s1, s2, s3] = *header;
    let magic = [m0, m1, m2, m3];
    if magic != MAGIC_RESPONSE {
        return Err(WireError::Magic(magic));
    }
    let size = usize::try_from(u32::from_be_bytes([s0, s1, s2, s3])).unwrap_or(usize::MAX);
    if size > BODY_BYTES_MAX {
        return Err(WireError::Oversized(size));
    }
    let kind = Kind(u32::from_be_bytes([k0, k1, k2, k3]));
    Ok(rest.split_at_checked(size).map(|(body, rest)| (Packet { kind, body }, rest)))
}

/// Appends a request whose arguments are `parts`, joined by NULs.
pub fn put(out: &mut Vec<u8>, kind: Kind, parts: &[&[u8]]) {
    let separators = parts.len().saturating_sub(1);
    put_header(out, kind, parts.iter().map(|part| part.len()).sum::<usize>() + separators);
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            out.push(0);
        }
        out.extend_from_slice(part);
    }
}

#[inline]
fn put_header(out: &mut Vec<u8>, kind: Kind, body_bytes: usize) {
    let [m0, m1, m2, m3] = MAGIC_REQUEST;
    let [k0, k1, k2, k3] = kind.0.to_be_bytes();
    let [s0, s1, s2, s3] = u32::try_from(body_bytes).unwrap_or(u32::MAX).to_be_bytes();
    out.extend_from_slice(&[m0, m1, m2, m3, k0, k1, k2, k3, s0, s1, s2, s3]);
}

/// A prepared request; each copy gets only a new stamp and unique id. For submits (`function`, unique id, body) and echoes (body
/// only).
#[derive(Debug, Clone)]
pub struct Template {
    packet: Vec<u8>,
    unique_at: Option<usize>,
    stamp_at: usize,
}

impl Template {
    /// A submit of the given kind, with an empty or a random unique id and a body of `body_bytes` (raised to
    /// [`JOB_BODY_BYTES_MIN`]).
    pub fn submit(kind: Kind, function: &[u8], unique: bool, body_bytes: usize) -> Self {
        let body = filler(body_bytes);
        let blank: &[u8] = if unique { &[b'-'; UNIQUE_BYTES] } else { &[] };
        let mut packet = Vec::new();
        put(&mut packet, kind, &[function, blank, &body]);
        let unique_at = unique.then_some(HEADER_BYTES + function.len() + 1);
        Self { stamp_at: packet.len() - body.len(), packet, unique_at }
    }

    /// An ECHO_REQ.
    pub fn echo(body_bytes: usize) -> Self {
        let mut packet = Vec::new();
        put(&mut packet, Kind::ECHO_REQ, &[&filler(body_bytes)]);
        Self { packet, unique_at: None, stamp_at: HEADER_BYTES }
    }

    /// Appends the request with this stamp, and with a unique id from `rng` if it has one.
    #[inline]
    pub fn put(&self, out: &mut Vec<u8>, stamp: Stamp, rng: &mut Random) {
        let base = out.len();
        out.extend_from_slice(&self.packet);
        if let Some(slot) = out.get_mut(base + self.stamp_at..).and_then(|body| body.first_chunk_mut::<8>()) {
            *slot = stamp.number.to_le_bytes();
        }
        if let Some(slot) = out.get_mut(base + self.stamp_at + 8..).and_then(|body| body.first_chunk_mut::<8>()) {
            *slot = stamp.sent_nanos.to_le_bytes();
        }
        let Some(unique_at) = self.unique_at else {
            return;
        };
        if let Some(slot) = out.get_mut(base + unique_at..).and_then(|rest| rest.first_chunk_mut::<UNIQUE_BYTES>()) {
            *slot = rng.unique();
        }
    }
}

fn filler(body_bytes: usize) -> Vec<u8> {
    vec![b'x'; body_bytes.clamp(JOB_BODY_BYTES_MIN, BODY_BYTES_MAX)]
}

/// The arguments of a JOB_ASSIGN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment<'a> {
    /// The job's handle, to send with the result.
    pub handle: &'a [u8],
    /// The function.
    pub function: &'a [u8],
    /// The job's body, which may contain NULs.
    pub body: &'a [u8],
}

impl<'a> Assignment<'a> {
    /// Splits the arguments.
    #[inline]
    pub fn of(arguments: &'a [u8]) -> Option<Self> {
        let (handle, rest) = cut_at_nul(arguments)?;
        let (function, body) = cut_at_nul(rest)?;
        Some(Self { handle, function, body })
    }
}

/// The bytes before and after the first NUL.
#[inline]
pub fn cut_at_nul(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == 0)?;
    let (before, rest) = bytes.split_at_checked(at)?;
    Some((before, rest.split_first()?.1))
}

/// Appends WORK_COMPLETE with an 8-byte result.
#[inline]
pub fn put_complete(out: &mut Vec<u8>, handle: &[u8], result: u64) {
    put_header(out, Kind::WORK_COMPLETE, handle.len() + 9);
    out.extend_from_slice(handle);
    out.push(0);
    out.extend_from_slice(&result.to_le_bytes());
}

/// Appends a request without arguments.
#[inline]
pub fn put_bare(out: &mut Vec<u8>, kind: Kind) {
    put_header(out, kind, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn response(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = b"\0RES".to_vec();
        bytes.extend(kind.to_be_bytes());
        bytes.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
        bytes.extend(body);
        bytes
    }

    /// The specification's example (section "Example"), and one line for each other request sent here.
    #[test]
    fn requests_to_the_byte() {
        let made = |put: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            put(&mut out);
            out
        };
        let cases: [(&str, Vec<u8>, &[u8]); 6] = [
            ("can do", made(&|out| put(out, Kind::CAN_DO, &[b"reverse"])), b"\0REQ\0\0\0\x01\0\0\0\x07reverse"),
            ("grab", made(&|out| put_bare(out, Kind::GRAB_JOB)), b"\0REQ\0\0\0\x09\0\0\0\0"),
            ("sleep", made(&|out| put_bare(out, Kind::PRE_SLEEP)), b"\0REQ\0\0\0\x04\0\0\0\0"),
            (
                "submit",
                made(&|out| put(out, Kind::SUBMIT_JOB, &[b"reverse", b"", b"test"])),
                b"\0REQ\0\0\0\x07\0\0\0\x0dreverse\0\0test",
            ),
            (
                "complete",
                made(&|out| put_complete(out, b"H:lap:1", 7)),
                b"\0REQ\0\0\0\x0d\0\0\0\x10H:lap:1\0\x07\0\0\0\0\0\0\0",
            ),
            (
                "stamped submit",
                made(&|out| {
                    let stamp = Stamp { number: 1, sent_nanos: 258 };
                    Template::submit(Kind::SUBMIT_JOB_BG, b"f", false, 0).put(out, stamp, &mut Random::new(1));
                }),
                b"\0REQ\0\0\0\x12\0\0\0\x13f\0\0\x01\0\0\0\0\0\0\0\x02\x01\0\0\0\0\0\0",
            ),
        ];
        for (name, found, expected) in cases {
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn responses() {
        let whole = response(8, b"H:lap:1");
        let packet = Packet { kind: Kind::JOB_CREATED, body: b"H:lap:1" };
        assert_eq!(split(&whole), Ok(Some((packet, &b""[..]))));
        assert_eq!(split(b"\0REQ\0\0\0\x08\0\0\0\0"), Err(WireError::Magic(*b"\0REQ")));
        assert_eq!(split(b"\0RES\0\0\0\x08\xff\0\0\0"), Err(WireError::Oversized(0xff00_0000)));
        assert_eq!(split(&response(4_000_000_000, b"")).unwrap().unwrap().0.kind, Kind(4_000_000_000));
    }

    #[test]
    fn assignments() {
        let made = |handle, function, body| Some(Assignment { handle, function, body });
        let cases: [(&[u8], Option<Assignment<'_>>); 4] = [
            (b"H:lap:1\0reverse\0test", made(b"H:lap:1", b"reverse", b"test")),
            (b"H\0f\0NUL\0inside", made(b"H", b"f", b"NUL\0inside")),
            (b"H\0f\0", made(b"H", b"f", b"")),
            (b"H\0f", None),
        ];
        for (arguments, expected) in cases {
            assert_eq!(Assignment::of(arguments), expected, "{}", arguments.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn a_stamp_survives_its_template(number: u64, sent_nanos: u64, unique: bool, body_bytes in 0_usize..300) {
            let stamp = Stamp { number, sent_nanos };
            let mut out = b"before".to_vec();
            Template::submit(Kind::SUBMIT_JOB, b"fn", unique, body_bytes).put(&mut out, stamp, &mut Random::new(3));
            let arguments = &out[6 + HEADER_BYTES..];
            prop_assert_eq!(&out[..6], b"before");
            // The arguments of a submit are cut like those of an assignment: two names and a body.
            let Assignment { handle: function, function: unique_id, body } = Assignment::of(arguments).unwrap();
            prop_assert_eq!(function, b"fn");
            prop_assert_eq!(unique_id.len(), if unique { UNIQUE_BYTES } else { 0 });
            prop_assert_eq!(body.len(), body_bytes.max(JOB_BODY_BYTES_MIN));
            prop_assert_eq!(Stamp::of(body), Some(stamp));
        }

        #[test]
        fn where_the_stream_is_cut_does_not_matter(bodies: Vec<Vec<u8>>, cut: prop::sample::Index) {
            let stream: Vec<u8> = bodies.iter().flat_map(|body| response(17, body)).collect();
            let cut = cut.index(stream.len() + 1);
            let mut found = Vec::new();
            let mut rest = &stream[..cut];
            while let Some((packet, after)) = split(rest).unwrap() {
                found.push(packet.body.to_vec());
                rest = after;
            }
            let kept = [rest, &stream[cut..]].concat();
            let mut rest = &kept[..];
            while let Some((packet, after)) = split(rest).unwrap() {
                found.push(packet.body.to_vec());
                rest = after;
            }
            prop_assert_eq!(found, bodies);
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn noise_never_panics(noise: Vec<u8>) {
            if let Ok(Some((packet, rest))) = split(&noise) {
                prop_assert_eq!(packet.body.len() + rest.len() + HEADER_BYTES, noise.len());
            }
            let _ = (Assignment::of(&noise), Stamp::of(&noise), cut_at_nul(&noise));
        }
    }
}
