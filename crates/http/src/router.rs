//! All routes: the API, the pages of the protocols' deployed servers, and web pages.

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use windlass_session::protocol::{Figures, Page};

use crate::app::{App, Now, Shared};
use crate::problem::{Outcome, Problem};
use crate::{access, api, site};

pub(crate) fn router(app: Arc<App>) -> Router {
    let (mut router, description) = api::routes().split_for_parts();
    let description = api::text(description);
    let document =
        move || async move { ([(header::CONTENT_TYPE, "application/json")], description) };
    router = router.route("/api/v1/openapi.json", get(document));
    for page in &app.pages {
        let page = Arc::clone(page);
        router = router.route(page.path(), get(move |app: Shared| show_page(page, app)));
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

/// A page of a protocol's deployed server.
async fn show_page(page: Arc<dyn Page>, app: Shared) -> Outcome<Response> {
    // That server had one fleet, and the names of others are not among its own.
    let app = app.within(Some(app.namespace().unwrap_or_default().into()));
    let mut figures = Figures::default();
    if page.needs_figures() {
        figures.stats = *app.stats().await?;
        figures.queues = app.queues().await?;
    }
    let Now { engine, wall, .. } = app.now();
    (figures.now, figures.wall) = (engine, wall);
    Ok((
        [(header::CONTENT_TYPE, "application/json")],
        page.text(&figures),
    )
        .into_response())
}
