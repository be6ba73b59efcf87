//! Commands about namespaces: which one a connection is in, and what the clients of each may use together.

use bytes::Bytes;

use super::call::{Call, Page};
use super::identity::NOBODY;
use super::scope::{Scope, must_see_all};
use super::state::State;
use crate::command::NamespaceCommand;
use crate::event::Reply;
use crate::ids::{ClientId, Namespace};
use crate::limits::NamespaceLimits;
use crate::query::NamespaceRow;
use crate::refusal::{Capacity, Outcome, Refusal, Thing};
use crate::request::{ClientInfo, Cursor};
use crate::work::ROW;

/// Opens a connection in its namespace. A client of a fleet creates the namespace if it does not exist, because the
/// daemon that accepted it names it in its configuration.
pub(super) fn open(state: &mut State, info: ClientInfo, call: &Call<'_>) -> Outcome {
    if state.clients.get(call.client).is_some() {
        return Err(Refusal::OutOfPlace);
    }
    let name = info.namespace.as_deref().unwrap_or_default().as_bytes();
    let namespaces = state.queues.namespaces_mut();
    let namespace = if info.is_of_fleet() {
        namespaces.find_or_make(name)?
    } else {
        let known = namespaces.named(name);
        known.ok_or(Refusal::NotFound(Thing::Namespace))?
    };
    if info.is_of_fleet()
        && let Some(limit) = limits(state, namespace).clients_max
        && state.clients.of_fleets_in(namespace) >= limit
    {
        return Err(Capacity::NamespaceClients.exceeded(limit, limit));
    }
    state.clients.open(call.client, info, namespace)
}

pub(super) fn change(state: &mut State, command: NamespaceCommand, call: &mut Call<'_>) -> Outcome {
    must_see_all(state, call)?;
    match command {
        NamespaceCommand::Set { name, limits } => {
            if name.is_empty() {
                return Err(Refusal::NotFound(Thing::Namespace));
            }
            let namespaces = state.queues.namespaces_mut();
            let id = namespaces.find_or_make(&name)?;
            namespaces.set_limits(id, *limits);
        }
        NamespaceCommand::Remove { name } => remove(state, &name)?,
    }
    let namespaces = state.queues.namespaces_mut();
    namespaces.remember_changed(&mut call.context.changes);
    call.done()
}

fn remove(state: &mut State, name: &Bytes) -> Outcome {
    let id = state.queues.namespaces().named(name);
    let id = id
        .filter(|id| *id != Namespace::UNNAMED)
        .ok_or(Refusal::NotFound(Thing::Namespace))?;
    let of = Some(id);
    let things = [
        state.queues.count_of(of),
        state.schedules.sum_of(of).count,
        state.batches.sum_of(of).count,
        state.clients.count_of(of).into(),
        state.workers.numbers(of).count() as u64,
    ];
    if things != [0; 5] {
        return Err(Refusal::InUse);
    }
    state.queues.namespaces_mut().remove(id);
    // The next one may have its number.
    state.kinds.forget(id);
    Ok(())
}

/// What the clients of a namespace may use together.
pub(super) fn limits(state: &State, namespace: Namespace) -> NamespaceLimits {
    let image = state.queues.namespaces().at(namespace);
    image.map(|image| image.limits).unwrap_or_default()
}

/// Checks that a client may push a job with a body of this size into a namespace.
#[inline]
pub(super) fn check_push(
    state: &mut State,
    namespace: Namespace,
    client: ClientId,
    bytes: u64,
) -> Outcome {
    if namespace == Namespace::UNNAMED {
        return Ok(());
    }
    let checked = check_limits(state, namespace, client, bytes);
    if let Err(Refusal::Limit { what, .. }) = checked {
        let at = state.wall();
        let pressure = state.queues.namespaces_mut().pressure_mut(namespace);
        pressure.refused += 1;
        pressure.refused_last = Some((what, at));
    }
    checked
}

/// Checks that a namespace with these limits has room for another job with a body of this size.
pub(super) fn check_room(
    state: &State,
    namespace: Namespace,
    limits: &NamespaceLimits,
    bytes: u64,
) -> Outcome {
    if namespace == Namespace::UNNAMED {
        // It has no limits, and its sum is what all others leave.
        return Ok(());
    }
    let held = state.jobs.sum_of(Some(namespace));
    if let Some(limit) = limits.jobs_max.filter(|limit| held.count >= *limit) {
        return Err(Capacity::NamespaceJobs.exceeded(held.count, limit));
    }
    let is_over = |limit: &u64| held.bytes.saturating_add(bytes) > *limit;
    if let Some(limit) = limits.job_bytes_max.filter(is_over) {
        return Err(Capacity::NamespaceBytes.exceeded(held.bytes, limit));
    }
    Ok(())
}

#[inline(never)]
fn check_limits(state: &mut State, namespace: Namespace, client: ClientId, bytes: u64) -> Outcome {
    let limits = limits(state, namespace);
    check_room(state, namespace, &limits, bytes)?;
    // The engine's own pushes, as those of schedules, have a pace of their own.
    if let Some(rate) = limits.pushes.filter(|_| client != NOBODY) {
        let now = state.now;
        let pressure = state.queues.namespaces_mut().pressure_mut(namespace);
        if !pressure.admits(rate, now) {
            return Err(Capacity::NamespacePushes.exceeded(rate.jobs, rate.jobs));
        }
        pressure.pushed(rate, now);
    }
    Ok(())
}

/// Lists the namespaces that a client sees.
pub(super) fn list(state: &State, page: Page, call: &mut Call<'_>) {
    let scope = Scope::of(state, call);
    let first = Namespace(u16::try_from(page.after.0).unwrap_or(u16::MAX));
    let mut seen = state
        .queues
        .namespaces()
        .numbers()
        .filter(|id| *id >= first && scope.reaches(*id));
    let limit = state.page(page.limit);
    let rows: Vec<NamespaceRow> = seen.by_ref().take(limit).map(|id| row(state, id)).collect();
    let next = seen.next().map(|id| Cursor(id.0.into(), 0));
    state.work.spend(ROW * rows.len() as u64);
    call.reply(Reply::Namespaces { rows, next });
}

fn row(state: &State, id: Namespace) -> NamespaceRow {
    let of = Some(id);
    let jobs = state.jobs.sum_of(of);
    let beside = [state.schedules.sum_of(of), state.batches.sum_of(of)];
    let pressure = state.queues.namespaces().pressure(id);
    NamespaceRow {
        id,
        name: state.queues.namespaces().name(id),
        limits: limits(state, id),
        jobs: jobs.count,
        bytes: jobs.bytes + beside.iter().map(|sum| sum.bytes).sum::<u64>(),
        queues: u32::try_from(state.queues.count_of(of)).unwrap_or(u32::MAX),
        clients: state.clients.of_fleets_in(id),
        refused: pressure.map_or(0, |pressure| pressure.refused),
        refused_last: pressure.and_then(|pressure| pressure.refused_last),
    }
}
