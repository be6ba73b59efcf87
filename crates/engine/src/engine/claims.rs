//! An engine succeeds another one of the same journal, whose clients go on here: they claim what the journal does not
//! have.
//!
//! During the grace ([`Grace`](crate::grace::Grace)) no job is handed out. Requests for work wait and are done in their
//! order afterwards. Everything else goes on. A claim gets no answer. A claim that cannot be true any more has no
//! effect: a worker's report is refused, a listener receives `Ended`.
//!
//! - No job is leased under two claims: the higher token counts, which is that of the later leader. After the grace a
//!   claim counts only for a job that waits, and of which this engine, and the journal, know earlier deliveries only;
//!   or under the very lease that the job has: a daemon whose link was cut claims what its clients had here.
//! - Claims of different clients come in any order. A worker whose job another client brings back waits for it, and so
//!   do its reports.
//! - A job that clients brought back and that has ended since does not come back again.

use super::call::Call;
use super::deliver::{lease_end, terms_of};
use super::place::move_job;
use super::push::{bring_back, listen};
use super::state::State;
use super::{collect, leases, take};
use crate::claim::{Claim, Held};
use crate::command::{LeaseCommand, TakeCommand};
use crate::context::Context;
use crate::event::{Notice, Reply};
use crate::grace::Expected;
use crate::ids::{ClientId, JobId, Tag, Timestamp};
use crate::jobs::{Holder, Job, JobState, Lease, Slot};
use crate::outcome::End;
use crate::refusal::{Outcome, Refusal};
use crate::work::COMMAND;

/// A client claims what it had.
pub(super) fn claim(state: &mut State, claim: Claim, call: &mut Call<'_>) -> Outcome {
    state.clients.opened(call.client)?;
    match claim {
        Claim::Holds { job, held } => hold(state, call.client, job, held),
        Claim::Hears { job } => listen_again(state, job, call),
        Claim::Pushed { job, new } => {
            if state.jobs.slot(job).is_some() {
                listen_again(state, job, call);
            } else if !state.grace.may_be_of_before(job)
                || state.grace.has_returned(job)
                || bring_back(state, call.client, job, &new, call.context).is_err()
            {
                call.context.notify(call.client, Notice::Ended { job, end: End::Lost });
            } else {
                welcome(state, job, call.context);
            }
        }
    }
    Ok(())
}

/// The claimed lease of a job that has come back, and what its worker has reported meanwhile.
fn welcome(state: &mut State, job: JobId, context: &mut Context) {
    let Some(Expected { client, held, reports }) = state.grace.arrived(job) else { return };
    hold(state, client, job, held);
    do_reports(state, client, reports, context);
}

fn do_reports(state: &mut State, client: ClientId, reports: Vec<(Tag, LeaseCommand)>, context: &mut Context) {
    for (tag, command) in reports {
        let mut call = Call { client, tag, context };
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
        Some(_) => {}
        None if state.grace.lasts(state.now) && state.grace.may_be_of_before(id) && !state.grace.has_returned(id) => {
            state.grace.expect(id, client, held);
        }
        None => {}
    }
}

/// Whether nothing contradicts a claimed lease.
fn may_hold(state: &State, slot: Slot, held: &Held) -> bool {
    let Some(job) = state.jobs.at(slot) else { return false };
    let in_grace = state.grace.lasts(state.now);
    match &job.state {
        JobState::Ready | JobState::Scheduled(_) | JobState::Retrying(_) if job.cycle().is_some() => in_grace,
        JobState::Parked if job.behind().is_none() => false,
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
    let Some(job) = state.jobs.at(slot) else { return };
    let (is_cycle, on_expiry) = (job.cycle().is_some(), lease_end(state, terms_of(state, client, job), job).1);
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
    let lease = Lease::new(Holder::Connection(client), held.token, state.now, until, on_expiry);
    move_job(state, slot, JobState::Leased(Box::new(lease)));
}

/// A worker reports on a job. If the job is to come back, the report waits for it.
pub(super) fn report(state: &mut State, mut report: LeaseCommand, call: &mut Call<'_>) -> Outcome {
    let Some(job) = state.grace.expected_by(call.client, report.job_mut()) else {
        return leases::report(state, report, call);
    };
    if state.grace.keep_report(job, call.tag, report) { Ok(()) } else { Err(Refusal::Unavailable) }
}

// ---- listeners -----------------------------------------------------------------------------------------------------

/// A client listens to a job. How a job ended that is not here, and was not kept for the client, is not known.
fn listen_again(state: &mut State, job: JobId, call: &mut Call<'_>) {
    let slot = state.jobs.slot(job);
    let is_over = slot.and_then(|slot| state.jobs.at(slot)).is_none_or(Job::is_over);
    let end = match slot {
        Some(slot) if is_over => collect::hand_over(state, slot, call.context),
        Some(slot) if listen(state, call.client, slot).is_ok() => return,
        Some(_) | None => None,
    };
    call.context.notify(call.client, Notice::Ended { job, end: end.unwrap_or(End::Lost) });
}

// ---- the end of the grace ------------------------------------------------------------------------------------------

/// A client asks for work, or stops asking. During the grace, and while there is no room for more jobs, the request
/// waits.
pub(super) fn ask_for_work(state: &mut State, command: TakeCommand, call: &mut Call<'_>) -> Outcome {
    if call.context.room > 0 && !state.grace.defers_takes(state.now) {
        return take::ask(state, command, call);
    }
    if matches!(command, TakeCommand::Unwait) {
        state.grace.forget_takes(call.client);
        return take::ask(state, command, call);
    }
    state.clients.opened(call.client)?;
    if call.context.room == 0 {
        state.starved.wait(state.now);
    }
    if state.grace.defer(call.client, call.tag, command) { Ok(()) } else { Err(Refusal::OutOfPlace) }
}

/// Whether the grace is over, there may be room, and something has waited for that.
pub(super) fn has_waited(state: &State) -> bool {
    state.grace.is_due(state.now) && !state.starved.waits(state.now)
}

/// When something that has waited is due.
pub(super) fn next_at(state: &State) -> Timestamp {
    let room_at = state.starved.again_at();
    let grace_at = state.grace.next_at();
    room_at.map_or(grace_at, |at| if grace_at <= state.now { at } else { at.min(grace_at) })
}

/// Does what has waited for the end of the grace or for room, at most one page of it.
pub(super) fn end_waiting(state: &mut State, context: &mut Context) {
    while let Some(Expected { client, reports, .. }) = state.grace.give_up_one() {
        do_reports(state, client, reports, context);
    }
    for _ in 0..state.page(u32::MAX) {
        if context.room == 0 {
            return state.starved.wait(state.now);
        }
        let Some((client, tag, take)) = state.grace.pop_take() else { return };
        state.work.spend(COMMAND);
        let mut call = Call { client, tag, context };
        if let Err(why) = take::ask(state, take, &mut call) {
            call.reply(Reply::Refused(why));
        }
    }
}

/// A client's connection ends.
pub(super) fn forget(state: &mut State, client: ClientId) {
    state.grace.forget_takes(client);
    state.grace.forget_leases(client);
}

/// Asserts that the journal's numbers and those that clients bring back are apart, and that nothing waits unnoticed.
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub(super) fn check(state: &State) {
    assert!(
        !state.grace.may_be_of_before(JobId(state.meta.next_job())),
        "a number may be given that a client brings back"
    );
}
