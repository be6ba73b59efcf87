//! Queues: list, get, pause, resume, clear.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass_engine::{BulkCommand, Cursor, Filter, JobStateKind, Mutation, Query, QueueCommand, Reply};

use super::views::Queue;
use crate::app::App;
use crate::cursor::CursorText;
use crate::name::Name;
use crate::params::{Params, Segments, rows};
use crate::problem::{Outcome, Problem};

/// Which page of a listing.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Page {
    /// `next` of the page before; nothing for the first one.
    cursor: Option<CursorText>,
    /// The most rows, 1 to 1000; 100 if it is left out.
    pub(super) limit: Option<u32>,
}

impl Page {
    pub(super) fn cursor(&self) -> Cursor {
        self.cursor.unwrap_or_default().0
    }
}

/// A page of queues.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct QueuePage {
    /// The rows.
    queues: Vec<Queue>,
    /// The cursor of the next page; null at the end. A page that is not the last may be short.
    next: Option<CursorText>,
}

/// What a change did.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Changed {
    /// How many jobs it changed.
    changed: u64,
}

/// All queues
#[utoipa::path(get, path = "/api/v1/queues", tag = "queues", operation_id = "list_queues", params(Page), responses(
    (status = 200, body = QueuePage), (status = 400, body = Problem)
))]
pub(super) async fn list(State(app): State<Arc<App>>, Params(page): Params<Page>) -> Outcome<Json<QueuePage>> {
    let (after, limit) = (page.cursor(), rows(page.limit)?);
    let Reply::Queues { rows, next } = app.ask(Query::Queues { after, limit }).await? else {
        return Err(Problem::unexpected());
    };
    let now = app.now();
    let queues = rows.iter().map(|row| Queue::of(row, now)).collect();
    Ok(Json(QueuePage { queues, next: next.map(CursorText) }))
}

/// One queue
#[utoipa::path(get, path = "/api/v1/queues/{queue}", tag = "queues", operation_id = "get_queue",
    params(("queue" = String, Path, description = "Its name")),
    responses((status = 200, body = Queue), (status = 404, body = Problem))
)]
pub(super) async fn get(State(app): State<Arc<App>>, Segments(queue): Segments<Name>) -> Outcome<Json<Queue>> {
    one(&app, &queue).await.map(Json)
}

/// Hand out no jobs of a queue
#[utoipa::path(post, path = "/api/v1/queues/{queue}/pause", tag = "queues", operation_id = "pause_queue",
    params(("queue" = String, Path, description = "Its name")),
    responses((status = 200, body = Queue), (status = 404, body = Problem))
)]
pub(super) async fn pause(State(app): State<Arc<App>>, Segments(queue): Segments<Name>) -> Outcome<Json<Queue>> {
    set_paused(&app, &queue, true).await.map(Json)
}

/// Hand out jobs of a queue again
#[utoipa::path(post, path = "/api/v1/queues/{queue}/resume", tag = "queues", operation_id = "resume_queue",
    params(("queue" = String, Path, description = "Its name")),
    responses((status = 200, body = Queue), (status = 404, body = Problem))
)]
pub(super) async fn resume(State(app): State<Arc<App>>, Segments(queue): Segments<Name>) -> Outcome<Json<Queue>> {
    set_paused(&app, &queue, false).await.map(Json)
}

/// Remove all jobs of a queue that wait to be taken
///
/// Jobs in other states stay. The jobs are removed a few at a time; jobs that arrive meanwhile may stay.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/clear", tag = "queues", operation_id = "clear_queue",
    params(("queue" = String, Path, description = "Its name")),
    responses((status = 200, body = Changed), (status = 404, body = Problem))
)]
pub(super) async fn clear(State(app): State<Arc<App>>, Segments(queue): Segments<Name>) -> Outcome<Json<Changed>> {
    let Some(row) = app.queue(queue.0.clone()).await? else { return Err(unknown()) };
    let at_first = u64::from(row.jobs(JobStateKind::Ready));
    let filter = Filter { queue: Some(queue.0), state: Some(JobStateKind::Ready), ..Filter::default() };
    let mut client = app.client();
    let (mut all, mut after) = (0, Some(Cursor::default()));
    // Without the first condition this would not end while clients push faster.
    while let Some(page) = after.take().filter(|_| all < at_first) {
        let (filter, action) = (filter.clone(), Mutation::Discard);
        let mutate = BulkCommand::Mutate { filter: filter.into(), action, after: page, limit: u32::MAX };
        let Reply::Mutated { changed, next } = client.ask(mutate).await? else { return Err(Problem::unexpected()) };
        all += u64::from(changed);
        after = next;
    }
    Ok(Json(Changed { changed: all }))
}

async fn set_paused(app: &App, queue: &Name, paused: bool) -> Outcome<Queue> {
    // Pausing an unknown queue is no error in the engine, but it is one of the operator.
    one(app, queue).await?;
    app.ask(QueueCommand::Pause { queue: queue.0.clone(), paused }).await?;
    one(app, queue).await
}

async fn one(app: &App, queue: &Name) -> Outcome<Queue> {
    let row = app.queue(queue.0.clone()).await?;
    row.map(|row| Queue::of(&row, app.now())).ok_or_else(unknown)
}

fn unknown() -> Problem {
    Problem::not_found("queue unknown")
}
