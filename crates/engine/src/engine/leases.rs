//! Commands about a leased job: finish, fail, release, extend, repay, progress.

use bytes::Bytes;

use super::attempts::{end_attempt, take_back};
use super::away::come_back;
use super::call::Call;
use super::checks::{check_body, is_holder, leased, left, may_be_lost_with_daemon, must_be};
use super::ends::{end_well, notify_end};
use super::failures::{EXPIRED_KIND, bury_unconvertible, fail_job};
use super::history::{note_output, record_end};
use super::joined::joined;
use super::place::{
    count, count_succeeded, count_success, move_job, observe_run, remember_move, remember_put,
    remove_job,
};
use super::requeue::{go_round, make_ready, void_token};
use super::state::State;
use super::warnings::warn_unfit;
use crate::command::LeaseCommand;
use crate::context::Context;
use crate::event::{Notice, Reply};
use crate::history::Ending;
use crate::ids::{JobId, Protocol, Timestamp};
use crate::jobs::{AttemptEnd, Failure, Job, JobState, Progress, Slot};
use crate::outcome::End;
use crate::queues::Queue;
use crate::refusal::{Outcome, Refusal, Thing};
use crate::request::{JobRef, Note, Proof, QueueKind, RepayTo};

/// Handles a worker's report on a job.
pub(super) fn report(state: &mut State, command: LeaseCommand, call: &mut Call<'_>) -> Outcome {
    match command {
        LeaseCommand::Finish { job, proof, result } => finish(state, &job, proof, &result, call),
        LeaseCommand::Fail {
            job,
            proof,
            failure,
        } => fail(state, &job, proof, failure, call),
        LeaseCommand::Unconvertible { job, proof, why } => {
            unconvertible(state, &job, proof, &why, call)
        }
        LeaseCommand::Release { job, proof, front } => release(state, &job, proof, front, call),
        LeaseCommand::Extend {
            job,
            proof,
            until,
            only_later,
        } => extend(state, &job, proof, until, only_later, call),
        LeaseCommand::Repay {
            job,
            proof,
            body,
            to,
        } => repay(state, &job, proof, body, to, call),
        LeaseCommand::Progress { job, proof, note } => progress(state, &job, proof, note, call),
    }
}

fn finish(
    state: &mut State,
    job: &JobRef,
    proof: Proof,
    result: &Bytes,
    call: &mut Call<'_>,
) -> Outcome {
    let held_by = if proof == Proof::Late {
        Proof::Connection
    } else {
        proof
    };
    let slot = match leased(state, call.client, job, held_by) {
        Err(Refusal::NotHeld) => left(state, call.client, job, proof)?,
        leased => leased?,
    };
    must_be(state, slot, QueueKind::Work)?;
    let Some(job) = state.jobs.at(slot) else {
        return Err(Refusal::NotFound(Thing::Job));
    };
    let id = job.id;
    let has_extra = job.extra.is_some();
    count_succeeded(state, slot);
    let is_asked_for = state.keeps_history || state.schedules.have_runs();
    if has_extra || is_asked_for || !state.followers.is_empty() {
        record_end(state, slot, Ending::Done, Some(result), call.context);
        // A client without a protocol is one of HTTP's.
        let by = state
            .clients
            .protocol_of(call.client)
            .or(Some(Protocol::HTTP));
        notify_end(
            state,
            slot,
            &End::Succeeded {
                result: result.clone(),
                by,
            },
            call.context,
        );
        count_success(state, slot, call.context);
        end_well(state, slot, result, by, call.context);
    } else {
        // No client can receive or query the outcome.
        remove_job(state, slot, call.context);
    }
    call.acknowledge(Reply::Finished(id));
    Ok(())
}

#[inline(never)]
fn fail(
    state: &mut State,
    job: &JobRef,
    proof: Proof,
    failure: Box<Failure>,
    call: &mut Call<'_>,
) -> Outcome {
    let slot = match leased(state, call.client, job, proof) {
        Err(Refusal::NotHeld) if proof != Proof::Late => {
            let slot = left(state, call.client, job, proof)?;
            must_be(state, slot, QueueKind::Work)?;
            if !may_be_lost_with_daemon(state, slot) {
                return fail_late(state, slot, *failure, call.context);
            }
            // The place among the ready jobs may differ.
            move_job(state, slot, JobState::Retrying(state.now));
            slot
        }
        leased => leased?,
    };
    must_be(state, slot, QueueKind::Work)?;
    let id = state
        .jobs
        .at(slot)
        .map(|job| job.id)
        .ok_or(Refusal::NotFound(Thing::Job))?;
    let end = End::Failed(failure.clone());
    end_attempt(state, slot, AttemptEnd::Failed);
    observe_run(state, slot);
    let fate = fail_job(state, slot, failure, &end, call.context);
    call.acknowledge(Reply::Failed { job: id, fate });
    Ok(())
}

/// Replaces the failure of an expired reservation by the worker's failure, which is more specific. Nothing
/// else is modified, and the report is still refused.
fn fail_late(state: &mut State, slot: Slot, failure: Failure, context: &mut Context) -> Outcome {
    let last = state
        .jobs
        .at(slot)
        .and_then(|job| job.extra.as_deref()?.failure.as_deref());
    if let Some(&Failure {
        at,
        first_at,
        next_at,
        ..
    }) = last.filter(|last| last.kind == EXPIRED_KIND)
    {
        let failure = Box::new(Failure {
            at,
            first_at,
            next_at,
            ..failure
        });
        state
            .jobs
            .update(slot, |job| job.extra_mut().failure = Some(failure));
        remember_put(state, slot, context);
    }
    Err(Refusal::NotHeld)
}

/// Leaves the job for a worker of another protocol. If no protocol is left, it moves to the dead-letter queue
/// whatever the retry policy is, so that an operator can see the reason.
#[inline(never)]
fn unconvertible(
    state: &mut State,
    job: &JobRef,
    proof: Proof,
    why: &Bytes,
    call: &mut Call<'_>,
) -> Outcome {
    let slot = leased(state, call.client, job, proof)?;
    must_be(state, slot, QueueKind::Work)?;
    end_attempt(state, slot, AttemptEnd::Unconvertible);
    count(state, slot, |totals| totals.misfits += 1);
    let waits = mark_unfit(state, slot, state.clients.protocol_of(call.client));
    warn_unfit(state, slot, why, !waits, call.context);
    if waits {
        make_ready(state, slot, None, call.context);
    } else {
        bury_unconvertible(state, slot, why, call.context);
    }
    call.done()
}

/// Records that a worker of this protocol cannot take this leased job. Returns `true` if a worker of another
/// protocol can.
fn mark_unfit(state: &mut State, slot: Slot, own: Option<Protocol>) -> bool {
    let Some(job) = state.jobs.at(slot) else {
        return false;
    };
    let Some(unfit) = own.and_then(|own| job.unfit.and(own)) else {
        return false;
    };
    let bridged = state.queues.at(job.queue).is_some_and(Queue::is_bridged);
    let is_nobodys = match bridged {
        true => Protocol::sharing().all(|protocol| unfit.has(protocol)),
        false => unfit.has(job.protocol),
    };
    state.jobs.update(slot, |job| job.unfit = unfit);
    !is_nobodys
}

#[inline(never)]
fn release(
    state: &mut State,
    job: &JobRef,
    proof: Proof,
    front: bool,
    call: &mut Call<'_>,
) -> Outcome {
    let slot = leased(state, call.client, job, proof)?;
    // The daemon returns jobs of both kinds that the client never received.
    if !matches!(proof, Proof::Token(_)) {
        must_be(state, slot, QueueKind::Work)?;
        let is_own = |job: &Job| {
            job.lease()
                .is_some_and(|lease| is_holder(state, call.client, job, &lease.holder))
        };
        if proof == Proof::AnyLease && !state.jobs.at(slot).is_some_and(is_own) {
            take_back(state, slot);
        } else {
            end_attempt(state, slot, AttemptEnd::Released);
        }
    }
    void_token(state, slot, call.context);
    let rank = front.then(|| state.meta.rank(true));
    make_ready(state, slot, rank, call.context);
    call.done()
}

#[inline(never)]
fn extend(
    state: &mut State,
    job: &JobRef,
    proof: Proof,
    until: Timestamp,
    only_later: bool,
    call: &mut Call<'_>,
) -> Outcome {
    let slot = leased(state, call.client, job, proof)?;
    move_lease_end(state, slot, until, only_later);
    if state
        .jobs
        .at(slot)
        .and_then(Job::lease)
        .is_some_and(|lease| !lease.connection_bound())
    {
        remember_move(state, slot, call.context);
    }
    call.done()
}

#[inline(never)]
fn repay(
    state: &mut State,
    job: &JobRef,
    proof: Proof,
    body: Bytes,
    to: RepayTo,
    call: &mut Call<'_>,
) -> Outcome {
    let slot = leased(state, call.client, job, proof)?;
    must_be(state, slot, QueueKind::Cycle)?;
    if let Some(job) = state.jobs.at(slot) {
        check_body(state, job.queue, &body)?;
    }
    state
        .jobs
        .update(slot, |job| job.payload = job.payload.with_body(&body));
    record_end(state, slot, Ending::Done, None, call.context);
    count(state, slot, |totals| totals.succeeded += 1);
    observe_run(state, slot);
    if to == RepayTo::Drop && state.jobs.at(slot).is_some_and(Job::is_abandoned) {
        remove_job(state, slot, call.context);
    } else if to == RepayTo::Drop {
        move_job(state, slot, JobState::Parked);
    } else {
        go_round(state, slot, to, call.context);
    }
    // Both the value and the sort key have changed.
    remember_put(state, slot, call.context);
    call.done()
}

/// Moves the end of a lease, if there is one, within the limits.
pub(super) fn move_lease_end(state: &mut State, slot: Slot, until: Timestamp, only_later: bool) {
    let until = until.min(state.now.after_ms(state.limits.lease_ms_max));
    state
        .jobs
        .move_lease_end(slot, until, only_later, state.now, &mut state.timers);
}

#[inline(never)]
fn progress(
    state: &mut State,
    job: &JobRef,
    proof: Proof,
    note: Note,
    call: &mut Call<'_>,
) -> Outcome {
    let slot = leased(state, call.client, job, proof)?;
    if proof == Proof::Connection {
        come_back(state, slot, call.client, call.context);
    }
    if let Note::Progress {
        numerator,
        denominator,
        ..
    } = note
    {
        // The worker's bytes are for listeners of the same protocol, and may not be text.
        let progress = Progress {
            numerator,
            denominator,
            text: Bytes::new(),
        };
        state
            .jobs
            .update(slot, |job| job.extra_mut().progress = Some(progress));
        remember_track(state, slot, call.context);
    }
    note_output(state, slot, &note);
    if let Some(job) = state.jobs.at(slot) {
        notify_progress(job, &note, call.context);
        if !state.followers.is_empty() {
            notify_joined(state, job.id, &note, call.context);
        }
    }
    call.done()
}

/// Notifies the listeners of a job, the newest first.
pub(super) fn notify_progress(job: &Job, note: &Note, context: &mut Context) {
    for listener in job.listeners().iter().rev() {
        context.notify(
            *listener,
            Notice::Progress {
                job: job.id,
                note: note.clone(),
            },
        );
    }
}

/// Notifies the listeners of jobs that are joined to this one of the progress.
fn notify_joined(state: &State, id: JobId, note: &Note, context: &mut Context) {
    for job in joined(state, id)
        .into_iter()
        .filter_map(|slot| state.jobs.at(slot))
    {
        notify_progress(job, note, context);
    }
}

/// Records when a worker reported on a tracked job.
pub(super) fn remember_track(state: &mut State, slot: Slot, context: &mut Context) {
    let now = state.wall();
    let tracked = |job: &Job| {
        job.extra
            .as_deref()
            .is_some_and(|extra| extra.track.is_some())
    };
    if state.jobs.at(slot).is_some_and(tracked) {
        state.jobs.update(slot, |job| job.touch(now));
        remember_move(state, slot, context);
    }
}
