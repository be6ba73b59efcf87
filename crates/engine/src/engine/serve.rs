//! Which client is served when work arrives.
//!
//! First come, first served; weights sort the clients of a protocol among themselves. A queue wakes as many
//! sleepers as it has jobs for which no sleeper is woken yet. A woken sleeper that does not request a job in
//! time is replaced by the next client, which may be a sleeper or a client that receives jobs directly.

use super::deliver::hand_out;
use super::state::State;
use super::warnings::warn_unserved;
use crate::clients::{Client, Served};
use crate::context::Context;
use crate::event::{Notice, Reply};
use crate::ids::{ClientId, NameIn, QueueId, Realm, Tag, Timestamp};
use crate::jobs::{JobStateKind, Slot};
use crate::queues::{Consumers, Queue, WaitKey, WaitsAs, Whose};

/// The wait of a take, in milliseconds, if jobs are blocked by keys of the worker's current jobs. The wait is
/// short, because a worker with a single connection can report on jobs only after the reply.
pub(super) const OWN_KEY_WAIT_MS: u64 = 50;

/// The limit of a worker's jobs that are examined.
const OWN_JOBS_MAX: usize = 64;

/// Returns true if ready jobs of these queues are blocked by keys of this worker's jobs.
pub(super) fn keeps_itself_waiting(
    state: &State,
    client: ClientId,
    worker: &[u8],
    sources: &[Served],
) -> bool {
    if !sources
        .iter()
        .any(|served| state.queues.at(served.queue).is_some_and(Queue::excludes))
    {
        return false;
    }
    let holders = state.jobs.holders();
    let worker = NameIn(state.home(client), worker);
    let own = holders
        .held_by(client)
        .iter()
        .chain(holders.held_by_worker(worker).iter())
        .take(OWN_JOBS_MAX);
    let mut jobs = own.filter_map(|id| state.jobs.get(id));
    jobs.any(|job| {
        sources.iter().any(|served| served.queue == job.queue) && state.queues.keeps_back(job)
    })
}

/// The next step at a queue.
#[derive(Debug)]
pub(super) enum Next {
    Wake(ClientId),
    HandTo(ClientId, WaitKey),
}

/// Serves a queue after work arrived or a woken client gave up: delivers and wakes until jobs or clients run
/// out.
pub(super) fn serve(state: &mut State, queue: QueueId, context: &mut Context) {
    let Some(known) = state.queues.at(queue) else {
        return;
    };
    if known.needs_serving() {
        serve_waiting(state, queue, context);
    }
    warn_unserved(state, queue, context);
}

fn serve_waiting(state: &mut State, queue: QueueId, context: &mut Context) {
    state.queues.refill(queue, state.now);
    while let Some(next) = next_served(state, queue) {
        match next {
            Next::Wake(client) => wake(state, client, queue, context),
            Next::HandTo(..) if context.room == 0 => return state.starved.add(queue, state.now),
            Next::HandTo(client, key) => hand_to_waiting(state, client, key, queue, context),
        }
    }
    if state.queues.at(queue).is_some_and(Queue::excludes) {
        answer_holders(state, queue, context);
    }
}

/// Replies to takes that are blocked by a key of the same worker, which may report only after that.
#[cold]
fn answer_holders(state: &mut State, queue: QueueId, context: &mut Context) {
    let soon = state.now.after_ms(OWN_KEY_WAIT_MS);
    let Some(at) = state
        .queues
        .at(queue)
        .filter(|queue| queue.jobs(JobStateKind::Ready) > 0)
    else {
        return;
    };
    let takers = at
        .consumers()
        .flat_map(|consumers| consumers.waiting(WaitsAs::Taker).values())
        .take(OWN_JOBS_MAX);
    let holds = |id: &ClientId| {
        let wait = state
            .clients
            .get(*id)
            .and_then(Client::blocked_until_a_time);
        wait.is_some_and(|it| {
            it.until > soon && keeps_itself_waiting(state, *id, &it.worker, &it.sources)
        })
    };
    let holders: Vec<ClientId> = takers.copied().filter(holds).collect();
    for client in holders {
        if let Some(blocked) = state.waiters().unblock_due(client, Timestamp::NEVER) {
            context.reply(client, blocked.tag, Reply::Empty);
        }
    }
}

/// The next client to serve at a queue: among the candidates of all protocols, the one that has waited
/// longest.
pub(super) fn next_served(state: &State, id: QueueId) -> Option<Next> {
    let queue = state.queues.at(id)?;
    if queue.jobs(JobStateKind::Ready) == 0 {
        return None;
    }
    let candidates = queue
        .consumers()
        .filter_map(|consumers| next_of(state, queue, consumers));
    candidates
        .min_by_key(|(key, _)| key.turn())
        .map(|(_, next)| next)
}

/// The candidate of a protocol: the highest weight, then the longest wait. A job for which a sleeper was
/// woken is reserved for that sleeper for a while.
fn next_of(state: &State, queue: &Queue, consumers: &Consumers) -> Option<(WaitKey, Next)> {
    let takers = consumers.waiting(WaitsAs::Taker);
    let sleepers = consumers.waiting(WaitsAs::Sleeper);
    if (takers.is_empty() && sleepers.is_empty()) || !queue.has_unclaimed_for(consumers) {
        return None;
    }
    let admitted =
        |(key, client): &(&WaitKey, &ClientId)| admits_waiter(state, queue, **client, **key);
    let taker = takers.iter().find(admitted);
    if let Some((slept, client)) = sleepers.iter().find(admitted)
        && taker.is_none_or(|(taken, _)| slept <= taken)
    {
        return Some((*slept, Next::Wake(*client)));
    }
    let (taken, client) = taker?;
    Some((*taken, Next::HandTo(*client, *taken)))
}

/// Returns true if a queue has a slot for a waiting client: for the blocked take with this key, otherwise for
/// the sleep or credit.
pub(super) fn admits_waiter(state: &State, queue: &Queue, id: ClientId, key: WaitKey) -> bool {
    if !queue.knows_workers_apart() {
        return true;
    }
    let Some(client) = state.clients.get(id) else {
        return false;
    };
    let (sources, worker) = client.takes_from(key.turn());
    let served = sources
        .iter()
        .find(|served| served.queue == queue.image().id);
    served.is_some_and(|served| queue.admits(Whose::taking(id, served.lease, worker)))
}

/// Wakes a sleeper for a queue.
pub(super) fn wake(state: &mut State, id: ClientId, queue: QueueId, context: &mut Context) {
    let by = state.now.after_ms(state.limits.wake_ms);
    state.waiters().wake(id, queue, by);
    context.notify(id, Notice::WorkAvailable);
}

/// Delivers the first job to the next client. The key determines whether a blocked take or a credit is used.
fn hand_to_waiting(
    state: &mut State,
    id: ClientId,
    key: WaitKey,
    queue: QueueId,
    context: &mut Context,
) {
    let Some(client) = state.clients.get(id) else {
        return;
    };
    let first = state
        .queues
        .at(queue)
        .and_then(|queue| queue.first_of(client.protocol()));
    let Some((_, slot)) = first else { return };
    let at_queue = |served: &&Served| served.queue == queue;
    if let Some(blocked) = state.waiters().unblock(id, key.turn()) {
        if let Some(served) = blocked.sources.iter().find(at_queue) {
            hand_out(
                state,
                id,
                blocked.tag,
                slot,
                *served,
                &blocked.worker,
                context,
            );
        }
        return;
    }
    let served = state
        .clients
        .get(id)
        .and_then(|client| client.subscriptions().iter().find(at_queue).copied());
    state.waiters().use_credit(id);
    if let Some(served) = served {
        hand_out(state, id, Tag::NONE, slot, served, &[], context);
    }
}

/// Serves the queues that have free slots, or jobs that may start, again.
pub(super) fn serve_freed(state: &mut State, context: &mut Context) {
    while let Some(queue) = state.queues.pop_freed() {
        serve(state, queue, context);
    }
}

/// Delivers unclaimed jobs to waiting clients: the first job first, to the client with the highest weight,
/// then the longest wait. Returns `true` if there was one.
pub(super) fn serve_unclaimed(state: &mut State, context: &mut Context) -> bool {
    let mut any = false;
    while let Some(realm) = state.queues.unclaimed_to_serve() {
        let Some((id, served, slot)) = next_unclaimed(state, realm) else {
            state.queues.unclaimed_are_served(realm);
            continue;
        };
        if context.room == 0 {
            state.starved.add_unclaimed(state.now);
            state.queues.unclaimed_are_blocked();
            break;
        }
        state.waiters().use_credit(id);
        hand_out(state, id, Tag::NONE, slot, served, &[], context);
        any = true;
    }
    any
}

pub(super) fn next_unclaimed(state: &State, realm: Realm) -> Option<(ClientId, Served, Slot)> {
    let protocol = realm.protocol;
    let waiters = state.queues.unclaimed_waiters(realm)?;
    if waiters.is_empty() {
        return None; // however many queues there are
    }
    state.queues.unclaimed(realm).find_map(|queue| {
        waiters.iter().find_map(|(key, id)| {
            let client = state.clients.get(*id)?;
            let (_, slot) = queue.first_unclaimed(protocol, client.protocol())?;
            let mut takes = client.takes_unclaimed(protocol, key.weight());
            let may = |served: &&Served| queue.admits(Whose::taking(*id, served.lease, &[]));
            Some((*id, *takes.find(may)?, slot))
        })
    })
}

/// Serves queues that were blocked for lack of space, if the next attempt is due. Returns `true` if
/// it was.
pub(super) fn serve_starved(state: &mut State, context: &mut Context) -> bool {
    let Some((queues, unclaimed)) = state.starved.take_due(state.now) else {
        return false;
    };
    for queue in queues {
        serve(state, queue, context);
    }
    if unclaimed {
        state.queues.retry_unclaimed();
    }
    true
}
