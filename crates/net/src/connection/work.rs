//! The work of a connection in a turn: its session's commands become items for the engine, the engine's events go to
//! the session, and bytes to the output.
//!
//! All outstanding items stand in one queue. While it is not empty, the connection reads nothing more, and new commands
//! of the session go to its end.

use std::collections::VecDeque;

use bytes::BytesMut;
use windlass_engine::{Event, Reply};

use super::Connection;
use crate::output::{LARGE_BYTES, Output};
use windlass_hub::broker::{Batch, Visited};
use windlass_hub::budget::SMALL_BYTES;
use windlass_hub::mailbox::Mail;

/// Larger buffers for mail or items are freed when they are empty.
const KEPT_MAX: usize = 1 << 10;

impl Connection {
    /// The items for the engine, if there are any that may be done now.
    pub(crate) fn batch(&mut self) -> Option<Batch<'_>> {
        if !self.may_visit() {
            return None;
        }
        let room = self.room().max(1);
        self.is_new = false;
        Some(Batch { client: self.id.client, items: &mut self.items, room, visited: &mut self.visited })
    }

    /// Whether there are items that may be done now. New items get one visit even if the peer does not take its
    /// answers: most of them have small answers.
    pub(super) fn may_visit(&self) -> bool {
        let is_due = self.visited != Visited::UntilRung || self.watch.tries();
        let may = !self.items.is_empty() && is_due && self.over.is_none();
        may && (self.is_new || self.room() > 0) && self.mailbox.close_reason().is_none()
    }

    /// Passes the mail to the session, and writes once.
    pub(crate) fn answer(&mut self) {
        self.look_after_visit();
        if self.mailbox.bell().look() {
            self.rung();
        }
        if self.items.is_empty() && self.items.capacity() > KEPT_MAX {
            self.items = VecDeque::new();
        }
        loop {
            self.send_outbox();
            if !self.read_mail() && !self.reread() {
                break;
            }
        }
        // An idle connection holds no more than it must.
        if self.input.is_empty() && self.input.capacity() >= SMALL_BYTES {
            self.input = BytesMut::new();
        }
        let amid = self.session.needs_bytes() > 0 && self.ending.is_none();
        self.pending.look(amid, self.session.messages(), self.now);
        self.write();
    }

    /// Whether the peer has taken some of its answers, and something waited for that.
    pub(super) fn has_got_room(&self) -> bool {
        self.was_written && (self.left_behind.is_some() || !self.items.is_empty() || !self.input.is_empty())
    }

    /// Passes the input to the session. Returns whether the session has consumed any of it.
    pub(super) fn feed(&mut self) -> bool {
        let before = self.input.len();
        self.session.on_bytes(self.now, &mut self.input, &mut self.outbox);
        self.fed_bytes = before.saturating_sub(self.input.len());
        let messages = self.session.messages();
        self.counts.commands(messages.wrapping_sub(self.messages));
        self.messages = messages;
        self.fed_bytes > 0
    }

    /// Moves the session's commands and bytes to the end of the queue.
    pub(super) fn send_outbox(&mut self) {
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
        if self.mailbox.is_settled()
            && let Some(words) = self.outbox.take_bytes()
        {
            self.say_own(words);
        } else if !self.outbox.is_empty() {
            self.outbox.move_behind(&mut self.items);
            self.is_new = true;
        }
        if self.items.is_empty()
            && let Some(how) = self.outbox.take_stop()
        {
            tracing::info!(client = self.id.client.0, ?how, "a client has asked the daemon to stop");
            self.shared.stops.ask(how);
        }
    }

    /// Passes the mail to the session. Returns whether there was any.
    fn read_mail(&mut self) -> bool {
        let mut mail = std::mem::take(&mut self.mail);
        let room = self.ahead.bytes().saturating_sub(self.output.len());
        self.left_behind = self.shared.broker.mail(&self.mailbox, room, &mut mail);
        let any = !mail.is_empty();
        for mail in mail.drain(..) {
            match mail {
                Mail::Bytes(words) => {
                    self.say_leading();
                    self.say(words, Output::append_shared);
                }
                Mail::Posted(published) => {
                    self.say_leading();
                    self.say(published.words(), Output::copy);
                }
                Mail::Event(event) => {
                    if let Event::Reply(_, Reply::Refused(why)) = &event {
                        self.counts.refused(why.code());
                    }
                    self.begin_hand_out(&event);
                    self.session.on_event(self.now, event, &mut self.outbox);
                    let unhurried = self.outbox.take_unhurried();
                    if self.outbox.is_empty_but_bytes() {
                        self.unhurried.add(unhurried);
                    } else {
                        self.say_leading();
                        self.send_outbox();
                    }
                }
            }
        }
        self.say_leading();
        self.hand_outs.end(self.position());
        if mail.capacity() <= KEPT_MAX {
            self.mail = mail;
        }
        any
    }

    /// Where the output ends, in bytes since the connection opened.
    fn position(&self) -> u64 {
        self.written + self.output.len() as u64
    }

    /// The session is about to encode an event, which may be a job for the peer.
    fn begin_hand_out(&mut self, event: &Event) {
        if event.handed_out().is_none() {
            return;
        }
        self.say_leading();
        self.hand_outs.end(self.position());
        if self.output.is_empty() {
            self.mailbox.moved(self.now);
        }
        self.hand_outs.begin(event, self.position(), &self.shared.budget);
    }

    /// Moves the bytes that the session answers with at once to the output. They go ahead of the rest of the mail; only
    /// commands are new items.
    fn say_leading(&mut self) {
        if let Some(words) = self.outbox.take_bytes() {
            return self.say_own(words);
        }
        while let Some(words) = self.outbox.take_leading_bytes() {
            self.say(words, Output::append_shared);
        }
    }

    /// Moves the outbox's bytes to the output. The outbox gets its buffer back if they were copied.
    fn say_own(&mut self, words: BytesMut) {
        if words.len() >= LARGE_BYTES {
            return self.say(words, Output::append);
        }
        self.say(&*words, Output::copy);
        self.outbox.reuse(words);
    }

    /// Moves bytes to the output. What the session encrypts leaves in another form.
    fn say<W: AsRef<[u8]>>(&mut self, words: W, put: impl FnOnce(&mut Output, W)) {
        if self.stopping && self.output.is_empty() {
            self.heard_at = self.now;
        }
        match self.session.seal(words.as_ref()) {
            Some(sealed) => self.output.append(sealed),
            None => put(&mut self.output, words),
        }
    }

    /// A session that left input unread, because it required its answers first, may continue. Returns whether it did
    /// anything.
    fn reread(&mut self) -> bool {
        if self.input.is_empty() || self.ending.is_some() || !self.items.is_empty() || !self.has_room() {
            return false;
        }
        self.feed() || !self.outbox.is_empty()
    }

    /// Bytes of answers that may be produced before the peer must take some. Answers that wait for the disk count too.
    pub(super) fn room(&self) -> usize {
        let waiting = self.mailbox.answer_bytes().max(self.left_behind.unwrap_or_default());
        self.ahead.bytes().saturating_sub(self.output.len()).saturating_sub(waiting)
    }

    /// Bytes that the peer must still take, without posts of other connections.
    fn unread(&self) -> usize {
        self.output.len() + self.left_behind.unwrap_or_default()
    }

    /// Whether the peer has taken enough of its answers, and the disk enough of its commands, to read more.
    pub(super) fn has_room(&self) -> bool {
        // Mail left behind waits for the peer and is limited by its bytes, not its count.
        let acknowledged =
            self.left_behind.is_some() || self.mailbox.unanswered() < self.shared.bounds.unacknowledged_max;
        self.unread() < self.ahead.bytes() && acknowledged
    }
}
