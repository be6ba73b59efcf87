//! Which clients may take which jobs of a queue: by default only clients of the job's protocol; in
//! a bridged queue all clients with a protocol that can express the job.
//!
//! A queue name that several protocols use is isolated unless the configuration bridges it
//! (`bridge`): the clients of one protocol do not see jobs of another. In a bridged queue all
//! protocols share the jobs. If a job cannot be converted to a protocol, it is marked ([`Unfit`]),
//! and workers of that protocol no longer see it.
//!
//! The ready jobs of each [`Class`] are sorted separately, so an isolated queue is effectively one
//! queue per protocol. A client takes the first job of the classes in the client's [`View`].
//! Bridging a queue updates the views of clients and moves no jobs.

use crate::ids::{Protocol, Protocols};
use crate::jobs::{Job, Unfit};

/// Jobs that are visible to the same clients, whether the queue is bridged or not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Class {
    pub(super) protocol: Protocol,
    pub(super) unfit: Unfit,
}

/// The jobs of a queue that a client sees, optionally excluding those of some protocols.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct View {
    sees: Sees,
    without: Protocols,
}

/// Which jobs a client sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sees {
    /// All jobs, because the client has no protocol.
    All,
    /// Jobs of the client's protocol, because the queue is isolated.
    Own(Protocol),
    /// Jobs that the client's protocol can express, because the queue is bridged.
    Fit(Protocol),
}

impl Class {
    pub(super) const fn of(job: &Job) -> Self {
        Self {
            protocol: job.protocol,
            unfit: job.unfit,
        }
    }

    /// Returns true if the same clients see both classes in an isolated, or in a bridged queue.
    pub(super) fn has_audience_of(self, other: Self, bridged: bool) -> bool {
        if bridged {
            self.unfit == other.unfit
        } else {
            self.protocol == other.protocol
        }
    }
}

impl View {
    /// The view of all jobs.
    pub(crate) const ALL: Self = Self {
        sees: Sees::All,
        without: Protocols::NONE,
    };

    /// The view of a client of this protocol.
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
