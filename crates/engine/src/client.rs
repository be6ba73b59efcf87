//! The engine's records of connections and of workers known by name.
//!
//! Not here: the state that only one connection sees (half-read bytes, handshakes). Its session keeps that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use crate::ids::{ClientId, JobId, Protocol, QueueId, Tag, Timestamp};
use crate::request::{ClientInfo, LeaseTerms, Select, WorkerState};

/// One connection.
#[derive(Debug, Default)]
pub(crate) struct Client {
    pub(crate) info: ClientInfo,
    pub(crate) label: Bytes,
    /// In the order of registration, with repetitions.
    pub(crate) subscriptions: Vec<Served>,
    pub(crate) waiting: Waiting,
    pub(crate) credit: Credit,
    /// Jobs that it holds under connection-bound leases.
    pub(crate) held: BTreeSet<JobId>,
    /// Jobs to which it listens, and how often.
    pub(crate) hears: BTreeMap<JobId, u32>,
    /// The named worker to which it belongs.
    pub(crate) worker: Option<u64>,
    /// The birth number of the queue that gave it its last job, for round robin.
    pub(crate) last_queue: Option<u64>,
}

impl Client {
    /// Whether it waits for work in any way.
    pub(crate) const fn waits(&self) -> bool {
        matches!(self.waiting, Waiting::Jobs(_) | Waiting::Wake { .. }) || self.credit.left > 0
    }

    /// Whether this wake-up woke it, and it has not asked for work since.
    pub(crate) const fn is_awake(&self, by: u64) -> bool {
        matches!(self.waiting, Waiting::Awake { seq, .. } if seq == by)
    }

    /// The queues from which it takes at this turn, and the worker's name. A sleep and credits have no name.
    pub(crate) fn takes_from(&self, seq: u64) -> (&[Served], &[u8]) {
        let blocked = self.blocked().and_then(|takes| takes.get(turn_of(seq, takes)?));
        blocked.map_or((&self.subscriptions, &[]), |blocked| (&blocked.sources, &blocked.worker))
    }

    /// The deadline of its blocked takes.
    pub(crate) fn waits_until(&self) -> Option<Timestamp> {
        self.blocked()?.front().map(|blocked| blocked.until)
    }

    /// Its blocked takes, if it has any.
    pub(crate) const fn blocked(&self) -> Option<&VecDeque<Blocked>> {
        match &self.waiting {
            Waiting::Jobs(takes) => Some(takes),
            Waiting::Nothing | Waiting::Wake { .. } | Waiting::Awake { .. } => None,
        }
    }
}

/// A queue that a client serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) queue: QueueId,
    pub(crate) weight: u32,
    pub(crate) lease: LeaseTerms,
    pub(crate) unclaimed: Option<Protocol>,
}

/// How a client waits.
#[derive(Debug, Default)]
pub(crate) enum Waiting {
    #[default]
    Nothing,
    /// Blocked takes, one job each, in order of their turns; never empty. More than one only if all of them wait forever.
    Jobs(VecDeque<Blocked>),
    /// It sleeps until woken; `seq` is its turn in every queue that it serves.
    Wake { seq: u64 },
    /// It was woken for this queue and has not asked for work since.
    Awake { queue: QueueId, seq: u64 },
}

/// A take that found no job and waits.
#[derive(Clone, Debug)]
pub(crate) struct Blocked {
    pub(crate) tag: Tag,
    /// The queues that it takes from, in the taker's order.
    pub(crate) sources: Vec<Served>,
    pub(crate) worker: Bytes,
    pub(crate) until: Timestamp,
    pub(crate) seq: u64,
}

/// The index of the take that has this turn.
pub(crate) fn turn_of(seq: u64, takes: &VecDeque<Blocked>) -> Option<usize> {
    takes.binary_search_by_key(&seq, |blocked| blocked.seq).ok()
}

/// How many jobs the engine may send a client unasked.
#[derive(Debug, Default)]
pub(crate) struct Credit {
    pub(crate) left: u32,
    pub(crate) select: Option<Select>,
    /// Its turn in every queue that it serves, while `left` is not 0.
    pub(crate) seq: u64,
}

/// A worker known by name.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) name: Box<[u8]>,
    pub(crate) about: Bytes,
    pub(crate) state: WorkerState,
    pub(crate) beat_at: Timestamp,
    /// When the engine next checks `beat_at`.
    pub(crate) alarm_at: Timestamp,
    pub(crate) clients: BTreeSet<ClientId>,
    /// Its protocol, if it gave one.
    pub(crate) protocol: Option<Protocol>,
    /// Jobs that it holds under time-bound leases taken since this worker became known.
    pub(crate) held: BTreeSet<JobId>,
}
