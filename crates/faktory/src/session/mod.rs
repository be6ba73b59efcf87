//! One connection: turns each verb into engine commands and each event into a reply.
//!
//! Reading order: this file dispatches every verb to its module: `handshake`, `push` and `bulk`, `fetch`, `work` (ACK, FAIL,
//! REQUEUE, BEAT), `info`, `queues`, `mutate`, `flush`, `job`, `batch`, `track`. All of them use `refusal` (refusals in
//! Faktory's words).
//!
//! Invariants: replies leave in the order of their commands; the outbox sees to that. A command that needs several answers of
//! the engine, or waits, is a `Task`; the session reads nothing more until the task is done.
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
use windlass_engine::{
    ClientCommand, ClientInfo, Command, Cursor, Event, Notice, Protocol, Refusal, Reply, Tag, Timestamp,
};
use windlass_session::{Outbox, Reason, Session};

pub use adopt::{Standing, Unfit};
pub use settings::{FAKTORY_VERSION, Settings, Shared};

use crate::wire::{Lines, Request, echo, reply};
use handshake::Handshake;
use settings::Counted;

/// The tag of all commands with a reply: the engine answers in the order of the commands.
const ASKED: Tag = Tag(1);

/// One Faktory connection. It may produce, work and administer at the same time.
#[derive(Debug)]
pub struct FaktorySession {
    settings: Arc<Settings>,
    /// Used when the connection opens.
    info: ClientInfo,
    lines: Lines,
    /// Lines received.
    messages: u64,
    /// Present until HELLO.
    handshake: Option<Handshake>,
    /// Present from HELLO on.
    counted: Option<Counted>,
    /// The worker's name, empty for a producer.
    wid: Bytes,
    /// For salts and for names of batches, with the number of batches made so far.
    rng: [u64; 2],
    batches: u64,
    /// Commands that the engine has not answered yet.
    asked: VecDeque<Ask>,
    /// The command that needs several answers. The session reads nothing until it is done.
    task: Option<Task>,
    /// The buffer has unread bytes.
    unread: bool,
    /// The peer has closed its side.
    eof: bool,
    /// The connection is ending: the session ignores further input.
    over: bool,
}

/// The engine's answer to a command.
type Answer = Result<Reply, Refusal>;

/// What a command to the engine was for.
#[derive(Debug)]
enum Ask {
    /// Push a job.
    Push {
        /// The batch that the job joins.
        bid: Option<Bytes>,
    },
    /// Finish a job.
    Finish,
    /// Fail, release or cancel this job.
    Report(Bytes),
    /// Create, open or commit a batch.
    Batch {
        /// Its name.
        bid: Bytes,
        /// The reply on success; OK if absent.
        said: Option<Bytes>,
        /// Its parent batch.
        parent: Option<Bytes>,
    },
    /// Beat for this worker.
    Beat(Bytes),
    /// A step of the current task.
    Step,
}

/// A command that needs several answers, or a long time.
#[derive(Debug)]
enum Task {
    /// FETCH waits for a job.
    Fetch(fetch::Fetch),
    /// PUSHB.
    Bulk(Box<bulk::Bulk>),
    /// INFO reads counters.
    Info(Box<info::Gathered>),
    /// INFO sends them.
    Leaving(info::Leaving),
    /// QUEUE PAUSE, RESUME or REMOVE.
    Queues(Box<queues::Queues>),
    /// QUEUE LATENCY.
    Latency(Box<queues::Latency>),
    /// FLUSH.
    Flush,
    /// MUTATE.
    Mutate(Box<mutate::Mutating>),
    /// JOB GET.
    Look,
    /// TRACK GET of this job.
    Track(Bytes),
    /// BATCH STATUS of this batch.
    Batch(Bytes),
    /// Ignores this many answers.
    Ignore(usize),
}

impl FaktorySession {
    /// A session for a connection that was just accepted. `rng` are random numbers for salts and names; they must be
    /// unpredictable.
    #[must_use]
    pub fn new(settings: Arc<Settings>, info: ClientInfo, rng: [u64; 2]) -> Self {
        let handshake = Some(Handshake::new(&settings, rng));
        Self {
            settings,
            info: ClientInfo { protocol: Some(Protocol::FAKTORY), ..info },
            lines: Lines::default(),
            messages: 0,
            handshake,
            counted: None,
            wid: Bytes::new(),
            rng,
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

    /// Dispatches a command, in the order of the specification.
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

    /// Matches an event of the engine with the command it answers.
    fn event(&mut self, now: Timestamp, event: Event, out: &mut Outbox) {
        let reply = match event {
            Event::Reply(ASKED, reply) => reply,
            // Only HELLO sends commands without a reply. The engine has refused the worker's name.
            Event::Reply(..) => return self.end(Reason::Limit("name_bytes_max"), out),
            Event::Notice(Notice::Dismissed) => return self.end(Reason::Dismissed, out),
            Event::Notice(_) => return,
        };
        let answer = if let Reply::Refused(why) = reply { Err(why) } else { Ok(reply) };
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
            Some(Task::Look) => self.looked(&answer, out),
            Some(Task::Track(jid)) => Self::tracked(&jid, &answer, out),
            Some(Task::Batch(bid)) => Self::batch_looked(&bid, &answer, out),
            Some(Task::Ignore(left)) => self.task = (left > 1).then_some(Task::Ignore(left - 1)),
            None => {}
        }
    }

    // ---- shared ----------------------------------------------------------------------------------------------------

    /// Sends a command, and records what it is for.
    fn ask(&mut self, ask: Ask, command: impl Into<Command>, out: &mut Outbox) {
        self.asked.push_back(ask);
        out.command(ASKED, command);
    }

    /// Sends a task's command.
    fn begin(&mut self, task: Task, command: impl Into<Command>, out: &mut Outbox) {
        self.task = Some(task);
        self.ask(Ask::Step, command, out);
    }

    /// Whether the session must wait for an answer before it reads more.
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

    /// Ends the connection when the peer has closed its side and all its commands have been answered.
    fn leave_if_done(&mut self, out: &mut Outbox) {
        if self.eof && !self.unread && !self.must_wait() {
            self.end(Reason::PeerClosed, out);
        }
    }
}

impl Session for FaktorySession {
    fn on_open(&mut self, now: Timestamp, out: &mut Outbox) {
        out.command(Tag::NONE, ClientCommand::Open(std::mem::take(&mut self.info)));
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
        // Nothing is read after the end. A line that the peer cut short by closing stays unread.
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

    /// A line's length is unknown until it ends.
    fn needs_bytes(&self) -> usize {
        usize::from(self.lines.is_midway())
    }

    fn messages(&self) -> u64 {
        self.messages
    }

    fn on_eof(&mut self, _now: Timestamp, out: &mut Outbox) {
        self.eof = true;
        // A client that has closed its side gets no job.
        if matches!(self.task, Some(Task::Fetch(_))) {
            self.stop_fetching(out);
        }
        // Unless a command holds up reading, the rest is an incomplete line.
        self.unread &= self.must_wait();
        self.leave_if_done(out);
    }

    /// Answers the client's pending or next command.
    fn on_shutdown(&mut self, _now: Timestamp, out: &mut Outbox) {
        if self.handshake.is_none() {
            reply::error("shutdown in progress", out.bytes());
        }
    }
}
