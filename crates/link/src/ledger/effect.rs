//! What a command changes in the ledger, and how much of the ledger a thing is.

use bytes::Bytes;
use windlass_engine::{
    ClientCommand, Command, From, JobCommand, JobRef, LeaseCommand, NewJob, Proof, Subscription,
    Tag, Take, TakeCommand, Timestamp, WorkerCommand, WorkerState,
};

/// Counted for each thing beside its names and bodies.
pub(super) const FIXED_BYTES: usize = 128;

/// What a command changes here.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    /// Nothing.
    None,
    Client(ClientCommand),
    Take(Tag, TakeCommand),
    SetState {
        worker: Bytes,
        state: WorkerState,
    },
    Register {
        worker: Bytes,
        about: Bytes,
    },
    Push(Push),
    End(Tag, JobRef, Proof),
    Extend {
        job: JobRef,
        proof: Proof,
        until: Timestamp,
        only_later: bool,
    },
}

impl Effect {
    pub(super) fn of(tag: Tag, command: &Command) -> Self {
        match command {
            Command::Client(command) => Self::Client(command.clone()),
            Command::Take(command) => Self::Take(tag, command.clone()),
            // Without an answer the job's number is not known.
            Command::Job(JobCommand::Push(job)) if job.listen.is_wanted() && tag.wants_answer() => {
                Self::Push(Push {
                    tag,
                    new: (!job.durable).then(|| job.clone()),
                })
            }
            Command::Lease(command) => Self::of_lease(tag, command),
            Command::Worker(WorkerCommand::Register { worker, about }) => Self::Register {
                worker: worker.clone(),
                about: about.clone(),
            },
            Command::Worker(WorkerCommand::SetState { worker, state }) => Self::SetState {
                worker: worker.clone(),
                state: *state,
            },
            Command::Job(_)
            | Command::Worker(_)
            | Command::Query(_)
            | Command::Queue(_)
            | Command::Schedule(_)
            | Command::Batch(_)
            | Command::Bulk(_)
            | Command::Barrier
            | Command::Namespace(_)
            | Command::Claim(_) => Self::None,
        }
    }

    fn of_lease(tag: Tag, command: &LeaseCommand) -> Self {
        match command {
            LeaseCommand::Finish { job, proof, .. }
            | LeaseCommand::Fail { job, proof, .. }
            | LeaseCommand::Unconvertible { job, proof, .. }
            | LeaseCommand::Release { job, proof, .. }
            | LeaseCommand::Repay { job, proof, .. } => Self::End(tag, job.clone(), *proof),
            LeaseCommand::Extend {
                job,
                proof,
                until,
                only_later,
            } => Self::Extend {
                job: job.clone(),
                proof: *proof,
                until: *until,
                only_later: *only_later,
            },
            LeaseCommand::Progress { .. } => Self::None,
        }
    }

    /// What it counts as.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Client(ClientCommand::Open(info)) => {
                FIXED_BYTES + info.address.len() + info.namespace.as_deref().map_or(0, str::len)
            }
            Self::Client(
                ClientCommand::SetName(text)
                | ClientCommand::Serve(Subscription { queue: text, .. })
                | ClientCommand::Unserve { queue: text, .. },
            )
            | Self::SetState { worker: text, .. }
            | Self::End(_, JobRef::Name(text) | JobRef::KeyAnywhere { key: text, .. }, _) => {
                weight([text])
            }
            Self::Client(ClientCommand::Watch { queue, text, .. }) => {
                weight(queue.iter().chain([text]))
            }
            Self::Register { worker, about } => weight([worker, about]),
            Self::Take(_, TakeCommand::Take(take)) => take_weight(take),
            Self::Push(push) => new_weight(push.new.as_deref()),
            Self::None | Self::Client(_) | Self::Take(..) | Self::End(..) | Self::Extend { .. } => {
                FIXED_BYTES
            }
        }
    }
}

/// A push with a listener.
#[derive(Clone, Debug)]
pub(super) struct Push {
    pub(super) tag: Tag,
    /// The job, if it lives only while clients listen.
    pub(super) new: Option<Box<NewJob>>,
}

/// The size charged for an entry with these texts.
pub(super) fn weight<'a>(texts: impl IntoIterator<Item = &'a Bytes>) -> usize {
    FIXED_BYTES + texts.into_iter().map(Bytes::len).sum::<usize>()
}

/// The size charged for a take.
pub(super) fn take_weight(take: &Take) -> usize {
    let queues: usize = match &take.from {
        From::Subscriptions => 0,
        From::Listed { queues, .. } => queues.iter().map(|queue| weight([queue])).sum(),
        From::Cycle { queue, .. } => queue.len(),
    };
    FIXED_BYTES + queues + take.worker.len()
}

/// What a push counts as.
pub(super) fn new_weight(new: Option<&NewJob>) -> usize {
    let Some(new) = new else { return FIXED_BYTES };
    let key = new.unique.as_ref().map_or(0, |unique| unique.key.len());
    3 * FIXED_BYTES
        + key
        + weight(
            [&new.queue, &new.body, &new.meta]
                .into_iter()
                .chain(&new.name),
        )
}
