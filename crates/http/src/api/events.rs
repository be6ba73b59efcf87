//! Changes of jobs, queues and workers as a stream of server-sent events. A stream is bounded: a reader that
//! is too slow misses events, and is notified of the number.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass_engine::{JobChange, QueueChange, Watched, WorkerChange};

use super::views::state_name;
use crate::app::{App, Peer, Shared};
use crate::client::Client;
use crate::name::Name;
use crate::params::Params;
use crate::places::Place;
use crate::problem::{Outcome, Problem};

/// The limit of events in flight to a reader.
const ROOM: u32 = 1_000;

/// The interval of keep-alive comments in a silent stream, because proxies close silent
/// connections.
const ALIVE_EVERY: Duration = Duration::from_secs(15);

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Of this queue and its jobs; of all queues, jobs and workers, if it is left out.
    queue: Option<Name>,
}

/// The data of an event `job`: a job has a new state.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JobEvent {
    /// The job's number.
    job: u64,
    /// Its queue.
    queue: Name,
    /// The protocol of its producer.
    protocol: &'static str,
    /// Its state; null if it was removed, as a job is that succeeded.
    state: Option<&'static str>,
    /// Its namespace, if that has a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<Name>,
}

/// The data of an event `queue`: something has happened to a queue.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct QueueEvent {
    /// The queue.
    queue: Name,
    /// `paused`, `resumed`, `cleared` (the removal of its ready jobs has begun) or `removed`.
    change: &'static str,
}

/// The data of an event `worker`: something has happened to a worker known by name.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WorkerEvent {
    /// The worker.
    worker: Name,
    /// `registered`, `quiet` (it was asked to take no more jobs), `stopping` (it was asked to end) or `gone`.
    change: &'static str,
}

/// The data of an event `missed`: the reader was too slow.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct MissedEvent {
    /// How many events are missing here.
    missed: u64,
}

/// Jobs change their states, queues are paused and cleared, workers come and go
///
/// A stream of server-sent events: `job` with a `JobEvent`, `queue` with a `QueueEvent`, `worker` with a `WorkerEvent`,
/// and `missed` with a `MissedEvent` where a slow reader has a gap.
#[utoipa::path(get, path = "/api/v1/events", tag = "jobs", operation_id = "watch_jobs", params(Which), responses(
    (status = 200, body = String, content_type = "text/event-stream"),
    (status = 400, body = Problem), (status = 503, body = Problem)
))]
pub(super) async fn events(
    app: Shared,
    Extension(peer): Extension<Peer>,
    Params(Which { queue }): Params<Which>,
) -> Outcome<Response> {
    let place = app.watching.try_take().ok_or_else(|| {
        Problem::unavailable("too_many_watching", "too many streams of events are open")
    })?;
    // Without a protocol, it sees the namespaces that the request is about, and not only that without a name.
    let client = app.watcher(&peer.address);
    let watching = Watching {
        client,
        app,
        queue,
        room: ROOM,
        _place: place,
    };
    let stream = stream::unfold(watching, |mut watching| async {
        let text = watching.next().await?;
        Some((Ok::<_, Infallible>(text), watching))
    });
    Ok((
        [(header::CONTENT_TYPE, "text/event-stream")],
        Body::from_stream(stream),
    )
        .into_response())
}

/// A reader of events.
struct Watching {
    client: Client,
    app: Shared,
    queue: Option<Name>,
    /// Credit that was not given to the engine yet.
    room: u32,
    _place: Place,
}

impl Watching {
    /// The next events, or a keep-alive comment. `None` when the daemon stops.
    async fn next(&mut self) -> Option<String> {
        let (queue, room) = (
            self.queue.clone().map(|name| name.0),
            std::mem::take(&mut self.room),
        );
        let Ok(watched) = tokio::time::timeout(ALIVE_EVERY, self.client.watch(queue, room)).await
        else {
            return Some(":\n\n".to_owned());
        };
        let watched = watched?;
        self.room = u32::try_from(watched.len()).unwrap_or(ROOM);
        Some(
            watched
                .into_iter()
                .map(|watched| event_text(watched, &self.app))
                .collect(),
        )
    }
}

fn event_text(watched: Watched, app: &App) -> String {
    let (name, data) = match watched {
        Watched::Changed(change) => {
            let JobChange {
                job,
                queue,
                protocol,
                now,
                namespace,
                ..
            } = *change;
            let (protocol, state) = (app.protocol_name(protocol), now.map(state_name));
            (
                "job",
                serde_json::to_string(&JobEvent {
                    job: job.0,
                    queue: Name(queue),
                    protocol,
                    state,
                    namespace: Name::of(&namespace),
                }),
            )
        }
        Watched::Queue(queue, change) => {
            let change = match change {
                QueueChange::Paused => "paused",
                QueueChange::Resumed => "resumed",
                QueueChange::Cleared => "cleared",
                QueueChange::Removed => "removed",
            };
            (
                "queue",
                serde_json::to_string(&QueueEvent {
                    queue: Name(queue),
                    change,
                }),
            )
        }
        Watched::Worker(worker, change) => {
            let change = match change {
                WorkerChange::Registered => "registered",
                WorkerChange::Quiet => "quiet",
                WorkerChange::Stopping => "stopping",
                WorkerChange::Gone => "gone",
            };
            (
                "worker",
                serde_json::to_string(&WorkerEvent {
                    worker: Name(worker),
                    change,
                }),
            )
        }
        Watched::Missed(missed) => ("missed", serde_json::to_string(&MissedEvent { missed })),
    };
    format!("event: {name}\ndata: {}\n\n", data.unwrap_or_default())
}
