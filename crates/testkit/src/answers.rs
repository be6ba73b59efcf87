//! Which replies answer which command. Every command may be refused.

use windlass_engine::{
    ClientCommand, Command, JobCommand, LeaseCommand, Query, QueueCommand, Reply, ScheduleCommand,
    TakeCommand, WorkerCommand,
};

/// Whether this reply answers the command.
#[must_use]
pub fn is_answered_by(command: &Command, reply: &Reply) -> bool {
    const DONE: fn(&Reply) -> bool = |reply| matches!(reply, Reply::Done);
    let answers: fn(&Reply) -> bool = match command {
        Command::Client(ClientCommand::Disconnect(_)) => DONE,
        Command::Job(JobCommand::Push(_)) | Command::Schedule(ScheduleCommand::Run(_)) => {
            |reply| matches!(reply, Reply::Pushed { .. })
        }
        Command::Job(JobCommand::Collect { .. }) => |reply| matches!(reply, Reply::Counted { .. }),
        Command::Take(TakeCommand::Take(_)) => {
            |reply| matches!(reply, Reply::Taken(_) | Reply::Empty)
        }
        Command::Client(_) | Command::Claim(_) | Command::Take(_) => |_| false,
        Command::Lease(LeaseCommand::Finish { .. }) => |reply| matches!(reply, Reply::Finished(_)),
        Command::Lease(LeaseCommand::Fail { .. }) => |reply| matches!(reply, Reply::Failed { .. }),
        Command::Queue(QueueCommand::Remove { .. }) => {
            |reply| matches!(reply, Reply::Done | Reply::Mutated { .. })
        }
        Command::Schedule(ScheduleCommand::Set(_)) => {
            |reply| matches!(reply, Reply::ScheduleSet { .. })
        }
        Command::Worker(WorkerCommand::Beat { .. }) => |reply| matches!(reply, Reply::Beaten(_)),
        Command::Bulk(_) => |reply| matches!(reply, Reply::Mutated { .. }),
        Command::Query(query) => answer(query),
        Command::Barrier => |reply| matches!(reply, Reply::Settled),
        Command::Job(_)
        | Command::Lease(_)
        | Command::Queue(_)
        | Command::Schedule(_)
        | Command::Batch(_)
        | Command::Namespace(_)
        | Command::Worker(_) => DONE,
    };
    matches!(reply, Reply::Refused(_)) || answers(reply)
}

fn answer(query: &Query) -> fn(&Reply) -> bool {
    match query {
        Query::Job(_) => |reply| matches!(reply, Reply::Looked { .. }),
        Query::Batch { .. } => |reply| matches!(reply, Reply::Batch(_)),
        Query::Batches { .. } => |reply| matches!(reply, Reply::Batches { .. }),
        Query::Queue { .. } | Query::Queues { .. } | Query::Configured { .. } => {
            |reply| matches!(reply, Reply::Queues { .. })
        }
        Query::Namespaces { .. } => |reply| matches!(reply, Reply::Namespaces { .. }),
        Query::Throttles { .. } => |reply| matches!(reply, Reply::Throttles { .. }),
        Query::Jobs { .. } | Query::JobsBy { .. } => |reply| matches!(reply, Reply::Jobs { .. }),
        Query::Preview { .. } => |reply| matches!(reply, Reply::Counted { .. }),
        Query::Workers { .. } => |reply| matches!(reply, Reply::Workers { .. }),
        Query::Clients { .. } => |reply| matches!(reply, Reply::Clients { .. }),
        Query::Schedules { .. } => |reply| matches!(reply, Reply::Schedules { .. }),
        Query::Why(_) => |reply| matches!(reply, Reply::Why(_)),
        Query::Figures { .. } => |reply| matches!(reply, Reply::Figures { .. }),
        Query::Stats => |reply| matches!(reply, Reply::Stats(_)),
        Query::Days => |reply| matches!(reply, Reply::Days(_)),
        Query::WorkLeft => |reply| matches!(reply, Reply::WorkLeft(_)),
        Query::Attempts(_) => |reply| matches!(reply, Reply::Attempts(_)),
        Query::Kinds { .. } => |reply| matches!(reply, Reply::Kinds { .. }),
        Query::Keys { .. } => |reply| matches!(reply, Reply::Keys { .. }),
    }
}
