//! What a job becomes for a worker of another protocol, and what that worker's result becomes for the job's own.
//!
//! **Contract.** Pure: bytes in, bytes out. A job's body is kept as its producer sent it; it is converted here, when it goes to a
//! worker of another protocol, and nowhere else. A worker of the job's own protocol gets the very bytes, and nobody looks at
//! them. What cannot be converted is a [`Misfit`] whose text is the rule; the job's end is then to be a visible one. JSON is never
//! written anew: numbers, escapes and unknown keys come out as they went in. No bytes make this panic, recurse, or take more than
//! a small multiple of their own size.
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

use windlass_engine::{Origin, Priority, Taken};

pub use windlass_engine::Codec;

pub use json::DEPTH_MAX;
pub use message::message;
pub use misfit::{Misfit, Why, name as origin_name};
pub use result::result;
pub use unit::{Unit, unconverted, unit};
pub use workload::workload;

/// A job, as far as it matters to a worker of another protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job<'a> {
    /// The protocol it was born in.
    pub origin: Origin,
    /// Its queue: Gearman's function.
    pub queue: &'a [u8],
    /// What its producer sent, or of an FWP job the text that is kept of it.
    pub body: &'a [u8],
    /// The rule of its queue.
    pub codec: Codec,
    /// Its coalescing key; empty if it has none.
    pub key: &'a [u8],
    /// Its priority.
    pub priority: Priority,
}

impl<'a> From<&'a Taken> for Job<'a> {
    fn from(job: &'a Taken) -> Self {
        Self {
            origin: job.origin,
            queue: &job.queue,
            body: &job.body,
            codec: job.codec,
            key: &job.key,
            priority: job.priority,
        }
    }
}

impl Job<'_> {
    /// There is no way to a worker of `to`, and the codec has no part in it.
    const fn misfit(&self, to: Origin, why: Why) -> Misfit {
        Misfit { from: self.origin, to, codec: None, why }
    }

    /// There is none under this codec.
    const fn codec_misfit(&self, to: Origin, why: Why) -> Misfit {
        Misfit { from: self.origin, to, codec: Some(self.codec), why }
    }
}

#[cfg(test)]
impl<'a> Job<'a> {
    /// A job of a queue called `q`.
    fn of(origin: Origin, codec: Codec, body: &'a [u8]) -> Self {
        Self { origin, queue: b"q", body, codec, key: b"", priority: Priority::NORMAL }
    }
}

/// What a table has in its last column: the text that comes out, or why none does.
#[cfg(test)]
fn shown(made: Result<std::borrow::Cow<'_, [u8]>, Misfit>) -> String {
    match made {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(misfit) => misfit.to_string(),
    }
}
