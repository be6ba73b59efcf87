//! All sections of the configuration, with their defaults: types only. `config/windlass.toml` explains each key to the
//! operator.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;

use serde::{Deserialize, Serialize};
use windlass_gearman::wire::{HANDLE_PREFIX_BYTES_MAX, HandlePrefix, HandlePrefixError};

use super::address::ListenAddress;
use super::cron::Cron;
use super::eventmq::Eventmq;
use super::file_mode::FileMode;
use super::gearman::{OnTimeout, TimeoutUnit};
use super::quantity::{ByteSize, Period};
use super::queues::Queue;
use super::spiderq::{Spiderq, Zmtp};
use super::throttle::Throttle;

const MIB: u64 = 1 << 20;
const FAKTORY_PORT: u16 = 7419;
const GEARMAN_PORT: u16 = 4730;

/// The placeholder for this machine's name in [`Gearman::handle_prefix`].
const HOST: &str = "{host}";

/// The whole configuration. Every key is optional; unknown keys are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The directory of the journal; relative to the working directory.
    pub data_dir: PathBuf,
    /// What an acknowledgement promises.
    pub durability: Durability,
    /// The longest time between two commits with [`Durability::Interval`].
    pub commit_interval: Period,
    /// The log's level, format and file.
    pub log: Log,
    /// Threads, connections and timeouts.
    pub server: Server,
    /// Limits of the queues.
    pub limits: Limits,
    /// The journal.
    pub store: Store,
    /// Queues that all protocols share.
    pub bridge: Bridge,
    /// Rules for the jobs of single queues.
    pub queues: BTreeMap<String, Queue>,
    /// Faktory.
    pub faktory: Faktory,
    /// Gearman.
    pub gearman: Gearman,
    /// spiderq.
    pub spiderq: Spiderq,
    /// EventMQ.
    pub eventmq: Eventmq,
    /// ZeroMQ's transport, under spiderq and EventMQ.
    pub zmtp: Zmtp,
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

/// `[log]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// A level, or directives as `tracing-subscriber`'s `EnvFilter` takes them.
    pub level: String,
    /// The format of lines.
    pub format: LogFormat,
    /// The file to append to; empty for standard error.
    pub file: PathBuf,
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

/// `[server]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Threads that serve connections; 0 = one per two cores.
    pub threads: usize,
    /// Connections of all listeners together.
    pub connections_max: usize,
    /// Of these, connections reserved for each protocol.
    pub connections_reserved: usize,
    /// Connections from one address; 0 = no limit.
    pub connections_per_address_max: usize,
    /// Bytes of partly read messages and partly sent answers, of all connections together.
    pub buffer_bytes_max: ByteSize,
    /// Bytes that may wait for a peer that does not read.
    pub outbound_bytes_max: ByteSize,
    /// Bytes read from a peer before a visit to the engine.
    pub read_bytes_max: ByteSize,
    /// Answers of one connection that may wait for the disk before no more is read from it.
    pub unacknowledged_max: usize,
    /// A worker gets its next job only when the end of its last job is on the disk, even if that end has no answer.
    pub hand_out_after_commit: bool,
    /// How long a connection may be silent; 0 = for ever.
    pub idle_timeout: Period,
    /// How long a message may take to arrive completely; 0 = for ever.
    pub message_timeout: Period,
    /// A message gets one more second per this number of bytes; 0 = none.
    pub message_rate_min: ByteSize,
    /// How long a peer may take for its TLS handshake.
    pub handshake_timeout: Period,
    /// Connections that the system queues before they are accepted.
    pub backlog: u32,
    /// Permissions of Unix sockets.
    pub unix_mode: FileMode,
    /// Silence before the system sends a keepalive probe; 0 = the system's default.
    pub keepalive_idle: Period,
    /// Time between two probes; 0 = the system's default.
    pub keepalive_interval: Period,
    /// Unanswered probes before the peer counts as gone; 0 = the system's default.
    pub keepalive_count: u32,
    /// How long connections may take to end when the daemon stops.
    pub shutdown_timeout: Period,
    /// How long the start retries an address or a data directory that another process uses.
    pub in_use_timeout: Period,
}

/// `[limits]`: the engine's limits, in the operator's units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Jobs in all states together.
    pub jobs_max: u64,
    /// Bytes that all jobs together may count as.
    pub jobs_bytes_max: ByteSize,
    /// Schedules.
    pub schedules_max: u32,
    /// Batches.
    pub batches_max: u32,
    /// How deep batches may be nested.
    pub batch_depth_max: u32,
    /// How long a batch is kept after its last waiting or leased job has ended.
    pub batch_ttl: Period,
    /// Queues.
    pub queues_max: u32,
    /// Queues one client may serve.
    pub abilities_max: u32,
    /// Bytes of a queue's name, a job's public name or a coalescing key.
    pub name_bytes_max: ByteSize,
    /// Clients that follow one job.
    pub listeners_max: u32,
    /// The longest lease.
    pub lease_max: Period,
    /// How long the dead-letter queue keeps a job.
    pub dead_ttl: Period,
    /// Jobs in the dead-letter queue.
    pub dead_max: u64,
    /// Bytes that those jobs may count as; 0 = a quarter of `jobs_bytes_max`.
    pub dead_bytes_max: ByteSize,
    /// How long a woken worker may take to request work.
    pub wake_patience: Period,
    /// How long a named worker may go without a heartbeat.
    pub beat_timeout: Period,
    /// Workers that may be lost with a job before it goes to the dead-letter queue; 0 = any number.
    pub losses_max: u32,
    /// How long a job waits after the second loss; doubles with each further one.
    pub loss_pause: Period,
    /// Rows that one listing or bulk command visits.
    pub page_max: u32,
}

/// `[store]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// Memory for the parts of the table that checkpoints change.
    pub cache: ByteSize,
    /// Log bytes that trigger a checkpoint.
    pub checkpoint: ByteSize,
    /// Time without commits that triggers a checkpoint.
    pub checkpoint_quiet: Period,
    /// A table smaller than this is never rebuilt to save space.
    pub compact_floor: ByteSize,
    /// A commit that takes longer makes the daemon answer "unavailable".
    pub commit_timeout: Period,
    /// A commit that takes longer ends the daemon.
    pub commit_abort: Period,
}

/// `[bridge]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bridge {
    /// Names of queues whose jobs workers of all protocols share; `*` stands for any bytes, `?` for one byte. In all other
    /// queues each protocol has its own jobs.
    pub queues: Vec<String>,
}

/// `[faktory]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faktory {
    /// Addresses of Faktory; empty for none.
    pub listen: Vec<ListenAddress>,
    /// The password that clients must prove; empty for none.
    pub password: String,
    /// A file with the password, surrounding blanks ignored; empty for none.
    pub password_file: PathBuf,
    /// The longest line, and so the largest job.
    pub line_bytes_max: ByteSize,
    /// Connections; 0 = as many as [`Server::connections_max`].
    pub connections_max: usize,
    /// How long a client may take to send HELLO.
    pub hello_timeout: Period,
    /// How long FETCH waits for a job.
    pub fetch_wait: Period,
    /// The shortest reservation.
    pub reserve_min: Period,
    /// How long a batch may be open.
    pub batch_open_max: Period,
    /// The longest arguments that are compared by value for unique jobs.
    pub unique_args_bytes_max: ByteSize,
    /// Return a dead worker's jobs to their queues at once, instead of when their reservations end.
    pub requeue_on_worker_death: bool,
    /// The server's description in INFO.
    pub description: String,
    /// Recurring jobs.
    pub cron: Vec<Cron>,
    /// Limits on the jobs of a queue that are worked on at once.
    pub throttles: BTreeMap<String, Throttle>,
    /// TLS for every TCP address in `listen`.
    pub tls: Tls,
}

/// `[gearman]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gearman {
    /// Addresses of Gearman; empty for none.
    pub listen: Vec<ListenAddress>,
    /// The largest packet, header included.
    pub frame_bytes_max: ByteSize,
    /// The longest line of the admin protocol.
    pub line_bytes_max: ByteSize,
    /// Deliveries before a job is given up; 0 = no limit.
    pub job_retries: u32,
    /// Keep jobs that were given up in the dead-letter queue.
    pub keep_failed: bool,
    /// The effect of a `CAN_DO_TIMEOUT` timeout on the job.
    pub on_timeout: OnTimeout,
    /// The unit of the number in `CAN_DO_TIMEOUT`.
    pub timeout_unit: TimeoutUnit,
    /// Serve a worker's functions in turn among jobs of equal priority.
    pub round_robin: bool,
    /// Forward exceptions to clients that did not ask for them.
    pub exceptions: bool,
    /// Let clients stop the daemon.
    pub shutdown: bool,
    /// The prefix of job handles; `{host}` stands for the name of the machine.
    pub handle_prefix: String,
    /// The answer to `version`, without `OK `.
    pub version: String,
    /// TLS for every TCP address in `listen`.
    pub tls: Tls,
}

/// `[gearman.tls]`, and the same section of other protocols. Without a certificate a listener does not use TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// A file with the certificate and its intermediate certificates (PEM); empty for none.
    pub certificate: PathBuf,
    /// A file with the certificate's private key (PEM).
    pub key: PathBuf,
    /// A file with authorities (PEM); one of them must have signed a peer's certificate. Empty if peers need no certificate.
    pub client_ca: PathBuf,
}

/// One address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener<'a> {
    /// The protocol's name.
    pub protocol: &'static str,
    /// The address.
    pub address: &'a ListenAddress,
    /// Whether the listener uses TLS.
    pub tls: bool,
    /// The queue served there, if there is only one.
    pub queue: Option<&'a str>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: "windlass-data".into(),
            durability: Durability::Sync,
            commit_interval: Period::from_ms(100),
            log: Log::default(),
            server: Server::default(),
            limits: Limits::default(),
            store: Store::default(),
            bridge: Bridge::default(),
            queues: BTreeMap::new(),
            faktory: Faktory::default(),
            gearman: Gearman::default(),
            spiderq: Spiderq::default(),
            eventmq: Eventmq::default(),
            zmtp: Zmtp::default(),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text, file: PathBuf::new() }
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            threads: 0,
            connections_max: 10_000,
            connections_reserved: 16,
            connections_per_address_max: 0,
            buffer_bytes_max: ByteSize(128 * MIB),
            outbound_bytes_max: ByteSize(128 * MIB),
            read_bytes_max: ByteSize(MIB / 4),
            unacknowledged_max: 4096,
            hand_out_after_commit: false,
            idle_timeout: Period::from_ms(0),
            message_timeout: Period::from_secs(30),
            message_rate_min: ByteSize(4096),
            handshake_timeout: Period::from_secs(10),
            backlog: 1024,
            unix_mode: FileMode(None),
            keepalive_idle: Period::from_ms(0),
            keepalive_interval: Period::from_ms(0),
            keepalive_count: 0,
            shutdown_timeout: Period::from_secs(10),
            in_use_timeout: Period::from_ms(0),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            jobs_max: 50_000_000,
            jobs_bytes_max: ByteSize(384 * MIB),
            schedules_max: 10_000,
            batches_max: 100_000,
            batch_depth_max: 100,
            batch_ttl: Period::from_days(7),
            queues_max: 100_000,
            abilities_max: 10_000,
            name_bytes_max: ByteSize(8192),
            listeners_max: 10_000,
            lease_max: Period::from_days(365),
            dead_ttl: Period::from_days(180),
            dead_max: 1_000_000,
            dead_bytes_max: ByteSize(0),
            wake_patience: Period::from_secs(1),
            beat_timeout: Period::from_secs(60),
            losses_max: 5,
            loss_pause: Period::from_secs(1),
            page_max: 200,
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self {
            cache: ByteSize(16 * MIB),
            checkpoint: ByteSize(64 * MIB),
            checkpoint_quiet: Period::from_secs(30),
            compact_floor: ByteSize(32 * MIB),
            commit_timeout: Period::from_secs(30),
            commit_abort: Period::from_secs(300),
        }
    }
}

impl Default for Faktory {
    fn default() -> Self {
        Self {
            listen: vec![ListenAddress::Tcp { host: "127.0.0.1".to_owned(), port: FAKTORY_PORT }],
            password: String::new(),
            password_file: PathBuf::new(),
            line_bytes_max: ByteSize(64 * MIB),
            connections_max: 0,
            hello_timeout: Period::from_secs(2),
            fetch_wait: Period::from_secs(2),
            reserve_min: Period::from_secs(60),
            batch_open_max: Period::from_secs(1_800),
            unique_args_bytes_max: ByteSize(MIB),
            requeue_on_worker_death: false,
            description: "Faktory Enterprise".to_owned(),
            cron: Vec::new(),
            throttles: BTreeMap::new(),
            tls: Tls::default(),
        }
    }
}

impl Default for Gearman {
    fn default() -> Self {
        Self {
            listen: vec![ListenAddress::Tcp { host: "127.0.0.1".to_owned(), port: GEARMAN_PORT }],
            frame_bytes_max: ByteSize(64 * MIB),
            line_bytes_max: ByteSize(8192),
            job_retries: 0,
            keep_failed: true,
            on_timeout: OnTimeout::Auto,
            timeout_unit: TimeoutUnit::Ms,
            round_robin: false,
            exceptions: false,
            shutdown: false,
            handle_prefix: format!("H:{HOST}"),
            version: "1.1.20".to_owned(),
            tls: Tls::default(),
        }
    }
}

impl Config {
    /// The limits in the engine's own units.
    #[must_use]
    pub fn engine_limits(&self) -> windlass_engine::Limits {
        let limits = &self.limits;
        windlass_engine::Limits {
            jobs_max: limits.jobs_max,
            jobs_bytes_max: limits.jobs_bytes_max.into(),
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
                0 => u64::from(limits.jobs_bytes_max) / 4,
                bytes => bytes,
            },
            wake_ms: limits.wake_patience.as_ms(),
            beat_ms: limits.beat_timeout.as_ms(),
            requeue_dead_workers: self.faktory.requeue_on_worker_death,
            losses_max: limits.losses_max,
            loss_pause_ms: limits.loss_pause.as_ms(),
            page_max: limits.page_max,
        }
    }

    /// All addresses of all protocols.
    pub fn listeners(&self) -> impl Iterator<Item = Listener<'_>> {
        let (faktory, gearman) = (&self.faktory, &self.gearman);
        let all = [("faktory", &faktory.listen, &faktory.tls), ("gearman", &gearman.listen, &gearman.tls)];
        let others = all.into_iter().flat_map(|(protocol, listen, tls)| {
            let over_tls = |address: &ListenAddress| tls.is_on() && address.is_tcp();
            listen.iter().map(move |address| Listener { protocol, address, tls: over_tls(address), queue: None })
        });
        let cycles = self.spiderq.cycles().flat_map(|cycle| {
            let queue = Some(cycle.queue);
            cycle.listen.iter().map(move |address| Listener { protocol: "spiderq", address, tls: false, queue })
        });
        others.chain(cycles).chain(self.eventmq.listeners())
    }
}

impl Faktory {
    /// The password that clients must prove; empty for none.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn secret(&self) -> std::io::Result<String> {
        secret(&self.password, &self.password_file)
    }
}

/// The password, or the content of the file if one is named.
pub(super) fn secret(password: &str, file: &Path) -> std::io::Result<String> {
    if file.as_os_str().is_empty() {
        return Ok(password.to_owned());
    }
    std::fs::read_to_string(file).map(|text| text.trim().to_owned())
}

impl Server {
    /// The number of threads that serve connections.
    #[must_use]
    pub fn threads_or_default(&self) -> usize {
        match self.threads {
            0 => thread::available_parallelism().map_or(1, usize::from).div_ceil(2),
            threads => threads,
        }
    }
}

impl Tls {
    /// Whether any key is set. [`Config::check`] checks whether they fit together.
    #[must_use]
    pub fn is_on(&self) -> bool {
        *self != Self::default()
    }
}

impl Gearman {
    /// The prefix of job handles on this machine.
    ///
    /// # Errors
    ///
    /// The prefix is not valid in a handle.
    pub fn prefix(&self) -> Result<HandlePrefix, HandlePrefixError> {
        HandlePrefix::new(&self.prefix_on(rustix::system::uname().nodename().to_bytes()))
    }

    /// Cuts the host's name to the available room, and replaces bytes that handles must not contain by dashes.
    pub(super) fn prefix_on(&self, host: &[u8]) -> Vec<u8> {
        let Some((before, after)) = self.handle_prefix.split_once(HOST) else {
            return self.handle_prefix.clone().into_bytes();
        };
        let room = HANDLE_PREFIX_BYTES_MAX.saturating_sub(before.len() + after.len());
        let name = host.iter().take(room).map(|byte| if *byte > b' ' && *byte != 0x7f { *byte } else { b'-' });
        before.bytes().chain(name).chain(after.bytes()).collect()
    }
}
