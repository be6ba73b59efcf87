//! Jobs: list, get; retry, kill, delete, cancel, requeue a single job.

use std::borrow::Cow;
use std::time::Duration;

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use windlass_engine::{
    BulkCommand, Condition, Cursor, Filter, JobId, JobRef, JobStateKind, JobView, LeaseCommand,
    Mutation, Proof, Query, Reply, Why,
};

use super::detail::JobDetail;
use super::filter::Conditions;
use super::listing::{Page, page_of, page_type};
use super::pace::Pace;
use super::views::{Job, state_name};
use crate::app::{App, Shared};
use crate::cursor::CursorText;
use crate::name::Name;
use crate::params::{Body, Segments, TwoParams};
use crate::problem::{Outcome, Problem};
use crate::sight::Sight;
use crate::view::of_one;

page_type! {
    /// A page of jobs. The search for more continues with the next one.
    JobPage { jobs: Vec<Job> }
}

/// Which page of the jobs, in which order.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// `next` of the page before; nothing for the first one.
    pub(crate) cursor: Option<CursorText>,
    /// The most rows, 1 to 1000; 100 if it is left out.
    pub(crate) limit: Option<u32>,
    /// The order. If it is left out: what is due next of scheduled and retrying jobs, what runs next of the ready jobs of a
    /// queue, the oldest of a batch, and the newest of all others.
    #[param(inline)]
    pub(crate) order: Option<Order>,
    /// A field by which the jobs are sorted, as `attempts` or `failure.message`; with a `-` in front the largest comes
    /// first. Jobs without a value are the last.
    pub(crate) sort: Option<String>,
}

/// An order of jobs. Jobs that are found by `ids` or `name` come oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// The newest first; of dead and done jobs the last that ended.
    Newest,
    /// The oldest first; of dead and done jobs the first that ended.
    Oldest,
    /// As they run: the ready jobs of a queue, or the scheduled or retrying ones of all queues.
    Next,
}

/// The time limit for the search of a page.
const SEARCH_MAX: Duration = Duration::from_millis(50);

/// Jobs of all queues, protocols and states
#[utoipa::path(get, path = "/api/v1/jobs", tag = "jobs", operation_id = "list_jobs", params(Conditions, Which), responses(
    (status = 200, body = JobPage), (status = 400, body = Problem)
))]
pub(crate) async fn list(
    app: Shared,
    sight: Sight,
    TwoParams(conditions, which): TwoParams<Conditions, Which>,
) -> Outcome<Json<JobPage>> {
    let conditions = if which.order == Some(Order::Next) {
        conditions.in_turn()?
    } else {
        conditions
    };
    let has_batch = conditions.has_batch();
    let filter = conditions.filter(&app, sight).await?;
    let order = match which.order {
        Some(Order::Newest) => Some(windlass_engine::Order::Newest),
        Some(Order::Oldest) => Some(windlass_engine::Order::Oldest),
        // The engine can skip to the start of a batch.
        None if has_batch => Some(windlass_engine::Order::Oldest),
        Some(Order::Next) if filter.state == Some(JobStateKind::Ready) => {
            Some(windlass_engine::Order::Next)
        }
        Some(Order::Next) | None => None,
    };
    let Which {
        cursor,
        limit,
        sort,
        ..
    } = which;
    let fetch = |from, limit| found(&app, sight, order, &filter, from, limit);
    page_of(
        Page {
            cursor,
            limit,
            sort,
        },
        fetch,
    )
    .await
    .map(Into::into)
}

/// Jobs that match from a cursor on, as far as they are found in time.
async fn found(
    app: &App,
    sight: Sight,
    order: Option<windlass_engine::Order>,
    filter: &Filter,
    begin: Cursor,
    rows_max: u32,
) -> Outcome<(Vec<Job>, Option<Cursor>)> {
    let mut client = app.client();
    let (mut views, mut after, pace) = (Vec::new(), Some(begin), Pace::new(SEARCH_MAX));
    while let Some(from) = after.take() {
        let limit = rows_max.saturating_sub(u32::try_from(views.len()).unwrap_or(u32::MAX));
        let filter = Box::new(filter.clone());
        let query = match order {
            Some(order) => Query::JobsBy {
                order,
                filter,
                after: from,
                limit,
            },
            None => Query::Jobs {
                filter,
                after: from,
                limit,
            },
        };
        let Reply::Jobs { rows, next } = client.ask(query).await? else {
            return Err(Problem::unexpected());
        };
        (views, after) = ([views, rows].concat(), next);
        if views.len() >= rows_max as usize || !pace.goes_on().await {
            break;
        }
    }
    let now = app.now();
    Ok((
        views
            .iter()
            .map(|view| Job::of(view, app, sight, now))
            .collect(),
        after,
    ))
}

/// Everything about a job
#[utoipa::path(get, path = "/api/v1/jobs/{id}", tag = "jobs", operation_id = "get_job",
    responses((status = 200, body = JobDetail), (status = 404, body = Problem)))]
pub(crate) async fn get(
    app: Shared,
    sight: Sight,
    Segments(id): Segments<u64>,
) -> Outcome<Json<JobDetail>> {
    let view = look(&app, id).await?;
    // The job may have finished in the meantime.
    let why = match app.ask(Query::Why(JobRef::Id(JobId(id)))).await {
        Ok(Reply::Why(why)) => Some(why),
        Ok(_) | Err(_) => None,
    };
    let queue = match why {
        Some(Why::Behind { .. } | Why::Turn(_)) => {
            let beside = app.beside(&view.namespace);
            beside.queue(view.queue.clone()).await.ok().flatten()
        }
        _ => None,
    };
    let batch = batch_of(&app, &view).await;
    let attempts = match app.ask(Query::Attempts(JobRef::Id(JobId(id)))).await {
        Ok(Reply::Attempts(attempts)) => attempts,
        Ok(_) | Err(_) => Vec::new(),
    };
    Ok(Json(JobDetail::of(
        &view,
        why,
        queue.as_ref(),
        batch,
        &attempts,
        &app,
        sight,
    )))
}

/// The name of a job's batch; `None` if the batch was removed.
async fn batch_of(app: &App, view: &JobView) -> Option<Name> {
    let member = view.job.extra.as_deref()?.member?;
    let batches = Query::Batches {
        after: Cursor(member.batch.0, 0),
        limit: 1,
    };
    let Ok(Reply::Batches { rows, .. }) = app.ask(batches).await else {
        return None;
    };
    // The first batch from that ID on: the job's batch, or a later one.
    let name = rows.into_iter().next()?.name;
    let conditions = vec![Condition::InBatch(name.clone())];
    let filter = Box::new(Filter {
        ids: vec![view.job.id],
        conditions,
        ..Filter::default()
    });
    let Ok(Reply::Jobs { rows, .. }) = app
        .beside(&view.namespace)
        .ask(Query::Jobs {
            filter,
            after: Cursor::default(),
            limit: 1,
        })
        .await
    else {
        return None;
    };
    (!rows.is_empty()).then_some(Name(name))
}

/// The bytes of a job's body
#[utoipa::path(get, path = "/api/v1/jobs/{id}/body", tag = "jobs", operation_id = "get_job_body",
    responses((status = 200, body = Body, content_type = "application/octet-stream"), (status = 404, body = Problem)))]
pub(super) async fn body(
    app: Shared,
    sight: Sight,
    Segments(id): Segments<u64>,
) -> Outcome<Response> {
    let view = look(&app, id).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CONTENT_DISPOSITION, "attachment"),
    ];
    let job = &view.job;
    let body = match sight.body(&app, (&*view).into(), job.body()) {
        Cow::Borrowed(_) => job.payload.share_body(),
        Cow::Owned(shown) => shown.into(),
    };
    Ok((headers, body).into_response())
}

of_one! {
    /// Make a job ready now that is dead, scheduled or waits for a retry
    post "/api/v1/jobs/{id}/retry" "jobs" "retry_job" 200 Job, 404, 409;
    pub(super) fn retry(app, id: u64) -> Json<Job> {
        mutate(&app, id, Mutation::Requeue).await?;
        row(&app, id).await.map(Json)
    }

    /// Move a job to the dead-letter queue, unless a worker has it
    post "/api/v1/jobs/{id}/kill" "jobs" "kill_job" 200 Job, 404, 409;
    pub(super) fn kill(app, id: u64) -> Json<Job> {
        mutate(&app, id, Mutation::Kill).await?;
        row(&app, id).await.map(Json)
    }

    /// Take a job back from its worker
    ///
    /// It returns to its place in the queue. What the worker reports afterwards is refused.
    post "/api/v1/jobs/{id}/requeue" "jobs" "requeue_job" 200 Job, 404, 409;
    pub(super) fn requeue(app, id: u64) -> Json<Job> {
        let job = JobRef::Id(JobId(id));
        app.ask(LeaseCommand::Release { job, proof: Proof::AnyLease, front: false }).await?;
        row(&app, id).await.map(Json)
    }

    /// Remove a job, unless a worker has it
    delete "/api/v1/jobs/{id}" "jobs" "delete_job" 204, 404, 409;
    pub(super) fn delete(app, id: u64) -> StatusCode {
        mutate(&app, id, Mutation::Discard).await?;
        Ok(StatusCode::NO_CONTENT)
    }

    /// Remove a job, whatever its state
    ///
    /// If a worker has it, what the worker reports afterwards is refused.
    post "/api/v1/jobs/{id}/cancel" "jobs" "cancel_job" 204, 404;
    pub(super) fn cancel(app, id: u64) -> StatusCode {
        mutate(&app, id, Mutation::Cancel).await?;
        Ok(StatusCode::NO_CONTENT)
    }
}

/// Modifies a job. An error if the state does not allow that.
async fn mutate(app: &App, id: u64, action: Mutation) -> Outcome<()> {
    let filter = Filter {
        ids: vec![JobId(id)],
        ..Filter::default()
    };
    let mutate = BulkCommand::Mutate {
        filter: filter.into(),
        action,
        after: Cursor::default(),
        limit: 1,
    };
    let Reply::Mutated { changed, .. } = app.ask(mutate).await? else {
        return Err(Problem::unexpected());
    };
    if changed > 0 {
        return Ok(());
    }
    let view = look(app, id).await?;
    Err(Problem::conflict(format!(
        "the job is {}",
        state_name(view.job.state.kind())
    )))
}

async fn row(app: &App, id: u64) -> Outcome<Job> {
    let view = look(app, id).await?;
    Ok(Job::of(&view, app, Sight::Whole, app.now()))
}

async fn look(app: &App, id: u64) -> Outcome<Box<JobView>> {
    let Reply::Looked { job, .. } = app.ask(Query::Job(JobRef::Id(JobId(id)))).await? else {
        return Err(Problem::unexpected());
    };
    job.ok_or_else(|| {
        Problem::not_found(format!(
            "there is no job {id}: a job that has ended is forgotten"
        ))
    })
}
