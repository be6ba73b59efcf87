//! FWP on the bridge: its jobs in neutral forms, and jobs of other protocols as FWP's workers get them.

mod fwp;

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use windlass_bridge::{
    Bridge, CALL_READ_MAX, Call, Codec, Fault, Job, Origin, Unconvertible, Why, json, pointer,
};
use windlass_engine::{Calls, KeySource, Priority, Protocol, READ_KEY};

use fwp::Fwp;

use crate::session::shown;
use crate::wire::jobtype_of;

/// The text kept of an FWP job has no jobtype, or arguments that are not a list.
const NOT_A_UNIT: Why = Why::Rule("the body is no FWP job");

/// Arguments other than exactly one string in base64 (RFC 4648, section 4).
const NOT_BASE64: Why = Why::Rule("the arguments are not exactly one string in base64");

/// A queue whose name is not valid as a jobtype.
const NAME_NOT_TEXT: Why = Why::Rule("the queue's name is not UTF-8");

/// A job in FWP's terms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit<'a> {
    /// The job's type.
    pub jobtype: Cow<'a, str>,
    /// The JSON text of a list.
    pub args: Cow<'a, [u8]>,
    /// The JSON text of an object. Of a job of another protocol: `_origin`, `_encoding?`, `_unique?`, `_priority?`, and
    /// the origin's metadata.
    pub custom: Vec<u8>,
}

/// Converts a job for an FWP worker. An FWP job yields its own parts unchanged; handing on the whole job is better
/// there.
///
/// # Errors
/// The queue's codec cannot convert the job's body, the body is not a job of its protocol, or its protocol does not
/// share jobs.
pub fn unit<'a>(bridge: &Bridge, job: &Job<'a>) -> Result<Unit<'a>, Unconvertible> {
    let refuse = |fault| bridge.unconvertible(job, Protocol::FAKTORY, fault);
    if job.protocol == Protocol::FAKTORY {
        return own(job).map_err(|why| refuse(Fault::of(why)));
    }
    match bridge.call(job, Protocol::FAKTORY)? {
        Some(call) => Ok(of_call(bridge, job, call)),
        None => of_bytes(bridge, job).map_err(|why| refuse(Fault::under_codec(why))),
    }
}

/// For display: a job that cannot be converted for an FWP worker. Its body is the only argument, in base64 if it is not
/// text.
pub fn unconverted<'a>(bridge: &Bridge, job: &Job<'a>) -> Unit<'a> {
    let (args, is_base64) = match std::str::from_utf8(job.body) {
        Ok(text) => (quoted(text), false),
        Err(_) => (encoded(job.body), true),
    };
    let mut custom = custom_of(bridge, job, is_base64);
    custom.push(b'}');
    Unit {
        jobtype: String::from_utf8_lossy(job.queue),
        args,
        custom,
    }
}

fn own<'a>(job: &Job<'a>) -> Result<Unit<'a>, Why> {
    let own = Fwp::read(job.body).ok_or(NOT_A_UNIT)?;
    let args = Cow::Borrowed(own.args.get().as_bytes());
    Ok(Unit {
        jobtype: own.jobtype,
        args,
        custom: own.custom.map_or("{}", RawValue::get).into(),
    })
}

fn of_call<'a>(bridge: &Bridge, job: &Job<'a>, call: Call<'a>) -> Unit<'a> {
    let mut custom = custom_of(bridge, job, false);
    let members = call
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.get().strip_prefix('{'));
    match members {
        // With its closing brace.
        Some(members) if members != "}" => {
            custom.extend_from_slice(&[b",", members.as_bytes()].concat())
        }
        _ => custom.push(b'}'),
    }
    let args = call.args.map_or("[]", RawValue::get);
    Unit {
        jobtype: call.name,
        args: Cow::Borrowed(args.as_bytes()),
        custom,
    }
}

fn of_bytes<'a>(bridge: &Bridge, job: &Job<'a>) -> Result<Unit<'a>, Why> {
    let jobtype = std::str::from_utf8(job.queue).map_err(|_| NAME_NOT_TEXT)?;
    let (args, is_base64) = match (job.codec, std::str::from_utf8(job.body)) {
        (Codec::Json, _) => (listed(json::value(job.body).ok_or(Why::NotJson)?), false),
        (Codec::Text, Ok(text)) => (quoted(text), false),
        (Codec::Text | Codec::Base64, _) => (encoded(job.body), true),
    };
    let mut custom = custom_of(bridge, job, is_base64);
    custom.push(b'}');
    Ok(Unit {
        jobtype: Cow::Borrowed(jobtype),
        args,
        custom,
    })
}

/// A list as it is; any other value as the only item of a list.
fn listed(value: &RawValue) -> Cow<'_, [u8]> {
    let text = value.get().as_bytes();
    if json::is_list(value) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned([b"[", text, b"]"].concat())
    }
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

/// `custom` of a job of another protocol, without the closing brace.
fn custom_of(bridge: &Bridge, job: &Job<'_>, is_base64: bool) -> Vec<u8> {
    let mut custom = b"{\"_origin\":".to_vec();
    json::quote(bridge.name(job.protocol), &mut custom);
    if is_base64 {
        custom.extend_from_slice(b",\"_encoding\":\"base64\"");
    }
    // A key that the engine has read in the job is no unique id of its producer.
    if !job.key.is_empty() && !job.key.starts_with(READ_KEY) {
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

/// Converts the result of a worker of protocol `from` for an FWP client.
pub fn result<'a>(bridge: &Bridge, from: Protocol, result: &'a [u8]) -> Cow<'a, [u8]> {
    bridge.result(from, result).unwrap_or(Cow::Borrowed(result))
}

/// FWP's jobs and results.
#[derive(Clone, Copy, Debug)]
pub struct FwpOrigin;

impl Origin for FwpOrigin {
    fn bytes<'a>(&self, job: &Job<'a>) -> Result<Cow<'a, [u8]>, Fault> {
        of_args(job.body, job.codec).map_err(Fault::under_codec)
    }

    fn call<'a>(&self, job: &Job<'a>) -> Result<Option<Call<'a>>, Fault> {
        let job = Fwp::read(job.body).ok_or(Fault::of(NOT_A_UNIT))?;
        let (kwargs, metadata) = (job.custom("kwargs"), job.custom.map(Cow::Borrowed));
        Ok(Some(Call {
            name: job.jobtype,
            args: Some(job.args),
            kwargs,
            metadata,
        }))
    }

    fn calls<'a>(&self, body: &'a [u8]) -> Calls<'a> {
        jobtype_of(body.get(..CALL_READ_MAX).unwrap_or(body)).map_or(Calls::Unknown, Calls::Named)
    }

    fn result<'a>(&self, result: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(result)
    }

    fn misfit(&self, bridge: &Bridge, job: &Job<'_>, _own: Protocol) -> Option<Unconvertible> {
        unit(bridge, job).err()
    }

    fn has_type(&self, job: &windlass_engine::Job, jobtype: &str) -> bool {
        shown::has_type(job, jobtype)
    }

    fn text(&self, job: &windlass_engine::Job, skew_ms: i64) -> Option<Vec<u8>> {
        shown::text(job, skew_ms)
    }

    fn key(&self, body: &[u8], at: &KeySource) -> Option<Vec<u8>> {
        let member = if matches!(at, KeySource::Custom(_)) {
            "/custom"
        } else {
            "/args"
        };
        json::key(body, &[member, pointer(at)?].concat())
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["/args", "/custom"]
    }

    fn sent<'a>(&self, body: &'a [u8]) -> Cow<'a, [u8]> {
        json::text_at(body, "/args/0")
    }
}

fn of_args(body: &[u8], codec: Codec) -> Result<Cow<'_, [u8]>, Why> {
    let job = Fwp::read(body).ok_or(NOT_A_UNIT)?;
    let text = || Cow::Borrowed(job.args.get().as_bytes());
    match codec {
        Codec::Base64 => decoded(job.args),
        Codec::Text if job.is_base64() => decoded(job.args),
        Codec::Text => Ok(json::only(job.args)
            .and_then(json::text)
            .map_or_else(text, bytes)),
        Codec::Json => Ok(text()),
    }
}

/// Decodes the base64 of the only argument.
fn decoded<'a>(args: &RawValue) -> Result<Cow<'a, [u8]>, Why> {
    let text = json::only(args).and_then(json::text).ok_or(NOT_BASE64)?;
    STANDARD
        .decode(text.as_bytes())
        .map(Cow::Owned)
        .map_err(|_| NOT_BASE64)
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}
