//! Roles: the messages each kind of connection sends and expects. State shared with other connections is in the [`Tally`].
//!
//! Spec: Faktory Work Protocol, "Producer Commands", "Consumer Commands".

use std::collections::VecDeque;

use crate::error::Error;
use crate::faktory::wire::{self, JID_BYTES, QUEUE, Reply};
use crate::load::driver::{Part, Tally};
use crate::load::stamp::Stamp;

/// Every load with workers has jobs for them. More empty FETCHes than this in a row, of 2 s each, mean that a job or a wake-up
/// was lost.
const EMPTY_MAX: u32 = 10;
/// The server closes a worker's connection after a minute without a heartbeat; stock clients send one every 15 s.
const BEAT_NANOS: u64 = 15_000_000_000;

/// The role of one connection.
#[derive(Debug)]
pub enum Role {
    /// Pushes jobs.
    Producer(Producer),
    /// Fetches jobs and acknowledges them.
    Worker(Worker),
    /// Fetches from a queue that stays empty; a job is an empty FETCH.
    Idler(Idler),
}

impl Role {
    /// Whether its HELLO has a wid.
    pub fn is_worker(&self) -> bool {
        !matches!(self, Role::Producer(_))
    }

    #[inline]
    fn on_reply(&mut self, reply: Reply<'_>, out: &mut Vec<u8>, tally: &mut Tally) -> Result<(), Error> {
        match self {
            Role::Producer(producer) => producer.on_reply(reply, out, tally),
            Role::Worker(worker) => worker.on_reply(reply, out, tally),
            Role::Idler(idler) => idler.on_reply(reply, out, tally),
        }
    }
}

impl Part for Role {
    fn on_wake(&mut self, out: &mut Vec<u8>, tally: &mut Tally) {
        match self {
            Role::Producer(producer) => producer.push(out, tally),
            Role::Worker(worker) => worker.begin(out),
            Role::Idler(idler) => idler.fetch(out, tally),
        }
    }

    #[inline]
    fn on_bytes(&mut self, bytes: &[u8], out: &mut Vec<u8>, tally: &mut Tally) -> Result<usize, Error> {
        let mut rest = bytes;
        while let Some((reply, after)) = wire::split(rest)? {
            self.on_reply(reply, out, tally)?;
            rest = after;
        }
        Ok(bytes.len() - rest.len())
    }
}

/// See [`Role::Producer`]. One command at a time, as stock clients do: PUSH, or PUSHB of several jobs.
#[derive(Debug)]
pub struct Producer {
    batch: usize,
    /// The jobs in the unanswered command.
    unanswered: VecDeque<Stamp>,
}

impl Producer {
    /// A producer that pushes `batch` jobs per command.
    pub fn new(batch: usize) -> Self {
        Self { batch: batch.max(1), unanswered: VecDeque::with_capacity(batch) }
    }

    fn push(&mut self, out: &mut Vec<u8>, tally: &mut Tally) {
        if !self.unanswered.is_empty() {
            return;
        }
        let base = out.len();
        out.extend_from_slice(if self.batch == 1 { b"PUSH " } else { b"PUSHB [" });
        while self.unanswered.len() < self.batch {
            let Some(stamp) = tally.next_stamp() else {
                break;
            };
            if !self.unanswered.is_empty() {
                out.push(b',');
            }
            wire::put_job(out, stamp, tally.rng());
            self.unanswered.push_back(stamp);
        }
        if self.unanswered.is_empty() {
            out.truncate(base);
        } else {
            out.extend_from_slice(if self.batch == 1 { b"\r\n" } else { b"]\r\n" });
        }
    }

    fn on_reply(&mut self, reply: Reply<'_>, out: &mut Vec<u8>, tally: &mut Tally) -> Result<(), Error> {
        let expected = if self.batch == 1 { Reply::Simple(b"OK") } else { Reply::Bulk(b"{}") };
        if reply != expected {
            return Err(unexpected("producer", reply));
        }
        if self.unanswered.is_empty() {
            return Err(Error::Mismatch("an answer to no PUSH".to_owned()));
        }
        self.unanswered.drain(..).for_each(|sent| tally.acknowledged(sent));
        self.push(out, tally);
        Ok(())
    }
}

/// See [`Role::Worker`]. Waits for the answer to its ACK before it fetches again, as stock clients do, or sends both in
/// one write.
#[derive(Debug)]
pub struct Worker {
    pulse: Pulse,
    eager: bool,
    begun: bool,
    /// The job with the unanswered ACK, with the time its FETCH was sent.
    acked: Option<Stamp>,
    fetched_nanos: u64,
    /// Empty FETCHes in a row.
    empty: u32,
}

impl Worker {
    /// The worker with this number; an eager one sends ACK and the next FETCH together.
    pub fn new(wid: usize, eager: bool) -> Self {
        Self { pulse: Pulse::new(wid), eager, begun: false, acked: None, fetched_nanos: 0, empty: 0 }
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if !self.begun {
            self.begun = true;
            put_fetch(out);
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
                self.fetched_nanos = tally.now_nanos();
                if !self.eager {
                    self.pulse.beat(out, tally);
                    put_fetch(out);
                }
            }
            (Reply::Bulk(text), None) => {
                let (jid, stamp) = wire::job_of(text).ok_or_else(|| unexpected("worker", reply))?;
                tally.worked(stamp)?;
                self.empty = 0;
                // This answers the ACK; the latency runs from the FETCH.
                self.acked = Some(Stamp { sent_nanos: self.fetched_nanos, ..stamp });
                if self.eager {
                    self.pulse.beat(out, tally);
                }
                put_ack(out, jid);
                if self.eager {
                    put_fetch(out);
                }
            }
            (Reply::Null, None) if self.empty < EMPTY_MAX => {
                self.empty += 1;
                self.fetched_nanos = tally.now_nanos();
                self.pulse.beat(out, tally);
                put_fetch(out);
            }
            (Reply::Null, None) => {
                return Err(Error::Mismatch(format!("{EMPTY_MAX} FETCHes in a row came back empty")));
            }
            _ => return Err(unexpected("worker", reply)),
        }
        Ok(())
    }
}

/// See [`Role::Idler`].
#[derive(Debug)]
pub struct Idler {
    pulse: Pulse,
    waiting: Option<Stamp>,
}

impl Idler {
    /// The idler with this number as a worker.
    pub fn new(wid: usize) -> Self {
        Self { pulse: Pulse::new(wid), waiting: None }
    }

    fn fetch(&mut self, out: &mut Vec<u8>, tally: &mut Tally) {
        if self.waiting.is_none() {
            self.waiting = tally.next_stamp();
            if self.waiting.is_some() {
                self.pulse.beat(out, tally);
                put_fetch(out);
            }
        }
    }

    fn on_reply(&mut self, reply: Reply<'_>, out: &mut Vec<u8>, tally: &mut Tally) -> Result<(), Error> {
        if self.pulse.is_answer(reply) {
            return Ok(());
        }
        let sent = self.waiting.take().filter(|_| reply == Reply::Null);
        tally.answered(sent.ok_or_else(|| unexpected("idler", reply))?);
        self.fetch(out, tally);
        Ok(())
    }
}

/// A worker's heartbeat, sent before another command while no command is unanswered.
#[derive(Debug)]
struct Pulse {
    wid: usize,
    last_nanos: Option<u64>,
    unanswered: bool,
}

impl Pulse {
    const fn new(wid: usize) -> Self {
        Self { wid, last_nanos: None, unanswered: false }
    }

    /// Sends BEAT if it is due; HELLO counts as the first.
    fn beat(&mut self, out: &mut Vec<u8>, tally: &Tally) {
        let now = tally.now_nanos();
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

fn put_fetch(out: &mut Vec<u8>) {
    out.extend_from_slice(b"FETCH ");
    out.extend_from_slice(QUEUE);
    out.extend_from_slice(b"\r\n");
}

fn put_ack(out: &mut Vec<u8>, jid: &[u8; JID_BYTES]) {
    out.extend_from_slice(b"ACK {\"jid\":\"");
    out.extend_from_slice(jid);
    out.extend_from_slice(b"\"}\r\n");
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
