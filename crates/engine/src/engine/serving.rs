//! Who serves a queue: clients that have registered for it, that wait there, and those that take from it by name. The
//! last ones serve it from their take on, for a minute and as long as they wait or have a job in hand.

use super::state::State;
use crate::clients::{Client, Served};
use crate::ids::{ClientId, Protocol, QueueId, Timestamp};
use crate::jobs::JobStateKind;
use crate::queues::{Consumers, Queue};
use crate::work::STEP;

/// How long a client serves the queues of its last take, if it neither waits nor works.
const LATELY_MS: u64 = 60_000;

/// Notes the queues from which a client takes by name.
pub(super) fn note_take(state: &mut State, id: ClientId, sources: &[Served]) {
    let born = |served: &Served| state.queues.at(served.queue).map(|queue| (served.queue, queue.birth()));
    let takes_from = || sources.iter().filter_map(born);
    let Some(client) = state.clients.get(id) else { return };
    let new = (!takes_from().eq(client.takes_from.iter().copied())).then(|| takes_from().collect::<Vec<_>>());
    if let Some(new) = new {
        forget_takes(state, id);
        set_taker(state, id, &new, true);
        if let Some(client) = state.clients.get_mut(id) {
            client.takes_from = new;
        }
    }
    let now = state.now;
    if let Some(client) = state.clients.get_mut(id) {
        client.took_at = now;
    }
}

/// The client serves the queues of its takes no longer.
pub(super) fn forget_takes(state: &mut State, id: ClientId) {
    let takes_from = state.clients.get_mut(id).map(|client| std::mem::take(&mut client.takes_from));
    set_taker(state, id, &takes_from.unwrap_or_default(), false);
}

fn set_taker(state: &mut State, id: ClientId, takes_from: &[(QueueId, u64)], takes: bool) {
    let own = state.clients.protocol_of(id);
    for (queue, birth) in takes_from {
        // A queue that was dropped meanwhile may have given its number to another one.
        if state.queues.at(*queue).is_some_and(|queue| queue.birth() == *birth) {
            state.queues.set_taker(*queue, own, (id, takes));
        }
    }
}

/// How many clients serve a queue that see the jobs of one protocol, or all. A client that has registered counts once
/// for each of its subscriptions.
pub(super) fn workers(state: &State, queue: &Queue, scope: Option<Protocol>) -> u32 {
    let sees = |it: &&Consumers| scope.is_none() || it.protocol().is_none() || it.protocol() == scope;
    let taking = queue.consumers().filter(sees).map(|consumers| taking(state, queue, consumers).count());
    queue.workers_of(scope).saturating_add(u32::try_from(taking.sum::<usize>()).unwrap_or(u32::MAX))
}

/// Whether any of these clients serves their queue.
pub(super) fn serve_it(state: &State, queue: &Queue, consumers: &Consumers) -> bool {
    consumers.are_there() || taking(state, queue, consumers).next().is_some()
}

/// Whether a worker has a job of the queue: one whose lease may outlive its connection is nobody's client.
pub(super) fn is_worked_on(queue: &Queue, protocol: Protocol) -> bool {
    let scope = (!queue.is_bridged()).then_some(protocol);
    queue.states(scope).get(JobStateKind::Leased as usize).is_some_and(|leased| *leased > 0)
}

/// Whether the client, or its worker, has a job in hand.
fn holds(state: &State, id: ClientId, client: &Client) -> bool {
    let worker = client.worker().and_then(|number| state.workers.from(number).next());
    let by_worker = worker.is_some_and(|(_, it)| !state.jobs.holders().held_by_worker(it.name()).is_empty());
    by_worker || !state.jobs.holders().held_by(id).is_empty()
}

fn taking<'a>(state: &'a State, queue: &Queue, consumers: &'a Consumers) -> impl Iterator<Item = ClientId> + 'a {
    state.work.spend(STEP * consumers.taking().len() as u64);
    let queue = queue.image().id;
    let lately = |at: Timestamp| at.after_ms(LATELY_MS) > state.now;
    let serves = move |id: ClientId, client: &Client| {
        !client.subscriptions().iter().any(|served| served.queue == queue)
            && (lately(client.took_at) || client.waits() || holds(state, id, client))
    };
    let taking = consumers.taking().iter().copied();
    taking.filter(move |id| state.clients.get(*id).is_some_and(|client| serves(*id, client)))
}
