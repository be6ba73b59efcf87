//! The messages each kind of connection sends and expects: a worker answers every job, a client sends requests.
//!
//! Spec: EventMQ's `protocol.rst`, "eMQP / Client" and "eMQP / Worker".

use bytes::Bytes;
use windlass_zmtp::Message;

use crate::cases::Shape;
use crate::driver::Speaker;
use crate::error::Error;
use crate::eventmq::wire::{self, Id, Incoming, QUEUE};
use crate::stamp::{low_of, uuid};
use crate::tally::{Tally, Window};
use crate::zmtp::{Dealer, Line, Talk};

/// Jobs that a worker can have at once.
pub(super) const CREDITS: usize = 64;

/// The speakers of a shape, workers first.
pub(super) fn of(shape: &Shape, is_acknowledged: bool) -> Vec<Box<dyn Speaker>> {
    let workers = (0..shape.workers).map(|_| Dealer::boxed(Worker { informed: None, ready: false }));
    let requester = |_| Dealer::boxed(Requester { window: Window::by_halves(shape.window), is_acknowledged });
    workers.chain((0..shape.clients).map(requester)).collect()
}

struct Worker {
    /// The identifier of its `INFORM`.
    informed: Option<Id>,
    ready: bool,
}

impl Talk for Worker {
    fn identity(&self, tally: &mut Tally) -> Bytes {
        Bytes::copy_from_slice(&tally.rng.unique())
    }

    fn begin(&mut self, line: &mut Line<'_>, tally: &mut Tally) {
        if self.informed.is_none() {
            line.send(wire::inform(self.informed.insert(tally.rng.unique())));
        }
    }

    #[inline]
    fn on_message(&mut self, message: &Message, line: &mut Line<'_>, tally: &mut Tally) -> Result<(), Error> {
        match Incoming::read(message)? {
            Incoming::Request { id, queue, job } if self.ready => {
                let stamp = wire::stamp_of(job).filter(|stamp| low_of(id) == Some(stamp.number) && queue == QUEUE);
                tally.worked(stamp.ok_or_else(|| Error::Mismatch("a job without a request".to_owned()))?)?;
                line.send(wire::reply(&tally.rng.unique(), id));
                line.send(wire::ready(&tally.rng.unique()));
            }
            Incoming::Ack { of } if self.informed.is_some_and(|id| id == of) && !self.ready => {
                self.ready = true;
                (0..CREDITS).for_each(|_| line.send(wire::ready(&tally.rng.unique())));
            }
            // The server expects no answer, but regular heartbeats.
            Incoming::Heartbeat { time } => line.send(wire::heartbeat(&tally.rng.unique(), time)),
            other @ (Incoming::Request { .. } | Incoming::Ack { .. } | Incoming::Reply { .. }) => {
                return Err(Error::Protocol(format!("a worker received {other:?}")));
            }
        }
        Ok(())
    }
}

struct Requester {
    window: Window,
    /// The server acknowledges every request.
    is_acknowledged: bool,
}

impl Talk for Requester {
    fn identity(&self, tally: &mut Tally) -> Bytes {
        Bytes::copy_from_slice(&tally.rng.unique())
    }

    /// Without acknowledgements the window has no effect: whichever client is served first fills the limit that all clients share.
    fn begin(&mut self, line: &mut Line<'_>, tally: &mut Tally) {
        self.window.refill(tally, |stamp, rng| {
            line.send(wire::request(&uuid(rng.next(), stamp.number), &wire::job_of(stamp)));
        });
        while !self.is_acknowledged && self.window.take_oldest().is_some() {}
    }

    #[inline]
    fn on_message(&mut self, message: &Message, line: &mut Line<'_>, tally: &mut Tally) -> Result<(), Error> {
        match Incoming::read(message)? {
            Incoming::Reply { .. } if !self.is_acknowledged => Ok(()),
            Incoming::Reply { text } => {
                tally.acknowledged(self.window.take(low_of(text), text)?);
                self.begin(line, tally);
                Ok(())
            }
            other @ (Incoming::Ack { .. } | Incoming::Heartbeat { .. } | Incoming::Request { .. }) => {
                Err(Error::Protocol(format!("a client received {other:?}")))
            }
        }
    }
}
