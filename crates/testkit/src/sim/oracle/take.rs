//! Taking jobs: choosing among queues, granting the lease.

use std::cmp::Reverse;

use bytes::Bytes;
use windlass_engine::{
    Capacity, ClientId, From, Holder, JobId, JobState, Lease, LeaseTerms, Notice, OnExpiry,
    QueueId, QueueKind, Refusal, Reply, Select, Tag, Take, Taken, Timestamp, Token, Wait,
    WorkerState,
};

use super::memo::{Blocked, Served};
use super::{Answer, JobMemo, Oracle, Waiting};

impl Oracle {
    pub(super) fn take(&mut self, client: ClientId, tag: Tag, take: &Take) -> Answer {
        let waits = self.open_client(client)?.blocked();
        let endless = waits.iter().all(|take| take.until == Timestamp::NEVER)
            && !matches!(take.wait, Wait::Until(_));
        let woken_for = if !waits.is_empty() && endless {
            None
        } else {
            self.stop_waking(client)?
        };
        let answer = self.take_or_wait(client, tag, take);
        if let Some(queue) = woken_for {
            self.serve(queue);
        }
        answer
    }

    fn take_or_wait(&mut self, client: ClientId, tag: Tag, take: &Take) -> Answer {
        let from = match &take.from {
            From::Subscriptions => self.open_client(client)?.subscriptions.clone(),
            From::Listed { queues, lease } => self.listed(queues, *lease)?,
            From::Cycle { queue, lease } => {
                self.check_name(queue)?;
                let queue = self.find_or_make_queue(queue, QueueKind::Cycle)?;
                vec![Served {
                    queue,
                    weight: 0,
                    lease: *lease,
                    unclaimed: None,
                }]
            }
        };
        if !matches!(take.from, From::Subscriptions) {
            let now = self.now;
            let (queues, last) = &mut self.open_client(client)?.takes_from;
            queues.retain(|(queue, _)| !from.iter().any(|served| served.queue == *queue));
            queues.extend(from.iter().map(|served| (served.queue, now)));
            *last = now;
        }
        let quiet = self.may_not_take(client, &take.worker);
        if let Some((served, job)) = self
            .choose(client, &from, take.select, &take.worker)
            .filter(|_| !quiet)
        {
            self.hand_out(client, tag, job, &served, &take.worker);
            return Ok(None);
        }
        let until = match take.wait {
            Wait::No => self.now,
            Wait::Until(at) => at,
            Wait::Forever => Timestamp::NEVER,
        };
        if until <= self.now {
            self.reply(client, tag, Reply::Empty);
            return Ok(None);
        }
        let since = self.next_wait();
        let from = if quiet { Vec::new() } else { from };
        let take = Blocked {
            tag,
            from,
            worker: take.worker.clone(),
            until,
            since,
        };
        match &mut self.open_client(client)?.waiting {
            Waiting::Jobs(takes) => takes.push(take),
            waiting => *waiting = Waiting::Jobs(vec![take]),
        }
        Ok(None)
    }

    fn listed(&mut self, names: &[Bytes], lease: LeaseTerms) -> Result<Vec<Served>, Refusal> {
        let limit = self.limits.abilities_max;
        if names.len() > limit as usize {
            return Err(Capacity::Subscriptions.exceeded(limit, limit));
        }
        names.iter().try_for_each(|name| self.check_name(name))?;
        let mut from = Vec::new();
        for name in names {
            if self
                .queue_named(name)
                .is_some_and(|queue| queue.kind == QueueKind::Cycle)
            {
                continue;
            }
            let queue = self.find_or_make_queue(name, QueueKind::Work)?;
            from.push(Served {
                queue,
                weight: 0,
                lease,
                unclaimed: None,
            });
        }
        Ok(from)
    }

    /// Whether the queue has a job that could be handed out.
    pub(super) fn has_work(&self, queue: QueueId) -> bool {
        !self.open_queue(queue).is_empty() && self.slots_free(queue) > 0
    }

    /// The job that this client gets next in the name of this worker.
    pub(super) fn choose(
        &self,
        client: ClientId,
        from: &[Served],
        select: Select,
        worker: &[u8],
    ) -> Option<(Served, JobId)> {
        self.choose_among(client, from, select, |served| {
            self.first(client, served, worker)
        })
    }

    /// The same choice; `first` is the job it would get from each queue.
    pub(super) fn choose_among(
        &self,
        client: ClientId,
        from: &[Served],
        select: Select,
        first: impl Fn(&Served) -> Option<JobId>,
    ) -> Option<(Served, JobId)> {
        let turns = self.turns(client, from);
        let mut best = None;
        for (index, served) in from.iter().enumerate() {
            let Some(memo) = first(served).and_then(|id| self.job(id)) else {
                continue;
            };
            let key = memo.sort_key();
            let (heavy, lane) = (Reverse(u64::from(served.weight)), memo.lane() as u64);
            let nothing = (0, false, 0, 0);
            // Smaller is better; the first of equals wins.
            let merit = match select {
                Select::ListOrder => (Reverse(0), nothing, index),
                Select::BestPriority => (Reverse(0), key, 0),
                Select::RoundRobin => (Reverse(0), (0, false, lane, 0), turns[index]),
                Select::Weighted => (heavy, key, 0),
            };
            if best.as_ref().is_none_or(|(least, _)| merit < *least) {
                best = Some((merit, (*served, memo.job.id)));
            }
        }
        best.map(|(_, choice)| choice)
    }

    /// The job of a queue that this client gets in the name of this worker, if it may have any.
    pub(super) fn first(&self, client: ClientId, served: &Served, worker: &[u8]) -> Option<JobId> {
        let open = self.has_work(served.queue) && self.admits(client, served, worker);
        self.open_to(served.queue, client)
            .first()
            .copied()
            .filter(|_| open)
    }

    /// For each source, how many precede it if the one before the last to be served comes first.
    fn turns(&self, client: ClientId, from: &[Served]) -> Vec<usize> {
        let last = self.client(client).and_then(|client| client.last_queue);
        let last = last
            .and_then(|last| from.iter().position(|s| s.queue == last))
            .unwrap_or(from.len());
        let order: Vec<usize> = (0..last).rev().chain((last..from.len()).rev()).collect();
        (0..from.len())
            .map(|index| order.iter().position(|at| *at == index).unwrap_or_default())
            .collect()
    }

    pub(super) fn hand_out(
        &mut self,
        client: ClientId,
        tag: Tag,
        id: JobId,
        served: &Served,
        worker: &Bytes,
    ) {
        let terms = served.lease;
        let now = self.now;
        let queue = self.job_mut(id).job.queue;
        if self.ready_queue(queue).first() != Some(&id) {
            self.see("Isolation::Passed");
        }
        // Beyond the numbers of earlier runs of the daemon.
        let (starts, serial) = (self.boot_count, self.queue(queue).serial);
        let memo = self.job_mut(id);
        memo.job.attempts += 1;
        let attempts = u64::from(memo.job.attempts);
        let is_cycle = memo.job.cycle().is_some();
        let token = Token(if is_cycle {
            serial + starts * (1 << 44)
        } else {
            attempts + starts * (1 << 32)
        });
        let own = self.protocol_of(client);
        let protocol = self.job_mut(id).job.protocol;
        let foreign = !is_cycle && own.is_some_and(|own| own != protocol);
        let nameless = foreign && terms.on_expiry == OnExpiry::Fail && worker.is_empty();
        let by_connection = terms.connection_bound || nameless;
        if nameless && !terms.connection_bound {
            self.see("Take::Nameless");
        }
        let holder = match by_connection {
            true => Holder::Connection(client),
            false => Holder::Named(worker.as_ref().into()),
        };
        let (until, on_expiry) = self.lease_end(terms, self.job(id).expect("it is handed out"));
        self.put(
            id,
            JobState::Leased(Box::new(Lease::new(holder, token, now, until, on_expiry))),
        );
        if !by_connection {
            self.job_mut(id).lease_worker = self.worker_named(worker).map(|worker| worker.number);
        }
        self.count_total(id, |totals| totals.taken += 1);
        if let Ok(client) = self.open_client(client) {
            client.last_queue = Some(served.queue);
        }
        let job = Box::new(self.taken(id, token, until));
        match tag {
            Tag::NONE => self.notify(client, Notice::Delivered(job)),
            tag => self.reply(client, tag, Reply::Taken(job)),
        }
    }

    /// When a lease that begins now ends by itself, and what follows.
    pub(super) fn lease_end(&self, terms: LeaseTerms, memo: &JobMemo) -> (Timestamp, OnExpiry) {
        let wish = memo.job.extra.as_deref().and_then(|extra| extra.lease_ms);
        let (lease_ms, on_expiry) = match (wish, terms.wish) {
            (Some(ms), Some(on_expiry)) => (Some(ms), on_expiry),
            _ => (terms.lease_ms, terms.on_expiry),
        };
        let longest = self.limits.lease_ms_max;
        (
            lease_ms.map_or(Timestamp::NEVER, |ms| {
                self.now.after_ms(ms.min(longest).max(1))
            }),
            on_expiry,
        )
    }

    fn taken(&self, id: JobId, token: Token, until: Timestamp) -> Taken {
        let job = &self.job(id).expect("it was just leased").job;
        Taken {
            id,
            token,
            queue: self.queue(job.queue).name.clone(),
            protocol: job.protocol,
            priority: job.priority,
            body: job.payload.share_body(),
            stored: None,
            codec: self.rules(job.queue).codec,
            name: Bytes::copy_from_slice(job.name()),
            meta: job.meta(),
            key: job.key().map_or_else(Bytes::new, Bytes::copy_from_slice),
            attempts: job.attempts,
            failures: job.failures,
            failures_max: job.retry.failures_max,
            failure: job.extra.as_deref().and_then(|extra| extra.failure.clone()),
            ready_at: job.ready_at,
            until,
            connection_bound: job.lease().is_some_and(Lease::connection_bound),
            heard: !job.listeners().is_empty()
                || job
                    .extra
                    .as_deref()
                    .is_some_and(|extra| !extra.collector.is_empty()),
        }
    }

    /// Whether a client belongs to a worker that was asked to take no more.
    pub(super) fn is_quiet(&self, client: ClientId) -> bool {
        let number = self.client(client).and_then(|client| client.worker);
        self.workers
            .iter()
            .any(|worker| Some(worker.number) == number && worker.state > WorkerState::Running)
    }

    /// A client that belongs to no worker may still take in a worker's name.
    fn may_not_take(&self, client: ClientId, name: &Bytes) -> bool {
        match self.client(client).and_then(|client| client.worker) {
            Some(_) => self.is_quiet(client),
            None => self
                .worker_named(name)
                .is_some_and(|worker| worker.state > WorkerState::Running),
        }
    }
}
