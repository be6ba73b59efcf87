//! Bytes that one connection publishes to others, while they are in mailboxes, and the limit on
//! them.
//!
//! A peer that does not read never delays the publisher: a mailbox without space misses the bytes.
//! Each mailbox has a small uncounted allowance. Beyond it, a mailbox may hold at most 1/8 of the
//! bytes that are free at the time, so that one slow peer gets only a part, and many slow peers get
//! less each.
//!
//! Bytes in many mailboxes exist once, and are counted once. The entries in mailboxes are counted
//! one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;

use crate::budget::{Budget, SMALL_BYTES};
use crate::mailbox::mail::QueuedMail;

/// Size of an entry in a mailbox.
const PLACE_BYTES: usize = size_of::<QueuedMail>();

/// A mailbox may hold this fraction of the free bytes.
const PART: usize = 8;

/// The limit on published bytes in all mailboxes together.
#[derive(Debug, Default)]
pub struct SharedBudget {
    held: AtomicUsize,
    bytes_max: AtomicUsize,
    missed: AtomicU64,
}

/// Bytes for the mailboxes of several connections. They exist once, and are counted once.
#[derive(Debug)]
pub struct Publication {
    data: Bytes,
    budget: Arc<Budget>,
    counted: AtomicBool,
}

/// Published bytes in one mailbox.
#[derive(Debug)]
pub struct Published {
    publication: Arc<Publication>,
    counted: bool,
}

impl SharedBudget {
    /// Creates a budget of this many bytes.
    pub const fn new(bytes_max: usize) -> Self {
        Self {
            held: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(bytes_max),
            missed: AtomicU64::new(0),
        }
    }

    /// Sets the room.
    pub fn limit(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// How often a mailbox has missed a publication.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    fn let_go(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl Publication {
    /// Creates a publication of these bytes.
    pub fn new(data: Bytes, budget: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Self {
            data,
            budget: Arc::clone(budget),
            counted: AtomicBool::new(false),
        })
    }

    /// The bytes for a mailbox that already `holds` published bytes of this weight, if there is
    /// space for them.
    pub fn admit(self: &Arc<Self>, holds: usize) -> Option<Published> {
        let shared = &self.budget.published;
        let will_hold = holds.saturating_add(self.weight());
        let counted = will_hold > SMALL_BYTES;
        if counted {
            let more = if self.counted.load(Ordering::Relaxed) {
                PLACE_BYTES
            } else {
                self.weight()
            };
            let admit = |held: usize| {
                let free = shared
                    .bytes_max
                    .load(Ordering::Relaxed)
                    .saturating_sub(held);
                // Otherwise a large message could not reach any mailbox.
                let share = if holds == 0 { free } else { free / PART };
                (will_hold <= share).then_some(held + more)
            };
            shared
                .held
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, admit)
                .ok()?;
            self.counted.store(true, Ordering::Relaxed);
        }
        Some(Published {
            publication: Arc::clone(self),
            counted,
        })
    }

    /// Records that this many mailboxes had no space for it.
    pub(crate) fn miss(&self, mailboxes: usize) {
        self.budget
            .published
            .missed
            .fetch_add(mailboxes as u64, Ordering::Relaxed);
    }

    fn weight(&self) -> usize {
        PLACE_BYTES + self.data.len()
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        if *self.counted.get_mut() {
            self.budget.published.let_go(self.data.len());
        }
    }
}

impl Published {
    /// The bytes.
    pub fn data(&self) -> &[u8] {
        &self.publication.data
    }

    /// Its weight in a mailbox.
    pub fn weight(&self) -> usize {
        self.publication.weight()
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        if self.counted {
            self.publication.budget.published.let_go(PLACE_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::Mailbox;
    use crate::testing::captured_from;

    const LARGE: usize = 2 * SMALL_BYTES;

    /// A budget of this many published bytes.
    fn budget(bytes_max: usize) -> Arc<Budget> {
        Arc::new(Budget::new(2 * bytes_max))
    }

    fn held(budget: &Budget) -> usize {
        budget.published.held.load(Ordering::Acquire)
    }

    fn publication(bytes: usize, budget: &Arc<Budget>) -> Arc<Publication> {
        Publication::new(Bytes::from(vec![0; bytes]), budget)
    }

    #[test]
    fn shared_bytes_are_counted_once_and_letters_one_by_one() {
        let budget = budget(1 << 20);
        let same = publication(LARGE, &budget);
        let parcels: Vec<Published> = (0..5).map(|_| same.admit(0).unwrap()).collect();
        assert_eq!(held(&budget), LARGE + 5 * PLACE_BYTES);
        let other = publication(LARGE, &budget).admit(0).unwrap();
        assert_eq!(held(&budget), 2 * LARGE + 6 * PLACE_BYTES);
        drop((parcels, other));
        assert_eq!(held(&budget), LARGE, "one connection still publishes it");
        drop(same);
        assert_eq!(held(&budget), 0);
    }

    #[test]
    fn a_new_limit_holds_for_new_publications() {
        let budget = budget(1 << 20);
        let fits = |bytes| publication(bytes - PLACE_BYTES, &budget).admit(0).is_some();
        for bytes_max in [2 * LARGE, LARGE] {
            budget.limit(2 * bytes_max);
            assert!(fits(bytes_max) && !fits(bytes_max + 1), "{bytes_max}");
        }
    }

    /// As many parcels of a kilobyte as one mailbox may hold.
    fn hoard(budget: &Arc<Budget>) -> Vec<Published> {
        let mut holds = 0;
        let next = || {
            let published = publication(1024, budget).admit(holds)?;
            holds += published.weight();
            Some(published)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn one_mailbox_has_a_part_and_each_has_an_allowance() {
        let budget = budget(1 << 20);
        let hoards: Vec<Vec<Published>> = (0..100).map(|_| hoard(&budget)).collect();
        let weight = 1024 + PLACE_BYTES;
        let (first, last) = (hoards[0].len() * weight, hoards[99].len() * weight);
        assert!(
            (SMALL_BYTES + 1..=(1 << 20) / PART).contains(&first),
            "{first}"
        );
        assert!(
            (SMALL_BYTES - weight..=SMALL_BYTES).contains(&last),
            "{last}"
        );
        assert!(held(&budget) <= 1 << 20);
        drop(hoards);
        assert_eq!(held(&budget), 0);
        let all = (1 << 20) - PLACE_BYTES;
        assert!(publication(all + 1, &budget).admit(0).is_none());
        assert!(
            publication(all, &budget).admit(0).is_some(),
            "an empty mailbox may use all"
        );
    }

    #[test]
    fn publications_beyond_the_allowance_count_in_the_budget() {
        let budget = budget(1 << 20);
        let counted = |weight: usize, holds: usize| {
            let _published = publication(weight - PLACE_BYTES, &budget)
                .admit(holds)
                .unwrap();
            held(&budget)
        };
        assert_eq!(counted(SMALL_BYTES, 0), 0);
        assert_eq!(counted(SMALL_BYTES + 1, 0), SMALL_BYTES + 1);
        assert_eq!(counted(SMALL_BYTES, 1), SMALL_BYTES);
    }

    #[test]
    fn a_full_mailbox_misses_a_publication_and_others_do_not() {
        let budget = budget(1 << 20);
        let mailboxes = [1 << 20, 10, 1 << 20].map(|bytes_max| {
            Arc::new(Mailbox::new(
                bytes_max,
                Arc::clone(&budget),
                crate::testing::nowhere(),
            ))
        });
        let logged = |to: &[Arc<Mailbox>]| {
            captured_from(tracing::Level::DEBUG, || publication(100, &budget).post(to))
        };
        assert!(logged(&mailboxes).contains("missed=1"));
        assert_eq!(budget.published.missed(), 1);
        assert_eq!(logged(&mailboxes[..1]), "", "no connection misses it");
        assert_eq!(mailboxes.map(|mailbox| mailbox.len()), [2, 0, 1]);
    }
}
