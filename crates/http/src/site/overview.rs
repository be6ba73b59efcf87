//! The overview: the daemon's state, jobs by state, and rates over time.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Html;
use serde::Deserialize;

use super::history::Point;
use super::plot::{Plot, Series, figure};
use super::shell::{Age, Shell, page};
use crate::api::status::{self, Status};
use crate::app::App;
use crate::params::Params;
use crate::problem::Outcome;

#[derive(Debug, Template)]
#[template(path = "overview.html")]
struct Overview {
    shell: Shell,
    status: Status,
    is_day: bool,
    plots: Vec<Plot>,
}

/// Which time.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// `day`; an hour otherwise.
    span: Option<String>,
}

const RATES: [Series; 3] =
    [("pushed", |it: &Point| it.pushed), ("done", |it| it.succeeded), ("failed", |it| it.failed)];
const WAITING: [Series; 2] = [("ready", |it: &Point| it.ready), ("leased", |it| it.leased)];
const LATENCY: [Series; 2] = [("waited", |it: &Point| it.waited), ("ran", |it| it.ran)];

pub(super) async fn show(
    shell: Shell,
    State(app): State<Arc<App>>,
    Params(which): Params<Which>,
) -> Outcome<Html<String>> {
    let is_day = which.span.as_deref() == Some("day");
    let (points, room, span) =
        if is_day { (app.history.day(), 1_440, "24 h") } else { (app.history.hour(), 720, "60 min") };
    let age = |seconds| Age::of_seconds(seconds).to_string();
    let plots = vec![
        Plot::new(("Jobs per second", span), &points, room, &RATES, figure),
        Plot::new(("Jobs", span), &points, room, &WAITING, figure),
        Plot::new(("95 % of jobs waited, and ran, at most", span), &points, room, &LATENCY, age),
    ];
    let status = status::status(State(app)).await?.0;
    page(&Overview { shell, status, is_day, plots })
}
