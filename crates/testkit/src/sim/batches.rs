//! Laws of batches: what a batch counts, when its callbacks are due, and when it is forgotten.
//!
//! - A batch counts its jobs, those that ran and those that succeeded, and the batches in it that it waits for.
//! - A callback is pushed once: after the commit, when all jobs ran (or succeeded) and all batches in it passed that stage; and
//!   then at once, unless its queue cannot be made.
//! - A batch is forgotten when it expires uncommitted, or when it has rested for long enough, and then it is.

use windlass_engine::{Batch, BatchProgress, Engine, JobId, JobStateKind, Role, Stage};

use super::oracle::{BatchMemo, Oracle};

/// How long a callback that could not be pushed waits for the next try.
const RETRY_MS: u64 = 1_000;

impl Oracle {
    /// The callback that must be pushed now, or passed if there is none.
    pub(crate) fn due_callback(&self, batch: &Batch) -> Option<Role> {
        let at = Some(batch.progress).filter(|at| at.committed && at.held_until.is_none())?;
        let all = |is: fn(BatchProgress) -> u64| is(self.progress(batch)) == self.progress(batch).total;
        let progress = self.progress(batch);
        let complete = all(|at| at.ran) && progress.incomplete == 0;
        let success = all(|at| at.succeeded) && progress.unsuccessful == 0;
        match (at.complete, at.success) {
            (Stage::Waiting, _) if complete => Some(Role::Complete),
            (Stage::Succeeded | Stage::Passed, Stage::Waiting) if success => Some(Role::Success),
            _ => None,
        }
    }

    /// The progress of a batch, counted over its jobs and the batches in it.
    fn progress(&self, batch: &Batch) -> BatchProgress {
        let memo = self.batches.iter().find(|memo| memo.batch.id == batch.id).expect("it is one of these");
        let count =
            |which: fn(&super::oracle::Share) -> bool| memo.members.iter().filter(|share| which(share)).count() as u64;
        let behind = |stage: fn(BatchProgress) -> Stage| {
            let waits = |child: &&BatchMemo| {
                child.batch.parent == Some(batch.id) && !child.released && !stage(child.batch.progress).is_over()
            };
            u32::try_from(self.batches.iter().filter(waits).count()).unwrap_or(u32::MAX)
        };
        BatchProgress {
            total: count(|_| true),
            ran: count(|share| share.ran),
            succeeded: count(|share| share.succeeded),
            incomplete: behind(|at| at.complete),
            unsuccessful: behind(|at| at.success),
            ..batch.progress
        }
    }

    /// Whether nothing can advance it any more.
    pub(crate) fn is_at_rest(&self, batch: &Batch) -> bool {
        let is_member = |id: JobId| self.member(id).is_some_and(|member| member.batch == batch.id);
        let is_live = |kind| !matches!(kind, JobStateKind::Dead | JobStateKind::Done);
        let has_live = self.jobs.iter().any(|memo| is_member(memo.job.id) && is_live(memo.job.state.kind()));
        let is_open = !batch.progress.committed || batch.progress.held_until.is_some();
        let is_busy = |child: &Batch| child.parent == Some(batch.id) && !self.is_at_rest(child);
        !is_open && !has_live && self.due_callback(batch).is_none() && !self.live_batches().any(is_busy)
    }

    /// Whether it has rested for long enough.
    pub(crate) fn may_forget(&self, memo: &BatchMemo) -> bool {
        let keep_ms = self.limits.batch_keep_ms;
        let is_over = if memo.rested { memo.batch.progress.since.after_ms(keep_ms) <= self.now } else { keep_ms == 0 };
        is_over && self.is_at_rest(&memo.batch)
    }

    /// Asserts that the engine's batches are right, and records them.
    pub(crate) fn judge_batches(&mut self, engine: &Engine) {
        assert_eq!(self.missing_batches(), [], "a batch is forgotten too early");
        assert_eq!(
            engine.batches().count(),
            self.live_batches().count(),
            "left: the engine's batches, right: the oracle's"
        );
        for batch in engine.batches() {
            let memo = self.batches.iter().find(|memo| memo.batch.id == batch.id && !memo.gone);
            let memo = memo.unwrap_or_else(|| panic!("{batch:?} was forgotten"));
            let (since, rests) = (batch.progress.since, self.is_at_rest(batch));
            let progress = BatchProgress { since, ..self.progress(&memo.batch) };
            assert_eq!(
                *batch,
                Batch { progress, ..memo.batch.clone() },
                "left: the engine's batch, right: what it must be"
            );
            let before = memo.batch.progress.since;
            assert!(since == self.now || (since == before && rests <= memo.rested), "{batch:?} rests since {before:?}");
            let is_blocked = memo.blocked_at.is_some_and(|at| self.now < at.after_ms(RETRY_MS));
            assert!(self.due_callback(batch).is_none() || is_blocked, "{batch:?} does not push its callback");
            assert!(!(memo.rested && rests && self.may_forget(memo) && since == before), "{batch:?} is not forgotten");
        }
        let rested: Vec<bool> = self.batches.iter().map(|memo| !memo.gone && self.is_at_rest(&memo.batch)).collect();
        for (memo, rested) in self.batches.iter_mut().zip(rested) {
            memo.rested = rested;
            if let Some(batch) = engine.batch(memo.batch.id) {
                memo.batch = batch.clone();
            }
        }
    }
}
