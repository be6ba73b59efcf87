//! Bodies out of memory, and back: the engine's caller stores and loads them (`residency` chooses).

use bytes::Bytes;

use super::Engine;
use super::ahead::{self, room_for_bodies};
use super::state::State;
use crate::ids::JobId;
use crate::jobs::{Job, Slab, Slot, Stored};
use crate::work::STEP;

impl Engine {
    /// Bodies begin to leave memory when less than this part of it is left.
    pub const LEFT_PART: u64 = ahead::LEFT_PART;

    /// Bodies of less than this part of it are left alone while there is room.
    pub const BODIES_PART: u64 = ahead::BODIES_PART;

    /// Bytes of bodies that fit into memory before some must leave it.
    pub fn room_for_bodies(&self) -> u64 {
        room_for_bodies(&self.state).left
    }

    /// Bytes counted for jobs, schedules and batches in memory.
    pub fn resident_bytes(&self) -> u64 {
        self.state.resident_bytes()
    }

    /// Bytes of jobs' bodies in memory: about what can leave it.
    pub const fn bodies_here(&self) -> u64 {
        self.state.jobs.bodies_here()
    }

    /// Jobs whose bodies are stored outside memory, and the bytes of these bodies.
    pub const fn stored(&self) -> (u64, u64) {
        self.state.jobs.stored()
    }

    /// Bodies that can leave memory, those first that are needed last: `bytes` or a little more, if a look at some
    /// thousand jobs finds them. The caller writes them somewhere and reports it ([`Engine::set_stored`]). Packs the jobs
    /// it has passed whose bodies are not in memory, but for the neighbours of those with bodies to write: these jobs
    /// change soon.
    pub fn cool(&mut self, bytes: u64) -> Vec<(JobId, Bytes)> {
        let room = room_for_bodies(&self.state);
        let State {
            residency,
            jobs,
            queues,
            meta,
            work,
            ..
        } = &mut self.state;
        let mut cool = residency.cool(jobs, queues, meta.next_job(), bytes, room);
        work.spend(STEP * 4 * (cool.looked + cool.opened * Slab::JOBS) as u64);
        let share = |(id, slot): &(JobId, Slot)| Some((*id, jobs.at(*slot)?.payload.share_body()));
        let bodies = cool.bodies.iter().filter_map(share).collect();
        cool.bodies.sort_unstable_by_key(|(_, slot)| *slot);
        let beside = |slot: Slot| {
            let at = cool.bodies.partition_point(|(_, body)| *body < slot);
            let around = [at.checked_sub(1), Some(at)].into_iter().flatten();
            around
                .filter_map(|at| cool.bodies.get(at))
                .any(|(_, body)| Slab::share_page(*body, slot))
        };
        jobs.pack(cool.jobs.into_iter().filter(|slot| !beside(*slot)));
        bodies
    }

    /// Packs these jobs together with their neighbours, where none is handed out and none has a large body in memory.
    /// They come back when one of them is looked at.
    pub fn pack(&mut self, jobs: impl Iterator<Item = JobId>) {
        let slots: Vec<_> = jobs.filter_map(|job| self.state.jobs.slot(job)).collect();
        self.state.jobs.pack(slots.into_iter());
    }

    /// The pages of jobs in memory, by a place in each: to look at all jobs without all of them unpacked at once.
    pub fn job_pages(&self) -> impl Iterator<Item = Slot> + use<> {
        self.state.jobs.pages()
    }

    /// The jobs of a page, which is open from now on.
    pub fn jobs_in(&self, page: Slot) -> impl Iterator<Item = &Job> {
        Slab::slots_of(page).filter_map(|slot| self.state.jobs.at(slot))
    }

    /// Closes a page that is packed, if it is open.
    pub fn close_page(&mut self, page: Slot) {
        self.state.jobs.close(page);
    }

    /// A body was written at this place. Returns whether the job refers to it from now on: not if the job has gone, is
    /// handed out, or has another body by now.
    pub fn set_stored(&mut self, job: JobId, body: &[u8], at: u64) -> bool {
        let jobs = &mut self.state.jobs;
        let Some(slot) = jobs.slot(job) else {
            return false;
        };
        let is_same = |job: &&Job| {
            job.lease().is_none() && job.payload.stored().is_none() && job.body() == body
        };
        let Some(now) = jobs.at(slot).filter(is_same) else {
            return false;
        };
        let Some(payload) =
            Stored::new(at, body).and_then(|stored| now.payload.with_stored(stored))
        else {
            return false;
        };
        jobs.update(slot, |job| job.payload = payload);
        true
    }

    /// A body was read. Returns whether a job has it in memory from now on: not if the job has gone, or does not refer
    /// to this place.
    pub fn set_loaded(&mut self, job: JobId, from: Stored, body: &Bytes) -> bool {
        let jobs = &mut self.state.jobs;
        let Some(slot) = jobs.slot(job) else {
            return false;
        };
        let refers = jobs
            .at(slot)
            .is_some_and(|job| job.payload.stored() == Some(from))
            && from.is(body);
        if refers {
            jobs.update(slot, |job| job.payload = job.payload.with_body(body));
        }
        refers
    }

    /// The places whose bodies no job needs any more, since the last call. A commit that is not durable, and an event
    /// that has not left, may still need them.
    pub fn take_freed(&mut self) -> Vec<Stored> {
        self.state.jobs.take_freed()
    }

    /// Bodies that are needed soon, since the last call.
    pub fn take_wanted(&mut self) -> Vec<(JobId, Stored)> {
        self.state.residency.take_wanted()
    }
}
