//! Policies: which ready job of a queue may start now, and if no job may, when.
//!
//! A policy limits starts per time, and treats the jobs of a queue by a key that it reads in them: a
//! customer, an account. Reading order: this file (the configuration) · `source` (how a key is read) ·
//! `bucket` (starts per time) · `key` (a key's jobs) · `keys` (all keys, and the next turn) · `gate` (the
//! decision for a queue) · `starts` and `keys/turns` (predicted order of starts, for queries).
//!
//! Not here: how a protocol reads its jobs ([`crate::JobReader::key`]), and how many jobs of a queue may be
//! leased at the same time (`throttle`).

mod bucket;
mod gate;
mod key;
mod keys;
mod source;
mod starts;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::condition::JobReader;
use crate::held::heap;
use crate::ids::Timestamp;
use crate::request::NewJob;
pub(super) use gate::Gate;
pub(super) use keys::{KeyNumber, NO_KEY};
pub(crate) use source::{Facts, KEY_BYTES_MAX};
pub(crate) use starts::Starts;

/// The advance of a key by a start of weight 1.
const STEP: u64 = 1 << 20;

/// Limits when jobs may start, for queues of one name or pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Policy {
    /// Limit on starts per time, over all workers.
    pub rate: Option<Rate>,
    /// The source of a job's key; `None`: jobs have no keys.
    pub key: Option<KeySource>,
    /// Limit on running jobs per key.
    pub key_running_max: Option<u32>,
    /// Limit on starts per time and key.
    pub key_rate: Option<Rate>,
    /// Limit on waiting jobs per key when another is submitted.
    pub key_waiting_max: Option<u32>,
    /// True if keys are served in turn.
    pub fair: bool,
    /// The weights of keys that differ from 1.
    pub weights: BTreeMap<Bytes, u32>,
    /// True if jobs of a key start one at a time in the order of ranks, whatever the priorities. A
    /// retrying job blocks the key.
    pub ordered: bool,
}

/// A policy that an operator has set for one queue.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct OwnPolicy {
    /// The policy.
    pub policy: Arc<Policy>,
    /// The operator's name; empty if unknown.
    pub by: Bytes,
    /// When (wall clock).
    pub at: Timestamp,
}

/// The state of a queue's buckets that survives a restart: when they are full if no more jobs
/// start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct SavedRates {
    /// For the queue's rate; for a fast one, up to a second later.
    pub full_at: Timestamp,
    /// For keys that lack tokens, by key.
    pub keys: Vec<(Bytes, Timestamp)>,
}

impl SavedRates {
    /// The memory.
    pub(crate) fn bytes(&self) -> u64 {
        let texts: u64 = self.keys.iter().map(|(text, _)| heap(text.len())).sum();
        heap(size_of::<Self>()) + heap(size_of_val(&*self.keys)) + texts
    }
}

/// A rate limit: a token bucket, which is full when the rule is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Rate {
    /// Starts in each period; at least 1.
    pub jobs: u32,
    /// The period, in milliseconds; at least 1.
    pub per_ms: u32,
    /// Maximum number of starts that accumulate; at least 1.
    pub burst: u32,
}

/// The source of a job's key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum KeySource {
    /// At this JSON pointer in the arguments of a job, or in a body that is JSON.
    Args(Box<str>),
    /// At this JSON pointer in the job's data (FWP's `custom`), or in a body that is JSON.
    Custom(Box<str>),
    /// The coalescing key, in full or up to the first of these bytes.
    Unique(Option<u8>),
    /// The part of the body before the first of these bytes.
    Prefix(u8),
    /// The value of the line `NAME: value` in the head of the body.
    Header(Box<str>),
}

/// What prevents a ready job from starting. Times are the engine's.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Hold {
    /// The rate of the queue.
    Rate {
        /// When the next job may start.
        until: Timestamp,
    },
    /// The rate of the key.
    KeyRate {
        /// The key; empty for jobs without one.
        key: Bytes,
        /// When the next job of the key may start.
        until: Timestamp,
    },
    /// Other jobs of the key: leased ones or, with `ordered`, retrying ones.
    Key {
        /// The key; empty for jobs without one.
        key: Bytes,
        /// The number of these jobs.
        jobs: u32,
    },
    /// The key is paused.
    Paused {
        /// The key; empty for jobs without one.
        key: Bytes,
    },
}

/// The policy of a queue.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct PolicyRow {
    /// The configured policy.
    pub policy: Policy,
    /// Jobs that may start now by the rate of the queue.
    pub tokens: Option<u32>,
    /// When the next job may start, if the rate allows no start now (engine's time).
    pub next_start_at: Option<Timestamp>,
    /// How often a token of the queue's rate was added while jobs were blocked for lack of it.
    pub rate_waits: u64,
    /// The number of keys: those of jobs in any state, and those that lack tokens.
    pub keys: u32,
    /// Keys that are paused.
    pub keys_paused: u32,
    /// New jobs in which no key could be read, since the policy started to read keys.
    pub keyless: u64,
    /// The operator who has set it, and when (wall clock); `None`: it is configured.
    pub set: Option<(Bytes, Timestamp)>,
    /// The name or pattern of the configuration section for the queue; `None`: there is no section,
    /// or it was not requested.
    pub section: Option<Bytes>,
}

/// A key of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct KeyRow {
    /// The key; empty for all jobs without one.
    pub key: Bytes,
    /// The number of ready, scheduled or retrying jobs.
    pub waiting: u32,
    /// The number of leased jobs and, with `ordered`, of retrying jobs that block the jobs after
    /// them.
    pub running: u32,
    /// True if it is paused.
    pub paused: bool,
}

impl Policy {
    /// Returns true if it uses keys.
    pub fn has_keys(&self) -> bool {
        self.ordered
            || self.fair
            || self.key_running_max.is_some()
            || self.key_waiting_max.is_some()
            || self.key_rate.is_some()
    }

    /// The key of a new job; empty if no key can be read.
    pub fn key_of(&self, new: &NewJob, reader: Option<&dyn JobReader>) -> Vec<u8> {
        let unique = new.unique.as_ref().map(|unique| &*unique.key);
        let facts = Facts {
            protocol: new.protocol,
            body: Some(&new.body),
            unique,
        };
        self.key
            .as_ref()
            .map(|key| key.read(facts, reader))
            .unwrap_or_default()
    }

    /// The maximum number of jobs that may occupy a key.
    fn held_max(&self) -> u32 {
        if self.ordered {
            1
        } else {
            self.key_running_max.unwrap_or(u32::MAX)
        }
    }

    /// Returns true if jobs of a key exclude each other.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.held_max() < u32::MAX
    }

    /// The advance of a key by a start in the order of turns.
    fn step_of(&self, key: &[u8]) -> u64 {
        let weight = self.weights.get(key).copied().unwrap_or(1).max(1);
        if self.fair {
            (STEP / u64::from(weight)).max(1)
        } else {
            0
        }
    }

    /// Returns true if a key can have jobs that wait although they are ready.
    fn limits_keys(&self) -> bool {
        self.is_exclusive() || self.key_rate.is_some()
    }
}
