//! Figures of the daemon beside those of the engine, for metrics: what connections and commits have done, what the store, jobs and
//! buffers take up and may take up, when certificates end. Read when they are asked for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use windlass_store::{LogTail, StoreFigures};

use crate::commit::CommitTimes;
use crate::hub::Hub;
use crate::protocols::Served;
use crate::tls::Handshaker;
use crate::traffic::Traffic;

pub use crate::commit::{BOUNDS_US, CommitDurations};
pub use crate::traffic::{Counts, ProtocolTraffic};

/// Where the figures are read.
#[derive(Clone)]
pub struct Figures {
    hub: Arc<Hub>,
    traffic: Arc<Traffic>,
    commits: Arc<CommitTimes>,
    store: Arc<StoreFigures>,
    tail: Arc<dyn LogTail>,
    /// Of the protocols that have TLS.
    handshakers: Vec<(&'static str, Arc<Handshaker>)>,
}

/// The figures at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// By protocol.
    pub traffic: BTreeMap<&'static str, ProtocolTraffic>,
    /// How long commits took.
    pub commits: CommitDurations,
    /// Completed checkpoints.
    pub checkpoints: u64,
    /// Bytes of living records, as of the last checkpoint.
    pub live_bytes: u64,
    /// Bytes of the log and the table on the disk.
    pub store_bytes: u64,
    /// Bytes that the disk has left, if the store is on one.
    pub free_bytes: Option<u64>,
    /// The limit of the number of jobs.
    pub jobs_max: u64,
    /// The limit of the bytes that jobs, schedules and batches count as, if there is one.
    pub jobs_bytes_max: Option<u64>,
    /// Bytes of the buffers of all connections, and their limit.
    pub buffers_bytes: (usize, usize),
    /// When the first certificate of each protocol ends, in seconds since 1970.
    pub certificates_end_at: BTreeMap<&'static str, u64>,
}

impl Figures {
    pub(crate) fn new(
        (hub, traffic): (&Arc<Hub>, &Arc<Traffic>),
        commits: Arc<CommitTimes>,
        (store, tail): (Arc<StoreFigures>, Arc<dyn LogTail>),
        served: &[Served],
    ) -> Self {
        let with_tls = served.iter().filter_map(|it| Some((it.endpoint.name, Arc::clone(it.tls.as_ref()?))));
        let (hub, traffic) = (Arc::clone(hub), Arc::clone(traffic));
        Self { hub, traffic, commits, store, tail, handshakers: with_tls.collect() }
    }

    /// New counts for the connections of a door, which one thread alone makes use of.
    #[must_use]
    pub fn counts(&self, door: &'static str) -> Arc<Counts> {
        self.traffic.counts(door)
    }

    /// Reads them.
    #[must_use]
    pub fn read(&self) -> Snapshot {
        let StoreFigures { checkpoints, live_bytes, table_bytes, .. } = &*self.store;
        let [checkpoints, live_bytes, table_bytes] =
            [checkpoints, live_bytes, table_bytes].map(|figure| figure.load(Ordering::Relaxed));
        let (jobs_max, jobs_bytes_max) =
            self.hub.with_journal(|engine, _| (engine.limits().jobs_max, engine.limits().jobs_bytes_max));
        let ends = self.handshakers.iter().filter_map(|(protocol, tls)| Some((*protocol, tls.certificate_ends_at()?)));
        Snapshot {
            traffic: self.traffic.read(),
            commits: self.commits.read(),
            checkpoints,
            live_bytes,
            store_bytes: table_bytes + self.tail.disk_bytes(),
            free_bytes: Some(self.tail.free_bytes()).filter(|bytes| *bytes < u64::MAX),
            jobs_max,
            jobs_bytes_max: Some(jobs_bytes_max).filter(|bytes| *bytes < u64::MAX),
            buffers_bytes: self.hub.budget.used(),
            certificates_end_at: ends.collect(),
        }
    }
}

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Figures").field("store", &self.store).finish_non_exhaustive()
    }
}
