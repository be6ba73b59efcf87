//! Options of FWP, and the state that all its connections share. [`crate::config`] makes the settings.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use windlass_bridge::Bridge;
use windlass_config::Secret;
use windlass_engine::Timestamp;

/// The version of Faktory that the daemon reports; clients check it.
pub const FAKTORY_VERSION: &str = "1.10.0";

/// The options of a listener.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bytes of the longest line, without its end. A longer line ends the connection.
    pub line_bytes_max: usize,
    /// The password that clients must know; empty for none.
    pub password: Secret,
    /// `server.description` in INFO.
    pub description: String,
    /// The shortest reservation in seconds. A shorter `reserve_for` is raised to it.
    pub reserve_min_s: u64,
    /// The longest reservation in seconds: of `reserve_for`, and from a TRACK SET on.
    pub reserve_max_s: i64,
    /// Bytes of the longest arguments that a unique job compares by value. Longer ones are compared by their text.
    pub unique_args_bytes_max: usize,
    /// How long a batch may be open, in milliseconds. After that a batch that was never committed is forgotten, and one
    /// that was opened again after a commit continues to its callbacks.
    pub batch_open_ms: u64,
    /// How long FETCH waits for a job, in milliseconds.
    pub fetch_wait_ms: u64,
    /// How long a client may take to send HELLO, in milliseconds.
    pub handshake_ms: u64,
    /// Connections after HELLO. One more gets an error and is closed.
    pub connections_max: usize,
    /// Resident memory of the process, in megabytes.
    pub memory_mb: fn() -> u64,
    /// The wall clock in nanoseconds since the epoch, for times that are more exact than the engine's milliseconds; 0
    /// for unknown.
    pub clock_ns: fn() -> u64,
    /// The counters of all connections.
    pub shared: Arc<Shared>,
    /// All protocols, for jobs that cross.
    pub bridge: Arc<Bridge>,
}

/// The counters of all connections.
#[derive(Debug)]
pub struct Shared {
    started_at: Timestamp,
    connections: AtomicUsize,
    commands: AtomicU64,
    /// Jobtypes that were warned of.
    warned: Mutex<BTreeSet<String>>,
}

/// Jobtypes that are warned of, at most.
const WARNED_MAX: usize = 100;

impl Settings {
    /// The defaults, for a server that starts at this time.
    #[must_use]
    pub fn new(started_at: Timestamp) -> Self {
        Self {
            line_bytes_max: 64 << 20,
            password: Secret::default(),
            description: "Faktory Enterprise".to_owned(),
            reserve_min_s: 60,
            reserve_max_s: 86_400,
            unique_args_bytes_max: 1 << 20,
            batch_open_ms: 1_800_000,
            fetch_wait_ms: 2_000,
            handshake_ms: 2_000,
            connections_max: usize::MAX,
            memory_mb: || 0,
            clock_ns: || 0,
            shared: Arc::new(Shared {
                started_at,
                connections: AtomicUsize::new(0),
                commands: AtomicU64::new(0),
                warned: Mutex::default(),
            }),
            bridge: Arc::default(),
        }
    }
}

impl Shared {
    /// Counts a command.
    pub(super) fn count_command(&self) {
        self.commands.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Whether jobs of this type were not warned of before.
    pub(super) fn is_new_warning(&self, jobtype: &str) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        warned.len() < WARNED_MAX && warned.insert(jobtype.to_owned())
    }

    /// Seconds since the server started.
    pub(super) const fn uptime_s(&self, now: Timestamp) -> u64 {
        now.ms_since(self.started_at) / 1_000
    }
}

/// Counts a connection while it lives.
#[derive(Debug)]
pub(super) struct Counted(Arc<Shared>);

impl Counted {
    /// Counts a connection, and returns the number of connections with it.
    pub(super) fn new(shared: &Arc<Shared>) -> (Self, usize) {
        let others = shared.connections.fetch_add(1, Ordering::Relaxed);
        (Self(Arc::clone(shared)), others + 1)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
