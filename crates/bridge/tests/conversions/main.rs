//! Conversions between all protocols, with the columns of their crates.

mod columns;
mod hidden;
mod messages;
mod names;
mod properties;
mod results;
mod units;
mod workloads;

use std::borrow::Cow;

use columns::{message, result, unit, workload};
use windlass_bridge::{Codec, Job, Unconvertible};
use windlass_engine::{Priority, Protocol};

/// A job of a queue called `q`.
fn of(protocol: Protocol, codec: Codec, body: &[u8]) -> Job<'_> {
    Job {
        protocol,
        queue: b"q",
        body,
        codec,
        key: b"",
        priority: Priority::NORMAL,
    }
}

/// The last column of a table: the converted text, or the error.
fn shown(made: Result<Cow<'_, [u8]>, Unconvertible>) -> String {
    match made {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(why) => why.to_string(),
    }
}
