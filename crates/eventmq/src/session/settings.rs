//! Options of EventMQ, and the state that all its connections share. [`crate::config`] makes the settings.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use windlass_bridge::Bridge;
use windlass_engine::{LeaseTerms, OnExpiry, Select};
use windlass_zmtp::Role;

use super::directory::Directory;
use crate::publish::Exchange;

/// The options of a listener. The listeners of one daemon share [`Directory`] and [`Exchange`].
#[derive(Debug, Clone)]
pub struct Settings {
    /// `DISCONNECT` stops the daemon. Otherwise it only ends the sender's registration.
    pub disconnect: bool,
    /// Milliseconds between two heartbeats to a worker or scheduler.
    pub heartbeat_ms: u64,
    /// Silence in milliseconds after which a worker or scheduler counts as dead, and its jobs go to other workers; 0 =
    /// never.
    pub heartbeat_timeout_ms: u64,
    /// Milliseconds before the first extra heartbeat to a worker that has jobs and no credit: the stock `JobManager`
    /// checks for finished jobs only when a message comes. 0 = none. The longer a job takes, the longer the intervals
    /// become.
    pub nudge_ms: u64,
    /// The longest of these intervals.
    pub nudge_ms_max: u64,
    /// Milliseconds without a reply after which a job goes to another worker; 0 = never. Does not apply to jobs with a
    /// `timeout`.
    pub lease_ms: u64,
    /// Milliseconds after a job's `timeout` in which its worker may still report it. Then the daemon fails the job.
    pub timeout_grace_ms: u64,
    /// How to choose a worker's next job if several of its queues have one.
    pub select: Select,
    /// Workers of this queue also take jobs from queues without workers; empty = no fallback.
    pub fallback: Bytes,
    /// Jobs and credits of one worker together. Further credits wait.
    pub jobs_max: u32,
    /// Keep jobs that fail for good in the dead-letter queue. Jobs with `guarantee` are always kept.
    pub keep_failed: bool,
    /// By queue: patterns ([`windlass_engine::matches`]) of results that count as failures. On the wire an exception
    /// looks like any result.
    pub failure_values: BTreeMap<Bytes, Vec<Bytes>>,
    /// Workers accept bodies that are not UTF-8. A stock worker fails on one, with all its jobs.
    pub binary_workers: bool,
    /// Workers that may be lost with a job before it fails for good; each time it runs again at once. 0 = the limit for
    /// jobs of all protocols ([`windlass_engine::Limits::losses_max`]), which also applies to `guarantee`.
    pub losses_max: u32,
    /// Milliseconds after a job's end in which a request with the same identifier does not run again; 0 = such a
    /// request is the same job only until it ends.
    pub dedup_ms: u64,
    /// The scheduler to use.
    pub scheduler: Scheduler,
    /// The transport, in the role of a ROUTER.
    pub zmtp: Arc<windlass_zmtp::Settings>,
    /// Workers and schedulers of the daemon.
    pub directory: Arc<Directory>,
    /// The destination of published messages.
    pub exchange: Arc<Exchange>,
    /// All protocols, for jobs that cross.
    pub bridge: Arc<Bridge>,
}

/// The scheduler to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// The engine. Stock schedulers may connect, but get nothing.
    Embedded,
    /// The stock scheduler that registered last. Without one, schedules are dropped.
    External,
}

impl Settings {
    /// The defaults, for a daemon's first listener.
    #[must_use]
    pub fn new() -> Self {
        Self {
            disconnect: false,
            heartbeat_ms: 3_000,
            heartbeat_timeout_ms: 10_000,
            nudge_ms: 2,
            nudge_ms_max: 1_000,
            lease_ms: 3_600_000,
            timeout_grace_ms: 5_000,
            select: Select::Weighted,
            fallback: Bytes::from_static(b"default"),
            jobs_max: 4_096,
            keep_failed: true,
            failure_values: BTreeMap::new(),
            binary_workers: false,
            losses_max: 0,
            dedup_ms: 0,
            scheduler: Scheduler::Embedded,
            zmtp: Arc::new(windlass_zmtp::Settings::new(Role::Router)),
            directory: Arc::default(),
            exchange: Arc::default(),
            bridge: Arc::default(),
        }
    }

    /// The terms of every lease.
    pub(super) fn lease(&self) -> LeaseTerms {
        LeaseTerms {
            lease_ms: Some(self.lease_ms).filter(|ms| *ms > 0),
            wish: Some(OnExpiry::Fail),
            ..LeaseTerms::CONNECTION
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::new()
    }
}
