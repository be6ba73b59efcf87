//! The holders, the listeners and the collectors of jobs: part of [`Jobs`].

use std::collections::BTreeSet;

use bytes::Bytes;

use super::holders::Holders;
use super::job::Job;
use super::job_set::JobSet;
use super::slab::Slot;
use super::state::Holder;
use super::table::Jobs;
use crate::ids::{ClientId, JobId, NameIn, QueueId};
use crate::timers::Timers;

impl Jobs {
    /// The memory of a listener: the entry at the job, and the job's entry in the list of the client.
    pub(crate) const LISTENER_BYTES: u64 = 40;

    /// The jobs of each client.
    pub(crate) const fn holders(&self) -> &Holders {
        &self.by_state.holders
    }

    /// The leased jobs of a queue, `count` in all. Searches the leases of all queues, and all jobs only if
    /// leases of this queue never expire.
    pub(crate) fn leased_in(
        &self,
        queue: QueueId,
        count: usize,
        timers: &Timers,
    ) -> BTreeSet<JobId> {
        let is_leased = |job: &Job| job.queue == queue && job.lease().is_some();
        let candidates = self
            .by_state
            .holders
            .of_connections()
            .chain(timers.leases());
        let leased: BTreeSet<JobId> = candidates
            .filter(|id| self.get(*id).is_some_and(is_leased))
            .collect();
        if leased.len() == count {
            return leased;
        }
        self.iter()
            .filter(|(_, job)| is_leased(job))
            .map(|(_, job)| job.id)
            .collect()
    }

    /// A client listens to a job. If it does so already, it listens once more.
    pub(crate) fn listen(&mut self, slot: Slot, client: ClientId) {
        let Some(job) = self.slab.at_mut(slot) else {
            return;
        };
        self.by_state.holders.listen(job.id, client);
        self.change(slot, |job| job.extra_mut().listeners.push(client));
    }

    /// A client no longer listens to a job.
    pub(crate) fn unlisten(&mut self, slot: Slot, client: ClientId) {
        let Some(job) = self.slab.at_mut(slot) else {
            return;
        };
        let Some(extra) = job.extra.as_deref_mut() else {
            return;
        };
        let before = extra.listeners.len();
        extra.listeners.retain(|listener| *listener != client);
        self.by_state
            .holders
            .unlisten(job.id, client, before - extra.listeners.len());
    }

    /// Removes all listeners of a job and returns them, oldest first.
    pub(crate) fn take_listeners(&mut self, slot: Slot) -> Vec<ClientId> {
        let Some(job) = self.slab.at_mut(slot) else {
            return Vec::new();
        };
        let listeners = job
            .extra
            .as_deref_mut()
            .map(|extra| std::mem::take(&mut extra.listeners))
            .unwrap_or_default();
        listeners
            .iter()
            .for_each(|listener| self.by_state.holders.unlisten(job.id, *listener, 1));
        listeners
    }

    /// Sets the name with which a client collects a job's outcome.
    pub(crate) fn set_collector(&mut self, slot: Slot, name: Bytes) {
        if let Some(job) = self.slab.at(slot) {
            self.by_state.holders.remove_collector(job);
        }
        self.change(slot, |job| job.extra_mut().collector = name);
        if let Some(job) = self.slab.at(slot) {
            self.by_state.holders.add_collector(job);
        }
    }

    /// Removes a connection without leases and listeners.
    pub(crate) fn forget_client(&mut self, client: ClientId) {
        self.by_state.holders.remove_connection(client);
    }

    /// Starts recording the time-bound leases of this worker.
    pub(crate) fn add_worker(&mut self, name: NameIn<'_>) {
        self.by_state.holders.add_worker(name);
    }

    /// Records that a worker that was just added has had this job since before a restart.
    pub(crate) fn hold_again(&mut self, id: JobId) {
        let Some(job) = self.slot(id).and_then(|slot| self.slab.at(slot)) else {
            return;
        };
        if let Some(Holder::Named(worker)) = job.lease().map(|lease| &lease.holder) {
            self.by_state.holders.hold_for(job, worker);
        }
    }

    /// Removes a worker and returns the jobs that it has leased since it was added.
    pub(crate) fn remove_worker(&mut self, name: NameIn<'_>) -> JobSet {
        self.by_state.holders.remove_worker(name)
    }
}
