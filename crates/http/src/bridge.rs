//! HTTP's jobs on the bridge: bytes, as Gearman's.

use std::borrow::Cow;

use windlass_bridge::{Call, Fault, Job, Origin};

/// HTTP's jobs and results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpOrigin;

impl Origin for HttpOrigin {
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
