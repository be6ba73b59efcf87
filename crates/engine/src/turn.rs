//! A turn: what goes into the engine besides commands (time, dice) and what comes out (changes, events).

use crate::clock::Clock;
use crate::event::Event;
use crate::ids::{ClientId, JobId, QueueId, Timestamp};
use crate::notice::Notice;

/// The engine's only way in and out. Make one per visit, or clear and reuse it.
#[derive(Debug)]
pub struct Turn {
    /// What time it is by the engine's clock. Never goes back from one turn to the next (the engine ignores it if it does).
    pub now: Timestamp,
    /// How far the wall clock is ahead of that, and what the journal keeps besides. `at` means nothing here.
    pub clock: Clock,
    /// What must be remembered, in order.
    pub changes: Vec<Change>,
    /// What must be told, in order; the order between two events for one client is binding.
    pub events: Vec<(ClientId, Event)>,
    /// What an operator should know of, at most one of each kind.
    pub notices: Vec<Notice>,
    dice: u64,
}

impl Turn {
    /// A turn at `now`, which the wall clock shows as well, whose dice are all decided by `seed`.
    #[must_use]
    pub const fn new(now: Timestamp, seed: u64) -> Self {
        let clock = Clock::skewed(0);
        Self { now, clock, changes: Vec::new(), events: Vec::new(), notices: Vec::new(), dice: seed }
    }

    /// A number below `sides` (0 if `sides` is 0); the next in the row that the seed decides (splitmix64).
    pub const fn roll(&mut self, sides: u64) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        match z.checked_rem(sides) {
            Some(n) => n,
            None => 0,
        }
    }

    pub(crate) fn tell(&mut self, client: ClientId, event: Event) {
        self.events.push((client, event));
    }

    pub(crate) fn remember(&mut self, change: Change) {
        self.changes.push(change);
    }
}

/// A fact to remember. It names what changed; the journal reads how it stands now from the engine
/// ([`crate::Engine::job`], [`crate::Engine::queue`]) before the next turn begins.
///
/// A job that was put and is gone again within one turn is simply not there any more: the pair cancels out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A job is new, or anything about it but its standing is.
    JobPut(JobId),
    /// A job's standing changed: place, rank, standing in a cycle, when it came to be ready, attempts, failures, the last
    /// failure, workers lost, progress.
    JobMoved(JobId),
    /// A job is gone.
    JobGone(JobId),
    /// A queue is new or its settings or serial changed.
    QueueSet(QueueId),
    /// A queue is gone, and all its jobs with it (each has its own `JobGone` before this).
    QueueGone(QueueId),
    /// A schedule is new, or anything about it but its next run is ([`crate::Engine::schedule`]).
    SchedulePut(JobId),
    /// A schedule's next run changed, or how many there will be.
    ScheduleMoved(JobId),
    /// A schedule is gone.
    ScheduleGone(JobId),
    /// A batch is new, or anything about it but its standing is ([`crate::Engine::batch`]).
    BatchPut(JobId),
    /// A batch's standing changed.
    BatchMoved(JobId),
    /// A batch is gone.
    BatchGone(JobId),
    /// Only the head changed: numbers were set aside, or a clock was set ([`crate::Engine::head`]).
    Head,
}
