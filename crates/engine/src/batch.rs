//! A batch: jobs that belong together, and the callbacks that are pushed once all of them were worked on. The table of them.
//!
//! Not here: what makes a batch come to its callbacks (`gather`).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::command::NewJob;
use crate::ids::{JobId, Origin, Timestamp};

/// A batch to be.
#[derive(Clone, Debug, PartialEq)]
pub struct NewBatch {
    /// The protocol it is born in.
    pub origin: Origin,
    /// Its name, which no other batch may have.
    pub name: Bytes,
    /// The name of the batch it is part of, one of the same origin: that one's callbacks wait for this one's.
    pub parent: Option<Bytes>,
    /// A sentence for people.
    pub about: Bytes,
    /// What the session wants back with it.
    pub meta: Bytes,
    /// Pushed once every job of the batch was worked on, whatever came of it, or can be no more, and the batches in it are
    /// as far. Like `success` a durable job of a `work` queue that nobody listens to and that joins no batch itself; its
    /// coalescing key gives way to a job that holds it.
    pub complete: Option<Box<NewJob>>,
    /// Pushed once every job of the batch has succeeded, the batches in it are as far, and what `complete` pushed, if
    /// anything, has succeeded.
    pub success: Option<Box<NewJob>>,
    /// Forgotten if it is not committed within so many milliseconds.
    pub expires_ms: u64,
}

/// A batch. Fields are public to read; only the engine writes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Its number, from the same row as those of jobs.
    pub id: JobId,
    /// Its name.
    pub name: Bytes,
    /// The protocol it was born in.
    pub origin: Origin,
    /// The batch it is part of, which may be forgotten by now.
    pub parent: Option<JobId>,
    /// That one's name.
    pub parent_name: Option<Bytes>,
    /// How many batches it is part of, one in another.
    pub depth: u32,
    /// A sentence for people.
    pub about: Bytes,
    /// What the session wants back with it.
    pub meta: Bytes,
    /// When it was made, by the wall clock.
    pub created_at: Timestamp,
    /// What is still to be pushed: see [`NewBatch::complete`].
    pub complete: Option<Box<NewJob>>,
    /// What is still to be pushed: see [`NewBatch::success`].
    pub success: Option<Box<NewJob>>,
    /// How it stands: what changes while its jobs are worked on.
    pub standing: BatchStanding,
}

/// How a batch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchStanding {
    /// Until then nothing is pushed.
    pub committed: bool,
    /// Uncommitted: when it is forgotten. Otherwise: since when nothing of it is there any more, if nothing is.
    pub since: Timestamp,
    /// Jobs that have joined, callbacks and those of batches in it not counted.
    pub total: u64,
    /// Those among them that were worked on to an end, good or bad, or can be no more.
    pub ran: u64,
    /// Those that have succeeded.
    pub succeeded: u64,
    /// Batches in it that are not complete yet.
    pub incomplete: u32,
    /// Batches in it that have not succeeded yet.
    pub unsuccessful: u32,
    /// How far it is with `complete`.
    pub complete: Stage,
    /// How far it is with `success`.
    pub success: Stage,
    /// It was committed and opened again: until it is committed once more, or until this time, nothing is pushed.
    pub held_until: Option<Timestamp>,
}

/// How far a batch is with one of its callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its jobs are not as far yet.
    Waiting,
    /// The callback was pushed, and has not succeeded so far.
    Enqueued,
    /// The callback has succeeded.
    Succeeded,
    /// There was none to push.
    Passed,
}

impl Stage {
    /// Whether what comes after may happen.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Passed)
    }
}

/// A job's place in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The batch, which may be forgotten by now.
    pub batch: JobId,
    /// What it is there.
    pub role: Role,
    /// The batch has counted it as worked on.
    pub ran: bool,
}

/// What a job is in its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// One of those it is about.
    Job,
    /// [`NewBatch::complete`].
    Complete,
    /// [`NewBatch::success`].
    Success,
}

impl BatchStanding {
    /// A batch that was just made, to be committed before `until`.
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

    /// Whether there is a callback, or the place of one, that it has not come to.
    pub(crate) const fn has_stages_left(&self) -> bool {
        matches!(self.complete, Stage::Waiting) || matches!(self.success, Stage::Waiting)
    }
}

impl Batch {
    /// Bytes it is counted as in memory limits.
    #[must_use]
    pub fn weight_bytes(&self) -> u64 {
        const FIXED: usize = 500;
        let names = [Some(&self.name), self.parent_name.as_ref(), Some(&self.about), Some(&self.meta)];
        let names: usize = names.into_iter().flatten().map(Bytes::len).sum();
        let callbacks: u64 = [&self.complete, &self.success].into_iter().flatten().map(|job| job.weight_bytes()).sum();
        (FIXED + names) as u64 + callbacks
    }

    /// The callback whose turn it is, if it is one's.
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

/// A batch, and what the engine knows of it besides.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) batch: Batch,
    /// Jobs of it, callbacks among them, that wait, are worked on or will be.
    pub(crate) live: u32,
    /// Batches that are part of it and not at rest.
    pub(crate) busy_children: u32,
    /// A callback could not be pushed: tried again then.
    pub(crate) retry_at: Timestamp,
    /// When the engine looks at it next.
    due_at: Timestamp,
    /// It was at rest when that was set.
    rests: bool,
}

impl Kept {
    /// Whether nothing is left that could bring it further: it is kept for those who ask, for a while.
    pub(crate) const fn is_at_rest(&self) -> bool {
        let at = &self.batch.standing;
        let is_open = !at.committed || at.held_until.is_some();
        !is_open && self.live == 0 && self.busy_children == 0 && self.batch.due().is_none()
    }
}

/// All batches: by number, by name, by when they must be looked at.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    by_id: BTreeMap<JobId, Kept>,
    by_name: BTreeMap<Bytes, JobId>,
    due: BTreeSet<(Timestamp, JobId)>,
    /// Those at rest, by since when.
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

    /// What it weighs, and its times, are not to be changed here.
    pub(crate) fn kept_mut(&mut self, id: JobId) -> Option<&mut Kept> {
        self.by_id.get_mut(&id)
    }

    /// From a number on.
    pub(crate) fn from(&self, first: JobId) -> impl Iterator<Item = &Batch> {
        self.by_id.range(first..).map(|(_, kept)| &kept.batch)
    }

    pub(crate) fn named(&self, name: &[u8]) -> Option<&Batch> {
        self.at(*self.by_name.get(name)?)
    }

    /// The first that must be looked at, and when.
    pub(crate) fn next(&self) -> Option<(Timestamp, JobId)> {
        self.due.first().copied()
    }

    /// The one that has been at rest for longest, but not this one.
    pub(crate) fn longest_at_rest(&self, but: Option<JobId>) -> Option<JobId> {
        self.resting.iter().map(|(_, id)| *id).find(|id| Some(*id) != but)
    }

    /// Puts a batch in. The one it is part of, if it is there, knows of it from now on.
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

    /// Takes out a callback that is to be pushed.
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

    /// Puts one back that could not be.
    pub(crate) fn put_callback(&mut self, id: JobId, role: Role, job: Box<NewJob>) {
        let Some(Kept { batch, .. }) = self.by_id.get_mut(&id) else { return };
        self.bytes += job.weight_bytes();
        match role {
            Role::Success => batch.success = Some(job),
            Role::Complete | Role::Job => batch.complete = Some(job),
        }
    }

    /// Sets when a batch must be looked at next, by how it stands. One that comes to rest does so `now`, if it is not known
    /// since when: says whether it did, and which batch to look at because it came to rest or left it.
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

    /// Somebody takes an interest in a batch at rest: it is kept as if it had come to rest just now.
    pub(crate) fn touch(&mut self, id: JobId, now: Timestamp) -> bool {
        let Some(kept) = self.by_id.get_mut(&id).filter(|kept| kept.rests) else { return false };
        self.resting.remove(&(kept.batch.standing.since, id));
        kept.batch.standing.since = now;
        self.resting.insert((now, id));
        true
    }

    /// Asserts that the indexes agree; `live` counts the jobs of each that are.
    pub(crate) fn check(&self, keep_ms: u64, live: &BTreeMap<JobId, u32>) {
        let bytes: u64 = self.by_id.values().map(|kept| kept.batch.weight_bytes()).sum();
        assert_eq!(bytes, self.bytes, "bytes of batches");
        assert_eq!(self.by_name.len(), self.by_id.len(), "batches by name");
        let (mut resting, mut due) = (BTreeSet::new(), BTreeSet::new());
        for (id, kept) in &self.by_id {
            let (batch, at) = (&kept.batch, &kept.batch.standing);
            assert_eq!((*id, self.by_name.get(&batch.name)), (batch.id, Some(id)), "{:?}", batch.name);
            assert!(at.succeeded <= at.ran && at.ran <= at.total, "{id:?}: {at:?}");
            assert!(at.complete == Stage::Waiting || batch.complete.is_none(), "{id:?} has what it pushed");
            assert!(at.success == Stage::Waiting || batch.success.is_none(), "{id:?} has what it pushed");
            assert!(at.success == Stage::Waiting || at.complete.is_over(), "{id:?} succeeded before it was complete");
            let busy = self.by_id.values().filter(|child| child.batch.parent == Some(*id) && !child.is_at_rest());
            assert_eq!(busy.count(), kept.busy_children as usize, "{id:?}: batches in it");
            assert_eq!(kept.rests, kept.is_at_rest(), "{id:?} is at rest");
            assert_eq!(live.get(id).copied().unwrap_or_default(), kept.live, "{id:?}: jobs of it");
            if kept.is_at_rest() {
                resting.insert((at.since, *id));
                assert_eq!(kept.due_at, at.since.after_ms(keep_ms), "{id:?} is at rest");
            } else if let Some(until) = at.held_until {
                assert!(at.committed && at.has_stages_left(), "{id:?} is held for nothing");
                assert_eq!(kept.due_at, until, "{id:?} is held");
            } else if at.committed {
                assert!(batch.due().is_some() || kept.due_at == Timestamp::NEVER, "{id:?} is looked at for nothing");
            } else {
                assert_eq!(kept.due_at, at.since, "{id:?} is to be committed");
            }
            if kept.due_at < Timestamp::NEVER {
                due.insert((kept.due_at, *id));
            }
        }
        assert_eq!(resting, self.resting, "batches at rest");
        assert_eq!(due, self.due, "batches by when they are looked at");
    }
}
