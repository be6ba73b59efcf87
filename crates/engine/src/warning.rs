//! Notices: events that an operator should know of although no client asked, such as jobs that fail for good and jobs
//! that are refused.
//!
//! The engine logs nothing. A turn holds at most one notice of each kind, with the first case as its example and a
//! count of all cases; so a million jobs that expire in one visit cost a million additions. The caller of the engine
//! reads the warnings ([`crate::Context::warnings`]) or ignores them.

use bytes::Bytes;

use crate::ids::Protocol;
use crate::refusal::Refusal;

/// Something that happened to one or more jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Warning {
    /// What happened.
    pub kind: WarningKind,
    /// The number of cases in this turn.
    pub times: u64,
    /// The queue of the first case.
    pub queue: Bytes,
    /// The producer's name for the first job, or its number if it has none; empty if it is no job yet. For a schedule,
    /// its key.
    pub name: Bytes,
    /// The failure of the first job as its worker reported it, shortened; empty if it did not fail.
    pub why: Bytes,
}

/// The kind of event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WarningKind {
    /// Jobs failed, or were lost with their workers, and went to the dead-letter queue.
    Buried,
    /// Workers were lost with jobs in hand: their connections ended, or they beat no more. `why` names the first worker.
    WorkerLost,
    /// Jobs whose workers were lost too often were removed, because they are not kept on failure.
    LostForGood,
    /// Jobs could not be converted to their worker's protocol. They wait for a worker of another protocol, or are given
    /// up if no other protocol can take them.
    Unfit {
        /// They were given up.
        is_dead: bool,
    },
    /// Jobs of one protocol wait in a queue that only workers of other protocols serve. At most once a minute for a
    /// queue.
    Unserved {
        /// The protocol of the jobs.
        jobs: Protocol,
        /// The protocols of the workers there.
        workers: Vec<Protocol>,
    },
    /// Jobs expired before they were taken, and were removed.
    Expired,
    /// Results, outcomes and what repeated submits must find were forgotten before their time, to make room.
    Forgotten,
    /// Nine of ten names for queues are in use. Beyond the limit, queues that only their names keep are forgotten.
    QueuesNearlyFull,
    /// New jobs were refused for this reason. `NotUnique` is a normal answer and gives no notice.
    Refused(Refusal),
    /// New names, subscriptions, workers or waits were refused, because memory has no room for them.
    NoRoom(Refusal),
    /// Runs of schedules were refused for this reason.
    RunRefused(Refusal),
    /// Jobs that are pushed because others died were refused for this reason. `name` is the dead job's.
    OnDeadRefused(Refusal),
    /// In new jobs no key could be read, by which the policy of their queue would treat them. They share the empty key.
    Keyless,
}

impl WarningKind {
    /// Refusals that differ only in their numbers are of one kind.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Refused(one), Self::Refused(other))
            | (Self::RunRefused(one), Self::RunRefused(other))
            | (Self::NoRoom(one), Self::NoRoom(other))
            | (Self::OnDeadRefused(one), Self::OnDeadRefused(other)) => one.is_like(*other),
            // Each one is about another queue.
            (Self::Unserved { .. }, _) => false,
            _ => self == other,
        }
    }
}
