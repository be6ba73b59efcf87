//! One connection: its socket, its session, and everything buffered between them. Independent of
//! the protocol.
//!
//! The connection never blocks. Its thread calls it in turns, together with all others that have
//! work: `begin_turn` reads and lets the session make commands, the thread visits the engine with
//! all commands, `answer` passes the mail to the session and writes once, and `next` returns what
//! the connection waits for.
//!
//! Back-pressure: while the peer does not read its replies, the connection stops reading, stops
//! executing pending requests, and leaves mail in the mailbox, where its bytes are shared with
//! others. It also stops reading while too many of the peer's commands wait for the disk
//! (`unacknowledged_max`). From a peer that only sends, it continues to read up to a limit
//! (`ahead`).
//!
//! In one turn a connection visits the engine once, and reads and writes a bounded number of bytes.
//! The rest waits for the next turn, so that others are served first. A paged reply is sent page by
//! page.
//!
//! A peer has a limited time to finish a message that it has begun: see `patience`.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use mio::event::Source;
use windlass_engine::{Event, JobId, Reading, Rights, Timestamp};
use windlass_session::{Closer, Item, Outbox, Reason, Session};

use self::ahead::{Ahead, WRITE_HIGH_BYTES};
use self::hand_outs::HandOuts;
pub(crate) use self::phase::End;
use self::phase::{Phase, Shaking};
pub use self::shared::{Bounds, Shared};
use self::watch::Watch;
use crate::output::Output;
use crate::patience::Pending;
use crate::places::Admission;
use crate::stream::Stream;
use crate::traffic::{Counts, NO_HANDSHAKE, NO_PLACE};
use windlass_hub::{ConnectionId, Home, Mail, Mailbox, Visited, clock};

mod ahead;
#[cfg(test)]
mod amounts;
mod deadlines;
mod hand_outs;
#[cfg(test)]
mod in_hand;
mod input;
mod phase;
mod shared;
mod stop;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod times;
#[cfg(test)]
mod turns;
mod watch;
mod work;

/// Creates the session of a connection, when the handshake of its stream is complete and may have
/// told a namespace. The [`Closer`] lets others close the connection.
pub(crate) type Greet =
    Box<dyn FnOnce(Arc<dyn Closer>, Option<Box<str>>) -> Box<dyn Session> + Send>;

/// What creates the session; `None` once it has.
struct Unmet(Option<Greet>);

/// The session of a connection whose handshake is not complete.
#[derive(Debug)]
struct NoSession;

impl Session for NoSession {
    fn on_open(&mut self, _now: Timestamp, _out: &mut Outbox) {}

    fn on_bytes(&mut self, _now: Timestamp, _input: &mut BytesMut, _out: &mut Outbox) {}

    fn on_event(&mut self, _now: Timestamp, _event: Event, _out: &mut Outbox) {}
}

impl fmt::Debug for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unmet")
    }
}

/// The initial state of a connection.
pub(crate) struct Newcomer {
    pub(crate) stream: Box<dyn Stream>,
    /// How long it may be silent in its handshake, if its stream has one.
    pub(crate) handshake_max: Duration,
    pub(crate) greet: Greet,
    pub(crate) admission: Admission,
    pub(crate) rights: Rights,
}

/// One connection, with its stream, session and buffers.
#[derive(Debug)]
pub(crate) struct Connection {
    id: ConnectionId,
    shared: Shared,
    counts: Arc<Counts>,
    /// The connection's place, which may be given to another connection while the peer is silent.
    admission: Admission,
    io: Io,
    session: Box<dyn Session>,
    unmet: Unmet,
    phase: Phase,
    /// When a connection of a stopping daemon says goodbye to a peer that continues to send.
    parts_at: Option<Timestamp>,
    now: Timestamp,
    active_at: Timestamp,
    incoming: Incoming,
    outbox: Outbox,
    work: Work,
    mailbox: Arc<Mailbox>,
    mail: Vec<Mail>,
    outgoing: Outgoing,
    watch: Watch,
}

/// The socket, and its readiness as reported by the kernel.
#[derive(Debug)]
struct Io {
    stream: Box<dyn Stream>,
    /// Whether the socket may have bytes.
    readable: bool,
    /// Whether the socket may accept bytes.
    writable: bool,
    /// Whether the end of the stream is in the socket.
    closed: bool,
    /// Whether the peer has closed its side.
    eof: bool,
    /// Whether anything was read in this turn.
    was_read: bool,
    was_written: bool,
}

/// Received bytes on their way to the session.
#[derive(Debug, Default)]
struct Incoming {
    input: BytesMut,
    /// Complete messages that the session had received at the last count.
    messages: u64,
    /// The incomplete message, if any.
    pending: Pending,
    /// Input bytes from which the items were made.
    fed_bytes: usize,
    /// Bytes that the connection may read in this turn.
    share_bytes: usize,
    /// The same of a large message.
    large_bytes: usize,
    /// Whether the last request blocks until a job arrives.
    waits: bool,
    /// Whether reading is paused until the peer or the disk has caught up, or until it has rested.
    paused: bool,
    /// Whether the peer was refused at a limit of its namespace since it rested.
    was_refused: bool,
    /// Until when nothing is read.
    rests_until: Option<Timestamp>,
}

/// The peer's pending requests.
#[derive(Debug)]
struct Work {
    items: VecDeque<Item>,
    /// Whether none of the items was tried yet.
    is_new: bool,
    /// The broker's result of the last visit.
    visited: Visited,
}

/// Output that the peer has not read.
#[derive(Debug, Default)]
struct Outgoing {
    output: Output,
    /// Bytes written since the connection opened.
    written: u64,
    hand_outs: HandOuts,
    ahead: Ahead,
    /// The lowest number of a job whose handle is in the output: see
    /// [`Connection::part_from_handle`].
    handles_from: Option<JobId>,
    /// Whether the peer seemed to read nothing of its jobs before the last write.
    is_suspected: bool,
    /// Bytes of other mail queued behind a publication that did not fit.
    left_behind: Option<usize>,
}

/// The time of a turn, the state of the daemon, and the read limits of each connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) reading: Reading,
    pub(crate) stopping: bool,
    /// Bytes per connection, except of a large message.
    share_bytes: usize,
    /// Bytes of a large message per connection.
    large_bytes: usize,
}

impl Turn {
    /// Bytes that the connections of a turn read together, if each has much input.
    const BYTES: usize = 256 * 1024;
    /// Minimum and maximum that each reads: less would cost more turns, more would delay the
    /// others.
    const SHARE_BYTES_MIN: usize = 16 * 1024;
    const SHARE_BYTES_MAX: usize = 128 * 1024;
    /// What each reads beside connections of another namespace.
    const MIXED_BYTES: usize = 1024;
    /// The same for a large message.
    const MIXED_LARGE_BYTES: usize = 16 * 1024;

    /// Creates a turn of this many connections.
    pub(crate) fn of(connections: usize, reading: Reading, stopping: bool) -> Self {
        let share_bytes = Self::BYTES / connections.max(1);
        Self {
            reading,
            stopping,
            share_bytes: share_bytes.clamp(Self::SHARE_BYTES_MIN, Self::SHARE_BYTES_MAX),
            large_bytes: usize::MAX,
        }
    }

    /// The same beside connections of another namespace.
    pub(crate) fn mixed(self) -> Self {
        Self {
            share_bytes: Self::MIXED_BYTES,
            large_bytes: Self::MIXED_LARGE_BYTES,
            ..self
        }
    }
}

/// What a connection waits for after a turn.
#[derive(Debug)]
pub(crate) enum Next {
    /// Its next turn, because it has more to do.
    Turn,
    /// Its socket or its mailbox, until this deadline.
    Wait(Option<Timestamp>),
    /// Nothing, because it has ended.
    Over(End),
}

impl Connection {
    /// Creates a connection, which starts with a handshake if its stream has one.
    pub(crate) fn new(
        newcomer: Newcomer,
        home: Home,
        shared: &Shared,
        counts: Arc<Counts>,
        now: Timestamp,
    ) -> Self {
        let Newcomer {
            stream,
            handshake_max,
            greet,
            admission,
            rights,
        } = newcomer;
        let id = home.connection;
        let shared = shared.renewed();
        let Shared {
            broker,
            budget,
            bounds,
            ..
        } = &shared;
        let mailbox = Mailbox::new(bounds.outbound_bytes_max, Arc::clone(budget), home);
        let mailbox = Arc::new(mailbox);
        budget.enter(id.client, Arc::<Mailbox>::clone(&mailbox));
        broker.open(id.client, Arc::clone(&mailbox));
        admission.can_be_reached(&mailbox);
        let io = Io {
            stream,
            readable: true,
            writable: true,
            closed: false,
            eof: false,
            was_read: false,
            was_written: false,
        };
        Self {
            id,
            shared,
            counts,
            admission,
            io,
            session: Box::new(NoSession),
            unmet: Unmet(Some(greet)),
            phase: Phase::Handshake(Shaking::new(handshake_max, now)),
            parts_at: None,
            now,
            active_at: now,
            incoming: Incoming::default(),
            outbox: Outbox::new(id.client).with_rights(rights),
            work: Work {
                items: VecDeque::new(),
                is_new: false,
                visited: Visited::All,
            },
            mailbox,
            mail: Vec::new(),
            outgoing: Outgoing::default(),
            watch: Watch::default(),
        }
    }

    pub(crate) const fn id(&self) -> ConnectionId {
        self.id
    }

    /// Moves the connection to another thread, which then counts for it. Its first turn there
    /// checks everything.
    pub(crate) fn move_to(&mut self, home: Home, counts: Arc<Counts>) {
        (self.id, self.counts) = (home.connection, counts);
        self.mailbox.move_to(home);
        self.notice(true, true, false);
        self.rung();
    }

    /// The number of items waiting for the engine, nearly all of them commands.
    pub(crate) fn commands(&self) -> usize {
        self.work.items.len()
    }

    /// The event source on which the thread waits.
    pub(crate) fn source(&mut self) -> &mut dyn Source {
        self.io.stream.source()
    }

    /// Called when the kernel reports the readiness of the socket.
    pub(crate) const fn notice(&mut self, readable: bool, writable: bool, closed: bool) {
        self.io.readable |= readable;
        self.io.writable |= writable;
        self.io.closed |= closed;
        self.watch.wake();
    }

    /// Called when the mailbox has woken the connection.
    pub(crate) fn rung(&mut self) {
        self.watch.wake();
        if self.work.visited == Visited::UntilRung {
            self.work.visited = Visited::Part;
        }
    }

    /// Whether the kernel must report when the socket accepts bytes.
    pub(crate) const fn waits_to_write(&self) -> bool {
        !self.io.writable
    }

    /// Begins a turn: reads what has arrived, and lets the session make commands of it.
    pub(crate) fn begin_turn(&mut self, turn: &Turn) {
        self.now = turn.reading.now;
        self.incoming.share_bytes = turn.share_bytes;
        self.incoming.large_bytes = turn.large_bytes;
        self.outbox.set_skew_ms(turn.reading.clock.skew_ms);
        if self.mailbox.wake_flag().attend() {
            self.rung();
        }
        self.end_watch();
        (self.io.was_read, self.io.was_written) = (false, false);
        self.outgoing.ahead.begin_turn(self.now);
        if self.is_shaking() && !self.shake_hands(turn.stopping) {
            return;
        }
        if turn.stopping {
            self.prepare_to_stop();
        }
        let is_due = self
            .session
            .next_deadline()
            .is_some_and(|at| at <= self.now);
        self.read_socket(is_due);
        // Bytes that were already in the socket take precedence over a deadline.
        if !self.io.was_read
            && let Some(why) = self.times_out()
        {
            self.end(why);
        }
        if is_due && !self.is_ending() {
            self.tick();
        }
        self.send_outbox();
    }

    /// Whether bytes, or the end of the stream, were read in this turn.
    pub(crate) const fn has_read(&self) -> bool {
        self.io.was_read
    }

    /// Whether the peer was refused at a limit of its namespace since the last call.
    pub(crate) const fn was_refused(&mut self) -> bool {
        std::mem::replace(&mut self.incoming.was_refused, false)
    }

    /// Reads nothing until then.
    pub(crate) const fn rest(&mut self, until: Timestamp) {
        self.incoming.rests_until = Some(until);
    }

    /// How long the address of a connection that has ended so accepts no other one. One that has sent no complete
    /// message has cost about as much as many messages, and to close one that holds much takes about a millisecond.
    pub(crate) fn pause_after(&self, end: &End) -> Duration {
        let is_limited = matches!(end, End::Closed(Reason::Limit(_)));
        match end {
            End::Closed(Reason::Limit(limit)) if limit.ends_with("bytes_max") => {
                Duration::from_millis(100)
            }
            End::Closed(_) | End::NoHandshake(_) if is_limited || self.incoming.messages == 0 => {
                Duration::from_millis(1)
            }
            End::Closed(_) | End::NoHandshake(_) => Duration::ZERO,
        }
    }

    /// See [`Outbox::entered`].
    pub(crate) fn entered(&mut self) -> Option<Box<str>> {
        self.outbox.entered()
    }

    /// Whether more than this number of commands, or more than its share of bytes, had arrived.
    pub(crate) fn is_deep(&self, commands: usize) -> bool {
        self.io.was_read && self.io.readable || self.commands() > commands
    }

    /// Continues the handshake. Returns whether the connection is open.
    fn shake_hands(&mut self, stopping: bool) -> bool {
        if std::mem::take(&mut self.io.readable) {
            self.admission.shakes_hands();
            if let Phase::Handshake(shaking) = &mut self.phase {
                shaking.goes_on(self.now);
            }
        }
        match self.io.stream.shake_hands() {
            Ok(true) => {
                self.phase = Phase::Open;
                self.io.readable = true;
                self.active_at = self.now;
                if let Some(greet) = self.unmet.0.take() {
                    let closer = Arc::<Mailbox>::clone(&self.mailbox);
                    self.session = greet(closer, self.io.stream.namespace());
                }
                self.session.on_open(self.now, &mut self.outbox);
                return true;
            }
            Ok(false) if stopping => self.end(Reason::Shutdown),
            Ok(false) if matches!(self.phase, Phase::Handshake(it) if it.until <= self.now) => {
                self.phase = Phase::Over(End::NoHandshake(io::ErrorKind::TimedOut.into()));
            }
            // The kernel reports when it accepts the rest of our bytes.
            Ok(false) => self.io.writable &= !self.io.stream.has_unwritten(),
            // For example, a load balancer probing the port.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {
                self.end(Reason::PeerClosed)
            }
            Err(error) => self.phase = Phase::Over(End::NoHandshake(error)),
        }
        false
    }

    /// Writes once, up to the limit of a turn.
    fn write(&mut self) {
        if self.mailbox.pressure.is_suspected() {
            self.io.writable = true;
            self.outgoing.is_suspected = true;
        }
        let output = self.outgoing.output.next();
        let output = output.get(..WRITE_HIGH_BYTES).unwrap_or(output);
        if !self.io.writable || (output.is_empty() && !self.io.stream.has_unwritten()) {
            return;
        }
        match self.io.stream.write(output) {
            Ok(0) if !output.is_empty() => self.lose_peer(),
            Ok(written) => {
                self.counts.sent(written);
                self.io.was_written = written > 0;
                self.outgoing.output.advance(written);
                self.outgoing.written += written as u64;
                if !self.outgoing.hand_outs.is_empty() {
                    if self.outgoing.hand_outs.bytes() > 0 {
                        // The turn may have begun long ago, because encoding a large job takes
                        // time.
                        self.mailbox.pressure.moved(clock::now());
                    }
                    let jobs = self.outgoing.hand_outs.written(self.outgoing.written);
                    if jobs > 0 {
                        self.shared.broker.sent_jobs(self.id.client, jobs);
                    }
                }
                if self.io.was_written {
                    self.outgoing.ahead.progress(self.outgoing.output.len());
                }
                if self.outgoing.output.is_empty() {
                    self.outgoing.handles_from = None;
                }
                if self.is_stopping() {
                    self.active_at = self.now;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.io.writable = false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.lose_peer(),
        }
    }

    /// The connection's place.
    pub(crate) const fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Requeues the jobs that the peer has not received, at the end of the connection. A peer that
    /// closed in the middle of a job may have failed because of it.
    pub(crate) fn give_back(&mut self, end: &End) {
        let is_ours = matches!(end, End::Closed(Reason::Limit(_)));
        self.mailbox.give_back(
            self.outgoing
                .hand_outs
                .unsent(self.outgoing.written, is_ours),
        );
    }

    /// Counts the end of the connection.
    pub(crate) fn count_end(&self, end: &End) {
        self.counts.closed(match end {
            // It was in an administrator's place, or its place was given away before it sent
            // anything.
            End::Closed(Reason::Limit(limit)) if self.admission.is_limited_by(limit) => NO_PLACE,
            End::Closed(reason) => reason.code(),
            End::NoHandshake(_) => NO_HANDSHAKE,
        });
    }

    /// Returns what the connection waits for after its turn.
    pub(crate) fn next(&mut self) -> Next {
        self.check_limits();
        match &self.phase {
            Phase::Over(_) => return Next::Over(self.phase.end()),
            Phase::Handshake(shaking) => return Next::Wait(Some(shaking.until)),
            Phase::Open | Phase::Ending(_) => {}
        }
        if self.io.was_read && self.is_answered_with_nothing() {
            self.io.stream.acknowledge();
        }
        let is_quiet = self.work.items.is_empty()
            && self.mailbox.is_settled()
            && self.outgoing.output.is_empty();
        if is_quiet && self.is_ending() {
            return Next::Over(self.phase.end());
        }
        let reading = self.begin_reading();
        let may_write = self.io.writable && !self.outgoing.output.is_empty();
        if (reading && self.io.readable)
            || may_write
            || self.may_visit()
            || self.has_got_room()
            || self.is_to_part()
        {
            return Next::Turn;
        }
        let is_stuck =
            self.incoming.paused && self.io.readable && !self.io.writable && self.room() == 0;
        self.outgoing.ahead.end_turn(is_stuck, self.now);
        self.begin_watch();
        Next::Wait(self.deadline(reading))
    }

    /// Whether the bytes just read get no reply, now or after a commit, although the peer may be
    /// about to send more.
    fn is_answered_with_nothing(&self) -> bool {
        let answered = self.io.was_written
            || !self.outgoing.output.is_empty()
            || !self.mailbox.is_settled()
            || !self.work.items.is_empty();
        !answered && !self.incoming.waits && !self.io.eof && !self.is_ending()
    }

    /// Closes the connection if it exceeds its limits, or if another part of the daemon requires
    /// it. Reports its memory if that has changed much.
    fn check_limits(&mut self) {
        let outbound_bytes_max = self.shared.bounds.outbound_bytes_max;
        if self.mailbox.pressure.overflowed() || self.outgoing.output.len() > outbound_bytes_max {
            return self.end(Reason::Limit("outbound_bytes_max"));
        }
        let jobs = self.outgoing.hand_outs.bytes();
        let others = self.outgoing.output.allocated().saturating_sub(jobs);
        let own = self.incoming.input.capacity() + others + self.session.held_bytes();
        let to_do = if self.work.items.is_empty() {
            0
        } else {
            self.incoming.fed_bytes + size_of::<Item>() * self.work.items.len()
        };
        let held = own + to_do;
        self.mailbox.pressure.set_unsent(jobs, others);
        self.mailbox.pressure.set_buffers(held);
        self.shared.budget.relieve();
        if std::mem::take(&mut self.outgoing.is_suspected) {
            self.mailbox.check_stall(self.now);
        }
        if let Some(why) = self.mailbox.close_reason() {
            self.end(why.clone());
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.budget.leave(self.id.client);
        self.mailbox.pressure.set_buffers(0);
    }
}
