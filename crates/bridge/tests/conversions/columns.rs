//! The columns of all protocols as functions. Shared with the fuzz target of the bridge.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use windlass_bridge::{Bridge, Job, Opaque, Side, Unconvertible};
use windlass_engine::Protocol;
use windlass_eventmq::bridge::EventmqOrigin;
use windlass_faktory::bridge::{FwpOrigin, Unit};

pub(crate) static BRIDGE: LazyLock<Bridge> = LazyLock::new(|| {
    Bridge::new(vec![
        Side {
            protocol: Protocol::FAKTORY,
            name: "faktory",
            origin: Some(Arc::new(FwpOrigin)),
        },
        Side {
            protocol: Protocol::GEARMAN,
            name: "gearman",
            origin: Some(Arc::new(Opaque)),
        },
        Side {
            protocol: Protocol::SPIDERQ,
            name: "spiderq",
            origin: None,
        },
        Side {
            protocol: Protocol::EVENTMQ,
            name: "eventmq",
            origin: Some(Arc::new(EventmqOrigin)),
        },
    ])
});

pub(crate) fn unit<'a>(job: &Job<'a>) -> Result<Unit<'a>, Unconvertible> {
    windlass_faktory::bridge::unit(&BRIDGE, job)
}

pub(crate) fn workload<'a>(job: &Job<'a>) -> Result<Cow<'a, [u8]>, Unconvertible> {
    windlass_gearman::bridge::workload(&BRIDGE, job)
}

pub(crate) fn message<'a>(job: &Job<'a>, binary: bool) -> Result<Cow<'a, [u8]>, Unconvertible> {
    windlass_eventmq::bridge::message(&BRIDGE, job, binary)
}

/// A result of a worker of `from` for a client of `to`.
pub(crate) fn result(from: Protocol, to: Protocol, result: &[u8]) -> Cow<'_, [u8]> {
    match to {
        Protocol::FAKTORY => windlass_faktory::bridge::result(&BRIDGE, from, result),
        Protocol::GEARMAN => windlass_gearman::bridge::result(&BRIDGE, from, result),
        Protocol::EVENTMQ => windlass_eventmq::bridge::result(&BRIDGE, from, result),
        _ => Cow::Borrowed(result),
    }
}
