//! The terms of each command: the requirements to the store, the right that it needs, and the queue names
//! that it contains. A carrier (the server, a translator of names, a test) uses these functions and matches
//! no commands itself.

use bytes::Bytes;

use crate::claim::Claim;
use crate::command::{
    BatchCommand, BulkCommand, ClientCommand, Command, JobCommand, LeaseCommand, NamespaceCommand,
    QueueCommand, ScheduleCommand, TakeCommand, WorkerCommand,
};
use crate::condition::Condition;
use crate::ids::Tag;
use crate::query::Query;
use crate::request::{From, JobRef, NewJob, Proof};
use crate::rights::Right;

/// The requirements of a command to the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    /// No requirement.
    Nothing,
    /// The store must respond if the command requests a reply, because the reply is true only once the store
    /// has the change.
    ToAnswer,
    /// To respond.
    ToRespond,
    /// The store must respond, and have space for something new.
    Room,
}

impl Command {
    fn needs(&self) -> Needs {
        match self {
            Self::Job(JobCommand::Push(job)) if job.durable => Needs::Room,
            Self::Job(JobCommand::Push(_) | JobCommand::Collect { .. })
            | Self::Lease(LeaseCommand::Progress { .. })
            | Self::Queue(QueueCommand::Bridge(_) | QueueCommand::SetPatterns(_))
            | Self::Bulk(BulkCommand::ReadKeys { .. })
            | Self::Client(_)
            | Self::Take(_)
            | Self::Worker(_)
            | Self::Query(_)
            | Self::Claim(_) => Needs::Nothing,
            Self::Namespace(NamespaceCommand::Set { .. })
            | Self::Schedule(ScheduleCommand::Set(_) | ScheduleCommand::Run(_))
            | Self::Batch(BatchCommand::New(_)) => Needs::Room,
            Self::Bulk(_) => Needs::ToRespond,
            Self::Job(_)
            | Self::Lease(_)
            | Self::Queue(_)
            | Self::Schedule(_)
            | Self::Batch(_)
            | Self::Namespace(_)
            | Self::Barrier => Needs::ToAnswer,
        }
    }

    /// The right that a client needs for the command; `None` if any client may send it.
    pub const fn right(&self) -> Option<Right> {
        match self {
            Self::Job(
                JobCommand::Push(_) | JobCommand::Replace { .. } | JobCommand::Collect { .. },
            )
            | Self::Schedule(ScheduleCommand::Set(_) | ScheduleCommand::Remove(_))
            | Self::Batch(_) => Some(Right::Submit),
            Self::Client(ClientCommand::Serve(_))
            | Self::Job(JobCommand::Track { .. })
            | Self::Take(
                TakeCommand::Take(_) | TakeCommand::WaitForWork | TakeCommand::Credit { .. },
            )
            | Self::Lease(_)
            | Self::Worker(WorkerCommand::Register { .. } | WorkerCommand::Beat { .. }) => {
                Some(Right::Work)
            }
            Self::Client(ClientCommand::Watch { .. } | ClientCommand::Disconnect(_))
            | Self::Job(JobCommand::Cancel(_))
            | Self::Queue(_)
            | Self::Schedule(ScheduleCommand::Run(_) | ScheduleCommand::Pause { .. })
            | Self::Worker(WorkerCommand::SetState { .. } | WorkerCommand::Drain)
            | Self::Namespace(_)
            | Self::Bulk(_) => Some(Right::Administer),
            Self::Query(query) => query.right(),
            Self::Client(_) | Self::Take(TakeCommand::Unwait) | Self::Barrier | Self::Claim(_) => {
                None
            }
        }
    }

    /// Returns true if the command has an effect or a reply that is true only once the store has
    /// it.
    pub fn needs_store(&self, tag: Tag) -> bool {
        let needs = self.needs();
        needs >= Needs::ToRespond || needs == Needs::ToAnswer && tag.wants_answer()
    }

    /// Returns true if the command adds something to the store.
    pub fn takes_room(&self) -> bool {
        self.needs() == Needs::Room
    }

    /// Returns true if the command gets a reply on success. A refusal is always sent.
    pub const fn is_answered(&self, tag: Tag) -> bool {
        match self {
            Self::Client(command) => {
                matches!(command, ClientCommand::Disconnect(_)) && tag.wants_answer()
            }
            Self::Take(command) => matches!(command, TakeCommand::Take(_)),
            Self::Claim(_) => false,
            Self::Job(JobCommand::Collect { .. })
            | Self::Query(_)
            | Self::Bulk(_)
            | Self::Barrier
            | Self::Worker(WorkerCommand::Beat { .. }) => true,
            Self::Job(_)
            | Self::Lease(_)
            | Self::Queue(_)
            | Self::Schedule(_)
            | Self::Batch(_)
            | Self::Namespace(_)
            | Self::Worker(_) => tag.wants_answer(),
        }
    }

    /// The job that the command submits.
    pub const fn new_job(&self) -> Option<&NewJob> {
        if let Self::Job(JobCommand::Push(job)) = self {
            Some(job)
        } else {
            None
        }
    }

    /// Returns true if the command examines jobs' bodies, so that it may have to wait for some
    /// ([`crate::Context::missing`]).
    pub fn reads_bodies(&self) -> bool {
        if matches!(
            self,
            Self::Bulk(
                BulkCommand::ReadKeys { .. }
                    | BulkCommand::Redrive { .. }
                    | BulkCommand::MoveQueue(_)
            )
        ) {
            return true;
        }
        let (Self::Bulk(BulkCommand::Mutate { filter, .. })
        | Self::Query(
            Query::Jobs { filter, .. }
            | Query::JobsBy { filter, .. }
            | Query::Preview { filter, .. },
        )) = self
        else {
            return false;
        };
        filter.conditions.iter().any(Condition::reads_body)
    }

    /// Returns true if a worker reports with this command that it has finished a job.
    pub const fn ends_job(&self) -> bool {
        matches!(
            self,
            Self::Lease(LeaseCommand::Finish { .. } | LeaseCommand::Fail { .. })
        )
    }

    /// Returns true if the command requests work and may block.
    pub const fn waits_for_work(&self) -> bool {
        matches!(
            self,
            Self::Take(
                TakeCommand::Take(_) | TakeCommand::WaitForWork | TakeCommand::Credit { .. }
            )
        )
    }

    /// Returns true if the command may be too long for one visit
    /// ([`crate::Engine::apply_in_part`]).
    pub const fn runs_in_parts(&self) -> bool {
        matches!(
            self,
            Self::Client(ClientCommand::Close | ClientCommand::UnserveAll { .. })
        )
    }

    /// Passes each queue name in this command to `each`.
    pub fn queue_names_mut(&mut self, mut each: impl FnMut(&mut Bytes)) {
        match self {
            Self::Client(ClientCommand::Serve(subscription)) => each(&mut subscription.queue),
            Self::Client(ClientCommand::Watch { queue, .. }) => queue.iter_mut().for_each(each),
            Self::Client(ClientCommand::Unserve { queue, .. })
            | Self::Query(Query::Queue { queue } | Query::Keys { queue, .. }) => each(queue),
            Self::Job(JobCommand::Push(job)) => each(&mut job.queue),
            Self::Job(
                JobCommand::Track { job, .. }
                | JobCommand::Replace { job, .. }
                | JobCommand::Cancel(job),
            )
            | Self::Query(Query::Job(job) | Query::Why(job) | Query::Attempts(job)) => {
                job.queue_name_mut(each)
            }
            Self::Take(TakeCommand::Take(take)) => match &mut take.from {
                From::Subscriptions => {}
                From::Listed { queues, .. } => queues.iter_mut().for_each(each),
                From::Cycle { queue, .. } => each(queue),
            },
            Self::Lease(command) => command.job_mut().queue_name_mut(each),
            Self::Queue(command) => command.queue_mut().into_iter().for_each(each),
            Self::Schedule(ScheduleCommand::Set(schedule)) => each(&mut schedule.job.queue),
            Self::Batch(BatchCommand::New(batch)) => {
                batch
                    .complete
                    .iter_mut()
                    .chain(&mut batch.success)
                    .for_each(|job| each(&mut job.queue));
            }
            Self::Bulk(BulkCommand::Mutate { filter, .. })
            | Self::Query(
                Query::Jobs { filter, .. }
                | Query::JobsBy { filter, .. }
                | Query::Preview { filter, .. },
            ) => {
                filter.queue.iter_mut().for_each(each);
            }
            Self::Bulk(BulkCommand::MoveQueue(it)) => each(&mut it.queue),
            Self::Bulk(BulkCommand::Redrive { filter, to, .. }) => {
                filter.queue.iter_mut().chain([to]).for_each(each)
            }
            Self::Claim(claim) => match &mut **claim {
                Claim::Holds { held, .. } => each(&mut held.queue),
                Claim::Pushed { new, .. } => each(&mut new.queue),
                Claim::Hears { .. } => {}
            },
            Self::Client(_)
            | Self::Job(JobCommand::Collect { .. })
            | Self::Take(_)
            | Self::Schedule(_)
            | Self::Batch(_)
            | Self::Worker(_)
            | Self::Bulk(BulkCommand::Flush { .. } | BulkCommand::ReadKeys { .. })
            | Self::Query(_)
            | Self::Namespace(_)
            | Self::Barrier => {}
        }
    }
}

impl Query {
    /// An object that the client can name may be read by any client. Listings of all objects are
    /// for administrators.
    const fn right(&self) -> Option<Right> {
        let is_free = matches!(
            self,
            Self::Job(_) | Self::Batch { .. } | Self::Queue { .. } | Self::Stats
        );
        if is_free {
            None
        } else {
            Some(Right::Administer)
        }
    }
}

impl LeaseCommand {
    /// The job that the worker names.
    pub(crate) const fn job_mut(&mut self) -> &mut JobRef {
        self.parts_mut().0
    }

    /// The job that the worker names, and the proof of the lease.
    pub const fn proof_mut(&mut self) -> (&JobRef, &mut Proof) {
        let (job, proof) = self.parts_mut();
        (job, proof)
    }

    const fn parts_mut(&mut self) -> (&mut JobRef, &mut Proof) {
        match self {
            Self::Finish { job, proof, .. }
            | Self::Fail { job, proof, .. }
            | Self::Unconvertible { job, proof, .. }
            | Self::Release { job, proof, .. }
            | Self::Extend { job, proof, .. }
            | Self::Repay { job, proof, .. }
            | Self::Progress { job, proof, .. } => (job, proof),
        }
    }
}

impl QueueCommand {
    const fn queue_mut(&mut self) -> Option<&mut Bytes> {
        match self {
            Self::Create { queue, .. }
            | Self::Remove { queue, .. }
            | Self::Pause { queue, .. }
            | Self::Limit { queue, .. }
            | Self::Throttle { queue, .. }
            | Self::SetRules { queue, .. }
            | Self::SetPolicy { queue, .. }
            | Self::PauseKey { queue, .. } => Some(queue),
            Self::Bridge(_) | Self::SetPatterns(_) => None,
        }
    }
}

impl JobRef {
    fn queue_name_mut(&mut self, each: impl FnOnce(&mut Bytes)) {
        if let Self::Key(key) = self {
            each(&mut key.queue);
        }
    }
}
