//! The clients that serve a queue: registered clients, waiting clients, and clients that take from it by
//! name. The latter serve it from the take on, for a minute and for as long as they are waiting or have a
//! job.

use super::state::{FEW, State};
use crate::clients::{Client, Served, TakesFrom};
use crate::ids::{ClientId, Protocol, Timestamp};
use crate::jobs::{Job, JobStateKind};
use crate::queues::{Consumers, Queue, Queues, WaitsAs};
use crate::work::STEP;

/// How long a client serves the queues of the last take, if it is neither waiting nor working.
const LATELY_MS: u64 = 60_000;

/// The limit of recorded queues that a client takes from, in addition to those of the last take.
const TAKES_MAX: usize = 64;

/// Records the queues from which a client takes by name.
pub(super) fn note_take(state: &mut State, id: ClientId, sources: &[Served]) {
    let is_full = sources.len() > FEW && state.check_beside(0).is_err();
    let State {
        clients,
        queues,
        now,
        ..
    } = state;
    let Some(client) = clients.get_mut(id) else {
        return;
    };
    let own = client.protocol();
    client.took_at = *now;
    for (index, served) in sources.iter().enumerate() {
        let Some(birth) = queues.at(served.queue).map(Queue::birth) else {
            continue;
        };
        let is_it = |take: &TakesFrom| (take.queue, take.birth) == (served.queue, birth);
        // A client usually requests the same queues repeatedly, in the same order.
        let known = match client.takes_from.get(index).is_some_and(is_it) {
            true => Some(index),
            false => client.takes_from.iter().position(is_it),
        };
        match known.and_then(|at| client.takes_from.get_mut(at)) {
            Some(take) => take.at = *now,
            // This affects only the display of workers.
            None if is_full && index >= FEW => {}
            None => {
                queues.set_taker(served.queue, own, id, true);
                client.takes_from.push(TakesFrom {
                    queue: served.queue,
                    birth,
                    at: *now,
                });
                client.recount();
            }
        }
    }
    while client.takes_from.len() > TAKES_MAX.max(sources.len()) {
        let oldest = client
            .takes_from
            .iter()
            .enumerate()
            .min_by_key(|(_, take)| take.at)
            .map(|(at, _)| at);
        let Some(take) = oldest.map(|at| client.takes_from.swap_remove(at)) else {
            break;
        };
        end_take(queues, take, id, own);
    }
}

/// Removes the client from the queues of takes.
pub(super) fn forget_takes(state: &mut State, id: ClientId) {
    let State {
        clients, queues, ..
    } = state;
    let Some(client) = clients.get_mut(id) else {
        return;
    };
    let own = client.protocol();
    for take in std::mem::take(&mut client.takes_from) {
        end_take(queues, take, id, own);
    }
    client.recount();
}

/// Removes the client from a queue that it took from. Does nothing if that queue was dropped, and the ID
/// possibly reused.
fn end_take(queues: &mut Queues, take: TakesFrom, client: ClientId, own: Option<Protocol>) {
    if queues
        .at(take.queue)
        .is_some_and(|queue| queue.birth() == take.birth)
    {
        queues.set_taker(take.queue, own, client, false);
    }
}

/// The number of clients that serve a queue and see the jobs of a protocol, or of all. A registered client
/// appears once per subscription.
pub(super) fn workers(state: &State, queue: &Queue, scope: Option<Protocol>) -> u32 {
    let sees =
        |it: &&Consumers| scope.is_none() || it.protocol().is_none() || it.protocol() == scope;
    let taking = queue
        .consumers()
        .filter(sees)
        .map(|consumers| taking(state, queue, consumers).count());
    queue
        .workers_of(scope)
        .saturating_add(u32::try_from(taking.sum::<usize>()).unwrap_or(u32::MAX))
}

/// The number of clients that are waiting at a queue and see the jobs of a protocol, or of all.
pub(super) fn waiting(queue: &Queue, scope: Option<Protocol>) -> u32 {
    let sees =
        |it: &&Consumers| scope.is_none() || it.protocol().is_none() || it.protocol() == scope;
    let count =
        |it: &Consumers| it.waiting(WaitsAs::Taker).len() + it.waiting(WaitsAs::Sleeper).len();
    u32::try_from(queue.consumers().filter(sees).map(count).sum::<usize>()).unwrap_or(u32::MAX)
}

/// Returns true if any of these clients serves the queue.
pub(super) fn serve_it(state: &State, queue: &Queue, consumers: &Consumers) -> bool {
    consumers.are_there() || taking(state, queue, consumers).next().is_some()
}

/// Returns true if a worker has a job of the queue: a lease that may outlive the connection belongs to no
/// client.
pub(super) fn is_worked_on(queue: &Queue, protocol: Protocol) -> bool {
    let scope = (!queue.is_bridged()).then_some(protocol);
    queue
        .states(scope)
        .get(JobStateKind::Leased as usize)
        .is_some_and(|leased| *leased > 0)
}

/// Returns true if any worker serves a job's queue and sees the jobs, or has taken one of them.
pub(super) fn is_served(state: &State, job: &Job) -> bool {
    let Some(queue) = state.queues.at(job.queue) else {
        return false;
    };
    let sees = |own| {
        if queue.is_bridged() {
            !job.unfit.has(own)
        } else {
            own == job.protocol
        }
    };
    let mut seeing = queue
        .consumers()
        .filter(|consumers| consumers.protocol().is_none_or(sees));
    is_worked_on(queue, job.protocol)
        || state.queues.unclaimed_subscriptions(job.realm()) > 0
        || seeing.any(|consumers| serve_it(state, queue, consumers))
}

/// Returns true if the client, or the client's worker, has a job.
fn holds(state: &State, id: ClientId, client: &Client) -> bool {
    let worker = client
        .worker()
        .and_then(|number| state.workers.from(number).next());
    let by_worker =
        worker.is_some_and(|(_, it)| !state.jobs.holders().held_by_worker(it.name()).is_empty());
    by_worker || !state.jobs.holders().held_by(id).is_empty()
}

/// The clients that take from the queue by name: within the last minute, or with the last take if that is
/// blocked or has delivered the current jobs.
fn taking<'a>(
    state: &'a State,
    queue: &Queue,
    consumers: &'a Consumers,
) -> impl Iterator<Item = ClientId> + 'a {
    state.work.spend(STEP * consumers.taking().len() as u64);
    let birth = queue.birth();
    let queue = queue.image().id;
    let lately = |at: Timestamp| at.after_ms(LATELY_MS) > state.now;
    let serves = move |id: ClientId, client: &Client| {
        let take = client
            .takes_from
            .iter()
            .find(|take| (take.queue, take.birth) == (queue, birth));
        !client
            .subscriptions()
            .iter()
            .any(|served| served.queue == queue)
            && take.is_some_and(|take| {
                let is_last = take.at == client.took_at;
                lately(take.at) || is_last && (client.waits() || holds(state, id, client))
            })
    };
    let taking = consumers.taking().iter().copied();
    taking.filter(move |id| {
        state
            .clients
            .get(*id)
            .is_some_and(|client| serves(*id, client))
    })
}
