//! The conditions of a filter besides state, queue, protocol, ID and name, and the sort orders of jobs.
//!
//! A condition is data, so that a filter can be sent to an engine in another process. Only a job's protocol
//! can interpret the body, so the engine delegates that to a [`JobReader`].

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use memchr::memchr2_iter;
use serde::{Deserialize, Serialize};

use crate::error_group::error_group;
use crate::glob::{Glob, fits};
use crate::ids::{ClientId, Protocol, Timestamp};
use crate::jobs::{Holder, Job};
use crate::queues::KeySource;

/// The prefix of a body that is searched and read, in bytes. Reading more would delay other clients.
pub const BODY_READ_MAX: usize = 1 << 20;

/// A condition of a job in any state.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Condition {
    /// The producer gave it no public name.
    Unnamed,
    /// It has this public name. Unlike [`Filter::names`](crate::Filter::names), this leads to no job directly.
    Named(Bytes),
    /// It has this coalescing key.
    Keyed(Bytes),
    /// It became ready, or was created, at this time (wall clock) or before.
    ReadyUntil(Timestamp),
    /// The job became ready, or was created, at this time (wall clock) or later.
    ReadyFrom(Timestamp),
    /// The first [`BODY_READ_MAX`] bytes of the body contain these bytes, ignoring ASCII case.
    Body(Bytes),
    /// The kind or the message of the last failure contains these bytes, ignoring ASCII case. With a `*`,
    /// which matches any text, they must match `kind: message` completely.
    Failure(Bytes),
    /// It calls this ([`JobReader::calls`]).
    Calls {
        /// The name of the called function. With a `*`, which matches any text, ASCII case is ignored.
        name: Box<str>,
        /// If true, a job that calls a queue also matches if the queue has this name.
        or_queue: bool,
    },
    /// The job has this type in the job's protocol ([`JobReader::has_type`]).
    Type(Box<str>),
    /// This pattern matches the text of the job ([`JobReader::text`]).
    Text(Glob),
    /// The named worker has the job, with a time-bound lease.
    HeldBy(Bytes),
    /// This connection has the job, with a connection-bound lease.
    HeldOn(ClientId),
    /// The last failure belongs to this group ([`error_group`]); empty = the job has no failure.
    FailedLike(Box<str>),
    /// It is in the batch of this name, as a job or as a callback.
    InBatch(Bytes),
    /// The policy key of the job; empty for jobs without a key. Keys are stored by the queue, so
    /// [`Condition::holds`] cannot evaluate it.
    OfKey(Bytes),
    /// The kind of the job is exactly this: the function it calls ([`JobReader::calls`]), which may be the
    /// queue; empty if the body does not show it.
    OfKind(Bytes),
}

/// A sort order of jobs. Dead and done jobs are sorted by the time at which they finished, all others by ID.
/// Jobs selected by ID or name are listed oldest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Order {
    /// The last one first.
    Newest,
    /// The first one first.
    Oldest,
    /// The ready jobs of a queue in the order in which workers would take them if nothing else happened. A
    /// policy hides jobs that are blocked by another job of the same key, and only [`Order::NEXT_MAX`] jobs
    /// are predicted then.
    Next,
}

impl Order {
    /// Starts that are foreseen.
    pub const NEXT_MAX: u32 = 1_000;
}

/// A job with names that the job's data does not contain.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The job.
    pub job: &'a Job,
    /// The queue.
    pub queue: &'a [u8],
    /// The batch, if the job has one that is known.
    pub batch: Option<&'a [u8]>,
}

/// Interprets the bodies of jobs for the protocols. Pure functions of the job.
pub trait JobReader: Send + Sync + fmt::Debug {
    /// The function that a job calls, if the body shows it.
    fn calls<'a>(&self, job: &'a Job) -> Calls<'a>;

    /// Returns true if jobs of this protocol always call the queue, whatever the body contains.
    fn is_by_queue(&self, _protocol: Protocol) -> bool {
        false
    }

    /// Returns true if a job has this type. Always false for a protocol without types.
    fn has_type(&self, job: &Job, name: &str) -> bool;

    /// A job's text as a worker of the protocol would receive it, if the protocol has texts. The wall clock
    /// is ahead of the engine's time by `skew_ms`.
    fn text(&self, job: &Job, skew_ms: i64) -> Option<Vec<u8>>;

    /// The bytes that the producer sent, without the wrapping of the protocol. For a function call this is
    /// the first argument if it is text, and empty otherwise ([`KeySource::Prefix`], [`KeySource::Header`]).
    fn sent<'a>(&self, _protocol: Protocol, body: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(body)
    }

    /// The key at a JSON pointer in a job's body ([`KeySource::Args`], [`KeySource::Custom`]).
    fn key(&self, _protocol: Protocol, _body: &[u8], _at: &KeySource) -> Option<Vec<u8>> {
        None
    }
}

/// The function that a job calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Calls<'a> {
    /// This name.
    Named(Cow<'a, str>),
    /// The queue: the body is opaque bytes.
    Queue,
    /// The body does not show it.
    Unknown,
}

impl Condition {
    /// Returns true if the condition is about a job's body.
    pub const fn reads_body(&self) -> bool {
        matches!(
            self,
            Self::Body(_) | Self::Calls { .. } | Self::OfKind(_) | Self::Type(_) | Self::Text(_)
        )
    }

    /// Returns true if a job meets the condition. Conditions that need a reader are false without
    /// one.
    pub fn holds(
        &self,
        subject: Subject<'_>,
        skew_ms: i64,
        reader: Option<&dyn JobReader>,
    ) -> bool {
        let Subject { job, queue, batch } = subject;
        match self {
            Self::Unnamed => job.name().is_empty(),
            Self::Named(name) => job.name() == name,
            Self::Keyed(key) => job.key() == Some(&key[..]),
            Self::ReadyUntil(until) => job.ready_at <= *until,
            Self::ReadyFrom(from) => job.ready_at >= *from,
            Self::Body(text) => {
                contains(job.body().get(..BODY_READ_MAX).unwrap_or(job.body()), text)
            }
            Self::Failure(text) => job
                .extra
                .as_deref()
                .and_then(|extra| extra.failure.as_deref())
                .is_some_and(|failure| {
                    let parts = [&failure.kind[..], &failure.message[..]];
                    if !text.contains(&b'*') {
                        parts.into_iter().any(|part| contains(part, text))
                    } else if parts.iter().any(|part| part.is_empty()) {
                        is_like(&parts.concat(), text)
                    } else {
                        is_like(&parts.join(&b": "[..]), text)
                    }
                }),
            Self::Calls { name, or_queue } => {
                reader.is_some_and(|reader| match reader.calls(job) {
                    Calls::Named(called) => is_like(called.as_bytes(), name.as_bytes()),
                    Calls::Queue => *or_queue && is_like(queue, name.as_bytes()),
                    Calls::Unknown => false,
                })
            }
            Self::OfKind(kind) => reader.is_some_and(|reader| match reader.calls(job) {
                Calls::Named(called) => called.as_bytes() == kind,
                Calls::Queue => queue == kind,
                Calls::Unknown => kind.is_empty(),
            }),
            Self::Type(name) => reader.is_some_and(|reader| reader.has_type(job, name)),
            Self::Text(glob) => {
                let text = reader.and_then(|reader| reader.text(job, skew_ms));
                text.is_some_and(|text| glob.matches(&text))
            }
            Self::FailedLike(group) => {
                let failure = job
                    .extra
                    .as_deref()
                    .and_then(|extra| extra.failure.as_deref());
                failure.map(error_group).unwrap_or_default() == **group
            }
            Self::HeldBy(worker) => is_held(
                job,
                |it| matches!(it, Holder::Named(name) if **name == **worker),
            ),
            Self::HeldOn(client) => is_held(job, |it| *it == Holder::Connection(*client)),
            Self::InBatch(name) => batch == Some(&name[..]),
            Self::OfKey(_) => false,
        }
    }
}

fn is_held(job: &Job, by: impl FnOnce(&Holder) -> bool) -> bool {
    job.lease().is_some_and(|lease| by(&lease.holder))
}

/// Returns true if the bytes contain a text, ignoring ASCII case.
fn contains(bytes: &[u8], text: &[u8]) -> bool {
    let Some(first) = text.first() else {
        return true;
    };
    let begins = memchr2_iter(
        first.to_ascii_lowercase(),
        first.to_ascii_uppercase(),
        bytes,
    );
    let mut begins = begins.take_while(|at| bytes.len() - at >= text.len());
    begins.any(|at| {
        bytes
            .get(at..at + text.len())
            .is_some_and(|part| part.eq_ignore_ascii_case(text))
    })
}

/// Returns true if a name equals the pattern, or matches it if the pattern has a `*`, ignoring ASCII case.
fn is_like(name: &[u8], pattern: &[u8]) -> bool {
    if pattern.contains(&b'*') {
        fits(
            pattern,
            name,
            |own| *own == b'*',
            |own, byte| own.eq_ignore_ascii_case(&byte),
        )
    } else {
        name == pattern
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{JobId, Priority, Protocol, QueueId, Token};
    use crate::jobs::{Extra, Failure, JobState, Lease, OnExpiry, Payload, Retry, Unfit};

    /// Interprets a body as the type, and as the name of the called function unless it is empty.
    #[derive(Debug)]
    struct Plain;

    impl JobReader for Plain {
        fn calls<'a>(&self, job: &'a Job) -> Calls<'a> {
            let name = std::str::from_utf8(job.body());
            name.map_or(Calls::Unknown, |name| {
                if name.is_empty() {
                    Calls::Queue
                } else {
                    Calls::Named(name.into())
                }
            })
        }

        fn has_type(&self, job: &Job, name: &str) -> bool {
            job.body() == name.as_bytes()
        }

        fn text(&self, job: &Job, skew_ms: i64) -> Option<Vec<u8>> {
            Some([job.body(), skew_ms.to_string().as_bytes()].concat())
        }
    }

    fn job(key: Option<&[u8]>, name: &[u8], body: &[u8]) -> Job {
        let failure = Failure {
            kind: "IOError".into(),
            message: "no route".into(),
            ..Failure::default()
        };
        Job {
            id: JobId(1),
            queue: QueueId(0),
            protocol: Protocol::GEARMAN,
            priority: Priority::NORMAL,
            durable: true,
            rank: 1,
            state: JobState::Ready,
            ready_at: Timestamp(1_000),
            payload: Payload::copy(key, name, body),
            attempts: 0,
            failures: 1,
            retry: Retry::NONE,
            unfit: Unfit::NONE,
            extra: Some(Box::new(Extra {
                failure: Some(Box::new(failure)),
                ..Extra::default()
            })),
        }
    }

    #[test]
    fn conditions_hold() {
        let long = [vec![b'.'; BODY_READ_MAX], b"late".to_vec()].concat();
        let calls = |name: &str, or_queue| Condition::Calls {
            name: name.into(),
            or_queue,
        };
        let (plain, named, keyed) = (
            job(None, b"", b"cat"),
            job(None, b"jid", b"cat"),
            job(Some(b"k"), b"", b"cat"),
        );
        let held = |holder| {
            let lease = Lease::new(
                holder,
                Token(1),
                Timestamp(1_000),
                Timestamp::NEVER,
                OnExpiry::Fail,
            );
            Job {
                state: JobState::Leased(Box::new(lease)),
                ..plain.clone()
            }
        };
        let (by_name, on_connection) = (
            held(Holder::Named(b"w"[..].into())),
            held(Holder::Connection(ClientId(7))),
        );
        let table = [
            (Condition::HeldBy("w".into()), &by_name, true),
            (Condition::HeldBy("v".into()), &by_name, false),
            (Condition::HeldBy("".into()), &plain, false),
            (Condition::HeldBy("".into()), &on_connection, false),
            (Condition::HeldOn(ClientId(7)), &on_connection, true),
            (Condition::HeldOn(ClientId(8)), &on_connection, false),
            (Condition::HeldOn(ClientId(7)), &by_name, false),
            (Condition::InBatch("batch".into()), &plain, true),
            (Condition::InBatch("bat".into()), &plain, false),
            (Condition::Unnamed, &plain, true),
            (Condition::Unnamed, &named, false),
            (Condition::Named("jid".into()), &named, true),
            (Condition::Named("jid".into()), &plain, false),
            (Condition::Keyed("k".into()), &keyed, true),
            (Condition::Keyed("".into()), &plain, false),
            (Condition::ReadyUntil(Timestamp(1_000)), &plain, true),
            (Condition::ReadyUntil(Timestamp(999)), &plain, false),
            (Condition::ReadyFrom(Timestamp(1_000)), &plain, true),
            (Condition::ReadyFrom(Timestamp(1_001)), &plain, false),
            (Condition::Body("at".into()), &plain, true),
            (Condition::Body("AT".into()), &plain, true),
            (Condition::Body("ta".into()), &plain, false),
            (
                Condition::Body("late".into()),
                &job(None, b"", &long),
                false,
            ),
            (Condition::Failure("Err".into()), &plain, true),
            (
                Condition::FailedLike("IOError: no route".into()),
                &plain,
                true,
            ),
            (Condition::FailedLike("Error: no".into()), &plain, false),
            (Condition::Failure("ROUTE".into()), &plain, true),
            (Condition::Failure("Error no".into()), &plain, false),
            (
                Condition::Failure("Err".into()),
                &Job {
                    extra: None,
                    ..plain.clone()
                },
                false,
            ),
            (calls("cat", false), &plain, true),
            (calls("queue", true), &plain, false),
            (calls("queue", true), &job(None, b"", b""), true),
            (calls("que", true), &job(None, b"", b""), false),
            (calls("*EUE", true), &job(None, b"", b""), true),
            (calls("queue", false), &job(None, b"", b""), false),
            (calls("queue", true), &job(None, b"", b"\xff"), false),
            (Condition::OfKind("cat".into()), &plain, true),
            (Condition::OfKind("c*".into()), &plain, false),
            (Condition::OfKind("c*".into()), &job(None, b"", b"c*"), true),
            (Condition::OfKind("queue".into()), &plain, false),
            (
                Condition::OfKind("queue".into()),
                &job(None, b"", b""),
                true,
            ),
            (Condition::OfKind("".into()), &job(None, b"", b"\xff"), true),
            (Condition::OfKind("".into()), &plain, false),
            (Condition::Type("cat".into()), &plain, true),
            (Condition::Type("ca".into()), &plain, false),
            (Condition::Text(Glob::new(b"c?t7")), &plain, true),
            (Condition::Text(Glob::new(b"c?t")), &plain, false),
        ];
        for (condition, job, expected) in table {
            let subject = Subject {
                job,
                queue: b"queue",
                batch: Some(b"batch"),
            };
            assert_eq!(
                condition.holds(subject, 7, Some(&Plain)),
                expected,
                "{condition:?} {job:?}"
            );
            let needs_reader = condition.reads_body() && !matches!(condition, Condition::Body(_));
            assert_eq!(
                condition.holds(subject, 7, None),
                expected && !needs_reader,
                "without a reader: {condition:?}"
            );
        }
    }

    #[test]
    fn patterns_of_names() {
        let table = [
            ("WelcomeMail", "WelcomeMail", true),
            ("WelcomeMail", "welcomemail", false),
            ("WelcomeMail", "*", true),
            ("WelcomeMail", "welcome*", true),
            ("WelcomeMail", "*come*", true),
            ("WelcomeMail", "w*COME*l", true),
            ("WelcomeMail", "*l*m*l", true),
            ("WelcomeMail", "*mail*mail", false),
            ("WelcomeMail", "*come", false),
            ("aba", "ab*ba", false),
            ("", "*", true),
        ];
        for (name, pattern, expected) in table {
            assert_eq!(
                is_like(name.as_bytes(), pattern.as_bytes()),
                expected,
                "{name} {pattern}"
            );
        }
    }
}
