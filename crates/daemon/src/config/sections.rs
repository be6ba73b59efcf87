//! The daemon's sections of the configuration, with their defaults: types only. `config/windlass.toml` explains each
//! key to the operator.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use windlass_config::{ByteSize, DATA_DIR, ListenAddress, Period, Tls};
use windlass_net::Server;
use windlass_session::protocol::{Listener, Protocol};
use windlass_store::{Overflow, Remote};

use super::queues::Queue;
use crate::machine;
use crate::operator_port::OperatorPort;

const MIB: u64 = 1 << 20;

windlass_config::defaults! {
    /// What the daemon runs with: its own sections, and the protocols with theirs.
    #[derive(Clone, Debug)]
    pub struct Config {
        /// The directory of the journal; relative to the working directory.
        pub data_dir: PathBuf = DATA_DIR.into(),
        /// What an acknowledgement promises.
        pub durability: Durability = Durability::Sync,
        /// The longest time between two commits with [`Durability::Interval`].
        pub commit_interval: Period = Period::from_ms(100),
        /// The log's level, format and file.
        pub log: Log,
        /// Threads, connections and timeouts.
        pub server: Server,
        /// Limits of the queues.
        pub limits: Limits,
        /// The journal.
        pub store: Store,
        /// The database that has the store instead of the data directory.
        pub postgres: Postgres,
        /// The other daemons that form one broker with this one.
        pub cluster: Cluster,
        /// Queues that all protocols share.
        pub bridge: Bridge,
        /// Rules for the jobs of single queues.
        pub queues: BTreeMap<String, Queue>,
        /// The store, if it is not in the data directory.
        pub remote: Option<Arc<dyn Remote>>,
        /// The protocols, in the order in which their listeners are bound.
        pub protocols: Vec<Arc<dyn Protocol>>,
        /// Listeners beside those of the protocols.
        pub ports: Vec<Arc<dyn OperatorPort>>,
        /// Where the sections of `queues` stand: the path of the file, and the line.
        pub places: BTreeMap<String, String>,
        /// Every key with its value: what a reload compares.
        pub values: BTreeMap<String, String>,
        /// Every key with its default.
        pub defaults: BTreeMap<String, String>,
        /// For tests of other programs: everything is in memory, and all addresses go to standard output.
        pub ephemeral: bool,
    }
}

/// What an acknowledgement promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The change is on the disk.
    Sync,
    /// The change will be on the disk within [`Config::commit_interval`].
    Interval,
}

windlass_config::section! {
    /// `[log]`
    pub struct Log {
        /// A level, or directives as `tracing-subscriber`'s `EnvFilter` takes them.
        pub level: String = "info".to_owned(),
        /// The format of lines.
        pub format: LogFormat = LogFormat::Text,
        /// The file to append to; empty for standard error.
        pub file: PathBuf,
    }
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

windlass_config::section! {
    /// `[limits]`: the engine's limits, in the operator's units.
    pub struct Limits {
        /// Jobs in all states together.
        pub jobs_max: u64 = 50_000_000,
        /// Bytes of memory of the whole daemon; 0 = half of the machine's.
        pub memory: ByteSize = ByteSize(0),
        /// Bytes that all jobs together may count as, in memory and on the disk; 0 = no limit.
        pub jobs_bytes_max: ByteSize = ByteSize(0),
        /// Schedules.
        pub schedules_max: u32 = 10_000,
        /// Batches.
        pub batches_max: u32 = 100_000,
        /// How deep batches may be nested.
        pub batch_depth_max: u32 = 100,
        /// How long a batch is kept after its last waiting or leased job has ended.
        pub batch_ttl: Period = Period::from_days(7),
        /// Queues.
        pub queues_max: u32 = 100_000,
        /// Queues one client may serve.
        pub abilities_max: u32 = 10_000,
        /// Bytes of a queue's name, a job's public name or a coalescing key.
        pub name_bytes_max: ByteSize = ByteSize(8192),
        /// Clients that follow one job.
        pub listeners_max: u32 = 10_000,
        /// The longest lease.
        pub lease_max: Period = Period::from_days(365),
        /// How long the dead-letter queue keeps a job.
        pub dead_ttl: Period = Period::from_days(180),
        /// Jobs in the dead-letter queue.
        pub dead_max: u64 = 1_000_000,
        /// Bytes that those jobs may count as; 0 = a quarter of the disk of `data_dir`, and of
        /// `jobs_bytes_max`. Without their bodies, which may be on the disk alone, they may count as a quarter of `memory`.
        pub dead_bytes_max: ByteSize = ByteSize(0),
        /// How long a woken worker may take to request work.
        pub wake_patience: Period = Period::from_secs(1),
        /// How long a named worker may go without a heartbeat.
        pub beat_timeout: Period = Period::from_secs(60),
        /// Workers that may be lost with a job before it goes to the dead-letter queue; 0 = any number.
        pub losses_max: u32 = 5,
        /// How long a job waits after the second loss; doubles with each further one.
        pub loss_pause: Period = Period::from_secs(1),
        /// Rows that one listing or bulk command visits.
        pub page_max: u32 = 200,
    }
}

windlass_config::section! {
    /// `[store]`
    pub struct Store {
        /// Memory for the parts of the table that checkpoints change.
        pub cache: ByteSize = ByteSize(16 * MIB),
        /// Log bytes that trigger a checkpoint.
        pub checkpoint: ByteSize = ByteSize(64 * MIB),
        /// Time without commits that triggers a checkpoint.
        pub checkpoint_quiet: Period = Period::from_secs(30),
        /// A table smaller than this is never rebuilt to save space.
        pub compact_floor: ByteSize = ByteSize(32 * MIB),
        /// A commit that takes longer makes the daemon answer "unavailable".
        pub commit_timeout: Period = Period::from_secs(30),
        /// A commit that takes longer ends the daemon.
        pub commit_abort: Period = Period::from_secs(300),
    }
}

windlass_config::section! {
    /// `[postgres]`
    pub struct Postgres {
        /// Where the database is; empty: the store is in the data directory.
        pub url: String,
        /// The file with the password.
        pub password_file: PathBuf,
        /// Whether connections are encrypted.
        pub sslmode: SslMode = SslMode::Auto,
        /// The certificates of the authorities that may have signed the server's.
        pub ca_file: PathBuf,
        /// The schema that holds the tables.
        pub schema: String = "windlass".to_owned(),
        /// How long the store belongs to a daemon that does not renew its lease.
        pub lease: Period = Period::from_secs(2),
        /// How long a connection may take to open.
        pub connect_timeout: Period = Period::from_secs(5),
    }
}

windlass_config::section! {
    /// `[cluster]`
    pub struct Cluster {
        /// Where this daemon takes links of other daemons while it leads; empty: it is alone.
        pub listen: Vec<ListenAddress>,
        /// Where other daemons reach it; empty: at the first address of `listen`.
        pub address: String,
        /// The name of the broker that all its daemons form.
        pub name: String = "windlass".to_owned(),
        /// How long clients wait for a leader before their connections are closed.
        pub hold: Period = Period::from_secs(30),
        /// The certificates of the links.
        pub tls: Tls,
    }
}

impl Cluster {
    /// Whether this daemon is one of several.
    pub fn is_on(&self) -> bool {
        !self.listen.is_empty()
    }

    /// Where other daemons reach this one; empty if it is alone.
    pub fn address(&self) -> String {
        match self.listen.first() {
            Some(listen) if self.address.is_empty() => listen.to_string(),
            Some(_) => self.address.clone(),
            None => String::new(),
        }
    }
}

/// Whether connections to the database are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    /// They are, unless the database is on this machine.
    Auto,
    /// They are not.
    Disable,
    /// They are, and the server's certificate and name are verified.
    VerifyFull,
}

/// `[bridge]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bridge {
    /// Names of queues whose jobs workers of all protocols share; `*` stands for any bytes, `?` for one byte. In all
    /// other queues each protocol has its own jobs.
    pub queues: Vec<String>,
}

impl Config {
    /// The limits in the engine's own units.
    pub fn engine_limits(&self) -> windlass_engine::Limits {
        let limits = &self.limits;
        let jobs_bytes_max = if limits.jobs_bytes_max.0 == 0 {
            u64::MAX
        } else {
            limits.jobs_bytes_max.0
        };
        let mut limits = windlass_engine::Limits {
            jobs_max: limits.jobs_max,
            jobs_bytes_max,
            memory_max: self.jobs_memory(),
            schedules_max: limits.schedules_max,
            batches_max: limits.batches_max,
            batch_depth_max: limits.batch_depth_max,
            batch_keep_ms: limits.batch_ttl.as_ms(),
            queues_max: limits.queues_max,
            abilities_max: limits.abilities_max,
            name_bytes_max: u32::try_from(limits.name_bytes_max.0).unwrap_or(u32::MAX),
            listeners_max: limits.listeners_max,
            lease_ms_max: limits.lease_max.as_ms(),
            dead_ms: limits.dead_ttl.as_ms(),
            dead_max: limits.dead_max,
            dead_bytes_max: match limits.dead_bytes_max.into() {
                0 => jobs_bytes_max.min(self.bodies_room()) / 4,
                bytes => bytes,
            },
            dead_memory_max: self.memory() / 4,
            wake_ms: limits.wake_patience.as_ms(),
            beat_ms: limits.beat_timeout.as_ms(),
            return_ms: self.server.return_grace.as_ms(),
            requeue_dead_workers: false,
            losses_max: limits.losses_max,
            loss_pause_ms: limits.loss_pause.as_ms(),
            page_max: limits.page_max,
        };
        self.protocols
            .iter()
            .for_each(|protocol| protocol.limit(&mut limits));
        limits
    }

    /// Bytes of memory that the daemon may use.
    pub(crate) fn memory(&self) -> u64 {
        const LEAST: u64 = 256 * MIB;
        match self.limits.memory.0 {
            0 => (machine::memory().unwrap_or(2 * LEAST) / 2).max(LEAST),
            bytes => bytes,
        }
    }

    /// Bytes of the disk that bodies can go to, or of memory where there is none.
    fn bodies_room(&self) -> u64 {
        let disk = if self.ephemeral {
            None
        } else {
            machine::disk(&self.data_dir)
        };
        disk.unwrap_or_else(|| self.memory())
    }

    /// The part of it that jobs may use, beside buffers, checkpoints, and as many connections as there may be.
    fn jobs_memory(&self) -> u64 {
        const CHECKPOINTS: u64 = 192 * MIB;
        /// A connection of any protocol without its buffers: measured 1 to 3 KiB.
        const CONNECTION: u64 = 3 << 10;
        let all = self.memory();
        let connections = CONNECTION.saturating_mul(self.server.connections_max as u64);
        all.saturating_sub(CHECKPOINTS + self.server.buffer_bytes_max.0 + connections)
            .max(all / 4)
    }

    /// Where bodies go that do not fit into memory while the store is opened.
    pub(crate) fn overflow(&self) -> Overflow {
        // The rest is for what comes before bodies begin to leave.
        Overflow {
            folder: self.data_dir.clone(),
            memory: self.jobs_memory() / 2,
        }
    }

    /// Whether a key has its default.
    pub(crate) fn is_default(&self, key: &str) -> bool {
        self.values
            .get(key)
            .is_some_and(|value| self.defaults.get(key) == Some(value))
    }

    /// All addresses of all protocols.
    pub fn listeners(&self) -> impl Iterator<Item = Listener<'_>> {
        self.protocols
            .iter()
            .flat_map(|protocol| protocol.listeners())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_daemons_reach_this_one_at_its_first_address_unless_another_is_configured() {
        let listen = || "127.0.0.1:7".parse().unwrap();
        let table = [
            (vec![], "", ""),
            (vec![listen()], "", "127.0.0.1:7"),
            (vec![listen()], "a.example:9", "a.example:9"),
        ];
        for (listen, address, expected) in table {
            let cluster = Cluster {
                listen,
                address: address.to_owned(),
                ..Cluster::default()
            };
            assert_eq!(
                (cluster.address(), cluster.is_on()),
                (expected.to_owned(), !expected.is_empty())
            );
        }
    }

    #[test]
    fn dead_jobs_may_take_up_a_quarter_of_all_bytes_unless_another_limit_is_configured() {
        for (configured, expected) in [(0, 1_000), (70, 70)] {
            let mut config = Config::default();
            (
                config.limits.jobs_bytes_max.0,
                config.limits.dead_bytes_max.0,
            ) = (4_000, configured);
            assert_eq!(config.engine_limits().dead_bytes_max, expected);
        }
    }
}
