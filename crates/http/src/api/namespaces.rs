//! Namespaces: list them with what each uses, limit, pause, resume, empty and remove them.
//!
//! A path with a namespace and a verb is about that namespace, as if the parameter named it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass_config::Period;
use windlass_engine::{
    BulkCommand, Capacity, Cursor, NamespaceCommand, NamespaceLimits, NamespaceRow, Protocols,
    PushRate, Query, QueueCommand, QueueMove, QueueRow, Reply, is_valid_name,
};

use super::bulk::{self, ManyChanged};
use super::listing::{Page, page_of, page_type};
use super::pace::Pace;
use crate::access::Visitor;
use crate::app::{App, Shared};
use crate::audit::Affected;
use crate::cursor::CursorText;
use crate::login::Grant;
use crate::name::Name;
use crate::namespace::{Place, UNNAMED, in_words};
use crate::params::{Params, Segments};
use crate::problem::{Outcome, Problem};
use crate::time::moment_text;
use crate::view::{of_one, view};

/// How long the queues of a namespace are paused or resumed. The next request continues.
const TIME_MAX: Duration = Duration::from_secs(10);

/// The period of a limit of pushes, if the request has none.
const PER: Period = Period::from_secs(1);

view! {
    /// A namespace, and what it uses.
    Namespace(row: &NamespaceRow) {
        /// Its name; empty for the namespace without one, which always exists.
        name: Name = Name(row.name.clone()),
        /// Its jobs, all states together.
        jobs: u64 = row.jobs,
        /// Bytes that its jobs, schedules and batches count as.
        bytes: u64 = row.bytes,
        /// Its queues.
        queues: u32 = row.queues,
        /// Its open connections.
        connections: u32 = row.clients,
        /// What it may use.
        limits: Limits = Limits::of(&row.limits),
        /// Pushes refused at one of these limits since the daemon has started.
        refused: u64 = row.refused,
        /// The limit at which a push was refused last; null if none was.
        refused_last: Option<RefusedLast> = row.refused_last.map(|(what, at)| RefusedLast::of(what, moment_text(at))),
    }
}

view! {
    /// What a namespace may use; null: no more than the daemon's own limits allow.
    Limits(limits: &NamespaceLimits) {
        /// Jobs in all states.
        jobs_max: Option<u64> = limits.jobs_max,
        /// Bytes of its jobs.
        job_bytes_max: Option<u64> = limits.job_bytes_max,
        /// Queues.
        queues_max: Option<u32> = limits.queues_max,
        /// Connections.
        connections_max: Option<u32> = limits.clients_max,
        /// Pushes in each period.
        pushes_max: Option<u32> = limits.pushes.map(|rate| rate.jobs),
        /// That period.
        pushes_per: Option<String> = limits.pushes.map(|rate| Period::from_ms(rate.per_ms).to_string()),
    }
}

view! {
    /// A refusal at a limit of a namespace.
    RefusedLast(of: Capacity, moment: Option<String>) {
        /// `jobs`, `bytes`, `queues`, `connections` or `pushes`.
        limit: &'static str = limit_name(of),
        /// When.
        at: Option<String> = moment,
    }
}

/// The limit of a namespace, for programs.
pub(crate) fn limit_name(limit: Capacity) -> &'static str {
    const NAMES: [(Capacity, &str); 4] = [
        (Capacity::NamespaceBytes, "bytes"),
        (Capacity::NamespaceQueues, "queues"),
        (Capacity::NamespaceClients, "connections"),
        (Capacity::NamespacePushes, "pushes"),
    ];
    let named = NAMES.into_iter().find(|(of, _)| *of == limit);
    named.map_or("jobs", |(_, name)| name)
}

page_type! {
    /// A page of namespaces.
    NamespacePage { namespaces: Vec<Namespace> }
}

/// Namespaces, and what each uses
///
/// A login that is limited to namespaces gets these only.
#[utoipa::path(get, path = "/api/v1/namespaces", tag = "namespaces", operation_id = "list_namespaces", params(Page), responses(
    (status = 200, body = NamespacePage), (status = 400, body = Problem)
))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    Params(page): Params<Page>,
) -> Outcome<Json<NamespacePage>> {
    let (app, visitor) = (&app, &visitor);
    let fetch = |after, limit| async move {
        match &visitor.identity.grant {
            Grant::Everywhere(_) => {
                let namespace = visitor.place.clone()?.namespace;
                some(&app.within(namespace), after, limit).await
            }
            Grant::In(roles) => {
                if let Ok(Place { namespace, .. }) = &visitor.place {
                    return some(&app.within(namespace.clone()), after, limit).await;
                }
                let mut own = Vec::new();
                for name in roles.keys() {
                    // A login may name a namespace that does not exist yet.
                    if let Ok((rows, _)) = some(&app.within(Some(name.clone())), after, 1).await {
                        own.extend(rows);
                    }
                }
                Ok((own, None))
            }
        }
    };
    page_of(page, fetch).await.map(Into::into)
}

/// A page of the namespaces that a request sees.
async fn some(app: &App, after: Cursor, limit: u32) -> Outcome<(Vec<Namespace>, Option<Cursor>)> {
    let Reply::Namespaces { rows, next } = app.ask(Query::Namespaces { after, limit }).await?
    else {
        return Err(Problem::unexpected());
    };
    Ok((rows.iter().map(Namespace::of).collect(), next))
}

/// What a namespace may use.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Quota {
    /// Jobs in all states; no limit, if it is left out.
    jobs_max: Option<u64>,
    /// Bytes of its jobs; no limit, if it is left out.
    job_bytes_max: Option<u64>,
    /// Queues; no limit, if it is left out.
    queues_max: Option<u32>,
    /// Connections; no limit, if it is left out.
    connections_max: Option<u32>,
    /// Pushes in each `pushes_per`, evenly, after a burst of as many; no limit, if it is left out.
    #[param(value_type = Option<u32>)]
    pushes_max: Option<NonZeroU32>,
    /// With `pushes_max`: the period; 1s if it is left out.
    #[param(value_type = Option<String>)]
    pushes_per: Option<Period>,
}

impl Quota {
    fn limits(&self) -> Outcome<NamespaceLimits> {
        let per = self.pushes_per.unwrap_or(PER);
        if per.is_zero() {
            return Err(Problem::bad_request("pushes_per must be more than 0"));
        }
        if self.pushes_max.is_none() && self.pushes_per.is_some() {
            return Err(Problem::bad_request("pushes_per needs pushes_max"));
        }
        let rate = |jobs: NonZeroU32| PushRate {
            jobs: jobs.get(),
            per_ms: per.as_ms(),
        };
        Ok(NamespaceLimits {
            jobs_max: self.jobs_max,
            job_bytes_max: self.job_bytes_max,
            queues_max: self.queues_max,
            clients_max: self.connections_max,
            pushes: self.pushes_max.map(rate),
        })
    }
}

/// Create a namespace, or set what it may use
///
/// All limits are set, in place of those before. What is beyond a new limit stays. A section of the configuration for the
/// namespace sets them again when the daemon starts.
#[utoipa::path(put, path = "/api/v1/namespaces/{namespace}", tag = "namespaces", operation_id = "set_namespace",
    params(Quota),
    responses(
        (status = 200, body = Namespace), (status = 201, body = Namespace, description = "The namespace is new"),
        (status = 400, body = Problem), (status = 403, body = Problem), (status = 429, body = Problem)
    )
)]
pub(super) async fn set(
    app: Shared,
    Segments(name): Segments<String>,
    Params(quota): Params<Quota>,
) -> Outcome<(StatusCode, Json<Namespace>)> {
    let limits = Box::new(quota.limits()?);
    if !is_valid_name(name.as_bytes()) {
        return Err(Problem::bad_request(
            "a namespace must have a name of 1 to 64 letters, digits, -, _ and ., beginning with a letter or a digit",
        ));
    }
    let within = app.within(Some(name.as_str().into()));
    let is_new = within.check_namespace().await.is_err();
    let name = name.into_bytes().into();
    app.ask(NamespaceCommand::Set { name, limits }).await?;
    let (rows, _) = some(&within, Cursor::default(), 1).await?;
    let row = rows.into_iter().next().ok_or_else(Problem::unexpected)?;
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(row)))
}

of_one! {
    /// Remove a namespace
    ///
    /// Refused while it has queues, schedules, batches, workers or connections.
    delete "/api/v1/namespaces/{namespace}" "namespaces" "remove_namespace" 204, 403, 404, 409;
    pub(super) fn remove(app, namespace: Name) -> StatusCode {
        app.ask(NamespaceCommand::Remove { name: namespace.0 }).await?;
        Ok(StatusCode::NO_CONTENT)
    }
}

/// What became of the queues of a namespace.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct QueuesChanged {
    /// How many were paused, or resumed. Those that were so before do not count.
    changed: u64,
    /// Null if all queues were seen. Otherwise the time of one request is over: the same request with this `cursor`
    /// continues.
    next: Option<CursorText>,
}

/// Where to go on.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Onward {
    /// `next` of the answer before; nothing for the first request.
    cursor: Option<CursorText>,
}

/// Hand out no jobs of all queues of a namespace
///
/// A queue that a client uses for the first time afterwards is not paused. `~` stands for the namespace without a name.
#[utoipa::path(post, path = "/api/v1/namespaces/{namespace}/pause", tag = "namespaces", operation_id = "pause_namespace",
    params(Onward), responses((status = 200, body = QueuesChanged), (status = 404, body = Problem))
)]
pub(super) async fn pause(
    app: Shared,
    Params(from): Params<Onward>,
) -> Outcome<Json<QueuesChanged>> {
    set_paused(&app, from, true).await.map(Json)
}

/// Hand out jobs of all queues of a namespace again
///
/// Also of those that were paused one by one. `~` stands for the namespace without a name.
#[utoipa::path(post, path = "/api/v1/namespaces/{namespace}/resume", tag = "namespaces", operation_id = "resume_namespace",
    params(Onward), responses((status = 200, body = QueuesChanged), (status = 404, body = Problem))
)]
pub(super) async fn resume(
    app: Shared,
    Params(from): Params<Onward>,
) -> Outcome<Json<QueuesChanged>> {
    set_paused(&app, from, false).await.map(Json)
}

async fn set_paused(app: &App, Onward { cursor }: Onward, paused: bool) -> Outcome<QueuesChanged> {
    const PAGE: u32 = 100;
    let differs = |row: &QueueRow| match paused {
        true => row.paused != Protocols::ALL,
        false => row.is_paused(),
    };
    let (mut client, pace) = (app.client(), Pace::new(TIME_MAX));
    let (mut changed, mut after) = (0, Some(cursor.unwrap_or_default().0));
    while let Some(from) = after.take() {
        let query = Query::Queues {
            after: from,
            limit: PAGE,
        };
        let Reply::Queues { rows, next } = client.ask(query).await? else {
            return Err(Problem::unexpected());
        };
        for row in rows.into_iter().filter(differs) {
            let queue = row.name;
            client.ask(QueueCommand::Pause { queue, paused }).await?;
            changed += 1;
        }
        after = next;
        if !pace.goes_on().await {
            break;
        }
    }
    Ok(QueuesChanged {
        changed,
        next: after.map(CursorText),
    })
}

/// How to empty a namespace.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Emptied {
    /// Only count the jobs.
    #[serde(default)]
    #[param(value_type = Option<bool>)]
    dry_run: bool,
    /// `next` of the answer before; nothing for the first request.
    cursor: Option<CursorText>,
}

/// Remove all jobs of a namespace, whatever their state
///
/// A worker's later report on a job that it had is refused. Queues, schedules and batches stay, and jobs that arrive
/// meanwhile may. `~` stands for the namespace without a name.
#[utoipa::path(post, path = "/api/v1/namespaces/{namespace}/empty", tag = "namespaces", operation_id = "empty_namespace",
    params(Emptied), responses((status = 200, body = ManyChanged), (status = 404, body = Problem))
)]
pub(super) async fn empty(
    app: Shared,
    Params(Emptied { dry_run, cursor }): Params<Emptied>,
) -> Outcome<ManyChanged> {
    bulk::cancel_all(&app, cursor, dry_run).await
}

/// Where a queue moves.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Way {
    /// The other namespace; `~` is the one without a name.
    to: String,
    /// `next` of the answer before; nothing for the first request.
    cursor: Option<CursorText>,
}

/// What became of a queue that moves.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct QueueMoved {
    /// How many jobs this request has moved.
    changed: u64,
    /// How many it has left in the first namespace.
    left: u64,
    /// Null if all jobs were seen. Otherwise the time of one request is over: the same request with this `cursor`
    /// continues.
    next: Option<CursorText>,
}

/// Move the jobs of a queue to another namespace
///
/// They go to the queue of the same name, which is created with the same settings if there is none, and keep their
/// numbers, names, times and order. Some stay: those that a worker has, that are members of a batch, whose client waits
/// for them, that are ahead of others or behind them, and those with a unique id that a job has there. The queue is
/// removed if nothing is left in it and no worker serves it. Schedules stay, and push to the first namespace.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/move", tag = "namespaces", operation_id = "move_queue",
    params(Way), responses(
        (status = 200, body = QueueMoved), (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 429, body = Problem)
    )
)]
pub(super) async fn move_queue(
    app: Shared,
    Segments(Name(queue)): Segments<Name>,
    Extension(visitor): Extension<Visitor>,
    Params(Way { to, cursor }): Params<Way>,
) -> Outcome<(Extension<Affected>, Json<QueueMoved>)> {
    if matches!(visitor.identity.grant, Grant::In(_)) {
        return Err(Problem::forbidden(
            "a queue moves between two namespaces, and this login is only for some",
        ));
    }
    let from = app.namespace().unwrap_or_default();
    let to = if to == UNNAMED { "" } else { &*to };
    if from == to {
        return Err(Problem::bad_request(format!(
            "the queue is in {}",
            in_words(to)
        )));
    }
    let mut client = app.within(None).client();
    let pace = Pace::new(TIME_MAX);
    let mut changed = 0;
    let mut after = Some(cursor.unwrap_or_default().0);
    while let Some(seen) = after.take() {
        let command = BulkCommand::MoveQueue(Box::new(QueueMove {
            queue: queue.clone(),
            from: from.to_owned().into(),
            to: to.to_owned().into(),
            after: seen,
            limit: u32::MAX,
        }));
        let Reply::Mutated { changed: now, next } = client.ask(command).await? else {
            return Err(Problem::unexpected());
        };
        changed += u64::from(now);
        after = next;
        if !pace.goes_on().await {
            break;
        }
    }
    let home = app.within(Some(from.into()));
    let row = home.queue(queue.clone()).await?;
    let left = row.map_or(0, |row| {
        row.places.iter().map(|jobs| u64::from(*jobs)).sum()
    });
    if left == 0 {
        // A queue that is in use stays.
        let only_idle = true;
        let _ = home.ask(QueueCommand::Remove { queue, only_idle }).await;
    }
    let next = after.map(CursorText);
    let moved = QueueMoved {
        changed,
        left,
        next,
    };
    Ok((Extension(Affected(changed)), Json(moved)))
}
