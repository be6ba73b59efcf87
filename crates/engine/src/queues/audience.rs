//! Which clients may take which jobs of a queue: by default only clients of the job's own protocol, in a bridged queue
//! all clients whose protocol can express the job.
//!
//! A queue that several protocols use under one name is isolated unless the configuration bridges it (`bridge`): the
//! clients of one protocol do not notice those of another. In a bridged queue all protocols share the jobs. If the
//! conversion of a job to a protocol fails, the job is marked ([`Unfit`]), and no worker of that protocol sees it
//! again.
//!
//! The ready jobs of each [`Class`] form a queue of their own, so an isolated queue is a queue per protocol. A client
//! takes the first job of the classes in its [`View`]. Bridging a queue changes the views of its clients and moves no
//! job.

use crate::ids::{Protocol, Protocols};
use crate::jobs::{Job, Unfit};

/// Jobs that the same clients see, whether their queue is bridged or not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Class {
    pub(super) protocol: Protocol,
    pub(super) unfit: Unfit,
}

/// The jobs of a queue that a client sees, without those of some protocols.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct View {
    sees: Sees,
    without: Protocols,
}

/// Which clients see which jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sees {
    /// All: the client has no protocol.
    All,
    /// The jobs of the client's own protocol: the queue is isolated.
    Own(Protocol),
    /// The jobs that the client's protocol can express: the queue is bridged.
    Fit(Protocol),
}

impl Class {
    pub(super) const fn of(job: &Job) -> Self {
        Self {
            protocol: job.protocol,
            unfit: job.unfit,
        }
    }

    /// Whether the same clients see both in an isolated, or in a bridged queue.
    pub(super) fn has_audience_of(self, other: Self, bridged: bool) -> bool {
        if bridged {
            self.unfit == other.unfit
        } else {
            self.protocol == other.protocol
        }
    }
}

impl View {
    /// All jobs.
    pub(crate) const ALL: Self = Self {
        sees: Sees::All,
        without: Protocols::NONE,
    };

    /// What a client of this protocol sees of a queue.
    pub(super) const fn of(own: Option<Protocol>, bridged: bool) -> Self {
        let sees = match own {
            None => Sees::All,
            Some(own) if bridged => Sees::Fit(own),
            Some(own) => Sees::Own(own),
        };
        Self { sees, ..Self::ALL }
    }

    /// The same view without the jobs of these protocols.
    pub(super) const fn without(self, without: Protocols) -> Self {
        Self { without, ..self }
    }

    pub(super) fn includes(self, class: Class) -> bool {
        let is_seen = match self.sees {
            Sees::All => true,
            Sees::Own(own) => class.protocol == own,
            Sees::Fit(own) => !class.unfit.has(own),
        };
        is_seen && !self.without.has(class.protocol)
    }
}
