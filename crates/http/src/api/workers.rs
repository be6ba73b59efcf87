//! Named workers: list, quiet, stop.

use axum::http::StatusCode;
use windlass_engine::{JobId, Timestamp, WorkerCommand, WorkerRow, WorkerState};

use super::listing::listing;
use crate::app::{App, Now, Shared};
use crate::name::Name;
use crate::problem::Outcome;
use crate::view::{of_one, view};

view! {
    /// A worker known by name.
    Worker(row: &WorkerRow, app: &App, now: Now) with {
        // The description of a worker has a line each for the host, the process and the labels.
        let about = String::from_utf8_lossy(&row.about);
        let mut lines = about.lines();
        let mut line = || lines.next().filter(|line| !line.is_empty());
        let (host, pid) = (line(), line());
        let labels = line().unwrap_or_default().split(' ').filter(|it| !it.is_empty());
    } {
        /// Its name (FWP's wid).
        name: Name = Name(row.name.clone()),
        /// Its protocol.
        protocol: Option<&'static str> = row.protocol.map(|protocol| app.protocol_name(protocol)),
        /// `running`, `quiet` (takes no more jobs) or `terminate` (must end).
        state: &'static str = match row.state {
            WorkerState::Running => "running",
            WorkerState::Quiet => "quiet",
            WorkerState::Terminate => "terminate",
        },
        /// Its host, if it has given one.
        host: Option<String> = host.map(str::to_owned),
        /// Its process, if it has given one.
        pid: Option<u64> = pid.and_then(|pid| pid.parse().ok()),
        /// Its labels.
        labels: Vec<String> = labels.map(str::to_owned).collect(),
        /// When it last gave a sign of life.
        beat_at: Option<String> = now.text(row.beat_at),
        /// The memory that its process uses, in bytes, if it is known (FWP's `rss_kb`).
        memory_bytes: Option<u64> = row.memory_bytes,
        /// Its open connections.
        connections: u32 = row.connections,
        /// Of these, those that wait for work.
        waiting: Option<u32> = row.waiting,
        /// Jobs that it has: `GET /jobs?worker=` lists them.
        jobs: u32 = row.held,
        /// Of these, the oldest 5.
        doing: Vec<WorkersJob> = row.jobs.iter().map(|job| WorkersJob::of(job, now)).collect(),
        /// The namespace, if it has a name.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<Name> = Name::of(&row.namespace),
    }
}

view! {
    /// A job that a worker has.
    WorkersJob(job: &(JobId, bytes::Bytes, Timestamp), now: Now) {
        /// Its number.
        job: u64 = job.0.0,
        /// Its queue.
        queue: Name = Name(job.1.clone()),
        /// Since when the worker has it.
        since: Option<String> = now.text(job.2),
    }
}

listing! {
    /// Workers known by name
    ///
    /// FWP's workers give a name, and others may; `status` counts the connections of the rest.
    "/api/v1/workers", "workers", "list_workers";
    /// A page of workers.
    WorkerPage { workers: Vec<Worker> } = Workers {}
}

of_one! {
    /// Ask a worker to take no more jobs
    post "/api/v1/workers/{worker}/quiet" "workers" "quiet_worker" 204, 404;
    pub(super) fn quiet(app, worker: Name) -> StatusCode { set_state(&app, worker, WorkerState::Quiet).await }

    /// Ask a worker to finish its jobs and to end
    post "/api/v1/workers/{worker}/stop" "workers" "stop_worker" 204, 404;
    pub(super) fn stop(app, worker: Name) -> StatusCode { set_state(&app, worker, WorkerState::Terminate).await }
}

/// Ask all workers to take no more jobs
#[utoipa::path(post, path = "/api/v1/workers/quiet", tag = "workers", operation_id = "quiet_workers",
    responses((status = 204))
)]
pub(super) async fn quiet_all(app: Shared) -> Outcome<StatusCode> {
    set_state(&app, Name(bytes::Bytes::new()), WorkerState::Quiet).await
}

/// Ask all workers to finish their jobs and to end
#[utoipa::path(post, path = "/api/v1/workers/stop", tag = "workers", operation_id = "stop_workers",
    responses((status = 204))
)]
pub(super) async fn stop_all(app: Shared) -> Outcome<StatusCode> {
    set_state(&app, Name(bytes::Bytes::new()), WorkerState::Terminate).await
}

async fn set_state(app: &App, worker: Name, state: WorkerState) -> Outcome<StatusCode> {
    app.ask(WorkerCommand::SetState {
        worker: worker.0,
        state,
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

impl Worker {
    /// The worker's memory in MiB, for people.
    pub(crate) fn memory_mib(&self) -> Option<u64> {
        self.memory_bytes.map(|bytes| bytes >> 20)
    }

    /// The number of jobs that are not listed.
    pub(crate) fn more(&self) -> usize {
        (self.jobs as usize).saturating_sub(self.doing.len())
    }
}
