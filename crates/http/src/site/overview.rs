//! The overview: concerns, jobs by state, and figures over time.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use windlass_engine::{JobStateKind, Protocol};

use super::history::{Backlog, EVERY, Point, Reading, part, real};
use super::plot::{Look, Plot, Series, figure};
use super::shell::{Rendered, Shell, page};
use crate::api::history::{self, Day};
use crate::api::status::{self, Status};
use crate::app::{App, Shared};
use crate::attention::{self, Concern};
use crate::params::Params;
use crate::problem::{Outcome, Problem};
use crate::refusing::{self, Logged};
use crate::time::Age;

#[derive(Debug, Template)]
#[template(path = "overview.html")]
struct Overview {
    shell: Shell,
    status: Status,
    concerns: Vec<Concern>,
    spans: [(&'static str, &'static str, bool); 5],
    plots: Vec<Plot>,
}

/// The periods of the plots, with titles.
const SPANS: [(&str, &str); 5] = [
    ("minutes", "5 min"),
    ("hour", "1 h"),
    ("day", "24 h"),
    ("month", "30 days"),
    ("half", "180 days"),
];

/// Points of five minutes.
const MINUTES: usize = 60;

/// The limit of points in a line.
const POINTS_MAX: usize = 300;

/// The states in the order of a job's life.
const LIFE: [&str; 6] = ["scheduled", "ready", "leased", "retrying", "dead", "parked"];

const FLOW: [Series<Point>; 2] = [
    ("pushed", |it: &Point| it.pushed),
    ("failed", |it| it.failed),
];
const BACKLOG: [Series<Point>; 2] = [
    ("ready", |it: &Point| it.ready),
    ("in hand", |it| it.leased),
];
const WAITED: [Series<Point>; 3] = [
    ("p50", |it: &Point| part(&it.waited, 0)),
    ("p95", |it| part(&it.waited, 1)),
    ("p99", |it| part(&it.waited, 2)),
];
const RAN: [Series<Point>; 3] = [
    ("p50", |it: &Point| part(&it.ran, 0)),
    ("p95", |it| part(&it.ran, 1)),
    ("p99", |it| part(&it.ran, 2)),
];
const COUNTS: [Series<Day>; 4] = [
    ("pushed", |it: &Day| real(it.count("pushed"))),
    ("done", |it| real(it.count("succeeded"))),
    ("failed", |it| real(it.count("failed"))),
    ("dead", |it| real(it.count("dead"))),
];

pub(super) async fn show(shell: Shell, app: Shared) -> Rendered {
    let [hour, day] = app.history.points();
    let known = SPANS
        .into_iter()
        .find(|(span, _)| ["", *span].contains(&shell.given("span")));
    let (shown, _) =
        known.ok_or_else(|| Problem::bad_request("span is minutes, hour, day, month or half"))?;
    let plots = match shown {
        // They are drawn for the whole daemon.
        _ if app.namespace().is_some() => Vec::new(),
        "hour" => rates(&hour, EVERY.as_secs()),
        "day" => rates(&day, 60),
        "month" => counts(&app, 30).await?,
        "half" => counts(&app, history::DAYS_MAX).await?,
        _ => rates(hour.get(..MINUTES).unwrap_or(&hour), EVERY.as_secs()),
    };
    let spans = SPANS.map(|(span, title)| (span, title, span == shown));
    let concerns = attention::look(&app).await;
    let status = status::of(&app, &concerns).await?;
    page(&Overview {
        shell,
        status,
        concerns,
        spans,
        plots,
    })
}

/// Adds a point to the history every few seconds, until the daemon stops.
pub(crate) async fn watch(app: Arc<App>) {
    let (mut before, mut logged) = (None, Logged::default());
    loop {
        let (stats, figures) = (app.stats().await.ok(), app.figures().await.ok());
        if let (Some(stats), Some(figures)) = (&stats, &figures) {
            let mut backlog = Backlog::new();
            for (namespace, name) in app.history.names() {
                let beside = app.beside(&namespace);
                if let Ok(Some(row)) = beside.queue(name.clone()).await {
                    let [ready, leased] = [JobStateKind::Ready, JobStateKind::Leased]
                        .map(|kind| row.jobs(kind).into());
                    backlog.insert((namespace, name), (ready, leased));
                }
            }
            app.history.add_queues(app.now().wall, figures, &backlog);
            if let Ok(kinds) = app.kinds().await {
                app.by_kind.add(&app, figures, kinds);
            }
            let now = Reading::of(app.now().wall, stats, figures);
            if let Some(before) = &before {
                app.history.add(now.since(before));
            }
            before = Some(now);
        }
        attention::survey(&app).await;
        refusing::watch(&app, stats.as_deref(), &mut logged);
        attention::lately(&app, stats.as_deref());
        tokio::time::sleep(EVERY).await;
    }
}

impl Status {
    fn life(&self) -> Vec<(&'static str, u64)> {
        life(&self.states)
    }

    /// The number of jobs that are done.
    fn done(&self) -> u64 {
        self.totals.get("succeeded").copied().unwrap_or_default()
    }
}

/// The states in the order of a job's life, with counts. Rare states are omitted if their count is 0.
pub(super) fn life(states: &BTreeMap<&'static str, u64>) -> Vec<(&'static str, u64)> {
    let count = |state| states.get(state).copied().unwrap_or_default();
    LIFE.into_iter()
        .map(|state| (state, count(state)))
        .filter(|it| it.0 != "parked" || it.1 > 0)
        .collect()
}

fn ago(seconds: u64) -> String {
    if seconds == 0 {
        "now".to_owned()
    } else {
        format!("{} ago", Age::of_seconds(real(seconds)))
    }
}

/// Plots of points with this many seconds between them, the newest first.
pub(super) fn rates(points: &[Point], seconds: u64) -> Vec<Plot> {
    let thin = Point::thinned(points, POINTS_MAX);
    let step = seconds * points.len().div_ceil(thin.len().max(1)).max(1) as u64;
    let (points, time) = (thin.as_slice(), &move |index| ago(index as u64 * step));
    let (count, age) = (
        Look {
            show: figure,
            time,
            stacked: false,
        },
        Look {
            show: |seconds| Age::of_seconds(seconds).to_string(),
            time,
            stacked: false,
        },
    );
    let done = Protocol::ALL.iter().enumerate();
    let mut done: Vec<_> = done
        .map(|(at, row)| (row.name, move |it: &Point| part(&it.done, at)))
        .collect();
    // A protocol without jobs is no line.
    if points.iter().any(|it| it.all_done() > 0.0) {
        done.retain(|(_, value)| points.iter().any(|it| value(it) > 0.0));
    } else {
        done.truncate(1);
    }
    vec![
        Plot::new(
            "Done, per second",
            points,
            &done,
            Look {
                stacked: true,
                ..count
            },
        ),
        Plot::new("Pushed and failed, per second", points, &FLOW, count),
        Plot::new("Backlog", points, &BACKLOG, count),
        Plot::new("Wait", points, &WAITED, age),
        Plot::new("Run time", points, &RAN, age),
    ]
}

async fn counts(app: &Shared, days: u32) -> Outcome<Vec<Plot>> {
    let which = Params(history::Which { days: Some(days) });
    let days_back = history::history(app.clone(), which).await?.0.days;
    // The days before the first job are omitted.
    let first = days_back
        .iter()
        .rposition(|day| COUNTS.iter().any(|(_, value)| value(day) > 0.0))
        .unwrap_or_default();
    let known = days_back.get(..=first).unwrap_or(&days_back);
    let time = &|index| {
        if index == 0 {
            "today".to_owned()
        } else {
            format!("{index} days ago")
        }
    };
    Ok(vec![Plot::new(
        "Jobs per day (UTC)",
        known,
        &COUNTS,
        Look {
            show: figure,
            time,
            stacked: false,
        },
    )])
}
