//! The export of the complete store, or of one namespace.

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use windlass_daemon::export::NoExport;

use crate::app::Shared;
use crate::problem::{Outcome, Problem};

/// Everything that the daemon keeps, or a namespace, as of one commit
///
/// Lines of JSON: jobs in all states with their bodies, queues with their settings, schedules, batches, counters. The
/// first line names the commit; changes after it are not in the lines, and those before it are. An answer whose last
/// line is not `export_end` was cut short. `windlass import jsonl` restores it. One export runs at a time. With
/// `namespace` it has nothing of other namespaces.
#[utoipa::path(get, path = "/api/v1/export", tag = "status", operation_id = "export", responses(
    (status = 200, description = "The lines", body = String, content_type = "text/plain"),
    (status = 409, description = "Another export is running", body = Problem),
    (status = 503, description = "The store cannot be read, or the daemon stops", body = Problem)
))]
pub(super) async fn export(app: Shared) -> Outcome<Response> {
    let mut export = app
        .exports
        .begin(app.namespace())
        .map_err(|why| problem(&why))?;
    // The export may still fail while the picture is being created.
    let first = export.next().await.map_err(|why| problem(&why))?;
    let lines = stream::try_unfold((first, export), |(first, mut export)| async {
        let chunk = match first {
            Some(chunk) => Some(chunk),
            None => export.next().await?,
        };
        Ok::<_, NoExport>(chunk.map(|chunk| (chunk, (None, export))))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        // A browser saves it.
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"windlass-export.jsonl\"",
        ),
    ];
    Ok((headers, Body::from_stream(lines)).into_response())
}

fn problem(why: &NoExport) -> Problem {
    match why {
        NoExport::Busy => Problem::conflict(why),
        NoExport::Stopping | NoExport::Elsewhere | NoExport::Failed(_) => {
            Problem::unavailable("unavailable", why)
        }
    }
}
