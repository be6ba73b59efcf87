//! Taking jobs: who asks or waits, and the lease on a job that the engine hands out.

use bytes::Bytes;
use windlass_engine::{
    Capacity, ClientId, Event, From, Holder, JobId, JobState, Lease, LeaseTerms, Notice, QueueKind, Refusal, Reply,
    Tag, Take, Taken, Timestamp, Token, Wait, WorkerState,
};

use super::memo::{Blocked, Served};
use super::{Answer, Hand, JobMemo, Oracle, Waiting};

impl Oracle {
    pub(super) fn take(&mut self, client: ClientId, tag: Tag, take: &Take) -> Answer {
        let waits = self.open_client(client)?.blocked();
        let endless = waits.iter().all(|take| take.until == Timestamp::NEVER) && !matches!(take.wait, Wait::Until(_));
        if waits.is_empty() || !endless {
            self.stop_waking(client)?;
        }
        let answer = self.take_or_wait(client, tag, take);
        self.follow();
        answer
    }

    fn take_or_wait(&mut self, client: ClientId, tag: Tag, take: &Take) -> Answer {
        let from = match &take.from {
            From::Subscriptions => self.open_client(client)?.subscriptions.clone(),
            From::Listed { queues, lease } => self.listed(queues, *lease)?,
            From::Cycle { queue, lease } => {
                self.check_name(queue)?;
                let queue = self.find_or_make_queue(queue, QueueKind::Cycle)?;
                vec![Served { queue, weight: 0, lease: *lease, unclaimed: None }]
            }
        };
        let quiet = self.may_not_take(client, &take.worker);
        let is_own = |hand: &Hand| hand.client == client && matches!(hand.event, Event::Reply(to, _) if to == tag);
        if let Some(at) = self.pending.iter().position(is_own) {
            let taken = self.pending.remove(at).event.handed_out().map_or(JobId(0), |taken| taken.id);
            assert!(!quiet, "{client:?} takes for a quiet worker");
            let first = |served: &Served| self.first(client, served, &take.worker);
            let served = self.judge_choice(client, &from, take.select, first, taken);
            self.hand_out(client, tag, taken, &served, &take.worker);
            return Ok(());
        }
        let left = from.iter().filter(|_| !quiet).find_map(|served| self.first(client, served, &take.worker));
        assert_eq!(left, None, "{client:?} does not get what is there");
        let until = match take.wait {
            Wait::No => self.now,
            Wait::Until(at) => at,
            Wait::Forever => Timestamp::NEVER,
        };
        if until <= self.now {
            self.reply(client, tag, Reply::Empty);
            return Ok(());
        }
        let since = self.next_wait();
        let from = if quiet { Vec::new() } else { from };
        let take = Blocked { tag, from, worker: take.worker.clone(), until, since };
        match &mut self.open_client(client)?.waiting {
            Waiting::Jobs(takes) => takes.push(take),
            waiting => *waiting = Waiting::Jobs(vec![take]),
        }
        Ok(())
    }

    fn listed(&mut self, names: &[Bytes], lease: LeaseTerms) -> Result<Vec<Served>, Refusal> {
        let limit = self.limits.abilities_max;
        if names.len() > limit as usize {
            return Err(Capacity::Subscriptions.exceeded(limit, limit));
        }
        names.iter().try_for_each(|name| self.check_name(name))?;
        let mut from = Vec::new();
        for name in names {
            if self.queue_named(name).is_some_and(|queue| queue.kind == QueueKind::Cycle) {
                continue;
            }
            let queue = self.find_or_make_queue(name, QueueKind::Work)?;
            from.push(Served { queue, weight: 0, lease, unclaimed: None });
        }
        Ok(from)
    }

    pub(super) fn hand_out(&mut self, client: ClientId, tag: Tag, id: JobId, served: &Served, worker: &Bytes) {
        let queue = self.job_mut(id).job.queue;
        if self.ready_queue(queue).first() != Some(&id) {
            self.see("Isolation::Passed");
        }
        self.job_mut(id).job.attempts += 1;
        let lease = self.job(id).map(|memo| self.lease(client, memo, served.lease, worker)).expect("it is ready");
        let (token, until) = (lease.token, lease.until);
        self.put(id, JobState::Leased(Box::new(lease)));
        if !served.lease.connection_bound {
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

    /// The lease of a job on these terms, from now on.
    pub(super) fn lease(&self, client: ClientId, memo: &JobMemo, terms: LeaseTerms, worker: &[u8]) -> Lease {
        // Beyond the numbers of earlier runs of the daemon.
        let serial = self.queue(memo.job.queue).serial + self.boot_count * (1 << 44);
        let token = Token(if memo.job.cycle().is_some() { serial } else { memo.job.attempts.into() });
        let wish = memo.job.extra.as_deref().and_then(|extra| extra.lease_ms);
        let (lease_ms, on_expiry) = match (wish, terms.wish) {
            (Some(ms), Some(on_expiry)) => (Some(ms), on_expiry),
            _ => (terms.lease_ms, terms.on_expiry),
        };
        let holder = match terms.connection_bound {
            true => Holder::Connection(client),
            false => Holder::Named(worker.into()),
        };
        let until = lease_ms.map_or(Timestamp::NEVER, |ms| self.now.after_ms(ms.min(self.limits.lease_ms_max).max(1)));
        Lease::new(holder, token, self.now, until, on_expiry)
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
            codec: self.queue(job.queue).rules.codec,
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
            heard: !job.listeners().is_empty(),
        }
    }

    /// Whether a client belongs to a worker that was asked to take no more.
    pub(crate) fn is_quiet(&self, client: ClientId) -> bool {
        let number = self.client(client).and_then(|client| client.worker);
        self.workers.iter().any(|worker| Some(worker.number) == number && worker.state > WorkerState::Running)
    }

    /// A client that belongs to no worker may still take in a worker's name.
    fn may_not_take(&self, client: ClientId, name: &Bytes) -> bool {
        match self.client(client).and_then(|client| client.worker) {
            Some(_) => self.is_quiet(client),
            None => self.worker_named(name).is_some_and(|worker| worker.state > WorkerState::Running),
        }
    }
}
