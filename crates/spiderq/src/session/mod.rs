//! One connection: turns requests into commands for the engine, and the engine's events into replies.
//!
//! Reading order: this file, where every request has a line; `answer`, where every event has one. What they use: `transport`
//! (ZMTP or bare), `frame` (a request's bytes), `asked` (how an answer finds its question), `refusal`, `settings`.
//!
//! Invariants: replies leave in the order of their requests; the outbox ensures that, not this module. Only a blocking `Lend` is
//! passed by, because its answer may come at any time. An entry never keeps the read buffer alive that its request came in.
//!
//! Spec: `spiderq-protocol`, all of it.

mod adopt;
mod answer;
mod asked;
mod frame;
mod refusal;
mod settings;
mod transport;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use windlass_engine::{
    ClientCommand, ClientInfo, Command, Event, From, JobCommand, JobRef, LeaseCommand, LeaseTerms, NewJob, OnExpiry,
    Proof, Protocol, Query, RepayTo, Select, Tag, Take, TakeCommand, Timestamp, Token, Wait,
};
use windlass_session::{Outbox, Reason, Session, Stop};
use windlass_zmtp::{Close, Mechanism, Peer, Registration};

pub use adopt::Unfit;
pub use settings::{Counters, Settings};

use crate::wire::{Cut, Dialect, Fault, Mode, Patience, Reply, Request, Status, Uncut, cut};
use asked::{Ask, Asked};
use frame::{Frame, LARGE_BYTES, dedicate};
use settings::Counted;
use transport::{Transport, ZMTP_FIRST_BYTE};

/// Unanswered requests after which the session stops reading. Blocking lends do not count.
const ASKED_MAX: usize = 512;

/// One spiderq connection. The first byte shows whether the peer uses ZMTP or bare frames.
#[derive(Debug)]
pub struct SpiderqSession {
    settings: Arc<Settings>,
    /// Sent to the engine when the connection opens; empty afterwards.
    info: ClientInfo,
    /// The connection's place among those in a handshake. A bare peer gives it up.
    registration: Option<Registration>,
    transport: Transport,
    /// Number of bare requests received.
    messages: u64,
    asked: Asked,
    /// The dialect that the peer's requests have shown. Once it is 1.4 it stays 1.4.
    shown: Option<Dialect>,
    /// The peer has sent an `Add` with a mode, so every later `Add` must have one.
    gives_modes: bool,
    /// The buffer holds unread bytes.
    unread: bool,
    /// The peer has closed its side.
    eof: bool,
    /// The connection is ending: nothing sent after the reason counts.
    over: bool,
}

impl SpiderqSession {
    /// A connection that has just been accepted, with its seat in the listener's roster.
    #[must_use]
    pub fn new(settings: Arc<Settings>, info: ClientInfo, registration: Registration) -> Self {
        Self {
            settings,
            info: ClientInfo { protocol: Some(Protocol::SPIDERQ), ..info },
            registration: Some(registration),
            transport: Transport::Unknown,
            messages: 0,
            asked: Asked::default(),
            shown: None,
            gives_modes: false,
            unread: false,
            eof: false,
            over: false,
        }
    }

    // ---- bytes to frames -------------------------------------------------------------------------------------------

    /// Takes the next request. Returns whether there was one.
    fn read(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut Outbox) -> bool {
        match self.transport {
            Transport::Unknown => self.greeted(now, input.first().copied(), out),
            Transport::Zmtp(_) => self.read_message(now, input, out),
            Transport::Bare { .. } => self.read_bare(now, input, out),
        }
    }

    fn greeted(&mut self, now: Timestamp, first: Option<u8>, out: &mut Outbox) -> bool {
        self.transport = match first {
            None => return false,
            Some(ZMTP_FIRST_BYTE) => {
                let mut peer = Peer::new(Arc::clone(&self.settings.zmtp));
                peer.open(now, out.bytes());
                Transport::Zmtp(Box::new(peer))
            }
            Some(_) if self.settings.zmtp.mechanism != Mechanism::Null => {
                self.end(Reason::Protocol("a bare request, but a password is required".to_owned()), out);
                return false;
            }
            Some(_) => {
                self.registration = None;
                Transport::Bare { dedicated: false, wanted: 0 }
            }
        };
        true
    }

    fn read_message(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut Outbox) -> bool {
        let Transport::Zmtp(peer) = &mut self.transport else { return false };
        match peer.read(now, input, out.bytes()) {
            Ok(Some(windlass_zmtp::Event::Message(message))) => self.frame(now, &Frame::Message(message), out),
            Ok(Some(windlass_zmtp::Event::Ready(ready))) => {
                if self
                    .registration
                    .as_mut()
                    .is_none_or(|registration| registration.settle(ready.identity, now).is_none())
                {
                    self.end(Close::Evicted.into(), out);
                }
            }
            // Only publishers use these.
            Ok(Some(windlass_zmtp::Event::Subscribe(_) | windlass_zmtp::Event::Cancel(_))) => {}
            Ok(None) => return false,
            Err(close) => self.end(close.into(), out),
        }
        true
    }

    fn read_bare(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut Outbox) -> bool {
        let Transport::Bare { dedicated, wanted } = &mut self.transport else { return false };
        match cut(input, self.settings.frame_bytes_max) {
            Ok(Cut::Whole(bytes)) => {
                *wanted = 0;
                self.messages += 1;
                let owned = std::mem::take(dedicated);
                let frame = Frame::Bare(input.split_to(bytes).freeze(), owned);
                self.frame(now, &frame, out);
            }
            Ok(Cut::Begun(bytes)) => {
                *wanted = if input.is_empty() { 0 } else { bytes - input.len() };
                if *wanted >= LARGE_BYTES && !*dedicated {
                    *dedicated = true;
                    dedicate(input);
                }
                return false;
            }
            Err(Uncut::Unknown(fault)) => {
                Reply::Error(fault).encode(out.bytes());
                self.end(Reason::Protocol("unknown request".to_owned()), out);
            }
            Err(Uncut::TooLong) => self.end(Reason::Limit("frame_bytes_max"), out),
        }
        true
    }

    fn frame(&mut self, now: Timestamp, frame: &Frame, out: &mut Outbox) {
        match self.decode(frame) {
            Ok(request) => {
                self.note_dialect(&request);
                self.request(now, request, frame, out);
            }
            Err(fault) => self.fault(fault, frame, out),
        }
    }

    fn decode<'a>(&self, frame: &'a Frame) -> Result<Request<'a>, Fault> {
        let known = match self.shown {
            Some(Dialect::V1_4) => self.gives_modes.then_some(Dialect::V1_4),
            shown => shown,
        };
        match (frame, self.settings.dialect.or(known)) {
            // On a bare stream a byte after an `Add` is the next request, so no `Add` has a mode.
            (Frame::Bare(..), _) => Request::decode(frame.payload(), Dialect::V1_3),
            (Frame::Message(_), Some(dialect)) => Request::decode(frame.payload(), dialect),
            (Frame::Message(_), None) => Request::decode_either(frame.payload()),
        }
    }

    /// Records the dialect that a request shows: for this connection, and for the listener's other connections.
    fn note_dialect(&mut self, request: &Request<'_>) {
        self.gives_modes |= matches!(request, Request::Add { mode: Some(_), .. });
        let Some(dialect) = request.dialect().filter(|_| self.shown != Some(Dialect::V1_4)) else { return };
        if self.shown.replace(dialect) != Some(dialect) {
            self.settings.counters.saw(dialect);
        }
    }

    /// The dialect of the counters that `Stats` returns to this peer.
    fn stats_dialect(&self) -> Dialect {
        let bare = matches!(self.transport, Transport::Bare { .. }).then_some(Dialect::V1_3);
        match (self.settings.dialect, self.shown) {
            (Some(Dialect::V1_4), _) | (_, Some(Dialect::V1_4)) => Dialect::V1_4,
            (configured, shown) => configured.or(shown).or(bare).unwrap_or_else(|| self.settings.counters.seen_last()),
        }
    }

    fn fault(&mut self, fault: Fault, frame: &Frame, out: &mut Outbox) {
        self.say(&frame.envelope(), &Reply::Error(fault), out);
    }

    // ---- requests --------------------------------------------------------------------------------------------------

    /// Every request of the specification.
    fn request(&mut self, now: Timestamp, request: Request<'_>, frame: &Frame, out: &mut Outbox) {
        match request {
            Request::Ping => self.answer(Counted::Ping, &frame.envelope(), &Reply::Pong, out),
            Request::Count => self.ask(Ask::Count, frame, Query::Queue { queue: self.queue() }, out),
            Request::Add { key, value, mode } => {
                let front = mode == Some(Mode::Head);
                let job = NewJob { front, ..self.settings.entry(frame.view(key), frame.value(value)) };
                self.ask(Ask::Add, frame, JobCommand::Push(Box::new(job)), out);
            }
            Request::Update { key, value } => {
                let command = Command::Job(JobCommand::Replace { job: self.job(frame, key), body: frame.value(value) });
                self.ask(Ask::Update, frame, command, out);
            }
            Request::Lookup { key } => self.ask(Ask::Lookup, frame, Query::Job(self.job(frame, key)), out),
            Request::Lend { timeout_ms, patience } => self.lend(timeout_ms, patience, frame, out),
            Request::Repay { lend_key, key, value, status } => {
                let (job, proof) = (self.job(frame, key), Proof::Token(Token(lend_key)));
                let command =
                    Command::Lease(LeaseCommand::Repay { job, proof, body: frame.value(value), to: to(status) });
                self.ask(Ask::Repay, frame, command, out);
            }
            Request::Heartbeat { lend_key, key, timeout_ms } => {
                let (job, proof) = (self.job(frame, key), Proof::Token(Token(lend_key)));
                let command = Command::Lease(LeaseCommand::Extend {
                    job,
                    proof,
                    until: now.after_ms(timeout_ms),
                    only_later: false,
                });
                self.ask(Ask::Heartbeat, frame, command, out);
            }
            Request::Stats => {
                let ask = if self.stats_dialect() == Dialect::V1_4 { Ask::StatsNew } else { Ask::Stats };
                // The row is not needed. The engine's answer marks the place of the reply in its order.
                self.ask(ask, frame, Query::Queue { queue: self.queue() }, out);
            }
            Request::Terminate => self.terminate(frame, out),
            Request::Flush => self.ask(Ask::Flush, frame, Command::Barrier, out),
            Request::Remove { key } => self.ask(Ask::Remove, frame, JobCommand::Cancel(self.job(frame, key)), out),
        }
    }

    fn lend(&mut self, timeout_ms: u64, patience: Patience, frame: &Frame, out: &mut Outbox) {
        let (ask, wait) = match patience {
            Patience::Block => (Ask::Lend, Wait::Forever),
            Patience::Poll => (Ask::Poll, Wait::No),
        };
        if patience == Patience::Block && self.asked.lends() >= self.settings.lends_max {
            return self.end(Reason::Limit("lends_max"), out);
        }
        let lease = LeaseTerms {
            connection_bound: self.settings.release_on_disconnect,
            lease_ms: Some(timeout_ms),
            on_expiry: OnExpiry::Front,
            wish: None,
        };
        let from = From::Cycle { queue: self.queue(), lease };
        let take = Take { from, select: Select::ListOrder, wait, worker: Bytes::new() };
        self.ask(ask, frame, TakeCommand::Take(take), out);
    }

    fn terminate(&mut self, frame: &Frame, out: &mut Outbox) {
        if self.settings.terminate {
            self.say(&frame.envelope(), &Reply::Terminated, out);
            out.stop_daemon(Stop::Gracefully);
        } else {
            self.fault(Request::NO_TERMINATE, frame, out);
        }
    }

    // ---- shared ----------------------------------------------------------------------------------------------------

    fn queue(&self) -> Bytes {
        self.settings.queue.clone()
    }

    fn job(&self, frame: &Frame, key: &[u8]) -> JobRef {
        JobRef::Key { queue: self.queue(), protocol: Protocol::SPIDERQ, key: frame.view(key) }
    }

    /// Sends a command to the engine and records its purpose.
    fn ask(&mut self, ask: Ask, frame: &Frame, command: impl Into<Command>, out: &mut Outbox) {
        let tag = self.asked.push(ask, frame.envelope());
        out.command(tag, command);
    }

    /// Whether reading must stop until an answer has come.
    fn must_wait(&self) -> bool {
        self.over || self.asked.others() >= ASKED_MAX
    }

    fn end(&mut self, reason: Reason, out: &mut Outbox) {
        self.over = true;
        out.hang_up(reason);
    }

    /// Ends the connection if the peer has closed its side and every request before that is answered or soon will be.
    fn leave_if_done(&mut self, out: &mut Outbox) {
        if self.eof && !self.unread && !self.must_wait() {
            // A peer that has left must not be lent an entry.
            out.command(Tag::NONE, TakeCommand::Unwait);
            self.end(Reason::PeerClosed, out);
        }
    }
}

const fn to(status: Status) -> RepayTo {
    match status {
        Status::Penalty => RepayTo::Penalty,
        Status::Reward => RepayTo::Reward,
        Status::Front => RepayTo::Front,
        Status::Drop => RepayTo::Drop,
    }
}

impl Session for SpiderqSession {
    fn on_open(&mut self, _now: Timestamp, out: &mut Outbox) {
        out.command(Tag::NONE, ClientCommand::Open(std::mem::take(&mut self.info)));
    }

    fn on_bytes(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
        while !self.must_wait() && self.read(now, input, out) {}
        // Nothing after an end is read. The peer's end can leave a request cut short; no more bytes will complete it.
        if self.over || (self.eof && !self.must_wait()) {
            input.clear();
        }
        self.unread = !input.is_empty();
        self.leave_if_done(out);
    }

    fn on_event(&mut self, _now: Timestamp, event: Event, out: &mut Outbox) {
        self.event(event, out);
        self.leave_if_done(out);
    }

    fn on_tick(&mut self, now: Timestamp, out: &mut Outbox) {
        if self.must_wait() {
            // The session is not reading, so the peer's bytes may be in the buffer.
            self.reset_liveness(now);
        }
        let Transport::Zmtp(peer) = &mut self.transport else { return };
        if let Err(close) = peer.tick(now, out.bytes()) {
            self.end(close.into(), out);
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        match &self.transport {
            Transport::Zmtp(peer) if !self.over => peer.next_deadline(),
            Transport::Zmtp(_) | Transport::Unknown | Transport::Bare { .. } => None,
        }
    }

    fn needs_bytes(&self) -> usize {
        match &self.transport {
            Transport::Zmtp(peer) => peer.bytes_wanted(),
            Transport::Bare { wanted, .. } => *wanted,
            Transport::Unknown => 0,
        }
    }

    fn messages(&self) -> u64 {
        if let Transport::Zmtp(peer) = &self.transport { peer.messages() } else { self.messages }
    }

    fn held_bytes(&self) -> usize {
        if let Transport::Zmtp(peer) = &self.transport { peer.held_bytes() } else { 0 }
    }

    fn reset_liveness(&mut self, now: Timestamp) {
        if let Transport::Zmtp(peer) = &mut self.transport {
            peer.reset_liveness(now);
        }
    }

    /// A client in a blocking `Lend` may still read the answers to its earlier requests, but must not be lent an entry any more.
    fn on_eof(&mut self, _now: Timestamp, out: &mut Outbox) {
        self.eof = true;
        // If reading is not held up, the remaining bytes are an incomplete request.
        self.unread &= self.must_wait();
        self.leave_if_done(out);
    }
}
