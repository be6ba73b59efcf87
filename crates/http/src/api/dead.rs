//! Failures grouped by error and kind, because a thousand dead or retrying jobs often have only a few
//! different errors.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::Json;
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;
use windlass_engine::{
    Cursor, Filter, JobState, JobStateKind, JobView, Query, Reply, Timestamp, error_group,
};

use super::filter::Conditions;
use super::pace::Pace;
use super::views::kind;
use crate::app::{App, Now, Shared};
use crate::name::Name;
use crate::params::Params;
use crate::problem::{Outcome, Problem};
use crate::sight::Sight;
use crate::time::moment_text;
use crate::view::view;

/// The limit of groups in a response. Jobs of further groups are only counted.
const GROUPS_MAX: usize = 200;

/// Jobs per visit to the engine.
const PAGE: u32 = 500;

/// The time limit of a response.
const TIME_MAX: Duration = Duration::from_millis(500);

/// Dead or retrying jobs by error and kind.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorGroups {
    /// The groups, those of most jobs first.
    pub(crate) groups: Vec<ErrorGroup>,
    /// All jobs in these groups.
    pub(crate) jobs: u64,
    /// Jobs of further groups.
    pub(crate) other_jobs: u64,
    /// Whether all such jobs were looked at. If not, these are the dead ones that died last, or the retrying ones that are
    /// tried next.
    pub(crate) is_complete: bool,
}

view! {
    /// Dead or retrying jobs with the same error and of the same kind.
    ErrorGroup(group: Group, error: String, kind: String, now: Now) {
        /// The error: its class and message, with `*` for numbers, names in quotes and the like; empty without one. The
        /// parameters `error_group` and `exact_kind` of a listing or a change stand for exactly these jobs.
        error: String = error,
        /// The kind of the jobs; null if their bodies do not show it, for which `exact_kind` is empty.
        kind: Option<String> = Some(kind).filter(|kind| !kind.is_empty()),
        /// How many.
        jobs: u64 = group.jobs,
        /// When the first of them died, or failed for the last time. Of retrying jobs: since when one of them fails.
        first_at: Option<String> = moment_text(group.first),
        /// When the last one died, or failed for the last time.
        last_at: Option<String> = moment_text(group.last),
        /// When the first of them is tried again; null of dead jobs.
        next_at: Option<String> = group.next.and_then(|at| now.text(at)),
        /// One of the queues.
        queue: Name = Name(group.queues.first().map(|(_, queue)| queue.clone()).unwrap_or_default()),
        /// The namespace of that queue, if it has a name.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<Name> = Name::of(group.queues.first().map_or(&Bytes::new(), |(namespace, _)| namespace)),
        /// How many queues there are.
        queues: usize = group.queues.len(),
        /// The number of the job that died, or failed, last.
        example: u64 = group.example,
    }
}

/// The data from which a group is computed.
#[derive(Debug)]
pub(crate) struct Group {
    jobs: u64,
    first: Timestamp,
    last: Timestamp,
    /// By the engine's time.
    next: Option<Timestamp>,
    /// Each namespace and name.
    queues: BTreeSet<(Bytes, Bytes)>,
    example: u64,
}

/// Dead or retrying jobs by error and kind
///
/// With `state=retrying` those that have failed and are tried again, otherwise the dead ones. Conditions narrow the search.
/// A search that takes long ends early.
#[utoipa::path(get, path = "/api/v1/dead", tag = "jobs", operation_id = "dead_groups", params(Conditions), responses(
    (status = 200, body = ErrorGroups), (status = 400, body = Problem)
))]
pub(crate) async fn groups(
    app: Shared,
    sight: Sight,
    Params(conditions): Params<Conditions>,
) -> Outcome<Json<ErrorGroups>> {
    let conditions = conditions.failed()?;
    let filter = conditions.filter(&app, sight).await?;
    let (mut client, pace, mut after) =
        (app.client(), Pace::new(TIME_MAX), Some(Cursor::default()));
    let (mut groups, mut other_jobs) = (BTreeMap::new(), 0);
    while let Some(page) = after.take() {
        let query = Query::Jobs {
            filter: filter.clone().into(),
            after: page,
            limit: PAGE,
        };
        let Reply::Jobs { rows, next } = client.ask(query).await? else {
            return Err(Problem::unexpected());
        };
        rows.iter()
            .for_each(|view| other_jobs += add(&mut groups, view, &app));
        after = next;
        if !pace.goes_on().await {
            break;
        }
    }
    let now = app.now();
    let of =
        |((error, kind), group): ((String, String), Group)| ErrorGroup::of(group, error, kind, now);
    let mut groups: Vec<ErrorGroup> = groups.into_iter().map(of).collect();
    // The groups are sorted by error and kind, and this stable sort retains that order for equal
    // numbers of jobs.
    groups.sort_by_key(|group| std::cmp::Reverse(group.jobs));
    let jobs = groups.iter().map(|group| group.jobs).sum();
    Ok(Json(ErrorGroups {
        groups,
        jobs,
        other_jobs,
        is_complete: after.is_none(),
    }))
}

/// A recent error, with the kind and the number of affected jobs.
#[derive(Debug)]
pub(crate) struct Lately {
    pub(crate) error: String,
    pub(crate) kind: String,
    pub(crate) jobs: u64,
}

/// Errors of dead or retrying jobs within this time, the most frequent first. Uses a single visit to the
/// engine, which returns the jobs that died last, or are retried next.
pub(crate) async fn lately(
    app: &App,
    state: JobStateKind,
    within: Duration,
) -> Outcome<Vec<Lately>> {
    let filter = Filter {
        state: Some(state),
        ..Filter::default()
    };
    let query = Query::Jobs {
        filter: filter.into(),
        after: Cursor::default(),
        limit: PAGE,
    };
    let Reply::Jobs { rows, .. } = app.ask(query).await? else {
        return Err(Problem::unexpected());
    };
    let wall = app.now().wall;
    let is_new = |view: &&JobView| {
        let failure = view
            .job
            .extra
            .as_deref()
            .and_then(|extra| extra.failure.as_deref());
        failure.is_some_and(|failure| u128::from(wall.ms_since(failure.at)) <= within.as_millis())
    };
    let mut groups = BTreeMap::new();
    rows.iter()
        .filter(is_new)
        .for_each(|view| _ = add(&mut groups, view, app));
    let of = |((error, kind), group): ((String, String), Group)| Lately {
        error,
        kind,
        jobs: group.jobs,
    };
    let mut all: Vec<Lately> = groups.into_iter().map(of).collect();
    all.sort_by_key(|it| std::cmp::Reverse(it.jobs));
    Ok(all)
}

/// Adds a job to a group. Returns 1 if there is no space for another group.
fn add(groups: &mut BTreeMap<(String, String), Group>, view: &JobView, app: &App) -> u64 {
    let failure = view
        .job
        .extra
        .as_deref()
        .and_then(|extra| extra.failure.as_deref());
    let next = if let JobState::Retrying(at) = view.job.state {
        Some(at)
    } else {
        None
    };
    let last = failure.map_or(view.job.ready_at, |failure| failure.at);
    let first = failure
        .filter(|_| next.is_some())
        .map_or(last, |failure| failure.first_at);
    let is_full = groups.len() >= GROUPS_MAX;
    let group = match groups.entry((
        failure.map(error_group).unwrap_or_default(),
        kind(view, app).unwrap_or_default(),
    )) {
        Entry::Occupied(group) => group.into_mut(),
        Entry::Vacant(_) if is_full => return 1,
        Entry::Vacant(place) => place.insert(Group {
            jobs: 0,
            first,
            last,
            next,
            queues: BTreeSet::new(),
            example: view.job.id.0,
        }),
    };
    group.jobs += 1;
    group.first = group.first.min(first);
    group.next = group.next.min(next);
    if last > group.last {
        (group.last, group.example) = (last, view.job.id.0);
    }
    if group.queues.len() < GROUPS_MAX {
        let queue = (view.namespace.clone(), view.queue.clone());
        group.queues.insert(queue);
    }
    0
}
