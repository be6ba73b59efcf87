//! After a fail-over, clients restore state that the journal does not contain: connection-bound leases,
//! listeners, foreground jobs.
//!
//! During the grace no job is delivered. Requests for work are blocked and executed in order afterwards
//! ([`crate::deferred`]); everything else continues. A claim gets no reply. An obsolete claim has no effect:
//! the worker's report is then rejected, and a listener receives `Ended`.
//!
//! - No job is leased by two claims. The higher token wins, which is that of the later leader. After the
//!   grace, a claim succeeds only for a job that is not leased and has a more recent delivery than this
//!   engine and the journal know of, or with the lease that the job already has, when a daemon claims the
//!   state of clients again after an interruption of the link.
//! - Claims of different clients arrive in any order. A worker and the worker's reports are blocked until
//!   another client has restored the job.
//! - A job that clients restored and that has finished since is not restored again.

use super::call::Call;
use super::deliver::{lease_end, terms_of};
use super::place::move_job;
use super::push::{bring_back, listen};
use super::scope::reaches;
use super::state::State;
use super::{collect, leases};
use crate::claim::{Claim, Held};
use crate::command::LeaseCommand;
use crate::context::Context;
use crate::event::{Notice, Reply};
use crate::ids::{ClientId, JobId, Tag, Timestamp};
use crate::jobs::{Holder, Job, JobState, Lease, Slot};
use crate::outcome::End;
use crate::refusal::Outcome;
use crate::succession::{Expected, Succession};

/// Handles a claim of a client.
pub(super) fn claim(state: &mut State, claim: Claim, call: &mut Call<'_>) -> Outcome {
    state.clients.opened(call.client)?;
    match claim {
        Claim::Holds { job, held } => hold(state, call.client, job, held),
        Claim::Hears { job } => listen_again(state, job, call),
        Claim::Pushed { job, mut new } => {
            new.namespace = state.home(call.client);
            if its_job(state, call.client, job).is_some() {
                listen_again(state, job, call);
            } else if !state
                .succession
                .as_ref()
                .is_some_and(|it| it.may_bring_back(job))
                || bring_back(state, call.client, job, &new, call.context).is_err()
            {
                call.context.notify(
                    call.client,
                    Notice::Ended {
                        job,
                        end: End::Lost,
                    },
                );
            } else {
                welcome(state, job, call.context);
            }
        }
    }
    Ok(())
}

/// Applies the claimed lease of a restored job, and then the reports of the worker that arrived
/// before the job.
fn welcome(state: &mut State, job: JobId, context: &mut Context) {
    let expected = state.succession.as_mut().and_then(|it| it.arrived(job));
    let Some(Expected {
        client,
        held,
        reports,
    }) = expected
    else {
        return;
    };
    hold(state, client, job, held);
    do_reports(state, client, reports, context);
}

fn do_reports(
    state: &mut State,
    client: ClientId,
    reports: Vec<(Tag, LeaseCommand)>,
    context: &mut Context,
) {
    for (tag, command) in reports {
        let mut call = Call {
            client,
            tag,
            context,
        };
        if let Err(why) = leases::report(state, command, &mut call) {
            call.reply(Reply::Refused(why));
        }
    }
}

// ---- leases --------------------------------------------------------------------------------------------------------

fn hold(state: &mut State, client: ClientId, id: JobId, held: Held) {
    if held.until <= state.now {
        return;
    }
    match its_job(state, client, id) {
        Some(slot) if may_hold(state, slot, &held) => lease_again(state, client, slot, &held),
        None if state.deferred.is_held(state.now) => {
            if let Some(succession) = state.succession.as_mut().filter(|it| it.may_bring_back(id)) {
                succession.expect(id, client, held);
            }
        }
        Some(_) | None => {}
    }
}

/// The job that a client claims, in its namespace.
fn its_job(state: &State, client: ClientId, id: JobId) -> Option<Slot> {
    let slot = state.jobs.slot(id)?;
    let job = state.jobs.at(slot)?;
    reaches(state, client, job.queue.namespace()).then_some(slot)
}

/// Returns true if nothing contradicts a claimed lease.
fn may_hold(state: &State, slot: Slot, held: &Held) -> bool {
    let Some(job) = state.jobs.at(slot) else {
        return false;
    };
    let in_grace = state.deferred.is_held(state.now);
    match &job.state {
        JobState::Ready | JobState::Scheduled(_) | JobState::Retrying(_)
            if job.cycle().is_some() =>
        {
            in_grace
        }
        JobState::Parked if job.behind().is_none() || job.is_joined() => false,
        JobState::Ready | JobState::Scheduled(_) | JobState::Retrying(_) | JobState::Parked => {
            let delivery = held.token.delivery();
            delivery > job.attempts || in_grace && delivery > 0 && delivery == job.attempts
        }
        // The lease with the higher token was granted later. The end of the older lease may not have been
        // journalled.
        JobState::Leased(lease) => {
            let is_bound = matches!(lease.holder, Holder::Connection(_));
            is_bound && lease.token == held.token || in_grace && lease.token < held.token
        }
        JobState::Dead(_) | JobState::Done(_) => false,
    }
}

/// Grants a claimed lease.
fn lease_again(state: &mut State, client: ClientId, slot: Slot, held: &Held) {
    let Some(job) = state.jobs.at(slot) else {
        return;
    };
    let is_cycle = job.cycle().is_some();
    let on_expiry = lease_end(state, terms_of(state, client, job), job).1;
    let attempts = match job.lease() {
        Some(lease) if lease.token == held.token => job.attempts,
        _ if is_cycle => job.attempts.saturating_add(1),
        _ => job.attempts.max(held.token.delivery()),
    };
    state.jobs.update(slot, |job| job.attempts = attempts);
    let until = match held.until {
        Timestamp::NEVER => Timestamp::NEVER,
        until => until.min(state.now.after_ms(state.limits.lease_ms_max)),
    };
    let lease = Lease::new(
        Holder::Connection(client),
        held.token,
        state.now,
        until,
        on_expiry,
    );
    move_job(state, slot, JobState::Leased(Box::new(lease)));
}

/// Handles a worker's report on a job, which is postponed if the job has not been restored yet.
pub(super) fn report(state: &mut State, mut report: LeaseCommand, call: &mut Call<'_>) -> Outcome {
    let succession = state.succession.as_mut();
    match succession.and_then(|it| it.expected_by(call.client, report.job_mut())) {
        Some(expected) => expected.keep(call.tag, report),
        None => leases::report(state, report, call),
    }
}

// ---- listeners -----------------------------------------------------------------------------------------------------

/// Makes a client a listener of a job. The outcome of a job that no longer exists, or was not retained for
/// the client, is reported as [`End::Lost`].
fn listen_again(state: &mut State, job: JobId, call: &mut Call<'_>) {
    let slot = its_job(state, call.client, job);
    let is_over = slot
        .and_then(|slot| state.jobs.at(slot))
        .is_none_or(Job::is_over);
    let end = match slot {
        Some(slot) if is_over => collect::hand_over(state, slot, call.context),
        Some(slot) if listen(state, call.client, slot).is_ok() => return,
        Some(_) | None => None,
    };
    call.context.notify(
        call.client,
        Notice::Ended {
            job,
            end: end.unwrap_or(End::Lost),
        },
    );
}

// ---- the end of the grace ------------------------------------------------------------------------------------------

/// Gives up the leases of jobs that no client has restored. Reports of the workers are rejected.
#[cold]
pub(super) fn give_up(state: &mut State, context: &mut Context) {
    while let Some(Expected {
        client, reports, ..
    }) = state.succession.as_mut().and_then(Succession::give_up_one)
    {
        do_reports(state, client, reports, context);
    }
}

/// Asserts that the IDs in the journal differ from those that clients restore.
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub(super) fn check(state: &State) {
    assert!(
        !state
            .succession
            .as_ref()
            .is_some_and(|it| it.may_be_of_before(JobId(state.meta.next_job()))),
        "a number may be given that a client brings back"
    );
}
