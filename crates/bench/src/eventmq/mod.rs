//! EventMQ's eMQP over ZeroMQ's transport: load for `windlass` and for the released router, which is in Python.
//! Deliberately shares no code with the daemon's codec. The released router and its JobManager use libzmq.
//!
//! Spec: EventMQ's `protocol.rst`, "Global Frames", "eMQP / Client" and "eMQP / Worker"; where the released programs
//! differ in their frames, theirs. Not in it: `STATUS` and `ROUTER_SHOW_WORKERS` of the released router, which are
//! answered with JSON in a `REPLY`, as `emq-cli` has it.

use std::net::SocketAddr;

use serde_json::Value;

use crate::driver::Context;
use crate::error::Error;
use crate::load::{Connection, Incoming, Job, Read, Reply, Seat, Wire, strange};
use crate::protocol::Protocol;
use crate::shape::{Shape, WORKERS};
use crate::stamp::{STAMP_DIGITS, Stamp, UNIQUE_BYTES, low_of, unique, uuid};
use crate::zmtp::{self, Dealer, Event};

pub(crate) mod jobmanager;

/// See the module.
pub(crate) static EVENTMQ: Protocol = Protocol {
    client: Some(
        "eMQP over tcp:// by the generator's own codec, as DEALERs with identities; not libzmq, but in the JobManager",
    ),
    ..Protocol::new(
        "eventmq",
        Shape::submit(4, 64),
        Shape::flow(0, 1, WORKERS, u64::MAX),
        |seat| {
            Connection::boxed(
                Eventmq {
                    seat,
                    dealer: Dealer::default(),
                    informed: [0; UNIQUE_BYTES],
                },
                seat,
                CREDITS,
            )
        },
        count,
    )
};

/// Jobs that a worker can have at once.
const CREDITS: usize = 64;
/// The queue of all jobs: the released router's default for workers without queues.
const QUEUE: &[u8] = b"default";
const VERSION: &[u8] = b"eMQP/1.0";
/// A worker's queues with their weights.
const QUEUES: &[u8] = br#"[[10, "default"]]"#;
const RESULT: &[u8] = br#"{"value": null}"#;
/// A job calls `windlass_tasks.done` with its stamp.
const JOB_HEAD: &[u8] = br#"["run", {"callable": "done", "path": "windlass_tasks", "args": [""#;
const JOB_TAIL: &[u8] = br#""], "kwargs": {}, "class_args": [], "class_kwargs": {}}]"#;
const JOB_BYTES: usize = JOB_HEAD.len() + STAMP_DIGITS + JOB_TAIL.len();
/// A seed that gives other identities than the load's.
const SEED: u64 = 77;

/// A message's identifier is a UUID as text, as stock clients have it. That of a request ends with its number.
struct Eventmq {
    seat: Seat,
    dealer: Dealer,
    /// The identifier of a worker's `INFORM`.
    informed: [u8; UNIQUE_BYTES],
}

impl Wire for Eventmq {
    fn open(&mut self, cx: &mut Context<'_>) -> bool {
        Dealer::open(&unique(&mut cx.tally.rng), cx.out);
        false
    }

    #[inline]
    fn read<'a>(&mut self, bytes: &'a [u8], cx: &mut Context<'_>) -> Read<'a> {
        let Some((event, rest)) = self.dealer.read(bytes)? else {
            return Ok(None);
        };
        let mut of = None;
        let reply = match event {
            Event::Greeting => Reply::None,
            Event::Ready if self.seat.is_worker => {
                self.informed = unique(&mut cx.tally.rng);
                zmtp::put(
                    cx.out,
                    [b"", VERSION, b"INFORM", &self.informed, QUEUES, b"worker"],
                );
                Reply::None
            }
            Event::Ready => Reply::Ready,
            Event::Message(message) => {
                let mut parts = message.parts();
                let head = [parts.next(), parts.next(), parts.next(), parts.next()];
                let body = [parts.next(), parts.next(), parts.next(), parts.next()];
                let [Some(b""), Some(VERSION), Some(command), Some(id)] = head else {
                    return Err(strange(bytes));
                };
                match (command, body) {
                    (b"REQUEST", [Some(QUEUE), Some(_), Some(job), None])
                        if self.seat.is_worker =>
                    {
                        let stamp = stamp_of(job).filter(|stamp| low_of(id) == Some(stamp.number));
                        Reply::Job(Job {
                            lease: id,
                            stamp: stamp.ok_or_else(|| strange(bytes))?,
                        })
                    }
                    (b"REPLY", [Some(text), None, None, None]) if !self.seat.is_worker => {
                        of = low_of(text);
                        if self.seat.acknowledges {
                            Reply::Accepted
                        } else {
                            Reply::None
                        }
                    }
                    // The server expects no answer, but regular heartbeats.
                    (b"HEARTBEAT", [Some(time), None, None, None]) => {
                        zmtp::put(
                            cx.out,
                            [b"", VERSION, b"HEARTBEAT", &unique(&mut cx.tally.rng), time],
                        );
                        Reply::None
                    }
                    (b"ACK", [Some(of), None, None, None]) if *of == self.informed => Reply::Ready,
                    _ => return Err(strange(bytes)),
                }
            }
        };
        Ok(Some(Incoming { reply, of, rest }))
    }

    #[inline]
    fn push(&mut self, jobs: &[Stamp], cx: &mut Context<'_>) {
        jobs.iter()
            .for_each(|stamp| put_request(cx.out, *stamp, &mut cx.tally.rng));
    }

    /// One credit more.
    #[inline]
    fn take(&mut self, _: Stamp, cx: &mut Context<'_>) {
        zmtp::put(cx.out, [b"", VERSION, b"READY", &unique(&mut cx.tally.rng)]);
    }

    #[inline]
    fn finish(&mut self, _: Stamp, job: &Job<'_>, cx: &mut Context<'_>) -> bool {
        zmtp::put(
            cx.out,
            [
                b"",
                VERSION,
                b"REPLY",
                &unique(&mut cx.tally.rng),
                RESULT,
                job.lease,
            ],
        );
        false
    }
}

/// `REQUEST`: a job into [`QUEUE`], with no headers.
#[inline]
fn put_request(out: &mut Vec<u8>, stamp: Stamp, rng: &mut fastrand::Rng) {
    zmtp::put(
        out,
        [
            b"",
            VERSION,
            b"REQUEST",
            &uuid(rng.u64(..), stamp.number),
            QUEUE,
            b"",
            &job_of(stamp),
        ],
    );
}

#[inline]
fn job_of(stamp: Stamp) -> [u8; JOB_BYTES] {
    let mut job = [0; JOB_BYTES];
    let (head, rest) = job.split_at_mut(JOB_HEAD.len());
    let (digits, tail) = rest.split_at_mut(STAMP_DIGITS);
    head.copy_from_slice(JOB_HEAD);
    digits.copy_from_slice(&stamp.to_digits());
    tail.copy_from_slice(JOB_TAIL);
    job
}

/// The stamp of a job, if the job is one of ours, byte for byte.
#[inline]
fn stamp_of(job: &[u8]) -> Option<Stamp> {
    Stamp::of_digits(job.strip_prefix(JOB_HEAD)?.strip_suffix(JOB_TAIL)?)
}

/// Waiting jobs, and those in flight. The released router counts every request without a requested reply as in flight
/// for ever.
fn count(admin: SocketAddr, acknowledges: bool) -> Result<u64, Error> {
    let counts = ["waiting_messages_by_queue", "inflight_messages_by_queue"].into_iter();
    let counts = counts.take(if acknowledges { 2 } else { 1 });
    status(admin, "STATUS", |found| {
        let sum = |of| {
            found
                .get(of)?
                .as_object()?
                .values()
                .map(Value::as_u64)
                .sum::<Option<u64>>()
        };
        counts.clone().map(sum).sum()
    })
}

/// What an administrative request's answer has.
fn status<T>(
    admin: SocketAddr,
    command: &str,
    read: impl Fn(Value) -> Option<T>,
) -> Result<T, Error> {
    let mut rng = fastrand::Rng::with_seed(SEED);
    let (identity, id) = (unique(&mut rng), unique(&mut rng));
    zmtp::question(
        admin,
        &identity,
        [b"", VERSION, command.as_bytes(), &id],
        |message| {
            let parts: Vec<_> = message.parts().collect();
            let [b"", VERSION, b"REPLY", _, text] = *parts else {
                return None;
            };
            read(serde_json::from_slice(text).ok()?)
        },
    )
}
