//! Errors: a status, and an object as RFC 9457 has it. `code` is for programs, `detail` for people.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use windlass_engine::{Capacity, Refusal};

/// An error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// The status.
    pub(crate) status: u16,
    /// The kind of error, for programs.
    pub(crate) code: &'static str,
    /// What is wrong, for people.
    pub(crate) detail: String,
}

/// What a browser must ask its user for.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"windlass\", charset=\"UTF-8\"");

/// The result of a handler.
pub(crate) type Outcome<T> = Result<T, Problem>;

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl ToString) -> Self {
        Self { status: status.as_u16(), code, detail: detail.to_string() }
    }

    /// The request itself is wrong.
    pub(crate) fn bad_request(detail: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    /// The login is missing or wrong.
    pub(crate) fn unauthorized(code: &'static str, detail: impl ToString) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, code, detail)
    }

    /// The login does not allow it.
    pub(crate) fn forbidden(detail: impl ToString) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// The thing does not exist.
    pub(crate) fn not_found(detail: impl ToString) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// The thing is in a state that does not allow it.
    pub(crate) fn conflict(detail: impl ToString) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", detail)
    }

    /// The engine gave a reply of another kind: a bug, but not one that a request should end in a panic for.
    pub(crate) fn unexpected() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "unexpected reply of the engine")
    }
}

impl From<Refusal> for Problem {
    fn from(why: Refusal) -> Self {
        let (status, code) = match why {
            Refusal::Limit { what: Capacity::NameBytes, .. } => (StatusCode::BAD_REQUEST, "name_too_long"),
            Refusal::Limit { what: Capacity::BodyBytes, .. } => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Refusal::Limit { .. } => (StatusCode::TOO_MANY_REQUESTS, "limit"),
            Refusal::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            Refusal::NotUnique => (StatusCode::CONFLICT, "not_unique"),
            Refusal::NotHeld => (StatusCode::CONFLICT, "lease_not_held"),
            Refusal::InUse => (StatusCode::CONFLICT, "in_use"),
            Refusal::WrongKind => (StatusCode::CONFLICT, "wrong_kind"),
            Refusal::NeverDue => (StatusCode::BAD_REQUEST, "never_due"),
            Refusal::OutOfPlace => (StatusCode::CONFLICT, "out_of_place"),
            Refusal::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            // It may have been done: a gateway that got no answer.
            Refusal::Unknown => (StatusCode::GATEWAY_TIMEOUT, "outcome_unknown"),
        };
        Self::new(status, code, why)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let text = serde_json::to_string(&self).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, "application/problem+json")], text).into_response();
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, CHALLENGE);
        }
        response
    }
}
