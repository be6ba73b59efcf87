//! What the connections of the daemon know of each other: workers and schedulers for those who ask, and the way to a scheduler.
//!
//! Everything here is volatile and for people, but for the way to a scheduler. Counters are atomic: nobody waits for whoever looks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use windlass_engine::Timestamp;
use windlass_session::Post;

use crate::wire::{Queue, Schedulers, Status, Worker, Workers};

/// Queues whose finished jobs are counted; of others nothing is known.
const TALLIES_MAX: usize = 4_096;

/// All connections of the daemon that informed of themselves.
#[derive(Debug, Default)]
pub struct Directory {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The number of the next that comes.
    next: u64,
    /// In the order they came.
    entries: BTreeMap<u64, Arc<Entry>>,
    tallies: BTreeMap<Bytes, Arc<Tally>>,
}

/// A worker or a scheduler.
#[derive(Debug)]
struct Entry {
    identity: Bytes,
    /// None is a scheduler's.
    queues: Option<Vec<Queue>>,
    line: Arc<dyn Post>,
    heard_ms: AtomicU64,
    slots: AtomicU32,
    processed: AtomicU64,
}

/// A connection's own entry, until it is dropped.
#[derive(Debug)]
pub(super) struct Listed {
    directory: Arc<Directory>,
    number: u64,
    entry: Arc<Entry>,
}

/// What became of the jobs of one queue. Latencies are from the moment a worker got a job to its answer.
#[derive(Debug, Default)]
pub(super) struct Tally {
    processed: AtomicU64,
    latency_ms: AtomicU64,
    latency_ms_max: AtomicU64,
}

impl Directory {
    /// A worker with these queues, or a scheduler with `None`.
    pub(super) fn enter(
        self: &Arc<Self>,
        identity: Bytes,
        queues: Option<Vec<Queue>>,
        line: Arc<dyn Post>,
        now: Timestamp,
    ) -> Listed {
        let entry = Arc::new(Entry {
            identity,
            queues,
            line,
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

    /// The counters of a queue; those of nobody if there are too many.
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

    /// The scheduler that came last.
    pub(super) fn newest_scheduler(&self) -> Option<Arc<dyn Post>> {
        let inner = self.lock();
        inner.entries.values().rev().find(|entry| entry.queues.is_none()).map(|entry| Arc::clone(&entry.line))
    }

    /// Every scheduler.
    pub(super) fn schedulers(&self) -> Vec<Arc<dyn Post>> {
        let inner = self.lock();
        inner.entries.values().filter(|entry| entry.queues.is_none()).map(|entry| Arc::clone(&entry.line)).collect()
    }

    // ---- for those who ask -----------------------------------------------------------------------------------------

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

    /// What `STATUS` tells besides how many jobs are where, which the engine knows.
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
        // Nothing that holds this lock can panic half way through a change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// In Unix seconds.
    fn heard(&self) -> f64 {
        std::time::Duration::from_millis(self.heard_ms.load(Ordering::Relaxed)).as_secs_f64()
    }
}

impl Listed {
    /// A sign of life.
    pub(super) fn heard(&self, now: Timestamp) {
        self.entry.heard_ms.store(now.0, Ordering::Relaxed);
    }

    /// Jobs it can take at once.
    pub(super) fn set_slots(&self, slots: u32) {
        self.entry.slots.store(slots, Ordering::Relaxed);
    }

    /// It has done one more.
    pub(super) fn processed(&self) {
        self.entry.processed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let entry = self.directory.lock().entries.remove(&self.number);
        // What it holds on to is not for the lock.
        drop(entry);
    }
}

impl Tally {
    /// One more job is done; a worker had it for so long.
    pub(super) fn count(&self, latency_ms: u64) {
        self.processed.fetch_add(1, Ordering::Relaxed);
        self.latency_ms.store(latency_ms, Ordering::Relaxed);
        self.latency_ms_max.fetch_max(latency_ms, Ordering::Relaxed);
    }
}

/// Names for people: what is no UTF-8 is shown as well as can be.
pub(super) fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
