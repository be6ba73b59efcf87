//! Waiting for a state of the queues: for tests of other programs.

use std::time::Duration;

use axum::Json;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};
use windlass_config::{Period, counted};
use windlass_daemon::client::Readiness;
use windlass_engine::JobStateKind;

use crate::app::{App, Shared};
use crate::name::Name;
use crate::params::Params;
use crate::problem::{Outcome, Problem};

/// The interval at which the figures are read.
const LOOK_EVERY: Duration = Duration::from_millis(10);

const TIMEOUT: Period = Period::from_secs(60);
const TIMEOUT_MAX: Period = Period::from_secs(300);

/// The condition to wait for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Until {
    /// `empty`: no job is ready, leased, scheduled or waits for a retry.
    #[param(inline)]
    until: Condition,
    /// Of this queue; of all, if it is left out.
    queue: Option<Name>,
    /// For how long, at most 5m; 1m if it is left out.
    #[param(value_type = Option<String>)]
    timeout: Option<Period>,
}

/// A state of the queue.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Condition {
    /// No job will run.
    Empty,
}

/// The state has come.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Waited {
    /// Jobs that failed for good meanwhile or before.
    dead: u64,
}

/// Wait until no job is left to do
#[utoipa::path(post, path = "/api/v1/wait", tag = "status", operation_id = "wait", params(Until), responses(
    (status = 200, body = Waited),
    (status = 400, body = Problem), (status = 409, description = "Not in time", body = Problem), (status = 503, body = Problem)
))]
pub(super) async fn wait(app: Shared, Params(until): Params<Until>) -> Outcome<Json<Waited>> {
    let Until {
        until: Condition::Empty,
        queue,
        timeout,
    } = until;
    let timeout = timeout.unwrap_or(TIMEOUT);
    if timeout > TIMEOUT_MAX {
        return Err(Problem::bad_request(format!(
            "timeout {timeout} is longer than {TIMEOUT_MAX}"
        )));
    }
    let _place = app.place_to_wait()?;
    let end = Instant::now() + Duration::from(timeout);
    loop {
        let (live, dead) = jobs(&app, queue.as_ref()).await?;
        if live == 0 {
            return Ok(Json(Waited { dead }));
        }
        if Instant::now() >= end {
            return Err(Problem::conflict(format!(
                "{} left after {timeout}",
                counted(live, "job")
            )));
        }
        if app.readiness() == Readiness::Stopping {
            return Err(windlass_engine::Refusal::Unavailable.into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The number of jobs that will run, and of dead ones.
async fn jobs(app: &App, queue: Option<&Name>) -> Outcome<(u64, u64)> {
    let Some(queue) = queue else {
        let stats = app.stats().await?;
        let of = |kind: JobStateKind| stats.places.get(kind as usize).copied().unwrap_or_default();
        let live = [
            JobStateKind::Ready,
            JobStateKind::Leased,
            JobStateKind::Scheduled,
            JobStateKind::Retrying,
        ];
        return Ok((live.map(of).iter().sum(), of(JobStateKind::Dead)));
    };
    // An unknown queue is treated as empty, because a test may wait before the first job.
    let row = app.queue(queue.0.clone()).await?;
    Ok(row.map_or((0, 0), |row| {
        (row.live().into(), row.jobs(JobStateKind::Dead).into())
    }))
}
