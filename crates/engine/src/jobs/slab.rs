//! The memory of jobs: pages of slots. A job keeps its slot until it is removed.

use super::job::Job;

/// Jobs per page. A page is allocated and freed whole, so that a drained queue returns its memory. A page of this size
/// fills a block of 24 KiB; one more job, with the allocator's overhead, would need a block of 28 KiB.
const PAGE: usize = 255;

/// A job's index in the slab.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    /// No job.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

#[derive(Debug)]
struct Page {
    jobs: Vec<Option<Job>>,
    used: usize,
}

/// The slots of all jobs.
#[derive(Debug, Default)]
pub(super) struct Slab {
    pages: Vec<Option<Page>>,
    free: Vec<Slot>,
}

impl Slab {
    pub(super) fn at(&self, slot: Slot) -> Option<&Job> {
        let index = slot.0 as usize;
        self.pages.get(index / PAGE)?.as_ref()?.jobs.get(index % PAGE)?.as_ref()
    }

    pub(super) fn at_mut(&mut self, slot: Slot) -> Option<&mut Job> {
        let index = slot.0 as usize;
        self.pages.get_mut(index / PAGE)?.as_mut()?.jobs.get_mut(index % PAGE)?.as_mut()
    }

    pub(super) fn insert(&mut self, job: Job) -> Slot {
        let slot = self.free_slot();
        let index = slot.0 as usize;
        if let Some(Some(page)) = self.pages.get_mut(index / PAGE) {
            page.used += 1;
            if let Some(place) = page.jobs.get_mut(index % PAGE) {
                *place = Some(job);
            }
        }
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Job> {
        let index = slot.0 as usize;
        let page = self.pages.get_mut(index / PAGE)?;
        let job = page.as_mut()?.jobs.get_mut(index % PAGE)?.take()?;
        if let Some(inside) = page {
            inside.used -= 1;
            if inside.used == 0 {
                *page = None;
            }
        }
        self.free.push(slot);
        Some(job)
    }

    fn free_slot(&mut self) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            // Fill the new page's free list backwards, so that slots are used in order.
            let page = u32::try_from(self.pages.len()).unwrap_or(u32::MAX / 1024);
            let size = u32::try_from(PAGE).unwrap_or(u32::MAX);
            self.pages.push(None);
            self.free.extend((page * size + 1..(page + 1) * size).rev().map(Slot));
            Slot(page * size)
        });
        if let Some(page) = self.pages.get_mut(slot.0 as usize / PAGE) {
            page.get_or_insert_with(|| Page { jobs: std::iter::repeat_with(|| None).take(PAGE).collect(), used: 0 });
        }
        slot
    }

    /// Releases the list of pages of an empty slab, unless it is short.
    pub(super) fn shrink_empty(&mut self) {
        const KEEP: usize = 4096;
        if self.pages.len() > KEEP / PAGE {
            *self = Self::default();
        }
    }

    /// All jobs, in order of their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &Job)> {
        let pages = self.pages.iter().enumerate().filter_map(|(n, page)| Some((n, page.as_ref()?)));
        pages.flat_map(|(n, page)| {
            let jobs = page.jobs.iter().enumerate();
            jobs.filter_map(move |(i, job)| Some((Slot(u32::try_from(n * PAGE + i).ok()?), job.as_ref()?)))
        })
    }
}
