//! The effects of a push on an existing job with which it is merged: durability, and the collector of the
//! outcome.

use super::identity::Push;
use super::place::remember_put;
use super::state::State;
use crate::change::Change;
use crate::context::Context;
use crate::jobs::{Job, KeyUntil, Slot, Track};
use crate::request::Listen;

/// Applies the durability of a producer that was added to a job. If the push is durable and the job was not,
/// the job no longer exists only for listeners, and the retry and retention policies become those of this
/// push. A job is remembered for repeated submits if any push to it is.
#[inline(never)]
pub(super) fn outlast(state: &mut State, slot: Slot, push: &Push<'_>, context: &mut Context) {
    let Some(job) = state.jobs.at(slot).filter(|_| push.new.durable) else {
        return;
    };
    let extra = job.extra.as_deref();
    let kept_ms = extra.map_or(0, |extra| extra.result_keep_ms);
    let until = extra.map_or(KeyUntil::End, |extra| extra.key_until);
    let remembered = push
        .unique()
        .is_some_and(|unique| unique.until == KeyUntil::Gone);
    let is_longer = remembered && (until != KeyUntil::Gone || kept_ms < push.result_keep_ms);
    if job.durable && !is_longer {
        return;
    }
    let was_durable = job.durable;
    let retry = push.retry(state);
    let updated_at = state.wall();
    state.jobs.update(slot, |job| {
        if !was_durable {
            job.durable = true;
            job.retry = retry;
            if push.new.track_ms > 0 {
                job.extra_mut().track = Some(Track {
                    keep_ms: push.new.track_ms,
                    updated_at,
                });
            }
        }
        if push.result_keep_ms > kept_ms {
            job.extra_mut().result_keep_ms = push.result_keep_ms;
        }
    });
    if remembered {
        state
            .jobs
            .hold_key_until(slot, KeyUntil::Gone, &mut state.timers);
    }
    if was_durable {
        remember_put(state, slot, context);
    } else {
        context
            .changes
            .extend(state.jobs.at(slot).map(|job| Change::JobKept(job.id)));
    }
}

/// Sets the collector of the outcome: the producer that attached last.
#[inline(never)]
pub(super) fn name_collector(
    state: &mut State,
    slot: Slot,
    listen: &Listen,
    context: &mut Context,
) {
    let is_other = |job: &Job| job.durable && job.collector() != listen.name();
    if let Listen::As(name) = listen
        && state.jobs.at(slot).is_some_and(is_other)
    {
        state.jobs.set_collector(slot, name.clone());
        remember_put(state, slot, context);
    }
}
