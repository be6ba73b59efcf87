//! Selects the pages of jobs to pack when memory is not short: full pages, once enough later pages have
//! become full.
//!
//! A few thousand jobs are never packed, so that jobs with short waits have no extra cost. Each new job pays
//! for a limited amount of packing. Otherwise a page that is opened repeatedly, because jobs are taken out of
//! order or examined often, would be packed again each time.

use std::cell::RefCell;
use std::collections::VecDeque;

use super::packed::PAGE;

/// Full pages that stay as they are.
pub(super) const FULL: usize = 16;
/// Jobs that may be packed for each new one.
const FOR_NEW: usize = 2;
/// The limit of saved-up packing, in jobs.
const CREDIT_MAX: usize = 4 * FULL * PAGE;

/// The state of a page in the list of pages to pack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Place {
    #[default]
    None,
    Listed,
    /// Listed, and it became full again since: it moves to the end.
    Again,
}

/// The pages to pack next, oldest first, without repetition.
#[derive(Debug, Default)]
pub(super) struct Full {
    pages: VecDeque<u32>,
    /// Pages opened by a lookup that are not listed yet.
    opened: RefCell<Vec<u32>>,
    /// Jobs that may be packed.
    credit: usize,
}

impl Full {
    /// Adds the packing that a new job pays for.
    pub(super) const fn earn(&mut self) {
        self.credit += FOR_NEW;
    }

    /// Lists a page that is full, or no longer packed.
    pub(super) fn list(&mut self, page: u32, place: &mut Place) {
        if *place == Place::None {
            *place = Place::Listed;
            self.pages.push_back(page);
        } else {
            *place = Place::Again;
        }
    }

    /// Records that a lookup has opened a page.
    pub(super) fn opened(&self, page: u32) {
        self.opened.borrow_mut().push(page);
    }

    /// The pages that lookups have opened since the last call.
    pub(super) fn take_opened(&mut self) -> Vec<u32> {
        self.opened.take()
    }

    /// The page that is packed next, if it is time. It is then no longer listed.
    pub(super) fn next(&mut self) -> Option<u32> {
        self.credit = self.credit.min(CREDIT_MAX);
        if self.pages.len() > FULL && self.credit >= PAGE {
            self.pages.pop_front()
        } else {
            None
        }
    }

    /// A page was packed.
    pub(super) const fn pay(&mut self) {
        self.credit -= PAGE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Timestamp, Token};
    use crate::jobs::slab::tests::job;
    use crate::jobs::{Holder, JobState, Lease, OnExpiry, Slab, Slot};

    /// Returns true if this page is packed.
    fn packed(slab: &Slab, page: usize) -> bool {
        slab.is_packed(slab.firsts().nth(page).unwrap())
    }

    fn packed_pages(slab: &Slab) -> usize {
        slab.firsts().filter(|first| slab.is_packed(*first)).count()
    }

    fn fill(slab: &mut Slab, pages: usize) -> Vec<Slot> {
        (0..pages * PAGE)
            .map(|id| slab.insert(job(id as u64)))
            .collect()
    }

    fn filled(pages: usize) -> (Slab, Vec<Slot>) {
        let mut slab = Slab::default();
        let slots = fill(&mut slab, pages);
        (slab, slots)
    }

    #[test]
    fn a_full_page_is_packed_when_others_are_full_behind_it() {
        let mut slab = Slab::default();
        for id in 0..(FULL + 9) * PAGE {
            slab.insert(job(id as u64));
            assert_eq!(
                packed_pages(&slab),
                ((id + 1) / PAGE).saturating_sub(FULL),
                "{id}"
            );
        }
        assert!((0..9).all(|page| packed(&slab, page)));
        assert!(slab.saved_bytes() > 9 * 255 * 200);
    }

    #[test]
    fn a_few_thousand_jobs_are_never_packed() {
        let (mut slab, mut slots) = filled(FULL - 1);
        for id in 0..20_000_u64 {
            // Holes appear in another order each time.
            let gone = slots.swap_remove(usize::try_from(id * 7_919 % slots.len() as u64).unwrap());
            slab.remove(gone);
            slots.push(slab.insert(job(id)));
        }
        assert_eq!((packed_pages(&slab), slab.saved_bytes()), (0, 0));
    }

    #[test]
    fn pages_that_are_taken_from_in_order_are_packed_once() {
        let (mut slab, slots) = filled(FULL + 20);
        for (slot, left) in slots.iter().zip((0..slots.len()).rev()) {
            assert!(slab.remove(*slot).is_some());
            let pages = left / PAGE;
            assert_eq!(packed_pages(&slab), pages.saturating_sub(FULL));
        }
        assert_eq!(slab.saved_bytes(), 0);
    }

    /// For each new job two jobs are packed, however often other jobs are examined.
    #[test]
    fn jobs_that_are_needed_in_any_order_are_not_packed_again_and_again() {
        const STEPS: usize = 40_000;
        for pause in [1, 10] {
            let (mut slab, mut slots) = filled(FULL + 30);
            let closed = |slab: &Slab| {
                slab.firsts()
                    .map(|first| slab.is_packed(first))
                    .collect::<Vec<_>>()
            };
            let (mut times, mut before) = (0, closed(&slab));
            for id in 0..STEPS {
                let at = id * 7_919 % slots.len();
                if id % pause == 0 {
                    slab.remove(slots.swap_remove(at));
                    slots.push(slab.insert(job(id as u64)));
                } else {
                    assert!(slab.at(slots[at]).is_some());
                }
                let now = closed(&slab);
                times += now
                    .iter()
                    .zip(&before)
                    .filter(|(now, before)| **now && !**before)
                    .count();
                before = now;
            }
            let most = (CREDIT_MAX + FOR_NEW * STEPS / pause) / PAGE;
            assert!(
                (most / 4..=most).contains(&times),
                "{times} times, at most {most}"
            );
        }
    }

    #[test]
    fn pages_that_a_look_has_opened_are_closed_when_others_become_full() {
        let (mut slab, slots) = filled(FULL + 9);
        let before = slab.saved_bytes();
        slots
            .iter()
            .for_each(|slot| assert!(slab.at(*slot).is_some()));
        assert_eq!((packed_pages(&slab), slab.saved_bytes()), (0, 0));
        fill(&mut slab, 9);
        assert!(
            slab.saved_bytes() >= 2 * before - before / 9,
            "{} of {before}",
            slab.saved_bytes()
        );
    }

    #[test]
    fn a_page_with_a_job_that_is_handed_out_stays() {
        let (mut slab, slots) = filled(FULL);
        let holder = Holder::Named(Box::default());
        let lease = Lease::new(holder, Token(1), Timestamp(0), Timestamp(1), OnExpiry::Fail);
        slab.at_mut(slots[PAGE]).unwrap().state = JobState::Leased(Box::new(lease));
        fill(&mut slab, 3);
        assert_eq!(
            [0, 1, 2].map(|page| packed(&slab, page)),
            [true, false, true]
        );
        // It was skipped, and is ready again.
        slab.at_mut(slots[PAGE]).unwrap().state = JobState::Ready;
        let again = slab.remove(slots[PAGE]).unwrap();
        assert_eq!(slab.insert(again), slots[PAGE]);
        fill(&mut slab, FULL + 1);
        assert!(packed(&slab, 1));
    }
}
