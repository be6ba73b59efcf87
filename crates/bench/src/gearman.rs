//! Gearman: load for `windlass` and for gearmand. Deliberately shares no code with the daemon's codec.
//!
//! Spec: the Gearman protocol (`PROTOCOL` in gearmand's sources), sections "Binary Packet" to "Administrative
//! Protocol".

use std::net::SocketAddr;

use crate::driver::Context;
use crate::error::Error;
use crate::load::{Connection, Incoming, Job, Read, Reply, Seat, Wire, strange};
use crate::protocol::{Protocol, ask, connect};
use crate::shape::{Ending, PIPELINE, Request, Shape};
use crate::stamp::{BODY_BYTES, Stamp, unique};

/// See the module.
pub(crate) static GEARMAN: Protocol = Protocol {
    wakes: true,
    ..Protocol::new(
        "gearman",
        Shape::submit(8, PIPELINE),
        Shape::drain(8, Ending::Worked),
        |seat| {
            Connection::boxed(
                Gearman {
                    seat,
                    asleep: false,
                    handle: Vec::new(),
                },
                seat,
                1,
            )
        },
        count,
    )
};

/// The function of all jobs.
const FUNCTION: &[u8] = b"bench";
/// Magic, type and size, 4 bytes each.
const HEADER_BYTES: usize = 12;
/// More than any server has reason to send here; a larger size means that the stream is out of step.
const BODY_BYTES_MAX: usize = 1 << 20;
/// A longer answer to `status` is invalid, because only one function is in use.
const STATUS_BYTES_MAX: usize = 1 << 20;

const CAN_DO: u32 = 1;
const PRE_SLEEP: u32 = 4;
const NOOP: u32 = 6;
const SUBMIT_JOB: u32 = 7;
const JOB_CREATED: u32 = 8;
const GRAB_JOB: u32 = 9;
const NO_JOB: u32 = 10;
const JOB_ASSIGN: u32 = 11;
const WORK_COMPLETE: u32 = 13;
const ECHO_REQ: u32 = 16;
const ECHO_RES: u32 = 17;
const SUBMIT_JOB_BG: u32 = 18;

/// A worker finishes a job and requests the next in one write, as a careful worker does, and sleeps when there is none.
struct Gearman {
    seat: Seat,
    asleep: bool,
    /// Of a pending foreground job; empty until JOB_CREATED has arrived.
    handle: Vec<u8>,
}

impl Wire for Gearman {
    fn open(&mut self, cx: &mut Context<'_>) -> bool {
        if self.seat.takes() {
            put(cx.out, CAN_DO, [FUNCTION]);
        }
        true
    }

    #[inline]
    fn read<'a>(&mut self, bytes: &'a [u8], cx: &mut Context<'_>) -> Read<'a> {
        let Some((kind, body, rest)) = split(bytes)? else {
            return Ok(None);
        };
        let reply = match kind {
            JOB_CREATED if self.seat.shape.request != Request::Call && !body.is_empty() => {
                Reply::Accepted
            }
            JOB_CREATED if self.handle.is_empty() => {
                self.handle.extend_from_slice(body);
                Reply::Accepted
            }
            JOB_ASSIGN => Reply::Job(assignment(body).ok_or_else(|| strange(bytes))?),
            WORK_COMPLETE => {
                let (_, result) = cut_at_nul(body)
                    .filter(|(handle, _)| *handle == self.handle)
                    .ok_or_else(foreign)?;
                self.handle.clear();
                Reply::Result(u64::from_le_bytes(
                    result.try_into().map_err(|_| strange(bytes))?,
                ))
            }
            ECHO_RES => Reply::Echo(Some(Stamp::of_body(body).ok_or_else(|| strange(bytes))?)),
            NO_JOB if self.seat.is_worker => {
                self.asleep = true;
                put(cx.out, PRE_SLEEP, []);
                Reply::None
            }
            NO_JOB => Reply::Empty,
            // A NOOP may cross a request that has already woken the worker; then it has no meaning.
            NOOP => {
                if std::mem::take(&mut self.asleep) {
                    cx.tally.wakes += 1;
                    put(cx.out, GRAB_JOB, []);
                }
                Reply::None
            }
            _ => return Err(strange(bytes)),
        };
        Ok(Some(Incoming {
            reply,
            of: None,
            rest,
        }))
    }

    #[inline]
    fn push(&mut self, jobs: &[Stamp], cx: &mut Context<'_>) {
        let kind = if self.seat.shape.request == Request::Call {
            SUBMIT_JOB
        } else {
            SUBMIT_JOB_BG
        };
        for stamp in jobs {
            let unique = self.seat.shape.unique.then(|| unique(&mut cx.tally.rng));
            let unique = unique.as_ref().map_or(&b""[..], |unique| unique);
            put(
                cx.out,
                kind,
                [FUNCTION, b"\0", unique, b"\0", &stamp.to_body()],
            );
        }
    }

    fn echo(&mut self, stamp: Stamp, cx: &mut Context<'_>) {
        put(cx.out, ECHO_REQ, [&stamp.to_body()]);
    }

    fn take(&mut self, _: Stamp, cx: &mut Context<'_>) {
        put(cx.out, GRAB_JOB, []);
    }

    fn finish(&mut self, _: Stamp, job: &Job<'_>, cx: &mut Context<'_>) -> bool {
        put(
            cx.out,
            WORK_COMPLETE,
            [job.lease, b"\0", &job.stamp.number.to_le_bytes()],
        );
        false
    }
}

/// A packet's type and body, and the bytes after it.
type Packet<'a> = (u32, &'a [u8], &'a [u8]);

/// The first packet.
#[inline]
fn split(bytes: &[u8]) -> Result<Option<Packet<'_>>, Error> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let [m0, m1, m2, m3, k0, k1, k2, k3, s0, s1, s2, s3] = *header;
    let size = usize::try_from(u32::from_be_bytes([s0, s1, s2, s3])).unwrap_or(usize::MAX);
    if [m0, m1, m2, m3] != *b"\0RES" || size > BODY_BYTES_MAX {
        return Err(strange(bytes));
    }
    let packet = rest.split_at_checked(size);
    Ok(packet.map(|(body, rest)| (u32::from_be_bytes([k0, k1, k2, k3]), body, rest)))
}

/// Appends a request whose body consists of `parts`.
#[inline]
fn put<const PARTS: usize>(out: &mut Vec<u8>, kind: u32, parts: [&[u8]; PARTS]) {
    let size =
        u32::try_from(parts.iter().map(|part| part.len()).sum::<usize>()).unwrap_or(u32::MAX);
    let [k0, k1, k2, k3] = kind.to_be_bytes();
    let [s0, s1, s2, s3] = size.to_be_bytes();
    out.extend_from_slice(&[0, b'R', b'E', b'Q', k0, k1, k2, k3, s0, s1, s2, s3]);
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Appends a background submit of a small job for this function.
pub(crate) fn submit_to(function: &[u8], out: &mut Vec<u8>) {
    put(out, SUBMIT_JOB_BG, [function, b"\0\0", &[b'x'; BODY_BYTES]]);
}

/// Appends a request for an echo of this size.
pub(crate) fn echo_of(bytes: usize, out: &mut Vec<u8>) {
    put(out, ECHO_REQ, [&vec![b'x'; bytes]]);
}

/// The job of a JOB_ASSIGN, if it is one of ours.
#[inline]
fn assignment(arguments: &[u8]) -> Option<Job<'_>> {
    let (lease, rest) = cut_at_nul(arguments)?;
    let (function, body) = cut_at_nul(rest)?;
    Some(Job {
        lease,
        stamp: Stamp::of_body(body)?,
    })
    .filter(|_| function == FUNCTION && !lease.is_empty())
}

/// The bytes before and after the first NUL.
#[inline]
fn cut_at_nul(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == 0)?;
    let (before, rest) = bytes.split_at_checked(at)?;
    Some((before, rest.split_first()?.1))
}

#[cold]
fn foreign() -> Error {
    Error::Mismatch("a result of another job".to_owned())
}

fn count(admin: SocketAddr, _: bool) -> Result<u64, Error> {
    ask(&mut connect(admin)?, b"status\n", |bytes| {
        let is_whole =
            bytes.ends_with(b".\n") || bytes.len() > STATUS_BYTES_MAX || bytes.starts_with(b"ERR");
        if is_whole {
            counted(bytes).map(Some).ok_or_else(|| strange(bytes))
        } else {
            Ok(None)
        }
    })
}

/// The first column of `status` counts queued and running jobs together.
///
/// Spec: "Administrative Protocol", `status`.
fn counted(status: &[u8]) -> Option<u64> {
    let mut lines = std::str::from_utf8(status)
        .ok()?
        .strip_suffix(".\n")?
        .lines();
    let ours = lines.find_map(|line| line.strip_prefix("bench\t"));
    ours.map_or(Some(0), |columns| columns.split('\t').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_answers() {
        assert_eq!(
            counted(b"bench2\t9\t0\t0\nbench\t12\t3\t8\nother\t1\t1\t1\n.\n"),
            Some(12)
        );
        assert_eq!(counted(b".\n"), Some(0));
        for wrong in [
            &b"bench\t1\t0\t0\n"[..],
            b"bench\tx\t0\t0\n.\n",
            b"ERR UNKNOWN_COMMAND x\r\n",
        ] {
            assert_eq!(counted(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}
