//! For an EventMQ worker: `["run", {…}]`.

use std::borrow::Cow;

use serde_json::value::RawValue;
use windlass_engine::Origin;

use crate::call::{self, Call};
use crate::fwp::Fwp;
use crate::{Job, Misfit, Why, json};

/// What an EventMQ worker is given.
///
/// # Errors
/// A Gearman workload that is no EventMQ job, an FWP job that does not say what to call, or a job of no such protocol.
pub fn message<'a>(job: &Job<'a>) -> Result<Cow<'a, [u8]>, Misfit> {
    let made = match job.origin {
        Origin::EVENTMQ => Ok(Cow::Borrowed(job.body)),
        Origin::GEARMAN => Call::read(job.body).map(|_| Cow::Borrowed(job.body)).ok_or(Why::NotACall),
        Origin::FAKTORY => of_unit(job.body).map(Cow::Owned),
        _ => Err(Why::Apart),
    };
    made.map_err(|why| job.misfit(Origin::EVENTMQ, why))
}

/// Keys in the order stock clients have them, blanks where they have them.
fn of_unit(body: &[u8]) -> Result<Vec<u8>, Why> {
    let job = Fwp::read(body).ok_or(Why::NotAUnit)?;
    let words = job.jobtype.rsplit_once('.').filter(|(path, callable)| !path.is_empty() && !callable.is_empty());
    let (path, callable) = words.ok_or(Why::NotACallable)?;
    let more = More::of(&job)?;

    let mut out = Vec::with_capacity(128 + body.len());
    out.extend_from_slice(b"[\"run\", {\"callable\": ");
    json::quote_ascii(callable, &mut out);
    out.extend_from_slice(b", \"path\": ");
    json::quote_ascii(path, &mut out);
    for (key, value, none) in [
        ("args", Some(job.args), "[]"),
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
        call::put_unknown(whole, &mut out);
    }
    out.extend_from_slice(b"}]");
    Ok(out)
}

/// What an FWP job's `custom` says of a call.
#[derive(Default)]
struct More<'a> {
    kwargs: Option<&'a RawValue>,
    class_args: Option<&'a RawValue>,
    class_kwargs: Option<&'a RawValue>,
    /// `custom.eventmq`.
    whole: Option<&'a RawValue>,
}

impl<'a> More<'a> {
    /// `custom.eventmq` is what a job has that was EventMQ's before; of any other only `custom.kwargs` counts.
    fn of(job: &Fwp<'a>) -> Result<Self, Why> {
        let mut more = Self { whole: job.custom("eventmq"), ..Self::default() };
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
            json::members(whole, each).map_err(|_| Why::Custom("eventmq that is an object"))?;
        }
        more.kwargs = more.kwargs.or_else(|| job.custom("kwargs"));
        let is = |value: Option<&RawValue>, is: fn(&RawValue) -> bool| value.is_none_or(is);
        if !is(more.kwargs, json::is_object) {
            return Err(Why::Custom("kwargs that are an object"));
        }
        if !is(more.class_args, json::is_list) {
            return Err(Why::Custom("class_args that are a list"));
        }
        if !is(more.class_kwargs, json::is_object) {
            return Err(Why::Custom("class_kwargs that are an object"));
        }
        Ok(more)
    }
}
