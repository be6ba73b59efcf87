//! Redis as a queue, as a peer of push, take and finish: a list of waiting jobs, and a list of taken ones.
//!
//! Spec: Redis's commands LPUSH, LMOVE (before 6.2: RPOPLPUSH) and LREM; `resp` has the replies.

use std::net::SocketAddr;

use crate::driver::Context;
use crate::error::Error;
use crate::load::{Connection, Incoming, Job, Read, Reply, Wire, strange};
use crate::protocol::{Protocol, ask, connect};
use crate::resp::{self, Line};
use crate::shape::{Ending, Shape};
use crate::stamp::Stamp;

/// See the module.
pub(crate) static REDIS: Protocol = Protocol::new(
    "redis",
    Shape::submit(8, 128),
    Shape::drain(8, Ending::Answered),
    |seat| Connection::boxed(Redis, seat, 1),
    count,
);

/// A job that has been taken is the one taken last but for the others in flight, so its place is searched from the
/// list's old end.
const FINISH: &[u8] = b"*4\r\n$4\r\nLREM\r\n$5\r\ntaken\r\n$2\r\n-1\r\n$100\r\n";
const PUSH: &[u8] = b"*3\r\n$5\r\nLPUSH\r\n$5\r\nbench\r\n$100\r\n";
const TAKE: &[u8] =
    b"*5\r\n$5\r\nLMOVE\r\n$5\r\nbench\r\n$5\r\ntaken\r\n$5\r\nRIGHT\r\n$4\r\nLEFT\r\n";

/// LPUSH returns the number of waiting jobs, LREM that of removed ones; the load knows which of them it awaits.
struct Redis;

impl Wire for Redis {
    fn open(&mut self, _: &mut Context<'_>) -> bool {
        true
    }

    #[inline]
    fn read<'a>(&mut self, bytes: &'a [u8], _: &mut Context<'_>) -> Read<'a> {
        let Some((line, rest)) = resp::split(bytes)? else {
            return Ok(None);
        };
        let reply = match line {
            Line::Number(b"0") | Line::Simple(_) => return Err(strange(bytes)),
            Line::Number(_) => Reply::Done,
            Line::Bulk(lease) => Reply::Job(Job {
                lease,
                stamp: Stamp::of_body(lease).ok_or_else(|| strange(bytes))?,
            }),
            Line::Null => Reply::Empty,
        };
        Ok(Some(Incoming {
            reply,
            of: None,
            rest,
        }))
    }

    fn push(&mut self, jobs: &[Stamp], cx: &mut Context<'_>) {
        jobs.iter()
            .for_each(|stamp| cx.put([PUSH, &stamp.to_body(), b"\r\n"]));
    }

    fn take(&mut self, _: Stamp, cx: &mut Context<'_>) {
        cx.put([TAKE]);
    }

    fn finish(&mut self, _: Stamp, job: &Job<'_>, cx: &mut Context<'_>) -> bool {
        cx.put([FINISH, job.lease, b"\r\n"]);
        true
    }
}

/// Both lists together.
fn count(admin: SocketAddr, _: bool) -> Result<u64, Error> {
    ask(
        &mut connect(admin)?,
        b"LLEN bench\r\nLLEN taken\r\n",
        |bytes| {
            let (mut counts, mut rest) = (Vec::new(), bytes);
            while let Some((line, after)) = resp::split(rest)? {
                let Line::Number(digits) = line else {
                    return Err(strange(rest));
                };
                counts.extend(resp::number(digits));
                rest = after;
            }
            Ok((counts.len() == 2).then(|| counts.iter().sum()))
        },
    )
}
