//! Commands about schedules, and the jobs that they push.

use bytes::Bytes;

use super::call::{Call, Page};
use super::checks::{check_names, check_new_body};
use super::history::name_schedule;
use super::identity::NOBODY;
use super::push::{Accepted, owned, push_job};
use super::room::{check_bytes_for, make_way};
use super::scope::Scope;
use super::search::page_in;
use super::serving::is_served;
use super::state::{State, own};
use super::warnings::title_of_new;
use crate::context::Context;
use crate::event::Reply;
use crate::ids::{JobId, Protocol, Timestamp};
use crate::jobs::JobStateKind;
use crate::outcome::Pushed;
use crate::refusal::{Capacity, Outcome, Refusal, Thing};
use crate::request::Cursor;
use crate::schedules::{
    EARLIER_RUNS_MAX, LastRun, NewSchedule, Recurrence, RunEnd, Schedule, ScheduleRef,
};
use crate::warning::WarningKind;
use crate::work::STEP;

pub(super) fn set_schedule(
    state: &mut State,
    mut new: NewSchedule,
    call: &mut Call<'_>,
) -> Outcome {
    new.job.namespace = state.home(call.client);
    let before = new
        .key
        .as_ref()
        .and_then(|key| state.schedules.named(new.job.realm(), key));
    let id = before.map(|before| before.id);
    let last = before.and_then(|before| before.last.clone());
    let grid = grid(state, &new, before);
    check_schedule(state, &new, before)?;
    let more = (new.job.body.len() as u64).saturating_sub(before.map_or(0, Schedule::weight_bytes));
    // The queue is now listed, and the kind is fixed.
    let job = &new.job;
    let queue = state.find_or_make(job.namespace, &job.queue, job.kind, Some(job.protocol))?;
    state
        .queues
        .make_known(queue, Some(new.job.protocol), &mut call.context.changes);
    make_way(state, 0, more, call.context);
    let schedule = Schedule {
        id: id.unwrap_or_else(|| state.meta.new_job_id(&mut call.context.changes)),
        key: new.key.as_ref().map(own),
        job: owned(new.job),
        recurrence: new.recurrence,
        anchor: grid.0,
        next_at: grid.1,
        runs_left: new.runs,
        last,
    };
    let number = schedule.id;
    state.schedules.set(schedule, &mut call.context.changes);
    call.acknowledge(Reply::ScheduleSet {
        schedule: number,
        replaced: id.is_some(),
    });
    Ok(())
}

/// The anchor of a new schedule's grid, and the first occurrence.
fn grid(state: &State, new: &NewSchedule, before: Option<&Schedule>) -> (Timestamp, Timestamp) {
    match before.filter(|before| new.keep_grid && before.recurrence == new.recurrence) {
        Some(before) => (before.anchor, before.next_at),
        None => {
            let now = now_for(state, new.recurrence);
            (
                now,
                if new.at_once {
                    now
                } else {
                    new.recurrence.next_after(now, now)
                },
            )
        }
    }
}

/// The time now, by the clock that a schedule uses.
const fn now_for(state: &State, recurrence: Recurrence) -> Timestamp {
    if recurrence.by_wall() {
        state.wall()
    } else {
        state.now
    }
}

/// Checks that a new schedule could be set, with an unused name.
pub(super) fn check_new_schedule(state: &State, new: &NewSchedule) -> Outcome {
    if new
        .key
        .as_ref()
        .is_some_and(|key| state.schedules.named(new.job.realm(), key).is_some())
    {
        return Err(Refusal::NotUnique);
    }
    check_schedule(state, new, None)
}

fn check_schedule(state: &State, new: &NewSchedule, before: Option<&Schedule>) -> Outcome {
    state.check_name(new.key.as_deref().unwrap_or_default())?;
    check_names(state, &new.job)?;
    // Jobs of a schedule join no batch, because pushes would fail once the batch is removed.
    if new.job.listen.is_wanted()
        || !new.job.durable
        || new.job.past.is_some()
        || new.job.batch.is_some()
    {
        return Err(Refusal::OutOfPlace);
    }
    check_new_body(state, &new.job)?;
    if !new.recurrence.happens() || new.runs == Some(0) {
        return Err(Refusal::NeverDue);
    }
    let limit = state.limits.schedules_max;
    if before.is_none() && state.schedules.len() >= limit as usize {
        return Err(Capacity::Schedules.exceeded(limit, limit));
    }
    check_bytes_for(
        state,
        new.job.body.len() as u64,
        before.map_or(0, Schedule::weight_bytes),
    )
}

/// Finds the schedule, if the client sees it.
fn find<'a>(state: &'a State, which: &ScheduleRef, call: &Call<'_>) -> Outcome<&'a Schedule> {
    let found = state
        .schedules
        .find(state.home(call.client), which)
        .and_then(|id| state.schedules.at(id));
    let found = found.filter(|schedule| Scope::of(state, call).has_schedule(state, schedule));
    found.ok_or(Refusal::NotFound(Thing::Schedule))
}

pub(super) fn remove_schedule(
    state: &mut State,
    which: &ScheduleRef,
    call: &mut Call<'_>,
) -> Outcome {
    let id = find(state, which, call)?.id;
    state.schedules.end(id, &mut call.context.changes);
    call.done()
}

/// Pushes the job of a schedule in addition to the regular occurrences, which are not affected.
pub(super) fn run_now(state: &mut State, which: &ScheduleRef, call: &mut Call<'_>) -> Outcome {
    let schedule = find(state, which, call)?;
    let id = schedule.id;
    let new = schedule.run_at(state.now, state.wall());
    let Accepted { job, durable, how } = push_job(state, NOBODY, &new, call.context)?;
    if how == Pushed::New {
        name_schedule(state, job, id);
    }
    note_run(state, id, job, call.context);
    call.acknowledge(Reply::Pushed { job, how, durable });
    Ok(())
}

pub(super) fn pause_schedule(
    state: &mut State,
    which: &ScheduleRef,
    paused: bool,
    call: &mut Call<'_>,
) -> Outcome {
    let schedule = find(state, which, call)?;
    let Schedule {
        id,
        recurrence,
        anchor,
        runs_left,
        ..
    } = schedule;
    if schedule.is_paused() != paused {
        let next_at = match paused {
            true => Timestamp::NEVER,
            false => recurrence.next_after(*anchor, now_for(state, *recurrence)),
        };
        let id = *id;
        let runs_left = *runs_left;
        state
            .schedules
            .advance(id, next_at, runs_left, &mut call.context.changes);
    }
    call.done()
}

pub(super) fn list_schedules(
    state: &State,
    protocol: Option<Protocol>,
    page: Page,
    call: &mut Call<'_>,
) {
    let limit = state.page(page.limit);
    let scope = Scope::of(state, call);
    let is_listed = |schedule: &&Schedule| {
        protocol.is_none_or(|protocol| schedule.job.protocol == protocol)
            && scope.has_schedule(state, schedule)
    };
    let all = state.schedules.from(JobId(page.after.0));
    let (schedules, next) = page_in(state, scope, limit, all, |it| it.job.namespace);
    let listed = schedules.into_iter().filter(is_listed);
    let rows = listed.map(|schedule| view(state, schedule)).collect();
    let next = next.map(|schedule| Cursor(schedule.id.0, 0));
    call.reply(Reply::Schedules { rows, next });
}

/// Records the job that a schedule has pushed.
fn note_run(state: &mut State, schedule: JobId, job: JobId, context: &mut Context) {
    let before = state
        .schedules
        .at(schedule)
        .and_then(|schedule| schedule.last.as_ref());
    let before = before.map_or_else(Vec::new, |last| [&last.earlier[..], &[last.job]].concat());
    let lives = |id: &JobId| {
        *id != job
            && state
                .jobs
                .get(*id)
                .is_some_and(|job| job.state.kind().is_live())
    };
    let mut earlier: Vec<JobId> = before.into_iter().filter(lives).collect();
    earlier.drain(..earlier.len().saturating_sub(EARLIER_RUNS_MAX));
    let last = LastRun {
        at: state.wall(),
        job,
        end: RunEnd::Running,
        earlier,
    };
    state.schedules.ran(schedule, last, &mut context.changes);
}

/// A schedule for clients: with the outcome of the last occurrence's job, and the previous jobs that are
/// still unfinished.
pub(super) fn view(state: &State, schedule: &Schedule) -> Schedule {
    let mut seen = schedule.clone();
    if let Some(last) = &mut seen.last {
        let job = state.jobs.get(last.job);
        last.end = match job.map(|job| job.state.kind()) {
            Some(JobStateKind::Dead) => RunEnd::Dead,
            Some(JobStateKind::Done) | None if last.end == RunEnd::Running => RunEnd::Forgotten,
            Some(JobStateKind::Done) | None => last.end,
            Some(JobStateKind::Ready) if !job.is_some_and(|job| is_served(state, job)) => {
                RunEnd::Unserved
            }
            Some(kind) => RunEnd::In(kind),
        };
        let waits = |kind| {
            matches!(
                kind,
                JobStateKind::Ready | JobStateKind::Scheduled | JobStateKind::Retrying
            )
        };
        state.work.spend(STEP * last.earlier.len() as u64);
        last.earlier.retain(|id| {
            state
                .jobs
                .get(*id)
                .is_some_and(|job| waits(job.state.kind()))
        });
    }
    seen
}

/// Pushes the job of a schedule that is due: a single job, even if several occurrences were missed, and then
/// sets the next occurrence after now.
#[cold]
pub(super) fn run_schedule(state: &mut State, context: &mut Context) {
    let Some(id) = state.schedules.next(state.skew_ms) else {
        return;
    };
    let Some(schedule) = state.schedules.at(id) else {
        return;
    };
    let job = schedule.run_at(state.now, state.wall());
    let runs_left = schedule.runs_left;
    let next_at = schedule
        .recurrence
        .next_after(schedule.anchor, now_for(state, schedule.recurrence));
    if state.beginning.skips(schedule) {
        return state
            .schedules
            .advance(id, next_at, runs_left, &mut context.changes);
    }
    // Journal the dropped queues first, because this job may create a queue with the ID of a
    // dropped one.
    state.queues.remember_dropped(&mut context.changes);
    // An occurrence without a job is not recorded, because there will be more.
    let ran = push_job(state, NOBODY, &job, context);
    match ran {
        Ok(Accepted { job, how, .. }) => {
            if how == Pushed::New {
                name_schedule(state, job, id);
            }
            note_run(state, id, job, context);
        }
        Err(why) => {
            let key = state
                .schedules
                .at(id)
                .and_then(|schedule| schedule.key.as_ref())
                .map(own);
            context.warn(WarningKind::RunRefused(why), || {
                (
                    title_of_new(state, &job),
                    key.unwrap_or_default(),
                    Bytes::new(),
                )
            });
        }
    }
    let runs_left = runs_left.map(|left| left.saturating_sub(ran.is_ok().into()));
    if runs_left == Some(0) {
        state.schedules.end(id, &mut context.changes);
    } else {
        state
            .schedules
            .advance(id, next_at, runs_left, &mut context.changes);
    }
}
