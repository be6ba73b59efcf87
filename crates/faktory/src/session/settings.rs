//! What an operator can set about Faktory, and what all its connections share. Where the values come from is the server's
//! business.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use windlass_engine::Timestamp;

/// The version of Faktory's that is spoken: clients look at it.
pub const FAKTORY_VERSION: &str = "1.10.0";

/// One set of rules for all connections of a listener.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Longest line taken, in bytes without its end. A longer one ends the connection.
    pub line_bytes_max: usize,
    /// What every client must know; empty for nothing.
    pub password: String,
    /// What INFO answers as `server.description`.
    pub description: String,
    /// The shortest time a worker has for a job, in seconds; a shorter wish is lengthened to this.
    pub reserve_min_s: u64,
    /// The longest arguments, in bytes, that are compared by their values when a job is to be unique; longer ones by how they
    /// are spelled.
    pub unique_args_bytes_max: usize,
    /// How long a batch may be open, in milliseconds: one that is not committed by then is forgotten, and one that was committed
    /// before goes on to its callbacks.
    pub batch_open_ms: u64,
    /// How long FETCH waits for a job, in milliseconds.
    pub fetch_wait_ms: u64,
    /// How long a client may take to say HELLO, in milliseconds.
    pub handshake_ms: u64,
    /// Connections that have said HELLO; one more is told and hung up on.
    pub connections_max: usize,
    /// Resident memory of the process, in megabytes.
    pub memory_mb: fn() -> u64,
    /// The time of day in nanoseconds since the epoch, for what is told more exactly than the engine counts; 0 for unknown.
    pub clock_ns: fn() -> u64,
    /// What connections count together.
    pub shared: Arc<Shared>,
}

/// What all connections count together.
#[derive(Debug)]
pub struct Shared {
    started_at: Timestamp,
    connections: AtomicUsize,
    commands: AtomicU64,
}

impl Settings {
    /// The defaults, for a server that starts at this time.
    #[must_use]
    pub fn new(started_at: Timestamp) -> Self {
        Self {
            line_bytes_max: 64 << 20,
            password: String::new(),
            description: "Faktory Enterprise".to_owned(),
            reserve_min_s: 60,
            unique_args_bytes_max: 1 << 20,
            batch_open_ms: 1_800_000,
            fetch_wait_ms: 2_000,
            handshake_ms: 2_000,
            connections_max: usize::MAX,
            memory_mb: || 0,
            clock_ns: || 0,
            shared: Arc::new(Shared { started_at, connections: AtomicUsize::new(0), commands: AtomicU64::new(0) }),
        }
    }
}

impl Shared {
    /// One command more.
    pub(super) fn count_command(&self) {
        self.commands.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Seconds since the server was started.
    pub(super) const fn uptime_s(&self, now: Timestamp) -> u64 {
        now.ms_since(self.started_at) / 1_000
    }
}

/// One of the connections that are counted, as long as it lives.
#[derive(Debug)]
pub(super) struct Counted(Arc<Shared>);

impl Counted {
    /// Counts a connection, and says how many there are with it.
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
