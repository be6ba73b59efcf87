//! A piece of mail.

use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;
use windlass_engine::{Event, JobId, Refusal, Reply, Token};

use crate::budget::Hold;
use crate::published::Published;

/// A piece of mail for a client.
#[derive(Debug)]
pub enum Mail {
    /// An event, which the session encodes.
    Event(Event),
    /// Encoded bytes.
    Bytes(Bytes),
    /// Bytes posted by another connection.
    Posted(Published),
}

impl Mail {
    /// Overhead charged for each mail in addition to its bytes.
    pub(super) const FIXED_BYTES: usize = 64;

    /// Its size as the mailbox counts it.
    pub fn weight(&self) -> usize {
        Self::FIXED_BYTES
            + match self {
                Self::Bytes(bytes) => bytes.len(),
                Self::Posted(published) => return published.weight(),
                Self::Event(event) => event.bytes(),
            }
    }
}

/// Mail, and the commit that it waits for.
#[derive(Debug)]
pub struct QueuedMail {
    /// The commit that it waits for, if any.
    pub gate: Option<NonZeroU64>,
    /// The mail.
    pub mail: Mail,
    /// Counts its bytes in the budget.
    pub hold: Option<Arc<Hold>>,
}

/// Why mail cannot be read yet.
pub(super) enum WaitsFor {
    /// The commit of the change that it acknowledges is not on disk.
    Commit,
    /// A body in it is being loaded.
    Body,
}

/// Bytes of mail.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    pub(super) all: usize,
    /// The part of `all` in posts of other connections.
    pub(super) posted: usize,
    /// The part of `all` counted by a hold.
    held: usize,
    /// The part of `held` in jobs for the owner.
    jobs: usize,
}

impl Sizes {
    pub(super) const fn add(&mut self, more: Self) {
        self.all += more.all;
        self.posted += more.posted;
        self.held += more.held;
        self.jobs += more.jobs;
    }

    pub(super) const fn subtract(&mut self, gone: Self) {
        self.all -= gone.all;
        self.posted -= gone.posted;
        self.held -= gone.held;
        self.jobs -= gone.jobs;
    }

    /// Bytes without jobs, which have an overall limit instead ([`Budget::room`]).
    ///
    /// [`Budget::room`]: crate::Budget::room
    pub(super) const fn without_jobs(self) -> usize {
        self.all - self.jobs
    }

    /// Bytes counted by no post and no hold.
    pub(super) const fn own(self) -> usize {
        self.all - self.posted - self.held
    }
}

impl QueuedMail {
    /// What it waits for while this is the newest commit on disk.
    pub(super) fn waits_for(&self, durable: u64) -> Option<WaitsFor> {
        if self.waits_for_body() {
            Some(WaitsFor::Body)
        } else if self.gate > NonZeroU64::new(durable) {
            Some(WaitsFor::Commit)
        } else {
            None
        }
    }

    /// Whether its body is being loaded.
    pub fn waits_for_body(&self) -> bool {
        self.event().is_some_and(Event::waits_for_body)
    }

    /// Whether it hands out a job under a lease that outlives the connection.
    pub(super) fn grants_lasting_lease(&self) -> bool {
        self.event().is_some_and(Event::grants_lasting_lease)
    }

    /// Whether it is the reply to a take, with a time-bound lease.
    pub(super) fn answers_take(&self) -> bool {
        matches!(self.event(), Some(Event::Reply(_, Reply::Taken(job))) if !job.connection_bound)
    }

    pub(super) fn sizes(&self) -> Sizes {
        let all = self.mail.weight();
        let hold = self.hold.as_deref();
        Sizes {
            all,
            posted: if matches!(self.mail, Mail::Posted(_)) {
                all
            } else {
                0
            },
            held: hold.map_or(0, Hold::bytes),
            jobs: hold.map_or(0, Hold::job_bytes),
        }
    }

    pub(super) fn job(&self) -> Option<(JobId, Token)> {
        let job = self.event()?.handed_out()?;
        Some((job.id, job.token))
    }

    const fn event(&self) -> Option<&Event> {
        if let Mail::Event(event) = &self.mail {
            Some(event)
        } else {
            None
        }
    }
}

/// Turns an acknowledgement that can no longer be given into an unknown outcome.
pub(super) fn disclaim(mail: &mut Mail) {
    if let Mail::Event(Event::Reply(tag, reply)) = mail
        && reply.acknowledges(*tag)
    {
        *reply = Reply::Refused(Refusal::Unknown);
    }
}
