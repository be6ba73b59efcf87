//! The text of a job: its stored form, and the form for workers.
//!
//! The stored form is a compact object with its fields in this order:
//!
//! ```text
//! retry, failure?, custom?, jid, queue, jobtype, created_at, at?, args, reserve_for?, backtrace?, priority?
//! ```
//!
//! `failure` is the producer's own; a failure that happened here replaces it. The form for workers adds the failure,
//! and `enqueued_at` behind `created_at`. The fixed order shows where, so the text need not be parsed again.
//! `priority`, which deployed servers drop, is last, so that globs written for deployed servers still match.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};
use serde_json::value::RawValue;

use super::json;
use super::reply;
use super::time::time_text;
use super::unit::Unit;

const FAILURE: &[u8] = b",\"failure\":";
const JOBTYPE: &[u8] = b",\"jobtype\":";

/// The jobtype in a stored text or in a template; `None` if the text is in neither form.
pub fn jobtype_of(text: &[u8]) -> Option<Cow<'_, str>> {
    let mut at = skip(text, 0, b"{\"retry\":")?;
    for key in [FAILURE, b",\"custom\":", b",\"jid\":"] {
        at = skip(text, at, key).unwrap_or(at);
    }
    let begin = skip(text, at, b",\"queue\":")?;
    let end = skip(text, begin, JOBTYPE)?;
    let quoted = text.get(begin + JOBTYPE.len()..end)?;
    let inner = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    match inner.contains(&b'\\') {
        true => serde_json::from_slice(quoted).ok().map(Cow::Owned),
        false => std::str::from_utf8(inner).ok().map(Cow::Borrowed),
    }
}

/// A job's text, and the positions of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text<'a> {
    body: &'a [u8],
    /// Where a failure goes.
    failure_at: usize,
    /// End of the producer's own failure.
    failure_end: usize,
    /// Where `enqueued_at` goes.
    enqueued_at: usize,
    /// The jobtype, in quotes.
    jobtype: &'a [u8],
}

/// A failure as a job's text shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureText<'a> {
    /// Time of the first failure, in milliseconds since the epoch.
    pub failed_at_ms: u64,
    /// Time of the next retry, in milliseconds since the epoch.
    pub next_at_ms: Option<u64>,
    /// The error message.
    pub message: Cow<'a, str>,
    /// The class of the error.
    pub errtype: Cow<'a, str>,
    /// Lines of a stack trace.
    pub backtrace: Vec<Cow<'a, str>>,
    /// Retries that have failed.
    pub retry_count: i64,
    /// Retries that are left.
    pub remaining: i64,
}

impl<'a> Text<'a> {
    /// The stored text of a job that [`Unit::judge`] has accepted. `created_at` is the default for producers that omit
    /// it.
    pub fn of(unit: &Unit<'_>, created_at: &str) -> Vec<u8> {
        let args = unit.args.unwrap_or("[]");
        let custom = unit.custom.unwrap_or_default();
        let mut out = Vec::with_capacity(
            160 + args.len() + custom.len() + unit.jid.len() + unit.jobtype.len(),
        );
        out.extend_from_slice(b"{\"retry\":");
        put_int(unit.retry, &mut out);
        if let Some(failure) = unit.failure {
            out.extend_from_slice(FAILURE);
            put_failure(failure, &mut out);
        }
        if let Some(custom) = unit.custom {
            out.extend_from_slice(b",\"custom\":");
            json::compact_into(custom, &mut out);
        }
        if !unit.jid.is_empty() {
            put_text("jid", &unit.jid, &mut out);
        }
        put_text("queue", &unit.queue, &mut out);
        put_text("jobtype", &unit.jobtype, &mut out);
        let created_at = if unit.created_at.is_empty() {
            created_at
        } else {
            &unit.created_at
        };
        if !created_at.is_empty() {
            put_text("created_at", created_at, &mut out);
        }
        if !unit.at.is_empty() {
            put_text("at", &unit.at, &mut out);
        }
        out.extend_from_slice(b",\"args\":");
        json::compact_into(args, &mut out);
        let priority = unit.priority.map_or(0, i64::from);
        for (key, value) in [
            ("reserve_for", unit.reserve_for),
            ("backtrace", unit.backtrace),
            ("priority", priority),
        ] {
            if value != 0 {
                put_key(key, &mut out);
                put_int(value, &mut out);
            }
        }
        out.push(b'}');
        out
    }

    /// The stored text of a recurring job's template: see [`super::run_text`].
    pub fn template(unit: &Unit<'_>) -> Vec<u8> {
        Self::of(unit, "")
    }

    /// The parts of a stored text. `None` if it is not in the stored form.
    pub fn new(body: &'a [u8]) -> Option<Self> {
        let mut at = skip(body, 0, b"{\"retry\":")?;
        let failure_at = at;
        at = skip(body, at, FAILURE).unwrap_or(at);
        let failure_end = at;
        at = skip(body, at, b",\"custom\":").unwrap_or(at);
        at = skip(body, at, b",\"jid\":")?;
        at = skip(body, at, b",\"queue\":")?;
        let jobtype_at = at;
        at = skip(body, at, JOBTYPE)?;
        let jobtype = body.get(jobtype_at + JOBTYPE.len()..at)?;
        let enqueued_at = skip(body, at, b",\"created_at\":").unwrap_or(at);
        Some(Self {
            body,
            failure_at,
            failure_end,
            enqueued_at,
            jobtype,
        })
    }

    /// Whether the job has this type.
    pub fn has_jobtype(&self, jobtype: &str) -> bool {
        let mut quoted = Vec::new();
        json::escape_into(jobtype, &mut quoted);
        self.jobtype == quoted
    }

    /// The stored form.
    pub const fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Appends the form for workers as a bulk string.
    pub fn deliver(
        &self,
        failure: Option<&FailureText<'_>>,
        enqueued_at_ms: Option<u64>,
        out: &mut BytesMut,
    ) {
        let parts = self.parts(failure, enqueued_at_ms);
        let parts = parts.each();
        let bytes = parts.iter().map(|part| part.len()).sum();
        out.reserve(bytes + 24);
        reply::bulk_head(bytes, out);
        parts.iter().for_each(|part| out.extend_from_slice(part));
        out.put_slice(b"\r\n");
    }

    /// The form for workers.
    pub fn whole(&self, failure: Option<&FailureText<'_>>, enqueued_at_ms: Option<u64>) -> Vec<u8> {
        self.parts(failure, enqueued_at_ms).each().concat()
    }

    /// Time of the first failure according to the producer, in quotes.
    fn own_failed_at(&self) -> Option<&'a [u8]> {
        let own = self
            .body
            .get(self.failure_at..self.failure_end)?
            .strip_prefix(FAILURE)?;
        let own = own.strip_prefix(b"{\"failed_at\":")?;
        own.get(..json::value_end(own))
            .filter(|text| text.len() > 2)
    }

    fn parts(&self, failure: Option<&FailureText<'_>>, enqueued_at_ms: Option<u64>) -> Parts<'a> {
        let own = if failure.is_some() {
            self.failure_end
        } else {
            self.failure_at
        };
        let between = |from: usize, to: usize| self.body.get(from..to).unwrap_or_default();
        Parts {
            head: between(0, self.failure_at),
            failure: failure
                .map(|failure| failure.member(self.own_failed_at()))
                .unwrap_or_default(),
            middle: between(own, self.enqueued_at),
            enqueued_at: enqueued_at_ms
                .map(|ms| format!(",\"enqueued_at\":\"{}\"", time_text(ms)))
                .unwrap_or_default(),
            tail: between(self.enqueued_at, self.body.len()),
        }
    }
}

struct Parts<'a> {
    head: &'a [u8],
    failure: Vec<u8>,
    middle: &'a [u8],
    enqueued_at: String,
    tail: &'a [u8],
}

impl Parts<'_> {
    fn each(&self) -> [&[u8]; 5] {
        [
            self.head,
            &self.failure,
            self.middle,
            self.enqueued_at.as_bytes(),
            self.tail,
        ]
    }
}

impl FailureText<'_> {
    /// The member with its key and a comma before it. If the job came with a failure, `own_failed_at` is the time of
    /// its first failure.
    fn member(&self, own_failed_at: Option<&[u8]>) -> Vec<u8> {
        let mut out = [FAILURE, b"{\"failed_at\":"].concat();
        match own_failed_at {
            Some(quoted) => out.extend_from_slice(quoted),
            None => json::escape_into(&time_text(self.failed_at_ms), &mut out),
        }
        if let Some(next_at) = self.next_at_ms {
            put_text("next_at", &time_text(next_at), &mut out);
        }
        for (key, text) in [("message", &self.message), ("errtype", &self.errtype)] {
            if !text.is_empty() {
                put_text(key, text, &mut out);
            }
        }
        if !self.backtrace.is_empty() {
            put_key("backtrace", &mut out);
            let mut before = b'[';
            for line in &self.backtrace {
                out.push(before);
                json::escape_into(line, &mut out);
                before = b',';
            }
            out.push(b']');
        }
        put_key("retry_count", &mut out);
        put_int(self.retry_count, &mut out);
        put_key("remaining", &mut out);
        put_int(self.remaining, &mut out);
        out.push(b'}');
        out
    }
}

/// The position behind a key and its value.
pub(super) fn skip(body: &[u8], at: usize, key: &[u8]) -> Option<usize> {
    let value = body.get(at..)?.strip_prefix(key)?;
    Some(at + key.len() + json::value_end(value))
}

/// A producer's failure: the known fields, in the order of deployed servers. It must be well formed.
fn put_failure(failure: &str, out: &mut Vec<u8>) {
    const FIELDS: [&str; 7] = [
        "failed_at",
        "next_at",
        "message",
        "errtype",
        "backtrace",
        "retry_count",
        "remaining",
    ];
    let found = json::members(failure, &FIELDS).unwrap_or_default();
    let mut before = b'{';
    for (key, value) in FIELDS.iter().zip(found) {
        let always = match *key {
            "failed_at" => Some("\"\""),
            "retry_count" | "remaining" => Some("0"),
            _ => None,
        };
        let Some(value) = value.map(RawValue::get).or(always) else {
            continue;
        };
        if always.is_none() && matches!(value, "\"\"" | "[]") {
            continue;
        }
        out.push(before);
        out.push(b'"');
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(b"\":");
        json::compact_into(value, out);
        before = b',';
    }
    out.push(b'}');
}

fn put_key(key: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

pub(super) fn put_text(key: &str, text: &str, out: &mut Vec<u8>) {
    put_key(key, out);
    json::escape_into(text, out);
}

fn put_int(number: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
