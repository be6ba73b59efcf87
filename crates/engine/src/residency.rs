//! Which bodies leave memory, and which are needed soon. The engine decides both and does neither: its caller stores
//! what [`Engine::cool`](crate::Engine::cool) names, and loads what [`Engine::take_wanted`](crate::Engine::take_wanted)
//! names.
//!
//! Bodies leave in rounds over all jobs, newest first, because most of those are at the end of their queues. Jobs near
//! the head of their queue are skipped, unless the previous round found nothing. The bodies of leased jobs stay.
//!
//! A queue whose jobs are being handed out keeps a window of its next jobs in memory ([`Ahead`]). All windows share a
//! part of the memory for bodies equally. A body is loaded ahead at most once, so that a job never costs more than two
//! loads.

use crate::ids::{JobId, QueueId};
use crate::jobs::{Job, JobState, JobStateKind, Jobs, Slot, Stored};
use crate::queues::{Ahead, Queue, Queues, SortKey};

/// Jobs that one look for bodies passes.
const LOOKED_MAX: usize = 4_096;
/// Pages of packed jobs that it opens. Jobs in order of their numbers are in half of them.
const OPENED_MAX: usize = 32;
/// Parts of a round that are known one by one.
const PARTS_MAX: usize = 8;
/// Jobs of a queue that has no more are about to be handed out, as far as all such queues have room.
const FEW_JOBS: u32 = 256;
/// Jobs of a window, at most; it is filled when half of them have gone.
const WINDOW_JOBS: u32 = 2_048;
/// Bytes of a window, at most.
const WINDOW_BYTES: u64 = 4 << 20;
/// The part of the room for bodies that all windows have together.
const WINDOWS_PART: u64 = 2;
/// The part of it that the jobs of short queues have.
const FEW_PART: u64 = 4;
/// A round of hand-outs has this many, and two for each queue.
const ROUND: usize = 1_024;

/// Which jobs to look at next, and the windows.
#[derive(Debug)]
pub(crate) struct Residency {
    /// The numbers that this round has not reached, lowest first: first and last.
    left: Vec<(u64, u64)>,
    /// The highest number that a round has known.
    known: u64,
    /// This round has found something.
    found: bool,
    /// This round takes what is about to be handed out, too.
    thorough: bool,
    /// Bytes in all windows, about.
    ahead_bytes: u64,
    /// The queues of this round of hand-outs and of the last one, and how many hand-outs this round had.
    recent: Vec<QueueId>,
    before: Vec<QueueId>,
    handed_out: usize,
    round: u64,
    wanted: Vec<(JobId, Stored)>,
}

/// What is not needed soon.
#[derive(Debug, Default)]
pub(crate) struct Cool {
    /// Jobs with bodies in memory.
    pub(crate) bodies: Vec<(JobId, Slot)>,
    /// Jobs whose bodies are elsewhere, or so short that they stay, and one of each page that this look has opened.
    pub(crate) jobs: Vec<Slot>,
    /// How many jobs were passed.
    pub(crate) looked: usize,
    /// How many pages of packed jobs were opened.
    pub(crate) opened: usize,
}

/// The bodies for which memory has room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes of all of them.
    pub(crate) all: u64,
    /// Bytes of those that may come back now.
    pub(crate) left: u64,
}

impl Default for Residency {
    fn default() -> Self {
        Self {
            left: Vec::new(),
            known: 0,
            found: true,
            thorough: false,
            ahead_bytes: 0,
            recent: Vec::new(),
            before: Vec::new(),
            handed_out: 0,
            round: 1,
            wanted: Vec::new(),
        }
    }
}

impl Residency {
    /// The next jobs whose bodies can leave memory, which has this room for them: `bytes` or a little more, if there are
    /// enough. All jobs have numbers below `next_job`.
    pub(crate) fn cool(
        &mut self,
        jobs: &Jobs,
        queues: &Queues,
        next_job: u64,
        bytes: u64,
        room: Room,
    ) -> Cool {
        self.begin(next_job);
        let body_bytes = (jobs.bodies_here() + jobs.stored().1) / (jobs.len() as u64).max(1);
        let few = room.all / FEW_PART / (queues.len() as u64).max(1) / body_bytes.max(1);
        let few = u32::try_from(few).map_or(FEW_JOBS, |few| few.min(FEW_JOBS));
        let (mut cool, mut sum) = (Cool::default(), 0);
        'round: while let Some((first, last)) = self.left.pop() {
            for (id, slot) in jobs
                .newest_from(JobId(last))
                .take_while(|(id, _)| id.0 >= first)
            {
                if sum >= bytes || cool.looked >= LOOKED_MAX || cool.opened >= OPENED_MAX {
                    self.left.push((first, id.0));
                    break 'round;
                }
                cool.looked += 1;
                let is_packed = jobs.is_packed(slot);
                if is_packed && jobs.packed_bodies(slot) == 0 {
                    continue;
                }
                cool.opened += usize::from(is_packed);
                let Some(job) = jobs.at(slot) else { continue };
                if self.can_leave(job, queues, few) {
                    sum += job.payload.body_len() as u64;
                    cool.bodies.push((id, slot));
                } else if is_packed || !job.payload.can_leave() && !jobs.is_beside_next(slot) {
                    cool.jobs.push(slot);
                }
            }
        }
        self.found |= !cool.bodies.is_empty();
        cool
    }

    /// The new numbers come first. A round that is over is followed by the next: of all jobs, however many new ones come.
    fn begin(&mut self, next_job: u64) {
        let newest = next_job.saturating_sub(1);
        if self.left.is_empty() {
            self.thorough = !self.found;
            self.found = false;
            self.left.push((0, newest));
        } else if newest > self.known {
            self.left.push((self.known + 1, newest));
            if self.left.len() > PARTS_MAX {
                let (first, _) = self.left.remove(0);
                self.left.iter_mut().take(1).for_each(|part| part.0 = first);
            }
        }
        self.known = self.known.max(newest);
    }

    fn can_leave(&self, job: &Job, queues: &Queues, few: u32) -> bool {
        let is_leased = matches!(job.state, JobState::Leased(_));
        if is_leased || !job.payload.can_leave() {
            return false;
        }
        let is_near = || match &job.state {
            JobState::Ready => {
                let soon = |queue: &Queue| {
                    queue.jobs(JobStateKind::Ready) <= few || queue.ahead().has(SortKey::of(job))
                };
                queues.at(job.queue).is_some_and(soon)
            }
            JobState::Leased(_)
            | JobState::Scheduled(_)
            | JobState::Retrying(_)
            | JobState::Dead(_)
            | JobState::Done(_)
            | JobState::Parked => false,
        };
        self.thorough || !is_near()
    }

    /// A job was handed out: the ones behind it in its queue are next. Returns how many jobs it has looked at.
    #[inline(never)]
    pub(crate) fn handed_out(
        &mut self,
        jobs: &Jobs,
        queues: &mut Queues,
        job: &Job,
        mut room: Room,
    ) -> u32 {
        self.count(job.queue, queues);
        let Some(mut window) = queues.at(job.queue).map(Queue::ahead) else {
            return 0;
        };
        window.round = self.round;
        let gone = window.take(SortKey::of(job), job.payload.body_len() as u64);
        self.ahead_bytes = self.ahead_bytes.saturating_sub(gone);
        let active = self.recent.len().max(self.before.len()) as u64;
        let share = (room.all / WINDOWS_PART / active.max(1)).min(WINDOW_BYTES);
        room.left = room
            .left
            .min((room.all / WINDOWS_PART).saturating_sub(self.ahead_bytes));
        let before = window;
        if window.jobs <= WINDOW_JOBS / 2 && window.bytes <= share / 2 {
            self.fill(&mut window, jobs, queues.at(job.queue), share, room.left);
        }
        self.ahead_bytes += window.bytes - before.bytes;
        let looked = window.jobs - before.jobs;
        queues
            .ahead_mut(job.queue)
            .into_iter()
            .for_each(|ahead| *ahead = window);
        looked
    }

    /// Adds the next jobs of a queue to its window, up to `share` bytes, or one job that is larger. `left` bytes are left for
    /// all windows.
    fn fill(
        &mut self,
        window: &mut Ahead,
        jobs: &Jobs,
        queue: Option<&Queue>,
        share: u64,
        mut left: u64,
    ) {
        let Some(queue) = queue else { return };
        while window.jobs < WINDOW_JOBS
            && let Some((key, slot)) = queue.ready().after(window.upto)
        {
            let job = jobs.at(slot);
            let bytes = job.map_or(0, |job| job.payload.body_len() as u64);
            let is_first_of_many = window.bytes == 0 && share < WINDOW_BYTES;
            if bytes > left || window.bytes + bytes > share && !is_first_of_many {
                break;
            }
            (window.upto, window.jobs, window.bytes) =
                (Some(key), window.jobs + 1, window.bytes + bytes);
            left -= bytes;
            self.wanted
                .extend(job.and_then(|job| Some((job.id, job.payload.stored()?))));
        }
    }

    /// Counts the queues that are handed out. At the end of a round, windows of queues that were not are given up.
    fn count(&mut self, id: QueueId, queues: &mut Queues) {
        self.handed_out += 1;
        if queues
            .at(id)
            .is_some_and(|queue| queue.ahead().round != self.round)
        {
            self.recent.push(id);
        }
        if self.handed_out < ROUND + 2 * self.recent.len() {
            return;
        }
        for id in std::mem::take(&mut self.before) {
            let idle = queues
                .ahead_mut(id)
                .filter(|ahead| ahead.round < self.round);
            idle.into_iter()
                .for_each(|ahead| (ahead.jobs, ahead.bytes) = (0, 0));
        }
        let bytes = self
            .recent
            .iter()
            .filter_map(|id| Some(queues.at(*id)?.ahead().bytes));
        self.ahead_bytes = bytes.sum();
        self.before = std::mem::take(&mut self.recent);
        (self.handed_out, self.round) = (0, self.round + 1);
    }

    /// The bodies to load.
    pub(crate) fn take_wanted(&mut self) -> Vec<(JobId, Stored)> {
        std::mem::take(&mut self.wanted)
    }
}
