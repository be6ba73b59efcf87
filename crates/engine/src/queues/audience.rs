//! Which clients may take which jobs of a queue: by default only clients of the job's own protocol, in a bridged queue all
//! clients whose protocol can express the job.
//!
//! A queue that several protocols use under one name is isolated unless the configuration bridges it (`bridge`): the clients
//! of one protocol do not notice those of another. In a bridged queue all protocols share the jobs. If the conversion of a job
//! to a protocol fails, the job is marked ([`Unfit`]), and no worker of that protocol sees it again.
//!
//! The ready jobs of each [`Class`] form a queue of their own, so an isolated queue is a queue per protocol. A client takes the
//! first job of the classes in its [`View`]. Bridging a queue changes the views of its clients and moves no job.

use crate::ids::Protocol;
use crate::jobs::{Job, Unfit};

/// Jobs that the same clients see, whether their queue is bridged or not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Class {
    pub(super) protocol: Protocol,
    pub(super) unfit: Unfit,
}

/// The jobs of a queue that a client sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum View {
    /// All: the client has no protocol.
    All,
    /// The jobs of the client's own protocol: the queue is isolated.
    Own(Protocol),
    /// The jobs that the client's protocol can express: the queue is bridged.
    Fit(Protocol),
}

impl Class {
    pub(super) const fn of(job: &Job) -> Self {
        Self { protocol: job.protocol, unfit: job.unfit }
    }

    /// Whether the same clients see both in an isolated, or in a bridged queue.
    pub(super) fn has_audience_of(self, other: Self, bridged: bool) -> bool {
        if bridged { self.unfit == other.unfit } else { self.protocol == other.protocol }
    }
}

impl View {
    pub(super) fn includes(self, class: Class) -> bool {
        match self {
            Self::All => true,
            Self::Own(own) => class.protocol == own,
            Self::Fit(own) => !class.unfit.has(own),
        }
    }
}
