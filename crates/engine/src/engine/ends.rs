//! Finishing jobs: moved to the dead-letter queue, retained for queries, or removed. Listeners are notified.

use bytes::Bytes;

use super::history::record_end;
use super::joined::joined;
use super::place::{
    count, count_run, end_job, note_run_end, remember_move, remember_put, remove_job,
};
use super::state::{State, own};
use super::warnings::{name_of, warn_end, warn_job};
use crate::context::Context;
use crate::event::Notice;
use crate::history::Ending;
use crate::ids::{JobId, Protocol, QueueId, Timestamp};
use crate::jobs::{Expiry, Extra, Job, JobState, JobStateKind, Slot};
use crate::outcome::{End, Fate};
use crate::schedules::RunEnd;
use crate::warning::WarningKind;

/// Retention of a finished job for a client that has disconnected.
pub(super) const KEEP_MS: u64 = 60_000;

/// The share of `jobs_bytes_max` and of the memory for such jobs (1/n).
const KEPT_SHARE: u64 = 8;

/// Gives up a job: it moves to the dead-letter queue if the retry policy retains it, otherwise it
/// is removed.
pub(super) fn give_up(state: &mut State, slot: Slot, end: &End, context: &mut Context) -> Fate {
    notify_end(state, slot, end, context);
    let Some(job) = state.jobs.at(slot) else {
        return Fate::Discarded;
    };
    let kept = job.retry.failures_max != 0 && job.durable;
    let ending = if kept { Ending::Dead } else { Ending::Failed };
    record_end(state, slot, ending, None, context);
    warn_end(state, slot, end, kept, context);
    if !kept {
        end_badly(state, slot, context);
        return Fate::Discarded;
    }
    Fate::Buried(die(state, slot, context))
}

/// Removes a job that succeeded, or retains it with this result of a worker of this protocol.
pub(super) fn end_well(
    state: &mut State,
    slot: Slot,
    result: &Bytes,
    by: Option<Protocol>,
    context: &mut Context,
) {
    // The result of a job that is not durable is discarded.
    let extra = state
        .jobs
        .at(slot)
        .filter(|job| job.durable)
        .and_then(|job| job.extra.as_deref());
    let result_keep_ms = extra.map_or(0, |extra| {
        extra.result_keep_ms.max(uncollected_keep_ms(extra))
    });
    let keep_ms = extra
        .and_then(|extra| extra.track)
        .map_or(0, |track| track.keep_ms)
        .max(result_keep_ms);
    if keep_ms > 0 {
        let (result, by) = if result_keep_ms > 0 {
            (Some(own(result)), by)
        } else {
            (Some(Bytes::new()), None)
        };
        keep_done(state, slot, keep_ms, result, by, context);
    } else {
        remove_job(state, slot, context);
    }
}

/// Removes a job that did not succeed. If it is tracked, or the client has disconnected, the outcome is
/// retained for a while.
pub(super) fn end_badly(state: &mut State, slot: Slot, context: &mut Context) {
    note_run_end(state, slot, RunEnd::Failed, context);
    let extra = state
        .jobs
        .at(slot)
        .filter(|job| job.durable)
        .and_then(|job| job.extra.as_deref());
    let keep_ms = extra.map_or(0, |extra| {
        extra
            .track
            .map_or(0, |track| track.keep_ms)
            .max(uncollected_keep_ms(extra))
    });
    if keep_ms == 0 {
        return remove_job(state, slot, context);
    }
    count_run(state, slot, context);
    keep_done(state, slot, keep_ms, None, None, context);
}

/// Retains a finished job for a time, without the body, and with this result of a worker of this protocol.
pub(super) fn keep_done(
    state: &mut State,
    slot: Slot,
    keep_ms: u64,
    result: Option<Bytes>,
    by: Option<Protocol>,
    context: &mut Context,
) {
    state.jobs.update(slot, |job| {
        job.payload = job.payload.with_body(&Bytes::new());
        let own = job.protocol;
        let extra = job.extra_mut();
        // The row of its end is written.
        extra.origin = None;
        extra.output = None;
        extra.result = result;
        extra.result_by = by.filter(|by| *by != own);
    });
    end_job(
        state,
        slot,
        JobState::Done(state.now.after_ms(keep_ms)),
        context,
    );
    remember_put(state, slot, context);
}

/// Buries a job that failed for good, and queues the job that this causes. Not called when an operator buries
/// a job, who needs no notification.
fn die(state: &mut State, slot: Slot, context: &mut Context) -> Timestamp {
    let until = bury(state, slot, context);
    if let Some(on_dead) = &state.on_dead
        && let Some(job) = state.jobs.at(slot)
        && let Some(queue) = state.queues.at(job.queue)
        && let setting = state.queues.setting_name(queue.image())
        && let Some(mut caused) = on_dead.job(job, &queue.image().name, &setting, state.wall())
    {
        caused.namespace = job.queue.namespace();
        state.caused.push((name_of(job), caused));
    }
    until
}

/// Retention of the dead jobs of a queue.
pub(super) fn dead_ms(state: &State, queue: QueueId) -> u64 {
    let rules = state.queues.rules(queue);
    rules
        .and_then(|rules| rules.dead_ms)
        .unwrap_or(state.limits.dead_ms)
}

/// Moves a job to the dead-letter queue.
pub(super) fn bury(state: &mut State, slot: Slot, context: &mut Context) -> Timestamp {
    let queue = state.jobs.at(slot).map(|job| job.queue);
    let until = state
        .now
        .after_ms(queue.map_or(0, |queue| dead_ms(state, queue)));
    count(state, slot, |totals| totals.buried += 1);
    note_run_end(state, slot, RunEnd::Dead, context);
    count_run(state, slot, context);
    end_job(state, slot, JobState::Dead(until), context);
    remember_move(state, slot, context);
    until
}

/// Buries a job for an operator to see, whatever the retry policy is. A job that is not durable is removed
/// instead.
pub(super) fn bury_if_durable(state: &mut State, slot: Slot, context: &mut Context) {
    if state.jobs.at(slot).is_some_and(|job| job.durable) {
        record_end(state, slot, Ending::Dead, None, context);
        die(state, slot, context);
    } else {
        record_end(state, slot, Ending::Failed, None, context);
        end_badly(state, slot, context);
    }
}

/// Removes a job and notifies its listeners. `ending`: how it ends if it was not over.
pub(super) fn discard(state: &mut State, slot: Slot, ending: Ending, context: &mut Context) {
    match state.jobs.at(slot).map(|job| job.state.kind()) {
        None | Some(JobStateKind::Done) => {}
        Some(JobStateKind::Dead) => record_end(state, slot, Ending::Deleted, None, context),
        Some(_) => record_end(state, slot, ending, None, context),
    }
    count(state, slot, |totals| totals.cancelled += 1);
    notify_end(state, slot, &End::Cancelled, context);
    remove_job(state, slot, context);
}

/// Handles a job that expires: it is removed unless it is leased, dead, done or parked.
pub(super) fn expire_job(state: &mut State, slot: Slot, context: &mut Context) {
    // The timer has fired.
    state
        .jobs
        .set_expiry(slot, Expiry::Never, &mut state.timers);
    let waits = |job: &Job| match job.state {
        JobState::Ready | JobState::Scheduled(_) | JobState::Retrying(_) => true,
        JobState::Parked => job.behind().is_some(),
        JobState::Leased(_) | JobState::Dead(_) | JobState::Done(_) => false,
    };
    match state.jobs.at(slot).map(waits) {
        Some(true) => {
            record_end(state, slot, Ending::Expired, None, context);
            count(state, slot, |totals| totals.expired += 1);
            warn_job(state, WarningKind::Expired, slot, context);
            notify_end(state, slot, &End::Expired, context);
            end_badly(state, slot, context);
        }
        // It was taken in time, which must still be so after a restart.
        Some(false) => remember_put(state, slot, context),
        None => {}
    }
}

/// Retention of a finished job for the client.
pub(super) fn uncollected_keep_ms(extra: &Extra) -> u64 {
    if extra.collector.is_empty() {
        0
    } else {
        KEEP_MS
    }
}

/// Stops retaining a job's outcome for the client.
pub(super) fn collect_no_more(state: &mut State, slot: Slot, context: &mut Context) {
    if state
        .jobs
        .at(slot)
        .is_some_and(|job| !job.collector().is_empty())
    {
        state.jobs.set_collector(slot, Bytes::new());
        remember_put(state, slot, context);
    }
}

/// Notifies the listeners of a job and of the jobs that are merged with it.
pub(super) fn notify_end(state: &mut State, slot: Slot, end: &End, context: &mut Context) {
    notify_listeners(state, slot, end, context);
    if !state.followers.is_empty()
        && let Some(job) = state.jobs.at(slot).map(|job| job.id)
    {
        end_joined(state, job, end, context);
    }
}

/// Finishes the jobs that are merged with a job that has run. If the job was removed without a run, they stay
/// and run themselves.
fn end_joined(state: &mut State, id: JobId, end: &End, context: &mut Context) {
    let success = match end {
        End::Succeeded { result, by } => Some((result, *by)),
        End::Failed(_) | End::Lost | End::TimedOut => None,
        End::Expired | End::Cancelled => return,
    };
    // In reverse order, so that no job is queued behind a removed one.
    for slot in joined(state, id).into_iter().rev() {
        notify_listeners(state, slot, end, context);
        match success {
            Some((result, by)) => {
                record_end(state, slot, Ending::Done, Some(result), context);
                end_well(state, slot, result, by, context);
            }
            None => {
                record_end(state, slot, Ending::Failed, None, context);
                end_badly(state, slot, context);
            }
        }
    }
}

/// Notifies all listeners of a job's outcome, the newest first, once for each registration, and removes them.
/// If there are no listeners, the job retains the collector's name, unless too many outcomes are retained
/// already.
pub(super) fn notify_listeners(state: &mut State, slot: Slot, end: &End, context: &mut Context) {
    // Without extra fields it has no listeners and no collector.
    let Some(job) = state
        .jobs
        .at(slot)
        .filter(|job| job.extra.is_some())
        .map(|job| job.id)
    else {
        return;
    };
    let listeners = state.jobs.take_listeners(slot);
    let room = (state.limits.jobs_bytes_max.min(state.limits.memory_max) / KEPT_SHARE)
        .saturating_sub(state.jobs.kept().uncollected);
    if !listeners.is_empty() || end.bytes() as u64 > room {
        collect_no_more(state, slot, context);
    }
    for listener in listeners.into_iter().rev() {
        context.notify(
            listener,
            Notice::Ended {
                job,
                end: end.clone(),
            },
        );
    }
}
