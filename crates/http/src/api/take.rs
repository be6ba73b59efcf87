//! Taking a job, and the identification of the lease.

use std::fmt;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::IntoParams;
use windlass_config::Period;
use windlass_engine::{
    From as Queues, JobId, LeaseTerms, OnExpiry, Protocol, QueueKind, Reply, Select, Take,
    TakeCommand, Taken, Token, Wait,
};

use super::views::body;
use crate::app::{App, Now, Peer, Shared};
use crate::name::Name;
use crate::params::{Params, Segments};
use crate::problem::{Outcome, Problem};
use crate::time::moment_text;
use crate::view::view;

/// The longest wait. Proxies cut longer requests, and a client can repeat the request.
const WAIT_MAX: Period = Period::from_secs(300);

/// The lease of a job if the request does not specify it.
const LEASE: Period = Period::from_secs(60);

/// On which terms.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Terms {
    /// How long to wait for a job, at most 5m; not at all if it is left out.
    #[param(value_type = Option<String>)]
    wait: Option<Period>,
    /// How long the worker may have the job; 1m if it is left out. Then the job goes to another worker.
    #[param(value_type = Option<String>)]
    lease: Option<Period>,
    /// The worker's name, for those who look at the job.
    worker: Option<Name>,
    /// Take jobs as a worker of this protocol; `http` if it is left out. In a queue that is not bridged, each
    /// protocol's workers see its own jobs only.
    protocol: Option<String>,
}

view! {
    /// A job to work on.
    TakenJob(job: &Taken, app: &App, now: Now) with {
        let (body, body_base64) = body(&job.body);
    } {
        /// Names the lease when the worker reports.
        lease: String = LeaseName { job: job.id, token: job.token }.to_string(),
        /// The job's number.
        id: u64 = job.id.0,
        /// Its queue.
        queue: Name = Name(job.queue.clone()),
        /// The protocol of its producer, in whose words the body is.
        protocol: &'static str = app.protocol_name(job.protocol),
        /// Its producer's name for it.
        name: Option<Name> = Name::of(&job.name),
        /// 1 to 9.
        priority: u8 = job.priority.value(),
        /// Deliveries, with this one.
        attempts: u32 = job.attempts,
        /// Failures so far.
        failures: u32 = job.failures,
        /// When the lease ends.
        until: Option<String> = now.text(job.until),
        /// When the job became ready.
        ready_at: Option<String> = moment_text(job.ready_at),
        /// The body, if it is UTF-8 and not longer than 1 MiB; else `/api/v1/jobs/{id}/body` has it.
        body: Option<String> = body,
        /// The body, if it is not UTF-8.
        body_base64: Option<String> = body_base64,
    }
}

/// Take a job, or wait for one
///
/// The lease outlasts the connection: it ends when the worker reports, or with its time.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/take", tag = "work", operation_id = "take_job",
    params(Terms),
    responses(
        (status = 200, body = TakenJob), (status = 204, description = "There is none"),
        (status = 400, body = Problem), (status = 409, body = Problem), (status = 503, body = Problem)
    )
)]
pub(super) async fn take(
    app: Shared,
    Extension(peer): Extension<Peer>,
    Segments(queue): Segments<Name>,
    Params(terms): Params<Terms>,
) -> Outcome<Response> {
    let Terms {
        wait,
        lease,
        worker,
        protocol,
    } = terms;
    let (wait, lease) = (wait.unwrap_or(Period::from_ms(0)), lease.unwrap_or(LEASE));
    if wait > WAIT_MAX {
        return Err(Problem::bad_request(format!(
            "wait {wait} is longer than {WAIT_MAX}"
        )));
    }
    if lease.is_zero() {
        return Err(Problem::bad_request("lease must be more than 0"));
    }
    let protocol = protocol.map_or(Ok(Protocol::HTTP), |name| app.protocol(&name))?;
    if app
        .queue(queue.0.clone())
        .await?
        .is_some_and(|row| row.kind == QueueKind::Cycle)
    {
        return Err(Problem::conflict(
            "a cycle queue lends entries: take is for work queues",
        ));
    }
    let _place = (!wait.is_zero()).then(|| app.place_to_wait()).transpose()?;
    let on_expiry = OnExpiry::Requeue;
    let lease = LeaseTerms {
        connection_bound: false,
        lease_ms: Some(lease.as_ms()),
        on_expiry,
        wish: Some(on_expiry),
    };
    let take = Take {
        from: Queues::Listed {
            queues: vec![queue.0],
            lease,
        },
        select: Select::ListOrder,
        wait: if wait.is_zero() {
            Wait::No
        } else {
            Wait::Until(app.now().after(wait))
        },
        worker: worker.map(|name| name.0).unwrap_or_default(),
    };
    let reply = app
        .client_of(protocol, &peer.address)
        .waiting(wait.into())
        .ask(TakeCommand::Take(take))
        .await?;
    let Reply::Taken(job) = reply else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    Ok(Json(TakenJob::of(&job, &app, app.now())).into_response())
}

/// A lease in a path: the job's number and the lease's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct LeaseName {
    pub(super) job: JobId,
    pub(super) token: Token,
}

impl fmt::Display for LeaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job.0, self.token.0)
    }
}

impl TryFrom<String> for LeaseName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        const WRONG: &str = "not a lease returned by take";
        let (job, token) = text.split_once('.').ok_or(WRONG)?;
        let number = |digits: &str| digits.parse().map_err(|_| WRONG);
        Ok(Self {
            job: JobId(number(job)?),
            token: Token(number(token)?),
        })
    }
}
