//! One queue with its jobs.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};

use super::shell::{Age, Shell, page};
use crate::api::filter::Conditions;
use crate::api::jobs::{self, JobPage};
use crate::api::listing::Page;
use crate::api::queues;
use crate::api::views::Queue;
use crate::app::App;
use crate::name::Name;
use crate::params::{Known, Segments, TwoParams};
use crate::prefix::to_path;
use crate::problem::Outcome;

#[derive(Debug, Template)]
#[template(path = "queue.html")]
struct OneQueue {
    shell: Shell,
    queue: Queue,
    list: JobPage,
    /// The jobs' condition as a query.
    query: String,
}

pub(super) async fn show(
    shell: Shell,
    State(app): State<Arc<App>>,
    Segments(name): Segments<Name>,
    Known(which): Known<Page>,
) -> Outcome<Response> {
    let queue = match queues::get(State(Arc::clone(&app)), Segments(name.clone())).await {
        Ok(queue) => queue.0,
        // As Faktory does: its bookmarks outlive queues.
        Err(problem) if problem.status == StatusCode::NOT_FOUND => return Ok(to_path(&shell.prefix, "/queues")),
        Err(problem) => return Err(problem),
    };
    let list = jobs::list(State(app), TwoParams(Conditions::of_queue(name), which)).await?.0;
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("queue", &queue.name.to_string()).finish();
    page(&OneQueue { shell, queue, list, query }).map(|page| page.into_response())
}

impl Queue {
    /// How many of its jobs are in a state.
    pub(super) fn count(&self, state: &str) -> u64 {
        self.states.get(state).copied().unwrap_or_default()
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
