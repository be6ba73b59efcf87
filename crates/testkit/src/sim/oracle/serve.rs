//! The three kinds of waiting, and which client is served when work arrives.

use std::cmp::Reverse;

use bytes::Bytes;
use windlass_engine::{
    ClientId, JobId, Notice, Protocol, QueueId, QueueKind, Refusal, Reply, Select, Tag,
};

use super::memo::{Blocked, Served, Wakeup};
use super::{Answer, ClientMemo, JobMemo, Oracle, Waiting, id_of};

/// Heavier first, then the longest wait.
type Context = (Reverse<u32>, u64);

/// A client that gets a job without asking again.
#[derive(Clone, Copy)]
enum Taker {
    Blocked(ClientId, u64),
    Creditor(ClientId),
}

/// The next step at a queue.
#[derive(Clone, Copy)]
enum Next {
    Wake(ClientId),
    Hand(Taker),
}

impl Oracle {
    /// Whether a client also takes what nobody else serves.
    pub(crate) fn takes_unclaimed(&self) -> bool {
        self.clients
            .iter()
            .flat_map(|client| &client.subscriptions)
            .any(|served| served.unclaimed.is_some())
    }

    pub(super) fn sleep(&mut self, id: ClientId) -> Answer {
        let woken_for = self.stop_waking(id)?;
        let subscriptions = self.open_client(id)?.subscriptions.clone();
        let open = |served: &&Served| self.first(id, served, &[]).is_some();
        let work = subscriptions
            .iter()
            .find(open)
            .map(|served| served.queue)
            .filter(|_| !self.is_quiet(id));
        match work {
            Some(queue) => self.wake(id, queue),
            None => {
                let since = self.next_wait();
                self.open_client(id)?.waiting = Waiting::Asleep { since };
            }
        }
        if let Some(queue) = woken_for {
            self.serve(queue);
        }
        Ok(None)
    }

    pub(super) fn credit(&mut self, id: ClientId, credits: u32, select: Select) -> Answer {
        let since = self.next_wait();
        let client = self.open_client(id)?;
        if client.credits == 0 {
            client.credit_since = since;
        }
        client.credits = client.credits.saturating_add(credits);
        client.select = select;
        // It chooses among what is there.
        while let Some(client) = self
            .client(id)
            .filter(|client| client.credits > 0 && !self.is_quiet(id))
        {
            let first = |served: &Served| {
                let both = [
                    self.first(id, served, &[]),
                    self.first_unclaimed(id, served),
                ];
                both.into_iter()
                    .flatten()
                    .min_by_key(|id| self.job(*id).map(JobMemo::sort_key))
            };
            let Some((served, job)) = self.choose_among(id, &client.subscriptions, select, first)
            else {
                break;
            };
            self.give(id, &served, job);
        }
        Ok(None)
    }

    /// Gives a job to a client with credits: one credit less, and to the end of the line.
    fn give(&mut self, id: ClientId, served: &Served, job: JobId) {
        let since = self.next_wait();
        if let Ok(client) = self.open_client(id) {
            client.credits -= 1;
            client.credit_since = since;
        }
        if self.job_mut(job).job.queue != served.queue {
            self.see("Stray::Given");
        }
        self.hand_out(id, Tag::NONE, job, served, &Bytes::new());
    }

    pub(super) fn unwait(&mut self, id: ClientId) -> Answer {
        if let Some(queue) = self.stop_waiting(id) {
            self.serve(queue);
        }
        Ok(None)
    }

    /// Ends every kind of wait. Returns the queue it was woken for.
    pub(super) fn stop_waiting(&mut self, id: ClientId) -> Option<QueueId> {
        let client = self.open_client(id).ok()?;
        client.credits = 0;
        let woken_for = client.woken_for();
        client.waiting = Waiting::Nothing;
        woken_for
    }

    /// A client that asks for work is no longer asleep. Returns the queue it was woken for.
    pub(super) fn stop_waking(&mut self, id: ClientId) -> Result<Option<QueueId>, Refusal> {
        let client = self.open_client(id)?;
        if !client.blocked().is_empty() {
            return Err(Refusal::OutOfPlace);
        }
        let woken_for = client.woken_for();
        client.waiting = Waiting::Nothing;
        Ok(woken_for)
    }

    /// Work has arrived or a helper has gone: hands out jobs and wakes clients while there is both work and a client
    /// for it.
    pub(super) fn serve(&mut self, queue: QueueId) {
        while self.has_work(queue) {
            match self.next(queue) {
                Some(Next::Wake(sleeper)) => {
                    if self.takers(queue).next().is_some() {
                        self.see("Sleeper::First");
                    }
                    self.wake(sleeper, queue);
                }
                Some(Next::Hand(taker)) => self.hand_to(taker, queue),
                None => return,
            }
        }
    }

    // ---- strays ----------------------------------------------------------------------------------------------------

    /// Whether a client that serves the queue sees this job.
    fn is_served(&self, memo: &JobMemo) -> bool {
        let mut serve = self
            .clients
            .iter()
            .filter(|c| c.subscriptions.iter().any(|s| s.queue == memo.job.queue));
        serve.any(|client| self.sees(client.info.protocol, memo))
    }

    /// A queue's strays: per audience, the first job, if no client that serves the queue sees it.
    fn unclaimed(&self, queue: QueueId) -> Vec<&JobMemo> {
        if self.queue(queue).kind != QueueKind::Work || !self.has_work(queue) {
            return Vec::new();
        }
        let bridged = self.queue(queue).bridged;
        let seen_alike = |one: &JobMemo, other: &JobMemo| match bridged {
            true => one.job.unfit == other.job.unfit,
            false => one.job.protocol == other.job.protocol,
        };
        let mut firsts: Vec<&JobMemo> = Vec::new();
        for memo in self
            .open_queue(queue)
            .into_iter()
            .filter_map(|id| self.job(id))
        {
            if !firsts.iter().any(|first| seen_alike(first, memo)) {
                firsts.push(memo);
            }
        }
        firsts.retain(|memo| !self.is_served(memo));
        firsts
    }

    /// The queues with strays of this protocol, in the order of these.
    fn unclaimed_queues(&self, protocol: Protocol) -> Vec<QueueId> {
        let unclaimed = self
            .queues
            .iter()
            .flat_map(|queue| self.unclaimed(queue.number));
        let mut unclaimed: Vec<&JobMemo> = unclaimed
            .filter(|memo| memo.job.protocol == protocol)
            .collect();
        unclaimed.sort_by_key(|memo| memo.sort_key());
        unclaimed.into_iter().map(|memo| memo.job.queue).collect()
    }

    /// The stray of this protocol that a client gets from a stray queue on these terms, if it may have it.
    fn unclaimed_of_queue(
        &self,
        queue: QueueId,
        protocol: Protocol,
        client: ClientId,
        served: &Served,
    ) -> Option<JobId> {
        let own = self.client(client).and_then(|client| client.info.protocol);
        let admitted = self.admits(client, &Served { queue, ..*served }, &[]);
        let mut unclaimed = self
            .unclaimed(queue)
            .into_iter()
            .filter(|memo| memo.job.protocol == protocol && admitted);
        unclaimed.find(|memo| self.sees(own, memo)).map(id_of)
    }

    /// The first stray for this client on these terms, if the terms include strays.
    fn first_unclaimed(&self, client: ClientId, served: &Served) -> Option<JobId> {
        let protocol = served.unclaimed?;
        self.unclaimed_queues(protocol)
            .into_iter()
            .find_map(|queue| self.unclaimed_of_queue(queue, protocol, client, served))
    }

    /// After all other work, strays go to clients with credits that take them.
    pub(super) fn serve_unclaimed(&mut self) {
        while let Some((client, served, job)) = self.next_unclaimed() {
            self.see("Stray::Handed");
            self.give(client, &served, job);
        }
    }

    /// The first stray that a client takes; among these clients, the heaviest that has waited longest.
    fn next_unclaimed(&self) -> Option<(ClientId, Served, JobId)> {
        let creditors = self
            .clients
            .iter()
            .filter(|client| client.credits > 0 && !self.is_quiet(client.id));
        let mut takers: Vec<_> = creditors
            .flat_map(|client| {
                client
                    .subscriptions
                    .iter()
                    .map(move |served| (client, served))
            })
            .filter_map(|(client, served)| {
                Some((served.unclaimed?, Reverse(served.weight), client, served))
            })
            .collect();
        takers
            .sort_by_key(|(protocol, weight, client, _)| (*protocol, *weight, client.credit_since));
        let mut protocols: Vec<Protocol> = takers.iter().map(|(protocol, ..)| *protocol).collect();
        protocols.dedup();
        let queues = |protocol| {
            self.unclaimed_queues(protocol)
                .into_iter()
                .map(move |queue| (protocol, queue))
        };
        protocols
            .into_iter()
            .flat_map(queues)
            .find_map(|(wanted, queue)| {
                takers
                    .iter()
                    .filter(|(protocol, ..)| *protocol == wanted)
                    .find_map(|(.., client, served)| {
                        let job = self.unclaimed_of_queue(queue, wanted, client.id, served)?;
                        Some((client.id, **served, job))
                    })
            })
    }

    // ---- the next client -------------------------------------------------------------------------------------------

    /// Each protocol proposes its heaviest client, among equals the one that has waited longest. Among the proposed
    /// clients, the one that has waited longest is next.
    fn next(&self, queue: QueueId) -> Option<Next> {
        let mut waiting: Vec<_> = self.takers(queue).chain(self.sleepers(queue)).collect();
        waiting.sort_by_key(|(context, ..)| *context);
        let mut sent: Vec<(Context, Option<Protocol>, Next)> = Vec::new();
        for (context, id, next) in waiting {
            let own = self.client(id).and_then(|client| client.info.protocol);
            if !sent.iter().any(|(_, other, _)| *other == own) {
                sent.push((context, own, next));
            }
        }
        sent.into_iter()
            .min_by_key(|((_, since), ..)| *since)
            .map(|(.., next)| next)
    }

    fn takers(&self, queue: QueueId) -> impl Iterator<Item = (Context, ClientId, Next)> {
        let free = self
            .clients
            .iter()
            .filter(move |client| self.has_unclaimed(queue, client));
        let takes = free
            .clone()
            .flat_map(|client| client.blocked().iter().map(move |take| (client.id, take)));
        let blocked = takes.filter_map(move |(id, take)| {
            let served = take.from.iter().find(|served| served.queue == queue);
            served.filter(|served| self.first(id, served, &take.worker).is_some())?;
            Some((
                (Reverse(0), take.since),
                id,
                Next::Hand(Taker::Blocked(id, take.since)),
            ))
        });
        let creditors =
            free.filter(move |client| client.credits > 0 && self.may_have(client, queue));
        let creditors = creditors.filter_map(move |client| {
            let context = (Reverse(heaviest(client, queue)?), client.credit_since);
            Some((context, client.id, Next::Hand(Taker::Creditor(client.id))))
        });
        blocked.chain(creditors)
    }

    fn sleepers(&self, queue: QueueId) -> impl Iterator<Item = (Context, ClientId, Next)> {
        let sleepers = self
            .clients
            .iter()
            .filter(move |c| self.may_have(c, queue) && self.has_unclaimed(queue, c));
        sleepers.filter_map(move |client| match &client.waiting {
            Waiting::Asleep { since } => {
                let context = (Reverse(heaviest(client, queue)?), *since);
                Some((context, client.id, Next::Wake(client.id)))
            }
            Waiting::Nothing | Waiting::Jobs(_) | Waiting::Awake { .. } => None,
        })
    }

    /// Whether a sleeper or a client with credits may get a job of a queue, if it serves that queue.
    fn may_have(&self, client: &ClientMemo, queue: QueueId) -> bool {
        let served = client
            .subscriptions
            .iter()
            .find(|served| served.queue == queue);
        !self.is_quiet(client.id)
            && served.is_some_and(|served| self.first(client.id, served, &[]).is_some())
    }

    fn wake(&mut self, id: ClientId, queue: QueueId) {
        let since = self.next_wait();
        let until = self.now.after_ms(self.limits.wake_ms);
        if let Ok(client) = self.open_client(id) {
            client.waiting = Waiting::Awake { queue, since };
        }
        self.awake.push(Wakeup {
            until,
            client: id,
            since,
        });
        self.notify(id, Notice::WorkAvailable);
    }

    fn hand_to(&mut self, taker: Taker, queue: QueueId) {
        let (Taker::Blocked(client, _) | Taker::Creditor(client)) = taker;
        let Some(job) = self.open_to(queue, client).first().copied() else {
            return;
        };
        match taker {
            Taker::Blocked(id, since) => self.hand_to_blocked((id, since), queue, job),
            Taker::Creditor(id) => {
                let Ok(client) = self.open_client(id) else {
                    return;
                };
                let served = client
                    .subscriptions
                    .iter()
                    .find(|served| served.queue == queue)
                    .copied();
                if let Some(served) = served {
                    self.give(id, &served, job);
                }
            }
        }
    }

    fn hand_to_blocked(&mut self, (id, since): (ClientId, u64), queue: QueueId, job: JobId) {
        let Some(take) = self.unblock(id, since) else {
            return;
        };
        if let Some(served) = take.from.iter().find(|served| served.queue == queue) {
            self.hand_out(id, take.tag, job, served, &take.worker);
        }
    }

    /// Ends one blocked take.
    fn unblock(&mut self, id: ClientId, since: u64) -> Option<Blocked> {
        let client = self.open_client(id).ok()?;
        let Waiting::Jobs(takes) = &mut client.waiting else {
            return None;
        };
        let at = takes.iter().position(|take| take.since == since)?;
        let take = takes.remove(at);
        if takes.is_empty() {
            client.waiting = Waiting::Nothing;
        }
        Some(take)
    }

    /// A woken client has not asked for work in time: its job is free for another client.
    pub(super) fn oversleep(&mut self, since: u64) {
        let Some(at) = self.awake.iter().position(|wakeup| wakeup.since == since) else {
            return;
        };
        let wakeup = self.awake.remove(at);
        let Ok(client) = self.open_client(wakeup.client) else {
            return;
        };
        if let Waiting::Awake { queue, since } = client.waiting
            && since == wakeup.since
        {
            client.waiting = Waiting::Nothing;
            self.serve(queue);
        }
    }

    pub(super) fn give_up_waiting(&mut self, id: ClientId) {
        let now = self.now;
        let Some(client) = self.client(id) else {
            return;
        };
        let over = client
            .blocked()
            .iter()
            .find(|take| take.until <= now)
            .map(|take| take.since);
        if let Some(take) = over.and_then(|since| self.unblock(id, since)) {
            self.reply(id, take.tag, Reply::Empty);
        }
    }

    /// Their worker was asked to take no more: these clients keep waiting without effect, and the jobs they were woken
    /// for are free for other clients.
    pub(super) fn fall_quiet(&mut self, clients: &[ClientId]) {
        let mut woken_for = Vec::new();
        for id in clients {
            let Ok(client) = self.open_client(*id) else {
                continue;
            };
            woken_for.extend(client.woken_for());
            match &mut client.waiting {
                Waiting::Jobs(takes) => takes.iter_mut().for_each(|take| take.from.clear()),
                Waiting::Awake { .. } => client.waiting = Waiting::Nothing,
                Waiting::Nothing | Waiting::Asleep { .. } => {}
            }
        }
        woken_for.into_iter().for_each(|queue| self.serve(queue));
    }
}

/// The greatest weight that a client gives this queue, if it serves it.
fn heaviest(client: &ClientMemo, queue: QueueId) -> Option<u32> {
    client
        .subscriptions
        .iter()
        .filter(|served| served.queue == queue)
        .map(|served| served.weight)
        .max()
}
