//! A job's state, and every owner that depends on it. All insertions, moves and removals of jobs
//! are here.

use super::joined::{quiet_until, set_free};
use super::state::State;
use crate::change::Change;
use crate::context::Context;
use crate::event::JobChange;
use crate::ids::{JobId, Namespace, Realm, Timestamp};
use crate::jobs::{Job, JobState, Lease, Slot};
use crate::kinds::Kinds;
use crate::meta::Meta;
use crate::query::Totals;
use crate::queues::{QueueFigures, Queues};
use crate::schedules::RunEnd;

/// Inserts a job in the job's state.
pub(super) fn insert_job(state: &mut State, job: Job) -> Slot {
    let slot = state.jobs.insert(job);
    list(state, slot);
    slot
}

/// Lists an added job in the indexes of the state.
fn list(state: &mut State, slot: Slot) {
    let State {
        jobs,
        queues,
        followers,
        reader,
        batches,
        timers,
        now,
        ..
    } = state;
    let Some(job) = jobs.list(slot, timers) else {
        return;
    };
    followers.step(job.id, None, job.behind());
    queues.add_key(job, reader.as_deref(), *now);
    queues.enter(job, slot, *now, timers);
    batches.count_live(job.member(), job.state.kind(), 1);
    if !state.watchers.is_empty() {
        show(state, slot, true);
    }
}

/// Inserts a job from a journal or another engine. Leases of closed connections are released.
pub(super) fn recall_job(state: &mut State, mut job: Job) -> Slot {
    if job.lease().is_some_and(Lease::connection_bound) {
        job.state = JobState::Ready;
    }
    let slot = state.jobs.insert(job);
    list_recalled(state, slot);
    slot
}

/// Lists a job from a journal or another engine in the indexes of the state.
pub(super) fn list_recalled(state: &mut State, slot: Slot) {
    let Some(job) = state.jobs.at(slot) else {
        return;
    };
    // If two jobs have the same key, the younger was created after the older had released it.
    let other = job
        .key()
        .and_then(|key| state.jobs.keyed(job.queue, job.protocol, key));
    let older = other.filter(|other| state.jobs.at(*other).is_some_and(|other| other.id < job.id));
    state.meta.recall_rank(job.rank);
    if let Some(older) = older.filter(|_| job.wants_key()) {
        state.jobs.release_key(older, &mut state.timers);
    }
    list(state, slot);
}

/// Removes a job, also from the journal if it was durable. The caller must notify the listeners.
pub(super) fn remove_job(state: &mut State, slot: Slot, context: &mut Context) {
    let State {
        jobs,
        queues,
        batches,
        ..
    } = state;
    let Some(job) = jobs.at(slot) else { return };
    queues.leave(job);
    if job.member().is_some() {
        batches.count_live(job.member(), job.state.kind(), -1);
        count_run(state, slot, context);
    }
    if !state.watchers.is_empty() {
        show(state, slot, false);
    }
    let Some(job) = state.jobs.remove(slot, &mut state.timers) else {
        return;
    };
    state.queues.job_removed(&job, &mut state.timers);
    let ahead = job.behind();
    state.followers.step(job.id, ahead, None);
    // A finished job has already returned the key to the job ahead.
    if ahead.is_some() || !state.followers.is_empty() {
        is_over(state, job.id, ahead.filter(|_| !job.is_over()), context);
    }
    if job.durable {
        context.remember(Change::JobGone(job.id));
    }
    state.queues.drop_if_unknown(job.queue);
}

/// Moves a job to an unfinished state. The caller must update the journal and serve waiting clients.
pub(super) fn move_job(state: &mut State, slot: Slot, to: JobState) {
    let wall = state.wall();
    let State {
        jobs,
        queues,
        batches,
        timers,
        now,
        ..
    } = state;
    let Some(job) = jobs.at(slot) else { return };
    queues.leave(job);
    batches.count_live(job.member(), job.state.kind(), -1);
    let Some(job) = jobs.set_state(slot, to, wall, timers) else {
        return;
    };
    queues.enter(job, slot, *now, timers);
    batches.count_live(job.member(), job.state.kind(), 1);
    if !state.watchers.is_empty() {
        show(state, slot, true);
    }
}

/// Moves a job to a state in which it is over. The caller updates the journal.
pub(super) fn end_job(state: &mut State, slot: Slot, to: JobState, context: &mut Context) {
    move_job(state, slot, to);
    if let Some(job) = state.jobs.at(slot) {
        is_over(state, job.id, job.behind(), context);
    }
}

/// The job that must finish before this one starts, while it is unfinished.
pub(super) fn ahead_of(state: &State, job: &Job) -> Option<Slot> {
    let ahead = state.jobs.slot(job.behind()?)?;
    state
        .jobs
        .at(ahead)
        .filter(|ahead| !ahead.is_over())
        .map(|_| ahead)
}

/// Handles a job that has finished or was removed. Jobs queued behind it are due, and the job that it was
/// queued behind gets the key back.
fn is_over(state: &mut State, id: JobId, ahead: Option<JobId>, context: &mut Context) {
    if let Some(slot) = ahead.and_then(|ahead| state.jobs.slot(ahead)) {
        state.jobs.claim_key(slot, &mut state.timers);
    }
    if state.followers.is_empty() {
        return;
    }
    for slot in behind(state, id).into_iter().rev() {
        let Some(job) = state
            .jobs
            .at(slot)
            .filter(|job| job.state == JobState::Parked)
        else {
            continue;
        };
        let was_part = job.is_joined();
        let at = state.wall().max(quiet_until(state, job));
        let lead = set_free(state, slot, at);
        if let Some(lead) = lead {
            remember_put(state, lead, context);
        }
        if was_part || lead.is_some() {
            remember_put(state, slot, context);
        }
    }
}

/// The jobs behind another one, oldest first.
pub(super) fn behind(state: &State, id: JobId) -> Vec<Slot> {
    let followers = state.followers.of(id);
    followers.filter_map(|id| state.jobs.slot(id)).collect()
}

/// Reports a job's new state, or the removal of the job, to watchers.
fn show(state: &mut State, slot: Slot, is_there: bool) {
    let Some(job) = state.jobs.at(slot) else {
        return;
    };
    let Some(queue) = state.queues.name(job.queue) else {
        return;
    };
    let at = state.wall();
    let namespace = job.queue.namespace();
    let now = is_there.then(|| job.state.kind());
    let change = |body| JobChange {
        job: job.id,
        queue: queue.clone(),
        protocol: job.protocol,
        now,
        at,
        body,
        namespace: state.queues.namespaces().name(namespace),
    };
    let body = job.payload.stored().is_none().then(|| job.body());
    state.watchers.note_job(namespace, queue, body, change);
}

/// Journals a job's new state, if the journal has the job.
pub(super) fn remember_move(state: &State, slot: Slot, context: &mut Context) {
    if let Some(job) = state.jobs.at(slot).filter(|job| job.durable) {
        context.remember(Change::JobMoved(job.id));
    }
}

/// Journals all of a job, if the job is durable.
pub(super) fn remember_put(state: &State, slot: Slot, context: &mut Context) {
    if let Some(job) = state.jobs.at(slot).filter(|job| job.durable) {
        context.remember(Change::JobPut(job.id));
    }
}

/// Adds an event of a job to the counters.
#[inline]
pub(super) fn count(state: &mut State, slot: Slot, add: impl Fn(&mut Totals)) {
    count_with(state, slot, add, |_, _| ());
}

/// Adds a job that is taken now to the counters, with the time it waited.
pub(super) fn count_taken(state: &mut State, slot: Slot) {
    let wall = state.wall();
    let waited =
        |figures: &mut QueueFigures, job: &Job| figures.waited.observe(wall.ms_since(job.ready_at));
    count_with(state, slot, |totals| totals.taken += 1, waited);
}

/// Adds a job to the counters when the worker reports success, with the execution time.
pub(super) fn count_succeeded(state: &mut State, slot: Slot) {
    let now = state.now;
    count_with(
        state,
        slot,
        |totals| totals.succeeded += 1,
        |figures, job| ran_until(now, figures, job),
    );
}

/// Records the execution time of a job when the worker reports.
pub(super) fn observe_run(state: &mut State, slot: Slot) {
    let State {
        jobs,
        queues,
        kinds,
        now,
        ..
    } = state;
    if let Some(job) = jobs.at(slot) {
        for_figures_of(job, queues, kinds, |figures| ran_until(*now, figures, job));
    }
}

fn ran_until(now: Timestamp, figures: &mut QueueFigures, job: &Job) {
    if let Some(lease) = job.lease() {
        figures.ran.observe(now.ms_since(lease.taken_at));
    }
}

/// Adds an event of a job to the counters, and records a duration with it.
#[inline]
fn count_with(
    state: &mut State,
    slot: Slot,
    add: impl Fn(&mut Totals),
    observe: impl Fn(&mut QueueFigures, &Job),
) {
    let State {
        jobs,
        queues,
        kinds,
        meta,
        ..
    } = state;
    let Some(job) = jobs.at(slot) else { return };
    for_figures_of(job, queues, kinds, |figures| {
        figures.count(job.protocol, &add);
        observe(figures, job);
    });
    add_to_totals(meta, queues, Some(job.realm()), add);
}

/// Adds an event of a realm's clients, or of a client without a protocol, to the counters.
pub(super) fn count_realm(state: &mut State, realm: Option<Realm>, add: impl Fn(&mut Totals)) {
    let State { meta, queues, .. } = state;
    add_to_totals(meta, queues, realm, add);
}

#[inline]
fn add_to_totals(
    meta: &mut Meta,
    queues: &mut Queues,
    realm: Option<Realm>,
    add: impl Fn(&mut Totals),
) {
    match realm {
        Some(realm) if realm.namespace == Namespace::UNNAMED => meta.count(realm.protocol, add),
        Some(realm) => {
            meta.count_beside(&add);
            queues.namespaces_mut().count(realm, add);
        }
        None => meta.count_beside(add),
    }
}

/// Modifies the figures of a job's queue, and those of the kind while a worker has it.
#[inline]
fn for_figures_of(
    job: &Job,
    queues: &mut Queues,
    kinds: &mut Kinds,
    change: impl Fn(&mut QueueFigures),
) {
    if let Some(figures) = queues.figures_mut(job.queue) {
        change(figures);
    }
    if let Some(kind) = job.lease().and_then(|lease| lease.kind) {
        change(kinds.figures_mut(kind));
    }
}

/// Records in the batch that a job has finished, or can no longer run, unless that is recorded
/// already.
pub(super) fn count_run(state: &mut State, slot: Slot, context: &mut Context) {
    if let Some(batch) = state.jobs.set_ran(slot) {
        state.batches.count_run(batch, &mut context.changes);
    }
}

/// Records the outcome of a job in the schedules that last pushed it.
pub(super) fn note_run_end(state: &mut State, slot: Slot, end: RunEnd, context: &mut Context) {
    if state.schedules.have_runs()
        && let Some(job) = state.jobs.at(slot).map(|job| job.id)
    {
        state.schedules.run_ended(job, end, &mut context.changes);
    }
}

/// Records in the batch that a job has succeeded.
pub(super) fn count_success(state: &mut State, slot: Slot, context: &mut Context) {
    count_run(state, slot, context);
    note_run_end(state, slot, RunEnd::Done, context);
    if let Some(member) = state.jobs.at(slot).and_then(Job::member) {
        state.batches.count_success(member, &mut context.changes);
    }
}

/// Returns true if a number names a job, a schedule or a batch.
pub(super) fn is_used(state: &State, id: JobId) -> bool {
    state.jobs.slot(id).is_some()
        || state.schedules.at(id).is_some()
        || state.batches.at(id).is_some()
}
