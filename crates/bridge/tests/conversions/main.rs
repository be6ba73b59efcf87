//! Conversions between all protocols, with the columns of their crates.

mod messages;
mod properties;
mod results;
mod units;
mod workloads;

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use windlass_bridge::{Bridge, Codec, Job, Side, Unconvertible};
use windlass_engine::{Priority, Protocol};
use windlass_eventmq::bridge::EventmqOrigin;
use windlass_faktory::bridge::FwpOrigin;
use windlass_gearman::bridge::GearmanOrigin;

use windlass_faktory::bridge::Unit;

static BRIDGE: LazyLock<Bridge> = LazyLock::new(|| {
    Bridge::new(vec![
        Side { protocol: Protocol::FAKTORY, name: "faktory", origin: Some(Arc::new(FwpOrigin)) },
        Side { protocol: Protocol::GEARMAN, name: "gearman", origin: Some(Arc::new(GearmanOrigin)) },
        Side { protocol: Protocol::SPIDERQ, name: "spiderq", origin: None },
        Side { protocol: Protocol::EVENTMQ, name: "eventmq", origin: Some(Arc::new(EventmqOrigin)) },
    ])
});

/// A job of a queue called `q`.
fn of(protocol: Protocol, codec: Codec, body: &[u8]) -> Job<'_> {
    Job { protocol, queue: b"q", body, codec, key: b"", priority: Priority::NORMAL }
}

fn unit<'a>(job: &Job<'a>) -> Result<Unit<'a>, Unconvertible> {
    windlass_faktory::bridge::unit(&BRIDGE, job)
}

fn workload<'a>(job: &Job<'a>) -> Result<Cow<'a, [u8]>, Unconvertible> {
    windlass_gearman::bridge::workload(&BRIDGE, job)
}

fn message<'a>(job: &Job<'a>, binary: bool) -> Result<Cow<'a, [u8]>, Unconvertible> {
    windlass_eventmq::bridge::message(&BRIDGE, job, binary)
}

/// A result of a worker of `from` for a client of `to`.
fn result(from: Protocol, to: Protocol, result: &[u8]) -> Cow<'_, [u8]> {
    match to {
        Protocol::FAKTORY => windlass_faktory::bridge::result(&BRIDGE, from, result),
        Protocol::GEARMAN => windlass_gearman::bridge::result(&BRIDGE, from, result),
        Protocol::EVENTMQ => windlass_eventmq::bridge::result(&BRIDGE, from, result),
        _ => Cow::Borrowed(result),
    }
}

/// The last column of a table: the converted text, or the error.
fn shown(made: Result<Cow<'_, [u8]>, Unconvertible>) -> String {
    match made {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(why) => why.to_string(),
    }
}
