//! Converts a job for a worker of another protocol, and that worker's result for the job's own clients.
//!
//! **Contract.** Pure: bytes in, bytes out. The engine keeps a job's body as its producer sent it; only this crate converts it,
//! when it goes to a worker of another protocol. A worker of the job's own protocol gets the unchanged bytes, which are not
//! parsed. A job that cannot be converted is a [`Unconvertible`] whose text is the violated rule; such a job must end visibly. JSON is
//! cut out, never re-serialized: numbers, escapes and unknown keys stay as they were. No input makes this code panic, recurse, or
//! take more memory than a small multiple of the input's size.
//!
//! **Reading order.** The crate's README has the tables. [`workload()`], [`message()`] and [`unit()`] are the three directions,
//! [`result()`] the way back; `json` reads, `fwp` and `call` are the shapes of a job in FWP and in EventMQ.

mod call;
mod fwp;
mod json;
mod message;
mod misfit;
mod result;
mod unit;
mod workload;

use windlass_engine::{Priority, Protocol, Taken};

pub use windlass_engine::Codec;

pub use json::DEPTH_MAX;
pub use message::message;
pub use misfit::{Unconvertible, Why, name as protocol_name};
pub use result::result;
pub use unit::{Unit, unconverted, unit};
pub use workload::workload;

/// The parts of a job that matter to a worker of another protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job<'a> {
    /// The protocol of the job's producer.
    pub protocol: Protocol,
    /// The job's queue: Gearman's function.
    pub queue: &'a [u8],
    /// The producer's bytes; of an FWP job, the JSON text the engine keeps.
    pub body: &'a [u8],
    /// The queue's codec.
    pub codec: Codec,
    /// The job's coalescing key; empty if it has none.
    pub key: &'a [u8],
    /// The job's priority.
    pub priority: Priority,
}

impl<'a> From<&'a Taken> for Job<'a> {
    fn from(job: &'a Taken) -> Self {
        Self {
            protocol: job.protocol,
            queue: &job.queue,
            body: &job.body,
            codec: job.codec,
            key: &job.key,
            priority: job.priority,
        }
    }
}

impl Job<'_> {
    /// The job cannot go to a worker of `to`, whatever the codec.
    const fn misfit(&self, to: Protocol, why: Why) -> Unconvertible {
        Unconvertible { from: self.protocol, to, codec: None, why }
    }

    /// The job cannot go to a worker of `to` under this codec.
    const fn codec_misfit(&self, to: Protocol, why: Why) -> Unconvertible {
        Unconvertible { from: self.protocol, to, codec: Some(self.codec), why }
    }
}

#[cfg(test)]
impl<'a> Job<'a> {
    /// A job of a queue called `q`.
    fn of(protocol: Protocol, codec: Codec, body: &'a [u8]) -> Self {
        Self { protocol, queue: b"q", body, codec, key: b"", priority: Priority::NORMAL }
    }
}

/// The last column of a test's table: the converted text, or the error.
#[cfg(test)]
fn shown(made: Result<std::borrow::Cow<'_, [u8]>, Unconvertible>) -> String {
    match made {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(misfit) => misfit.to_string(),
    }
}
