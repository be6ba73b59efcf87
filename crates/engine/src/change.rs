//! What the journal must record.

use crate::history::Ended;
use crate::ids::{JobId, QueueId};

/// A change to journal. It names the changed thing; before the next turn the journal reads the current value from the
/// engine ([`crate::Engine::job`], [`crate::Engine::queue`]).
///
/// If a job is put and removed within one turn, the journal finds no job and the pair cancels out.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// A job is new, or a field outside [`Change::JobMoved`] changed.
    JobPut(JobId),
    /// A job that has lived only for its listeners is kept from now on.
    JobKept(JobId),
    /// A job's state changed: its place, sort key, position in a cycle, time of becoming ready, attempts, failures,
    /// last failure, past attempts, lost workers or progress.
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
    /// A day of this number began ([`crate::Engine::days`]). Its record takes the place of the one that is
    /// [`crate::DAYS_KEPT`] older.
    DayBegan(u64),
    /// A job has ended whose queue has a history: a row of that.
    Ended(Box<Ended>),
    /// Only the engine meta changed: job numbers were reserved, or a clock was set ([`crate::Engine::meta`]).
    Meta,
}
