//! The daemon's own figures for metrics: counts of connections and commits; use and limits of the
//! store, of jobs and of buffers; expiry of certificates. They are read on demand.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwapOption;
use windlass_history::Watch;
use windlass_store::{LogTail, StoreFigures};

use crate::log_growth::LogSizes;
use crate::logging;
use windlass_hub::{Budget, CommitTimes, Hub, LoadFigures};
use windlass_net::{Acceptor, CONNECTIONS, Handshaker, Places, Served, Traffic};

pub use windlass_hub::{BOUNDS_US, CommitDurations};
pub use windlass_net::{Counts, ProtocolTraffic};

/// The sources of the figures.
#[derive(Clone)]
pub struct Figures {
    budget: Arc<Budget>,
    traffic: Arc<Traffic>,
    places: Arc<Places>,
    /// Empty while another daemon has the engine room.
    room: Arc<ArcSwapOption<RoomFigures>>,
    /// The protocols with TLS.
    handshakers: Vec<(&'static str, Arc<Handshaker>)>,
}

/// The sources of the engine room's figures.
#[derive(Clone)]
pub(crate) struct RoomFigures {
    pub(crate) hub: Arc<Hub>,
    pub(crate) commits: Arc<CommitTimes>,
    pub(crate) store: Arc<StoreFigures>,
    pub(crate) tail: Arc<dyn LogTail>,
    pub(crate) history: Option<Watch>,
}

/// The figures at one moment. Those of the engine room are zero while another daemon has it.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// By protocol.
    pub traffic: BTreeMap<&'static str, ProtocolTraffic>,
    /// Distribution of commit times.
    pub commits: CommitDurations,
    /// Completed checkpoints.
    pub checkpoints: u64,
    /// Bytes of living records, as of the last checkpoint.
    pub live_bytes: u64,
    /// Bytes of the log and the table on the disk.
    pub store_bytes: u64,
    /// Bytes of log not yet in a checkpoint.
    pub behind_bytes: u64,
    /// Free bytes of the disk, if the store is on one.
    pub free_bytes: Option<u64>,
    /// Limit on jobs.
    pub jobs_max: u64,
    /// Limit on queues.
    pub queues_max: u64,
    /// Unused queues removed at the limit.
    pub queues_forgotten: u64,
    /// Limit on the accounted bytes of jobs, schedules and batches, if any.
    pub jobs_bytes_max: Option<u64>,
    /// Jobs in memory, and bodies on disk.
    pub memory: JobMemory,
    /// Bytes of the buffers of all connections, and the limit.
    pub buffers_bytes: (usize, usize),
    /// Connections of clients that count towards the limit, and the limit.
    pub places: (usize, usize),
    /// The source of that limit.
    pub places_limit: &'static str,
    /// Earliest expiry of each protocol's certificates, in seconds since 1970.
    pub certificates_end_at: BTreeMap<&'static str, u64>,
    /// Publications dropped because a connection did not read.
    pub publications_missed: u64,
    /// Dropped log lines.
    pub log_lines_dropped: u64,
    /// The history of ended jobs, if one is kept.
    pub history: Option<windlass_history::Figures>,
}

impl Snapshot {
    /// Open connections of clients, excluding HTTP.
    pub fn connections(&self) -> u64 {
        let open = |it: &ProtocolTraffic| it.opened.saturating_sub(it.closed.values().sum());
        self.traffic
            .iter()
            .filter(|(port, _)| **port != "http")
            .map(|(_, it)| open(it))
            .sum()
    }
}

/// The part of the jobs in memory, and the bodies on disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobMemory {
    /// Bytes in memory, and the limit.
    pub bytes: (u64, u64),
    /// Space for new jobs once all movable bodies are on disk.
    pub room: u64,
    /// Jobs whose bodies are on disk only, and the bytes of these bodies.
    pub stored: (u64, u64),
    /// Bytes of the scratch file of bodies.
    pub disk_bytes: u64,
    /// Bodies read back, those that a client waited for, and those that could not be read.
    pub loads: [u64; 3],
    /// Time spent reading bodies, in microseconds.
    pub load_us: u64,
}

impl JobMemory {
    fn read(hub: &Hub) -> Self {
        let (bytes, room, stored) = (
            hub.memory(),
            hub.memory_room(),
            hub.with_journal(|engine, _| engine.stored()),
        );
        let LoadFigures {
            loads,
            waited,
            failed,
            load_us,
            disk_bytes,
        } = &hub.loading.figures;
        let [disk_bytes, load_us] =
            [disk_bytes, load_us].map(|figure| figure.load(Ordering::Relaxed));
        Self {
            bytes,
            room,
            stored,
            disk_bytes,
            loads: [loads, waited, failed].map(|it| it.load(Ordering::Relaxed)),
            load_us,
        }
    }
}

impl Figures {
    pub(crate) fn new(acceptor: &Acceptor, served: &[Served]) -> Self {
        let with_tls = served
            .iter()
            .filter_map(|it| Some((it.endpoint.name, Arc::clone(it.tls.as_ref()?))));
        let (budget, traffic) = (
            Arc::clone(acceptor.budget()),
            Arc::clone(acceptor.traffic()),
        );
        Self {
            budget,
            traffic,
            places: Arc::clone(&acceptor.places),
            room: Arc::default(),
            handshakers: with_tls.collect(),
        }
    }

    /// Connects the figures of the engine room, which is now in this daemon.
    pub(crate) fn enter_room(&self, room: RoomFigures) {
        self.room.store(Some(Arc::new(room)));
    }

    /// Disconnects the figures of the engine room, which is now in another daemon.
    pub(crate) fn leave_room(&self) {
        self.room.store(None);
    }

    /// Creates counters for the connections of a port, to be used by one thread.
    pub fn counts(&self, port: &'static str) -> Arc<Counts> {
        self.traffic.counts(port)
    }

    /// Reads all figures.
    pub fn read(&self) -> Snapshot {
        let ends = self
            .handshakers
            .iter()
            .filter_map(|(protocol, tls)| Some((*protocol, tls.certificate_ends_at()?)));
        let snapshot = Snapshot {
            traffic: self.traffic.read(),
            buffers_bytes: self.budget.used(),
            places: self.places.used(),
            places_limit: match self.places.limit_of_all() {
                CONNECTIONS => "server.connections_max",
                open_files => open_files,
            },
            certificates_end_at: ends.collect(),
            publications_missed: self.budget.published.missed(),
            log_lines_dropped: logging::dropped(),
            ..Snapshot::default()
        };
        match &*self.room.load() {
            Some(room) => room.read(snapshot),
            None => snapshot,
        }
    }
}

impl RoomFigures {
    /// The sizes of the log.
    pub(crate) fn log_sizes(&self) -> LogSizes {
        let StoreFigures {
            point,
            due_bytes,
            table_bytes,
            ..
        } = &*self.store;
        let [point, due, table] =
            [point, due_bytes, table_bytes].map(|figure| figure.load(Ordering::Relaxed));
        LogSizes {
            behind: self.tail.bytes_behind(point),
            due,
            log: self.tail.disk_bytes(),
            table,
            free: Some(self.tail.free_bytes()).filter(|bytes| *bytes < u64::MAX),
        }
    }

    /// Adds the figures of the engine room.
    fn read(&self, snapshot: Snapshot) -> Snapshot {
        let StoreFigures {
            checkpoints,
            live_bytes,
            table_bytes,
            ..
        } = &*self.store;
        let [checkpoints, live_bytes, table_bytes] =
            [checkpoints, live_bytes, table_bytes].map(|figure| figure.load(Ordering::Relaxed));
        let (limits, queues_forgotten) = self
            .hub
            .with_journal(|engine, _| (engine.limits().clone(), engine.queues_forgotten()));
        let (jobs_max, jobs_bytes_max) = (limits.jobs_max, limits.jobs_bytes_max);
        Snapshot {
            commits: self.commits.read(),
            checkpoints,
            live_bytes,
            store_bytes: table_bytes + self.tail.disk_bytes(),
            behind_bytes: self.log_sizes().behind,
            free_bytes: Some(self.tail.free_bytes()).filter(|bytes| *bytes < u64::MAX),
            jobs_max,
            queues_max: limits.queues_max.into(),
            queues_forgotten,
            jobs_bytes_max: Some(jobs_bytes_max).filter(|bytes| *bytes < u64::MAX),
            memory: JobMemory::read(&self.hub),
            history: self.history.as_ref().map(Watch::figures),
            ..snapshot
        }
    }
}

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Figures").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::{Engine, Limits};
    use windlass_store::{Journal, Log as _};
    use windlass_testkit::store::MemoryLog;

    use super::*;
    use windlass_hub::Durability;

    #[test]
    fn a_daemon_counts_its_own_connections() {
        let of = |opened, closed| ProtocolTraffic {
            opened,
            closed: [("idle", closed)].into(),
            ..ProtocolTraffic::default()
        };
        let traffic = [
            ("gearman", of(5, 2)),
            ("faktory", of(1, 0)),
            ("http", of(9, 0)),
        ]
        .into();
        assert_eq!(
            Snapshot {
                traffic,
                ..Snapshot::default()
            }
            .connections(),
            4
        );
    }

    #[test]
    fn figures_of_the_engine_room() {
        let store = StoreFigures::default();
        store.checkpoints.store(3, Ordering::Relaxed);
        store.live_bytes.store(50, Ordering::Relaxed);
        store.table_bytes.store(100, Ordering::Relaxed);
        let store = Arc::new(store);
        for (limit, shown) in [(7_000, Some(7_000)), (u64::MAX, None)] {
            let limits = Limits {
                jobs_max: 70,
                jobs_bytes_max: limit,
                ..Limits::default()
            };
            let room = RoomFigures {
                hub: Arc::new(Hub::new(
                    Engine::new(limits, 7),
                    Journal::new(),
                    Durability::Durable,
                    7,
                )),
                commits: Arc::default(),
                store: Arc::clone(&store),
                tail: MemoryLog::with(vec![vec![0; 10]]).tail(),
                history: None,
            };
            let snapshot = room.read(Snapshot {
                buffers_bytes: (1, 2),
                ..Snapshot::default()
            });
            assert_eq!(
                (
                    snapshot.checkpoints,
                    snapshot.live_bytes,
                    snapshot.store_bytes
                ),
                (3, 50, 110)
            );
            assert_eq!((snapshot.jobs_max, snapshot.jobs_bytes_max), (70, shown));
            assert_eq!(snapshot.behind_bytes, 10);
            assert_eq!(snapshot.free_bytes, None, "it is in memory");
            assert_eq!(snapshot.buffers_bytes, (1, 2));
        }
    }
}
