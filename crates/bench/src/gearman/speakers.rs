//! The messages each kind of connection sends and expects.
//!
//! Spec: the Gearman protocol, "Client Requests", "Worker Requests".

use crate::cases::{Request, Shape};
use crate::driver::Speaker;
use crate::error::Error;
use crate::gearman::wire::{self, FUNCTION, Kind, Packet};
use crate::stamp::Stamp;
use crate::tally::{Tally, Window};

/// The speakers of a shape, workers first.
pub(super) fn of(shape: &Shape) -> Vec<Box<dyn Speaker>> {
    let worker = |_| Box::new(Gearman(Worker::default())) as Box<dyn Speaker>;
    let client = |_| -> Box<dyn Speaker> {
        let (request, unique, handle) = (shape.request, shape.unique, Vec::new());
        Box::new(Gearman(Requester { request, unique, window: Window::by_halves(shape.window), handle }))
    };
    (0..shape.workers).map(worker).chain((0..shape.clients).map(client)).collect()
}

/// A role, with the packets cut out of the stream.
struct Gearman<R>(R);

trait Role {
    fn begin(&mut self, out: &mut Vec<u8>, tally: &mut Tally);
    fn on_packet(&mut self, packet: Packet<'_>, out: &mut Vec<u8>, tally: &mut Tally) -> Result<(), Error>;
}

impl<R: Role> Speaker for Gearman<R> {
    fn on_wake(&mut self, out: &mut Vec<u8>, tally: &mut Tally) {
        self.0.begin(out, tally);
    }

    #[inline]
    fn on_bytes(&mut self, bytes: &[u8], out: &mut Vec<u8>, tally: &mut Tally) -> Result<usize, Error> {
        let mut rest = bytes;
        while let Some((packet, after)) = wire::split(rest)? {
            self.0.on_packet(packet, out, tally)?;
            rest = after;
        }
        Ok(bytes.len() - rest.len())
    }
}

/// Sends echoes, background jobs or foreground jobs, up to a window of them unanswered. Answers come in the order of requests.
struct Requester {
    request: Request,
    unique: bool,
    window: Window,
    /// The handle of a pending foreground job; empty until JOB_CREATED has arrived.
    handle: Vec<u8>,
}

impl Role for Requester {
    fn begin(&mut self, out: &mut Vec<u8>, tally: &mut Tally) {
        let kind = if self.request == Request::Call { Kind::SUBMIT_JOB } else { Kind::SUBMIT_JOB_BG };
        self.window.refill(tally, |stamp, rng| match (self.request, self.unique) {
            (Request::Echo, _) => wire::put_echo(out, stamp),
            (_, true) => wire::put_submit(out, kind, &rng.unique(), stamp),
            (_, false) => wire::put_submit(out, kind, b"", stamp),
        });
    }

    fn on_packet(&mut self, packet: Packet<'_>, out: &mut Vec<u8>, tally: &mut Tally) -> Result<(), Error> {
        match (self.request, packet.kind) {
            (Request::Echo, Kind::ECHO_RES) => {
                let sent = self.window.take_oldest().filter(|sent| Stamp::of(packet.body) == Some(*sent));
                tally.answered(sent.ok_or_else(|| mismatch("an echo of something else"))?);
            }
            (Request::Submit, Kind::JOB_CREATED) if !packet.body.is_empty() => {
                let sent = self.window.take_oldest();
                tally.acknowledged(sent.ok_or_else(|| mismatch("JOB_CREATED without a submit"))?);
            }
            (Request::Call, Kind::JOB_CREATED) if self.handle.is_empty() => {
                self.handle.extend_from_slice(packet.body);
                let sent = self.window.oldest();
                tally.acknowledged(sent.ok_or_else(|| unexpected("caller", packet))?);
                return Ok(());
            }
            (Request::Call, Kind::WORK_COMPLETE) => {
                let of_this = |sent: &Stamp| {
                    wire::cut_at_nul(packet.body) == Some((&*self.handle, &sent.number.to_le_bytes()[..]))
                };
                let sent = self.window.take_oldest().filter(of_this);
                tally.answered(sent.ok_or_else(|| mismatch("a result of another job"))?);
                self.handle.clear();
            }
            (Request::Echo, _) => return Err(unexpected("echoer", packet)),
            (Request::Call, _) => return Err(unexpected("caller", packet)),
            _ => return Err(unexpected("producer", packet)),
        }
        self.begin(out, tally);
        Ok(())
    }
}

/// Finishes a job and requests the next in one write, as a careful worker does. Sleeps (PRE_SLEEP) when there is none.
#[derive(Default)]
struct Worker {
    introduced: bool,
    asleep: bool,
}

impl Role for Worker {
    fn begin(&mut self, out: &mut Vec<u8>, _: &mut Tally) {
        if !self.introduced {
            self.introduced = true;
            wire::put(out, Kind::CAN_DO, [FUNCTION]);
            wire::put(out, Kind::GRAB_JOB, []);
        }
    }

    fn on_packet(&mut self, packet: Packet<'_>, out: &mut Vec<u8>, tally: &mut Tally) -> Result<(), Error> {
        match packet.kind {
            Kind::JOB_ASSIGN => {
                let (handle, stamp) = wire::assignment(packet.body).ok_or_else(|| unexpected("worker", packet))?;
                tally.worked(stamp)?;
                wire::put_complete(out, handle, stamp.number);
                wire::put(out, Kind::GRAB_JOB, []);
            }
            Kind::NO_JOB => {
                self.asleep = true;
                wire::put(out, Kind::PRE_SLEEP, []);
            }
            // A NOOP may cross a request that has already woken the worker; then it has no meaning.
            Kind::NOOP if self.asleep => {
                self.asleep = false;
                tally.wakes += 1;
                wire::put(out, Kind::GRAB_JOB, []);
            }
            Kind::NOOP => {}
            _ => return Err(unexpected("worker", packet)),
        }
        Ok(())
    }
}

#[cold]
fn mismatch(what: &str) -> Error {
    Error::Mismatch(what.to_owned())
}

#[cold]
fn unexpected(role: &str, packet: Packet<'_>) -> Error {
    let shown = packet.body.get(..packet.body.len().min(100)).unwrap_or_default();
    let name = if packet.kind == Kind::ERROR { "ERROR".to_owned() } else { format!("type {}", packet.kind.0) };
    Error::Protocol(format!("{role} got {name}: {}", shown.escape_ascii()))
}
