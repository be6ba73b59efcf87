//! EventMQ on the bridge: its jobs and results in neutral forms, and those of other protocols as its workers and
//! clients get them.

mod result;
mod run;

use std::borrow::Cow;

use serde_json::value::RawValue;
use windlass_bridge::{
    Bridge, CALL_READ_MAX, Call, Codec, Fault, Job, Origin, Unconvertible, Why, json, pointer,
};
use windlass_engine::{Calls, KeySource, Protocol};

use run::Run;

pub(crate) use result::unwrapped;

/// The member of a call's metadata with a job's own data.
const KEPT: &str = "eventmq";

/// Anything but `["run", {"path", "callable", "args", …}]`.
const NOT_A_CALL: Why = Why::Rule("the body is no EventMQ job");

/// A name without a path or a callable.
const NOT_A_CALLABLE: Why = Why::Rule("the jobtype is not path.callable");

/// A body that stock workers cannot read as text.
const NOT_TEXT: Why = Why::Rule("the body is not UTF-8");

/// Converts a job for an EventMQ worker. `binary`: the worker accepts bytes that are not UTF-8; stock workers crash on
/// them.
///
/// # Errors
/// An EventMQ body is not UTF-8, the bytes of another protocol's job are not an EventMQ job, the name of a call is not
/// a callable or its metadata has a value of the wrong kind, or the job's protocol does not share jobs.
pub fn message<'a>(
    bridge: &Bridge,
    job: &Job<'a>,
    binary: bool,
) -> Result<Cow<'a, [u8]>, Unconvertible> {
    let refuse = |why| bridge.unconvertible(job, Protocol::EVENTMQ, Fault::of(why));
    if job.protocol == Protocol::EVENTMQ {
        let is_readable = binary || std::str::from_utf8(job.body).is_ok();
        return if is_readable {
            Ok(Cow::Borrowed(job.body))
        } else {
            Err(refuse(NOT_TEXT))
        };
    }
    match bridge.call(job, Protocol::EVENTMQ)? {
        Some(call) => of_call(&call).map(Cow::Owned).map_err(refuse),
        None if Run::read(job.body).is_some() => Ok(Cow::Borrowed(job.body)),
        None => Err(refuse(NOT_A_CALL)),
    }
}

/// Converts the result of a worker of protocol `from` for an EventMQ client.
pub fn result<'a>(bridge: &Bridge, from: Protocol, result: &'a [u8]) -> Cow<'a, [u8]> {
    if from == Protocol::EVENTMQ {
        return Cow::Borrowed(result);
    }
    bridge
        .result(from, result)
        .map_or(Cow::Borrowed(result), |bytes| {
            Cow::Owned(result::wrapped(&bytes))
        })
}

/// EventMQ's jobs and results.
#[derive(Clone, Copy, Debug)]
pub struct EventmqOrigin;

impl Origin for EventmqOrigin {
    fn bytes<'a>(&self, job: &Job<'a>) -> Result<Cow<'a, [u8]>, Fault> {
        Ok(Cow::Borrowed(job.body))
    }

    fn call<'a>(&self, job: &Job<'a>) -> Result<Option<Call<'a>>, Fault> {
        if job.codec == Codec::Base64 {
            return Err(Fault::under_codec(Why::NoRule));
        }
        let run = Run::read(job.body).ok_or(Fault::of(NOT_A_CALL))?;
        // JSON texts make a JSON text.
        let metadata = RawValue::from_string(metadata(&run)).map_err(|_| Fault::of(NOT_A_CALL))?;
        let name = format!("{}.{}", run.path, run.callable);
        Ok(Some(Call {
            name: name.into(),
            args: run.args,
            kwargs: None,
            metadata: Some(Cow::Owned(metadata)),
        }))
    }

    fn calls<'a>(&self, body: &'a [u8]) -> Calls<'a> {
        match run::names(body.get(..CALL_READ_MAX).unwrap_or(body)) {
            Some((path, callable)) => Calls::Named(format!("{path}.{callable}").into()),
            None => Calls::Unknown,
        }
    }

    fn result<'a>(&self, result: &'a [u8]) -> Cow<'a, [u8]> {
        unwrapped(result)
    }

    fn misfit(&self, bridge: &Bridge, job: &Job<'_>, _own: Protocol) -> Option<Unconvertible> {
        message(bridge, job, true).err()
    }

    fn key(&self, body: &[u8], at: &KeySource) -> Option<Vec<u8>> {
        let member = if matches!(at, KeySource::Custom(_)) {
            "/1/kwargs"
        } else {
            "/1/args"
        };
        json::key(body, &[member, pointer(at)?].concat())
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["/1/args", "/1/kwargs", "/1/class_args", "/1/class_kwargs"]
    }

    fn sent<'a>(&self, body: &'a [u8]) -> Cow<'a, [u8]> {
        json::text_at(body, "/1/args/0")
    }
}

/// The parts of a job that a call has no place for.
fn metadata(run: &Run<'_>) -> String {
    let mut text = format!("{{\"{KEPT}\":");
    for (key, value, none) in [
        ("{\"kwargs\":", run.kwargs, "{}"),
        (",\"class_args\":", run.class_args, "[]"),
        (",\"class_kwargs\":", run.class_kwargs, "{}"),
    ] {
        text.push_str(key);
        text.push_str(value.map_or(none, RawValue::get));
    }
    let mut text = text.into_bytes();
    run::put_unknown(run.whole, &mut text);
    text.extend_from_slice(b"}}");
    String::from_utf8(text).unwrap_or_default()
}

/// Our member of a call's metadata, unless it is `null`.
fn kept(metadata: &RawValue) -> Option<&RawValue> {
    let mut found = None;
    let each = |key: &str, value| {
        if key == KEPT {
            found = Some(value);
        }
        Ok(())
    };
    json::members(metadata, each).ok()?;
    found.filter(|value: &&RawValue| value.get() != "null")
}

/// Writes keys and blanks as stock clients do.
fn of_call(call: &Call<'_>) -> Result<Vec<u8>, Why> {
    let words = call
        .name
        .rsplit_once('.')
        .filter(|(path, callable)| !path.is_empty() && !callable.is_empty());
    let (path, callable) = words.ok_or(NOT_A_CALLABLE)?;
    let more = More::of(call)?;

    let mut out = Vec::with_capacity(256 + call.args.map_or(0, |args| args.get().len()));
    out.extend_from_slice(b"[\"run\", {\"callable\": ");
    json::quote_ascii(callable, &mut out);
    out.extend_from_slice(b", \"path\": ");
    json::quote_ascii(path, &mut out);
    for (key, value, none) in [
        ("args", call.args, "[]"),
        ("kwargs", more.kwargs, "{}"),
        ("class_args", more.class_args, "[]"),
        ("class_kwargs", more.class_kwargs, "{}"),
    ] {
        out.extend_from_slice(b", \"");
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(b"\": ");
        out.extend_from_slice(value.map_or(none, RawValue::get).as_bytes());
    }
    if let Some(whole) = more.whole {
        run::put_unknown(whole, &mut out);
    }
    out.extend_from_slice(b"}]");
    Ok(out)
}

/// The parts of a call in its metadata.
#[derive(Default)]
struct More<'a> {
    kwargs: Option<&'a RawValue>,
    class_args: Option<&'a RawValue>,
    class_kwargs: Option<&'a RawValue>,
    /// What a job that came from EventMQ has kept.
    whole: Option<&'a RawValue>,
}

impl<'a> More<'a> {
    /// Jobs that came from EventMQ have metadata of ours; of other jobs only the keyword arguments count.
    fn of(call: &'a Call<'_>) -> Result<Self, Why> {
        let mut more = Self {
            whole: call.metadata.as_deref().and_then(kept),
            ..Self::default()
        };
        if let Some(whole) = more.whole {
            let each = |key: &str, value: &'a RawValue| {
                let value = Some(value).filter(|value| value.get() != "null");
                match key {
                    "kwargs" => more.kwargs = value,
                    "class_args" => more.class_args = value,
                    "class_kwargs" => more.class_kwargs = value,
                    _ => {}
                }
                Ok(())
            };
            json::members(whole, each)
                .map_err(|_| Why::Rule("custom has no eventmq that is an object"))?;
        }
        more.kwargs = more.kwargs.or(call.kwargs);
        let is = |value: Option<&RawValue>, is: fn(&RawValue) -> bool| value.is_none_or(is);
        if !is(more.kwargs, json::is_object) {
            return Err(Why::Rule("custom has no kwargs that are an object"));
        }
        if !is(more.class_args, json::is_list) {
            return Err(Why::Rule("custom has no class_args that are a list"));
        }
        if !is(more.class_kwargs, json::is_object) {
            return Err(Why::Rule("custom has no class_kwargs that are an object"));
        }
        Ok(more)
    }
}
