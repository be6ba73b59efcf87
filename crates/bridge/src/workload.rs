//! Jobs for Gearman workers: bytes.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use windlass_engine::Protocol;

use crate::fwp::Fwp;
use crate::{Codec, Job, Unconvertible, Why, json};

/// Converts a job for a Gearman worker.
///
/// # Errors
/// The queue's codec cannot convert the FWP job's arguments, or the job's protocol does not share jobs.
pub fn workload<'a>(job: &Job<'a>) -> Result<Cow<'a, [u8]>, Unconvertible> {
    match job.protocol {
        Protocol::GEARMAN | Protocol::EVENTMQ => Ok(Cow::Borrowed(job.body)),
        Protocol::FAKTORY => of_args(job.body, job.codec).map_err(|why| job.codec_misfit(Protocol::GEARMAN, why)),
        _ => Err(job.misfit(Protocol::GEARMAN, Why::Apart)),
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

/// Decodes the base64 of the only argument.
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

#[cfg(test)]
mod tests {
    use Codec::{Base64, Json, Text};
    use windlass_engine::Priority;

    use super::*;
    use crate::shown;

    const NOT_BASE64: &str = "the arguments are not exactly one string in base64";

    fn body(args: &str, custom: &str) -> String {
        let custom = if custom.is_empty() { String::new() } else { format!(",\"custom\":{custom}") };
        format!("{{\"retry\":25{custom},\"jid\":\"abc\",\"queue\":\"q\",\"jobtype\":\"resize\",\"args\":{args}}}")
    }

    #[test]
    fn of_units() {
        let no = |codec: &str| format!("conversion: faktory to gearman, codec {codec}: {NOT_BASE64}");
        let (text, base64) = (no("text"), no("base64"));
        let bytes = r#"{"_encoding":"base64"}"#;
        let table = [
            // One string becomes its bytes.
            (Text, r#"["a b"]"#, "", "a b"),
            (Text, r#"[""]"#, "", ""),
            (Text, r#"[ "a\n\"\u00e9\ud83d\ude00\u0000" ]"#, "", "a\n\"é😀\0"),
            (Text, r#"["[1]"]"#, "", "[1]"),
            (Text, r#"["aGk="]"#, "", "aGk="),
            (Text, r#"["aGk="]"#, r#"{"_encoding":"gzip"}"#, "aGk="),
            // Anything else becomes the text of the list.
            (Text, "[]", "", "[]"),
            (Text, r#"["a","b"]"#, "", r#"["a","b"]"#),
            (Text, "[null]", "", "[null]"),
            (Text, r#"[["a"]]"#, "", r#"[["a"]]"#),
            (
                Text,
                "[1.50, 1e400, 123456789012345678901234567890]",
                "",
                "[1.50, 1e400, 123456789012345678901234567890]",
            ),
            (Text, r#"["\ud800"]"#, "", r#"["\ud800"]"#),
            (Text, r#"[{"a":1,"a":2}]"#, "", r#"[{"a":1,"a":2}]"#),
            // Bytes marked as such.
            (Text, r#"["aGk="]"#, bytes, "hi"),
            (Text, r#"["\u0061Gk="]"#, bytes, "hi"),
            (Text, r#"[""]"#, bytes, ""),
            (Text, r#"["aGk"]"#, bytes, &text),
            (Text, r#"["aGk=\n"]"#, bytes, &text),
            (Text, r#"["_-_="]"#, bytes, &text),
            (Text, r#"["aGk=","aGk="]"#, bytes, &text),
            (Text, "[]", bytes, &text),
            (Text, "[1]", bytes, &text),
            (Text, r#"["\ud800"]"#, bytes, &text),
            // Under `json`, the list, whatever its items.
            (Json, r#"["a"]"#, "", r#"["a"]"#),
            (Json, "[]", "", "[]"),
            (Json, r#"["aGk="]"#, bytes, r#"["aGk="]"#),
            (Json, r#"[-0.0, {"b":1, "a":"\/"}]"#, "", r#"[-0.0, {"b":1, "a":"\/"}]"#),
            // Under `base64`, bytes, whatever `_encoding`.
            (Base64, r#"["aGk="]"#, "", "hi"),
            (Base64, r#"["aGk="]"#, bytes, "hi"),
            (Base64, r#"[""]"#, "", ""),
            (Base64, r#"["a b"]"#, "", &base64),
            (Base64, "[]", "", &base64),
            (Base64, r#"["aGk=",1]"#, "", &base64),
        ];
        for (codec, args, custom, expected) in table {
            let body = body(args, custom);
            let job = Job::of(Protocol::FAKTORY, codec, body.as_bytes());
            assert_eq!(shown(workload(&job)), expected, "{codec:?} {args} {custom}");
        }
        let body = body(r#"["//79"]"#, "");
        assert_eq!(workload(&Job::of(Protocol::FAKTORY, Base64, body.as_bytes())).as_deref(), Ok(&b"\xff\xfe\xfd"[..]));
    }

    #[test]
    fn strings_without_escapes_are_not_copied() {
        let body = body(r#"["a long string"]"#, "");
        for codec in [Text, Json] {
            let job = Job::of(Protocol::FAKTORY, codec, body.as_bytes());
            assert!(matches!(workload(&job), Ok(Cow::Borrowed(_))), "{codec:?}");
        }
    }

    #[test]
    fn hostile_units() {
        let nested = |depth: usize| body(&("[".repeat(depth) + &"]".repeat(depth)), "");
        let deepest = json::DEPTH_MAX - 1;
        let table = [nested(deepest + 1), nested(1_000_000), body("1", ""), body("[1", ""), String::new(), "[]".into()];
        for body in table {
            for codec in [Text, Json, Base64] {
                let misfit = workload(&Job::of(Protocol::FAKTORY, codec, body.as_bytes())).unwrap_err();
                assert_eq!((misfit.why, misfit.codec), (Why::NotAUnit, Some(codec)));
            }
        }
        assert!(workload(&Job::of(Protocol::FAKTORY, Text, nested(deepest).as_bytes())).is_ok());
    }

    #[test]
    fn bodies_of_other_protocols_are_not_parsed() {
        for protocol in [Protocol::GEARMAN, Protocol::EVENTMQ] {
            for body in [&b"\xff\x00"[..], b"[\"run\", {}]", b""] {
                for codec in [Text, Json, Base64] {
                    let job = Job { key: b"k", priority: Priority::MAX, ..Job::of(protocol, codec, body) };
                    assert_eq!(workload(&job), Ok(Cow::Borrowed(body)));
                }
            }
        }
    }

    #[test]
    fn other_protocols_are_refused() {
        for (protocol, name) in [(Protocol::SPIDERQ, "spiderq"), (Protocol(0), "unknown")] {
            let expected = format!("conversion: {name} to gearman: these two do not share jobs");
            assert_eq!(shown(workload(&Job::of(protocol, Text, b"[]"))), expected);
        }
    }
}
