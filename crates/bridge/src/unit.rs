//! Jobs for FWP workers: a jobtype, arguments, and FWP's `custom`.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use windlass_engine::{Priority, Protocol};

use crate::call::{self, Call};
use crate::fwp::Fwp;
use crate::misfit::name;
use crate::{Codec, Job, Unconvertible, Why, json};

/// A job in FWP's terms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit<'a> {
    /// The job's type.
    pub jobtype: Cow<'a, str>,
    /// The JSON text of a list.
    pub args: Cow<'a, [u8]>,
    /// The JSON text of an object. Of a job of another protocol: `_origin`, `_encoding?`, `_unique?`, `_priority?`, `eventmq?`.
    pub custom: Vec<u8>,
}

/// Converts a job for an FWP worker. An FWP job yields its own parts unchanged; handing on the whole job is better there.
///
/// # Errors
/// The queue's codec cannot convert the Gearman workload, the EventMQ message is not a job, or the job's protocol does not share
/// jobs.
pub fn unit<'a>(job: &Job<'a>) -> Result<Unit<'a>, Unconvertible> {
    match job.protocol {
        Protocol::FAKTORY => own(job).map_err(|why| job.misfit(Protocol::FAKTORY, why)),
        Protocol::GEARMAN => of_workload(job).map_err(|why| job.codec_misfit(Protocol::FAKTORY, why)),
        Protocol::EVENTMQ => of_message(job),
        _ => Err(job.misfit(Protocol::FAKTORY, Why::Apart)),
    }
}

/// For display: a job that cannot be converted for an FWP worker. Its body is the only argument, in base64 if it is not text.
#[must_use]
pub fn unconverted<'a>(job: &Job<'a>) -> Unit<'a> {
    let (args, is_base64) = match std::str::from_utf8(job.body) {
        Ok(text) => (quoted(text), false),
        Err(_) => (encoded(job.body), true),
    };
    let mut custom = custom_of(job, is_base64);
    custom.push(b'}');
    Unit { jobtype: String::from_utf8_lossy(job.queue), args, custom }
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

/// A list as it is; any other value as the only item of a list.
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

fn of_message<'a>(job: &Job<'a>) -> Result<Unit<'a>, Unconvertible> {
    if job.codec == Codec::Base64 {
        return Err(job.codec_misfit(Protocol::FAKTORY, Why::NoRule));
    }
    let call = Call::read(job.body).ok_or(job.misfit(Protocol::FAKTORY, Why::NotACall))?;
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

/// `custom` of a job of another protocol, without the closing brace.
fn custom_of(job: &Job<'_>, is_base64: bool) -> Vec<u8> {
    let mut custom = b"{\"_origin\":".to_vec();
    json::quote(name(job.protocol), &mut custom);
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

#[cfg(test)]
mod tests {
    use Codec::{Base64, Json, Text};

    use super::*;

    /// Jobtype, arguments and `custom`, or the error.
    fn made(job: &Job<'_>) -> String {
        match unit(job) {
            Ok(Unit { jobtype, args, custom }) => {
                format!("{jobtype} {} {}", String::from_utf8_lossy(&args), String::from_utf8_lossy(&custom))
            }
            Err(misfit) => misfit.to_string(),
        }
    }

    #[test]
    fn of_workloads() {
        let plain = r#"{"_origin":"gearman"}"#;
        let bytes = r#"{"_origin":"gearman","_encoding":"base64"}"#;
        let no_json = "conversion: gearman to faktory, codec json: the body is no JSON of at most 128 levels";
        let table: [(Codec, &[u8], &str, &str); 23] = [
            (Text, b"a b", r#"["a b"]"#, plain),
            (Text, b"", r#"[""]"#, plain),
            (Text, b"[1, 2]", r#"["[1, 2]"]"#, plain),
            (Text, "\"\\\n\u{0}\u{7f}é😀/".as_bytes(), "[\"\\\"\\\\\\n\\u0000\u{7f}é😀/\"]", plain),
            (Text, b"\xff\xfe\xfd", r#"["//79"]"#, bytes),
            (Text, b"a\x80", r#"["YYA="]"#, bytes),
            (Text, b"\xed\xa0\x80", r#"["7aCA"]"#, bytes),
            (Json, b"[1, 2]", "[1, 2]", plain),
            (Json, b" [1.50, 1e400,\n{\"a\":1,\"a\":2}]\n", "[1.50, 1e400,\n{\"a\":1,\"a\":2}]", plain),
            (Json, b"[]", "[]", plain),
            (Json, b"{\"a\" : -0.0}", "[{\"a\" : -0.0}]", plain),
            (Json, b" null ", "[null]", plain),
            (Json, br#""\ud800""#, r#"["\ud800"]"#, plain),
            (Json, b"123456789012345678901234567890", "[123456789012345678901234567890]", plain),
            (Json, b"", "", no_json),
            (Json, b"resize", "", no_json),
            (Json, b"[1] 2", "", no_json),
            (Json, b"[NaN]", "", no_json),
            (Json, b"\"\xff\"", "", no_json),
            (Json, b"\xef\xbb\xbf[]", "", no_json),
            (Base64, b"hi", r#"["aGk="]"#, bytes),
            (Base64, b"", r#"[""]"#, bytes),
            (Base64, b"\xff\xfe\xfd", r#"["//79"]"#, bytes),
        ];
        for (codec, body, args, custom) in table {
            let expected = if args.is_empty() { custom.to_owned() } else { format!("q {args} {custom}") };
            assert_eq!(made(&Job::of(Protocol::GEARMAN, codec, body)), expected, "{codec:?} {}", body.escape_ascii());
        }
    }

    #[test]
    fn deep_workloads() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        for (depth, fits) in [(json::DEPTH_MAX, true), (json::DEPTH_MAX + 1, false), (1_000_000, false)] {
            let body = nested(depth);
            assert_eq!(unit(&Job::of(Protocol::GEARMAN, Json, body.as_bytes())).is_ok(), fits, "{depth}");
            assert!(unit(&Job::of(Protocol::GEARMAN, Text, body.as_bytes())).is_ok(), "text has no depth");
        }
    }

    #[test]
    fn names() {
        let job = |queue| Job { queue, ..Job::of(Protocol::GEARMAN, Text, b"") };
        assert_eq!(unit(&job(b"a.b-c_9")).unwrap().jobtype, "a.b-c_9");
        let expected = "conversion: gearman to faktory, codec text: the queue's name is not UTF-8";
        assert_eq!(made(&job(b"\xff")), expected);
    }

    #[test]
    fn of_messages() {
        let none = r#"{"kwargs":{},"class_args":[],"class_kwargs":{}}"#;
        let no = "conversion: eventmq to faktory: the body is no EventMQ job";
        let table = [
            (r#"["run", {"path": "m", "callable": "f"}]"#, "m.f []", none),
            (r#"["run",{"callable":"f","path":"p.m:C","args":[ 1.50 ]}]"#, "p.m:C.f [ 1.50 ]", none),
            (r#"["r\u0075n",{"p\u0061th":"\u006d","callable":"f","args":null}]"#, "m.f []", none),
            (
                r#"["run",{"path":"m","callable":"f","args":["a",1e400],"kwargs":{"b": 1,"b":2},"class_args":[0],"class_kwargs":{"c":-0}}]"#,
                r#"m.f ["a",1e400]"#,
                r#"{"kwargs":{"b": 1,"b":2},"class_args":[0],"class_kwargs":{"c":-0}}"#,
            ),
            (
                r#"["run",{"x\n":1.0,"path":"m","callable":"f","kwargs":null,"y":{"z": []}}]"#,
                "m.f []",
                r#"{"kwargs":{},"class_args":[],"class_kwargs":{},"x\n":1.0,"y":{"z": []}}"#,
            ),
            (r#"["run",{"path":1,"path":"m","callable":"g","callable":"f","args":1,"args":[2]}]"#, "m.f [2]", none),
            ("", "", no),
            ("[]", "", no),
            (r#"["run"]"#, "", no),
            (r#"["run",[]]"#, "", no),
            (r#"["run",{}]"#, "", no),
            (r#"["walk",{"path":"m","callable":"f"}]"#, "", no),
            (r#"[1,{"path":"m","callable":"f"}]"#, "", no),
            (r#"["run",{"path":"m","callable":"f"},1]"#, "", no),
            (r#"{"path":"m","callable":"f"}"#, "", no),
            (r#"["run",{"path":"m"}]"#, "", no),
            (r#"["run",{"path":"m","callable":null}]"#, "", no),
            (r#"["run",{"path":"","callable":"f"}]"#, "", no),
            (r#"["run",{"path":"m","callable":""}]"#, "", no),
            (r#"["run",{"path":"\ud800","callable":"f"}]"#, "", no),
            (r#"["run",{"path":["m"],"callable":"f"}]"#, "", no),
            (r#"["run",{"path":"m","callable":"f","args":{}}]"#, "", no),
            (r#"["run",{"path":"m","callable":"f","args":"ab"}]"#, "", no),
            (r#"["run",{"path":"m","callable":"f","kwargs":[]}]"#, "", no),
            (r#"["run",{"path":"m","callable":"f","class_args":1}]"#, "", no),
            (r#"["run",{"path":"m","callable":"f","class_kwargs":true}]"#, "", no),
            (r#"["run",{"path":"m","callable":"f","args":[NaN]}]"#, "", no),
            (r#"["run",{"path":"m","callable":"f","args":[}]"#, "", no),
        ];
        for (body, parts, eventmq) in table {
            let custom = format!("{{\"_origin\":\"eventmq\",\"eventmq\":{eventmq}}}");
            let expected = if parts.is_empty() { eventmq.to_owned() } else { format!("{parts} {custom}") };
            for codec in [Text, Json] {
                assert_eq!(made(&Job::of(Protocol::EVENTMQ, codec, body.as_bytes())), expected, "{body}");
            }
            assert_eq!(
                made(&Job::of(Protocol::EVENTMQ, Base64, body.as_bytes())),
                "conversion: eventmq to faktory, codec base64: this codec has no rule for it"
            );
        }
        let not_text =
            br#"["run",{"path":"m","callable":"f","args":["%"]}]"#.map(|byte| if byte == b'%' { 255 } else { byte });
        assert_eq!(made(&Job::of(Protocol::EVENTMQ, Text, &not_text)), no);
    }

    #[test]
    fn keys_and_priorities_go_to_custom() {
        let run: &[u8] = br#"["run",{"path":"m","callable":"f"}]"#;
        let gearman = Job::of(Protocol::GEARMAN, Text, b"x");
        let eventmq = Job::of(Protocol::EVENTMQ, Text, run);
        let table = [
            (gearman, ""),
            (Job { key: "é\"".as_bytes(), ..gearman }, r#","_unique":"é\"""#),
            (Job { key: b"\xff\xfe\xfd", ..gearman }, r#","_unique":"//79""#),
            (Job { priority: Priority::clamped(7), ..gearman }, r#","_priority":7"#),
            (
                Job { body: b"\xff", key: b"k", priority: Priority::MIN, ..gearman },
                r#","_encoding":"base64","_unique":"k","_priority":1"#,
            ),
            (
                Job { key: b"3f", priority: Priority::MAX, ..eventmq },
                r#","_unique":"3f","_priority":9,"eventmq":{"kwargs":{},"class_args":[],"class_kwargs":{}}"#,
            ),
        ];
        for (job, more) in table {
            let custom = unit(&job).unwrap().custom;
            let expected = format!("{{\"_origin\":\"{}\"{more}}}", name(job.protocol));
            assert_eq!(String::from_utf8_lossy(&custom), expected);
        }
    }

    #[test]
    fn fwp_jobs_keep_their_parts() {
        let table = [
            (r#"{"retry":1,"custom":{"a": 1},"jobtype":"t","args":[1, 1e400]}"#, r#"t [1, 1e400] {"a": 1}"#),
            (r#"{"jobtype":"t","args":[]}"#, "t [] {}"),
            (r#"{"jobtype":"t"}"#, "conversion: faktory to faktory: the body is no FWP job"),
        ];
        for (body, expected) in table {
            let job = Job { key: b"k", priority: Priority::MAX, ..Job::of(Protocol::FAKTORY, Base64, body.as_bytes()) };
            assert_eq!(made(&job), expected);
        }
    }

    #[test]
    fn other_protocols_are_refused() {
        for (protocol, name) in [(Protocol::SPIDERQ, "spiderq"), (Protocol(0), "unknown")] {
            let expected = format!("conversion: {name} to faktory: these two do not share jobs");
            assert_eq!(made(&Job::of(protocol, Text, b"[]")), expected);
        }
    }
}
