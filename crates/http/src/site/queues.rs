//! All queues, in the order that the reader wants; and one queue with its jobs.

use std::time::{Duration, Instant};

use askama::Template;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use super::history::{EVERY, Point, QUEUES_MAX, real};
use super::overview::{life, rates};
use super::plot::{Plot, figure, spark};
use super::shell::{Age, Rendered, Shell, page};
use crate::api::filter::Conditions;
use crate::api::jobs::{self, JobPage, Which};
use crate::api::listing::Page;
use crate::api::policies::{self, QueueKeys};
use crate::api::queues::{self, QueuePage};
use crate::api::views::{Queue, Rates};
use crate::app::Shared;
use crate::name::Name;
use crate::params::{Known, Params, Segments, TwoParams};
use crate::prefix::to_path;
use crate::problem::Outcome;

/// How long the page collects queues before it sorts them.
const COLLECT_MAX: Duration = Duration::from_millis(300);

/// Queues of one page of the list.
const ROWS: usize = 100;

/// The columns that sort the list: the parameter, and the title.
const COLUMNS: [(&str, &str); 8] = [
    ("name", "Queue"),
    ("ready", "Ready"),
    ("leased", "In hand"),
    ("dead", "Dead"),
    ("in", "In /s"),
    ("out", "Out /s"),
    ("oldest", "Oldest"),
    ("workers", "Workers"),
];

/// The size of the line that shows what a queue has done.
const SPARK: (f64, f64) = (96.0, 24.0);

/// Which queues, and in which order.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
pub(super) struct Wanted {
    /// A part of the name, whatever the case.
    q: String,
    /// The column.
    sort: String,
    /// From 0.
    page: usize,
}

#[derive(Debug, Template)]
#[template(path = "queues.html")]
struct List {
    shell: Shell,
    wanted: Wanted,
    /// Queues, each with the line of what it has done in five minutes.
    queues: Vec<(Queue, String)>,
    /// How many match.
    found: usize,
    /// Whether all queues were looked at.
    is_complete: bool,
}

/// The list of queues.
pub(super) async fn list(shell: Shell, app: Shared, Known(wanted): Known<Wanted>) -> Rendered {
    let (begun, mut cursor, mut all) = (Instant::now(), None, Vec::new());
    let is_complete = loop {
        let which = Page { cursor, limit: Some(1_000) };
        let QueuePage { queues, next } = queues::list(app.clone(), Params(which)).await?.0;
        let part = wanted.q.to_lowercase();
        all.extend(queues.into_iter().filter(|it| it.name.to_string().to_lowercase().contains(&part)));
        cursor = next;
        if cursor.is_none() || begun.elapsed() > COLLECT_MAX {
            break cursor.is_none();
        }
    };
    match wanted.sort.as_str() {
        "name" => all.sort_by_cached_key(|it| it.name.to_string()),
        sort => all.sort_by(|one, other| other.figure(sort).total_cmp(&one.figure(sort))),
    }
    let found = all.len();
    let with_line = |queue: Queue| {
        let [points, _] = app.history.of_queue(&queue.name.0).unwrap_or_default();
        let done: Vec<f64> = points.iter().map(Point::all_done).collect();
        let line = if done.iter().any(|done| *done > 0.0) { spark(&done, SPARK) } else { String::new() };
        (queue, line)
    };
    let queues = all.into_iter().skip(wanted.page.saturating_mul(ROWS)).take(ROWS).map(with_line).collect();
    page(&List { shell, wanted, queues, found, is_complete })
}

impl List {
    /// The address of the list in this order, at this page.
    fn to(&self, sort: &str, page: usize) -> String {
        let page = page.to_string();
        let pairs = [("q", self.wanted.q.as_str()), ("sort", sort), ("page", page.as_str())];
        let given = pairs.into_iter().filter(|(_, value)| !value.is_empty() && *value != "0");
        form_urlencoded::Serializer::new(String::new()).extend_pairs(given).finish()
    }

    /// Jobs a second, in or out; empty if that is not known.
    #[expect(clippy::unused_self, reason = "templates reach functions through what they show")]
    fn rate(&self, queue: &Queue, way: &str) -> String {
        queue.rates.as_ref().map_or_else(String::new, |_| figure(queue.figure(way)))
    }

    /// Jobs that wait for a time.
    #[expect(clippy::unused_self, reason = "templates reach functions through what they show")]
    fn later(&self, queue: &Queue) -> u64 {
        queue.count("scheduled") + queue.count("retrying")
    }

    /// Whether there are more pages.
    fn has_more(&self) -> bool {
        self.wanted.page.saturating_add(1).saturating_mul(ROWS) < self.found
    }
}

#[derive(Debug, Template)]
#[template(path = "queue.html")]
struct OneQueue {
    shell: Shell,
    queue: Queue,
    policy: Option<QueueKeys>,
    /// What workers have in hand.
    running: JobPage,
    /// What runs next, or the newest jobs.
    list: JobPage,
    /// Whether the list has what runs next.
    is_next: bool,
    /// The jobs' condition as a query.
    query: String,
    /// Of the last five minutes, or of two hours; none if the queue has no history.
    plots: Vec<Plot>,
    is_long: bool,
}

/// Which part of a queue's page.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
pub(super) struct Span {
    /// `hours`: plots of two hours instead of five minutes.
    span: String,
}

/// Jobs of one kind on the page of a queue.
const FEW: u32 = 20;

pub(super) async fn show(
    shell: Shell,
    app: Shared,
    Segments(name): Segments<Name>,
    Known(which): Known<Which>,
    Known(Span { span }): Known<Span>,
) -> Outcome<Response> {
    let queue = match queues::get(app.clone(), Segments(name.clone())).await {
        Ok(queue) => queue.0,
        // As Faktory does: its bookmarks outlive queues.
        Err(problem) if problem.status == StatusCode::NOT_FOUND => return Ok(to_path(&shell.prefix, "/queues")),
        Err(problem) => return Err(problem),
    };
    let policy = policies::of_queue(&app, &name).await?;
    let of = |conditions, which| jobs::list(app.clone(), TwoParams(conditions, which));
    let first = || Which { limit: Some(FEW), ..Which::default() };
    let running = of(Conditions::of_queue(name.clone()).leased(), first()).await?.0;
    let is_next = queue.count("ready") > 0 && which.cursor.is_none();
    let list = match is_next {
        true => of(Conditions::of_queue(name).ready(), first()).await?.0,
        false => of(Conditions::of_queue(name), which).await?.0,
    };
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("queue", &queue.name.to_string()).finish();
    let is_long = span == "hours";
    let plots = match app.history.of_queue(&queue.name.0) {
        Some([_, coarse]) if is_long => rates(&coarse, 60),
        Some([fine, _]) => rates(&fine, EVERY.as_secs()),
        None => Vec::new(),
    };
    page(&OneQueue { shell, queue, policy, running, list, is_next, query, plots, is_long })
        .map(|page| page.into_response())
}

impl Queue {
    /// How many of its jobs are in a state.
    pub(super) fn count(&self, state: &str) -> u64 {
        self.states.get(state).copied().unwrap_or_default()
    }

    fn life(&self) -> Vec<(&'static str, u64)> {
        life(&self.states)
    }

    /// The figure of a column. Without one, queues stay as they were first used.
    fn figure(&self, column: &str) -> f64 {
        let rate = |of: fn(&Rates) -> f64| self.rates.as_ref().map_or(0.0, of);
        match column {
            "in" => rate(|rates| rates.pushed),
            "out" => rate(|rates| rates.done),
            "oldest" => self.oldest_ready_seconds,
            "workers" => self.workers.into(),
            state => real(self.count(state)),
        }
    }

    /// What its workers do.
    fn work(&self) -> String {
        let working = |waiting| self.workers.saturating_sub(waiting);
        match (self.workers, self.waiting) {
            (workers, None) => workers.to_string(),
            (0, _) => "0".to_owned(),
            (_, Some(0)) => format!("{} working", self.workers),
            (_, Some(waiting)) if working(waiting) == 0 => format!("{waiting} waiting"),
            (_, Some(waiting)) => format!("{} working, {waiting} waiting", working(waiting)),
        }
    }

    /// Whether it could be removed.
    fn is_removable(&self) -> bool {
        self.workers == 0 && ["ready", "leased", "scheduled", "retrying"].iter().all(|state| self.count(state) == 0)
    }

    /// How many jobs it takes; without one number for all priorities, the least.
    fn jobs_max_least(&self) -> Option<u32> {
        self.jobs_max.values().min().copied()
    }

    /// For how long its oldest ready job has been ready; empty without one.
    pub(super) fn age(&self) -> String {
        match self.oldest_ready_at {
            Some(_) => Age::of_seconds(self.oldest_ready_seconds).to_string(),
            None => String::new(),
        }
    }
}
