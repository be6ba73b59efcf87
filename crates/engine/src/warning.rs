//! Warnings: events that an operator should know about although no client requested them, such as jobs that
//! fail for good and rejected jobs.
//!
//! The engine logs nothing. A turn contains no more than one warning of each kind, with the first case as an
//! example and the number of all cases, so that a million jobs that expire in a visit cost a million
//! additions. The caller of the engine reads the warnings ([`crate::Context::warnings`]) or ignores them.

use bytes::Bytes;

use crate::ids::Protocol;
use crate::refusal::Refusal;

/// An event of one or more jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Warning {
    /// The kind of event.
    pub kind: WarningKind,
    /// The number of cases in this turn.
    pub times: u64,
    /// The queue of the first case.
    pub queue: Bytes,
    /// The producer's name for the first job, or the ID if it has no name; empty before the job exists. For a
    /// schedule, the key.
    pub name: Bytes,
    /// The failure of the first job as the worker reported it, shortened; empty if it did not fail.
    pub why: Bytes,
}

/// The kind of event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WarningKind {
    /// Jobs failed, or the workers disappeared too often, and moved to the dead-letter queue.
    Buried,
    /// Workers disappeared while they had jobs: the connections closed, or they missed heartbeats. `why`
    /// names the first worker.
    WorkerLost,
    /// Jobs were removed because workers disappeared too often and the retry policy discards them
    /// on failure.
    LostForGood,
    /// Jobs could not be converted to the worker's protocol. They stay ready for workers of another protocol,
    /// or are given up if no other protocol can take them.
    Unfit {
        /// They were given up.
        is_dead: bool,
    },
    /// Jobs of one protocol are ready in a queue that only workers of other protocols serve. Reported no more
    /// than once a minute per queue.
    Unserved {
        /// The protocol of the jobs.
        jobs: Protocol,
        /// The protocols of the workers there.
        workers: Vec<Protocol>,
    },
    /// Jobs expired before they were taken, and were removed.
    Expired,
    /// Results, outcomes and records for repeated submits were dropped before the end of retention, to make
    /// space.
    Forgotten,
    /// Nine of ten names for queues are in use. Beyond the limit, queues that have nothing but a name are
    /// removed.
    QueuesNearlyFull,
    /// New jobs were rejected for this reason. `NotUnique` is a normal reply and causes no warning.
    Refused(Refusal),
    /// New names, subscriptions, workers or waits were rejected, because memory has no space for them.
    NoRoom(Refusal),
    /// Occurrences of schedules were rejected for this reason.
    RunRefused(Refusal),
    /// Jobs that are pushed because another job died were rejected for this reason. `name` is the dead job's.
    OnDeadRefused(Refusal),
    /// In new jobs no key could be read, by which the policy of the queue would treat them. They share the
    /// empty key.
    Keyless,
}

impl WarningKind {
    /// Refusals that differ only in the numbers are of the same kind.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Refused(one), Self::Refused(other))
            | (Self::RunRefused(one), Self::RunRefused(other))
            | (Self::NoRoom(one), Self::NoRoom(other))
            | (Self::OnDeadRefused(one), Self::OnDeadRefused(other)) => one.is_like(*other),
            // Each of these warnings is about a different queue.
            (Self::Unserved { .. }, _) => false,
            _ => self == other,
        }
    }
}
