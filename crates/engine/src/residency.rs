//! Which bodies leave memory, and which are needed soon. The engine decides both and does neither: its caller stores
//! what [`Engine::cool`](crate::Engine::cool) names, and loads what [`Engine::take_wanted`](crate::Engine::take_wanted)
//! names.
//!
//! Bodies leave in rounds over all jobs, the newest first: most are at the end of their queues. A round passes over the
//! jobs that are about to be handed out; if it finds nothing else, the next one takes those, too. The body of a job
//! that is handed out stays.
//!
//! A queue that is handed out keeps a window of its next jobs in memory.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::ids::{JobId, QueueId};
use crate::jobs::{Job, JobState, JobStateKind, Jobs, Slot, Stored};
use crate::queues::{Queue, Queues, SortKey};

/// Jobs that one look for bodies passes.
const LOOKED_MAX: usize = 4_096;
/// Parts of a round that are known one by one.
const PARTS_MAX: usize = 8;
/// Jobs of a queue that has no more are about to be handed out.
const FEW_JOBS: u32 = 256;
/// Jobs of a window, at most; it is filled when half of them have gone.
const WINDOW_JOBS: u32 = 2_048;
/// Bytes that are loaded at once for one window.
const WINDOW_BYTES: u64 = 4 << 20;
/// Windows that are kept.
const WINDOWS_MAX: usize = 1_024;

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
    windows: HashMap<QueueId, Window, FixedState>,
    wanted: Vec<(JobId, Stored)>,
}

/// What is not needed soon.
#[derive(Debug, Default)]
pub(crate) struct Cool {
    /// Jobs with bodies in memory.
    pub(crate) bodies: Vec<JobId>,
    /// Jobs whose bodies are elsewhere, or so short that they stay.
    pub(crate) jobs: Vec<Slot>,
    /// How many jobs were passed.
    pub(crate) looked: usize,
}

/// The next jobs of a queue, which are in memory or on their way there.
#[derive(Clone, Copy, Debug)]
struct Window {
    upto: SortKey,
    /// Jobs in it, about.
    jobs: u32,
}

impl Default for Residency {
    fn default() -> Self {
        Self {
            left: Vec::new(),
            known: 0,
            found: true,
            thorough: false,
            windows: HashMap::with_hasher(FixedState::default()),
            wanted: Vec::new(),
        }
    }
}

impl Residency {
    /// The next jobs whose bodies can leave memory, with `bytes` or a little more if there are enough. All jobs have
    /// numbers below `next_job`.
    pub(crate) fn cool(&mut self, (jobs, queues): (&Jobs, &Queues), next_job: u64, bytes: u64) -> Cool {
        self.begin(next_job);
        let (mut cool, mut sum) = (Cool::default(), 0);
        'round: while let Some((first, last)) = self.left.pop() {
            for (id, slot) in jobs.newest_from(JobId(last)).take_while(|(id, _)| id.0 >= first) {
                if sum >= bytes || cool.looked >= LOOKED_MAX {
                    self.left.push((first, id.0));
                    break 'round;
                }
                cool.looked += 1;
                if jobs.is_packed(slot) {
                    continue;
                }
                let Some(job) = jobs.at(slot) else { continue };
                if self.can_leave(job, queues) {
                    sum += job.payload.body_len() as u64;
                    cool.bodies.push(id);
                } else if !job.payload.can_leave() && !jobs.is_beside_next(slot) {
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

    fn can_leave(&self, job: &Job, queues: &Queues) -> bool {
        let is_leased = matches!(job.state, JobState::Leased(_));
        if is_leased || !job.payload.can_leave() {
            return false;
        }
        let is_near = || match &job.state {
            JobState::Ready => {
                let few = |queue: &Queue| queue.jobs(JobStateKind::Ready) <= FEW_JOBS;
                queues.at(job.queue).is_some_and(few)
                    || self.windows.get(&job.queue).is_some_and(|window| SortKey::of(job) <= window.upto)
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

    /// A job of this queue was handed out: the ones behind it are next. Returns how many jobs it has looked at.
    #[inline(never)]
    pub(crate) fn handed_out(&mut self, jobs: &Jobs, (id, queue): (QueueId, &Queue), at: SortKey) -> u32 {
        if self.windows.len() >= WINDOWS_MAX && !self.windows.contains_key(&id) {
            self.windows.clear();
        }
        let window = self.windows.entry(id).or_insert(Window { upto: at, jobs: 0 });
        window.jobs = window.jobs.saturating_sub(1);
        window.upto = window.upto.max(at);
        if window.jobs > WINDOW_JOBS / 2 {
            return 0;
        }
        let before = window.jobs;
        let mut bytes = 0;
        while window.jobs < WINDOW_JOBS && bytes < WINDOW_BYTES {
            let Some((key, slot)) = queue.ready().after(Some(window.upto)) else { break };
            window.upto = key;
            window.jobs += 1;
            if let Some(job) = jobs.at(slot)
                && let Some(stored) = job.payload.stored()
            {
                bytes += u64::from(stored.len);
                self.wanted.push((job.id, stored));
            }
        }
        window.jobs - before
    }

    /// The bodies to load.
    pub(crate) fn take_wanted(&mut self) -> Vec<(JobId, Stored)> {
        std::mem::take(&mut self.wanted)
    }
}
