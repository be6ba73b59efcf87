//! Metrics: the columns of every table, with unit and direction. The measuring is elsewhere.

use std::collections::BTreeMap;

use serde::Serialize;

/// A generator busier than this may have limited the load.
const CLIENT_BUSY_PERCENT_MAX: f64 = 95.0;
/// The machine's own work for a load (interrupts, write-back) stays below this.
const OTHERS_BUSY_PERCENT_MAX: f64 = 15.0;

/// Which direction of a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
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
pub enum Metric {
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
    /// Column title, with its unit.
    pub fn title(self) -> &'static str {
        match self {
            Metric::JobsPerSecond => "jobs/s",
            Metric::P50Micros => "p50 µs",
            Metric::P99Micros => "p99 µs",
            Metric::ServerMicrosPerJob => "server µs/job",
            Metric::ServerBusyPercent => "server %",
            Metric::WakesPerJob => "wakes/job",
            Metric::FirstTenthPerSecond => "first 10%/s",
            Metric::LastTenthPerSecond => "last 10%/s",
            Metric::BytesPerJob => "RSS B/job",
            Metric::DrainPerSecond => "drain jobs/s",
            Metric::DrainMicrosPerJob => "drain µs/job",
            Metric::RssAfterDrainMib => "drained MiB",
            Metric::AcceptMillis => "accept ms",
            Metric::RestartMillis => "restart ms",
            Metric::RssMib => "RSS MiB",
            Metric::DiskMib => "disk MiB",
            Metric::ClientMicrosPerJob => "client µs/job",
            Metric::ClientBusyPercent => "client %",
            Metric::OthersBusyPercent => "others %",
        }
    }

    /// Whether this value makes the row's other figures doubtful: the generator was the limit, or other processes used the
    /// machine.
    pub fn casts_doubt(self, value: f64) -> bool {
        self == Metric::ClientBusyPercent && value > CLIENT_BUSY_PERCENT_MAX
            || self == Metric::OthersBusyPercent && value > OTHERS_BUSY_PERCENT_MAX
    }

    /// Which direction is better.
    pub fn direction(self) -> Direction {
        match self {
            Metric::JobsPerSecond
            | Metric::FirstTenthPerSecond
            | Metric::LastTenthPerSecond
            | Metric::DrainPerSecond => Direction::HigherIsBetter,
            Metric::P50Micros
            | Metric::P99Micros
            | Metric::ServerMicrosPerJob
            | Metric::ServerBusyPercent
            | Metric::BytesPerJob
            | Metric::DrainMicrosPerJob
            | Metric::RssAfterDrainMib
            | Metric::AcceptMillis
            | Metric::RestartMillis => Direction::LowerIsBetter,
            // Memory at the end of a timed load grows with the rate; only [`Metric::BytesPerJob`] compares.
            Metric::RssMib
            | Metric::WakesPerJob
            | Metric::DiskMib
            | Metric::ClientMicrosPerJob
            | Metric::ClientBusyPercent
            | Metric::OthersBusyPercent => Direction::Context,
        }
    }
}

/// The figures of one run.
pub type Sample = BTreeMap<Metric, f64>;
