//! Opening a store with more bodies than fit into memory: while jobs are read, excess bodies stay in the
//! files of the table and of the log, or are moved to a separate file.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

use windlass_engine::{Engine, Job, JobId, Slab, Slot, Stored};

use crate::body_file::{BodyFile, Overflow};

/// The most recently modified pages of jobs, which are not packed.
const PAGES_OPEN: usize = 64;

/// Moves bodies out of memory, and packs jobs.
#[derive(Debug)]
pub(crate) struct Cold {
    overflow: Overflow,
    /// The file of the store that is read, if it stays as it is: bodies in it need not be copied.
    pub(crate) base: Option<PathBuf>,
    /// The file with the bodies that are stored.
    pub(crate) file: Option<BodyFile>,
    /// Approximate bytes of jobs in memory, if no job is packed.
    bytes: u64,
    /// Bytes that packing saves.
    saved: u64,
    /// A body could not be stored.
    has_failed: bool,
    /// A job of each recently modified page, the newest at the end.
    changed: VecDeque<Slot>,
}

impl Cold {
    pub(crate) fn new(overflow: &Overflow) -> Self {
        let (overflow, changed) = (overflow.clone(), VecDeque::new());
        Self {
            overflow,
            base: None,
            file: None,
            bytes: 0,
            saved: 0,
            has_failed: false,
            changed,
        }
    }

    /// Records that a job was modified. If memory is full, packs the least recently modified page.
    pub(crate) fn changed(&mut self, slot: Slot, jobs: &mut Slab) {
        if self
            .changed
            .iter()
            .rev()
            .any(|known| Slab::share_page(*known, slot))
        {
            return;
        }
        self.changed.push_back(slot);
        self.pack_but(PAGES_OPEN, jobs);
    }

    /// If memory is full, packs all pages except this number of the most recently modified ones.
    pub(crate) fn pack_but(&mut self, open: usize, jobs: &mut Slab) {
        let is_full = self.bytes > self.overflow.memory;
        let done = self.changed.len().saturating_sub(open);
        self.changed
            .drain(..done)
            .filter(|_| is_full)
            .for_each(|page| jobs.pack(page));
        self.saved = jobs.saved_bytes();
    }

    /// Accounts for a job that replaces another, if there is one. `u64` is the place of the body in the file
    /// that is being read, if known. The body is moved out of memory if that is full.
    pub(crate) fn replace(&mut self, old: Option<&Job>, new: Option<(&mut Job, Option<u64>)>) {
        if let Some(old) = old {
            self.bytes -= bytes_of(old);
            if let (Some(stored), Some(file)) = (old.payload.stored(), &mut self.file) {
                file.free(stored);
            }
        }
        let Some((job, at)) = new else { return };
        if (self.bytes + bytes_of(job)).saturating_sub(self.saved) > self.overflow.memory
            && job.durable
            && job.payload.can_leave()
            && let Err(error) = self.store(job, at)
            && !std::mem::replace(&mut self.has_failed, true)
        {
            tracing::warn!(%error, "bodies that do not fit into memory cannot be stored: they stay in memory");
        }
        self.bytes += bytes_of(job);
    }

    fn store(&mut self, job: &mut Job, at: Option<u64>) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(BodyFile::create(&self.overflow.folder)?),
        };
        let place = at.zip(self.base.as_deref());
        let at = match place.and_then(|(at, base)| file.refer(base, at, job.body().len())) {
            Some(at) => at,
            None => file.write(job.body())?,
        };
        let payload =
            Stored::new(at, job.body()).and_then(|stored| job.payload.with_stored(stored));
        job.payload = payload.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(())
    }

    /// Loads the bodies of leased jobs when everything was read.
    pub(crate) fn warm(&mut self, engine: &mut Engine, leased: &[(JobId, Stored)]) {
        let Some(file) = &mut self.file else { return };
        for (job, stored) in leased {
            if let Ok(body) = file.reader().read(*stored) {
                engine.set_loaded(*job, *stored, &body);
            }
        }
        engine
            .take_freed()
            .into_iter()
            .for_each(|stored| file.free(stored));
    }
}

/// Approximate bytes of a job in memory, without parts that are updated while it moves, including entries in
/// the engine's indexes.
fn bytes_of(job: &Job) -> u64 {
    const FIXED: u64 = 300;
    let result = job.extra.as_deref().and_then(|extra| extra.result.as_ref());
    let body = if job.payload.stored().is_some() {
        0
    } else {
        job.body().len()
    };
    FIXED + body as u64 + result.map_or(0, |result| result.len() as u64)
}

#[cfg(test)]
mod tests {
    use windlass_engine::Payload;

    use super::*;
    use crate::record::plain_job;

    fn cold(memory: u64) -> Cold {
        Cold::new(&Overflow {
            folder: std::env::temp_dir(),
            memory,
        })
    }

    #[test]
    fn a_page_is_packed_when_enough_others_have_changed_since() {
        let mut jobs = Slab::default();
        let mut pages: Vec<Slot> = Vec::new();
        for id in 1.. {
            let slot = jobs.insert(plain_job(id));
            jobs.at_mut(slot).unwrap().payload = Payload::copy(None, b"", b"small");
            if !pages
                .last()
                .is_some_and(|last| Slab::share_page(*last, slot))
            {
                pages.push(slot);
            }
            if pages.len() > PAGES_OPEN {
                break;
            }
        }
        let (last, first) = (pages.pop().unwrap(), pages[0]);
        // The first pages were packed when later ones became full.
        assert!(jobs.saved_bytes() > 0);
        pages
            .iter()
            .for_each(|page| assert!(jobs.at_mut(*page).is_some()));
        let mut cold = cold(0);
        cold.replace(None, Some((&mut plain_job(1), None)));
        pages
            .into_iter()
            .for_each(|page| cold.changed(page, &mut jobs));
        cold.changed(first, &mut jobs);
        assert_eq!(
            (jobs.saved_bytes(), cold.saved),
            (0, 0),
            "those that changed last are open"
        );
        cold.changed(last, &mut jobs);
        assert!(jobs.is_packed(first) && !jobs.is_packed(last));
        assert!(jobs.saved_bytes() > 0);
        assert_eq!(cold.saved, jobs.saved_bytes());
    }

    #[test]
    fn a_body_leaves_memory_when_the_jobs_exceed_it() {
        let (mut first, mut second) = (plain_job(1), plain_job(2));
        let mut cold = cold(400);
        cold.replace(None, Some((&mut first, None)));
        assert_eq!(
            (first.payload.stored(), cold.bytes),
            (None, 400),
            "exactly what fits"
        );
        cold.replace(None, Some((&mut second, None)));
        assert_eq!(
            (
                second.payload.stored().map(|Stored { len, .. }| len),
                cold.bytes
            ),
            (Some(100), 700)
        );
        cold.replace(Some(&second), None);
        assert_eq!((cold.bytes, cold.file.as_ref().unwrap().bytes()), (400, 0));
        first.extra.get_or_insert_default().result = Some(vec![0; 50].into());
        assert_eq!(bytes_of(&first), 450);
    }
}
