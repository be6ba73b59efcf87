//! Which clients may take which jobs of a queue: by default only clients of the job's own protocol, in a bridged queue all
//! clients whose protocol can express the job.
//!
//! A queue that several protocols use under one name is isolated unless the configuration bridges it (`bridge`): the clients
//! of one protocol do not notice those of another. In a bridged queue all protocols share the jobs. If the conversion of a job
//! to a protocol fails, the job is marked ([`Unfit`]), and no worker of that protocol sees it again.
//!
//! The ready queue implements both in one way: each job has an [`Audience`], the jobs of each audience form a queue of their
//! own, and a take looks at the queues that its client sees. Nearly every queue has only one audience.

use crate::ids::Protocol;
use crate::jobs::Unfit;

/// The clients that may take a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Audience {
    /// Only clients of this protocol: the queue is isolated.
    Only(Protocol),
    /// All clients except those of the unfit protocols: the queue is bridged.
    AllBut(Unfit),
}

impl Audience {
    /// Whether a client of this protocol sees the job. A client without a protocol sees all jobs.
    pub(crate) fn includes(self, own: Option<Protocol>) -> bool {
        own.is_none_or(|own| match self {
            Self::Only(protocol) => protocol == own,
            Self::AllBut(unfit) => !unfit.has(own),
        })
    }
}
