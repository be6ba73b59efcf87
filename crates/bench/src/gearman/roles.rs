//! Roles: the messages each kind of connection sends and expects. State shared with other connections is in the [`Tally`].
//!
//! Spec: the Gearman protocol, "Client Requests", "Worker Requests".

use std::collections::VecDeque;

use crate::error::Error;
use crate::gearman::shapes::{BODY_BYTES, FUNCTION, Shape};
use crate::gearman::wire::{self, Assignment, Kind, Packet, Template};
use crate::load::driver::{Part, Tally};
use crate::load::stamp::Stamp;

/// The role of one connection.
#[derive(Debug)]
pub enum Role {
    /// Sends ECHO_REQ, waits for the echo.
    Echoer(Echoer),
    /// Submits background jobs, up to a window of them unanswered.
    Producer(Producer),
    /// Submits a foreground job, waits for its result.
    Caller(Caller),
    /// Grabs jobs and finishes them.
    Worker(Worker),
}

impl Role {
    /// The roles of a shape, workers first, so that they are connected when jobs arrive.
    pub fn all(shape: &Shape) -> Vec<Role> {
        let background = Template::submit(Kind::SUBMIT_JOB_BG, FUNCTION, shape.unique, BODY_BYTES);
        let foreground = Template::submit(Kind::SUBMIT_JOB, FUNCTION, shape.unique, BODY_BYTES);
        let workers = (0..shape.workers).map(|_| Role::Worker(Worker::default()));
        let producers = (0..shape.producers).map(|_| Role::Producer(Producer::new(background.clone(), shape.window)));
        let callers = (0..shape.callers).map(|_| Role::Caller(Caller::new(foreground.clone())));
        let echoers = (0..shape.echoers).map(|_| Role::Echoer(Echoer::new(Template::echo(BODY_BYTES))));
        workers.chain(producers).chain(callers).chain(echoers).collect()
    }

    #[inline]
    fn on_packet(&mut self, packet: Packet<'_>, out: &mut Vec<u8>, tally: &mut Tally) -> Result<(), Error> {
        match self {
            Role::Echoer(echoer) => echoer.on_packet(packet, out, tally),
            Role::Producer(producer) => producer.on_packet(packet, out, tally),
            Role::Caller(caller) => caller.on_packet(packet, out, tally),
            Role::Worker(worker) => worker.on_packet(packet, out, tally),
        }
    }
}

impl Part for Role {
    fn on_wake(&mut self, out: &mut Vec<u8>, tally: &mut Tally) {
        match self {
            Role::Echoer(echoer) => echoer.send(out, tally),
            Role::Producer(producer) => producer.top_up(out, tally),
            Role::Caller(caller) => caller.submit(out, tally),
            Role::Worker(worker) => worker.introduce(out),
        }
    }

    #[inline]
    fn on_bytes(&mut self, bytes: &[u8], out: &mut Vec<u8>, tally: &mut Tally) -> Result<usize, Error> {
        let mut rest = bytes;
        while let Some((packet, after)) = wire::split(rest).map_err(|error| Error::Protocol(error.to_string()))? {
            self.on_packet(packet, out, tally)?;
            rest = after;
        }
        Ok(bytes.len() - rest.len())
    }
}

/// See [`Role::Echoer`].
#[derive(Debug)]
pub struct Echoer {
    template: Template,
    waiting: Option<Stamp>,
}

impl Echoer {
    fn new(template: Template) -> Self {
        Self { template, waiting: None }
    }

    fn send(&mut self, out: &mut Vec<u8>, tally: &mut Tally) {
        if self.waiting.is_none() {
            self.waiting = tally.next_stamp();
            self.waiting.into_iter().for_each(|stamp| self.template.put(out, stamp, tally.rng()));
        }
    }

    fn on_packet(&mut self, packet: Packet<'_>, out: &mut Vec<u8>, tally: &mut Tally) -> Result<(), Error> {
        if packet.kind != Kind::ECHO_RES {
            return Err(unexpected("echoer", packet));
        }
        let sent = self.waiting.take().filter(|stamp| Stamp::of(packet.body) == Some(*stamp));
        let sent = sent.ok_or_else(|| Error::Mismatch("an echo of something else".to_owned()))?;
        tally.answered(sent);
        self.send(out, tally);
        Ok(())
    }
}

/// See [`Role::Producer`].
#[derive(Debug)]
pub struct Producer {
    template: Template,
    window: usize,
    /// The unanswered submits, oldest first: answers come in the order of requests.
    unanswered: VecDeque<Stamp>,
}

impl Producer {
    fn new(template: Template, window: usize) -> Self {
        Self { template, window, unanswered: VecDeque::with_capacity(window) }
    }

    /// Fills the window when half of it is free, so that pipelined submits leave in large writes.
    fn top_up(&mut self, out: &mut Vec<u8>, tally: &mut Tally) {
        if self.unanswered.len() > self.window / 2 {
            return;
        }
        while self.unanswered.len() < self.window {
            let Some(stamp) = tally.next_stamp() else {
                return;
            };
            self.template.put(out, stamp, tally.rng());
            self.unanswered.push_back(stamp);
        }
    }

    fn on_packet(&mut self, packet: Packet<'_>, out: &mut Vec<u8>, tally: &mut Tally) -> Result<(), Error> {
        if packet.kind != Kind::JOB_CREATED || packet.body.is_empty() {
            return Err(unexpected("producer", packet));
        }
        let sent = self.unanswered.pop_front();
        tally.acknowledged(sent.ok_or_else(|| Error::Mismatch("JOB_CREATED without a submit".to_owned()))?);
        self.top_up(out, tally);
        Ok(())
    }
}

/// See [`Role::Caller`].
#[derive(Debug)]
pub struct Caller {
    template: Template,
    waiting: Option<Stamp>,
    /// The handle of the pending job; empty until JOB_CREATED has arrived.
    handle: Vec<u8>,
}

impl Caller {
    fn new(template: Template) -> Self {
        Self { template, waiting: None, handle: Vec::new() }
    }

    fn submit(&mut self, out: &mut Vec<u8>, tally: &mut Tally) {
        if self.waiting.is_none() {
            self.handle.clear();
            self.waiting = tally.next_stamp();
            self.waiting.into_iter().for_each(|stamp| self.template.put(out, stamp, tally.rng()));
        }
    }

    fn on_packet(&mut self, packet: Packet<'_>, out: &mut Vec<u8>, tally: &mut Tally) -> Result<(), Error> {
        match (packet.kind, self.waiting) {
            (Kind::JOB_CREATED, Some(stamp)) if self.handle.is_empty() => {
                self.handle.extend_from_slice(packet.body);
                tally.acknowledged(stamp);
                Ok(())
            }
            (Kind::WORK_COMPLETE, Some(stamp)) => {
                let (handle, result) = wire::cut_at_nul(packet.body).ok_or_else(|| unexpected("caller", packet))?;
                if handle != self.handle || result != stamp.number.to_le_bytes() {
                    return Err(Error::Mismatch("a result of another job".to_owned()));
                }
                self.waiting = None;
                tally.answered(stamp);
                self.submit(out, tally);
                Ok(())
            }
            _ => Err(unexpected("caller", packet)),
        }
    }
}

/// See [`Role::Worker`]. Finishes a job and requests the next in one write, as a careful worker does.
#[derive(Debug, Default)]
pub struct Worker {
    introduced: bool,
    asleep: bool,
}

impl Worker {
    fn introduce(&mut self, out: &mut Vec<u8>) {
        if !self.introduced {
            self.introduced = true;
            wire::put(out, Kind::CAN_DO, &[FUNCTION]);
            wire::put_bare(out, Kind::GRAB_JOB);
        }
    }

    fn on_packet(&mut self, packet: Packet<'_>, out: &mut Vec<u8>, tally: &mut Tally) -> Result<(), Error> {
        match packet.kind {
            Kind::JOB_ASSIGN => {
                let (handle, stamp) = assignment(packet)?;
                tally.worked(stamp)?;
                wire::put_complete(out, handle, stamp.number);
                wire::put_bare(out, Kind::GRAB_JOB);
            }
            Kind::NO_JOB => {
                self.asleep = true;
                wire::put_bare(out, Kind::PRE_SLEEP);
            }
            // A NOOP may cross a request that has already woken the worker; then it has no meaning.
            Kind::NOOP if self.asleep => {
                self.asleep = false;
                tally.woken();
                wire::put_bare(out, Kind::GRAB_JOB);
            }
            Kind::NOOP => {}
            _ => return Err(unexpected("worker", packet)),
        }
        Ok(())
    }
}

#[inline]
fn assignment(packet: Packet<'_>) -> Result<(&[u8], Stamp), Error> {
    let found = Assignment::of(packet.body).filter(|found| found.function == FUNCTION && !found.handle.is_empty());
    let job = found.and_then(|found| Some((found.handle, Stamp::of(found.body)?)));
    job.ok_or_else(|| unexpected("worker", packet))
}

#[cold]
fn unexpected(role: &str, packet: Packet<'_>) -> Error {
    let shown = packet.body.get(..packet.body.len().min(100)).unwrap_or_default();
    let name = if packet.kind == Kind::ERROR { "ERROR".to_owned() } else { format!("type {}", packet.kind.0) };
    Error::Protocol(format!("{role} got {name}: {}", shown.escape_ascii()))
}
