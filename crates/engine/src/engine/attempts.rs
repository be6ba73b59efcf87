//! The history of a job: deliveries that did not succeed.

use std::sync::Arc;

use super::call::Call;
use super::checks::find;
use super::scope::Scope;
use super::state::State;
use crate::event::Reply;
use crate::ids::JobId;
use crate::jobs::{Attempt, AttemptEnd, Holder, Slot};
use crate::refusal::{Refusal, Thing};
use crate::request::JobRef;

/// Records that the delivery of a leased job ends like this. The caller moves the job, and journals both.
pub(super) fn end_attempt(state: &mut State, slot: Slot, end: AttemptEnd) {
    let Some(job) = state.jobs.at(slot) else { return };
    let Some(lease) = job.lease() else { return };
    let (began_at, ended_at) = (lease.taken_at.shifted(state.skew_ms), state.wall());
    let worker = worker(state, &lease.holder);
    let attempt = Attempt { number: job.attempts, worker, began_at, ended_at, end, error: None };
    state.jobs.update(slot, |job| job.extra_mut().end_attempt(attempt));
}

/// Records that the worker of a leased job is lost.
pub(super) fn lose_attempt(state: &mut State, id: JobId) {
    if let Some(slot) = state.jobs.slot(id) {
        end_attempt(state, slot, AttemptEnd::Lost);
    }
}

/// Takes a job away from its worker, whose reports are refused from then on.
pub(super) fn take_back(state: &mut State, slot: Slot) {
    end_attempt(state, slot, AttemptEnd::TakenBack);
    state.jobs.update(slot, |job| job.extra_mut().taken_back = true);
}

/// The name of a worker as far as it is known, or else its address.
fn worker(state: &State, holder: &Holder) -> Box<[u8]> {
    let client = match holder {
        Holder::Named(name) => return name.clone(),
        Holder::Connection(client) => state.clients.get(*client),
        Holder::Away(_) => None,
    };
    let Some(client) = client else { return Box::default() };
    let named = client.worker().and_then(|number| state.workers.from(number).next());
    let names =
        [client.label().as_ref(), named.map_or(&[][..], |(_, worker)| worker.name()), client.info().address.as_bytes()];
    names.into_iter().find(|name| !name.is_empty()).unwrap_or_default().into()
}

/// Answers with the history of a job.
pub(super) fn list_attempts(state: &State, job: &JobRef, call: &mut Call<'_>) -> Result<(), Refusal> {
    let slot = find(state, job, Scope::of(state, call))?;
    let job = state.jobs.at(slot).ok_or(Refusal::NotFound(Thing::Job))?;
    let mut attempts = job.extra.as_deref().and_then(|extra| extra.attempts.clone()).unwrap_or_default();
    if let Some(failure) = job.extra.as_deref().and_then(|extra| extra.failure.as_deref()) {
        Arc::make_mut(&mut attempts).explain(failure);
    }
    call.reply(Reply::Attempts(attempts.iter().cloned().collect()));
    Ok(())
}
