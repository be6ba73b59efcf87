//! What the history keeps of a job that has ended. The engine writes a row of it for each end ([`crate::Change::Ended`]); it
//! is stored, and asked, outside of the engine.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{JobId, Protocol, Timestamp};
use crate::jobs::{Attempts, Failure, Progress};

/// What the history keeps of the jobs of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct HistoryRules {
    /// For how long after the end, in milliseconds; 0: nothing is kept.
    pub keep_ms: u64,
    /// The most bytes of a job's body.
    pub body_max: u32,
    /// The most bytes of its result.
    pub result_max: u32,
    /// The most bytes of what its worker sent while it ran ([`crate::Note::Data`], [`crate::Note::Warning`]).
    pub output_max: u32,
}

/// How a job came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize, Serialize)]
pub enum Ending {
    /// Its worker reported success.
    Done,
    /// It failed, or too many workers were lost with it, and it was not kept.
    Failed,
    /// The same, or an operator's decision, and it is in the dead-letter queue. It may end again after a retry.
    Dead,
    /// A client or an operator removed it before it was over, or the last client that waited for it left.
    Cancelled,
    /// Nobody took it in time.
    Expired,
    /// It was removed with its queue, or from the dead-letter queue. Dead jobs whose time is over have no row.
    Deleted,
    /// A later job of its identity took its place.
    Replaced,
}

impl Ending {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Done,
        Self::Failed,
        Self::Dead,
        Self::Cancelled,
        Self::Expired,
        Self::Deleted,
        Self::Replaced,
    ];

    /// Its name, for people and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Deleted => "deleted",
            Self::Replaced => "replaced",
        }
    }

    /// The ending with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ending| ending.name() == name)
    }
}

/// Where a job of a queue with a history comes from: kept with the job until it ends.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct Origin {
    /// When it was pushed, by the wall clock.
    pub pushed_at: Timestamp,
    /// The time that its producer set for it, if that was later.
    pub due_at: Option<Timestamp>,
    /// The address of the producer's connection; empty for a Unix socket and for jobs that no connection pushed.
    pub producer: Box<str>,
    /// The schedule of which it is a run.
    pub schedule: Option<JobId>,
    /// The ended job that was run again as this one.
    pub again_of: Option<JobId>,
}

impl Origin {
    /// Whether two origins differ only in their times.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        let Self {
            pushed_at: _,
            due_at,
            producer,
            schedule,
            again_of,
        } = self;
        due_at.is_some() == other.due_at.is_some()
            && *producer == other.producer
            && *schedule == other.schedule
            && *again_of == other.again_of
    }

    /// Bytes counted for it in memory limits.
    pub(crate) const fn weight_bytes(&self) -> usize {
        size_of::<Self>() + self.producer.len()
    }
}

/// The first bytes of something, and how long it was.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct Excerpt {
    /// The first bytes.
    pub bytes: Bytes,
    /// The length of all of it.
    pub len: u64,
}

impl Excerpt {
    /// The first `max` bytes of `all`, copied. `None`: nothing is to be kept.
    pub fn of(all: &[u8], max: u32) -> Option<Self> {
        (max > 0).then(|| Self {
            bytes: Bytes::copy_from_slice(all.get(..max as usize).unwrap_or(all)),
            len: all.len() as u64,
        })
    }
}

/// What the worker of a job has sent during one delivery of it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Output {
    delivery: u32,
    /// The first bytes.
    bytes: Vec<u8>,
    /// The length of all of it.
    len: u64,
}

impl Output {
    /// Adds bytes that were sent during this delivery, up to `max` in all. What was sent in the one before is no more.
    pub fn add(&mut self, delivery: u32, bytes: &[u8], max: u32) {
        if self.delivery != delivery {
            *self = Self {
                delivery,
                ..Self::default()
            };
        }
        self.len += bytes.len() as u64;
        let room = (max as usize).saturating_sub(self.bytes.len());
        let bytes = bytes.get(..room).unwrap_or(bytes);
        self.bytes.extend_from_slice(bytes);
    }

    /// What was sent during this delivery, if that was the last one in which anything was.
    pub(crate) fn of(&self, delivery: u32) -> Option<Excerpt> {
        (self.delivery == delivery).then(|| Excerpt {
            bytes: Bytes::copy_from_slice(&self.bytes),
            len: self.len,
        })
    }

    /// Bytes counted for it in memory limits.
    pub(crate) const fn weight_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }
}

/// The worker that had a job when it ended, or at last before.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct EndedWorker {
    /// Its protocol, if it is known: a lease that outlives its connection does not have it.
    pub protocol: Option<Protocol>,
    /// Its name; empty if it gave none.
    pub name: Bytes,
    /// The address of its connection; empty if it is not known, or a Unix socket.
    pub address: Box<str>,
}

/// A row of the history: one end of one job. Times are by the wall clock.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Ended {
    /// The job's number.
    pub job: JobId,
    /// How it ended.
    pub ending: Ending,
    /// When.
    pub ended_at: Timestamp,
    /// For how long the row is kept, in milliseconds.
    pub keep_ms: u64,
    /// The name of its queue.
    pub queue: Bytes,
    /// The protocol of its producer.
    pub protocol: Protocol,
    /// The producer's public name for the job: a jid, a message id. Empty: none.
    pub name: Bytes,
    /// Its unique id, or the key under which submits are one job. Empty: none.
    pub unique: Bytes,
    /// What it calls. Empty: its queue, or its body did not show it.
    pub kind: Bytes,
    /// The key by which the policy of its queue treats it. Empty: none.
    pub key: Bytes,
    /// Where it comes from. Its parts are unknown if it was pushed before its queue had a history.
    pub origin: Option<Box<Origin>>,
    /// The batch in which it is.
    pub batch: Option<JobId>,
    /// How many submits became this job, if a rule joins them.
    pub submits: u32,
    /// When it was last ready.
    pub ready_at: Timestamp,
    /// When the run began with which it ended; `None`: no worker had it at its end.
    pub started_at: Option<Timestamp>,
    /// The worker of that run, or of the last one before.
    pub worker: Option<Box<EndedWorker>>,
    /// How many times it was handed out.
    pub deliveries: u32,
    /// How many times it failed.
    pub failures: u32,
    /// Its attempts that did not succeed.
    pub attempts: Option<Arc<Attempts>>,
    /// Its last failure.
    pub failure: Option<Box<Failure>>,
    /// Its last progress.
    pub progress: Option<Progress>,
    /// Its body, if that was in memory.
    pub body: Option<Excerpt>,
    /// Its result.
    pub result: Option<Excerpt>,
    /// What its worker sent while it ran.
    pub output: Option<Excerpt>,
    /// The name of its queue's namespace; empty: that without a name.
    pub namespace: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_has_the_first_bytes_and_the_whole_length() {
        assert_eq!(Excerpt::of(b"abc", 0), None);
        let of = |max| Excerpt::of(b"abc", max).unwrap();
        assert_eq!((&*of(2).bytes, of(2).len), (&b"ab"[..], 3));
        assert_eq!((&*of(9).bytes, of(9).len), (&b"abc"[..], 3));
    }

    #[test]
    fn output_begins_anew_with_each_delivery() {
        let mut output = Output::default();
        for (delivery, more, sent, len) in [
            (1, "abc", "abc", 3),
            (1, "defg", "abcde", 7),
            (1, "h", "abcde", 8),
            (2, "xy", "xy", 2),
        ] {
            output.add(delivery, more.as_bytes(), 5);
            let now = output.of(delivery).unwrap();
            assert_eq!((&*now.bytes, now.len), (sent.as_bytes(), len));
        }
        assert_eq!(output.of(1), None);
    }

    #[test]
    fn an_ending_is_found_by_its_name() {
        for ending in Ending::ALL {
            assert_eq!(Ending::named(ending.name()), Some(ending));
        }
        assert_eq!(Ending::named("finished"), None);
    }
}
