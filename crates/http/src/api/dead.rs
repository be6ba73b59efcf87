//! Dead letters by their error: a thousand dead jobs are often a few errors.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;
use windlass_engine::{Cursor, JobStateKind, JobView, Query, Reply, Timestamp, error_group};

use super::filter::Conditions;
use super::pace::Pace;
use super::view::view;
use super::views::kind;
use crate::app::{App, Shared};
use crate::name::Name;
use crate::params::Params;
use crate::problem::{Outcome, Problem};
use crate::time::moment_text;

/// The most groups in an answer. Jobs of more errors are counted together.
const GROUPS_MAX: usize = 200;

/// Jobs of one look at the engine.
const PAGE: u32 = 500;

/// How long one answer may take.
const TIME_MAX: Duration = Duration::from_millis(500);

/// Dead jobs by error.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadGroups {
    /// The groups, those of most jobs first.
    pub(crate) groups: Vec<DeadGroup>,
    /// All jobs in these groups.
    pub(crate) jobs: u64,
    /// Jobs of further errors.
    pub(crate) other_jobs: u64,
    /// Whether all dead jobs were looked at. If not, these are those that died last.
    pub(crate) is_complete: bool,
}

view! {
    /// Dead jobs with the same error.
    DeadGroup(group: Group, name: String) {
        /// The error: its class and message, with `*` for numbers, names in quotes and the like. As the parameter
        /// `error_group` of a listing or a change it stands for exactly these jobs.
        error: String = name,
        /// How many.
        jobs: u64 = group.jobs,
        /// When the first of them died, or failed for the last time.
        first_at: Option<String> = moment_text(group.first),
        /// When the last one did.
        last_at: Option<String> = moment_text(group.last),
        /// One of the queues.
        queue: Name = Name(group.queues.first().cloned().unwrap_or_default()),
        /// How many queues there are.
        queues: usize = group.queues.len(),
        /// The kind of one of the jobs, as far as its body shows it.
        kind: Option<String> = group.kind,
        /// The number of the job that died last.
        example: u64 = group.example,
    }
}

/// What a group is made from.
#[derive(Debug)]
pub(crate) struct Group {
    jobs: u64,
    first: Timestamp,
    last: Timestamp,
    queues: BTreeSet<bytes::Bytes>,
    kind: Option<String>,
    example: u64,
}

/// Dead jobs by error
///
/// Conditions narrow the search. A search that takes long ends early.
#[utoipa::path(get, path = "/api/v1/dead", tag = "jobs", operation_id = "dead_groups", params(Conditions), responses(
    (status = 200, body = DeadGroups), (status = 400, body = Problem)
))]
pub(crate) async fn groups(app: Shared, Params(conditions): Params<Conditions>) -> Outcome<Json<DeadGroups>> {
    let mut filter = conditions.filter(&app).await?;
    filter.state = Some(JobStateKind::Dead);
    let (mut client, pace, mut after) = (app.client(), Pace::new(TIME_MAX), Some(Cursor::default()));
    let (mut groups, mut other_jobs) = (BTreeMap::new(), 0);
    while let Some(page) = after.take() {
        let query = Query::Jobs { filter: filter.clone().into(), after: page, limit: PAGE };
        let Reply::Jobs { rows, next } = client.ask(query).await? else { return Err(Problem::unexpected()) };
        rows.iter().for_each(|view| other_jobs += add(&mut groups, view, &app));
        after = next;
        if !pace.goes_on().await {
            break;
        }
    }
    let mut groups: Vec<DeadGroup> = groups.into_iter().map(|(error, group)| DeadGroup::of(group, error)).collect();
    groups.sort_by(|one, other| other.jobs.cmp(&one.jobs).then_with(|| one.error.cmp(&other.error)));
    let jobs = groups.iter().map(|group| group.jobs).sum();
    Ok(Json(DeadGroups { groups, jobs, other_jobs, is_complete: after.is_none() }))
}

/// Adds a job to its group. Returns 1 if there is no room for another group.
fn add(groups: &mut BTreeMap<String, Group>, view: &JobView, app: &App) -> u64 {
    let failure = view.job.extra.as_deref().and_then(|extra| extra.failure.as_deref());
    let error = failure.map(error_group).unwrap_or_default();
    let at = failure.map_or(view.job.ready_at, |failure| failure.at);
    let is_full = groups.len() >= GROUPS_MAX;
    let group = match groups.entry(error) {
        Entry::Occupied(group) => group.into_mut(),
        Entry::Vacant(_) if is_full => return 1,
        Entry::Vacant(place) => {
            let (queues, kind) = (BTreeSet::new(), kind(view, app));
            place.insert(Group { jobs: 0, first: at, last: at, queues, kind, example: view.job.id.0 })
        }
    };
    group.jobs += 1;
    group.first = group.first.min(at);
    if at > group.last {
        (group.last, group.example) = (at, view.job.id.0);
    }
    if group.queues.len() < GROUPS_MAX {
        group.queues.insert(view.queue.clone());
    }
    0
}
