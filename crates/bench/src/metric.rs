//! Metrics: the columns of every table, with unit and direction. The measuring is elsewhere.

use std::collections::BTreeMap;

use serde::Serialize;

/// A generator busier than this may have limited the load.
const CLIENT_BUSY_PERCENT_MAX: f64 = 95.0;
/// The machine's own work for a load (interrupts, write-back) stays below this.
const OTHERS_BUSY_PERCENT_MAX: f64 = 15.0;

/// Which direction of a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// A rate.
    HigherIsBetter,
    /// A time, a cost, a size.
    LowerIsBetter,
    /// Shows how far to trust the other figures; never part of a ratio.
    Context,
}

/// One column. The order here is the order in tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    /// Operations finished per second in the measured window.
    JobsPerSecond,
    /// Median latency, µs.
    P50Micros,
    /// 99th percentile latency, µs.
    P99Micros,
    /// User and system time of the server process per operation, µs.
    ServerMicrosPerJob,
    /// Share of one core that the server used, %: the cost of waiting.
    ServerBusyPercent,
    /// Wake-ups (NOOP) sent per job.
    WakesPerJob,
    /// Submits per second while the first tenth of the queue was filled.
    FirstTenthPerSecond,
    /// Submits per second while the last tenth of the queue was filled.
    LastTenthPerSecond,
    /// Growth of the server's resident memory per queued job, bytes.
    BytesPerJob,
    /// Jobs taken and finished per second while the full queue was emptied.
    DrainPerSecond,
    /// Server CPU per job while the full queue was emptied, µs.
    DrainMicrosPerJob,
    /// Resident memory of the server after the queue was emptied, MiB.
    RssAfterDrainMib,
    /// From start to the first status answer that shows every job, ms.
    RestartMillis,
    /// From start to the port accepting, ms.
    AcceptMillis,
    /// Resident memory of the server at the end, MiB.
    RssMib,
    /// Size of the data directory at the end, MiB.
    DiskMib,
    /// User and system time of the generator per operation, µs.
    ClientMicrosPerJob,
    /// Share of one core that the generator used, %. Near 100 the generator, not the server, is the limit.
    ClientBusyPercent,
    /// Share of the whole machine that other processes used, %. A high value makes a run worthless.
    OthersBusyPercent,
}

impl Metric {
    /// Column title, with its unit, and which direction is better.
    pub(crate) fn column(self) -> (&'static str, Direction) {
        use Direction::{Context, HigherIsBetter as Higher, LowerIsBetter as Lower};
        match self {
            Metric::JobsPerSecond => ("jobs/s", Higher),
            Metric::P50Micros => ("p50 µs", Lower),
            Metric::P99Micros => ("p99 µs", Lower),
            Metric::ServerMicrosPerJob => ("server µs/job", Lower),
            Metric::ServerBusyPercent => ("server %", Lower),
            Metric::WakesPerJob => ("wakes/job", Context),
            Metric::FirstTenthPerSecond => ("first 10%/s", Higher),
            Metric::LastTenthPerSecond => ("last 10%/s", Higher),
            Metric::BytesPerJob => ("RSS B/job", Lower),
            Metric::DrainPerSecond => ("drain jobs/s", Higher),
            Metric::DrainMicrosPerJob => ("drain µs/job", Lower),
            Metric::RssAfterDrainMib => ("drained MiB", Lower),
            Metric::RestartMillis => ("restart ms", Lower),
            Metric::AcceptMillis => ("accept ms", Lower),
            // Memory at the end of a timed load grows with the rate; only [`Metric::BytesPerJob`] compares.
            Metric::RssMib => ("RSS MiB", Context),
            Metric::DiskMib => ("disk MiB", Context),
            Metric::ClientMicrosPerJob => ("client µs/job", Context),
            Metric::ClientBusyPercent => ("client %", Context),
            Metric::OthersBusyPercent => ("others %", Context),
        }
    }

    /// Whether this value makes the row's other figures doubtful: the generator was the limit, or other processes used
    /// the machine.
    pub(crate) fn casts_doubt(self, value: f64) -> bool {
        self == Metric::ClientBusyPercent && value > CLIENT_BUSY_PERCENT_MAX
            || self == Metric::OthersBusyPercent && value > OTHERS_BUSY_PERCENT_MAX
    }
}

/// The figures of one run.
pub(crate) type Sample = BTreeMap<Metric, f64>;
