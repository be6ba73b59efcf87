//! The text of the page: OpenMetrics, or Prometheus' older format for scrapers that do not ask for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use windlass_daemon::Role;
use windlass_daemon::figures::Snapshot;
use windlass_engine::{
    Histogram, NamespaceRow, PolicyRow, Protocol, QueueFigures, Timestamp, Totals,
};

use super::daemon;
use super::figures::{KindName, QueueName, QueueSeries, count};
use crate::api::views::STATES;
use crate::name::Name;
use crate::reasons::Reason;

/// The content type of OpenMetrics.
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The content type of the older format.
pub(crate) const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The data of a page.
#[derive(Debug)]
pub(crate) struct Scraped {
    /// `None`: the engine is in another daemon, and the page of that daemon has the figures.
    pub(crate) engine: Option<OfEngine>,
    /// The wall clock.
    pub(crate) wall: Timestamp,
    pub(crate) protocol_name: BTreeMap<Protocol, &'static str>,
    /// Connections of this daemon.
    pub(crate) connections: u64,
    pub(crate) store_failed: bool,
    /// The present reasons to refuse something.
    pub(crate) refusing: BTreeSet<Reason>,
    /// The role of the daemon in a cluster.
    pub(crate) role: Role,
    /// How far the machine's wall clock is ahead of the clock of the store.
    pub(crate) clock_ahead_ms: Option<i64>,
    pub(crate) resident_bytes: u64,
    pub(crate) started_at: Timestamp,
    pub(crate) daemon: Snapshot,
}

/// The figures of the engine. They count the jobs and the workers of all daemons of a cluster.
#[derive(Debug)]
pub(crate) struct OfEngine {
    pub(crate) series: BTreeMap<QueueName, QueueSeries>,
    /// By the protocol of the producers and the function that the jobs call.
    pub(crate) kinds: BTreeMap<KindName, QueueFigures>,
    /// The namespaces with names.
    pub(crate) namespaces: Vec<NamespaceRow>,
    pub(crate) workers: u64,
    pub(crate) queues: u64,
    /// Bytes that jobs, schedules and batches count as.
    pub(crate) bytes: u64,
}

/// The text in one of the two formats.
pub(crate) fn text(scraped: Scraped, open_metrics: bool) -> String {
    let mut registry = Registry::with_prefix("windlass");
    registry.register_collector(Box::new(scraped));
    let mut text = String::new();
    // Only a writer can fail, and a string does not.
    let _ = encode(&mut text, &registry);
    if open_metrics { text } else { plain(&text) }
}

/// The older format: a counter is described by the name of its sample, and there are no units and no end
/// mark.
fn plain(text: &str) -> String {
    let (mut out, mut help) = (String::with_capacity(text.len()), "");
    for line in text.lines() {
        if line.starts_with("# HELP ") {
            help = line;
        } else if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').unwrap_or((described, ""));
            let suffix = if kind == "counter" { "_total" } else { "" };
            let sentence = help.splitn(4, ' ').nth(3).unwrap_or_default();
            out.push_str(&format!(
                "# HELP {name}{suffix} {sentence}\n# TYPE {name}{suffix} {kind}\n"
            ));
        } else if !line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// The gauges of namespaces: name, help, and the value.
type Used = fn(&NamespaceRow) -> u64;
const NAMESPACES: [(&str, &str, Used); 4] = [
    ("namespace_jobs", "Jobs of the namespace", |row| row.jobs),
    (
        "namespace_jobs_bytes",
        "Bytes that jobs, schedules and batches of the namespace count as",
        |row| row.bytes,
    ),
    ("namespace_queues", "Queues of the namespace", |row| {
        row.queues.into()
    }),
    (
        "namespace_connections",
        "Open connections of the namespace",
        |row| row.clients.into(),
    ),
];

type Count = fn(&Totals) -> u64;

/// The counters: name, help, and which it is.
const COUNTERS: [(&str, &str, Count); 9] = [
    ("jobs_pushed", "New jobs", |totals| totals.pushed),
    ("jobs_taken", "Deliveries to workers", |totals| totals.taken),
    ("jobs_succeeded", "Jobs that succeeded", |totals| {
        totals.succeeded
    }),
    ("jobs_failed", "Failures of jobs", |totals| totals.failed),
    (
        "jobs_retried",
        "Failed jobs that became due again",
        |totals| totals.retried,
    ),
    (
        "jobs_dead_lettered",
        "Jobs moved to the dead-letter queue",
        |totals| totals.buried,
    ),
    (
        "jobs_expired",
        "Jobs discarded after they expired",
        |totals| totals.expired,
    ),
    ("jobs_lost", "Deliveries lost with their worker", |totals| {
        totals.lost
    }),
    ("jobs_cancelled", "Jobs removed by commands", |totals| {
        totals.cancelled
    }),
];

/// The gauges of queues: name, help, and the value.
type Value = fn(&QueueSeries, Timestamp) -> f64;
const GAUGES: [(&str, &str, Value); 4] = [
    (
        "queue_oldest_ready_seconds",
        "Age of the oldest job that waits to be taken; 0 if there is none",
        |it, wall| {
            let ms = it.oldest_ready_at.map_or(0, |at| wall.ms_since(at));
            Duration::from_millis(ms).as_secs_f64()
        },
    ),
    ("queue_paused", "Whether the queue is paused", |it, _| {
        count(it.paused)
    }),
    (
        "queue_workers",
        "Workers that serve the queue: registered, waiting, busy, or there within the last minute",
        |it, _| count(it.workers),
    ),
    (
        "queue_throttle_slots_in_use",
        "Slots of the queue's throttle that jobs in progress hold",
        |it, _| count(it.slots_held),
    ),
];

/// The figures of policies, for queues with separate series: name, help, `true` for a counter, and the value
/// if the policy has it.
type OfPolicy = fn(&PolicyRow) -> Option<u64>;
const POLICIES: [(&str, &str, bool, OfPolicy); 5] = [
    (
        "queue_rate_tokens",
        "Jobs that may start now by the queue's rate",
        false,
        |it| it.tokens.map(u64::from),
    ),
    (
        "queue_rate_waits",
        "Tokens of the queue's rate that jobs have waited for",
        true,
        |it| it.tokens.map(|_| it.rate_waits),
    ),
    (
        "queue_keys",
        "Keys of the queue's jobs, in any state",
        false,
        |it| of_keys(it, it.keys.into()),
    ),
    (
        "queue_keys_paused",
        "Paused keys of the queue",
        false,
        |it| of_keys(it, it.keys_paused.into()),
    ),
    (
        "queue_keyless_jobs",
        "New jobs in which no key could be read",
        true,
        |it| of_keys(it, it.keyless),
    ),
];

fn of_keys(row: &PolicyRow, value: u64) -> Option<u64> {
    row.policy.has_keys().then_some(value)
}

/// The histograms of queues: name, help, and which it is.
type Durations = fn(&QueueSeries) -> &Histogram;
const HISTOGRAMS: [(&str, &str, Durations); 2] = [
    ("job_wait_seconds", "From ready to taken", |it| {
        &it.figures.waited
    }),
    (
        "job_run_seconds",
        "From taken to the worker's report",
        |it| &it.figures.ran,
    ),
];

/// The counters of kinds: name, help, and which it is.
const KIND_COUNTERS: [(&str, &str, Count); 4] = [
    (
        "kind_jobs_taken",
        "Deliveries to workers, by what the jobs call",
        |totals| totals.taken,
    ),
    (
        "kind_jobs_succeeded",
        "Jobs that succeeded, by what they call",
        |totals| totals.succeeded,
    ),
    (
        "kind_jobs_failed",
        "Failures of jobs, by what they call",
        |totals| totals.failed,
    ),
    (
        "kind_jobs_lost",
        "Deliveries lost with their worker, by what the jobs call",
        |totals| totals.lost,
    ),
];

/// The histograms of kinds: name, help, and which it is.
type KindDurations = fn(&QueueFigures) -> &Histogram;
const KIND_HISTOGRAMS: [(&str, &str, KindDurations); 2] = [
    (
        "kind_wait_seconds",
        "From ready to taken, by what the jobs call",
        |it| &it.waited,
    ),
    (
        "kind_run_seconds",
        "From taken to the worker's report, by what the jobs call",
        |it| &it.ran,
    ),
];

impl Collector for Scraped {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(engine) = &self.engine {
            self.encode_engine(engine, &mut encoder)?;
            daemon::encode_room(&self.daemon, &mut encoder)?;
        }
        self.encode_daemon(&mut encoder)?;
        daemon::encode(&self.daemon, &mut encoder)
    }
}

impl Scraped {
    fn encode_engine(&self, engine: &OfEngine, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        engine.encode_jobs(encoder)?;
        for (name, help, value) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (queue, it) in &engine.series {
                family
                    .encode_family(&labels(queue))?
                    .encode_gauge(&value(it, self.wall))?;
            }
        }
        for (name, help, is_counter, value) in POLICIES {
            let kind = if is_counter {
                MetricType::Counter
            } else {
                MetricType::Gauge
            };
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (queue, it) in &engine.series {
                let Some(value) = it.policy.as_deref().and_then(value) else {
                    continue;
                };
                let (labels, none) = (labels(queue), None);
                let mut series = family.encode_family(&labels)?;
                match is_counter {
                    true => series.encode_counter::<NoLabelSet, u64, u64>(&value, none)?,
                    false => series.encode_gauge(&count(value))?,
                }
            }
        }
        for (name, help, value) in COUNTERS {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            self.encode_counter(&engine.series, family, value)?;
        }
        for (name, help, of) in HISTOGRAMS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for (queue, it) in &engine.series {
                encode_histogram(of(it), family.encode_family(&labels(queue))?)?;
            }
        }
        self.encode_kinds(&engine.kinds, encoder)?;
        engine.encode_namespaces(encoder)?;
        let gauges = [
            ("workers", "Workers known by name", count(engine.workers)),
            ("queues", "Known queues", count(engine.queues)),
            (
                "jobs_bytes",
                "Bytes that jobs, schedules and batches count as, on the disk too",
                count(engine.bytes),
            ),
        ];
        daemon::put_gauges(encoder, gauges)
    }

    /// The figures by kind of job.
    fn encode_kinds(
        &self,
        kinds: &BTreeMap<KindName, QueueFigures>,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        let labels = |(protocol, namespace, kind): &KindName| {
            let (kind, protocol) = match protocol {
                Some(it) => (
                    Name(kind.clone()).to_string(),
                    self.protocol_name.get(it).copied().unwrap_or("unknown"),
                ),
                None => ("_other".to_owned(), ""),
            };
            let labels = vec![("kind", kind), ("protocol", protocol.to_owned())];
            with_namespace(labels, namespace)
        };
        for (name, help, value) in KIND_COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (kind, figures) in kinds {
                let value = value(&figures.total());
                family
                    .encode_family(&labels(kind))?
                    .encode_counter::<NoLabelSet, u64, u64>(&value, None)?;
            }
        }
        for (name, help, of) in KIND_HISTOGRAMS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for (kind, figures) in kinds {
                encode_histogram(of(figures), family.encode_family(&labels(kind))?)?;
            }
        }
        Ok(())
    }

    fn encode_counter(
        &self,
        series: &BTreeMap<QueueName, QueueSeries>,
        mut family: MetricEncoder<'_>,
        value: Count,
    ) -> fmt::Result {
        for (queue, it) in series {
            for (protocol, totals) in &it.figures.totals {
                let protocol = self
                    .protocol_name
                    .get(protocol)
                    .copied()
                    .unwrap_or("unknown");
                let mut labels = labels(queue);
                labels.insert(1, ("protocol", protocol.to_owned()));
                family
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, u64, u64>(&value(totals), None)?;
            }
        }
        Ok(())
    }

    /// The figures of the daemon.
    fn encode_daemon(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let started_at = Duration::from_millis(self.started_at.0).as_secs_f64();
        let gauges = [
            ("connections", "Open connections", count(self.connections)),
            (
                "resident_memory_bytes",
                "Resident memory of the process, in whole MiB",
                count(self.resident_bytes),
            ),
            (
                "store_failed",
                "Whether the store does not respond",
                count(self.store_failed.into()),
            ),
            (
                "start_time_seconds",
                "When the daemon started, since 1970",
                started_at,
            ),
        ];
        daemon::put_gauges(encoder, gauges)?;
        self.encode_refusing(encoder)?;
        self.encode_cluster(encoder)?;
        let mut info =
            encoder.encode_descriptor("build_info", "The version", None, MetricType::Gauge)?;
        info.encode_family(&[("version", env!("CARGO_PKG_VERSION"))])?
            .encode_gauge(&1_i64)
    }

    /// All possible reasons, so that an alert finds the series of each reason before it applies.
    fn encode_refusing(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Whether the daemon refuses something for this reason";
        let mut family = encoder.encode_descriptor("refusing", help, None, MetricType::Gauge)?;
        for reason in Reason::ALL {
            let holds = u64::from(self.refusing.contains(&reason));
            family
                .encode_family(&[("reason", reason.code())])?
                .encode_gauge(&count(holds))?;
        }
        let (places, most) = self.daemon.places;
        let gauges = [
            (
                "connections_placed",
                "Connections of clients that count towards the limit",
                count(places as u64),
            ),
            (
                "connections_limit",
                "Limit on connections of clients",
                count(most as u64),
            ),
        ];
        daemon::put_gauges(encoder, gauges)
    }

    /// The role of a daemon in a cluster.
    fn encode_cluster(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (leading, following, epoch, edges) = match &self.role {
            Role::Alone => return Ok(()),
            Role::Seeking { .. } => (0, 0, 0, 0),
            Role::Following { epoch, .. } => (0, 1, *epoch, 0),
            Role::Leading { epoch, edges, .. } => (1, 0, *epoch, edges.len() as u64),
        };
        let gauges = [
            (
                "cluster_leading",
                "Whether this daemon is the leader",
                count(leading),
            ),
            (
                "cluster_following",
                "Whether this edge is connected to the leader",
                count(following),
            ),
            ("cluster_epoch", "Epoch of the leader's lease", count(epoch)),
            (
                "cluster_edges",
                "Edges connected to this daemon",
                count(edges),
            ),
        ];
        daemon::put_gauges(encoder, gauges)?;
        let Some(ahead_ms) = self.clock_ahead_ms else {
            return Ok(());
        };
        let ahead = Duration::from_millis(ahead_ms.unsigned_abs()).as_secs_f64();
        let ahead = if ahead_ms < 0 { -ahead } else { ahead };
        daemon::put_gauges(
            encoder,
            [(
                "cluster_clock_ahead_seconds",
                "Wall clock of this daemon minus the database's",
                ahead,
            )],
        )
    }
}

impl OfEngine {
    fn encode_jobs(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "jobs",
            "Jobs by queue and state",
            None,
            MetricType::Gauge,
        )?;
        for (queue, it) in &self.series {
            for (state, jobs) in STATES.into_iter().zip(it.states) {
                let mut labels = labels(queue);
                labels.insert(1, ("state", state.to_owned()));
                family.encode_family(&labels)?.encode_gauge(&count(jobs))?;
            }
        }
        Ok(())
    }

    /// What each namespace with a name uses; nothing if there is none.
    fn encode_namespaces(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.namespaces.is_empty() {
            return Ok(());
        }
        for (name, help, value) in NAMESPACES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for row in &self.namespaces {
                family
                    .encode_family(&with_namespace(Labels::new(), &row.name))?
                    .encode_gauge(&count(value(row)))?;
            }
        }
        let (name, help) = (
            "namespace_pushes_refused",
            "Pushes refused at a limit of the namespace",
        );
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for row in &self.namespaces {
            family
                .encode_family(&with_namespace(Labels::new(), &row.name))?
                .encode_counter::<NoLabelSet, u64, u64>(&row.refused, None)?;
        }
        Ok(())
    }
}

type Labels = Vec<(&'static str, String)>;

fn labels((namespace, queue): &QueueName) -> Labels {
    let labels = vec![("queue", Name(queue.clone()).to_string())];
    with_namespace(labels, namespace)
}

/// Labels with that of the namespace, if it has a name: the series of a daemon without namespaces stay what they were.
fn with_namespace(mut labels: Labels, namespace: &Bytes) -> Labels {
    labels.extend(Name::of(namespace).map(|name| ("namespace", name.to_string())));
    labels
}

fn encode_histogram(histogram: &Histogram, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    let bounds = Histogram::BOUNDS_MS
        .iter()
        .map(|ms| Duration::from_millis(*ms).as_secs_f64());
    let buckets: Vec<(f64, u64)> = bounds
        .chain([f64::INFINITY])
        .zip(histogram.counts)
        .collect();
    let sum = Duration::from_millis(histogram.sum_ms).as_secs_f64();
    encoder.encode_histogram::<NoLabelSet>(sum, histogram.count(), &buckets, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(engine: Option<OfEngine>, role: Role) -> String {
        let scraped = Scraped {
            engine,
            wall: Timestamp(0),
            protocol_name: BTreeMap::new(),
            connections: 3,
            role,
            clock_ahead_ms: Some(-1_500),
            store_failed: false,
            refusing: [Reason::DiskFull].into(),
            resident_bytes: 0,
            started_at: Timestamp(0),
            daemon: Snapshot::default(),
        };
        text(scraped, false)
    }

    #[test]
    fn only_what_is_in_a_namespace_with_a_name_has_its_label() {
        let queues = [("", "q"), ("shop", "q")];
        let names = queues.map(|(namespace, queue)| (namespace.into(), queue.into()));
        let engine = OfEngine {
            series: names.map(|name| (name, QueueSeries::default())).into(),
            kinds: BTreeMap::new(),
            namespaces: vec![NamespaceRow {
                name: "shop".into(),
                jobs: 7,
                refused: 3,
                ..NamespaceRow::default()
            }],
            workers: 0,
            queues: 2,
            bytes: 0,
        };
        let page = page(Some(engine), Role::Alone);
        for line in [
            "windlass_jobs{queue=\"q\",state=\"ready\"} 0.0",
            "windlass_jobs{queue=\"q\",state=\"ready\",namespace=\"shop\"} 0.0",
            "windlass_namespace_jobs{namespace=\"shop\"} 7.0",
            "windlass_namespace_pushes_refused_total{namespace=\"shop\"} 3",
        ] {
            assert!(page.lines().any(|it| it == line), "{line}: {page}");
        }
    }

    /// Sums over all daemons count each job once.
    #[test]
    fn only_the_daemon_with_the_engine_exports_its_figures() {
        let engine = || {
            let series = [(
                (Bytes::new(), Bytes::from_static(b"q")),
                QueueSeries::default(),
            )]
            .into();
            let failed = Totals {
                taken: 3,
                failed: 2,
                ..Totals::default()
            };
            let figures = QueueFigures {
                totals: vec![(Protocol::FAKTORY, failed)],
                ..QueueFigures::default()
            };
            let kinds = [(
                (
                    Some(Protocol::FAKTORY),
                    Bytes::new(),
                    Bytes::from_static(b"Mail"),
                ),
                figures,
            )]
            .into();
            Some(OfEngine {
                series,
                kinds,
                namespaces: Vec::new(),
                workers: 1,
                queues: 1,
                bytes: 9,
            })
        };
        let seeking = Role::Seeking {
            since: Timestamp(0),
        };
        let (leader, edge) = (page(engine(), Role::Alone), page(None, seeking));
        let of_engine = [
            "jobs",
            "jobs_bytes",
            "workers",
            "queues",
            "jobs_limit",
            "journal_bytes",
            "checkpoints_total",
        ];
        let of_each = [
            "connections",
            "store_failed",
            "refusing",
            "connections_limit",
            "buffers_bytes",
            "build_info",
            "resident_memory_bytes",
        ];
        let has = |page: &str, name: &str| page.contains(&format!("# TYPE windlass_{name} "));
        assert!(!leader.contains("namespace"), "{leader}");
        for name in of_engine {
            assert!(has(&leader, name) && !has(&edge, name), "{name}: {edge}");
        }
        for name in of_each {
            assert!(has(&leader, name) && has(&edge, name), "{name}: {edge}");
        }
        let of_kind = "windlass_kind_jobs_failed_total{kind=\"Mail\",protocol=\"unknown\"} 2";
        assert!(
            leader.contains(of_kind) && has(&leader, "kind_run_seconds"),
            "{leader}"
        );
        assert!(edge.contains("windlass_connections 3.0"), "{edge}");
        assert!(
            edge.contains("windlass_refusing{reason=\"disk_full\"} 1.0"),
            "{edge}"
        );
        assert!(
            edge.contains("windlass_refusing{reason=\"memory_full\"} 0.0"),
            "{edge}"
        );
    }
}
