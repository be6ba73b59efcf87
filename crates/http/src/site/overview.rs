//! The overview: the daemon's state, jobs by state, and rates over time, or counters by day.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Html;
use serde::Deserialize;
use utoipa::IntoParams;

use super::history::{EVERY, Point, Reading, real};
use super::plot::{Plot, Series, figure};
use super::shell::{Age, Shell, page};
use crate::api::history::{self, Day};
use crate::api::status::{self, Status};
use crate::app::App;
use crate::params::{Known, Params};
use crate::problem::Outcome;

#[derive(Debug, Template)]
#[template(path = "overview.html")]
struct Overview {
    shell: Shell,
    status: Status,
    /// The spans: value, label, and whether it is shown.
    spans: [(&'static str, &'static str, bool); 4],
    plots: Vec<Plot>,
}

/// Which time.
#[derive(Debug, Deserialize, IntoParams)]
pub(super) struct Which {
    #[serde(default)]
    #[param(value_type = Option<String>)]
    span: Span,
}

/// How far back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Span {
    #[default]
    Hour,
    Day,
    Month,
    Half,
}

const SPANS: [(Span, &str, &str); 4] = [
    (Span::Hour, "hour", "One hour"),
    (Span::Day, "day", "One day"),
    (Span::Month, "month", "30 days"),
    (Span::Half, "half", "180 days"),
];

const RATES: [Series<Point>; 3] =
    [("pushed", |it: &Point| it.pushed), ("done", |it| it.succeeded), ("failed", |it| it.failed)];
const WAITING: [Series<Point>; 2] = [("ready", |it: &Point| it.ready), ("leased", |it| it.leased)];
const LATENCY: [Series<Point>; 2] = [("waited", |it: &Point| it.waited), ("ran", |it| it.ran)];
const COUNTS: [Series<Day>; 4] = [
    ("pushed", |it: &Day| real(it.count("pushed"))),
    ("done", |it| real(it.count("succeeded"))),
    ("failed", |it| real(it.count("failed"))),
    ("dead", |it| real(it.count("dead"))),
];

pub(super) async fn show(
    shell: Shell,
    State(app): State<Arc<App>>,
    Known(which): Known<Which>,
) -> Outcome<Html<String>> {
    let [hour, day] = app.history.points();
    let plots = match which.span {
        Span::Hour => rates(&hour, 720, "60 min"),
        Span::Day => rates(&day, 1_440, "24 h"),
        Span::Month => counts(&app, 30, "30 days").await?,
        Span::Half => counts(&app, history::DAYS_MAX, "180 days").await?,
    };
    let spans = SPANS.map(|(span, value, label)| (value, label, span == which.span));
    let status = status::status(State(app)).await?.0;
    page(&Overview { shell, status, spans, plots })
}

/// Reads the figures again and again.
pub(crate) async fn watch(app: Arc<App>) {
    let mut before = None;
    loop {
        if let (Ok(stats), Ok(figures)) = (app.stats().await, app.figures().await) {
            let now = Reading::of(app.now().wall, &stats, &figures);
            if let Some(before) = &before {
                app.history.add(now.since(before));
            }
            before = Some(now);
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn rates(points: &[Point], room: u32, span: &'static str) -> Vec<Plot> {
    let age = |seconds| Age::of_seconds(seconds).to_string();
    vec![
        Plot::new(("Jobs per second", span), points, room, &RATES, figure),
        Plot::new(("Jobs", span), points, room, &WAITING, figure),
        Plot::new(("95 % of jobs waited, and ran, at most", span), points, room, &LATENCY, age),
    ]
}

async fn counts(app: &Arc<App>, days: u32, span: &'static str) -> Outcome<Vec<Plot>> {
    let which = Params(history::Which { days: Some(days) });
    let days_back = history::history(State(Arc::clone(app)), which).await?.0.days;
    Ok(vec![Plot::new(("Jobs per day (UTC), today so far", span), &days_back, days, &COUNTS, figure)])
}
