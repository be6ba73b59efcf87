//! The daemon's sections of the configuration, with their defaults. This file contains only types;
//! `config/windlass.toml` explains each key to the operator.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use windlass_config::{ByteSize, DATA_DIR, ListenAddress, Period, Tls};
use windlass_engine::HistoryRules;
use windlass_history::shelf::Shelf;
use windlass_net::Server;
use windlass_session::protocol::{Listener, Protocol};
use windlass_store::{Overflow, Remote};

use super::namespaces::Namespaces;
use super::queues::Queue;
use crate::machine;
use crate::operator_port::OperatorPort;

const MIB: u64 = 1 << 20;

windlass_config::defaults! {
    /// The complete configuration: the daemon's sections, and the protocols with theirs.
    #[derive(Clone, Debug)]
    pub struct Config {
        /// The directory of the journal; relative to the working directory.
        pub data_dir: PathBuf = DATA_DIR.into(),
        /// What an acknowledgement promises.
        pub durability: Durability = Durability::Sync,
        /// Maximum time between two commits with [`Durability::Interval`].
        pub commit_interval: Period = Period::from_ms(100),
        /// Level, format and file of the log.
        pub log: Log,
        /// Threads, connections and timeouts.
        pub server: Server,
        /// Limits of the queues.
        pub limits: Limits,
        /// The journal.
        pub store: Store,
        /// The database that stores everything instead of the data directory.
        pub postgres: Postgres,
        /// The other daemons of the cluster.
        pub cluster: Cluster,
        /// The history of ended jobs.
        pub history: History,
        /// Queues that all protocols share.
        pub bridge: Bridge,
        /// Rules for the jobs of single queues.
        pub queues: BTreeMap<String, Queue>,
        /// Namespaces, by name.
        pub namespaces: Namespaces,
        /// The store, unless it is in the data directory.
        pub remote: Option<Arc<dyn Remote>>,
        /// The history of ended jobs, unless it is in the data directory.
        pub remote_history: Option<Arc<dyn Shelf>>,
        /// The protocols, in the order in which their listeners are bound.
        pub protocols: Vec<Arc<dyn Protocol>>,
        /// Listeners in addition to those of the protocols.
        pub ports: Vec<Arc<dyn OperatorPort>>,
        /// The positions of the sections of `queues`: file and line.
        pub places: BTreeMap<String, String>,
        /// Every key with its value, which a reload compares.
        pub values: BTreeMap<String, String>,
        /// Every key with its default.
        pub defaults: BTreeMap<String, String>,
        /// For integration tests: everything is in memory, and all addresses are printed to
        /// standard output.
        pub ephemeral: bool,
    }
}

/// The guarantee of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The change is on disk.
    Sync,
    /// The change will be on disk within [`Config::commit_interval`].
    Interval,
}

windlass_config::section! {
    /// `[log]`
    pub struct Log {
        /// A level, or directives for `tracing-subscriber`'s `EnvFilter`.
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
        /// Maximum number of jobs in all states together.
        pub jobs_max: u64 = 50_000_000,
        /// Maximum memory of the whole daemon; 0 = half of the machine's.
        pub memory: ByteSize = ByteSize(0),
        /// Maximum accounted bytes of all jobs, in memory and on disk; 0 = no limit.
        pub jobs_bytes_max: ByteSize = ByteSize(0),
        /// Maximum number of schedules.
        pub schedules_max: u32 = 10_000,
        /// Maximum number of batches.
        pub batches_max: u32 = 100_000,
        /// Maximum nesting of batches.
        pub batch_depth_max: u32 = 100,
        /// How long a batch is kept after its last waiting or leased job has ended.
        pub batch_ttl: Period = Period::from_days(7),
        /// Maximum number of queues.
        pub queues_max: u32 = 100_000,
        /// Maximum number of queues that one client serves.
        pub abilities_max: u32 = 10_000,
        /// Maximum length of a queue's name, a job's public name or a coalescing key.
        pub name_bytes_max: ByteSize = ByteSize(8192),
        /// Maximum number of clients that follow one job.
        pub listeners_max: u32 = 10_000,
        /// Maximum length of a lease.
        pub lease_max: Period = Period::from_days(365),
        /// How long dead jobs are kept.
        pub dead_ttl: Period = Period::from_days(180),
        /// Maximum number of dead jobs.
        pub dead_max: u64 = 1_000_000,
        /// Maximum accounted bytes of dead jobs; 0 = a quarter of the disk of `data_dir`, and of
        /// `jobs_bytes_max`. Without their bodies, which may be on disk only, they are limited to a
        /// quarter of `memory`.
        pub dead_bytes_max: ByteSize = ByteSize(0),
        /// How long a notified worker may take to request a job.
        pub wake_patience: Period = Period::from_secs(1),
        /// Maximum time between heartbeats of a named worker.
        pub beat_timeout: Period = Period::from_secs(60),
        /// Number of workers that may be lost with a job before it goes to the dead-letter queue; 0
        /// = any number.
        pub losses_max: u32 = 5,
        /// How long a job is delayed after the second loss. The delay doubles with each further
        /// loss.
        pub loss_pause: Period = Period::from_secs(1),
        /// Maximum number of rows that one listing or bulk command visits.
        pub page_max: u32 = 200,
    }
}

windlass_config::section! {
    /// `[store]`
    pub struct Store {
        /// Memory for the parts of the table that checkpoints modify.
        pub cache: ByteSize = ByteSize(16 * MIB),
        /// Size of the log that triggers a checkpoint.
        pub checkpoint: ByteSize = ByteSize(64 * MIB),
        /// Time without commits that triggers a checkpoint.
        pub checkpoint_quiet: Period = Period::from_secs(30),
        /// Tables smaller than this are never rebuilt to save space.
        pub compact_floor: ByteSize = ByteSize(32 * MIB),
        /// A commit that takes longer makes the daemon report "unavailable".
        pub commit_timeout: Period = Period::from_secs(30),
        /// A commit that takes longer makes the daemon exit.
        pub commit_abort: Period = Period::from_secs(300),
    }
}

windlass_config::section! {
    /// `[history]`
    pub struct History {
        /// How long the ends of jobs are kept; 0 = not at all.
        pub keep: Period = Period::from_ms(0),
        /// Maximum size of all its files.
        pub bytes_max: ByteSize = ByteSize(2048 * MIB),
    }
}

windlass_config::section! {
    /// `[postgres]`
    pub struct Postgres {
        /// The URL of the database. Empty: the store is in the data directory.
        pub url: String,
        /// A file with the password.
        pub password_file: PathBuf,
        /// The encryption of connections.
        pub sslmode: SslMode = SslMode::Auto,
        /// CA certificates to trust for the server.
        pub ca_file: PathBuf,
        /// The schema of the tables.
        pub schema: String = "windlass".to_owned(),
        /// The length of the store's lease, unless renewed.
        pub lease: Period = Period::from_secs(2),
        /// Timeout of opening a connection.
        pub connect_timeout: Period = Period::from_secs(5),
    }
}

windlass_config::section! {
    /// `[cluster]`
    pub struct Cluster {
        /// The addresses for links of other daemons while this one leads. Empty: no cluster.
        pub listen: Vec<ListenAddress>,
        /// The address at which other daemons reach this one. Empty: the first address of `listen`.
        pub address: String,
        /// The name of the cluster.
        pub name: String = "windlass".to_owned(),
        /// How long clients wait for a leader before they are disconnected.
        pub hold: Period = Period::from_secs(30),
        /// The certificates of the links.
        pub tls: Tls,
    }
}

impl Cluster {
    /// Whether this daemon is a member of a cluster.
    pub fn is_on(&self) -> bool {
        !self.listen.is_empty()
    }

    /// The address at which other daemons reach this one; empty without a cluster.
    pub fn address(&self) -> String {
        match self.listen.first() {
            Some(listen) if self.address.is_empty() => listen.to_string(),
            Some(_) => self.address.clone(),
            None => String::new(),
        }
    }
}

/// The encryption of connections to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    /// Encrypted, unless the database is on this machine.
    Auto,
    /// Not encrypted.
    Disable,
    /// Encrypted; the server's certificate and name are verified.
    VerifyFull,
}

/// `[bridge]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bridge {
    /// Patterns of queues whose jobs are shared by workers of all protocols; `*` matches any bytes,
    /// `?` one byte. In other queues each protocol has separate jobs.
    pub queues: Vec<String>,
}

impl Config {
    /// Converts the limits to the engine's units.
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
            history: HistoryRules {
                keep_ms: self.history.keep.as_ms(),
                ..HistoryRules::default()
            },
        };
        self.protocols
            .iter()
            .for_each(|protocol| protocol.limit(&mut limits));
        limits
    }

    /// Memory that the daemon may use, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        const LEAST: u64 = 256 * MIB;
        match self.limits.memory.0 {
            0 => (machine::memory().unwrap_or(2 * LEAST) / 2).max(LEAST),
            bytes => bytes,
        }
    }

    /// Size of the disk for bodies, or of the memory without one, in bytes.
    fn bodies_room(&self) -> u64 {
        let disk = if self.ephemeral {
            None
        } else {
            machine::disk(&self.data_dir)
        };
        disk.unwrap_or_else(|| self.memory())
    }

    /// The part of the memory for jobs, after buffers, checkpoints, and the maximum number of
    /// connections.
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
        // The remainder covers what is allocated before bodies start to move.
        Overflow {
            folder: self.data_dir.clone(),
            memory: self.jobs_memory() / 2,
        }
    }

    /// Whether a key has its default value.
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
