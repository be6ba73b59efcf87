//! A directory of workers and schedulers, for administrators' reports and for messages to schedulers. Daemons of a
//! cluster announce theirs to one another.
//!
//! Its contents are volatile, and for people, except the way to a scheduler. Counters are atomic, so that reports do
//! not delay workers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use windlass_engine::{ClientId, Timestamp};

use crate::elsewhere::{Kind, ToOthers};
use crate::wire::{Queue, Schedulers, Status, Worker, Workers};

/// Queues that have counters. Others are not counted.
const TALLIES_MAX: usize = 4_096;

/// Entries in an announcement. Others are not announced.
const ANNOUNCED_MAX: usize = 4_096;

/// Other daemons that are known at a time.
const OTHERS_MAX: usize = 64;

/// A daemon that has announced nothing while this one made this many announcements is gone.
const SILENT_MAX: u32 = 5;

/// All registered workers and schedulers of the daemon, and what other daemons have announced.
#[derive(Default)]
pub struct Directory {
    /// Distinguishes the daemons of a cluster.
    number: u64,
    inner: Mutex<Inner>,
    elsewhere: OnceLock<ToOthers>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The number of the next entry.
    next: u64,
    /// In order of registration.
    entries: BTreeMap<u64, Arc<Entry>>,
    tallies: BTreeMap<Bytes, Arc<Tally>>,
    /// By the number of the daemon's directory.
    others: BTreeMap<u64, Other>,
}

/// Another daemon.
#[derive(Debug)]
struct Other {
    announced: Announcement,
    /// Announcements of this daemon since its last one.
    silent: u32,
}

/// The workers and schedulers of a daemon, as its peers get them.
#[derive(Debug, Serialize, Deserialize)]
struct Announcement {
    directory: u64,
    entries: Vec<Row>,
    tallies: Vec<TallyRow>,
}

/// A worker or a scheduler, at whichever daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    identity: String,
    /// Weights and names. `None` for a scheduler.
    queues: Option<Vec<(i64, String)>>,
    client: u64,
    registered_ms: u64,
    received_ms: u64,
    slots: u32,
    processed: u64,
}

/// Where a scheduler is. Daemons number their clients independently of one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    directory: u64,
    client: u64,
}

/// Counters of a queue at a daemon.
#[derive(Debug, Serialize, Deserialize)]
struct TallyRow {
    queue: String,
    processed: u64,
    latency_ms: u64,
    latency_ms_max: u64,
}

/// A worker or a scheduler.
#[derive(Debug)]
struct Entry {
    identity: Bytes,
    /// `None` for a scheduler.
    queues: Option<Vec<Queue>>,
    client: ClientId,
    registered_ms: u64,
    received_ms: AtomicU64,
    slots: AtomicU32,
    processed: AtomicU64,
}

/// A connection's own entry. Dropping it removes the entry.
#[derive(Debug)]
pub(crate) struct Listed {
    directory: Arc<Directory>,
    number: u64,
    entry: Arc<Entry>,
}

/// Counters of one queue's finished jobs. Latency is the time from a worker's request to its reply.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    processed: AtomicU64,
    latency_ms: AtomicU64,
    latency_ms_max: AtomicU64,
}

impl Directory {
    /// The directory of a daemon. No other daemon's has this number.
    pub fn new(number: u64) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    /// Registers a worker with these queues, or a scheduler with `None`.
    pub(crate) fn enter(
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
            registered_ms: now.0,
            received_ms: AtomicU64::new(now.0),
            slots: AtomicU32::new(0),
            processed: AtomicU64::new(0),
        });
        let mut inner = self.lock();
        let number = inner.next;
        inner.next += 1;
        inner.entries.insert(number, Arc::clone(&entry));
        drop(inner);
        Listed {
            directory: Arc::clone(self),
            number,
            entry,
        }
    }

    /// The counters of a queue. If there are too many queues, counters that no report includes.
    pub(crate) fn tally(&self, queue: &Bytes) -> Arc<Tally> {
        let mut inner = self.lock();
        if let Some(tally) = inner.tallies.get(queue) {
            return Arc::clone(tally);
        }
        let tally = Arc::<Tally>::default();
        if inner.tallies.len() < TALLIES_MAX {
            inner
                .tallies
                .insert(Bytes::copy_from_slice(queue), Arc::clone(&tally));
        }
        tally
    }

    /// All schedulers of this daemon, in order of registration.
    pub(crate) fn schedulers(&self) -> Vec<ClientId> {
        let inner = self.lock();
        inner
            .entries
            .values()
            .filter(|entry| entry.queues.is_none())
            .map(|entry| entry.client)
            .collect()
    }

    // ---- messages to schedulers ------------------------------------------------------------------------------------

    /// Sends frames to the scheduler that registered last: with `publish` if it is connected to this daemon. Returns
    /// `false` if there is no scheduler.
    pub(crate) fn send_to_newest_scheduler(
        &self,
        frames: &Bytes,
        publish: impl FnOnce(ClientId),
    ) -> bool {
        let inner = self.lock();
        let here = inner.entries.values().rfind(|entry| entry.queues.is_none());
        let others = inner.others.values().flat_map(|Other { announced, .. }| {
            announced.entries.iter().map(|row| {
                (
                    row,
                    Address {
                        directory: announced.directory,
                        client: row.client,
                    },
                )
            })
        });
        let elsewhere = others
            .filter(|(row, _)| row.queues.is_none())
            .max_by_key(|(row, _)| row.registered_ms);
        let elsewhere = elsewhere
            .filter(|(row, _)| here.is_none_or(|entry| entry.registered_ms < row.registered_ms));
        let (here, elsewhere) = (
            here.map(|entry| entry.client),
            elsewhere.map(|(_, address)| address),
        );
        drop(inner);
        match (elsewhere, here) {
            (Some(address), _) => self.send(
                Kind::ToScheduler,
                &[address.to_bytes().as_flattened(), frames],
            ),
            (None, Some(client)) => publish(client),
            (None, None) => return false,
        }
        true
    }

    /// The scheduler with this address, if it is connected to this daemon.
    pub(crate) fn scheduler(&self, address: Address) -> Option<ClientId> {
        let client = ClientId(address.client);
        (address.directory == self.number && self.schedulers().contains(&client)).then_some(client)
    }

    /// Sends frames to all schedulers of other daemons.
    pub(crate) fn send_to_other_schedulers(&self, frames: &Bytes) {
        self.send(Kind::ToSchedulers, &[frames]);
    }

    fn send(&self, kind: Kind, parts: &[&[u8]]) {
        if let Some(send) = self.elsewhere.get() {
            send(kind.message(parts));
        }
    }

    // ---- other daemons ---------------------------------------------------------------------------------------------

    /// From now on messages for other daemons go to `send`. Only the first call counts.
    pub(crate) fn forward(&self, send: ToOthers) {
        let _ = self.elsewhere.set(send);
    }

    /// This daemon's workers and schedulers for others, as JSON, if it has ever had any. Forgets daemons that are
    /// silent.
    pub(crate) fn announce(&self) -> Option<Vec<u8>> {
        let mut inner = self.lock();
        inner
            .others
            .values_mut()
            .for_each(|other| other.silent += 1);
        inner.others.retain(|_, other| other.silent <= SILENT_MAX);
        if inner.next == 0 {
            return None;
        }
        let announcement = Announcement {
            directory: self.number,
            entries: inner
                .entries
                .values()
                .take(ANNOUNCED_MAX)
                .map(|entry| entry.row())
                .collect(),
            tallies: inner
                .tallies
                .iter()
                .map(|(queue, tally)| tally.row(queue))
                .collect(),
        };
        drop(inner);
        serde_json::to_vec(&announcement).ok()
    }

    /// Takes another daemon's announcement.
    pub(crate) fn learn(&self, json: &[u8]) {
        let Ok(mut announced) = serde_json::from_slice::<Announcement>(json) else {
            return tracing::warn!(
                "another daemon announces its workers in a form that is not understood"
            );
        };
        announced.entries.truncate(ANNOUNCED_MAX);
        announced.tallies.truncate(TALLIES_MAX);
        let mut inner = self.lock();
        if announced.directory != self.number
            && (inner.others.len() < OTHERS_MAX || inner.others.contains_key(&announced.directory))
        {
            inner.others.insert(
                announced.directory,
                Other {
                    announced,
                    silent: 0,
                },
            );
        }
    }

    // ---- reports ---------------------------------------------------------------------------------------------------

    /// `ROUTER_SHOW_WORKERS`.
    pub(crate) fn report_workers(&self) -> Workers {
        let mut report = Workers::default();
        for row in self.lock().rows() {
            let Some(queues) = row.queues else { continue };
            for (weight, queue) in &queues {
                report
                    .queues
                    .entry(queue.clone())
                    .or_default()
                    .push((*weight, row.identity.clone()));
            }
            let worker = Worker {
                queues,
                heard: seconds(row.received_ms),
                available_slots: row.slots.into(),
            };
            report.workers.insert(row.identity, worker);
        }
        report
            .queues
            .values_mut()
            .for_each(|served| served.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight)));
        report
    }

    /// `ROUTER_SHOW_SCHEDULERS`.
    pub(super) fn report_schedulers(&self) -> Schedulers {
        let rows = self.lock().rows();
        let schedulers = rows.into_iter().filter(|row| row.queues.is_none());
        Schedulers {
            schedulers: schedulers
                .map(|row| (row.identity, seconds(row.received_ms)))
                .collect(),
        }
    }

    /// Adds the finished jobs to `STATUS`. The engine has the other counters.
    pub(crate) fn report_counters(&self, status: &mut Status) {
        let inner = self.lock();
        inner
            .tallies
            .iter()
            .for_each(|(queue, tally)| add(status, &tally.row(queue)));
        inner
            .others
            .values()
            .flat_map(|other| &other.announced.tallies)
            .for_each(|row| add(status, row));
        for row in inner.rows().into_iter().filter(|row| row.queues.is_some()) {
            status
                .processed_by_worker
                .insert(row.identity, row.processed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code panics half-way through a change under this lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Directory")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

/// Both numbers in 8 bytes, big endian.
impl Address {
    fn to_bytes(self) -> [[u8; 8]; 2] {
        [self.directory, self.client].map(u64::to_be_bytes)
    }

    /// An address, and what follows it.
    pub(crate) fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (directory, rest) = bytes.split_first_chunk()?;
        let (client, rest) = rest.split_first_chunk()?;
        Some((
            Self {
                directory: u64::from_be_bytes(*directory),
                client: u64::from_be_bytes(*client),
            },
            rest,
        ))
    }
}

impl Inner {
    /// The entries of all daemons.
    fn rows(&self) -> Vec<Row> {
        let elsewhere = self
            .others
            .values()
            .flat_map(|other| other.announced.entries.iter().cloned());
        self.entries
            .values()
            .map(|entry| entry.row())
            .chain(elsewhere)
            .collect()
    }
}

impl Entry {
    fn row(&self) -> Row {
        let queues = |queues: &Vec<Queue>| {
            queues
                .iter()
                .map(|queue| (queue.weight, text(&queue.name)))
                .collect()
        };
        Row {
            identity: text(&self.identity),
            queues: self.queues.as_ref().map(queues),
            client: self.client.0,
            registered_ms: self.registered_ms,
            received_ms: self.received_ms.load(Ordering::Relaxed),
            slots: self.slots.load(Ordering::Relaxed),
            processed: self.processed.load(Ordering::Relaxed),
        }
    }
}

impl Listed {
    /// Records a message.
    pub(super) fn received(&self, now: Timestamp) {
        self.entry.received_ms.store(now.0, Ordering::Relaxed);
    }

    /// Records how many more jobs it can take.
    pub(crate) fn set_slots(&self, slots: u32) {
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
    fn row(&self, queue: &[u8]) -> TallyRow {
        TallyRow {
            queue: text(queue),
            processed: self.processed.load(Ordering::Relaxed),
            latency_ms: self.latency_ms.load(Ordering::Relaxed),
            latency_ms_max: self.latency_ms_max.load(Ordering::Relaxed),
        }
    }

    /// Counts a finished job. `latency_ms` is how long a worker had it.
    pub(crate) fn count(&self, latency_ms: u64) {
        self.processed.fetch_add(1, Ordering::Relaxed);
        self.latency_ms.store(latency_ms, Ordering::Relaxed);
        self.latency_ms_max.fetch_max(latency_ms, Ordering::Relaxed);
    }
}

/// Adds a daemon's counters of a queue. The last latency is that of one of the daemons.
fn add(status: &mut Status, row: &TallyRow) {
    *status.processed.entry(row.queue.clone()).or_default() += row.processed;
    let latency_ms_max = status.latency_ms_max.entry(row.queue.clone()).or_default();
    *latency_ms_max = row.latency_ms_max.max(*latency_ms_max);
    if row.processed > 0 || !status.latency_ms.contains_key(&row.queue) {
        status.latency_ms.insert(row.queue.clone(), row.latency_ms);
    }
}

/// A time in Unix seconds.
fn seconds(ms: u64) -> f64 {
    std::time::Duration::from_millis(ms).as_secs_f64()
}

/// A name for people. Invalid UTF-8 is replaced.
pub(super) fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
