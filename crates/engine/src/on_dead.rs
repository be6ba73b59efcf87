//! Jobs that are pushed because another job died. The engine's caller decides which.

use std::fmt;

use crate::ids::Timestamp;
use crate::jobs::Job;
use crate::request::NewJob;

/// Decides which job to push when a job dies. A pure function of the job.
pub trait OnDead: Send + Sync + fmt::Debug {
    /// The job to push, into the same namespace, because this job of the queue has just entered the dead-letter
    /// queue (wall clock). `setting` is the text for patterns of settings: the queue's name, behind that of its
    /// namespace and a slash if that has one.
    /// Must be `None` for a job that was created here: if such jobs failed immediately, they would create
    /// each other without end.
    fn job(&self, dead: &Job, queue: &[u8], setting: &[u8], wall: Timestamp) -> Option<NewJob>;
}
