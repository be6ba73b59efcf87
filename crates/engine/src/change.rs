//! The changes that the journal must record.

use crate::history::Ended;
use crate::ids::{JobId, Namespace, QueueId};

/// A change to journal. It names the changed object; before the next turn the journal reads the current value
/// from the engine ([`crate::Engine::job`], [`crate::Engine::queue`]).
///
/// If a job is put and removed within one turn, the journal finds no job and the pair cancels out.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// A job is new, or a field outside [`Change::JobMoved`] changed.
    JobPut(JobId),
    /// A job that existed only for listeners is now durable.
    JobKept(JobId),
    /// A job's state changed: place, sort key, position in a cycle, time of becoming ready, attempts,
    /// failures, last failure, past attempts, losses or progress.
    JobMoved(JobId),
    /// A job was removed.
    JobGone(JobId),
    /// A queue is new, or settings or the serial changed.
    QueueSet(QueueId),
    /// A queue was removed with all its jobs. Each job has a separate `JobGone` before this change.
    QueueGone(QueueId),
    /// A namespace is new or removed, or its counters or limits changed ([`crate::Engine::namespace`]). The record
    /// precedes those of its queues.
    NamespaceSet(Namespace),
    /// A schedule is new, or a field other than the next occurrence changed
    /// ([`crate::Engine::schedule`]).
    SchedulePut(JobId),
    /// A schedule's next occurrence or the number of remaining occurrences changed.
    ScheduleMoved(JobId),
    /// A schedule was removed.
    ScheduleGone(JobId),
    /// A batch is new, or a field other than the progress changed ([`crate::Engine::batch`]).
    BatchPut(JobId),
    /// A batch's progress changed.
    BatchMoved(JobId),
    /// A batch was removed.
    BatchGone(JobId),
    /// The day with this number started ([`crate::Engine::days`]). The record replaces that which is
    /// [`crate::DAYS_KEPT`] older.
    DayBegan(u64),
    /// A job has ended whose queue has a history: a row of that.
    Ended(Box<Ended>),
    /// Only the engine meta changed: job numbers were reserved, or a clock was set ([`crate::Engine::meta`]).
    Meta,
}
