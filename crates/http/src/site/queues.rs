//! All queues, in an order chosen by the reader; and a single queue with the jobs in it.

use askama::Template;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use windlass_engine::Cursor;

use super::history::{EVERY, Point, QUEUES_MAX};
use super::overview::{life, rates};
use super::plot::{Plot, figure, spark};
use super::shell::{Rendered, Shell, page};
use crate::api::filter::Conditions;
use crate::api::jobs::{self, JobPage, Order, Which};
use crate::api::listing::{Page, Rows};
use crate::api::policies::{self, QueueKeys};
use crate::api::queues;
use crate::api::views::Queue;
use crate::app::{App, Shared};
use crate::cursor::CursorText;
use crate::name::Name;
use crate::params::{Known, Segments, TwoParams};
use crate::prefix::to_path;
use crate::problem::Outcome;
use crate::time::Age;

/// Queues per page of the list.
const ROWS: u32 = 100;

/// The size of the sparkline of a queue.
const SPARK_WIDTH: f64 = 96.0;
const SPARK_HEIGHT: f64 = 24.0;

#[derive(Debug, Template)]
#[template(path = "queues.html")]
struct List {
    shell: Shell,
    /// The page, from 0.
    number: u64,
    /// Queues, each with a sparkline of the last five minutes.
    queues: Vec<(Queue, String)>,
    /// Number of matching queues.
    found: u64,
    /// True if all queues were looked at.
    sorted_all: Option<bool>,
    has_more: bool,
}

/// The list of queues.
pub(super) async fn list(mut shell: Shell, app: Shared) -> Rendered {
    let sort = shell
        .asked
        .entry("sort".to_owned())
        .or_insert_with(|| "name".to_owned())
        .clone();
    let number: u64 = shell.given("page").parse().unwrap_or_default();
    let first = CursorText(Cursor(number.saturating_mul(ROWS.into()), 0));
    let which = Page {
        cursor: Some(first),
        limit: Some(ROWS),
        sort: Some(sort),
    };
    let Rows {
        rows,
        next,
        found,
        sorted_all,
    } = queues::some(&app, which, shell.given("q")).await?;
    let with_line = |queue: Queue| {
        let [points, _] = queue.points(&app).unwrap_or_default();
        let done: Vec<f64> = points.iter().map(Point::all_done).collect();
        let line = if done.iter().any(|done| *done > 0.0) {
            spark(&done, SPARK_WIDTH, SPARK_HEIGHT)
        } else {
            String::new()
        };
        (queue, line)
    };
    let queues = rows.into_iter().map(with_line).collect();
    page(&List {
        shell,
        number,
        queues,
        found: found as u64,
        sorted_all,
        has_more: next.is_some(),
    })
}

#[derive(Debug, Template)]
#[template(path = "queue.html")]
struct OneQueue {
    shell: Shell,
    queue: Queue,
    policy: Option<QueueKeys>,
    /// Leased jobs.
    running: JobPage,
    /// The next jobs to run, or the newest jobs.
    list: JobPage,
    /// True if the list contains the next jobs to run.
    is_next: bool,
    /// The jobs' condition as a query.
    query: String,
    /// Of the last five minutes, or of two hours; empty if the queue has no history.
    plots: Vec<Plot>,
    is_long: bool,
}

/// Jobs per list on the page of a queue.
const FEW: u32 = 20;

pub(super) async fn show(
    shell: Shell,
    app: Shared,
    Segments(name): Segments<Name>,
    Known(which): Known<Which>,
) -> Outcome<Response> {
    let queue = match queues::get(app.clone(), Segments(name.clone())).await {
        Ok(queue) => queue.0,
        // As in Faktory, because bookmarks outlive queues.
        Err(problem) if problem.status == StatusCode::NOT_FOUND => {
            return Ok(to_path(&shell.prefix, "/queues"));
        }
        Err(problem) => return Err(problem),
    };
    let policy = policies::of_queue(&app, &name).await?;
    let of = |conditions, which| jobs::list(app.clone(), shell.sight, TwoParams(conditions, which));
    let first = || Which {
        limit: Some(FEW),
        ..Which::default()
    };
    let running = of(Conditions::of_queue(name.clone()).leased(), first())
        .await?
        .0;
    let is_next = queue.count("ready") > 0 && which.cursor.is_none();
    let list = match is_next {
        true => {
            of(
                Conditions::of_queue(name).ready(),
                Which {
                    order: Some(Order::Next),
                    ..first()
                },
            )
            .await?
            .0
        }
        false => of(Conditions::of_queue(name), which).await?.0,
    };
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("queue", &queue.name.to_string())
        .finish();
    let is_long = shell.given("span") == "hours";
    let plots = match queue.points(&app) {
        Some([_, coarse]) if is_long => rates(&coarse, 60),
        Some([fine, _]) => rates(&fine, EVERY.as_secs()),
        None => Vec::new(),
    };
    page(&OneQueue {
        shell,
        queue,
        policy,
        running,
        list,
        is_next,
        query,
        plots,
        is_long,
    })
    .map(|page| page.into_response())
}

impl Queue {
    /// The points of the last five minutes and of the last two hours, if the queue has a history.
    fn points(&self, app: &App) -> Option<[Vec<Point>; 2]> {
        let namespace = self.namespace.clone().map(|name| name.0);
        app.history
            .of_queue(&namespace.unwrap_or_default(), &self.name.0)
    }

    /// The number of jobs in a state.
    pub(super) fn count(&self, state: &str) -> u64 {
        self.states.get(state).copied().unwrap_or_default()
    }

    fn life(&self) -> Vec<(&'static str, u64)> {
        life(&self.states)
    }

    /// Jobs pushed and done per second; empty if unknown.
    fn flow(&self) -> [String; 2] {
        self.rates.as_ref().map_or_else(Default::default, |rates| {
            [figure(rates.pushed), figure(rates.done)]
        })
    }

    /// The activity of the workers.
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

    /// Returns true if it could be removed.
    pub(super) fn is_removable(&self) -> bool {
        self.workers == 0
            && ["ready", "leased", "scheduled", "retrying"]
                .iter()
                .all(|state| self.count(state) == 0)
    }

    /// The limit of jobs; the lowest if it depends on the priority.
    pub(super) fn jobs_max_least(&self) -> Option<u32> {
        self.jobs_max.values().min().copied()
    }

    /// The age of the oldest ready job; empty without one.
    pub(super) fn age(&self) -> String {
        match self.oldest_ready_at {
            Some(_) => Age::of_seconds(self.oldest_ready_seconds).to_string(),
            None => String::new(),
        }
    }
}
