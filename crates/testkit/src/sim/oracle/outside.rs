//! Operations on one job by reference, queues, listings, bulk changes.

use bytes::Bytes;
use windlass_engine::{
    ClientId, Cursor, End, Event, Filter, Job, JobId, JobRef, JobState, JobStateKind, Mutation, Priority, Protocol,
    Protocols, QueueKind, Refusal, Reply, Tag, Thing, Unfit,
};

use super::{Answer, Oracle, QueueMemo, id_of};

impl Oracle {
    pub(super) fn replace(&mut self, client: ClientId, tag: Tag, job: &JobRef, body: &Bytes) -> Answer {
        let id = self.find(job)?;
        self.check_body(self.job(id).map(|memo| memo.job.queue), body)?;
        let job = &mut self.job_mut(id).job;
        job.payload = job.payload.with_body(body);
        let suits = std::mem::replace(&mut job.unfit, Unfit::NONE) == Unfit::NONE;
        if !suits && job.state == JobState::Ready {
            self.put(id, JobState::Ready);
            self.follow();
        }
        self.say_done(client, tag);
        Ok(())
    }

    pub(super) fn cancel(&mut self, client: ClientId, tag: Tag, job: &JobRef) -> Answer {
        let id = self.find(job)?;
        self.discard(id);
        self.say_done(client, tag);
        Ok(())
    }

    fn discard(&mut self, id: JobId) {
        self.count_total(id, |totals| totals.cancelled += 1);
        self.tell_end(id, &End::Cancelled);
        self.remove(id);
    }

    // ---- queues ----------------------------------------------------------------------------------------------------

    pub(super) fn create_queue(&mut self, client: ClientId, tag: Tag, name: &Bytes, kind: QueueKind) -> Answer {
        self.check_name(name)?;
        let queue = self.find_or_make_queue(name, kind)?;
        self.make_known(queue, self.protocol_of(client));
        self.say_done(client, tag);
        Ok(())
    }

    pub(super) fn remove_queue(&mut self, client: ClientId, tag: Tag, name: &Bytes, only_idle: bool) -> Answer {
        let own = self.protocol_of(client);
        let known = self.queue_named(name).filter(|queue| queue.is_known_to(own));
        let known = known.ok_or(Refusal::NotFound(Thing::Queue))?;
        let (queue, scope) = (known.number, known.scope(own));
        if only_idle && (self.workers_of(queue, scope) > 0 || self.count_live(queue, scope) > 0) {
            return Err(Refusal::InUse);
        }
        let (line, limit) = (self.ready_of(queue, scope), self.page(u32::MAX));
        line.iter().take(limit).for_each(|id| self.discard(*id));
        if line.len() > limit {
            let changed = u32::try_from(limit).unwrap_or(u32::MAX);
            self.reply(client, tag, Reply::Mutated { changed, next: Some(Cursor(0, 0)) });
            return Ok(());
        }
        let gone = self.removed_with(queue, own);
        self.queue_mut(queue).forget(gone);
        if self.queue(queue).known != Protocols::NONE {
            self.see("Remove::Beside");
        }
        self.say_done(client, tag);
        Ok(())
    }

    /// Whose settings go with a queue that a client of this protocol removes.
    fn removed_with(&self, queue: windlass_engine::QueueId, own: Option<Protocol>) -> Protocols {
        let memo = self.queue(queue);
        let Some(scope) = memo.scope(own) else { return Protocols::ALL };
        let mut jobs = self.jobs.iter().filter(|memo| memo.job.queue == queue);
        let is_other = |other: &super::ClientMemo| other.info.protocol != own && other.is_at(queue);
        let used = jobs.any(|memo| memo.job.protocol != scope) || self.clients.iter().any(is_other);
        if memo.known == Protocols::ALL && !used { Protocols::ALL } else { Protocols::of(Some(scope)) }
    }

    pub(super) fn pause_queue(&mut self, client: ClientId, tag: Tag, name: &Bytes, paused: bool) -> Answer {
        let own = self.protocol_of(client);
        if let Some((queue, scope)) = self.queue_named(name).map(|queue| (queue.number, queue.scope(own))) {
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
            self.follow();
        }
        self.say_done(client, tag);
        Ok(())
    }

    pub(super) fn limit_queue(
        &mut self,
        client: ClientId,
        tag: Tag,
        name: &Bytes,
        jobs_max: &[Option<u32>; Priority::COUNT],
    ) -> Answer {
        self.check_name(name)?;
        let queue = self.find_or_make_queue(name, QueueKind::Work)?;
        let own = self.protocol_of(client);
        self.make_known(queue, own);
        let memo = self.queue_mut(queue);
        (memo.jobs_max, memo.jobs_max_of) = (*jobs_max, memo.scope(own));
        self.say_done(client, tag);
        Ok(())
    }

    // ---- listings --------------------------------------------------------------------------------------------------

    pub(crate) fn page(&self, limit: u32) -> usize {
        limit.clamp(1, self.limits.page_max.max(1)) as usize
    }

    /// The ready jobs of one protocol, or all.
    fn ready_of(&self, queue: windlass_engine::QueueId, of: Option<Protocol>) -> Vec<JobId> {
        let mut line = self.ready_queue(queue);
        line.retain(|id| self.job(*id).is_some_and(|memo| of.is_none_or(|of| memo.job.protocol == of)));
        line
    }

    /// Subscriptions of clients that see the jobs of one protocol, or all.
    pub(crate) fn workers_of(&self, queue: windlass_engine::QueueId, of: Option<Protocol>) -> u32 {
        let sees = |client: &&super::ClientMemo| of.is_none() || client.info.protocol.is_none_or(|own| Some(own) == of);
        let subscriptions = self.clients.iter().filter(sees).flat_map(|client| &client.subscriptions);
        u32::try_from(subscriptions.filter(|served| served.queue == queue).count()).unwrap_or(u32::MAX)
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
        let limit = self.page(limit);
        let (changed, next) = match stage {
            0 => {
                let all: Vec<(u64, Protocol)> = self.live_batches().map(|batch| (batch.id.0, batch.protocol)).collect();
                self.flush_numbered(&all, protocol, at, limit, |oracle, id| oracle.flush_batch(id))
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
        let changed = u32::try_from(changed).unwrap_or(u32::MAX);
        self.reply(client, Tag(2), Reply::Mutated { changed, next });
        self.settle();
        self.forget_idle_queues();
        (next, self.finish_step())
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
        let doomed: Vec<u64> = left.iter().take(limit).filter(|row| row.1 == protocol).map(|row| row.0).collect();
        doomed.iter().for_each(|id| remove(self, JobId(*id)));
        (doomed.len(), left.get(limit).map(|row| row.0))
    }

    /// Examines all queues, known or not; forgets those without jobs, servers and limits of a protocol.
    fn flush_queues(&mut self, protocol: Protocol, at: u64, limit: usize) -> Option<u64> {
        let number = |queue: &QueueMemo| u64::from(queue.id.expect("compared after every command").0);
        let mut numbers: Vec<u64> = self.queues.iter().map(number).filter(|number| *number >= at).collect();
        numbers.sort_unstable();
        let next = numbers.get(limit).copied();
        numbers.truncate(limit);
        for index in 0..self.queues.len() {
            let queue = &self.queues[index];
            let scope = queue.scope(Some(protocol));
            let is_own = |memo: &super::JobMemo| scope.is_none_or(|own| memo.job.protocol == own);
            let empty = !self.jobs.iter().any(|memo| memo.job.queue == queue.number && is_own(memo));
            let limits = queue.limits_for(scope);
            let free = self.workers_of(queue.number, scope) == 0 && limits.iter().all(Option::is_none);
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
            && filter.queue.as_ref().is_none_or(|name| self.queue(job.queue).name == name)
            && filter.protocol.is_none_or(|protocol| job.protocol == protocol)
            && (filter.names.is_empty() || filter.names.iter().any(|name| !name.is_empty() && name == job.name()))
            && filter.conditions.iter().all(|condition| condition.holds(job, 0, None))
    }

    /// All matching jobs, in the order that a listing must have, where it must have one.
    pub(crate) fn matching(&self, filter: &Filter) -> (Vec<JobId>, bool) {
        let mut found: Vec<_> = self.jobs.iter().filter(|memo| self.matches(&memo.job, filter)).collect();
        let by_time = |state: &JobState| match state {
            JobState::Scheduled(at) | JobState::Retrying(at) | JobState::Dead(at) | JobState::Done(at) => Some(*at),
            JobState::Ready | JobState::Leased(_) | JobState::Parked => None,
        };
        let ordered = match filter.state {
            Some(_) if !filter.names.is_empty() => false,
            Some(JobStateKind::Ready) if filter.queue.is_some() => {
                found.sort_by_key(|memo| memo.sort_key());
                true
            }
            Some(JobStateKind::Scheduled | JobStateKind::Retrying | JobStateKind::Dead | JobStateKind::Done) => {
                found.sort_by_key(|memo| (by_time(&memo.job.state), memo.job.id));
                true
            }
            Some(JobStateKind::Ready | JobStateKind::Leased | JobStateKind::Parked) | None => false,
        };
        (found.into_iter().map(id_of).collect(), ordered)
    }

    pub(super) fn mutate_one(&mut self, id: JobId, action: Mutation) -> bool {
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
            Mutation::Release => self.make_ready(id, None),
        }
        true
    }

    /// Whether a bulk change applies to a job.
    pub(crate) fn would_mutate(&self, id: JobId, action: Mutation) -> bool {
        let Some(job) = self.job(id).map(|memo| &memo.job) else { return false };
        match (action, job.state.kind()) {
            (Mutation::Release, JobStateKind::Leased) => self.queue(job.queue).kind == QueueKind::Work,
            (Mutation::Cancel, _) => true,
            (Mutation::Release, _)
            | (_, JobStateKind::Leased)
            | (Mutation::Kill, JobStateKind::Dead | JobStateKind::Done | JobStateKind::Parked)
            | (Mutation::Requeue, JobStateKind::Ready | JobStateKind::Done | JobStateKind::Parked) => false,
            (Mutation::Discard | Mutation::Kill | Mutation::Requeue, _) => true,
        }
    }
}
