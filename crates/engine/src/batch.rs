//! A batch: a group of jobs, and callbacks that are pushed once all of them have run. Also the table of all batches.
//!
//! Not here: what advances a batch to its callbacks (`gather`).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::ids::{JobId, Protocol, Timestamp};
use crate::request::NewJob;

/// A batch to create.
#[derive(Clone, Debug, PartialEq)]
pub struct NewBatch {
    /// The protocol of its producer.
    pub protocol: Protocol,
    /// Its unique name.
    pub name: Bytes,
    /// The name of its parent, a batch of the same protocol. The parent's callbacks wait for this batch's callbacks.
    pub parent: Option<Bytes>,
    /// A description for people.
    pub about: Bytes,
    /// Bytes that the session gets back with the batch.
    pub meta: Bytes,
    /// Pushed once every job of the batch has run, with any outcome, or can no longer run, and every batch in it has completed.
    /// Like `success`, it must be a durable job of a `work` queue without a listener and without a batch. If another job holds
    /// its coalescing key, the callback is pushed without the key.
    pub complete: Option<Box<NewJob>>,
    /// Pushed once every job of the batch, every batch in it and the `complete` callback, if any, have succeeded.
    pub success: Option<Box<NewJob>>,
    /// The batch is forgotten if it is not committed within this many milliseconds.
    pub expires_ms: u64,
}

/// A batch. Fields are public to read; only the engine writes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Its number, from the same sequence as job numbers.
    pub id: JobId,
    /// Its name.
    pub name: Bytes,
    /// The protocol of its producer.
    pub protocol: Protocol,
    /// Its parent, which may be forgotten by now.
    pub parent: Option<JobId>,
    /// The parent's name.
    pub parent_name: Option<Bytes>,
    /// Its nesting depth.
    pub depth: u32,
    /// A description for people.
    pub about: Bytes,
    /// Bytes that the session gets back with the batch.
    pub meta: Bytes,
    /// When it was created (wall clock).
    pub created_at: Timestamp,
    /// The callback, until it is pushed: see [`NewBatch::complete`].
    pub complete: Option<Box<NewJob>>,
    /// The callback, until it is pushed: see [`NewBatch::success`].
    pub success: Option<Box<NewJob>>,
    /// Its progress: changes while its jobs run.
    pub standing: BatchStanding,
}

/// The progress of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchStanding {
    /// Whether it may push its callbacks.
    pub committed: bool,
    /// Before the commit: when it is forgotten. After the commit: since when it is drained, if it is.
    pub since: Timestamp,
    /// Jobs that have joined, without callbacks and without the jobs of batches in it.
    pub total: u64,
    /// Of these, the jobs that have run, with any outcome, or that can no longer run.
    pub ran: u64,
    /// Of these, the jobs that have succeeded.
    pub succeeded: u64,
    /// Batches in it that are not yet complete.
    pub incomplete: u32,
    /// Batches in it that have not yet succeeded.
    pub unsuccessful: u32,
    /// The stage of `complete`.
    pub complete: Stage,
    /// The stage of `success`.
    pub success: Stage,
    /// The batch was opened again after its commit: it pushes nothing until it is committed again, or until this time.
    pub held_until: Option<Timestamp>,
}

/// The stage of one callback of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The conditions for the callback are not met yet.
    Waiting,
    /// The callback was pushed and has not succeeded yet.
    Enqueued,
    /// The callback has succeeded.
    Succeeded,
    /// The batch had no such callback.
    Passed,
}

impl Stage {
    /// Whether the following step may happen.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Passed)
    }
}

/// A job's membership in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The batch, which may be forgotten by now.
    pub batch: JobId,
    /// Its role.
    pub role: Role,
    /// Whether the batch has counted it as run.
    pub ran: bool,
}

/// The role of a job in its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// One of the batch's own jobs.
    Job,
    /// [`NewBatch::complete`].
    Complete,
    /// [`NewBatch::success`].
    Success,
}

impl BatchStanding {
    /// A new batch, to commit before `until`.
    #[must_use]
    pub const fn new(until: Timestamp) -> Self {
        Self {
            committed: false,
            since: until,
            total: 0,
            ran: 0,
            succeeded: 0,
            incomplete: 0,
            unsuccessful: 0,
            complete: Stage::Waiting,
            success: Stage::Waiting,
            held_until: None,
        }
    }

    /// Whether a stage is still waiting, with or without a callback.
    pub(crate) const fn has_stages_left(&self) -> bool {
        matches!(self.complete, Stage::Waiting) || matches!(self.success, Stage::Waiting)
    }
}

impl Batch {
    /// Bytes counted for it in memory limits.
    #[must_use]
    pub fn weight_bytes(&self) -> u64 {
        const FIXED: usize = 500;
        let names = [Some(&self.name), self.parent_name.as_ref(), Some(&self.about), Some(&self.meta)];
        let names: usize = names.into_iter().flatten().map(Bytes::len).sum();
        let callbacks: u64 = [&self.complete, &self.success].into_iter().flatten().map(|job| job.weight_bytes()).sum();
        (FIXED + names) as u64 + callbacks
    }

    /// The callback that is due, if any.
    pub(crate) const fn due(&self) -> Option<Role> {
        let at = &self.standing;
        if !at.committed || at.held_until.is_some() {
            None
        } else if matches!(at.complete, Stage::Waiting) && at.ran == at.total && at.incomplete == 0 {
            Some(Role::Complete)
        } else if matches!(at.success, Stage::Waiting)
            && at.complete.is_over()
            && at.succeeded == at.total
            && at.unsuccessful == 0
        {
            Some(Role::Success)
        } else {
            None
        }
    }
}

/// A batch, and the engine's data about it that is not journalled.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) batch: Batch,
    /// Its unfinished jobs, callbacks included.
    pub(crate) live: u32,
    /// Batches in it that are not drained.
    pub(crate) busy_children: u32,
    /// When to retry a callback that could not be pushed.
    pub(crate) retry_at: Timestamp,
    /// When the engine checks it next.
    due_at: Timestamp,
    /// Whether it was drained when `due_at` was set.
    rests: bool,
}

impl Kept {
    /// Whether it is drained: nothing can advance it any more. A drained batch is kept for a while, for queries.
    pub(crate) const fn is_at_rest(&self) -> bool {
        let at = &self.batch.standing;
        let is_open = !at.committed || at.held_until.is_some();
        !is_open && self.live == 0 && self.busy_children == 0 && self.batch.due().is_none()
    }
}

/// All batches, indexed by number, by name and by the time of their next check.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    by_id: BTreeMap<JobId, Kept>,
    by_name: BTreeMap<Bytes, JobId>,
    due: BTreeSet<(Timestamp, JobId)>,
    /// Drained batches, by the time they were drained.
    resting: BTreeSet<(Timestamp, JobId)>,
    bytes: u64,
}

impl Batches {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn at(&self, id: JobId) -> Option<&Batch> {
        self.by_id.get(&id).map(|kept| &kept.batch)
    }

    pub(crate) fn kept(&self, id: JobId) -> Option<&Kept> {
        self.by_id.get(&id)
    }

    /// Callers must not change its weight or its times here.
    pub(crate) fn kept_mut(&mut self, id: JobId) -> Option<&mut Kept> {
        self.by_id.get_mut(&id)
    }

    /// All batches with this number or a higher one, in order.
    pub(crate) fn from(&self, first: JobId) -> impl Iterator<Item = &Batch> {
        self.by_id.range(first..).map(|(_, kept)| &kept.batch)
    }

    pub(crate) fn named(&self, name: &[u8]) -> Option<&Batch> {
        self.at(*self.by_name.get(name)?)
    }

    /// The batch to check first, and when.
    pub(crate) fn next(&self) -> Option<(Timestamp, JobId)> {
        self.due.first().copied()
    }

    /// The batch that has been drained for longest, except `but`.
    pub(crate) fn longest_at_rest(&self, but: Option<JobId>) -> Option<JobId> {
        self.resting.iter().map(|(_, id)| *id).find(|id| Some(*id) != but)
    }

    /// Inserts a batch and counts it in its parent, if the parent exists.
    pub(crate) fn insert(&mut self, batch: Batch) {
        if let Some(parent) = batch.parent {
            self.count_busy(parent, 1);
        }
        self.bytes += batch.weight_bytes();
        self.by_name.insert(batch.name.clone(), batch.id);
        let (id, due_at) = (batch.id, Timestamp::NEVER);
        let retry_at = Timestamp(0);
        self.by_id.insert(id, Kept { batch, live: 0, busy_children: 0, retry_at, due_at, rests: false });
    }

    pub(crate) fn remove(&mut self, id: JobId) -> Option<Batch> {
        let Kept { batch, due_at, rests, .. } = self.by_id.remove(&id)?;
        self.bytes -= batch.weight_bytes();
        self.by_name.remove(&batch.name);
        self.due.remove(&(due_at, id));
        self.resting.remove(&(batch.standing.since, id));
        if let Some(parent) = batch.parent.filter(|_| !rests) {
            self.count_busy(parent, -1);
        }
        Some(batch)
    }

    /// Removes the callback of a role, for pushing it.
    pub(crate) fn take_callback(&mut self, id: JobId, role: Role) -> Option<Box<NewJob>> {
        let batch = &mut self.by_id.get_mut(&id)?.batch;
        let callback = match role {
            Role::Complete => batch.complete.take(),
            Role::Success => batch.success.take(),
            Role::Job => None,
        };
        self.bytes -= callback.as_ref().map_or(0, |job| job.weight_bytes());
        callback
    }

    /// Restores a callback that could not be pushed.
    pub(crate) fn put_callback(&mut self, id: JobId, role: Role, job: Box<NewJob>) {
        let Some(Kept { batch, .. }) = self.by_id.get_mut(&id) else { return };
        self.bytes += job.weight_bytes();
        match role {
            Role::Success => batch.success = Some(job),
            Role::Complete | Role::Job => batch.complete = Some(job),
        }
    }

    /// Updates the time of a batch's next check. A batch that drains does so at `now`; with `None` its recorded time stays.
    /// Returns whether it drained at `now`, and its parent if that must be checked because the batch drained or became active.
    pub(crate) fn set_due(&mut self, id: JobId, keep_ms: u64, now: Option<Timestamp>) -> (bool, Option<JobId>) {
        let Some(kept) = self.by_id.get_mut(&id) else { return (false, None) };
        let (rests, rested) = (kept.is_at_rest(), kept.rests);
        let comes_to_rest = rests && !rested && now.is_some();
        let at = &mut kept.batch.standing;
        if rested {
            self.resting.remove(&(at.since, id));
        }
        if comes_to_rest {
            at.since = now.unwrap_or(at.since);
        }
        if rests {
            self.resting.insert((at.since, id));
        }
        let due_at = match (at.committed, rests) {
            (false, _) => at.since,
            (true, true) => at.since.after_ms(keep_ms),
            (true, false) if kept.batch.due().is_some() => kept.retry_at,
            (true, false) => kept.batch.standing.held_until.unwrap_or(Timestamp::NEVER),
        };
        self.due.remove(&(kept.due_at, id));
        (kept.due_at, kept.rests) = (due_at, rests);
        if due_at < Timestamp::NEVER {
            self.due.insert((due_at, id));
        }
        let parent = kept.batch.parent.filter(|_| rests != rested);
        if let Some(parent) = parent {
            self.count_busy(parent, if rests { -1 } else { 1 });
        }
        (comes_to_rest, parent)
    }

    fn count_busy(&mut self, parent: JobId, by: i32) {
        if let Some(kept) = self.by_id.get_mut(&parent) {
            kept.busy_children = kept.busy_children.saturating_add_signed(by);
        }
    }

    /// Restarts the retention of a drained batch at `now`. Returns whether the batch was drained.
    pub(crate) fn touch(&mut self, id: JobId, now: Timestamp) -> bool {
        let Some(kept) = self.by_id.get_mut(&id).filter(|kept| kept.rests) else { return false };
        self.resting.remove(&(kept.batch.standing.since, id));
        kept.batch.standing.since = now;
        self.resting.insert((now, id));
        true
    }

    /// Asserts that the indexes agree. `live` counts the unfinished jobs of each batch.
    pub(crate) fn check(&self, keep_ms: u64, live: &BTreeMap<JobId, u32>) {
        let bytes: u64 = self.by_id.values().map(|kept| kept.batch.weight_bytes()).sum();
        assert_eq!(bytes, self.bytes, "bytes of batches");
        assert_eq!(self.by_name.len(), self.by_id.len(), "batches by name");
        let (mut resting, mut due) = (BTreeSet::new(), BTreeSet::new());
        for (id, kept) in &self.by_id {
            let (batch, at) = (&kept.batch, &kept.batch.standing);
            assert_eq!((*id, self.by_name.get(&batch.name)), (batch.id, Some(id)), "{:?}", batch.name);
            assert!(at.succeeded <= at.ran && at.ran <= at.total, "{id:?}: {at:?}");
            assert!(at.complete == Stage::Waiting || batch.complete.is_none(), "{id:?} kept a pushed callback");
            assert!(at.success == Stage::Waiting || batch.success.is_none(), "{id:?} kept a pushed callback");
            assert!(at.success == Stage::Waiting || at.complete.is_over(), "{id:?} succeeded before it was complete");
            let busy = self.by_id.values().filter(|child| child.batch.parent == Some(*id) && !child.is_at_rest());
            assert_eq!(busy.count(), kept.busy_children as usize, "{id:?}: batches in it");
            assert_eq!(kept.rests, kept.is_at_rest(), "{id:?} is drained");
            assert_eq!(live.get(id).copied().unwrap_or_default(), kept.live, "{id:?}: jobs of it");
            if kept.is_at_rest() {
                resting.insert((at.since, *id));
                assert_eq!(kept.due_at, at.since.after_ms(keep_ms), "{id:?} is drained");
            } else if let Some(until) = at.held_until {
                assert!(at.committed && at.has_stages_left(), "{id:?} is held without a callback left");
                assert_eq!(kept.due_at, until, "{id:?} is held");
            } else if at.committed {
                assert!(batch.due().is_some() || kept.due_at == Timestamp::NEVER, "{id:?} has a needless timer");
            } else {
                assert_eq!(kept.due_at, at.since, "{id:?} is not committed");
            }
            if kept.due_at < Timestamp::NEVER {
                due.insert((kept.due_at, *id));
            }
        }
        assert_eq!(resting, self.resting, "drained batches");
        assert_eq!(due, self.due, "batches by the time of their next check");
    }
}
