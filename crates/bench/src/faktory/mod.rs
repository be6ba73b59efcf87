//! Faktory's work protocol (FWP): load for `windlass`.
//!
//! Reading order: [`wire`] (bytes), [`speakers`] (kinds of connections), then the cases and the server's own count, here.
//!
//! Spec: Faktory Work Protocol.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::cases::{self, Case, Catalogue, Request, Shape, Work};
use crate::driver::{Plan, Speaker};
use crate::error::Error;
use crate::faktory::wire::Reply;
use crate::peers::Needs;
use crate::protocol::{Client, Protocol, differs};
use crate::servers::Ports;
use crate::tally::Ending;

#[cfg(test)]
mod accounting;
mod speakers;
mod wire;

/// See the module.
pub(crate) static FAKTORY: Protocol = Protocol {
    name: "faktory",
    client: None,
    released: None,
    cases: &CASES,
    fill: push(8, BATCH),
    empty: drain(50, true, 0),
    wakes: false,
    open: |_| Box::new(Faktory),
};

pub(crate) static CASES: Catalogue = Catalogue {
    groups: &[
        ("steady", "pushes, fetches, waiting workers"),
        ("queue", "fill-100k and restart-100k; any number can be asked for: fill-1m, restart-300k"),
        ("default", "steady"),
    ],
    extra: &["queue"],
    steady,
    sized,
    examples: &["fill-100k", "restart-100k"],
};

/// Jobs in a PUSHB.
const BATCH: usize = 1000;
/// Waiting costs so little that a window of a second would span only a few clock ticks.
const IDLE_PLAN: Plan = Plan::Timed { warm: Duration::from_secs(4), window: Duration::from_secs(12) };
/// A server that replays or frees a million jobs answers late.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// The sets for jobs outside of queues.
const SETS: [&str; 4] = [
    "/faktory/tasks/Busy/size",
    "/faktory/tasks/Retries/size",
    "/faktory/tasks/Scheduled/size",
    "/faktory/tasks/Dead/size",
];

/// Pushes without workers: PUSH for one job at a time, PUSHB for more.
const fn push(clients: usize, batch: usize) -> Shape {
    Shape::clients(Request::Submit, clients, batch)
}

/// Fetches of jobs that are already queued. A job is done when its ACK is answered.
const fn drain(workers: usize, eager: bool, queued: u64) -> Shape {
    Shape { eager, queued, ..Shape::drain(workers, Ending::Answered) }
}

/// Fetches that end without a job.
const fn idle(clients: usize) -> Shape {
    Shape::clients(Request::Echo, clients, 1)
}

fn steady() -> Vec<Case> {
    let case = |(name, about, work): (&str, &str, Work)| {
        let (name, about) = (name.to_owned(), about.to_owned());
        Case { name, group: "steady", about, needs: Needs::Memory, work }
    };
    let cases = [
        ("push-1", "PUSH, 1 connection, one at a time", Work::Load(push(1, 1))),
        ("push-50", "PUSH, 50 connections, one at a time each", Work::Load(push(50, 1))),
        ("pushb-1000", "PUSHB of 1,000 jobs, 1 connection, one at a time", Work::Load(push(1, BATCH))),
        ("pushb-1000x8", "the same, 8 connections", Work::Load(push(8, BATCH))),
        ("fetch-ack-1", "FETCH, then ACK, 1 connection, one command at a time", Work::Load(drain(1, false, 20_000))),
        ("fetch-ack-50", "the same, 50 connections", Work::Load(drain(50, false, 200_000))),
        ("fetch-ack-50-eager", "the same, ACK and the next FETCH in one write", Work::Load(drain(50, true, 200_000))),
        (
            "blocked-fetch",
            "1 producer, 10 workers that wait in FETCH, one job at a time: up to the worker",
            Work::Load(Shape::flow(1, 1, 10, 1)),
        ),
        (
            "blocked-2000",
            "2,000 workers that wait in FETCH for nothing, and again; a job is a FETCH that came back empty",
            Work::Idle(idle(2000), IDLE_PLAN),
        ),
    ];
    cases.map(case).to_vec()
}

fn sized(kind: &str, jobs: u64) -> Option<cases::Sized> {
    let (about, work) = match kind {
        "fill" => (
            format!("fill a queue with {jobs} jobs (PUSHB of 1,000, 8 connections), then empty it with 50 workers"),
            Work::Fill { jobs, unique: false },
        ),
        "restart" => (
            format!("kill -9 with {jobs} queued jobs; how long until INFO counts every one again"),
            Work::Restart { jobs },
        ),
        _ => return None,
    };
    Some(("queue", about, Needs::Memory, work))
}

struct Faktory;

impl Client for Faktory {
    fn speakers(&self, shape: &Shape) -> Vec<Box<dyn Speaker>> {
        speakers::of(shape)
    }

    fn difference(&self, ports: &Ports, left: u64) -> Result<Option<String>, Error> {
        Ok(differs(jobs(ports.admin)?, left))
    }
}

/// The server's count of jobs in all states.
///
/// Spec: "INFO".
fn jobs(addr: SocketAddr) -> Result<u64, Error> {
    let mut stream = TcpStream::connect(addr).map_err(Error::io("connect for INFO"))?;
    stream.set_read_timeout(Some(ANSWER_WITHIN)).map_err(Error::io("set a timeout"))?;
    let mut bytes = Vec::new();
    wire::put_hello(&mut bytes, None);
    bytes.extend_from_slice(b"INFO\r\n");
    stream.write_all(&bytes).map_err(Error::io("ask for INFO"))?;
    bytes.clear();
    let mut scratch = [0; 4096];
    loop {
        while let Some((reply, rest)) = wire::split(&bytes)? {
            if let Reply::Bulk(text) = reply {
                return total(text);
            }
            if ![wire::GREETING, Reply::Simple(b"OK")].contains(&reply) {
                return Err(Error::Protocol(format!("INFO: {reply:?}")));
            }
            let used = bytes.len() - rest.len();
            bytes.drain(..used);
        }
        match stream.read(&mut scratch).map_err(Error::io("read INFO"))? {
            0 => return Err(Error::Protocol("hung up at INFO".to_owned())),
            count => bytes.extend_from_slice(scratch.get(..count).unwrap_or_default()),
        }
    }
}

fn total(text: &[u8]) -> Result<u64, Error> {
    let wrong = || Error::Protocol(format!("INFO {}", text.escape_ascii()));
    let info: Value = serde_json::from_slice(text).map_err(|_| wrong())?;
    let queued = info.pointer("/faktory/queues").and_then(Value::as_object).ok_or_else(wrong)?;
    let queued: u64 = queued.values().filter_map(Value::as_u64).sum();
    let elsewhere = SETS.iter().map(|set| info.pointer(set).and_then(Value::as_u64).ok_or_else(wrong));
    Ok(queued + elsewhere.sum::<Result<u64, Error>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_in_all_states_are_counted() {
        let text = br#"{"faktory":{"queues":{"a":1,"bench":20},"tasks":{"Busy":{"size":300},"Retries":{"size":4000},
                        "Scheduled":{"size":50000},"Dead":{"size":600000}}},"server":{}}"#;
        assert_eq!(total(text).unwrap(), 654_321);
        for wrong in [&b"{}"[..], b"", br#"{"faktory":{"queues":{},"tasks":{}}}"#] {
            assert!(total(wrong).is_err(), "{}", wrong.escape_ascii());
        }
    }
}
