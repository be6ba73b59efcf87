//! Making jobs ready again, in `work` queues and in `cycle` queues.
//!
//! Spec for `cycle` queues: `spiderq-protocol`, "Repay". With `min` as the head's priority and `region =
//! serial + 1 - min`, a repaid entry goes to `min + (region >> boost)`: the tail for boost 0, half way for 1,
//! a quarter of the way for 2.

use super::give_way::give_way;
use super::history::record_end;
use super::place::{ahead_of, count, move_job, remember_move, remember_put, remove_job};
use super::serve::serve;
use super::state::State;
use crate::context::Context;
use crate::history::Ending;
use crate::ids::Timestamp;
use crate::jobs::{Cycle, JobState, Slot, Unfit};
use crate::request::RepayTo;

/// Makes a job ready that was in another state: at its original position, or with a new rank, behind (or
/// before) all equals. A job that must run after another one is parked instead.
pub(super) fn make_ready(state: &mut State, slot: Slot, rank: Option<u64>, context: &mut Context) {
    if let Some(job) = state.jobs.at(slot).filter(|job| job.is_abandoned()) {
        let id = job.id;
        state.may_return(id);
        record_end(state, slot, Ending::Cancelled, None, context);
        remove_job(state, slot, context);
        return;
    }
    let now = state.wall();
    let Some(job) = state.jobs.at(slot) else {
        return;
    };
    let queue = job.queue;
    let protocol = job.protocol;
    let was_off = job.is_over();
    if was_off {
        try_anew(state, slot);
    } else if give_way(state, slot, None, context) {
        return;
    }
    // With `ordered`, a job that is retried precedes all jobs that were pushed later, even if it was dead.
    let policy = state.queues.policy(queue);
    let is_ordered = policy.is_some_and(|policy| policy.ordered);
    let rank = rank.filter(|_| !is_ordered);
    // Until it is ready, no index depends on the rank.
    state.jobs.update(slot, |job| {
        (job.rank, job.ready_at) = (rank.unwrap_or(job.rank), now)
    });
    let waits = state
        .jobs
        .at(slot)
        .is_some_and(|job| ahead_of(state, job).is_some());
    move_job(
        state,
        slot,
        if waits {
            JobState::Parked
        } else {
            JobState::Ready
        },
    );
    if was_off && state.jobs.reclaim_key(slot, state.now, &mut state.timers) {
        remember_put(state, slot, context);
    }
    state
        .queues
        .make_known(queue, Some(protocol), &mut context.changes);
    remember_move(state, slot, context);
    serve(state, queue, context);
}

/// Resets a finished job that a client wants to retry.
fn try_anew(state: &mut State, slot: Slot) {
    state.jobs.update(slot, |job| {
        job.unfit = Unfit::NONE;
        if let Some(extra) = &mut job.extra {
            extra.losses = 0;
        }
    });
}

/// Makes a dead job ready at this time.
pub(super) fn retry_at(state: &mut State, slot: Slot, at: Timestamp, context: &mut Context) {
    let Some((queue, protocol)) = state.jobs.at(slot).map(|job| (job.queue, job.protocol)) else {
        return;
    };
    try_anew(state, slot);
    move_job(state, slot, JobState::Retrying(at));
    if state.jobs.reclaim_key(slot, state.now, &mut state.timers) {
        remember_put(state, slot, context);
    }
    state
        .queues
        .make_known(queue, Some(protocol), &mut context.changes);
    remember_move(state, slot, context);
}

/// Clears the conversion errors of a job with a new body, and serves the queue if the job is ready.
pub(super) fn suits_anew(state: &mut State, slot: Slot, context: &mut Context) {
    let Some(job) = state.jobs.at(slot).filter(|job| job.unfit != Unfit::NONE) else {
        return;
    };
    let queue = job.queue;
    let is_ready = job.state == JobState::Ready;
    if is_ready {
        // While the job is parked, it is in no ready queue.
        move_job(state, slot, JobState::Parked);
    }
    state.jobs.update(slot, |job| job.unfit = Unfit::NONE);
    if is_ready {
        move_job(state, slot, JobState::Ready);
        serve(state, queue, context);
    }
}

/// Returns a repaid entry to the queue, at the position that the rewards determine.
pub(super) fn go_round(state: &mut State, slot: Slot, to: RepayTo, context: &mut Context) {
    let Some(job) = state.jobs.at(slot) else {
        return;
    };
    let queue_id = job.queue;
    let boost = job.cycle().map_or(0, |cycle| cycle.boost);
    let Some(queue) = state.queues.at(queue_id) else {
        return;
    };
    let min = queue.ready().cycle_head();
    let region = (queue.image().serial + 1).saturating_sub(min);
    let boost = match to {
        RepayTo::Penalty => boost.saturating_sub(1),
        RepayTo::Reward if region.checked_shr(boost + 1).unwrap_or(0) != 0 => boost + 1,
        RepayTo::Reward | RepayTo::Front | RepayTo::Drop => boost,
    };
    state.queues.next_serial(queue_id, &mut context.changes);
    let priority = match to {
        RepayTo::Front => 0,
        RepayTo::Penalty | RepayTo::Reward | RepayTo::Drop => {
            min + region.checked_shr(boost).unwrap_or(0)
        }
    };
    enter_cycle(state, slot, Cycle { priority, boost }, context);
}

/// Returns an entry to the front after the lease has expired, with the boost unchanged.
pub(super) fn return_to_front(state: &mut State, slot: Slot, context: &mut Context) {
    count(state, slot, |totals| totals.lost += 1);
    let Some(job) = state.jobs.at(slot) else {
        return;
    };
    match job.cycle() {
        None => {
            let rank = state.meta.rank(true);
            make_ready(state, slot, Some(rank), context);
        }
        Some(cycle) => {
            let queue = job.queue;
            state.queues.next_serial(queue, &mut context.changes);
            enter_cycle(
                state,
                slot,
                Cycle {
                    priority: 0,
                    boost: cycle.boost,
                },
                context,
            );
        }
    }
}

/// Invalidates the token of a `cycle` entry when the lease ends without a repay. The token must not
/// be granted again.
pub(super) fn void_token(state: &mut State, slot: Slot, context: &mut Context) {
    if let Some(job) = state.jobs.at(slot).filter(|job| job.cycle().is_some()) {
        state.queues.next_serial(job.queue, &mut context.changes);
    }
}

/// Inserts an entry into the ready queue with this sort key, behind equals.
fn enter_cycle(state: &mut State, slot: Slot, cycle: Cycle, context: &mut Context) {
    state
        .jobs
        .update(slot, |job| job.extra_mut().cycle = Some(cycle));
    let rank = state.meta.rank(false);
    make_ready(state, slot, Some(rank), context);
}
