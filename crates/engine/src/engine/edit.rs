//! Commands about a job in any state: inspect, track, replace, cancel.

use bytes::Bytes;

use super::call::Call;
use super::checks::{check_body, find};
use super::ends::discard;
use super::leases::{move_lease_end, notify_progress};
use super::place::{remember_move, remember_put};
use super::policies::read_key;
use super::requeue::suits_anew;
use super::schedules;
use super::scope::Scope;
use super::state::{State, own};
use crate::context::Context;
use crate::event::Reply;
use crate::history::Ending;
use crate::ids::Timestamp;
use crate::jobs::{Job, Payload, Progress, Slot};
use crate::query::JobView;
use crate::refusal::Outcome;
use crate::request::{JobRef, Note};

#[inline(never)]
pub(super) fn replace(
    state: &mut State,
    job: &JobRef,
    body: &Bytes,
    call: &mut Call<'_>,
) -> Outcome {
    let slot = find(state, job, Scope::of(state, call))?;
    if let Some(job) = state.jobs.at(slot) {
        check_body(state, job.queue, body)?;
    }
    state.jobs.update(slot, |job| {
        job.payload = Payload::copy(job.key(), job.name(), body)
    });
    remember_put(state, slot, call.context);
    suits_anew(state, slot, call.context);
    read_key(state, slot, None);
    call.done()
}

#[inline(never)]
pub(super) fn cancel(state: &mut State, job: &JobRef, call: &mut Call<'_>) -> Outcome {
    let slot = find(state, job, Scope::of(state, call))?;
    discard(state, slot, Ending::Cancelled, call.context);
    call.done()
}

pub(super) fn look(state: &State, job: &JobRef, call: &mut Call<'_>) {
    let scope = Scope::of(state, call);
    let schedule = match job {
        JobRef::Id(id) => state
            .schedules
            .at(*id)
            .filter(|schedule| scope.has_schedule(state, schedule)),
        JobRef::Name(_) | JobRef::Key(_) | JobRef::KeyAnywhere { .. } => None,
    };
    let schedule = schedule.map(|schedule| Box::new(schedules::view(state, schedule)));
    let job = find(state, job, scope)
        .ok()
        .and_then(|slot| view(state, state.jobs.at(slot)?))
        .map(Box::new);
    call.reply(Reply::Looked { job, schedule });
}

pub(super) fn view(state: &State, job: &Job) -> Option<JobView> {
    let queue = state.queues.at(job.queue)?;
    let codec = queue.rules().map(|rules| rules.codec).unwrap_or_default();
    Some(JobView {
        job: job.clone(),
        queue: queue.image().name.clone(),
        codec,
        namespace: state.queues.namespaces().name(job.queue.namespace()),
    })
}

#[inline(never)]
pub(super) fn track(
    state: &mut State,
    job: &JobRef,
    progress: Option<(u32, u32)>,
    text: Option<Bytes>,
    until: Option<Timestamp>,
    call: &mut Call<'_>,
) -> Outcome {
    let slot = find(state, job, Scope::of(state, call))?;
    if let Some(until) = until {
        move_lease_end(state, slot, until, true);
    }
    if progress.is_some() || text.is_some() {
        set_progress(state, slot, progress, text.as_ref(), call.context);
    }
    let now = state.wall();
    state.jobs.update(slot, |job| job.touch(now));
    remember_move(state, slot, call.context);
    call.done()
}

fn set_progress(
    state: &mut State,
    slot: Slot,
    so_far: Option<(u32, u32)>,
    text: Option<&Bytes>,
    context: &mut Context,
) {
    let progress = state.jobs.update(slot, |job| {
        let progress = job.extra_mut().progress.get_or_insert_default();
        if let Some((numerator, denominator)) = so_far {
            progress.numerator = numerator;
            progress.denominator = denominator;
        }
        if let Some(text) = text {
            progress.text = own(text);
        }
        progress.clone()
    });
    let Some(Progress {
        numerator,
        denominator,
        text,
    }) = progress
    else {
        return;
    };
    let Some(job) = state.jobs.at(slot).filter(|job| job.lease().is_some()) else {
        return;
    };
    notify_progress(
        job,
        &Note::Progress {
            numerator,
            denominator,
            raw: text,
        },
        context,
    );
}
