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
    /// It waits for its time, or has ended: see its state.
    NotReady,
    /// Its queue is paused.
    Paused {
        /// Since when (wall clock), if that is known.
        since: Option<Timestamp>,
    },
    /// Leased jobs hold all slots of its queue's throttle.
    Throttled {
        /// Some of these jobs, those leased first.
        holders: Vec<JobId>,
    },
    /// No client that sees the job serves its queue, or waits there.
    Unserved {
        /// Protocols of clients that do: the queue is isolated, or the job has no form there.
        others: Vec<Protocol>,
    },
    /// It waits for its turn.
    Behind {
        /// Jobs before it.
        jobs: u32,
        /// There are more jobs before it.
        more: bool,
    },
    /// The policy of its queue decides when it starts.
    Turn(Box<Turn>),
    /// It waits for its time, and stands for several submits ([`crate::QueueRules::coalesce`]) or behind a job that runs.
    Coalesced {
        /// Submits that became this job. Only the body of one of them is left.
        submits: u32,
        /// The job that must be over first.
        behind: Option<JobId>,
    },
}

/// When the policy of its queue lets a job start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Turn {
    /// What holds it back now, beside its turn.
    pub hold: Option<Hold>,
    /// Jobs that start before it; if its key is held, those of its key.
    pub jobs: u32,
    /// There are more jobs before it.
    pub more: bool,
    /// When it starts at the earliest, if nothing happens but that workers take jobs (engine's time). With [`Self::more`]
    /// it is the time of the last job that was counted. `None`: not before a job of its key ends.
    pub at: Option<Timestamp>,
    /// Some of the jobs that hold its key, if it is held.
    pub holders: Vec<JobId>,
}

/// The client that has a job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct LeaseHolder {
    /// The worker's name, empty if it gave none.
    pub worker: Bytes,
    /// The connection's address, if the lease is bound to one.
    pub address: Box<str>,
    /// The connection's number for display, if the lease is bound to one.
    pub number: u32,
    /// The connection's protocol, if the lease is bound to one.
    pub protocol: Option<Protocol>,
}

impl LeaseHolder {
    /// The worker's name; empty if it has given none, for which Gearman's label of a client is `-`.
    pub(crate) fn name(&self) -> &[u8] {
        if self.worker == "-" {
            b""
        } else {
            &self.worker
        }
    }
}
