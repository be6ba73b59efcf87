//! What the engine knows of connections and of workers known by name.
//!
//! Not here: anything one connection alone can see (half-read bytes, handshakes): that is its session's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use crate::command::{ClientInfo, LeaseTerms, Select, WorkerState};
use crate::ids::{ClientId, JobId, Origin, QueueId, Tag, Timestamp};

/// One connection.
#[derive(Debug, Default)]
pub(crate) struct Client {
    pub(crate) info: ClientInfo,
    pub(crate) label: Bytes,
    /// In the order they were declared, repetitions included.
    pub(crate) abilities: Vec<Served>,
    pub(crate) waiting: Waiting,
    pub(crate) credit: Credit,
    /// Jobs it holds under connection-bound leases.
    pub(crate) held: BTreeSet<JobId>,
    /// Jobs it listens to, and how often.
    pub(crate) hears: BTreeMap<JobId, u32>,
    /// The named worker it belongs to.
    pub(crate) worker: Option<u64>,
    /// The queue it was last given a job of, by birth, for taking turns.
    pub(crate) last_queue: Option<u64>,
}

impl Client {
    /// Whether it waits for work in any shape.
    pub(crate) const fn waits(&self) -> bool {
        matches!(self.waiting, Waiting::Jobs(_) | Waiting::Wake { .. }) || self.credit.left > 0
    }

    /// Whether it was woken by this wake-up and has not asked for work since.
    pub(crate) const fn is_awake(&self, by: u64) -> bool {
        matches!(self.waiting, Waiting::Awake { seq, .. } if seq == by)
    }

    /// What it takes from at this turn of its, and in whose name: as a blocked taker, or asleep or on credit.
    pub(crate) fn takes_from(&self, seq: u64) -> (&[Served], &[u8]) {
        let blocked = self.blocked().and_then(|takes| takes.get(turn_of(seq, takes)?));
        blocked.map_or((&self.abilities, &[]), |blocked| (&blocked.sources, &blocked.worker))
    }

    /// Until when a blocked take waits.
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

/// A queue a client serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) queue: QueueId,
    pub(crate) weight: u32,
    pub(crate) lease: LeaseTerms,
    pub(crate) strays: Option<Origin>,
}

/// What a client waits for.
#[derive(Debug, Default)]
pub(crate) enum Waiting {
    #[default]
    Nothing,
    /// A job each, in order of their turns; never empty. Only if all of them wait for ever there is more than one.
    Jobs(VecDeque<Blocked>),
    /// To be woken; `seq` is its turn in every queue it serves.
    Wake { seq: u64 },
    /// It was woken for this queue and has not asked for work since.
    Awake { queue: QueueId, seq: u64 },
}

/// A take that found nothing and waits.
#[derive(Clone, Debug)]
pub(crate) struct Blocked {
    pub(crate) tag: Tag,
    /// What it would take from, in the taker's order.
    pub(crate) sources: Vec<Served>,
    pub(crate) worker: Bytes,
    pub(crate) until: Timestamp,
    pub(crate) seq: u64,
}

/// Which of the takes has this turn.
pub(crate) fn turn_of(seq: u64, takes: &VecDeque<Blocked>) -> Option<usize> {
    takes.binary_search_by_key(&seq, |blocked| blocked.seq).ok()
}

/// Jobs a client may be sent unasked.
#[derive(Debug, Default)]
pub(crate) struct Credit {
    pub(crate) left: u32,
    pub(crate) select: Option<Select>,
    /// Its turn in every queue it serves, while `left` is not 0.
    pub(crate) seq: u64,
}

/// A worker known by name.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) name: Box<[u8]>,
    pub(crate) about: Bytes,
    pub(crate) state: WorkerState,
    pub(crate) beat_at: Timestamp,
    /// When the engine will look at `beat_at` next.
    pub(crate) alarm_at: Timestamp,
    pub(crate) clients: BTreeSet<ClientId>,
    /// The protocol it speaks, if it said so.
    pub(crate) origin: Option<Origin>,
    /// Jobs it holds under time-bound leases taken since it is known.
    pub(crate) held: BTreeSet<JobId>,
}
