//! EventMQ's eMQP over ZeroMQ's transport: load for `windlass` and for the released router, which is in Python. The messages
//! have a codec here, separate from the daemon's. The released router and its JobManager use libzmq.
//!
//! Reading order: [`wire`] (messages), [`speakers`] (kinds of connections), [`jobmanager`] (the released one at work), then the
//! cases and the server's own counts, here.
//!
//! Spec: EventMQ's `protocol.rst`; where the released programs differ in their frames, theirs. Not in it: `STATUS` and
//! `ROUTER_SHOW_WORKERS` of the released router, which are answered with JSON in a `REPLY`, as `emq-cli` has it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Deserialize;

use crate::cases::{self, Case, Catalogue, Request, Shape, Work};
use crate::driver::Speaker;
use crate::error::Error;
use crate::eventmq::wire::Incoming;
use crate::peers::Needs;
use crate::protocol::{Client, Protocol, differs};
use crate::servers::Ports;
use crate::stamp::Random;
use crate::zmtp::Desk;

#[cfg(test)]
mod accounting;
mod jobmanager;
mod speakers;
mod wire;

/// See the module.
pub(crate) static EVENTMQ: Protocol = Protocol {
    name: "eventmq",
    client: Some("eMQP over tcp:// by windlass-zmtp, as DEALERs with identities; not libzmq, but in the JobManager"),
    released: Some("the released router"),
    cases: &CASES,
    fill: Shape::clients(Request::Submit, 4, 64),
    empty: Shape::flow(0, 1, WORKERS, u64::MAX),
    wakes: false,
    open: |peer| Box::new(Eventmq { is_acknowledged: peer.is_ours() }),
};

pub(crate) static CASES: Catalogue = Catalogue {
    groups: &[
        ("e2e", "requests up to workers, in five shapes"),
        ("request", "requests without workers, in three shapes; windlass alone"),
        ("default", "e2e, request and jobmanager-500; any number can be asked for: jobmanager-5k"),
    ],
    extra: &[],
    steady,
    sized,
    examples: &["jobmanager-500"],
};

/// Workers of the first group.
const WORKERS: usize = 2;
/// Shapes as (clients, in flight on each, description), those of the second group first.
const SHAPES: [(usize, usize, &str); 5] = [
    (1, 1, "1 client, one at a time"),
    (8, 1, "8 clients, one at a time each"),
    (4, 64, "4 clients, 64 in flight each"),
    (1, 256, "1 client, 256 in flight"),
    (8, 256, "8 clients, 256 in flight each"),
];
const ALONE: usize = 3;
/// A seed that gives other identities than the load's.
const SEED: u64 = 77;

/// A request is in flight until a worker has received it.
fn flow(clients: usize, in_flight: usize, workers: usize) -> Shape {
    let on_their_way = u64::try_from(clients.saturating_mul(in_flight)).unwrap_or(u64::MAX);
    Shape::flow(clients, in_flight, workers, on_their_way)
}

fn steady() -> Vec<Case> {
    let e2e = SHAPES.iter().map(|(clients, in_flight, shape)| Case {
        name: format!("e2e-{clients}x{in_flight}"),
        group: "e2e",
        about: format!("request up to the worker, which answers; {shape}; {WORKERS} workers of 64 credits"),
        needs: Needs::Memory,
        work: Work::Load(flow(*clients, *in_flight, WORKERS)),
    });
    let request = SHAPES.iter().take(ALONE).map(|(clients, in_flight, shape)| Case {
        name: format!("request-{clients}x{in_flight}"),
        group: "request",
        about: format!("request up to its acceptance, without workers; {shape}"),
        needs: Needs::Count,
        work: Work::Load(Shape::clients(Request::Submit, *clients, *in_flight)),
    });
    e2e.chain(request).collect()
}

fn sized(kind: &str, jobs: u64) -> Option<cases::Sized> {
    let about = format!("{jobs} requests at once to the released JobManager with 2 processes, until all are done");
    let work = Work::Own { jobs, run: jobmanager::run };
    (kind == "jobmanager").then_some(("jobmanager", about, Needs::Memory, work))
}

/// One server. The released router does not acknowledge every request.
struct Eventmq {
    is_acknowledged: bool,
}

impl Client for Eventmq {
    fn speakers(&self, shape: &Shape) -> Vec<Box<dyn Speaker>> {
        speakers::of(shape, self.is_acknowledged)
    }

    fn difference(&self, ports: &Ports, left: u64) -> Result<Option<String>, Error> {
        let status: Status = ask(ports.admin, "STATUS")?;
        // The released router counts every request without a requested reply as in flight for ever.
        let in_flight = if self.is_acknowledged { status.in_flight.values().sum() } else { 0 };
        Ok(differs(status.waiting.values().sum::<u64>() + in_flight, left))
    }

    fn is_acknowledged(&self) -> bool {
        self.is_acknowledged
    }
}

/// The fields used of the answer to `STATUS`.
#[derive(Debug, Deserialize)]
struct Status {
    #[serde(rename = "waiting_messages_by_queue")]
    waiting: BTreeMap<String, u64>,
    #[serde(rename = "inflight_messages_by_queue")]
    in_flight: BTreeMap<String, u64>,
}

/// The answer to an administrative request.
fn ask<T: for<'de> Deserialize<'de>>(admin: SocketAddr, command: &str) -> Result<T, Error> {
    let mut rng = Random::new(SEED);
    let mut desk = Desk::open(admin, &rng.unique())?;
    let message = desk.ask(command, wire::question(&rng.unique(), command))?;
    let strange = |found: String| Error::Protocol(format!("{command} was answered with {found}"));
    let Incoming::Reply { text } = Incoming::read(&message)? else {
        return Err(strange(format!("{message:?}")));
    };
    serde_json::from_slice(text).map_err(|error| strange(format!("{}: {error}", text.escape_ascii())))
}
