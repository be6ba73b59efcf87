//! One connection: turns each message into engine commands and each event into messages.
//!
//! Reading order: this file dispatches every message to `client`, `worker` or `admin`; `answer` handles every reply.
//! They use `rules` (headers to a job's terms), `schedule`, `held` (a worker's jobs and credits), `beat` (heartbeats
//! and the nudge), `ask`, `msgid`, `directory` (workers and schedulers of the daemon), `settings`.
//!
//! Any listener serves every role. A peer that sends `INFORM` is a worker or a scheduler; all other peers are clients.
//!
//! Invariants: a job is acknowledged to its client when it is durable, and not before. A worker's jobs are leased to
//! its connection, and go back when it ends. An unreadable message ends nothing and counts as a sign of life.
//!
//! Spec: `eventmq-protocol.rst`, all of it.

mod admin;
mod answer;
mod ask;
mod beat;
mod client;
mod directory;
mod held;
mod msgid;
mod rules;
mod schedule;
mod settings;
mod worker;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use windlass_engine::{ClientInfo, JobId, Notice, Protocol, Refusal, Reply, Timestamp};
use windlass_session::{Conversation, Read, Reason, Speaker, Transport};
use windlass_zmtp::{Event, Link, Message, Registration, Unsent};

pub(crate) use directory::Address;
pub use directory::Directory;
pub use rules::without_headers;
pub(crate) use settings::Others;
pub use settings::Settings;

use crate::wire::{Command, Packet, unix_seconds};
use ask::Ask;
use beat::Beat;
use directory::{Listed, Tally};
use held::{Credits, Held};
use msgid::MessageIds;

/// One connection's output.
type Talk<'a> = windlass_session::Talk<'a, Ask>;

/// One EventMQ connection.
pub type EventmqSession = Conversation<EventmqSpeaker>;

/// The protocol's side of a connection.
#[derive(Debug)]
pub struct EventmqSpeaker {
    settings: Arc<Settings>,
    link: Link,
    ids: MessageIds,
    role: Role,
    /// The timers of a worker or scheduler.
    beat: Option<Beat>,
    credits: Credits,
    /// The worker's jobs. They stay when it is no longer a worker, because it may still reply.
    held: Held,
    /// Jobs whose results the client has requested, with the identifiers of the requests.
    awaited: HashMap<JobId, BTreeSet<Bytes>, foldhash::fast::RandomState>,
    /// The name under which its later connections collect these results, if the peer has stated an identity.
    name: Option<Bytes>,
    /// The queue of its last finished job, and the queue's counters.
    tally: Option<(Bytes, Arc<Tally>)>,
    /// The engine has refused a command, and the log has a warning. eMQP has no error reply.
    refused: bool,
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

impl EventmqSpeaker {
    /// The session of a connection that was just accepted. `registration` is its place in the listener's registry.
    /// `rng` is random, for identifiers of messages.
    pub fn session(
        settings: Arc<Settings>,
        info: ClientInfo,
        registration: Registration,
        rng: u64,
    ) -> EventmqSession {
        let speaker = Self {
            link: Link::new(Arc::clone(&settings.zmtp), registration),
            settings,
            ids: MessageIds::new(rng),
            role: Role::Client,
            beat: None,
            credits: Credits::default(),
            held: Held::default(),
            awaited: HashMap::default(),
            name: None,
            tally: None,
            refused: false,
        };
        Conversation::new(speaker, info)
    }

    // ---- messages --------------------------------------------------------------------------------------------------

    /// Dispatches a message, in the order of the specification.
    fn packet(&mut self, packet: Packet<'_>, message: &Message, talk: &mut Talk<'_>) {
        let id = packet.id;
        match packet.command {
            Command::Request(request) => self.request(id, &request, message, talk),
            Command::Ready => self.ready(),
            Command::Reply { text, of } => self.result(text, of, message, talk),
            // Every message counts as a sign of life; these do nothing else.
            Command::Heartbeat { .. } | Command::Hello => {}
            Command::Inform { queues, kind } => self.inform(id, queues, kind, talk),
            Command::Kbye => self.quit(talk),
            Command::Schedule(plan) => self.schedule(id, &plan, message, talk),
            Command::Unschedule(plan) => self.unschedule(id, &plan, message, talk),
            Command::Publish { topic, text } => self.publish(topic, text, talk),
            Command::Disconnect => self.disconnect(id, talk),
            Command::Status => self.status(talk),
            Command::ShowWorkers => Self::show(true, talk),
            Command::ShowSchedulers => Self::show(false, talk),
            // The daemon never sends `INFORM`, so this answers nothing.
            Command::Ack { .. } => {}
            Command::Unknown { name } => {
                ignored(&format_args!("unknown command {}", name.escape_ascii()))
            }
        }
    }

    // ---- shared ----------------------------------------------------------------------------------------------------

    /// Sends a message with a new identifier.
    fn send(&mut self, command: Command<'_>, talk: &mut Talk<'_>) {
        let id = self.ids.next();
        self.send_as(&id, command, talk);
    }

    /// Sends a message with this identifier.
    fn send_as(&mut self, id: &[u8], command: Command<'_>, talk: &mut Talk<'_>) {
        match self
            .link
            .peer()
            .send(Packet { id, command }.frames(), talk.bytes())
        {
            Ok(()) | Err(Unsent::NotReady) => {}
            Err(Unsent::Full) => talk.end(Reason::Limit("outbound_bytes_max")),
        }
    }

    fn heartbeat(&mut self, talk: &mut Talk<'_>) {
        if let Some(beat) = &mut self.beat {
            beat.sent(talk.now());
        }
        let time = unix_seconds(talk.wall(talk.now()).0);
        self.send(
            Command::Heartbeat {
                time: time.as_bytes(),
            },
            talk,
        );
    }

    /// Records a sign of life.
    fn received(&mut self, now: Timestamp, wall: Timestamp) {
        if let Some(beat) = &mut self.beat {
            beat.received(now);
        }
        if let Role::Worker(listed) | Role::Scheduler(listed) = &self.role {
            listed.received(wall);
        }
    }

    /// Whether it has jobs and no credit.
    fn is_busy(&self) -> bool {
        matches!(self.role, Role::Worker(_)) && self.credits.open() == 0 && self.held.len() > 0
    }
}

/// Logs a message that has no effect. eMQP has no error reply.
fn ignored(why: &dyn fmt::Display) {
    tracing::debug!(%why, "ignored a message");
}

impl Speaker for EventmqSpeaker {
    const PROTOCOL: Protocol = Protocol::EVENTMQ;

    type Question = Ask;

    fn awaits_login(&self) -> bool {
        self.link.awaits_login()
    }

    fn open(&mut self, talk: &mut Talk<'_>) {
        self.link.open(talk.now(), talk.bytes());
    }

    fn read(&mut self, input: &mut BytesMut, talk: &mut Talk<'_>) -> Result<Read, Reason> {
        match self.link.read(talk.now(), input, talk.bytes()) {
            Ok(Some(Event::Message(ref message))) => match Packet::decode(message) {
                Ok(packet) => self.packet(packet, message, talk),
                Err(fault) => ignored(&fault),
            },
            Ok(Some(Event::Ready(ready))) => {
                self.settings = self.settings.entered(&ready, talk);
                self.introduced(&ready, talk);
            }
            // Subscriptions concern publishers only.
            Ok(Some(Event::Subscribe(_) | Event::Cancel(_))) => {}
            Ok(None) => return Ok(Read::Needs(self.link.peer().bytes_wanted())),
            Err(close) => return Err(close.into()),
        }
        Ok(Read::Message)
    }

    fn has_read(&mut self, took: bool, talk: &mut Talk<'_>) {
        if took {
            self.received(talk.now(), talk.wall(talk.now()));
        }
        self.lend_credits(talk);
    }

    fn reply(&mut self, ask: Ask, reply: Reply, talk: &mut Talk<'_>) {
        self.replied(ask, reply, talk);
    }

    fn refused(&mut self, _code: u64, why: Refusal, _talk: &mut Talk<'_>) {
        answer::refused(why);
    }

    fn notice(&mut self, notice: Notice, talk: &mut Talk<'_>) {
        match notice {
            Notice::Delivered(job) => self.taken(*job, talk),
            Notice::Ended { job, end } => self.job_ended(job, &end, talk),
            Notice::Collected { job, key, end } => {
                self.awaited.entry(job).or_default().insert(key);
                end.iter().for_each(|end| self.job_ended(job, end, talk));
            }
            // eMQP has no progress.
            Notice::Progress { .. }
            | Notice::WorkAvailable
            | Notice::Watched(_)
            | Notice::Close => {}
        }
    }

    fn tick(&mut self, talk: &mut Talk<'_>) {
        let (now, busy) = (talk.now(), self.is_busy());
        match &self.beat {
            Some(beat) if beat.dead_at(&self.settings.section) <= now => {
                talk.end(Reason::TimedOut("heartbeat_timeout"))
            }
            Some(beat) if beat.due_at(busy, &self.settings.section) <= now => self.heartbeat(talk),
            Some(_) | None => {}
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let beat = self.beat.as_ref()?;
        Some(
            beat.due_at(self.is_busy(), &self.settings.section)
                .min(beat.dead_at(&self.settings.section)),
        )
    }

    fn reset_liveness(&mut self, now: Timestamp) {
        if let Some(beat) = &mut self.beat {
            beat.received(now);
        }
    }

    fn shutdown(&mut self, talk: &mut Talk<'_>) {
        if matches!(self.role, Role::Worker(_) | Role::Scheduler(_)) {
            self.send(Command::Kbye, talk);
        }
    }

    fn transport(&self) -> Option<&dyn Transport> {
        Some(&self.link)
    }

    fn transport_mut(&mut self) -> Option<&mut dyn Transport> {
        Some(&mut self.link)
    }
}
