//! The life of a connection, once for all protocols: questions to the engine and their replies, when to stop reading,
//! large bodies in buffers of their own, the end of input, when to leave.
//!
//! Not here: what the peer's bytes mean and what it is sent. A [`Speaker`] supplies that.
//!
//! Invariants: a question gets one reply at most. While the open questions weigh
//! [`Question::WEIGHT_MAX`](crate::Question) or more, nothing is read. A peer that closes its side gets everything that
//! its messages cause, except what its speaker withdraws.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::BytesMut;
use windlass_engine::{Capacity, ClientInfo, Event, Notice, Refusal, Reply, Tag, Timestamp};

use crate::alias::Aliases;
use crate::talk::{ENTERED, LARGE_BYTES, State};
use crate::{Outbox, Read, Reason, Session, Speaker, Talk, Transport};

/// A protocol's session.
#[derive(Debug)]
pub struct Conversation<S: Speaker> {
    speaker: S,
    state: State<S::Question>,
    /// The protocol's aliases of queues, if there are any.
    aliases: Option<Arc<Aliases>>,
}

impl<S: Speaker> Conversation<S> {
    /// A connection that has just been accepted.
    pub fn new(speaker: S, info: ClientInfo) -> Self {
        let info = ClientInfo {
            protocol: Some(S::PROTOCOL),
            ..info
        };
        Self {
            speaker,
            state: State {
                info: Some(info),
                ..State::default()
            },
            aliases: None,
        }
    }

    /// The same under aliases of queues.
    #[must_use]
    pub fn under(self, aliases: &Arc<Aliases>) -> Self {
        let aliases = (!aliases.is_empty()).then(|| Arc::clone(aliases));
        Self { aliases, ..self }
    }

    /// Lets the speaker act. Then ends the connection if the peer has closed its side and every message before that is
    /// answered or soon will be.
    fn run(
        &mut self,
        now: Timestamp,
        out: &mut Outbox,
        act: impl FnOnce(&mut S, &mut Talk<'_, S::Question>),
    ) {
        let was_over = self.state.over;
        // Items from earlier calls are translated already.
        let before = out.items.len();
        let mut talk = Talk {
            now,
            out,
            state: &mut self.state,
        };
        act(&mut self.speaker, &mut talk);
        if talk.state.eof && !talk.state.unread && !talk.must_wait() {
            self.speaker.leave(&mut talk);
            talk.end(Reason::PeerClosed);
        }
        if self.state.over && !was_over {
            self.speaker.ended();
        }
        if let Some(aliases) = &self.aliases {
            aliases.inward(out.items.iter_mut().skip(before));
        }
    }
}

/// Reads messages until reading must stop, or one is incomplete.
fn read<S: Speaker>(speaker: &mut S, input: &mut BytesMut, talk: &mut Talk<'_, S::Question>) {
    talk.state.recipients = 0;
    while !talk.must_pause() {
        match speaker.read(input, talk) {
            Ok(Read::Message) => {
                talk.state.messages += 1;
                talk.state.needs_bytes = 0;
                talk.state.dedicated = false;
            }
            Ok(Read::Needs(bytes)) => {
                talk.state.needs_bytes = bytes;
                if bytes >= LARGE_BYTES && !talk.state.dedicated && speaker.transport().is_none() {
                    // The new buffer grows as the rest arrives.
                    *input = BytesMut::from(&**input);
                    talk.state.dedicated = true;
                }
                return;
            }
            Err(reason) => talk.end(reason),
        }
    }
}

/// Whether the engine has refused the connection itself, at the limit of its namespace.
const fn is_of_entrance(why: Refusal) -> bool {
    matches!(
        why,
        Refusal::Limit {
            what: Capacity::NamespaceClients,
            ..
        }
    )
}

impl<S: Speaker> Session for Conversation<S> {
    fn on_open(&mut self, now: Timestamp, out: &mut Outbox) {
        self.run(now, out, |speaker, talk| {
            speaker.open(talk);
            // The engine may refuse the connection, and the words for that come behind the greeting.
            if !speaker.awaits_login() {
                talk.enter(None);
            }
        });
    }

    fn on_bytes(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
        self.run(now, out, |speaker, talk| {
            let before = input.len();
            read(speaker, input, talk);
            speaker.has_read(input.len() < before, talk);
            // Nothing after an end is read. The peer's end can leave a message cut short; no more bytes will complete
            // it.
            if talk.state.over || (talk.state.eof && !talk.must_pause()) {
                input.clear();
            }
            talk.state.unread = !input.is_empty();
        });
    }

    fn on_event(&mut self, now: Timestamp, mut event: Event, out: &mut Outbox) {
        if let Some(aliases) = &self.aliases {
            aliases.outward(&mut event);
        }
        self.run(now, out, |speaker, talk| match event {
            Event::Reply(ENTERED, reply) => {
                talk.state.entering = false;
                if matches!(reply, Reply::Refused(_)) {
                    talk.end(Reason::ClosedByServer);
                }
            }
            Event::Reply(Tag::NONE, Reply::Refused(why)) if is_of_entrance(why) => {
                speaker.turned_away(why, talk);
                talk.end(Reason::Limit("namespaces.connections"));
            }
            Event::Reply(tag, reply) if tag.wants_answer() => {
                if let Some(question) = talk.state.pending.take(tag) {
                    speaker.reply(question, reply, talk);
                }
            }
            Event::Reply(tag, Reply::Refused(why)) => speaker.refused(tag.number(), why, talk),
            Event::Reply(..) => {}
            Event::Notice(Notice::Close) => talk.end(Reason::ClosedByServer),
            Event::Notice(notice) => speaker.notice(notice, talk),
        });
    }

    fn on_tick(&mut self, now: Timestamp, out: &mut Outbox) {
        if self.state.over {
            return;
        }
        if self.state.must_wait() {
            // The session has stopped reading, so the peer's bytes may be in the buffer.
            self.reset_liveness(now);
        }
        self.run(now, out, |speaker, talk| {
            let ticked = speaker
                .transport_mut()
                .map_or(Ok(()), |transport| transport.tick(now, talk.bytes()));
            match ticked {
                Ok(()) => speaker.tick(talk),
                Err(reason) => talk.end(reason),
            }
        });
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        if self.state.over {
            return None;
        }
        let transport = self.speaker.transport().and_then(Transport::next_deadline);
        transport
            .into_iter()
            .chain(self.speaker.next_deadline())
            .min()
    }

    fn needs_bytes(&self) -> usize {
        self.state.needs_bytes
    }

    fn messages(&self) -> u64 {
        self.speaker
            .transport()
            .map_or(self.state.messages, Transport::messages)
    }

    fn held_bytes(&self) -> usize {
        self.speaker.held_bytes() + self.speaker.transport().map_or(0, Transport::held_bytes)
    }

    fn reset_liveness(&mut self, now: Timestamp) {
        if let Some(transport) = self.speaker.transport_mut() {
            transport.reset_liveness(now);
        }
        self.speaker.reset_liveness(now);
    }

    fn seal(&mut self, bytes: &[u8]) -> Option<BytesMut> {
        self.speaker.transport_mut()?.seal(bytes)
    }

    fn seals(&self) -> bool {
        self.speaker.transport().is_some()
    }

    fn on_eof(&mut self, now: Timestamp, out: &mut Outbox) {
        self.state.eof = true;
        self.run(now, out, |speaker, talk| {
            speaker.on_eof(talk);
            // If reading is not held up, the remaining bytes are an incomplete message.
            talk.state.unread &= talk.must_pause();
        });
    }

    fn on_shutdown(&mut self, now: Timestamp, out: &mut Outbox) {
        self.run(now, out, S::shutdown);
    }
}
