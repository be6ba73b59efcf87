//! Web pages for people: what the API answers, as HTML.
//!
//! A page calls the API's own handlers, so that people and programs see the same. Its buttons send requests to the API from the
//! browser (`assets/windlass.js`); there is no other way to change something. Pages are templates (`templates`), escaped by
//! default. They work below a path prefix that a proxy names in `X-Script-Name`, and load nothing from elsewhere.
//!
//! Reading order: `shell` (what all pages share) · `overview` with `history` and `plot` · `queues` · `jobs` · `lists`
//! (everything else).

mod history;
mod jobs;
mod lists;
mod overview;
mod plot;
mod queues;
mod shell;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware::from_fn;
use axum::response::IntoResponse;
use axum::routing::get;

pub(crate) use self::history::History;
use crate::api::access::demand;
use crate::app::App;
use crate::login::Role;

/// Nothing from elsewhere, no code or style within a page, no page within another one.
const POLICY: HeaderValue =
    HeaderValue::from_static("default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'");

/// All pages, and what they load.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(overview::show))
        .route("/queues", get(queues::list))
        .route("/queues/{queue}", get(queues::show))
        .route("/jobs", get(jobs::list))
        .route("/jobs/{id}", get(jobs::show))
        .route("/workers", get(lists::workers))
        .route("/schedules", get(lists::schedules))
        .route("/batches", get(lists::batches))
        .route("/throttles", get(lists::throttles))
        .route("/connections", get(lists::connections))
        .route("/assets/windlass.css", get(async || asset("text/css", include_str!("../../assets/windlass.css"))))
        .route("/assets/windlass.js", get(async || asset("text/javascript", include_str!("../../assets/windlass.js"))))
        .route("/assets/windlass.svg", get(async || asset("image/svg+xml", include_str!("../../assets/windlass.svg"))))
        .route_layer(from_fn(async |request, next| demand(Role::Read, request, next).await))
        .route_layer(from_fn(shell::dress))
}

fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind)], text)
}
