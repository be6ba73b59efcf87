//! What connections post to one another while it waits in mailboxes, and how much of that there may be.
//!
//! Whoever posts is not held up by whoever does not read: there is room, or there is none and nothing is taken. A little of it
//! every mailbox may have, and that is not counted. Beyond that one may hold a part of what is free at the time: one peer that
//! does not read has much less than all, and many have less each.
//!
//! Words that were posted to many are there once, and counted once; places in mailboxes are counted one by one.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::budget::SMALL_BYTES;
use crate::mailbox::Letter;

/// A place in a mailbox.
const PLACE_BYTES: usize = size_of::<Letter>();

/// The part of what is free that a mailbox may hold.
const PART: usize = 8;

/// The bytes that all mailboxes together may hold of what was posted.
#[derive(Debug)]
pub(crate) struct Depot {
    held: AtomicUsize,
    bytes_max: usize,
}

/// Words in one mailbox.
#[derive(Debug)]
pub(crate) struct Parcel {
    shared: Arc<Shared>,
    counted: bool,
}

/// Words in as many as they were posted to.
#[derive(Debug)]
struct Shared {
    words: Bytes,
    depot: Arc<Depot>,
    /// Set by the thread that posts them, and by no other.
    counted: AtomicBool,
}

std::thread_local! {
    /// What this thread posted last: whoever posts the same words to many does it in one go.
    static LAST: RefCell<Weak<Shared>> = const { RefCell::new(Weak::new()) };
}

impl Depot {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { held: AtomicUsize::new(0), bytes_max }
    }

    /// Takes words in for a mailbox that already holds parcels of so much weight, if there is room for them.
    pub(crate) fn take_in(self: &Arc<Self>, words: Bytes, holds: usize) -> Option<Parcel> {
        let last = LAST.with_borrow(Weak::upgrade).filter(|it| it.is_of(&words) && Arc::ptr_eq(&it.depot, self));
        let shared = last.unwrap_or_else(|| {
            let shared = Arc::new(Shared { words, depot: Arc::clone(self), counted: AtomicBool::new(false) });
            LAST.set(Arc::downgrade(&shared));
            shared
        });
        let will_hold = holds.saturating_add(shared.weight());
        let counted = will_hold > SMALL_BYTES;
        if counted {
            let more = if shared.counted.load(Ordering::Relaxed) { PLACE_BYTES } else { shared.weight() };
            let admit = |held: usize| {
                let free = self.bytes_max.saturating_sub(held);
                // Otherwise a large message could reach nobody.
                let share = if holds == 0 { free } else { free / PART };
                (will_hold <= share).then_some(held + more)
            };
            self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, admit).ok()?;
            shared.counted.store(true, Ordering::Relaxed);
        }
        Some(Parcel { shared, counted })
    }

    fn let_go(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl Parcel {
    pub(crate) fn words(&self) -> &[u8] {
        &self.shared.words
    }

    /// What it weighs in its mailbox.
    pub(crate) fn weight(&self) -> usize {
        self.shared.weight()
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        if self.counted {
            self.shared.depot.let_go(PLACE_BYTES);
        }
    }
}

impl Shared {
    /// Whether they are the same bytes in the same place: these are alive, so no others can stand there.
    fn is_of(&self, words: &Bytes) -> bool {
        self.words.as_ptr() == words.as_ptr() && self.words.len() == words.len()
    }

    fn weight(&self) -> usize {
        PLACE_BYTES + self.words.len()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if *self.counted.get_mut() {
            self.depot.let_go(self.words.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = 2 * SMALL_BYTES;

    fn held(depot: &Depot) -> usize {
        depot.held.load(Ordering::Acquire)
    }

    fn words(bytes: usize) -> Bytes {
        Bytes::from(vec![0; bytes])
    }

    #[test]
    fn the_same_words_are_counted_once_and_places_one_by_one() {
        let depot = Arc::new(Depot::new(1 << 20));
        let same = words(LARGE);
        let parcels: Vec<Parcel> = (0..5).map(|_| depot.take_in(same.clone(), 0).unwrap()).collect();
        assert_eq!(held(&depot), LARGE + 5 * PLACE_BYTES);
        let other = depot.take_in(words(LARGE), 0).unwrap();
        assert_eq!(held(&depot), 2 * LARGE + 6 * PLACE_BYTES);
        let elsewhere = Arc::new(Depot::new(1 << 20));
        let third = elsewhere.take_in(same, 0).unwrap();
        assert_eq!(held(&elsewhere), third.weight());
        drop((parcels, other));
        assert_eq!(held(&depot), 0);
        drop(third);
        assert_eq!(held(&elsewhere), 0);
    }

    /// As many parcels of a kilobyte as one mailbox may hold.
    fn hoard(depot: &Arc<Depot>) -> Vec<Parcel> {
        let mut holds = 0;
        let next = || {
            let parcel = depot.take_in(words(1024), holds)?;
            holds += parcel.weight();
            Some(parcel)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn one_has_a_part_and_everybody_has_a_little() {
        let depot = Arc::new(Depot::new(1 << 20));
        let hoards: Vec<Vec<Parcel>> = (0..100).map(|_| hoard(&depot)).collect();
        let weight = 1024 + PLACE_BYTES;
        let (first, last) = (hoards[0].len() * weight, hoards[99].len() * weight);
        assert!((SMALL_BYTES + 1..=(1 << 20) / PART).contains(&first), "{first}");
        assert!((SMALL_BYTES - weight..=SMALL_BYTES).contains(&last), "{last}");
        assert!(held(&depot) <= 1 << 20);
        drop(hoards);
        assert_eq!(held(&depot), 0);
        let all = (1 << 20) - PLACE_BYTES;
        assert!(depot.take_in(words(all + 1), 0).is_none());
        assert!(depot.take_in(words(all), 0).is_some(), "one that holds nothing may have all");
    }
}
