//! Time: everything due is executed before the next command, in the order in which it became due.

use super::away::await_return;
use super::batches::advance;
use super::beginning::FirstVisit;
use super::claims::give_up;
use super::ends::expire_job;
use super::failures::expire_lease;
use super::joined::await_quiet;
use super::place::{count, remember_put, remove_job};
use super::push::push_caused;
use super::requeue::make_ready;
use super::room::{drop_past, has_past_to_drop};
use super::schedules::run_schedule;
use super::serve::{serve, serve_freed, serve_starved, serve_unclaimed};
use super::state::State;
use super::take::resume;
use super::workers::{await_workers, miss_beat};
use crate::context::Context;
use crate::event::Reply;
use crate::ids::{ClientId, Timestamp};
use crate::jobs::JobState;
use crate::succession::Succession;
use crate::timers::Timer;
use crate::warning::WarningKind;

/// The kinds of due work.
enum Due {
    Job,
    Timer,
    Wake,
    Schedule,
    Batch,
}

/// Advances the engine to `context.now`. A time in the past is ignored.
#[inline]
pub(super) fn catch_up(state: &mut State, context: &mut Context) {
    if state.is_behind(context) {
        reach(state, context);
    }
    context.now = state.now;
    if !state.beginning.holds_due && has_something_due(state) {
        do_due(state, context);
    }
}

/// Returns true if anything may be due. Called for every command, and nearly always false.
#[inline]
fn has_something_due(state: &State) -> bool {
    let now = state.now;
    let wall = state.wall();
    state.beginning.first.is_none()
        || state.jobs.has_timed_due(now, wall)
        || state.timers.have_due(now, wall)
        || state.schedules.have_due(now, wall)
        || state.batches.next_at() <= now
        || has_past_to_drop(state)
        || state.starved.again_at().is_some()
        || has_waited(state)
        || state.queues.has_unsaved()
        || state.queues.has_dropped()
}

#[inline(never)]
fn do_due(state: &mut State, context: &mut Context) {
    if state.beginning.first.is_none() {
        begin(state, context);
    }
    let came = |id: ClientId, turn: u64| {
        !state
            .clients
            .get(id)
            .is_some_and(|client| client.is_awake(turn))
    };
    state.timers.drop_wakes(came);
    while let (at, Some(due)) = next_due(state)
        && at <= state.now
    {
        // Queues that the last command used are no longer referenced, so they may be removed.
        state.queues.begin();
        match due {
            Due::Job => job_due(state, context),
            Due::Timer => fire(state, context),
            Due::Wake => wake_due(state, context),
            Due::Schedule => run_schedule(state, context),
            Due::Batch => state.batches.come_due(&mut context.changes),
        }
        end_visit(state, context);
    }
    if has_past_to_drop(state) {
        drop_past(state, context);
        end_visit(state, context);
    }
    if state.starved.again_at().is_some() && serve_starved(state, context) {
        end_visit(state, context);
    }
    if has_waited(state) {
        give_up(state, context);
        resume(state, context);
        end_visit(state, context);
    }
    remember_queues(state, context);
    if state.timers.is_cluttered() {
        sweep_timers(state);
    }
}

/// The engine's first visit.
#[cold]
fn begin(state: &mut State, context: &mut Context) {
    state.beginning.first = Some(FirstVisit {
        now: state.now,
        wall: state.wall(),
    });
    for slot in std::mem::take(&mut state.beginning.rejoined) {
        remember_put(state, slot, context);
    }
    for slot in std::mem::take(&mut state.beginning.left_alone) {
        await_quiet(state, slot, context);
    }
    await_workers(state);
    await_return(state, context);
    if state.beginning.was_killed && state.limits.return_ms > 0 {
        state.queues.doubt_keys(
            state.now.after_ms(state.limits.return_ms),
            &mut state.timers,
        );
    }
}

/// Records changes to queues other than settings, and those of namespaces. Nearly always there are none.
#[inline]
pub(super) fn remember_queues(state: &mut State, context: &mut Context) {
    let queues = &state.queues;
    if queues.has_unsaved() || queues.has_dropped() || queues.namespaces().have_changed() {
        remember_changes(state, context);
    }
}

#[inline(never)]
fn remember_changes(state: &mut State, context: &mut Context) {
    let State {
        queues,
        now,
        timers,
        ..
    } = state;
    if queues.has_unsaved() {
        queues.save_buckets(false, *now, timers, &mut context.changes);
    }
    queues.remember_dropped(&mut context.changes);
    // Counters alone make no commit: they are in the next one.
    if !context.changes.is_empty() {
        let namespaces = queues.namespaces_mut();
        namespaces.remember_changed(&mut context.changes);
    }
}

/// Adopts the time of a context, and starts a new day if the date is new.
#[inline(never)]
fn reach(state: &mut State, context: &mut Context) {
    state.now = state.now.max(context.now);
    state.skew_ms = context.clock.skew_ms;
    if state
        .meta
        .set_clock(context.clock, state.now, &mut context.changes)
    {
        state.schedules.rewind(state.wall(), &mut context.changes);
    }
    state.days.reach(
        state.wall(),
        &state.meta.kept().totals,
        &mut context.changes,
    );
}

/// Does the remaining work at the end of a visit. Nearly always there is none.
pub(super) fn end_visit(state: &mut State, context: &mut Context) {
    serve_freed(state, context);
    loop {
        if !state.caused.is_empty() {
            push_caused(state, context);
        }
        while let Some(id) = state.batches.pop_dirty() {
            advance(state, id, context);
        }
        // The delivery of an unclaimed job marks the batch.
        let any = state.queues.may_serve_unclaimed() && serve_unclaimed(state, context);
        if !any && state.caused.is_empty() {
            break;
        }
    }
    if state.watchers.have_noted() {
        state.watchers.notify(context);
    }
    if state.queues.take_nearly_full() {
        context.warn(WarningKind::QueuesNearlyFull, Default::default);
    }
}

/// The next time at which work is due, if any.
pub(super) fn next_deadline(state: &State) -> Option<Timestamp> {
    if state.beginning.holds_due {
        return None;
    }
    if has_past_to_drop(state) {
        return Some(state.now);
    }
    let (at, _) = next_due(state);
    let at = at.min(waited_at(state));
    (at < Timestamp::NEVER).then_some(at)
}

/// Returns true if anything that is blocked until the end of a grace, or for lack of space, may
/// continue.
pub(super) fn has_waited(state: &State) -> bool {
    waits(state) && !state.deferred.is_held(state.now) && !state.starved.waits(state.now)
}

/// When something that is blocked continues.
fn waited_at(state: &State) -> Timestamp {
    let held_until = if waits(state) {
        state.deferred.held_until()
    } else {
        Timestamp::NEVER
    };
    match state.starved.again_at() {
        Some(again_at) if held_until <= state.now => again_at,
        again_at => held_until.min(again_at.unwrap_or(Timestamp::NEVER)),
    }
}

fn waits(state: &State) -> bool {
    state.deferred.has_any()
        || state
            .succession
            .as_ref()
            .is_some_and(Succession::expects_any)
}

/// The next due work, if any, and its time. For equal times, the order of this function applies.
fn next_due(state: &State) -> (Timestamp, Option<Due>) {
    let mut next = (Timestamp::NEVER, None);
    let mut or = |at, due| {
        if at < next.0 {
            next = (at, Some(due));
        }
    };
    or(state.jobs.next_timed_at(state.skew_ms), Due::Job);
    or(state.timers.next_at(state.skew_ms), Due::Timer);
    or(state.timers.next_wake_at(), Due::Wake);
    or(state.schedules.next_at(state.skew_ms), Due::Schedule);
    or(state.batches.next_at(), Due::Batch);
    next
}

/// Handles the end of a job's timed state.
#[cold]
fn job_due(state: &mut State, context: &mut Context) {
    let Some(slot) = state.jobs.next_timed(state.skew_ms) else {
        return;
    };
    match state.jobs.at(slot).map(|job| &job.state) {
        Some(before @ (JobState::Scheduled(_) | JobState::Retrying(_))) => {
            let first = matches!(before, JobState::Scheduled(_));
            count(state, slot, |totals| {
                *(if first {
                    &mut totals.released
                } else {
                    &mut totals.retried
                }) += 1
            });
            let rank = state.meta.rank(false);
            make_ready(state, slot, Some(rank), context);
        }
        Some(before @ (JobState::Dead(_) | JobState::Done(_))) => {
            let dead = matches!(before, JobState::Dead(_));
            count(state, slot, |totals| totals.purged += u64::from(dead));
            remove_job(state, slot, context);
        }
        Some(JobState::Ready | JobState::Leased(_) | JobState::Parked) | None => {}
    }
}

/// Handles a woken sleeper that has not requested work in time: the queue is served again.
#[cold]
fn wake_due(state: &mut State, context: &mut Context) {
    if let Some((client, turn)) = state.timers.pop_wake()
        && let Some(queue) = state.waiters().overslept(client, turn)
    {
        serve(state, queue, context);
    }
}

#[cold]
fn fire(state: &mut State, context: &mut Context) {
    let Some((at, timer)) = state.timers.pop(state.skew_ms) else {
        return;
    };
    if !is_live(state, at, timer) {
        return;
    }
    match timer {
        Timer::Lease(id) => {
            if let Some(slot) = state.jobs.lease_due(id, at, &mut state.timers) {
                expire_lease(state, slot, context);
            }
        }
        Timer::Expiry(id) | Timer::Age(id) => {
            if let Some(slot) = state.jobs.slot(id) {
                expire_job(state, slot, context);
            }
        }
        Timer::Key(id) => {
            if let Some(slot) = state.jobs.slot(id) {
                state.jobs.release_key(slot, &mut state.timers);
            }
        }
        Timer::Wait(client) => {
            let now = state.now;
            if let Some(blocked) = state.waiters().unblock_due(client, now) {
                context.reply(client, blocked.tag, Reply::Empty);
            }
        }
        Timer::Beat(worker) => miss_beat(state, worker, at, context),
        Timer::Slots(queue) => state
            .queues
            .slots_due(queue, at, &state.jobs, &mut state.timers),
        Timer::Gate(queue) => state
            .queues
            .gate_due(queue, at, state.now, &mut state.timers),
    }
}

/// Returns true if a timer set for this time is still live.
pub(super) fn is_live(state: &State, at: Timestamp, timer: Timer) -> bool {
    match timer {
        Timer::Lease(_) | Timer::Expiry(_) | Timer::Age(_) | Timer::Key(_) => {
            state.jobs.has_timer(at, timer)
        }
        Timer::Wait(client) => state.clients.has_wait_timer(at, client),
        Timer::Beat(worker) => state.workers.has_timer(at, worker),
        Timer::Slots(_) | Timer::Gate(_) => state.queues.has_timer(at, timer),
    }
}

/// Throws cancelled timers away.
#[cold]
fn sweep_timers(state: &mut State) {
    let mut timers = std::mem::take(&mut state.timers);
    timers.sweep(|at, timer| is_live(state, at, timer));
    state.timers = timers;
}
