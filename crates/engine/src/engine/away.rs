//! Workers with connections that close because the daemon stops. They may reconnect after the restart, and
//! report on the jobs that they are processing. For a limited time, these jobs are not delivered to other
//! workers.
//!
//! At the stop, the lease of each such job is replaced by a lease that is journalled. The holder is
//! [`Holder::Away`]: a client of the worker's protocol, with any connection. A daemon that is killed leaves
//! no such leases, and these jobs are ready immediately.

use super::deliver::{lease_end, terms_of};
use super::place::{move_job, remember_move};
use super::requeue::make_ready;
use super::state::State;
use crate::context::Context;
use crate::ids::{ClientId, JobId};
use crate::jobs::{Holder, Job, JobState, Lease, OnExpiry, Slot};

/// Handles a job of a worker when the connection closes because the daemon stops.
pub(super) fn leave(state: &mut State, id: JobId, context: &mut Context) {
    let Some(slot) = state.jobs.slot(id) else {
        return;
    };
    let Some(job) = state
        .jobs
        .at(slot)
        .filter(|job| job.durable && job.cycle().is_none())
    else {
        return;
    };
    let Some(&Lease {
        holder: Holder::Connection(client),
        token,
        taken_at,
        ..
    }) = job.lease()
    else {
        return;
    };
    let Some(protocol) = state.clients.protocol_of(client) else {
        return;
    };
    let until = state.now.after_ms(state.limits.return_ms);
    let lease = Lease::new(
        Holder::Away(protocol),
        token,
        taken_at,
        until,
        OnExpiry::Requeue,
    );
    move_job(state, slot, JobState::Leased(Box::new(lease)));
    remember_move(state, slot, context);
}

/// Starts the time limit for returning workers at the start of the daemon, so that the downtime is
/// not included.
pub(super) fn await_return(state: &mut State, context: &mut Context) {
    let until = state.now.after_ms(state.limits.return_ms);
    for job in std::mem::take(&mut state.beginning.away) {
        if let Some(slot) = state.jobs.slot(job) {
            state
                .jobs
                .move_lease_end(slot, until, false, state.now, &mut state.timers);
            remember_move(state, slot, context);
        }
    }
}

/// Moves a job to the connection of a client that reports on it, which must speak the worker's protocol.
pub(super) fn come_back(state: &mut State, slot: Slot, client: ClientId, context: &mut Context) {
    let Some(job) = state.jobs.at(slot) else {
        return;
    };
    let Some(&Lease {
        holder: Holder::Away(_),
        token,
        taken_at,
        ..
    }) = job.lease()
    else {
        return;
    };
    let (until, on_expiry) = lease_end(state, terms_of(state, client, job), job);
    let lease = Lease::new(
        Holder::Connection(client),
        token,
        taken_at,
        until,
        on_expiry,
    );
    move_job(state, slot, JobState::Leased(Box::new(lease)));
    remember_move(state, slot, context);
}

/// Returns a job to the original position if the worker did not reconnect in time, without
/// recording a loss.
pub(super) fn not_back(state: &mut State, slot: Slot, context: &mut Context) {
    state.jobs.update(slot, |job: &mut Job| {
        if let Some(extra) = &mut job.extra {
            extra.progress = None;
        }
    });
    make_ready(state, slot, None, context);
}
