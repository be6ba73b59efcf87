//! Pages that are one listing of the API: workers, schedules, batches, connections.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Html;

use super::shell::{Shell, page};
use crate::api::batches::{self, BatchPage};
use crate::api::connections::{self, ConnectionPage};
use crate::api::queues::Page;
use crate::api::schedules::{self, SchedulePage};
use crate::api::workers::{self, WorkerPage};
use crate::app::App;
use crate::params::Params;
use crate::problem::Outcome;

#[derive(Debug, Template)]
#[template(path = "workers.html")]
struct Workers {
    shell: Shell,
    list: WorkerPage,
}

#[derive(Debug, Template)]
#[template(path = "schedules.html")]
struct Schedules {
    shell: Shell,
    list: SchedulePage,
}

#[derive(Debug, Template)]
#[template(path = "batches.html")]
struct Batches {
    shell: Shell,
    list: BatchPage,
}

#[derive(Debug, Template)]
#[template(path = "connections.html")]
struct Connections {
    shell: Shell,
    list: ConnectionPage,
}

pub(super) async fn workers(shell: Shell, app: State<Arc<App>>, which: Params<Page>) -> Outcome<Html<String>> {
    page(&Workers { shell, list: workers::list(app, which).await?.0 })
}

pub(super) async fn schedules(shell: Shell, app: State<Arc<App>>, which: Params<Page>) -> Outcome<Html<String>> {
    page(&Schedules { shell, list: schedules::list(app, which).await?.0 })
}

pub(super) async fn batches(shell: Shell, app: State<Arc<App>>, which: Params<Page>) -> Outcome<Html<String>> {
    page(&Batches { shell, list: batches::list(app, which).await?.0 })
}

pub(super) async fn connections(shell: Shell, app: State<Arc<App>>, which: Params<Page>) -> Outcome<Html<String>> {
    page(&Connections { shell, list: connections::list(app, which).await?.0 })
}
