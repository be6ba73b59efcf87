//! What an operator can set about EventMQ, and what all its connections share. Where the values come from is the server's business.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use windlass_engine::{LeaseTerms, OnExpiry, Select};
use windlass_zmtp::Role;

use super::directory::Directory;
use crate::publish::Exchange;

/// One set of rules for all connections of a listener. The listeners of one daemon share [`Directory`] and [`Exchange`].
#[derive(Debug, Clone)]
pub struct Settings {
    /// `DISCONNECT` stops the daemon. Otherwise it is the goodbye of whoever sent it, and no more.
    pub disconnect: bool,
    /// Between two heartbeats to a worker or scheduler, in milliseconds.
    pub heartbeat_ms: u64,
    /// A worker or scheduler that says nothing for so long is taken for dead; 0 = never. The jobs of a worker go to others then.
    pub heartbeat_timeout_ms: u64,
    /// Between two extra heartbeats to a worker that has jobs and no credit: the stock `JobManager` looks at finished
    /// jobs only when a message comes. 0 = none. The longer a job takes the rarer they become.
    pub nudge_ms: u64,
    /// They do not become rarer than this.
    pub nudge_ms_max: u64,
    /// A job nobody answers for within this time goes to another worker, in milliseconds; 0 = never. Does not count for
    /// jobs with a `timeout`.
    pub lease_ms: u64,
    /// How long after a job's `timeout` its worker may still say so, in milliseconds. Then the broker says it.
    pub timeout_grace_ms: u64,
    /// How a worker's next job is chosen when several of its queues have one.
    pub select: Select,
    /// Workers of this queue also take jobs from queues nobody serves; empty = nobody does.
    pub fallback: Bytes,
    /// Jobs and credits of one worker together; what it is ready for beyond that waits.
    pub jobs_max: u32,
    /// A job that fails for good is kept in the dead set. With `guarantee` it always is.
    pub keep_failed: bool,
    /// By queue: patterns ([`windlass_engine::matches`]) of results that are failures. The wire cannot tell an exception from
    /// a result.
    pub failure_values: BTreeMap<Bytes, Vec<Bytes>>,
    /// Workers may be given bodies that are no UTF-8. A stock one goes down with all it has in hand.
    pub binary_workers: bool,
    /// Workers that may be lost with a job before it fails for good, each time being done again at once; 0 = what holds for
    /// jobs of all protocols ([`windlass_engine::Limits::losses_max`]), as it does with `guarantee`.
    pub losses_max: u32,
    /// A request with the identifier of one that has ended is not done again for so long, in milliseconds; 0 = only as long
    /// as that one has not ended.
    pub dedup_ms: u64,
    /// Who runs schedules.
    pub scheduler: Scheduler,
    /// The transport, in the role of a ROUTER.
    pub zmtp: Arc<windlass_zmtp::Settings>,
    /// Who else is there.
    pub directory: Arc<Directory>,
    /// Where what is published goes.
    pub exchange: Arc<Exchange>,
}

/// Who runs schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduler {
    /// The engine. Stock schedulers may connect, and are told of nothing.
    Embedded,
    /// The stock scheduler that connected last. Without one, schedules are dropped.
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
        }
    }

    /// The lease every job is given to a worker under.
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
