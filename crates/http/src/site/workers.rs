//! Workers known by name.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Html;

use super::shell::{Shell, page};
use crate::api::queues::Page;
use crate::api::workers::{self, WorkerPage};
use crate::app::App;
use crate::params::Params;
use crate::problem::Outcome;

#[derive(Debug, Template)]
#[template(path = "workers.html")]
struct WorkersPage {
    shell: Shell,
    list: WorkerPage,
}

pub(super) async fn list(shell: Shell, State(app): State<Arc<App>>, which: Params<Page>) -> Outcome<Html<String>> {
    let list = workers::list(State(app), which).await?.0;
    page(&WorkersPage { shell, list })
}
