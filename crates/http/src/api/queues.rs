//! Queues: list, get, pause, resume, clear, throttle, limit, remove. Pause, resume and clear can also be
//! applied to a policy key.
//!
//! A pause, a throttle or a limit may be set before the first job. The response is then 201, which makes a
//! mistyped name visible.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use axum::http::StatusCode;
use axum::{Extension, Json};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass_config::Period;
use windlass_engine::{
    BulkCommand, Condition, Cursor, Filter, JobStateKind, Mutation, Priority, Query, QueueCommand,
    QueueKind, QueueRow, QueueRules, Refusal, Reply, Thing, Throttle,
};

use super::listing::{Page, Rows, page_of, page_type};
use super::policies::pause_key;
use super::views::{Part, Queue};
use crate::app::{App, Shared};
use crate::audit::Affected;
use crate::name::Name;
use crate::params::{Params, Segments};
use crate::problem::{Outcome, Problem};
use crate::view::of_one;

page_type! {
    /// A page of queues.
    QueuePage { queues: Vec<Queue> }
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
pub(crate) async fn list(app: Shared, Params(page): Params<Page>) -> Outcome<Json<QueuePage>> {
    some(&app, page, "").await.map(Into::into)
}

/// Queues with this text in the name, ignoring case.
pub(crate) async fn some(app: &App, page: Page, part: &str) -> Outcome<Rows<Queue>> {
    let (is_sorted, part) = (page.sort.is_some(), &part.to_lowercase());
    let fetch = |after, limit| async move {
        let query = Query::Queues { after, limit };
        let Reply::Queues { rows, next } = app.ask(query.clone()).await? else {
            return Err(Problem::unexpected());
        };
        // Requesting the part of each protocol takes most of the time, so for sorted queues it is done only
        // for the returned page.
        let (parts, now) = (
            if is_sorted {
                Vec::new()
            } else {
                parts(app, &query, &rows).await?
            },
            app.now(),
        );
        let rows = rows.iter().map(|row| Queue::of(row, &parts, app, now));
        Ok((
            rows.filter(|it| it.name.to_string().to_lowercase().contains(part))
                .collect(),
            next,
        ))
    };
    let mut found = page_of(page, fetch).await?;
    for row in found.rows.iter_mut().filter(|_| is_sorted) {
        // A queue may have been removed in the meantime.
        let namespace = row.namespace.as_ref().map_or(&[][..], |name| &name.0);
        if let Ok(whole) = one(&app.beside(namespace), row.name.0.clone()).await {
            *row = whole;
        }
    }
    Ok(found)
}

of_one! {
    /// One queue
    get "/api/v1/queues/{queue}" "queues" "get_queue" 200 Queue, 404;
    pub(crate) fn get(app, queue: Name) -> Json<Queue> { one(&app, queue.0).await.map(Json) }
}

/// Restricts a change to a policy key.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OfKey {
    /// Only jobs with this policy key; an empty one selects jobs without a key.
    key: Option<Name>,
}

/// Hand out no jobs of a queue, or of one of its keys
///
/// A queue that no client has used yet becomes known to all protocols. A paused key holds up no other.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/pause", tag = "queues", operation_id = "pause_queue",
    params(OfKey),
    responses(
        (status = 200, body = Queue), (status = 201, body = Queue, description = "The queue is new"),
        (status = 400, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 429, body = Problem)
    )
)]
pub(super) async fn pause(
    app: Shared,
    Segments(Name(queue)): Segments<Name>,
    Params(OfKey { key }): Params<OfKey>,
) -> Outcome<Set> {
    if let Some(key) = key {
        return Ok((
            StatusCode::OK,
            Json(pause_key(&app, queue, key, true).await?),
        ));
    }
    let before = app.queue(queue.clone()).await?;
    // A pause does not make a queue permanent.
    if before.as_ref().is_none_or(is_unused) {
        app.ask(QueueCommand::Create {
            queue: queue.clone(),
            kind: QueueKind::Work,
        })
        .await?;
    }
    set(
        &app,
        before.is_none(),
        QueueCommand::Pause {
            queue: queue.clone(),
            paused: true,
        },
        queue,
    )
    .await
}

/// Hand out jobs of a queue again, or of one of its keys
#[utoipa::path(post, path = "/api/v1/queues/{queue}/resume", tag = "queues", operation_id = "resume_queue",
    params(OfKey), responses((status = 200, body = Queue), (status = 404, body = Problem))
)]
pub(super) async fn resume(
    app: Shared,
    Segments(queue): Segments<Name>,
    Params(OfKey { key }): Params<OfKey>,
) -> Outcome<Json<Queue>> {
    let named = queue.to_string();
    let resumed = match key {
        Some(key) => pause_key(&app, queue.0, key, false).await,
        None => {
            unset(&app, queue, |queue| QueueCommand::Pause {
                queue,
                paused: false,
            })
            .await
        }
    };
    resumed.map(Json).map_err(|problem| problem.about(&named))
}

/// Remove all jobs of a queue, or of one of its keys, that wait to be taken
///
/// Jobs in other states stay. The jobs are removed a few at a time; jobs that arrive meanwhile may stay.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/clear", tag = "queues", operation_id = "clear_queue",
    params(OfKey), responses((status = 200, body = Changed), (status = 404, body = Problem))
)]
pub(super) async fn clear(
    app: Shared,
    Segments(queue): Segments<Name>,
    Params(OfKey { key }): Params<OfKey>,
) -> Outcome<(Extension<Affected>, Json<Changed>)> {
    let unknown = || Problem::from(Refusal::NotFound(Thing::Queue)).about(&queue.to_string());
    let row = app.queue(queue.0.clone()).await?.ok_or_else(unknown)?;
    let conditions: Vec<_> = key.map(|key| Condition::OfKey(key.0)).into_iter().collect();
    let mut client = app.client();
    let mut all = 0;
    // Parked jobs are first, because they would be scheduled once the jobs ahead of them are removed. Parked
    // entries of spiderq are retained.
    let behind = Some(JobStateKind::Parked).filter(|_| row.kind == QueueKind::Work);
    for state in behind.into_iter().chain([JobStateKind::Ready]) {
        let (queue, conditions) = (Some(row.name.clone()), conditions.clone());
        let filter = Filter {
            queue,
            state: Some(state),
            conditions,
            ..Filter::default()
        };
        let (mut after, mut left) = (Some(Cursor::default()), u64::from(row.jobs(state)));
        // Without the condition this would not end while clients push faster.
        while let Some(page) = after.take().filter(|_| left > 0) {
            let (filter, action) = (filter.clone(), Mutation::Discard);
            let mutate = BulkCommand::Mutate {
                filter: filter.into(),
                action,
                after: page,
                limit: u32::MAX,
            };
            let Reply::Mutated { changed, next } = client.ask(mutate).await? else {
                return Err(Problem::unexpected());
            };
            all += u64::from(changed);
            left = left.saturating_sub(changed.into());
            after = next;
        }
    }
    Ok((Extension(Affected(all)), Json(Changed { changed: all })))
}

/// The limits of a throttle.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Slots {
    /// Jobs of all workers together; no limit, if it is left out.
    #[param(value_type = Option<u32>)]
    concurrency: Option<NonZeroU32>,
    /// Jobs of one worker; no limit, if it is left out.
    #[param(value_type = Option<u32>)]
    per_worker: Option<NonZeroU32>,
    /// A job that a worker has for longer no longer counts.
    #[param(value_type = Option<String>)]
    timeout: Option<Period>,
}

/// The limit of jobs in a queue.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Room {
    /// While the queue has this many jobs that wait or run, a push is refused.
    jobs: u32,
}

/// Limit how many jobs of a queue may be worked on at once
///
/// It holds over restarts and reloads, until the queue's own section of the file changes. The queue need not be in use yet.
#[utoipa::path(put, path = "/api/v1/queues/{queue}/throttle", tag = "queues", operation_id = "throttle_queue",
    params(Slots),
    responses(
        (status = 200, body = Queue), (status = 201, body = Queue, description = "The queue is new"),
        (status = 400, body = Problem), (status = 429, body = Problem)
    )
)]
pub(super) async fn throttle(
    app: Shared,
    Segments(Name(queue)): Segments<Name>,
    Params(Slots {
        concurrency,
        per_worker,
        timeout,
    }): Params<Slots>,
) -> Outcome<Set> {
    if concurrency.is_none() && per_worker.is_none() {
        return Err(Problem::bad_request(
            "concurrency or per_worker is required",
        ));
    }
    let throttle = Throttle {
        leased_max: concurrency.map(NonZeroU32::get),
        per_worker_max: per_worker.map(NonZeroU32::get),
        timeout_ms: timeout.map(Period::as_ms),
        configured: false,
    };
    let is_new = app.queue(queue.clone()).await?.is_none();
    set(
        &app,
        is_new,
        QueueCommand::Throttle {
            queue: queue.clone(),
            throttle: Some(throttle),
        },
        queue,
    )
    .await
}

of_one! {
    /// Let any number of jobs of a queue be worked on at once
    delete "/api/v1/queues/{queue}/throttle" "queues" "unthrottle_queue" 200 Queue, 404;
    pub(super) fn unthrottle(app, queue: Name) -> Json<Queue> {
        let before = one(&app, queue.0.clone()).await?;
        app.ask(QueueCommand::Throttle { queue: queue.0.clone(), throttle: None }).await?;
        // The queue existed only because of the throttle, and is now removed.
        Ok(Json(one(&app, queue.0).await.unwrap_or(Queue { throttle: None, ..before })))
    }
}

/// Limit how many jobs a queue may hold, whatever their priority
///
/// A queue that no client has used yet becomes known to all protocols.
#[utoipa::path(put, path = "/api/v1/queues/{queue}/limit", tag = "queues", operation_id = "limit_queue",
    params(Room),
    responses(
        (status = 200, body = Queue), (status = 201, body = Queue, description = "The queue is new"),
        (status = 400, body = Problem), (status = 429, body = Problem)
    )
)]
pub(super) async fn limit(
    app: Shared,
    Segments(Name(queue)): Segments<Name>,
    Params(Room { jobs }): Params<Room>,
) -> Outcome<Set> {
    let jobs_max = [Some(jobs); Priority::COUNT];
    let is_new = app.queue(queue.clone()).await?.is_none();
    set(
        &app,
        is_new,
        QueueCommand::Limit {
            queue: queue.clone(),
            jobs_max,
        },
        queue,
    )
    .await
}

of_one! {
    /// Let a queue hold any number of jobs
    delete "/api/v1/queues/{queue}/limit" "queues" "unlimit_queue" 200 Queue, 404;
    pub(super) fn unlimit(app, queue: Name) -> Json<Queue> {
        let jobs_max = [None; Priority::COUNT];
        unset(&app, queue, |queue| QueueCommand::Limit { queue, jobs_max }).await.map(Json)
    }

    /// Remove a queue with its pause and its limits
    ///
    /// Refused while a worker serves it, or a job of it is ready, leased, scheduled or waits for a retry. Dead jobs stay,
    /// and so does a throttle. A client that pushes to the queue makes it known again.
    delete "/api/v1/queues/{queue}" "queues" "remove_queue" 204, 404, 409;
    pub(super) fn remove(app, queue: Name) -> StatusCode {
        app.ask(QueueCommand::Remove { queue: queue.0, only_idle: true }).await?;
        Ok(StatusCode::NO_CONTENT)
    }
}

/// A queue after a setting of it has changed; 201 if the queue is new.
pub(super) type Set = (StatusCode, Json<Queue>);

/// Applies a setting that may be set before the first job.
pub(super) async fn set(
    app: &App,
    is_new: bool,
    command: QueueCommand,
    queue: Bytes,
) -> Outcome<Set> {
    app.ask(command).await?;
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(one(app, queue).await?)))
}

/// Removes a setting of an existing queue. The engine accepts unknown names, but a name given by an operator
/// is then probably mistyped.
async fn unset(
    app: &App,
    Name(queue): Name,
    command: impl FnOnce(Bytes) -> QueueCommand,
) -> Outcome<Queue> {
    one(app, queue.clone()).await?;
    app.ask(command(queue.clone())).await?;
    one(app, queue).await
}

/// Returns true if the queue may exist only because of a throttle, rules or a policy.
fn is_unused(row: &QueueRow) -> bool {
    let is_set = row
        .policy
        .as_deref()
        .is_some_and(|policy| policy.set.is_some() || policy.keys_paused > 0);
    let is_special = is_set || row.throttle.is_some() || row.rules != QueueRules::default();
    is_special && row.places.iter().all(|jobs| *jobs == 0)
}

pub(super) async fn one(app: &App, queue: Bytes) -> Outcome<Queue> {
    let row = app
        .queue(queue.clone())
        .await?
        .ok_or(Refusal::NotFound(Thing::Queue))?;
    let page = std::slice::from_ref(&row);
    let parts = parts(app, &Query::Queue { queue }, page).await?;
    Ok(Queue::of(&row, &parts, app, app.now()))
}

/// The queues of a page that the clients of each protocol see, in each namespace of the page. A client with a
/// protocol sees one namespace only.
async fn parts(app: &App, query: &Query, page: &[QueueRow]) -> Outcome<Vec<Part>> {
    let namespaces: BTreeSet<&Bytes> = page.iter().map(|row| &row.namespace).collect();
    let mut parts = Vec::new();
    for namespace in namespaces {
        for (protocol, name) in app.daemon.bridge.protocols() {
            let mut client = app.beside(namespace).client_of(protocol, "");
            let rows = match client.ask(query.clone()).await {
                Ok(Reply::Queues { rows, .. }) => rows,
                Ok(_) => return Err(Problem::unexpected()),
                // The namespace was removed meanwhile, or has as many connections as it may have: its queues
                // are shown without parts.
                Err(Refusal::NotFound(_)) => continue,
                Err(why) => return Err(why.into()),
            };
            parts.push((name, rows));
        }
    }
    Ok(parts)
}
