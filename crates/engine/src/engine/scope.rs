//! The objects that the clients of a realm see and may modify: a single rule for every query, every bulk
//! change, and every command that names a job, a schedule or a batch. Queues have the same rule
//! ([`Queue::scope`], [`Queue::is_known_to`]).
//!
//! A client sees the objects of its namespace only. There, a client with a protocol sees the objects of that
//! protocol, and everything in a bridged queue, as if each protocol had a separate server. A client without a
//! protocol (an operator, the daemon) sees everything in its namespace; without a namespace, everything.

use super::call::Call;
use super::state::State;
use crate::batches::Batch;
use crate::clients::{Client, Worker};
use crate::ids::{ClientId, NameIn, Namespace, Protocol, QueueId, Realm};
use crate::jobs::{Holder, Job};
use crate::queues::Queue;
use crate::refusal::{Outcome, Refusal};
use crate::schedules::Schedule;

/// The namespace and the protocol to which a client is limited; `None` = it sees those of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scope {
    namespace: Option<Namespace>,
    protocol: Option<Protocol>,
}

impl Scope {
    pub(super) const ALL: Self = Self {
        namespace: None,
        protocol: None,
    };

    /// Everything in a namespace.
    pub(super) const fn whole(namespace: Namespace) -> Self {
        Self {
            namespace: Some(namespace),
            protocol: None,
        }
    }

    /// The scope of a command's client.
    pub(super) fn of(state: &State, call: &Call<'_>) -> Self {
        Self::of_client(state, call.client)
    }

    pub(super) fn of_client(state: &State, client: ClientId) -> Self {
        state.clients.get(client).map_or(Self::ALL, |client| Self {
            namespace: client.sees(),
            protocol: client.protocol(),
        })
    }

    pub(super) const fn namespace(self) -> Option<Namespace> {
        self.namespace
    }

    pub(super) const fn protocol(self) -> Option<Protocol> {
        self.protocol
    }

    /// Returns true if things of this namespace are visible.
    pub(super) fn reaches(self, namespace: Namespace) -> bool {
        self.namespace.is_none_or(|own| own == namespace)
    }

    /// Returns true if it contains everything of this realm.
    pub(super) fn includes(self, realm: Realm) -> bool {
        self.reaches(realm.namespace) && self.is(Some(realm.protocol))
    }

    /// Returns true if things of this protocol are visible.
    pub(super) fn is(self, protocol: Option<Protocol>) -> bool {
        self.protocol.is_none() || self.protocol == protocol
    }

    pub(super) fn has_queue(self, queue: &Queue) -> bool {
        self.reaches(queue.image().id.namespace()) && queue.is_known_to(self.protocol)
    }

    pub(super) fn has_job(self, state: &State, job: &Job) -> bool {
        self.includes(job.realm())
            || self.reaches(job.queue.namespace()) && is_bridged(state, job.queue)
    }

    /// Returns true if a client in this scope has a job, which may be so in a queue that was bridged when it
    /// took the job.
    pub(super) fn holds(self, state: &State, job: &Job, holder: &Holder) -> bool {
        let namespace = job.queue.namespace();
        let protocol = match holder {
            Holder::Connection(client) => state.clients.protocol_of(*client),
            Holder::Named(worker) => {
                let worker = state.workers.get(NameIn(namespace, worker));
                worker.and_then(Worker::protocol)
            }
            Holder::Away(protocol) => Some(*protocol),
        };
        self.reaches(namespace) && self.is(protocol)
    }

    pub(super) fn has_schedule(self, state: &State, schedule: &Schedule) -> bool {
        let job = &schedule.job;
        let is_shared = || {
            let queue = state.queues.named(job.namespace, &job.queue);
            self.reaches(job.namespace) && queue.is_some_and(|queue| is_bridged(state, queue))
        };
        self.includes(job.realm()) || is_shared()
    }

    pub(super) fn has_batch(self, batch: &Batch) -> bool {
        self.includes(batch.realm())
    }

    pub(super) fn has_client(self, client: &Client) -> bool {
        self.reaches(client.namespace())
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

/// Returns true if a client sees things of a namespace.
pub(super) fn reaches(state: &State, client: ClientId, namespace: Namespace) -> bool {
    state.queues.namespaces().is_empty() || Scope::of_client(state, client).reaches(namespace)
}

/// Checks a command that concerns all namespaces.
///
/// # Errors
///
/// There are several, and the client is limited to one.
pub(super) fn must_see_all(state: &State, call: &Call<'_>) -> Outcome {
    let sees_all = Scope::of(state, call).namespace().is_none();
    if sees_all || state.queues.namespaces().is_empty() {
        Ok(())
    } else {
        Err(Refusal::NotPermitted)
    }
}

fn is_bridged(state: &State, queue: QueueId) -> bool {
    state.queues.at(queue).is_some_and(Queue::is_bridged)
}
