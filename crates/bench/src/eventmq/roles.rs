//! Roles: the messages each kind of connection sends and expects. A worker answers every job, a client sends requests. Their
//! common state is in the [`Tally`].
//!
//! Spec: EventMQ's `protocol.rst`, "eMQP / Client" and "eMQP / Worker"; ZMTP in the role of a DEALER.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use windlass_engine::Timestamp;
use windlass_zmtp::{Event, Message, Peer, Settings};

use crate::error::Error;
use crate::eventmq::wire::{self, Id, QUEUE, Said};
use crate::load::driver::{Part, Tally};
use crate::load::stamp::Stamp;

/// Jobs that a worker can have at once.
pub const CREDITS: usize = 64;

/// The event that allows a client to send the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// The server has acknowledged an earlier request. The limit on undelivered requests applies as well.
    Accepted,
    /// A worker has received an earlier request. Only that limit applies; for a server that does not acknowledge every request.
    Delivered,
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    role: Role,
    peer: Peer,
    greeted: bool,
    /// Received bytes of an incomplete message.
    input: BytesMut,
    /// Bytes for the next write.
    output: BytesMut,
}

#[derive(Debug)]
enum Role {
    Worker(Worker),
    Requester(Requester),
}

impl Client {
    /// A worker with [`CREDITS`].
    pub fn worker(settings: &Arc<Settings>) -> Self {
        Self::new(settings, Role::Worker(Worker { informed: None, ready: false }))
    }

    /// Keeps up to `in_flight` requests unacknowledged, if that is its pace.
    pub fn requester(settings: &Arc<Settings>, in_flight: usize, pace: Pace) -> Self {
        Self::new(settings, Role::Requester(Requester { in_flight, pace, waiting: VecDeque::with_capacity(in_flight) }))
    }

    fn new(settings: &Arc<Settings>, role: Role) -> Self {
        let peer = Peer::new(Arc::clone(settings));
        Self { role, peer, greeted: false, input: BytesMut::new(), output: BytesMut::new() }
    }
}

impl Part for Client {
    fn on_wake(&mut self, out: &mut Vec<u8>, tally: &mut Tally) {
        if !self.greeted {
            self.greeted = true;
            let identity = Bytes::copy_from_slice(&tally.rng().unique());
            self.peer.open_as(identity, now(tally), &mut self.output);
        } else if let (Role::Requester(requester), true) = (&mut self.role, self.peer.is_ready()) {
            requester.top_up(&mut Line { peer: &self.peer, output: &mut self.output }, tally);
        }
        drain(&mut self.output, out);
    }

    #[inline]
    fn on_bytes(&mut self, bytes: &[u8], out: &mut Vec<u8>, tally: &mut Tally) -> Result<usize, Error> {
        self.input.extend_from_slice(bytes);
        let now = now(tally);
        loop {
            let event = self.peer.read(now, &mut self.input, &mut self.output);
            let mut line = Line { peer: &self.peer, output: &mut self.output };
            match event {
                Ok(Some(Event::Message(message))) => self.role.on_message(&message, &mut line, tally)?,
                Ok(Some(Event::Ready(_))) => self.role.begin(&mut line, tally),
                // Only publishers receive subscriptions.
                Ok(Some(Event::Subscribe(_) | Event::Cancel(_))) => {}
                Ok(None) => break,
                Err(close) => return Err(Error::Protocol(format!("ZMTP: {close}"))),
            }
        }
        drain(&mut self.output, out);
        Ok(bytes.len())
    }
}

impl Role {
    fn begin(&mut self, line: &mut Line<'_>, tally: &mut Tally) {
        match self {
            Role::Worker(worker) => worker.inform(line, tally),
            Role::Requester(requester) => requester.top_up(line, tally),
        }
    }

    #[inline]
    fn on_message(&mut self, message: &Message, line: &mut Line<'_>, tally: &mut Tally) -> Result<(), Error> {
        match self {
            Role::Worker(worker) => worker.on_message(message, line, tally),
            Role::Requester(requester) => requester.on_message(message, line, tally),
        }
    }
}

/// The output of a role.
struct Line<'a> {
    peer: &'a Peer,
    output: &'a mut BytesMut,
}

impl Line<'_> {
    /// Fails only before the handshake, or with 128 MiB queued; then no answer comes and the run stalls.
    #[inline]
    fn send<const N: usize>(&mut self, parts: [&[u8]; N]) {
        let unsent = self.peer.send(parts, self.output);
        debug_assert_eq!(unsent, Ok(()));
    }
}

#[derive(Debug)]
struct Worker {
    /// The identifier of its `INFORM`.
    informed: Option<Id>,
    ready: bool,
}

impl Worker {
    fn inform(&mut self, line: &mut Line<'_>, tally: &mut Tally) {
        let id = tally.rng().unique();
        line.send(wire::inform(&id));
        self.informed = Some(id);
    }

    #[inline]
    fn on_message(&mut self, message: &Message, line: &mut Line<'_>, tally: &mut Tally) -> Result<(), Error> {
        match Said::read(message)? {
            Said::Request { id, queue, job } if self.ready => {
                let stamp = wire::stamp_of(job).filter(|stamp| wire::number_of(id) == Some(stamp.number));
                let stamp = stamp.filter(|_| queue == QUEUE);
                tally.worked(stamp.ok_or_else(|| Error::Mismatch("a job without a request".to_owned()))?)?;
                line.send(wire::reply(&next_id(tally), id));
                line.send(wire::ready(&next_id(tally)));
            }
            Said::Ack { of } if self.informed.is_some_and(|id| id == of) && !self.ready => {
                self.ready = true;
                (0..CREDITS).for_each(|_| line.send(wire::ready(&next_id(tally))));
            }
            // The server expects no answer, but regular heartbeats.
            Said::Heartbeat { time } => line.send(wire::heartbeat(&next_id(tally), time)),
            said @ (Said::Request { .. } | Said::Ack { .. } | Said::Reply { .. }) => {
                return Err(Error::Protocol(format!("a worker received {said:?}")));
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Requester {
    in_flight: usize,
    pace: Pace,
    /// Unacknowledged requests, oldest first, if the pace waits for acknowledgements.
    waiting: VecDeque<Stamp>,
}

impl Requester {
    /// Fills the window when half of it is free, so that requests leave in large writes. At the other pace there is no window:
    /// whichever client is served first fills the limit that all clients share.
    fn top_up(&mut self, line: &mut Line<'_>, tally: &mut Tally) {
        if self.waiting.len() > self.in_flight / 2 {
            return;
        }
        for _ in self.waiting.len()..self.in_flight {
            let Some(stamp) = tally.next_stamp() else {
                return;
            };
            let (id, job) = (wire::id_of(tally.rng(), stamp.number), wire::job_of(stamp));
            line.send(wire::request(&id, &job));
            if self.pace == Pace::Accepted {
                self.waiting.push_back(stamp);
            }
        }
    }

    #[inline]
    fn on_message(&mut self, message: &Message, line: &mut Line<'_>, tally: &mut Tally) -> Result<(), Error> {
        match (Said::read(message)?, self.pace) {
            (Said::Reply { text }, Pace::Accepted) => {
                let of = |number| self.waiting.iter().position(|stamp| stamp.number == number);
                let sent = wire::number_of(text).and_then(of).and_then(|at| self.waiting.remove(at));
                tally.acknowledged(sent.ok_or_else(|| {
                    Error::Mismatch(format!("a reply to no request, or a second one: {}", text.escape_ascii()))
                })?);
                self.top_up(line, tally);
                Ok(())
            }
            (Said::Reply { .. }, Pace::Delivered) => Ok(()),
            (said @ (Said::Ack { .. } | Said::Heartbeat { .. } | Said::Request { .. }), _) => {
                Err(Error::Protocol(format!("a client received {said:?}")))
            }
        }
    }
}

/// An identifier that is never checked.
#[inline]
fn next_id(tally: &mut Tally) -> Id {
    let number = tally.rng().roll();
    wire::id_of(tally.rng(), number)
}

fn drain(from: &mut BytesMut, out: &mut Vec<u8>) {
    out.extend_from_slice(from);
    from.clear();
}

fn now(tally: &Tally) -> Timestamp {
    Timestamp(tally.now_nanos() / 1_000_000)
}
