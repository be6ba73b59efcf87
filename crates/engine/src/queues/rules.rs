//! The rules of a queue, which apply to its jobs in any protocol.
//!
//! Not here: limits on their number (`push`) and on concurrency (`throttle`), which clients may
//! take them (`isolation`), and the conversions: the engine only stores the codec for the sessions.

use serde::{Deserialize, Serialize};

use super::policy::Policy;
use crate::history::HistoryRules;
use crate::jobs::Retry;

/// The settings for the jobs of queues of one name or pattern.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct QueueSettings {
    /// Their rules.
    pub rules: QueueRules,
    /// Their policy.
    pub policy: Policy,
}

/// The rules for a queue's jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct QueueRules {
    /// How a body is converted for a worker of another protocol.
    pub codec: Codec,
    /// The retry policy for new jobs whose producer set none ([`crate::NewJob::retry_default`]),
    /// which replaces the one that comes with the job. Existing jobs keep theirs.
    pub retry: Option<Retry>,
    /// Maximum length of a new job's body, in bytes. Existing jobs stay.
    pub body_bytes_max: Option<u32>,
    /// A new job of a `work` queue expires after waiting this many milliseconds, or earlier if its producer set that.
    /// Existing jobs keep their times.
    pub ttl_ms: Option<u64>,
    /// How long a dead job is kept, in milliseconds, in place of [`crate::Limits::dead_ms`]. Jobs that are dead already
    /// keep their times.
    pub dead_ms: Option<u64>,
    /// The most dead jobs; beyond it those are dropped first whose time ends first.
    pub dead_max: Option<u32>,
    /// A durable job of a `work` queue that succeeds is remembered for this many milliseconds after its end: a push with
    /// its key finds it, or with its name if it has no key. A key that the client derives from the body does not count.
    pub dedup_ms: Option<u64>,
    /// Submits of one identity to a `work` queue are one job while it waits.
    pub coalesce: Option<Coalesce>,
    /// What the history keeps of its jobs, in place of [`crate::Limits::history`].
    pub history: Option<HistoryRules>,
}

/// How submits of one identity become one job ([`QueueRules::coalesce`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Coalesce {
    /// Whether the identity is the key of the queue's policy, or else the key given by the
    /// producer.
    pub by_key: bool,
    /// Whether each submit replaces the body of the waiting job, which otherwise keeps the first
    /// one.
    pub latest: bool,
    /// The job is ready this many milliseconds after its last submit,
    pub quiet_ms: u64,
    /// but no later than this many after its first one.
    pub at_most_ms: Option<u64>,
    /// Whether submits during a run make another job, which starts when the running one has ended;
    /// otherwise they join the running one.
    pub once_more: bool,
}

/// The prefix of unique keys that the engine reads from jobs ([`Coalesce::by_key`]).
pub const READ_KEY: &[u8] = b"\0\0";

/// How a body is converted for a worker of another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// One string, in base64 if the body is not text.
    #[default]
    Text,
    /// JSON; a body that is not JSON is an error.
    Json,
    /// One string in base64.
    Base64,
}
