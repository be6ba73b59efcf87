//! What a connection has to do, in turns: what its session wants goes to the engine, what the engine says to the session, and words
//! to the output, until nothing is left or the peer is to take its answers first.
//!
//! All that is still to be done stands in one line. It is done a visit at a time: between two visits the answers are put into
//! words, so that it is known how much the peer is to take, and others have a turn. While the line is not empty, nothing more is
//! read, and what the session wants besides goes to its end.

use std::collections::VecDeque;

use bytes::BytesMut;

use super::{Connection, WRITE_HIGH_BYTES};
use crate::budget::SMALL_BYTES;
use crate::hub::Visited;
use crate::mailbox::Mail;
use crate::output::Output;
use crate::stream::Stream;

/// Room for more mail than this, or for more that is to be done, is given back.
const KEPT_MAX: usize = 1 << 10;

impl<S: Stream> Connection<S> {
    /// Takes everything that is to be done as far as it goes. Ends when the session has nothing more to do with what is there, the
    /// peer is to take its answers first, or another's large job is.
    pub(super) async fn settle(&mut self) {
        loop {
            self.send_outbox();
            let visited = self.visit().await;
            if !self.read_mail() && !visited && !self.reread() {
                break;
            }
        }
        // At rest it holds no more than it must.
        if self.input.is_empty() && self.input.capacity() >= SMALL_BYTES {
            self.input = BytesMut::new();
        }
        let amid = self.session.needs_bytes() > 0 && self.ending.is_none();
        self.pending.look(amid, self.session.messages(), self.now);
    }

    /// Lets the session have what was read. Says whether it has taken any of it.
    pub(super) fn feed(&mut self) -> bool {
        let before = self.input.len();
        self.session.on_bytes(self.now, &mut self.input, &mut self.outbox);
        self.fed_bytes = before.saturating_sub(self.input.len());
        self.fed_bytes > 0
    }

    /// What the session wants takes its place in the line.
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
        // Words alone, with nothing before them that waits, need no visit.
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
            tracing::info!(client = self.client.0, ?how, "a client wants the daemon to stop");
            self.hub.ask_to_stop(how);
        }
    }

    /// Visits the engine with what is to be done, if anything may be. Says whether it has.
    ///
    /// What is new is begun even if the peer does not take its answers: most of it has none worth counting.
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
        let visited = self.hub.visit_within(self.client, &self.reading, &mut self.items, room);
        self.is_held_up = visited == Visited::UpToLarge;
        if self.items.is_empty() && self.items.capacity() > KEPT_MAX {
            self.items = VecDeque::new();
        }
        true
    }

    /// Hands the session its mail. Says whether there was any.
    fn read_mail(&mut self) -> bool {
        let mut mail = std::mem::take(&mut self.mail);
        let room = WRITE_HIGH_BYTES.saturating_sub(self.output.len());
        self.left_behind = self.hub.take_mail(&self.mailbox, room, &mut mail);
        let any = !mail.is_empty();
        for mail in mail.drain(..) {
            match mail {
                Mail::Bytes(words) => self.say(|output| output.append_shared(words)),
                Mail::Posted(parcel) => self.say(|output| output.copy(parcel.words())),
                Mail::Event(event) => {
                    self.session.on_event(self.now, event, &mut self.outbox);
                    // What it answers at once stands ahead of whatever else is in the mail; only what it asks is new.
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

    /// A session that left input behind, because it wanted its answers first, may go on. Says whether it did anything.
    fn reread(&mut self) -> bool {
        if self.input.is_empty() || self.ending.is_some() || !self.items.is_empty() || !self.has_room() {
            return false;
        }
        self.feed() || !self.outbox.is_empty()
    }

    /// Bytes of answers that may still be asked for before the peer has to take some. Those that wait for the disk count too.
    fn room(&self) -> usize {
        let waiting = self.mailbox.answer_bytes().max(self.left_behind.unwrap_or_default());
        WRITE_HIGH_BYTES.saturating_sub(self.output.len()).saturating_sub(waiting)
    }

    /// What the peer is still to take, besides what others have posted.
    fn unread(&self) -> usize {
        self.output.len() + self.left_behind.unwrap_or_default()
    }

    /// Whether the peer has taken enough of its answers, and the disk of its commands, for more to be read.
    pub(super) fn has_room(&self) -> bool {
        // What is left behind waits for the peer, and is judged by its bytes.
        let acknowledged = self.left_behind.is_some() || self.mailbox.len() < self.bounds.unacknowledged_max;
        self.unread() < WRITE_HIGH_BYTES && acknowledged
    }
}
