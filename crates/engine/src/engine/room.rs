//! The limits of dead and done jobs, and the removal of these for new jobs.
//!
//! Dead jobs exist for inspection and must not affect other clients. Beyond `dead_max`, `dead_bytes_max` or
//! `dead_memory_max` (the memory without bodies, which may be on the disk), the jobs with the earliest end of
//! retention are dropped. Dead jobs never block a push: `jobs_max` and `jobs_bytes_max` are checked without
//! them, and the oldest are dropped for new jobs. A queue may have a separate limit
//! ([`crate::QueueRules::dead_max`]).
//!
//! Done jobs are retained for queries, and for clients that repeat a submit because they do not know that it
//! was accepted. They are dropped for new jobs before dead jobs are, and may use up to a quarter of
//! `jobs_bytes_max` and of the memory. Those with the earliest end of retention are dropped first.
//!
//! A command drops up to `page_max` such jobs. Later commands and ticks drop the rest, which is due
//! immediately. Until then the limits may be exceeded by up to the size of the dead-letter queue.

use super::place::{count, remove_job};
use super::state::State;
use super::warnings::warn_job;
use crate::context::Context;
use crate::jobs::Slot;
use crate::refusal::{Capacity, Outcome};
use crate::warning::WarningKind;
use crate::work::CHANGE;

/// The share of `jobs_bytes_max` and of the memory that done jobs may take.
const DONE_SHARE: u64 = 4;

/// Returns true if jobs that are over must be dropped, because they or all jobs together exceed a
/// limit.
#[inline]
pub(super) fn has_past_to_drop(state: &State) -> bool {
    let too_many = || is_dead_letter_queue_full(state) || is_short_of_room(state, 0, 0);
    state.queues.oldest_of_too_many_dead().is_some()
        || has_too_many_done(state)
        || (has_past(state) && too_many())
}

fn has_past(state: &State) -> bool {
    state.jobs.dead_count() > 0 || state.jobs.done_count() > 0
}

fn has_too_many_done(state: &State) -> bool {
    state.jobs.kept().done > state.limits.jobs_bytes_max.min(state.limits.memory_max) / DONE_SHARE
}

fn is_dead_letter_queue_full(state: &State) -> bool {
    let jobs = &state.jobs;
    let limits = &state.limits;
    jobs.dead_count() > limits.dead_max
        || jobs.kept().dead > limits.dead_bytes_max
        || jobs.kept().dead_memory > limits.dead_memory_max
}

/// Returns true if `jobs` more jobs, with `bytes` more bytes, exceed a limit.
fn is_short_of_room(state: &State, jobs: u64, bytes: u64) -> bool {
    (state.jobs.len() as u64).saturating_add(jobs) > state.limits.jobs_max
        || state.bytes().saturating_add(bytes) > state.limits.jobs_bytes_max
}

/// Drops up to a page of the oldest finished jobs while a limit is exceeded.
#[cold]
pub(super) fn drop_past(state: &mut State, context: &mut Context) {
    for _ in 0..state.page(u32::MAX) {
        if let Some(slot) = state
            .queues
            .oldest_of_too_many_dead()
            .and_then(|job| state.jobs.slot(job))
        {
            drop_one_dead(state, slot, context);
            continue;
        }
        if has_too_many_done(state) {
            forget_oldest_done(state, context);
            continue;
        }
        if !has_past_to_drop(state) {
            return;
        }
        if is_dead_letter_queue_full(state) {
            state.dead_dropped.full += 1;
            drop_oldest_dead(state, context);
        } else {
            drop_oldest(state, context);
        }
    }
}

/// Checks that another job with a body of this size fits after finished jobs have been dropped.
///
/// # Errors
///
/// There would be too many jobs or too many bytes, even without finished jobs.
pub(super) fn check_room_for(state: &State, body_bytes: usize) -> Outcome {
    let held = state.jobs.len() as u64;
    let limit = state.limits.jobs_max;
    if held.saturating_sub(state.jobs.dead_count() + state.jobs.done_count()) >= limit {
        return Err(Capacity::Jobs.exceeded(held, limit));
    }
    check_bytes_for(state, body_bytes as u64, 0)
}

/// Checks that `bytes` more bytes fit after finished jobs have been dropped and `less` other bytes
/// have been freed.
///
/// # Errors
///
/// There would be too many bytes.
pub(super) fn check_bytes_for(state: &State, bytes: u64, less: u64) -> Outcome {
    let held = state.bytes();
    let limit = state.limits.jobs_bytes_max;
    let kept = state.jobs.kept();
    let stays = held
        .saturating_sub(kept.dead + kept.done)
        .saturating_sub(less);
    if stays.saturating_add(bytes) > limit {
        return Err(Capacity::JobBytes.exceeded(held, limit));
    }
    check_memory_for(state, bytes)
}

/// Checks that `bytes` more bytes fit into memory that are not bytes of jobs, because a client that joins a
/// job must not be rejected when the store of jobs is full.
///
/// # Errors
///
/// There would be too many bytes in memory.
pub(super) fn check_memory_for(state: &State, bytes: u64) -> Outcome {
    let resident = state.resident_bytes();
    let limit = state.limits.memory_max;
    if resident.saturating_add(bytes) > limit {
        Err(Capacity::JobBytes.exceeded(resident, limit))
    } else {
        Ok(())
    }
}

/// Drops up to a page of the oldest finished jobs to make space for a new job. An unlisted queue may be
/// dropped with the last job.
pub(super) fn make_way(state: &mut State, jobs: u64, bytes: u64, context: &mut Context) {
    for _ in 0..state.page(u32::MAX) {
        if !has_past(state) || !is_short_of_room(state, jobs, bytes) {
            return;
        }
        drop_oldest(state, context);
    }
}

/// Drops a finished job to make space: a successful one before one that an operator may want to
/// see.
fn drop_oldest(state: &mut State, context: &mut Context) {
    if state.jobs.done_count() > 0 {
        return forget_oldest_done(state, context);
    }
    state.dead_dropped.made_way += 1;
    drop_oldest_dead(state, context);
}

fn forget_oldest_done(state: &mut State, context: &mut Context) {
    if let Some(slot) = state.jobs.oldest_done() {
        state.work.spend(CHANGE);
        warn_job(state, WarningKind::Forgotten, slot, context);
        remove_job(state, slot, context);
    }
}

fn drop_oldest_dead(state: &mut State, context: &mut Context) {
    if let Some(slot) = state.jobs.oldest_dead() {
        drop_one_dead(state, slot, context);
    }
}

fn drop_one_dead(state: &mut State, slot: Slot, context: &mut Context) {
    state.work.spend(CHANGE);
    count(state, slot, |totals| totals.purged += 1);
    remove_job(state, slot, context);
}
