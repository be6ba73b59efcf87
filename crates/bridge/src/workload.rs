//! For a Gearman worker: bytes.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use windlass_engine::Origin;

use crate::fwp::Fwp;
use crate::{Codec, Job, Misfit, Why, json};

/// What a Gearman worker is given.
///
/// # Errors
/// An FWP job whose arguments the queue's codec has no bytes for, or a job of no such protocol.
pub fn workload<'a>(job: &Job<'a>) -> Result<Cow<'a, [u8]>, Misfit> {
    match job.origin {
        Origin::GEARMAN | Origin::EVENTMQ => Ok(Cow::Borrowed(job.body)),
        Origin::FAKTORY => of_args(job.body, job.codec).map_err(|why| job.codec_misfit(Origin::GEARMAN, why)),
        _ => Err(job.misfit(Origin::GEARMAN, Why::Apart)),
    }
}

fn of_args(body: &[u8], codec: Codec) -> Result<Cow<'_, [u8]>, Why> {
    let job = Fwp::read(body).ok_or(Why::NotAUnit)?;
    let text = || Cow::Borrowed(job.args.get().as_bytes());
    match codec {
        Codec::Base64 => decoded(job.args),
        Codec::Text if job.is_base64() => decoded(job.args),
        Codec::Text => Ok(json::only(job.args).and_then(json::text).map_or_else(text, bytes)),
        Codec::Json => Ok(text()),
    }
}

/// The bytes that one argument is the base64 of.
fn decoded<'a>(args: &RawValue) -> Result<Cow<'a, [u8]>, Why> {
    let text = json::only(args).and_then(json::text).ok_or(Why::NotBase64)?;
    STANDARD.decode(text.as_bytes()).map(Cow::Owned).map_err(|_| Why::NotBase64)
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}
