//! Gearman on the bridge: jobs and results are bytes, here and there.

use std::borrow::Cow;

use windlass_bridge::{Bridge, Job, Unconvertible};
use windlass_engine::Protocol;

/// Converts a job for a Gearman worker.
///
/// # Errors
/// The job has no form of bytes under its queue's codec, or its protocol does not share jobs.
pub fn workload<'a>(bridge: &Bridge, job: &Job<'a>) -> Result<Cow<'a, [u8]>, Unconvertible> {
    if job.protocol == Protocol::GEARMAN {
        return Ok(Cow::Borrowed(job.body));
    }
    bridge.bytes(job, Protocol::GEARMAN)
}

/// Converts the result of a worker of protocol `from` for a Gearman client.
pub fn result<'a>(bridge: &Bridge, from: Protocol, result: &'a [u8]) -> Cow<'a, [u8]> {
    bridge.result(from, result).unwrap_or(Cow::Borrowed(result))
}
