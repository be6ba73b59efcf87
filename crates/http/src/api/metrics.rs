//! `/metrics`.

use std::sync::PoisonError;

use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use windlass_daemon::client::Readiness;
use windlass_engine::Protocol;

use crate::app::Shared;
use crate::metrics::{OPEN_METRICS, PLAIN, Scraped, text};
use crate::problem::Outcome;

/// Figures for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "status", responses(
    (status = 200, description = "Prometheus' text, or OpenMetrics if `Accept` names it", body = String, content_type = "text/plain")
))]
pub(super) async fn metrics(app: Shared, headers: HeaderMap) -> Outcome<Response> {
    let (stats, rows, figures) = (app.stats().await?, app.queues().await?, app.figures().await?);
    let now = app.now();
    let protocols = stats.protocols.iter().map(|it| it.protocol).chain([Protocol::HTTP]);
    let series = app.series.lock().unwrap_or_else(PoisonError::into_inner).of(&rows, figures);
    let scraped = Scraped {
        series,
        wall: now.wall,
        protocol_name: protocols.map(|protocol| (protocol, app.protocol_name(protocol))).collect(),
        // One is this request's own.
        connections: u64::from(stats.clients).saturating_sub(1),
        workers: stats.workers.into(),
        queues: stats.queues.into(),
        bytes: stats.bytes,
        role: app.control.role(),
        store_failed: app.clients.readiness() == Readiness::StoreFailed,
        resident_bytes: (app.daemon.memory_mb)() << 20,
        started_at: now.to_wall(app.started_at),
        daemon: app.daemon_figures.read(),
    };
    let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let open_metrics = accepts.contains("application/openmetrics-text");
    let content_type = if open_metrics { OPEN_METRICS } else { PLAIN };
    Ok(([(header::CONTENT_TYPE, content_type)], text(scraped, open_metrics)).into_response())
}
