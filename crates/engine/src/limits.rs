//! All limits of the engine, and the defaults. The server sets them from the configuration.

use serde::{Deserialize, Serialize};

use crate::history::HistoryRules;

/// Limits and periods. The engine checks each limit before it allocates anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Jobs in all states together. Dead jobs are dropped to make space.
    pub jobs_max: u64,
    /// Bytes of jobs ([`crate::Job::weight_bytes`]) and schedules. Dead jobs are dropped to make space.
    pub jobs_bytes_max: u64,
    /// Bytes of jobs and schedules in memory. The caller moves bodies out of memory before the limit is
    /// reached ([`crate::Engine::cool`]); a job that would still exceed it is rejected.
    pub memory_max: u64,
    /// Schedules.
    pub schedules_max: u32,
    /// Batches. A new batch beyond this number replaces the batch that has been drained for longest.
    pub batches_max: u32,
    /// Nesting depth of batches.
    pub batch_depth_max: u32,
    /// Retention of a batch after the last unfinished job has finished, in milliseconds. Jobs in the
    /// dead-letter queue are finished in this sense, so they stay longer than the batch.
    pub batch_keep_ms: u64,
    /// Existing queues.
    pub queues_max: u32,
    /// Queues that a client may serve, including repeated registrations.
    pub abilities_max: u32,
    /// Bytes of a queue's name, a job's public name or a coalescing key.
    pub name_bytes_max: u32,
    /// Clients that listen to one job.
    pub listeners_max: u32,
    /// The longest lease, in milliseconds.
    pub lease_ms_max: u64,
    /// Retention of jobs in the dead-letter queue, in milliseconds.
    pub dead_ms: u64,
    /// Dead jobs. Beyond this number the job with the earliest end of retention is dropped.
    pub dead_max: u64,
    /// Bytes counted for dead jobs; beyond it jobs are dropped in the same order.
    pub dead_bytes_max: u64,
    /// The same without bodies, which need not be in memory.
    pub dead_memory_max: u64,
    /// How long a woken client may take to request work before another client is woken instead, in
    /// milliseconds.
    pub wake_ms: u64,
    /// How long a named worker may go without a heartbeat, in milliseconds.
    pub beat_ms: u64,
    /// How long workers may still report on connection-bound jobs from before a restart, in milliseconds from
    /// the start of the daemon ([`crate::Engine::leave`]); 0 = not at all.
    pub return_ms: u64,
    /// Return the jobs of a dead named worker immediately, instead of letting the leases expire.
    pub requeue_dead_workers: bool,
    /// Workers that may disappear with the same job, unless the job sets such a limit; then it moves to the
    /// dead-letter queue. 0 = unlimited.
    pub losses_max: u32,
    /// The delay of such a job after the second loss, in milliseconds. It doubles with each further loss, up
    /// to an hour. A random time below the delay is added.
    pub loss_pause_ms: u64,
    /// Rows in a page of a listing, and jobs modified in a step of a bulk command. The entries scanned for a
    /// page are a small multiple of this number.
    pub page_max: u32,
    /// What the history keeps of the jobs of queues without a rule of their own ([`crate::Engine::keep_history`]).
    pub history: HistoryRules,
}

impl Default for Limits {
    fn default() -> Self {
        const DAY_MS: u64 = 86_400_000;
        Self {
            jobs_max: 50_000_000,
            jobs_bytes_max: u64::MAX,
            memory_max: u64::MAX,
            schedules_max: 10_000,
            batches_max: 100_000,
            batch_depth_max: 100,
            batch_keep_ms: 7 * DAY_MS,
            queues_max: 1_000_000,
            abilities_max: 10_000,
            name_bytes_max: 8_192,
            listeners_max: 10_000,
            lease_ms_max: 365 * DAY_MS,
            dead_ms: 180 * DAY_MS,
            dead_max: 1_000_000,
            dead_bytes_max: u64::MAX,
            dead_memory_max: u64::MAX,
            wake_ms: 1_000,
            beat_ms: 60_000,
            return_ms: 5_000,
            requeue_dead_workers: false,
            losses_max: 5,
            loss_pause_ms: 1_000,
            page_max: 200,
            history: HistoryRules::default(),
        }
    }
}

/// What the clients of a namespace may use together; `None` = no more than the daemon's own limits allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct NamespaceLimits {
    /// Jobs in all states.
    pub jobs_max: Option<u64>,
    /// Bytes of jobs.
    pub job_bytes_max: Option<u64>,
    /// Queues.
    pub queues_max: Option<u32>,
    /// Connections, of clients with a protocol.
    pub clients_max: Option<u32>,
    /// Accepted pushes.
    pub pushes: Option<PushRate>,
}

/// A number of pushes in each period, evenly, after a burst of as many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct PushRate {
    /// Jobs, at least 1.
    pub jobs: u32,
    /// Milliseconds, at least 1.
    pub per_ms: u64,
}

impl PushRate {
    /// Microseconds between two pushes that are even.
    pub(crate) const fn interval_us(self) -> u64 {
        let jobs = if self.jobs == 0 { 1 } else { self.jobs };
        self.per_ms.saturating_mul(1_000) / jobs as u64
    }
}
