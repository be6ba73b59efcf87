//! Schedules: list, run now, pause, resume, remove.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::StatusCode;
use windlass_config::Period;
use windlass_engine::{
    EARLIER_RUNS_MAX, JobId, JobRef, Namespace, Query, Recurrence, Refusal, Reply, RunEnd,
    Schedule as Kept, ScheduleCommand, ScheduleRef, Thing,
};

use super::listing::{Page, page_of, page_type};
use super::push::PushedJob;
use super::views::state_name;
use super::words::{line, words};
use crate::app::{App, Now, Shared};
use crate::name::Name;
use crate::params::Params;
use crate::problem::{Outcome, Problem};
use crate::time::moment_text;
use crate::view::{of_one, view};

view! {
    /// A job that is pushed again and again.
    Schedule(kept: &Kept, names: &Names, app: &App, now: Now) {
        /// Its number.
        id: u64 = kept.id.0,
        /// Its name, if it has one. Schedules of the configuration have names that begin with `configuration: `.
        name: Option<Name> = kept.key.clone().map(Name),
        /// The protocol of its job.
        protocol: &'static str = app.protocol_name(kept.job.protocol),
        /// The queue of its job.
        queue: Name = Name(kept.job.queue.clone()),
        /// Its times: a crontab's line, with a time zone in front if there is one, or `@every` and a period.
        when: String = match &kept.recurrence {
            Recurrence::Cron(cron) => line(cron),
            Recurrence::Zoned(cron, zone) => format!("CRON_TZ={} {}", zone.name(), line(cron)),
            Recurrence::Every { interval_ms } => format!("@every {}", Period::from_ms(*interval_ms)),
        },
        /// The same in words.
        in_words: String = words(&kept.recurrence),
        /// When it runs next; null if it does not.
        next_at: Option<String> = match kept.recurrence.by_wall() {
            true => moment_text(kept.next_at),
            false => now.text(kept.next_at),
        },
        /// When it ran last; null if it has not.
        last_run: Option<String> = kept.last.as_ref().and_then(|last| moment_text(last.at)),
        /// The job of its last run. A run whose coalescing key a job holds has that job.
        last_job: Option<u64> = kept.last.as_ref().map(|last| last.job.0),
        /// That job's state, which may be `unserved` (it is ready, and no worker serves its queue); or what became of the job:
        /// `done`, `failed` (removed after its failure, or because it came too late), `dead`, or `forgotten` (removed before
        /// its end).
        last_end: Option<&'static str> = kept.last.as_ref().map(|last| match last.end {
            RunEnd::In(state) => state_name(state),
            RunEnd::Unserved => "unserved",
            RunEnd::Running => "running",
            RunEnd::Done => "done",
            RunEnd::Failed => "failed",
            RunEnd::Dead => "dead",
            RunEnd::Forgotten => "forgotten",
        }),
        /// How many jobs of earlier runs still wait to be taken.
        earlier_waiting: usize = kept.last.as_ref().map_or(0, |last| last.earlier.len()),
        /// Whether there may be more: a schedule remembers its last 32 runs that have not ended.
        more_waiting: bool = kept.last.as_ref().is_some_and(|last| last.earlier.len() >= EARLIER_RUNS_MAX),
        /// Whether it does not run: it was paused, or all its times have passed.
        paused: bool = kept.is_paused(),
        /// How often it will still run; null if there is no end.
        runs_left: Option<u64> = kept.runs_left,
        /// The priority of its job, 1 to 9.
        priority: u8 = kept.job.priority.value(),
        /// The length of its job's body.
        body_bytes: usize = kept.job.body.len(),
        /// The namespace, if it has a name.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<Name> = names.get(&kept.job.namespace).cloned(),
    }
}

/// The names of namespaces, by number.
type Names = BTreeMap<Namespace, Name>;

/// The names of the namespaces of schedules.
async fn names<'a>(app: &App, mut rows: impl Iterator<Item = &'a Kept>) -> Outcome<Names> {
    if rows.all(|row| row.job.namespace == Namespace::UNNAMED) {
        return Ok(Names::new());
    }
    let all = app.namespaces().await?.into_iter();
    Ok(all
        .filter_map(|row| Some((row.id, Name::of(&row.name)?)))
        .collect())
}

page_type! {
    /// A page of schedules.
    SchedulePage { schedules: Vec<Schedule> }
}

/// Jobs that are pushed again and again
#[utoipa::path(get, path = "/api/v1/schedules", tag = "schedules", operation_id = "list_schedules", params(Page),
    responses((status = 200, body = SchedulePage), (status = 400, body = Problem))
)]
pub(crate) async fn list(app: Shared, Params(page): Params<Page>) -> Outcome<Json<SchedulePage>> {
    let app = &app;
    let fetch = |after, limit| async move {
        let protocol = None;
        let query = Query::Schedules {
            protocol,
            after,
            limit,
        };
        let Reply::Schedules { rows, next } = app.ask(query).await? else {
            return Err(Problem::unexpected());
        };
        let (names, now) = (names(app, rows.iter()).await?, app.now());
        let of = |row| Schedule::of(row, &names, app, now);
        Ok((rows.iter().map(of).collect(), next))
    };
    page_of(page, fetch).await.map(Into::into)
}

of_one! {
    /// Push a schedule's job now, besides its own runs
    post "/api/v1/schedules/{id}/run" "schedules" "run_schedule" 200 PushedJob, 404, 409;
    pub(super) fn run(app, id: u64) -> Json<PushedJob> {
        let Reply::Pushed { job, .. } = app.ask(ScheduleCommand::Run(number(id))).await? else {
            return Err(Problem::unexpected());
        };
        Ok(Json(PushedJob { id: job.0 }))
    }

    /// Stop the runs of a schedule
    ///
    /// It stays paused when the daemon starts again, and when a program sets it again without a change.
    post "/api/v1/schedules/{id}/pause" "schedules" "pause_schedule" 200 Schedule, 404;
    pub(super) fn pause(app, id: u64) -> Json<Schedule> { set_paused(&app, id, true).await }

    /// Let a schedule run again, from its next time on
    post "/api/v1/schedules/{id}/resume" "schedules" "resume_schedule" 200 Schedule, 404;
    pub(super) fn resume(app, id: u64) -> Json<Schedule> { set_paused(&app, id, false).await }

    /// Remove a schedule
    ///
    /// The jobs that it has pushed stay. A schedule of the configuration comes back when the configuration is read again.
    delete "/api/v1/schedules/{id}" "schedules" "remove_schedule" 204, 404;
    pub(super) fn remove(app, id: u64) -> StatusCode {
        app.ask(ScheduleCommand::Remove(number(id))).await?;
        Ok(StatusCode::NO_CONTENT)
    }
}

async fn set_paused(app: &App, id: u64, paused: bool) -> Outcome<Json<Schedule>> {
    app.ask(ScheduleCommand::Pause {
        schedule: number(id),
        paused,
    })
    .await?;
    let Reply::Looked { schedule, .. } = app.ask(Query::Job(JobRef::Id(JobId(id)))).await? else {
        return Err(Problem::unexpected());
    };
    let schedule = schedule.ok_or(Refusal::NotFound(Thing::Schedule))?;
    let names = names(app, std::iter::once(&*schedule)).await?;
    Ok(Json(Schedule::of(&schedule, &names, app, app.now())))
}

const fn number(id: u64) -> ScheduleRef {
    ScheduleRef::Id(JobId(id))
}
