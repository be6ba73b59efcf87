//! One connection: what each verb means to the engine, and what each event means to the peer.
//!
//! Reading order: this file, where every verb has a line; then the topics: `handshake`, `push` and `bulk`, `fetch`, `work`
//! (ACK, FAIL, REQUEUE, BEAT), `info`, `queues`, `mutate`, `flush`, `job`, `batch`, `track`. What every topic uses:
//! `refusal` (refusals in Faktory's words).
//!
//! Invariants: answers leave in the order of their commands, which is the outbox's doing, not ours; whatever takes more
//! than one question to the engine, or waits, is a `Task`, and nothing behind it is read until it is done.
//!
//! Spec: `protocol-specification.md`, all of it.

mod adopt;
mod batch;
mod bulk;
mod fetch;
mod flush;
mod handshake;
mod info;
mod job;
mod mutate;
mod push;
mod queues;
mod refusal;
mod settings;
mod track;
mod work;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use windlass_engine::{ClientInfo, Command, Cursor, Event, Origin, Refusal, Tag, Timestamp};
use windlass_session::{Outbox, Reason, Session};

pub use adopt::{Standing, Unfit};
pub use settings::{FAKTORY_VERSION, Settings, Shared};

use crate::wire::{Lines, Request, echo, reply};
use handshake::Handshake;
use settings::Counted;

/// Of every command that is answered: answers come in the order of the commands.
const ASKED: Tag = Tag(1);

/// One Faktory connection: producer, worker and administrator at once, as it pleases.
#[derive(Debug)]
pub struct FaktorySession {
    settings: Arc<Settings>,
    /// Until the connection is open.
    info: ClientInfo,
    lines: Lines,
    /// Lines it has sent.
    messages: u64,
    /// Until the client has said HELLO.
    handshake: Option<Handshake>,
    /// Counted from HELLO on.
    counted: Option<Counted>,
    /// The worker it belongs to, if it is one.
    wid: Bytes,
    /// For names of batches, and how many it has made.
    dice: [u64; 2],
    batches: u64,
    /// What the engine has been asked and has not answered.
    asked: VecDeque<Ask>,
    /// What takes more than one answer. Nothing more is read until it is done.
    task: Option<Task>,
    /// Something unread is in the buffer.
    unread: bool,
    /// The peer has closed its side.
    eof: bool,
    /// The connection is to end: nothing that was sent behind the reason counts.
    over: bool,
}

/// What the engine says to what it was asked.
type Answer = Result<Event, Refusal>;

/// What the engine was asked.
#[derive(Debug)]
enum Ask {
    /// To take a job in.
    Push {
        /// The batch it joins, if it joins one.
        bid: Option<Bytes>,
    },
    /// To finish a job.
    Finish,
    /// To take down that this job has failed, to take it back, or to forget it.
    Report(Bytes),
    /// To make, open or commit a batch.
    Batch {
        /// Which.
        bid: Bytes,
        /// What is answered when that is done, if not OK.
        said: Option<Bytes>,
        /// The batch it is to be part of.
        parent: Option<Bytes>,
    },
    /// To hear that this worker is alive.
    Beat(Bytes),
    /// Something for the task at hand.
    Step,
}

/// What takes more than one answer, or a long time.
#[derive(Debug)]
enum Task {
    /// Waits for a job.
    Fetch(fetch::Fetch),
    /// A list of jobs.
    Bulk(Box<bulk::Bulk>),
    /// The figures.
    Info(Box<info::Gathered>),
    /// They are on their way out.
    Leaving(info::Leaving),
    /// Queues are paused, resumed or removed.
    Queues(Box<queues::Queues>),
    /// How long jobs have waited.
    Latency(Box<queues::Latency>),
    /// Everything goes.
    Flush,
    /// Jobs are changed.
    Mutate(Box<mutate::Mutating>),
    /// A job is looked at.
    Look,
    /// This job is looked at, for how far it is.
    Track(Bytes),
    /// This batch is looked at.
    Batch(Bytes),
    /// So many answers mean nothing any more.
    Ignore(usize),
}

impl FaktorySession {
    /// A connection that has just been accepted. The dice are for salts and names: nobody must be able to foresee them.
    #[must_use]
    pub fn new(settings: Arc<Settings>, info: ClientInfo, dice: [u64; 2]) -> Self {
        let handshake = Some(Handshake::new(&settings, dice));
        Self {
            settings,
            info: ClientInfo { origin: Some(Origin::FAKTORY), ..info },
            lines: Lines::default(),
            messages: 0,
            handshake,
            counted: None,
            wid: Bytes::new(),
            dice,
            batches: 0,
            asked: VecDeque::new(),
            task: None,
            unread: false,
            eof: false,
            over: false,
        }
    }

    fn line(&mut self, now: Timestamp, line: &Bytes, out: &mut Outbox) {
        self.messages += 1;
        match self.handshake.take() {
            Some(handshake) => self.greeted(&handshake, line, out),
            None => self.request(now, Request::parse(line), out),
        }
    }

    /// The specification's table of contents.
    fn request(&mut self, now: Timestamp, request: Request, out: &mut Outbox) {
        if let Request::Unknown(verb) = &request {
            return reply::error([b"unknown command ", echo(verb)].concat(), out.bytes());
        }
        self.settings.shared.count_command();
        match request {
            // "Client Commands"
            Request::Info => self.info(out),
            Request::End => {
                reply::ok(out.bytes());
                self.end(Reason::Ended, out);
            }
            // "Producer Commands"
            Request::Push(unit) => self.push(now, &unit, out),
            Request::PushBulk(units) => self.push_bulk(now, units, out),
            // "Consumer Commands"
            Request::Fetch(queues) => self.fetch(now, queues, out),
            Request::Ack(text) => self.ack(&text, out),
            Request::Fail(text) => self.fail(&text, out),
            Request::Requeue(text) => self.requeue(&text, out),
            Request::Beat(text) => self.beat(&text, out),
            // not in the specification
            Request::Queue(request) => self.queue(request, out),
            Request::Mutate(text) => self.mutate(text.as_ref(), out),
            Request::Job { verb, jid } => self.job(&verb, &jid, out),
            Request::TooManyWords => reply::error("too many arguments", out.bytes()),
            Request::Incomplete => reply::error("internal error", out.bytes()),
            Request::Flush => self.flush(Cursor::default(), out),
            Request::Batch { verb, rest } => self.batch(now, &verb, &rest, out),
            Request::Track { verb, rest } => self.track(now, &verb, &rest, out),
            Request::Unknown(_) => {}
        }
    }

    /// What the engine says, put beside what it was asked.
    fn event(&mut self, now: Timestamp, event: Event, out: &mut Outbox) {
        match event.tag() {
            Some(ASKED) => {}
            // Only HELLO asks without wanting an answer: the worker's name will not do.
            Some(_) => return self.end(Reason::Limit("name_bytes_max"), out),
            None if event == Event::Dismissed => return self.end(Reason::Dismissed, out),
            None => return,
        }
        let answer = if let Event::Refused { why, .. } = event { Err(why) } else { Ok(event) };
        match self.asked.pop_front() {
            Some(Ask::Push { bid }) => Self::pushed(bid.as_deref(), &answer, out),
            Some(Ask::Finish) => Self::finished(&answer, out),
            Some(Ask::Report(jid)) => Self::reported(&jid, &answer, out),
            Some(Ask::Batch { bid, said, parent }) => {
                Self::batched(&parent.unwrap_or(bid), said.as_ref(), &answer, out);
            }
            Some(Ask::Beat(wid)) => Self::beaten(&wid, &answer, out),
            Some(Ask::Step) => self.step(now, answer, out),
            None => {}
        }
    }

    fn step(&mut self, now: Timestamp, answer: Answer, out: &mut Outbox) {
        match self.task.take() {
            Some(Task::Fetch(fetch)) => self.fetched(fetch, &answer, out),
            Some(Task::Bulk(bulk)) => self.bulk_step(now, bulk, &answer, out),
            Some(Task::Info(gathered)) => self.info_step(now, gathered, answer, out),
            Some(Task::Leaving(leaving)) => self.go_on_with_info(leaving, out),
            Some(Task::Queues(queues)) => self.queues_step(queues, answer, out),
            Some(Task::Latency(latency)) => self.latency_step(now, latency, &answer, out),
            Some(Task::Flush) => self.flush_step(&answer, out),
            Some(Task::Mutate(mutating)) => self.mutate_step(mutating, answer, out),
            Some(Task::Look) => Self::looked(&answer, out),
            Some(Task::Track(jid)) => Self::tracked(&jid, &answer, out),
            Some(Task::Batch(bid)) => Self::batch_looked(&bid, &answer, out),
            Some(Task::Ignore(left)) => self.task = (left > 1).then_some(Task::Ignore(left - 1)),
            None => {}
        }
    }

    // ---- shared ----------------------------------------------------------------------------------------------------

    /// Asks the engine, and remembers what for.
    fn ask(&mut self, ask: Ask, command: Command, out: &mut Outbox) {
        self.asked.push_back(ask);
        out.command(ASKED, command);
    }

    /// Asks the engine for something that a task needs.
    fn begin(&mut self, task: Task, command: Command, out: &mut Outbox) {
        self.task = Some(task);
        self.ask(Ask::Step, command, out);
    }

    /// Whether nothing more is to be read until an answer has come.
    const fn must_wait(&self) -> bool {
        self.over || self.task.is_some()
    }

    fn line_bytes_max(&self) -> usize {
        match self.handshake {
            Some(_) => handshake::HELLO_BYTES_MAX,
            None => self.settings.line_bytes_max,
        }
    }

    fn end(&mut self, reason: Reason, out: &mut Outbox) {
        self.over = true;
        self.counted = None;
        out.hang_up(reason);
    }

    /// The peer has closed its side, and everything it sent before has been answered or soon will be.
    fn leave_if_done(&mut self, out: &mut Outbox) {
        if self.eof && !self.unread && !self.must_wait() {
            self.end(Reason::PeerClosed, out);
        }
    }
}

impl Session for FaktorySession {
    fn on_open(&mut self, now: Timestamp, out: &mut Outbox) {
        out.command(Tag::NONE, Command::Open(std::mem::take(&mut self.info)));
        if let Some(handshake) = &mut self.handshake {
            handshake.begin(now, &self.settings, out);
        }
    }

    fn on_bytes(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
        while !self.must_wait() {
            match self.lines.decode(input, self.line_bytes_max()) {
                Ok(Some(line)) => self.line(now, &line, out),
                Ok(None) => break,
                Err(error) => {
                    if self.handshake.is_none() {
                        reply::error(error.to_string(), out.bytes());
                    }
                    self.end(Reason::Protocol(error.to_string()), out);
                }
            }
        }
        // Nothing is read behind an end; a line that was cut short by the peer's own stays so.
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
        if self.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.end(Reason::TimedOut("no HELLO"), out);
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.handshake.as_ref().filter(|_| !self.over)?.deadline()
    }

    /// How long a line is shows when it ends.
    fn needs_bytes(&self) -> usize {
        usize::from(self.lines.is_midway())
    }

    fn messages(&self) -> u64 {
        self.messages
    }

    fn on_eof(&mut self, _now: Timestamp, out: &mut Outbox) {
        self.eof = true;
        // Whoever is gone wants no job.
        if matches!(self.task, Some(Task::Fetch(_))) {
            self.stop_fetching(out);
        }
        // What is left when nothing holds us up is the beginning of a line.
        self.unread &= self.must_wait();
        self.leave_if_done(out);
    }

    /// The answer to whatever a client says next, or waits for now.
    fn on_shutdown(&mut self, _now: Timestamp, out: &mut Outbox) {
        if self.handshake.is_none() {
            reply::error("shutdown in progress", out.bytes());
        }
    }
}
