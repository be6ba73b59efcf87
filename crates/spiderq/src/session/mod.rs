//! One connection: turns requests into commands for the engine, and the engine's events into replies.
//!
//! Reading order: this file, where every request has a line; `answer`, where every event has one. What they use:
//! `transport` (ZMTP or bare), `frame` (a request's bytes), `ask` (what a command was for), `refusal`, `settings`.
//!
//! Invariants: replies leave in the order of their requests; the outbox ensures that, not this module. Only a blocking
//! `Lend` is passed by, because its reply may come at any time. An entry never keeps the read buffer alive that its
//! request came in.
//!
//! Spec: `spiderq-protocol`, all of it.

mod adopt;
mod answer;
mod ask;
mod frame;
mod refusal;
mod settings;
mod transport;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use windlass_engine::{
    ClientInfo, Command, From, JobCommand, JobRef, LeaseCommand, LeaseTerms, NewJob, Notice,
    OnExpiry, Proof, Protocol, Query, Right, Select, Take, TakeCommand, Token, Wait,
};
use windlass_session::{Conversation, Read, Reason, Speaker, Stop};
use windlass_zmtp::{Event, Link, Mechanism, Registration};

pub use adopt::entry;
pub(crate) use settings::Others;
pub use settings::{Counters, Settings};

use crate::wire::{Cut, Dialect, Fault, Mode, Patience, Reply, Request, Uncut, cut};
use ask::{Ask, What};
use frame::Frame;
use transport::{Transport, ZMTP_FIRST_BYTE};

/// One connection's output.
type Talk<'a> = windlass_session::Talk<'a, Ask>;

/// One spiderq connection.
pub type SpiderqSession = Conversation<SpiderqSpeaker>;

/// The protocol's side of a connection. The first byte shows whether the peer uses ZMTP or bare frames.
#[derive(Debug)]
pub struct SpiderqSpeaker {
    settings: Arc<Settings>,
    transport: Transport,
    /// Number of unanswered blocking lends.
    lends: usize,
    /// The dialect that the peer's requests have shown. Once it is 1.4 it stays 1.4.
    shown: Option<Dialect>,
    /// The peer has sent an `Add` with a mode, so every later `Add` must have one.
    gives_modes: bool,
}

impl SpiderqSpeaker {
    /// The session of a connection that has just been accepted, with its place in the listener's registry.
    pub fn session(
        settings: Arc<Settings>,
        info: ClientInfo,
        registration: Registration,
    ) -> SpiderqSession {
        let link = Link::new(Arc::clone(&settings.zmtp), registration);
        let transport = Transport::Unknown(Box::new(link));
        Conversation::new(
            Self {
                settings,
                transport,
                lends: 0,
                shown: None,
                gives_modes: false,
            },
            info,
        )
    }

    // ---- bytes to frames -------------------------------------------------------------------------------------------

    /// Chooses the transport. A bare peer gives up its place in the registry.
    fn greeted(&mut self, first: u8, talk: &mut Talk<'_>) -> Result<(), Reason> {
        match std::mem::replace(&mut self.transport, Transport::Bare) {
            Transport::Unknown(mut link) if first == ZMTP_FIRST_BYTE => {
                link.open(talk.now(), talk.bytes());
                self.transport = Transport::Zmtp(link);
            }
            Transport::Unknown(_) if self.settings.zmtp.mechanism != Mechanism::Null => {
                return Err(Reason::Protocol(
                    "a bare request, but a password is required".to_owned(),
                ));
            }
            Transport::Unknown(_) => {}
            known @ (Transport::Zmtp(_) | Transport::Bare) => self.transport = known,
        }
        Ok(())
    }

    fn read_message(&mut self, input: &mut BytesMut, talk: &mut Talk<'_>) -> Result<Read, Reason> {
        let Transport::Zmtp(link) = &mut self.transport else {
            return Ok(Read::Needs(0));
        };
        match link.read(talk.now(), input, talk.bytes()) {
            Ok(Some(Event::Message(ref message))) => self.frame(Frame::Message(message), talk),
            Ok(Some(Event::Ready(ready))) => {
                let transport = Arc::clone(&self.settings.zmtp);
                let namespace = transport.namespace_of(&ready);
                self.settings = self.settings.within(namespace);
                talk.enter(namespace);
            }
            // Only publishers use subscriptions.
            Ok(Some(Event::Subscribe(_) | Event::Cancel(_))) => {}
            Ok(None) => return Ok(Read::Needs(link.peer().bytes_wanted())),
            Err(close) => return Err(close.into()),
        }
        Ok(Read::Message)
    }

    fn read_bare(&mut self, input: &mut BytesMut, talk: &mut Talk<'_>) -> Result<Read, Reason> {
        match cut(input, self.settings.frame_bytes_max()) {
            Ok(Cut::Whole(bytes)) => {
                self.frame(Frame::Bare(&input.split_to(bytes).freeze()), talk);
                Ok(Read::Message)
            }
            Ok(Cut::Begun(bytes)) => Ok(Read::Needs(if input.is_empty() {
                0
            } else {
                bytes - input.len()
            })),
            Err(Uncut::Unknown(fault)) => {
                Reply::Error(fault).encode(talk.bytes());
                Err(Reason::Protocol("unknown request".to_owned()))
            }
            Err(Uncut::TooLong) => Err(Reason::Limit("frame_bytes_max")),
        }
    }

    fn frame(&mut self, frame: Frame<'_>, talk: &mut Talk<'_>) {
        match self.decode(frame) {
            Ok(request) => {
                self.note_dialect(&request);
                self.request(request, frame, talk);
            }
            Err(fault) => self.fault(fault, frame, talk),
        }
    }

    fn decode<'a>(&self, frame: Frame<'a>) -> Result<Request<'a>, Fault> {
        let known = match self.shown {
            Some(Dialect::V1_4) => self.gives_modes.then_some(Dialect::V1_4),
            shown => shown,
        };
        match (frame, self.settings.section.dialect.fixed().or(known)) {
            // On a bare stream a byte after an `Add` is the next request, so no `Add` has a mode.
            (Frame::Bare(..), _) => Request::decode(frame.payload(), Dialect::V1_3),
            (Frame::Message(_), Some(dialect)) => Request::decode(frame.payload(), dialect),
            (Frame::Message(_), None) => Request::decode_either(frame.payload()),
        }
    }

    /// Records the dialect that a request shows: for this connection, and for the listener's other connections.
    fn note_dialect(&mut self, request: &Request<'_>) {
        self.gives_modes |= matches!(request, Request::Add { mode: Some(_), .. });
        let Some(dialect) = request
            .dialect()
            .filter(|_| self.shown != Some(Dialect::V1_4))
        else {
            return;
        };
        if self.shown.replace(dialect) != Some(dialect) {
            self.settings.counters.saw(dialect);
        }
    }

    /// The dialect of the counters that `Stats` returns to this peer.
    fn stats_dialect(&self) -> Dialect {
        let bare = matches!(self.transport, Transport::Bare).then_some(Dialect::V1_3);
        match (self.settings.section.dialect.fixed(), self.shown) {
            (Some(Dialect::V1_4), _) | (_, Some(Dialect::V1_4)) => Dialect::V1_4,
            (configured, shown) => configured
                .or(shown)
                .or(bare)
                .unwrap_or_else(|| self.settings.counters.seen_last()),
        }
    }

    fn fault(&mut self, fault: Fault, frame: Frame<'_>, talk: &mut Talk<'_>) {
        self.send(&frame.envelope(), &Reply::Error(fault), talk);
    }

    // ---- requests --------------------------------------------------------------------------------------------------

    /// Every request of the specification.
    fn request(&mut self, request: Request<'_>, frame: Frame<'_>, talk: &mut Talk<'_>) {
        match request {
            Request::Ping => {
                self.settings.counters.count(What::Ping);
                self.send(&frame.envelope(), &Reply::Pong, talk);
            }
            Request::Count => Self::ask(
                What::Count,
                frame,
                Query::Queue {
                    queue: self.queue(),
                },
                talk,
            ),
            Request::Add { key, value, mode } => {
                let front = mode == Some(Mode::Head);
                let job = NewJob {
                    front,
                    ..self
                        .settings
                        .entry(frame.view(key), frame.value(value, talk))
                };
                Self::ask(What::Add, frame, JobCommand::Push(Box::new(job)), talk);
            }
            Request::Update { key, value } => {
                let command = Command::Job(JobCommand::Replace {
                    job: self.job(frame, key),
                    body: frame.value(value, talk),
                });
                Self::ask(What::Update, frame, command, talk);
            }
            Request::Lookup { key } => {
                Self::ask(What::Lookup, frame, Query::Job(self.job(frame, key)), talk)
            }
            Request::Lend {
                timeout_ms,
                patience,
            } => self.lend(timeout_ms, patience, frame, talk),
            Request::Repay {
                lend_key,
                key,
                value,
                status,
            } => {
                let (job, proof) = (self.job(frame, key), Proof::Token(Token(lend_key)));
                let command = Command::Lease(LeaseCommand::Repay {
                    job,
                    proof,
                    body: frame.value(value, talk),
                    to: status,
                });
                Self::ask(What::Repay, frame, command, talk);
            }
            Request::Heartbeat {
                lend_key,
                key,
                timeout_ms,
            } => {
                let (job, proof) = (self.job(frame, key), Proof::Token(Token(lend_key)));
                let command = Command::Lease(LeaseCommand::Extend {
                    job,
                    proof,
                    until: talk.now().after_ms(timeout_ms),
                    only_later: false,
                });
                Self::ask(What::Heartbeat, frame, command, talk);
            }
            Request::Stats => {
                let what = if self.stats_dialect() == Dialect::V1_4 {
                    What::StatsNew
                } else {
                    What::Stats
                };
                // The row is not needed. The engine's answer marks the place of the reply in its order.
                Self::ask(
                    what,
                    frame,
                    Query::Queue {
                        queue: self.queue(),
                    },
                    talk,
                );
            }
            Request::Terminate => self.terminate(frame, talk),
            Request::Flush => Self::ask(What::Flush, frame, Command::Barrier, talk),
            Request::Remove { key } => Self::ask(
                What::Remove,
                frame,
                JobCommand::Cancel(self.job(frame, key)),
                talk,
            ),
        }
    }

    fn lend(&mut self, timeout_ms: u64, patience: Patience, frame: Frame<'_>, talk: &mut Talk<'_>) {
        let (what, wait) = match patience {
            Patience::Block => (What::Lend, Wait::Forever),
            Patience::Poll => (What::Poll, Wait::No),
        };
        if patience == Patience::Block {
            if self.lends >= self.settings.section.lends_max {
                return talk.end(Reason::Limit("lends_max"));
            }
            self.lends += 1;
        }
        let lease = LeaseTerms {
            connection_bound: self.settings.section.release_on_disconnect,
            lease_ms: Some(timeout_ms),
            on_expiry: OnExpiry::Front,
            wish: None,
        };
        let from = From::Cycle {
            queue: self.queue(),
            lease,
        };
        let take = Take {
            from,
            select: Select::ListOrder,
            wait,
            worker: Bytes::new(),
        };
        Self::ask(what, frame, TakeCommand::Take(take), talk);
    }

    fn terminate(&mut self, frame: Frame<'_>, talk: &mut Talk<'_>) {
        if self.settings.section.terminate && talk.may(Right::Administer) {
            self.send(&frame.envelope(), &Reply::Terminated, talk);
            talk.stop_daemon(Stop::Gracefully);
        } else {
            self.fault(Request::NO_TERMINATE, frame, talk);
        }
    }

    // ---- shared ----------------------------------------------------------------------------------------------------

    fn queue(&self) -> Bytes {
        self.settings.queue.clone()
    }

    fn job(&self, frame: Frame<'_>, key: &[u8]) -> JobRef {
        JobRef::key(self.queue(), Protocol::SPIDERQ, frame.view(key))
    }

    /// Sends a command to the engine and records its purpose.
    fn ask(what: What, frame: Frame<'_>, command: impl Into<Command>, talk: &mut Talk<'_>) {
        talk.ask(
            Ask {
                what,
                envelope: frame.envelope(),
            },
            command,
        );
    }
}

impl Speaker for SpiderqSpeaker {
    const PROTOCOL: Protocol = Protocol::SPIDERQ;

    type Question = Ask;

    fn awaits_login(&self) -> bool {
        match &self.transport {
            Transport::Unknown(link) | Transport::Zmtp(link) => link.awaits_login(),
            Transport::Bare => false,
        }
    }

    fn read(&mut self, input: &mut BytesMut, talk: &mut Talk<'_>) -> Result<Read, Reason> {
        if let (Transport::Unknown(_), Some(first)) = (&self.transport, input.first()) {
            self.greeted(*first, talk)?;
        }
        match self.transport {
            Transport::Unknown(_) => Ok(Read::Needs(0)),
            Transport::Zmtp(_) => self.read_message(input, talk),
            Transport::Bare => self.read_bare(input, talk),
        }
    }

    fn reply(&mut self, ask: Ask, reply: windlass_engine::Reply, talk: &mut Talk<'_>) {
        self.replied(&ask, &reply, talk);
    }

    /// spiderq has neither credit nor listeners.
    fn notice(&mut self, _notice: Notice, _talk: &mut Talk<'_>) {}

    /// A client in a blocking `Lend` may still read the answers to its earlier requests, but must not be lent an entry
    /// any more.
    fn leave(&mut self, talk: &mut Talk<'_>) {
        talk.send(TakeCommand::Unwait);
    }

    fn transport(&self) -> Option<&dyn windlass_session::Transport> {
        if let Transport::Zmtp(link) = &self.transport {
            Some(&**link)
        } else {
            None
        }
    }

    fn transport_mut(&mut self) -> Option<&mut dyn windlass_session::Transport> {
        if let Transport::Zmtp(link) = &mut self.transport {
            Some(&mut **link)
        } else {
            None
        }
    }
}
