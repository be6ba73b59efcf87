//! Schedules: list, run now, pause, resume, remove.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;
use windlass_config::Period;
use windlass_engine::{
    JobId, JobRef, Query, Recurrence, Reply, RunEnd, Schedule as Kept, ScheduleCommand, ScheduleRef,
};

use super::push::PushedJob;
use super::queues::Page;
use crate::app::{App, Now};
use crate::cursor::CursorText;
use crate::name::Name;
use crate::params::{Params, Segments, rows};
use crate::problem::{Outcome, Problem};
use crate::time::moment_text;

/// A job that is pushed again and again.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Schedule {
    /// Its number.
    pub(crate) id: u64,
    /// Its name, if it has one. Schedules of the configuration have names that begin with `configuration: `.
    pub(crate) name: Option<Name>,
    /// The protocol of its job.
    pub(crate) protocol: &'static str,
    /// The queue of its job.
    pub(crate) queue: Name,
    /// Its times: a crontab's line, with a time zone in front if there is one, or `@every` and a period.
    pub(crate) when: String,
    /// When it runs next; null if it does not.
    pub(crate) next_at: Option<String>,
    /// When it ran last; null if it has not, and at a daemon of a cluster that does not lead.
    pub(crate) last_run: Option<String>,
    /// The job of its last run. A run whose coalescing key a job holds has that job.
    pub(crate) last_job: Option<u64>,
    /// What became of that job: `running` (it waits, or a worker has it), `done`, `failed` (removed after its failure, or
    /// because it came too late), `dead`, or `forgotten` (removed before its end).
    pub(crate) last_end: Option<&'static str>,
    /// Whether it does not run: it was paused, or all its times have passed.
    pub(crate) paused: bool,
    /// How often it will still run; null if there is no end.
    pub(crate) runs_left: Option<u64>,
    /// The priority of its job, 1 to 9.
    pub(crate) priority: u8,
    /// The length of its job's body.
    pub(crate) body_bytes: usize,
}

/// A page of schedules.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SchedulePage {
    /// The rows.
    pub(crate) schedules: Vec<Schedule>,
    /// The cursor of the next page; null at the end.
    pub(crate) next: Option<CursorText>,
}

/// Jobs that are pushed again and again
#[utoipa::path(get, path = "/api/v1/schedules", tag = "schedules", operation_id = "list_schedules", params(Page), responses(
    (status = 200, body = SchedulePage), (status = 400, body = Problem)
))]
pub(crate) async fn list(State(app): State<Arc<App>>, Params(page): Params<Page>) -> Outcome<Json<SchedulePage>> {
    let (after, limit) = (page.cursor(), rows(page.limit)?);
    let query = Query::Schedules { protocol: None, after, limit };
    let Reply::Schedules { rows, next } = app.ask(query).await? else { return Err(Problem::unexpected()) };
    let now = app.now();
    let schedules = rows.iter().map(|row| Schedule::of(row, &app, now)).collect();
    Ok(Json(SchedulePage { schedules, next: next.map(CursorText) }))
}

/// Push a schedule's job now, besides its own runs
#[utoipa::path(post, path = "/api/v1/schedules/{id}/run", tag = "schedules", operation_id = "run_schedule",
    params(("id" = u64, Path, description = "Its number")),
    responses((status = 200, body = PushedJob), (status = 404, body = Problem), (status = 409, body = Problem))
)]
pub(super) async fn run(State(app): State<Arc<App>>, Segments(id): Segments<u64>) -> Outcome<Json<PushedJob>> {
    let Reply::Pushed { job, .. } = app.ask(ScheduleCommand::Run(number(id))).await? else {
        return Err(Problem::unexpected());
    };
    Ok(Json(PushedJob { id: job.0 }))
}

/// Stop the runs of a schedule
///
/// It stays paused when the daemon starts again, and when a program sets it again without a change.
#[utoipa::path(post, path = "/api/v1/schedules/{id}/pause", tag = "schedules", operation_id = "pause_schedule",
    params(("id" = u64, Path, description = "Its number")),
    responses((status = 200, body = Schedule), (status = 404, body = Problem))
)]
pub(super) async fn pause(State(app): State<Arc<App>>, Segments(id): Segments<u64>) -> Outcome<Json<Schedule>> {
    set_paused(&app, id, true).await
}

/// Let a schedule run again, from its next time on
#[utoipa::path(post, path = "/api/v1/schedules/{id}/resume", tag = "schedules", operation_id = "resume_schedule",
    params(("id" = u64, Path, description = "Its number")),
    responses((status = 200, body = Schedule), (status = 404, body = Problem))
)]
pub(super) async fn resume(State(app): State<Arc<App>>, Segments(id): Segments<u64>) -> Outcome<Json<Schedule>> {
    set_paused(&app, id, false).await
}

/// Remove a schedule
///
/// The jobs that it has pushed stay. A schedule of the configuration comes back when the configuration is read again.
#[utoipa::path(delete, path = "/api/v1/schedules/{id}", tag = "schedules", operation_id = "remove_schedule",
    params(("id" = u64, Path, description = "Its number")),
    responses((status = 204), (status = 404, body = Problem))
)]
pub(super) async fn remove(State(app): State<Arc<App>>, Segments(id): Segments<u64>) -> Outcome<StatusCode> {
    app.ask(ScheduleCommand::Remove(number(id))).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn set_paused(app: &App, id: u64, paused: bool) -> Outcome<Json<Schedule>> {
    app.ask(ScheduleCommand::Pause { schedule: number(id), paused }).await?;
    let Reply::Looked { schedule, .. } = app.ask(Query::Job(JobRef::Id(JobId(id)))).await? else {
        return Err(Problem::unexpected());
    };
    let schedule = schedule.ok_or_else(|| Problem::not_found("schedule unknown"))?;
    Ok(Json(Schedule::of(&schedule, app, app.now())))
}

const fn number(id: u64) -> ScheduleRef {
    ScheduleRef::Id(JobId(id))
}

impl Schedule {
    fn of(schedule: &Kept, app: &App, now: Now) -> Self {
        let Kept { id, key, job, recurrence, next_at, runs_left, last, .. } = schedule;
        Self {
            id: id.0,
            name: key.clone().map(Name),
            protocol: app.protocol_name(job.protocol),
            queue: Name(job.queue.clone()),
            when: match recurrence {
                Recurrence::Cron(cron) => cron.to_string(),
                Recurrence::Zoned(cron, zone) => format!("CRON_TZ={} {cron}", zone.name()),
                Recurrence::Every { interval_ms } => format!("@every {}", Period::from_ms(*interval_ms)),
            },
            next_at: if recurrence.by_wall() { moment_text(*next_at) } else { now.text(*next_at) },
            last_run: last.and_then(|last| moment_text(last.at)),
            last_job: last.map(|last| last.job.0),
            last_end: last.map(|last| match last.end {
                RunEnd::Running => "running",
                RunEnd::Done => "done",
                RunEnd::Failed => "failed",
                RunEnd::Dead => "dead",
                RunEnd::Forgotten => "forgotten",
            }),
            paused: schedule.is_paused(),
            runs_left: *runs_left,
            priority: job.priority.value(),
            body_bytes: job.body.len(),
        }
    }
}
