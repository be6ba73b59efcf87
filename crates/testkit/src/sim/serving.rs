//! Laws of serving: which client gets which job, and that no client waits while there is work for it. They judge what the engine
//! did, step by step, by what clients asked for; they predict nothing.
//!
//! - A job is handed out on terms that its client offered, while its queue is not paused and has a slot for the client.
//! - Of a queue, a client gets the first job that it sees.
//! - A client that asks gets the best job of its sources, as its selection orders them; "nothing" means that there is nothing.
//! - Among clients of one protocol the heaviest is served first, then the one that has waited longest; protocols take turns by
//!   the time that they have waited.
//! - No client waits for a job that it may have, unless woken clients are about to take as many.
//! - A job of a queue that no client serves goes to a client that takes such jobs.

use std::cmp::Reverse;

use windlass_engine::{ClientId, Engine, Holder, JobId, Protocols, QueueId, QueueKind, Select, Throttle, Timestamp};

use super::oracle::{ClientMemo, JobMemo, Oracle, Served, Waiting, id_of};

/// Heavier first, then the longest wait.
type Turn = (Reverse<u32>, u64);

impl Oracle {
    // ---- what there is for a client --------------------------------------------------------------------------------

    /// The ready jobs of a queue that it hands out, the next to be taken first.
    pub(crate) fn open_queue(&self, queue: QueueId) -> Vec<JobId> {
        let memo = self.queue(queue);
        let held = |job: &JobMemo| match memo.kind {
            QueueKind::Work => memo.paused.has(job.job.protocol),
            QueueKind::Cycle => memo.paused != Protocols::NONE,
        };
        let mut jobs = self.ready_queue(queue);
        jobs.retain(|id| self.job(*id).is_some_and(|job| !held(job)));
        jobs
    }

    /// Those of them that a client may be handed.
    fn open_to(&self, queue: QueueId, client: ClientId) -> Vec<JobId> {
        let own = self.client(client).and_then(|client| client.info.protocol);
        let mut jobs = self.open_queue(queue);
        jobs.retain(|id| self.job(*id).is_some_and(|memo| self.sees(own, memo)));
        jobs
    }

    /// The leases of a throttled queue that count, with the throttle.
    fn slots(&self, queue: QueueId) -> Option<(Throttle, Vec<&Holder>)> {
        let throttle = self.queue(queue).throttle?;
        let leases = self.jobs.iter().filter(|memo| memo.job.queue == queue).filter_map(|memo| memo.job.lease());
        let counts = leases.filter(|lease| over_at(throttle, lease.taken_at) > self.now);
        Some((throttle, counts.map(|lease| &lease.holder).collect()))
    }

    /// How many leases of a queue count.
    pub(crate) fn slots_held(&self, queue: QueueId) -> u32 {
        self.slots(queue).map_or(0, |(_, held)| u32::try_from(held.len()).unwrap_or(u32::MAX))
    }

    fn slots_free(&self, queue: QueueId) -> usize {
        let free = |(throttle, held): (Throttle, Vec<&Holder>)| {
            throttle.leased_max.map(|max| (max as usize).saturating_sub(held.len()))
        };
        self.slots(queue).and_then(free).unwrap_or(usize::MAX)
    }

    /// Whether the holder of a new lease on these terms may have one more.
    fn admits(&self, client: ClientId, served: &Served, worker: &[u8]) -> bool {
        let holder = match served.lease.connection_bound {
            true => Holder::Connection(client),
            false => Holder::Named(worker.into()),
        };
        self.slots(served.queue).is_none_or(|(throttle, held)| {
            let its = held.iter().filter(|other| ***other == holder).count();
            throttle.per_worker_max.is_none_or(|max| its < max as usize)
        })
    }

    /// The job of a queue that this client gets in the name of this worker, if it may have any.
    pub(crate) fn first(&self, client: ClientId, served: &Served, worker: &[u8]) -> Option<JobId> {
        let open = self.slots_free(served.queue) > 0 && self.admits(client, served, worker);
        self.open_to(served.queue, client).first().copied().filter(|_| open)
    }

    /// The same, if it is this job.
    pub(crate) fn visible(&self, client: ClientId, served: &Served, worker: &[u8], job: JobId) -> Option<JobId> {
        self.first(client, served, worker).filter(|first| *first == job)
    }

    // ---- strays ----------------------------------------------------------------------------------------------------

    /// Whether a client that serves the queue sees this job.
    fn is_served(&self, memo: &JobMemo) -> bool {
        let mut serve = self.clients.iter().filter(|c| c.subscriptions.iter().any(|s| s.queue == memo.job.queue));
        serve.any(|client| self.sees(client.info.protocol, memo))
    }

    /// A queue's strays: per audience, the first job, if no client that serves the queue sees it.
    fn strays(&self, queue: QueueId) -> Vec<&JobMemo> {
        if self.queue(queue).kind != QueueKind::Work || self.slots_free(queue) == 0 {
            return Vec::new();
        }
        let bridged = self.queue(queue).bridged;
        let audience = |memo: &JobMemo| (bridged.then_some(memo.job.unfit), (!bridged).then_some(memo.job.protocol));
        let mut firsts: Vec<&JobMemo> = Vec::new();
        for memo in self.open_queue(queue).into_iter().filter_map(|id| self.job(id)) {
            if !firsts.iter().any(|first| audience(first) == audience(memo)) {
                firsts.push(memo);
            }
        }
        firsts.retain(|memo| !self.is_served(memo));
        firsts
    }

    /// The stray that a client may have of this queue on these terms.
    pub(crate) fn stray_for(&self, client: ClientId, served: &Served, queue: QueueId) -> Option<JobId> {
        let own = self.client(client).and_then(|client| client.info.protocol);
        let wanted = |memo: &&JobMemo| Some(memo.job.protocol) == served.unclaimed && self.sees(own, memo);
        let stray = self.strays(queue).into_iter().filter(wanted).min_by_key(|memo| memo.sort_key());
        stray.filter(|_| self.admits(client, &Served { queue, ..*served }, &[])).map(id_of)
    }

    /// The first stray of any queue for a client on these terms.
    fn first_stray(&self, client: ClientId, served: &Served) -> Option<JobId> {
        served.unclaimed?;
        let strays = self
            .queues
            .iter()
            .filter_map(|queue| self.stray_for(client, served, queue.number).and_then(|id| self.job(id)));
        strays.min_by_key(|memo| memo.sort_key()).map(id_of)
    }

    // ---- a client that asks ----------------------------------------------------------------------------------------

    /// Asserts that a client with new credits got the best job. Returns the source.
    pub(crate) fn judge_credit(&self, id: ClientId, select: Select, job: JobId) -> Served {
        let sources = self.client(id).map_or_else(Vec::new, |client| client.subscriptions.clone());
        let first = |served: &Served| {
            let both = [self.first(id, served, &[]), self.first_stray(id, served)];
            both.into_iter().flatten().min_by_key(|id| self.job(*id).map(JobMemo::sort_key))
        };
        self.judge_choice(id, &sources, select, first, job)
    }

    /// Asserts that a job is the best of the `first` jobs of these sources. Returns its source.
    pub(crate) fn judge_choice(
        &self,
        client: ClientId,
        sources: &[Served],
        select: Select,
        first: impl Fn(&Served) -> Option<JobId>,
        taken: JobId,
    ) -> Served {
        let last = self.client(client).and_then(|client| client.last_queue);
        let last = last.and_then(|last| sources.iter().position(|served| served.queue == last));
        let distance = |at: usize| last.map_or(at, |last| (at + sources.len() - last - 1) % sources.len());
        let merit = |at: usize, served: &Served, memo: &JobMemo| match select {
            Select::ListOrder => (at as u64, None),
            Select::BestPriority => (0, Some(memo.sort_key())),
            Select::RoundRobin => (memo.lane() as u64, Some((distance(at), false, 0, 0))),
            Select::Weighted => (u64::from(u32::MAX - served.weight), Some(memo.sort_key())),
        };
        let there = sources.iter().enumerate();
        let there = there.filter_map(|(at, served)| first(served).map(|job| (at, served, job)));
        let best = there.filter_map(|(at, served, job)| Some((merit(at, served, self.job(job)?), job, served)));
        let best = best.min_by_key(|(merit, ..)| *merit).map(|(_, job, served)| (job, *served));
        let served = best.filter(|(job, _)| *job == taken).map(|(_, served)| served);
        served.unwrap_or_else(|| panic!("{client:?} got {taken:?} by {select:?}, the best is {best:?}"))
    }

    // ---- whose turn it is ------------------------------------------------------------------------------------------

    /// Asserts that it is a waiting client's turn to get this job.
    pub(crate) fn judge_turn(&mut self, winner: ClientId, (weight, since): (u32, u64), job: JobId) {
        let Some(queue) = self.job(job).map(|memo| memo.job.queue) else { return };
        let Some(client) = self.client(winner).cloned() else { return };
        let turn = (Reverse(weight), since);
        let other = self.precedes(&client, turn, queue);
        assert!(other.is_none(), "{other:?} precedes {winner:?} at {queue:?}: {turn:?}");
        if self.waiting(queue).iter().any(|(_, id, asleep)| *asleep && *id != winner) {
            self.see("Sleeper::Beside");
        }
    }

    /// The same for a client with credits.
    pub(crate) fn judge_credit_turn(&mut self, winner: ClientId, served: &Served, job: JobId) {
        let Some(client) = self.client(winner) else { return };
        let is_stray = self.job(job).is_some_and(|memo| memo.job.queue != served.queue);
        match heaviest(client, served.queue).filter(|_| !is_stray) {
            Some(weight) => self.judge_turn(winner, (weight, client.credit_since), job),
            None => self.see("Stray::Handed"),
        }
    }

    /// Whether a sleeper may be woken: for a queue with work, at which it is its turn.
    pub(crate) fn may_wake(&mut self, id: ClientId) -> bool {
        let Some(client) = self.client(id) else { return false };
        let Waiting::Asleep { since } = client.waiting else { return false };
        let queues: Vec<(QueueId, u32)> =
            client.subscriptions.iter().filter_map(|s| Some((s.queue, heaviest(client, s.queue)?))).collect();
        let (client, mut awake) = (client.clone(), false);
        for (queue, weight) in queues {
            let turn = (Reverse(weight), since);
            awake |= self.may_have(&client, queue) && self.precedes(&client, turn, queue).is_none();
        }
        awake
    }

    /// A client whose turn at a queue comes before this one's.
    fn precedes(&self, winner: &ClientMemo, turn: Turn, queue: QueueId) -> Option<(Turn, ClientId)> {
        // Between due events the engine may still count leases that are too old now.
        let throttle = self.queue(queue).throttle;
        if throttle.is_some_and(|throttle| throttle.timeout_ms.is_some() && throttle.per_worker_max.is_some()) {
            return None;
        }
        let own = winner.info.protocol;
        let mut waiting = self.waiting(queue);
        waiting.sort_unstable();
        let protocol = |id: ClientId| self.client(id).and_then(|client| client.info.protocol);
        let mut seen = vec![own];
        waiting.into_iter().find_map(|(other, id, _)| {
            let is_own = protocol(id) == own;
            // Others are preceded by the best of their own protocol; woken clients may have a claim to what these see.
            let is_best = !seen.contains(&protocol(id));
            seen.push(protocol(id));
            let before = (is_own && other < turn) || (is_best && self.claims(queue) == 0 && other.1 < turn.1);
            (before && id != winner.id).then_some((other, id))
        })
    }

    /// The clients that wait at a queue and may have a job of it, and whether each is asleep.
    fn waiting(&self, queue: QueueId) -> Vec<(Turn, ClientId, bool)> {
        let mut waiting = Vec::new();
        for client in &self.clients {
            let takes = client.blocked().iter().filter(|take| {
                let served = take.from.iter().find(|served| served.queue == queue);
                served.is_some_and(|served| self.first(client.id, served, &take.worker).is_some())
            });
            waiting.extend(takes.map(|take| ((Reverse(0), take.since), client.id, false)));
            if let Some(weight) = heaviest(client, queue).filter(|_| self.may_have(client, queue)) {
                waiting.extend((client.credits > 0).then_some((
                    (Reverse(weight), client.credit_since),
                    client.id,
                    false,
                )));
                if let Waiting::Asleep { since } = client.waiting {
                    waiting.push(((Reverse(weight), since), client.id, true));
                }
            }
        }
        waiting
    }

    /// Whether a sleeper or a client with credits may get a job of a queue, if it serves that queue.
    fn may_have(&self, client: &ClientMemo, queue: QueueId) -> bool {
        let served = client.subscriptions.iter().find(|served| served.queue == queue);
        !self.is_quiet(client.id) && served.is_some_and(|served| self.first(client.id, served, &[]).is_some())
    }

    /// How many woken clients may be about to take a job of a queue.
    fn claims(&self, queue: QueueId) -> usize {
        let woken = self.clients.iter().filter(|client| matches!(client.waiting, Waiting::Awake { .. }));
        woken.filter(|client| client.subscriptions.iter().any(|served| served.queue == queue)).count()
    }

    // ---- at rest ---------------------------------------------------------------------------------------------------

    /// Asserts that no client waits for a job that it may have.
    pub(crate) fn judge_rest(&self, engine: &Engine) {
        for queue in self.queues.iter().map(|queue| queue.number) {
            let claims = self.claims(queue);
            for (_, id, _) in self.waiting(queue) {
                let there = self.open_to(queue, id).len().min(self.slots_free(queue));
                assert!(there <= claims, "{id:?} waits at {queue:?} beside {there} jobs, and {claims} were woken");
            }
        }
        for client in self.clients.iter().filter(|client| client.credits > 0 && !self.is_quiet(client.id)) {
            let stray = client.subscriptions.iter().find_map(|served| self.first_stray(client.id, served));
            assert_eq!(stray, None, "{:?} waits beside a job that no client serves", client.id);
        }
        // A slot that is freed by time alone must wake the engine.
        let leased = self.jobs.iter().filter_map(|memo| {
            let over = over_at(self.queue(memo.job.queue).throttle?, memo.job.lease()?.taken_at);
            Some(over).filter(|at| *at > self.now && *at < Timestamp::NEVER)
        });
        let missed = leased.min().filter(|at| engine.next_deadline().is_none_or(|next| next > *at));
        assert_eq!(missed, None, "a slot becomes free, and the engine does not look");
    }
}

/// When a lease ceases to count.
const fn over_at(throttle: Throttle, taken_at: Timestamp) -> Timestamp {
    match throttle.timeout_ms {
        Some(ms) => taken_at.after_ms(ms),
        None => Timestamp::NEVER,
    }
}

/// The greatest weight that a client gives this queue, if it serves it.
fn heaviest(client: &ClientMemo, queue: QueueId) -> Option<u32> {
    client.subscriptions.iter().filter(|served| served.queue == queue).map(|served| served.weight).max()
}
