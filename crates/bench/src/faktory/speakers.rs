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
    let idles = shape.request == Request::Echo;
    let worker = |wid| {
        let (pulse, eager) = (Pulse { wid, last_nanos: None, unanswered: false }, shape.eager);
        boxed(Worker { pulse, eager, idles, fetched: None, acked: None, empty: 0 }, Some(wid))
    };
    let producer = || boxed(Producer { batched: shape.window > 1, window: Window::new(shape.window, 0) }, None);
    let client = |wid| if idles { worker(wid) } else { producer() };
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
    /// The queue stays empty, and a job is an empty FETCH.
    idles: bool,
    /// The unanswered FETCH, and the one before an unanswered ACK.
    fetched: Option<Stamp>,
    acked: Option<Stamp>,
    /// Empty FETCHes in a row.
    empty: u32,
}

impl Role for Worker {
    fn begin(&mut self, out: &mut Vec<u8>, tally: &mut Tally) {
        if self.fetched.is_none() && self.acked.is_none() {
            self.fetch(out, tally);
        }
    }

    fn on_reply(&mut self, reply: Reply<'_>, out: &mut Vec<u8>, tally: &mut Tally) -> Result<(), Error> {
        if self.pulse.is_answer(reply) {
            return Ok(());
        }
        match (reply, self.acked, self.fetched) {
            (Reply::Simple(b"OK"), Some(sent), _) => {
                self.acked = None;
                tally.answered(sent);
                if let Some(fetched) = &mut self.fetched {
                    // Sent together with the ACK.
                    fetched.sent_nanos = tally.now_nanos;
                }
                self.begin(out, tally);
            }
            (Reply::Bulk(text), None, Some(sent)) if !self.idles => {
                let (jid, stamp) = wire::job_of(text).ok_or_else(|| unexpected("worker", reply))?;
                tally.worked(stamp)?;
                self.empty = 0;
                // The latency runs from the FETCH to the answer of the ACK.
                (self.acked, self.fetched) = (Some(sent), None);
                wire::put_ack(out, jid);
                if self.eager {
                    self.fetch(out, tally);
                }
            }
            (Reply::Null, None, Some(sent)) => {
                self.empty += 1;
                if self.idles {
                    tally.answered(sent);
                } else if self.empty > EMPTY_MAX {
                    return Err(Error::Mismatch(format!("{EMPTY_MAX} FETCHes in a row came back empty")));
                }
                self.fetch(out, tally);
            }
            _ => return Err(unexpected("worker", reply)),
        }
        Ok(())
    }
}

impl Worker {
    fn fetch(&mut self, out: &mut Vec<u8>, tally: &mut Tally) {
        let sent_nanos = tally.now_nanos;
        self.fetched = if self.idles { tally.next_stamp() } else { Some(Stamp { number: 0, sent_nanos }) };
        if self.fetched.is_some() {
            self.pulse.beat(out, tally);
            out.extend_from_slice(FETCH);
        }
    }
}

/// A worker's heartbeat, sent before another command while no command is unanswered.
struct Pulse {
    wid: usize,
    last_nanos: Option<u64>,
    unanswered: bool,
}

impl Pulse {
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
