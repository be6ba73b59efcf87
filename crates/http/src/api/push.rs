//! Push a job.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass_config::Period;
use windlass_engine::{
    Backoff, Capacity, Clash, Expiry, JobCommand, KeyUntil, NewJob, Priority, Protocol, Pushed,
    Refusal, Reply, Retry, Unique,
};

use crate::app::{App, Now, Shared};
use crate::name::Name;
use crate::params::{Body, Params, Segments};
use crate::problem::{Outcome, Problem};
use crate::time::parse_moment;

/// Retries of a job if neither the producer nor the queue has a retry policy.
const RETRIES: i32 = 5;

/// The wait after the first failure; it doubles with each further one, up to an hour.
const BACKOFF_MS: u32 = 5_000;

/// Parameters of the job.
#[derive(Debug, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Terms {
    /// 1 to 9; 9 is taken first. 5 if it is left out.
    priority: Option<u8>,
    /// Not before this much later: `90s`, `1h30m`, `2d`.
    #[param(value_type = Option<String>)]
    delay: Option<Period>,
    /// Not before this moment (RFC 3339).
    at: Option<String>,
    /// Discard the job unless it was taken by then.
    #[param(value_type = Option<String>)]
    expires_in: Option<Period>,
    /// The coalescing key. While a job of the queue has it, another push with it is refused (409).
    key: Option<Name>,
    /// A name of the producer's choice.
    name: Option<Name>,
    /// Retries after failures: 0 discards the job at its first failure, -1 makes it dead. 5 if it is left out and
    /// `[queues.NAME]` has no rule; the wait doubles from 5s.
    retries: Option<i32>,
    /// How long the job's result can be read after its end.
    #[param(value_type = Option<String>)]
    keep_result: Option<Period>,
    /// Push a job of this protocol instead, which is `faktory`: the body is a work unit of FWP as `PUSH` has it, which may
    /// lack `jid` and `queue`. It has all terms itself: no other parameter is allowed.
    protocol: Option<String>,
}

/// The new job.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PushedJob {
    /// Its number.
    pub(super) id: u64,
}

/// Push a job
///
/// The body of the request is the body of the job, whatever its type. The job's protocol is `http`: workers of other
/// protocols get it only from bridged queues. An unknown queue becomes known. With `protocol=faktory` it is a job of Faktory's clients.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/jobs", tag = "work", operation_id = "push_job",
    params(Terms),
    request_body(content = Body, content_type = "application/octet-stream"),
    responses(
        (status = 201, body = PushedJob, headers(("location" = String, description = "The job"))),
        (status = 200, body = PushedJob, description = "A job of the same identity waits or runs (`dedup`, `coalesce`)"),
        (status = 400, body = Problem), (status = 409, body = Problem), (status = 413, body = Problem),
        (status = 429, body = Problem), (status = 503, body = Problem)
    )
)]
pub(super) async fn push(
    app: Shared,
    Segments(queue): Segments<Name>,
    Params(terms): Params<Terms>,
    Body(body): Body,
) -> Outcome<Response> {
    if queue.0.is_empty() {
        return Err(Problem::bad_request("a queue must have a name"));
    }
    let job = match &terms.protocol {
        None => terms.job(queue, body, app.now())?,
        Some(protocol)
            if (Terms {
                protocol: Some(protocol.clone()),
                ..Terms::default()
            }) == terms =>
        {
            unit(&app, app.protocol(protocol)?, &queue, &body)?
        }
        Some(_) => {
            return Err(Problem::bad_request(
                "protocol excludes all other fields but the queue: the body contains them",
            ));
        }
    };
    pushed(&app, job).await
}

/// Pushes the job. The answer to the request has its number.
pub(super) async fn pushed(app: &App, job: NewJob) -> Outcome<Response> {
    let Reply::Pushed { job, how, .. } = ask(app, job).await? else {
        return Err(Problem::unexpected());
    };
    let status = if how == Pushed::New {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let location = [(header::LOCATION, format!("/api/v1/jobs/{}", job.0))];
    Ok((status, location, Json(PushedJob { id: job.0 })).into_response())
}

/// Pushes the job. A refusal because of the coalescing key names the key.
async fn ask(app: &App, job: NewJob) -> Outcome<Reply> {
    let why = match app
        .client()
        .ask(JobCommand::Push(Box::new(job.clone())))
        .await
    {
        Err(
            why @ Refusal::Limit {
                what: Capacity::KeyJobs,
                ..
            },
        ) => why,
        answer => return Ok(answer?),
    };
    let refused = Problem::from(why);
    let row = app.queue(job.queue.clone()).await?;
    let Some(policy) = row.and_then(|row| row.policy) else {
        return Err(refused);
    };
    let key = Name(policy.policy.key_of(&job, Some(&*app.daemon.bridge)).into());
    let (_, figures) = refused.detail.split_once(": ").unwrap_or_default();
    let detail = format!(
        "the key {key} of {} is full: {figures} (per_key.waiting_max)",
        Name(job.queue)
    );
    Err(Problem { detail, ..refused })
}

/// A job without any terms.
pub(crate) fn plain(queue: Bytes, body: Bytes) -> NewJob {
    NewJob {
        retry: retry(None),
        retry_default: true,
        ..NewJob::new(Protocol::HTTP, queue, body)
    }
}

fn retry(retries: Option<i32>) -> Retry {
    Retry {
        failures_max: retries.unwrap_or(RETRIES),
        losses_max: 0,
        backoff: Backoff::Doubling(BACKOFF_MS),
    }
}

/// A name that no other job has.
pub(super) fn new_name(app: &App) -> String {
    let random = app.daemon.random;
    format!("{:016x}{:08x}", random(), random() >> 32)
}

/// A job as a client of this protocol pushes it.
fn unit(app: &App, protocol: Protocol, queue: &Name, body: &[u8]) -> Outcome<NewJob> {
    let text = |bytes| {
        std::str::from_utf8(bytes)
            .map_err(|_| Problem::bad_request("the body and the queue must be text"))
    };
    let name = new_name(app);
    let (wall, skew_ms) = app.now().with_skew();
    let (queue, text) = (text(&queue.0)?, text(body)?);
    let of = app
        .protocols
        .iter()
        .find(|it| it.id() == protocol)
        .and_then(|it| it.unit(queue, &name, text, wall, skew_ms));
    let job =
        of.ok_or_else(|| Problem::bad_request("only clients of this protocol can push its jobs"))?;
    job.map_err(Problem::bad_request)
}

impl Terms {
    fn job(self, queue: Name, body: Bytes, now: Now) -> Outcome<NewJob> {
        let Self {
            priority,
            delay,
            at,
            expires_in,
            key,
            name,
            retries,
            keep_result,
            protocol: _,
        } = self;
        let priority = priority.unwrap_or(Priority::NORMAL.value());
        if !(Priority::MIN.value()..=Priority::MAX.value()).contains(&priority) {
            return Err(Problem::bad_request(format!(
                "priority: {priority} is not between 1 and 9"
            )));
        }
        if let Some(retries) = retries.filter(|retries| *retries < -1) {
            return Err(Problem::bad_request(format!(
                "retries must be -1 or more, not {retries}"
            )));
        }
        let not_before = match (delay, at) {
            (Some(_), Some(_)) => {
                return Err(Problem::bad_request("delay and at exclude each other"));
            }
            (delay, None) => delay.map(|delay| now.wall.after_ms(delay.as_ms())),
            (None, Some(at)) => Some(
                parse_moment(&at)
                    .ok_or_else(|| Problem::bad_request("at must be a moment as in RFC 3339"))?,
            ),
        };
        let unique = key.map(|key| Unique {
            key: key.0,
            clash: Clash::Refuse,
            until: KeyUntil::End,
        });
        Ok(NewJob {
            priority: Priority::clamped(priority),
            not_before,
            expires: expires_in.map_or(Expiry::Never, |period| Expiry::By(now.after(period))),
            unique,
            name: name.map(|name| name.0),
            retry: retry(retries),
            retry_default: retries.is_none(),
            result_keep_ms: keep_result.map_or(0, Period::as_ms),
            ..NewJob::new(Protocol::HTTP, queue.0, body)
        })
    }
}
