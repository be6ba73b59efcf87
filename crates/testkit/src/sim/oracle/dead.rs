//! The limits of the dead-letter queue and of what is kept of done jobs, and their removal to make room.

use windlass_engine::{Capacity, ClientId, JobId, JobState, JobStateKind, QueueId, Timestamp};

use super::{Checked, JobMemo, Oracle, id_of};

impl Oracle {
    /// The jobs that are over in this way; the first to be dropped comes first.
    fn over(&self, kind: JobStateKind) -> Vec<(Timestamp, JobId)> {
        let over = self
            .jobs
            .iter()
            .filter(|memo| is(memo, kind))
            .filter_map(|memo| match memo.job.state {
                JobState::Dead(until) | JobState::Done(until) => Some((until, id_of(memo))),
                _ => None,
            });
        let mut over: Vec<_> = over.collect();
        over.sort_unstable();
        over
    }

    fn bytes_of(&self, kind: JobStateKind) -> u64 {
        self.jobs
            .iter()
            .filter(|memo| is(memo, kind))
            .map(|memo| memo.job.weight_bytes())
            .sum()
    }

    fn dead(&self) -> Vec<(Timestamp, JobId)> {
        self.over(JobStateKind::Dead)
    }

    fn done(&self) -> Vec<(Timestamp, JobId)> {
        self.over(JobStateKind::Done)
    }

    pub(super) fn dead_bytes(&self) -> u64 {
        self.bytes_of(JobStateKind::Dead)
    }

    pub(super) fn done_bytes(&self) -> u64 {
        self.bytes_of(JobStateKind::Done)
    }

    /// Their bytes that are never on the disk alone.
    fn dead_memory_bytes(&self) -> u64 {
        let dead = self.jobs.iter().filter(|memo| is(memo, JobStateKind::Dead));
        dead.map(|memo| memo.job.weight_bytes() - memo.job.payload.body_len() as u64)
            .sum()
    }

    /// Whether what ended well takes more than its share.
    fn has_too_many_done(&self) -> bool {
        self.done_bytes() > self.limits.jobs_bytes_max.min(self.limits.memory_max) / 4
    }

    /// Whether `jobs` and `bytes` more would exceed a limit.
    fn is_too_much(&self, jobs: u64, bytes: u64) -> bool {
        self.jobs.len() as u64 + jobs > self.limits.jobs_max
            || self.bytes().saturating_add(bytes) > self.limits.jobs_bytes_max
    }

    pub(crate) fn has_past_to_drop(&self) -> bool {
        let dead = self.dead().len() as u64;
        if self.beyond_its_queue().is_some() || self.has_too_many_done() {
            return true;
        }
        let is_full = self.is_dead_letter_queue_full();
        let has_past = dead > 0 || !self.done().is_empty();
        dead > 0 && is_full || has_past && self.is_too_much(0, 0)
    }

    /// The first dead job to drop of the first queue that has more of them than its rules allow.
    fn beyond_its_queue(&self) -> Option<JobId> {
        let mut queues: Vec<_> = self
            .queues
            .iter()
            .map(|queue| (queue.id, queue.number))
            .collect();
        queues.sort_unstable();
        queues.into_iter().find_map(|(_, queue)| {
            let is_its = |(_, id): &(Timestamp, JobId)| {
                self.job(*id).is_some_and(|memo| memo.job.queue == queue)
            };
            let dead: Vec<_> = self.dead().into_iter().filter(is_its).collect();
            let max = self.rules(queue).dead_max? as usize;
            dead.first().filter(|_| dead.len() > max).map(|(_, id)| *id)
        })
    }

    /// How long a dead job of a queue is kept.
    pub(super) fn dead_ms(&self, queue: QueueId) -> u64 {
        self.rules(queue).dead_ms.unwrap_or(self.limits.dead_ms)
    }

    /// Whether dead jobs may have to go when the jobs of this client are lost: with another attempt, each takes more bytes.
    pub(crate) fn has_dead_to_drop_for(&self, client: ClientId) -> bool {
        const MORE_BYTES: u64 = 500;
        let held = self
            .jobs
            .iter()
            .filter(|memo| memo.connection() == Some(client))
            .count() as u64;
        let has_past = !self.dead().is_empty() || !self.done().is_empty();
        has_past && self.is_too_much(0, held * MORE_BYTES)
    }

    /// Drops jobs that are over beyond the limits, a page at a time.
    pub(super) fn drop_dead(&mut self) {
        for _ in 0..self.page(u32::MAX) {
            if !self.has_past_to_drop() {
                return;
            }
            if let Some(id) = self.beyond_its_queue() {
                self.drop_one(id, "Dead::BeyondItsQueue");
                continue;
            }
            if self.has_too_many_done() {
                self.forget_oldest_done();
            } else if self.is_dead_letter_queue_full() {
                self.drop_oldest_dead("Dead::Dropped");
            } else {
                self.drop_oldest();
            }
        }
    }

    fn is_dead_letter_queue_full(&self) -> bool {
        self.dead().len() as u64 > self.limits.dead_max
            || self.dead_bytes() > self.limits.dead_bytes_max
            || self.dead_memory_bytes() > self.limits.dead_memory_max
    }

    /// What ended well makes room before what failed.
    fn drop_oldest(&mut self) {
        if self.done().is_empty() {
            self.drop_oldest_dead("Dead::MadeWay");
        } else {
            self.forget_oldest_done();
        }
    }

    fn forget_oldest_done(&mut self) {
        if let Some((_, id)) = self.done().first().copied() {
            self.see("Done::Forgotten");
            self.remove(id);
        }
    }

    /// Whether `bytes` would fit if all jobs that are over were gone and `less` bytes were free.
    pub(super) fn judge_bytes(&self, bytes: u64, less: u64) -> Checked {
        let (held, limit) = (self.bytes(), self.limits.jobs_bytes_max);
        let stays = held - self.dead_bytes() - self.done_bytes() - less;
        if stays + bytes > limit {
            Err(Capacity::JobBytes.exceeded(held, limit))
        } else {
            Ok(())
        }
    }

    pub(super) fn judge_jobs(&self) -> Checked {
        let (held, limit) = (self.jobs.len() as u64, self.limits.jobs_max);
        let live = held - self.dead().len() as u64 - self.done().len() as u64;
        if live >= limit {
            Err(Capacity::Jobs.exceeded(held, limit))
        } else {
            Ok(())
        }
    }

    /// Drops as many jobs that are over as necessary, at most a page.
    pub(super) fn make_way(&mut self, jobs: u64, bytes: u64) {
        for _ in 0..self.page(u32::MAX) {
            if self.dead().is_empty() && self.done().is_empty() || !self.is_too_much(jobs, bytes) {
                return;
            }
            self.drop_oldest();
        }
    }

    fn drop_oldest_dead(&mut self, why: &'static str) {
        if let Some((_, id)) = self.dead().first().copied() {
            self.drop_one(id, why);
        }
    }

    fn drop_one(&mut self, id: JobId, why: &'static str) {
        self.see(why);
        self.count_total(id, |totals| totals.purged += 1);
        self.remove(id);
    }
}

fn is(memo: &JobMemo, kind: JobStateKind) -> bool {
    memo.job.state.kind() == kind
}
