//! Batches: list, get.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use windlass_engine::{BatchView, CallbackState, Query, Reply};

use super::queues::Page;
use crate::app::App;
use crate::cursor::CursorText;
use crate::name::Name;
use crate::params::{Params, Segments, rows};
use crate::problem::{Outcome, Problem};
use crate::time::moment_text;

/// Jobs that belong together, and the callbacks that follow them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Batch {
    /// Its name.
    pub(crate) name: Name,
    /// The protocol of its producer.
    pub(crate) protocol: &'static str,
    /// The batch that it is in.
    pub(crate) parent: Option<Name>,
    /// What its producer wrote about it.
    pub(crate) description: String,
    /// When it was created.
    pub(crate) created_at: Option<String>,
    /// Whether no more jobs are announced, so that its callbacks may be pushed.
    pub(crate) committed: bool,
    /// Jobs that have joined it.
    pub(crate) total: u64,
    /// Of these, those that have not succeeded.
    pub(crate) pending: u64,
    /// Of the pending ones, those that ran, or can no longer run.
    pub(crate) failed: u64,
    /// The callback for when all jobs have run: `none`, `pushed` or `succeeded`.
    pub(crate) complete: &'static str,
    /// The callback for when all jobs have succeeded: `none`, `pushed` or `succeeded`.
    pub(crate) success: &'static str,
}

/// A page of batches.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchPage {
    /// The rows.
    pub(crate) batches: Vec<Batch>,
    /// The cursor of the next page; null at the end.
    pub(crate) next: Option<CursorText>,
}

/// Batches, the oldest first
#[utoipa::path(get, path = "/api/v1/batches", tag = "batches", operation_id = "list_batches", params(Page), responses(
    (status = 200, body = BatchPage), (status = 400, body = Problem)
))]
pub(crate) async fn list(State(app): State<Arc<App>>, Params(page): Params<Page>) -> Outcome<Json<BatchPage>> {
    let (after, limit) = (page.cursor(), rows(page.limit)?);
    let Reply::Batches { rows, next } = app.ask(Query::Batches { after, limit }).await? else {
        return Err(Problem::unexpected());
    };
    let batches = rows.iter().map(|row| Batch::of(row, &app)).collect();
    Ok(Json(BatchPage { batches, next: next.map(CursorText) }))
}

/// One batch
#[utoipa::path(get, path = "/api/v1/batches/{batch}", tag = "batches", operation_id = "get_batch",
    params(("batch" = String, Path, description = "Its name")),
    responses((status = 200, body = Batch), (status = 404, body = Problem))
)]
pub(super) async fn get(State(app): State<Arc<App>>, Segments(batch): Segments<Name>) -> Outcome<Json<Batch>> {
    let Reply::Batch(view) = app.ask(Query::Batch { batch: batch.0 }).await? else { return Err(Problem::unexpected()) };
    Ok(Json(Batch::of(&view, &app)))
}

impl Batch {
    fn of(view: &BatchView, app: &App) -> Self {
        Self {
            name: Name(view.name.clone()),
            protocol: app.protocol_name(view.protocol),
            parent: view.parent.clone().map(Name),
            description: String::from_utf8_lossy(&view.about).into_owned(),
            created_at: moment_text(view.created_at),
            committed: view.committed,
            total: view.total,
            pending: view.pending,
            failed: view.failed,
            complete: state_name(view.complete),
            success: state_name(view.success),
        }
    }
}

const fn state_name(state: CallbackState) -> &'static str {
    match state {
        CallbackState::None => "none",
        CallbackState::Enqueued => "pushed",
        CallbackState::Ok => "succeeded",
    }
}
