//! Bodies outside memory: the engine's caller stores and loads them (`residency` chooses).

use bytes::Bytes;

use super::Engine;
use super::ahead::{self, room_for_bodies};
use super::state::State;
use crate::ids::JobId;
use crate::jobs::{Job, Slab, Slot, Stored};
use crate::work::STEP;

impl Engine {
    /// Bodies start to move out of memory when less than this fraction of it (1/n) is free.
    pub const LEFT_PART: u64 = ahead::LEFT_PART;

    /// Bodies that use less than this fraction of the memory (1/n) stay while there is space.
    pub const BODIES_PART: u64 = ahead::BODIES_PART;

    /// Bytes of bodies that fit into memory before some must leave it.
    pub fn room_for_bodies(&self) -> u64 {
        room_for_bodies(&self.state).left
    }

    /// Bytes counted for jobs, schedules and batches in memory.
    pub fn resident_bytes(&self) -> u64 {
        self.state.resident_bytes()
    }

    /// Bytes of jobs' bodies in memory: approximately the amount that can be moved out.
    pub const fn bodies_here(&self) -> u64 {
        self.state.jobs.bodies_here()
    }

    /// Jobs with bodies outside memory, and the bytes of these bodies.
    pub const fn stored(&self) -> (u64, u64) {
        self.state.jobs.stored()
    }

    /// Bodies that can be moved out of memory, starting with those that are needed last: `bytes` or slightly
    /// more, if a search of some thousand jobs finds them. The caller writes them to the store and reports it
    /// ([`Engine::set_stored`]). Packs the examined jobs without bodies in memory, except neighbours of jobs
    /// with bodies to write, because those are modified soon.
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

    /// Packs these jobs together with the neighbours, if none of them is leased or has a large body in
    /// memory. They are unpacked when a job among them is read.
    pub fn pack(&mut self, jobs: impl Iterator<Item = JobId>) {
        let slots: Vec<_> = jobs.filter_map(|job| self.state.jobs.slot(job)).collect();
        self.state.jobs.pack(slots.into_iter());
    }

    /// The pages of jobs in memory, each represented by a slot, to read all jobs without unpacking all of
    /// them at the same time.
    pub fn job_pages(&self) -> impl Iterator<Item = Slot> + use<> {
        self.state.jobs.pages()
    }

    /// The jobs of a page, which is unpacked by this.
    pub fn jobs_in(&self, page: Slot) -> impl Iterator<Item = &Job> {
        Slab::slots_of(page).filter_map(|slot| self.state.jobs.at(slot))
    }

    /// Closes a page that is packed, if it is open.
    pub fn close_page(&mut self, page: Slot) {
        self.state.jobs.close(page);
    }

    /// Reports that a body was written at this place. Returns `true` if the job now refers to it, and `false`
    /// if the job was removed, is leased, or has a different body.
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

    /// Reports that a body was read. Returns `true` if a job now has it in memory, and `false` if the job was
    /// removed, or does not refer to this place.
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

    /// The places of bodies that no job has needed since the last call. A commit that is not durable, or an
    /// event that has not been sent, may still need them.
    pub fn take_freed(&mut self) -> Vec<Stored> {
        self.state.jobs.take_freed()
    }

    /// Bodies that are needed soon, since the last call.
    pub fn take_wanted(&mut self) -> Vec<(JobId, Stored)> {
        self.state.residency.take_wanted()
    }
}
