//! All batches: progress, the time of the next check, and the set of batches that may be advanced.
//!
//! An event that may advance a batch only marks it. Marked batches are advanced at the end of the visit,
//! followed by the parents, so that the cost of a job's end does not depend on the number of jobs in the
//! batch. Not here: the code that pushes a callback.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use super::batch::{Batch, BatchProgress, Stage};
use crate::by_namespace::{Sum, Sums};
use crate::change::Change;
use crate::ids::{JobId, Namespace, Timestamp};
use crate::jobs::{JobStateKind, Member, Role};
use crate::request::NewJob;
use crate::timers::first_at;

/// A batch, and the engine's data about it that is not journalled.
#[derive(Debug)]
struct Kept {
    batch: Batch,
    /// The unfinished jobs, callbacks included.
    live: u32,
    /// Batches in it that are not drained.
    busy_children: u32,
    /// When to retry a callback that could not be pushed.
    retry_at: Timestamp,
    /// When the engine checks it next.
    due_at: Timestamp,
    /// True if it was drained when `due_at` was set.
    rests: bool,
}

impl Kept {
    /// Returns true if the batch is drained: nothing can advance it. A drained batch is retained for a while,
    /// for queries.
    const fn is_at_rest(&self) -> bool {
        let at = &self.batch.progress;
        let is_open = !at.committed || at.held_until.is_some();
        !is_open && self.live == 0 && self.busy_children == 0 && self.batch.due().is_none()
    }
}

/// All batches, indexed by ID, by name and by the time of the next check.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    by_id: BTreeMap<JobId, Kept>,
    by_name: BTreeMap<(Namespace, Bytes), JobId>,
    due: BTreeSet<(Timestamp, JobId)>,
    /// Drained batches, by the time they were drained.
    resting: BTreeSet<(Timestamp, JobId)>,
    /// Batches that may have progressed, to advance at the end of the visit.
    dirty: VecDeque<JobId>,
    sums: Sums,
}

impl Batches {
    // ---- reading ---------------------------------------------------------------------------------------------------

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.sums.all().bytes
    }

    /// Those of a namespace; for `None`, all.
    pub(crate) fn sum_of(&self, namespace: Option<Namespace>) -> Sum {
        self.sums.of(namespace)
    }

    pub(crate) fn at(&self, id: JobId) -> Option<&Batch> {
        self.by_id.get(&id).map(|kept| &kept.batch)
    }

    /// All batches from this ID on, in order.
    pub(crate) fn from(&self, first: JobId) -> impl DoubleEndedIterator<Item = &Batch> {
        self.by_id.range(first..).map(|(_, kept)| &kept.batch)
    }

    pub(crate) fn named(&self, namespace: Namespace, name: &Bytes) -> Option<&Batch> {
        self.at(*self.by_name.get(&(namespace, name.clone()))?)
    }

    /// When a batch must be checked next.
    pub(crate) fn next_at(&self) -> Timestamp {
        first_at(&self.due)
    }

    /// The batch that has been drained for longest, except `but`.
    pub(crate) fn longest_at_rest(&self, but: Option<JobId>) -> Option<JobId> {
        self.resting
            .iter()
            .map(|(_, id)| *id)
            .find(|id| Some(*id) != but)
    }

    // ---- created and removed ---------------------------------------------------------------------------------------

    /// Creates a batch. The parent is not complete before the new batch is.
    pub(crate) fn create(&mut self, batch: Batch, changes: &mut Vec<Change>) {
        let (id, parent) = (batch.id, batch.parent);
        self.insert(batch);
        changes.push(Change::BatchPut(id));
        self.mark(id);
        if let Some(parent) = parent {
            self.change(parent, changes, |at| {
                (at.incomplete, at.unsuccessful) = (
                    at.incomplete.saturating_add(1),
                    at.unsuccessful.saturating_add(1),
                );
            });
        }
    }

    /// Inserts a batch in its present state and adds it to the parent's count, if the parent
    /// exists.
    pub(crate) fn insert(&mut self, batch: Batch) {
        if let Some(parent) = batch.parent {
            self.count_busy(parent, 1);
        }
        self.sums.add(batch.namespace, batch.weight_bytes());
        self.by_name
            .insert((batch.namespace, batch.name.clone()), batch.id);
        let (id, due_at) = (batch.id, Timestamp::NEVER);
        let retry_at = Timestamp(0);
        self.by_id.insert(
            id,
            Kept {
                batch,
                live: 0,
                busy_children: 0,
                retry_at,
                due_at,
                rests: false,
            },
        );
    }

    /// Removes a batch. Jobs and batches in it stay. With `release`, the parent no longer waits for it.
    pub(crate) fn forget(&mut self, id: JobId, release: bool, changes: &mut Vec<Change>) {
        let Some(batch) = self.remove(id) else { return };
        changes.push(Change::BatchGone(id));
        let Some(parent) = batch.parent else { return };
        let waits = |stage: Stage| u32::from(release && !stage.is_over());
        let (complete, success) = (
            waits(batch.progress.complete),
            waits(batch.progress.success),
        );
        self.change(parent, changes, |at| {
            at.incomplete = at.incomplete.saturating_sub(complete);
            at.unsuccessful = at.unsuccessful.saturating_sub(success);
        });
    }

    fn remove(&mut self, id: JobId) -> Option<Batch> {
        let Kept {
            batch,
            due_at,
            rests,
            ..
        } = self.by_id.remove(&id)?;
        self.sums.subtract(batch.namespace, batch.weight_bytes());
        self.by_name.remove(&(batch.namespace, batch.name.clone()));
        self.due.remove(&(due_at, id));
        self.resting.remove(&(batch.progress.since, id));
        if let Some(parent) = batch.parent.filter(|_| !rests) {
            self.count_busy(parent, -1);
        }
        Some(batch)
    }

    // ---- progress --------------------------------------------------------------------------------------------------

    /// Opens a batch again. If it is committed and has anything to push, it is held, because the client that
    /// opens it will add jobs. The hold is limited in time, because that client may disappear. For a drained
    /// batch only the retention is extended.
    pub(crate) fn open(
        &mut self,
        id: JobId,
        hold_ms: u64,
        now: Timestamp,
        changes: &mut Vec<Change>,
    ) {
        let Some(kept) = self.by_id.get_mut(&id) else {
            return;
        };
        let at = &mut kept.batch.progress;
        if at.committed && at.has_stages_left() {
            let until = now.after_ms(hold_ms).max(at.held_until.unwrap_or_default());
            self.change(id, changes, |at| at.held_until = Some(until));
        } else if kept.rests {
            self.resting.remove(&(at.since, id));
            at.since = now;
            self.resting.insert((now, id));
            changes.push(Change::BatchMoved(id));
            self.mark(id);
        }
    }

    pub(crate) fn commit(&mut self, id: JobId, now: Timestamp, changes: &mut Vec<Change>) {
        let Some(at) = self.at(id).map(|batch| batch.progress) else {
            return;
        };
        if !at.committed || at.held_until.is_some() {
            let since = if at.committed { at.since } else { now };
            self.change(id, changes, |at| {
                (at.committed, at.since, at.held_until) = (true, since, None)
            });
        }
    }

    /// A new job joins a batch.
    pub(crate) fn join(&mut self, member: Member, changes: &mut Vec<Change>) {
        if member.role == Role::Job {
            self.change(member.batch, changes, |at| at.total += 1);
        }
    }

    /// Records that a job of a batch ended for the first time, or can no longer run.
    pub(crate) fn count_run(&mut self, id: JobId, changes: &mut Vec<Change>) {
        self.change(id, changes, |at| at.ran += 1);
    }

    /// A job of a batch succeeded.
    pub(crate) fn count_success(&mut self, member: Member, changes: &mut Vec<Change>) {
        match member.role {
            Role::Job => self.change(member.batch, changes, |at| at.succeeded += 1),
            Role::Complete | Role::Success => {
                self.end_stage(member.batch, member.role, Stage::Succeeded, changes)
            }
        }
    }

    /// Records that a job of a batch entered a state (1) or left it (-1).
    #[inline]
    pub(crate) fn count_live(&mut self, member: Option<Member>, kind: JobStateKind, by: i32) {
        let live = !matches!(kind, JobStateKind::Dead | JobStateKind::Done);
        let Some(id) = member.filter(|_| live).map(|member| member.batch) else {
            return;
        };
        let Some(kept) = self.by_id.get_mut(&id) else {
            return;
        };
        let before = kept.live;
        kept.live = before.saturating_add_signed(by);
        if before == 0 || kept.live == 0 {
            self.mark(id);
        }
    }

    /// Modifies the progress of a batch, which is advanced at the end of the visit.
    fn change(
        &mut self,
        id: JobId,
        changes: &mut Vec<Change>,
        change: impl FnOnce(&mut BatchProgress),
    ) {
        if let Some(kept) = self.by_id.get_mut(&id) {
            change(&mut kept.batch.progress);
            changes.push(Change::BatchMoved(id));
            self.mark(id);
        }
    }

    /// Marks a batch that may have progressed.
    fn mark(&mut self, id: JobId) {
        if self.dirty.back() != Some(&id) {
            self.dirty.push_back(id);
        }
    }

    /// The next batch that may have progressed.
    pub(crate) fn pop_dirty(&mut self) -> Option<JobId> {
        self.dirty.pop_front()
    }

    // ---- callbacks -------------------------------------------------------------------------------------------------

    /// The callback of a batch that is due, if any.
    pub(crate) fn due_callback(&self, id: JobId, now: Timestamp) -> Option<Role> {
        self.by_id
            .get(&id)
            .filter(|kept| kept.retry_at <= now)?
            .batch
            .due()
    }

    /// Removes the callback of a role, for pushing it.
    pub(crate) fn take_callback(&mut self, id: JobId, role: Role) -> Option<Box<NewJob>> {
        let batch = &mut self.by_id.get_mut(&id)?.batch;
        let callback = batch.callback_mut(role).take();
        let bytes = callback.as_ref().map_or(0, |job| job.weight_bytes());
        self.sums.move_to(batch.namespace, bytes, 0);
        callback
    }

    /// Restores a callback that could not be pushed, to retry at this time.
    pub(crate) fn put_callback(
        &mut self,
        id: JobId,
        role: Role,
        job: Box<NewJob>,
        retry_at: Timestamp,
    ) {
        let Some(kept) = self.by_id.get_mut(&id) else {
            return;
        };
        self.sums
            .move_to(kept.batch.namespace, 0, job.weight_bytes());
        kept.retry_at = retry_at;
        *kept.batch.callback_mut(role) = Some(job);
    }

    /// A callback was pushed.
    pub(crate) fn callback_pushed(&mut self, id: JobId, role: Role, changes: &mut Vec<Change>) {
        if let Some(kept) = self.by_id.get_mut(&id) {
            *kept.batch.progress.stage_mut(role) = Stage::Enqueued;
        }
        changes.push(Change::BatchPut(id));
    }

    /// Records that a callback of a batch has finished, or does not exist. The parent may be
    /// waiting for that.
    pub(crate) fn end_stage(
        &mut self,
        id: JobId,
        role: Role,
        end: Stage,
        changes: &mut Vec<Change>,
    ) {
        let Some(batch) = self
            .at(id)
            .filter(|batch| !batch.progress.stage(role).is_over())
        else {
            return;
        };
        let parent = batch.parent;
        self.change(id, changes, |at| *at.stage_mut(role) = end);
        if let Some(parent) = parent {
            self.change(parent, changes, |at| {
                let waits = if role == Role::Success {
                    &mut at.unsuccessful
                } else {
                    &mut at.incomplete
                };
                *waits = waits.saturating_sub(1);
            });
        }
    }

    // ---- time ------------------------------------------------------------------------------------------------------

    /// Handles the time of the next check: the batch was not committed (again), was idle long enough, or must
    /// retry a callback.
    pub(crate) fn come_due(&mut self, changes: &mut Vec<Change>) {
        let Some((_, id)) = self.due.first().copied() else {
            return;
        };
        let Some(kept) = self.by_id.get(&id) else {
            return;
        };
        let committed = kept.batch.progress.committed;
        if kept.batch.progress.held_until.is_some() {
            self.change(id, changes, |at| at.held_until = None);
        } else if committed && !kept.is_at_rest() {
            self.mark(id);
        } else {
            // The parent does not wait for a batch that was never committed.
            self.forget(id, !committed, changes);
        }
    }

    /// Updates the time of the next check after a batch was advanced as far as possible. If it drained or
    /// became active, the parent is marked.
    pub(crate) fn advanced(
        &mut self,
        id: JobId,
        keep_ms: u64,
        now: Timestamp,
        changes: &mut Vec<Change>,
    ) {
        let (drained, parent) = self.set_due(id, keep_ms, Some(now));
        if drained {
            changes.push(Change::BatchMoved(id));
        }
        if let Some(parent) = parent {
            self.mark(parent);
        }
    }

    /// Sets the times of the next checks after all batches were restored from the journal.
    pub(crate) fn recalled(&mut self, keep_ms: u64) {
        self.dirty.clear();
        let batches: Vec<JobId> = self.by_id.keys().copied().collect();
        // The youngest first: a batch may be part of an older one.
        for id in batches.into_iter().rev() {
            self.set_due(id, keep_ms, None);
        }
    }

    /// Updates the time of a batch's next check. A batch that drains does so at `now`; with `None` the
    /// recorded time stays. Returns `true` if it drained at `now`, and the parent if that must be checked
    /// because the batch drained or became active.
    fn set_due(
        &mut self,
        id: JobId,
        keep_ms: u64,
        now: Option<Timestamp>,
    ) -> (bool, Option<JobId>) {
        let Some(kept) = self.by_id.get_mut(&id) else {
            return (false, None);
        };
        let (rests, rested) = (kept.is_at_rest(), kept.rests);
        let comes_to_rest = rests && !rested && now.is_some();
        let at = &mut kept.batch.progress;
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
            (true, false) => kept.batch.progress.held_until.unwrap_or(Timestamp::NEVER),
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

    // ---- invariants ------------------------------------------------------------------------------------------------

    /// Asserts that the indexes agree. `live` contains the number of unfinished jobs of each batch.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(crate) fn check(&self, keep_ms: u64, live: &BTreeMap<JobId, u32>) {
        assert!(self.dirty.is_empty(), "batches are left to advance");
        let bytes: u64 = self
            .by_id
            .values()
            .map(|kept| kept.batch.weight_bytes())
            .sum();
        assert_eq!(bytes, self.bytes(), "bytes of batches");
        assert_eq!(self.by_name.len(), self.by_id.len(), "batches by name");
        let (mut resting, mut due) = (BTreeSet::new(), BTreeSet::new());
        for (id, kept) in &self.by_id {
            let (batch, at) = (&kept.batch, &kept.batch.progress);
            assert_eq!(
                (
                    *id,
                    self.by_name.get(&(batch.namespace, batch.name.clone()))
                ),
                (batch.id, Some(id)),
                "{:?}",
                batch.name
            );
            assert!(
                at.succeeded <= at.ran && at.ran <= at.total,
                "{id:?}: {at:?}"
            );
            assert!(
                at.complete == Stage::Waiting || batch.complete.is_none(),
                "{id:?} kept a pushed callback"
            );
            assert!(
                at.success == Stage::Waiting || batch.success.is_none(),
                "{id:?} kept a pushed callback"
            );
            assert!(
                at.success == Stage::Waiting || at.complete.is_over(),
                "{id:?} succeeded before it was complete"
            );
            let busy = self
                .by_id
                .values()
                .filter(|child| child.batch.parent == Some(*id) && !child.is_at_rest());
            assert_eq!(
                busy.count(),
                kept.busy_children as usize,
                "{id:?}: batches in it"
            );
            assert_eq!(kept.rests, kept.is_at_rest(), "{id:?} is drained");
            assert_eq!(
                live.get(id).copied().unwrap_or_default(),
                kept.live,
                "{id:?}: jobs of it"
            );
            if kept.is_at_rest() {
                resting.insert((at.since, *id));
                assert_eq!(kept.due_at, at.since.after_ms(keep_ms), "{id:?} is drained");
            } else if let Some(until) = at.held_until {
                assert!(
                    at.committed && at.has_stages_left(),
                    "{id:?} is held without a callback left"
                );
                assert_eq!(kept.due_at, until, "{id:?} is held");
            } else if at.committed {
                assert!(
                    batch.due().is_some() || kept.due_at == Timestamp::NEVER,
                    "{id:?} has a needless timer"
                );
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
