//! Rows for the history: where a job comes from, what its worker sent, how it ended.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;

use super::identity::Push;
use super::state::State;
use super::why::holder;
use crate::change::Change;
use crate::condition::Calls;
use crate::context::Context;
use crate::history::{Ended, EndedWorker, Ending, Excerpt, HistoryRules, Origin};
use crate::ids::{JobId, NameIn, QueueId};
use crate::jobs::{Attempts, Extra, Job, Slot};
use crate::request::Note;

/// What the history keeps of the jobs of a queue, if anything.
fn rules(state: &State, queue: QueueId) -> Option<HistoryRules> {
    if !state.keeps_history {
        return None;
    }
    let own = state.queues.rules(queue).and_then(|rules| rules.history);
    Some(own.unwrap_or(state.limits.history)).filter(|rules| rules.keep_ms > 0)
}

/// Where a new job comes from, if its end will be asked for.
pub(super) fn origin_of(state: &State, push: &Push<'_>) -> Option<Box<Origin>> {
    rules(state, push.queue)?;
    let wall = state.wall();
    let client = state.clients.get(push.client);
    Some(Box::new(Origin {
        pushed_at: wall,
        // A rule of the queue may have set another time (`coalesce`).
        due_at: push.new.not_before.filter(|at| *at > wall),
        producer: client.map_or_else(Box::default, |client| client.info().address.clone()),
        schedule: None,
        again_of: push.new.again_of,
    }))
}

/// A schedule has just pushed a job.
pub(super) fn name_schedule(state: &mut State, job: JobId, schedule: JobId) {
    if state.keeps_history
        && let Some(slot) = state.jobs.slot(job)
    {
        state.jobs.update(slot, |job| {
            if let Some(origin) = job.extra.as_mut().and_then(|extra| extra.origin.as_mut()) {
                origin.schedule = Some(schedule);
            }
        });
    }
}

/// A worker has sent something while it runs a job.
pub(super) fn note_output(state: &mut State, slot: Slot, note: &Note) {
    let (Note::Data(bytes) | Note::Warning(bytes)) = note else {
        return;
    };
    let Some(job) = state.jobs.at(slot) else {
        return;
    };
    let max = rules(state, job.queue).map_or(0, |rules| rules.output_max);
    if max > 0 {
        state.jobs.update(slot, |job| {
            let delivery = job.attempts;
            let output = job.extra_mut().output.get_or_insert_default();
            output.add(delivery, bytes, max);
        });
    }
}

/// A job comes to its end: a row for the history, if its queue has one. Call it while the job is as it was, with its lease.
#[inline]
pub(super) fn record_end(
    state: &State,
    slot: Slot,
    ending: Ending,
    result: Option<&Bytes>,
    context: &mut Context,
) {
    if state.keeps_history
        && let Some(row) = row(state, slot, ending, result)
    {
        context.remember(Change::Ended(row));
    }
}

#[inline(never)]
fn row(state: &State, slot: Slot, ending: Ending, result: Option<&Bytes>) -> Option<Box<Ended>> {
    let job = state.jobs.at(slot)?;
    let rules = rules(state, job.queue)?;
    let extra = job.extra.as_deref();
    let attempts = extra.and_then(explained_attempts);
    let last = attempts
        .as_deref()
        .and_then(|attempts| attempts.iter().last());
    let ended_at = state.wall();
    // A run that ended before is another one: the job has waited since, for a worker, an operator, or its deletion.
    let started_at = match job.lease() {
        Some(lease) => Some(lease.taken_at.shifted(state.skew_ms)),
        None => last
            .filter(|attempt| attempt.ended_at == ended_at)
            .map(|attempt| attempt.began_at),
    };
    let in_memory = job.payload.stored().is_none();
    Some(Box::new(Ended {
        job: job.id,
        ending,
        ended_at,
        keep_ms: rules.keep_ms,
        queue: state.queues.name(job.queue).cloned().unwrap_or_default(),
        protocol: job.protocol,
        name: Bytes::copy_from_slice(job.name()),
        unique: Bytes::copy_from_slice(job.key().unwrap_or_default()),
        kind: kind_of(state, job),
        key: state.queues.key_text(job),
        origin: extra.and_then(|extra| extra.origin.clone()),
        batch: job.member().map(|member| member.batch),
        submits: extra
            .and_then(|extra| extra.coalesced.as_ref())
            .map_or(1, |coalesced| coalesced.submits),
        ready_at: job.ready_at,
        started_at,
        worker: worker_of(state, job),
        deliveries: job.attempts,
        failures: job.failures,
        attempts,
        failure: extra.and_then(|extra| extra.failure.clone()),
        progress: extra.and_then(|extra| extra.progress.clone()),
        body: in_memory
            .then(|| Excerpt::of(job.body(), rules.body_max))
            .flatten(),
        result: result.and_then(|result| Excerpt::of(result, rules.result_max)),
        output: extra.and_then(|extra| extra.output.as_deref()?.of(job.attempts)),
        namespace: state.queues.namespaces().name(job.queue.namespace()),
    }))
}

/// The attempts of a job, the last one with its error.
fn explained_attempts(extra: &Extra) -> Option<Arc<Attempts>> {
    let mut attempts = extra.attempts.clone()?;
    if let Some(failure) = extra.failure.as_deref() {
        Arc::make_mut(&mut attempts).explain(failure);
    }
    Some(attempts)
}

/// What a job calls; empty if that is its queue, or not known.
fn kind_of(state: &State, job: &Job) -> Bytes {
    if let Some(number) = job.lease().and_then(|lease| lease.kind) {
        return state.kinds.name(number).cloned().unwrap_or_default();
    }
    if job.payload.stored().is_some() {
        return Bytes::new();
    }
    match state.reader.as_deref().map(|reader| reader.calls(job)) {
        Some(Calls::Named(name)) => Bytes::copy_from_slice(name.as_bytes()),
        Some(Calls::Queue | Calls::Unknown) | None => Bytes::new(),
    }
}

/// The worker that has a job, or had it last.
fn worker_of(state: &State, job: &Job) -> Option<Box<EndedWorker>> {
    if let Some(lease) = job.lease() {
        let mut holder = holder(state, &lease.holder);
        // A lease under a name does not say over which of its worker's connections it was taken.
        let known = NameIn(job.queue.namespace(), &holder.worker);
        let named = state.workers.get(known);
        let connection = named.and_then(|worker| state.clients.get(worker.clients().next()?));
        if let Some(client) = connection.filter(|_| holder.address.is_empty()) {
            holder.address.clone_from(&client.info().address);
            holder.protocol = client.protocol();
        }
        let name = Bytes::copy_from_slice(holder.name());
        if !name.is_empty() || !holder.address.is_empty() {
            return Some(Box::new(EndedWorker {
                protocol: holder.protocol,
                name,
                address: holder.address,
            }));
        }
    }
    let attempts = job.extra.as_deref()?.attempts.as_deref()?;
    let last = attempts.iter().last()?;
    // An attempt has the name of its worker, or else the address.
    let address = std::str::from_utf8(&last.worker)
        .ok()
        .filter(|text| text.parse::<IpAddr>().is_ok());
    Some(Box::new(match address {
        Some(address) => EndedWorker {
            address: address.into(),
            ..EndedWorker::default()
        },
        None => EndedWorker {
            name: Bytes::copy_from_slice(&last.worker),
            ..EndedWorker::default()
        },
    }))
}
