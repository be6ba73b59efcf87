//! The counters of connections: of the daemon, and of each namespace.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use windlass_engine::Timestamp;
use windlass_session::ByNamespace;

/// The counters of all connections.
#[derive(Debug)]
pub struct Shared {
    started_at: Timestamp,
    all: Counts,
    /// Also of the one without a name, which is empty.
    by_namespace: ByNamespace<Counts>,
    /// Jobtypes that were warned of.
    warned: Mutex<BTreeSet<String>>,
}

/// Counters of connections.
#[derive(Debug, Default)]
struct Counts {
    connections: AtomicUsize,
    commands: AtomicU64,
}

/// Jobtypes that are warned of, at most.
const WARNED_MAX: usize = 100;

impl Shared {
    /// No connections yet, of a server that starts at this time.
    pub(super) fn new(started_at: Timestamp) -> Self {
        Self {
            started_at,
            all: Counts::default(),
            by_namespace: ByNamespace::default(),
            warned: Mutex::default(),
        }
    }

    pub(super) fn commands(&self) -> u64 {
        self.all.commands.load(Ordering::Relaxed)
    }

    pub(super) fn connections(&self) -> usize {
        self.all.connections.load(Ordering::Relaxed)
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

/// Counts a connection while it lives, for the daemon and for its namespace.
#[derive(Debug)]
pub(super) struct Counted {
    shared: Arc<Shared>,
    own: Arc<Counts>,
    /// The number of connections of the daemon with it.
    number: usize,
}

impl Counted {
    /// Counts a connection.
    pub(super) fn new(shared: &Arc<Shared>, namespace: Option<&str>) -> Self {
        let own = shared
            .by_namespace
            .get_or(namespace.unwrap_or_default(), Counts::default);
        own.connections.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: Arc::clone(shared),
            own,
            number: shared.all.connections.fetch_add(1, Ordering::Relaxed) + 1,
        }
    }

    /// The number of connections of the daemon, this one the last.
    pub(super) const fn number(&self) -> usize {
        self.number
    }

    fn both(&self) -> [&Counts; 2] {
        [&self.shared.all, &self.own]
    }

    /// Counts a command.
    pub(super) fn count_command(&self) {
        for counts in self.both() {
            counts.commands.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Commands in the connection's namespace.
    pub(super) fn commands(&self) -> u64 {
        self.own.commands.load(Ordering::Relaxed)
    }

    /// Connections in the connection's namespace.
    pub(super) fn connections(&self) -> usize {
        self.own.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        for counts in self.both() {
            counts.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_counters_of_its_own() {
        let shared = Arc::new(Shared::new(Timestamp(0)));
        let [first, second, third] =
            [None, Some("a"), Some("a")].map(|namespace| Counted::new(&shared, namespace));
        second.count_command();
        let counts = |it: &Counted| (it.connections(), it.commands());
        assert_eq!((counts(&first), counts(&third)), ((1, 0), (2, 1)));
        assert_eq!((shared.connections(), shared.commands()), (3, 1));
        drop(second);
        assert_eq!((counts(&third), shared.connections()), ((1, 1), 2));
    }
}
