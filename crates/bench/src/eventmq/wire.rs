//! The few messages that a load sends and expects, without the transport. No allocation. Deliberately shares no code with the
//! daemon's codec.
//!
//! Spec: EventMQ's `protocol.rst`, "Global Frames"; `REPLY` and the goodbye as in the released programs.

use windlass_zmtp::Message;

use crate::error::Error;
use crate::stamp::{STAMP_DIGITS, Stamp, UNIQUE_BYTES};

/// The length of every job.
pub(super) const JOB_BYTES: usize = JOB_HEAD.len() + STAMP_DIGITS + JOB_TAIL.len();
/// The queue of all jobs: the released router's default for workers without queues.
pub(super) const QUEUE: &[u8] = b"default";

const VERSION: &[u8] = b"eMQP/1.0";
/// A worker's queues with their weights.
const QUEUES: &[u8] = br#"[[10, "default"]]"#;
const RESULT: &[u8] = br#"{"value": null}"#;
/// A job calls `windlass_tasks.done` with its stamp.
const JOB_HEAD: &[u8] = br#"["run", {"callable": "done", "path": "windlass_tasks", "args": [""#;
const JOB_TAIL: &[u8] = br#""], "kwargs": {}, "class_args": [], "class_kwargs": {}}]"#;
/// A message's identifier is a UUID as text, as stock clients have it.
pub(super) type Id = [u8; UNIQUE_BYTES];

/// The job with this stamp.
#[inline]
pub(super) fn job_of(stamp: Stamp) -> [u8; JOB_BYTES] {
    let mut job = [0; JOB_BYTES];
    let (head, rest) = job.split_at_mut(JOB_HEAD.len());
    let (digits, tail) = rest.split_at_mut(STAMP_DIGITS);
    head.copy_from_slice(JOB_HEAD);
    digits.copy_from_slice(&stamp.to_digits());
    tail.copy_from_slice(JOB_TAIL);
    job
}

/// The stamp of a job, if the job is one of ours, byte for byte.
#[inline]
pub(super) fn stamp_of(job: &[u8]) -> Option<Stamp> {
    Stamp::of_digits(job.strip_prefix(JOB_HEAD)?.strip_suffix(JOB_TAIL)?)
}

/// `REQUEST`: a job into [`QUEUE`], with no headers.
#[inline]
pub(super) fn request<'a>(id: &'a Id, job: &'a [u8]) -> [&'a [u8]; 7] {
    [b"", VERSION, b"REQUEST", id, QUEUE, b"", job]
}

/// `INFORM`: a worker for [`QUEUE`].
pub(super) fn inform(id: &Id) -> [&[u8]; 6] {
    [b"", VERSION, b"INFORM", id, QUEUES, b"worker"]
}

/// `READY`: one credit more.
#[inline]
pub(super) fn ready(id: &Id) -> [&[u8]; 4] {
    [b"", VERSION, b"READY", id]
}

/// `REPLY`: the result of the request `of`.
#[inline]
pub(super) fn reply<'a>(id: &'a Id, of: &'a [u8]) -> [&'a [u8]; 6] {
    [b"", VERSION, b"REPLY", id, RESULT, of]
}

/// `HEARTBEAT`, with the time in Unix seconds as text.
pub(super) fn heartbeat<'a>(id: &'a Id, time: &'a [u8]) -> [&'a [u8]; 5] {
    [b"", VERSION, b"HEARTBEAT", id, time]
}

/// An administrative request, `STATUS` for instance.
pub(super) fn question<'a>(id: &'a Id, command: &'a str) -> [&'a [u8]; 4] {
    [b"", VERSION, command.as_bytes(), id]
}

/// A message of a server to a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Incoming<'a> {
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

impl<'a> Incoming<'a> {
    /// Reads a message. [`Error::Protocol`] for any other message, and for a wrong number of frames.
    #[inline]
    pub(super) fn read(message: &'a Message) -> Result<Self, Error> {
        let mut parts = message.parts();
        let head = [parts.next(), parts.next(), parts.next(), parts.next()];
        let body = [parts.next(), parts.next(), parts.next()];
        let known = match (head, body, parts.next()) {
            ([Some(b""), Some(VERSION), Some(command), Some(id)], body, None) => match (command, body) {
                (b"REQUEST", [Some(queue), Some(_), Some(job)]) => Some(Incoming::Request { id, queue, job }),
                (b"REPLY", [Some(text), None, None]) => Some(Incoming::Reply { text }),
                (b"HEARTBEAT", [Some(time), None, None]) => Some(Incoming::Heartbeat { time }),
                (b"ACK", [Some(of), None, None]) => Some(Incoming::Ack { of }),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_json_that_names_its_function() {
        let job = job_of(Stamp { number: 0x1f, sent_nanos: 0xabc });
        let value: serde_json::Value = serde_json::from_slice(&job).unwrap();
        assert_eq!(value[0], "run");
        assert_eq!((&value[1]["path"], &value[1]["callable"]), (&"windlass_tasks".into(), &"done".into()));
        assert_eq!(value[1]["args"][0], "000000000000001f0000000000000abc");
        assert_eq!(stamp_of(&job), Some(Stamp { number: 0x1f, sent_nanos: 0xabc }));
        for at in 0..job.len() {
            let mut spoilt = job;
            spoilt[at] ^= 1;
            assert_ne!(stamp_of(&spoilt), stamp_of(&job), "{at}");
        }
    }

    #[test]
    fn messages_are_read() {
        type Row<'a> = (&'a str, &'a [&'a [u8]], Option<Incoming<'a>>);
        let table: [Row<'_>; 11] = [
            ("ack", &[b"", VERSION, b"ACK", b"i", b"m"], Some(Incoming::Ack { of: b"m" })),
            ("heartbeat", &[b"", VERSION, b"HEARTBEAT", b"i", b"1.5"], Some(Incoming::Heartbeat { time: b"1.5" })),
            (
                "request",
                &[b"", VERSION, b"REQUEST", b"i", b"q", b"reply-requested", b"{}"],
                Some(Incoming::Request { id: b"i", queue: b"q", job: b"{}" }),
            ),
            ("reply", &[b"", VERSION, b"REPLY", b"i", b"m"], Some(Incoming::Reply { text: b"m" })),
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
            assert_eq!(Incoming::read(&message).ok(), expected, "{name}");
        }
    }
}
