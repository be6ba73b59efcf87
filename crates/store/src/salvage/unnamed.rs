//! Queues of salvaged jobs without salvaged settings.

use bytes::Bytes;
use windlass_engine::{Job, Namespace, NamespaceImage, QueueId, QueueImage, QueueKind};

/// The prefix of names that replace unknown ones. The queue's number follows.
pub(super) const UNNAMED: &str = "unnamed-queue-";

/// The same for namespaces.
pub(super) const UNNAMED_NAMESPACE: &str = "unnamed-namespace-";

/// A namespace without a salvaged record.
pub(super) fn unnamed_namespace(id: Namespace) -> NamespaceImage {
    NamespaceImage {
        id,
        name: format!("{UNNAMED_NAMESPACE}{}", id.0).into(),
        ..NamespaceImage::default()
    }
}

/// The replacement for an unknown queue name.
pub fn unnamed(queue: QueueId) -> Bytes {
    format!("{UNNAMED}{}", queue.0).into()
}

/// The queue of a job without settings of that queue.
pub(super) fn unnamed_queue(job: &Job) -> QueueImage {
    let kind = if job.cycle().is_some() {
        QueueKind::Cycle
    } else {
        QueueKind::Work
    };
    QueueImage::new(job.queue, unnamed(job.queue), kind)
}
