//! Claims: state that a client had at an engine that is gone, and asks of this one, which has recovered from the same
//! journal.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{JobId, Protocol, Timestamp, Token};
use crate::request::{JobRef, NewJob};

/// State that a client had at an earlier leader's engine, and that no other command can restore.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Claim {
    /// It works on a job, under a lease that ends with its connection. If several clients claim one job, the highest
    /// token counts.
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
    /// It has pushed a job that lives only while clients listen, and it listens to it. The job returns under its
    /// number, unless another client has claimed it before: then this client listens to that one.
    Pushed {
        /// The job's number.
        job: JobId,
        /// The job, as it was pushed.
        new: Box<NewJob>,
    },
}

/// A lease that ends with a connection, and the names of its job.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Held {
    /// Identifies the lease together with the job, also among those that other leaders have granted.
    pub token: Token,
    /// When the lease ends by itself.
    pub until: Timestamp,
    /// The protocol of the job's producer.
    pub protocol: Protocol,
    /// The job's queue. Its new lease is on the client's terms there, if the client serves it.
    pub queue: Bytes,
    /// The job's public name.
    pub name: Bytes,
    /// Its coalescing key, empty if it has none.
    pub key: Bytes,
}

impl Held {
    /// Whether a command of the lease's holder names this job, which has the number `id`.
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
