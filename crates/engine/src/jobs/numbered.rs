//! A map by job ID, for IDs that are inserted in order and mostly removed again.
//!
//! The IDs of young jobs are close together, so they are stored in pages with a place for each ID. A sparse
//! page moves to a tree, and so does an old page far behind the rest, because a job that outlives a thousand
//! others must not occupy the places of all.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::JobId;

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;
/// The cost of an entry of the tree, in bytes. It determines when a sparse page is larger than the entries
/// would be there.
const SPARSE_BYTES: usize = 32;
/// The limit of missing pages between the oldest and the newest, and the addition to it for each page
/// present.
const GAPS_MAX: u64 = 64;
const GAPS_MAX_PER_PAGE: u64 = 8;

/// Small values by job number.
///
/// ```
/// # use windlass_engine::{JobId, Numbered};
/// let mut slots = Numbered::new(u32::MAX); // the value that stands for none
/// assert_eq!(slots.set(JobId(7), 1), None);
/// assert_eq!(slots.set(JobId(7), 2), Some(1));
/// assert_eq!((slots.get(JobId(7)), slots.get(JobId(8))), (Some(2), None));
/// ```
#[derive(Debug)]
pub struct Numbered<T> {
    /// Pages from number `first` on. The last one is still being filled.
    pages: VecDeque<Option<Page<T>>>,
    first: u64,
    /// The number of pages present.
    dense: u64,
    /// The entries that are in no page.
    sparse: BTreeMap<u64, T>,
    len: usize,
    none: T,
}

#[derive(Debug)]
struct Page<T> {
    live: usize,
    values: Box<[T]>,
}

impl<T: Copy + PartialEq> Numbered<T> {
    /// IDs in a page.
    const PAGE: usize = PAGE_BYTES / size_of::<T>();
    /// A page with fewer entries than this moves to the tree.
    const PAGE_MIN: usize = PAGE_BYTES / SPARSE_BYTES;

    /// An empty map. `none` represents "no value" and must not be stored.
    pub fn new(none: T) -> Self {
        Self {
            pages: VecDeque::new(),
            first: 0,
            dense: 0,
            sparse: BTreeMap::new(),
            len: 0,
            none,
        }
    }

    /// The number of values.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the map is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A job's value, if it has one.
    pub fn get(&self, id: JobId) -> Option<T> {
        let (page, at) = self.split(id);
        let value = match self.pages.get(page) {
            Some(Some(page)) => *page.values.get(at)?,
            Some(None) | None => *self.sparse.get(&id.0)?,
        };
        (value != self.none).then_some(value)
    }

    /// Sets a job's value and returns the previous one.
    pub fn set(&mut self, id: JobId, value: T) -> Option<T> {
        let number = id.0 / Self::PAGE as u64;
        if number >= self.end() {
            self.turn_page(number);
        }
        let (page, at) = self.split(id);
        let before = match self.pages.get_mut(page) {
            Some(Some(page)) => {
                let before = std::mem::replace(page.values.get_mut(at)?, value);
                page.live += usize::from(before == self.none);
                (before != self.none).then_some(before)
            }
            Some(None) | None => self.sparse.insert(id.0, value),
        };
        self.len += usize::from(before.is_none());
        before
    }

    /// Removes a job's value.
    pub fn remove(&mut self, id: JobId) -> Option<T> {
        let (index, at) = self.split(id);
        let Some(Some(page)) = self.pages.get_mut(index) else {
            let value = self.sparse.remove(&id.0)?;
            self.len -= 1;
            return Some(value);
        };
        let value = std::mem::replace(page.values.get_mut(at)?, self.none);
        if value == self.none {
            return None;
        }
        page.live -= 1;
        self.len -= 1;
        if page.live < Self::PAGE_MIN && index + 1 < self.pages.len() {
            self.give_up(index);
        }
        Some(value)
    }

    /// The values of jobs up to this ID, highest first.
    pub fn down_from(&self, id: JobId) -> impl Iterator<Item = (JobId, T)> {
        let (none, size) = (self.none, Self::PAGE as u64);
        let pages = self
            .pages
            .iter()
            .enumerate()
            .rev()
            .filter_map(|(index, page)| Some((index, page.as_ref()?)));
        let dense = pages.flat_map(move |(index, page)| {
            let first = (self.first + index as u64) * size;
            // In a page, IDs above this one are skipped.
            let values = page
                .values
                .iter()
                .take(if first > id.0 { 0 } else { Self::PAGE });
            values
                .enumerate()
                .rev()
                .map(move |(at, value)| (first + at as u64, *value))
        });
        let dense = dense.filter(move |(number, value)| *number <= id.0 && *value != none);
        let sparse = self
            .sparse
            .range(..=id.0)
            .rev()
            .map(|(number, value)| (*number, *value));
        merged(dense, sparse, |one, other| one > other)
    }

    /// The values of jobs from this ID on, lowest first.
    pub fn up_from(&self, id: JobId) -> impl Iterator<Item = (JobId, T)> {
        let (none, size) = (self.none, Self::PAGE as u64);
        let pages = self
            .pages
            .iter()
            .enumerate()
            .filter_map(|(index, page)| Some((index, page.as_ref()?)));
        let dense = pages.flat_map(move |(index, page)| {
            let first = (self.first + index as u64) * size;
            // In a page, IDs below this one are skipped.
            let below = usize::try_from(id.0.saturating_sub(first)).unwrap_or(Self::PAGE);
            page.values
                .iter()
                .enumerate()
                .skip(below)
                .map(move |(at, value)| (first + at as u64, *value))
        });
        let sparse = self
            .sparse
            .range(id.0..)
            .map(|(number, value)| (*number, *value));
        merged(
            dense.filter(move |(_, value)| *value != none),
            sparse,
            |one, other| one < other,
        )
    }

    /// Starts a new page. The page before it is now complete, and stays only if it is full enough.
    fn turn_page(&mut self, number: u64) {
        if let Some(Some(last)) = self.pages.back()
            && last.live < Self::PAGE_MIN
        {
            self.give_up(self.pages.len() - 1);
        }
        while self.dense > 0 && number - self.first > GAPS_MAX + GAPS_MAX_PER_PAGE * self.dense {
            self.give_up(0);
        }
        if self.dense == 0 {
            (self.pages, self.first) = (VecDeque::new(), number);
        }
        (self.end()..number).for_each(|_| self.pages.push_back(None));
        let values = vec![self.none; Self::PAGE].into_boxed_slice();
        self.pages.push_back(Some(Page { live: 0, values }));
        self.dense += 1;
    }

    fn give_up(&mut self, index: usize) {
        let Some(page) = self.pages.get_mut(index).and_then(Option::take) else {
            return;
        };
        self.dense -= 1;
        let number = self.first + index as u64;
        let values = (number * Self::PAGE as u64..)
            .zip(page.values)
            .filter(|(_, value)| *value != self.none);
        self.sparse.extend(values);
        while let Some(None) = self.pages.front() {
            self.pages.pop_front();
            self.first += 1;
        }
    }

    /// The number of the page after the last.
    fn end(&self) -> u64 {
        self.first + self.pages.len() as u64
    }

    /// The index of an ID's page, which may not exist, and the place in the page.
    fn split(&self, id: JobId) -> (usize, usize) {
        let page = (id.0 / Self::PAGE as u64).wrapping_sub(self.first);
        let at = id.0 % Self::PAGE as u64;
        (
            usize::try_from(page).unwrap_or(usize::MAX),
            usize::try_from(at).unwrap_or_default(),
        )
    }
}

/// Merges two sorted sequences.
fn merged<T>(
    one: impl Iterator<Item = (u64, T)>,
    other: impl Iterator<Item = (u64, T)>,
    is_before: fn(u64, u64) -> bool,
) -> impl Iterator<Item = (JobId, T)> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    let next = move || match (one.peek(), other.peek()) {
        (Some((first, _)), Some((second, _))) if is_before(*second, *first) => other.next(),
        (Some(_), _) => one.next(),
        (None, _) => other.next(),
    };
    std::iter::from_fn(next).map(|(number, value)| (JobId(number), value))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap as Oracle;

    use super::*;
    use crate::context::Context;
    use crate::ids::Timestamp;

    #[test]
    fn random_operations_match_a_map() {
        for seed in 0..100 {
            let mut rng = Context::new(Timestamp(0), seed);
            let (mut map, mut oracle, mut born) =
                (Numbered::new(u64::MAX), Oracle::new(), 5000_u64);
            for _ in 0..2000 {
                let value = rng.roll(1_000_000);
                match rng.roll(4) {
                    0 | 1 => {
                        born += rng.roll(5);
                        assert_eq!(
                            map.set(JobId(born), value),
                            oracle.insert(born, value),
                            "seed {seed}"
                        );
                    }
                    2 => {
                        let id = born.saturating_sub(rng.roll(6000));
                        assert_eq!(
                            map.set(JobId(id), value),
                            oracle.insert(id, value),
                            "seed {seed}"
                        );
                    }
                    _ => {
                        let id = born.saturating_sub(rng.roll(40));
                        assert_eq!(map.remove(JobId(id)), oracle.remove(&id), "seed {seed}");
                    }
                }
                assert_eq!(map.len(), oracle.len(), "seed {seed}");
            }
            for from in [born + 9, born - 3_000, 0] {
                let mut expected: Vec<_> = oracle.iter().filter(|(id, _)| **id <= from).collect();
                expected.sort_unstable_by_key(|(id, _)| std::cmp::Reverse(**id));
                let found: Vec<_> = map.down_from(JobId(from)).collect();
                let plain = |(id, value): (&u64, &u64)| (JobId(*id), *value);
                let expected: Vec<_> = expected.into_iter().map(plain).collect();
                assert_eq!(found, expected, "seed {seed}, down from {from}");
                let mut expected: Vec<_> = oracle
                    .iter()
                    .filter(|(id, _)| **id >= from)
                    .map(plain)
                    .collect();
                expected.sort_unstable();
                assert_eq!(
                    map.up_from(JobId(from)).collect::<Vec<_>>(),
                    expected,
                    "seed {seed}, up from {from}"
                );
            }
            for id in 0..=born + 1 {
                assert_eq!(
                    map.get(JobId(id)),
                    oracle.get(&id).copied(),
                    "seed {seed}, {id}"
                );
            }
        }
    }

    #[test]
    fn sparse_pages_move_to_the_tree() {
        let mut map = Numbered::new(0_u64);
        for id in 1..=100_000 {
            map.set(JobId(id), 9);
        }
        assert_eq!((map.pages.len(), map.sparse.len()), (196, 0));
        for id in (1..=100_000).filter(|id| id % 100 != 0) {
            map.remove(JobId(id));
        }
        assert_eq!(
            (map.pages.len(), map.sparse.len(), map.len()),
            (1, 998, 1000)
        );
        for id in (1..=100_000).filter(|id| id % 100 == 0) {
            assert!(map.remove(JobId(id)).is_some());
        }
        assert_eq!((map.pages.len(), map.sparse.len(), map.len()), (1, 0, 0));
    }

    #[test]
    fn an_old_page_does_not_keep_the_pages_behind_it() {
        const PAGE: u64 = Numbered::<u64>::PAGE as u64;
        let mut map = Numbered::new(0_u64);
        (0..3 * PAGE).for_each(|id| assert_eq!(map.set(JobId(id), 1), None));
        for id in 3 * PAGE..1000 * PAGE {
            map.set(JobId(id), 2);
            map.remove(JobId(id));
            assert!(map.pages.len() <= 100);
        }
        assert!((0..3 * PAGE).all(|id| map.get(JobId(id)) == Some(1)));
        map.set(JobId(u64::MAX / 2), 3);
        assert_eq!(
            (map.pages.len(), map.dense, map.len() as u64),
            (1, 1, 3 * PAGE + 1)
        );
        assert_eq!(map.get(JobId(u64::MAX / 2)), Some(3));
    }
}
