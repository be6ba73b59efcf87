//! Gearman: load for `windlass` and for gearmand.
//!
//! Reading order: [`wire`] (bytes), [`speakers`] (kinds of connections), then the cases and the server's own count, here.
//!
//! Spec: the Gearman protocol (`PROTOCOL` in gearmand's sources), sections "Binary Packet" to "Administrative Protocol".

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::cases::{self, Case, Catalogue, Request, Shape, Work};
use crate::driver::Speaker;
use crate::error::Error;
use crate::gearman::wire::FUNCTION;
use crate::peers::Needs;
use crate::protocol::{Client, Protocol, differs};
use crate::servers::Ports;
use crate::tally::Ending;

#[cfg(test)]
mod accounting;
mod speakers;
mod wire;

/// See the module.
pub(crate) static GEARMAN: Protocol = Protocol {
    name: "gearman",
    client: None,
    released: None,
    cases: &CASES,
    fill: background(8, PIPELINE),
    empty: Shape::drain(8, Ending::Worked),
    wakes: true,
    open: |_| Box::new(Gearman),
};

pub(crate) static CASES: Catalogue = Catalogue {
    groups: &[
        ("memory", "steady loads that do not need the disk"),
        ("durable", "steady loads on servers whose jobs survive a crash, with random unique ids"),
        ("queue", "fill-100k, fill-plain-100k and restart-100k; any number can be asked for: fill-1m, restart-300k"),
        ("default", "memory and durable"),
    ],
    extra: &["queue"],
    steady,
    sized,
    examples: &["fill-100k", "fill-plain-100k", "restart-100k"],
};

/// Submits in flight where a case pipelines.
const PIPELINE: usize = 128;
/// Producers pause when this number of jobs waits for workers, and resume at half of it. The bound gives a steady state; without
/// it, the faster submitter would build the longer queue and so lose.
const BACKLOG_MAX: u64 = 4096;
/// The same where each job costs two disk writes, so that the rest is done in about a second.
const DURABLE_BACKLOG_MAX: u64 = 512;
/// A server that replays or frees a million jobs answers late.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// A longer answer to `status` is invalid, because only one function is in use.
const LINES_MAX: usize = 1000;

const fn background(clients: usize, window: usize) -> Shape {
    Shape::clients(Request::Submit, clients, window)
}

const fn foreground(clients: usize, workers: usize) -> Shape {
    Shape { workers, ..Shape::clients(Request::Call, clients, 1) }
}

fn steady() -> Vec<Case> {
    let flow = |clients, window, workers| Shape::flow(clients, window, workers, BACKLOG_MAX);
    let durable = |shape: Shape| match shape.workers {
        0 => shape,
        _ => Shape { backlog_max: DURABLE_BACKLOG_MAX, ..shape },
    };
    let memory: [(&str, &str, Shape); 15] = [
        ("echo-1", "echo, one connection, one at a time", Shape::clients(Request::Echo, 1, 1)),
        ("bg-1", "background submit, 1 connection, one at a time", background(1, 1)),
        ("bg-8", "background submit, 8 connections, one at a time each", background(8, 1)),
        ("bg-64", "background submit, 64 connections, one at a time each", background(64, 1)),
        ("bg-1000", "background submit, 1,000 connections, one at a time each", background(1000, 1)),
        ("pipe-1", "background submit, 1 connection, 128 in flight", background(1, PIPELINE)),
        ("pipe-8", "background submit, 8 connections, 128 in flight each", background(8, PIPELINE)),
        ("pipe-64", "background submit, 64 connections, 128 in flight each", background(64, PIPELINE)),
        ("e2e-1x1", "submit, grab, complete: 1 producer, 1 worker", flow(1, 1, 1)),
        ("e2e-8x8", "submit, grab, complete: 8 producers, 8 workers", flow(8, 1, 8)),
        ("e2e-8x8-pipe", "the same, 128 submits in flight per producer", flow(8, PIPELINE, 8)),
        ("herd-64", "submit, grab, complete: 1 producer, 64 workers that sleep when idle", flow(1, 1, 64)),
        (
            "herd-64-one",
            "the same, one job at a time: submitted when the last has been worked",
            Shape::flow(1, 1, 64, 1),
        ),
        ("fg-1x1", "foreground round trip: 1 client, 1 worker", foreground(1, 1)),
        ("fg-64x8", "foreground round trip: 64 clients, 8 workers", foreground(64, 8)),
    ];
    let on_disk = ["bg-1", "bg-8", "bg-64", "pipe-1", "pipe-8", "e2e-8x8", "e2e-8x8-pipe"];
    let on_disk = on_disk.iter().filter_map(|name| memory.iter().find(|(found, ..)| found == name)).map(
        |(name, about, shape)| Case {
            name: format!("durable-{name}"),
            group: "durable",
            about: (*about).to_owned(),
            needs: Needs::Durability,
            work: Work::Load(durable(*shape).with_unique_ids()),
        },
    );
    let in_memory = memory.iter().map(|(name, about, shape)| Case {
        name: (*name).to_owned(),
        group: "memory",
        about: (*about).to_owned(),
        needs: Needs::Memory,
        work: Work::Load(*shape),
    });
    in_memory.chain(on_disk).collect()
}

fn sized(kind: &str, jobs: u64) -> Option<cases::Sized> {
    let fill = |ids: &str, unique| {
        let about = format!("fill a queue with {jobs} jobs, {ids} unique ids, then empty it with 8 workers");
        ("queue", about, Needs::Memory, Work::Fill { jobs, unique })
    };
    match kind {
        "fill" => Some(fill("random", true)),
        "fill-plain" => Some(fill("empty", false)),
        "restart" => {
            let about = format!("kill -9 with {jobs} queued jobs; how long until every one shows in status again");
            Some(("queue", about, Needs::Durability, Work::Restart { jobs }))
        }
        _ => None,
    }
}

struct Gearman;

impl Client for Gearman {
    fn speakers(&self, shape: &Shape) -> Vec<Box<dyn Speaker>> {
        speakers::of(shape)
    }

    fn difference(&self, ports: &Ports, left: u64) -> Result<Option<String>, Error> {
        Ok(differs(jobs(ports.admin)?, left))
    }
}

/// The server's count of jobs, queued and running, of [`FUNCTION`]; 0 if the server does not list the function.
///
/// Spec: "Administrative Protocol", `status`.
fn jobs(addr: SocketAddr) -> Result<u64, Error> {
    let mut stream = TcpStream::connect(addr).map_err(Error::io("connect for status"))?;
    stream.set_read_timeout(Some(ANSWER_WITHIN)).map_err(Error::io("set a timeout"))?;
    stream.write_all(b"status\n").map_err(Error::io("ask for status"))?;
    let mut found = 0;
    for line in BufReader::new(stream).lines().take(LINES_MAX) {
        let line = line.map_err(Error::io("read status"))?;
        match line.split('\t').collect::<Vec<_>>().as_slice() {
            ["."] => return Ok(found),
            // The first column counts queued and running jobs together.
            [name, total, ..] if name.as_bytes() == FUNCTION => {
                found = total.parse().map_err(|_| Error::Protocol(format!("status line {line}")))?;
            }
            _ => {}
        }
    }
    Err(Error::Protocol("status without an end".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn status_answers() {
        let cases: [(&str, &[u8], Option<u64>); 5] = [
            ("ours among others", b"bench2\t9\t0\t0\nbench\t12\t3\t8\nother\t1\t1\t1\n.\n", Some(12)),
            ("unknown function", b".\n", Some(0)),
            ("no end", b"bench\t1\t0\t0\n", None),
            ("no number", b"bench\tx\t0\t0\n.\n", None),
            ("an error", b"ERR UNKNOWN_COMMAND x\r\n", None),
        ];
        for (name, answer, expected) in cases {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let addr = listener.local_addr().unwrap();
            let served = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut question = [0; 7];
                stream.read_exact(&mut question).unwrap();
                stream.write_all(answer).unwrap();
                question
            });
            assert_eq!(jobs(addr).ok(), expected, "{name}");
            assert_eq!(&served.join().unwrap(), b"status\n");
        }
    }
}
