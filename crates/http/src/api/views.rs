//! Jobs and queues in responses.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use utoipa::ToSchema;
use windlass_engine::{
    BODY_READ_MAX, Calls, Holder, JobState, JobStateKind, JobView, Priority, Protocol, QueueKind,
    QueueRow, Role,
};

use super::policies::QueuePolicy;
use crate::app::{App, Now};
use crate::name::Name;
use crate::sight::Sight;
use crate::time::moment_text;
use crate::view::view;

/// The longest body of which a summary shows the arguments.
const SUMMARY_READ_MAX: usize = 64 << 10;

/// A longer body is not included in an object, and must be read from `/body`.
pub(super) const BODY_SHOWN_MAX: usize = BODY_READ_MAX;

/// A job's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Waiting to be taken.
    Ready,
    /// A worker has it.
    Leased,
    /// Waiting for the scheduled time.
    Scheduled,
    /// Failed, and waiting for the next attempt.
    Retrying,
    /// Failed for good.
    Dead,
    /// Removed from a cycle queue.
    Parked,
    /// Finished, and retained for the result.
    Done,
}

view! {
    /// A job.
    Job(view: &JobView, app: &App, sight: Sight, now: Now) with {
        let job = &view.job;
        let body = shown(view, app, sight);
        let message_id = job.key().filter(|_| job.protocol == Protocol::EVENTMQ);
        let failure = job.extra.as_deref().and_then(|extra| extra.failure.as_deref());
    } {
        /// Its number.
        id: u64 = job.id.0,
        /// Its producer's name for it (FWP's jid, EventMQ's message id).
        name: Option<Name> = Name::of(job.name()).or_else(|| message_id.and_then(Name::of)),
        /// Its queue.
        queue: Name = Name(view.queue.clone()),
        /// The protocol of its producer.
        protocol: &'static str = app.protocol_name(job.protocol),
        /// What it calls: FWP's jobtype, EventMQ's path and callable, otherwise its queue.
        kind: Option<String> = kind(view, app),
        /// The beginning of its body, if it is text; of FWP's jobs, of their `args`.
        summary: Option<String> = summary(job.protocol, &body),
        /// Whether parts of its body are hidden from this login (`queues.NAME.mask`).
        is_masked: bool = matches!(body, Cow::Owned(_)),
        /// Its state.
        #[schema(value_type = State)]
        state: &'static str = state_name(job.state.kind()),
        /// When it leaves its state by itself: the time it is scheduled for or retried at, the end of its lease, the end of
        /// its retention.
        until: Option<String> = match &job.state {
            JobState::Leased(lease) => now.text(lease.until),
            JobState::Scheduled(at) => moment_text(*at),
            JobState::Retrying(at) | JobState::Dead(at) | JobState::Done(at) => now.text(*at),
            JobState::Ready | JobState::Parked => None,
        },
        /// Its holder, if it is leased.
        lease: Option<Lease> = job.lease().map(|lease| Lease::of(lease, now)),
        /// 1 to 9; 9 is taken first.
        priority: u8 = job.priority.value(),
        /// Deliveries so far.
        attempts: u32 = job.attempts,
        /// Failures so far.
        failures: u32 = job.failures,
        /// When it became ready, or was created if it never was ready.
        ready_at: Option<String> = moment_text(job.ready_at),
        /// Its coalescing key.
        key: Option<Name> = job.key().and_then(|key| sight.key(app, view.into(), key)),
        /// What it is in its batch: a `job`, or the callback `complete` or `success`.
        batch_role: Option<&'static str> = job.extra.as_deref().and_then(|extra| extra.member).map(|it| match it.role {
            Role::Job => "job",
            Role::Complete => "complete",
            Role::Success => "success",
        }),
        /// The length of its body.
        body_bytes: usize = job.body().len(),
        /// Its last failure.
        failure: Option<Failure> = failure.map(Failure::of),
        /// The namespace, if it has a name.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<Name> = Name::of(&view.namespace),
    }
}

view! {
    /// A worker's right to a job.
    Lease(lease: &windlass_engine::Lease, now: Now) with {
        let (name, connection) = match &lease.holder {
            Holder::Named(name) => (Name::of(name), None),
            Holder::Connection(id) => (None, Some(id.0)),
            Holder::Away(_) => (None, None),
        };
    } {
        /// The worker's name, if it has given one. A listing does not show the names of connections.
        worker: Option<Name> = name,
        /// The number of the connection, if the lease ends with it.
        connection: Option<u64> = connection,
        /// Whether it ends with the worker's connection. Otherwise only its time ends it.
        connection_bound: bool = lease.connection_bound(),
        /// Since when.
        since: Option<String> = now.text(lease.taken_at),
        /// When it ends by itself; null if only the worker ends it.
        until: Option<String> = now.text(lease.until),
    }
}

view! {
    /// A failure, as the worker reported it.
    Failure(failure: &windlass_engine::Failure) {
        /// When.
        at: Option<String> = moment_text(failure.at),
        /// When the job failed first.
        first_at: Option<String> = moment_text(failure.first_at),
        /// The class of the error.
        kind: String = text(&failure.kind),
        /// The error message.
        message: String = text(&failure.message),
        /// Lines of a stack trace; only of a single job.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        backtrace: Vec<String> = Vec::new(),
    }
}

view! {
    /// A queue.
    Queue(row: &QueueRow, parts: &[Part], app: &App, now: Now) with {
        let waits_ms = row.oldest_ready_at.map_or(0, |at| now.wall.ms_since(at));
        let jobs_max = by_priority(&row.jobs_max);
    } {
        /// Its name.
        name: Name = Name(row.name.clone()),
        /// `work`: a finished job is gone. `cycle`: a repaid entry returns.
        kind: &'static str = match row.kind {
            QueueKind::Work => "work",
            QueueKind::Cycle => "cycle",
        },
        /// Whether it holds back jobs.
        paused: bool = row.is_paused(),
        /// The protocols whose jobs it holds back; empty if it holds back all, or none.
        paused_protocols: Vec<&'static str> = app.protocol_names(row.paused),
        /// Since when it holds back jobs; null if it does not, and if that is unknown.
        paused_at: Option<String> = row.paused_at.and_then(moment_text),
        /// Whether workers of all protocols share its jobs.
        bridged: bool = row.bridged,
        /// Ready jobs by protocol, if it is not bridged: each protocol that has used it has a part of its own.
        ready_by_protocol: BTreeMap<&'static str, u32> = ready_by_protocol(row, parts),
        /// Jobs by state.
        states: BTreeMap<&'static str, u64> = counts(&row.places),
        /// Ready jobs by priority, 1 to 9; only those there are.
        ready_by_priority: BTreeMap<u8, u32> = by_priority(&row.ready).filter(|(_, count)| *count > 0).collect(),
        /// Workers that serve it: registered for it, waiting there, with a job of it in hand, or with one taken from it within
        /// the last minute. One that has registered twice counts twice.
        workers: u32 = row.served_by(),
        /// Of these, those that wait there for a job.
        waiting: Option<u32> = row.waiting,
        /// Its jobs of the last minute; null of a queue that is not among the 100 with the most traffic.
        rates: Option<Rates> = app.history.rates(&row.namespace, &row.name).map(Rates::of),
        /// When its oldest ready job became ready.
        oldest_ready_at: Option<String> = row.oldest_ready_at.and_then(moment_text),
        /// The age of its oldest ready job.
        oldest_ready_seconds: f64 = Duration::from_millis(waits_ms).as_secs_f64(),
        /// How many of its jobs may be worked on at once.
        throttle: Option<Throttle> = row.throttle.map(|throttle| Throttle::of(throttle, row.slots_held)),
        /// Which of its jobs may start when.
        policy: Option<QueuePolicy> = row.policy.as_deref().map(|policy| QueuePolicy::of(policy, now)),
        /// How many jobs it may hold when a job of each priority is pushed, 1 to 9; only the limited ones.
        jobs_max: BTreeMap<u8, u32> = jobs_max.filter_map(|(value, max)| Some((value, max?))).collect(),
        /// The protocol whose jobs have that limit; null if the limit is for all jobs together.
        jobs_max_protocol: Option<&'static str> = row.jobs_max_of.map(|protocol| app.protocol_name(protocol)),
        /// The namespace, if it has a name.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<Name> = Name::of(&row.namespace),
    }
}

view! {
    /// Jobs of a queue, a second.
    Rates(rates: [f64; 3]) with {
        let [came, done, failed] = rates;
    } {
        /// Pushed.
        pushed: f64 = came,
        /// Done.
        done: f64 = done,
        /// Failed.
        failed: f64 = failed,
    }
}

view! {
    /// How many jobs of a queue may be worked on at once.
    Throttle(throttle: windlass_engine::Throttle, slots_held: u32) {
        /// By all workers together.
        concurrency: Option<u32> = throttle.leased_max,
        /// By one worker.
        per_worker: Option<u32> = throttle.per_worker_max,
        /// After how long a job no longer counts.
        timeout_ms: Option<u64> = throttle.timeout_ms,
        /// Slots that leased jobs hold.
        held: u32 = slots_held,
    }
}

/// The names of the states, in the order of [`JobStateKind::ALL`].
pub(crate) const STATES: [&str; JobStateKind::ALL.len()] = [
    "ready",
    "leased",
    "scheduled",
    "retrying",
    "dead",
    "parked",
    "done",
];

impl State {
    pub(super) fn kind(self) -> Option<JobStateKind> {
        JobStateKind::ALL.get(self as usize).copied()
    }
}

/// The name of a state.
pub(super) fn state_name(kind: JobStateKind) -> &'static str {
    STATES.get(kind as usize).copied().unwrap_or_default()
}

/// Figures by state.
pub(super) fn counts<T: Copy + Into<u64>>(
    places: &[T; JobStateKind::ALL.len()],
) -> BTreeMap<&'static str, u64> {
    STATES
        .into_iter()
        .zip(places)
        .map(|(name, count)| (name, (*count).into()))
        .collect()
}

/// Values by lane, as values by priority.
fn by_priority<T: Copy>(lanes: &[T; Priority::COUNT]) -> impl Iterator<Item = (u8, T)> {
    Priority::all().filter_map(|priority| Some((priority.value(), *lanes.get(priority.lane())?)))
}

impl Failure {
    /// The class and the message, as far as the worker has given them.
    pub(crate) fn text(&self) -> String {
        let parts = [self.kind.as_str(), self.message.as_str()];
        parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(": ")
    }
}

/// The function that a job calls.
pub(super) fn kind(view: &JobView, app: &App) -> Option<String> {
    match app.daemon.bridge.calls(view.job.protocol, view.job.body()) {
        Calls::Named(name) => Some(Name(name.into_owned().into()).to_string()),
        Calls::Queue => Some(Name(view.queue.clone()).to_string()),
        Calls::Unknown => None,
    }
}

/// As much of a body as the summary needs, as a reader sees it.
fn shown<'a>(view: &'a JobView, app: &App, sight: Sight) -> Cow<'a, [u8]> {
    let body = view.job.body();
    let body = body.get(..=SUMMARY_READ_MAX).unwrap_or(body);
    sight.body(app, view.into(), body)
}

/// A short text by which a person recognizes a job.
fn summary(protocol: Protocol, body: &[u8]) -> Option<String> {
    const CHARACTERS_MAX: usize = 160;
    #[derive(serde::Deserialize)]
    struct Args<'a> {
        #[serde(borrow)]
        args: &'a serde_json::value::RawValue,
    }
    let args = || {
        serde_json::from_slice::<Args<'_>>(body)
            .ok()
            .map(|it| it.args.get())
    };
    let is_faktorys = protocol == Protocol::FAKTORY && body.len() <= SUMMARY_READ_MAX;
    // The last character may be incomplete.
    let beginning = body.get(..4 * CHARACTERS_MAX).unwrap_or(body);
    let beginning = || match std::str::from_utf8(beginning) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(beginning.get(..error.valid_up_to())?).ok()
        }
        Err(_) => None,
    };
    let text = if is_faktorys { args() } else { None }.or_else(beginning)?;
    let shown: String = text
        .chars()
        .take(CHARACTERS_MAX)
        .map(|it| if it.is_control() { ' ' } else { it })
        .collect();
    Some(if shown.len() < text.len() {
        shown + "…"
    } else {
        shown
    })
    .filter(|text| !text.is_empty())
}

/// A body as text, else in base64; neither if it is too long.
pub(super) fn body(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        _ if bytes.len() > BODY_SHOWN_MAX => (None, None),
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The queues that the clients of a protocol see, with the protocol's name.
pub(super) type Part = (&'static str, Vec<QueueRow>);

fn ready_by_protocol(queue: &QueueRow, parts: &[Part]) -> BTreeMap<&'static str, u32> {
    let part = |(protocol, rows): &Part| {
        let row = rows
            .iter()
            .find(|row| row.name == queue.name && row.namespace == queue.namespace)?;
        Some((*protocol, row.jobs(JobStateKind::Ready)))
    };
    parts
        .iter()
        .filter(|_| !queue.bridged)
        .filter_map(part)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_the_names_and_the_order_of_the_engines() {
        for (name, kind) in STATES.into_iter().zip(JobStateKind::ALL) {
            assert_eq!(name, format!("{kind:?}").to_lowercase());
            assert_eq!(state_name(kind), name);
            let state: State = serde_json::from_value(name.into()).unwrap();
            assert_eq!(state.kind(), Some(kind));
        }
    }
}
