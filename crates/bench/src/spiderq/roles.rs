//! Roles: the messages each kind of connection sends and expects. Each slot of a connection repeats one errand. State shared with
//! other connections is in the [`Tally`] and the [`Ledger`].
//!
//! Every request is `["", cookie, request]` and every reply must be `["", cookie, reply]`; replies may come in any order.
//!
//! Spec: `spiderq-protocol`; ZMTP in the role of a DEALER.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use windlass_engine::Timestamp;
use windlass_zmtp::{Event, Message, Peer, Role, Settings};

use crate::error::Error;
use crate::load::driver::{Part, Tally};
use crate::load::stamp::Stamp;
use crate::spiderq::ledger::Ledger;
use crate::spiderq::wire::{self, Patience, Reply, Status};

/// Longer than a run, so no loan expires.
const LEND_MS: u64 = 3_600_000;
/// The slot, and the request's number on the connection.
const COOKIE_BYTES: usize = 8;

/// The repeated work of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// Ping.
    Ping,
    /// Add a task of its own.
    Add,
    /// Lend without waiting, and repay. The queue must have a task.
    Cycle(Status),
    /// Lend, wait for a task to be added, and drop it.
    Wait,
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    errand: Errand,
    slots: Vec<Slot>,
    ledger: Rc<RefCell<Ledger>>,
    peer: Peer,
    greeted: bool,
    /// Requests sent.
    sent: u32,
    /// Received bytes of an incomplete message.
    input: BytesMut,
    /// Bytes for the next write.
    output: BytesMut,
    request: Vec<u8>,
}

/// A place for one request.
#[derive(Debug, Clone, Copy)]
struct Slot {
    due: Due,
    /// The number of the pending request.
    serial: u32,
}

/// The reply that a slot waits for, with the stamp of its errand.
#[derive(Debug, Clone, Copy)]
enum Due {
    Nothing,
    Pong(Stamp),
    Added(Stamp),
    Lent(Stamp),
    Repaid(Stamp),
}

impl Client {
    /// A connection with `in_flight` requests in flight.
    pub fn new(errand: Errand, in_flight: usize, ledger: &Rc<RefCell<Ledger>>) -> Self {
        Self {
            errand,
            slots: vec![Slot { due: Due::Nothing, serial: 0 }; in_flight],
            ledger: Rc::clone(ledger),
            peer: Peer::new(Arc::new(Settings::new(Role::Dealer))),
            greeted: false,
            sent: 0,
            input: BytesMut::new(),
            output: BytesMut::new(),
            request: Vec::new(),
        }
    }

    /// Starts every free slot.
    fn begin_all(&mut self, tally: &mut Tally) {
        for at in 0..self.slots.len() {
            if self.slots.get(at).is_some_and(|slot| matches!(slot.due, Due::Nothing)) {
                self.begin(at, tally);
            }
        }
    }

    fn begin(&mut self, at: usize, tally: &mut Tally) {
        let stamp = match self.errand {
            // The stamp in the task counts.
            Errand::Wait => Some(Stamp { number: 0, sent_nanos: tally.now_nanos() }),
            Errand::Ping | Errand::Add | Errand::Cycle(_) => tally.next_stamp(),
        };
        let Some(stamp) = stamp else { return };
        let due = match self.errand {
            Errand::Ping => {
                self.request.extend_from_slice(wire::PING);
                Due::Pong(stamp)
            }
            Errand::Add => {
                let task = self.ledger.borrow_mut().add(stamp.sent_nanos);
                wire::put_add(&mut self.request, task.number, &wire::value_of(task));
                Due::Added(stamp)
            }
            Errand::Cycle(_) => {
                wire::put_lend(&mut self.request, LEND_MS, Patience::Poll);
                Due::Lent(stamp)
            }
            Errand::Wait => {
                wire::put_lend(&mut self.request, LEND_MS, Patience::Block);
                Due::Lent(stamp)
            }
        };
        self.send(at, due);
    }

    /// Sends the prepared request. This fails only before the handshake, or with 128 MiB queued; then no answer comes and the
    /// run stalls.
    fn send(&mut self, at: usize, due: Due) {
        self.sent = self.sent.wrapping_add(1);
        let cookie = cookie_of(at, self.sent);
        let unsent = self.peer.send([&b""[..], &cookie, &self.request], &mut self.output);
        debug_assert_eq!(unsent, Ok(()));
        self.request.clear();
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = Slot { due, serial: self.sent };
        }
    }

    fn on_message(&mut self, message: &Message, tally: &mut Tally) -> Result<(), Error> {
        let mut parts = message.parts();
        let (Some(b""), Some(cookie), Some(reply), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Error::Protocol(format!("a reply of {} parts, or in no envelope", message.parts().len())));
        };
        let (at, due) = self.take_due(cookie).ok_or_else(|| {
            Error::Mismatch(format!("a reply to no request, or a second one: cookie {}", cookie.escape_ascii()))
        })?;
        match (due, Reply::decode(reply)) {
            (Due::Pong(stamp), Reply::Pong) => {
                self.ledger.borrow_mut().pinged();
                tally.answered(stamp);
                self.begin(at, tally);
            }
            (Due::Added(stamp), Reply::Added) => {
                self.ledger.borrow_mut().added();
                tally.acknowledged(stamp);
                self.begin(at, tally);
            }
            (Due::Lent(stamp), Reply::Lent { lend_key, key, value }) => {
                let task = self.ledger.borrow_mut().lend(key, value)?;
                self.repay(at, lend_key, task, stamp, tally)?;
            }
            (Due::Repaid(stamp), Reply::Repaid) => {
                if self.errand != Errand::Wait {
                    tally.answered(stamp);
                }
                self.begin(at, tally);
            }
            (due, _) => return Err(unexpected(due, reply)),
        }
        Ok(())
    }

    fn repay(&mut self, at: usize, lend_key: u64, task: Stamp, stamp: Stamp, tally: &mut Tally) -> Result<(), Error> {
        let status = match self.errand {
            Errand::Cycle(status) => status,
            Errand::Ping | Errand::Add | Errand::Wait => Status::Drop,
        };
        if self.errand == Errand::Wait {
            tally.worked(task)?;
        }
        let repaid = self.ledger.borrow_mut().repay(task, status);
        wire::put_repay(&mut self.request, lend_key, task.number, &wire::value_of(repaid), status);
        self.send(at, Due::Repaid(stamp));
        Ok(())
    }

    /// The slot whose request has this cookie, and its expected reply. Frees the slot.
    fn take_due(&mut self, cookie: &[u8]) -> Option<(usize, Due)> {
        let (at, serial) = cookie.split_first_chunk()?;
        let at = usize::try_from(u32::from_be_bytes(*at)).ok()?;
        let serial = u32::from_be_bytes(serial.try_into().ok()?);
        let slot = self.slots.get_mut(at).filter(|slot| slot.serial == serial)?;
        match std::mem::replace(&mut slot.due, Due::Nothing) {
            Due::Nothing => None,
            due @ (Due::Pong(_) | Due::Added(_) | Due::Lent(_) | Due::Repaid(_)) => Some((at, due)),
        }
    }
}

impl Part for Client {
    fn on_wake(&mut self, out: &mut Vec<u8>, tally: &mut Tally) {
        if !self.greeted {
            self.greeted = true;
            self.peer.open(now(tally), &mut self.output);
        } else if self.peer.is_ready() {
            self.begin_all(tally);
        }
        drain(&mut self.output, out);
    }

    #[inline]
    fn on_bytes(&mut self, bytes: &[u8], out: &mut Vec<u8>, tally: &mut Tally) -> Result<usize, Error> {
        self.input.extend_from_slice(bytes);
        let now = now(tally);
        loop {
            match self.peer.read(now, &mut self.input, &mut self.output) {
                Ok(Some(Event::Message(message))) => self.on_message(&message, tally)?,
                Ok(Some(Event::Ready(_))) => self.begin_all(tally),
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

fn drain(from: &mut BytesMut, out: &mut Vec<u8>) {
    out.extend_from_slice(from);
    from.clear();
}

fn now(tally: &Tally) -> Timestamp {
    Timestamp(tally.now_nanos() / 1_000_000)
}

fn cookie_of(at: usize, serial: u32) -> [u8; COOKIE_BYTES] {
    let at = u32::try_from(at).unwrap_or(u32::MAX);
    (u64::from(at) << 32 | u64::from(serial)).to_be_bytes()
}

#[cold]
fn unexpected(due: Due, reply: &[u8]) -> Error {
    let asked = match due {
        Due::Nothing => "nothing",
        Due::Pong(_) => "Ping",
        Due::Added(_) => "Add",
        Due::Lent(_) => "Lend",
        Due::Repaid(_) => "Repay",
    };
    let found = match Reply::decode(reply) {
        Reply::Kept => "Kept".to_owned(),
        Reply::NotFound => "NotFound".to_owned(),
        Reply::QueueEmpty => "QueueEmpty".to_owned(),
        Reply::Counted(_)
        | Reply::Added
        | Reply::Lent { .. }
        | Reply::Repaid
        | Reply::Pong
        | Reply::Stats(_)
        | Reply::Other(_) => reply.get(..reply.len().min(60)).unwrap_or_default().escape_ascii().to_string(),
    };
    Error::Mismatch(format!("{asked} was answered with {found}"))
}
