//! Jobs as spans of the traces that their producers name, for a collector (feature `otlp`).
//!
//! A client of the engine watches the jobs that name a trace (`watch`). `follow` makes spans of their changes, and
//! `export` sends these in batches. All of it is bounded: spans beyond a bound are dropped, the log counts them, and no
//! queue waits for a collector.
//!
//! Spec: OpenTelemetry's protocol over HTTP; W3C Trace Context for the name.

#[cfg(feature = "otlp")]
mod export;
#[cfg(feature = "otlp")]
mod follow;
#[cfg(feature = "otlp")]
mod watch;

use std::io;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::Telemetry;

/// Follows jobs until the daemon stops, if there is a collector.
///
/// # Errors
///
/// The address of the collector is wrong.
#[cfg(feature = "otlp")]
pub(crate) fn follow(
    telemetry: &Telemetry,
    app: &Arc<App>,
    stop: &CancellationToken,
) -> io::Result<Option<impl Future<Output = ()> + use<>>> {
    let exporter = telemetry.is_on().then(|| export::Exporter::new(telemetry).map_err(io::Error::other)).transpose()?;
    Ok(exporter.map(|exporter| watch::watch(exporter, Arc::clone(app), stop.clone())))
}

/// This program has no spans.
///
/// # Errors
///
/// None.
#[cfg(not(feature = "otlp"))]
pub(crate) fn follow(_: &Telemetry, _: &Arc<App>, _: &CancellationToken) -> io::Result<Option<std::future::Ready<()>>> {
    Ok(None)
}
