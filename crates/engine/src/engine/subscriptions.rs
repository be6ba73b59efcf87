//! Connections open, subscribe to queues, and close.

use bytes::Bytes;

use super::attempts::lose_attempt;
use super::call::Call;
use super::failures::lose_job;
use super::history::record_end;
use super::place::{count, remove_job};
use super::scope::Scope;
use super::serve::serve;
use super::serving::forget_takes;
use super::state::{FEW, State, own};
use super::take::unwait;
use super::warnings::warn_lost;
use super::workers::forget_worker;
use crate::clients::{Served, watcher_bytes};
use crate::context::Context;
use crate::event::Notice;
use crate::held::heap;
use crate::history::Ending;
use crate::ids::{ClientId, JobId, Protocol, QueueId};
use crate::refusal::{Capacity, Outcome, Refusal, Thing};
use crate::request::{QueueKind, Subscription};
use crate::work::{LOOKED_UP, STEP};

/// Lets a client watch jobs, or gives it credit for more notices.
pub(super) fn watch(
    state: &mut State,
    id: ClientId,
    queue: Option<Bytes>,
    text: Bytes,
    room: u32,
) -> Outcome {
    state.clients.opened(id)?;
    let queue = queue.as_ref().map(own);
    let text = own(&text);
    state.check_large(watcher_bytes(queue.as_ref(), &text))?;
    let namespace = Scope::of_client(state, id).namespace();
    state.watchers.watch(id, namespace, queue, text, room);
    Ok(())
}

/// Asks another client's session to close the connection.
pub(super) fn disconnect(state: &State, client: ClientId, call: &mut Call<'_>) -> Outcome {
    let scope = Scope::of(state, call);
    state
        .clients
        .get(client)
        .filter(|client| scope.has_client(client))
        .ok_or(Refusal::NotFound(Thing::Client))?;
    call.context.notify(client, Notice::Close);
    call.done()
}

/// Releases everything that belongs to a connection; does nothing if it is not open. Long work is done in
/// parts beforehand (`part`).
pub(super) fn close(state: &mut State, id: ClientId, context: &mut Context) {
    state.watchers.forget(id);
    unwait(state, id, context);
    unsubscribe(state, id, |_| true, context);
    forget_takes(state, id);
    if state.clients.get(id).is_none() {
        return;
    }
    let held: Vec<JobId> = state.jobs.holders().held_by(id).iter().collect();
    // Must precede the release, while the holder is known.
    for job in &held {
        warn_lost(state, *job, context);
    }
    for job in &held {
        lose_attempt(state, *job);
    }
    // Remove it from the table first, so that it is given no more jobs.
    let worker = state.clients.close(id);
    // Stop listening before the jobs are lost, because a job that exists only for listeners must not be
    // retried.
    let heard: Vec<JobId> = state.jobs.holders().listened_by(id).iter().collect();
    for job in heard {
        stop_listening(state, job, id, context);
    }
    for job in held {
        lose_job(state, job, context);
    }
    state.jobs.forget_client(id);
    if let Some(worker) = worker
        && state.workers.leave(worker, id)
    {
        forget_worker(state, worker, context);
    }
}

pub(super) fn set_client_name(state: &mut State, id: ClientId, label: &Bytes) -> Outcome {
    state.check_name(label)?;
    state.check_large(heap(label.len()))?;
    state.clients.opened(id)?.set_label(own(label));
    Ok(())
}

pub(super) fn subscribe(
    state: &mut State,
    id: ClientId,
    subscription: Subscription,
    context: &mut Context,
) -> Outcome {
    state.check_name(&subscription.queue)?;
    state.work.spend(STEP * subscriptions_of(state, id));
    let limit = state.limits.abilities_max;
    let home = state.home(id);
    let known = state.queues.named(home, &subscription.queue);
    let client = state.clients.opened(id)?;
    // A second registration is counted again, but the terms replace those of the first.
    let times = known.map_or(0, |known| client.renew(known, subscription.lease));
    let is_full = client.subscriptions().len() >= limit as usize;
    if times > 0 {
        state.queues.retry_unclaimed();
    }
    if let Some(known) =
        known.filter(|_| times >= Subscription::TIMES_MAX || (is_full && times > 0))
    {
        // The new terms may allow jobs that the old ones did not.
        serve(state, known, context);
        return Ok(());
    }
    if is_full {
        return Err(Capacity::Subscriptions.exceeded(limit, limit));
    }
    if client.subscriptions().len() >= FEW {
        state.check_beside(Served::BYTES)?;
    }
    let own = state.clients.protocol_of(id);
    let queue = state.find_or_make(home, &subscription.queue, QueueKind::Work, own)?;
    state.queues.make_known(queue, own, &mut context.changes);
    let served = Served {
        queue,
        weight: subscription.weight,
        lease: subscription.lease,
        unclaimed: subscription.unclaimed,
    };
    let client = state.clients.opened(id)?;
    client.subscribe(served);
    state.queues.count_workers(queue, client.protocol(), 1);
    state.queues.note_unclaimed(queue);
    if let Some(realm) = served.unclaimed_realm() {
        state.queues.watch_unclaimed(realm);
    }
    // If it sleeps or has credits, it is now waiting at this queue too.
    state.waiters().wait_also_at(id, served);
    serve(state, queue, context);
    Ok(())
}

pub(super) fn unserve(
    state: &mut State,
    id: ClientId,
    name: &Bytes,
    requeue: bool,
    context: &mut Context,
) -> Outcome {
    state.clients.opened(id)?;
    if let Some(queue) = state.queues.named(state.home(id), name) {
        unsubscribe(state, id, |served| served.queue == queue, context);
        if requeue {
            give_back(state, id, Some(queue), context);
        }
        state.queues.drop_if_unknown(queue);
    }
    Ok(())
}

pub(super) fn unserve_all(
    state: &mut State,
    id: ClientId,
    requeue: bool,
    context: &mut Context,
) -> Outcome {
    state.clients.opened(id)?;
    unsubscribe(state, id, |_| true, context);
    if requeue {
        give_back(state, id, None, context);
    }
    Ok(())
}

/// Removes subscriptions. A client that sleeps or has credits is still waiting at other queues.
fn unsubscribe(
    state: &mut State,
    id: ClientId,
    which: impl Fn(&Served) -> bool,
    context: &mut Context,
) {
    let Some(client) = state.clients.get_mut(id) else {
        return;
    };
    let gone = client.unsubscribe(which);
    state
        .work
        .spend(LOOKED_UP * gone.len() as u64 + STEP * subscriptions_of(state, id));
    for served in &gone {
        state.waiters().wait_no_more_at(id, *served);
    }
    forget_served(state, id, gone, context);
}

fn subscriptions_of(state: &State, id: ClientId) -> u64 {
    state
        .clients
        .get(id)
        .map_or(0, |client| client.subscriptions().len() as u64)
}

/// Updates queues that a client no longer serves, and at which it is no longer waiting.
pub(super) fn forget_served(
    state: &mut State,
    id: ClientId,
    gone: Vec<Served>,
    context: &mut Context,
) {
    let own = state.clients.protocol_of(id);
    for served in gone {
        count_out(state, own, served);
        state.queues.note_unclaimed(served.queue);
        if state.waiters().unwake(id, served.queue) {
            serve(state, served.queue, context);
        }
        state.queues.drop_if_unknown(served.queue);
    }
}

/// Subtracts a subscription of a client of this protocol.
pub(super) fn count_out(state: &mut State, own: Option<Protocol>, served: Served) {
    state.queues.count_workers(served.queue, own, -1);
    if let Some(realm) = served.unclaimed_realm() {
        state.queues.watch_unclaimed_no_more(realm);
    }
}

/// Returns the jobs that a connection has leased, of one queue or of all.
fn give_back(state: &mut State, id: ClientId, queue: Option<QueueId>, context: &mut Context) {
    let held: Vec<JobId> = state.jobs.holders().held_by(id).iter().collect();
    for job in held {
        if queue.is_none() || state.jobs.get(job).map(|job| job.queue) == queue {
            lose_attempt(state, job);
            lose_job(state, job, context);
        }
    }
}

/// Removes a listener. A job that exists only for listeners is removed with the last of them, unless it is
/// leased.
pub(super) fn stop_listening(
    state: &mut State,
    id: JobId,
    client: ClientId,
    context: &mut Context,
) {
    let Some(slot) = state.jobs.slot(id) else {
        return;
    };
    state.jobs.unlisten(slot, client);
    if state
        .jobs
        .at(slot)
        .is_some_and(|job| job.is_abandoned() && job.lease().is_none())
    {
        count(state, slot, |totals| totals.cancelled += 1);
        state.may_return(id);
        record_end(state, slot, Ending::Cancelled, None, context);
        remove_job(state, slot, context);
    }
}
