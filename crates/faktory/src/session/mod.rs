//! One connection: turns each verb into engine commands and each event into a reply.
//!
//! Reading order: this file dispatches every verb to its module: `handshake`, `push` and `bulk`, `fetch`, `work` (ACK,
//! FAIL, REQUEUE, BEAT), `info`, `queues`, `mutate`, `flush`, `job`, `batch`, `track`. All of them use `refusal`
//! (refusals in Faktory's words).
//!
//! Invariants: replies leave in the order of their commands; the outbox sees to that. While a command that needs
//! several answers of the engine, or waits, has a question open, the session reads nothing more. `ask` lists the
//! questions.
//!
//! Spec: `protocol-specification.md`, all of it.

mod adopt;
mod ask;
mod batch;
mod bulk;
mod counts;
mod fetch;
mod flush;
mod handshake;
mod info;
mod job;
mod mutate;
mod pages;
mod push;
mod queues;
mod refusal;
mod settings;
pub(crate) mod shown;
mod track;
mod work;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use windlass_engine::{
    ClientInfo, Cursor, JobId, JobRef, Notice, Protocol, Refusal, Reply, TakeCommand, Timestamp,
};
use windlass_session::{Conversation, Read, Reason, Speaker};

pub use adopt::Standing;
pub use counts::Shared;
pub use pages::pages;
pub use settings::{FAKTORY_VERSION, Settings};

use crate::wire::{Lines, Request, echo, number_of, reply};
use ask::Ask;
use counts::Counted;
use handshake::Handshake;

/// One connection's output.
type Talk<'a> = windlass_session::Talk<'a, Ask>;

/// One Faktory connection.
pub type FaktorySession = Conversation<FaktorySpeaker>;

/// The protocol's side of a connection, which may produce, work and administer at the same time.
#[derive(Debug)]
pub struct FaktorySpeaker {
    settings: Arc<Settings>,
    lines: Lines,
    /// Present until HELLO.
    handshake: Option<Handshake>,
    /// Present from HELLO to the end.
    counted: Option<Counted>,
    /// The worker's name, empty for a producer.
    wid: Bytes,
    /// For salts and for names of batches, with the number of batches made so far.
    rng: [u64; 2],
    batches: u64,
    /// The command that asks several questions at once.
    task: Option<Task>,
}

/// A command that asks several questions at once.
#[derive(Debug)]
enum Task {
    /// PUSHB.
    Bulk(Box<bulk::Bulk>),
    /// QUEUE PAUSE or RESUME, with the number of replies that are due. It ends with the last one or with the first
    /// refusal, and ignores the others.
    Pause(Box<ask::Queues>, usize),
    /// QUEUE LATENCY.
    Latency(Box<queues::Latency>),
}

impl FaktorySpeaker {
    /// The session of a connection that was just accepted. `rng` are random numbers for salts and names; they must be
    /// unpredictable.
    pub fn session(settings: Arc<Settings>, info: ClientInfo, rng: [u64; 2]) -> FaktorySession {
        let speaker = Self {
            handshake: Some(Handshake::new(&settings, info.namespace.clone(), rng)),
            settings,
            lines: Lines::default(),
            counted: None,
            wid: Bytes::new(),
            rng,
            batches: 0,
            task: None,
        };
        Conversation::new(speaker, info)
    }

    /// Dispatches a command, in the order of the specification.
    fn request(&mut self, request: Request, talk: &mut Talk<'_>) {
        if let Request::Unknown(verb) = &request {
            return reply::error([b"unknown command ", echo(verb)].concat(), talk.bytes());
        }
        if let Some(counted) = &self.counted {
            counted.count_command();
        }
        match request {
            // "Client Commands"
            Request::Info => Self::info(talk),
            Request::End => {
                reply::ok(talk.bytes());
                talk.end(Reason::Ended);
            }
            // "Producer Commands"
            Request::Push(unit) => self.push(&unit, talk),
            Request::PushBulk(units) => self.push_bulk(units, talk),
            // "Consumer Commands"
            Request::Fetch(queues) => self.fetch(queues, talk),
            Request::Ack(text) => Self::ack(&text, talk),
            Request::Fail(text) => Self::fail(&text, talk),
            Request::Requeue(text) => Self::requeue(&text, talk),
            Request::Beat(text) => Self::beat(&text, talk),
            // not in the specification
            Request::Queue(request) => self.queue(request, talk),
            Request::Mutate(text) => Self::mutate(text.as_ref(), talk),
            Request::Job { verb, jid } => Self::job(&verb, &jid, talk),
            Request::TooManyWords => reply::error("too many arguments", talk.bytes()),
            Request::Incomplete => reply::error("internal error", talk.bytes()),
            Request::Flush => Self::flush(Cursor::default(), talk),
            Request::Batch { verb, rest } => self.batch(&verb, &rest, talk),
            Request::Track { verb, rest } => self.track(&verb, &rest, talk),
            Request::Unknown(_) => {}
        }
    }

    fn line_bytes_max(&self) -> usize {
        match self.handshake {
            Some(_) => handshake::HELLO_BYTES_MAX,
            None => self.settings.section.line_bytes_max.bytes(),
        }
    }
}

impl Speaker for FaktorySpeaker {
    const PROTOCOL: Protocol = Protocol::FAKTORY;

    type Question = Ask;

    fn awaits_login(&self) -> bool {
        let handshake = self.handshake.as_ref();
        handshake.is_some_and(|it| it.tells_namespace(&self.settings))
    }

    fn turned_away(&mut self, why: Refusal, talk: &mut Talk<'_>) {
        reply::error(why.to_string(), talk.bytes());
    }

    fn open(&mut self, talk: &mut Talk<'_>) {
        if let Some(handshake) = &mut self.handshake {
            handshake.begin(&self.settings, talk);
        }
    }

    fn read(&mut self, input: &mut BytesMut, talk: &mut Talk<'_>) -> Result<Read, Reason> {
        match self.lines.decode(input, self.line_bytes_max()) {
            Ok(Some(line)) => match self.handshake.take() {
                Some(handshake) => self.greeted(&handshake, &line, talk),
                None => self.request(Request::parse(&line), talk),
            },
            // A line's length is unknown until it ends.
            Ok(None) => return Ok(Read::Needs(usize::from(self.lines.is_midway()))),
            Err(error) => {
                if self.handshake.is_none() {
                    reply::error(error.to_string(), talk.bytes());
                }
                return Err(Reason::Protocol(error.to_string()));
            }
        }
        Ok(Read::Message)
    }

    fn reply(&mut self, ask: Ask, reply: Reply, talk: &mut Talk<'_>) {
        if let Reply::Refused(why) = reply {
            return self.refuse(ask, why, talk);
        }
        match ask {
            Ask::Push { .. } | Ask::Finish | Ask::Report(_) => reply::ok(talk.bytes()),
            Ask::Batch { said, .. } => match said {
                Some(said) => reply::bulk(&said, talk.bytes()),
                None => reply::ok(talk.bytes()),
            },
            Ask::Beat(_) => Self::beaten(&reply, talk),
            Ask::Listed { jid, .. } => self.listed(jid, None, talk),
            Ask::Age(queue) => self.age(queue, &reply, talk),
            Ask::Fetch(fetch) => self.fetched(fetch, &reply, talk),
            Ask::Info(gathered) => self.info_step(gathered, reply, talk),
            Ask::Leaving(leaving) => Self::go_on_with_info(leaving, talk),
            Ask::Queues(queues) => self.queues_listed(queues, reply, talk),
            Ask::Pause => self.paused(talk),
            Ask::Remove(queues, queue) => self.queue_removed(queues, queue, &reply, talk),
            Ask::Flush => Self::flush_step(&reply, talk),
            Ask::Mutate(mutating) => Self::mutate_step(mutating, &reply, talk),
            Ask::Look => self.looked(&reply, talk),
            Ask::Track(jid) => Self::tracked(&jid, &reply, talk),
            Ask::BatchStatus(_) => Self::batch_looked(&reply, talk),
        }
    }

    /// Only HELLO sends commands that may be refused and have no reply. The engine has refused the worker's name. A
    /// worker that may not work learns that from FETCH.
    fn refused(&mut self, _code: u64, why: Refusal, talk: &mut Talk<'_>) {
        if why != Refusal::NotPermitted {
            talk.end(Reason::Limit("name_bytes_max"));
        }
    }

    /// Faktory has no listeners.
    fn notice(&mut self, _notice: Notice, _talk: &mut Talk<'_>) {}

    fn tick(&mut self, talk: &mut Talk<'_>) {
        if self
            .next_deadline()
            .is_some_and(|deadline| deadline <= talk.now())
        {
            talk.end(Reason::TimedOut("no HELLO"));
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.handshake.as_ref()?.deadline()
    }

    /// A client that has closed its side gets no job.
    fn on_eof(&mut self, talk: &mut Talk<'_>) {
        withdraw_fetch(talk);
    }

    fn ended(&mut self) {
        self.counted = None;
    }

    /// Answers the client's next command. A FETCH that waits gets no job: some stock workers read an error
    /// there as a broken job.
    fn shutdown(&mut self, talk: &mut Talk<'_>) {
        if !withdraw_fetch(talk) && self.handshake.is_none() {
            reply::error("shutdown in progress", talk.bytes());
        }
    }
}

/// Answers a FETCH that waits with no job, and returns whether there was one.
fn withdraw_fetch(talk: &mut Talk<'_>) -> bool {
    let waits = talk.withdraw_last_if(|ask| matches!(ask, Ask::Fetch(_)));
    if waits {
        talk.send(TakeCommand::Unwait);
        reply::null(talk.bytes());
    }
    waits
}

/// A peer's bytes as text. As on deployed servers, invalid UTF-8 becomes U+FFFD.
fn readable(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The job with this name.
fn job_ref(jid: &str) -> JobRef {
    let named = || JobRef::Name(Bytes::copy_from_slice(jid.as_bytes()));
    number_of(jid).map_or_else(named, |number| JobRef::Id(JobId(number)))
}
