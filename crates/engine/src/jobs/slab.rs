//! The memory of jobs: pages of slots. A job stays in the same slot until it is removed.
//!
//! A page of jobs that are not needed soon is stored packed ([`Packed`]). A lookup of a job in it opens it:
//! the jobs are then also present in unpacked form, until the page is closed or one of them is modified. Full
//! pages are packed gradually ([`Full`]), the rest when memory is short.

use std::cell::{Cell, OnceCell};

use super::full::{self, Full};
use super::job::Job;
use super::packed::{PAGE, Packed};

/// Slots per page, of which the last is not used: a page is found by a shift, and not by a division.
const SLOTS: u32 = 256;

/// A job's index in the slab.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub(crate) u32);

impl Slot {
    /// No job.
    pub const NONE: Self = Self(u32::MAX);

    const fn page(self) -> usize {
        (self.0 / SLOTS) as usize
    }

    const fn place(self) -> usize {
        (self.0 % SLOTS) as usize
    }
}

/// A page is unpacked, packed, or both. An unused page is neither.
#[derive(Debug, Default)]
struct Page {
    jobs: OnceCell<Vec<Option<Job>>>,
    packed: Option<Packed>,
    used: usize,
    place: full::Place,
    /// It was opened, and is recorded in [`Full`].
    is_noted: Cell<bool>,
}

impl Page {
    /// Bytes saved by the packed form.
    fn saved_bytes(&self) -> u64 {
        self.packed.as_ref().map_or(0, Packed::saved_bytes)
    }

    fn is_closed(&self) -> bool {
        self.packed.is_some() && self.jobs.get().is_none()
    }

    /// Returns true if it is worth packing, or closing.
    fn can_close(&self) -> bool {
        self.jobs.get().is_some() && (self.used == PAGE || self.packed.is_some())
    }
}

/// The slots of all jobs.
#[derive(Debug, Default)]
pub struct Slab {
    pages: Vec<Page>,
    free: Vec<Slot>,
    /// Bytes saved by packed pages, including open ones.
    packed_saved: u64,
    /// Packed pages that are open, and the bytes that they would save.
    open: Cell<u64>,
    full: Full,
    /// A buffer for the rows of a page that is being packed.
    rows: Vec<u8>,
}

impl Slab {
    /// The maximum number of jobs in a page.
    pub(crate) const JOBS: usize = PAGE;

    /// A job.
    pub fn at(&self, slot: Slot) -> Option<&Job> {
        let page = self.pages.get(slot.page())?;
        let jobs = page
            .jobs
            .get()
            .map_or_else(|| self.open(page, slot), Vec::as_slice);
        jobs.get(slot.place())?.as_ref()
    }

    /// Unpacks a closed page and returns the jobs.
    #[cold]
    fn open<'a>(&self, page: &'a Page, slot: Slot) -> &'a [Option<Job>] {
        page.jobs.get_or_init(|| {
            self.open.set(self.open.get() + page.saved_bytes());
            if page.packed.is_some() && !page.is_noted.replace(true) {
                self.full.opened(slot.0 / SLOTS);
            }
            page.packed.as_ref().map(Packed::jobs).unwrap_or_default()
        })
    }

    /// A job, to change it.
    pub fn at_mut(&mut self, slot: Slot) -> Option<&mut Job> {
        self.jobs_mut(slot)?.get_mut(slot.place())?.as_mut()
    }

    /// The jobs of a page, which is no longer packed.
    fn jobs_mut(&mut self, slot: Slot) -> Option<&mut Vec<Option<Job>>> {
        let page = self.pages.get_mut(slot.page())?;
        if page.packed.is_some() {
            Self::unpack(page, &mut self.packed_saved, &self.open);
            // The job may change and stay.
            self.full.list(slot.0 / SLOTS, &mut page.place);
        }
        page.jobs.get_mut()
    }

    #[cold]
    fn unpack(page: &mut Page, packed_saved: &mut u64, open: &Cell<u64>) {
        let Some(packed) = page.packed.take() else {
            return;
        };
        *packed_saved -= packed.saved_bytes();
        if page.jobs.get().is_none() {
            page.jobs = packed.jobs().into();
        } else {
            open.set(open.get() - packed.saved_bytes());
        }
    }

    /// Adds a job.
    pub fn insert(&mut self, job: Job) -> Slot {
        let (slot, mut is_full) = (self.free_slot(), false);
        if let Some(page) = self.pages.get_mut(slot.page()) {
            if page.used == 0 {
                page.jobs = std::iter::repeat_with(|| None)
                    .take(PAGE)
                    .collect::<Vec<_>>()
                    .into();
            }
            page.used += 1;
            is_full = page.used == PAGE;
        }
        if let Some(place) = self
            .jobs_mut(slot)
            .and_then(|jobs| jobs.get_mut(slot.place()))
        {
            *place = Some(job);
        }
        self.full.earn();
        if is_full {
            self.filled(slot);
        }
        slot
    }

    /// Handles a page that has become full: older pages may be packed.
    #[cold]
    fn filled(&mut self, slot: Slot) {
        for opened in self.full.take_opened() {
            let Some(page) = self.pages.get_mut(opened as usize) else {
                continue;
            };
            page.is_noted.set(false);
            if page.place == full::Place::None && page.can_close() {
                self.full.list(opened, &mut page.place);
            }
        }
        let Some(page) = self.pages.get_mut(slot.page()) else {
            return;
        };
        self.full.list(slot.0 / SLOTS, &mut page.place);
        // The list may contain pages that are no longer full.
        if self.pages.len() * PAGE - self.free.len() <= full::FULL * PAGE {
            return;
        }
        while let Some(next) = self.full.next() {
            let Some(page) = self.pages.get_mut(next as usize) else {
                continue;
            };
            if std::mem::take(&mut page.place) == full::Place::Again {
                self.full.list(next, &mut page.place);
            } else if page.can_close() {
                self.full.pay();
                self.pack(Slot(next * SLOTS));
            }
        }
    }

    /// Removes a job and returns it.
    pub fn remove(&mut self, slot: Slot) -> Option<Job> {
        let page = self.pages.get_mut(slot.page())?;
        if page.packed.is_some() {
            Self::unpack(page, &mut self.packed_saved, &self.open);
        }
        let job = page.jobs.get_mut()?.get_mut(slot.place())?.take()?;
        page.used -= 1;
        if page.used == 0 {
            page.jobs.take();
        }
        self.free.push(slot);
        Some(job)
    }

    fn free_slot(&mut self) -> Slot {
        self.free.pop().unwrap_or_else(|| {
            // Fill the new page's free list backwards, so that slots are used in order.
            let first = Slot(u32::try_from(self.pages.len()).unwrap_or(u32::MAX / 1024) * SLOTS);
            self.pages.push(Page::default());
            self.free.extend(Self::slots_of(first).skip(1).rev());
            first
        })
    }

    /// Packs the page of a slot, if no job in it is leased or has a large body in memory. A page that is
    /// packed and open is closed.
    pub fn pack(&mut self, slot: Slot) {
        let Some(page) = self.pages.get_mut(slot.page()).filter(|page| page.used > 0) else {
            return;
        };
        if page.is_closed() {
            return;
        }
        let is_open = page.packed.is_some();
        if !is_open {
            page.packed = page
                .jobs
                .get()
                .and_then(|jobs| Packed::of(jobs, &mut self.rows));
        }
        if page.packed.is_none() {
            return;
        }
        page.jobs.take();
        let saved = page.saved_bytes();
        if is_open {
            self.open.set(self.open.get() - saved);
        } else {
            self.packed_saved += saved;
        }
    }

    /// Returns true if a lookup of this slot would open the page.
    pub fn is_packed(&self, slot: Slot) -> bool {
        self.pages.get(slot.page()).is_some_and(Page::is_closed)
    }

    /// Bytes of bodies in a packed page that could be stored on disk.
    pub(super) fn can_leave(&self, slot: Slot) -> u64 {
        self.pages
            .get(slot.page())
            .and_then(|page| page.packed.as_ref())
            .map_or(0, Packed::can_leave)
    }

    /// Returns true if the next new job will be in the page of this slot.
    pub(super) fn is_filling(&self, slot: Slot) -> bool {
        self.free
            .last()
            .is_some_and(|next| Self::share_page(*next, slot))
    }

    /// Returns true if two jobs are in one page.
    pub fn share_page(one: Slot, other: Slot) -> bool {
        one.page() == other.page()
    }

    /// Bytes saved by packed pages.
    pub const fn saved_bytes(&self) -> u64 {
        self.packed_saved - self.open.get()
    }

    /// Passes on all jobs, in order of slots. Closes all packed pages.
    pub fn visit(&mut self, mut show: impl FnMut(Slot, &Job)) {
        for first in self.firsts() {
            for slot in Self::slots_of(first) {
                self.at(slot).into_iter().for_each(|job| show(slot, job));
            }
            self.close(first);
        }
    }

    /// Closes the page of a slot, if it is packed and open.
    pub(super) fn close(&mut self, slot: Slot) {
        if self
            .pages
            .get(slot.page())
            .is_some_and(|page| page.packed.is_some())
        {
            self.pack(slot);
        }
    }

    /// The first slot of each page.
    pub(super) fn firsts(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..u32::try_from(self.pages.len()).unwrap_or_default()).map(|page| Slot(page * SLOTS))
    }

    /// The slots of a page, given the first.
    pub(crate) fn slots_of(
        Slot(first): Slot,
    ) -> impl DoubleEndedIterator<Item = Slot> + ExactSizeIterator {
        (0..PAGE).map(move |place| Slot(first + u32::try_from(place).unwrap_or_default()))
    }

    /// Releases the list of pages of an empty slab, unless it is short.
    pub fn shrink_empty(&mut self) {
        const KEEP: usize = 4096;
        if self.pages.len() > KEEP / PAGE {
            *self = Self::default();
        }
    }

    /// All jobs, in order of slots.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &Job)> {
        self.firsts()
            .flat_map(Self::slots_of)
            .filter_map(|slot| Some((slot, self.at(slot)?)))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::context::Context;
    use crate::ids::{JobId, Priority, Protocol, QueueId, Timestamp};
    use crate::jobs::{JobState, Payload, Retry, Unfit};

    pub(in crate::jobs) fn job(id: u64) -> Job {
        Job {
            id: JobId(id),
            queue: QueueId(0),
            protocol: Protocol(0),
            priority: Priority::NORMAL,
            durable: true,
            rank: id,
            state: JobState::Ready,
            ready_at: Timestamp(id),
            payload: Payload::copy(None, b"", b"b"),
            attempts: 0,
            failures: 0,
            retry: Retry::NONE,
            unfit: Unfit::NONE,
            extra: None,
        }
    }

    /// Random operations on a slab, compared with a sorted map.
    #[test]
    fn a_slab_is_a_map_whatever_is_packed() {
        for seed in 0..60 {
            let mut rng = Context::new(Timestamp(0), seed);
            let (mut slab, mut model, mut packed) = (Slab::default(), BTreeMap::new(), 0);
            for step in 0..3_000 {
                let some = model
                    .keys()
                    .nth(usize::try_from(rng.roll(model.len().max(1) as u64)).unwrap())
                    .copied();
                match (rng.roll(10), some) {
                    (0..=4, _) | (_, None) => drop(model.insert(slab.insert(job(step)), job(step))),
                    (5, Some(slot)) => assert_eq!(
                        slab.remove(slot),
                        model.remove(&slot),
                        "seed {seed} step {step}"
                    ),
                    (6, Some(slot)) => {
                        slab.at_mut(slot).unwrap().attempts += 1;
                        model.get_mut(&slot).unwrap().attempts += 1;
                    }
                    (7, Some(slot)) => {
                        assert_eq!(slab.at(slot), model.get(&slot), "seed {seed} step {step}")
                    }
                    (_, Some(slot)) => {
                        slab.pack(slot);
                        packed += u32::from(slab.is_packed(slot));
                    }
                }
                if step % 500 == 0 {
                    let mut shown = Vec::new();
                    slab.visit(|_, job| shown.push(job.clone()));
                    assert!(shown.iter().eq(model.values()), "seed {seed} step {step}");
                }
            }
            assert!(packed > 100);
            let pack = |slab: &mut Slab| {
                slab.firsts().for_each(|first| slab.pack(first));
            };
            pack(&mut slab);
            let saved = slab.saved_bytes();
            assert!(saved > 0);
            assert!(
                slab.iter().map(|(_, job)| job).eq(model.values()),
                "seed {seed}"
            );
            assert_eq!(slab.saved_bytes(), 0, "all are open");
            slab.visit(|_, _| {});
            assert_eq!(slab.saved_bytes(), saved, "and are closed again");
            model
                .keys()
                .for_each(|slot| assert!(slab.at_mut(*slot).is_some()));
            assert_eq!(
                (slab.packed_saved, slab.saved_bytes()),
                (0, 0),
                "none is packed"
            );
        }
    }

    /// Random operations on a slab that is long enough to pack pages.
    #[test]
    fn a_long_slab_is_a_map() {
        for seed in 0..6 {
            let mut rng = Context::new(Timestamp(0), seed);
            let (mut slab, mut model, mut slots, mut most) =
                (Slab::default(), BTreeMap::new(), Vec::new(), 0);
            for step in 0..60_000 {
                let some = (!slots.is_empty())
                    .then(|| usize::try_from(rng.roll(slots.len() as u64)).unwrap());
                let grows = step % 20_000 < 12_000;
                match (rng.roll(if grows { 10 } else { 40 }), some) {
                    (0..=7, _) | (_, None) => {
                        let slot = slab.insert(job(step));
                        assert!(model.insert(slot, job(step)).is_none());
                        slots.push(slot);
                    }
                    (8, Some(at)) => {
                        slab.at_mut(slots[at]).unwrap().attempts += 1;
                        model.get_mut(&slots[at]).unwrap().attempts += 1;
                    }
                    (9, Some(at)) => assert_eq!(
                        slab.at(slots[at]),
                        model.get(&slots[at]),
                        "seed {seed} step {step}"
                    ),
                    (_, Some(at)) => {
                        let slot = slots.swap_remove(at);
                        assert_eq!(
                            slab.remove(slot),
                            model.remove(&slot),
                            "seed {seed} step {step}"
                        );
                    }
                }
                most = most.max(if step % 100 == 0 {
                    slab.firsts().filter(|first| slab.is_packed(*first)).count()
                } else {
                    0
                });
            }
            assert!(most > 9, "{most} pages");
            assert!(
                slab.iter().map(|(_, job)| job).eq(model.values()),
                "seed {seed}"
            );
            slots
                .iter()
                .for_each(|slot| assert_eq!(slab.remove(*slot), model.remove(slot)));
            assert_eq!((slab.packed_saved, slab.open.get()), (0, 0));
        }
    }
}
