//! A worker's reports on the job it has.

use axum::Json;
use axum::http::StatusCode;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass_config::Period;
use windlass_engine::{Failure, Fate, JobRef, LeaseCommand, Proof, Reply};

use super::take::LeaseName;
use crate::app::Shared;
use crate::name::Name;
use crate::params::{Body, Params, Segments};
use crate::problem::{Outcome, Problem};

/// Limits of an error's message and of the class.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
const KIND_BYTES_MAX: usize = 256;

/// The parameters of a failure.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Failed {
    /// The class of the error, at most 256 bytes.
    kind: Option<Name>,
}

/// What follows a failure.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FailedJob {
    /// `retrying`, `dead` or `discarded`.
    state: &'static str,
    /// When it is ready again, or how long the dead-letter queue keeps it.
    until: Option<String>,
}

/// The parameters of an extension.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Extension {
    /// The lease ends this much later than now; at most `limits.lease_max`.
    #[param(value_type = String)]
    by: Period,
}

/// The job succeeded; the body of the request is its result
#[utoipa::path(post, path = "/api/v1/leases/{lease}/done", tag = "work", operation_id = "finish_job",
    request_body(content = Body, content_type = "application/octet-stream"),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem))
)]
pub(super) async fn done(
    app: Shared,
    Segments(lease): Segments<LeaseName>,
    Body(result): Body,
) -> Outcome<StatusCode> {
    let (job, proof) = lease.claim();
    app.ask(LeaseCommand::Finish { job, proof, result }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The job failed; the body of the request is the error's message
#[utoipa::path(post, path = "/api/v1/leases/{lease}/fail", tag = "work", operation_id = "fail_job",
    params(Failed),
    request_body(content = Body, content_type = "application/octet-stream"),
    responses((status = 200, body = FailedJob), (status = 404, body = Problem), (status = 409, body = Problem))
)]
pub(super) async fn fail(
    app: Shared,
    Segments(lease): Segments<LeaseName>,
    Params(failed): Params<Failed>,
    Body(message): Body,
) -> Outcome<Json<FailedJob>> {
    let (job, proof) = lease.claim();
    let kind = failed.kind.map(|name| name.0).unwrap_or_default();
    if kind.len() > KIND_BYTES_MAX {
        return Err(Problem::bad_request(format!(
            "kind is longer than {KIND_BYTES_MAX} bytes"
        )));
    }
    // A copy, because the failure must not retain a large request body.
    let message = Bytes::copy_from_slice(message.get(..MESSAGE_BYTES_MAX).unwrap_or(&message));
    let failure = Box::new(Failure {
        kind,
        message,
        ..Failure::default()
    });
    let Reply::Failed { fate, .. } = app
        .ask(LeaseCommand::Fail {
            job,
            proof,
            failure,
        })
        .await?
    else {
        return Err(Problem::unexpected());
    };
    let now = app.now();
    let (state, until) = match fate {
        Fate::Retried(at) => ("retrying", now.text(at)),
        Fate::Buried(at) => ("dead", now.text(at)),
        Fate::Discarded => ("discarded", None),
    };
    Ok(Json(FailedJob { state, until }))
}

/// The worker needs longer
#[utoipa::path(post, path = "/api/v1/leases/{lease}/extend", tag = "work", operation_id = "extend_lease",
    params(Extension),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem))
)]
pub(super) async fn extend(
    app: Shared,
    Segments(lease): Segments<LeaseName>,
    Params(Extension { by }): Params<Extension>,
) -> Outcome<StatusCode> {
    if by.is_zero() {
        return Err(Problem::bad_request("by must be more than 0"));
    }
    let (job, proof) = lease.claim();
    app.ask(LeaseCommand::Extend {
        job,
        proof,
        until: app.now().after(by),
        only_later: false,
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

impl LeaseName {
    const fn claim(self) -> (JobRef, Proof) {
        (JobRef::Id(self.job), Proof::Token(self.token))
    }
}
