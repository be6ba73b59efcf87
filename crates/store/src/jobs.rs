//! The jobs of a store while it is read, by number. Bodies that do not fit into memory stay in files, and
//! jobs that were not modified recently are packed, so that reading a store takes no more memory than serving
//! it.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use windlass_engine::{Job, JobId, JobState, Lease, Numbered, Slab, Slot};

use crate::body_file::{BodyFile, BodyReader, Overflow};
use crate::cold::Cold;

/// Jobs by number, in the last state.
#[derive(Debug)]
pub(crate) struct Jobs {
    pub(crate) slab: Slab,
    pub(crate) index: Numbered<Slot>,
    pub(crate) cold: Option<Cold>,
}

impl Default for Jobs {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Jobs {
    /// If `overflow` is set, bodies that exceed that memory are stored in a file.
    pub(crate) fn new(overflow: Option<&Overflow>) -> Self {
        Self {
            slab: Slab::default(),
            index: Numbered::new(Slot::NONE),
            cold: overflow.map(Cold::new),
        }
    }

    /// Sets the file of the following records, if it will not be modified.
    pub(crate) fn read_from(&mut self, file: Option<PathBuf>) {
        self.cold
            .iter_mut()
            .for_each(|cold| cold.base.clone_from(&file));
    }

    /// All jobs, packed where possible, with the index by number.
    pub(crate) fn into_parts(mut self) -> ((Slab, Numbered<Slot>), Option<Cold>) {
        self.cold
            .iter_mut()
            .for_each(|cold| cold.pack_but(0, &mut self.slab));
        ((self.slab, self.index), self.cold)
    }

    pub(crate) const fn len(&self) -> usize {
        self.index.len()
    }

    /// `end` is the end of the job's record in the file that is being read. The body is last in a
    /// record.
    pub(crate) fn put(&mut self, mut job: Job, end: Option<u64>) {
        let (id, known) = (job.id, self.index.get(job.id));
        let old = known.and_then(|slot| self.slab.at(slot));
        let at = end.and_then(|end| end.checked_sub(job.payload.body_len() as u64));
        self.cold
            .iter_mut()
            .for_each(|cold| cold.replace(old, Some((&mut job, at))));
        match known.and_then(|slot| self.slab.at_mut(slot)) {
            Some(place) => *place = job,
            None => drop(self.index.set(id, self.slab.insert(job))),
        }
        self.index
            .get(id)
            .into_iter()
            .for_each(|slot| self.changed(slot));
    }

    pub(crate) fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        let slot = self.index.get(id)?;
        self.changed(slot);
        self.slab.at_mut(slot)
    }

    pub(crate) fn remove(&mut self, id: JobId) {
        if let Some(slot) = self.index.remove(id) {
            let old = self.slab.remove(slot);
            self.cold
                .iter_mut()
                .for_each(|cold| cold.replace(old.as_ref(), None));
            self.changed(slot);
        }
    }

    /// Records that a job was modified or read.
    fn changed(&mut self, slot: Slot) {
        self.cold
            .iter_mut()
            .for_each(|cold| cold.changed(slot, &mut self.slab));
    }

    /// Passes all jobs to `show` in the order of numbers, without the bodies that are not in memory, until
    /// `show` fails.
    pub(crate) fn each<E>(&mut self, mut show: impl FnMut(&Job) -> Result<(), E>) -> Result<(), E> {
        let Self { slab, index, cold } = self;
        for (_, slot) in index.up_from(JobId(0)) {
            slab.at(slot).map_or(Ok(()), &mut show)?;
            cold.iter_mut().for_each(|cold| cold.changed(slot, slab));
        }
        Ok(())
    }

    /// Removes the jobs that `fits` rejects, and corrects jobs that a single change makes valid. Returns the
    /// number of removed jobs.
    pub(crate) fn repair(&mut self, fits: impl Fn(&Job) -> bool) -> u64 {
        let (mut ranks, mut amiss, mut wrong) = (BTreeSet::new(), Vec::new(), Vec::new());
        let shown: Result<(), ()> = self.each(|job| {
            if !fits(job) {
                wrong.push(job.id);
                return Ok(());
            }
            let mut rank = job.rank;
            while !ranks.insert(rank) {
                rank = rank.wrapping_add(1);
            }
            // A batch counts all jobs in it, and it is unknown which were deleted. The jobs continue without
            // it.
            let is_member = job
                .extra
                .as_deref()
                .is_some_and(|extra| extra.member.is_some());
            // No connection has the job after a restart.
            let is_held = job.lease().is_some_and(Lease::connection_bound);
            amiss.extend((rank != job.rank || is_member || is_held).then_some((job.id, rank)));
            Ok(())
        });
        shown.unwrap_or_default();
        for (id, rank) in amiss {
            let Some(job) = self.get_mut(id) else {
                continue;
            };
            job.rank = rank;
            job.extra.iter_mut().for_each(|extra| extra.member = None);
            if job.lease().is_some_and(Lease::connection_bound) {
                job.state = JobState::Ready;
            }
        }
        wrong.iter().for_each(|id| self.remove(*id));
        wrong.len() as u64
    }

    /// The file with the bodies that are not in memory; `None`: all are in memory.
    pub(crate) fn file(&self) -> Option<&BodyFile> {
        self.cold.as_ref()?.file.as_ref()
    }
}

/// A job with the body, which is read if it is not in memory.
pub(crate) fn with_body(job: &Job, bodies: Option<&BodyReader>) -> io::Result<Job> {
    let Some(stored) = job.payload.stored() else {
        return Ok(job.clone());
    };
    let body = bodies.ok_or(io::ErrorKind::NotFound)?.read(stored)?;
    Ok(Job {
        payload: job.payload.with_body(&body),
        ..job.clone()
    })
}
