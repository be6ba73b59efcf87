//! Objects that are only written: INFO's, JOB's, and maps of text.
//!
//! INFO's object of queues may be long. It is written queue by queue, between the text before it and the text behind
//! it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use super::json;
use super::time::{clock_text, time_text};

/// The reply to INFO.
#[derive(Debug, Clone)]
pub struct InfoText<'a> {
    /// The time, in milliseconds since the epoch.
    pub now_ms: u64,
    /// Queues.
    pub queues: u64,
    /// Ready jobs of all queues.
    pub waiting: u64,
    /// Ready jobs of the queue `default`.
    pub waiting_in_default: u64,
    /// Dead jobs, and those removed from the dead-letter queue so far.
    pub dead: Chore,
    /// Jobs that wait for a retry, and retries so far.
    pub retries: Chore,
    /// Scheduled jobs, and those that have become due.
    pub scheduled: Chore,
    /// Leased jobs, and leases that have expired.
    pub working: Chore,
    /// Registered workers, and those whose heartbeats have stopped.
    pub workers: Chore,
    /// Failures so far.
    pub total_failures: u64,
    /// Jobs finished or failed so far.
    pub total_processed: u64,
    /// `server.description`.
    pub description: &'a str,
    /// The version of Faktory that the daemon reports.
    pub faktory_version: &'a str,
    /// The version of Windlass.
    pub windlass_version: &'a str,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Open connections.
    pub connections: usize,
    /// Commands since the start.
    pub command_count: u64,
    /// Resident memory of the process, in megabytes.
    pub used_memory_mb: u64,
    /// Conversion errors so far, of jobs of all protocols. Not on deployed servers.
    pub misfits: u64,
}

/// Counters of one of the server's timed tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chore {
    /// Jobs or workers that wait for it.
    pub size: u64,
    /// Jobs or workers it has handled.
    pub done: u64,
}

impl InfoText<'_> {
    /// The object up to its first queue. [`queue_member`] writes each queue.
    pub fn before_queues(&self) -> String {
        let (now, clock, waiting) = (
            time_text(self.now_ms),
            clock_text(self.now_ms),
            self.waiting_in_default,
        );
        format!(
            "{{\"now\":\"{now}\",\"server_utc_time\":\"{clock}\",\"faktory\":{{\"default_size\":{waiting},\"queues\":{{"
        )
    }

    /// The object behind its last queue.
    pub fn after_queues(&self) -> String {
        let set = |Chore { size, done }: &Chore| {
            format!("{{\"cycles\":0,\"enqueued\":{done},\"size\":{size},\"wall_time_sec\":0}}")
        };
        let watch = |Chore { size, done }: &Chore| format!("{{\"reaped\":{done},\"size\":{size}}}");
        let Self {
            dead,
            retries,
            scheduled,
            working,
            workers,
            ..
        } = self;
        let Self {
            queues,
            waiting,
            total_failures,
            total_processed,
            faktory_version,
            windlass_version,
            ..
        } = self;
        let Self {
            uptime_s,
            connections,
            command_count,
            used_memory_mb,
            misfits,
            ..
        } = self;
        let sizes = [dead, retries, scheduled, working].map(|chore| chore.size);
        let ([dead_size, retries_size, scheduled_size, working_size], description) =
            (sizes, quoted(self.description));
        let (dead, retries, scheduled) = (set(dead), set(retries), set(scheduled));
        let (working, workers) = (watch(working), watch(workers));
        format!(
            "}},\"sets\":{{\"dead\":{dead_size},\"retries\":{retries_size},\"scheduled\":{scheduled_size},\
             \"working\":{working_size}}},\"tasks\":{{\"Busy\":{working},\"Dead\":{dead},\"Retries\":{retries},\
             \"Scheduled\":{scheduled},\"Workers\":{workers}}},\"total_failures\":{total_failures},\
             \"total_processed\":{total_processed},\"total_enqueued\":{waiting},\"total_queues\":{queues}}},\
             \"server\":{{\"description\":{description},\"faktory_version\":\"{faktory_version}\",\
             \"windlass_version\":\"{windlass_version}\",\"uptime\":{uptime_s},\"connections\":{connections},\
             \"command_count\":{command_count},\"used_memory_mb\":{used_memory_mb},\"misfits\":{misfits}}}}}"
        )
    }
}

/// The object of `/health`: the counts of commands and of connections, and the server's description and version.
pub fn health_object(
    now_ms: u64,
    command_count: u64,
    connections: usize,
    description: &str,
    faktory_version: &str,
) -> String {
    let (now, description) = (time_text(now_ms), quoted(description));
    format!(
        "{{\"now\":\"{now}\",\"server\":{{\"command_count\":{command_count},\"connections\":{connections},\
         \"description\":{description},\"faktory_version\":\"{faktory_version}\"}}}}"
    )
}

fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    json::escape_into(text, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// A queue and its number of ready jobs.
pub fn queue_member(name: &[u8], jobs: u64) -> Vec<u8> {
    let mut text = Vec::with_capacity(name.len() + 8);
    json::escape_into(&String::from_utf8_lossy(name), &mut text);
    text.extend_from_slice(format!(":{jobs}").as_bytes());
    text
}

/// The reply to JOB GET.
#[derive(Debug, Clone, Serialize)]
pub struct JobText<'a> {
    /// The job's state.
    pub state: &'a str,
    /// Deliveries.
    pub attempts: u32,
    /// Failures.
    pub failures: u32,
    /// End of the lease in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_until: Option<String>,
    /// Protocols that can express the job, if others cannot; empty if unknown.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub waits_for: &'a [&'a str],
    /// The job's result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Cow<'a, str>>,
    /// The job as a worker would get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<&'a RawValue>,
}

/// A JSON object of times in seconds.
pub fn seconds_object(seconds: &BTreeMap<Bytes, f64>) -> Vec<u8> {
    object(seconds, |seconds, out| {
        out.extend_from_slice(seconds.to_string().as_bytes())
    })
}

/// A JSON object of texts.
pub fn texts_object(texts: &BTreeMap<Bytes, String>) -> Vec<u8> {
    object(texts, |text, out| json::escape_into(text, out))
}

fn object<V>(members: &BTreeMap<Bytes, V>, put: impl Fn(&V, &mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![b'{'];
    for (key, value) in members {
        out.extend((out.len() > 1).then_some(b','));
        json::escape_into(&String::from_utf8_lossy(key), &mut out);
        out.push(b':');
        put(value, &mut out);
    }
    out.push(b'}');
    out
}
