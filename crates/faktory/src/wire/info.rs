//! Objects that are only written: INFO's, JOB's, and maps of text.
//!
//! INFO's object of queues may be long. It is written queue by queue, between the text before it and the text behind
//! it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

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
        format!(
            "{{\"now\":\"{}\",\"server_utc_time\":\"{}\",\"faktory\":{{\"default_size\":{},\"queues\":{{",
            time_text(self.now_ms),
            clock_text(self.now_ms),
            self.waiting_in_default,
        )
    }

    /// The object behind its last queue.
    pub fn after_queues(&self) -> String {
        let set = |Chore { size, done }: &Chore| {
            format!("{{\"cycles\":0,\"enqueued\":{done},\"size\":{size},\"wall_time_sec\":0}}")
        };
        let watch = |Chore { size, done }: &Chore| format!("{{\"reaped\":{done},\"size\":{size}}}");
        let Self { dead, retries, scheduled, working, workers, .. } = self;
        let mut text = String::with_capacity(900);
        let _ = write!(
            text,
            "}},\"sets\":{{\"dead\":{},\"retries\":{},\"scheduled\":{},\"working\":{}}},\
             \"tasks\":{{\"Busy\":{},\"Dead\":{},\"Retries\":{},\"Scheduled\":{},\"Workers\":{}}},\
             \"total_failures\":{},\"total_processed\":{},\"total_enqueued\":{},\"total_queues\":{}}},",
            dead.size,
            retries.size,
            scheduled.size,
            working.size,
            watch(working),
            set(dead),
            set(retries),
            set(scheduled),
            watch(workers),
            self.total_failures,
            self.total_processed,
            self.waiting,
            self.queues,
        );
        let _ = write!(
            text,
            "\"server\":{{\"description\":{},\"faktory_version\":\"{}\",\"windlass_version\":\"{}\",\"uptime\":{},\
             \"connections\":{},\"command_count\":{},\"used_memory_mb\":{},\"misfits\":{}}}}}",
            quoted(self.description),
            self.faktory_version,
            self.windlass_version,
            self.uptime_s,
            self.connections,
            self.command_count,
            self.used_memory_mb,
            self.misfits,
        );
        text
    }
}

/// The object of `/health`: the counts of commands and of connections, and the server's description and version.
pub fn health_object(
    now_ms: u64,
    (command_count, connections): (u64, usize),
    description: &str,
    faktory_version: &str,
) -> String {
    format!(
        "{{\"now\":\"{}\",\"server\":{{\"command_count\":{command_count},\"connections\":{connections},\
         \"description\":{},\"faktory_version\":\"{faktory_version}\"}}}}",
        time_text(now_ms),
        quoted(description),
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
    object(seconds, |seconds, out| out.extend_from_slice(seconds.to_string().as_bytes()))
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
