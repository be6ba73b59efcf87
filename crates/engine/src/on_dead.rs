//! Jobs that are pushed because others died. The engine's caller decides which.

use std::fmt;

use crate::ids::Timestamp;
use crate::jobs::Job;
use crate::request::NewJob;

/// What the deaths of jobs cause. A pure function of the job.
pub trait OnDead: Send + Sync + fmt::Debug {
    /// The job to push because this one of the queue has just entered the dead-letter queue, by the wall clock. A job
    /// that was made here must cause none: otherwise jobs that fail at once follow each other without end.
    fn job(&self, dead: &Job, queue: &[u8], wall: Timestamp) -> Option<NewJob>;
}
