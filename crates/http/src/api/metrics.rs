//! `/metrics`.

use std::sync::{Arc, PoisonError};

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use windlass_engine::{Cursor, FiguresRow, Protocol, Query, Reply};
use windlass_server::client::Readiness;

use crate::app::App;
use crate::metrics::{OPEN_METRICS, PLAIN, Scraped, text};
use crate::problem::{Outcome, Problem};

/// Figures for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "status", responses(
    (status = 200, description = "Prometheus' text, or OpenMetrics if `Accept` names it", body = String, content_type = "text/plain")
))]
pub(super) async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Outcome<Response> {
    let Reply::Stats(stats) = app.ask(Query::Stats).await? else { return Err(Problem::unexpected()) };
    let (rows, figures) = (app.queues().await?, figures(&app).await?);
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
        store_failed: app.clients.readiness() == Readiness::StoreFailed,
        resident_bytes: (app.daemon.memory_mb)() << 20,
        started_at: now.to_wall(app.started_at),
    };
    let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let open_metrics = accepts.contains("application/openmetrics-text");
    let content_type = if open_metrics { OPEN_METRICS } else { PLAIN };
    Ok(([(header::CONTENT_TYPE, content_type)], text(scraped, open_metrics)).into_response())
}

/// The figures of all queues, a page at a time.
async fn figures(app: &App) -> Outcome<Vec<FiguresRow>> {
    let mut client = app.client();
    let (mut all, mut after) = (Vec::new(), Some(Cursor::default()));
    while let Some(page) = after.take() {
        let Reply::Figures { rows, next } = client.ask(Query::Figures { after: page, limit: u32::MAX }).await? else {
            return Err(Problem::unexpected());
        };
        all.extend(rows);
        after = next;
    }
    Ok(all)
}
