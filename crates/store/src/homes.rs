//! Which commit holds what the journal last said of a job: a map made for numbers that come in order and mostly go again.
//!
//! Numbers are close together while jobs are young, so they live in pages, eight bytes a number. A page that has thinned
//! out is given up for a hash table: a job that outlives a thousand others must not keep their places.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use windlass_engine::JobId;

/// Numbers per page.
const PAGE: u64 = 1024;
/// A page with fewer than this many is given up: from here on the hash table is smaller.
const PAGE_MIN: u32 = 256;

/// Where a record is: a commit's place in the ledger, and the record's size there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Home {
    pub(crate) slot: u32,
    /// Bytes of the record. While its commit is pending: which of the pending records it is.
    pub(crate) size: u32,
}

impl Home {
    const NONE: Self = Self { slot: u32::MAX, size: 0 };
}

#[derive(Debug)]
struct Page {
    live: u32,
    homes: Box<[Home]>,
}

/// Homes by job.
#[derive(Debug)]
pub(crate) struct Homes {
    pages: HashMap<u64, Page, FixedState>,
    sparse: HashMap<u64, Home, FixedState>,
    /// The page that is being filled: the highest there ever was.
    newest: u64,
    len: usize,
}

impl Homes {
    pub(crate) fn new() -> Self {
        let hasher = FixedState::default();
        let (pages, sparse) = (HashMap::with_hasher(hasher.clone()), HashMap::with_hasher(hasher));
        Self { pages, sparse, newest: 0, len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, id: JobId) -> Option<Home> {
        let (page, at) = split(id);
        let home = match self.pages.get(&page) {
            Some(page) => *page.homes.get(at)?,
            None => *self.sparse.get(&id.0)?,
        };
        (home != Home::NONE).then_some(home)
    }

    /// Sets a job's home. Returns the one it had.
    pub(crate) fn set(&mut self, id: JobId, home: Home) -> Option<Home> {
        let (number, at) = split(id);
        if number > self.newest || (self.pages.is_empty() && self.sparse.is_empty()) {
            self.turn_page(number);
        }
        let before = match self.pages.get_mut(&number) {
            Some(page) => {
                let place = page.homes.get_mut(at)?;
                let before = std::mem::replace(place, home);
                page.live += u32::from(before == Home::NONE);
                (before != Home::NONE).then_some(before)
            }
            None => self.sparse.insert(id.0, home),
        };
        self.len += usize::from(before.is_none());
        before
    }

    pub(crate) fn remove(&mut self, id: JobId) -> Option<Home> {
        let (number, at) = split(id);
        let Some(page) = self.pages.get_mut(&number) else {
            let home = self.sparse.remove(&id.0)?;
            self.len -= 1;
            if self.sparse.capacity() > 4096 && self.sparse.len() < self.sparse.capacity() / 16 {
                self.sparse.shrink_to(self.sparse.len() * 4);
            }
            return Some(home);
        };
        let home = std::mem::replace(page.homes.get_mut(at)?, Home::NONE);
        if home == Home::NONE {
            return None;
        }
        page.live -= 1;
        self.len -= 1;
        if page.live < PAGE_MIN && number != self.newest {
            self.give_up(number);
        }
        Some(home)
    }

    /// Begins a new page; the one before it is complete now, and stays only if it is full enough.
    fn turn_page(&mut self, number: u64) {
        let before = std::mem::replace(&mut self.newest, number);
        if before != number && self.pages.get(&before).is_some_and(|page| page.live < PAGE_MIN) {
            self.give_up(before);
        }
        let homes = vec![Home::NONE; usize::try_from(PAGE).unwrap_or_default()].into_boxed_slice();
        self.pages.entry(number).or_insert(Page { live: 0, homes });
    }

    fn give_up(&mut self, number: u64) {
        let Some(page) = self.pages.remove(&number) else { return };
        let homes = (number * PAGE..).zip(page.homes).filter(|(_, home)| *home != Home::NONE);
        self.sparse.extend(homes);
    }
}

fn split(id: JobId) -> (u64, usize) {
    (id.0 / PAGE, usize::try_from(id.0 % PAGE).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap as Oracle;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_map(steps in prop::collection::vec((0u8..4, 0u64..6000, any::<u32>()), 1..2000)) {
            let (mut homes, mut oracle, mut born) = (Homes::new(), Oracle::new(), 5000u64);
            for (what, n, size) in steps {
                let home = Home { slot: 7, size };
                match what {
                    0 | 1 => {
                        born += n % 5;
                        prop_assert_eq!(homes.set(JobId(born), home), oracle.insert(born, home));
                    }
                    2 => {
                        let id = born.saturating_sub(n);
                        prop_assert_eq!(homes.set(JobId(id), home), oracle.insert(id, home));
                    }
                    _ => {
                        let id = born.saturating_sub(n % 40);
                        prop_assert_eq!(homes.remove(JobId(id)), oracle.remove(&id));
                    }
                }
                prop_assert_eq!(homes.len(), oracle.len());
            }
            for id in 0..=born + 1 {
                prop_assert_eq!(homes.get(JobId(id)), oracle.get(&id).copied(), "{}", id);
            }
        }
    }

    #[test]
    fn thin_pages_are_given_up() {
        let mut homes = Homes::new();
        for id in 1..=100_000 {
            homes.set(JobId(id), Home { slot: 1, size: 9 });
        }
        assert_eq!((homes.pages.len(), homes.sparse.len()), (98, 0));
        for id in (1..=100_000).filter(|id| id % 100 != 0) {
            homes.remove(JobId(id));
        }
        assert_eq!((homes.pages.len(), homes.sparse.len(), homes.len()), (1, 993, 1000));
        for id in (1..=100_000).filter(|id| id % 100 == 0) {
            assert!(homes.remove(JobId(id)).is_some());
        }
        assert_eq!((homes.pages.len(), homes.sparse.len(), homes.len()), (1, 0, 0));
    }
}
