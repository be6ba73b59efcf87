//! Bulk changes of jobs: retry, kill, delete, cancel, requeue, by IDs or by filter. Each needs many visits to
//! the engine.

use std::num::NonZeroU32;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass_engine::{BulkCommand, Command, Cursor, Filter, Mutation, Query, Reply};

use super::filter::Conditions;
use super::pace::Pace;
use crate::app::{App, Shared};
use crate::audit::Affected;
use crate::cursor::CursorText;
use crate::name::Name;
use crate::params::{Params, TwoParams};
use crate::problem::{Outcome, Problem};
use crate::sight::Sight;

/// The time limit of a request. The next request continues where it stopped.
const TIME_MAX: Duration = Duration::from_secs(10);

/// The limits of jobs and of time for counting.
const COUNT_MAX: u64 = 100_000;
const COUNT_TIME_MAX: Duration = Duration::from_secs(1);

/// Options of a bulk change.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct How {
    /// Only count the jobs that would change.
    #[serde(default)]
    #[param(value_type = Option<bool>)]
    dry_run: bool,
    /// Required if there is no condition: all jobs.
    #[serde(default)]
    #[param(value_type = Option<bool>)]
    all: bool,
    /// The most jobs to change; all that match, if it is left out.
    #[param(value_type = Option<u32>)]
    limit: Option<NonZeroU32>,
    /// `next` of the answer before; nothing for the first request.
    cursor: Option<CursorText>,
    /// Only of `retry`: only dead jobs, and this many become ready in a second. Each is `retrying` until its turn, so to
    /// kill those stops it.
    #[param(value_type = Option<u32>)]
    rate: Option<NonZeroU32>,
    /// With `rate`: `delay_ms` of the answer before; nothing for the first request.
    #[serde(default)]
    #[param(value_type = Option<u64>)]
    delay_ms: u64,
    /// Only of `retry`: only dead jobs, which move to this queue. There they have all of their retries again, by its rules.
    to: Option<Name>,
}

/// What a change of many jobs did.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ManyChanged {
    /// How many jobs it changed, or would change. Jobs in a state that does not allow the change do not count.
    changed: u64,
    /// Whether it only counted.
    dry_run: bool,
    /// Null if all matching jobs were seen. Otherwise the time of one request is over, or its limit reached: the same
    /// request with this `cursor` continues.
    next: Option<CursorText>,
    /// With a rate: how long the next job would wait, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
}

/// How many jobs match.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JobCount {
    /// How many were found.
    jobs: u64,
    /// Whether these are all. If not, there may be more.
    is_complete: bool,
}

/// The changes: the handler, the path and operation ID, and the engine's action.
macro_rules! changes {
    ($($(#[$about:meta])* $name:ident, $path:literal, $operation:literal, $action:ident;)+) => {$(
        $(#[$about])*
        #[utoipa::path(post, path = $path, tag = "jobs", operation_id = $operation, params(Conditions, How),
            responses((status = 200, body = ManyChanged), (status = 400, body = Problem), (status = 503, body = Problem))
        )]
        pub(super) async fn $name(
            app: Shared,
            TwoParams(conditions, how): TwoParams<Conditions, How>,
        ) -> Outcome<ManyChanged> {
            if how.rate.is_some() || how.to.is_some() {
                return Err(Problem::bad_request("rate and to are only for retry"));
            }
            change(&app, |_| Mutation::$action, conditions, &how).await
        }
    )+};
}

/// Make jobs ready now that are dead, scheduled or wait for a retry
///
/// With `rate` the dead ones become ready one after another. Their times are in the store, so a restart or a change of
/// leader stops nothing. With `to` they move to another queue. A job whose body is too long for that queue stays dead.
#[utoipa::path(post, path = "/api/v1/jobs/retry", tag = "jobs", operation_id = "retry_jobs",
    params(Conditions, How),
    responses((status = 200, body = ManyChanged), (status = 400, body = Problem), (status = 503, body = Problem))
)]
pub(super) async fn retry(
    app: Shared,
    TwoParams(conditions, how): TwoParams<Conditions, How>,
) -> Outcome<ManyChanged> {
    if how.rate.is_none() && how.to.is_none() {
        return change(&app, |_| Mutation::Requeue, conditions, &how).await;
    }
    if !conditions.may_be_dead() {
        return Err(Problem::bad_request(
            "rate and to are for dead jobs: state must be dead or left out",
        ));
    }
    let rate = how.rate.map_or(u32::MAX, NonZeroU32::get);
    let delay_ms = |changed: u64| {
        how.delay_ms
            .saturating_add(changed.saturating_mul(1_000) / u64::from(rate))
    };
    let redrive = |changed| Mutation::Redrive {
        delay_ms: delay_ms(changed),
        per_second: rate,
    };
    let done = change(&app, redrive, conditions, &how).await?;
    Ok(ManyChanged {
        delay_ms: Some(delay_ms(done.changed)),
        ..done
    })
}

changes! {
    /// Move jobs to the dead-letter queue, except those that workers have
    kill, "/api/v1/jobs/kill", "kill_jobs", Kill;
    /// Take jobs back from their workers
    ///
    /// They return to their places in their queues. What the workers report afterwards is refused.
    requeue, "/api/v1/jobs/requeue", "requeue_jobs", Release;
    /// Remove jobs, except those that workers have
    delete, "/api/v1/jobs/delete", "delete_jobs", Discard;
    /// Remove jobs, whatever their state
    ///
    /// A worker's later report on a job that it had is refused.
    cancel, "/api/v1/jobs/cancel", "cancel_jobs", Cancel;
}

/// Count the jobs that match
///
/// It stops at 100,000 jobs, and after a second of searching.
#[utoipa::path(get, path = "/api/v1/jobs/count", tag = "jobs", operation_id = "count_jobs", params(Conditions),
    responses((status = 200, body = JobCount), (status = 400, body = Problem), (status = 503, body = Problem))
)]
pub(super) async fn count(
    app: Shared,
    sight: Sight,
    Params(conditions): Params<Conditions>,
) -> Outcome<Json<JobCount>> {
    let filter = conditions.filter(&app, sight).await?;
    if let Some(jobs) = known(&app, &filter).await {
        return Ok(Json(JobCount {
            jobs,
            is_complete: true,
        }));
    }
    // A change that is possible in every state.
    let round = |after, limit, _| round(&filter, Mutation::Cancel, after, limit, true);
    let (jobs, next) = rounds(
        &app,
        COUNT_MAX + 1,
        Cursor::default(),
        COUNT_TIME_MAX,
        round,
    )
    .await?;
    Ok(Json(JobCount {
        jobs: jobs.min(COUNT_MAX),
        is_complete: next.is_none() && jobs <= COUNT_MAX,
    }))
}

/// The number of all jobs, or of those of a queue, of a state, or of both, which is known without a search.
async fn known(app: &App, filter: &Filter) -> Option<u64> {
    let Filter {
        state,
        queue,
        protocol,
        ids,
        names,
        conditions,
    } = filter;
    if protocol.is_some() || !ids.is_empty() || !names.is_empty() || !conditions.is_empty() {
        return None;
    }
    let Some(queue) = queue else {
        let stats = app.stats().await.ok()?;
        return match state {
            None => Some(stats.jobs),
            Some(state) => stats.places.get(*state as usize).copied(),
        };
    };
    let row = app.queue(queue.clone()).await.ok()??;
    Some(state.map_or_else(
        || row.places.iter().map(|jobs| u64::from(*jobs)).sum(),
        |state| row.jobs(state).into(),
    ))
}

impl IntoResponse for ManyChanged {
    fn into_response(self) -> Response {
        (Extension(Affected(self.changed)), Json(self)).into_response()
    }
}

/// Removes all jobs that the request sees, whatever their state.
pub(super) async fn cancel_all(
    app: &App,
    cursor: Option<CursorText>,
    dry_run: bool,
) -> Outcome<ManyChanged> {
    let how = How {
        all: true,
        cursor,
        dry_run,
        ..How::default()
    };
    change(app, |_| Mutation::Cancel, Conditions::default(), &how).await
}

/// `action` returns the change of the next jobs, given the number of changes so far.
async fn change(
    app: &App,
    action: impl Fn(u64) -> Mutation,
    conditions: Conditions,
    how: &How,
) -> Outcome<ManyChanged> {
    if conditions.is_empty() && !how.all {
        return Err(Problem::bad_request(
            "no condition: use all=true for all jobs",
        ));
    }
    // Jobs move within their namespace, and of the whole daemon the name is one of that without a name.
    let own = app.namespace().or(how.to.as_ref().map(|_| ""));
    let app = &app.within(own.map(Into::into));
    let filter = conditions.filter(app, Sight::Whole).await?;
    let left = how.limit.map_or(u64::MAX, |limit| limit.get().into());
    let (changed, next) = rounds(
        app,
        left,
        how.cursor.unwrap_or_default().0,
        TIME_MAX,
        |after, limit, changed| match (action(changed), &how.to, how.dry_run) {
            (
                Mutation::Redrive {
                    delay_ms,
                    per_second,
                },
                Some(Name(to)),
                false,
            ) => {
                let (filter, to) = (Box::new(filter.clone()), to.clone());
                BulkCommand::Redrive {
                    filter,
                    to,
                    delay_ms,
                    per_second,
                    after,
                    limit,
                }
                .into()
            }
            (action, _, dry_run) => round(&filter, action, after, limit, dry_run),
        },
    )
    .await?;
    Ok(ManyChanged {
        changed,
        dry_run: how.dry_run,
        next: next.map(CursorText),
        delay_ms: None,
    })
}

/// Visits the engine until all jobs were examined, `left` have changed or would change, or the time is over.
/// Returns the number of changes, and where to continue.
async fn rounds(
    app: &App,
    mut left: u64,
    begin: Cursor,
    time_max: Duration,
    round: impl Fn(Cursor, u32, u64) -> Command,
) -> Outcome<(u64, Option<Cursor>)> {
    let mut client = app.client();
    let (mut changed, pace, mut after) = (0, Pace::new(time_max), Some(begin));
    while let Some(from) = after.take() {
        let limit = u32::try_from(left).unwrap_or(u32::MAX);
        let reply = client.ask(round(from, limit, changed)).await?;
        let (Reply::Mutated { changed: now, next } | Reply::Counted { jobs: now, next }) = reply
        else {
            return Err(Problem::unexpected());
        };
        (changed, left, after) = (
            changed + u64::from(now),
            left.saturating_sub(now.into()),
            next,
        );
        if left == 0 || !pace.goes_on().await {
            break;
        }
    }
    Ok((changed, after))
}

fn round(filter: &Filter, action: Mutation, after: Cursor, limit: u32, dry_run: bool) -> Command {
    let filter = Box::new(filter.clone());
    match dry_run {
        true => Query::Preview {
            filter,
            action,
            after,
            limit,
        }
        .into(),
        false => BulkCommand::Mutate {
            filter,
            action,
            after,
            limit,
        }
        .into(),
    }
}
