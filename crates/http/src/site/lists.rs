//! Pages that are one listing of the API: workers, schedules, batches, throttles, connections.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Html;

use super::shell::{Age, Shell, page};
use crate::api::batches::{self, BatchPage};
use crate::api::connections::{self, ConnectionPage};
use crate::api::listing::Page;
use crate::api::schedules::{self, SchedulePage};
use crate::api::throttles::{self, ThrottlePage, Throttled};
use crate::api::views::Throttle;
use crate::api::workers::{self, WorkerPage};
use crate::app::App;
use crate::params::{Known, Params};
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
#[template(path = "throttles.html")]
struct Throttles {
    shell: Shell,
    list: ThrottlePage,
}

#[derive(Debug, Template)]
#[template(path = "connections.html")]
struct Connections {
    shell: Shell,
    list: ConnectionPage,
}

pub(super) async fn workers(shell: Shell, app: State<Arc<App>>, Known(which): Known<Page>) -> Outcome<Html<String>> {
    page(&Workers { shell, list: workers::list(app, Params(which)).await?.0 })
}

pub(super) async fn schedules(shell: Shell, app: State<Arc<App>>, Known(which): Known<Page>) -> Outcome<Html<String>> {
    page(&Schedules { shell, list: schedules::list(app, Params(which)).await?.0 })
}

pub(super) async fn batches(shell: Shell, app: State<Arc<App>>, Known(which): Known<Page>) -> Outcome<Html<String>> {
    page(&Batches { shell, list: batches::list(app, Params(which)).await?.0 })
}

pub(super) async fn throttles(shell: Shell, app: State<Arc<App>>, Known(which): Known<Page>) -> Outcome<Html<String>> {
    page(&Throttles { shell, list: throttles::list(app, Params(which)).await?.0 })
}

pub(super) async fn connections(
    shell: Shell,
    app: State<Arc<App>>,
    Known(which): Known<Page>,
) -> Outcome<Html<String>> {
    page(&Connections { shell, list: connections::list(app, Params(which)).await?.0 })
}

impl Throttled {
    /// How many slots are held by others than those that are named.
    fn more(&self) -> u32 {
        self.throttle.held.saturating_sub(u32::try_from(self.holders.len()).unwrap_or(u32::MAX))
    }
}

impl Throttle {
    /// For how long a job counts; empty if it always does.
    fn timeout(&self) -> String {
        self.timeout_ms.map_or_else(String::new, |ms| Age(Duration::from_millis(ms)).to_string())
    }
}
