//! Which jobs: the conditions that listings and bulk changes share.

use std::str::FromStr;
use std::sync::Arc;

use memchr::memmem::Finder;
use serde::Deserialize;
use utoipa::IntoParams;
use windlass_config::Period;
use windlass_engine::{Filter, Job, JobId, Test, Timestamp};

use super::views::{BODY_SHOWN_MAX, Kind, State, kind_of};
use crate::app::App;
use crate::name::Name;
use crate::problem::Outcome;

/// Which jobs; all conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct Conditions {
    /// With one of these numbers, separated by commas.
    #[param(value_type = Option<String>)]
    ids: Option<Ids>,
    /// In this queue.
    queue: Option<Name>,
    /// In this state.
    state: Option<State>,
    /// Of this protocol: `faktory`, `gearman`, `spiderq`, `eventmq` or `http`.
    protocol: Option<String>,
    /// With this kind: FWP's jobtype, EventMQ's path and callable. The kind of any other job is its queue.
    kind: Option<String>,
    /// With this coalescing key.
    key: Option<Name>,
    /// With this name (FWP's jid, EventMQ's message id).
    name: Option<Name>,
    /// With this text in the first MiB of the body, letter for letter.
    text: Option<String>,
    /// With this text in the class or the message of the last failure, letter for letter.
    error: Option<String>,
    /// Ready, or created, at least this long ago: `90s`, `1h30m`, `2d`.
    #[param(value_type = Option<String>)]
    older_than: Option<Period>,
    /// Ready, or created, at most this long ago.
    #[param(value_type = Option<String>)]
    newer_than: Option<Period>,
}

/// Numbers of jobs: `1,2,3`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Ids(Vec<JobId>);

/// A text that is not a list of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ids must be numbers, separated by commas")]
struct IdsError;

impl Conditions {
    /// All jobs of a queue.
    pub(crate) fn of_queue(queue: Name) -> Self {
        Self { queue: Some(queue), ..Self::default() }
    }

    /// Whether there is no condition: the filter matches all jobs.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The engine's filter. Periods count from now.
    pub(super) fn filter(self, app: &App) -> Outcome<Filter> {
        let protocol = self.protocol.as_deref().map(|name| app.protocol(name)).transpose()?;
        let (ids, names) = (self.ids.clone(), self.name.clone());
        let (state, queue) = (self.state.map(State::kind), self.queue.clone().map(|name| name.0));
        let test = self.test(app);
        Ok(Filter {
            state,
            queue,
            protocol,
            ids: ids.map(|ids| ids.0).unwrap_or_default(),
            names: names.map(|name| name.0).into_iter().collect(),
            test,
        })
    }

    /// The conditions that the engine has no words for. A test is a pure function of the job.
    fn test(self, app: &App) -> Option<Test> {
        let Self { queue, kind, key, name, text, error, older_than, newer_than, ids, .. } = self;
        // Numbers lead the engine directly to the jobs; then it does not look at names.
        let name = name.filter(|_| ids.is_some());
        if [kind.is_some(), key.is_some(), name.is_some(), text.is_some(), error.is_some()] == [false; 5]
            && (older_than, newer_than) == (None, None)
        {
            return None;
        }
        let wall = app.now().wall;
        let since = |period: Period| Timestamp(wall.0.saturating_sub(period.as_ms()));
        let (until, from) = (older_than.map(since), newer_than.map(since));
        let finder = |text: String| Finder::new(text.as_bytes()).into_owned();
        let (text, error) = (text.map(finder), error.map(finder));
        let bridge = Arc::clone(&app.daemon.bridge);
        let kind_is_queue = kind.as_ref().is_some_and(|kind| queue.is_some_and(|queue| queue.0 == kind.as_bytes()));
        Some(Test(Arc::new(move |job: &Job| {
            until.is_none_or(|until| job.ready_at <= until)
                && from.is_none_or(|from| job.ready_at >= from)
                && key.as_ref().is_none_or(|key| job.key() == Some(&key.0[..]))
                && name.as_ref().is_none_or(|name| job.name() == name.0)
                && text.as_ref().is_none_or(|text| text.find(beginning(job.body())).is_some())
                && error.as_ref().is_none_or(|error| has_error(job, error))
                && kind.as_ref().is_none_or(|kind| match kind_of(&bridge, job.protocol, job.body()) {
                    Kind::Named(name) => name == *kind,
                    Kind::Queue => kind_is_queue,
                    Kind::Unknown => false,
                })
        })))
    }
}

/// The part of a body that is searched: the search of a longer one would keep other clients waiting.
fn beginning(body: &[u8]) -> &[u8] {
    body.get(..BODY_SHOWN_MAX).unwrap_or(body)
}

fn has_error(job: &Job, error: &Finder<'_>) -> bool {
    let failure = job.extra.as_deref().and_then(|extra| extra.failure.as_deref());
    failure.is_some_and(|failure| [&failure.kind, &failure.message].into_iter().any(|it| error.find(it).is_some()))
}

impl FromStr for Ids {
    type Err = IdsError;

    fn from_str(text: &str) -> Result<Self, IdsError> {
        let ids: Result<Vec<_>, _> = text.split(',').map(|id| id.trim().parse().map(JobId)).collect();
        ids.map(Self).map_err(|_| IdsError)
    }
}

impl TryFrom<String> for Ids {
    type Error = IdsError;

    fn try_from(text: String) -> Result<Self, IdsError> {
        text.parse()
    }
}
