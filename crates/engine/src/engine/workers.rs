//! Commands about named workers, and the effects of a missed heartbeat.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::attempts::lose_attempt;
use super::call::Call;
use super::failures::lose_job;
use super::place::count_realm;
use super::scope::{Scope, must_see_all};
use super::serve::serve;
use super::state::State;
use super::warnings::warn_lost;
use crate::clients::{Client, Worker};
use crate::context::Context;
use crate::event::{Notice, Reply, Watched, WorkerChange};
use crate::ids::{ClientId, NameIn, Named, Protocol, QueueId, Timestamp};
use crate::jobs::JobStateKind;
use crate::query::WorkLeft;
use crate::refusal::{Outcome, Refusal, Thing};
use crate::request::{QueueKind, WorkerState};

pub(super) fn register_worker(
    state: &mut State,
    name: &Bytes,
    about: Bytes,
    call: &mut Call<'_>,
) -> Outcome {
    state.check_name(name)?;
    // Connections that give no name do not form one worker.
    if name.is_empty() {
        return Err(Refusal::NotFound(Thing::Worker));
    }
    if state.clients.opened(call.client)?.worker().is_some() {
        return Err(Refusal::OutOfPlace);
    }
    state.check_large(Worker::bytes_for(name.len(), about.len()))?;
    let known = NameIn(state.home(call.client), name);
    let number = state.workers.named(known).unwrap_or_else(|| {
        let protocol = state.clients.protocol_of(call.client);
        add_worker(state, known, protocol)
    });
    state
        .clients
        .set_worker(std::iter::once(call.client), Some(number));
    state.workers.join(number, call.client, about);
    if state.is_quiet(call.client, name) {
        hush(state, &[call.client], call.context);
    }
    call.done()
}

fn add_worker(state: &mut State, name: NameIn<'_>, protocol: Option<Protocol>) -> u64 {
    show(state, name, WorkerChange::Registered);
    state.jobs.add_worker(name);
    state.workers.add(
        name,
        protocol,
        state.now,
        state.limits.beat_ms,
        &mut state.timers,
    )
}

/// Registers workers that had reservations before the restart, which must return within the limit of a
/// heartbeat. Only FWP's workers have reservations.
pub(super) fn await_workers(state: &mut State) {
    while let Some((Named(namespace, name), jobs)) = state.workers.pop_expected() {
        add_worker(state, NameIn(namespace, &name), Some(Protocol::FAKTORY));
        for job in jobs {
            state.jobs.hold_again(job);
        }
    }
}

pub(super) fn beat(
    state: &mut State,
    name: &Bytes,
    requested: Option<WorkerState>,
    memory_bytes: Option<u64>,
    call: &mut Call<'_>,
) -> Outcome {
    let number = state
        .workers
        .named(NameIn(state.home(call.client), name))
        .ok_or(Refusal::NotFound(Thing::Worker))?;
    state.workers.beat(number, state.now, memory_bytes);
    if let Some(requested) = requested {
        advance_worker(state, number, requested, call.context);
    }
    let state = state.workers.state(number).unwrap_or(WorkerState::Running);
    call.reply(Reply::Beaten(state));
    Ok(())
}

pub(super) fn set_worker_state(
    state: &mut State,
    name: &Bytes,
    requested: WorkerState,
    call: &mut Call<'_>,
) -> Outcome {
    let of = Scope::of(state, call).namespace();
    let numbers = match state.workers.named(NameIn(state.home(call.client), name)) {
        Some(number) => vec![number],
        None if name.is_empty() => state.workers.numbers(of).collect(),
        None => return Err(Refusal::NotFound(Thing::Worker)),
    };
    for number in numbers {
        advance_worker(state, number, requested, call.context);
    }
    call.done()
}

pub(super) fn drain(state: &mut State, call: &mut Call<'_>) -> Outcome {
    must_see_all(state, call)?;
    let daemon = call.client.daemon();
    for number in state.workers.drain(daemon) {
        show_worker(state, number, WorkerChange::Quiet);
    }
    let clients = state
        .clients
        .ids_from(ClientId(0))
        .filter(|client| state.is_quiet(*client, &[]));
    let clients: Vec<ClientId> = clients.collect();
    hush(state, &clients, call.context);
    call.done()
}

/// See [`super::Engine::work_left`].
pub(super) fn work_left(state: &State, daemon: u64) -> WorkLeft {
    let is_there = |client: &ClientId| client.daemon() == daemon;
    let connections = state
        .jobs
        .holders()
        .by_connection()
        .filter(|(client, _)| is_there(client));
    let connections = connections.map(|(client, jobs)| (state.clients.protocol_of(client), jobs));
    let named = state
        .workers
        .from(0)
        .filter(|(_, worker)| worker.clients().any(|client| is_there(&client)));
    let named = named.map(|(_, worker)| {
        (
            worker.protocol(),
            state.jobs.holders().held_by_worker(worker.name()).len(),
        )
    });
    let mut jobs = BTreeMap::new();
    for (protocol, held) in connections.chain(named).filter(|(_, held)| *held > 0) {
        *jobs.entry(protocol).or_default() += held as u64;
    }
    let cycles = state
        .queues
        .iter()
        .filter(|queue| queue.image().kind == QueueKind::Cycle);
    let lent: u64 = cycles
        .map(|queue| u64::from(queue.jobs(JobStateKind::Leased)))
        .sum();
    let is_of_spiderq = |(id, client): (ClientId, &Client)| {
        is_there(&id) && client.protocol() == Some(Protocol::SPIDERQ)
    };
    if lent > 0 && state.clients.iter().any(is_of_spiderq) {
        jobs.insert(Some(Protocol::SPIDERQ), lent);
    }
    let is_at_rest = state.jobs.holders().is_at_rest(daemon);
    WorkLeft {
        jobs: jobs.into_iter().collect(),
        is_at_rest,
        is_draining: state.workers.is_draining(daemon),
    }
}

/// Advances a worker's state, which never moves back. From `Quiet` on, none of its connections is given work.
fn advance_worker(state: &mut State, number: u64, requested: WorkerState, context: &mut Context) {
    let Some(clients) = state.workers.advance(number, requested) else {
        return;
    };
    let change = if requested == WorkerState::Quiet {
        WorkerChange::Quiet
    } else {
        WorkerChange::Stopping
    };
    show_worker(state, number, change);
    hush(state, &clients, context);
}

/// Reports an event of a worker to watchers.
fn show(state: &mut State, name: NameIn<'_>, change: WorkerChange) {
    let NameIn(namespace, name) = name;
    state.watchers.note(namespace, None, || {
        Watched::Worker(Bytes::copy_from_slice(name), change)
    });
}

fn show_worker(state: &mut State, number: u64, change: WorkerChange) {
    let State {
        workers, watchers, ..
    } = state;
    if let Some(worker) = workers.at(number) {
        let NameIn(namespace, name) = worker.name();
        watchers.note(namespace, None, || {
            Watched::Worker(Bytes::copy_from_slice(name), change)
        });
    }
}

/// Makes these clients quiet. Jobs for which they were woken go to clients that are not quiet.
fn hush(state: &mut State, clients: &[ClientId], context: &mut Context) {
    let woken_for: Vec<QueueId> = clients
        .iter()
        .filter_map(|client| state.waiters().hush(*client))
        .collect();
    for queue in woken_for {
        serve(state, queue, context);
    }
}

/// Handles a worker that may have missed a heartbeat. If so, the worker's connections are closed.
pub(super) fn miss_beat(state: &mut State, number: u64, at: Timestamp, context: &mut Context) {
    let Some(clients) =
        state
            .workers
            .miss_beat(number, at, state.limits.beat_ms, &mut state.timers)
    else {
        return;
    };
    let first = clients.first().and_then(|id| state.clients.get(*id));
    let realm = first.and_then(|client| Some(client.namespace().realm(client.protocol()?)));
    count_realm(state, realm, |totals| totals.workers_lost += 1);
    // A worker that is considered dead is given no more jobs.
    let woken_for: Vec<QueueId> = clients
        .iter()
        .filter_map(|client| state.waiters().stop(*client))
        .collect();
    for client in clients {
        context.notify(client, Notice::Close);
    }
    for queue in woken_for {
        serve(state, queue, context);
    }
    forget_worker(state, number, context);
}

/// Removes a worker. Time-bound leases on jobs of the worker's protocol continue, unless the configuration
/// requeues them immediately. Jobs of other protocols are requeued, because clients of those protocols do not
/// know such leases.
pub(super) fn forget_worker(state: &mut State, number: u64, context: &mut Context) {
    let Some(worker) = state.workers.remove(number, &mut state.timers) else {
        return;
    };
    show(state, worker.name(), WorkerChange::Gone);
    state.clients.set_worker(worker.clients(), None);
    let held = state.jobs.remove_worker(worker.name());
    let all = state.limits.requeue_dead_workers;
    for id in held.iter() {
        let is_foreign = |own| {
            state
                .jobs
                .get(id)
                .is_some_and(|job| job.protocol != own && job.cycle().is_none())
        };
        if all || worker.protocol().is_some_and(is_foreign) {
            warn_lost(state, id, context);
            lose_attempt(state, id);
            lose_job(state, id, context);
        }
    }
}
