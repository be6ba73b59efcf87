//! The history of a job: deliveries that did not succeed.

use std::sync::Arc;

use super::call::Call;
use super::checks::find;
use super::scope::Scope;
use super::state::State;
use super::why::holder;
use crate::event::Reply;
use crate::ids::JobId;
use crate::jobs::{Attempt, AttemptEnd, Slot};
use crate::refusal::{Outcome, Refusal, Thing};
use crate::request::JobRef;

/// Records how the delivery of a leased job ended. The caller must move the job, and journal both.
pub(super) fn end_attempt(state: &mut State, slot: Slot, end: AttemptEnd) {
    let Some(job) = state.jobs.at(slot) else {
        return;
    };
    let Some(lease) = job.lease() else { return };
    let began_at = lease.taken_at.shifted(state.skew_ms);
    let ended_at = state.wall();
    let holder = holder(state, &lease.holder);
    let worker = if holder.name().is_empty() {
        holder.address.into_boxed_bytes()
    } else {
        holder.name().into()
    };
    let attempt = Attempt {
        number: job.attempts,
        worker,
        began_at,
        ended_at,
        end,
        error: None,
    };
    state
        .jobs
        .update(slot, |job| job.extra_mut().end_attempt(attempt));
}

/// Records that the worker of a leased job has disappeared.
pub(super) fn lose_attempt(state: &mut State, id: JobId) {
    if let Some(slot) = state.jobs.slot(id) {
        end_attempt(state, slot, AttemptEnd::Lost);
    }
}

/// Returns a job from the worker. Reports of that worker are then rejected.
pub(super) fn take_back(state: &mut State, slot: Slot) {
    end_attempt(state, slot, AttemptEnd::TakenBack);
    state
        .jobs
        .update(slot, |job| job.extra_mut().taken_back = true);
}

/// Replies with the history of a job.
pub(super) fn list_attempts(state: &State, job: &JobRef, call: &mut Call<'_>) -> Outcome {
    let slot = find(state, job, Scope::of(state, call))?;
    let job = state.jobs.at(slot).ok_or(Refusal::NotFound(Thing::Job))?;
    let mut attempts = job
        .extra
        .as_deref()
        .and_then(|extra| extra.attempts.clone())
        .unwrap_or_default();
    if let Some(failure) = job
        .extra
        .as_deref()
        .and_then(|extra| extra.failure.as_deref())
    {
        Arc::make_mut(&mut attempts).explain(failure);
    }
    call.reply(Reply::Attempts(attempts.iter().cloned().collect()));
    Ok(())
}
