//! A directory of the daemon's workers and schedulers, for administrators' reports and for messages to schedulers.
//!
//! Its contents are volatile, and for people, except the way to a scheduler. Counters are atomic, so that reports do
//! not delay workers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use windlass_engine::{ClientId, Timestamp};

use crate::wire::{Queue, Schedulers, Status, Worker, Workers};

/// Queues that have counters. Others are not counted.
const TALLIES_MAX: usize = 4_096;

/// All registered workers and schedulers of the daemon.
#[derive(Debug, Default)]
pub struct Directory {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The number of the next entry.
    next: u64,
    /// In order of registration.
    entries: BTreeMap<u64, Arc<Entry>>,
    tallies: BTreeMap<Bytes, Arc<Tally>>,
}

/// A worker or a scheduler.
#[derive(Debug)]
struct Entry {
    identity: Bytes,
    /// `None` for a scheduler.
    queues: Option<Vec<Queue>>,
    client: ClientId,
    heard_ms: AtomicU64,
    slots: AtomicU32,
    processed: AtomicU64,
}

/// A connection's own entry. Dropping it removes the entry.
#[derive(Debug)]
pub(super) struct Listed {
    directory: Arc<Directory>,
    number: u64,
    entry: Arc<Entry>,
}

/// Counters of one queue's finished jobs. Latency is the time from a worker's request to its reply.
#[derive(Debug, Default)]
pub(super) struct Tally {
    processed: AtomicU64,
    latency_ms: AtomicU64,
    latency_ms_max: AtomicU64,
}

impl Directory {
    /// Registers a worker with these queues, or a scheduler with `None`.
    pub(super) fn enter(
        self: &Arc<Self>,
        identity: Bytes,
        queues: Option<Vec<Queue>>,
        client: ClientId,
        now: Timestamp,
    ) -> Listed {
        let entry = Arc::new(Entry {
            identity,
            queues,
            client,
            heard_ms: AtomicU64::new(now.0),
            slots: AtomicU32::new(0),
            processed: AtomicU64::new(0),
        });
        let mut inner = self.lock();
        let number = inner.next;
        inner.next += 1;
        inner.entries.insert(number, Arc::clone(&entry));
        drop(inner);
        Listed { directory: Arc::clone(self), number, entry }
    }

    /// The counters of a queue. If there are too many queues, counters that no report includes.
    pub(super) fn tally(&self, queue: &Bytes) -> Arc<Tally> {
        let mut inner = self.lock();
        if let Some(tally) = inner.tallies.get(queue) {
            return Arc::clone(tally);
        }
        let tally = Arc::<Tally>::default();
        if inner.tallies.len() < TALLIES_MAX {
            inner.tallies.insert(Bytes::copy_from_slice(queue), Arc::clone(&tally));
        }
        tally
    }

    /// The scheduler that registered last.
    pub(super) fn newest_scheduler(&self) -> Option<ClientId> {
        self.schedulers().pop()
    }

    /// All schedulers, in order of registration.
    pub(super) fn schedulers(&self) -> Vec<ClientId> {
        let inner = self.lock();
        inner.entries.values().filter(|entry| entry.queues.is_none()).map(|entry| entry.client).collect()
    }

    // ---- reports ---------------------------------------------------------------------------------------------------

    /// `ROUTER_SHOW_WORKERS`.
    pub(super) fn report_workers(&self) -> Workers {
        let inner = self.lock();
        let mut report = Workers::default();
        for entry in inner.entries.values() {
            let Some(queues) = &entry.queues else { continue };
            let identity = text(&entry.identity);
            for queue in queues {
                report.queues.entry(text(&queue.name)).or_default().push((queue.weight, identity.clone()));
            }
            let worker = Worker {
                queues: queues.iter().map(|queue| (queue.weight, text(&queue.name))).collect(),
                heard: entry.heard(),
                available_slots: entry.slots.load(Ordering::Relaxed).into(),
            };
            report.workers.insert(identity, worker);
        }
        drop(inner);
        report.queues.values_mut().for_each(|served| served.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight)));
        report
    }

    /// `ROUTER_SHOW_SCHEDULERS`.
    pub(super) fn report_schedulers(&self) -> Schedulers {
        let inner = self.lock();
        let schedulers = inner.entries.values().filter(|entry| entry.queues.is_none());
        Schedulers { schedulers: schedulers.map(|entry| (text(&entry.identity), entry.heard())).collect() }
    }

    /// Adds the finished jobs to `STATUS`. The engine has the other counters.
    pub(super) fn report_counters(&self, status: &mut Status) {
        let inner = self.lock();
        for (queue, tally) in &inner.tallies {
            let queue = text(queue);
            status.processed.insert(queue.clone(), tally.processed.load(Ordering::Relaxed));
            status.latency_ms.insert(queue.clone(), tally.latency_ms.load(Ordering::Relaxed));
            status.latency_ms_max.insert(queue, tally.latency_ms_max.load(Ordering::Relaxed));
        }
        for entry in inner.entries.values().filter(|entry| entry.queues.is_some()) {
            status.processed_by_worker.insert(text(&entry.identity), entry.processed.load(Ordering::Relaxed));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code panics half-way through a change under this lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Time of its last message in Unix seconds.
    fn heard(&self) -> f64 {
        std::time::Duration::from_millis(self.heard_ms.load(Ordering::Relaxed)).as_secs_f64()
    }
}

impl Listed {
    /// Records a message.
    pub(super) fn heard(&self, now: Timestamp) {
        self.entry.heard_ms.store(now.0, Ordering::Relaxed);
    }

    /// Records how many more jobs it can take.
    pub(super) fn set_slots(&self, slots: u32) {
        self.entry.slots.store(slots, Ordering::Relaxed);
    }

    /// Counts a finished job.
    pub(super) fn processed(&self) {
        self.entry.processed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let entry = self.directory.lock().entries.remove(&self.number);
        // Free it outside of the lock.
        drop(entry);
    }
}

impl Tally {
    /// Counts a finished job. `latency_ms` is how long a worker had it.
    pub(super) fn count(&self, latency_ms: u64) {
        self.processed.fetch_add(1, Ordering::Relaxed);
        self.latency_ms.store(latency_ms, Ordering::Relaxed);
        self.latency_ms_max.fetch_max(latency_ms, Ordering::Relaxed);
    }
}

/// A name for people. Invalid UTF-8 is replaced.
pub(super) fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
