//! The daemon's figures on the page: connections, commits, the store, limits, certificates.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use windlass_daemon::figures::{BOUNDS_US, JobMemory, ProtocolTraffic, Snapshot};

use super::figures::count;

/// Counters of connections by protocol: name, help, and which it is.
type Count = fn(&ProtocolTraffic) -> u64;
const COUNTERS: [(&str, &str, Count); 6] = [
    (
        "commands",
        "Complete messages received; for HTTP: requests",
        |it| it.commands,
    ),
    ("connections_opened", "Connections that were opened", |it| {
        it.opened
    }),
    ("auth_failures", "Wrong passwords and tokens", |it| {
        it.auth_failures
    }),
    (
        "connections_forgotten",
        "Ready connections that were not served for 5 s: a bug",
        |it| it.forgotten,
    ),
    (
        "received_bytes",
        "Bytes received, without those of TLS",
        |it| it.received_bytes,
    ),
    ("sent_bytes", "Bytes sent, without those of TLS", |it| {
        it.sent_bytes
    }),
];

pub(super) fn encode(figures: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    encode_traffic(figures, encoder)?;
    let (held, most) = figures.buffers_bytes;
    let gauges = [
        (
            "buffers_bytes",
            "Bytes of the buffers of all connections",
            count(held as u64),
        ),
        (
            "buffers_limit_bytes",
            "Limit on windlass_buffers_bytes",
            count(most as u64),
        ),
    ];
    put_gauges(encoder, gauges)?;
    let help = "Earliest expiry in the protocol's certificate chain, since 1970";
    let mut family = encoder.encode_descriptor(
        "certificate_expiry_timestamp_seconds",
        help,
        None,
        MetricType::Gauge,
    )?;
    for (protocol, ends_at) in &figures.certificates_end_at {
        family
            .encode_family(&[("protocol", *protocol)])?
            .encode_gauge(&count(*ends_at))?;
    }
    Ok(())
}

/// The figures of commits, checkpoints and memory.
pub(super) fn encode_room(figures: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Time to write a commit to the disk";
    encode_commits(
        figures,
        encoder.encode_descriptor("commit_seconds", help, None, MetricType::Histogram)?,
    )?;
    let JobMemory {
        bytes: (in_memory, memory_max),
        stored: (stored, stored_bytes),
        disk_bytes,
        ..
    } = figures.memory;
    let [loads, waited, failed] = figures.memory.loads;
    let counters = [
        ("checkpoints", "Completed checkpoints", figures.checkpoints),
        (
            "queues_forgotten",
            "Unused queues removed at the limit on queues",
            figures.queues_forgotten,
        ),
        ("body_loads", "Bodies read back into memory", loads),
        (
            "body_loads_waited",
            "Bodies that were read back while a client waited",
            waited,
        ),
        (
            "body_load_failures",
            "Bodies that could not be read back",
            failed,
        ),
        (
            "publications_missed",
            "Publications dropped for a connection that does not read",
            figures.publications_missed,
        ),
        (
            "log_lines_dropped",
            "Log lines dropped while log output was blocked",
            figures.log_lines_dropped,
        ),
    ];
    let history = figures.history.clone().unwrap_or_default();
    let of_history = [
        (
            "history_rows",
            "Rows of ended jobs written to the history",
            history.rows,
        ),
        (
            "history_rows_left_out",
            "Rows of ended jobs left out because the disk was full or too slow",
            history.left_out,
        ),
    ];
    let of_history = of_history.into_iter().filter(|_| figures.history.is_some());
    for (name, help, value) in counters.into_iter().chain(of_history) {
        put_counter(
            encoder.encode_descriptor(name, help, None, MetricType::Counter)?,
            value,
        )?;
    }
    let help = "Time spent reading bodies back into memory";
    let seconds = Duration::from_micros(figures.memory.load_us).as_secs_f64();
    let mut time =
        encoder.encode_descriptor("body_load_seconds", help, None, MetricType::Counter)?;
    time.encode_counter::<NoLabelSet, f64, u64>(&seconds, None)?;
    let gauges = [
        (
            "journal_live_bytes",
            "Bytes of living records, as of the last checkpoint",
            Some(figures.live_bytes),
        ),
        (
            "journal_bytes",
            "Bytes of the log and the table on the disk",
            Some(figures.store_bytes),
        ),
        (
            "history_bytes",
            "Bytes of the files of the history",
            figures.history.as_ref().map(|history| history.bytes),
        ),
        (
            "history_behind_bytes",
            "Bytes of the log that the history has not read",
            figures.history.as_ref().map(|history| history.behind_bytes),
        ),
        (
            "journal_behind_bytes",
            "Bytes of the log that are in no checkpoint",
            Some(figures.behind_bytes),
        ),
        (
            "disk_free_bytes",
            "Free bytes on the disk of the journal",
            figures.free_bytes,
        ),
        (
            "jobs_limit",
            "Limit on jobs in all states together",
            Some(figures.jobs_max),
        ),
        (
            "queues_limit",
            "Limit on queues; above it unused ones are forgotten",
            Some(figures.queues_max),
        ),
        (
            "jobs_limit_bytes",
            "Limit on windlass_jobs_bytes",
            figures.jobs_bytes_max,
        ),
        (
            "jobs_memory_bytes",
            "Bytes of the part of jobs, schedules and batches that is in memory",
            Some(in_memory),
        ),
        (
            "jobs_memory_limit_bytes",
            "Limit on windlass_jobs_memory_bytes",
            Some(memory_max),
        ),
        (
            "jobs_stored",
            "Jobs whose bodies are on the disk only",
            Some(stored),
        ),
        (
            "jobs_stored_bytes",
            "Bytes of the bodies that are on the disk only",
            Some(stored_bytes),
        ),
        (
            "bodies_bytes",
            "Bytes of the file of bodies that are not in memory",
            Some(disk_bytes),
        ),
    ];
    put_gauges(
        encoder,
        gauges
            .into_iter()
            .filter_map(|(name, help, value)| Some((name, help, count(value?)))),
    )
}

/// Gauges without labels: name, help, and value.
pub(super) fn put_gauges<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    gauges: impl IntoIterator<Item = (&'a str, &'a str, f64)>,
) -> fmt::Result {
    for (name, help, value) in gauges {
        encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&value)?;
    }
    Ok(())
}

fn encode_traffic(figures: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, value) in COUNTERS {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (protocol, it) in &figures.traffic {
            put_in(&mut family, &[("protocol", *protocol)], value(it))?;
        }
    }
    let help = "Commands that were refused";
    let mut family = encoder.encode_descriptor("refusals", help, None, MetricType::Counter)?;
    for (protocol, it) in &figures.traffic {
        for (reason, refused) in &it.refused {
            put_in(
                &mut family,
                &[("protocol", *protocol), ("reason", *reason)],
                *refused,
            )?;
        }
    }
    let help = "Connections that have ended";
    let mut family =
        encoder.encode_descriptor("connections_closed", help, None, MetricType::Counter)?;
    for (protocol, it) in &figures.traffic {
        for (reason, closed) in &it.closed {
            put_in(
                &mut family,
                &[("protocol", *protocol), ("reason", *reason)],
                *closed,
            )?;
        }
    }
    Ok(())
}

fn encode_commits(figures: &Snapshot, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    let seconds = |us| Duration::from_micros(us).as_secs_f64();
    let bounds = BOUNDS_US.into_iter().map(seconds).chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(figures.commits.counts).collect();
    let all = figures.commits.counts.iter().sum();
    encoder.encode_histogram::<NoLabelSet>(seconds(figures.commits.sum_us), all, &buckets, None)
}

fn put_in(family: &mut MetricEncoder<'_>, labels: &impl EncodeLabelSet, value: u64) -> fmt::Result {
    put_counter(family.encode_family(labels)?, value)
}

fn put_counter(mut encoder: MetricEncoder<'_>, value: u64) -> fmt::Result {
    encoder.encode_counter::<NoLabelSet, u64, u64>(&value, None)
}
