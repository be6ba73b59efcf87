//! What the engine has been asked and has not answered. It answers in the order of the questions.

use std::collections::VecDeque;

use bytes::Bytes;
use windlass_engine::Tag;

use crate::wire::Status;

/// What a command was for.
#[derive(Debug)]
pub(super) enum Ask {
    /// A request's job, of this identifier. Its client may want to hear of the end.
    Request { id: Bytes, listen: bool },
    /// A job that was there already, for the request with this identifier: it may be done.
    Look { id: Bytes },
    /// A schedule set or removed, by the message with this identifier.
    Plan { id: Bytes },
    /// A page of queues, for the report to whoever asked with this identifier.
    Status { report: Box<Status> },
}

/// Questions without an answer, in order.
#[derive(Debug, Default)]
pub(super) struct Asked {
    open: VecDeque<(Tag, Ask)>,
    /// How many there were, ever.
    count: u64,
}

impl Asked {
    /// One more. The tag is for the command.
    pub(super) fn push(&mut self, ask: Ask) -> Tag {
        self.count += 1;
        let tag = Tag(self.count);
        self.open.push_back((tag, ask));
        tag
    }

    /// The answer to this one has come: what it was. `None` if it was not asked here.
    pub(super) fn take(&mut self, tag: Tag) -> Option<Ask> {
        let at = self.open.iter().position(|(open, _)| *open == tag)?;
        self.open.remove(at).map(|(_, ask)| ask)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}
