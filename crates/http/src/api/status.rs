//! Probes, and the figures of the whole daemon.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;
use windlass_engine::Totals;
use windlass_server::Role;
use windlass_server::client::Readiness;

use super::control::Drain;
use super::views::counts;
use crate::app::App;
use crate::problem::Outcome;
use crate::time::moment_text;

/// The daemon as a whole.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Status {
    /// Windlass's version.
    pub(crate) version: &'static str,
    /// `ready`, `store_failed`, `draining` or `stopping`.
    pub(crate) state: &'static str,
    /// What a drain waits for; null without one.
    pub(crate) drain: Option<Drain>,
    /// The time.
    pub(crate) now: Option<String>,
    /// When the daemon started.
    pub(crate) started_at: Option<String>,
    /// Jobs, all states together.
    pub(crate) jobs: u64,
    /// Bytes that jobs, schedules and batches count as.
    pub(crate) bytes: u64,
    /// Jobs by state.
    pub(crate) states: BTreeMap<&'static str, u64>,
    /// Known queues.
    pub(crate) queues: u32,
    /// Workers known by name.
    pub(crate) workers: u32,
    /// Open connections.
    pub(crate) connections: u32,
    /// Recurring jobs.
    pub(crate) schedules: u32,
    /// Batches.
    pub(crate) batches: u32,
    /// Counters since the data directory was created.
    pub(crate) totals: BTreeMap<&'static str, u64>,
    /// Each protocol that has or had any jobs.
    pub(crate) protocols: Vec<ProtocolStatus>,
}

/// The jobs of one protocol.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProtocolStatus {
    /// Its name.
    pub(crate) protocol: &'static str,
    /// Jobs by state.
    pub(crate) states: BTreeMap<&'static str, u64>,
    /// Counters since the data directory was created.
    pub(crate) totals: BTreeMap<&'static str, u64>,
}

impl ProtocolStatus {
    /// How many jobs are in a state.
    pub(crate) fn state(&self, name: &str) -> u64 {
        self.states.get(name).copied().unwrap_or_default()
    }

    /// A counter.
    pub(crate) fn total(&self, name: &str) -> u64 {
        self.totals.get(name).copied().unwrap_or_default()
    }
}

/// Whether the daemon lives
#[utoipa::path(get, path = "/livez", tag = "status", responses((status = 200, body = String)))]
pub(super) async fn livez() -> &'static str {
    "ok\n"
}

/// Whether the daemon takes jobs: its journal is open, its store works, and it does not stop
#[utoipa::path(get, path = "/readyz", tag = "status", responses(
    (status = 200, body = String), (status = 503, description = "The reason", body = String)
))]
pub(super) async fn readyz(State(app): State<Arc<App>>) -> (StatusCode, String) {
    let readiness = app.clients.readiness();
    let status = if readiness == Readiness::Ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let role = match app.control.role() {
        Role::Leading { .. } => ", leading",
        Role::Following { .. } => ", serving for the leader",
        Role::Alone | Role::Seeking { .. } => "",
    };
    (status, format!("{}{role}\n", state_name(readiness)))
}

/// The figures of the whole daemon
#[utoipa::path(get, path = "/api/v1/status", tag = "status", responses((status = 200, body = Status)))]
pub(crate) async fn status(State(app): State<Arc<App>>) -> Outcome<Json<Status>> {
    let stats = app.stats().await?;
    let now = app.now();
    let protocols = stats.protocols.iter().map(|it| ProtocolStatus {
        protocol: app.protocol_name(it.protocol),
        states: counts(&it.places),
        totals: totals(&it.totals),
    });
    Ok(Json(Status {
        version: env!("CARGO_PKG_VERSION"),
        state: state_name(app.clients.readiness()),
        drain: app.control.draining().map(|draining| Drain::of(&draining, &app)),
        now: moment_text(now.wall),
        started_at: now.text(app.started_at),
        jobs: stats.jobs,
        bytes: stats.bytes,
        states: counts(&stats.places),
        queues: stats.queues,
        workers: stats.workers,
        // One is this request's own.
        connections: stats.clients.saturating_sub(1),
        schedules: stats.schedules,
        batches: stats.batches,
        totals: totals(&stats.totals),
        protocols: protocols.collect(),
    }))
}

const fn state_name(readiness: Readiness) -> &'static str {
    match readiness {
        Readiness::Ready => "ready",
        Readiness::StoreFailed => "store_failed",
        Readiness::Draining => "draining",
        Readiness::Stopping => "stopping",
    }
}

/// Counters by name.
pub(super) fn totals(totals: &Totals) -> BTreeMap<&'static str, u64> {
    let Totals {
        pushed,
        taken,
        succeeded,
        failed,
        buried,
        lost,
        expired,
        cancelled,
        released,
        retried,
        purged,
        timed_out,
        workers_lost,
        misfits,
    } = *totals;
    BTreeMap::from([
        ("pushed", pushed),
        ("taken", taken),
        ("succeeded", succeeded),
        ("failed", failed),
        ("dead", buried),
        ("lost", lost),
        ("expired", expired),
        ("cancelled", cancelled),
        ("released", released),
        ("retried", retried),
        ("purged", purged),
        ("timed_out", timed_out),
        ("workers_lost", workers_lost),
        ("unconvertible", misfits),
    ])
}
