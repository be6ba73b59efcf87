//! Queues of which a salvage finds jobs, but no settings.

use bytes::Bytes;
use windlass_engine::{Job, QueueId, QueueImage, QueueKind};

/// The prefix for a queue whose name is lost. The queue's number follows.
pub(super) const UNNAMED: &str = "unnamed-queue-";

/// The replacement for a lost queue name.
pub fn unnamed(queue: QueueId) -> Bytes {
    format!("{UNNAMED}{}", queue.0).into()
}

/// The queue of a job whose queue settings are lost.
pub(super) fn unnamed_queue(job: &Job) -> QueueImage {
    let kind = if job.cycle().is_some() {
        QueueKind::Cycle
    } else {
        QueueKind::Work
    };
    QueueImage::new(job.queue, unnamed(job.queue), kind)
}
