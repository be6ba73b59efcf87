//! Connections open, declare queues, and close.

use bytes::Bytes;
use windlass_engine::{
    AttemptEnd, Capacity, ClientId, ClientInfo, JobId, QueueId, QueueKind, Refusal, Subscription,
};

use super::memo::Served;
use super::{Answer, ClientMemo, JobMemo, Oracle, Waiting, id_of};

impl Oracle {
    pub(super) fn open(&mut self, id: ClientId, info: &ClientInfo) -> Answer {
        if self.client(id).is_some() {
            return Err(Refusal::OutOfPlace);
        }
        self.clients.push(ClientMemo::new(id, info.clone()));
        self.clients.sort_by_key(|client| client.id);
        Ok(None)
    }

    pub(super) fn close(&mut self, id: ClientId) -> Answer {
        if self.client(id).is_none() {
            return Ok(None);
        }
        self.unwait(id)?;
        let worker = self.client(id).and_then(|client| client.worker);
        for job in self.jobs_where(|memo| memo.connection() == Some(id)) {
            self.end_attempt(job, AttemptEnd::Lost);
        }
        self.clients.retain(|client| client.id != id);
        // Listeners first: a closing client receives nothing more.
        for job in self.jobs_where(|memo| memo.job.listeners().contains(&id)) {
            self.deafen(job, id);
        }
        for job in self.jobs_where(|memo| memo.connection() == Some(id)) {
            self.lose(job);
        }
        if let Some(worker) = worker {
            self.leave_worker(worker);
        }
        Ok(None)
    }

    pub(super) fn jobs_where(&self, which: impl Fn(&JobMemo) -> bool) -> Vec<JobId> {
        self.jobs
            .iter()
            .filter(|memo| which(memo))
            .map(id_of)
            .collect()
    }

    /// Removes a listener. A job that lives for its listeners goes with the last one, unless a worker holds it.
    fn deafen(&mut self, id: JobId, client: ClientId) {
        let memo = self.job_mut(id);
        memo.extra()
            .listeners
            .retain(|listener| *listener != client);
        if memo.is_abandoned() && memo.job.lease().is_none() {
            self.count_total(id, |totals| totals.cancelled += 1);
            self.remove(id);
        }
    }

    pub(super) fn label(&mut self, id: ClientId, label: &Bytes) -> Answer {
        self.check_name(label)?;
        self.open_client(id)?.label = label.clone();
        Ok(None)
    }

    pub(super) fn serve_queue(&mut self, id: ClientId, subscription: &Subscription) -> Answer {
        self.check_name(&subscription.queue)?;
        let limit = self.limits.abilities_max;
        let known = self
            .queue_named(&subscription.queue)
            .map(|queue| queue.number);
        let client = self.open_client(id)?;
        let is_full = client.subscriptions.len() >= limit as usize;
        let same = client
            .subscriptions
            .iter_mut()
            .filter(|before| Some(before.queue) == known);
        let times = same.map(|before| before.lease = subscription.lease).count();
        if let Some(known) = known.filter(|_| times >= 8 || (is_full && times > 0)) {
            self.serve(known);
            return Ok(None);
        }
        if is_full {
            return Err(Capacity::Subscriptions.exceeded(limit, limit));
        }
        let queue = self.find_or_make_queue(&subscription.queue, QueueKind::Work)?;
        self.make_known(queue, self.protocol_of(id));
        let served = Served {
            queue,
            weight: subscription.weight,
            lease: subscription.lease,
            unclaimed: subscription.unclaimed,
        };
        self.open_client(id)?.subscriptions.push(served);
        self.serve(queue);
        Ok(None)
    }

    /// Removes one queue, or all.
    pub(super) fn unserve(&mut self, id: ClientId, name: Option<&Bytes>, requeue: bool) -> Answer {
        let known = |name: &Bytes| self.queue_named(name).map(|queue| queue.number);
        let queues: Vec<QueueId> = match name {
            Some(name) => known(name).into_iter().collect(),
            None => self.queues.iter().map(|queue| queue.number).collect(),
        };
        let client = self.open_client(id)?;
        client
            .subscriptions
            .retain(|served| !queues.contains(&served.queue));
        if let Some(queue) = client.woken_for().filter(|queue| queues.contains(queue)) {
            client.waiting = Waiting::Nothing;
            self.serve(queue);
        }
        if requeue {
            for job in self.jobs_where(|memo| {
                memo.connection() == Some(id) && queues.contains(&memo.job.queue)
            }) {
                self.end_attempt(job, AttemptEnd::Lost);
                self.lose(job);
            }
        }
        Ok(None)
    }
}
