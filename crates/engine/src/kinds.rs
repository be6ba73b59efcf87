//! What happened to jobs of each kind since the daemon started, where the body of a job names what it calls: a job type
//! of FWP, a callable of EventMQ. Where its queue is what a job calls, the figures of the queue say it. Not journalled.

use std::hash::BuildHasher;

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

use crate::condition::{Calls, JobReader};
use crate::held::{Held, Share, hashed, heap};
use crate::ids::{KindNumber, Protocol};
use crate::jobs::Job;
use crate::query::KindRow;
use crate::queues::QueueFigures;

/// Kinds with figures of their own. Producers name kinds, so there is a bound: the least busy ones give way to new ones.
const KINDS_MAX: usize = 1_000;

/// This many give way at once: names without end cost little each.
const GIVE_WAY: usize = 100;

/// A kind with a longer name is one of those that the bodies do not show.
const NAME_MAX: usize = 255;

/// The owner of the kinds.
#[derive(Debug)]
pub(crate) struct Kinds {
    hasher: FixedState,
    by_name: HashTable<KindNumber>,
    kinds: HashMap<KindNumber, Kind, FixedState>,
    /// Those that gave way, together.
    others: QueueFigures,
    made: u32,
    held: Share,
}

#[derive(Debug)]
struct Kind {
    protocol: Protocol,
    /// Empty: the bodies do not show it.
    name: Bytes,
    figures: QueueFigures,
    /// Deliveries. Those from before kinds gave way count half.
    busy: u64,
}

impl Kinds {
    /// None yet. `seed` protects the table against crafted names. Its memory counts in `held`.
    pub(crate) fn new(seed: u64, held: &Held) -> Self {
        let (hasher, kinds) = (
            FixedState::with_seed(seed),
            HashMap::with_hasher(FixedState::with_seed(seed)),
        );
        Self {
            hasher,
            by_name: HashTable::new(),
            kinds,
            others: QueueFigures::default(),
            made: 0,
            held: held.share(),
        }
    }

    /// The kind of a job that is handed out now. `None`: its queue is what it calls.
    #[inline]
    pub(crate) fn of(&mut self, job: &Job, reader: Option<&dyn JobReader>) -> Option<KindNumber> {
        let calls = match job.payload.stored() {
            None => reader?.calls(job),
            // The body is on its way back into memory, and shows nothing yet.
            Some(_) if reader?.is_by_queue(job.protocol) => return None,
            Some(_) => Calls::Unknown,
        };
        let name = match &calls {
            Calls::Queue => return None,
            Calls::Named(name) if name.len() <= NAME_MAX => name.as_bytes(),
            Calls::Named(_) | Calls::Unknown => &[],
        };
        let hash = hash(&self.hasher, job.protocol, name);
        let is_it = |number: &KindNumber| {
            self.kinds
                .get(number)
                .is_some_and(|kind| kind.is(job.protocol, name))
        };
        let number = match self.by_name.find(hash, is_it) {
            Some(number) => *number,
            None => self.make(job.protocol, name),
        };
        if let Some(kind) = self.kinds.get_mut(&number) {
            kind.busy += 1;
        }
        Some(number)
    }

    /// What jobs of a kind call; `None`: their bodies do not show it, or the kind gave way.
    pub(crate) fn name(&self, number: KindNumber) -> Option<&Bytes> {
        let kind = self.kinds.get(&number)?;
        Some(&kind.name).filter(|name| !name.is_empty())
    }

    /// The figures of a kind, to change them: those of all others if it gave way.
    pub(crate) fn figures_mut(&mut self, number: KindNumber) -> &mut QueueFigures {
        self.kinds
            .get_mut(&number)
            .map_or(&mut self.others, |kind| &mut kind.figures)
    }

    /// A page of the kinds in the order in which they came, from this number on, and where to continue. The last row is
    /// of those that gave way.
    pub(crate) fn page(&self, after: u64, limit: usize) -> (Vec<KindRow>, Option<u64>) {
        let mut numbers: Vec<_> = self
            .kinds
            .keys()
            .filter(|number| u64::from(number.0) >= after)
            .copied()
            .collect();
        numbers.sort_unstable_by_key(|number| number.0);
        let next = numbers.get(limit).map(|number| number.0.into());
        let row = |number| {
            let Kind {
                protocol,
                name,
                figures,
                ..
            } = self.kinds.get(number)?;
            Some(KindRow {
                protocol: Some(*protocol),
                name: name.clone(),
                figures: figures.clone(),
            })
        };
        let mut rows: Vec<_> = numbers.iter().take(limit).filter_map(row).collect();
        if next.is_none() && !self.others.totals.is_empty() {
            rows.push(KindRow {
                protocol: None,
                name: Bytes::new(),
                figures: self.others.clone(),
            });
        }
        (rows, next)
    }

    #[cold]
    fn make(&mut self, protocol: Protocol, name: &[u8]) -> KindNumber {
        if self.kinds.len() >= KINDS_MAX {
            self.give_way();
        }
        let number = KindNumber(self.made);
        self.made = self.made.wrapping_add(1);
        let kind = Kind {
            protocol,
            name: Bytes::copy_from_slice(name),
            figures: QueueFigures::default(),
            busy: 0,
        };
        self.held.add(kind.bytes());
        self.kinds.insert(number, kind);
        let Self {
            hasher,
            by_name,
            kinds,
            ..
        } = self;
        let hash_of = |number: &KindNumber| {
            kinds
                .get(number)
                .map_or(0, |kind| hash(hasher, kind.protocol, &kind.name))
        };
        by_name.insert_unique(hash(hasher, protocol, name), number, hash_of);
        number
    }

    /// The least busy kinds become a part of the others.
    fn give_way(&mut self) {
        let mut all: Vec<_> = self
            .kinds
            .iter()
            .map(|(number, kind)| (kind.busy, number.0))
            .collect();
        all.sort_unstable();
        for (_, number) in all.into_iter().take(GIVE_WAY) {
            let number = KindNumber(number);
            let Some(kind) = self.kinds.remove(&number) else {
                continue;
            };
            self.held.subtract(kind.bytes());
            self.others.add(&kind.figures);
            let hash = hash(&self.hasher, kind.protocol, &kind.name);
            if let Ok(entry) = self.by_name.find_entry(hash, |other| *other == number) {
                entry.remove();
            }
        }
        for kind in self.kinds.values_mut() {
            kind.busy /= 2;
        }
    }
}

fn hash(hasher: &FixedState, protocol: Protocol, name: &[u8]) -> u64 {
    hasher.hash_one((protocol, name))
}

impl Kind {
    fn is(&self, protocol: Protocol, name: &[u8]) -> bool {
        self.protocol == protocol && self.name == name
    }

    /// About what it takes in memory, with the counters of its protocol and its places in the tables.
    fn bytes(&self) -> u64 {
        QueueFigures::bytes_for(1)
            + heap(self.name.len())
            + hashed(size_of::<(KindNumber, Self)>())
            + hashed(4)
    }
}
