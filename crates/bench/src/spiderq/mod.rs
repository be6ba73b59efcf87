//! spiderq over ZeroMQ's transport: load for `windlass`. The requests and replies have a codec here, separate from the daemon's.
//!
//! Reading order: [`wire`] (bytes), [`ledger`] (the expected state of the queue), then the cases, the connections and the
//! server's own count, here.
//!
//! Every request is `["", cookie, request]` and every reply must be `["", cookie, reply]`; replies may come in any order.
//!
//! Spec: `spiderq-protocol`; ZMTP in the role of a DEALER.

use std::cell::RefCell;
use std::rc::Rc;

use windlass_zmtp::Message;

use crate::cases::{Case, Catalogue, Request, Shape, Work};
use crate::driver::Speaker;
use crate::error::Error;
use crate::peers::Needs;
use crate::protocol::{Client, Protocol};
use crate::servers::Ports;
use crate::spiderq::ledger::Ledger;
use crate::spiderq::wire::{Stats, Status};
use crate::stamp::Stamp;
use crate::tally::{Tally, Window};
use crate::zmtp::{Dealer, Desk, Line, Talk};

#[cfg(test)]
mod accounting;
mod ledger;
mod wire;

/// See the module.
pub(crate) static SPIDERQ: Protocol = Protocol {
    name: "spiderq",
    client: Some("ZMTP over tcp:// by windlass-zmtp, our own codec on both sides, as a DEALER; not libzmq"),
    released: None,
    cases: &CASES,
    fill: Shape::clients(Request::Submit, 4, 64),
    empty: Shape::clients(Request::Take, 4, 64),
    wakes: false,
    open: |_| Box::new(Spiderq::default()),
};

pub(crate) static CASES: Catalogue = Catalogue {
    groups: &[
        ("ping", "Ping in three shapes"),
        ("add", "Add in three shapes"),
        ("cycle", "Lend and Repay in three shapes"),
        ("default", "everything"),
    ],
    extra: &[],
    steady,
    sized: |_, _| None,
    examples: &[],
};

/// Requests, as `(group, description, request, tasks in the queue: many times the number in flight)`.
const REQUESTS: [(&str, &str, Request, u64); 3] = [
    ("ping", "Ping", Request::Echo, 0),
    ("add", "Add, values of 100 bytes", Request::Submit, 0),
    ("cycle", "Lend, then Repay to the end of a queue of 10,000, values of 100 bytes", Request::Cycle, 10_000),
];
/// Loads, as (connections, in flight on each, description).
const SHAPES: [(usize, usize, &str); 3] = [
    (1, 1, "1 connection, one at a time"),
    (8, 1, "8 connections, one at a time each"),
    (4, 64, "4 connections, 64 in flight each"),
];
/// In the key of a Repay, beside the number of its Lend.
const REPAY: u64 = 1 << 63;

fn steady() -> Vec<Case> {
    let case = |name, group, about, shape| Case { name, group, about, needs: Needs::Memory, work: Work::Load(shape) };
    let steady = REQUESTS.iter().flat_map(|(group, request_about, request, queued)| {
        SHAPES.iter().map(move |(connections, window, about)| {
            let shape = Shape { queued: *queued, ..Shape::clients(*request, *connections, *window) };
            case(format!("{group}-{connections}x{window}"), *group, format!("{request_about}; {about}"), shape)
        })
    });
    let about = "1 connection adds, 10 wait in Lend, one task at a time: up to the Lend".to_owned();
    steady.chain([case("blocked-lend".to_owned(), "blocked-lend", about, Shape::flow(1, 1, 10, 1))]).collect()
}

/// The queue on one server.
#[derive(Default)]
struct Spiderq {
    ledger: Rc<RefCell<Ledger>>,
}

impl Client for Spiderq {
    fn speakers(&self, shape: &Shape) -> Vec<Box<dyn Speaker>> {
        let speaker = |request, window: usize| {
            let (window, ledger) = (Window::new(window, window.saturating_sub(1)), Rc::clone(&self.ledger));
            Dealer::boxed(Connection { request, window, waits: 0, ledger, buffer: Vec::new() })
        };
        let workers = (0..shape.workers).map(|_| speaker(None, 1));
        workers.chain((0..shape.clients).map(|_| speaker(Some(shape.request), shape.window))).collect()
    }

    /// Both counts must be those of the ledger, whatever is left.
    fn difference(&self, ports: &Ports, _left: u64) -> Result<Option<String>, Error> {
        let mut desk = Desk::open(ports.admin, b"")?;
        let count = desk.ask("Count", [b"", wire::COUNT])?;
        let stats = desk.ask("Stats", [b"", wire::STATS])?;
        match (wire::counted(count.last()), Stats::decode(stats.last())) {
            (Some(count), Some(stats)) => Ok(self.ledger.borrow().difference(count, stats)),
            _ => Err(Error::Protocol(format!("Count and Stats were answered with {count:?} and {stats:?}"))),
        }
    }

    fn remaining(&self) -> u64 {
        self.ledger.borrow().queued()
    }
}

/// One connection, which repeats its request in a number of slots.
struct Connection {
    /// `None` waits in Lend for a task to be added, and drops it.
    request: Option<Request>,
    window: Window,
    /// Lends of a waiting connection so far.
    waits: u64,
    ledger: Rc<RefCell<Ledger>>,
    buffer: Vec<u8>,
}

impl Talk for Connection {
    fn begin(&mut self, line: &mut Line<'_>, tally: &mut Tally) {
        let Self { request, window, ledger, buffer, .. } = self;
        let Some(request) = *request else {
            return self.wait(line, tally);
        };
        window.refill(tally, |stamp, _| {
            match request {
                Request::Echo => buffer.extend_from_slice(wire::PING),
                Request::Submit | Request::Call => {
                    wire::put_add(buffer, ledger.borrow_mut().add(stamp.sent_nanos));
                }
                Request::Cycle | Request::Take => wire::put_lend(buffer, false),
            }
            send(line, stamp.number, buffer);
        });
    }

    #[inline]
    fn on_message(&mut self, message: &Message, line: &mut Line<'_>, tally: &mut Tally) -> Result<(), Error> {
        let mut parts = message.parts();
        let (Some(b""), Some(cookie), Some(reply), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Error::Protocol(format!("a reply of {} parts, or in no envelope", message.parts().len())));
        };
        let key = cookie.try_into().ok().map(u64::from_be_bytes);
        let stamp = self.window.take(key, cookie)?;
        let is_repay = key.is_some_and(|key| key & REPAY != 0);
        match (self.request, is_repay, reply) {
            (Some(Request::Echo), false, wire::PONG) => {
                *self.ledger.borrow_mut().stats.ping.get_or_insert(0) += 1;
                tally.answered(stamp);
            }
            (Some(Request::Submit), false, wire::ADDED) => {
                self.ledger.borrow_mut().stats.add += 1;
                tally.acknowledged(stamp);
            }
            (Some(Request::Cycle | Request::Take) | None, false, _) => {
                let (lend_key, key, value) = wire::lent(reply).ok_or_else(|| self.unexpected(is_repay, reply))?;
                let task = self.ledger.borrow_mut().lend(key, value)?;
                if self.request.is_none() {
                    tally.worked(task)?;
                }
                self.repay(lend_key, task, stamp, line);
                return Ok(());
            }
            (Some(Request::Cycle | Request::Take), true, wire::REPAID) => tally.answered(stamp),
            (None, true, wire::REPAID) => {}
            _ => return Err(self.unexpected(is_repay, reply)),
        }
        self.begin(line, tally);
        Ok(())
    }
}

impl Connection {
    /// The stamp in the task counts, not this one.
    fn wait(&mut self, line: &mut Line<'_>, tally: &Tally) {
        if self.window.oldest().is_none() {
            self.waits += 1;
            wire::put_lend(&mut self.buffer, true);
            send(line, self.waits, &mut self.buffer);
            self.window.hold(self.waits, Stamp { number: self.waits, sent_nanos: tally.now_nanos });
        }
    }

    fn repay(&mut self, lend_key: u64, task: Stamp, stamp: Stamp, line: &mut Line<'_>) {
        let status = if self.request == Some(Request::Cycle) { Status::Penalty } else { Status::Drop };
        let repaid = self.ledger.borrow_mut().repay(task, status);
        wire::put_repay(&mut self.buffer, lend_key, repaid, status);
        send(line, stamp.number | REPAY, &mut self.buffer);
        self.window.hold(stamp.number | REPAY, stamp);
    }

    #[cold]
    fn unexpected(&self, is_repay: bool, reply: &[u8]) -> Error {
        let asked = match self.request {
            _ if is_repay => "Repay",
            Some(Request::Echo) => "Ping",
            Some(Request::Submit | Request::Call) => "Add",
            Some(Request::Cycle | Request::Take) | None => "Lend",
        };
        let found = match reply {
            wire::KEPT => "Kept".to_owned(),
            wire::NOT_FOUND => "NotFound".to_owned(),
            wire::QUEUE_EMPTY => "QueueEmpty".to_owned(),
            _ => reply.get(..reply.len().min(60)).unwrap_or_default().escape_ascii().to_string(),
        };
        Error::Mismatch(format!("{asked} was answered with {found}"))
    }
}

/// Sends the request in the buffer. Its cookie is the key of its answer.
#[inline]
fn send(line: &mut Line<'_>, key: u64, request: &mut Vec<u8>) {
    line.send([b"", &key.to_be_bytes(), request]);
    request.clear();
}
