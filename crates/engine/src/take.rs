//! Jobs out: choosing a queue, taking its first job, granting the lease.
//!
//! Not here: waiting when there is no job (`wait`).

use bytes::Bytes;

use crate::client::Served;
use crate::context::Context;
use crate::engine::Engine;
use crate::event::{Notice, Reply};
use crate::ids::{ClientId, Protocol, QueueId, Tag, Timestamp, Token};
use crate::job::{Holder, Job, JobState, Lease};
use crate::outcome::Taken;
use crate::queue::Queue;
use crate::ready::{Slot, SortKey};
use crate::refusal::{Capacity, Refusal};
use crate::request::{From, LeaseTerms, QueueKind, Select, Take, Wait, WorkerState};
use crate::throttle::Whose;

impl Engine {
    pub(crate) fn take(
        &mut self,
        client: ClientId,
        tag: Tag,
        take: Take,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let woken_for = self.stop_waking_to_take(client, take.wait)?;
        let answer = self.take_or_wait(client, tag, take, context);
        // It may have taken a job of another queue than the one for which it was woken, or none.
        if let Some(queue) = woken_for {
            self.serve(queue, context);
        }
        answer
    }

    fn take_or_wait(&mut self, client: ClientId, tag: Tag, take: Take, context: &mut Context) -> Result<(), Refusal> {
        let quiet = self.is_quiet(client, &take.worker);
        let own = self.protocol_of(client);
        match take.from {
            From::Subscriptions => {
                let subscriptions = &self.clients.get(&client).ok_or(Refusal::OutOfPlace)?.subscriptions;
                let first = |served: &Served| self.first((client, own), served, &take.worker);
                match self.choose(client, subscriptions, take.select, first).filter(|_| !quiet) {
                    Some((served, slot)) => self.hand_out(client, tag, slot, served, &take.worker, context),
                    None => {
                        let sources = if quiet || take.wait == Wait::No { Vec::new() } else { subscriptions.clone() };
                        self.wait_for_job(client, tag, sources, (take.wait, take.worker), context);
                    }
                }
            }
            From::Listed { queues, lease } => {
                let sources = self.listed(queues, lease)?;
                self.take_from(client, tag, &sources, (take.select, take.wait, take.worker), quiet, context);
            }
            From::Cycle { queue, lease } => {
                self.check_name(&queue)?;
                let queue = self.queues.find_or_make(&queue, QueueKind::Cycle, self.limits.queues_max)?;
                let sources = [Served { queue, weight: 0, lease, unclaimed: None }];
                self.take_from(client, tag, &sources, (take.select, take.wait, take.worker), quiet, context);
            }
        }
        Ok(())
    }

    fn take_from(
        &mut self,
        client: ClientId,
        tag: Tag,
        sources: &[Served],
        (select, wait, worker): (Select, Wait, Bytes),
        quiet: bool,
        context: &mut Context,
    ) {
        let own = self.protocol_of(client);
        let first = |served: &Served| self.first((client, own), served, &worker);
        match self.choose(client, sources, select, first).filter(|_| !quiet) {
            Some((served, slot)) => self.hand_out(client, tag, slot, served, &worker, context),
            None => {
                let at = if quiet || wait == Wait::No { Vec::new() } else { sources.to_vec() };
                self.wait_for_job(client, tag, at, (wait, worker), context);
            }
        }
        sources.iter().for_each(|served| self.drop_if_unknown(served.queue));
    }

    /// Resolves queue names, with the taker's lease terms. An unknown name becomes a queue to wait at.
    fn listed(&mut self, names: Vec<Bytes>, lease: LeaseTerms) -> Result<Vec<Served>, Refusal> {
        let limit = self.limits.abilities_max;
        if names.len() > limit as usize {
            return Err(Capacity::Subscriptions.exceeded(limit, limit));
        }
        names.iter().try_for_each(|name| self.check_name(name))?;
        let mut listed = Vec::with_capacity(names.len());
        for name in names {
            // A take that expects work skips `cycle` queues.
            let kind = self.queues.named(&name).and_then(|id| self.queues.at(id)).map(|queue| queue.image.kind);
            if kind == Some(QueueKind::Cycle) {
                continue;
            }
            match self.queues.find_or_make(&name, QueueKind::Work, self.limits.queues_max) {
                Ok(queue) => listed.push(Served { queue, weight: 0, lease, unclaimed: None }),
                Err(why) => {
                    // Drop the queues that were created for this take alone.
                    listed.iter().for_each(|served| self.drop_if_unknown(served.queue));
                    return Err(why);
                }
            }
        }
        Ok(listed)
    }

    /// The job of a queue that a client of protocol `own` gets next, in the name of this worker.
    pub(crate) fn first(
        &self,
        (client, own): (ClientId, Option<Protocol>),
        served: &Served,
        worker: &[u8],
    ) -> Option<(SortKey, Slot)> {
        let whose = Whose::taking(client, served.lease, worker);
        let queue = self.queues.at(served.queue).filter(|queue| queue.has_work() && queue.admits(whose))?;
        queue.line.first_of(own)
    }

    /// The queue and the job that a client gets next, given the `first` job that it would get of each queue.
    pub(crate) fn choose(
        &self,
        client: ClientId,
        sources: &[Served],
        select: Select,
        first: impl Fn(&Served) -> Option<(SortKey, Slot)>,
    ) -> Option<(Served, Slot)> {
        let last = self.clients.get(&client).and_then(|client| client.last_queue);
        let birth = |served: &Served| self.queues.at(served.queue).map(|queue| queue.birth);
        let next = last
            .filter(|_| select == Select::RoundRobin)
            .and_then(|last| sources.iter().position(|served| birth(served) == Some(last)))
            .map_or(0, |at| at + 1);
        // How far a queue is from the next one in the round.
        let turn_of = |index: usize| (index + sources.len() - next) % sources.len().max(1);
        let ready = sources.iter().enumerate().filter_map(|(index, served)| {
            let (standing, slot) = first(served)?;
            Some((index, *served, standing, slot))
        });
        let best = match select {
            Select::ListOrder => ready.min_by_key(|(index, ..)| *index),
            Select::BestPriority => ready.min_by_key(|(_, _, standing, _)| *standing),
            Select::RoundRobin => ready.min_by_key(|(index, _, standing, _)| (standing.lane, turn_of(*index))),
            Select::Weighted => {
                ready.min_by_key(|(_, served, standing, _)| (std::cmp::Reverse(served.weight), *standing))
            }
        };
        best.map(|(_, served, _, slot)| (served, slot))
    }

    /// Leases a ready job to a client and sends it.
    pub(crate) fn hand_out(
        &mut self,
        client: ClientId,
        tag: Tag,
        slot: Slot,
        served: Served,
        worker: &[u8],
        context: &mut Context,
    ) {
        let token = self.lease_job(client, slot, served.lease, worker);
        if let Some(client) = self.clients.get_mut(&client)
            && let Some(queue) = self.queues.at_mut(served.queue)
        {
            client.last_queue = Some(queue.birth);
            queue.is_asked_for_by(client.info.protocol);
        }
        self.count(slot, |totals| totals.taken += 1);
        let Some(job) = self.jobs.at(slot) else { return };
        // A connection-bound lease ends with the daemon, so it is not journalled.
        if job.lease().is_some_and(|lease| !lease.connection_bound()) {
            self.remember_move(slot, context);
        }
        if let Some(taken) = self.taken(slot, token) {
            let taken = Box::new(taken);
            match tag {
                Tag::NONE => context.notify(client, Notice::Delivered(taken)),
                tag => context.reply(client, tag, Reply::Taken(taken)),
            }
        }
    }

    fn lease_job(&mut self, client: ClientId, slot: Slot, terms: LeaseTerms, worker: &[u8]) -> Token {
        let now = self.now;
        let Some(job) = self.jobs.at_mut(slot) else { return Token(0) };
        job.attempts = job.attempts.saturating_add(1);
        let token = match job.cycle() {
            Some(_) => Token(self.queues.at(job.queue).map_or(0, |queue| cycle_token(self.head.starts, queue))),
            None => Token(job.attempts.into()),
        };
        let holder = match terms.connection_bound {
            true => Holder::Connection(client),
            false => Holder::Named(worker.into()),
        };
        let wish = terms.wish.and_then(|on_expiry| Some((job.extra.as_deref()?.lease_ms?, on_expiry)));
        let (lease_ms, on_expiry) =
            wish.map_or((terms.lease_ms, terms.on_expiry), |(ms, on_expiry)| (Some(ms), on_expiry));
        let until = match lease_ms {
            // At least 1 ms: a lease that ends at once would loop while a client has credits.
            Some(ms) => now.after_ms(ms.min(self.limits.lease_ms_max).max(1)),
            None => Timestamp::NEVER,
        };
        let lease = Lease::new(holder, token, now, until, on_expiry);
        self.move_job(slot, JobState::Leased(Box::new(lease)));
        token
    }

    fn taken(&self, slot: Slot, token: Token) -> Option<Taken> {
        let job = self.jobs.at(slot)?;
        let queue = self.queues.at(job.queue)?;
        Some(Taken {
            id: job.id,
            token,
            queue: queue.image.name.clone(),
            protocol: job.protocol,
            priority: job.priority,
            body: job.payload.share_body(),
            codec: queue.image.rules().codec,
            name: Bytes::copy_from_slice(job.name()),
            meta: job.meta(),
            key: job.key().map_or_else(Bytes::new, Bytes::copy_from_slice),
            attempts: job.attempts,
            failures: job.failures,
            failures_max: job.retry.failures_max,
            failure: job.extra.as_deref().and_then(|extra| extra.failure.clone()),
            ready_at: job.ready_at,
            until: job.lease().map_or(Timestamp::NEVER, |lease| lease.until),
            heard: !job.listeners().is_empty(),
        })
    }

    /// Whether a worker was asked to take no more.
    pub(crate) fn is_quiet(&self, client: ClientId, worker: &[u8]) -> bool {
        let own = self.clients.get(&client).and_then(|client| client.worker);
        let worker = own.or_else(|| self.worker_names.get(worker).copied());
        worker.and_then(|n| self.workers.get(&n)).is_some_and(|worker| worker.state > WorkerState::Running)
    }

    /// When the first job of a queue became ready. A job that returned is before younger ones.
    pub(crate) fn oldest_ready(&self, queue: QueueId) -> Option<Timestamp> {
        let (_, slot): (SortKey, Slot) = self.queues.at(queue)?.line.first()?;
        self.jobs.at(slot).map(|job: &Job| job.ready_at)
    }
}

/// The queue's serial number, with the daemon's start count in the bits above it. The start count keeps tokens unique: after a
/// restart, serials that were not journalled are given again.
const fn cycle_token(starts: u64, queue: &Queue) -> u64 {
    // Room for 2^44 changes of a queue and 2^20 starts.
    const SERIAL_BITS: u32 = 44;
    (starts << SERIAL_BITS).wrapping_add(queue.image.serial)
}
