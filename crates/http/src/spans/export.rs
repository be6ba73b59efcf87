//! Spans on their way to a collector: one batch at a time, the next ones wait.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::task::JoinHandle;

use crate::config::Telemetry;

/// Spans of one batch.
const BATCH: usize = 512;

/// Spans that wait. One more is dropped.
const WAITING_MAX: usize = 16_384;

/// How long a batch may take, further attempts included.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the last batches may take when the daemon stops.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// The way to a collector.
#[derive(Debug)]
pub(super) struct Exporter {
    exporter: Arc<SpanExporter>,
    waiting: Vec<SpanData>,
    dropped: u64,
    sending: Option<JoinHandle<()>>,
}

impl Exporter {
    pub(super) fn new(Telemetry { otlp, service }: &Telemetry) -> Result<Self, String> {
        let builder = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
        let built = builder.with_endpoint(otlp).with_timeout(PATIENCE).build();
        let mut exporter = built.map_err(|error| error.to_string())?;
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let resource = Resource::builder_empty().with_service_name(service.clone()).with_attribute(version).build();
        exporter.set_resource(&resource);
        Ok(Self { exporter: Arc::new(exporter), waiting: Vec::new(), dropped: 0, sending: None })
    }

    /// Adds a span to those that wait.
    pub(super) fn add(&mut self, span: Option<SpanData>) {
        let Some(span) = span else { return };
        if self.waiting.len() >= WAITING_MAX {
            self.dropped += 1;
            return;
        }
        self.waiting.push(span);
        if self.waiting.len() >= BATCH {
            self.send();
        }
    }

    /// Sends the next batch, if the one before has arrived or failed.
    pub(super) fn send(&mut self) {
        if self.sending.as_ref().is_some_and(|sending| !sending.is_finished()) || self.waiting.is_empty() {
            return;
        }
        if self.dropped > 0 {
            tracing::warn!(
                spans = std::mem::take(&mut self.dropped),
                "telemetry: spans dropped, the collector is too slow"
            );
        }
        let batch = self.waiting.drain(..self.waiting.len().min(BATCH)).collect();
        self.sending = Some(tokio::spawn(export(Arc::clone(&self.exporter), batch)));
    }

    /// Sends all spans that wait, as far as there is time.
    pub(super) async fn finish(mut self) {
        let all = async {
            loop {
                if let Some(sending) = self.sending.take() {
                    // It has logged its failure.
                    let _ = sending.await;
                }
                if self.waiting.is_empty() {
                    break;
                }
                self.send();
            }
        };
        let _ = tokio::time::timeout(LAST_PATIENCE, all).await;
    }
}

async fn export(exporter: Arc<SpanExporter>, batch: Vec<SpanData>) {
    let spans = batch.len();
    match tokio::time::timeout(PATIENCE, exporter.export(batch)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, spans, "telemetry: spans are lost"),
        Err(_) => tracing::warn!(spans, "telemetry: spans are lost, the collector does not answer"),
    }
}
