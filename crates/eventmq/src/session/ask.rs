//! What a command to the engine was for.

use bytes::Bytes;
use windlass_session::Question;

use crate::wire::Status;

/// A command that the engine has not answered yet.
#[derive(Debug)]
pub enum Ask {
    /// A request's job with this identifier. `listen`: its client has requested the result.
    Request { id: Bytes, listen: bool },
    /// The result of an equal job that was stored before this request.
    Look { id: Bytes },
    /// Results for a client that came back.
    Collect,
    /// A `SCHEDULE` or `UNSCHEDULE` with this identifier.
    Plan { id: Bytes },
    /// A page of queues for this report.
    Status { report: Box<Status> },
    /// The place of a report of all workers, or of all schedulers, among the replies.
    Show { workers: bool },
}

impl Question for Ask {
    const WEIGHT_MAX: usize = 1_024;

    /// Reports cost much more than they send: each is sent before the next request is read, so that the end of a peer
    /// is noticed between two.
    fn weight(&self) -> usize {
        match self {
            Self::Request { .. } | Self::Look { .. } | Self::Collect | Self::Plan { .. } => 1,
            Self::Status { .. } | Self::Show { .. } => Self::WEIGHT_MAX,
        }
    }
}
