//! A policy key with jobs, and which of these jobs may start.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::Policy;
use super::bucket::Bucket;
use super::keys::KeyNumber;
use crate::held::{hashed, heap};
use crate::ids::{Priority, Timestamp};
use crate::jobs::{Job, JobState, Slot};
use crate::queues::audience::Class;
use crate::queues::ready::{ReadyQueue, SortKey};
use crate::request::QueueKind;

/// A position in the order of keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub(super) lane: u8,
    pub(super) turn: u64,
    pub(super) rank: u64,
}

impl Place {
    pub(super) const fn sort_key(self) -> SortKey {
        SortKey {
            lane: self.lane,
            major: self.rank,
            minor: 0,
        }
    }
}

/// The first job of a key in a class.
pub(super) type Head = (Class, Place, Slot);

/// The first job of each class, of which there is nearly always one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Heads {
    pub(super) first: Option<Head>,
    more: Vec<Head>,
}

impl Heads {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Head> {
        self.first.iter().chain(&self.more)
    }
}

impl FromIterator<Head> for Heads {
    fn from_iter<I: IntoIterator<Item = Head>>(heads: I) -> Self {
        let mut heads = heads.into_iter();
        Self {
            first: heads.next(),
            more: heads.collect(),
        }
    }
}

/// A policy key.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) text: Box<[u8]>,
    /// The number of jobs in any state.
    pub(super) jobs: u32,
    /// The number of waiting jobs: ready, scheduled or retrying.
    pub(super) waiting: u32,
    /// The number of leased jobs, which occupy the key.
    pub(super) held: u32,
    /// With `ordered`: the ranks of retrying jobs, which block the jobs after them.
    pub(super) retrying: BTreeSet<u64>,
    /// True if a killed daemon may have delivered some of the jobs.
    pub(super) is_in_doubt: bool,
    pub(super) is_paused: bool,
    pub(super) ready: ReadyQueue,
    pub(super) turn: u64,
    pub(super) bucket: Option<Bucket>,
    /// True if one of the jobs is being delivered.
    pub(super) is_starting: bool,
    /// The entries in the trees.
    pub(super) heads: Heads,
    /// When the bucket must be checked, because a token is added or the bucket is full.
    pub(super) due_at: Timestamp,
}

/// The state that decides whether a key may start a job, and which.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) held: u32,
    pub(super) turn: u64,
    pub(super) bucket: Option<Bucket>,
    pub(super) is_in_doubt: bool,
    /// The last started job of each class that is still in the ready queue.
    pub(super) started: Vec<(Class, SortKey)>,
}

impl Key {
    pub(super) fn new(text: &[u8], bucket: Option<Bucket>) -> Self {
        Self {
            text: text.into(),
            jobs: 0,
            waiting: 0,
            held: 0,
            retrying: BTreeSet::new(),
            is_in_doubt: false,
            is_paused: false,
            ready: ReadyQueue::new(QueueKind::Work),
            turn: 0,
            bucket,
            is_starting: false,
            heads: Heads::default(),
            due_at: Timestamp::NEVER,
        }
    }

    /// The memory, with entries in the indexes, without jobs.
    pub(super) fn bytes(&self) -> u64 {
        const HEAD: u64 = heap(size_of::<(Place, (KeyNumber, Slot))>()) * 3 / 2;
        const DUE: u64 = heap(size_of::<(Timestamp, KeyNumber)>()) * 3 / 2;
        const NUMBER: u64 = hashed(size_of::<KeyNumber>()) + size_of::<Option<Box<Key>>>() as u64;
        let due = if self.bucket.is_some() { DUE } else { 0 };
        NUMBER
            + heap(size_of::<Self>())
            + heap(self.text.len())
            + HEAD
            + due
            + self.ready.parts_bytes()
    }

    pub(super) fn text(&self) -> Bytes {
        Bytes::copy_from_slice(&self.text)
    }

    fn may_start(&self, policy: &Policy) -> bool {
        !self.is_starting && self.allows(self.held, self.is_in_doubt, self.bucket.as_ref(), policy)
    }

    /// Returns true if the policy permits a start with this many leased jobs.
    fn allows(
        &self,
        held: u32,
        is_in_doubt: bool,
        bucket: Option<&Bucket>,
        policy: &Policy,
    ) -> bool {
        !is_in_doubt
            && held < policy.held_max()
            && bucket.is_none_or(|it| it.tokens() > 0)
            && !self.is_paused
    }

    /// The first jobs, if the key may start one.
    pub(super) fn heads(&self, policy: &Policy, bridged: bool) -> Heads {
        match self.may_start(policy) {
            true => self
                .heads_among(|| self.ready.firsts(), self.turn, policy, bridged)
                .collect(),
            false => Heads::default(),
        }
    }

    /// The current state.
    pub(super) const fn standing(&self) -> Standing {
        let Self {
            held,
            turn,
            bucket,
            is_in_doubt,
            ..
        } = *self;
        Standing {
            held,
            turn,
            bucket,
            is_in_doubt,
            started: Vec::new(),
        }
    }

    /// The first jobs in this state.
    pub(super) fn heads_of(
        &self,
        standing: &Standing,
        policy: &Policy,
        bridged: bool,
    ) -> Vec<Head> {
        let Standing {
            held,
            turn,
            bucket,
            is_in_doubt,
            started,
        } = standing;
        if !self.allows(*held, *is_in_doubt, bucket.as_ref(), policy) {
            return Vec::new();
        }
        let last_of = |class: Class| {
            started
                .iter()
                .find(|(other, _)| *other == class)
                .map(|(_, at)| *at)
        };
        let left = |class: Class| {
            self.ready
                .after_in(class, last_of(class))
                .map(|(at, slot)| (class, at, slot))
        };
        let firsts = || self.ready.firsts().filter_map(|(class, ..)| left(class));
        self.heads_among(firsts, *turn, policy, bridged).collect()
    }

    /// The first job of each class that may start. With `ordered`, jobs that the same worker sees
    /// start in order, so only the first of those is returned.
    fn heads_among<I: Iterator<Item = (Class, SortKey, Slot)>>(
        &self,
        firsts: impl Fn() -> I,
        turn: u64,
        policy: &Policy,
        bridged: bool,
    ) -> impl Iterator<Item = Head> {
        let first_retry = self.retrying.first().copied().unwrap_or(u64::MAX);
        let all = firsts();
        let is_behind = move |class: Class, at: SortKey| {
            let blocks = |other: Class| bridged || other.protocol == class.protocol;
            policy.ordered
                && (first_retry < at.major
                    || firsts().any(|(other, before, _)| before < at && blocks(other)))
        };
        let heads = all.filter(move |(class, at, _)| !is_behind(*class, *at));
        heads.map(move |(class, at, slot)| {
            (
                class,
                Place {
                    lane: at.lane,
                    turn,
                    rank: at.major,
                },
                slot,
            )
        })
    }

    /// The number of jobs that occupy the key, or block the jobs after them.
    pub(super) fn running(&self) -> u32 {
        self.held + u32::try_from(self.retrying.len()).unwrap_or(u32::MAX)
    }

    /// The number of jobs that prevent a job of this rank from starting, if there are any.
    pub(super) fn holders(&self, rank: u64, policy: &Policy) -> Option<u32> {
        let before = u32::try_from(self.retrying.range(..rank).count()).unwrap_or(u32::MAX);
        let is_held = self.held >= policy.held_max() || before > 0 || self.is_in_doubt;
        is_held.then(|| (self.held + before).max(1))
    }

    /// Returns true if ready jobs are blocked by leased ones.
    pub(super) fn is_waited_for(&self, policy: &Policy) -> bool {
        self.held >= policy.held_max() && !self.ready.is_empty()
    }

    /// When the bucket must be checked.
    pub(super) fn next_due(&self) -> Timestamp {
        match &self.bucket {
            Some(bucket) if bucket.tokens() == 0 && !self.ready.is_empty() => bucket.next_at(),
            // The empty key is never removed.
            Some(bucket) if self.jobs == 0 && !self.text.is_empty() && !bucket.is_full() => {
                bucket.full_at()
            }
            Some(_) | None => Timestamp::NEVER,
        }
    }
}

/// Returns true if a job in this state is waiting, and true if it occupies the key.
pub(super) const fn counts(state: &JobState) -> (bool, bool) {
    match state {
        JobState::Ready | JobState::Scheduled(_) | JobState::Retrying(_) => (true, false),
        JobState::Leased(_) => (false, true),
        JobState::Dead(_) | JobState::Done(_) | JobState::Parked => (false, false),
    }
}

/// Returns true if a retrying job blocks the jobs after it.
pub(super) const fn is_ahead(job: &Job, policy: &Policy) -> bool {
    policy.ordered && matches!(job.state, JobState::Retrying(_))
}

pub(super) fn place_of(job: &Job, policy: &Policy) -> SortKey {
    let at = SortKey::of(job);
    let lane = if policy.ordered {
        u8::try_from(Priority::NORMAL.lane()).unwrap_or(u8::MAX)
    } else {
        at.lane
    };
    SortKey { lane, ..at }
}
