//! The conditions by which listings and bulk changes select jobs.

use serde::Deserialize;
use utoipa::IntoParams;
use windlass_config::Period;
use windlass_engine::{
    ClientId, Condition, Filter, JobId, JobRef, JobStateKind, Protocol, Query, Reply, Timestamp,
};

use super::views::State;
use crate::app::App;
use crate::name::Name;
use crate::problem::{Outcome, Problem};
use crate::sight::Sight;

/// Conditions; jobs must match all of them.
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
    /// With this kind: FWP's jobtype, EventMQ's path and callable. The kind of any other job is its queue. A `*` stands
    /// for any text; then the case of letters does not matter.
    kind: Option<String>,
    /// With exactly this kind, as `GET /dead` has it; an empty one selects jobs whose bodies do not show a kind.
    exact_kind: Option<Name>,
    /// With this coalescing key.
    key: Option<Name>,
    /// With this policy key (docs/policies.md); an empty one selects jobs without a key.
    policy_key: Option<Name>,
    /// With this name (FWP's jid, EventMQ's message id).
    name: Option<Name>,
    /// With this text in the first MiB of the body, whatever the case of letters.
    text: Option<String>,
    /// With this text in the class or the message of the last failure, whatever the case of letters. With a `*`, which
    /// stands for any text, it is all of it: `CLASS: MESSAGE`.
    error: Option<String>,
    /// Whose last failure is of this group: `error` of `GET /dead`; an empty one selects jobs without a failure.
    error_group: Option<String>,
    /// In this batch, as a job or as one of its callbacks.
    batch: Option<Name>,
    /// That this worker has, under a lease that outlasts its connections (FWP, HTTP).
    worker: Option<Name>,
    /// That this connection has, under a lease that ends with it (Gearman, EventMQ).
    connection: Option<u64>,
    /// Ready, or created, at least this long ago: `90s`, `1h30m`, `2d`.
    #[param(value_type = Option<String>)]
    older_than: Option<Period>,
    /// Ready, or created, at most this long ago.
    #[param(value_type = Option<String>)]
    newer_than: Option<Period>,
}

/// Job IDs: `1,2,3`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Ids(Vec<JobId>);

/// The text is not a list of IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ids must be numbers, separated by commas")]
struct IdsError;

impl Conditions {
    /// All jobs of a queue.
    pub(crate) fn of_queue(queue: Name) -> Self {
        Self {
            queue: Some(queue),
            ..Self::default()
        }
    }

    /// The jobs of a batch.
    pub(crate) fn of_batch(batch: Name) -> Self {
        Self {
            batch: Some(batch),
            ..Self::default()
        }
    }

    /// Restricts the conditions to leased jobs.
    pub(crate) fn leased(self) -> Self {
        Self {
            state: Some(State::Leased),
            ..self
        }
    }

    /// Restricts the conditions to ready jobs.
    pub(crate) fn ready(self) -> Self {
        Self {
            state: Some(State::Ready),
            ..self
        }
    }

    /// The same conditions, if the execution order of such jobs is known.
    pub(super) fn in_turn(self) -> Outcome<Self> {
        match (self.state, &self.queue) {
            (Some(State::Scheduled | State::Retrying), _) | (Some(State::Ready), Some(_)) => {
                Ok(self)
            }
            (None, Some(_)) => Ok(self.ready()),
            (..) => Err(Problem::bad_request(
                "order=next is for the ready jobs of one queue, and for state=scheduled and state=retrying",
            )),
        }
    }

    /// Returns true if the jobs of a batch are selected.
    pub(super) const fn has_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// Restricts the conditions to failed jobs: dead ones, or retrying ones if that state was requested.
    pub(super) fn failed(self) -> Outcome<Self> {
        match self.state {
            None => Ok(Self {
                state: Some(State::Dead),
                ..self
            }),
            Some(State::Dead | State::Retrying) => Ok(self),
            Some(_) => Err(Problem::bad_request(
                "only dead and retrying jobs have errors to group them by",
            )),
        }
    }

    /// Returns true if dead jobs may match.
    pub(super) fn may_be_dead(&self) -> bool {
        self.state.is_none_or(|state| state == State::Dead)
    }

    /// Returns true if there is no condition, so that all jobs match.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The engine's filter. Periods count from now.
    pub(super) async fn filter(self, app: &App, sight: Sight) -> Outcome<Filter> {
        if self.text.is_some() {
            sight.check_search(app, self.queue.as_ref()).await?;
        }
        let protocol = self
            .protocol
            .as_deref()
            .map(|name| app.protocol(name))
            .transpose()?;
        let (mut ids, mut names) = (self.ids.clone(), self.name.clone());
        if let (None, Some(name)) = (&ids, &names)
            && let Some(id) = message(app, name).await?
        {
            (ids, names) = (Some(Ids(vec![id])), None);
        }
        // Only a leased job has a worker, and leased jobs are few.
        let leased =
            (self.worker.is_some() || self.connection.is_some()).then_some(JobStateKind::Leased);
        let (state, queue) = (
            self.state.and_then(State::kind).or(leased),
            self.queue.clone().map(|name| name.0),
        );
        let conditions = self.others(app);
        Ok(Filter {
            state,
            queue,
            protocol,
            ids: ids.map(|ids| ids.0).unwrap_or_default(),
            names: names.map(|name| name.0).into_iter().collect(),
            conditions,
        })
    }

    /// The conditions that need a test of each job, the cheapest first.
    fn others(self, app: &App) -> Vec<Condition> {
        let Self {
            kind,
            exact_kind,
            key,
            policy_key,
            name,
            text,
            error,
            error_group,
            batch,
            worker,
            connection,
            ids,
            ..
        } = self;
        let wall = app.now().wall;
        let since = |period: Period| Timestamp(wall.0.saturating_sub(period.as_ms()));
        let calls = |name: String| Condition::Calls {
            name: name.into(),
            or_queue: true,
        };
        let conditions = [
            worker.map(|worker| Condition::HeldBy(worker.0)),
            connection.map(|id| Condition::HeldOn(ClientId(id))),
            self.older_than.map(since).map(Condition::ReadyUntil),
            self.newer_than.map(since).map(Condition::ReadyFrom),
            key.map(|key| Condition::Keyed(key.0)),
            policy_key.map(|key| Condition::OfKey(key.0)),
            batch.map(|batch| Condition::InBatch(batch.0)),
            // With IDs, the engine finds the jobs directly and ignores the names.
            name.filter(|_| ids.is_some())
                .map(|name| Condition::Named(name.0)),
            text.map(|text| Condition::Body(text.into())),
            error.map(|error| Condition::Failure(error.into())),
            error_group.map(|group| Condition::FailedLike(group.into())),
            kind.map(calls),
            exact_kind.map(|kind| Condition::OfKind(kind.0)),
        ];
        conditions.into_iter().flatten().collect()
    }
}

/// The job of EventMQ with this message ID, which is the job's key.
async fn message(app: &App, id: &Name) -> Outcome<Option<JobId>> {
    let job = JobRef::KeyAnywhere {
        protocol: Protocol::EVENTMQ,
        key: id.0.clone(),
    };
    let Reply::Looked { job, .. } = app.ask(Query::Job(job)).await? else {
        return Err(Problem::unexpected());
    };
    Ok(job.map(|view| view.job.id))
}

impl TryFrom<String> for Ids {
    type Error = IdsError;

    fn try_from(text: String) -> Result<Self, IdsError> {
        let ids: Result<Vec<_>, _> = text
            .split(',')
            .map(|id| id.trim().parse().map(JobId))
            .collect();
        ids.map(Self).map_err(|_| IdsError)
    }
}
