//! Connections open, register abilities, and close.
//!
//! Not here: waiting (`wait`), workers known by name (`workers`).

use bytes::Bytes;

use crate::client::{Client, Served};
use crate::context::{Change, Context};
use crate::engine::Engine;
use crate::ids::{ClientId, JobId, QueueId};
use crate::queue::QueueImage;
use crate::refusal::{Capacity, Refusal};
use crate::request::{ClientInfo, QueueKind, Subscription};
use crate::work::{LOOKED_UP, STEP};

/// The most registrations of one queue by one client that count. Some workers register before each job.
const SUBSCRIPTION_TIMES_MAX: u32 = 8;

impl Engine {
    pub(crate) fn open(&mut self, id: ClientId, info: ClientInfo) -> Result<(), Refusal> {
        if self.clients.contains_key(&id) {
            return Err(Refusal::OutOfPlace);
        }
        self.clients.insert(id, Client { info, ..Client::default() });
        self.client_ids.insert(id);
        Ok(())
    }

    /// Ends everything that belongs to a connection; does nothing if it is not open. Long work is done in parts beforehand
    /// ([`Engine::apply_in_part`]).
    pub(crate) fn close(&mut self, id: ClientId, context: &mut Context) {
        self.unwait(id, context);
        self.forget_subscriptions(id, |_| true, context);
        // Remove it from the table first, so that it is given no more jobs.
        let Some(client) = self.clients.remove(&id) else { return };
        self.client_ids.remove(&id);
        // Stop listening before its jobs are lost: a job that lives only for its listeners must not be tried again.
        for job in client.hears.into_keys() {
            self.stop_hearing(job, id, context);
        }
        for job in client.held {
            self.lose_job(job, context);
        }
        if let Some(worker) = client.worker {
            self.leave_worker(worker, id, context);
        }
    }

    pub(crate) fn label(&mut self, id: ClientId, label: &Bytes) -> Result<(), Refusal> {
        self.check_name(label)?;
        self.client(id)?.label = Self::own(label);
        Ok(())
    }

    pub(crate) fn serve_queue(
        &mut self,
        id: ClientId,
        subscription: Subscription,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        self.check_name(&subscription.queue)?;
        self.spend(STEP * self.subscriptions_of(id));
        let limit = self.limits.abilities_max;
        let known = self.queues.named(&subscription.queue);
        let client = self.client(id)?;
        // A second registration counts twice, but its terms replace those of the first.
        let mut times = 0;
        for before in client.subscriptions.iter_mut().filter(|before| Some(before.queue) == known) {
            before.lease = subscription.lease;
            times += 1;
        }
        let is_full = client.subscriptions.len() >= limit as usize;
        if let Some(known) = known.filter(|_| times >= SUBSCRIPTION_TIMES_MAX || (is_full && times > 0)) {
            // The new terms may allow jobs that the old ones did not.
            self.serve(known, context);
            return Ok(());
        }
        if is_full {
            return Err(Capacity::Subscriptions.exceeded(limit, limit));
        }
        let queue = self.queues.find_or_make(&subscription.queue, QueueKind::Work, self.limits.queues_max)?;
        self.make_known(queue, context);
        let served =
            Served { queue, weight: subscription.weight, lease: subscription.lease, unclaimed: subscription.unclaimed };
        let client = self.client(id)?;
        client.subscriptions.push(served);
        let protocol = client.info.protocol;
        if let Some(queue) = self.queues.at_mut(queue) {
            queue.count_workers(protocol, 1);
        }
        self.note_unclaimed(queue);
        if let Some(protocol) = served.unclaimed {
            self.watch_unclaimed(protocol);
        }
        // If it sleeps or has credits, it now waits at this queue too.
        self.wait_also_at(id, served);
        self.serve(queue, context);
        Ok(())
    }

    pub(crate) fn unserve(
        &mut self,
        id: ClientId,
        name: &Bytes,
        requeue: bool,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        self.client(id)?;
        if let Some(queue) = self.queues.named(name) {
            self.forget_subscriptions(id, |served| served.queue == queue, context);
            if requeue {
                self.give_back(id, Some(queue), context);
            }
            self.drop_if_unknown(queue);
        }
        Ok(())
    }

    pub(crate) fn unserve_all(&mut self, id: ClientId, requeue: bool, context: &mut Context) -> Result<(), Refusal> {
        self.client(id)?;
        self.forget_subscriptions(id, |_| true, context);
        if requeue {
            self.give_back(id, None, context);
        }
        Ok(())
    }

    /// Removes abilities. A client that sleeps or has credits keeps waiting at its other queues.
    fn forget_subscriptions(&mut self, id: ClientId, which: impl Fn(&Served) -> bool, context: &mut Context) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let (gone, kept): (Vec<_>, Vec<_>) = client.subscriptions.drain(..).partition(|served| which(served));
        client.subscriptions = kept;
        self.spend(LOOKED_UP * gone.len() as u64 + STEP * self.subscriptions_of(id));
        for served in &gone {
            self.wait_no_more_at(id, *served);
        }
        self.forget_served(id, gone, context);
    }

    fn subscriptions_of(&self, id: ClientId) -> u64 {
        self.clients.get(&id).map_or(0, |client| client.subscriptions.len() as u64)
    }

    /// Updates queues that a client no longer serves, and at which it no longer waits.
    pub(crate) fn forget_served(&mut self, id: ClientId, gone: Vec<Served>, context: &mut Context) {
        let protocol = self.protocol_of(id);
        for served in gone {
            if let Some(queue) = self.queues.at_mut(served.queue) {
                queue.count_workers(protocol, -1);
            }
            self.note_unclaimed(served.queue);
            self.wake_in_stead(id, served.queue, context);
            self.drop_if_unknown(served.queue);
        }
    }

    /// Gives back the jobs that a connection holds, of one queue or of all.
    fn give_back(&mut self, id: ClientId, queue: Option<QueueId>, context: &mut Context) {
        let Some(client) = self.clients.get(&id) else { return };
        let held: Vec<JobId> = client.held.iter().copied().collect();
        for job in held {
            if queue.is_none() || self.job(job).map(|j| j.queue) == queue {
                self.lose_job(job, context);
            }
        }
    }

    /// Removes a listener. A job that lives only for its listeners is removed with the last of them, unless it is leased.
    pub(crate) fn stop_hearing(&mut self, id: JobId, client: ClientId, context: &mut Context) {
        let Some(slot) = self.jobs.slot(id) else { return };
        self.jobs.reweigh(slot, |job| {
            if let Some(extra) = job.extra.as_deref_mut() {
                extra.listeners.retain(|listener| *listener != client);
            }
        });
        let Some(job) = self.jobs.at(slot) else { return };
        if !job.durable && job.listeners().is_empty() && job.lease().is_none() {
            self.count(slot, |totals| totals.cancelled += 1);
            self.remove_job(slot, context);
        }
    }

    // ---- known queues, and queues where clients only wait --------------------------------------------------------------

    /// From now on the queue is listed and journalled.
    pub(crate) fn make_known(&mut self, id: QueueId, context: &mut Context) {
        if self.queues.at(id).is_some_and(|queue| !queue.image.known) {
            self.set_queue(id, |image| image.known = true, context);
        }
    }

    /// Changes the part of a queue that the journal keeps.
    pub(crate) fn set_queue(&mut self, id: QueueId, set: impl FnOnce(&mut QueueImage), context: &mut Context) {
        if self.queues.change(id, set) {
            context.remember(Change::QueueSet(id));
            self.note_unclaimed(id);
        }
    }

    /// Removes a queue that is not known, once nothing needs its name.
    pub(crate) fn drop_if_unknown(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.at(id).filter(|queue| !queue.image.known && queue.is_idle()) {
            if queue.journalled {
                self.dropped.push(id);
            }
            self.queues.remove(id);
        }
    }

    pub(crate) fn check_name(&self, name: &[u8]) -> Result<(), Refusal> {
        let limit = self.limits.name_bytes_max;
        let given = u32::try_from(name.len()).unwrap_or(u32::MAX);
        if given > limit { Err(Capacity::NameBytes.exceeded(given, limit)) } else { Ok(()) }
    }
}
