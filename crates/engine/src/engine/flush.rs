//! Removes everything of a realm except schedules, a page at a time.

use super::call::{Call, Page};
use super::ends::discard;
use super::list::page_of_queues;
use super::scope::Scope;
use super::search::{Matches, Search};
use super::state::State;
use crate::context::Context;
use crate::event::Reply;
use crate::history::Ending;
use crate::ids::{JobId, Namespace, Protocol, QueueId, Realm};
use crate::jobs::{Job, JobState, JobStateKind};
use crate::queues::Queue;
use crate::refusal::{Outcome, Refusal};
use crate::request::{Cursor, Filter, QueueKind};
use crate::work::CHANGE;

/// The phases, in this order. Batches are first, so that the removal of jobs pushes no callbacks.
const BATCHES: u64 = 0;
const JOBS: u64 = 1;
const QUEUES: u64 = 2;

/// Number of removed items, and where the next visit continues.
type Removed = (u32, Option<u64>);

pub(super) fn flush(
    state: &mut State,
    protocol: Protocol,
    page: Page,
    call: &mut Call<'_>,
) -> Outcome {
    let realm = state.home(call.client).realm(protocol);
    if !Scope::of(state, call).includes(realm) {
        return Err(Refusal::OutOfPlace);
    }
    let limit = state.page(page.limit);
    let Cursor(stage, at) = page.after;
    let (changed, next) = match stage {
        BATCHES => flush_batches(state, realm, at, limit, call.context),
        JOBS => flush_jobs(state, realm, at, limit, call.context),
        QUEUES => flush_queues(state, realm, at, limit, call.context),
        _ => (0, None),
    };
    let next = match next {
        Some(at) => Some(Cursor(stage, at)),
        None if stage < QUEUES => Some(Cursor(stage + 1, 0)),
        None => None,
    };
    if next.is_none() {
        let changes = &mut call.context.changes;
        if realm.namespace == Namespace::UNNAMED {
            state.meta.forget_protocol(protocol, changes);
        } else {
            let namespaces = state.queues.namespaces_mut();
            namespaces.forget_counts(realm);
            namespaces.remember_changed(changes);
        }
    }
    call.reply(Reply::Mutated { changed, next });
    Ok(())
}

fn flush_batches(
    state: &mut State,
    realm: Realm,
    first: u64,
    limit: usize,
    context: &mut Context,
) -> Removed {
    let (page, next) = cut(
        state
            .batches
            .from(JobId(first))
            .map(|batch| (batch.id, batch.realm())),
        limit,
    );
    state.work.spend(CHANGE * page.len() as u64);
    let doomed = page.into_iter().filter(|(_, other)| *other == realm);
    let changed = doomed
        .map(|(id, _)| state.batches.forget(id, false, &mut context.changes))
        .count_u32();
    (changed, next.map(|(id, _)| id.0))
}

/// Removes jobs in any state, including leased ones.
fn flush_jobs(
    state: &mut State,
    realm: Realm,
    first: u64,
    limit: usize,
    context: &mut Context,
) -> Removed {
    let filter = Filter {
        protocol: Some(realm.protocol),
        ..Filter::default()
    };
    let search = Search {
        state,
        filter: &filter,
        scope: Scope::whole(realm.namespace),
        home: realm.namespace,
        after: Cursor(first, 0),
        limit,
    };
    let Matches { slots, next, .. } = search.matching(None);
    state.work.spend(CHANGE * slots.len() as u64);
    (
        slots
            .into_iter()
            .map(|slot| discard(state, slot, Ending::Deleted, context))
            .count_u32(),
        next.map(|next| next.0),
    )
}

/// Removes queues in which this protocol has no jobs, no workers and no limits. They are not included in the
/// result.
fn flush_queues(
    state: &mut State,
    realm: Realm,
    first: u64,
    limit: usize,
    context: &mut Context,
) -> Removed {
    let protocol = realm.protocol;
    // Each existing queue is a row, removed or not.
    let looked = |id| {
        state.queues.at(id).map(|queue| {
            (
                id,
                is_unused(queue, protocol).then(|| queue.removed_with(Some(protocol))),
            )
        })
    };
    let (page, next) = page_of_queues(state, Scope::whole(realm.namespace), first, limit, looked);
    for (id, gone) in page.into_iter().filter_map(|(id, gone)| Some((id, gone?))) {
        state.work.spend(CHANGE);
        state
            .queues
            .set(id, |image| image.forget(gone), &mut context.changes);
        state.queues.drop_if_unknown(id);
    }
    (0, next)
}

fn is_unused(queue: &Queue, protocol: Protocol) -> bool {
    let image = queue.image();
    let scope = queue.scope(Some(protocol));
    queue.is_known_to(Some(protocol))
        && image.kind == QueueKind::Work
        && queue.states(scope).iter().all(|jobs| *jobs == 0)
        && queue.workers_of(scope) == 0
        && !image.limits(scope).iter().any(Option::is_some)
}

/// Discards up to a page of the ready or parked jobs of a queue. Parked jobs are first, because they would
/// otherwise be scheduled when the jobs ahead of them are removed. Returns the number of discarded jobs if
/// there are more.
pub(super) fn discard_waiting(
    state: &mut State,
    id: QueueId,
    scope: Option<Protocol>,
    context: &mut Context,
) -> Result<(), u32> {
    let limit = state.page(u32::MAX);
    let Some(queue) = state.queues.at(id) else {
        return Ok(());
    };
    let waits = |job: &Job| {
        job.queue == id
            && job.state == JobState::Parked
            && scope.is_none_or(|scope| scope == job.protocol)
    };
    let has_parked = queue.jobs(JobStateKind::Parked) > 0;
    let followers = has_parked.then(|| state.followers.iter());
    let followers = followers
        .into_iter()
        .flatten()
        .filter_map(|id| state.jobs.slot(id));
    let followers = followers.filter(|slot| state.jobs.at(*slot).is_some_and(waits));
    let mut slots: Vec<_> = followers
        .chain(queue.ready().slots_of(queue.ready_in(scope)))
        .take(limit + 1)
        .collect();
    let more = slots.len() > limit;
    slots.truncate(limit);
    state.work.spend(CHANGE * slots.len() as u64);
    let changed = slots
        .into_iter()
        .map(|slot| discard(state, slot, Ending::Deleted, context))
        .count_u32();
    if more { Err(changed) } else { Ok(()) }
}

/// The first rows, and the row after them.
fn cut<T>(rows: impl Iterator<Item = T>, limit: usize) -> (Vec<T>, Option<T>) {
    let mut page: Vec<T> = rows.take(limit + 1).collect();
    let next = if page.len() > limit { page.pop() } else { None };
    (page, next)
}

/// Counts the removed items.
trait Count {
    fn count_u32(self) -> u32;
}

impl<I: Iterator> Count for I {
    fn count_u32(self) -> u32 {
        u32::try_from(self.count()).unwrap_or(u32::MAX)
    }
}
