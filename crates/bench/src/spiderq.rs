//! spiderq over ZeroMQ's transport: load for `windlass`. Deliberately shares no code with the daemon's codec.
//!
//! Every request is `["", cookie, request]` and every reply must be `["", cookie, reply]`; replies may come in any
//! order. The cookie is the number of the request.
//!
//! Spec: `spiderq-protocol`, "Requests" and "Replies". Integers are big-endian; keys and values follow their length,
//! four bytes.

use std::net::SocketAddr;

use crate::driver::Context;
use crate::error::Error;
use crate::load::{Connection, Incoming, Job, Read, Reply, Seat, Wire, strange};
use crate::protocol::Protocol;
use crate::shape::{Ending, Request, Shape};
use crate::stamp::Stamp;
use crate::zmtp::{self, Dealer, Event};

/// See the module.
pub(crate) static SPIDERQ: Protocol = Protocol {
    client: Some("ZMTP over tcp:// by the generator's own codec, as a DEALER; not libzmq"),
    drains: true,
    replies: Some(replies),
    ..Protocol::new(
        "spiderq",
        Shape::submit(4, 64),
        Shape::drain(64, Ending::Answered),
        |seat| {
            Connection::boxed(
                Spiderq {
                    seat,
                    dealer: Dealer::default(),
                    buffer: Vec::new(),
                },
                seat,
                1,
            )
        },
        count,
    )
};

const COUNT: u8 = 0x01;
const ADD: u8 = 0x02;
const LEND: u8 = 0x04;
const REPAY: u8 = 0x05;
const STATS: u8 = 0x07;
const PING: u8 = 0x0B;
/// Replies without further bytes.
const ADDED: &[u8] = &[0x02];
const REPAID: &[u8] = &[0x07];
const PONG: &[u8] = &[0x11];
const LENT: u8 = 0x06;
/// Longer than a run, so no loan expires.
const LEND_MS: u64 = 3_600_000;
/// Repay moves a task that was never rewarded to the end of the queue.
const PENALTY: u8 = 1;
/// Repay removes the task.
const DROP: u8 = 4;

struct Spiderq {
    seat: Seat,
    dealer: Dealer,
    /// A request.
    buffer: Vec<u8>,
}

impl Spiderq {
    #[inline]
    fn send(&mut self, key: u64, cx: &mut Context<'_>) {
        zmtp::put(cx.out, [b"", &key.to_be_bytes(), &self.buffer]);
        self.buffer.clear();
    }
}

impl Wire for Spiderq {
    fn open(&mut self, cx: &mut Context<'_>) -> bool {
        Dealer::open(b"", cx.out);
        false
    }

    #[inline]
    fn read<'a>(&mut self, bytes: &'a [u8], cx: &mut Context<'_>) -> Read<'a> {
        let Some((event, rest)) = self.dealer.read(bytes)? else {
            return Ok(None);
        };
        let Event::Message(message) = event else {
            let reply = if event == Event::Ready {
                Reply::Ready
            } else {
                Reply::None
            };
            return Ok(Some(Incoming {
                reply,
                of: None,
                rest,
            }));
        };
        cx.tally.replies += 1;
        let mut parts = message.parts();
        let (Some(b""), Some(cookie), Some(reply), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(strange(bytes));
        };
        let of = Some(u64::from_be_bytes(
            cookie.try_into().map_err(|_| strange(bytes))?,
        ));
        let reply = match reply {
            ADDED => Reply::Accepted,
            REPAID => Reply::Finished,
            PONG => Reply::Echo(None),
            _ => Reply::Job(lent(reply).ok_or_else(|| strange(bytes))?),
        };
        Ok(Some(Incoming { reply, of, rest }))
    }

    #[inline]
    fn push(&mut self, jobs: &[Stamp], cx: &mut Context<'_>) {
        for stamp in jobs {
            self.buffer.push(ADD);
            put_task(&mut self.buffer, *stamp);
            // To the end of the queue.
            self.buffer.push(2);
            self.send(stamp.number, cx);
        }
    }

    fn echo(&mut self, stamp: Stamp, cx: &mut Context<'_>) {
        self.buffer.push(PING);
        self.send(stamp.number, cx);
    }

    #[inline]
    fn take(&mut self, request: Stamp, cx: &mut Context<'_>) {
        self.buffer.push(LEND);
        self.buffer.extend_from_slice(&LEND_MS.to_be_bytes());
        // A worker waits for a task.
        self.buffer.push(if self.seat.is_worker { 1 } else { 2 });
        self.send(request.number, cx);
    }

    #[inline]
    fn finish(&mut self, request: Stamp, job: &Job<'_>, cx: &mut Context<'_>) -> bool {
        self.buffer.push(REPAY);
        self.buffer.extend_from_slice(job.lease);
        put_task(&mut self.buffer, job.stamp);
        self.buffer.push(
            if self.seat.shape.request == Request::Cycle && !self.seat.is_worker {
                PENALTY
            } else {
                DROP
            },
        );
        self.send(request.number, cx);
        true
    }

    /// All in flight are read at once in any case.
    fn refill_at(size: usize) -> usize {
        size.saturating_sub(1)
    }
}

/// A task with its number as the key.
#[inline]
fn put_task(out: &mut Vec<u8>, task: Stamp) {
    out.extend_from_slice(&8_u32.to_be_bytes());
    out.extend_from_slice(&task.number.to_be_bytes());
    out.extend_from_slice(&100_u32.to_be_bytes());
    out.extend_from_slice(&task.to_body());
}

/// The task, if the reply is one on loan: its key and its value must agree.
#[inline]
fn lent(reply: &[u8]) -> Option<Job<'_>> {
    let (lease, task) = reply.strip_prefix(&[LENT])?.split_at_checked(8)?;
    let (number, body) = task
        .strip_prefix(&8_u32.to_be_bytes())?
        .split_first_chunk()?;
    let stamp = Stamp::of_body(body.strip_prefix(&100_u32.to_be_bytes())?)?;
    (stamp.number == u64::from_be_bytes(*number)).then_some(Job { lease, stamp })
}

/// Queued tasks.
fn count(admin: SocketAddr, _: bool) -> Result<u64, Error> {
    zmtp::question(admin, b"", [b"", b"", &[COUNT]], |message| {
        let count = message.parts().nth(2)?.strip_prefix(&[COUNT])?;
        Some(u64::from(u32::from_be_bytes(count.try_into().ok()?)))
    })
}

/// The sum of the counters of the requests that loads send. The others must be 0. Spec: 1.4, which has ten counters.
fn replies(admin: SocketAddr) -> Result<u64, Error> {
    zmtp::question(admin, b"", [b"", b"", &[STATS]], |message| {
        let (counters, []) = message.parts().nth(2)?.strip_prefix(&[0x0A])?.as_chunks() else {
            return None;
        };
        let counters: Vec<u64> = counters
            .iter()
            .map(|counter| u64::from_be_bytes(*counter))
            .collect();
        let [ping, _count, add, 0, 0, 0, lend, repay, 0, _stats] = *counters else {
            return None;
        };
        Some(ping + add + lend + repay)
    })
}
