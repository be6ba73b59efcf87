//! A turn: the engine's input besides commands (time, a random seed) and its output (changes, events, warnings).

use crate::clock::Clock;
use crate::event::{Event, Notice, Reply};
use crate::ids::{ClientId, JobId, QueueId, Tag, Timestamp};
use crate::warning::Warning;

/// The input and output of one visit to the engine. Create one per visit, or clear and reuse it.
#[derive(Debug)]
pub struct Context {
    /// The engine's time. It must not go back from one turn to the next; the engine ignores a value that does.
    pub now: Timestamp,
    /// The wall clock's lead over `now`, and the clock values for the journal. `at` is unused here.
    pub clock: Clock,
    /// Changes to journal, in order.
    pub changes: Vec<Change>,
    /// Events to send, in order. The order of one client's events is binding.
    pub events: Vec<(ClientId, Event)>,
    /// Notices for the operator, at most one of each kind.
    pub warnings: Vec<Warning>,
    rng: u64,
}

impl Context {
    /// A turn at `now`, with the wall clock equal to it. `seed` determines all random numbers.
    #[must_use]
    pub const fn new(now: Timestamp, seed: u64) -> Self {
        let clock = Clock::skewed(0);
        Self { now, clock, changes: Vec::new(), events: Vec::new(), warnings: Vec::new(), rng: seed }
    }

    /// The next random number below `sides` (0 if `sides` is 0), from splitmix64.
    pub const fn roll(&mut self, sides: u64) -> u64 {
        self.rng = self.rng.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.rng;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        match z.checked_rem(sides) {
            Some(n) => n,
            None => 0,
        }
    }

    /// Answers a client's command.
    pub(crate) fn reply(&mut self, client: ClientId, tag: Tag, reply: Reply) {
        self.events.push((client, Event::Reply(tag, reply)));
    }

    /// Sends a client a message that answers no command.
    pub(crate) fn notify(&mut self, client: ClientId, notice: Notice) {
        self.events.push((client, Event::Notice(notice)));
    }

    pub(crate) fn remember(&mut self, change: Change) {
        self.changes.push(change);
    }
}

/// A change to journal. It names the changed thing; before the next turn the journal reads the current value from the engine
/// ([`crate::Engine::job`], [`crate::Engine::queue`]).
///
/// If a job is put and removed within one turn, the journal finds no job and the pair cancels out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A job is new, or a field outside [`Change::JobMoved`] changed.
    JobPut(JobId),
    /// A job's state changed: its place, sort key, position in a cycle, time of becoming ready, attempts, failures, last failure,
    /// lost workers or progress.
    JobMoved(JobId),
    /// A job was removed.
    JobGone(JobId),
    /// A queue is new, or its settings or its serial changed.
    QueueSet(QueueId),
    /// A queue was removed with all its jobs. Each job has its own `JobGone` before this change.
    QueueGone(QueueId),
    /// A schedule is new, or a field other than its next run changed ([`crate::Engine::schedule`]).
    SchedulePut(JobId),
    /// A schedule's next run or its number of remaining runs changed.
    ScheduleMoved(JobId),
    /// A schedule was removed.
    ScheduleGone(JobId),
    /// A batch is new, or a field other than its progress changed ([`crate::Engine::batch`]).
    BatchPut(JobId),
    /// A batch's progress changed.
    BatchMoved(JobId),
    /// A batch was removed.
    BatchGone(JobId),
    /// Only the head changed: job numbers were reserved, or a clock was set ([`crate::Engine::head`]).
    Head,
}
