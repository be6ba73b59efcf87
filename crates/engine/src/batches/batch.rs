//! A batch: a group of jobs, and callbacks that are pushed once all of them have run.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{JobId, Namespace, Protocol, Realm, Timestamp};
use crate::jobs::Role;
use crate::request::NewJob;

/// A batch to create.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct NewBatch {
    /// The protocol of the producer.
    pub protocol: Protocol,
    /// The unique name.
    pub name: Bytes,
    /// The name of the parent, a batch of the same protocol. The parent's callbacks are pushed after those of
    /// this batch.
    pub parent: Option<Bytes>,
    /// A description for people.
    pub about: Bytes,
    /// Bytes for the session, returned with the batch.
    pub meta: Bytes,
    /// Pushed once every job of the batch has run, with any outcome, or can no longer run, and every batch in
    /// it has completed. Like `success`, it must be a durable job of a `work` queue without a listener and
    /// without a batch. If another job has the callback's coalescing key, the callback is pushed without it.
    pub complete: Option<Box<NewJob>>,
    /// Pushed once every job of the batch, every batch in it and the `complete` callback, if any, have succeeded.
    pub success: Option<Box<NewJob>>,
    /// The batch is removed if it is not committed within this many milliseconds.
    pub expires_ms: u64,
}

/// A batch. Fields are public to read; only the engine writes them.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Batch {
    /// The ID, from the same sequence as job IDs.
    pub id: JobId,
    /// The name.
    pub name: Bytes,
    /// The protocol of the producer.
    pub protocol: Protocol,
    /// The parent, which may be forgotten by now.
    pub parent: Option<JobId>,
    /// The parent's name.
    pub parent_name: Option<Bytes>,
    /// The nesting depth.
    pub depth: u32,
    /// A description for people.
    pub about: Bytes,
    /// Bytes for the session, returned with the batch.
    pub meta: Bytes,
    /// When it was created (wall clock).
    pub created_at: Timestamp,
    /// The callback, until it is pushed: see [`NewBatch::complete`].
    pub complete: Option<Box<NewJob>>,
    /// The callback, until it is pushed: see [`NewBatch::success`].
    pub success: Option<Box<NewJob>>,
    /// The progress, which advances while jobs run.
    pub progress: BatchProgress,
    /// The namespace, in which the name is unique.
    pub namespace: Namespace,
}

/// The progress of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct BatchProgress {
    /// True if the batch may push callbacks.
    pub committed: bool,
    /// Before the commit: when it will be removed. After the commit: when it was drained, if it is.
    pub since: Timestamp,
    /// Jobs that have joined, without callbacks and without the jobs of batches in it.
    pub total: u64,
    /// The part of `total` that has run, with any outcome, or can no longer run.
    pub ran: u64,
    /// The part of `total` that has succeeded.
    pub succeeded: u64,
    /// Batches in it that are not yet complete.
    pub incomplete: u32,
    /// Batches in it that have not yet succeeded.
    pub unsuccessful: u32,
    /// The stage of `complete`.
    pub complete: Stage,
    /// The stage of `success`.
    pub success: Stage,
    /// The batch was opened again after its commit: it pushes nothing until it is committed again, or until
    /// this time.
    pub held_until: Option<Timestamp>,
}

/// The stage of a callback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum Stage {
    /// The conditions for the callback are not met yet.
    #[default]
    Waiting,
    /// The callback was pushed and has not succeeded yet.
    Enqueued,
    /// The callback has succeeded.
    Succeeded,
    /// The batch had no callback of this kind.
    Passed,
}

impl Stage {
    /// Returns true if the following step may happen.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Passed)
    }
}

impl BatchProgress {
    /// A new batch, to commit before `until`.
    pub fn new(until: Timestamp) -> Self {
        Self {
            since: until,
            ..Self::default()
        }
    }

    /// Returns true if a stage is still waiting, with or without a callback.
    pub(super) const fn has_stages_left(&self) -> bool {
        matches!(self.complete, Stage::Waiting) || matches!(self.success, Stage::Waiting)
    }

    /// The stage of a role.
    pub(crate) const fn stage(&self, role: Role) -> Stage {
        if matches!(role, Role::Success) {
            self.success
        } else {
            self.complete
        }
    }

    pub(super) const fn stage_mut(&mut self, role: Role) -> &mut Stage {
        if matches!(role, Role::Success) {
            &mut self.success
        } else {
            &mut self.complete
        }
    }
}

impl Batch {
    pub(crate) const fn realm(&self) -> Realm {
        self.namespace.realm(self.protocol)
    }

    /// The callback of a role that is not pushed yet.
    pub(super) const fn callback_mut(&mut self, role: Role) -> &mut Option<Box<NewJob>> {
        if matches!(role, Role::Success) {
            &mut self.success
        } else {
            &mut self.complete
        }
    }

    /// Moves all times that use the engine's time, for a move to another engine.
    pub fn shift(&mut self, ms: i64) {
        self.progress.since = self.progress.since.shifted(ms);
        self.progress.held_until = self.progress.held_until.map(|until| until.shifted(ms));
        self.complete
            .iter_mut()
            .chain(&mut self.success)
            .for_each(|job| job.shift(ms));
    }

    /// The bytes of the batch towards memory limits.
    pub fn weight_bytes(&self) -> u64 {
        const FIXED: usize = 500;
        let names = [
            Some(&self.name),
            self.parent_name.as_ref(),
            Some(&self.about),
            Some(&self.meta),
        ];
        let names: usize = names.into_iter().flatten().map(Bytes::len).sum();
        let callbacks: u64 = [&self.complete, &self.success]
            .into_iter()
            .flatten()
            .map(|job| job.weight_bytes())
            .sum();
        (FIXED + names) as u64 + callbacks
    }

    /// Returns true if this state of a batch is possible.
    pub(crate) fn is_possible(&self) -> bool {
        let at = &self.progress;
        let kept =
            |stage: Stage, callback: &Option<_>| stage != Stage::Waiting && callback.is_some();
        at.succeeded <= at.ran
            && at.ran <= at.total
            && !kept(at.complete, &self.complete)
            && !kept(at.success, &self.success)
            && (at.success == Stage::Waiting || at.complete.is_over())
            && (at.held_until.is_none() || at.committed && at.has_stages_left())
    }

    /// The callback that is due, if any.
    pub(super) const fn due(&self) -> Option<Role> {
        let at = &self.progress;
        if !at.committed || at.held_until.is_some() {
            None
        } else if matches!(at.complete, Stage::Waiting) && at.ran == at.total && at.incomplete == 0
        {
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
