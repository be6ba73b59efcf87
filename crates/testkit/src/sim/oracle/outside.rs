//! Operations on one job by reference, queues, listings, bulk changes.

use std::cmp::Reverse;

use std::collections::BTreeSet;

use bytes::Bytes;
use windlass_engine::{
    AttemptEnd, ClientId, ClientRow, Cursor, End, Event, Filter, Job, JobId, JobRef, JobState,
    JobStateKind, JobView, Mutation, Priority, Protocol, ProtocolStats, Protocols, QueueKind,
    QueueRow, QueueRules, Refusal, Reply, ScheduleRef, Stats, Subject, Thing, Totals, WorkerRow,
};

use super::{Answer, JobMemo, Oracle, QueueMemo, Waiting, id_of};

impl Oracle {
    pub(super) fn replace(&mut self, client: ClientId, job: &JobRef, body: &Bytes) -> Answer {
        let id = self.find(client, job)?;
        self.check_body(self.job(id).map(|memo| memo.job.queue), body)?;
        let job = &mut self.job_mut(id).job;
        job.payload = job.payload.with_body(body);
        self.suit_anew(id);
        Ok(Some(Reply::Done))
    }

    pub(super) fn cancel(&mut self, client: ClientId, job: &JobRef) -> Answer {
        let id = self.find(client, job)?;
        self.discard(id);
        Ok(Some(Reply::Done))
    }

    fn discard(&mut self, id: JobId) {
        self.count_total(id, |totals| totals.cancelled += 1);
        self.tell_end(id, &End::Cancelled);
        self.remove(id);
    }

    pub(super) fn look(&mut self, client: ClientId, which: &JobRef) -> Answer {
        let found = self.find(client, which).ok().and_then(|id| self.job(id));
        let view = |job: &Job| {
            let codec = self.rules(job.queue).codec;
            Box::new(JobView {
                namespace: bytes::Bytes::new(),
                job: job.clone(),
                queue: self.queue(job.queue).name.clone(),
                codec,
            })
        };
        let job = found.map(|memo| view(&memo.job));
        let numbered = |id: JobId| {
            self.schedule_of(client, &ScheduleRef::Id(id))
                .ok()
                .map(Box::new)
        };
        let schedule = if let JobRef::Id(id) = which {
            numbered(*id)
        } else {
            None
        };
        Ok(Some(Reply::Looked { job, schedule }))
    }

    // ---- queues ----------------------------------------------------------------------------------------------------

    pub(super) fn create_queue(
        &mut self,
        client: ClientId,
        name: &Bytes,
        kind: QueueKind,
    ) -> Answer {
        self.check_name(name)?;
        let queue = self.find_or_make_queue(name, kind)?;
        self.make_known(queue, self.protocol_of(client));
        Ok(Some(Reply::Done))
    }

    pub(super) fn remove_queue(
        &mut self,
        client: ClientId,
        name: &Bytes,
        only_idle: bool,
    ) -> Answer {
        let own = self.protocol_of(client);
        let known = self
            .queue_named(name)
            .filter(|queue| queue.is_known_to(own));
        let known = known.ok_or(Refusal::NotFound(Thing::Queue))?;
        let (queue, scope) = (known.number, known.scope(own));
        if only_idle && (self.workers_of(queue, scope) > 0 || self.count_live(queue, scope) > 0) {
            return Err(Refusal::InUse);
        }
        let is_behind = |memo: &JobMemo| {
            let job = &memo.job;
            let in_scope = scope.is_none_or(|scope| scope == job.protocol);
            in_scope
                && job.queue == queue
                && job.state == JobState::Parked
                && memo.ahead().is_some()
        };
        let mut behind = self.jobs_where(is_behind);
        behind.sort_by_key(|id| (self.job(*id).and_then(JobMemo::ahead), *id));
        let (mut line, limit) = (behind, self.page(u32::MAX));
        line.extend(self.ready_of(queue, scope));
        line.iter().take(limit).for_each(|id| self.discard(*id));
        if line.len() > limit {
            let changed = u32::try_from(limit).unwrap_or(u32::MAX);
            return Ok(Some(Reply::Mutated {
                changed,
                next: Some(Cursor(0, 0)),
            }));
        }
        let gone = self.removed_with(queue, own);
        self.queue_mut(queue).forget(gone);
        if self.queue(queue).known != Protocols::NONE {
            self.see("Remove::Beside");
        }
        Ok(Some(Reply::Done))
    }

    /// Whose settings go with a queue that a client of this protocol removes.
    fn removed_with(&self, queue: windlass_engine::QueueId, own: Option<Protocol>) -> Protocols {
        let memo = self.queue(queue);
        let Some(scope) = memo.scope(own) else {
            return Protocols::ALL;
        };
        let mut jobs = self.jobs.iter().filter(|memo| memo.job.queue == queue);
        let is_other = |other: &super::ClientMemo| other.info.protocol != own && other.is_at(queue);
        let used = jobs.any(|memo| memo.job.protocol != scope) || self.clients.iter().any(is_other);
        if memo.known == Protocols::ALL && !used {
            Protocols::ALL
        } else {
            Protocols::of(Some(scope))
        }
    }

    pub(super) fn pause_queue(&mut self, client: ClientId, name: &Bytes, paused: bool) -> Answer {
        let own = self.protocol_of(client);
        let open = self.queue_named(name).filter(|queue| queue.is_open_to(own));
        if let Some((queue, scope)) = open.map(|queue| (queue.number, queue.scope(own))) {
            let wall = self.wall();
            let memo = self.queue_mut(queue);
            if paused {
                let before = memo.paused;
                memo.paused = before.and(Protocols::of(scope));
                if memo.paused != before {
                    memo.paused_at = memo.paused_at.or(Some(wall));
                }
            } else {
                memo.paused = memo.paused.but(Protocols::of(scope));
                memo.paused_at = memo.paused_at.filter(|_| memo.paused != Protocols::NONE);
            }
            if self.queue(queue).paused.but(Protocols::of(scope)) != Protocols::NONE {
                self.see("Pause::Beside");
            }
            self.serve(queue);
        }
        Ok(Some(Reply::Done))
    }

    pub(super) fn limit_queue(
        &mut self,
        client: ClientId,
        name: &Bytes,
        jobs_max: &[Option<u32>; Priority::COUNT],
    ) -> Answer {
        self.check_name(name)?;
        let queue = self.find_or_make_queue(name, QueueKind::Work)?;
        let own = self.protocol_of(client);
        self.make_known(queue, own);
        let memo = self.queue_mut(queue);
        (memo.jobs_max, memo.jobs_max_of) = (*jobs_max, memo.scope(own));
        Ok(Some(Reply::Done))
    }

    // ---- listings --------------------------------------------------------------------------------------------------

    pub(super) fn page(&self, limit: u32) -> usize {
        limit.clamp(1, self.limits.page_max.max(1)) as usize
    }

    pub(super) fn look_queue(&mut self, client: ClientId, name: &Bytes) -> Answer {
        let own = self.protocol_of(client);
        let is_set =
            |queue: &QueueMemo| queue.throttle.is_some() || queue.rules != QueueRules::default();
        let is_shown =
            |queue: &&QueueMemo| queue.is_known_to(own) || (own.is_none() && is_set(queue));
        let known = self.queue_named(name).filter(is_shown);
        let rows = known
            .map(|queue| self.row(queue, own))
            .into_iter()
            .collect();
        Ok(Some(Reply::Queues { rows, next: None }))
    }

    pub(super) fn list_queues(&mut self, client: ClientId, after: Cursor, limit: u32) -> Answer {
        let number =
            |queue: &QueueMemo| u64::from(queue.id.expect("compared after every command").0);
        let own = self.protocol_of(client);
        let is_listed = |queue: &&QueueMemo| queue.is_known_to(own) && number(queue) >= after.0;
        let mut known: Vec<&QueueMemo> = self.queues.iter().filter(is_listed).collect();
        known.sort_by_key(|queue| number(queue));
        let limit = self.page(limit);
        let rows = known
            .iter()
            .take(limit)
            .map(|queue| self.row(queue, own))
            .collect();
        let next = known.get(limit).map(|queue| Cursor(number(queue), 0));
        Ok(Some(Reply::Queues { rows, next }))
    }

    /// The part of a queue that a client of this protocol sees.
    pub(crate) fn row(&self, queue: &QueueMemo, own: Option<Protocol>) -> QueueRow {
        let scope = queue.scope(own);
        let line = self.ready_of(queue.number, scope);
        let mut ready = [0; Priority::COUNT];
        for memo in line.iter().filter_map(|id| self.job(*id)) {
            let priority = if queue.kind == QueueKind::Cycle {
                Priority::NORMAL
            } else {
                memo.job.priority
            };
            ready[priority.lane()] += 1;
        }
        QueueRow {
            namespace: bytes::Bytes::new(),
            name: queue.name.clone(),
            kind: queue.kind,
            paused: queue.paused.within(Protocols::of(scope)),
            paused_at: queue.paused_at,
            jobs_max: queue.limits_for(scope),
            jobs_max_of: queue.jobs_max_of,
            throttle: queue.throttle,
            bridged: queue.bridged,
            rules: self.rules(queue.number),
            slots_held: self.slots_held(queue.number),
            ready,
            places: JobStateKind::ALL.map(|state| self.count(queue.number, scope, state)),
            workers: self.workers_of(queue.number, scope) + self.taking_from(queue.number, scope),
            oldest_ready_at: line
                .first()
                .and_then(|id| Some(self.job(*id)?.job.ready_at)),
            waiting: None,
            policy: None,
        }
    }

    /// The ready jobs of one protocol, or all.
    fn ready_of(&self, queue: windlass_engine::QueueId, of: Option<Protocol>) -> Vec<JobId> {
        let mut line = self.ready_queue(queue);
        line.retain(|id| {
            self.job(*id)
                .is_some_and(|memo| of.is_none_or(|of| memo.job.protocol == of))
        });
        line
    }

    /// Subscriptions of clients that see the jobs of one protocol, or all.
    fn workers_of(&self, queue: windlass_engine::QueueId, of: Option<Protocol>) -> u32 {
        let sees = |client: &&super::ClientMemo| {
            of.is_none() || client.info.protocol.is_none_or(|own| Some(own) == of)
        };
        let subscriptions = self
            .clients
            .iter()
            .filter(sees)
            .flat_map(|client| &client.subscriptions);
        u32::try_from(subscriptions.filter(|served| served.queue == queue).count())
            .unwrap_or(u32::MAX)
    }

    /// Clients that take from the queue by name: their last take was a minute ago at most, or they wait, or have a job.
    fn taking_from(&self, queue: windlass_engine::QueueId, of: Option<Protocol>) -> u32 {
        let sees = |client: &&super::ClientMemo| {
            of.is_none() || client.info.protocol.is_none_or(|own| Some(own) == of)
        };
        let takes = |client: &&super::ClientMemo| {
            let (queues, last) = &client.takes_from;
            let Some((_, at)) = queues.iter().find(|(taken, _)| *taken == queue) else {
                return false;
            };
            let by_worker = |memo: &super::JobMemo| {
                client.worker.is_some() && memo.lease_worker == client.worker
            };
            let holds = || {
                self.jobs
                    .iter()
                    .any(|memo| memo.connection() == Some(client.id) || by_worker(memo))
            };
            let subscribes = client
                .subscriptions
                .iter()
                .any(|served| served.queue == queue);
            !subscribes
                && (at.after_ms(60_000) > self.now || at == last && (client.waits() || holds()))
        };
        u32::try_from(self.clients.iter().filter(sees).filter(takes).count()).unwrap_or(u32::MAX)
    }

    pub(super) fn list_workers(&mut self, after: Cursor, limit: u32) -> Answer {
        let limit = self.page(limit);
        let listed: Vec<_> = self
            .workers
            .iter()
            .filter(|worker| worker.number >= after.0)
            .collect();
        let count = |many: usize| u32::try_from(many).unwrap_or(u32::MAX);
        let row = |worker: &&super::WorkerMemo| WorkerRow {
            namespace: bytes::Bytes::new(),
            name: worker.name.clone(),
            about: worker.about.clone(),
            protocol: worker.protocol,
            state: worker.state,
            beat_at: worker.beat_at,
            memory_bytes: worker.memory_bytes,
            connections: count(
                self.clients
                    .iter()
                    .filter(|client| client.worker == Some(worker.number))
                    .count(),
            ),
            held: count(
                self.jobs
                    .iter()
                    .filter(|memo| memo.lease_worker == Some(worker.number))
                    .count(),
            ),
            waiting: None,
            jobs: Vec::new(),
        };
        let rows = listed.iter().take(limit).map(row).collect();
        let next = listed.get(limit).map(|worker| Cursor(worker.number, 0));
        Ok(Some(Reply::Workers { rows, next }))
    }

    pub(super) fn list_clients(&mut self, asker: ClientId, after: Cursor, limit: u32) -> Answer {
        let limit = self.page(limit);
        let wanted: Vec<_> = self
            .clients
            .iter()
            .filter(|client| client.id.0 >= after.0)
            .collect();
        let held = |id: ClientId| {
            self.jobs
                .iter()
                .filter(|memo| memo.connection() == Some(id))
                .count()
        };
        let shown = |client: &super::ClientMemo, queue| {
            let of = client.info.protocol;
            of.is_none() || self.may_see(asker, of) || self.queue(queue).bridged
        };
        let served = |client: &super::ClientMemo| {
            let queues = client
                .subscriptions
                .iter()
                .map(|served| served.queue)
                .filter(|queue| shown(client, *queue));
            queues.map(|queue| self.queue(queue).name.clone()).collect()
        };
        let worker = |client: &super::ClientMemo| {
            let mut of = self
                .workers
                .iter()
                .filter(|worker| client.worker == Some(worker.number));
            of.next()
                .filter(|_| self.protocol_of(asker).is_none())
                .map_or_else(Bytes::new, |worker| worker.name.clone())
        };
        let row = |client: &&super::ClientMemo| ClientRow {
            namespace: bytes::Bytes::new(),
            id: client.id,
            number: client.info.number,
            address: client.info.address.clone(),
            label: if client.label.is_empty() {
                worker(client)
            } else {
                client.label.clone()
            },
            protocol: client.info.protocol,
            subscriptions: served(client),
            is_continued: false,
            goes_on: false,
            held: u32::try_from(held(client.id)).unwrap_or(u32::MAX),
            waits: client.credits > 0
                || matches!(client.waiting, Waiting::Jobs(_) | Waiting::Asleep { .. }),
        };
        let rows = wanted.iter().take(limit).map(row).collect();
        let next = wanted.get(limit).map(|client| Cursor(client.id.0, 0));
        Ok(Some(Reply::Clients { rows, next }))
    }

    pub(super) fn stats(&mut self, client: ClientId) -> Answer {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let in_place = |state| {
            self.jobs
                .iter()
                .filter(|memo| memo.job.state.kind() == state)
                .count() as u64
        };
        let protocols = self.protocol_stats();
        // Workers without a protocol count outside the namespaces.
        let totals = match self.protocol_of(client) {
            Some(_) => protocols
                .iter()
                .fold(Totals::default(), |all, row| all.sum(&row.totals)),
            None => self.totals,
        };
        let stats = Stats {
            totals,
            places: JobStateKind::ALL.map(in_place),
            protocols,
            jobs: self.jobs.len() as u64,
            bytes: self.bytes(),
            past_bytes: self.dead_bytes() + self.done_bytes(),
            queues: count(
                self.queues
                    .iter()
                    .filter(|queue| queue.known != Protocols::NONE)
                    .count(),
            ),
            throttled: count(
                self.queues
                    .iter()
                    .filter(|queue| queue.throttle.is_some())
                    .count(),
            ),
            clients: count(self.clients.len()),
            workers: count(self.workers.len()),
            batches: u32::try_from(self.live_batches().count()).unwrap_or(u32::MAX),
            schedules: count(self.schedules.len()),
        };
        Ok(Some(Reply::Stats(Box::new(stats))))
    }

    fn protocol_stats(&self) -> Vec<ProtocolStats> {
        let all = self
            .protocols
            .keys()
            .copied()
            .chain(self.jobs.iter().map(|memo| memo.job.protocol));
        let in_place = |protocol, state| {
            let there = |memo: &&super::JobMemo| {
                memo.job.protocol == protocol && memo.job.state.kind() == state
            };
            self.jobs.iter().filter(there).count() as u64
        };
        let row = |protocol| ProtocolStats {
            protocol,
            totals: self.protocols.get(&protocol).copied().unwrap_or_default(),
            places: JobStateKind::ALL.map(|state| in_place(protocol, state)),
        };
        all.collect::<BTreeSet<_>>().into_iter().map(row).collect()
    }

    // ---- everything of one protocol ---------------------------------------------------------------------------------

    /// One round of a flush: the first `limit` items of its stage; for jobs, those that a listing finds there.
    pub(crate) fn flush(
        &mut self,
        client: ClientId,
        protocol: Protocol,
        (stage, at): (u64, u64),
        limit: u32,
        jobs: (&[JobId], Option<u64>),
    ) -> (Option<Cursor>, Vec<(ClientId, Event)>) {
        self.begin_command();
        let limit = self.page(limit);
        let (changed, next) = match stage {
            0 => {
                let all: Vec<(u64, Protocol)> = self
                    .live_batches()
                    .map(|batch| (batch.id.0, batch.protocol))
                    .collect();
                self.flush_numbered(&all, protocol, at, limit, |oracle, id| {
                    oracle.flush_batch(id)
                })
            }
            1 => {
                jobs.0.iter().for_each(|id| self.discard(*id));
                (jobs.0.len(), jobs.1)
            }
            _ => (0, self.flush_queues(protocol, at, limit)),
        };
        let next = match next {
            Some(at) => Some(Cursor(stage, at)),
            None => (stage < 2).then_some(Cursor(stage + 1, 0)),
        };
        if next.is_none() {
            self.protocols.remove(&protocol);
        }
        (next, self.end_page(client, changed, next))
    }

    fn flush_numbered(
        &mut self,
        all: &[(u64, Protocol)],
        protocol: Protocol,
        at: u64,
        limit: usize,
        remove: impl Fn(&mut Self, JobId),
    ) -> (usize, Option<u64>) {
        let left: Vec<&(u64, Protocol)> = all.iter().filter(|(id, _)| *id >= at).collect();
        let doomed: Vec<u64> = left
            .iter()
            .take(limit)
            .filter(|row| row.1 == protocol)
            .map(|row| row.0)
            .collect();
        doomed.iter().for_each(|id| remove(self, JobId(*id)));
        (doomed.len(), left.get(limit).map(|row| row.0))
    }

    /// Examines all queues, known or not; forgets those without jobs, servers and limits of a protocol.
    fn flush_queues(&mut self, protocol: Protocol, at: u64, limit: usize) -> Option<u64> {
        let number =
            |queue: &QueueMemo| u64::from(queue.id.expect("compared after every command").0);
        let mut numbers: Vec<u64> = self
            .queues
            .iter()
            .map(number)
            .filter(|number| *number >= at)
            .collect();
        numbers.sort_unstable();
        let next = numbers.get(limit).copied();
        numbers.truncate(limit);
        for index in 0..self.queues.len() {
            let queue = &self.queues[index];
            let scope = queue.scope(Some(protocol));
            let is_own = |memo: &super::JobMemo| scope.is_none_or(|own| memo.job.protocol == own);
            let empty = !self
                .jobs
                .iter()
                .any(|memo| memo.job.queue == queue.number && is_own(memo));
            let limits = queue.limits_for(scope);
            let free =
                self.workers_of(queue.number, scope) == 0 && limits.iter().all(Option::is_none);
            let known = queue.is_known_to(Some(protocol));
            let doomed = numbers.contains(&number(queue)) && queue.kind == QueueKind::Work && known;
            if doomed && empty && free {
                let gone = self.removed_with(queue.number, Some(protocol));
                self.queues[index].forget(gone);
            }
        }
        next
    }

    // ---- jobs by filter --------------------------------------------------------------------------------------------

    pub(crate) fn matches(&self, job: &Job, filter: &Filter) -> bool {
        filter.state.is_none_or(|state| job.state.kind() == state)
            && filter
                .queue
                .as_ref()
                .is_none_or(|name| self.queue(job.queue).name == name)
            && filter
                .protocol
                .is_none_or(|protocol| job.protocol == protocol)
            && (filter.names.is_empty()
                || filter
                    .names
                    .iter()
                    .any(|name| !name.is_empty() && name == job.name()))
            && filter.conditions.iter().all(|it| {
                it.holds(
                    Subject {
                        job,
                        queue: &[],
                        batch: None,
                    },
                    0,
                    None,
                )
            })
    }

    /// All matching jobs, in the order that a listing must have, where it must have one.
    pub(crate) fn matching(&self, client: ClientId, filter: &Filter) -> (Vec<JobId>, bool) {
        let is_found =
            |memo: &&super::JobMemo| self.may_name(client, memo) && self.matches(&memo.job, filter);
        let mut found: Vec<_> = self.jobs.iter().filter(is_found).collect();
        let by_time = |state: &JobState| match state {
            JobState::Scheduled(at)
            | JobState::Retrying(at)
            | JobState::Dead(at)
            | JobState::Done(at) => Some(*at),
            JobState::Ready | JobState::Leased(_) | JobState::Parked => None,
        };
        let ordered = match filter.state {
            Some(_) if !filter.names.is_empty() || !filter.ids.is_empty() => false,
            Some(JobStateKind::Ready) if filter.queue.is_some() => {
                found.sort_by_key(|memo| memo.sort_key());
                true
            }
            Some(JobStateKind::Scheduled | JobStateKind::Retrying) => {
                found.sort_by_key(|memo| (by_time(&memo.job.state), memo.job.id));
                true
            }
            Some(JobStateKind::Dead | JobStateKind::Done) => {
                found.sort_by_key(|memo| Reverse((by_time(&memo.job.state), memo.job.id)));
                true
            }
            Some(JobStateKind::Ready | JobStateKind::Leased | JobStateKind::Parked) | None
                if filter.names.is_empty() =>
            {
                found.sort_by_key(|memo| Reverse(memo.job.id));
                filter.ids.is_empty()
            }
            Some(JobStateKind::Ready | JobStateKind::Leased | JobStateKind::Parked) | None => false,
        };
        (found.into_iter().map(id_of).collect(), ordered)
    }

    /// `before`: how many jobs the same command has changed.
    pub(super) fn mutate_one(&mut self, id: JobId, action: Mutation, before: usize) -> bool {
        if !self.would_mutate(id, action) {
            return false;
        }
        let durable = self.job_mut(id).job.durable;
        match action {
            Mutation::Kill if durable => {
                self.tell_end(id, &End::Cancelled);
                self.bury(id);
            }
            Mutation::Discard | Mutation::Cancel | Mutation::Kill => self.discard(id),
            Mutation::Requeue => {
                let rank = self.rank(false);
                self.make_ready(id, Some(rank));
            }
            Mutation::Release => {
                self.end_attempt(id, AttemptEnd::TakenBack);
                self.job_mut(id).extra().taken_back = true;
                self.make_ready(id, None);
            }
            Mutation::Redrive {
                delay_ms,
                per_second,
            } => {
                self.see("Redrive::Later");
                let at = self
                    .now
                    .after_ms(delay_ms + before as u64 * 1_000 / u64::from(per_second));
                self.retry_at(id, at);
            }
        }
        true
    }

    /// Whether a bulk change applies to a job.
    pub(crate) fn would_mutate(&self, id: JobId, action: Mutation) -> bool {
        let Some(job) = self.job(id).map(|memo| &memo.job) else {
            return false;
        };
        match (action, job.state.kind()) {
            (Mutation::Release, JobStateKind::Leased) => {
                self.queue(job.queue).kind == QueueKind::Work
            }
            (Mutation::Cancel, _) => true,
            (Mutation::Release, _)
            | (_, JobStateKind::Leased)
            | (Mutation::Kill, JobStateKind::Dead | JobStateKind::Done | JobStateKind::Parked)
            | (
                Mutation::Requeue,
                JobStateKind::Ready | JobStateKind::Done | JobStateKind::Parked,
            ) => false,
            (Mutation::Redrive { .. }, kind) => kind == JobStateKind::Dead,
            (Mutation::Discard | Mutation::Kill | Mutation::Requeue, _) => true,
        }
    }
}
