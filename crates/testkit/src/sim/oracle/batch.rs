//! Batches: their members, the callbacks that follow, and when they are forgotten.

use bytes::Bytes;
use windlass_engine::{
    Batch, BatchProgress, BatchView, CallbackState, Capacity, ClientId, JobId, JobStateKind,
    Member, NewBatch, NewJob, QueueKind, Refusal, Reply, Role, Stage, Thing, Timestamp,
};

use super::{Answer, Checked, Oracle};

/// A batch. A forgotten batch stays in the oracle's list: other batches may still count it.
#[derive(Clone, Debug)]
pub(crate) struct BatchMemo {
    pub(crate) id: JobId,
    pub(crate) new: NewBatch,
    parent: Option<JobId>,
    depth: u32,
    created_at: Timestamp,
    committed: bool,
    held_until: Option<Timestamp>,
    /// When it expires uncommitted, was committed, or came to rest.
    since: Timestamp,
    rests: bool,
    pub(crate) gone: bool,
    /// It was forgotten uncommitted, so no batch waits for it.
    released: bool,
    members: Vec<Share>,
    complete: Stage,
    success: Stage,
    retry_at: Timestamp,
}

/// The record that a batch keeps of one of its jobs.
#[derive(Clone, Copy, Debug)]
struct Share {
    job: JobId,
    ran: bool,
    succeeded: bool,
}

impl BatchMemo {
    fn count(&self, which: impl Fn(&Share) -> bool) -> u64 {
        self.members.iter().filter(|share| which(share)).count() as u64
    }

    fn all(&self, which: impl Fn(&Share) -> bool) -> bool {
        self.members.iter().all(which)
    }

    const fn stage(&mut self, role: Role) -> &mut Stage {
        match role {
            Role::Success => &mut self.success,
            _ => &mut self.complete,
        }
    }
}

impl Oracle {
    fn batch(&self, id: JobId) -> Option<&BatchMemo> {
        self.batches
            .iter()
            .find(|batch| batch.id == id && !batch.gone)
    }

    fn batch_mut(&mut self, id: JobId) -> Option<&mut BatchMemo> {
        self.batches
            .iter_mut()
            .find(|batch| batch.id == id && !batch.gone)
    }

    fn batch_named(&self, name: &[u8]) -> Result<&BatchMemo, Refusal> {
        let named = |batch: &&BatchMemo| batch.new.name == name && !batch.gone;
        self.batches
            .iter()
            .find(named)
            .ok_or(Refusal::NotFound(Thing::Batch))
    }

    /// The existing batches, in the engine's form.
    pub(crate) fn live_batches(&self) -> impl Iterator<Item = Batch> {
        self.batches.iter().filter(|memo| !memo.gone).map(|memo| {
            let new = &memo.new;
            let waiting = |stage: Stage, job: &Option<Box<NewJob>>| {
                job.clone().filter(|_| stage == Stage::Waiting)
            };
            Batch {
                namespace: windlass_engine::Namespace::UNNAMED,
                id: memo.id,
                name: new.name.clone(),
                protocol: new.protocol,
                parent: memo.parent,
                parent_name: new.parent.clone(),
                depth: memo.depth,
                about: new.about.clone(),
                meta: new.meta.clone(),
                created_at: memo.created_at,
                complete: waiting(memo.complete, &new.complete),
                success: waiting(memo.success, &new.success),
                progress: BatchProgress {
                    committed: memo.committed,
                    since: memo.since,
                    total: memo.count(|_| true),
                    ran: memo.count(|share| share.ran),
                    succeeded: memo.count(|share| share.succeeded),
                    incomplete: self.behind(memo.id, |child| child.complete),
                    unsuccessful: self.behind(memo.id, |child| child.success),
                    complete: memo.complete,
                    success: memo.success,
                    held_until: memo.held_until,
                },
            }
        })
    }

    /// The number of child batches that have not passed a stage.
    fn behind(&self, id: JobId, stage: impl Fn(&BatchMemo) -> Stage) -> u32 {
        let waits = |child: &&BatchMemo| {
            child.parent == Some(id) && !child.released && !stage(child).is_over()
        };
        u32::try_from(self.batches.iter().filter(waits).count()).unwrap_or(u32::MAX)
    }

    // ---- commands --------------------------------------------------------------------------------------------------

    pub(super) fn new_batch(&mut self, new: &NewBatch) -> Answer {
        self.check_name(&new.name)?;
        if self.batch_named(&new.name).is_ok() {
            return Err(Refusal::NotUnique);
        }
        let parent = new
            .parent
            .as_ref()
            .map(|name| self.batch_named(name))
            .transpose()?;
        if parent.is_some_and(|parent| parent.new.protocol != new.protocol) {
            return Err(Refusal::NotFound(Thing::Batch));
        }
        let (depth, limit) = (
            parent.map_or(0, |parent| parent.depth + 1),
            self.limits.batch_depth_max,
        );
        if depth > limit {
            return Err(Capacity::BatchDepth.exceeded(limit, limit));
        }
        let parent = parent.map(|parent| parent.id);
        let callbacks: Vec<&NewJob> = [&new.complete, &new.success]
            .into_iter()
            .flatten()
            .map(AsRef::as_ref)
            .collect();
        callbacks
            .iter()
            .try_for_each(|job| self.judge_callback(job))?;
        let bodies: usize = callbacks.iter().map(|job| job.body.len()).sum();
        let bytes = (bodies + new.about.len() + new.meta.len()) as u64;
        self.judge_bytes(bytes, 0)?;
        self.make_room(parent)?;
        self.make_way(0, bytes);
        let id = JobId(self.next_job);
        self.next_job += 1;
        self.batches.push(BatchMemo {
            id,
            new: new.clone(),
            parent,
            depth,
            created_at: self.wall(),
            committed: false,
            held_until: None,
            since: self.now.after_ms(new.expires_ms),
            rests: false,
            gone: false,
            released: false,
            members: Vec::new(),
            complete: Stage::Waiting,
            success: Stage::Waiting,
            retry_at: Timestamp(0),
        });
        Ok(Some(Reply::Done))
    }

    fn judge_callback(&self, job: &NewJob) -> Checked {
        let unique = job.unique.as_ref().map(|unique| &unique.key);
        for name in [
            Some(&job.queue),
            job.name.as_ref(),
            job.batch.as_ref(),
            unique,
        ]
        .into_iter()
        .flatten()
        {
            self.check_name(name)?;
        }
        match job {
            job if job.kind == QueueKind::Cycle => Err(Refusal::WrongKind),
            job if job.listen.is_wanted() || !job.durable || job.batch.is_some() => {
                Err(Refusal::OutOfPlace)
            }
            _ => self.check_new_body(job),
        }
    }

    fn make_room(&mut self, parent: Option<JobId>) -> Checked {
        let limit = self.limits.batches_max;
        let there = self.batches.iter().filter(|batch| !batch.gone).count();
        if there >= limit as usize {
            let rests = self
                .batches
                .iter()
                .filter(|batch| !batch.gone && batch.rests);
            let mut oldest: Vec<_> = rests.map(|batch| (batch.since, batch.id)).collect();
            oldest.sort_unstable();
            if parent.is_some() && oldest.first().map(|(_, id)| *id) == parent {
                self.see("Room::ParentStays");
            }
            let other = oldest
                .into_iter()
                .map(|(_, id)| id)
                .find(|id| Some(*id) != parent);
            self.forget_batch(other.ok_or(Capacity::Batches.exceeded(limit, limit))?);
        }
        if there > limit as usize || limit == 0 {
            Err(Capacity::Batches.exceeded(limit, limit))
        } else {
            Ok(())
        }
    }

    /// The batch, if the client sees it.
    fn batch_seen(&self, client: ClientId, name: &[u8]) -> Result<&BatchMemo, Refusal> {
        let batch = self.batch_named(name)?;
        if self.may_see(client, Some(batch.new.protocol)) {
            Ok(batch)
        } else {
            Err(Refusal::NotFound(Thing::Batch))
        }
    }

    pub(super) fn open_batch(&mut self, client: ClientId, name: &[u8], hold_ms: u64) -> Answer {
        let (id, now) = (self.batch_seen(client, name)?.id, self.now);
        let Some(batch) = self.batch_mut(id).filter(|batch| batch.committed) else {
            return Ok(Some(Reply::Done));
        };
        if batch.complete.is_over() && batch.success != Stage::Waiting {
            if batch.rests {
                batch.since = now;
            }
        } else {
            batch.held_until = batch.held_until.max(Some(now.after_ms(hold_ms)));
        }
        Ok(Some(Reply::Done))
    }

    pub(super) fn commit_batch(&mut self, client: ClientId, name: &[u8]) -> Answer {
        let (id, now) = (self.batch_seen(client, name)?.id, self.now);
        if let Some(batch) = self.batch_mut(id) {
            if !batch.committed {
                (batch.committed, batch.since) = (true, now);
            }
            batch.held_until = None;
        }
        self.stirred.push_back(id);
        Ok(Some(Reply::Done))
    }

    pub(super) fn look_batch(&mut self, client: ClientId, name: &Bytes) -> Answer {
        let memo = self.batch_seen(client, name)?;
        let state = |stage: Stage| match stage {
            Stage::Waiting | Stage::Passed => CallbackState::None,
            Stage::Enqueued => CallbackState::Enqueued,
            Stage::Succeeded => CallbackState::Ok,
        };
        let batch = Box::new(BatchView {
            namespace: bytes::Bytes::new(),
            name: name.clone(),
            protocol: memo.new.protocol,
            parent: memo.new.parent.clone(),
            about: memo.new.about.clone(),
            meta: memo.new.meta.clone(),
            created_at: memo.created_at,
            committed: memo.committed,
            total: memo.count(|_| true),
            pending: memo.count(|share| !share.succeeded),
            failed: memo.count(|share| share.ran && !share.succeeded),
            complete: state(memo.complete),
            success: state(memo.success),
            id: memo.id,
        });
        Ok(Some(Reply::Batch(batch)))
    }

    // ---- its jobs --------------------------------------------------------------------------------------------------

    pub(super) fn membership(&self, new: &NewJob) -> Result<Option<Member>, Refusal> {
        let Some(name) = &new.batch else {
            return Ok(None);
        };
        let batch = self.batch_named(name)?.id;
        let lasting = new.durable && new.kind == QueueKind::Work;
        if lasting {
            Ok(Some(Member {
                batch,
                role: Role::Job,
                ran: false,
            }))
        } else {
            Err(Refusal::OutOfPlace)
        }
    }

    fn member(&self, id: JobId) -> Option<Member> {
        self.job(id)?.job.extra.as_deref()?.member
    }

    pub(super) fn join_batch(&mut self, job: JobId, member: Option<Member>) {
        let Some(member) = member.filter(|member| member.role == Role::Job) else {
            return;
        };
        if let Some(batch) = self.batch_mut(member.batch) {
            batch.members.push(Share {
                job,
                ran: false,
                succeeded: false,
            });
        }
        self.stirred.push_back(member.batch);
    }

    /// A job of a batch has ended, or will not run any more.
    pub(super) fn ran(&mut self, id: JobId) {
        let Some(member) = self.member(id) else {
            return;
        };
        if member.role == Role::Job {
            self.job_mut(id).extra().member = Some(Member {
                ran: true,
                ..member
            });
            self.share(id, member, |share| share.ran = true);
        }
        self.stirred.push_back(member.batch);
    }

    pub(super) fn succeeded(&mut self, id: JobId) {
        self.ran(id);
        let Some(member) = self.member(id) else {
            return;
        };
        match member.role {
            Role::Job => self.share(id, member, |share| share.succeeded = true),
            role => self.end_stage(member.batch, role, Stage::Succeeded),
        }
    }

    fn share(&mut self, id: JobId, member: Member, change: impl FnOnce(&mut Share)) {
        let batch = self.batch_mut(member.batch);
        if let Some(share) =
            batch.and_then(|batch| batch.members.iter_mut().find(|share| share.job == id))
        {
            change(share);
        }
    }

    // ---- on to the callbacks ---------------------------------------------------------------------------------------

    /// Runs after a visit, and after each due event.
    pub(super) fn settle(&mut self) {
        self.serve_freed();
        self.push_reports();
        while let Some(id) = self.stirred.pop_front() {
            let may = |oracle: &Self| {
                oracle
                    .batch(id)
                    .is_some_and(|batch| batch.retry_at <= oracle.now)
            };
            while let Some(role) = self.due_callback(id).filter(|_| may(self)) {
                if !self.call_back(id, role) {
                    break;
                }
            }
        }
        for at in 0..self.batches.len() {
            let rests = self.is_at_rest(&self.batches[at]);
            let now = self.now;
            let batch = &mut self.batches[at];
            if rests && !batch.rests {
                batch.since = now;
            }
            batch.rests = rests;
        }
        self.serve_unclaimed();
    }

    fn due_callback(&self, id: JobId) -> Option<Role> {
        let batch = self
            .batch(id)
            .filter(|batch| batch.committed && batch.held_until.is_none())?;
        let complete = batch.all(|share| share.ran) && self.behind(id, |child| child.complete) == 0;
        let success =
            batch.all(|share| share.succeeded) && self.behind(id, |child| child.success) == 0;
        match (batch.complete, batch.success) {
            (Stage::Waiting, _) if complete => Some(Role::Complete),
            (Stage::Succeeded | Stage::Passed, Stage::Waiting) if success => Some(Role::Success),
            _ => None,
        }
    }

    fn call_back(&mut self, id: JobId, role: Role) -> bool {
        let Some(batch) = self.batch(id) else {
            return false;
        };
        let job = if role == Role::Success {
            &batch.new.success
        } else {
            &batch.new.complete
        };
        let Some(mut job) = job.clone() else {
            self.end_stage(id, role, Stage::Passed);
            return true;
        };
        let retry_at = self.now.after_ms(1_000);
        self.forget_idle_queues();
        let Ok(queue) = self.find_or_make_queue(&job.queue, QueueKind::Work) else {
            self.batch_mut(id)
                .into_iter()
                .for_each(|batch| batch.retry_at = retry_at);
            return false;
        };
        let taken = job
            .unique
            .as_ref()
            .is_some_and(|u| self.keyed(queue, job.protocol, &u.key).is_some());
        job.unique = job.unique.filter(|_| !taken);
        self.batch_mut(id)
            .into_iter()
            .for_each(|batch| *batch.stage(role) = Stage::Enqueued);
        self.give_birth(
            queue,
            &job,
            Some(Member {
                batch: id,
                role,
                ran: false,
            }),
        );
        true
    }

    fn end_stage(&mut self, id: JobId, role: Role, end: Stage) {
        let Some(batch) = self.batch_mut(id) else {
            return;
        };
        if !batch.stage(role).is_over() {
            *batch.stage(role) = end;
            let parent = batch.parent;
            self.stirred.push_back(id);
            self.stirred.extend(parent);
        }
    }

    // ---- and out ---------------------------------------------------------------------------------------------------

    /// Whether no event can advance it any more.
    fn is_at_rest(&self, batch: &BatchMemo) -> bool {
        let works = |kind| !matches!(kind, JobStateKind::Dead | JobStateKind::Done);
        let live = self.jobs.iter().any(|memo| {
            self.member(memo.job.id)
                .is_some_and(|m| m.batch == batch.id)
                && works(memo.job.state.kind())
        });
        let busy = |child: &BatchMemo| {
            child.parent == Some(batch.id) && !child.gone && !self.is_at_rest(child)
        };
        let open = !batch.committed || batch.held_until.is_some();
        !open && !live && self.due_callback(batch.id).is_none() && !self.batches.iter().any(busy)
    }

    /// The next deadline of a batch, or `Timestamp::NEVER`.
    pub(super) fn batch_deadline(&self, batch: &BatchMemo) -> Timestamp {
        match (batch.gone, batch.committed, batch.rests) {
            (true, ..) => Timestamp::NEVER,
            (_, false, _) => batch.since,
            _ if batch.held_until.is_some() => batch.held_until.unwrap_or(Timestamp::NEVER),
            (_, _, true) => batch.since.after_ms(self.limits.batch_keep_ms),
            _ if self.due_callback(batch.id).is_some() => batch.retry_at,
            _ => Timestamp::NEVER,
        }
    }

    pub(super) fn batch_due(&mut self, id: JobId) {
        if let Some(batch) = self
            .batch_mut(id)
            .filter(|batch| batch.held_until.is_some())
        {
            batch.held_until = None;
            return self.stirred.push_back(id);
        }
        match self.batch(id).map(|batch| (batch.committed, batch.rests)) {
            Some((true, false)) => self.stirred.push_back(id),
            Some(_) => self.forget_batch(id),
            None => {}
        }
    }

    /// Removes a batch in a flush of its protocol.
    pub(super) fn flush_batch(&mut self, id: JobId) {
        if let Some(batch) = self.batch_mut(id) {
            batch.gone = true;
            let parent = batch.parent;
            self.stirred.extend(parent);
        }
    }

    fn forget_batch(&mut self, id: JobId) {
        let Some(batch) = self.batch_mut(id) else {
            return;
        };
        (batch.gone, batch.released) = (true, !batch.committed);
        let parent = batch.parent;
        self.stirred.extend(parent);
    }

    /// Adjusts the batches after a restart.
    pub(super) fn batches_survive(&mut self) {
        self.stirred.clear();
        self.batches
            .iter_mut()
            .for_each(|batch| batch.retry_at = Timestamp(0));
    }
}
