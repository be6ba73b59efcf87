//! The work of a connection in a turn: the session's commands become items for the engine, events
//! go to the session, and bytes to the output.
//!
//! All pending items are in one queue. While it is not empty, the connection reads nothing, and new
//! commands of the session are appended.

use std::collections::VecDeque;

use bytes::BytesMut;
use windlass_engine::{Event, Reply};

use super::Connection;
use super::phase::Phase;
use crate::output::Output;
use windlass_hub::{Batch, Mail, SMALL_BYTES, Visited};

/// Empty buffers for mail or items that are larger than this are freed.
const KEPT_MAX: usize = 1 << 10;

impl Connection {
    /// The executable items for the engine, if any.
    pub(crate) fn batch(&mut self) -> Option<Batch<'_>> {
        if !self.may_visit() {
            return None;
        }
        let room = self.room().max(1);
        self.work.is_new = false;
        Some(Batch {
            client: self.id.client,
            items: &mut self.work.items,
            room,
            visited: &mut self.work.visited,
        })
    }

    /// Whether there are executable items. New items get one visit even if the peer does not read
    /// its replies, because most replies are small.
    pub(super) fn may_visit(&self) -> bool {
        let is_due = self.work.visited != Visited::UntilRung || self.watch.is_unannounced();
        let may = !self.work.items.is_empty() && is_due && !self.is_over();
        may && (self.work.is_new || self.room() > 0) && self.mailbox.close_reason().is_none()
    }

    /// Passes the mail to the session, and writes once.
    pub(crate) fn answer(&mut self) {
        self.look_after_visit();
        if self.mailbox.wake_flag().look() {
            self.rung();
        }
        if self.work.items.is_empty() && self.work.items.capacity() > KEPT_MAX {
            self.work.items = VecDeque::new();
        }
        loop {
            self.send_outbox();
            self.outgoing.left_behind = None;
            while self.mailbox.len() > 0 && self.read_mail() {}
            if !self.reread() {
                break;
            }
        }
        // An idle connection holds as little as possible.
        if self.incoming.input.is_empty() && self.incoming.input.capacity() >= SMALL_BYTES {
            self.incoming.input = BytesMut::new();
        }
        let amid = self.session.needs_bytes() > 0 && !self.is_ending();
        self.incoming
            .pending
            .look(amid, self.session.messages(), self.now);
        self.write();
    }

    /// Whether the peer has read some replies, and something waited for that.
    pub(super) fn has_got_room(&self) -> bool {
        self.io.was_written
            && (self.outgoing.left_behind.is_some()
                || !self.work.items.is_empty()
                || !self.incoming.input.is_empty())
    }

    /// Passes the input to the session. Returns whether the session consumed any of it.
    pub(super) fn feed(&mut self) -> bool {
        let before = self.incoming.input.len();
        self.session
            .on_bytes(self.now, &mut self.incoming.input, &mut self.outbox);
        self.incoming.fed_bytes = before.saturating_sub(self.incoming.input.len());
        let messages = self.session.messages();
        self.counts
            .commands(messages.wrapping_sub(self.incoming.messages));
        self.incoming.messages = messages;
        self.incoming.fed_bytes > 0
    }

    /// Appends the session's commands and bytes to the queue.
    pub(super) fn send_outbox(&mut self) {
        if let Some(reason) = self.outbox.take_reason()
            && !self.is_ending()
        {
            self.phase = Phase::Ending(reason);
            self.active_at = self.now;
            self.incoming.input = BytesMut::new();
        }
        if !self.work.items.is_empty() {
            return self.outbox.move_behind(&mut self.work.items);
        }
        // Bytes alone, with nothing pending before them, need no visit.
        if self.mailbox.is_settled()
            && let Some(data) = self.outbox.take_bytes()
        {
            self.send_own(data);
        } else if !self.outbox.is_empty() {
            self.outbox.move_behind(&mut self.work.items);
            self.work.is_new = true;
        }
        if self.work.items.is_empty()
            && let Some(how) = self.outbox.take_stop()
        {
            tracing::info!(
                client = self.id.client.0,
                ?how,
                "shutdown requested by a client"
            );
            self.shared.stops.ask(how);
        }
    }

    /// Passes the mail to the session. Returns whether there was any.
    fn read_mail(&mut self) -> bool {
        let mut mail = std::mem::take(&mut self.mail);
        let room = self
            .outgoing
            .ahead
            .bytes()
            .saturating_sub(self.outgoing.output.len());
        self.outgoing.left_behind = self.shared.broker.mail(&self.mailbox, room, &mut mail);
        let any = !mail.is_empty();
        for mail in mail.drain(..) {
            match mail {
                Mail::Bytes(data) => {
                    self.send_leading();
                    self.send(data, Output::append_shared);
                }
                Mail::Posted(published) => {
                    self.send_leading();
                    self.send(published.data(), Output::copy);
                }
                Mail::Event(event) => {
                    if let Event::Reply(_, Reply::Refused(why)) = &event {
                        self.counts.refused(why.code());
                        self.incoming.was_refused |= why.is_of_namespace();
                    }
                    self.part_from_handle(&event);
                    self.begin_hand_out(&event);
                    self.session.on_event(self.now, event, &mut self.outbox);
                    if !self.outbox.is_empty_but_bytes() {
                        self.send_leading();
                        self.send_outbox();
                    }
                }
            }
        }
        self.send_leading();
        let position = self.position();
        self.outgoing.hand_outs.end(position);
        if mail.capacity() <= KEPT_MAX {
            self.mail = mail;
        }
        any
    }

    /// The position after the encoded bytes, counted since the connection opened.
    fn position(&mut self) -> u64 {
        self.outgoing.written + (self.outgoing.output.len() + self.outbox.bytes().len()) as u64
    }

    /// Called before an event is encoded. News of a job must not be in the same write as the job's
    /// handle, because a peer may process everything that it reads before it records the handle.
    fn part_from_handle(&mut self, event: &Event) {
        let from = &mut self.outgoing.handles_from;
        if let Some(job) = event.created() {
            *from = Some(from.map_or(job, |from| from.min(job)));
        } else if from.is_some_and(|from| event.news_of().is_some_and(|job| from <= job)) {
            *from = None;
            self.send_leading();
            self.outgoing.output.part();
        }
    }

    /// Called before an event is encoded that may be a job for the peer.
    fn begin_hand_out(&mut self, event: &Event) {
        if event.handed_out().is_none() {
            return;
        }
        // The length of encrypted bytes is known only once they are in the output. Others may wait
        // for the rest of the mail.
        if self.session.seals() {
            self.send_leading();
        }
        if self.outgoing.output.is_empty() {
            self.mailbox.pressure.moved(self.now);
        }
        let position = self.position();
        self.outgoing
            .hand_outs
            .begin(event, position, &self.shared.budget);
    }

    /// Moves the session's immediate replies to the output. They precede the rest of the mail; only
    /// commands become new items.
    fn send_leading(&mut self) {
        if let Some(data) = self.outbox.take_bytes() {
            return self.send_own(data);
        }
        while let Some(data) = self.outbox.take_leading_bytes() {
            self.send(data, Output::append_shared);
        }
    }

    /// Moves the outbox's bytes to the output. The outbox gets back a buffer that the output does
    /// not need.
    fn send_own(&mut self, mut data: BytesMut) {
        self.send(&mut data, |output, data| {
            *data = output.append(std::mem::take(data)).unwrap_or_default()
        });
        self.outbox.reuse(data);
    }

    /// Moves bytes to the output, in their encrypted form if the session encrypts.
    fn send<W: AsRef<[u8]>>(&mut self, data: W, put: impl FnOnce(&mut Output, W)) {
        if self.is_stopping() && self.outgoing.output.is_empty() {
            self.active_at = self.now;
        }
        match self.session.seal(data.as_ref()) {
            Some(sealed) => drop(self.outgoing.output.append(sealed)),
            None => put(&mut self.outgoing.output, data),
        }
    }

    /// Lets a session continue that left input unread until it had its replies. Returns whether it
    /// did anything.
    fn reread(&mut self) -> bool {
        if self.incoming.input.is_empty()
            || self.is_ending()
            || !self.work.items.is_empty()
            || !self.has_room()
        {
            return false;
        }
        self.feed() || !self.outbox.is_empty()
    }

    /// Bytes of replies that may be produced before the peer must read some. Replies that wait for
    /// the disk count too.
    pub(super) fn room(&self) -> usize {
        let waiting = self
            .mailbox
            .answer_bytes()
            .max(self.outgoing.left_behind.unwrap_or_default());
        self.outgoing
            .ahead
            .bytes()
            .saturating_sub(self.outgoing.output.len())
            .saturating_sub(waiting)
    }

    /// Bytes that the peer has not read, excluding posts of other connections.
    fn unread(&self) -> usize {
        self.outgoing.output.len() + self.outgoing.left_behind.unwrap_or_default()
    }

    /// Whether the peer has read enough replies, and the disk written enough commands, to read
    /// more.
    pub(super) fn has_room(&self) -> bool {
        // Mail left behind waits for the peer, and is limited by its bytes instead of its count.
        let acknowledged = self.outgoing.left_behind.is_some()
            || self.mailbox.unanswered() < self.shared.bounds.unacknowledged_max;
        self.unread() < self.outgoing.ahead.bytes() && acknowledged
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::{End, JobId, Notice, Pushed, Tag};

    use super::super::in_hand::{InHand, Script};
    use super::*;

    fn handle(job: u64) -> Event {
        Event::Reply(
            Tag(1),
            Reply::Pushed {
                job: JobId(job),
                how: Pushed::New,
                durable: false,
            },
        )
    }

    fn end(job: u64) -> Event {
        Event::Notice(Notice::Ended {
            job: JobId(job),
            end: End::Cancelled,
        })
    }

    /// Clients record the handle only when they have processed everything from one read.
    #[test]
    fn news_of_a_job_leaves_in_a_later_write_than_its_handle() {
        type Make = fn(u64) -> Event;
        type Case = (&'static [(Make, u64)], &'static [usize]);
        const NEW: Make = handle;
        const OVER: Make = end;
        const CASES: [Case; 6] = [
            (&[(NEW, 1), (OVER, 1)], &[1, 1]),
            (&[(NEW, 1), (NEW, 2), (OVER, 2), (OVER, 1)], &[2, 2]),
            (&[(NEW, 3), (OVER, 1), (OVER, 2), (NEW, 4)], &[4]),
            (&[(NEW, 3), (OVER, 2), (OVER, 3), (NEW, 4)], &[2, 2]),
            (&[(NEW, 1), (OVER, 1), (NEW, 2), (OVER, 2)], &[1, 2, 1]),
            (&[(NEW, 2), (NEW, 1), (OVER, 1)], &[2, 1]),
        ];
        for (mail, writes) in CASES {
            let mut it = InHand::open(Script::default());
            mail.iter().for_each(|(event, job)| it.has(event(*job)));
            for (n, bytes) in writes.iter().enumerate() {
                it.wire().written.clear();
                assert_eq!(
                    it.turn(2000),
                    if n + 1 < writes.len() {
                        "a turn"
                    } else {
                        "no time"
                    },
                    "{writes:?}"
                );
                assert_eq!(it.wire().written.len(), *bytes, "{writes:?}");
            }
            // A handle that was already sent separates nothing.
            [handle(8), end(1), end(2)]
                .into_iter()
                .for_each(|event| it.has(event));
            it.wire().written.clear();
            assert_eq!(
                (it.turn(2000), it.wire().written.len()),
                ("no time".to_owned(), 3),
                "{writes:?}"
            );
        }
    }
}
