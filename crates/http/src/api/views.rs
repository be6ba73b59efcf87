//! How jobs and queues look in answers.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_engine::{
    BODY_READ_MAX, Calls, Holder, JobState, JobStateKind, JobView, Priority, Protocol, QueueKind, QueueRow,
};

use crate::app::{App, Now};
use crate::name::Name;
use crate::time::moment_text;

/// A longer body is not part of an object: `/body` has it.
pub(super) const BODY_SHOWN_MAX: usize = BODY_READ_MAX;

/// A job's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Waits to be taken.
    Ready,
    /// A worker has it.
    Leased,
    /// Waits for its time.
    Scheduled,
    /// Failed, and waits for its next attempt.
    Retrying,
    /// Failed for good.
    Dead,
    /// Out of its cycle queue.
    Parked,
    /// Ended, and kept for its result.
    Done,
}

/// A job.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Job {
    /// Its number.
    pub(crate) id: u64,
    /// Its producer's name for it (FWP's jid, EventMQ's message id).
    pub(crate) name: Option<Name>,
    /// Its queue.
    pub(crate) queue: Name,
    /// The protocol of its producer.
    pub(crate) protocol: &'static str,
    /// What it calls: FWP's jobtype, EventMQ's path and callable, otherwise its queue.
    pub(crate) kind: Option<String>,
    /// Its state.
    pub(crate) state: State,
    /// When it leaves its state by itself: the time it is scheduled for or retried at, the end of its lease, the end of
    /// its retention.
    pub(crate) until: Option<String>,
    /// Its holder, if it is leased.
    pub(crate) lease: Option<Lease>,
    /// 1 to 9; 9 is taken first.
    pub(crate) priority: u8,
    /// Deliveries so far.
    pub(crate) attempts: u32,
    /// Failures so far.
    pub(crate) failures: u32,
    /// When it became ready, or was created if it never was ready.
    pub(crate) ready_at: Option<String>,
    /// Its coalescing key.
    pub(crate) key: Option<Name>,
    /// The length of its body.
    pub(crate) body_bytes: usize,
    /// Its last failure.
    pub(crate) failure: Option<Failure>,
}

/// A worker's right to a job.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Lease {
    /// The worker's name, if it has given one. A listing does not show the names of connections.
    pub(crate) worker: Option<Name>,
    /// The number of the connection, if the lease ends with it.
    pub(crate) connection: Option<u64>,
    /// Whether it ends with the worker's connection. Otherwise only its time ends it.
    pub(crate) connection_bound: bool,
    /// Since when.
    pub(crate) since: Option<String>,
    /// When it ends by itself; null if only the worker ends it.
    pub(crate) until: Option<String>,
}

/// A failure, as the worker reported it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Failure {
    /// When.
    pub(crate) at: Option<String>,
    /// When the job failed first.
    pub(crate) first_at: Option<String>,
    /// The class of the error.
    pub(crate) kind: String,
    /// The error's message.
    pub(crate) message: String,
    /// Lines of a stack trace; only of a single job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) backtrace: Vec<String>,
}

/// A queue.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Queue {
    /// Its name.
    pub(crate) name: Name,
    /// `work`: a finished job is gone. `cycle`: a repaid entry returns.
    pub(crate) kind: &'static str,
    /// Whether it holds back jobs.
    pub(crate) paused: bool,
    /// The protocols whose jobs it holds back; empty if it holds back all, or none.
    pub(crate) paused_protocols: Vec<&'static str>,
    /// Since when it holds back jobs; null if it does not, and if that is unknown.
    pub(crate) paused_at: Option<String>,
    /// Whether workers of all protocols share its jobs.
    pub(crate) bridged: bool,
    /// Ready jobs by protocol, if it is not bridged: each protocol that has used it has a part of its own.
    pub(crate) ready_by_protocol: BTreeMap<&'static str, u32>,
    /// Jobs by state.
    pub(crate) states: BTreeMap<&'static str, u64>,
    /// Ready jobs by priority, 1 to 9; only those there are.
    pub(crate) ready_by_priority: BTreeMap<u8, u32>,
    /// How often a worker has registered for it. Workers that name queues only when they ask for jobs do not count.
    pub(crate) workers: u32,
    /// When its oldest ready job became ready.
    pub(crate) oldest_ready_at: Option<String>,
    /// The age of its oldest ready job.
    pub(crate) oldest_ready_seconds: f64,
    /// How many of its jobs may be worked on at once.
    pub(crate) throttle: Option<Throttle>,
    /// How many jobs it may hold when a job of each priority is pushed, 1 to 9; only the limited ones.
    pub(crate) jobs_max: BTreeMap<u8, u32>,
    /// The protocol whose jobs have that limit; null if the limit is for all jobs together.
    pub(crate) jobs_max_protocol: Option<&'static str>,
}

/// How many jobs of a queue may be worked on at once.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Throttle {
    /// By all workers together.
    pub(crate) concurrency: Option<u32>,
    /// By one worker.
    pub(crate) per_worker: Option<u32>,
    /// After how long a job no longer counts.
    pub(crate) timeout_ms: Option<u64>,
    /// Slots that leased jobs hold.
    pub(crate) held: u32,
}

impl Throttle {
    pub(super) const fn of(throttle: windlass_engine::Throttle, held: u32) -> Self {
        Self {
            concurrency: throttle.leased_max,
            per_worker: throttle.per_worker_max,
            timeout_ms: throttle.timeout_ms,
            held,
        }
    }
}

impl State {
    pub(crate) const fn name(self) -> &'static str {
        state_name(self.kind())
    }

    pub(super) const fn kind(self) -> JobStateKind {
        match self {
            Self::Ready => JobStateKind::Ready,
            Self::Leased => JobStateKind::Leased,
            Self::Scheduled => JobStateKind::Scheduled,
            Self::Retrying => JobStateKind::Retrying,
            Self::Dead => JobStateKind::Dead,
            Self::Parked => JobStateKind::Parked,
            Self::Done => JobStateKind::Done,
        }
    }

    const fn of(kind: JobStateKind) -> Self {
        match kind {
            JobStateKind::Ready => Self::Ready,
            JobStateKind::Leased => Self::Leased,
            JobStateKind::Scheduled => Self::Scheduled,
            JobStateKind::Retrying => Self::Retrying,
            JobStateKind::Dead => Self::Dead,
            JobStateKind::Parked => Self::Parked,
            JobStateKind::Done => Self::Done,
        }
    }
}

/// The name of a state.
pub(crate) const fn state_name(kind: JobStateKind) -> &'static str {
    match kind {
        JobStateKind::Ready => "ready",
        JobStateKind::Leased => "leased",
        JobStateKind::Scheduled => "scheduled",
        JobStateKind::Retrying => "retrying",
        JobStateKind::Dead => "dead",
        JobStateKind::Parked => "parked",
        JobStateKind::Done => "done",
    }
}

/// Figures by state.
pub(super) fn counts<T: Copy + Into<u64>>(places: &[T; JobStateKind::ALL.len()]) -> BTreeMap<&'static str, u64> {
    JobStateKind::ALL.into_iter().zip(places).map(|(kind, count)| (state_name(kind), (*count).into())).collect()
}

/// Values by lane, as values by priority.
fn by_priority<T: Copy>(lanes: &[T; Priority::COUNT]) -> impl Iterator<Item = (u8, T)> {
    Priority::all().filter_map(|priority| Some((priority.value(), *lanes.get(priority.lane())?)))
}

impl Job {
    pub(super) fn of(view: &JobView, app: &App, now: Now) -> Self {
        let job = &view.job;
        let kind = match app.daemon.bridge.calls(job.protocol, job.body()) {
            Calls::Named(name) => Some(name),
            Calls::Queue => Some(Name(view.queue.clone()).to_string()),
            Calls::Unknown => None,
        };
        let until = match &job.state {
            JobState::Leased(lease) => now.text(lease.until),
            JobState::Scheduled(at) => moment_text(*at),
            JobState::Retrying(at) | JobState::Dead(at) | JobState::Done(at) => now.text(*at),
            JobState::Ready | JobState::Parked => None,
        };
        let lease = job.lease().map(|lease| Lease {
            worker: match &lease.holder {
                Holder::Named(name) => Name::of(name),
                Holder::Connection(_) | Holder::Away(_) => None,
            },
            connection: match &lease.holder {
                Holder::Named(_) | Holder::Away(_) => None,
                Holder::Connection(id) => Some(id.0),
            },
            connection_bound: lease.connection_bound(),
            since: now.text(lease.taken_at),
            until: now.text(lease.until),
        });
        let failure = job.extra.as_deref().and_then(|extra| extra.failure.as_deref());
        Self {
            id: job.id.0,
            name: Name::of(job.name())
                .or_else(|| job.key().filter(|_| job.protocol == Protocol::EVENTMQ).and_then(Name::of)),
            queue: Name(view.queue.clone()),
            protocol: app.protocol_name(job.protocol),
            kind,
            state: State::of(job.state.kind()),
            until,
            lease,
            priority: job.priority.value(),
            attempts: job.attempts,
            failures: job.failures,
            ready_at: moment_text(job.ready_at),
            key: job.key().and_then(Name::of),
            body_bytes: job.body().len(),
            failure: failure.map(Failure::of),
        }
    }
}

impl Failure {
    /// The class and the message, as far as the worker has given them.
    pub(crate) fn text(&self) -> String {
        let parts = [self.kind.as_str(), self.message.as_str()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
    }

    pub(super) fn of(failure: &windlass_engine::Failure) -> Self {
        Self {
            at: moment_text(failure.at),
            first_at: moment_text(failure.first_at),
            kind: text(&failure.kind),
            message: text(&failure.message),
            backtrace: Vec::new(),
        }
    }
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

/// The queues of one protocol's clients, with its name.
pub(super) type Part = (&'static str, Vec<QueueRow>);

fn ready_by_protocol(queue: &QueueRow, parts: &[Part]) -> BTreeMap<&'static str, u32> {
    let part = |(protocol, rows): &Part| {
        let row = rows.iter().find(|row| row.name == queue.name)?;
        Some((*protocol, row.jobs(JobStateKind::Ready)))
    };
    parts.iter().filter(|_| !queue.bridged).filter_map(part).collect()
}

impl Queue {
    pub(super) fn of(row: &QueueRow, parts: &[Part], app: &App, now: Now) -> Self {
        let waits_ms = row.oldest_ready_at.map_or(0, |at| now.wall.ms_since(at));
        Self {
            name: Name(row.name.clone()),
            kind: match row.kind {
                QueueKind::Work => "work",
                QueueKind::Cycle => "cycle",
            },
            paused: row.is_paused(),
            paused_protocols: app.protocol_names(row.paused),
            paused_at: row.paused_at.and_then(moment_text),
            bridged: row.bridged,
            ready_by_protocol: ready_by_protocol(row, parts),
            states: counts(&row.places),
            ready_by_priority: by_priority(&row.ready).filter(|(_, count)| *count > 0).collect(),
            workers: row.workers,
            oldest_ready_at: row.oldest_ready_at.and_then(moment_text),
            oldest_ready_seconds: std::time::Duration::from_millis(waits_ms).as_secs_f64(),
            throttle: row.throttle.map(|throttle| Throttle::of(throttle, row.slots_held)),
            jobs_max: by_priority(&row.jobs_max).filter_map(|(value, max)| Some((value, max?))).collect(),
            jobs_max_protocol: row.jobs_max_of.map(|protocol| app.protocol_name(protocol)),
        }
    }
}
