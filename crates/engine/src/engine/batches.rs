//! Commands about batches, and the callbacks that batches push when they progress.

use bytes::Bytes;

use super::call::{Call, Page};
use super::checks::{check_names, check_new_body};
use super::push::{owned, push_internal};
use super::room::{check_bytes_for, make_way};
use super::scope::Scope;
use super::search::page_in;
use super::state::{State, own};
use crate::batches::{Batch, BatchProgress, NewBatch, Stage};
use crate::context::Context;
use crate::event::Reply;
use crate::ids::{JobId, Namespace};
use crate::jobs::{Member, Role};
use crate::query::{BatchView, CallbackState};
use crate::refusal::{Capacity, Outcome, Refusal, Thing};
use crate::request::{Cursor, NewJob, QueueKind};
use crate::work::ROW;

/// The delay before a callback that could not be pushed is retried: the queue may exist with another kind.
const RETRY_MS: u64 = 1_000;

pub(super) fn new_batch(state: &mut State, mut new: NewBatch, call: &mut Call<'_>) -> Outcome {
    state.check_name(&new.name)?;
    let namespace = state.home(call.client);
    if state.batches.named(namespace, &new.name).is_some() {
        return Err(Refusal::NotUnique);
    }
    let (parent, depth) = parent_of(state, namespace, &new)?;
    for callback in [&mut new.complete, &mut new.success].into_iter().flatten() {
        callback.namespace = namespace;
    }
    let callbacks = [&new.complete, &new.success].into_iter().flatten();
    callbacks
        .clone()
        .try_for_each(|job| check_callback(state, job))?;
    let bytes: usize = callbacks.map(|job| job.body.len()).sum();
    let bytes = (bytes + new.about.len() + new.meta.len()) as u64;
    check_bytes_for(state, bytes, 0)?;
    make_room_for_batch(state, parent, call.context)?;
    make_way(state, 0, bytes, call.context);
    let id = state.meta.new_job_id(&mut call.context.changes);
    let batch = Batch {
        id,
        name: own(&new.name),
        protocol: new.protocol,
        parent,
        parent_name: new.parent.as_ref().map(own),
        depth,
        about: own(&new.about),
        meta: own(&new.meta),
        created_at: state.wall(),
        complete: new.complete.map(|job| Box::new(owned(*job))),
        success: new.success.map(|job| Box::new(owned(*job))),
        progress: BatchProgress::new(state.now.after_ms(new.expires_ms)),
        namespace,
    };
    state.batches.create(batch, &mut call.context.changes);
    call.done()
}

/// The parent of a new batch, and the depth of the new batch.
fn parent_of(state: &State, namespace: Namespace, new: &NewBatch) -> Outcome<(Option<JobId>, u32)> {
    let Some(name) = &new.parent else {
        return Ok((None, 0));
    };
    let same = |batch: &&Batch| batch.protocol == new.protocol;
    let parent = state
        .batches
        .named(namespace, name)
        .filter(same)
        .ok_or(Refusal::NotFound(Thing::Batch))?;
    let depth = parent.depth + 1;
    let limit = state.limits.batch_depth_max;
    if depth > limit {
        Err(Capacity::BatchDepth.exceeded(limit, limit))
    } else {
        Ok((Some(parent.id), depth))
    }
}

pub(super) fn check_callback(state: &State, job: &NewJob) -> Outcome {
    check_names(state, job)?;
    if job.kind != QueueKind::Work {
        return Err(Refusal::WrongKind);
    }
    if job.listen.is_wanted() || !job.durable || job.batch.is_some() || job.past.is_some() {
        Err(Refusal::OutOfPlace)
    } else {
        check_new_body(state, job)
    }
}

/// If the limit of batches is reached, removes an idle batch to make space for a new one.
fn make_room_for_batch(state: &mut State, parent: Option<JobId>, context: &mut Context) -> Outcome {
    let limit = state.limits.batches_max;
    if state.batches.len() < limit as usize {
        return Ok(());
    }
    let old = state.batches.longest_at_rest(parent);
    state.batches.forget(
        old.ok_or(Capacity::Batches.exceeded(limit, limit))?,
        false,
        &mut context.changes,
    );
    if state.batches.len() < limit as usize {
        Ok(())
    } else {
        Err(Capacity::Batches.exceeded(limit, limit))
    }
}

/// Finds the batch, if the client sees it.
fn find<'a>(state: &'a State, name: &Bytes, call: &Call<'_>) -> Outcome<&'a Batch> {
    let found = state
        .batches
        .named(state.home(call.client), name)
        .filter(|batch| Scope::of(state, call).has_batch(batch));
    found.ok_or(Refusal::NotFound(Thing::Batch))
}

pub(super) fn open_batch(
    state: &mut State,
    name: &Bytes,
    hold_ms: u64,
    call: &mut Call<'_>,
) -> Outcome {
    let batch = find(state, name, call)?.id;
    state
        .batches
        .open(batch, hold_ms, state.now, &mut call.context.changes);
    call.done()
}

pub(super) fn commit_batch(state: &mut State, name: &Bytes, call: &mut Call<'_>) -> Outcome {
    let batch = find(state, name, call)?.id;
    state
        .batches
        .commit(batch, state.now, &mut call.context.changes);
    call.done()
}

pub(super) fn look_batch(state: &State, name: &Bytes, call: &mut Call<'_>) -> Outcome {
    let batch = find(state, name, call)?;
    call.reply(Reply::Batch(Box::new(view(state, batch))));
    Ok(())
}

pub(super) fn list_batches(state: &State, page: Page, call: &mut Call<'_>) {
    let all = state.batches.from(JobId(page.after.0));
    let scope = Scope::of(state, call);
    let limit = state.page(page.limit);
    let (batches, next) = page_in(state, scope, limit, all, |batch| batch.namespace);
    state.work.spend(ROW * batches.len() as u64);
    let rows: Vec<BatchView> = batches
        .into_iter()
        .filter(|batch| scope.has_batch(batch))
        .map(|batch| view(state, batch))
        .collect();
    let next = next.map(|batch| Cursor(batch.id.0, 0));
    call.reply(Reply::Batches { rows, next });
}

/// Pushes the callbacks of a marked batch that are due.
#[inline(never)]
pub(super) fn advance(state: &mut State, id: JobId, context: &mut Context) {
    while let Some(role) = state.batches.due_callback(id, state.now) {
        if !call_back(state, id, role, context) {
            break;
        }
    }
    state.batches.advanced(
        id,
        state.limits.batch_keep_ms,
        state.now,
        &mut context.changes,
    );
}

/// Pushes a callback, or skips a stage without a callback. Returns `true` if that was possible.
fn call_back(state: &mut State, id: JobId, role: Role, context: &mut Context) -> bool {
    let Some(mut job) = state.batches.take_callback(id, role) else {
        state
            .batches
            .end_stage(id, role, Stage::Passed, &mut context.changes);
        return true;
    };
    // Journal the dropped queues first, because a new queue may get the ID of a dropped one.
    state.queues.remember_dropped(&mut context.changes);
    let Ok(queue) = state.find_or_make(
        job.namespace,
        &job.queue,
        QueueKind::Work,
        Some(job.protocol),
    ) else {
        state
            .batches
            .put_callback(id, role, job, state.now.after_ms(RETRY_MS));
        return false;
    };
    if job
        .unique
        .as_ref()
        .is_some_and(|unique| state.jobs.keyed(queue, job.protocol, &unique.key).is_some())
    {
        job.unique = None;
    }
    // Limits do not apply: the job replaces the callback that the batch held.
    push_internal(
        state,
        queue,
        &job,
        Some(Member {
            batch: id,
            role,
            ran: false,
        }),
        context,
    );
    state
        .batches
        .callback_pushed(id, role, &mut context.changes);
    true
}

fn view(state: &State, batch: &Batch) -> BatchView {
    let at = &batch.progress;
    let namespace = state.queues.namespaces().name(batch.namespace);
    let state = |stage: Stage| match stage {
        Stage::Waiting | Stage::Passed => CallbackState::None,
        Stage::Enqueued => CallbackState::Enqueued,
        Stage::Succeeded => CallbackState::Ok,
    };
    BatchView {
        namespace,
        name: batch.name.clone(),
        protocol: batch.protocol,
        parent: batch.parent_name.clone(),
        about: batch.about.clone(),
        meta: batch.meta.clone(),
        created_at: batch.created_at,
        committed: at.committed,
        total: at.total,
        pending: at.total - at.succeeded,
        failed: at.ran - at.succeeded,
        complete: state(at.complete),
        success: state(at.success),
        id: batch.id,
    }
}
