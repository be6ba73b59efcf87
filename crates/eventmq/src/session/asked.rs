//! Commands that the engine has not answered yet. It answers them in order.

use std::collections::VecDeque;

use bytes::Bytes;
use windlass_engine::Tag;

use crate::wire::Status;

/// What a command was for.
#[derive(Debug)]
pub(super) enum Ask {
    /// A request's job with this identifier. `listen`: its client has requested the result.
    Request { id: Bytes, listen: bool },
    /// The result of an equal job that was stored before this request.
    Look { id: Bytes },
    /// A `SCHEDULE` or `UNSCHEDULE` with this identifier.
    Plan { id: Bytes },
    /// A page of queues for this report.
    Status { report: Box<Status> },
}

/// Commands without an answer, in order.
#[derive(Debug, Default)]
pub(super) struct Asked {
    open: VecDeque<(Tag, Ask)>,
    /// Commands sent so far.
    count: u64,
}

impl Asked {
    /// Adds a command, and returns its tag.
    pub(super) fn push(&mut self, ask: Ask) -> Tag {
        self.count += 1;
        let tag = Tag(self.count);
        self.open.push_back((tag, ask));
        tag
    }

    /// Removes the command with this tag. `None` if this session did not send it.
    pub(super) fn take(&mut self, tag: Tag) -> Option<Ask> {
        let at = self.open.iter().position(|(open, _)| *open == tag)?;
        self.open.remove(at).map(|(_, ask)| ask)
    }

    /// Commands without an answer.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}
