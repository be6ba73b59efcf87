//! The parts of commands: new jobs, takes, references to jobs and leases, filters.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::ids::{JobId, Namespace, Priority, Protocol, Realm, Timestamp, Token};
use crate::jobs::{Expiry, JobState, JobStateKind, KeyUntil, OnExpiry, Retry};

/// The peer of a connection.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct ClientInfo {
    /// The address, as text for display. Empty for a Unix socket.
    pub address: Box<str>,
    /// The protocol it speaks.
    pub protocol: Option<Protocol>,
    /// A small number for display: gearmand shows a file descriptor here.
    pub number: u32,
    /// The name of the namespace that it is in; `None` and the empty name are the namespace without a name. A
    /// client without a protocol is in no namespace with `None`: it sees them all, and names things in that
    /// without a name.
    pub namespace: Option<Box<str>>,
}

impl ClientInfo {
    /// Returns true for a producer or a worker of a fleet: not for a request over HTTP, which may be an operator's, and
    /// not for a client without a protocol.
    pub(crate) fn is_of_fleet(&self) -> bool {
        self.protocol
            .is_some_and(|protocol| protocol != Protocol::HTTP)
    }
}

/// A queue a client can work on, and the terms for jobs that it receives from it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Subscription {
    /// The queue's name.
    pub queue: Bytes,
    /// Clients with credits are served in order of weight, higher first (EventMQ).
    pub weight: u32,
    /// The lease for jobs taken from this queue.
    pub lease: LeaseTerms,
    /// This client's credits also apply to unclaimed jobs of this protocol, as if they were in this queue. An
    /// unclaimed job is the first ready job of a `work` queue that no worker serves. It is leased on the
    /// terms of this subscription and keeps the name of its queue. Clients that are waiting at that queue
    /// take precedence. `Take` and `WaitForWork` ignore unclaimed jobs.
    pub unclaimed: Option<Protocol>,
}

impl Subscription {
    /// The limit of registrations of the same queue by the same client; further ones are ignored, because
    /// some workers register before each job.
    pub const TIMES_MAX: u32 = 8;
}

/// The lease that a client requests for a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct LeaseTerms {
    /// True if the lease is released when the connection closes. Otherwise it only expires by time.
    pub connection_bound: bool,
    /// Milliseconds until the lease expires, at least 1; `None` = never.
    pub lease_ms: Option<u64>,
    /// The effect of expiry on the job.
    pub on_expiry: OnExpiry,
    /// If the job requests a lease ([`NewJob::lease_ms`]), the duration and this consequence replace
    /// `lease_ms` and `on_expiry`. `None` = the job's request is ignored.
    pub wish: Option<OnExpiry>,
}

impl LeaseTerms {
    /// Returns true for a reservation as in FWP: the worker has the job until the lease expires, and the job
    /// has then failed.
    pub(crate) const fn is_reservation(&self) -> bool {
        !self.connection_bound && matches!(self.on_expiry, OnExpiry::Fail)
    }

    /// A lease for as long as the connection is open.
    pub const CONNECTION: Self = Self {
        connection_bound: true,
        lease_ms: None,
        on_expiry: OnExpiry::Requeue,
        wish: None,
    };
}

/// A job to submit.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct NewJob {
    /// The queue's name. An unknown queue is created. `kind` must match an existing queue.
    pub queue: Bytes,
    /// The kind of the queue.
    pub kind: QueueKind,
    /// The protocol of the producer.
    pub protocol: Protocol,
    /// Jobs with a higher priority are taken first.
    pub priority: Priority,
    /// Recorded in the journal. Otherwise the job is removed when no client listens to it, and a push by a
    /// producer that does not listen is rejected with `OutOfPlace`.
    pub durable: bool,
    /// True if the producer receives progress and the end.
    pub listen: Listen,
    /// Insert the job before the jobs of the same priority instead of behind them.
    pub front: bool,
    /// The producer's bytes, verbatim. A body of up to [`Payload::COPY_MAX`](crate::Payload::COPY_MAX) bytes
    /// is copied, so it may be part of a larger buffer. A longer body is used without a copy.
    pub body: Bytes,
    /// The producer's public name for the job.
    pub name: Option<Bytes>,
    /// Refuse (`NotUnique`) if another job already has this name.
    pub name_unique: bool,
    /// Bytes for the session, returned with the job.
    pub meta: Bytes,
    /// The coalescing key, if any.
    pub unique: Option<Unique>,
    /// Do not deliver before this time (wall clock).
    pub not_before: Option<Timestamp>,
    /// Discard if not taken before this time.
    pub expires: Expiry,
    /// The retry policy.
    pub retry: Retry,
    /// The producer set no retry policy: the queue's rule applies, if it has one ([`crate::QueueRules::retry`]).
    pub retry_default: bool,
    /// Retention of the result, in milliseconds; 0 = discarded.
    pub result_keep_ms: u64,
    /// The job's outcome can be queried for this many milliseconds after the job has finished, unless a
    /// command removed the job; 0 = not tracked.
    pub track_ms: u64,
    /// The lease that the job requests, in milliseconds. It overrides the taker's lease if the taker permits
    /// ([`LeaseTerms::wish`]).
    pub lease_ms: Option<u64>,
    /// The name of an existing batch for the job to join. Only a durable job of a `work` queue with `past`
    /// unset may join. A push that finds an existing job (`Attached`, `Kept`) joins no batch.
    pub batch: Option<Bytes>,
    /// The history on another server, if it was imported.
    pub past: Option<Box<Past>>,
    /// The ended job that is run again as this one, for the rows of the history.
    pub again_of: Option<JobId>,
    /// The namespace of the queue. The engine sets it in the commands of clients.
    pub namespace: Namespace,
}

/// A job's history on another server, for imports. A schedule's template has no history.
#[derive(Clone, Debug, PartialEq, Default, Deserialize, Serialize)]
pub struct Past {
    /// When it became ready there (wall clock), never later than now.
    pub ready_at: Option<Timestamp>,
    /// Failures so far; they reduce the retry budget.
    pub failures: u32,
    /// The state, if [`NewJob::not_before`] does not determine it: leased to a named worker, retrying or
    /// dead. A time in the past is due immediately.
    pub state: Option<JobState>,
}

impl NewJob {
    /// The simplest job: durable, normal priority, no retry, no listener.
    pub fn new(protocol: Protocol, queue: Bytes, body: Bytes) -> Self {
        Self {
            queue,
            kind: QueueKind::Work,
            protocol,
            priority: Priority::NORMAL,
            durable: true,
            listen: Listen::No,
            front: false,
            body,
            name: None,
            name_unique: false,
            meta: Bytes::new(),
            unique: None,
            not_before: None,
            expires: Expiry::Never,
            retry: Retry::NONE,
            retry_default: false,
            result_keep_ms: 0,
            track_ms: 0,
            lease_ms: None,
            past: None,
            again_of: None,
            batch: None,
            namespace: Namespace::UNNAMED,
        }
    }

    pub(crate) const fn realm(&self) -> Realm {
        self.namespace.realm(self.protocol)
    }

    /// Moves all times that use the engine's time, for a move to another engine.
    pub fn shift(&mut self, ms: i64) {
        self.expires.shift(ms);
        self.unique
            .iter_mut()
            .for_each(|unique| unique.until.shift(ms));
        self.past
            .iter_mut()
            .filter_map(|past| past.state.as_mut())
            .for_each(|state| state.shift(ms));
    }

    /// The memory used by the template, in bytes.
    pub(crate) fn weight_bytes(&self) -> u64 {
        const FIXED: usize = 383;
        let names = [
            Some(&self.queue),
            self.name.as_ref(),
            Some(&self.meta),
            Some(&self.body),
        ];
        let unique = self.unique.as_ref().map_or(0, |unique| unique.key.len());
        (FIXED + unique + names.into_iter().flatten().map(Bytes::len).sum::<usize>()) as u64
    }
}

/// The producer's interest in the job. `No` and `Yes` are encoded as a `bool`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
pub enum Listen {
    /// It does not.
    #[default]
    No,
    /// Until the producer's connection closes.
    Yes,
    /// Until the producer's connection closes; a later connection collects the outcome with this name, which
    /// is not empty ([`crate::JobCommand::Collect`]). Equal to `Yes` for a job that is not durable, because
    /// such a job is removed with the connections.
    As(Bytes),
}

impl Listen {
    /// Returns true if the producer listens.
    pub const fn is_wanted(&self) -> bool {
        !matches!(self, Self::No)
    }

    /// The name with which the outcome can be collected; empty if the outcome is not collected.
    pub fn name(&self) -> &[u8] {
        if let Self::As(name) = self { name } else { &[] }
    }
}

/// A coalescing key, and the rule for a push if the key is already in use.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Unique {
    /// Unique within (queue, protocol).
    pub key: Bytes,
    /// The rule if another job has the key.
    pub clash: Clash,
    /// When the job releases the key.
    pub until: KeyUntil,
}

/// The effect of a push if the key is already in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Clash {
    /// The producer becomes a listener of the existing job (Gearman).
    Attach,
    /// The push is refused (FWP).
    Refuse,
    /// The existing job stays as it is (spiderq).
    Keep,
}

/// The two kinds of queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
pub enum QueueKind {
    /// A finished job is removed.
    #[default]
    Work,
    /// A repaid entry returns to the queue.
    Cycle,
}

/// A request to take one job.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Take {
    /// The queues to take from.
    pub from: From,
    /// How to choose a queue when several have work.
    pub select: Select,
    /// The wait if no queue has work.
    pub wait: Wait,
    /// The worker's name, for a time-bound lease.
    pub worker: Bytes,
}

/// Which queues to take from.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum From {
    /// The queues that the client serves, on the terms of each subscription.
    Subscriptions,
    /// These `work` queues, on these terms. A `cycle` queue in the list is skipped.
    Listed {
        /// Names, in order.
        queues: Vec<Bytes>,
        /// The terms.
        lease: LeaseTerms,
    },
    /// This `cycle` queue, on these terms. Refused if it is a `work` queue.
    Cycle {
        /// The name.
        queue: Bytes,
        /// The terms.
        lease: LeaseTerms,
    },
}

/// How to choose a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Select {
    /// The first in the list that has work.
    ListOrder,
    /// The queue with the most urgent job, then the oldest job.
    BestPriority,
    /// The queue with the most urgent job. Queues with equally urgent jobs take turns, from the last in the
    /// list to the first.
    RoundRobin,
    /// The queue to which the client gave the highest weight, then the most urgent job, then the
    /// oldest.
    Weighted,
}

/// The deadline of a take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until this time.
    Until(Timestamp),
    /// As long as the connection is open.
    Forever,
}

/// A coalescing key in a queue.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct QueueKey {
    /// The queue's name.
    pub queue: Bytes,
    /// The protocol of the key space.
    pub protocol: Protocol,
    /// The key.
    pub key: Bytes,
}

/// A reference to a job in a command. A client with a protocol finds the jobs of that protocol, and those in
/// bridged queues.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum JobRef {
    /// By ID.
    Id(JobId),
    /// By the public name from the producer. If several jobs share the name: the leased one with the oldest
    /// lease, else the oldest job that is neither dead nor done, else the youngest.
    Name(Bytes),
    /// By coalescing key.
    Key(Box<QueueKey>),
    /// By a coalescing key that jobs of several queues may share. Always finds the same job while the set of
    /// jobs is the same.
    KeyAnywhere {
        /// The protocol of the key space.
        protocol: Protocol,
        /// The key.
        key: Bytes,
    },
}

impl JobRef {
    /// By a coalescing key in a queue.
    pub fn key(queue: Bytes, protocol: Protocol, key: Bytes) -> Self {
        Self::Key(Box::new(QueueKey {
            queue,
            protocol,
            key,
        }))
    }
}

/// A worker's claim to a job's lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Proof {
    /// This connection has the lease.
    Connection,
    /// The lease has this token.
    Token(Token),
    /// The job is leased, by any client (FWP: any connection may `ACK`). If the job was returned and taken
    /// again ([`crate::Extra::taken_back`]), the client's worker must have the lease.
    AnyLease,
    /// This connection has or had the lease, or a previous connection of the same worker did, possibly before
    /// the daemon restarted. Only for [`crate::LeaseCommand::Finish`]. The engine does not remember expired
    /// leases: it accepts the claim if the job is ready or retrying and a worker had it, or may have had it
    /// before the daemon started.
    Late,
}

/// The new position of a repaid entry (spiderq §Repay).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum RepayTo {
    /// Towards the tail, by one reward.
    Penalty,
    /// Towards the head, by one reward.
    Reward,
    /// The very front.
    Front,
    /// Out of the queue; the value stays.
    Drop,
}

/// A worker's report on a job in progress.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum Note {
    /// Numerator and denominator; listeners receive `raw` verbatim.
    Progress {
        /// The numerator.
        numerator: u32,
        /// The denominator.
        denominator: u32,
        /// A sentence, or bytes of the worker's choice.
        raw: Bytes,
    },
    /// Part of the result.
    Data(Bytes),
    /// A warning for a person to read.
    Warning(Bytes),
}

impl Note {
    /// The bytes that listeners receive.
    pub(crate) const fn body(&self) -> &Bytes {
        match self {
            Self::Progress { raw: bytes, .. } | Self::Data(bytes) | Self::Warning(bytes) => bytes,
        }
    }
}

/// Where a listing continues. Start with the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
pub struct Cursor(pub u64, pub u64);

/// Selects jobs that the client can see. Jobs must match every condition.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Filter {
    /// In this state; `None` = any.
    pub state: Option<JobStateKind>,
    /// In this queue; `None` = any.
    pub queue: Option<Bytes>,
    /// Jobs of this protocol; `None` = any.
    pub protocol: Option<Protocol>,
    /// Jobs with any of these IDs; empty = any. If set, `names` is ignored.
    pub ids: Vec<JobId>,
    /// Jobs with any of these public names; empty = any.
    pub names: Vec<Bytes>,
    /// Further conditions.
    pub conditions: Vec<Condition>,
}

impl Filter {
    /// The queue, if the filter matches exactly the ready jobs of this queue.
    pub(crate) const fn cleared_queue(&self) -> Option<&Bytes> {
        match self {
            Self {
                state: Some(JobStateKind::Ready),
                queue: Some(queue),
                protocol: None,
                ids,
                names,
                conditions,
            } if ids.is_empty() && names.is_empty() && conditions.is_empty() => Some(queue),
            _ => None,
        }
    }
}

/// A bulk change of jobs. Jobs in a state that the change does not apply to are skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Mutation {
    /// Remove them, except leased ones.
    Discard,
    /// Remove them in any state. A report on a removed job is rejected.
    Cancel,
    /// Move them to the dead-letter queue, unless they are leased, done or parked.
    Kill,
    /// Make dead, scheduled and retrying jobs ready immediately, behind the jobs that are ready
    /// now.
    Requeue,
    /// Return leased jobs of `work` queues to the original positions, as [`crate::LeaseCommand::Release`]
    /// does.
    Release,
    /// Take dead jobs out of the dead-letter queue at a limited rate. Each job is retrying until the job's
    /// time.
    Redrive {
        /// Delay of the first job, in milliseconds from now.
        delay_ms: u64,
        /// Jobs that become ready per second, at least 1.
        per_second: u32,
    },
}

/// The state requested of a named worker. It only advances.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize, Serialize)]
pub enum WorkerState {
    /// Take and process jobs.
    Running,
    /// Finish current jobs and take no more.
    Quiet,
    /// Finish current jobs and disconnect.
    Terminate,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_counts_the_bytes_of_its_texts() {
        let text = || Bytes::from_static(b"a text of 21 bytes...");
        let unique = || Unique {
            key: text(),
            clash: Clash::Keep,
            until: KeyUntil::End,
        };
        let plain = || NewJob::new(Protocol::GEARMAN, Bytes::new(), Bytes::new());
        let table = [
            (
                "queue",
                NewJob {
                    queue: text(),
                    ..plain()
                },
            ),
            (
                "name",
                NewJob {
                    name: Some(text()),
                    ..plain()
                },
            ),
            (
                "meta",
                NewJob {
                    meta: text(),
                    ..plain()
                },
            ),
            (
                "body",
                NewJob {
                    body: text(),
                    ..plain()
                },
            ),
            (
                "key",
                NewJob {
                    unique: Some(unique()),
                    ..plain()
                },
            ),
        ];
        for (what, job) in table {
            assert_eq!(job.weight_bytes() - plain().weight_bytes(), 21, "{what}");
        }
        assert!(
            plain().weight_bytes() >= size_of::<NewJob>() as u64,
            "{}",
            size_of::<NewJob>()
        );
    }

    #[test]
    fn only_a_filter_of_all_ready_jobs_clears_a_queue() {
        let all = || Filter {
            state: Some(JobStateKind::Ready),
            queue: Some("q".into()),
            ..Filter::default()
        };
        assert_eq!(all().cleared_queue(), Some(&"q".into()));
        let others = [
            Filter {
                state: None,
                ..all()
            },
            Filter {
                state: Some(JobStateKind::Dead),
                ..all()
            },
            Filter {
                queue: None,
                ..all()
            },
            Filter {
                protocol: Some(Protocol::GEARMAN),
                ..all()
            },
            Filter {
                ids: vec![JobId(1)],
                ..all()
            },
            Filter {
                names: vec!["j".into()],
                ..all()
            },
            Filter {
                conditions: vec![Condition::Unnamed],
                ..all()
            },
        ];
        others
            .iter()
            .for_each(|filter| assert_eq!(filter.cleared_queue(), None, "{filter:?}"));
    }
}
