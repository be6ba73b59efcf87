//! Errors: a status, and an object according to RFC 9457. `code` is for programs, `detail` for
//! people.

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

/// The code of the problem in a response: an extension of the response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code(pub(crate) &'static str);

/// The challenge for a browser's login dialog.
const CHALLENGE: HeaderValue =
    HeaderValue::from_static("Basic realm=\"windlass\", charset=\"UTF-8\"");

/// When a program may repeat a request that was rejected because it is too early.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("2");

/// The result of a handler.
pub(crate) type Outcome<T> = Result<T, Problem>;

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl ToString) -> Self {
        Self {
            status: status.as_u16(),
            code,
            detail: detail.to_string(),
        }
    }

    /// The request itself is wrong.
    pub(crate) fn bad_request(detail: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    /// The login is missing or wrong.
    pub(crate) fn unauthorized(code: &'static str, detail: impl ToString) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, code, detail)
    }

    /// The login does not allow the operation.
    pub(crate) fn forbidden(detail: impl ToString) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// The thing does not exist.
    pub(crate) fn not_found(detail: impl ToString) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// The object is in a state that does not allow the operation.
    pub(crate) fn conflict(detail: impl ToString) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", detail)
    }

    /// There is no space, or no daemon for the request, at present.
    pub(crate) fn unavailable(code: &'static str, detail: impl ToString) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, detail)
    }

    /// An unexpected failure of the daemon: a bug, or no random numbers.
    pub(crate) fn internal(detail: impl ToString) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }

    /// Adds the name of the object that the engine did not find.
    pub(crate) fn about(self, name: &str) -> Self {
        match self.detail.strip_suffix(" unknown") {
            Some(thing) if self.status == StatusCode::NOT_FOUND => Self {
                detail: format!("there is no {thing} {}", name.escape_debug()),
                ..self
            },
            _ => self,
        }
    }

    /// The engine gave an unexpected kind of reply. This is a bug, for which the request must not panic.
    pub(crate) fn unexpected() -> Self {
        Self::internal("unexpected reply of the engine")
    }
}

impl From<Refusal> for Problem {
    fn from(why: Refusal) -> Self {
        let status = match why {
            Refusal::Limit {
                what: Capacity::NameBytes,
                ..
            }
            | Refusal::NeverDue => StatusCode::BAD_REQUEST,
            Refusal::Limit {
                what: Capacity::BodyBytes,
                ..
            } => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::Limit { .. } => StatusCode::TOO_MANY_REQUESTS,
            Refusal::NotFound(_) => StatusCode::NOT_FOUND,
            Refusal::NotPermitted => StatusCode::FORBIDDEN,
            Refusal::NotUnique
            | Refusal::NotHeld
            | Refusal::InUse
            | Refusal::WrongKind
            | Refusal::OutOfPlace => StatusCode::CONFLICT,
            Refusal::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
            // The change may have been made, as for a gateway without an answer.
            Refusal::Unknown => StatusCode::GATEWAY_TIMEOUT,
        };
        Self::new(status, why.code(), why)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let text = serde_json::to_string(&self).unwrap_or_default();
        let mut response = (
            status,
            [(header::CONTENT_TYPE, "application/problem+json")],
            text,
        )
            .into_response();
        response.extensions_mut().insert(Code(self.code));
        if status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, CHALLENGE);
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}
