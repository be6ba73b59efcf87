//! Gearman on the bridge: jobs and results are bytes, here and there.

use std::borrow::Cow;

use windlass_bridge::{Bridge, Call, Fault, Job, Origin, Unconvertible};
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
#[must_use]
pub fn result<'a>(bridge: &Bridge, from: Protocol, result: &'a [u8]) -> Cow<'a, [u8]> {
    bridge.result(from, result).unwrap_or(Cow::Borrowed(result))
}

/// Gearman's jobs and results.
#[derive(Clone, Copy, Debug)]
pub struct GearmanOrigin;

impl Origin for GearmanOrigin {
    fn bytes<'a>(&self, job: &Job<'a>) -> Result<Cow<'a, [u8]>, Fault> {
        Ok(Cow::Borrowed(job.body))
    }

    fn call<'a>(&self, _job: &Job<'a>) -> Result<Option<Call<'a>>, Fault> {
        Ok(None)
    }

    fn result<'a>(&self, result: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(result)
    }
}
