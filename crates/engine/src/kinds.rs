//! Figures of each kind of job since the daemon started. The body of a job names the kind: a job type of FWP,
//! a callable of EventMQ. If a job calls the queue, the figures of the queue are used instead. Not
//! journalled.

use std::hash::BuildHasher;

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

use crate::condition::{Calls, JobReader};
use crate::held::{Held, Share, hashed, heap};
use crate::ids::{KindNumber, Namespace, Realm};
use crate::jobs::Job;
use crate::query::KindRow;
use crate::queues::QueueFigures;

/// The limit of kinds with separate figures. Producers name kinds, so the table must be bounded; the least
/// busy kinds are evicted for new ones.
const KINDS_MAX: usize = 1_000;

/// This many kinds are evicted together, so that an endless sequence of new names has a small cost
/// per name.
const GIVE_WAY: usize = 100;

/// A kind with a longer name is treated like one that the bodies do not show.
const NAME_MAX: usize = 255;

/// The owner of the kinds.
#[derive(Debug)]
pub(crate) struct Kinds {
    hasher: FixedState,
    by_name: HashTable<KindNumber>,
    kinds: HashMap<KindNumber, Kind, FixedState>,
    /// The sum of the evicted kinds.
    others: QueueFigures,
    made: u32,
    held: Share,
}

#[derive(Debug)]
struct Kind {
    realm: Realm,
    /// Empty: the bodies do not show it.
    name: Bytes,
    figures: QueueFigures,
    /// Deliveries. At each eviction the number is halved.
    busy: u64,
}

impl Kinds {
    /// An empty table. `seed` protects it against crafted names. The memory is counted in `held`.
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

    /// The kind of a job that is being delivered. `None`: the job calls the queue.
    #[inline]
    pub(crate) fn of(&mut self, job: &Job, reader: Option<&dyn JobReader>) -> Option<KindNumber> {
        let calls = match job.payload.stored() {
            None => reader?.calls(job),
            // The body is being loaded, so the name is not available yet.
            Some(_) if reader?.is_by_queue(job.protocol) => return None,
            Some(_) => Calls::Unknown,
        };
        let name = match &calls {
            Calls::Queue => return None,
            Calls::Named(name) if name.len() <= NAME_MAX => name.as_bytes(),
            Calls::Named(_) | Calls::Unknown => &[],
        };
        let hash = hash(&self.hasher, job.realm(), name);
        let is_it = |number: &KindNumber| {
            self.kinds
                .get(number)
                .is_some_and(|kind| kind.is(job.realm(), name))
        };
        let number = match self.by_name.find(hash, is_it) {
            Some(number) => *number,
            None => self.make(job.realm(), name),
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

    /// A page of the kinds in a namespace, or in all, in the order of creation, from this number on, and where to
    /// continue. The last row of all is the sum of the evicted kinds.
    pub(crate) fn page(
        &self,
        of: Option<Namespace>,
        after: u64,
        limit: usize,
    ) -> (Vec<(Namespace, KindRow)>, Option<u64>) {
        let is_seen = |number: &KindNumber, kind: &Kind| {
            u64::from(number.0) >= after && of.is_none_or(|of| of == kind.realm.namespace)
        };
        let seen = self
            .kinds
            .iter()
            .filter(|(number, kind)| is_seen(number, kind));
        let mut numbers: Vec<_> = seen.map(|(number, _)| *number).collect();
        numbers.sort_unstable_by_key(|number| number.0);
        let next = numbers.get(limit).map(|number| number.0.into());
        let row = |number| {
            let Kind {
                realm,
                name,
                figures,
                ..
            } = self.kinds.get(number)?;
            let row = KindRow {
                protocol: Some(realm.protocol),
                name: name.clone(),
                figures: figures.clone(),
                namespace: Bytes::new(),
            };
            Some((realm.namespace, row))
        };
        let mut rows: Vec<_> = numbers.iter().take(limit).filter_map(row).collect();
        if next.is_none() && of.is_none() && !self.others.totals.is_empty() {
            let others = KindRow {
                protocol: None,
                name: Bytes::new(),
                figures: self.others.clone(),
                namespace: Bytes::new(),
            };
            rows.push((Namespace::UNNAMED, others));
        }
        (rows, next)
    }

    #[cold]
    fn make(&mut self, realm: Realm, name: &[u8]) -> KindNumber {
        if self.kinds.len() >= KINDS_MAX {
            self.give_way();
        }
        let number = KindNumber(self.made);
        self.made = self.made.wrapping_add(1);
        let kind = Kind {
            realm,
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
                .map_or(0, |kind| hash(hasher, kind.realm, &kind.name))
        };
        by_name.insert_unique(hash(hasher, realm, name), number, hash_of);
        number
    }

    /// Evicts the least busy kinds.
    fn give_way(&mut self) {
        let mut all: Vec<_> = self
            .kinds
            .iter()
            .map(|(number, kind)| (kind.busy, number.0))
            .collect();
        all.sort_unstable();
        for (_, number) in all.into_iter().take(GIVE_WAY) {
            self.evict(KindNumber(number));
        }
        for kind in self.kinds.values_mut() {
            kind.busy /= 2;
        }
    }

    /// Evicts the kinds of a namespace.
    pub(crate) fn forget(&mut self, namespace: Namespace) {
        let of = |(number, kind): (&KindNumber, &Kind)| {
            (kind.realm.namespace == namespace).then_some(*number)
        };
        let numbers: Vec<_> = self.kinds.iter().filter_map(of).collect();
        for number in numbers {
            self.evict(number);
        }
    }

    fn evict(&mut self, number: KindNumber) {
        let Some(kind) = self.kinds.remove(&number) else {
            return;
        };
        self.held.subtract(kind.bytes());
        self.others.add(&kind.figures);
        let hash = hash(&self.hasher, kind.realm, &kind.name);
        if let Ok(entry) = self.by_name.find_entry(hash, |other| *other == number) {
            entry.remove();
        }
    }
}

fn hash(hasher: &FixedState, realm: Realm, name: &[u8]) -> u64 {
    hasher.hash_one((realm, name))
}

impl Kind {
    fn is(&self, realm: Realm, name: &[u8]) -> bool {
        self.realm == realm && self.name == name
    }

    /// Approximate memory, including the counters of the protocol and the entries in the tables.
    fn bytes(&self) -> u64 {
        QueueFigures::bytes_for(1)
            + heap(self.name.len())
            + hashed(size_of::<(KindNumber, Self)>())
            + hashed(4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Protocol;

    #[test]
    fn a_namespace_that_is_removed_leaves_no_kinds_to_the_next_one_with_its_number() {
        let mut kinds = Kinds::new(7, &Held::default());
        let [shop, other] = [Namespace(1), Namespace(2)];
        for namespace in [shop, other, shop] {
            let name = [b'k', u8::try_from(kinds.made).unwrap()];
            kinds.make(namespace.realm(Protocol::FAKTORY), &name);
        }
        kinds.forget(shop);
        let left = |of| kinds.page(Some(of), 0, 9).0.len();
        assert_eq!((left(shop), left(other)), (0, 1));
        assert_eq!((kinds.kinds.len(), kinds.by_name.len()), (1, 1));
    }
}
