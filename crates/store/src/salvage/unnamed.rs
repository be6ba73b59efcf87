//! Queues of which a salvage finds jobs, but no settings.

use bytes::Bytes;
use windlass_engine::{Job, QueueId, QueueImage, QueueKind};

/// The beginning of the name of a queue whose own name is lost. Its number follows.
pub(super) const UNNAMED: &str = "unnamed-queue-";

/// The name of a queue whose own name is lost.
pub fn unnamed(queue: QueueId) -> Bytes {
    format!("{UNNAMED}{}", queue.0).into()
}

/// The queue of a job whose settings are lost.
pub(super) fn unnamed_queue(job: &Job) -> QueueImage {
    let kind = if job.cycle().is_some() {
        QueueKind::Cycle
    } else {
        QueueKind::Work
    };
    QueueImage::new(job.queue, unnamed(job.queue), kind)
}
