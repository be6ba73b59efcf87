//! `/metrics`.

use std::sync::PoisonError;

use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use windlass_daemon::client::Readiness;
use windlass_daemon::{Role, clock};
use windlass_engine::Protocol;

use crate::app::Shared;
use crate::metrics::{OPEN_METRICS, OfEngine, PLAIN, Scraped, text};
use crate::problem::Outcome;
use crate::refusing;

/// Figures for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "status", responses(
    (status = 200, description = "Prometheus' text, or OpenMetrics if `Accept` names it", body = String, content_type = "text/plain")
))]
pub(super) async fn metrics(app: Shared, headers: HeaderMap) -> Outcome<Response> {
    let (now, daemon, role) = (app.now(), app.daemon_figures.read(), app.control.role());
    let mut protocols = vec![Protocol::HTTP];
    let (engine, connections, stats) = match &role {
        // The engine's figures are on the page of the daemon with the engine.
        Role::Following { .. } | Role::Seeking { .. } => (None, daemon.connections(), None),
        Role::Alone | Role::Leading { .. } => {
            let (stats, rows, figures) = (
                app.stats().await?,
                app.queues().await?,
                app.figures().await?,
            );
            protocols.extend(stats.protocols.iter().map(|it| it.protocol));
            let (of_kinds, namespaces) = (app.kinds().await?, app.namespaces().await?);
            let mut own = app.series.lock().unwrap_or_else(PoisonError::into_inner);
            let (series, kinds) = (own.of(&rows, figures), own.of_kinds(of_kinds));
            let namespaces = own.of_namespaces(namespaces);
            drop(own);
            let (workers, queues) = (stats.workers.into(), stats.queues.into());
            // One connection is that of this request. The engine of a leader also contains clients of other
            // daemons.
            let own = if role == Role::Alone {
                u64::from(stats.clients).saturating_sub(1)
            } else {
                daemon.connections()
            };
            (
                Some(OfEngine {
                    series,
                    kinds,
                    namespaces,
                    workers,
                    queues,
                    bytes: stats.bytes,
                }),
                own,
                Some(stats),
            )
        }
    };
    let scraped = Scraped {
        engine,
        wall: now.wall,
        protocol_name: protocols
            .into_iter()
            .map(|protocol| (protocol, app.protocol_name(protocol)))
            .collect(),
        connections,
        role,
        clock_ahead_ms: clock::machine_ahead_ms(),
        store_failed: app.readiness() == Readiness::StoreFailed,
        refusing: refusing::hold(&app, stats.as_deref()).into_keys().collect(),
        resident_bytes: (app.daemon.memory_mb)() << 20,
        started_at: now.to_wall(app.started_at),
        daemon,
    };
    let accepts = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .unwrap_or_default();
    let open_metrics = accepts.contains("application/openmetrics-text");
    let content_type = if open_metrics { OPEN_METRICS } else { PLAIN };
    Ok((
        [(header::CONTENT_TYPE, content_type)],
        text(scraped, open_metrics),
    )
        .into_response())
}
