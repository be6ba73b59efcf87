//! Claims: state that a client had at an engine that no longer exists, and requests from this engine, which
//! has recovered from the same journal.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{JobId, Protocol, Timestamp, Token};
use crate::request::{JobRef, NewJob};

/// State that a client had at a previous leader's engine, and that no other command can restore.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Claim {
    /// The client works on a job, with a connection-bound lease. If several clients claim a job, the highest
    /// token wins.
    Holds {
        /// The job.
        job: JobId,
        /// The lease.
        held: Held,
    },
    /// It listens to a job, once more.
    Hears {
        /// The job.
        job: JobId,
    },
    /// The client has pushed a job that exists only while clients listen, and listens to it. The job is
    /// restored with its ID, unless another client has already claimed it: then this client listens to that
    /// job.
    Pushed {
        /// The job's number.
        job: JobId,
        /// The job, as it was pushed.
        new: Box<NewJob>,
    },
}

/// A connection-bound lease, and the names of the leased job.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Held {
    /// Identifies the lease together with the job, also among leases granted by other leaders.
    pub token: Token,
    /// When the lease expires.
    pub until: Timestamp,
    /// The protocol of the job's producer.
    pub protocol: Protocol,
    /// The job's queue. If the client serves it, the new lease is on the terms of that
    /// subscription.
    pub queue: Bytes,
    /// The job's public name.
    pub name: Bytes,
    /// The coalescing key; empty if the job has no key.
    pub key: Bytes,
}

impl Held {
    /// Returns true if a command of the lease's holder names this job, which has the number `id`.
    pub fn is_named(&self, id: JobId, job: &JobRef) -> bool {
        match job {
            JobRef::Id(named) => *named == id,
            JobRef::Name(name) => self.name == *name,
            JobRef::Key(key) => {
                self.queue == key.queue && self.protocol == key.protocol && self.key == key.key
            }
            JobRef::KeyAnywhere { protocol, key } => self.protocol == *protocol && self.key == *key,
        }
    }
}
