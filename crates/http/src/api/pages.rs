//! Pages of the protocols' deployed servers.

use std::sync::Arc;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use windlass_session::protocol::{Figures, Page};

use crate::app::{App, Now};
use crate::problem::Outcome;

pub(crate) async fn show(page: Arc<dyn Page>, app: Arc<App>) -> Outcome<Response> {
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
