//! Batches: created, committed, inspected, advanced to their callbacks, removed.
//!
//! An event that may advance a batch only marks it (`stir`). At the end of the visit, marked batches are advanced (`settle`),
//! and their parents after them. The cost of a job's end does not depend on the number of jobs in its batch.

use bytes::Bytes;

use crate::batch::{Batch, BatchStanding, Kept, Member, NewBatch, Role, Stage};
use crate::context::{Change, Context};
use crate::engine::Engine;
use crate::event::Reply;
use crate::ids::{ClientId, JobId, Tag};
use crate::job::{Job, JobStateKind};
use crate::query::{BatchView, CallbackState};
use crate::ready::Slot;
use crate::recur::owned;
use crate::refusal::{Capacity, Refusal, Thing};
use crate::request::{NewJob, QueueKind};

/// The wait before a callback that could not be pushed is tried again: its queue may exist with the other kind.
const RETRY_MS: u64 = 1_000;

impl Engine {
    pub(crate) fn new_batch(
        &mut self,
        client: ClientId,
        tag: Tag,
        new: NewBatch,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        self.check_name(&new.name)?;
        if self.batches.named(&new.name).is_some() {
            return Err(Refusal::NotUnique);
        }
        let (parent, depth) = self.parent_of(&new)?;
        let callbacks = [&new.complete, &new.success].into_iter().flatten();
        callbacks.clone().try_for_each(|job| self.check_callback(job))?;
        let bytes: usize = callbacks.map(|job| job.body.len()).sum();
        let bytes = (bytes + new.about.len() + new.meta.len()) as u64;
        self.check_bytes_for(bytes, 0)?;
        self.make_room_for_batch(parent, context)?;
        self.make_way(0, bytes, context);
        let id = self.new_job_id(context);
        self.batches.insert(Batch {
            id,
            name: Self::own(&new.name),
            protocol: new.protocol,
            parent,
            parent_name: new.parent.as_ref().map(Self::own),
            depth,
            about: Self::own(&new.about),
            meta: Self::own(&new.meta),
            created_at: self.wall(),
            complete: new.complete.map(|job| Box::new(owned(*job))),
            success: new.success.map(|job| Box::new(owned(*job))),
            standing: BatchStanding::new(self.now.after_ms(new.expires_ms)),
        });
        context.remember(Change::BatchPut(id));
        self.stir(id);
        if let Some(parent) = parent {
            self.change_batch(parent, context, |kept| {
                let at = &mut kept.batch.standing;
                (at.incomplete, at.unsuccessful) = (at.incomplete.saturating_add(1), at.unsuccessful.saturating_add(1));
            });
        }
        self.tell_done(client, tag, context);
        Ok(())
    }

    /// The parent of a new batch, and the depth of the new batch.
    fn parent_of(&self, new: &NewBatch) -> Result<(Option<JobId>, u32), Refusal> {
        let Some(name) = &new.parent else { return Ok((None, 0)) };
        let same = |batch: &&Batch| batch.protocol == new.protocol;
        let parent = self.batches.named(name).filter(same).ok_or(Refusal::NotFound(Thing::Batch))?;
        let (depth, limit) = (parent.depth + 1, self.limits.batch_depth_max);
        if depth > limit { Err(Capacity::BatchDepth.exceeded(limit, limit)) } else { Ok((Some(parent.id), depth)) }
    }

    pub(crate) fn check_callback(&self, job: &NewJob) -> Result<(), Refusal> {
        self.check_names(job)?;
        if job.kind != QueueKind::Work {
            return Err(Refusal::WrongKind);
        }
        if job.listen || !job.durable || job.batch.is_some() || job.past.is_some() {
            Err(Refusal::OutOfPlace)
        } else {
            self.check_new_body(job)
        }
    }

    /// If the limit of batches is reached, removes one that is at rest to make room for a new one.
    fn make_room_for_batch(&mut self, parent: Option<JobId>, context: &mut Context) -> Result<(), Refusal> {
        let limit = self.limits.batches_max;
        if self.batches.len() < limit as usize {
            return Ok(());
        }
        let old = self.batches.longest_at_rest(parent);
        self.forget_batch(old.ok_or(Capacity::Batches.exceeded(limit, limit))?, false, context);
        if self.batches.len() < limit as usize { Ok(()) } else { Err(Capacity::Batches.exceeded(limit, limit)) }
    }

    /// A committed batch is held, if it has anything left to push: the client that opens it will add to it. The hold is limited
    /// in time, because that client may disappear.
    pub(crate) fn open_batch(
        &mut self,
        client: ClientId,
        tag: Tag,
        (name, hold_ms): (&Bytes, u64),
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let batch = self.batches.named(name).ok_or(Refusal::NotFound(Thing::Batch))?;
        let (id, at) = (batch.id, batch.standing);
        if at.committed && at.has_stages_left() {
            let until = self.now.after_ms(hold_ms).max(at.held_until.unwrap_or_default());
            self.change_batch(id, context, |kept| kept.batch.standing.held_until = Some(until));
        } else if self.batches.touch(id, self.now) {
            context.remember(Change::BatchMoved(id));
            self.stir(id);
        }
        self.tell_done(client, tag, context);
        Ok(())
    }

    pub(crate) fn commit_batch(
        &mut self,
        client: ClientId,
        tag: Tag,
        name: &Bytes,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let batch = self.batches.named(name).ok_or(Refusal::NotFound(Thing::Batch))?;
        let (id, at) = (batch.id, batch.standing);
        if !at.committed || at.held_until.is_some() {
            let since = if at.committed { at.since } else { self.now };
            self.change_batch(id, context, |kept| {
                let at = &mut kept.batch.standing;
                (at.committed, at.since, at.held_until) = (true, since, None);
            });
        }
        self.tell_done(client, tag, context);
        Ok(())
    }

    pub(crate) fn look_batch(
        &self,
        client: ClientId,
        tag: Tag,
        name: &Bytes,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let batch = self.batches.named(name).ok_or(Refusal::NotFound(Thing::Batch))?;
        context.reply(client, tag, Reply::Batch(Box::new(view(batch))));
        Ok(())
    }

    // ---- jobs of a batch -------------------------------------------------------------------------------------------

    /// The batch membership of a new job.
    pub(crate) fn membership(&self, new: &NewJob) -> Result<Option<Member>, Refusal> {
        let Some(name) = &new.batch else { return Ok(None) };
        let batch = self.batches.named(name).ok_or(Refusal::NotFound(Thing::Batch))?.id;
        // A batch can only wait for durable jobs of `work` queues. A job with a past may already have ended in its batch.
        if !new.durable || new.kind != QueueKind::Work || new.past.is_some() {
            return Err(Refusal::OutOfPlace);
        }
        Ok(Some(Member { batch, role: Role::Job, ran: false }))
    }

    /// Counts a new job of a batch.
    pub(crate) fn join_batch(&mut self, member: Option<Member>, context: &mut Context) {
        if let Some(member) = member.filter(|member| member.role == Role::Job) {
            self.change_batch(member.batch, context, |kept| kept.batch.standing.total += 1);
        }
    }

    /// A job of a batch ended without success, or cannot run any more. Only its first end counts.
    pub(crate) fn ran_in_batch(&mut self, slot: Slot, context: &mut Context) {
        let Some(member) = self.jobs.at_mut(slot).and_then(member_mut) else { return };
        if member.role == Role::Job && !member.ran {
            member.ran = true;
            let batch = member.batch;
            self.change_batch(batch, context, |kept| kept.batch.standing.ran += 1);
        }
    }

    /// A job of a batch succeeded.
    pub(crate) fn succeeded_in_batch(&mut self, slot: Slot, context: &mut Context) {
        self.ran_in_batch(slot, context);
        let Some(Member { batch: id, role, .. }) = self.jobs.at(slot).and_then(member) else { return };
        if role == Role::Job {
            return self.change_batch(id, context, |kept| kept.batch.standing.succeeded += 1);
        }
        self.end_stage(id, role, Stage::Succeeded, context);
    }

    /// A job of a batch entered or left a state that counts as live.
    pub(crate) fn count_live(&mut self, member: Option<Member>, kind: JobStateKind, by: i32) {
        let live = matches!(
            kind,
            JobStateKind::Ready
                | JobStateKind::Leased
                | JobStateKind::Scheduled
                | JobStateKind::Retrying
                | JobStateKind::Parked
        );
        let Some(member) = member.filter(|_| live) else { return };
        let Some(kept) = self.batches.kept_mut(member.batch) else { return };
        let before = kept.live;
        kept.live = before.saturating_add_signed(by);
        if before == 0 || kept.live == 0 {
            self.stir(member.batch);
        }
    }

    // ---- on to the callbacks ---------------------------------------------------------------------------------------

    /// Changes the state of a batch, which is advanced at the end of the visit.
    fn change_batch(&mut self, id: JobId, context: &mut Context, change: impl FnOnce(&mut Kept)) {
        if let Some(kept) = self.batches.kept_mut(id) {
            change(kept);
            context.remember(Change::BatchMoved(id));
            self.stir(id);
        }
    }

    fn stir(&mut self, id: JobId) {
        if self.stirred.back() != Some(&id) {
            self.stirred.push_back(id);
        }
    }

    /// Does the remaining work at the end of a visit. Nearly always there is none.
    pub(crate) fn settle(&mut self, context: &mut Context) {
        self.serve_freed(context);
        loop {
            while let Some(id) = self.stirred.pop_front() {
                self.settle_batch(id, context);
            }
            // Handing out a stray marks its batch.
            if !self.serve_unclaimed(context) {
                break;
            }
        }
    }

    fn settle_batch(&mut self, id: JobId, context: &mut Context) {
        let now = self.now;
        let due = |kept: &Kept| kept.batch.due().filter(|_| kept.retry_at <= now);
        while let Some(role) = self.batches.kept(id).and_then(due) {
            if !self.call_back(id, role, context) {
                break;
            }
        }
        let (comes_to_rest, parent) = self.batches.set_due(id, self.limits.batch_keep_ms, Some(now));
        if comes_to_rest {
            context.remember(Change::BatchMoved(id));
        }
        if let Some(parent) = parent {
            self.stir(parent);
        }
    }

    /// Pushes a callback, or passes a stage that has none. Returns whether that was possible.
    fn call_back(&mut self, id: JobId, role: Role, context: &mut Context) -> bool {
        let Some(job) = self.batches.take_callback(id, role) else {
            self.end_stage(id, role, Stage::Passed, context);
            return true;
        };
        let member = Member { batch: id, role, ran: false };
        if let Err(job) = self.push_callback(job, member, context) {
            self.batches.put_callback(id, role, job);
            if let Some(kept) = self.batches.kept_mut(id) {
                kept.retry_at = self.now.after_ms(RETRY_MS);
            }
            return false;
        }
        if let Some(kept) = self.batches.kept_mut(id) {
            *stage_mut(&mut kept.batch, role) = Stage::Enqueued;
        }
        context.remember(Change::BatchPut(id));
        true
    }

    /// Limits do not apply: the job replaces the callback that the batch held.
    fn push_callback(
        &mut self,
        mut job: Box<NewJob>,
        member: Member,
        context: &mut Context,
    ) -> Result<(), Box<NewJob>> {
        // Journal the dropped queues first: a new queue may get the number of one of them.
        self.tell_dropped(context);
        let Ok(queue) = self.queues.find_or_make(&job.queue, QueueKind::Work, self.limits.queues_max) else {
            return Err(job);
        };
        if job.unique.as_ref().is_some_and(|unique| self.jobs.keyed(queue, job.protocol, &unique.key).is_some()) {
            job.unique = None;
        }
        self.push_internal(queue, &job, Some(member), context);
        Ok(())
    }

    /// A callback of a batch has ended, for which the parent may be waiting.
    fn end_stage(&mut self, id: JobId, role: Role, end: Stage, context: &mut Context) {
        let Some(Kept { batch, .. }) = self.batches.kept_mut(id) else { return };
        let stage = stage_mut(batch, role);
        if stage.is_over() {
            return;
        }
        *stage = end;
        let parent = batch.parent;
        context.remember(Change::BatchMoved(id));
        self.stir(id);
        if let Some(parent) = parent {
            self.change_batch(parent, context, |kept| {
                let waits = match role {
                    Role::Success => &mut kept.batch.standing.unsuccessful,
                    Role::Complete | Role::Job => &mut kept.batch.standing.incomplete,
                };
                *waits = waits.saturating_sub(1);
            });
        }
    }

    // ---- and out ---------------------------------------------------------------------------------------------------

    /// The time of a batch has come: it was not committed, or not committed again, was at rest long enough, or must try a
    /// callback again.
    pub(crate) fn batch_due(&mut self, id: JobId, context: &mut Context) {
        let Some(kept) = self.batches.kept(id) else { return };
        let committed = kept.batch.standing.committed;
        if kept.batch.standing.held_until.is_some() {
            return self.change_batch(id, context, |kept| kept.batch.standing.held_until = None);
        }
        if committed && !kept.is_at_rest() {
            return self.stir(id);
        }
        // The parent does not wait for a batch that was never committed.
        self.forget_batch(id, !committed, context);
    }

    /// Removes a batch. Its jobs and the batches in it live on. With `release`, its parent no longer waits for it.
    pub(crate) fn forget_batch(&mut self, id: JobId, release: bool, context: &mut Context) {
        let Some(batch) = self.batches.remove(id) else { return };
        context.remember(Change::BatchGone(id));
        let Some(parent) = batch.parent else { return };
        let waits = |stage: Stage| u32::from(release && !stage.is_over());
        let (complete, success) = (waits(batch.standing.complete), waits(batch.standing.success));
        self.change_batch(parent, context, |kept| {
            let at = &mut kept.batch.standing;
            at.incomplete = at.incomplete.saturating_sub(complete);
            at.unsuccessful = at.unsuccessful.saturating_sub(success);
        });
    }
}

const fn stage_mut(batch: &mut Batch, role: Role) -> &mut Stage {
    match role {
        Role::Success => &mut batch.standing.success,
        Role::Complete | Role::Job => &mut batch.standing.complete,
    }
}

/// A job's membership in a batch, if any.
pub(crate) fn member(job: &Job) -> Option<Member> {
    job.extra.as_deref().and_then(|extra| extra.member)
}

fn member_mut(job: &mut Job) -> Option<&mut Member> {
    job.extra.as_deref_mut().and_then(|extra| extra.member.as_mut())
}

fn view(batch: &Batch) -> BatchView {
    let at = &batch.standing;
    let state = |stage: Stage| match stage {
        Stage::Waiting | Stage::Passed => CallbackState::None,
        Stage::Enqueued => CallbackState::Enqueued,
        Stage::Succeeded => CallbackState::Ok,
    };
    BatchView {
        name: batch.name.clone(),
        protocol: batch.protocol,
        parent: batch.parent_name.clone(),
        about: batch.about.clone(),
        meta: batch.meta.clone(),
        created_at: batch.created_at,
        committed: at.committed,
        total: at.total,
        pending: at.total - at.succeeded,
        failed: at.ran - at.succeeded,
        complete: state(at.complete),
        success: state(at.success),
    }
}
