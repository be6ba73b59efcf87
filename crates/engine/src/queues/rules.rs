//! The rules of a queue, which apply to jobs of any protocol.
//!
//! Not here: limits on the number of jobs (`push`) and on concurrency (`throttle`), which clients
//! may take them (`audience`), and the conversions: the engine only stores the codec for the
//! sessions.

use serde::{Deserialize, Serialize};

use super::policy::Policy;
use crate::history::HistoryRules;
use crate::jobs::Retry;

/// The settings for the jobs of queues with this name or pattern.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct QueueSettings {
    /// The rules.
    pub rules: QueueRules,
    /// The policy.
    pub policy: Policy,
}

/// The rules for a queue's jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct QueueRules {
    /// How to convert a body for a worker of another protocol.
    pub codec: Codec,
    /// The retry policy for new jobs if the producer set no policy
    /// ([`crate::NewJob::retry_default`]). Existing jobs retain the present policies.
    pub retry: Option<Retry>,
    /// Maximum length of a new job's body, in bytes. Existing jobs stay.
    pub body_bytes_max: Option<u32>,
    /// A new job of a `work` queue expires after waiting this many milliseconds, or sooner if the producer
    /// set that. Existing jobs retain the present times.
    pub ttl_ms: Option<u64>,
    /// Retention of dead jobs, in milliseconds, in place of [`crate::Limits::dead_ms`]. Jobs that are dead
    /// already retain the present times.
    pub dead_ms: Option<u64>,
    /// The limit of dead jobs. Beyond it, the job with the earliest end of retention is dropped.
    pub dead_max: Option<u32>,
    /// A durable job of a `work` queue that succeeds is remembered for this many milliseconds after the end:
    /// a push with the same key finds it, or with the same name if it has no key. A key that the client
    /// derives from the body is ignored.
    pub dedup_ms: Option<u64>,
    /// Submits with the same identity to a `work` queue are merged into one job until it runs.
    pub coalesce: Option<Coalesce>,
    /// What the history keeps of its jobs, in place of [`crate::Limits::history`].
    pub history: Option<HistoryRules>,
}

/// The rule for merging submits with the same identity ([`QueueRules::coalesce`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Coalesce {
    /// True if the identity is the key of the queue's policy, or else the key given by the
    /// producer.
    pub by_key: bool,
    /// True if each submit replaces the body of the waiting job. Otherwise the first body is used.
    pub latest: bool,
    /// The job is ready this many milliseconds after the last submit,
    pub quiet_ms: u64,
    /// but no later than this many after the first one.
    pub at_most_ms: Option<u64>,
    /// True if submits during a run create another job, which starts when the running one has
    /// finished. Otherwise they are merged into the running job.
    pub once_more: bool,
}

/// The prefix of unique keys that the engine reads from jobs ([`Coalesce::by_key`]).
pub const READ_KEY: &[u8] = b"\0\0";

/// How to convert a body for a worker of another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// One string, in base64 if the body is not text.
    #[default]
    Text,
    /// JSON; a body that is not JSON is an error.
    Json,
    /// A string in base64.
    Base64,
}
