//! A row: one end of one job.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use windlass_engine::{Attempts, Ended, Ending, Excerpt, Failure, JobId, Protocol};

use crate::Error;
use crate::file_id::RowId;
use crate::shelf::{Columns, Value, number};

/// A row of the history, as a question finds it. Times are milliseconds since 1970, by the wall clock. Bytes are as the
/// client sent them.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its place, by which it can be asked for again.
    pub id: RowId,
    /// The job's number.
    pub job: JobId,
    /// How it ended.
    pub ending: Ending,
    /// When.
    pub ended_at: u64,
    /// Its queue.
    pub queue: Bytes,
    /// The protocol of its producer, by name.
    pub protocol: Box<str>,
    /// The producer's public name for it; empty: none.
    pub name: Bytes,
    /// Its unique id; empty: none.
    pub unique: Bytes,
    /// What it calls; empty: its queue, or not known.
    pub kind: Bytes,
    /// Its key in the policy of its queue; empty: none.
    pub key: Bytes,
    /// When it was pushed, if that is known.
    pub pushed_at: Option<u64>,
    /// The time that its producer set for it.
    pub due_at: Option<u64>,
    /// When it was last ready.
    pub ready_at: u64,
    /// When its last worker got it.
    pub started_at: Option<u64>,
    /// The address of its producer; empty: not known.
    pub producer: Box<str>,
    /// The name of its last worker; empty: none.
    pub worker: Bytes,
    /// The address of its last worker; empty: not known.
    pub worker_address: Box<str>,
    /// The protocol of its last worker, by name; empty: not known.
    pub worker_protocol: Box<str>,
    /// How many times it was handed out.
    pub deliveries: u32,
    /// How many times it failed.
    pub failures: u32,
    /// How many submits became this job.
    pub submits: u32,
    /// The batch in which it is.
    pub batch: Option<JobId>,
    /// The schedule that made it.
    pub schedule: Option<JobId>,
    /// The ended job that was run again as this one.
    pub again_of: Option<JobId>,
    /// The class of its last error; empty: none.
    pub error: Bytes,
    /// The message of its last error.
    pub message: Bytes,
    /// The stack trace of its last error, a line each.
    pub backtrace: Bytes,
    /// Its attempts that did not succeed, the oldest first.
    pub attempts: Vec<Attempt>,
    /// Its last progress: done, and of how much.
    pub progress: Option<(u32, u32)>,
    /// The first bytes of its body, if its queue keeps them.
    pub body: Option<Excerpt>,
    /// The first bytes of its result, if its queue keeps them.
    pub result: Option<Excerpt>,
    /// The first bytes of what its worker sent, if its queue keeps them.
    pub output: Option<Excerpt>,
    /// The name of its queue's namespace; empty: that without a name.
    pub namespace: Bytes,
}

impl Row {
    /// Bytes of what was kept of its body, result and output.
    pub(crate) fn kept_bytes(&self) -> usize {
        let kept = [&self.body, &self.result, &self.output];
        kept.into_iter()
            .flatten()
            .map(|kept| kept.bytes.len())
            .sum()
    }
}

/// An attempt that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Attempt {
    /// Which delivery it was, from 1.
    pub number: u32,
    /// The worker's name, or else its address.
    pub worker: String,
    /// When the worker got the job, in milliseconds since 1970.
    pub began_at: u64,
    /// When it had it no more.
    pub ended_at: u64,
    /// How it ended: failed, lost, timed out, released, taken back, unconvertible.
    pub end: String,
    /// The class of the error; empty: none.
    pub error: String,
    /// The message of the error.
    pub message: String,
}

/// The columns of the table `ended`, in order. The first is the number of the row.
pub const COLUMNS: &str = "n, job, ending, ended_at, queue, protocol, name, unique_id, kind, key, pushed_at, due_at, \
    ready_at, started_at, producer, worker, worker_address, worker_protocol, deliveries, failures, submits, batch, schedule, again_of, \
    error, message, backtrace, attempts, progress_done, progress_of, body, body_bytes, result, result_bytes, output, \
    output_bytes, namespace";

/// How many columns there are beside the number of the row.
pub const VALUES: usize = 36;

/// The values of a row that is written, in the order of [`COLUMNS`].
pub fn values(row: &Ended) -> [Value<'_>; VALUES] {
    let origin = row.origin.as_deref();
    let worker = row.worker.as_deref();
    let failure = row.failure.as_deref();
    let protocol = worker.and_then(|worker| worker.protocol);
    let progress = row.progress.as_ref();
    [
        maybe(Some(row.job.0)),
        text(row.ending.name().as_bytes()),
        maybe(Some(row.ended_at.0)),
        text(&row.queue),
        text(row.protocol.name().as_bytes()),
        text_or_null(&row.name),
        text_or_null(&row.unique),
        text_or_null(&row.kind),
        text_or_null(&row.key),
        maybe(origin.map(|origin| origin.pushed_at.0)),
        maybe(origin.and_then(|origin| origin.due_at).map(|at| at.0)),
        maybe(Some(row.ready_at.0)),
        maybe(row.started_at.map(|at| at.0)),
        text_or_null(origin.map_or(&[], |origin| origin.producer.as_bytes())),
        text_or_null(worker.map_or(&[], |worker| &worker.name)),
        text_or_null(worker.map_or(&[], |worker| worker.address.as_bytes())),
        text_or_null(protocol.map_or(&[], |it: Protocol| it.name().as_bytes())),
        maybe(Some(row.deliveries.into())),
        maybe(Some(row.failures.into())),
        maybe(Some(row.submits.into())),
        maybe(row.batch.map(|id| id.0)),
        maybe(origin.and_then(|origin| origin.schedule).map(|id| id.0)),
        maybe(origin.and_then(|origin| origin.again_of).map(|id| id.0)),
        text_or_null(failure.map_or(&[], |failure| &failure.kind)),
        text_or_null(failure.map_or(&[], |failure| &failure.message)),
        failure.map_or(Value::Null, backtrace),
        row.attempts.as_deref().map_or(Value::Null, attempts),
        maybe(progress.map(|progress| progress.numerator.into())),
        maybe(progress.map(|progress| progress.denominator.into())),
        excerpt(row.body.as_ref()),
        maybe(row.body.as_ref().map(|it| it.len)),
        excerpt(row.result.as_ref()),
        maybe(row.result.as_ref().map(|it| it.len)),
        excerpt(row.output.as_ref()),
        maybe(row.output.as_ref().map(|it| it.len)),
        text_or_null(&row.namespace),
    ]
}

fn maybe(value: Option<u64>) -> Value<'static> {
    value.map_or(Value::Null, |value| Value::Number(number(value)))
}

const fn text(bytes: &[u8]) -> Value<'_> {
    Value::Text(Cow::Borrowed(bytes))
}

const fn text_or_null(bytes: &[u8]) -> Value<'_> {
    if bytes.is_empty() {
        Value::Null
    } else {
        text(bytes)
    }
}

fn excerpt(kept: Option<&Excerpt>) -> Value<'_> {
    kept.map_or(Value::Null, |kept| text(&kept.bytes))
}

fn backtrace(failure: &Failure) -> Value<'static> {
    let lines: Vec<u8> = failure.backtrace.join(&b'\n');
    if lines.is_empty() {
        Value::Null
    } else {
        Value::Text(Cow::Owned(lines))
    }
}

/// The attempts as JSON, which databases and other tools can look into.
fn attempts(all: &Attempts) -> Value<'static> {
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let attempts: Vec<Attempt> = all
        .iter()
        .map(|attempt| {
            let error = attempt.error.as_deref();
            Attempt {
                number: attempt.number,
                worker: shown(&attempt.worker),
                began_at: attempt.began_at.0,
                ended_at: attempt.ended_at.0,
                end: attempt.end.name().to_owned(),
                error: error.map_or_else(String::new, |error| shown(&error.kind)),
                message: error.map_or_else(String::new, |error| shown(&error.message)),
            }
        })
        .collect();
    serde_json::to_vec(&attempts).map_or(Value::Null, |json| Value::Text(Cow::Owned(json)))
}

/// Reads a row of [`COLUMNS`].
pub(crate) fn read(row: &dyn Columns, at: impl Fn(i64) -> RowId) -> Result<Row, Error> {
    let id = |name| Ok::<_, Error>(time(row, name)?.map(JobId));
    let attempts = row.bytes("attempts")?;
    let ending = name(row, "ending")?;
    let done = row.number("progress_done")?.map(small);
    let of = row.number("progress_of")?.map(small);
    Ok(Row {
        id: at(row.number("n")?.unwrap_or_default()),
        job: id("job")?.unwrap_or(JobId(0)),
        ending: Ending::named(&ending).unwrap_or(Ending::Deleted),
        ended_at: time(row, "ended_at")?.unwrap_or_default(),
        queue: bytes(row, "queue")?,
        protocol: name(row, "protocol")?,
        name: bytes(row, "name")?,
        unique: bytes(row, "unique_id")?,
        kind: bytes(row, "kind")?,
        key: bytes(row, "key")?,
        pushed_at: time(row, "pushed_at")?,
        due_at: time(row, "due_at")?,
        ready_at: time(row, "ready_at")?.unwrap_or_default(),
        started_at: time(row, "started_at")?,
        producer: name(row, "producer")?,
        worker: bytes(row, "worker")?,
        worker_address: name(row, "worker_address")?,
        worker_protocol: name(row, "worker_protocol")?,
        deliveries: count(row, "deliveries")?,
        failures: count(row, "failures")?,
        submits: count(row, "submits")?,
        batch: id("batch")?,
        schedule: id("schedule")?,
        again_of: id("again_of")?,
        error: bytes(row, "error")?,
        message: bytes(row, "message")?,
        backtrace: bytes(row, "backtrace")?,
        attempts: attempts
            .and_then(|json| serde_json::from_slice(&json).ok())
            .unwrap_or_default(),
        progress: done.zip(of),
        body: kept(row, "body", "body_bytes")?,
        result: kept(row, "result", "result_bytes")?,
        output: kept(row, "output", "output_bytes")?,
        namespace: bytes(row, "namespace")?,
    })
}

fn small(value: i64) -> u32 {
    u32::try_from(value).unwrap_or_default()
}

fn count(row: &dyn Columns, column: &str) -> Result<u32, Error> {
    Ok(row.number(column)?.map(small).unwrap_or_default())
}

fn time(row: &dyn Columns, column: &str) -> Result<Option<u64>, Error> {
    let value = row.number(column)?;
    Ok(value.map(|value| u64::try_from(value).unwrap_or_default()))
}

fn name(row: &dyn Columns, column: &str) -> Result<Box<str>, Error> {
    let bytes = row.bytes(column)?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&bytes).into())
}

fn bytes(row: &dyn Columns, column: &str) -> Result<Bytes, Error> {
    Ok(row.bytes(column)?.unwrap_or_default())
}

fn kept(row: &dyn Columns, column: &str, len: &str) -> Result<Option<Excerpt>, Error> {
    let len = time(row, len)?;
    let Some(len) = len else { return Ok(None) };
    let bytes = bytes(row, column)?;
    Ok(Some(Excerpt { bytes, len }))
}
