//! Extractors of request parameters. Unlike axum's, they refuse with a [`Problem`].

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::Uri;
use axum::http::request::Parts;
use bytes::Bytes;
use serde::de::{DeserializeOwned, IgnoredAny};
use utoipa::{IntoParams, ToSchema};
use windlass_config::Words;

use crate::app::App;
use crate::problem::Problem;

/// Rows of a page, if the request has no limit.
const ROWS: u32 = 100;
pub(crate) const ROWS_MAX: u32 = 1_000;

/// The parameters behind `?`.
#[derive(Debug)]
pub(crate) struct Params<T>(pub(crate) T);

/// The parameters of the query that the struct names. Unknown ones are ignored, because pages have
/// bookmarks.
#[derive(Debug)]
pub(crate) struct Known<T>(pub(crate) T);

/// The parameters of the query for two structs: the first gets those that it names, the second all others.
#[derive(Debug)]
pub(crate) struct TwoParams<A, B>(pub(crate) A, pub(crate) B);

/// The parameters within the path.
#[derive(Debug)]
pub(crate) struct Segments<T>(pub(crate) T);

/// Bytes, whatever their type.
#[derive(Debug, ToSchema)]
#[schema(value_type = String, format = Binary)]
pub(crate) struct Body(pub(crate) Bytes);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parsed(&parts.uri).map(Self)
    }
}

impl<S: Send + Sync, T: DeserializeOwned + IntoParams> FromRequestParts<S> for Known<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        TwoParams::<T, IgnoredAny>::of(&parts.uri).map(|TwoParams(known, _)| Self(known))
    }
}

impl<S: Send + Sync, A: DeserializeOwned + IntoParams, B: DeserializeOwned> FromRequestParts<S>
    for TwoParams<A, B>
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::of(&parts.uri)
    }
}

impl<A: DeserializeOwned + IntoParams, B: DeserializeOwned> TwoParams<A, B> {
    /// The parameters of an address.
    pub(crate) fn of(uri: &Uri) -> Result<Self, Problem> {
        let names = names::<A>();
        let is_first = |pair: &&str| {
            names
                .iter()
                .any(|name| pair.split('=').next() == Some(name))
        };
        let pairs = uri.query().unwrap_or_default().split('&');
        let (first, second): (Vec<_>, Vec<_>) = pairs.partition(is_first);
        let part = |pairs: Vec<_>| {
            format!("/?{}", pairs.join("&"))
                .parse()
                .map_err(Problem::bad_request)
        };
        Ok(Self(parsed(&part(first)?)?, parsed(&part(second)?)?))
    }
}

/// The names of a struct's parameters.
pub(crate) fn names<T: IntoParams>() -> Vec<String> {
    T::into_params(|| None)
        .into_iter()
        .map(|parameter| parameter.name)
        .collect()
}

fn parsed<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let query = Query::try_from_uri(uri)
        .map_err(|error| Problem::bad_request(plain(&error.body_text())))?;
    Ok(query.0)
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(segments) = Path::from_request_parts(parts, state)
            .await
            .map_err(|error| Problem::bad_request(plain(&error.body_text())))?;
        Ok(Self(segments))
    }
}

impl FromRequest<Arc<App>> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        app.bodies.read(request).await.map(Self)
    }
}

/// A library's error in words for people.
fn plain(text: &str) -> String {
    let text = text
        .trim_start_matches("Failed to deserialize query string: ")
        .trim_start_matches("Invalid URL: ");
    if let Some((value, _)) = text
        .strip_prefix("Cannot parse `")
        .and_then(|rest| rest.split_once("` to a `"))
    {
        return format!("`{value}` is not a number");
    }
    Words::QUERY.of(text)
}

/// The rows of a page.
pub(crate) fn rows(limit: Option<u32>) -> Result<u32, Problem> {
    match limit.unwrap_or(ROWS) {
        rows @ 1..=ROWS_MAX => Ok(rows),
        rows => Err(Problem::bad_request(format!(
            "limit: {rows} is not between 1 and {ROWS_MAX}"
        ))),
    }
}
