//! Batches: their members, and the callbacks that the engine pushes. When a callback is due, and when a batch is forgotten, the
//! laws in `batches` judge: the oracle follows.

use windlass_engine::{
    Batch, BatchProgress, Capacity, ClientId, JobId, Member, NewBatch, NewJob, QueueKind, Refusal, Role, Stage, Tag,
    Thing, Timestamp,
};

use super::{Answer, Oracle};

/// A batch. A forgotten batch stays in the oracle's list: other batches may still count it.
#[derive(Clone, Debug)]
pub(crate) struct BatchMemo {
    /// As the engine had it after the last step, with the changes of this step.
    pub(crate) batch: Batch,
    pub(crate) gone: bool,
    /// It was forgotten uncommitted, so no batch waits for it.
    pub(crate) released: bool,
    /// Nothing could advance it any more after the last step.
    pub(crate) rested: bool,
    /// When a callback could not be pushed, because its queue could not be made.
    pub(crate) blocked_at: Option<Timestamp>,
    pub(crate) members: Vec<Share>,
}

/// The record of one of its jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    job: JobId,
    pub(crate) ran: bool,
    pub(crate) succeeded: bool,
}

impl Oracle {
    fn batch_mut(&mut self, id: JobId) -> Option<&mut BatchMemo> {
        self.batches.iter_mut().find(|memo| memo.batch.id == id && !memo.gone)
    }

    fn batch_named(&self, name: &[u8]) -> Result<&Batch, Refusal> {
        self.live_batches().find(|batch| batch.name == name).ok_or(Refusal::NotFound(Thing::Batch))
    }

    pub(crate) fn live_batches(&self) -> impl Iterator<Item = &Batch> {
        self.batches.iter().filter(|memo| !memo.gone).map(|memo| &memo.batch)
    }

    // ---- commands --------------------------------------------------------------------------------------------------

    pub(super) fn new_batch(&mut self, client: ClientId, tag: Tag, new: &NewBatch) -> Answer {
        self.check_name(&new.name)?;
        if self.batch_named(&new.name).is_ok() {
            return Err(Refusal::NotUnique);
        }
        let parent = new.parent.as_ref().map(|name| self.batch_named(name)).transpose()?;
        if parent.is_some_and(|parent| parent.protocol != new.protocol) {
            return Err(Refusal::NotFound(Thing::Batch));
        }
        let (depth, limit) = (parent.map_or(0, |parent| parent.depth + 1), self.limits.batch_depth_max);
        if depth > limit {
            return Err(Capacity::BatchDepth.exceeded(limit, limit));
        }
        let parent = parent.map(|parent| parent.id);
        let callbacks: Vec<&NewJob> = [&new.complete, &new.success].into_iter().flatten().map(AsRef::as_ref).collect();
        callbacks.iter().try_for_each(|job| self.judge_callback(job))?;
        let bodies: usize = callbacks.iter().map(|job| job.body.len()).sum();
        let bytes = (bodies + new.about.len() + new.meta.len()) as u64;
        self.judge_bytes(bytes, 0)?;
        self.make_room(parent)?;
        self.make_way(0, bytes);
        let id = JobId(self.next_job);
        self.next_job += 1;
        let NewBatch { protocol, name, parent: parent_name, about, meta, complete, success, expires_ms } = new.clone();
        let (created_at, progress) = (self.wall(), BatchProgress::new(self.now.after_ms(expires_ms)));
        let batch = Batch {
            id,
            name,
            protocol,
            parent,
            parent_name,
            depth,
            about,
            meta,
            created_at,
            complete,
            success,
            progress,
        };
        let (gone, released, rested, blocked_at, members) = (false, false, false, None, Vec::new());
        self.batches.push(BatchMemo { batch, gone, released, rested, blocked_at, members });
        self.say_done(client, tag);
        Ok(())
    }

    fn judge_callback(&self, job: &NewJob) -> Answer {
        let unique = job.unique.as_ref().map(|unique| &unique.key);
        for name in [Some(&job.queue), job.name.as_ref(), job.batch.as_ref(), unique].into_iter().flatten() {
            self.check_name(name)?;
        }
        match job {
            job if job.kind == QueueKind::Cycle => Err(Refusal::WrongKind),
            job if job.listen || !job.durable || job.batch.is_some() => Err(Refusal::OutOfPlace),
            _ => self.check_new_body(job),
        }
    }

    /// If there are too many, one that rests is forgotten: the engine chooses it.
    fn make_room(&mut self, parent: Option<JobId>) -> Answer {
        let limit = self.limits.batches_max;
        let there = self.live_batches().count();
        if there >= limit as usize {
            let missing = self.missing_batches();
            let chosen = self.live_batches().find(|batch| missing.contains(&batch.id));
            let chosen = chosen.ok_or(Capacity::Batches.exceeded(limit, limit))?;
            assert!(self.is_at_rest(chosen) && Some(chosen.id) != parent, "{chosen:?} made room");
            self.forget_batch(chosen.id);
        }
        if there > limit as usize || limit == 0 { Err(Capacity::Batches.exceeded(limit, limit)) } else { Ok(()) }
    }

    pub(super) fn open_batch(&mut self, client: ClientId, tag: Tag, name: &[u8], hold_ms: u64) -> Answer {
        let (id, until) = (self.batch_named(name)?.id, self.now.after_ms(hold_ms));
        if let Some(BatchMemo { batch: Batch { progress: at, .. }, .. }) = self.batch_mut(id) {
            let has_stages_left = [at.complete, at.success].contains(&Stage::Waiting);
            if at.committed && has_stages_left {
                at.held_until = at.held_until.max(Some(until));
            }
        }
        self.say_done(client, tag);
        Ok(())
    }

    pub(super) fn commit_batch(&mut self, client: ClientId, tag: Tag, name: &[u8]) -> Answer {
        let id = self.batch_named(name)?.id;
        if let Some(memo) = self.batch_mut(id) {
            let at = &mut memo.batch.progress;
            (at.committed, at.held_until) = (true, None);
        }
        self.say_done(client, tag);
        Ok(())
    }

    // ---- its jobs --------------------------------------------------------------------------------------------------

    pub(super) fn membership(&self, new: &NewJob) -> Result<Option<Member>, Refusal> {
        let Some(name) = &new.batch else { return Ok(None) };
        let batch = self.batch_named(name)?.id;
        let lasting = new.durable && new.kind == QueueKind::Work;
        if lasting { Ok(Some(Member { batch, role: Role::Job, ran: false })) } else { Err(Refusal::OutOfPlace) }
    }

    pub(crate) fn member(&self, id: JobId) -> Option<Member> {
        self.job(id)?.job.extra.as_deref()?.member
    }

    pub(super) fn join_batch(&mut self, job: JobId, member: Option<Member>) {
        let Some(member) = member.filter(|member| member.role == Role::Job) else { return };
        if let Some(batch) = self.batch_mut(member.batch) {
            batch.members.push(Share { job, ran: false, succeeded: false });
        }
    }

    /// A job of a batch has ended, or will not run any more.
    pub(super) fn ran(&mut self, id: JobId) {
        let Some(member) = self.member(id) else { return };
        if member.role == Role::Job {
            self.job_mut(id).extra().member = Some(Member { ran: true, ..member });
            self.share(id, member, |share| share.ran = true);
        }
    }

    pub(super) fn succeeded(&mut self, id: JobId) {
        self.ran(id);
        let Some(member) = self.member(id) else { return };
        match member.role {
            Role::Job => self.share(id, member, |share| share.succeeded = true),
            role => self.end_stage(member.batch, role, Stage::Succeeded),
        }
    }

    fn share(&mut self, id: JobId, member: Member, change: impl FnOnce(&mut Share)) {
        let batch = self.batch_mut(member.batch);
        if let Some(share) = batch.and_then(|batch| batch.members.iter_mut().find(|share| share.job == id)) {
            change(share);
        }
    }

    // ---- on to the callbacks ---------------------------------------------------------------------------------------

    /// Runs after a visit, and after each due event.
    pub(super) fn settle(&mut self) {
        self.follow();
        self.follow_callbacks();
        self.follow_with(true);
    }

    /// Pushes the callbacks that are due, as far as the engine has pushed them by the end of this step.
    pub(super) fn follow_callbacks(&mut self) {
        let now = self.now;
        while let Some((id, role, job)) = self.next_callback() {
            match job {
                None => self.end_stage(id, role, Stage::Passed),
                Some(job) => self.call_back(id, role, *job),
            }
        }
        let due: Vec<JobId> =
            self.live_batches().filter(|batch| self.due_callback(batch).is_some()).map(|b| b.id).collect();
        for id in due {
            self.batch_mut(id).into_iter().for_each(|memo| memo.blocked_at = Some(now));
        }
    }

    /// The next callback to push: if the engine still has its job, in the order of numbers.
    fn next_callback(&mut self) -> Option<(JobId, Role, Option<Box<NewJob>>)> {
        let due = |oracle: &Self| oracle.live_batches().any(|batch| oracle.due_callback(batch).is_some());
        if due(self) {
            self.forget_idle_queues();
        }
        self.live_batches().find_map(|batch| {
            let role = self.due_callback(batch)?;
            let ahead = self.ahead.iter().find(|ahead| ahead.id == batch.id);
            let has_moved = ahead.is_none_or(|ahead| stage(ahead.progress, role) != Stage::Waiting);
            let number = self.callbacks.iter().find(|(_, member)| member.batch == batch.id && member.role == role);
            let is_next = number.is_none_or(|(job, _)| job.0 == self.next_job);
            let job = if role == Role::Success { &batch.success } else { &batch.complete };
            let has_queue = job.as_ref().is_none_or(|job| self.may_make_queue(&job.queue));
            (has_moved && is_next && has_queue).then(|| (batch.id, role, job.clone()))
        })
    }

    fn call_back(&mut self, id: JobId, role: Role, mut job: NewJob) {
        let Ok(queue) = self.find_or_make_queue(&job.queue, QueueKind::Work) else { return };
        let taken = job.unique.as_ref().is_some_and(|u| self.keyed(queue, job.protocol, &u.key).is_some());
        job.unique = job.unique.filter(|_| !taken);
        if let Some(memo) = self.batch_mut(id) {
            if role == Role::Success {
                (memo.batch.success, memo.batch.progress.success) = (None, Stage::Enqueued);
            } else {
                (memo.batch.complete, memo.batch.progress.complete) = (None, Stage::Enqueued);
            }
        }
        self.give_birth(queue, &job, Some(Member { batch: id, role, ran: false }));
    }

    fn end_stage(&mut self, id: JobId, role: Role, end: Stage) {
        let Some(memo) = self.batch_mut(id).filter(|memo| !stage(memo.batch.progress, role).is_over()) else { return };
        let at = &mut memo.batch.progress;
        *(if role == Role::Success { &mut at.success } else { &mut at.complete }) = end;
    }

    // ---- and out ---------------------------------------------------------------------------------------------------

    /// When a batch expires uncommitted, or its hold ends.
    pub(super) fn batch_deadline(memo: &BatchMemo) -> Timestamp {
        match memo.batch.progress {
            _ if memo.gone => Timestamp::NEVER,
            BatchProgress { committed: false, since, .. } => since,
            BatchProgress { held_until, .. } => held_until.unwrap_or(Timestamp::NEVER),
        }
    }

    pub(super) fn batch_due(&mut self, id: JobId) {
        let Some(memo) = self.batch_mut(id) else { return };
        if memo.batch.progress.held_until.take().is_none() {
            self.forget_batch(id);
        }
    }

    /// The batches that the engine no longer has after this step.
    pub(crate) fn missing_batches(&self) -> Vec<JobId> {
        let missing = |batch: &&Batch| !self.ahead.iter().any(|ahead| ahead.id == batch.id);
        self.live_batches().filter(missing).map(|batch| batch.id).collect()
    }

    /// Follows the engine in forgetting batches that have rested long enough.
    pub(super) fn forget_rested(&mut self) {
        for id in self.missing_batches() {
            if self.batches.iter().any(|memo| memo.batch.id == id && self.may_forget(memo)) {
                self.forget_batch(id);
            }
        }
    }

    /// Removes a batch in a flush of its protocol.
    pub(super) fn flush_batch(&mut self, id: JobId) {
        self.batch_mut(id).into_iter().for_each(|memo| memo.gone = true);
    }

    fn forget_batch(&mut self, id: JobId) {
        let Some(memo) = self.batch_mut(id) else { return };
        (memo.gone, memo.released) = (true, !memo.batch.progress.committed);
    }

    /// Adjusts the batches after a restart.
    pub(super) fn batches_survive(&mut self) {
        self.batches.iter_mut().for_each(|memo| memo.blocked_at = None);
    }
}

/// The stage of a callback.
const fn stage(progress: BatchProgress, role: Role) -> Stage {
    match role {
        Role::Success => progress.success,
        Role::Complete | Role::Job => progress.complete,
    }
}
