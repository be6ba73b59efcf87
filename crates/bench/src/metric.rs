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

/// The columns with their titles, as one list.
macro_rules! columns {
    ($($(#[$about:meta])* $name:ident: $title:literal, $better:ident;)*) => {
        /// One column. The order here is the order in tables.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub(crate) enum Metric {
            $($(#[$about])* $name,)*
        }

        impl Metric {
            /// Column title, with its unit, and which direction is better.
            pub(crate) fn column(self) -> (&'static str, Direction) {
                match self {
                    $(Self::$name => ($title, Direction::$better),)*
                }
            }
        }
    };
}

columns! {
    /// Operations finished per second in the measured window.
    JobsPerSecond: "jobs/s", HigherIsBetter;
    /// Median latency, µs.
    P50Micros: "p50 µs", LowerIsBetter;
    /// 99th percentile latency, µs.
    P99Micros: "p99 µs", LowerIsBetter;
    /// [`Metric::P50Micros`] beside a hostile tenant, to that of the same load alone.
    P50Times: "p50 ×", LowerIsBetter;
    /// [`Metric::P99Micros`], likewise.
    P99Times: "p99 ×", LowerIsBetter;
    /// Median latency of the pushes of a load with workers, µs.
    PushP50Micros: "push p50 µs", LowerIsBetter;
    /// Their 99th percentile, µs.
    PushP99Micros: "push p99 µs", LowerIsBetter;
    /// [`Metric::PushP50Micros`] beside a hostile tenant, to that of the same load alone.
    PushP50Times: "push p50 ×", LowerIsBetter;
    /// [`Metric::PushP99Micros`], likewise.
    PushP99Times: "push p99 ×", LowerIsBetter;
    /// What a hostile tenant did: answers, requests whose answers it did not read, or connections, per second.
    HostilePerSecond: "hostile/s", Context;
    /// The most resident memory of the server, MiB.
    PeakMib: "peak MiB", LowerIsBetter;
    /// User and system time of the server process per operation, µs.
    ServerMicrosPerJob: "server µs/job", LowerIsBetter;
    /// Share of one core that the server used, %: the cost of waiting.
    ServerBusyPercent: "server %", LowerIsBetter;
    /// Wake-ups (NOOP) sent per job.
    WakesPerJob: "wakes/job", Context;
    /// Submits per second while the first tenth of the queue was filled.
    FirstTenthPerSecond: "first 10%/s", HigherIsBetter;
    /// Submits per second while the last tenth of the queue was filled.
    LastTenthPerSecond: "last 10%/s", HigherIsBetter;
    /// Growth of the server's resident memory per queued job, at rest, bytes.
    BytesPerJob: "RSS B/job", LowerIsBetter;
    /// Jobs taken and finished per second while the full queue was emptied.
    DrainPerSecond: "drain jobs/s", HigherIsBetter;
    /// Server CPU per job while the full queue was emptied, µs.
    DrainMicrosPerJob: "drain µs/job", LowerIsBetter;
    /// Resident memory of the server at rest, after the queue was emptied, MiB.
    RssAfterDrainMib: "drained MiB", LowerIsBetter;
    /// From start to the first status answer that shows every job, ms.
    RestartMillis: "restart ms", LowerIsBetter;
    /// From start to the port accepting, ms.
    AcceptMillis: "accept ms", LowerIsBetter;
    /// Resident memory of the server at the end, MiB. Grows with the rate of a timed load; only
    /// [`Metric::BytesPerJob`] compares.
    RssMib: "RSS MiB", Context;
    /// Size of the data directory at the end, MiB.
    DiskMib: "disk MiB", Context;
    /// User and system time of the generator per operation, µs.
    ClientMicrosPerJob: "client µs/job", Context;
    /// Share of one core that the generator used, %. Near 100 the generator, not the server, is the limit.
    ClientBusyPercent: "client %", Context;
    /// Share of the whole machine that other processes used, %. A high value makes a run worthless.
    OthersBusyPercent: "others %", Context;
}

impl Metric {
    /// Whether this value makes the row's other figures doubtful: the generator was the limit, or other processes used
    /// the machine.
    pub(crate) fn casts_doubt(self, value: f64) -> bool {
        self == Metric::ClientBusyPercent && value > CLIENT_BUSY_PERCENT_MAX
            || self == Metric::OthersBusyPercent && value > OTHERS_BUSY_PERCENT_MAX
    }
}

/// The figures of one run.
pub(crate) type Sample = BTreeMap<Metric, f64>;
