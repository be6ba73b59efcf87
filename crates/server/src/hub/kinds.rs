//! What each command needs of the store.

use windlass_engine::{Command, Tag};
use windlass_session::Item;

/// Above this size, a job's commit takes long enough to delay others noticeably.
pub(super) const LARGE_BYTES: usize = 1 << 20;

/// Whether an item pushes a job that must be alone in its commit.
pub(super) fn is_large_push(item: &Item) -> bool {
    let Item::Command(_, Command::Push(job)) = item else { return false };
    job.durable && job.body.len() > LARGE_BYTES
}

/// Whether a command adds something that the store must keep.
pub(super) fn takes_room(command: &Command) -> bool {
    if let Command::Push(job) = command {
        return job.durable;
    }
    matches!(command, Command::SetSchedule(_) | Command::BatchNew(_))
}

/// Whether a command ends a job without an answer.
pub(super) const fn ends_unanswered(tag: Tag, command: &Command) -> bool {
    matches!(command, Command::Finish { .. } | Command::Fail { .. }) && !tag.wants_answer()
}

/// Whether a command requires an answer that is true only once the store has it.
pub(super) fn needs_store(tag: Tag, command: &Command) -> bool {
    match command {
        Command::Push(job) => job.durable,
        Command::SetSchedule(_) | Command::BatchNew(_) | Command::Mutate { .. } | Command::Flush { .. } => true,
        Command::Finish { .. }
        | Command::Fail { .. }
        | Command::Unconvertible { .. }
        | Command::Release { .. }
        | Command::Extend { .. }
        | Command::Repay { .. }
        | Command::Track { .. }
        | Command::Replace { .. }
        | Command::Cancel(_)
        | Command::RemoveSchedule(_)
        | Command::BatchOpen { .. }
        | Command::BatchCommit { .. }
        | Command::CreateQueue { .. }
        | Command::RemoveQueue { .. }
        | Command::PauseQueue { .. }
        | Command::LimitQueue { .. }
        | Command::Barrier
        | Command::ThrottleQueue { .. }
        | Command::RuleQueue { .. } => tag.wants_answer(),
        Command::Open(_)
        | Command::Close
        | Command::SetClientName(_)
        | Command::Serve(_)
        | Command::Unserve { .. }
        | Command::UnserveAll { .. }
        | Command::Take(_)
        | Command::WaitForWork
        | Command::Credit { .. }
        | Command::Unwait
        | Command::Bridge(_)
        | Command::Progress { .. }
        | Command::Look(_)
        | Command::ListSchedules { .. }
        | Command::LookBatch { .. }
        | Command::LookQueue { .. }
        | Command::ListQueues { .. }
        | Command::ListJobs { .. }
        | Command::ListClients { .. }
        | Command::Stats
        | Command::RegisterWorker { .. }
        | Command::Beat { .. }
        | Command::SetWorkerState { .. } => false,
    }
}
