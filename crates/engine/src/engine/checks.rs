//! Preconditions of commands: names and bodies within the limits, the job that a command names, the lease
//! that a worker claims. Modifies nothing.

use super::scope::{Scope, reaches};
use super::state::State;
use crate::clients::Client;
use crate::ids::{ClientId, NameIn, Namespace, QueueId};
use crate::jobs::{Holder, Job, JobState, Slot};
use crate::refusal::{Capacity, Outcome, Refusal, Thing};
use crate::request::{JobRef, NewJob, Proof, QueueKind};

/// Checks the lengths of all names of a new job.
pub(super) fn check_names(state: &State, new: &NewJob) -> Outcome {
    state.check_name(&new.queue)?;
    state.check_name(new.name.as_deref().unwrap_or_default())?;
    state.check_name(new.batch.as_deref().unwrap_or_default())?;
    state.check_name(new.listen.name())?;
    state.check_name(new.unique.as_ref().map_or(&[], |unique| &unique.key))
}

/// Checks the body of a new job, or of a schedule's or batch's template, against the limit of the queue.
pub(super) fn check_new_body(state: &State, new: &NewJob) -> Outcome {
    state
        .queues
        .named(new.namespace, &new.queue)
        .map_or(Ok(()), |queue| check_body(state, queue, &new.body))
}

/// Checks a body against the limit of a queue.
pub(super) fn check_body(state: &State, queue: QueueId, body: &[u8]) -> Outcome {
    let rules = state.queues.rules(queue);
    let Some(limit) = rules.and_then(|rules| rules.body_bytes_max) else {
        return Ok(());
    };
    let given = u32::try_from(body.len()).unwrap_or(u32::MAX);
    if given > limit {
        Err(Capacity::BodyBytes.exceeded(given, limit))
    } else {
        Ok(())
    }
}

/// Finds the job in this scope, in any state.
pub(super) fn find(state: &State, job: &JobRef, scope: Scope) -> Outcome<Slot> {
    let accepts = |job: &Job| scope.has_job(state, job).then_some(());
    find_where(state, || scope, job, accepts).map(|(slot, ())| slot)
}

/// Finds the job among those that `accepts` admits, and returns the result of `accepts` for it. A scope without a
/// namespace finds names in all: in that without a name first.
fn find_where<T>(
    state: &State,
    scope: impl Fn() -> Scope,
    job: &JobRef,
    accepts: impl Fn(&Job) -> Option<T>,
) -> Outcome<(Slot, T)> {
    let slot = match job {
        JobRef::Id(id) => state.jobs.slot(*id),
        JobRef::Name(name) => in_namespaces(state, scope(), |namespace| {
            let accepts = |job: &Job| accepts(job).is_some();
            state.jobs.named(namespace, name, accepts)
        }),
        JobRef::Key(key) => in_namespaces(state, scope(), |namespace| {
            let queue = state.queues.named(namespace, &key.queue)?;
            state.jobs.keyed(queue, key.protocol, &key.key)
        }),
        JobRef::KeyAnywhere { protocol, key } => in_namespaces(state, scope(), |namespace| {
            let realm = namespace.realm(*protocol);
            state
                .jobs
                .keyed_anywhere(realm, key, state.queues.numbers())
        }),
    };
    slot.and_then(|slot| Some((slot, accepts(state.jobs.at(slot)?)?)))
        .ok_or(Refusal::NotFound(Thing::Job))
}

/// What is found first in the namespaces of a scope.
fn in_namespaces<T>(
    state: &State,
    scope: Scope,
    find: impl FnMut(Namespace) -> Option<T>,
) -> Option<T> {
    match scope.namespace() {
        Some(own) => Some(own).into_iter().find_map(find),
        None => state.queues.namespaces().numbers().find_map(find),
    }
}

/// Finds the job, if it is leased and the proof is valid. A valid proof also finds a job beyond the client's
/// scope, because the queue may have been bridged when the client took the job.
pub(super) fn leased(state: &State, client: ClientId, job: &JobRef, proof: Proof) -> Outcome<Slot> {
    let scope = || Scope::of_client(state, client);
    let is_proved = |job: &Job| {
        job.lease().is_some_and(|lease| match proof {
            Proof::AnyLease => {
                (scope().has_job(state, job) || scope().holds(state, job, &lease.holder))
                    && (!job.was_taken_back()
                        || !has_worker(state, client)
                        || is_holder(state, client, job, &lease.holder))
            }
            Proof::Token(token) => {
                lease.token == token && reaches(state, client, job.queue.namespace())
            }
            Proof::Connection => {
                !matches!(lease.holder, Holder::Named(_))
                    && is_holder(state, client, job, &lease.holder)
            }
            Proof::Late => false,
        })
    };
    let proved = |job: &Job| {
        if is_proved(job) {
            Some(true)
        } else {
            scope().has_job(state, job).then_some(false)
        }
    };
    let (slot, is_proved) = find_where(state, scope, job, proved)?;
    if is_proved {
        Ok(slot)
    } else {
        Err(Refusal::NotHeld)
    }
}

/// Returns true if the client belongs to a named worker.
fn has_worker(state: &State, client: ClientId) -> bool {
    state.clients.get(client).and_then(Client::worker).is_some()
}

/// Returns true if the client, or the client's worker, has the lease of a job.
#[inline]
pub(super) fn is_holder(state: &State, client: ClientId, job: &Job, holder: &Holder) -> bool {
    match holder {
        Holder::Connection(holder) => *holder == client,
        Holder::Named(_) | Holder::Away(_) => is_worker(state, client, job.queue, holder),
    }
}

#[inline(never)]
fn is_worker(state: &State, client: ClientId, queue: QueueId, holder: &Holder) -> bool {
    let namespace = queue.namespace();
    match holder {
        Holder::Connection(_) => false,
        Holder::Named(name) => {
            let worker = state.workers.named(NameIn(namespace, name));
            state.clients.get(client).and_then(Client::worker) == worker
                && has_worker(state, client)
        }
        Holder::Away(protocol) => {
            state.clients.protocol_of(client) == Some(*protocol) && state.home(client) == namespace
        }
    }
}

/// Finds the job for a report after the end of the lease, unless another worker has the job or a client has
/// returned it. The engine does not remember the last holder; a token identifies the delivery. A job that was
/// never delivered is not found. A job from before the start is treated as delivered, because the last
/// delivery may not have been journalled.
pub(super) fn left(state: &State, client: ClientId, job: &JobRef, proof: Proof) -> Outcome<Slot> {
    let slot = find(state, job, Scope::of_client(state, client))?;
    let was_its = |job: &Job| {
        let is_of_before = state.meta.is_of_before(job.id);
        match proof {
            Proof::Late | Proof::AnyLease => job.attempts > 0 || is_of_before,
            // As on deployed servers of Gearman, where connections are not resumed.
            Proof::Connection => false,
            Proof::Token(token) => {
                job.attempts > 0 && token.delivery() == job.attempts
                    || is_of_before && token.delivery() > job.attempts
            }
        }
    };
    let is_left = state.jobs.at(slot).is_some_and(|job| {
        matches!(job.state, JobState::Ready | JobState::Retrying(_))
            && !job.was_taken_back()
            && was_its(job)
    });
    if is_left {
        Ok(slot)
    } else {
        Err(Refusal::NotHeld)
    }
}

/// Returns true if the delivery of a ready job may be unknown since the daemon stopped, before it was
/// journalled: the job has not failed since the start.
pub(super) fn may_be_lost_with_daemon(state: &State, slot: Slot) -> bool {
    let began = state.beginning.first.map(|first| first.wall);
    state.jobs.at(slot).is_some_and(|job| {
        let failed_at = job
            .extra
            .as_deref()
            .and_then(|extra| extra.failure.as_deref())
            .map(|last| last.at);
        job.state == JobState::Ready
            && state.meta.is_of_before(job.id)
            && failed_at.is_none_or(|at| Some(at) < began)
    })
}

pub(super) fn must_be(state: &State, slot: Slot, kind: QueueKind) -> Outcome {
    let queue = state
        .jobs
        .at(slot)
        .and_then(|job| state.queues.at(job.queue));
    if queue.is_some_and(|queue| queue.image().kind == kind) {
        Ok(())
    } else {
        Err(Refusal::WrongKind)
    }
}
