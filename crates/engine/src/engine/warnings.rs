//! Warnings about jobs: events that an operator should know about although no client requested
//! them.

use bytes::Bytes;

use super::state::State;
use super::why::holder;
use crate::context::Context;
use crate::ids::{JobId, QueueId};
use crate::jobs::{Job, Slot};
use crate::outcome::End;
use crate::queues::Queue;
use crate::request::NewJob;
use crate::warning::WarningKind;

/// The longest text of an example, in bytes.
const TEXT_BYTES_MAX: usize = 256;

pub(super) fn head(text: &[u8]) -> &[u8] {
    text.get(..TEXT_BYTES_MAX).unwrap_or(text)
}

/// The producer's name for a job, else the ID.
pub(super) fn name_of(job: &Job) -> Bytes {
    if job.name().is_empty() {
        job.id.0.to_string().into()
    } else {
        Bytes::copy_from_slice(job.name())
    }
}

/// A queue's name for operators: behind that of its namespace and a slash, if that has one.
fn title_of(state: &State, queue: QueueId) -> Bytes {
    let queue = state.queues.at(queue);
    queue.map_or_else(Bytes::new, |queue| {
        Bytes::copy_from_slice(&state.queues.setting_name(queue.image()))
    })
}

/// The same for the queue that a new job names.
pub(super) fn title_of_new(state: &State, new: &NewJob) -> Bytes {
    let namespaces = state.queues.namespaces();
    Bytes::copy_from_slice(&namespaces.qualified(new.namespace, &new.queue))
}

/// Records an event of a job, before the job is removed.
pub(super) fn warn_job(state: &State, kind: WarningKind, slot: Slot, context: &mut Context) {
    let Some(job) = state.jobs.at(slot) else {
        return;
    };
    context.warn(kind, || {
        let queue = title_of(state, job.queue);
        let failure = job
            .extra
            .as_deref()
            .and_then(|extra| extra.failure.as_deref());
        let why = failure.map_or_else(Bytes::new, |failure| {
            let kind = head(&failure.kind);
            let message = head(&failure.message);
            let has_both = !kind.is_empty() && !message.is_empty();
            let between: &[u8] = if has_both { b": " } else { b"" };
            [kind, between, message].concat().into()
        });
        (queue, name_of(job), why)
    });
}

/// Records that a job could not be converted to a worker's protocol.
pub(super) fn warn_unfit(
    state: &State,
    slot: Slot,
    why: &Bytes,
    is_dead: bool,
    context: &mut Context,
) {
    let Some(job) = state.jobs.at(slot) else {
        return;
    };
    context.warn(WarningKind::Unfit { is_dead }, || {
        let queue = title_of(state, job.queue);
        (queue, name_of(job), Bytes::copy_from_slice(head(why)))
    });
}

/// Records that a worker disappeared while it had a job.
pub(super) fn warn_lost(state: &State, id: JobId, context: &mut Context) {
    let Some(job) = state.jobs.get(id) else {
        return;
    };
    context.warn(WarningKind::WorkerLost, || {
        let queue = title_of(state, job.queue);
        let holder = job
            .lease()
            .map(|lease| holder(state, &lease.holder))
            .unwrap_or_default();
        let worker = if holder.name().is_empty() {
            &b"a worker without a name"[..]
        } else {
            holder.name()
        };
        let at: &[u8] = if holder.address.is_empty() {
            b""
        } else {
            b" at "
        };
        (
            queue,
            name_of(job),
            [head(worker), at, holder.address.as_bytes()]
                .concat()
                .into(),
        )
    });
}

/// Records that a job was given up.
pub(super) fn warn_end(state: &State, slot: Slot, end: &End, kept: bool, context: &mut Context) {
    if kept {
        warn_job(state, WarningKind::Buried, slot, context);
    } else if matches!(end, End::Lost) && state.jobs.at(slot).is_some_and(|job| job.durable) {
        warn_job(state, WarningKind::LostForGood, slot, context);
    }
}

/// Warns of ready jobs that only workers of other protocols serve.
#[inline]
pub(super) fn warn_unserved(state: &mut State, queue: QueueId, context: &mut Context) {
    if state.queues.at(queue).is_some_and(Queue::may_be_unserved) {
        warn_if_unserved(state, queue, context);
    }
}

#[inline(never)]
fn warn_if_unserved(state: &mut State, queue: QueueId, context: &mut Context) {
    if let Some((name, jobs, workers)) = state.queues.take_unserved(queue, state.now) {
        context.warn(WarningKind::Unserved { jobs, workers }, || {
            (name, Bytes::new(), Bytes::new())
        });
    }
}

/// Counts a new job in which no key could be read, and warns of it.
#[inline]
pub(super) fn warn_keyless(state: &mut State, queue: QueueId, slot: Slot, context: &mut Context) {
    if state.queues.at(queue).is_some_and(Queue::has_keys) {
        warn_if_keyless(state, slot, context);
    }
}

#[inline(never)]
fn warn_if_keyless(state: &mut State, slot: Slot, context: &mut Context) {
    if let Some(job) = state
        .jobs
        .at(slot)
        .filter(|job| state.queues.lacks_key(job))
    {
        let queue = job.queue;
        warn_job(state, WarningKind::Keyless, slot, context);
        state.queues.note_keyless(queue);
    }
}
