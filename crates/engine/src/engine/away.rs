//! Workers whose connections end because the daemon stops: they may come back to its next life, and report on the jobs
//! that they have in hand. Until then, and for a limited time, no other worker gets these jobs.
//!
//! At the stop, the lease of each such job becomes one that the journal keeps. Its holder is
//! [`Holder::Away`]: a client of the worker's protocol, over whatever connection. A daemon that is killed leaves no such
//! leases, and its jobs are ready at once.

use super::deliver::{lease_end, terms_of};
use super::place::{move_job, remember_move};
use super::requeue::make_ready;
use super::state::State;
use crate::context::Context;
use crate::ids::{ClientId, JobId};
use crate::jobs::{Holder, Job, JobState, Lease, OnExpiry, Slot};

/// A job of a worker whose connection ends because the daemon stops.
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

/// The daemon begins. The time in which it was down does not count.
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

/// A client of the worker's protocol reports that it works on the job: it has the job on its own connection now.
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

/// No worker has come back in time. The job returns to its own position, and counts no lost worker.
pub(super) fn not_back(state: &mut State, slot: Slot, context: &mut Context) {
    state.jobs.update(slot, |job: &mut Job| {
        if let Some(extra) = &mut job.extra {
            extra.progress = None;
        }
    });
    make_ready(state, slot, None, context);
}
