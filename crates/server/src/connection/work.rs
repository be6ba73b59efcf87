//! The work of a connection, in turns: its session's commands go to the engine, the engine's events to the session, and bytes to
//! the output, until nothing is left or the peer must take its answers first.
//!
//! All outstanding items stand in one queue. The connection does them a visit at a time. Between two visits it encodes the
//! answers, to know how many bytes the peer must take, and other connections have a turn. While the queue is not empty, the
//! connection reads nothing more, and new commands of the session go to the end of the queue.

use std::collections::VecDeque;

use bytes::BytesMut;

use super::{Connection, WRITE_HIGH_BYTES};
use crate::broker::Visited;
use crate::budget::SMALL_BYTES;
use crate::mailbox::Mail;
use crate::output::Output;
use crate::stream::Stream;

/// Larger buffers for mail or items are freed when they are empty.
const KEPT_MAX: usize = 1 << 10;

impl<S: Stream> Connection<S> {
    /// Does everything as far as possible. Ends when the session has nothing more to do, the peer must take its answers first, or
    /// the connection must wait for another client's large job.
    pub(super) async fn settle(&mut self) {
        loop {
            self.send_outbox();
            let visited = self.visit().await;
            if !self.read_mail() && !visited && !self.reread() {
                break;
            }
        }
        // An idle connection holds no more than it must.
        if self.input.is_empty() && self.input.capacity() >= SMALL_BYTES {
            self.input = BytesMut::new();
        }
        let amid = self.session.needs_bytes() > 0 && self.ending.is_none();
        self.pending.look(amid, self.session.messages(), self.now);
    }

    /// Passes the input to the session. Returns whether the session has consumed any of it.
    pub(super) fn feed(&mut self) -> bool {
        let before = self.input.len();
        self.session.on_bytes(self.now, &mut self.input, &mut self.outbox);
        self.fed_bytes = before.saturating_sub(self.input.len());
        self.fed_bytes > 0
    }

    /// Moves the session's commands and bytes to the end of the queue.
    fn send_outbox(&mut self) {
        if let Some(reason) = self.outbox.take_reason()
            && self.ending.is_none()
        {
            self.ending = Some(reason);
            self.heard_at = self.now;
            self.input = BytesMut::new();
        }
        if !self.items.is_empty() {
            return self.outbox.move_behind(&mut self.items);
        }
        // Bytes alone, with nothing waiting before them, need no visit.
        if self.mailbox.len() == 0
            && let Some(words) = self.outbox.take_bytes()
        {
            self.say(|output| output.append(words));
        } else if !self.outbox.is_empty() {
            self.outbox.move_behind(&mut self.items);
            self.is_new = true;
        }
        if self.items.is_empty()
            && let Some(how) = self.outbox.take_stop()
        {
            tracing::info!(client = self.client.0, ?how, "a client has asked the daemon to stop");
            self.stops.ask(how);
        }
    }

    /// Visits the engine with the items, if it may. Returns whether it has.
    ///
    /// New items get one visit even if the peer does not take its answers: most of them have small answers.
    async fn visit(&mut self) -> bool {
        let may_be = self.is_new || self.room() > 0;
        if self.items.is_empty() || self.is_held_up || !may_be || self.mailbox.dismissed().is_some() {
            return false;
        }
        if self.visited {
            self.let_others_go_first().await;
        }
        let room = self.room().max(1);
        (self.visited, self.is_new) = (true, false);
        let visited = self.broker.visit(self.client, &self.reading, &mut self.items, room);
        self.is_held_up = visited == Visited::UpToLarge;
        if self.items.is_empty() && self.items.capacity() > KEPT_MAX {
            self.items = VecDeque::new();
        }
        true
    }

    /// Passes the mail to the session. Returns whether there was any.
    fn read_mail(&mut self) -> bool {
        let mut mail = std::mem::take(&mut self.mail);
        let room = WRITE_HIGH_BYTES.saturating_sub(self.output.len());
        self.left_behind = self.broker.mail(&self.mailbox, room, &mut mail);
        let any = !mail.is_empty();
        for mail in mail.drain(..) {
            match mail {
                Mail::Bytes(words) => self.say(|output| output.append_shared(words)),
                Mail::Posted(published) => self.say(|output| output.copy(published.words())),
                Mail::Event(event) => {
                    self.session.on_event(self.now, event, &mut self.outbox);
                    // Bytes that the session answers at once go ahead of the rest of the mail; only its commands are new items.
                    if let Some(words) = self.outbox.take_leading_bytes() {
                        self.say(|output| output.append_shared(words));
                    }
                    if !self.outbox.is_empty() {
                        self.send_outbox();
                    }
                }
            }
        }
        if mail.capacity() <= KEPT_MAX {
            self.mail = mail;
        }
        any
    }

    fn say(&mut self, put: impl FnOnce(&mut Output)) {
        if self.stopping && self.output.is_empty() {
            self.heard_at = self.now;
        }
        put(&mut self.output);
    }

    /// A session that left input unread, because it required its answers first, may continue. Returns whether it did anything.
    fn reread(&mut self) -> bool {
        if self.input.is_empty() || self.ending.is_some() || !self.items.is_empty() || !self.has_room() {
            return false;
        }
        self.feed() || !self.outbox.is_empty()
    }

    /// Bytes of answers that may be produced before the peer must take some. Answers that wait for the disk count too.
    fn room(&self) -> usize {
        let waiting = self.mailbox.answer_bytes().max(self.left_behind.unwrap_or_default());
        WRITE_HIGH_BYTES.saturating_sub(self.output.len()).saturating_sub(waiting)
    }

    /// Bytes that the peer must still take, without posts of other connections.
    fn unread(&self) -> usize {
        self.output.len() + self.left_behind.unwrap_or_default()
    }

    /// Whether the peer has taken enough of its answers, and the disk enough of its commands, to read more.
    pub(super) fn has_room(&self) -> bool {
        // Mail left behind waits for the peer and is limited by its bytes, not its count.
        let acknowledged = self.left_behind.is_some() || self.mailbox.len() < self.bounds.unacknowledged_max;
        self.unread() < WRITE_HIGH_BYTES && acknowledged
    }
}
