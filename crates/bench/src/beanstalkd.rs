//! beanstalkd, as a peer of push, take and finish.
//!
//! Spec: beanstalkd's `protocol.txt`: `put`, `reserve`, `delete`, `stats`.

use std::net::SocketAddr;

use crate::driver::Context;
use crate::error::Error;
use crate::load::{Connection, Incoming, Job, Read, Reply, Wire, strange};
use crate::protocol::{Protocol, ask, connect};
use crate::resp::number;
use crate::shape::{Ending, Shape};
use crate::stamp::{BODY_BYTES, Stamp};

/// See the module.
pub(crate) static BEANSTALKD: Protocol = Protocol::new(
    "beanstalkd",
    Shape::submit(8, 128),
    Shape::drain(8, Ending::Answered),
    |seat| Connection::boxed(Beanstalkd, seat, 1),
    count,
);

/// Priority 0, no delay, an hour to run, 100 bytes.
const PUT: &[u8] = b"put 0 0 3600 100\r\n";

struct Beanstalkd;

impl Wire for Beanstalkd {
    fn open(&mut self, _: &mut Context<'_>) -> bool {
        true
    }

    #[inline]
    fn read<'a>(&mut self, bytes: &'a [u8], _: &mut Context<'_>) -> Read<'a> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            return Ok(None);
        };
        let (line, mut rest) = bytes.split_at_checked(end + 1).unwrap_or((bytes, b""));
        let reply = match line.strip_prefix(b"RESERVED ") {
            _ if line.starts_with(b"INSERTED ") => Reply::Accepted,
            _ if line == b"DELETED\r\n" => Reply::Finished,
            Some(head) => {
                let Some((body, behind)) = rest.split_at_checked(BODY_BYTES + 2) else {
                    return Ok(None);
                };
                rest = behind;
                job_of(head, body)
                    .map(Reply::Job)
                    .ok_or_else(|| strange(bytes))?
            }
            None => return Err(strange(bytes)),
        };
        Ok(Some(Incoming {
            reply,
            of: None,
            rest,
        }))
    }

    fn push(&mut self, jobs: &[Stamp], cx: &mut Context<'_>) {
        jobs.iter()
            .for_each(|stamp| cx.put([PUT, &stamp.to_body(), b"\r\n"]));
    }

    fn take(&mut self, _: Stamp, cx: &mut Context<'_>) {
        cx.put([b"reserve\r\n"]);
    }

    fn finish(&mut self, _: Stamp, job: &Job<'_>, cx: &mut Context<'_>) -> bool {
        cx.put([b"delete ", job.lease, b"\r\n"]);
        true
    }
}

/// The job behind `RESERVED`: its lease is its id.
#[inline]
fn job_of<'a>(head: &'a [u8], body: &'a [u8]) -> Option<Job<'a>> {
    let lease = head.strip_suffix(b" 100\r\n")?;
    Some(Job {
        lease,
        stamp: Stamp::of_body(body.strip_suffix(b"\r\n")?)?,
    })
}

/// Ready and reserved jobs together.
fn count(admin: SocketAddr, _: bool) -> Result<u64, Error> {
    ask(&mut connect(admin)?, b"stats\r\n", |bytes| {
        let values = ["\ncurrent-jobs-ready: ", "\ncurrent-jobs-reserved: "].map(|key| {
            let text = std::str::from_utf8(bytes).ok()?;
            let (value, _) = text.split_once(key)?.1.split_once('\n')?;
            number(value.as_bytes())
        });
        Ok(values.into_iter().sum())
    })
}
