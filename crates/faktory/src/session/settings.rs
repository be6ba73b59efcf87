//! What all connections of FWP share: the section of the configuration, and the facts of this daemon.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use windlass_bridge::Bridge;
use windlass_engine::Timestamp;

use crate::config::Faktory;

/// The version of Faktory that the daemon reports; clients check it.
pub const FAKTORY_VERSION: &str = "1.10.0";

/// What all connections of a listener share.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `[faktory]`, with the password that its file contains.
    pub section: Faktory,
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
    /// The settings under this section, for a server that starts at this time.
    pub fn new(section: Faktory, started_at: Timestamp) -> Self {
        let shared = Shared {
            started_at,
            connections: 0.into(),
            commands: 0.into(),
            warned: Mutex::default(),
        };
        Self {
            section,
            memory_mb: || 0,
            clock_ns: || 0,
            shared: Arc::new(shared),
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
