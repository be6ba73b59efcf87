//! All routes: the API, the pages of the protocols' deployed servers, and web pages.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::routing::get;

use crate::app::App;
use crate::problem::Problem;
use crate::{access, api, site};

pub(crate) fn router(app: Arc<App>) -> Router {
    let (mut router, description) = api::routes().split_for_parts();
    let description = api::text(description);
    let document =
        move || async move { ([(header::CONTENT_TYPE, "application/json")], description) };
    router = router.route("/api/v1/openapi.json", get(document));
    for page in &app.pages {
        let page = Arc::clone(page);
        router = router.route(
            page.path(),
            get(move |State(app)| api::pages::show(page, app)),
        );
    }
    router
        .merge(site::routes())
        .fallback(site::nowhere)
        .method_not_allowed_fallback(async || {
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "method not allowed",
            )
        })
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app),
            access::admit,
        ))
        .with_state(app)
}
