//! Faktory's work protocol (FWP): load for `windlass`. One command at a time, as stock clients do. Deliberately shares
//! no code with the daemon's codec.
//!
//! Spec: Faktory Work Protocol, "Protocol Basics", "Producer Commands", "Consumer Commands", "INFO".

use std::net::SocketAddr;

use serde_json::Value;

use crate::driver::Context;
use crate::error::Error;
use crate::load::{Connection, Incoming, Job, Read, Reply, Seat, Wire, strange};
use crate::protocol::{Protocol, ask, connect};
use crate::resp::{self, Line};
use crate::shape::{BATCH, Request, Shape, fetch_ack};
use crate::stamp::{STAMP_DIGITS, Stamp, digits};

/// See the module.
pub(crate) static FAKTORY: Protocol = Protocol::new(
    "faktory",
    Shape::submit(8, BATCH),
    fetch_ack(50, true, 0),
    |seat| {
        Connection::boxed(
            Faktory {
                seat,
                stage: Stage::Greeting,
                beat_nanos: None,
                beats: false,
            },
            seat,
            1,
        )
    },
    count,
);

/// The first reply on a connection.
const GREETING: Line<'_> = Line::Simple(b"HI {\"v\":2}");
const OK: Line<'_> = Line::Simple(b"OK");
/// A jid is written as 24 hexadecimal digits, as stock clients do.
const JID_BYTES: usize = 24;
const JOB_MIDDLE: &[u8] = b"\",\"queue\":\"bench\",\"jobtype\":\"bench\",\"args\":[\"";
/// The server closes a worker's connection after a minute without a heartbeat; stock clients send one every 15 s.
const BEAT_NANOS: u64 = 15_000_000_000;
/// The sets for jobs outside of queues.
const SETS: [&str; 4] = ["Busy", "Retries", "Scheduled", "Dead"];

struct Faktory {
    seat: Seat,
    stage: Stage,
    /// When the last heartbeat was sent, if any. HELLO counts as the first.
    beat_nanos: Option<u64>,
    /// A heartbeat is unanswered; no other command is.
    beats: bool,
}

/// What the next reply answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Greeting,
    Hello,
    Command,
}

impl Faktory {
    /// As a worker, or as a client that only pushes.
    fn names_itself(&self) -> bool {
        self.seat.takes() || self.seat.shape.request == Request::Echo
    }

    fn named(&self) -> String {
        format!("\"wid\":\"bench{:08}\"", self.seat.index)
    }
}

impl Wire for Faktory {
    const BATCHES: bool = true;

    fn open(&mut self, _: &mut Context<'_>) -> bool {
        false
    }

    #[inline]
    fn read<'a>(&mut self, bytes: &'a [u8], cx: &mut Context<'_>) -> Read<'a> {
        let Some((line, rest)) = resp::split(bytes)? else {
            return Ok(None);
        };
        let reply = match (self.stage, line) {
            (Stage::Command, OK) if std::mem::take(&mut self.beats) => Reply::None,
            (Stage::Command, OK) => Reply::Done,
            (Stage::Command, Line::Bulk(b"{}")) => Reply::Accepted,
            (Stage::Command, Line::Null) if self.seat.shape.request == Request::Echo => {
                Reply::Echo(None)
            }
            (Stage::Command, Line::Null) => Reply::Empty,
            (Stage::Command, Line::Bulk(text)) => {
                Reply::Job(job_of(text).ok_or_else(|| strange(bytes))?)
            }
            (Stage::Greeting, GREETING) => {
                self.stage = Stage::Hello;
                let wid = if self.names_itself() {
                    self.named() + ",\"pid\":1,\"labels\":[],"
                } else {
                    String::new()
                };
                cx.out.extend_from_slice(
                    format!("HELLO {{{wid}\"hostname\":\"bench\",\"v\":2}}\r\n").as_bytes(),
                );
                Reply::None
            }
            (Stage::Hello, OK) => {
                self.stage = Stage::Command;
                Reply::Ready
            }
            _ => return Err(strange(bytes)),
        };
        Ok(Some(Incoming {
            reply,
            of: None,
            rest,
        }))
    }

    /// Jobs of 112 bytes: a random jid, queue, type, and the stamp as the only argument.
    #[inline]
    fn push(&mut self, jobs: &[Stamp], cx: &mut Context<'_>) {
        let (head, tail): (&[u8], &[u8]) = if self.seat.shape.window > 1 {
            (b"PUSHB [", b"]\r\n")
        } else {
            (b"PUSH ", b"\r\n")
        };
        let mut before = head;
        for stamp in jobs {
            let jid: [u8; 32] = digits(cx.tally.rng.u128(..).to_be_bytes());
            let jid = jid.first_chunk::<JID_BYTES>().unwrap_or(&[b'0'; JID_BYTES]);
            let stamp = stamp.to_digits();
            cx.put([
                std::mem::replace(&mut before, b","),
                b"{\"jid\":\"",
                jid,
                JOB_MIDDLE,
                &stamp,
                b"\"]}",
            ]);
        }
        cx.put([tail]);
    }

    /// A FETCH that ends without a job.
    fn echo(&mut self, stamp: Stamp, cx: &mut Context<'_>) {
        self.take(stamp, cx);
    }

    fn take(&mut self, _: Stamp, cx: &mut Context<'_>) {
        let now = cx.tally.now_nanos;
        if now.saturating_sub(*self.beat_nanos.get_or_insert(now)) >= BEAT_NANOS {
            (self.beat_nanos, self.beats) = (Some(now), true);
            cx.out
                .extend_from_slice(format!("BEAT {{{}}}\r\n", self.named()).as_bytes());
        }
        cx.put([b"FETCH bench\r\n"]);
    }

    fn finish(&mut self, _: Stamp, job: &Job<'_>, cx: &mut Context<'_>) -> bool {
        cx.put([b"ACK {\"jid\":\"", job.lease, b"\"}\r\n"]);
        true
    }

    /// One command at a time.
    fn refill_at(_: usize) -> usize {
        0
    }
}

/// A job that was fetched; its lease is its jid.
#[inline]
fn job_of(text: &[u8]) -> Option<Job<'_>> {
    let lease = behind(text, b"\"jid\":\"")?.first_chunk::<JID_BYTES>()?;
    Some(Job {
        lease,
        stamp: Stamp::of_digits(behind(text, b"\"args\":[\"")?.first_chunk::<STAMP_DIGITS>()?)?,
    })
}

#[inline]
fn behind<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let at = text.windows(key.len()).position(|window| window == key)?;
    text.get(at + key.len()..)
}

/// The server's count of jobs in all states.
///
/// Spec: "INFO".
fn count(admin: SocketAddr, _: bool) -> Result<u64, Error> {
    ask(
        &mut connect(admin)?,
        b"HELLO {\"hostname\":\"bench\",\"v\":2}\r\nINFO\r\n",
        |bytes| {
            let mut rest = bytes;
            while let Some((line, after)) = resp::split(rest)? {
                match line {
                    Line::Bulk(text) => return total(text).map(Some).ok_or_else(|| strange(text)),
                    GREETING | OK => rest = after,
                    Line::Simple(_) | Line::Number(_) | Line::Null => return Err(strange(rest)),
                }
            }
            Ok(None)
        },
    )
}

fn total(text: &[u8]) -> Option<u64> {
    let info: Value = serde_json::from_slice(text).ok()?;
    let queued = info
        .pointer("/faktory/queues")?
        .as_object()?
        .values()
        .filter_map(Value::as_u64)
        .sum::<u64>();
    let elsewhere = SETS.iter().map(|set| {
        info.pointer(&format!("/faktory/tasks/{set}/size"))?
            .as_u64()
    });
    Some(queued + elsewhere.sum::<Option<u64>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_in_all_states_are_counted() {
        let text = br#"{"faktory":{"queues":{"a":1,"bench":20},"tasks":{"Busy":{"size":300},"Retries":{"size":4000},
                        "Scheduled":{"size":50000},"Dead":{"size":600000}}},"server":{}}"#;
        assert_eq!(total(text), Some(654_321));
        for wrong in [&b"{}"[..], b"", br#"{"faktory":{"queues":{},"tasks":{}}}"#] {
            assert_eq!(total(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}
