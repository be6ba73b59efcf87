//! The contents of a mailbox.

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
    /// The commit that it waits for; 0 = none.
    pub gate: u64,
    /// The mail.
    pub mail: Mail,
    /// Counts its bytes in the budget.
    pub hold: Option<Arc<Hold>>,
}

impl QueuedMail {
    /// Whether its body is being loaded.
    pub fn waits_for_body(&self) -> bool {
        matches!(&self.mail, Mail::Event(event) if event.waits_for_body())
    }

    /// Whether it is the reply to a take, with a time-bound lease.
    pub(super) fn answers_take(&self) -> bool {
        matches!(&self.mail, Mail::Event(Event::Reply(_, Reply::Taken(job))) if !job.connection_bound)
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.hold.as_deref().map_or(0, Hold::bytes)
    }

    pub(super) fn job_bytes(&self) -> usize {
        self.hold.as_deref().map_or(0, Hold::job_bytes)
    }

    pub(super) fn job(&self) -> Option<(JobId, Token)> {
        let Mail::Event(event) = &self.mail else {
            return None;
        };
        event.handed_out().map(|job| (job.id, job.token))
    }
}

/// Mail that waited for an unreadable body.
#[derive(Debug, Default)]
pub(crate) struct GivenUp {
    /// Whether there was any.
    pub(crate) waited: bool,
    /// The job, if the mail handed it out: the owner does not get it.
    pub(crate) unsent: Vec<(JobId, Token)>,
    /// How many deliveries of it were dropped.
    pub(crate) deliveries: u32,
}

/// Turns an acknowledgement that can no longer be given into an unknown outcome.
pub(super) fn disclaim(mail: &mut Mail) {
    if let Mail::Event(Event::Reply(tag, reply)) = mail
        && reply.acknowledges(*tag)
    {
        *reply = Reply::Refused(Refusal::Unknown);
    }
}
