//! For an FWP worker: a jobtype, arguments, and what FWP calls `custom`.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use windlass_engine::{Origin, Priority};

use crate::call::{self, Call};
use crate::fwp::Fwp;
use crate::misfit::name;
use crate::{Codec, Job, Misfit, Why, json};

/// A job, as FWP has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit<'a> {
    /// What is to be done.
    pub jobtype: Cow<'a, str>,
    /// The JSON text of a list.
    pub args: Cow<'a, [u8]>,
    /// The JSON text of an object. Of a job born elsewhere: `_origin`, `_encoding?`, `_unique?`, `_priority?`, `eventmq?`.
    pub custom: Vec<u8>,
}

/// What an FWP worker is given. Of a job born in FWP these are its own parts as they stand, though such a job is better handed
/// on whole.
///
/// # Errors
/// A Gearman workload the queue's codec has no arguments for, an EventMQ message that is no job, or a job of no such protocol.
pub fn unit<'a>(job: &Job<'a>) -> Result<Unit<'a>, Misfit> {
    match job.origin {
        Origin::FAKTORY => own(job).map_err(|why| job.misfit(Origin::FAKTORY, why)),
        Origin::GEARMAN => of_workload(job).map_err(|why| job.codec_misfit(Origin::FAKTORY, why)),
        Origin::EVENTMQ => of_message(job),
        _ => Err(job.misfit(Origin::FAKTORY, Why::Apart)),
    }
}

fn own<'a>(job: &Job<'a>) -> Result<Unit<'a>, Why> {
    let own = Fwp::read(job.body).ok_or(Why::NotAUnit)?;
    let args = Cow::Borrowed(own.args.get().as_bytes());
    Ok(Unit { jobtype: own.jobtype, args, custom: own.custom.map_or("{}", RawValue::get).into() })
}

fn of_workload<'a>(job: &Job<'a>) -> Result<Unit<'a>, Why> {
    let jobtype = std::str::from_utf8(job.queue).map_err(|_| Why::NameNotText)?;
    let (args, is_base64) = match (job.codec, std::str::from_utf8(job.body)) {
        (Codec::Json, _) => (listed(json::value(job.body).ok_or(Why::NotJson)?), false),
        (Codec::Text, Ok(text)) => (quoted(text), false),
        (Codec::Text | Codec::Base64, _) => (encoded(job.body), true),
    };
    let mut custom = custom_of(job, is_base64);
    custom.push(b'}');
    Ok(Unit { jobtype: Cow::Borrowed(jobtype), args, custom })
}

/// A list as it stands, anything else as the one item of a list.
fn listed(value: &RawValue) -> Cow<'_, [u8]> {
    let text = value.get().as_bytes();
    if json::is_list(value) { Cow::Borrowed(text) } else { Cow::Owned([b"[", text, b"]"].concat()) }
}

fn quoted<'a>(text: &str) -> Cow<'a, [u8]> {
    // Room for a few escapes.
    let mut args = Vec::with_capacity(text.len() + text.len() / 16 + 16);
    args.push(b'[');
    json::quote(text, &mut args);
    args.push(b']');
    Cow::Owned(args)
}

fn encoded<'a>(body: &[u8]) -> Cow<'a, [u8]> {
    let mut args = String::with_capacity(body.len().div_ceil(3) * 4 + 4);
    args.push_str("[\"");
    STANDARD.encode_string(body, &mut args);
    args.push_str("\"]");
    Cow::Owned(args.into_bytes())
}

fn of_message<'a>(job: &Job<'a>) -> Result<Unit<'a>, Misfit> {
    if job.codec == Codec::Base64 {
        return Err(job.codec_misfit(Origin::FAKTORY, Why::NoRule));
    }
    let call = Call::read(job.body).ok_or(job.misfit(Origin::FAKTORY, Why::NotACall))?;
    let mut custom = custom_of(job, false);
    custom.extend_from_slice(b",\"eventmq\":");
    let members = [("{\"kwargs\":", call.kwargs, "{}"), (",\"class_args\":", call.class_args, "[]")];
    for (key, value, none) in members.into_iter().chain([(",\"class_kwargs\":", call.class_kwargs, "{}")]) {
        custom.extend_from_slice(key.as_bytes());
        custom.extend_from_slice(value.map_or(none, RawValue::get).as_bytes());
    }
    call::put_unknown(call.whole, &mut custom);
    custom.extend_from_slice(b"}}");
    Ok(Unit {
        jobtype: Cow::Owned(format!("{}.{}", call.path, call.callable)),
        args: Cow::Borrowed(call.args.map_or("[]", RawValue::get).as_bytes()),
        custom,
    })
}

/// `custom` of a job born elsewhere, still open.
fn custom_of(job: &Job<'_>, is_base64: bool) -> Vec<u8> {
    let mut custom = b"{\"_origin\":".to_vec();
    json::quote(name(job.origin), &mut custom);
    if is_base64 {
        custom.extend_from_slice(b",\"_encoding\":\"base64\"");
    }
    if !job.key.is_empty() {
        custom.extend_from_slice(b",\"_unique\":");
        match std::str::from_utf8(job.key) {
            Ok(key) => json::quote(key, &mut custom),
            Err(_) => json::quote(&STANDARD.encode(job.key), &mut custom),
        }
    }
    if job.priority != Priority::NORMAL {
        custom.extend_from_slice(b",\"_priority\":");
        custom.push(b'0' + job.priority.value());
    }
    custom
}
