//! The context of a call: the sender of the command, the tag that the reply repeats, and the output.

use crate::context::Context;
use crate::event::Reply;
use crate::ids::{ClientId, Tag};
use crate::refusal::Outcome;
use crate::request::Cursor;

/// The part of a listing, or of a bulk change, that one command asks for.
#[derive(Clone, Copy)]
pub(super) struct Page {
    /// The end of the previous page.
    pub(super) after: Cursor,
    /// The requested number of rows.
    pub(super) limit: u32,
}

/// A client's command.
pub(super) struct Call<'a> {
    pub(super) client: ClientId,
    pub(super) tag: Tag,
    pub(super) context: &'a mut Context,
}

impl Call<'_> {
    /// Replies to the command.
    pub(super) fn reply(&mut self, reply: Reply) {
        self.context.reply(self.client, self.tag, reply);
    }

    /// Acknowledges the command, if the client requested that.
    pub(super) fn acknowledge(&mut self, reply: Reply) {
        if self.tag.wants_answer() {
            self.reply(reply);
        }
    }

    /// Acknowledges a command with `Done`.
    pub(super) fn done(&mut self) -> Outcome {
        self.acknowledge(Reply::Done);
        Ok(())
    }
}
