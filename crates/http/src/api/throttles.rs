//! Throttles: which queues have one, and who holds its slots.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use windlass_engine::{LeaseHolder, Query, Reply, ThrottleRow};

use super::queues::Page;
use super::views::Throttle;
use crate::app::{App, Now};
use crate::cursor::CursorText;
use crate::name::Name;
use crate::params::{Params, rows};
use crate::problem::{Outcome, Problem};

/// A queue with a throttle.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Throttled {
    /// The queue.
    pub(crate) queue: Name,
    /// Whether a client has used the queue. Otherwise only the configuration names it.
    pub(crate) used: bool,
    /// Its throttle.
    pub(crate) throttle: Throttle,
    /// Its jobs that wait to be taken.
    pub(crate) ready: u32,
    /// The earliest holders of its slots; 10 at most.
    pub(crate) holders: Vec<SlotHolder>,
}

/// A job that holds a slot.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SlotHolder {
    /// The job.
    pub(crate) job: u64,
    /// The name of the worker that has it, if it has given one.
    pub(crate) worker: Option<Name>,
    /// The address of the worker's connection, if the lease ends with the connection.
    pub(crate) address: Option<Box<str>>,
    /// Since when.
    pub(crate) since: Option<String>,
}

/// A page of queues with throttles.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ThrottlePage {
    /// The rows.
    pub(crate) throttles: Vec<Throttled>,
    /// The cursor of the next page; null at the end.
    pub(crate) next: Option<CursorText>,
}

/// Queues with throttles, and who holds their slots
#[utoipa::path(get, path = "/api/v1/throttles", tag = "queues", operation_id = "list_throttles", params(Page), responses(
    (status = 200, body = ThrottlePage), (status = 400, body = Problem)
))]
pub(crate) async fn list(State(app): State<Arc<App>>, Params(page): Params<Page>) -> Outcome<Json<ThrottlePage>> {
    let (after, limit) = (page.cursor(), rows(page.limit)?);
    let Reply::Throttles { rows, next } = app.ask(Query::Throttles { after, limit }).await? else {
        return Err(Problem::unexpected());
    };
    let now = app.now();
    let throttles = rows.into_iter().map(|row| Throttled::of(row, now)).collect();
    Ok(Json(ThrottlePage { throttles, next: next.map(CursorText) }))
}

impl Throttled {
    fn of(ThrottleRow { queue, known, throttle, slots_held, ready, holders }: ThrottleRow, now: Now) -> Self {
        let holder = |(job, since, LeaseHolder { worker, address, .. }): (windlass_engine::JobId, _, _)| SlotHolder {
            job: job.0,
            worker: Name::of(&worker),
            address: Some(address).filter(|address| !address.is_empty()),
            since: now.text(since),
        };
        Self {
            queue: Name(queue),
            used: known,
            throttle: Throttle::of(throttle, slots_held),
            ready,
            holders: holders.into_iter().map(holder).collect(),
        }
    }
}
