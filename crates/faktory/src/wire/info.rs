//! Objects that are only ever written: INFO's, and maps of text.
//!
//! INFO's object of queues may be long: it is written queue by queue, and the rest is what stands before and behind it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;

use super::json;
use super::time::{clock_text, time_text};

/// What INFO says.
#[derive(Debug, Clone)]
pub struct InfoText<'a> {
    /// The time.
    pub now_ms: u64,
    /// Queues.
    pub queues: u64,
    /// Jobs that wait in them.
    pub waiting: u64,
    /// Those in the queue `default`.
    pub waiting_in_default: u64,
    /// Jobs that are not tried again, and those that have been forgotten.
    pub dead: Chore,
    /// Jobs that will be, and those that were given another try.
    pub retries: Chore,
    /// Jobs whose time is to come, and those whose time has come.
    pub scheduled: Chore,
    /// Jobs being worked on, and those whose time for that ran out.
    pub working: Chore,
    /// Workers known, and those that were taken for dead.
    pub workers: Chore,
    /// Failures so far.
    pub total_failures: u64,
    /// Jobs that were worked on so far, with or without success.
    pub total_processed: u64,
    /// How the server calls itself.
    pub description: &'a str,
    /// The version of Faktory's that is spoken.
    pub faktory_version: &'a str,
    /// Our own.
    pub windlass_version: &'a str,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Connections open.
    pub connections: usize,
    /// Commands since the start.
    pub command_count: u64,
    /// Resident memory.
    pub used_memory_mb: u64,
    /// Jobs of all protocols that could not be put into the words of a worker's, ever. Deployed servers have no such thing.
    pub misfits: u64,
}

/// What the server does by itself when it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chore {
    /// How many wait for it.
    pub size: u64,
    /// To how many it was done.
    pub done: u64,
}

impl InfoText<'_> {
    /// The object up to its first queue, which [`queue_member`] writes like the others.
    #[must_use]
    pub fn before_queues(&self) -> String {
        format!(
            "{{\"now\":\"{}\",\"server_utc_time\":\"{}\",\"faktory\":{{\"default_size\":{},\"queues\":{{",
            time_text(self.now_ms),
            clock_text(self.now_ms),
            self.waiting_in_default,
        )
    }

    /// What stands behind the last queue.
    #[must_use]
    pub fn after_queues(&self) -> String {
        let set = |Chore { size, done }: &Chore| {
            format!("{{\"cycles\":0,\"enqueued\":{done},\"size\":{size},\"wall_time_sec\":0}}")
        };
        let watch = |Chore { size, done }: &Chore| format!("{{\"reaped\":{done},\"size\":{size}}}");
        let quoted = |text: &str| {
            let mut out = Vec::new();
            json::escape_into(text, &mut out);
            String::from_utf8_lossy(&out).into_owned()
        };
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

/// A queue, and how many jobs wait in it.
pub fn queue_member(name: &[u8], jobs: u64) -> Vec<u8> {
    let mut text = Vec::with_capacity(name.len() + 8);
    json::escape_into(&String::from_utf8_lossy(name), &mut text);
    text.extend_from_slice(format!(":{jobs}").as_bytes());
    text
}

/// What JOB GET says.
#[derive(Debug, Clone)]
pub struct JobText<'a> {
    /// Where the job is.
    pub state: &'a str,
    /// The job itself, as a worker would get it.
    pub job: Option<&'a [u8]>,
    /// Deliveries.
    pub attempts: u32,
    /// Failures.
    pub failures: u32,
    /// When its worker's time ends.
    pub reserved_until_ms: Option<u64>,
    /// What came of it.
    pub result: Option<&'a [u8]>,
    /// Protocols whose workers can have it, if those of others cannot; empty if that is not known.
    pub waits_for: &'a [&'a str],
}

impl JobText<'_> {
    /// The object.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let Self { state, attempts, failures, .. } = self;
        let mut out = format!("{{\"state\":\"{state}\",\"attempts\":{attempts},\"failures\":{failures}").into_bytes();
        if let Some(until) = self.reserved_until_ms {
            out.extend_from_slice(format!(",\"reserved_until\":\"{}\"", time_text(until)).as_bytes());
        }
        if let [first, rest @ ..] = self.waits_for {
            out.extend_from_slice(format!(",\"waits_for\":[\"{first}\"").as_bytes());
            rest.iter().for_each(|name| out.extend_from_slice(format!(",\"{name}\"").as_bytes()));
            out.push(b']');
        }
        if let Some(result) = self.result {
            out.extend_from_slice(b",\"result\":");
            json::escape_into(&String::from_utf8_lossy(result), &mut out);
        }
        if let Some(job) = self.job {
            out.extend_from_slice(b",\"job\":");
            out.extend_from_slice(job);
        }
        out.push(b'}');
        out
    }
}

/// An object of spans of time in seconds.
#[must_use]
pub fn seconds_object(seconds: &BTreeMap<Bytes, f64>) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, seconds) in seconds {
        out.push(if out.is_empty() { b'{' } else { b',' });
        json::escape_into(&String::from_utf8_lossy(key), &mut out);
        out.extend_from_slice(format!(":{seconds}").as_bytes());
    }
    out.extend_from_slice(if out.is_empty() { b"{}" } else { b"}" });
    out
}

/// An object of texts.
#[must_use]
pub fn texts_object(texts: &BTreeMap<Bytes, String>) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, text) in texts {
        out.push(if out.is_empty() { b'{' } else { b',' });
        json::escape_into(&String::from_utf8_lossy(key), &mut out);
        out.push(b':');
        json::escape_into(text, &mut out);
    }
    out.extend_from_slice(if out.is_empty() { b"{}" } else { b"}" });
    out
}
