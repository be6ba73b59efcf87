//! Workers known by name: list, quiet, stop.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;
use windlass_engine::{Query, Reply, WorkerCommand, WorkerRow, WorkerState};

use super::queues::Page;
use crate::app::{App, Now};
use crate::cursor::CursorText;
use crate::name::Name;
use crate::params::{Params, Segments, rows};
use crate::problem::{Outcome, Problem};

/// A worker known by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Worker {
    /// Its name (FWP's wid).
    pub(crate) name: Name,
    /// Its protocol.
    pub(crate) protocol: Option<&'static str>,
    /// `running`, `quiet` (takes no more jobs) or `terminate` (must end).
    pub(crate) state: &'static str,
    /// Its host, if it has given one.
    pub(crate) host: Option<String>,
    /// Its process, if it has given one.
    pub(crate) pid: Option<u64>,
    /// Its labels.
    pub(crate) labels: Vec<String>,
    /// When it last gave a sign of life.
    pub(crate) beat_at: Option<String>,
    /// The memory that its process uses, in bytes, if it is known (FWP's `rss_kb`).
    pub(crate) memory_bytes: Option<u64>,
    /// Its open connections.
    pub(crate) connections: u32,
    /// Jobs that it has: `GET /jobs?worker=` lists them.
    pub(crate) jobs: u32,
}

/// A page of workers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkerPage {
    /// The rows.
    pub(crate) workers: Vec<Worker>,
    /// The cursor of the next page; null at the end.
    pub(crate) next: Option<CursorText>,
}

/// Workers known by name
///
/// FWP's workers give a name, and others may; `status` counts the connections of the rest.
#[utoipa::path(get, path = "/api/v1/workers", tag = "workers", operation_id = "list_workers", params(Page), responses(
    (status = 200, body = WorkerPage), (status = 400, body = Problem)
))]
pub(crate) async fn list(State(app): State<Arc<App>>, Params(page): Params<Page>) -> Outcome<Json<WorkerPage>> {
    let (after, limit) = (page.cursor(), rows(page.limit)?);
    let Reply::Workers { rows, next } = app.ask(Query::Workers { after, limit }).await? else {
        return Err(Problem::unexpected());
    };
    let now = app.now();
    let workers = rows.iter().map(|row| Worker::of(row, &app, now)).collect();
    Ok(Json(WorkerPage { workers, next: next.map(CursorText) }))
}

/// Ask a worker to take no more jobs
#[utoipa::path(post, path = "/api/v1/workers/{worker}/quiet", tag = "workers", operation_id = "quiet_worker",
    params(("worker" = String, Path, description = "Its name")),
    responses((status = 204), (status = 404, body = Problem))
)]
pub(super) async fn quiet(State(app): State<Arc<App>>, Segments(worker): Segments<Name>) -> Outcome<StatusCode> {
    set_state(&app, worker, WorkerState::Quiet).await
}

/// Ask a worker to finish its jobs and to end
#[utoipa::path(post, path = "/api/v1/workers/{worker}/stop", tag = "workers", operation_id = "stop_worker",
    params(("worker" = String, Path, description = "Its name")),
    responses((status = 204), (status = 404, body = Problem))
)]
pub(super) async fn stop(State(app): State<Arc<App>>, Segments(worker): Segments<Name>) -> Outcome<StatusCode> {
    set_state(&app, worker, WorkerState::Terminate).await
}

/// Ask all workers to take no more jobs
#[utoipa::path(post, path = "/api/v1/workers/quiet", tag = "workers", operation_id = "quiet_workers",
    responses((status = 204))
)]
pub(super) async fn quiet_all(State(app): State<Arc<App>>) -> Outcome<StatusCode> {
    set_state(&app, Name(bytes::Bytes::new()), WorkerState::Quiet).await
}

/// Ask all workers to finish their jobs and to end
#[utoipa::path(post, path = "/api/v1/workers/stop", tag = "workers", operation_id = "stop_workers",
    responses((status = 204))
)]
pub(super) async fn stop_all(State(app): State<Arc<App>>) -> Outcome<StatusCode> {
    set_state(&app, Name(bytes::Bytes::new()), WorkerState::Terminate).await
}

async fn set_state(app: &App, worker: Name, state: WorkerState) -> Outcome<StatusCode> {
    app.ask(WorkerCommand::SetState { worker: worker.0, state }).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl Worker {
    /// Its memory in MiB, for people.
    pub(crate) fn memory_mib(&self) -> Option<u64> {
        self.memory_bytes.map(|bytes| bytes >> 20)
    }

    fn of(row: &WorkerRow, app: &App, now: Now) -> Self {
        let WorkerRow { name, about, protocol, state, beat_at, memory_bytes, connections, held } = row;
        // Sessions describe a worker in lines: its host, its process, its labels.
        let about = String::from_utf8_lossy(about);
        let mut lines = about.lines();
        let mut line = || lines.next().filter(|line| !line.is_empty());
        let (host, pid, labels) = (line(), line(), line());
        Self {
            name: Name(name.clone()),
            protocol: protocol.map(|protocol| app.protocol_name(protocol)),
            state: match state {
                WorkerState::Running => "running",
                WorkerState::Quiet => "quiet",
                WorkerState::Terminate => "terminate",
            },
            host: host.map(str::to_owned),
            pid: pid.and_then(|pid| pid.parse().ok()),
            labels: labels.unwrap_or_default().split(' ').filter(|it| !it.is_empty()).map(str::to_owned).collect(),
            beat_at: now.text(*beat_at),
            memory_bytes: *memory_bytes,
            connections: *connections,
            jobs: *held,
        }
    }
}
