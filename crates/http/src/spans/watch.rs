//! The client of the engine that watches the jobs that name a trace.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use windlass_engine::Watched;

use super::export::Exporter;
use super::follow::Followed;
use crate::app::App;

/// Changes of jobs under way to this client.
const ROOM: u32 = 10_000;

/// The text in the body of each job that names a trace.
const MARK: &[u8] = b"traceparent";

/// How long a span waits for others of its batch.
const EVERY: Duration = Duration::from_secs(1);

/// Follows jobs until the daemon stops.
pub(super) async fn watch(mut exporter: Exporter, app: Arc<App>, stop: CancellationToken) {
    let (mut client, mut followed, mut room) = (app.client(), Followed::default(), ROOM);
    let mut next = tokio::time::interval(EVERY);
    loop {
        tokio::select! {
            // What has come is seen before the end.
            biased;
            watched = client.watch((None, Bytes::from_static(MARK)), std::mem::take(&mut room)) => {
                let Some(watched) = watched else { break };
                room = u32::try_from(watched.len()).unwrap_or(ROOM);
                watched.into_iter().for_each(|watched| see(watched, &mut followed, &mut exporter, &app));
            }
            () = stop.cancelled() => break,
            _ = next.tick() => exporter.send(),
        }
    }
    exporter.finish().await;
}

fn see(watched: Watched, followed: &mut Followed, exporter: &mut Exporter, app: &App) {
    match watched {
        Watched::Changed(change) => exporter.add(followed.change(&change, app.protocol_name(change.protocol))),
        Watched::Missed(changes) => {
            // The ends of jobs may be among these changes.
            *followed = Followed::default();
            tracing::warn!(changes, "telemetry: jobs change faster than their spans are made; some are missing");
        }
        Watched::Queue(..) | Watched::Worker(..) => {}
    }
}
