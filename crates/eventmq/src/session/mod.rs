//! One connection: turns each message into engine commands and each event into messages.
//!
//! Reading order: this file dispatches every message to `client`, `worker` or `admin`; `answer` handles every event. They use
//! `rules` (headers to a job's terms), `schedule`, `held` (a worker's jobs and credits), `beat` (heartbeats and the nudge),
//! `asked`, `msgid`, `directory` (workers and schedulers of the daemon), `settings`.
//!
//! Any listener serves every role. A peer that sends `INFORM` is a worker or a scheduler; all other peers are clients.
//!
//! Invariants: a job is acknowledged to its client when it is durable, and not before. A worker's jobs are leased to its
//! connection, and go back when it ends. An unreadable message ends nothing and counts as a sign of life.
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
use windlass_engine::{ClientCommand, ClientInfo, Event, JobId, Protocol, Tag, Timestamp};
use windlass_session::{Outbox, Post, Reason, Session};
use windlass_zmtp::{Close, Message, Peer, Registration, Unsent};

pub use directory::Directory;
pub use settings::{Scheduler, Settings};

use crate::wire::{Command, Packet, unix_seconds};
use asked::Asked;
use beat::Beat;
use directory::{Listed, Tally};
use held::{Credits, Held};
use msgid::MessageIds;

/// Unanswered commands to the engine at which the session stops reading.
const ASKED_MAX: usize = 1_024;

/// One EventMQ connection.
#[derive(Debug)]
pub struct EventmqSession {
    settings: Arc<Settings>,
    /// Used when the connection opens.
    info: ClientInfo,
    /// Its identity, registered with its listener.
    registration: Registration,
    /// The way to this connection's mailbox, for other connections.
    line: Arc<dyn Post>,
    peer: Peer,
    ids: MessageIds,
    role: Role,
    /// The timers of a worker or scheduler.
    beat: Option<Beat>,
    credits: Credits,
    /// The worker's jobs. They stay when it is no longer a worker, because it may still reply.
    held: Held,
    /// Jobs whose results the client has requested, with the identifiers of the requests.
    awaited: HashMap<JobId, Bytes, foldhash::fast::RandomState>,
    /// The queue of its last finished job, and the queue's counters.
    tally: Option<(Bytes, Arc<Tally>)>,
    asked: Asked,
    /// The engine has refused a command, and the log has a warning. eMQP has no error reply.
    refused: bool,
    /// The buffer has unread bytes.
    unread: bool,
    /// The peer has closed its side.
    eof: bool,
    /// The connection is ending: the session ignores further input.
    over: bool,
}

/// A peer's role.
#[derive(Debug)]
enum Role {
    /// The default.
    Client,
    /// Takes jobs.
    Worker(Listed),
    /// Runs schedules.
    Scheduler(Listed),
    /// Has sent `KBYE`.
    Gone,
}

impl EventmqSession {
    /// A session for a connection that was just accepted. `registration` is its place in the listener's registry, `line` the way to its
    /// mailbox. `rng` is random, for identifiers of messages.
    #[must_use]
    pub fn new(
        settings: Arc<Settings>,
        info: ClientInfo,
        registration: Registration,
        line: Arc<dyn Post>,
        rng: u64,
    ) -> Self {
        Self {
            info: ClientInfo { protocol: Some(Protocol::EVENTMQ), ..info },
            registration,
            line,
            peer: Peer::new(Arc::clone(&settings.zmtp)),
            ids: MessageIds::new(rng),
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

    /// Handles the next message. Returns whether there was one.
    fn read(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut Outbox) -> bool {
        match self.peer.read(now, input, out.bytes()) {
            Ok(Some(windlass_zmtp::Event::Message(message))) => match Packet::decode(&message) {
                Ok(packet) => self.packet(now, packet, &message, out),
                Err(fault) => ignored(&fault),
            },
            Ok(Some(windlass_zmtp::Event::Ready(ready))) => {
                if self.registration.settle(ready.identity, now).is_none() {
                    self.end(Close::Evicted.into(), out);
                }
            }
            // Subscriptions concern publishers only.
            Ok(Some(windlass_zmtp::Event::Subscribe(_) | windlass_zmtp::Event::Cancel(_))) => {}
            Ok(None) => return false,
            Err(close) => self.end(close.into(), out),
        }
        true
    }

    /// Dispatches a message, in the order of the specification.
    fn packet(&mut self, now: Timestamp, packet: Packet<'_>, message: &Message, out: &mut Outbox) {
        let id = packet.id;
        match packet.command {
            Command::Request(request) => self.request(id, &request, message, out),
            Command::Ready => self.ready(),
            Command::Reply { text, of } => self.reply(now, text, of, message, out),
            // Every message counts as a sign of life; these do nothing else.
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
            // The daemon never sends `INFORM`, so this answers nothing.
            Command::Ack { .. } => {}
            Command::Unknown { name } => ignored(&format_args!("unknown command {}", name.escape_ascii())),
        }
    }

    // ---- shared ----------------------------------------------------------------------------------------------------

    /// Sends a message with a new identifier.
    fn say(&mut self, command: Command<'_>, out: &mut Outbox) {
        let id = self.ids.next();
        self.say_as(&id, command, out);
    }

    /// Sends a message with this identifier.
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

    /// Records a sign of life.
    fn heard(&mut self, now: Timestamp, wall: Timestamp) {
        if let Some(beat) = &mut self.beat {
            beat.heard(now);
        }
        if let Role::Worker(listed) | Role::Scheduler(listed) = &self.role {
            listed.heard(wall);
        }
    }

    /// Whether it has jobs and no credit.
    fn is_busy(&self) -> bool {
        matches!(self.role, Role::Worker(_)) && self.credits.open() == 0 && self.held.len() > 0
    }

    /// Whether the session must wait for an answer before it reads more.
    fn must_wait(&self) -> bool {
        self.over || self.asked.len() >= ASKED_MAX
    }

    fn end(&mut self, reason: Reason, out: &mut Outbox) {
        self.over = true;
        out.hang_up(reason);
    }

    /// Ends the connection when the peer has closed its side and all its messages have been read.
    fn leave_if_done(&mut self, out: &mut Outbox) {
        if self.eof && !self.unread && !self.must_wait() {
            self.end(Reason::PeerClosed, out);
        }
    }
}

/// Logs a message that has no effect. eMQP has no error reply.
fn ignored(why: &dyn fmt::Display) {
    tracing::debug!(%why, "ignored a message");
}

impl Session for EventmqSession {
    fn on_open(&mut self, now: Timestamp, out: &mut Outbox) {
        out.command(Tag::NONE, windlass_engine::Command::Client(ClientCommand::Open(std::mem::take(&mut self.info))));
        self.peer.open(now, out.bytes());
    }

    fn on_bytes(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
        let before = input.len();
        while !self.must_wait() && self.read(now, input, out) {}
        if input.len() < before {
            self.heard(now, out.wall(now));
        }
        self.lend_credits(out);
        // Nothing is read after the end. A message that the peer cut short by closing stays unread.
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
            // The session has stopped reading, so the peer's silence does not count.
            self.reset_liveness(now);
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

    fn reset_liveness(&mut self, now: Timestamp) {
        self.peer.reset_liveness(now);
        if let Some(beat) = &mut self.beat {
            beat.heard(now);
        }
    }

    /// A peer that has closed its side gets no replies, but what it has sent is done.
    fn on_eof(&mut self, _now: Timestamp, out: &mut Outbox) {
        self.eof = true;
        // Unless a command holds up reading, the rest is an incomplete message.
        self.unread &= self.must_wait();
        self.leave_if_done(out);
    }

    fn on_shutdown(&mut self, _now: Timestamp, out: &mut Outbox) {
        if matches!(self.role, Role::Worker(_) | Role::Scheduler(_)) {
            self.say(Command::Kbye, out);
        }
    }
}
