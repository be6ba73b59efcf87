//! Throttles: which of a queue's leases count, and which clients may have one more.

use bytes::Bytes;
use windlass_engine::{ClientId, Holder, JobId, OnExpiry, QueueId, Reply, Throttle, Timestamp};

use super::memo::Served;
use super::{Answer, Due, JobMemo, Oracle};

/// When a lease ceases to count, if it counts at all.
fn over_at(throttle: Throttle, memo: &JobMemo) -> Option<Timestamp> {
    let taken_at = memo.job.lease()?.taken_at;
    Some(
        throttle
            .timeout_ms
            .map_or(Timestamp::NEVER, |ms| taken_at.after_ms(ms)),
    )
}

impl Oracle {
    pub(super) fn throttle_queue(
        &mut self,
        client: ClientId,
        name: &Bytes,
        throttle: Option<Throttle>,
    ) -> Answer {
        let queue = self.queue_to_set(client, name, throttle.is_some())?;
        if let Some(queue) = queue.filter(|queue| self.queue(*queue).throttle != throttle) {
            self.queue_mut(queue).throttle = throttle;
            self.count_slots(queue, self.now);
            self.serve(queue);
        }
        Ok(Some(Reply::Done))
    }

    /// Counts every lease of a queue that is not too old.
    fn count_slots(&mut self, queue: QueueId, now: Timestamp) {
        let throttle = self.queue(queue).throttle;
        for memo in self.jobs.iter_mut().filter(|memo| memo.job.queue == queue) {
            memo.has_slot = throttle
                .and_then(|throttle| over_at(throttle, memo))
                .is_some_and(|at| at > now);
        }
    }

    /// The daemon starts without the time: it finds leases that are too old when it gets the time.
    pub(super) fn slots_survive(&mut self) {
        let queues: Vec<QueueId> = self.queues.iter().map(|queue| queue.number).collect();
        queues
            .into_iter()
            .for_each(|queue| self.count_slots(queue, Timestamp(0)));
    }

    pub(super) fn enter_slot(&mut self, id: JobId) {
        let now = self.now;
        let queue = self.job_mut(id).job.queue;
        let throttle = self.queue(queue).throttle;
        let memo = self.job_mut(id);
        memo.has_slot = throttle
            .and_then(|throttle| over_at(throttle, memo))
            .is_some_and(|at| at > now);
    }

    pub(super) fn leave_slot(&mut self, id: JobId) {
        let memo = self.job_mut(id);
        if std::mem::take(&mut memo.has_slot) {
            let queue = memo.job.queue;
            self.freed.push_back(queue);
        }
    }

    pub(super) fn serve_freed(&mut self) {
        while let Some(queue) = self.freed.pop_front() {
            self.serve(queue);
        }
    }

    /// When a counting lease will cease to count.
    pub(super) fn slot_due(&self, memo: &JobMemo) -> Option<(Timestamp, Due)> {
        let queue = self.queue(memo.job.queue);
        Some((over_at(queue.throttle?, memo)?, Due::Slots(queue.id?)))
    }

    pub(super) fn slots_due(&mut self, id: QueueId, at: Timestamp) {
        let Some(queue) = self.queues.iter().find(|queue| queue.id == Some(id)) else {
            return;
        };
        let (number, throttle) = (queue.number, queue.throttle);
        for memo in self.jobs.iter_mut().filter(|memo| memo.job.queue == number) {
            memo.has_slot &= throttle
                .and_then(|throttle| over_at(throttle, memo))
                .is_some_and(|over| over > at);
        }
        self.freed.push_back(number);
    }

    // ---- free slots -------------------------------------------------------------------------------------------------

    pub(super) fn slots_held(&self, queue: QueueId) -> u32 {
        let held = self
            .jobs
            .iter()
            .filter(|memo| memo.has_slot && memo.job.queue == queue);
        u32::try_from(held.count()).unwrap_or(u32::MAX)
    }

    pub(super) fn slots_free(&self, queue: QueueId) -> usize {
        let max = self
            .queue(queue)
            .throttle
            .and_then(|throttle| throttle.leased_max);
        max.map_or(usize::MAX, |max| {
            max.saturating_sub(self.slots_held(queue)) as usize
        })
    }

    /// Whether the holder of a new lease may have one more.
    pub(super) fn admits(&self, client: ClientId, served: &Served, worker: &[u8]) -> bool {
        let Some(max) = self
            .queue(served.queue)
            .throttle
            .and_then(|throttle| throttle.per_worker_max)
        else {
            return true;
        };
        let bound = served.lease.connection_bound;
        let nameless = served.lease.on_expiry == OnExpiry::Fail && worker.is_empty();
        let counts = |holder: &Holder| match holder {
            Holder::Connection(holder) => *holder == client && (bound || nameless),
            Holder::Named(name) => **name == *worker && !bound,
            Holder::Away(_) => false,
        };
        let its = |memo: &&JobMemo| {
            let lease = memo.job.lease();
            memo.has_slot
                && memo.job.queue == served.queue
                && lease.is_some_and(|lease| counts(&lease.holder))
        };
        self.jobs.iter().filter(its).count() < max as usize
    }
}
