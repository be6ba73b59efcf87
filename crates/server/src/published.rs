//! Bytes that connections post to one another, while they wait in mailboxes, and the limit on them.
//!
//! A peer that does not read never delays the connection that posts: if there is no room, the post is refused. Each mailbox has a
//! small allowance that is not counted. Beyond it, a mailbox may hold at most 1/8 of the bytes that are free at the time. So one
//! peer that does not read gets much less than all, and many such peers get less each.
//!
//! Bytes posted to many mailboxes exist once, and are counted once. Letters in mailboxes are counted one by one.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::budget::SMALL_BYTES;
use crate::mailbox::Letter;

/// A letter in a mailbox.
const PLACE_BYTES: usize = size_of::<Letter>();

/// A mailbox may hold one `PART`th of the free bytes.
const PART: usize = 8;

/// The limit on posted bytes in all mailboxes together.
#[derive(Debug)]
pub(crate) struct SharedBudget {
    held: AtomicUsize,
    bytes_max: usize,
}

/// Posted bytes in one mailbox.
#[derive(Debug)]
pub(crate) struct Published {
    shared: Arc<Shared>,
    counted: bool,
}

/// Posted bytes, shared by all mailboxes they were posted to.
#[derive(Debug)]
struct Shared {
    words: Bytes,
    shared_budget: Arc<SharedBudget>,
    /// Only the posting thread sets it.
    counted: AtomicBool,
}

std::thread_local! {
    /// The last post of this thread: a thread that posts the same bytes to many mailboxes does so in one go.
    static LAST: RefCell<Weak<Shared>> = const { RefCell::new(Weak::new()) };
}

impl SharedBudget {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { held: AtomicUsize::new(0), bytes_max }
    }

    /// Takes in bytes for a mailbox that already `holds` parcels of this weight, if there is room for them.
    pub(crate) fn take_in(self: &Arc<Self>, words: Bytes, holds: usize) -> Option<Published> {
        let last =
            LAST.with_borrow(Weak::upgrade).filter(|it| it.is_of(&words) && Arc::ptr_eq(&it.shared_budget, self));
        let shared = last.unwrap_or_else(|| {
            let shared = Arc::new(Shared { words, shared_budget: Arc::clone(self), counted: AtomicBool::new(false) });
            LAST.set(Arc::downgrade(&shared));
            shared
        });
        let will_hold = holds.saturating_add(shared.weight());
        let counted = will_hold > SMALL_BYTES;
        if counted {
            let more = if shared.counted.load(Ordering::Relaxed) { PLACE_BYTES } else { shared.weight() };
            let admit = |held: usize| {
                let free = self.bytes_max.saturating_sub(held);
                // Otherwise a large message could not reach any mailbox.
                let share = if holds == 0 { free } else { free / PART };
                (will_hold <= share).then_some(held + more)
            };
            self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, admit).ok()?;
            shared.counted.store(true, Ordering::Relaxed);
        }
        Some(Published { shared, counted })
    }

    fn let_go(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl Published {
    pub(crate) fn words(&self) -> &[u8] {
        &self.shared.words
    }

    /// Its weight in a mailbox.
    pub(crate) fn weight(&self) -> usize {
        self.shared.weight()
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        if self.counted {
            self.shared.shared_budget.let_go(PLACE_BYTES);
        }
    }
}

impl Shared {
    /// Whether these are the same bytes at the same address. Ours are alive, so other bytes cannot be there.
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
            self.shared_budget.let_go(self.words.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = 2 * SMALL_BYTES;

    fn held(shared_budget: &SharedBudget) -> usize {
        shared_budget.held.load(Ordering::Acquire)
    }

    fn words(bytes: usize) -> Bytes {
        Bytes::from(vec![0; bytes])
    }

    #[test]
    fn shared_bytes_are_counted_once_and_letters_one_by_one() {
        let shared_budget = Arc::new(SharedBudget::new(1 << 20));
        let same = words(LARGE);
        let parcels: Vec<Published> = (0..5).map(|_| shared_budget.take_in(same.clone(), 0).unwrap()).collect();
        assert_eq!(held(&shared_budget), LARGE + 5 * PLACE_BYTES);
        let other = shared_budget.take_in(words(LARGE), 0).unwrap();
        assert_eq!(held(&shared_budget), 2 * LARGE + 6 * PLACE_BYTES);
        let elsewhere = Arc::new(SharedBudget::new(1 << 20));
        let third = elsewhere.take_in(same, 0).unwrap();
        assert_eq!(held(&elsewhere), third.weight());
        drop((parcels, other));
        assert_eq!(held(&shared_budget), 0);
        drop(third);
        assert_eq!(held(&elsewhere), 0);
    }

    /// As many parcels of a kilobyte as one mailbox may hold.
    fn hoard(shared_budget: &Arc<SharedBudget>) -> Vec<Published> {
        let mut holds = 0;
        let next = || {
            let published = shared_budget.take_in(words(1024), holds)?;
            holds += published.weight();
            Some(published)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn one_mailbox_has_a_part_and_each_has_an_allowance() {
        let shared_budget = Arc::new(SharedBudget::new(1 << 20));
        let hoards: Vec<Vec<Published>> = (0..100).map(|_| hoard(&shared_budget)).collect();
        let weight = 1024 + PLACE_BYTES;
        let (first, last) = (hoards[0].len() * weight, hoards[99].len() * weight);
        assert!((SMALL_BYTES + 1..=(1 << 20) / PART).contains(&first), "{first}");
        assert!((SMALL_BYTES - weight..=SMALL_BYTES).contains(&last), "{last}");
        assert!(held(&shared_budget) <= 1 << 20);
        drop(hoards);
        assert_eq!(held(&shared_budget), 0);
        let all = (1 << 20) - PLACE_BYTES;
        assert!(shared_budget.take_in(words(all + 1), 0).is_none());
        assert!(shared_budget.take_in(words(all), 0).is_some(), "an empty mailbox may use all");
    }
}
