//! Merges a run that did not succeed with the job that was queued behind it.
//!
//! Submits with the same identity are merged into one job until it starts, and into another while it runs
//! (`coalesce`). If the run fails, or the worker disappears or returns the job, both are waiting, and only
//! one is needed: the later job if the last submit wins, the earlier one if the first does. This is the
//! leading job. If a client waits for the outcome of the other job, or if that has a stronger guarantee, it
//! stays behind the leading one with the body and is *joined*: it finishes together with that job. If the
//! leading job is removed without a run, because an operator or a client cancels it, a joined job runs
//! itself. Therefore an acknowledged submit never depends on a job with a weaker guarantee.

use super::coalesce::add_submits;
use super::history::record_end;
use super::joined::join;
use super::place::{behind, move_job, remember_move, remember_put, remove_job};
use super::requeue::make_ready;
use super::state::State;
use crate::context::Context;
use crate::history::Ending;
use crate::ids::Timestamp;
use crate::jobs::{Job, JobState, Slot};
use crate::queues::Coalesce;

/// Delays a job until this time after a run that did not succeed.
pub(super) fn pause(state: &mut State, slot: Slot, until: Timestamp, context: &mut Context) {
    if !give_way(state, slot, Some(until), context) {
        move_job(state, slot, JobState::Retrying(until));
        remember_move(state, slot, context);
    }
}

/// Makes a job wait again, until the end of `pause` if there is one. Returns `true` if this has set the job's
/// state, because another job was queued behind it.
#[inline]
pub(super) fn give_way(
    state: &mut State,
    slot: Slot,
    pause: Option<Timestamp>,
    context: &mut Context,
) -> bool {
    !state.followers.is_empty() && give_way_to_follower(state, slot, pause, context)
}

#[inline(never)]
fn give_way_to_follower(
    state: &mut State,
    slot: Slot,
    pause: Option<Timestamp>,
    context: &mut Context,
) -> bool {
    let Some((follower, rule)) = follower_of(state, slot) else {
        return false;
    };
    let wall = state.wall();
    let due = match state.jobs.at(follower).map(|job| &job.state) {
        Some(JobState::Scheduled(at)) => *at,
        Some(_) | None => wall,
    };
    let start = match pause {
        Some(until) => Start::Paused(until.max(due.shifted(state.skew_ms.saturating_neg()))),
        None if due > wall => Start::At(due),
        None => Start::Now,
    };
    if rule.latest {
        join(state, slot, follower);
        place(state, follower, start, context);
        settle(state, slot, follower, context);
        return true;
    }
    let coalesced = state
        .jobs
        .at(follower)
        .and_then(|job| job.extra.as_deref()?.coalesced.as_deref().copied());
    add_submits(
        state,
        slot,
        coalesced.map_or(1, |it| it.submits),
        coalesced.map_or(wall, |it| it.since),
    );
    join(state, follower, slot);
    let is_placed = !matches!(start, Start::Now);
    if is_placed {
        place(state, slot, start, context);
    }
    settle(state, follower, slot, context);
    is_placed
}

/// When a leading job starts.
#[derive(Clone, Copy)]
enum Start {
    Now,
    /// By the wall clock.
    At(Timestamp),
    /// Not before the end of the delay after the failure, even if more submits arrive; by the engine's time.
    Paused(Timestamp),
}

/// The job that is queued behind this one, and the rule of the queue.
fn follower_of(state: &State, slot: Slot) -> Option<(Slot, Coalesce)> {
    let job = state.jobs.at(slot)?;
    let rule = state.queues.rules(job.queue)?.coalesce?;
    let waits = |job: &Job| {
        matches!(job.state, JobState::Parked | JobState::Scheduled(_)) && !job.is_joined()
    };
    let follower = behind(state, job.id)
        .into_iter()
        .rev()
        .find(|slot| state.jobs.at(*slot).is_some_and(waits))?;
    Some((follower, rule))
}

/// Sets the state of a leading job.
fn place(state: &mut State, slot: Slot, start: Start, context: &mut Context) {
    match start {
        Start::Now
            if state
                .jobs
                .at(slot)
                .is_some_and(|job| job.state == JobState::Parked) =>
        {
            make_ready(state, slot, None, context);
        }
        Start::Now => {}
        Start::At(at) => move_job(state, slot, JobState::Scheduled(at)),
        Start::Paused(until) => move_job(state, slot, JobState::Retrying(until)),
    }
}

/// Journals both jobs, or removes the joined one if no client needs the outcome and the leading one has at
/// least the same guarantee.
fn settle(state: &mut State, part: Slot, lead: Slot, context: &mut Context) {
    remember_put(state, lead, context);
    let lasts = state.jobs.at(lead).is_some_and(|job| job.durable);
    let is_superfluous = |job: &Job| (lasts || !job.durable) && !is_awaited(job);
    if state.jobs.at(part).is_some_and(is_superfluous) {
        record_end(state, part, Ending::Replaced, None, context);
        remove_job(state, part, context);
    } else {
        remember_put(state, part, context);
    }
}

/// Returns true if a client can query the job's outcome.
fn is_awaited(job: &Job) -> bool {
    let asks = job
        .extra
        .as_deref()
        .is_some_and(|extra| extra.track.is_some() || extra.result_keep_ms > 0);
    asks || !job.listeners().is_empty() || !job.collector().is_empty()
}
