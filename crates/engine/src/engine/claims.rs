//! After a fail-over clients restore what the journal does not contain: connection-bound leases, listeners, foreground
//! jobs.
//!
//! During the grace no job is handed out. Requests for work wait and are executed in order afterwards
//! ([`crate::deferred`]); everything else continues. A claim gets no reply. A claim that is obsolete has no effect: a
//! worker's later report is refused, a listener receives `Ended`.
//!
//! - No job is leased under two claims: the higher token wins, which is that of the later leader. After the grace a
//!   claim succeeds only for a job that waits, and of which this engine and the journal know only earlier deliveries;
//!   or under the lease that the job already has, when a daemon whose link was cut claims its clients' state again.
//! - Claims of different clients arrive in any order. A worker waits until another client has restored its job, and so
//!   do its reports.
//! - A job that clients restored and that has ended since is not restored again.

use super::call::Call;
use super::deliver::{lease_end, terms_of};
use super::place::move_job;
use super::push::{bring_back, listen};
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

/// A client claims what it had.
pub(super) fn claim(state: &mut State, claim: Claim, call: &mut Call<'_>) -> Outcome {
    state.clients.opened(call.client)?;
    match claim {
        Claim::Holds { job, held } => hold(state, call.client, job, held),
        Claim::Hears { job } => listen_again(state, job, call),
        Claim::Pushed { job, new } => {
            if state.jobs.slot(job).is_some() {
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

/// The claimed lease of a job that has come back, and what its worker has reported meanwhile.
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
    match state.jobs.slot(id) {
        Some(slot) if may_hold(state, slot, &held) => lease_again(state, client, slot, &held),
        None if state.deferred.is_held(state.now) => {
            if let Some(succession) = state.succession.as_mut().filter(|it| it.may_bring_back(id)) {
                succession.expect(id, client, held);
            }
        }
        Some(_) | None => {}
    }
}

/// Whether nothing contradicts a claimed lease.
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
        // The lease that was granted later counts: the end of the other one may not have reached the journal.
        JobState::Leased(lease) => {
            let is_bound = matches!(lease.holder, Holder::Connection(_));
            is_bound && lease.token == held.token || in_grace && lease.token < held.token
        }
        JobState::Dead(_) | JobState::Done(_) => false,
    }
}

/// Leases a job under a claimed lease.
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

/// A worker reports on a job. If the job is to come back, the report waits for it.
pub(super) fn report(state: &mut State, mut report: LeaseCommand, call: &mut Call<'_>) -> Outcome {
    let succession = state.succession.as_mut();
    match succession.and_then(|it| it.expected_by(call.client, report.job_mut())) {
        Some(expected) => expected.keep(call.tag, report),
        None => leases::report(state, report, call),
    }
}

// ---- listeners -----------------------------------------------------------------------------------------------------

/// A client listens to a job. How a job ended that is not here, and was not kept for the client, is not known.
fn listen_again(state: &mut State, job: JobId, call: &mut Call<'_>) {
    let slot = state.jobs.slot(job);
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

/// Gives up the leases whose jobs no client has brought back: their workers' reports are refused.
#[cold]
pub(super) fn give_up(state: &mut State, context: &mut Context) {
    while let Some(Expected {
        client, reports, ..
    }) = state.succession.as_mut().and_then(Succession::give_up_one)
    {
        do_reports(state, client, reports, context);
    }
}

/// Asserts that the journal's numbers and those that clients bring back are apart.
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
