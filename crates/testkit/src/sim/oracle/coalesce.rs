//! Submits of one identity: one job while it waits, and one more while it runs.

use windlass_engine::{
    Clash, ClientId, Coalesce, Coalesced, End, Engine, Job, JobId, JobState, KeySource, KeyUntil,
    NewJob, Payload, Protocol, Pushed, QueueId, QueueKind, READ_KEY, Refusal, Timestamp, Unfit,
    Unique,
};

use super::{JobMemo, Oracle};

impl Oracle {
    /// The rule that makes a push one with others, and the push with its identity for a key.
    pub(super) fn coalescing(
        &mut self,
        client: ClientId,
        queue: QueueId,
        new: &NewJob,
    ) -> Option<(NewJob, Option<Coalesce>)> {
        let rule = self.rules(queue).coalesce?;
        let is_submit =
            client != ClientId(u64::MAX) && new.kind == QueueKind::Work && new.batch.is_none();
        if is_submit && new.not_before.is_some_and(|at| at > self.wall()) {
            self.see("Coalesce::Apart");
            return Some((apart(new, rule), None));
        }
        let given = new.unique.as_ref();
        let key = if rule.by_key {
            let key = self.key_in(queue, new)?;
            if key.is_empty() {
                key
            } else {
                [READ_KEY, &key].concat()
            }
        } else {
            let given = given?.key.to_vec();
            given
                .into_iter()
                .take_while(|_| !stands_for_body(new))
                .collect()
        };
        if !is_submit || key.is_empty() {
            return None;
        }
        let unique = Some(Unique {
            key: key.into(),
            clash: Clash::Attach,
            until: KeyUntil::End,
        });
        Some((
            NewJob {
                unique,
                ..new.clone()
            },
            Some(rule),
        ))
    }

    /// What the policy of the queue reads in a new job. The script knows one place for it.
    fn key_in(&self, queue: QueueId, new: &NewJob) -> Option<Vec<u8>> {
        let Some(KeySource::Prefix(end)) = self.settings_of(queue)?.policy.key else {
            return None;
        };
        let at = new.body.iter().position(|byte| *byte == end)?;
        Some(new.body[..at].to_vec())
    }

    /// A submit by this rule, of an identity that a job may hold.
    pub(super) fn submit(
        &mut self,
        (client, queue): (ClientId, QueueId),
        new: &NewJob,
        held: Option<(JobId, Clash)>,
        rule: Coalesce,
    ) -> Result<(JobId, Pushed), Refusal> {
        let Some((id, clash)) = held else {
            return self.begin_submits((client, queue), new, rule, None);
        };
        let job = &self.job_mut(id).job;
        let (runs, over, body) = (
            job.lease().is_some(),
            is_over(&job.state),
            job.payload.body().len(),
        );
        if !runs && !over {
            if rule.latest && new.body.len() > body {
                self.judge_bytes(new.body.len() as u64, body as u64)?;
            }
            let met = self.meet(client, (id, clash), new)?;
            self.absorb(id, new, rule);
            return Ok(met);
        }
        if runs && !rule.once_more {
            self.see("Coalesce::Joined");
            return self.meet(client, (id, clash), new);
        }
        self.job_mut(id).holds_key = false;
        let begun = self.begin_submits((client, queue), new, rule, runs.then_some(id));
        if begun.is_err() {
            self.reclaim_key(id);
        }
        begun
    }

    /// The first submit of a job, which may have to wait for another job of its identity.
    fn begin_submits(
        &mut self,
        (client, queue): (ClientId, QueueId),
        new: &NewJob,
        rule: Coalesce,
        behind: Option<JobId>,
    ) -> Result<(JobId, Pushed), Refusal> {
        let since = self.wall();
        let soonest = since.after_ms(u64::from(behind.is_some()));
        let not_before = Some(self.submit_due(since, rule).max(soonest));
        let id = self.bear(
            client,
            queue,
            &NewJob {
                not_before,
                ..new.clone()
            },
        )?;
        self.see(if behind.is_some() {
            "Coalesce::Follows"
        } else {
            "Coalesce::Begins"
        });
        if let Some(memo) = self.jobs.iter_mut().find(|memo| memo.job.id == id) {
            // The rule's time is not one that the producer has set.
            if let Some(origin) = memo.extra().origin.as_deref_mut() {
                origin.due_at = new.not_before.filter(|at| *at > since);
            }
            memo.extra().coalesced = Some(Box::new(Coalesced {
                since,
                submits: 1,
                attempts: 0,
                behind,
                joined: false,
            }));
        }
        Ok((id, Pushed::New))
    }

    /// When a job is due that is submitted now, and was first at `since`.
    fn submit_due(&self, since: Timestamp, rule: Coalesce) -> Timestamp {
        let quiet = self.wall().after_ms(rule.quiet_ms);
        rule.at_most_ms
            .map_or(quiet, |ms| quiet.min(since.after_ms(ms)))
    }

    /// A submit becomes a job that waits.
    fn absorb(&mut self, id: JobId, new: &NewJob, rule: Coalesce) {
        let wall = self.wall();
        let JobMemo { job, .. } = self.job_mut(id);
        let (queue, ran) = (job.queue, job.attempts);
        let earlier = job
            .extra
            .as_deref()
            .and_then(|extra| extra.coalesced.as_deref().copied());
        let since = earlier
            .filter(|it| it.attempts == ran)
            .map_or(wall, |it| it.since);
        let due = self.submit_due(since, rule);
        let expires = self.expiry_of(
            queue,
            &NewJob {
                not_before: Some(due),
                ..new.clone()
            },
        );
        let by_engine = self.by_engine(due);
        let has_run = self.add_submits(id, 1, since);
        let memo = self.job_mut(id);
        memo.extra().expires = expires;
        if rule.latest {
            memo.extra().meta = new.meta.clone();
            let name = new.name.as_deref().unwrap_or_default();
            memo.job.payload = Payload::new(memo.job.key(), name, &new.body);
        }
        let to = match memo.job.state {
            JobState::Retrying(pause) => Some(JobState::Retrying(pause.max(by_engine))),
            JobState::Scheduled(_) => Some(JobState::Scheduled(due)),
            _ => (due > wall).then_some(JobState::Scheduled(due)),
        };
        self.see(if has_run {
            "Coalesce::AfterRun"
        } else {
            "Coalesce::Absorbed"
        });
        if let Some(to) = to {
            self.put(id, to);
        }
        self.suit_anew(id);
    }

    /// More submits became a job that waits, the first of them at `since`. Returns whether the job has run before. The
    /// worker that had it then has another number than the next one.
    fn add_submits(&mut self, id: JobId, more: u32, since: Timestamp) -> bool {
        let memo = self.job_mut(id);
        let ran = memo.job.attempts;
        let earlier = memo
            .job
            .extra
            .as_deref()
            .and_then(|extra| extra.coalesced.as_deref().copied());
        let has_run = ran > earlier.map_or(0, |it| it.attempts);
        memo.job.attempts += u32::from(has_run);
        let attempts = memo.job.attempts;
        let submits = earlier.map_or(1, |it| it.submits) + more;
        let (behind, joined) = earlier.map_or((None, false), |it| (it.behind, it.joined));
        let extra = memo.extra();
        extra.taken_back |= has_run;
        extra.coalesced = Some(Box::new(Coalesced {
            since,
            submits,
            attempts,
            behind,
            joined,
        }));
        has_run
    }

    /// A job may have another body: each protocol may try it again.
    pub(super) fn suit_anew(&mut self, id: JobId) {
        let job = &mut self.job_mut(id).job;
        let suits = std::mem::replace(&mut job.unfit, Unfit::NONE) == Unfit::NONE;
        if !suits && job.state == JobState::Ready {
            let queue = job.queue;
            self.put(id, JobState::Ready);
            self.serve(queue);
        }
    }

    // ---- one after the other ---------------------------------------------------------------------------------------

    /// Whether another job must be over before this one starts.
    pub(super) fn is_behind(&self, id: JobId) -> bool {
        let ahead = self.job(id).and_then(|memo| self.job(memo.ahead()?));
        ahead.is_some_and(|ahead| !is_over(&ahead.job.state))
    }

    /// A job is over, or gone: jobs that have waited for it are due, and the job for which it waited has its key again.
    pub(super) fn is_over(&mut self, id: JobId, ahead: Option<JobId>) {
        if let Some(memo) = ahead
            .and_then(|ahead| self.job(ahead))
            .filter(|memo| memo.wants_key())
        {
            let (ahead, job) = (memo.job.id, &memo.job);
            if self
                .keyed(job.queue, job.protocol, job.key().unwrap_or_default())
                .is_none()
            {
                self.see("Coalesce::KeyBack");
                self.job_mut(ahead).holds_key = true;
            }
        }
        let waits = |memo: &JobMemo| memo.ahead() == Some(id) && memo.job.state == JobState::Parked;
        let mut waiting = self.jobs_where(waits);
        waiting.sort_unstable();
        for follower in waiting.into_iter().rev() {
            self.free(follower, self.wall());
        }
    }

    /// Whether the end of this connection may end a job behind which another one waits.
    pub(crate) fn may_free_by(&self, client: ClientId) -> bool {
        let mut aheads = self.jobs.iter().filter_map(|memo| self.job(memo.ahead()?));
        aheads.any(|ahead| {
            ahead.connection() == Some(client) || ahead.job.listeners().contains(&client)
        })
    }

    /// A job waits for no other one any more: it is due, unless another one has the key of its identity.
    fn free(&mut self, id: JobId, at: Timestamp) {
        let was_part = self.job_mut(id).joined();
        self.see(if was_part {
            "Coalesce::PartFreed"
        } else {
            "Coalesce::Freed"
        });
        let queue = self.job_mut(id).job.queue;
        let rule = self.rules(queue).coalesce.filter(|_| was_part);
        let memo = self.job_mut(id);
        let since = memo
            .job
            .extra
            .as_deref()
            .and_then(|extra| extra.coalesced.as_deref())
            .map(|it| it.since);
        let quiet_until = rule
            .zip(since)
            .map(|(rule, since)| self.submit_due(since, rule));
        self.put(
            id,
            JobState::Scheduled(quiet_until.map_or(at, |until| at.max(until))),
        );
        self.take_key(id);
        let memo = self.job_mut(id);
        let (holds, job) = (memo.holds_key, memo.job.clone());
        let holder = job
            .key()
            .filter(|_| !holds)
            .and_then(|key| self.keyed(job.queue, job.protocol, key));
        let leads = |holder: &JobId| {
            self.job(*holder)
                .is_some_and(|memo| !is_over(&memo.job.state) && memo.ahead() != Some(id))
        };
        if let Some(lead) = holder.filter(leads) {
            self.see("Coalesce::JoinsAnother");
            self.join(id, lead);
        } else if was_part {
            self.set_ahead(id, None, false);
        }
    }

    /// The job of which a recovered one is a part, which has its key.
    fn part_of(&self, job: &Job) -> Option<JobId> {
        let coalesced = job.extra.as_deref()?.coalesced.as_deref()?;
        let lead = self.job(
            coalesced
                .behind
                .filter(|_| coalesced.joined && job.state == JobState::Parked)?,
        )?;
        assert!(
            !is_over(&lead.job.state) && lead.job.key() == job.key(),
            "{job:?} is no part of {:?}",
            lead.job
        );
        Some(lead.job.id)
    }

    // ---- a run that did not succeed gives way to what followed it --------------------------------------------------

    /// A job waits until this time after a run.
    pub(super) fn pause(&mut self, id: JobId, until: Timestamp) {
        if !self.give_way(id, Some(until)) {
            self.put(id, JobState::Retrying(until));
        }
    }

    /// A job waits again, and another one may have followed it: one of both goes on. Returns whether that placed the job.
    pub(super) fn give_way(&mut self, id: JobId, pause: Option<Timestamp>) -> bool {
        let queue = self.job_mut(id).job.queue;
        let Some(rule) = self.rules(queue).coalesce else {
            return false;
        };
        let Some(follower) = self.follower_of(id) else {
            return false;
        };
        let wall = self.wall();
        let memo = self.job_mut(follower);
        let due = if let JobState::Scheduled(at) = memo.job.state {
            at
        } else {
            wall
        };
        let coalesced = memo
            .job
            .extra
            .as_deref()
            .and_then(|extra| extra.coalesced.as_deref().copied());
        let paused = pause.map(|until| JobState::Retrying(until.max(self.by_engine(due))));
        let place = paused.or((due > wall).then_some(JobState::Scheduled(due)));
        if rule.latest {
            self.see("Coalesce::GaveWay");
            self.join(id, follower);
            if let Some(place) = place {
                self.put(follower, place);
            } else if self.job_mut(follower).job.state == JobState::Parked {
                self.make_ready(follower, None);
            }
            self.end_superfluous(id, follower);
            return true;
        }
        self.see("Coalesce::TookIn");
        let (submits, since) = coalesced.map_or((1, wall), |it| (it.submits, it.since));
        self.add_submits(id, submits, since);
        self.join(follower, id);
        let is_placed = place.is_some();
        if let Some(place) = place {
            self.put(id, place);
        }
        self.end_superfluous(follower, id);
        is_placed
    }

    /// The job that waits for the end of this one to start itself.
    pub(super) fn follower_of(&self, id: JobId) -> Option<JobId> {
        let waits = |memo: &JobMemo| {
            let state = &memo.job.state;
            memo.ahead() == Some(id)
                && !memo.joined()
                && matches!(state, JobState::Parked | JobState::Scheduled(_))
        };
        self.jobs_where(waits).into_iter().max()
    }

    fn join(&mut self, part: JobId, lead: JobId) {
        if self.job_mut(lead).ahead() == Some(part) {
            self.set_ahead(lead, None, false);
        }
        self.set_ahead(part, Some(lead), true);
        self.job_mut(part).holds_key = false;
        self.put(part, JobState::Parked);
        self.take_key(lead);
    }

    fn set_ahead(&mut self, id: JobId, behind: Option<JobId>, joined: bool) {
        let wall = self.wall();
        let first = Coalesced {
            since: wall,
            submits: 1,
            attempts: 0,
            behind: None,
            joined: false,
        };
        let coalesced = &mut self.job_mut(id).extra().coalesced;
        let it = coalesced.get_or_insert_with(|| Box::new(first));
        (it.behind, it.joined) = (behind, joined);
    }

    /// The job has its key, if no other job has it.
    fn take_key(&mut self, id: JobId) {
        let memo = self.job_mut(id);
        let (wants, job) = (memo.wants_key(), memo.job.clone());
        if wants
            && self
                .keyed(job.queue, job.protocol, job.key().unwrap_or_default())
                .is_none()
        {
            self.job_mut(id).holds_key = true;
        }
    }

    /// A part for whose end no client waits, and that is promised no more than the leading job, is gone.
    fn end_superfluous(&mut self, part: JobId, lead: JobId) {
        let lasts = self.job_mut(lead).job.durable;
        let job = &self.job_mut(part).job;
        let extra = job.extra.as_deref();
        let asks = extra.is_some_and(|it| {
            it.track.is_some() || it.result_keep_ms > 0 || !it.collector.is_empty()
        });
        if (lasts || !job.durable) && !asks && job.listeners().is_empty() {
            self.see("Coalesce::Superfluous");
            self.remove(part);
        }
    }

    /// The jobs that are a part of this one, and of its parts.
    pub(super) fn parts(&self, id: JobId) -> Vec<JobId> {
        let (mut found, mut next) = (Vec::new(), vec![id]);
        while let Some(id) = next.pop() {
            let is_part = |memo: &JobMemo| memo.ahead() == Some(id) && memo.joined();
            let mut parts = self.jobs_where(is_part);
            parts.sort_unstable();
            next.extend(&parts);
            found.extend(parts);
        }
        found
    }

    /// A job ended by a run: its parts ended so, too.
    pub(super) fn end_parts(&mut self, id: JobId, end: &End) {
        if matches!(end, End::Cancelled | End::Expired) {
            return;
        }
        for part in self.parts(id).into_iter().rev() {
            self.see("Coalesce::PartEnded");
            self.tell_listeners(part, end);
            match end {
                End::Succeeded { result, by } => self.end_well(part, result, *by),
                _ => self.end_badly(part),
            }
        }
    }

    /// After a restart: those that waited for a job whose end, or whose whole life, is forgotten are due. So are those
    /// whose release the journal does not have.
    pub(super) fn followers_survive(&mut self, engine: &Engine) {
        for id in self.jobs_where(|memo| memo.ahead().is_some()) {
            let waits = matches!(
                self.job_mut(id).job.state,
                JobState::Parked | JobState::Scheduled(_)
            );
            let parked = self.job_mut(id).job.state == JobState::Parked;
            let free = engine
                .job(id)
                .filter(|job| job.state == JobState::Scheduled(Timestamp(0)));
            if let Some(lead) = engine
                .job(id)
                .filter(|_| parked && !self.is_behind(id))
                .and_then(|job| self.part_of(job))
            {
                self.see("Coalesce::JoinedAtStart");
                self.set_ahead(id, Some(lead), true);
            } else if waits && !self.is_behind(id) && (parked || free.is_some()) {
                self.job_mut(id).job.state = JobState::Scheduled(Timestamp(0));
                if self
                    .job_mut(id)
                    .extra()
                    .coalesced
                    .as_deref()
                    .is_some_and(|it| it.joined)
                {
                    self.set_ahead(id, None, false);
                    self.left_alone.push(id);
                }
            }
        }
    }

    /// The daemon begins: parts of jobs that are gone wait for their quiet time anew.
    pub(super) fn await_quiet(&mut self) {
        for id in std::mem::take(&mut self.left_alone) {
            let Some(job) = self.job(id).map(|memo| &memo.job) else {
                continue;
            };
            let since = job
                .extra
                .as_deref()
                .and_then(|extra| extra.coalesced.as_deref())
                .map(|it| it.since);
            let until = self
                .rules(job.queue)
                .coalesce
                .zip(since)
                .map(|(rule, since)| self.submit_due(since, rule));
            if let Some(until) = until.filter(|until| *until > self.wall()) {
                self.see("Coalesce::LeftAlone");
                self.put(id, JobState::Scheduled(until));
            }
        }
    }
}

impl JobMemo {
    /// The job that must be over before this one starts.
    pub(crate) fn ahead(&self) -> Option<JobId> {
        self.job.extra.as_deref()?.coalesced.as_deref()?.behind
    }

    /// Whether it ends as the job ahead of it ends.
    pub(super) fn joined(&self) -> bool {
        self.job.state == JobState::Parked
            && self
                .job
                .extra
                .as_deref()
                .and_then(|extra| extra.coalesced.as_deref())
                .is_some_and(|it| it.joined)
    }
}

const fn is_over(state: &JobState) -> bool {
    matches!(state, JobState::Dead(_) | JobState::Done(_))
}

/// A submit with a time of its own, which by its unique id meets no submit without one.
fn apart(new: &NewJob, rule: Coalesce) -> NewJob {
    let mut new = new.clone();
    if let Some(unique) = new
        .unique
        .as_mut()
        .filter(|unique| !rule.by_key && !unique.key.is_empty())
    {
        unique.key = [READ_KEY, b"\0", &unique.key].concat().into();
    }
    new
}

/// Whether the client derives the key from the body.
fn stands_for_body(new: &NewJob) -> bool {
    let key = new.unique.as_ref().map_or(&[][..], |unique| &unique.key);
    new.protocol == Protocol::GEARMAN && key.first() == Some(&0)
}
