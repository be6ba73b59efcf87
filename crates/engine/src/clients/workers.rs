//! Named workers: they span connections, send heartbeats, and can be asked to go quiet or to terminate.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::client::Client;
use crate::held::{Held, Share, hashed, heap, tree};
use crate::ids::{ClientId, JobId, NameIn, Named, Namespace, Protocol, Timestamp};
use crate::query::WorkerRow;
use crate::request::WorkerState;
use crate::timers::{Timer, Timers};

/// The name of a worker, which is unique in its namespace.
type WorkerName = Named<Box<[u8]>>;

/// A named worker.
#[derive(Debug)]
pub(crate) struct Worker {
    namespace: Namespace,
    name: Box<[u8]>,
    about: Bytes,
    state: WorkerState,
    beat_at: Timestamp,
    memory_bytes: Option<u64>,
    /// When the engine next checks `beat_at`.
    timer_at: Timestamp,
    clients: BTreeSet<ClientId>,
    /// The protocol, if it gave one.
    protocol: Option<Protocol>,
    held: Share,
}

impl Worker {
    pub(crate) fn name(&self) -> NameIn<'_> {
        NameIn(self.namespace, &self.name)
    }

    pub(crate) const fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// The row for a listing, without data of its connections and jobs, with this number of leased jobs.
    pub(crate) fn row(&self, held: usize) -> WorkerRow {
        let count = |many: usize| u32::try_from(many).unwrap_or(u32::MAX);
        WorkerRow {
            name: Bytes::copy_from_slice(&self.name),
            about: self.about.clone(),
            protocol: self.protocol,
            state: self.state,
            beat_at: self.beat_at,
            memory_bytes: self.memory_bytes,
            connections: count(self.clients.len()),
            held: count(held),
            waiting: None,
            jobs: Vec::new(),
            namespace: Bytes::new(),
        }
    }

    fn recount(&mut self) {
        self.held.set(self.bytes());
    }

    /// The memory: the name is stored here, in the index and in the holders of jobs.
    fn bytes(&self) -> u64 {
        let clients = tree(self.clients.len(), size_of::<ClientId>());
        Self::bytes_for(self.name.len(), self.about.len()) + clients
    }

    /// The memory of a worker with a name and a description of these sizes.
    pub(crate) const fn bytes_for(name_bytes: usize, about_bytes: usize) -> u64 {
        const INDEX: u64 = 2 * hashed(size_of::<(WorkerName, BTreeSet<JobId>)>());
        heap(size_of::<(u64, Self)>()) * 3 / 2 + INDEX + 3 * heap(name_bytes) + heap(about_bytes)
    }

    pub(crate) fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.clients.iter().copied()
    }
}

/// All named workers. Not here: the jobs of workers.
#[derive(Debug)]
pub(crate) struct Workers {
    by_number: BTreeMap<u64, Worker>,
    by_name: HashMap<WorkerName, u64, FixedState>,
    next: u64,
    /// The daemons with clients that receive no more jobs.
    draining: BTreeSet<u64>,
    /// Jobs of workers from before a restart, which may return.
    returning: BTreeMap<WorkerName, Vec<JobId>>,
    held: Held,
}

impl Workers {
    pub(crate) fn new(seed: u64, held: Held) -> Self {
        let hasher = FixedState::with_seed(seed);
        Self {
            by_number: BTreeMap::new(),
            by_name: HashMap::with_hasher(hasher),
            next: 1,
            draining: BTreeSet::new(),
            returning: BTreeMap::new(),
            held,
        }
    }

    /// Records a job of a worker from before the restart.
    pub(crate) fn expect(&mut self, NameIn(namespace, name): NameIn<'_>, job: JobId) {
        let name = Named(namespace, name.into());
        self.returning.entry(name).or_default().push(job);
    }

    /// Removes a worker that may return, with the recorded jobs.
    pub(crate) fn pop_expected(&mut self) -> Option<(WorkerName, Vec<JobId>)> {
        self.returning.pop_first()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }

    pub(crate) fn named(&self, name: NameIn<'_>) -> Option<u64> {
        self.by_name.get(&name).copied()
    }

    pub(crate) fn get(&self, name: NameIn<'_>) -> Option<&Worker> {
        self.by_number.get(&self.named(name)?)
    }

    pub(crate) fn at(&self, number: u64) -> Option<&Worker> {
        self.by_number.get(&number)
    }

    /// The workers from a number on, in order of registration.
    pub(crate) fn from(&self, first: u64) -> impl Iterator<Item = (u64, &Worker)> {
        self.by_number
            .range(first..)
            .map(|(number, worker)| (*number, worker))
    }

    /// The numbers of the workers in a namespace; for `None`, of all.
    pub(crate) fn numbers(&self, of: Option<Namespace>) -> impl Iterator<Item = u64> {
        self.from(0)
            .filter(move |(_, worker)| of.is_none_or(|of| worker.namespace == of))
            .map(|(number, _)| number)
    }

    pub(crate) fn state(&self, number: u64) -> Option<WorkerState> {
        self.by_number.get(&number).map(|worker| worker.state)
    }

    /// Makes every client of this daemon quiet, now and in the future. Returns the workers that were not
    /// quiet.
    pub(crate) fn drain(&mut self, daemon: u64) -> Vec<u64> {
        self.draining.insert(daemon);
        let is_there = |worker: &Worker| {
            worker
                .clients
                .iter()
                .any(|client| client.daemon() == daemon)
        };
        let all = self.by_number.iter_mut();
        let running =
            all.filter(|(_, worker)| worker.state < WorkerState::Quiet && is_there(worker));
        let quieted = running.map(|(number, worker)| {
            worker.state = WorkerState::Quiet;
            *number
        });
        quieted.collect()
    }

    /// Returns true if the clients of this daemon receive no more jobs.
    pub(crate) fn is_draining(&self, daemon: u64) -> bool {
        self.draining.contains(&daemon)
    }

    /// Returns true if any client can be quiet.
    pub(crate) fn may_be_quiet(&self) -> bool {
        !self.draining.is_empty() || !self.by_number.is_empty()
    }

    /// Returns true if a client is quiet: all clients of the same daemon are, or the client's worker is, else
    /// the worker with this name.
    pub(crate) fn is_quiet(&self, id: ClientId, client: Option<&Client>, name: &[u8]) -> bool {
        if self.is_draining(id.daemon()) {
            return true;
        }
        let Some(client) = client else { return false };
        let number = client
            .worker()
            .or_else(|| self.named(NameIn(client.namespace(), name)));
        number
            .and_then(|number| self.state(number))
            .is_some_and(|state| state > WorkerState::Running)
    }

    /// Adds a worker without connections, whose first heartbeat is now.
    pub(crate) fn add(
        &mut self,
        NameIn(namespace, name): NameIn<'_>,
        protocol: Option<Protocol>,
        now: Timestamp,
        beat_ms: u64,
        timers: &mut Timers,
    ) -> u64 {
        let number = self.next;
        self.next += 1;
        let timer_at = now.after_ms(beat_ms);
        let mut worker = Worker {
            namespace,
            name: name.into(),
            about: Bytes::new(),
            state: WorkerState::Running,
            beat_at: now,
            memory_bytes: None,
            timer_at,
            clients: BTreeSet::new(),
            protocol,
            held: self.held.share(),
        };
        worker.recount();
        self.by_name.insert(Named(namespace, name.into()), number);
        self.by_number.insert(number, worker);
        timers.set(timer_at, Timer::Beat(number));
        number
    }

    /// Adds a connection. At a daemon that drains it makes the worker quiet.
    pub(crate) fn join(&mut self, number: u64, client: ClientId, about: Bytes) {
        let is_draining = self.is_draining(client.daemon());
        if let Some(worker) = self.by_number.get_mut(&number) {
            if is_draining {
                worker.state = worker.state.max(WorkerState::Quiet);
            }
            worker.about = about;
            worker.clients.insert(client);
            worker.recount();
        }
    }

    /// Removes a connection from a worker. Returns `true` if it was the last.
    pub(crate) fn leave(&mut self, number: u64, client: ClientId) -> bool {
        let Some(worker) = self.by_number.get_mut(&number) else {
            return false;
        };
        worker.clients.remove(&client);
        worker.recount();
        worker.clients.is_empty()
    }

    /// Records a heartbeat, and the memory of the worker if it is known.
    pub(crate) fn beat(&mut self, number: u64, now: Timestamp, memory_bytes: Option<u64>) {
        if let Some(worker) = self.by_number.get_mut(&number) {
            worker.beat_at = now;
            worker.memory_bytes = memory_bytes.or(worker.memory_bytes);
        }
    }

    /// Advances a worker's state, which never moves back. Returns the connections if it advanced.
    pub(crate) fn advance(&mut self, number: u64, state: WorkerState) -> Option<Vec<ClientId>> {
        let worker = self
            .by_number
            .get_mut(&number)
            .filter(|worker| worker.state < state)?;
        worker.state = state;
        Some(worker.clients().collect())
    }

    /// Handles the timer of a worker. Returns the connections if the worker has missed a heartbeat; otherwise
    /// the timer is set again.
    pub(crate) fn miss_beat(
        &mut self,
        number: u64,
        at: Timestamp,
        beat_ms: u64,
        timers: &mut Timers,
    ) -> Option<Vec<ClientId>> {
        let worker = self.by_number.get_mut(&number)?;
        let due = worker.beat_at.after_ms(beat_ms);
        if due <= at {
            return Some(worker.clients().collect());
        }
        worker.timer_at = due;
        timers.cancel(at);
        timers.set(due, Timer::Beat(number));
        None
    }

    pub(crate) fn remove(&mut self, number: u64, timers: &mut Timers) -> Option<Worker> {
        let worker = self.by_number.remove(&number)?;
        timers.cancel(worker.timer_at);
        self.by_name.remove(&worker.name());
        Some(worker)
    }

    /// Asserts that the memory is accounted for.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(crate) fn check(&self) {
        for worker in self.by_number.values() {
            assert_eq!(
                worker.held.bytes(),
                worker.bytes(),
                "bytes of {:?}",
                worker.name
            );
        }
    }

    /// Returns true if a timer of this worker that was set for this time is still live.
    pub(crate) fn has_timer(&self, at: Timestamp, number: u64) -> bool {
        self.by_number
            .get(&number)
            .is_some_and(|worker| worker.timer_at == at)
    }
}
