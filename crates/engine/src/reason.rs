//! Why a job does not run.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{JobId, Protocol, Timestamp};
use crate::queues::Hold;

/// Why a job does not run.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum Why {
    /// A client has it.
    Leased(Box<LeaseHolder>),
    /// The time has not arrived, or it has finished: see the state.
    NotReady,
    /// The queue is paused.
    Paused {
        /// The start of the pause (wall clock), if known.
        since: Option<Timestamp>,
    },
    /// Leased jobs occupy all slots of the queue's throttle.
    Throttled {
        /// Some of these jobs, longest lease first.
        holders: Vec<JobId>,
    },
    /// No client that can see the job serves the queue or is waiting there.
    Unserved {
        /// Protocols of clients that do: the queue is isolated, or the job has no form there.
        others: Vec<Protocol>,
    },
    /// Other jobs are before it.
    Behind {
        /// Jobs before it.
        jobs: u32,
        /// There are more jobs before it.
        more: bool,
    },
    /// The policy of the queue has not let it start yet.
    Turn(Box<Turn>),
    /// The job has a delay and represents several submits ([`crate::QueueRules::coalesce`]), or is queued
    /// behind a running job.
    Coalesced {
        /// Submits that this job represents. Only the body of one of them is stored.
        submits: u32,
        /// The job that must finish first.
        behind: Option<JobId>,
    },
}

/// When the policy of a queue lets a job start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Turn {
    /// A hold that applies now, in addition to the order of jobs.
    pub hold: Option<Hold>,
    /// Jobs that start before it; if the key is blocked, only jobs of that key.
    pub jobs: u32,
    /// There are more jobs before it.
    pub more: bool,
    /// The earliest start if nothing happens except that workers take jobs (engine's time). With
    /// [`Self::more`] it is the time of the last job that was considered. `None`: not before a job of the
    /// same key finishes.
    pub at: Option<Timestamp>,
    /// Some of the jobs that block the key, if it is blocked.
    pub holders: Vec<JobId>,
}

/// The client that has a job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct LeaseHolder {
    /// The worker's name; empty if it gave no name.
    pub worker: Bytes,
    /// The connection's address, if the lease is bound to one.
    pub address: Box<str>,
    /// The connection's number for display, if the lease is bound to one.
    pub number: u32,
    /// The connection's protocol, if the lease is bound to one.
    pub protocol: Option<Protocol>,
}

impl LeaseHolder {
    /// The worker's name; empty if it gave no name, for which Gearman's label of a client is `-`.
    pub(crate) fn name(&self) -> &[u8] {
        if self.worker == "-" {
            b""
        } else {
            &self.worker
        }
    }
}
