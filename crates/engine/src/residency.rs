//! Selects the bodies to move out of memory, and those to load in advance. The engine only decides: the
//! caller stores the bodies that [`Engine::cool`](crate::Engine::cool) names, and loads those that
//! [`Engine::take_wanted`](crate::Engine::take_wanted) names.
//!
//! Bodies are moved out in rounds over all jobs, newest first, because most of the newest jobs are near the
//! tail of queues. Jobs near the head of a queue are skipped, unless the previous round found nothing. The
//! bodies of leased jobs stay in memory.
//!
//! A queue with deliveries has a window of next jobs in memory ([`Ahead`]). The windows share a part of the
//! memory for bodies equally. A body is loaded in advance only once, so that a job never costs more than two
//! loads.

use crate::ids::{JobId, QueueId};
use crate::jobs::{Job, JobState, JobStateKind, Jobs, Slot, Stored};
use crate::queues::{Ahead, Queue, Queues, SortKey};

/// Jobs examined in a search for bodies.
const LOOKED_MAX: usize = 4_096;
/// Pages of packed jobs that a search opens. Half of them are for jobs in ID order.
const OPENED_MAX: usize = 32;
/// The limit of separately recorded parts of a round.
const PARTS_MAX: usize = 8;
/// A queue with no more jobs than this is treated as if all of them were near the head, if the bodies of all
/// such queues fit into memory.
const FEW_JOBS: u32 = 256;
/// Maximum jobs of a window. It is refilled when half of them have been delivered.
const WINDOW_JOBS: u32 = 2_048;
/// Maximum bytes of a window.
const WINDOW_BYTES: u64 = 4 << 20;
/// The fraction of the memory for bodies that is shared by all windows (1/n).
const WINDOWS_PART: u64 = 2;
/// The share of this memory for the jobs of short queues (1/n).
const FEW_PART: u64 = 4;
/// Deliveries in a round, plus two for each queue.
const ROUND: usize = 1_024;

/// The jobs to examine next, and the windows.
#[derive(Debug)]
pub(crate) struct Residency {
    /// The ranges of IDs that this round has not examined yet, lowest first: first and last.
    left: Vec<(u64, u64)>,
    /// The highest ID that any round includes.
    known: u64,
    /// True if this round has found any body.
    found: bool,
    /// True if this round also takes jobs near the head of queues.
    thorough: bool,
    /// Bytes in all windows, about.
    ahead_bytes: u64,
    /// Queues with deliveries in this round and in the previous one, and the number of deliveries of this
    /// round.
    recent: Vec<QueueId>,
    before: Vec<QueueId>,
    handed_out: usize,
    round: u64,
    wanted: Vec<(JobId, Stored)>,
}

/// The result of a search.
#[derive(Debug, Default)]
pub(crate) struct Cool {
    /// Jobs with bodies in memory.
    pub(crate) bodies: Vec<(JobId, Slot)>,
    /// Jobs with stored bodies, or with bodies so short that they stay, and one job of each page that this
    /// search has opened.
    pub(crate) jobs: Vec<Slot>,
    /// Number of examined jobs.
    pub(crate) looked: usize,
    /// Number of opened pages of packed jobs.
    pub(crate) opened: usize,
}

/// The memory that is available for bodies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes for all of them.
    pub(crate) all: u64,
    /// Bytes for bodies that may be loaded now.
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
    /// The next jobs with bodies that can be moved out of memory: `bytes` or slightly more, if there are
    /// enough. All jobs have IDs below `next_job`.
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

    /// Adds new IDs at the front. A completed round is followed by a round over all jobs, however many new
    /// ones arrive.
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

    /// Handles a delivery, by loading the next jobs of the queue in advance. Returns the number of examined
    /// jobs.
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

    /// Adds the next jobs of a queue to the window, up to `share` bytes, or a single larger job. `left` bytes
    /// are available to all windows.
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

    /// Records the queues with deliveries. At the end of a round, windows of queues without deliveries are
    /// discarded.
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
