//! Jobs: list, get, retry, kill, delete, requeue.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass_config::Period;
use windlass_engine::{
    BulkCommand, Cursor, Filter, JobCommand, JobId, JobRef, JobView, LeaseCommand, Mutation, Proof, Query, Reply, Test,
    Timestamp,
};

use super::views::{Job, JobDetail, Kind, State as StateName, kind_of, state_name};
use crate::app::App;
use crate::cursor::CursorText;
use crate::name::Name;
use crate::params::{Params, Segments, rows};
use crate::problem::{Outcome, Problem};

/// Which jobs; all conditions must hold.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// In this queue.
    queue: Option<Name>,
    /// In this state.
    state: Option<StateName>,
    /// Of this protocol: `faktory`, `gearman`, `spiderq`, `eventmq` or `http`.
    protocol: Option<String>,
    /// With this kind: FWP's jobtype, EventMQ's path and callable. The kind of any other job is its queue.
    kind: Option<String>,
    /// With this coalescing key.
    key: Option<Name>,
    /// With this name (FWP's jid, EventMQ's message id).
    name: Option<Name>,
    /// Ready, or created, at least this long ago: `90s`, `1h30m`, `2d`.
    #[param(value_type = Option<String>)]
    older_than: Option<Period>,
    /// Ready, or created, at most this long ago.
    #[param(value_type = Option<String>)]
    newer_than: Option<Period>,
    /// `next` of the page before; nothing for the first one.
    cursor: Option<CursorText>,
    /// The most rows, 1 to 1000; 100 if it is left out.
    limit: Option<u32>,
}

/// A page of jobs.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JobPage {
    /// The rows.
    jobs: Vec<Job>,
    /// The cursor of the next page; null at the end. A page that is not the last may be short, or empty: the search continues
    /// with the next one.
    next: Option<CursorText>,
}

/// Jobs of all queues, protocols and states
#[utoipa::path(get, path = "/api/v1/jobs", tag = "jobs", operation_id = "list_jobs", params(Which), responses(
    (status = 200, body = JobPage), (status = 400, body = Problem)
))]
pub(super) async fn list(State(app): State<Arc<App>>, Params(which): Params<Which>) -> Outcome<Json<JobPage>> {
    let (after, limit) = (which.cursor.unwrap_or_default().0, rows(which.limit)?);
    let filter = which.filter(&app)?;
    let Reply::Jobs { rows, next } = app.ask(Query::Jobs { filter: filter.into(), after, limit }).await? else {
        return Err(Problem::unexpected());
    };
    let now = app.now();
    let jobs = rows.iter().map(|view| Job::of(view, &app, now)).collect();
    Ok(Json(JobPage { jobs, next: next.map(CursorText) }))
}

impl Which {
    fn filter(self, app: &App) -> Outcome<Filter> {
        let Self { queue, state, protocol, kind, key, name, older_than, newer_than, .. } = self;
        let queue = queue.map(|name| name.0);
        let kind_is_queue = kind.as_ref().is_some_and(|kind| queue.as_deref() == Some(kind.as_bytes()));
        let wall = app.now().wall;
        let bridge = Arc::clone(&app.daemon.bridge);
        let since = |period: Period| Timestamp(wall.0.saturating_sub(period.as_ms()));
        let (until, from) = (older_than.map(since), newer_than.map(since));
        let needs_test = kind.is_some() || key.is_some() || until.is_some() || from.is_some();
        let test = move |job: &windlass_engine::Job| {
            until.is_none_or(|until| job.ready_at <= until)
                && from.is_none_or(|from| job.ready_at >= from)
                && key.as_ref().is_none_or(|key| job.key() == Some(&key.0[..]))
                && kind.as_ref().is_none_or(|kind| match kind_of(&bridge, job.protocol, job.body()) {
                    Kind::Named(name) => name == *kind,
                    Kind::Queue => kind_is_queue,
                    Kind::Unknown => false,
                })
        };
        Ok(Filter {
            state: state.map(StateName::kind),
            queue,
            protocol: protocol.map(|name| app.protocol(&name)).transpose()?,
            names: name.map(|name| name.0).into_iter().collect(),
            test: needs_test.then(|| Test(Arc::new(test))),
            ..Filter::default()
        })
    }
}

/// Everything about a job
#[utoipa::path(get, path = "/api/v1/jobs/{id}", tag = "jobs", operation_id = "get_job",
    params(("id" = u64, Path, description = "Its number")),
    responses((status = 200, body = JobDetail), (status = 404, body = Problem))
)]
pub(super) async fn get(State(app): State<Arc<App>>, Segments(id): Segments<u64>) -> Outcome<Json<JobDetail>> {
    let view = look(&app, id).await?;
    // The job may have ended meanwhile.
    let why = match app.ask(Query::Why(JobRef::Id(JobId(id)))).await {
        Ok(Reply::Why(why)) => Some(why),
        Ok(_) | Err(_) => None,
    };
    Ok(Json(JobDetail::of(&view, why, &app, app.now())))
}

/// The bytes of a job's body
#[utoipa::path(get, path = "/api/v1/jobs/{id}/body", tag = "jobs", operation_id = "get_job_body",
    params(("id" = u64, Path, description = "Its number")),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"), (status = 404, body = Problem))
)]
pub(super) async fn body(State(app): State<Arc<App>>, Segments(id): Segments<u64>) -> Outcome<Response> {
    let view = look(&app, id).await?;
    let headers = [(header::CONTENT_TYPE, "application/octet-stream"), (header::CONTENT_DISPOSITION, "attachment")];
    Ok((headers, view.job.payload.share_body()).into_response())
}

/// Make a job ready now that is dead, scheduled or waits for a retry
#[utoipa::path(post, path = "/api/v1/jobs/{id}/retry", tag = "jobs", operation_id = "retry_job",
    params(("id" = u64, Path, description = "Its number")),
    responses((status = 200, body = Job), (status = 404, body = Problem), (status = 409, body = Problem))
)]
pub(super) async fn retry(State(app): State<Arc<App>>, Segments(id): Segments<u64>) -> Outcome<Json<Job>> {
    mutate(&app, id, Mutation::Requeue).await
}

/// Move a job to the dead-letter queue, unless a worker has it
#[utoipa::path(post, path = "/api/v1/jobs/{id}/kill", tag = "jobs", operation_id = "kill_job",
    params(("id" = u64, Path, description = "Its number")),
    responses((status = 200, body = Job), (status = 404, body = Problem), (status = 409, body = Problem))
)]
pub(super) async fn kill(State(app): State<Arc<App>>, Segments(id): Segments<u64>) -> Outcome<Json<Job>> {
    mutate(&app, id, Mutation::Kill).await
}

/// Take a job back from its worker
///
/// It returns to its place in the queue. What the worker reports afterwards is refused.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/requeue", tag = "jobs", operation_id = "requeue_job",
    params(("id" = u64, Path, description = "Its number")),
    responses((status = 200, body = Job), (status = 404, body = Problem), (status = 409, body = Problem))
)]
pub(super) async fn requeue(State(app): State<Arc<App>>, Segments(id): Segments<u64>) -> Outcome<Json<Job>> {
    let job = JobRef::Id(JobId(id));
    app.ask(LeaseCommand::Release { job, proof: Proof::AnyLease, front: false }).await?;
    row(&app, id).await.map(Json)
}

/// Remove a job, whatever its state
#[utoipa::path(delete, path = "/api/v1/jobs/{id}", tag = "jobs", operation_id = "delete_job",
    params(("id" = u64, Path, description = "Its number")),
    responses((status = 204), (status = 404, body = Problem))
)]
pub(super) async fn delete(State(app): State<Arc<App>>, Segments(id): Segments<u64>) -> Outcome<StatusCode> {
    app.ask(JobCommand::Cancel(JobRef::Id(JobId(id)))).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn mutate(app: &App, id: u64, action: Mutation) -> Outcome<Json<Job>> {
    let filter = Filter { ids: vec![JobId(id)], ..Filter::default() };
    let mutate = BulkCommand::Mutate { filter: filter.into(), action, after: Cursor::default(), limit: 1 };
    let Reply::Mutated { changed, .. } = app.ask(mutate).await? else { return Err(Problem::unexpected()) };
    if changed > 0 {
        return row(app, id).await.map(Json);
    }
    let view = look(app, id).await?;
    Err(Problem::conflict(format!("the job is {}", state_name(view.job.state.kind()))))
}

async fn row(app: &App, id: u64) -> Outcome<Job> {
    Ok(Job::of(&*look(app, id).await?, app, app.now()))
}

async fn look(app: &App, id: u64) -> Outcome<Box<JobView>> {
    let Reply::Looked { job, .. } = app.ask(Query::Job(JobRef::Id(JobId(id)))).await? else {
        return Err(Problem::unexpected());
    };
    job.ok_or_else(|| Problem::not_found("job unknown"))
}
