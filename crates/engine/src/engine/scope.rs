//! The objects that the clients of a protocol see and may modify: a single rule for every query, every bulk
//! change, and every command that names a job, a schedule or a batch. Queues have the same rule
//! ([`Queue::scope`], [`Queue::is_known_to`]).
//!
//! A client with a protocol sees the objects of that protocol, and everything in a bridged queue, as if each
//! protocol had a separate server. A client without a protocol (an operator, the daemon) sees everything.

use super::call::Call;
use super::state::State;
use crate::batches::Batch;
use crate::clients::Worker;
use crate::ids::{ClientId, Protocol, QueueId};
use crate::jobs::{Holder, Job};
use crate::queues::Queue;
use crate::schedules::Schedule;

/// The protocol to which a client is limited; `None` = it sees everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scope(Option<Protocol>);

impl Scope {
    pub(super) const ALL: Self = Self(None);

    /// The scope of a command's client.
    pub(super) fn of(state: &State, call: &Call<'_>) -> Self {
        Self::of_client(state, call.client)
    }

    pub(super) fn of_client(state: &State, client: ClientId) -> Self {
        Self(state.clients.protocol_of(client))
    }

    pub(super) const fn protocol(self) -> Option<Protocol> {
        self.0
    }

    /// Returns true if it contains everything of this protocol.
    pub(super) fn includes(self, protocol: Protocol) -> bool {
        self.is(Some(protocol))
    }

    fn is(self, protocol: Option<Protocol>) -> bool {
        self.0.is_none() || self.0 == protocol
    }

    pub(super) fn has_job(self, state: &State, job: &Job) -> bool {
        self.includes(job.protocol) || is_bridged(state, job.queue)
    }

    /// Returns true if a client in this scope has a job, which may be so in a queue that was bridged when it
    /// took the job.
    pub(super) fn holds(self, state: &State, holder: &Holder) -> bool {
        match holder {
            Holder::Connection(client) => self.is(state.clients.protocol_of(*client)),
            Holder::Named(worker) => self.is(state.workers.get(worker).and_then(Worker::protocol)),
            Holder::Away(protocol) => self.includes(*protocol),
        }
    }

    pub(super) fn has_schedule(self, state: &State, schedule: &Schedule) -> bool {
        let job = &schedule.job;
        self.includes(job.protocol)
            || state
                .queues
                .named(&job.queue)
                .is_some_and(|queue| is_bridged(state, queue))
    }

    pub(super) fn has_batch(self, batch: &Batch) -> bool {
        self.includes(batch.protocol)
    }

    /// Returns true if the name of a queue that a client of this protocol serves is visible.
    pub(super) fn has_subscription(
        self,
        state: &State,
        of: Option<Protocol>,
        queue: QueueId,
    ) -> bool {
        of.is_none() || self.is(of) || is_bridged(state, queue)
    }
}

fn is_bridged(state: &State, queue: QueueId) -> bool {
    state.queues.at(queue).is_some_and(Queue::is_bridged)
}
