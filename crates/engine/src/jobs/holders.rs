//! The jobs of each client: those it has leased, and those it listens to.

use std::collections::BTreeSet;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::job::Job;
use super::job_set::JobSet;
use super::state::{Holder, Lease};
use super::table::Jobs;
use crate::held::{Held, Share, hashed, heap, tree};
use crate::ids::{ClientId, JobId, NameIn, Named, Realm};

/// The jobs of a client without jobs.
static NONE: JobSet = JobSet::NONE;
/// The jobs of a collector's name without jobs.
static NOTHING: BTreeSet<JobId> = BTreeSet::new();

/// Jobs by the clients that have leased them or listen to them.
///
/// The entry of a connection stays until the connection closes, so that a lease needs no
/// allocation.
#[derive(Debug)]
pub(crate) struct Holders {
    /// Connection-bound leases.
    by_connection: HashMap<ClientId, JobSet, FixedState>,
    /// Time-bound leases of registered workers since the registration, and reservations from before a
    /// restart.
    by_worker: HashMap<Named<Box<[u8]>>, JobSet, FixedState>,
    by_listener: HashMap<ClientId, JobSet, FixedState>,
    /// By the name with which a client in the job's realm collects the outcome.
    by_collector: HashMap<(Realm, Box<[u8]>), BTreeSet<JobId>, FixedState>,
    /// Bytes of listeners, of collectors and of the names in leases.
    held: Share,
}

const LISTENER: u64 = Jobs::LISTENER_BYTES;

/// The memory of a collector's name.
fn collector_bytes(name: &[u8]) -> u64 {
    hashed(size_of::<((Realm, Box<[u8]>), BTreeSet<JobId>)>())
        + heap(name.len())
        + tree(1, size_of::<JobId>())
}

impl Holders {
    pub(super) fn new(hasher: &FixedState, held: &Held) -> Self {
        Self {
            by_connection: HashMap::with_hasher(hasher.clone()),
            by_worker: HashMap::with_hasher(hasher.clone()),
            by_listener: HashMap::with_hasher(hasher.clone()),
            by_collector: HashMap::with_hasher(hasher.clone()),
            held: held.share(),
        }
    }

    /// Records a lease of this job.
    #[inline]
    pub(super) fn hold(&mut self, job: &Job, lease: &Lease) {
        match &lease.holder {
            Holder::Connection(holder) => {
                self.by_connection
                    .entry(*holder)
                    .or_default()
                    .insert(job.id);
            }
            Holder::Named(name) => self.hold_named(job, name),
            Holder::Away(_) => {}
        }
    }

    #[inline(never)]
    fn hold_named(&mut self, job: &Job, worker: &[u8]) {
        self.held.add(heap(worker.len()));
        self.hold_for(job, worker);
    }

    /// Records that a worker has leased this job.
    pub(super) fn hold_for(&mut self, job: &Job, worker: &[u8]) {
        let worker = NameIn(job.queue.namespace(), worker);
        if let Some(held) = self.by_worker.get_mut(&worker) {
            held.insert(job.id);
        }
    }

    /// Removes a lease of this job.
    #[inline]
    pub(super) fn release(&mut self, job: &Job, lease: &Lease) {
        match &lease.holder {
            Holder::Connection(holder) => {
                if let Some(held) = self.by_connection.get_mut(holder) {
                    held.remove(job.id);
                }
            }
            Holder::Named(name) => self.release_named(job, name),
            Holder::Away(_) => {}
        }
    }

    #[inline(never)]
    fn release_named(&mut self, job: &Job, worker: &[u8]) {
        self.held.subtract(heap(worker.len()));
        let worker = NameIn(job.queue.namespace(), worker);
        if let Some(held) = self.by_worker.get_mut(&worker) {
            held.remove(job.id);
        }
    }

    /// The jobs that a connection has leased.
    pub(crate) fn held_by(&self, client: ClientId) -> &JobSet {
        self.by_connection.get(&client).unwrap_or(&NONE)
    }

    /// The jobs of all connection-bound leases.
    pub(crate) fn of_connections(&self) -> impl Iterator<Item = JobId> {
        self.by_connection.values().flat_map(JobSet::iter)
    }

    /// The connections that have or had leases, with the present number.
    pub(crate) fn by_connection(&self) -> impl Iterator<Item = (ClientId, usize)> {
        self.by_connection
            .iter()
            .map(|(client, jobs)| (*client, jobs.len()))
    }

    /// Starts recording the leases of this worker.
    pub(super) fn add_worker(&mut self, NameIn(namespace, name): NameIn<'_>) {
        self.by_worker
            .insert(Named(namespace, name.into()), JobSet::default());
    }

    /// The jobs that a worker has leased since it was added.
    pub(crate) fn held_by_worker(&self, name: NameIn<'_>) -> &JobSet {
        self.by_worker.get(&name).unwrap_or(&NONE)
    }

    /// Removes a worker and returns the jobs it has leased since it was added; the leases continue.
    pub(super) fn remove_worker(&mut self, name: NameIn<'_>) -> JobSet {
        self.by_worker.remove(&name).unwrap_or_default()
    }

    pub(super) fn listen(&mut self, id: JobId, client: ClientId) {
        self.held.add(LISTENER);
        self.by_listener.entry(client).or_default().insert(id);
    }

    /// A client no longer listens that did this many times.
    pub(super) fn unlisten(&mut self, id: JobId, client: ClientId, times: usize) {
        self.held.subtract(LISTENER * times as u64);
        self.by_listener
            .get_mut(&client)
            .into_iter()
            .for_each(|jobs| jobs.remove(id));
    }

    /// The jobs to which a client listens.
    pub(crate) fn listened_by(&self, client: ClientId) -> &JobSet {
        self.by_listener.get(&client).unwrap_or(&NONE)
    }

    pub(super) fn add_collector(&mut self, job: &Job) {
        if !job.collector().is_empty() {
            let name = (job.realm(), job.collector().into());
            let jobs = self.by_collector.entry(name).or_insert_with(|| {
                self.held.add(collector_bytes(job.collector()));
                BTreeSet::new()
            });
            jobs.insert(job.id);
        }
    }

    pub(super) fn remove_collector(&mut self, job: &Job) {
        if job.collector().is_empty() {
            return;
        }
        if let Entry::Occupied(mut jobs) = self
            .by_collector
            .entry((job.realm(), job.collector().into()))
        {
            jobs.get_mut().remove(&job.id);
            if jobs.get().is_empty() {
                self.held.subtract(collector_bytes(job.collector()));
                jobs.remove();
            }
        }
    }

    /// The jobs with outcomes that a client in this realm collects with this name.
    pub(crate) fn collected_by(&self, realm: Realm, name: &[u8]) -> &BTreeSet<JobId> {
        self.by_collector
            .get(&(realm, name.into()))
            .unwrap_or(&NOTHING)
    }

    /// Removes a connection without leases and listeners.
    pub(super) fn remove_connection(&mut self, client: ClientId) {
        let left = [
            self.by_connection.remove(&client),
            self.by_listener.remove(&client),
        ];
        debug_assert!(
            left.into_iter().flatten().all(|jobs| jobs.is_empty()),
            "{client:?} has jobs"
        );
    }

    /// Returns true if no connection of a daemon has leased a job or listens to one.
    pub(crate) fn is_at_rest(&self, daemon: u64) -> bool {
        let all = self.by_connection.iter().chain(&self.by_listener);
        all.filter(|(client, _)| client.daemon() == daemon)
            .all(|(_, jobs)| jobs.is_empty())
    }

    /// Asserts that the connections and collectors have exactly these jobs.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn check<'a>(&self, jobs: impl Iterator<Item = &'a Job>) {
        let (mut held, mut heard, mut collected) = (0, 0, 0);
        let mut bytes: u64 = self
            .by_collector
            .keys()
            .map(|(_, name)| collector_bytes(name))
            .sum();
        for job in jobs {
            bytes += LISTENER * job.listeners().len() as u64;
            if let Some(Holder::Named(name)) = job.lease().map(|lease| &lease.holder) {
                bytes += heap(name.len());
            }
            if !job.collector().is_empty() {
                collected += 1;
                let jobs = self.collected_by(job.realm(), job.collector());
                assert!(jobs.contains(&job.id), "{:?} and its collector", job.id);
            }
            if let Some(Holder::Connection(holder)) = job.lease().map(|lease| &lease.holder) {
                held += 1;
                assert!(
                    self.held_by(*holder).contains(job.id),
                    "{:?} is missing at {holder:?}",
                    job.id
                );
            }
            let listeners: BTreeSet<ClientId> = job.listeners().iter().copied().collect();
            heard += listeners.len();
            for listener in listeners {
                assert!(
                    self.listened_by(listener).contains(job.id),
                    "{:?} and its {listener:?}",
                    job.id
                );
            }
        }
        assert_eq!(
            bytes,
            self.held.bytes(),
            "bytes of listeners, collectors and names in leases"
        );
        let to_collect: usize = self.by_collector.values().map(BTreeSet::len).sum();
        assert_eq!(collected, to_collect, "jobs to collect");
        let sum = |jobs: &HashMap<ClientId, JobSet, FixedState>| {
            jobs.values().map(JobSet::len).sum::<usize>()
        };
        assert_eq!(
            (held, heard),
            (sum(&self.by_connection), sum(&self.by_listener)),
            "jobs held, jobs listened to"
        );
    }
}
