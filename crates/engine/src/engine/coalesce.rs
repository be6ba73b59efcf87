//! Merges submits with the same identity into one job
//! ([`QueueRules::coalesce`](crate::QueueRules::coalesce)).
//!
//! Until a job starts, further submits move the time and replace the body; the job has the coalescing key of
//! the identity. While it runs, another job takes over the key and is queued behind it.
//! [`ahead_of`](super::place::ahead_of) prevents the second job from starting until the first one has
//! finished. Not here: the rest of a push (`push`).

use super::identity::Push;
use super::joined::due_at;
use super::place::{behind, move_job, remember_move, remember_put};
use super::policies::read_key;
use super::requeue::suits_anew;
use super::room::{check_bytes_for, check_memory_for};
use super::state::State;
use crate::context::Context;
use crate::ids::{JobId, Timestamp};
use crate::jobs::{Coalesced, Job, JobState, Slot};
use crate::queues::Coalesce;
use crate::refusal::Outcome;
use crate::request::NewJob;

/// Whether further submits can be merged into a job.
pub(super) enum Standing {
    Waits,
    /// A worker has it, or may have it since a previous engine.
    Runs(JobId),
    Over,
}

pub(super) fn standing(state: &State, slot: Slot) -> Standing {
    match state.jobs.at(slot) {
        Some(job) if job.is_over() => Standing::Over,
        Some(job) if job.lease().is_some() => Standing::Runs(job.id),
        Some(job) if state.may_run_since_before(job.id) => Standing::Runs(job.id),
        Some(_) => Standing::Waits,
        None => Standing::Over,
    }
}

/// Initializes a new job that is the first of an identity, or follows a running one.
pub(super) fn begin(state: &mut State, id: JobId, behind: Option<JobId>) {
    let Some(slot) = state.jobs.slot(id) else {
        return;
    };
    let coalesced = Coalesced {
        behind,
        ..Coalesced::first(state.wall())
    };
    state.jobs.update(slot, |job| {
        job.extra_mut().coalesced = Some(Box::new(coalesced))
    });
    state.followers.step(id, None, behind);
}

/// Handles a restored job if another job may have the key: the one with the higher ID is queued
/// behind the other.
pub(super) fn come_back(state: &mut State, id: JobId, other: Option<JobId>, context: &mut Context) {
    let other = other.unwrap_or(id);
    let ahead = id.min(other);
    let follower = id.max(other);
    if ahead < follower
        && let Some(first) = state.jobs.slot(ahead)
        && let Some(last) = state.jobs.slot(follower)
        && state
            .jobs
            .at(last)
            .is_some_and(|job| job.behind().is_none())
    {
        begin(state, follower, Some(ahead));
        state.jobs.release_key(first, &mut state.timers);
        state.jobs.claim_key(last, &mut state.timers);
        remember_put(state, last, context);
    }
    for slot in behind(state, ahead) {
        if state
            .jobs
            .at(slot)
            .is_some_and(|job| job.state == JobState::Ready)
        {
            move_job(state, slot, JobState::Parked);
            remember_move(state, slot, context);
        }
    }
}

/// When the first of the submits merged into this waiting job was made.
fn since(state: &State, slot: Slot) -> Timestamp {
    let job = state.jobs.at(slot);
    let coalesced = job.and_then(|job| {
        let coalesced = job.extra.as_deref()?.coalesced.as_deref()?;
        (coalesced.attempts == job.attempts).then_some(coalesced.since)
    });
    coalesced.unwrap_or_else(|| state.wall())
}

/// Adds submits to a waiting job, the first of them since the last run at this moment. A worker that had the
/// job before must not finish it, because it has not seen these submits.
pub(super) fn add_submits(state: &mut State, slot: Slot, more: u32, since: Timestamp) {
    state.jobs.update(slot, |job| {
        let before = job.attempts;
        let extra = job.extra_mut();
        let earlier = extra
            .coalesced
            .take()
            .map_or(Coalesced::first(since), |it| *it);
        let has_run = before > earlier.attempts;
        extra.taken_back |= has_run;
        job.attempts = before.saturating_add(has_run.into());
        let submits = earlier.submits.saturating_add(more);
        let attempts = job.attempts;
        job.extra_mut().coalesced = Some(Box::new(Coalesced {
            since,
            submits,
            attempts,
            ..earlier
        }));
    });
}

/// Checks that there is space for a submit that is merged into a waiting job. Only a body that is longer than
/// the replaced one needs space for jobs.
///
/// # Errors
///
/// There is no space.
pub(super) fn check_submit(state: &State, slot: Slot, new: &NewJob, rule: Coalesce) -> Outcome {
    let body = new.body.len() as u64;
    let before = state.jobs.at(slot).map_or(0, |job| job.payload.body_len()) as u64;
    if !rule.latest {
        Ok(())
    } else if body > before {
        check_bytes_for(state, body, before)
    } else {
        check_memory_for(state, body)
    }
}

/// Merges a submit into a waiting job.
pub(super) fn absorb(
    state: &mut State,
    slot: Slot,
    mut push: Push<'_>,
    rule: Coalesce,
    context: &mut Context,
) {
    let since = since(state, slot);
    let at = due_at(state, since, rule);
    push.not_before = Some(at);
    add_submits(state, slot, 1, since);
    state
        .jobs
        .set_expiry(slot, push.expires(state), &mut state.timers);
    if rule.latest {
        let NewJob {
            name, body, meta, ..
        } = push.new;
        let name = name.as_deref().unwrap_or_default();
        state.jobs.resubmit(slot, name, body, meta);
    }
    if let Some(to) = state.jobs.at(slot).and_then(|job| later(state, job, at)) {
        move_job(state, slot, to);
    }
    remember_put(state, slot, context);
    suits_anew(state, slot, context);
    read_key(state, slot, None);
}

/// The state of a waiting job with a new time. The delay after a failure stays.
fn later(state: &State, job: &Job, at: Timestamp) -> Option<JobState> {
    match job.state {
        JobState::Retrying(pause) => Some(JobState::Retrying(
            pause.max(at.shifted(state.skew_ms.saturating_neg())),
        )),
        JobState::Scheduled(_) => Some(JobState::Scheduled(at)),
        JobState::Ready | JobState::Parked if at > state.wall() => Some(JobState::Scheduled(at)),
        JobState::Ready
        | JobState::Parked
        | JobState::Leased(_)
        | JobState::Dead(_)
        | JobState::Done(_) => None,
    }
}
