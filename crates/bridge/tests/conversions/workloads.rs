//! Jobs for Gearman workers.

use std::borrow::Cow;

use windlass_bridge::Codec::{Base64, Json, Text};
use windlass_bridge::json::DEPTH_MAX;
use windlass_bridge::{Job, Why};
use windlass_engine::{Priority, Protocol};

use super::{of, shown, workload};

const NOT_BASE64: &str = "the arguments are not exactly one string in base64";

fn body(args: &str, custom: &str) -> String {
    let custom = if custom.is_empty() {
        String::new()
    } else {
        format!(",\"custom\":{custom}")
    };
    format!(
        "{{\"retry\":25{custom},\"jid\":\"abc\",\"queue\":\"q\",\"jobtype\":\"resize\",\"args\":{args}}}"
    )
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
        (
            Text,
            r#"[ "a\n\"\u00e9\ud83d\ude00\u0000" ]"#,
            "",
            "a\n\"é😀\0",
        ),
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
        (
            Json,
            r#"[-0.0, {"b":1, "a":"\/"}]"#,
            "",
            r#"[-0.0, {"b":1, "a":"\/"}]"#,
        ),
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
        let job = of(Protocol::FAKTORY, codec, body.as_bytes());
        assert_eq!(shown(workload(&job)), expected, "{codec:?} {args} {custom}");
    }
    let body = body(r#"["//79"]"#, "");
    assert_eq!(
        workload(&of(Protocol::FAKTORY, Base64, body.as_bytes())).as_deref(),
        Ok(&b"\xff\xfe\xfd"[..])
    );
}

#[test]
fn strings_without_escapes_are_not_copied() {
    let body = body(r#"["a long string"]"#, "");
    for codec in [Text, Json] {
        let job = of(Protocol::FAKTORY, codec, body.as_bytes());
        assert!(matches!(workload(&job), Ok(Cow::Borrowed(_))), "{codec:?}");
    }
}

#[test]
fn hostile_units() {
    let nested = |depth: usize| body(&("[".repeat(depth) + &"]".repeat(depth)), "");
    let deepest = DEPTH_MAX - 1;
    let table = [
        nested(deepest + 1),
        nested(1_000_000),
        body("1", ""),
        body("[1", ""),
        String::new(),
        "[]".into(),
    ];
    for body in table {
        for codec in [Text, Json, Base64] {
            let misfit = workload(&of(Protocol::FAKTORY, codec, body.as_bytes())).unwrap_err();
            assert_eq!(
                (misfit.why, misfit.codec),
                (Why::Rule("the body is no FWP job"), Some(codec))
            );
        }
    }
    assert!(workload(&of(Protocol::FAKTORY, Text, nested(deepest).as_bytes())).is_ok());
}

#[test]
fn bodies_of_other_protocols_are_not_parsed() {
    for protocol in [Protocol::GEARMAN, Protocol::EVENTMQ] {
        for body in [&b"\xff\x00"[..], b"[\"run\", {}]", b""] {
            for codec in [Text, Json, Base64] {
                let job = Job {
                    key: b"k",
                    priority: Priority::MAX,
                    ..of(protocol, codec, body)
                };
                assert_eq!(workload(&job), Ok(Cow::Borrowed(body)));
            }
        }
    }
}

#[test]
fn other_protocols_are_refused() {
    for (protocol, name) in [(Protocol::SPIDERQ, "spiderq"), (Protocol(0), "unknown")] {
        let expected = format!("conversion: {name} to gearman: these protocols do not share jobs");
        assert_eq!(shown(workload(&of(protocol, Text, b"[]"))), expected);
    }
}
