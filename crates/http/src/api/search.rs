//! A search for jobs and queues by ID, jid, handle, unique ID, message ID, or queue name.

use axum::Json;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass_config::is_near;
use windlass_engine::{Cursor, Filter, JobId, JobRef, Protocol, Query, QueueRow, Reply};

use crate::app::{App, Shared};
use crate::name::Name;
use crate::params::Params;
use crate::problem::{Outcome, Problem};

/// The limit of jobs with the same name.
const JOBS_MAX: u32 = 20;

/// The most queues of a similar name.
const NEAR_MAX: usize = 10;

/// The search text.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// A job's number, FWP's jid, Gearman's handle or unique id, spiderq's key, EventMQ's message id, or a queue's name.
    pub(crate) q: String,
}

/// What was found.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Found {
    /// The numbers of the jobs, the oldest first.
    pub(crate) jobs: Vec<u64>,
    /// The queue of this name, if there is one.
    pub(crate) queue: Option<Name>,
    /// Queues with a name like this, if nothing has the name itself; 10 at most.
    pub(crate) near: Vec<Name>,
}

/// Jobs and queues by whatever name people know
#[utoipa::path(get, path = "/api/v1/search", tag = "jobs", operation_id = "search", params(Wanted), responses(
    (status = 200, body = Found), (status = 400, body = Problem)
))]
pub(crate) async fn search(app: Shared, Params(wanted): Params<Wanted>) -> Outcome<Json<Found>> {
    let text = wanted.q.trim();
    let name = text.parse::<Name>().map_err(Problem::bad_request)?.0;
    let mut jobs = Vec::new();
    if !text.is_empty() {
        // A Gearman handle ends with the job's ID: H:HOST:17.
        let number = text
            .strip_prefix("H:")
            .and_then(|handle| handle.rsplit(':').next())
            .unwrap_or(text);
        if let Ok(number) = number.parse() {
            jobs.extend(job(&app, JobRef::Id(JobId(number))).await?);
        }
        jobs.extend(named(&app, name.clone()).await?);
        for protocol in Protocol::ALL {
            let key = JobRef::KeyAnywhere {
                protocol: protocol.id,
                key: name.clone(),
            };
            jobs.extend(job(&app, key).await?);
        }
        jobs.sort_unstable();
        jobs.dedup();
    }
    let queue = app.queue(name).await?.map(|row| Name(row.name));
    let near = if queue.is_none() && jobs.is_empty() {
        near(&app, text).await?
    } else {
        Vec::new()
    };
    Ok(Json(Found { jobs, queue, near }))
}

/// Queues with the text in the name, or with a similar name; the most similar first.
async fn near(app: &App, text: &str) -> Outcome<Vec<Name>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let wanted = text.to_lowercase();
    // Without a namespace, names are looked up in that without a name.
    let is_known = |row: &QueueRow| app.namespace().is_some() || row.namespace.is_empty();
    let rows = app.queues().await?.into_iter().filter(is_known);
    let names = rows.map(|row| Name(row.name));
    let like = names.filter(|name| {
        let name = name.to_string().to_lowercase();
        name.contains(&wanted) || is_near(&wanted, &name)
    });
    let mut near: Vec<Name> = like.collect();
    near.sort_by_cached_key(|name| {
        name.to_string()
            .chars()
            .count()
            .abs_diff(text.chars().count())
    });
    near.truncate(NEAR_MAX);
    Ok(near)
}

async fn job(app: &App, which: JobRef) -> Outcome<Option<u64>> {
    let Reply::Looked { job, .. } = app.ask(Query::Job(which)).await? else {
        return Err(Problem::unexpected());
    };
    Ok(job.map(|view| view.job.id.0))
}

async fn named(app: &App, name: Bytes) -> Outcome<Vec<u64>> {
    let filter = Filter {
        names: vec![name],
        ..Filter::default()
    };
    let query = Query::Jobs {
        filter: filter.into(),
        after: Cursor::default(),
        limit: JOBS_MAX,
    };
    let Reply::Jobs { rows, .. } = app.ask(query).await? else {
        return Err(Problem::unexpected());
    };
    Ok(rows.into_iter().map(|view| view.job.id.0).collect())
}
