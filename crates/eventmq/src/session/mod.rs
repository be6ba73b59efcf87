//! One connection: what each message means to the engine, and what each event means to the peer.
//!
//! Reading order: this file, where every message has a line; `client`, `worker` and `admin`, what they do; `answer`, where
//! every event has one. What they use: `rules` (headers to terms), `schedule`, `held` (a worker's jobs and credits), `beat`
//! (heartbeats and the nudge), `asked`, `msgid`, `directory` (who else is there), `settings`.
//!
//! Any listener serves every role, and what a peer is shows in what it says: whoever informs of itself is a worker or a
//! scheduler, everybody else a client.
//!
//! Invariants: a job is acknowledged to its client when it is durable, and not before; a worker's jobs are leased to its
//! connection, and go back with it. A message that cannot be read ends nothing and counts as a sign of life.
//!
//! Spec: `eventmq-protocol.rst`, all of it.

mod admin;
mod answer;
mod asked;
mod beat;
mod client;
mod directory;
mod held;
mod msgid;
mod rules;
mod schedule;
mod settings;
mod worker;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use windlass_engine::{ClientInfo, Event, JobId, Origin, Tag, Timestamp};
use windlass_session::{Outbox, Post, Reason, Session};
use windlass_zmtp::{Close, Message, Peer, Seat, Unsent};

pub use directory::Directory;
pub use settings::{Scheduler, Settings};

use crate::wire::{Command, Packet, unix_seconds};
use asked::Asked;
use beat::Beat;
use directory::{Listed, Tally};
use held::{Credits, Held};
use msgid::MessageIds;

/// Questions to the engine that may be without an answer before no more is read.
const ASKED_MAX: usize = 1_024;

/// One EventMQ connection.
#[derive(Debug)]
pub struct EventmqSession {
    settings: Arc<Settings>,
    /// Until the connection is open.
    info: ClientInfo,
    /// Its identity, among those of its listener.
    seat: Seat,
    /// The way to this connection, for others.
    line: Arc<dyn Post>,
    peer: Peer,
    ids: MessageIds,
    role: Role,
    /// A worker's or a scheduler's.
    beat: Option<Beat>,
    credits: Credits,
    /// Jobs it works on. They stay when it is no worker any more: it may still answer for them.
    held: Held,
    /// Requests whose end their client wants to hear of.
    awaited: HashMap<JobId, Bytes, foldhash::fast::RandomState>,
    /// The counters of the queue its last finished job came from.
    tally: Option<(Bytes, Arc<Tally>)>,
    asked: Asked,
    /// Something it asked for was refused, which it cannot know: that is in the log.
    refused: bool,
    /// Something unread is in the buffer.
    unread: bool,
    /// The peer has closed its side.
    eof: bool,
    /// The connection is to end: nothing that was sent behind the reason counts.
    over: bool,
}

/// What a peer has said it is.
#[derive(Debug)]
enum Role {
    /// Nothing.
    Client,
    /// It takes jobs.
    Worker(Listed),
    /// It runs schedules.
    Scheduler(Listed),
    /// It said goodbye.
    Gone,
}

impl EventmqSession {
    /// A connection that has just been accepted, its seat in the listener's roster, and the way to it. `dice` are random:
    /// what it says is identified by them.
    #[must_use]
    pub fn new(settings: Arc<Settings>, info: ClientInfo, seat: Seat, line: Arc<dyn Post>, dice: u64) -> Self {
        Self {
            info: ClientInfo { origin: Some(Origin::EVENTMQ), ..info },
            seat,
            line,
            peer: Peer::new(Arc::clone(&settings.zmtp)),
            ids: MessageIds::new(dice),
            role: Role::Client,
            beat: None,
            credits: Credits::default(),
            held: Held::default(),
            awaited: HashMap::default(),
            tally: None,
            asked: Asked::default(),
            refused: false,
            unread: false,
            eof: false,
            over: false,
            settings,
        }
    }

    // ---- messages --------------------------------------------------------------------------------------------------

    /// Takes the next message. Says whether there was one.
    fn read(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut Outbox) -> bool {
        match self.peer.read(now, input, out.bytes()) {
            Ok(Some(windlass_zmtp::Event::Message(message))) => match Packet::decode(&message) {
                Ok(packet) => self.packet(now, packet, &message, out),
                Err(fault) => ignored(&fault),
            },
            Ok(Some(windlass_zmtp::Event::Ready(ready))) => {
                if self.seat.settle(ready.identity, now).is_none() {
                    self.end(Close::Evicted.into(), out);
                }
            }
            // A publisher's business.
            Ok(Some(windlass_zmtp::Event::Subscribe(_) | windlass_zmtp::Event::Cancel(_))) => {}
            Ok(None) => return false,
            Err(close) => self.end(close.into(), out),
        }
        true
    }

    /// The specification's table of contents.
    fn packet(&mut self, now: Timestamp, packet: Packet<'_>, message: &Message, out: &mut Outbox) {
        let id = packet.id;
        match packet.command {
            Command::Request(request) => self.request(id, &request, message, out),
            Command::Ready => self.ready(),
            Command::Reply { text, of } => self.reply(now, text, of, message, out),
            // It was heard, as every message is.
            Command::Heartbeat { .. } | Command::Hello => {}
            Command::Inform { queues, kind } => self.inform(now, id, queues, kind, out),
            Command::Kbye => self.quit(out),
            Command::Schedule(plan) => self.schedule(id, &plan, message, out),
            Command::Unschedule(plan) => self.unschedule(id, &plan, message, out),
            Command::Publish { topic, text } => self.settings.exchange.publish(topic, text),
            Command::Disconnect => self.disconnect(id, out),
            Command::Status => self.status(out),
            Command::ShowWorkers => self.show_workers(out),
            Command::ShowSchedulers => self.show_schedulers(out),
            // Nobody informs of itself to a peer.
            Command::Ack { .. } => {}
            Command::Unknown { name } => ignored(&format_args!("{} is no command", name.escape_ascii())),
        }
    }

    // ---- shared ----------------------------------------------------------------------------------------------------

    /// Says something of our own.
    fn say(&mut self, command: Command<'_>, out: &mut Outbox) {
        let id = self.ids.next();
        self.say_as(&id, command, out);
    }

    /// Says something under an identifier that exists.
    fn say_as(&mut self, id: &[u8], command: Command<'_>, out: &mut Outbox) {
        match self.peer.send(Packet { id, command }.frames(), out.bytes()) {
            Ok(()) | Err(Unsent::NotReady) => {}
            Err(Unsent::Full) => self.end(Reason::Limit("outbound_bytes_max"), out),
        }
    }

    fn heartbeat(&mut self, now: Timestamp, out: &mut Outbox) {
        if let Some(beat) = &mut self.beat {
            beat.said(now);
        }
        let time = unix_seconds(out.wall(now).0);
        self.say(Command::Heartbeat { time: time.as_bytes() }, out);
    }

    /// It lives.
    fn heard(&mut self, now: Timestamp, wall: Timestamp) {
        if let Some(beat) = &mut self.beat {
            beat.heard(now);
        }
        if let Role::Worker(listed) | Role::Scheduler(listed) = &self.role {
            listed.heard(wall);
        }
    }

    /// Whether it works on something, and can be given no more.
    fn is_busy(&self) -> bool {
        matches!(self.role, Role::Worker(_)) && self.credits.open() == 0 && self.held.len() > 0
    }

    /// Whether nothing more is to be read until an answer has come.
    fn must_wait(&self) -> bool {
        self.over || self.asked.len() >= ASKED_MAX
    }

    fn end(&mut self, reason: Reason, out: &mut Outbox) {
        self.over = true;
        out.hang_up(reason);
    }

    /// The peer has closed its side, and everything it sent before has been read.
    fn leave_if_done(&mut self, out: &mut Outbox) {
        if self.eof && !self.unread && !self.must_wait() {
            self.end(Reason::PeerClosed, out);
        }
    }
}

/// What a peer has sent in vain: eMQP has no word for it.
fn ignored(why: &dyn fmt::Display) {
    tracing::debug!(%why, "ignored a message");
}

impl Session for EventmqSession {
    fn on_open(&mut self, now: Timestamp, out: &mut Outbox) {
        out.command(Tag::NONE, windlass_engine::Command::Open(std::mem::take(&mut self.info)));
        self.peer.open(now, out.bytes());
    }

    fn on_bytes(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
        let before = input.len();
        while !self.must_wait() && self.read(now, input, out) {}
        if input.len() < before {
            self.heard(now, out.wall(now));
        }
        self.lend_credits(out);
        // Nothing is read behind an end; a message that was cut short by the peer's own stays so.
        if self.over || (self.eof && !self.must_wait()) {
            input.clear();
        }
        self.unread = !input.is_empty();
        self.leave_if_done(out);
    }

    fn on_event(&mut self, now: Timestamp, event: Event, out: &mut Outbox) {
        self.event(now, event, out);
        self.leave_if_done(out);
    }

    fn on_tick(&mut self, now: Timestamp, out: &mut Outbox) {
        if self.must_wait() {
            // What it has to say may be in the buffer.
            self.excuse(now);
        }
        if let Err(close) = self.peer.tick(now, out.bytes()) {
            return self.end(close.into(), out);
        }
        let (busy, settings) = (self.is_busy(), Arc::clone(&self.settings));
        match &self.beat {
            Some(beat) if beat.dead_at(&settings) <= now => self.end(Reason::TimedOut("heartbeat_timeout"), out),
            Some(beat) if beat.due_at(busy, &settings) <= now => self.heartbeat(now, out),
            Some(_) | None => {}
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        if self.over {
            return None;
        }
        let beat = self.beat.as_ref().map(|beat| {
            let settings = &self.settings;
            beat.due_at(self.is_busy(), settings).min(beat.dead_at(settings))
        });
        self.peer.next_deadline().into_iter().chain(beat).min()
    }

    fn needs_bytes(&self) -> usize {
        self.peer.bytes_wanted()
    }

    fn messages(&self) -> u64 {
        self.peer.messages()
    }

    fn held_bytes(&self) -> usize {
        self.peer.held_bytes()
    }

    fn excuse(&mut self, now: Timestamp) {
        self.peer.excuse(now);
        if let Some(beat) = &mut self.beat {
            beat.heard(now);
        }
    }

    /// Whoever has asked for something is gone, but what it sent before is done.
    fn on_eof(&mut self, _now: Timestamp, out: &mut Outbox) {
        self.eof = true;
        // What is left when nothing holds us up is the beginning of a message.
        self.unread &= self.must_wait();
        self.leave_if_done(out);
    }

    fn on_shutdown(&mut self, _now: Timestamp, out: &mut Outbox) {
        if matches!(self.role, Role::Worker(_) | Role::Scheduler(_)) {
            self.say(Command::Kbye, out);
        }
    }
}
