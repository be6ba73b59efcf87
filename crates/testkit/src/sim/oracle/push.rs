//! New jobs, and jobs that return to their queue.

use bytes::Bytes;
use windlass_engine::{
    Capacity, Clash, ClientId, Command, Cycle, Expiry, Extra, Job, JobCommand, JobId, JobState,
    KeyUntil, Listen, Member, NewJob, Notice, Origin, Payload, Protocol, Pushed, QueueId,
    QueueKind, Refusal, Reply, Schedule, Timestamp, Track, Unfit, Unique,
};

use super::{Answer, Checked, JobMemo, Oracle};

impl Oracle {
    pub(super) fn push(&mut self, client: ClientId, new: &NewJob) -> Answer {
        self.check_name(&new.queue)?;
        self.check_name(new.name.as_deref().unwrap_or_default())?;
        self.check_name(new.batch.as_deref().unwrap_or_default())?;
        self.check_name(new.listen.name())?;
        self.check_name(new.unique.as_ref().map_or(&[], |unique| &unique.key))?;
        if new.name_unique
            && new
                .name
                .as_ref()
                .is_some_and(|name| self.named(name, |_| true).is_some())
        {
            return Err(Refusal::NotUnique);
        }
        self.membership(new)?;
        let queue = self.find_or_make_queue(&new.queue, new.kind)?;
        let (new, rule) = match self.coalescing(client, queue, new) {
            Some(ruled) => ruled,
            None => (self.remembered(client, queue, new), None),
        };
        let new = &new;
        self.check_new_body(new)?;
        let clash = new
            .unique
            .as_ref()
            .and_then(|u| Some((self.keyed(queue, new.protocol, &u.key)?, u.clash)));
        let (id, how) = match (clash, rule) {
            (held, Some(rule)) => self.submit((client, queue), new, held, rule)?,
            (Some(held), None) => self.meet(client, held, new)?,
            (None, None) => (self.bear(client, queue, new)?, Pushed::New),
        };
        if matches!(
            self.job(id).map(|memo| &memo.job.state),
            Some(JobState::Done(_))
        ) && how != Pushed::New
        {
            self.see("Pushed::AgainWhenDone");
        }
        let durable = self.job(id).map_or(new.durable, |memo| memo.job.durable);
        Ok(Some(Reply::Pushed {
            job: id,
            how,
            durable,
        }))
    }

    /// A push to a queue that remembers jobs: its key is held until the memory of the job ends.
    fn remembered(&mut self, client: ClientId, queue: QueueId, new: &NewJob) -> NewJob {
        let mut new = new.clone();
        let Some(dedup_ms) = self.rules(queue).dedup_ms else {
            return new;
        };
        let key = match &new.unique {
            Some(unique) => Some(unique.key.clone()),
            None => new.name.clone(),
        };
        let counts =
            |key: &Bytes| !key.is_empty() && (new.protocol != Protocol::GEARMAN || key[0] != 0);
        let by_client = client != ClientId(u64::MAX) && new.durable && new.kind == QueueKind::Work;
        if let Some(key) = key.filter(|key| by_client && counts(key)) {
            new.unique = Some(Unique {
                key,
                clash: Clash::Attach,
                until: KeyUntil::Gone,
            });
            new.result_keep_ms = new.result_keep_ms.max(dedup_ms);
            self.see("Pushed::Remembered");
        }
        new
    }

    /// A client that listens to a job which has ended gets its end, after the answer.
    pub(super) fn tell_end_again(&mut self, client: ClientId, command: &Command, answer: &Answer) {
        let (
            Command::Job(JobCommand::Push(new)),
            Ok(Some(Reply::Pushed {
                job,
                how: Pushed::Attached,
                ..
            })),
        ) = (command, answer)
        else {
            return;
        };
        let done = self
            .job(*job)
            .filter(|memo| matches!(memo.job.state, JobState::Done(_)) && new.listen.is_wanted());
        if let Some(end) = done.map(JobMemo::end) {
            self.see("Repeated::EndedBefore");
            self.notify(client, Notice::Ended { job: *job, end });
        }
    }

    /// A push with the key of another job.
    pub(super) fn meet(
        &mut self,
        client: ClientId,
        (id, clash): (JobId, Clash),
        new: &NewJob,
    ) -> Result<(JobId, Pushed), Refusal> {
        match clash {
            Clash::Refuse => Err(Refusal::NotUnique),
            Clash::Keep => Ok((id, Pushed::Kept)),
            Clash::Attach => Ok((self.attach(client, id, new)?, Pushed::Attached)),
        }
    }

    fn attach(&mut self, client: ClientId, id: JobId, new: &NewJob) -> Result<JobId, Refusal> {
        let is_done = matches!(self.job_mut(id).job.state, JobState::Done(_));
        if new.listen.is_wanted() && !is_done {
            self.listen(client, id)?;
        }
        if new.durable && !is_done {
            self.outlast(id, new);
        }
        let memo = self.job_mut(id);
        if let Listen::As(name) = &new.listen
            && memo.job.durable
            && !is_done
        {
            memo.extra().collector = name.clone();
        }
        Ok(id)
    }

    /// A background push meets a job. A job that lived for its listeners is now the one that this push asked for; any job
    /// is remembered if this push is.
    fn outlast(&mut self, id: JobId, new: &NewJob) {
        let gone = new
            .unique
            .as_ref()
            .is_some_and(|unique| unique.until == KeyUntil::Gone);
        let queue = self.job_mut(id).job.queue;
        let (retry, was_durable) = (self.retry_of(queue, new), self.job_mut(id).job.durable);
        if was_durable && !gone {
            return;
        }
        let updated_at = self.wall();
        let memo = self.job_mut(id);
        if !was_durable {
            (memo.job.durable, memo.job.retry) = (true, retry);
            if new.track_ms > 0 {
                memo.extra().track = Some(Track {
                    keep_ms: new.track_ms,
                    updated_at,
                });
            }
        }
        if new.result_keep_ms
            > memo
                .job
                .extra
                .as_deref()
                .map_or(0, |extra| extra.result_keep_ms)
        {
            memo.extra().result_keep_ms = new.result_keep_ms;
        }
        if gone {
            memo.extra().key_until = KeyUntil::Gone;
            memo.holds_key = true;
        }
        self.see(if was_durable {
            "Pushed::Outlasts"
        } else {
            "Pushed::OutlastsClients"
        });
    }

    pub(super) fn listen(&mut self, client: ClientId, id: JobId) -> Checked {
        self.judge_listener(
            client,
            self.job(id).map_or(0, |memo| memo.job.listeners().len()),
        )?;
        self.job_mut(id).extra().listeners.push(client);
        Ok(())
    }

    fn judge_listener(&mut self, client: ClientId, others: usize) -> Checked {
        self.open_client(client)?;
        let limit = self.limits.listeners_max;
        if others >= limit as usize {
            Err(Capacity::QueueJobs.exceeded(limit, limit))
        } else {
            Ok(())
        }
    }

    pub(super) fn bear(
        &mut self,
        client: ClientId,
        queue: QueueId,
        new: &NewJob,
    ) -> Result<JobId, Refusal> {
        if new.listen.is_wanted() {
            self.judge_listener(client, 0)?;
        } else if !new.durable {
            return Err(Refusal::OutOfPlace);
        }
        self.judge_room(queue, new)?;
        let member = self.membership(new)?;
        self.make_way(1, new.body.len() as u64);
        let id = self.make(client, queue, new, member);
        if new.listen.is_wanted() {
            self.listen(client, id)?;
        }
        self.bring_up(id, queue);
        Ok(id)
    }

    /// A job created internally, which counts against no limit.
    pub(super) fn give_birth(&mut self, queue: QueueId, new: &NewJob, member: Option<Member>) {
        let id = self.make(ClientId(u64::MAX), queue, new, member);
        self.bring_up(id, queue);
    }

    fn bring_up(&mut self, id: JobId, queue: QueueId) {
        self.count_total(id, |totals| totals.pushed += 1);
        let (now, wall) = (self.now, self.wall());
        let is_expired = match self.job_mut(id).expires() {
            Expiry::At(at) => at <= wall,
            Expiry::By(at) => at <= now,
            Expiry::Never => false,
        };
        if is_expired {
            self.expire(id);
        }
        self.serve(queue);
    }

    fn judge_room(&self, queue: QueueId, new: &NewJob) -> Checked {
        self.judge_jobs()?;
        self.judge_bytes(new.body.len() as u64, 0)?;
        let memo = self.queue(queue);
        let held = self.count_live(queue, memo.jobs_max_of);
        match memo.limits_for(Some(new.protocol))[new.priority.lane()] {
            Some(limit) if held >= limit => Err(Capacity::QueueJobs.exceeded(held, limit)),
            Some(_) | None => Ok(()),
        }
    }

    fn origin(&self, client: ClientId, new: &NewJob) -> Origin {
        let wall = self.wall();
        let producer = self.clients.iter().find(|memo| memo.id == client);
        Origin {
            pushed_at: wall,
            due_at: new.not_before.filter(|at| *at > wall),
            producer: producer.map_or_else(Box::default, |memo| memo.info.address.clone()),
            schedule: None,
            again_of: new.again_of,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        let jobs: u64 = self.jobs.iter().map(|memo| memo.job.weight_bytes()).sum();
        let batches: u64 = self.live_batches().map(|batch| batch.weight_bytes()).sum();
        jobs + batches
            + self
                .schedules
                .iter()
                .map(Schedule::weight_bytes)
                .sum::<u64>()
    }

    fn make(
        &mut self,
        client: ClientId,
        queue: QueueId,
        new: &NewJob,
        member: Option<Member>,
    ) -> JobId {
        self.make_known(queue, Some(new.protocol));
        let is_cycle = new.kind == QueueKind::Cycle;
        let cycle = is_cycle.then(|| {
            let serial = self.next_serial(queue);
            Cycle {
                priority: if new.front { 0 } else { serial },
                boost: 0,
            }
        });
        let extra = Extra {
            meta: new.meta.clone(),
            expires: self.expiry_of(queue, new),
            key_until: new
                .unique
                .as_ref()
                .map_or(KeyUntil::End, |unique| unique.until),
            cycle,
            result_keep_ms: new.result_keep_ms,
            lease_ms: new.lease_ms,
            track: (new.track_ms > 0).then_some(Track {
                keep_ms: new.track_ms,
                updated_at: self.wall(),
            }),
            member,
            origin: Some(Box::new(self.origin(client, new))),
            collector: Bytes::copy_from_slice(if new.durable { new.listen.name() } else { &[] }),
            ..Extra::default()
        };
        let id = JobId(self.next_job);
        self.next_job += 1;
        let mut memo = JobMemo::new(Job {
            unfit: Unfit::NONE,
            id,
            queue,
            protocol: new.protocol,
            priority: new.priority,
            durable: new.durable,
            rank: self.rank(new.front && !is_cycle),
            state: new
                .not_before
                .filter(|at| *at > self.wall())
                .map_or(JobState::Ready, JobState::Scheduled),
            ready_at: self.wall(),
            payload: Payload::new(
                new.unique.as_ref().map(|unique| &*unique.key),
                new.name.as_deref().unwrap_or_default(),
                &new.body,
            ),
            attempts: 0,
            failures: 0,
            retry: self.retry_of(queue, new),
            extra: (extra != Extra::default()).then(|| Box::new(extra)),
        });
        // No other job holds the key: that would have been a conflict.
        memo.holds_key = memo.wants_key();
        self.jobs.push(memo);
        self.join_batch(id, member);
        id
    }

    /// When a new job expires: as its producer set it, or earlier if the rules of its queue are shorter.
    pub(super) fn expiry_of(&self, queue: QueueId, new: &NewJob) -> Expiry {
        let ttl_ms = self
            .rules(queue)
            .ttl_ms
            .filter(|_| new.kind == QueueKind::Work);
        let ready_at = new
            .not_before
            .filter(|at| *at > self.wall())
            .unwrap_or(self.wall());
        self.sooner(new.expires, self.by_engine(ready_at), ttl_ms)
    }

    /// The first of both: when a job expires, and the end of a time to live that begins at this moment.
    fn sooner(&self, expires: Expiry, from: Timestamp, ttl_ms: Option<u64>) -> Expiry {
        let Some(by) = ttl_ms.map(|ms| from.after_ms(ms)) else {
            return expires;
        };
        let is_sooner = match expires {
            Expiry::Never => by == Timestamp::NEVER,
            Expiry::At(at) => self.by_engine(at) <= by,
            Expiry::By(at) => at <= by,
        };
        if is_sooner { expires } else { Expiry::By(by) }
    }

    pub(super) fn next_serial(&mut self, queue: QueueId) -> u64 {
        let queue = self.queue_mut(queue);
        queue.serial += 1;
        queue.serial
    }

    /// Makes a job ready, at its own rank or at a new one; its queue becomes visible, and waiting clients are served.
    pub(super) fn make_ready(&mut self, id: JobId, rank: Option<u64>) {
        if self.job_mut(id).is_abandoned() {
            return self.remove(id);
        }
        let now = self.wall();
        let was_over = matches!(
            self.job_mut(id).job.state,
            JobState::Dead(_) | JobState::Done(_)
        );
        if !was_over && self.give_way(id, None) {
            return;
        }
        let waits = self.is_behind(id);
        if waits {
            self.see("Coalesce::Parked");
        }
        self.put(
            id,
            if waits {
                JobState::Parked
            } else {
                JobState::Ready
            },
        );
        let job = &mut self.job_mut(id).job;
        job.ready_at = now;
        job.rank = rank.unwrap_or(job.rank);
        let (queue, protocol) = (job.queue, job.protocol);
        if was_over {
            self.job_mut(id).job.unfit = Unfit::NONE;
            self.job_mut(id)
                .job
                .extra
                .iter_mut()
                .for_each(|extra| extra.losses = 0);
            self.reclaim_key(id);
        }
        self.make_known(queue, Some(protocol));
        self.serve(queue);
    }

    /// A dead job becomes ready at this time.
    pub(super) fn retry_at(&mut self, id: JobId, at: Timestamp) {
        self.put(id, JobState::Retrying(at));
        self.job_mut(id).job.unfit = Unfit::NONE;
        self.job_mut(id)
            .job
            .extra
            .iter_mut()
            .for_each(|extra| extra.losses = 0);
        self.reclaim_key(id);
        let job = &self.job_mut(id).job;
        let (queue, protocol) = (job.queue, job.protocol);
        self.make_known(queue, Some(protocol));
    }

    /// A job that is live again reclaims its key if the key is free; otherwise it loses its key.
    pub(super) fn reclaim_key(&mut self, id: JobId) {
        let memo = self.job_mut(id);
        let (wants, limit, job) = (memo.wants_key(), memo.key_limit(), memo.job.clone());
        if !wants {
            return;
        }
        let key = job.key().unwrap_or_default();
        let free = limit > self.now && self.keyed(job.queue, job.protocol, key).is_none();
        let memo = self.job_mut(id);
        memo.holds_key = free;
        if !free {
            memo.job.payload = memo.job.payload.without_key();
        }
    }

    /// A dead job moves to this queue, where it is tried again at this time. Returns whether it could.
    pub(super) fn move_dead(&mut self, id: JobId, (queue, at): (QueueId, Timestamp)) -> bool {
        let Some((job, expires)) = self.job(id).map(|memo| (memo.job.clone(), memo.expires()))
        else {
            return false;
        };
        let fits = self
            .check_body(Some(queue), &job.payload.share_body())
            .is_ok();
        if !matches!(job.state, JobState::Dead(_)) || job.cycle().is_some() || !fits {
            return false;
        }
        let rules = self.rules(queue);
        let expires = self.sooner(expires, at, rules.ttl_ms);
        let rank = self.rank(false);
        self.make_known(queue, Some(job.protocol));
        self.use_queue(queue);
        let key = job.key().map(<[u8]>::to_vec);
        let free = key
            .as_ref()
            .is_some_and(|key| self.keyed(queue, job.protocol, key).is_none());
        let memo = self.job_mut(id);
        (memo.job.queue, memo.job.state, memo.job.rank) = (queue, JobState::Retrying(at), rank);
        (memo.job.failures, memo.job.unfit, memo.job.retry) =
            (0, Unfit::NONE, rules.retry.unwrap_or(job.retry));
        if memo.job.extra.is_some() || expires != Expiry::Never {
            let extra = memo.extra();
            (extra.losses, extra.coalesced, extra.expires) = (0, None, expires);
        }
        memo.holds_key = free && memo.wants_key();
        if memo.wants_key() && !free {
            memo.job.payload = memo.job.payload.without_key();
        }
        self.see("Redrive::Elsewhere");
        true
    }
}
