//! The few messages that a load sends and expects, without the transport. No allocation. Deliberately shares no code with the
//! daemon's codec.
//!
//! Spec: EventMQ's `protocol.rst`, "Global Frames"; `REPLY` and the goodbye as in the released programs.

use windlass_zmtp::Message;

use crate::error::Error;
use crate::load::stamp::{Random, Stamp};

/// A message's identifier is a UUID as text, as stock clients have it.
pub const ID_BYTES: usize = 36;
/// The length of every job.
pub const JOB_BYTES: usize = JOB_HEAD.len() + STAMP_DIGITS + JOB_TAIL.len();
/// Both numbers of a stamp, 16 hexadecimal digits each.
pub const STAMP_DIGITS: usize = 32;
/// The queue of all jobs: the released router's default for workers without queues.
pub const QUEUE: &[u8] = b"default";

const VERSION: &[u8] = b"eMQP/1.0";
/// A worker's queues with their weights.
const QUEUES: &[u8] = br#"[[10, "default"]]"#;
const RESULT: &[u8] = br#"{"value": null}"#;
/// A job calls `windlass_tasks.done` with its stamp.
const JOB_HEAD: &[u8] = br#"["run", {"callable": "done", "path": "windlass_tasks", "args": [""#;
const JOB_TAIL: &[u8] = br#""], "kwargs": {}, "class_args": [], "class_kwargs": {}}]"#;
/// Where a UUID has its hyphens.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];
const NIBBLES: usize = 16;

/// A message's identifier.
pub type Id = [u8; ID_BYTES];

/// A unique identifier that contains a number: the second half; the first is random.
#[inline]
pub fn id_of(rng: &mut Random, number: u64) -> Id {
    let mut digits = [0; 2 * NIBBLES];
    let (random, counted) = digits.split_at_mut(NIBBLES);
    put_hex(random, rng.roll());
    put_hex(counted, number);
    let mut id = [b'-'; ID_BYTES];
    let places = id.iter_mut().enumerate().filter(|(at, _)| !HYPHENS.contains(at));
    places.zip(digits).for_each(|((_, place), digit)| *place = digit);
    id
}

/// The number in an identifier.
#[inline]
pub fn number_of(id: &[u8]) -> Option<u64> {
    let id: &Id = id.try_into().ok()?;
    // The digits of the second half are in two groups: 4 and 12.
    let (high, low) = (id.get(19..23)?, id.get(24..)?);
    Some(number_in(high)? << 48 | number_in(low)?)
}

/// The job with this stamp.
#[inline]
pub fn job_of(stamp: Stamp) -> [u8; JOB_BYTES] {
    let mut job = [0; JOB_BYTES];
    let (head, rest) = job.split_at_mut(JOB_HEAD.len());
    let (digits, tail) = rest.split_at_mut(STAMP_DIGITS);
    head.copy_from_slice(JOB_HEAD);
    tail.copy_from_slice(JOB_TAIL);
    let (number, sent) = digits.split_at_mut(NIBBLES);
    put_hex(number, stamp.number);
    put_hex(sent, stamp.sent_nanos);
    job
}

/// The stamp of a job, if the job is one of ours, byte for byte.
#[inline]
pub fn stamp_of(job: &[u8]) -> Option<Stamp> {
    stamp_in(job.strip_prefix(JOB_HEAD)?.strip_suffix(JOB_TAIL)?)
}

/// The stamp in these digits, which a JobManager passes to the function.
#[inline]
pub fn stamp_in(digits: &[u8]) -> Option<Stamp> {
    let (number, sent) = digits.split_at_checked(NIBBLES).filter(|_| digits.len() == STAMP_DIGITS)?;
    Some(Stamp { number: number_in(number)?, sent_nanos: number_in(sent)? })
}

/// `REQUEST`: a job into [`QUEUE`], with no headers.
#[inline]
pub fn request<'a>(id: &'a Id, job: &'a [u8]) -> [&'a [u8]; 7] {
    [b"", VERSION, b"REQUEST", id, QUEUE, b"", job]
}

/// `INFORM`: a worker for [`QUEUE`].
pub fn inform(id: &Id) -> [&[u8]; 6] {
    [b"", VERSION, b"INFORM", id, QUEUES, b"worker"]
}

/// `READY`: one credit more.
#[inline]
pub fn ready(id: &Id) -> [&[u8]; 4] {
    [b"", VERSION, b"READY", id]
}

/// `REPLY`: the result of the request `of`.
#[inline]
pub fn reply<'a>(id: &'a Id, of: &'a [u8]) -> [&'a [u8]; 6] {
    [b"", VERSION, b"REPLY", id, RESULT, of]
}

/// `HEARTBEAT`, with the time in Unix seconds as text.
pub fn heartbeat<'a>(id: &'a Id, time: &'a [u8]) -> [&'a [u8]; 5] {
    [b"", VERSION, b"HEARTBEAT", id, time]
}

/// An administrative request, `STATUS` for instance.
pub fn question<'a>(id: &'a Id, command: &'a str) -> [&'a [u8]; 4] {
    [b"", VERSION, command.as_bytes(), id]
}

/// A message of a server to a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said<'a> {
    /// The server has registered the worker.
    Ack {
        /// The identifier of its `INFORM`.
        of: &'a [u8],
    },
    /// The server's heartbeat.
    Heartbeat {
        /// The server's time.
        time: &'a [u8],
    },
    /// A job to do.
    Request {
        /// The client's own identifier.
        id: &'a [u8],
        /// The queue it was sent to.
        queue: &'a [u8],
        /// The client's job.
        job: &'a [u8],
    },
    /// For a client, the acknowledgement of its request; for an administrator, the answer.
    Reply {
        /// The identifier of the request; JSON.
        text: &'a [u8],
    },
}

impl<'a> Said<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// [`Error::Protocol`] for any other message, and for a wrong number of frames.
    #[inline]
    pub fn read(message: &'a Message) -> Result<Self, Error> {
        let mut parts = message.parts();
        let head = [parts.next(), parts.next(), parts.next(), parts.next()];
        let body = [parts.next(), parts.next(), parts.next()];
        let known = match (head, body, parts.next()) {
            ([Some(b""), Some(VERSION), Some(command), Some(id)], body, None) => match (command, body) {
                (b"REQUEST", [Some(queue), Some(_), Some(job)]) => Some(Said::Request { id, queue, job }),
                (b"REPLY", [Some(text), None, None]) => Some(Said::Reply { text }),
                (b"HEARTBEAT", [Some(time), None, None]) => Some(Said::Heartbeat { time }),
                (b"ACK", [Some(of), None, None]) => Some(Said::Ack { of }),
                _ => None,
            },
            _ => None,
        };
        known.ok_or_else(|| unexpected(message))
    }
}

#[cold]
fn unexpected(message: &Message) -> Error {
    let parts: Vec<String> = message.parts().take(5).map(|part| part.escape_ascii().to_string()).collect();
    Error::Protocol(format!("a message of {} parts: {}", message.parts().len(), parts.join(" | ")))
}

/// The last lower-case digits, as many as `out` has room for.
#[inline]
fn put_hex(out: &mut [u8], value: u64) {
    let mut left = value;
    for place in out.iter_mut().rev() {
        let nibble = u8::try_from(left & 15).unwrap_or(0);
        *place = if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
        left >>= 4;
    }
}

#[inline]
fn number_in(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |value, digit| {
        let nibble = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(nibble))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_job_is_json_that_names_its_function() {
        let job = job_of(Stamp { number: 0x1f, sent_nanos: 0xabc });
        let value: serde_json::Value = serde_json::from_slice(&job).unwrap();
        assert_eq!(value[0], "run");
        assert_eq!((&value[1]["path"], &value[1]["callable"]), (&"windlass_tasks".into(), &"done".into()));
        assert_eq!(value[1]["args"][0], "000000000000001f0000000000000abc");
    }

    #[test]
    fn identifiers_are_uuids_and_differ() {
        let mut rng = Random::new(3);
        let (one, other) = (id_of(&mut rng, 0x0123_4567_89ab_cdef), id_of(&mut rng, 0x0123_4567_89ab_cdef));
        assert_ne!(one, other);
        let text = std::str::from_utf8(&one).unwrap();
        assert_eq!(text.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{text}");
        assert!(text.ends_with("-0123-456789abcdef"), "{text}");
    }

    #[test]
    fn messages_are_read() {
        type Row<'a> = (&'a str, &'a [&'a [u8]], Option<Said<'a>>);
        let table: [Row<'_>; 11] = [
            ("ack", &[b"", VERSION, b"ACK", b"i", b"m"], Some(Said::Ack { of: b"m" })),
            ("heartbeat", &[b"", VERSION, b"HEARTBEAT", b"i", b"1.5"], Some(Said::Heartbeat { time: b"1.5" })),
            (
                "request",
                &[b"", VERSION, b"REQUEST", b"i", b"q", b"reply-requested", b"{}"],
                Some(Said::Request { id: b"i", queue: b"q", job: b"{}" }),
            ),
            ("reply", &[b"", VERSION, b"REPLY", b"i", b"m"], Some(Said::Reply { text: b"m" })),
            ("a result", &[b"", VERSION, b"REPLY", b"i", b"{}", b"m"], None),
            ("no headers", &[b"", VERSION, b"REQUEST", b"i", b"q", b"{}"], None),
            ("a frame more", &[b"", VERSION, b"REQUEST", b"i", b"q", b"", b"{}", b""], None),
            ("goodbye", &[b"", VERSION, b"KBYE", b"i"], None),
            ("no delimiter", &[b"x", VERSION, b"ACK", b"i", b"m"], None),
            ("another version", &[b"", b"eMQP/2.0", b"ACK", b"i", b"m"], None),
            ("nothing", &[b""], None),
        ];
        for (name, parts, expected) in table {
            let message = Message::new(parts.iter().copied());
            assert_eq!(Said::read(&message).ok(), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn stamps_survive(number: u64, sent_nanos: u64, at in 0..JOB_BYTES) {
            let stamp = Stamp { number, sent_nanos };
            let mut job = job_of(stamp);
            prop_assert_eq!(stamp_of(&job), Some(stamp));
            prop_assert_eq!(number_of(&id_of(&mut Random::new(1), number)), Some(number));
            job[at] ^= 1;
            prop_assert_ne!(stamp_of(&job), Some(stamp));
        }

        #[test]
        fn noise_never_panics(noise: Vec<u8>, parts: Vec<Vec<u8>>) {
            let _ = (stamp_of(&noise), stamp_in(&noise), number_of(&noise));
            let _ = Said::read(&Message::new(parts.iter().map(Vec::as_slice)));
        }
    }
}
