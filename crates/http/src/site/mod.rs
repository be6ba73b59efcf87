//! Web pages for people: the responses of the API, as HTML.
//!
//! A page calls the API's handlers, so that people and programs see the same data. Buttons send requests to
//! the API from the browser (`assets/windlass.js`), so every change uses the API. Pages are templates
//! (`templates`), escaped by default. They work below a path prefix that a proxy names in `X-Script-Name`, or
//! that `http.path_prefix` specifies, and load nothing from other hosts. People log in with a form (`login`).
//!
//! Reading order: `shell` (common to all pages) · `overview` with `history` and `plot` · `queues` · `jobs` ·
//! `lists` (everything else).

mod cluster;
mod dead;
mod ended;
pub(crate) mod history;
mod hours;
mod jobs;
mod kinds;
mod lists;
mod login;
mod namespaces;
mod overview;
mod plot;
mod push;
mod queues;
mod search;
mod settings;
mod shell;
pub(crate) mod timeline;

use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

pub(crate) use self::overview::watch;
use self::shell::Shell;
pub(crate) use self::shell::nowhere;
use crate::access::demand;
use crate::app::App;
use crate::login::Role;
use crate::params::Segments;
use crate::prefix::{LOGIN, to_path};

/// The addresses of Faktory's pages, and our pages that show the same.
pub(crate) const FAKTORYS: [(&str, &str); 8] = [
    ("/retries", "/jobs?state=retrying"),
    ("/scheduled", "/jobs?state=scheduled"),
    ("/morgue", "/dead"),
    ("/retries/{job}", "/jobs?name="),
    ("/scheduled/{job}", "/jobs?name="),
    ("/morgue/{job}", "/jobs?name="),
    ("/busy", "/workers"),
    ("/debug", "/"),
];

/// All pages and assets.
pub(crate) fn routes() -> Router<Arc<App>> {
    let outside = Router::new().route(LOGIN, get(login::show).post(login::log_in));
    inside()
        .merge(outside.route("/logout", post(login::log_out)))
        .route_layer(from_fn(shell::dress))
}

/// The pages that need the role of a reader.
fn inside() -> Router<Arc<App>> {
    let faktorys = FAKTORYS
        .into_iter()
        .fold(Router::new(), |router, (theirs, ours)| {
            router.route(
                theirs,
                get(move |shell: Shell, Segments(key): Segments<Vec<String>>| {
                    faktorys(shell, ours, key)
                }),
            )
        });
    faktorys
        .route("/", get(overview::show))
        .route("/queues", get(queues::list))
        .route("/queues/{queue}", get(queues::show))
        .route("/queues/{queue}/settings", get(settings::show))
        .route("/search", get(search::show))
        .route("/push", get(push::show))
        .route("/dead", get(dead::show))
        .route("/kinds", get(kinds::show))
        .route("/history", get(ended::show))
        .route("/history/kinds", get(ended::kinds))
        .route("/history/{id}", get(ended::one))
        .route("/cluster", get(cluster::show))
        .route("/jobs", get(jobs::list))
        .route("/jobs/{id}", get(jobs::show))
        .route("/workers", get(lists::workers))
        .route("/schedules", get(lists::schedules))
        .route("/batches", get(lists::batches))
        .route("/batches/{batch}", get(lists::batch))
        .route("/throttles", get(lists::throttles))
        .route("/connections", get(lists::connections))
        .route(
            "/assets/windlass.css",
            get(async || asset("text/css", include_str!("../../assets/windlass.css"))),
        )
        .route(
            "/assets/windlass.js",
            get(async || asset("text/javascript", include_str!("../../assets/windlass.js"))),
        )
        .route(
            "/assets/windlass.svg",
            get(async || asset("image/svg+xml", include_str!("../../assets/windlass.svg"))),
        )
        .route_layer(from_fn(async |request, next| {
            demand(Role::Read, request, next).await
        }))
        // A login for several namespaces chooses one there.
        .route("/namespaces", get(namespaces::show))
}

/// Redirects from a page of Faktory to the equivalent one. Faktory's key of a job is a time and the job's
/// name.
async fn faktorys(shell: Shell, ours: &'static str, key: Vec<String>) -> Response {
    let job = key
        .first()
        .and_then(|key| key.rsplit('|').next())
        .unwrap_or_default();
    let job: String = form_urlencoded::byte_serialize(job.as_bytes()).collect();
    to_path(&shell.prefix, &format!("{ours}{job}"))
}

fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind)], text)
}
