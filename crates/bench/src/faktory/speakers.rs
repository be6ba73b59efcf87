//! The messages each kind of connection sends and expects. One command at a time, as stock clients do.
//!
//! Spec: Faktory Work Protocol, "Producer Commands", "Consumer Commands".

use crate::cases::{Request, Shape};
use crate::driver::Speaker;
use crate::error::Error;
use crate::faktory::wire::{self, FETCH, GREETING, Reply};
use crate::stamp::Stamp;
use crate::tally::{Tally, Window};

/// Every load with workers has jobs for them. More empty FETCHes than this in a row, of 2 s each, mean that a job or a wake-up
/// was lost.
const EMPTY_MAX: u32 = 10;
/// The server closes a worker's connection after a minute without a heartbeat; stock clients send one every 15 s.
const BEAT_NANOS: u64 = 15_000_000_000;

/// The speakers of a shape, workers first.
pub(super) fn of(shape: &Shape) -> Vec<Box<dyn Speaker>> {
    let worker = |wid| {
        let (pulse, eager) = (Pulse::new(wid), shape.eager);
        boxed(Worker { pulse, eager, begun: false, acked: None, fetched_nanos: 0, empty: 0 }, Some(wid))
    };
    let client = |wid| {
        if shape.request == Request::Echo {
            return boxed(Idler { pulse: Pulse::new(wid), waiting: None }, Some(wid));
        }
        boxed(Producer { batched: shape.window > 1, window: Window::new(shape.window, 0) }, None)
    };
    (0..shape.workers).map(worker).chain((0..shape.clients).map(client)).collect()
}

fn boxed(role: impl Role + 'static, wid: Option<usize>) -> Box<dyn Speaker> {
    Box::new(Faktory { role, wid, stage: Stage::Greeting })
}

trait Role {
    fn begin(&mut self, out: &mut Vec<u8>, tally: &mut Tally);
    fn on_reply(&mut self, reply: Reply<'_>, out: &mut Vec<u8>, tally: &mut Tally) -> Result<(), Error>;
}

/// A role, with the handshake before it.
struct Faktory<R> {
    role: R,
    wid: Option<usize>,
    stage: Stage,
}

/// What the next reply answers.
enum Stage {
    Greeting,
    Hello,
    Command,
}

impl<R: Role> Speaker for Faktory<R> {
    fn on_wake(&mut self, out: &mut Vec<u8>, tally: &mut Tally) {
        if let Stage::Command = self.stage {
            self.role.begin(out, tally);
        }
    }

    #[inline]
    fn on_bytes(&mut self, bytes: &[u8], out: &mut Vec<u8>, tally: &mut Tally) -> Result<usize, Error> {
        let mut rest = bytes;
        while let Some((reply, after)) = wire::split(rest)? {
            match (&self.stage, reply) {
                (Stage::Command, _) => self.role.on_reply(reply, out, tally)?,
                (Stage::Greeting, GREETING) => {
                    wire::put_hello(out, self.wid);
                    self.stage = Stage::Hello;
                }
                (Stage::Hello, Reply::Simple(b"OK")) => {
                    self.stage = Stage::Command;
                    self.role.begin(out, tally);
                }
                (Stage::Greeting | Stage::Hello, _) => return Err(unexpected("handshake", reply)),
            }
            rest = after;
        }
        Ok(bytes.len() - rest.len())
    }
}

/// Sends PUSH, or PUSHB of several jobs.
struct Producer {
    batched: bool,
    /// The jobs in the unanswered command.
    window: Window,
}

impl Role for Producer {
    fn begin(&mut self, out: &mut Vec<u8>, tally: &mut Tally) {
        let base = out.len();
        let mut opening: &[u8] = if self.batched { b"PUSHB [" } else { b"PUSH " };
        self.window.refill(tally, |stamp, rng| {
            out.extend_from_slice(std::mem::replace(&mut opening, b","));
            wire::put_job(out, stamp, rng);
        });
        if out.len() > base {
            out.extend_from_slice(if self.batched { b"]\r\n" } else { b"\r\n" });
        }
    }

    fn on_reply(&mut self, reply: Reply<'_>, out: &mut Vec<u8>, tally: &mut Tally) -> Result<(), Error> {
        let expected = if self.batched { Reply::Bulk(b"{}") } else { Reply::Simple(b"OK") };
        if reply != expected || self.window.oldest().is_none() {
            return Err(unexpected("producer", reply));
        }
        while let Some(sent) = self.window.take_oldest() {
            tally.acknowledged(sent);
        }
        self.begin(out, tally);
        Ok(())
    }
}

/// Fetches jobs and acknowledges them. Waits for the answer to its ACK before it fetches again, as stock clients do, or sends
/// both in one write.
struct Worker {
    pulse: Pulse,
    eager: bool,
    begun: bool,
    /// The job with the unanswered ACK, with the time its FETCH was sent.
    acked: Option<Stamp>,
    fetched_nanos: u64,
    /// Empty FETCHes in a row.
    empty: u32,
}

impl Role for Worker {
    fn begin(&mut self, out: &mut Vec<u8>, tally: &mut Tally) {
        if !self.begun {
            self.begun = true;
            self.fetched_nanos = tally.now_nanos;
            out.extend_from_slice(FETCH);
        }
    }

    fn on_reply(&mut self, reply: Reply<'_>, out: &mut Vec<u8>, tally: &mut Tally) -> Result<(), Error> {
        if self.pulse.is_answer(reply) {
            return Ok(());
        }
        match (reply, self.acked) {
            (Reply::Simple(b"OK"), Some(fetched)) => {
                self.acked = None;
                tally.answered(fetched);
                self.fetched_nanos = tally.now_nanos;
                if !self.eager {
                    self.pulse.beat(out, tally);
                    out.extend_from_slice(FETCH);
                }
            }
            (Reply::Bulk(text), None) => {
                let (jid, stamp) = wire::job_of(text).ok_or_else(|| unexpected("worker", reply))?;
                tally.worked(stamp)?;
                self.empty = 0;
                // The latency runs from the FETCH to the answer of the ACK.
                self.acked = Some(Stamp { sent_nanos: self.fetched_nanos, ..stamp });
                if self.eager {
                    self.pulse.beat(out, tally);
                }
                wire::put_ack(out, jid);
                if self.eager {
                    out.extend_from_slice(FETCH);
                }
            }
            (Reply::Null, None) if self.empty < EMPTY_MAX => {
                self.empty += 1;
                self.fetched_nanos = tally.now_nanos;
                self.pulse.beat(out, tally);
                out.extend_from_slice(FETCH);
            }
            (Reply::Null, None) => {
                return Err(Error::Mismatch(format!("{EMPTY_MAX} FETCHes in a row came back empty")));
            }
            _ => return Err(unexpected("worker", reply)),
        }
        Ok(())
    }
}

/// Fetches from a queue that stays empty; a job is an empty FETCH.
struct Idler {
    pulse: Pulse,
    waiting: Option<Stamp>,
}

impl Role for Idler {
    fn begin(&mut self, out: &mut Vec<u8>, tally: &mut Tally) {
        if self.waiting.is_none() {
            self.waiting = tally.next_stamp();
            if self.waiting.is_some() {
                self.pulse.beat(out, tally);
                out.extend_from_slice(FETCH);
            }
        }
    }

    fn on_reply(&mut self, reply: Reply<'_>, out: &mut Vec<u8>, tally: &mut Tally) -> Result<(), Error> {
        if self.pulse.is_answer(reply) {
            return Ok(());
        }
        let sent = self.waiting.take().filter(|_| reply == Reply::Null);
        tally.answered(sent.ok_or_else(|| unexpected("idler", reply))?);
        self.begin(out, tally);
        Ok(())
    }
}

/// A worker's heartbeat, sent before another command while no command is unanswered.
struct Pulse {
    wid: usize,
    last_nanos: Option<u64>,
    unanswered: bool,
}

impl Pulse {
    fn new(wid: usize) -> Self {
        Self { wid, last_nanos: None, unanswered: false }
    }

    /// Sends BEAT if it is due; HELLO counts as the first.
    fn beat(&mut self, out: &mut Vec<u8>, tally: &Tally) {
        let now = tally.now_nanos;
        if now.saturating_sub(*self.last_nanos.get_or_insert(now)) >= BEAT_NANOS {
            (self.last_nanos, self.unanswered) = (Some(now), true);
            wire::put_beat(out, self.wid);
        }
    }

    /// Whether this is the answer to its BEAT.
    fn is_answer(&mut self, reply: Reply<'_>) -> bool {
        let answered = self.unanswered && reply == Reply::Simple(b"OK");
        self.unanswered &= !answered;
        answered
    }
}

#[cold]
fn unexpected(role: &str, reply: Reply<'_>) -> Error {
    let (sign, text) = match reply {
        Reply::Simple(text) => ("+", text),
        Reply::Error(text) => ("-", text),
        Reply::Bulk(text) => ("$", text),
        Reply::Null => ("$-1", &b""[..]),
    };
    let shown = text.get(..text.len().min(200)).unwrap_or_default();
    Error::Protocol(format!("{role} got {sign}{}", shown.escape_ascii()))
}
