//! The share of memory for bodies, and the loading of bodies in advance of delivery.

use super::state::State;
use crate::jobs::Slot;
use crate::residency::Room;
use crate::work::LOOKED_UP;

/// See [`crate::Engine::LEFT_PART`].
pub(super) const LEFT_PART: u64 = 4;

/// See [`crate::Engine::BODIES_PART`].
pub(super) const BODIES_PART: u64 = 64;

/// The memory that bodies may use.
pub(super) fn room_for_bodies(state: &State) -> Room {
    let max = state.limits.memory_max;
    let resident = state.resident_bytes();
    let here = state.jobs.bodies_here();
    let most = max - max / LEFT_PART;
    let few = max / BODIES_PART;
    // The other half of the space is for new jobs.
    let half = max.saturating_sub(resident) / 2;
    let left = most
        .saturating_sub(resident)
        .max(few.saturating_sub(here).min(half));
    Room {
        all: most.saturating_sub(resident.saturating_sub(here)).max(few),
        left,
    }
}

/// Loads the bodies of the next jobs of a queue after a delivery.
#[inline(never)]
pub(super) fn look_ahead(state: &mut State, slot: Slot) {
    let room = room_for_bodies(state);
    let State {
        residency,
        jobs,
        queues,
        work,
        ..
    } = state;
    if let Some(job) = jobs.at(slot) {
        let looked = residency.handed_out(jobs, queues, job, room);
        work.spend(LOOKED_UP * u64::from(looked));
    }
}
