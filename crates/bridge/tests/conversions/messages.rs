//! Jobs for EventMQ workers.

use std::borrow::Cow;

use windlass_bridge::{Codec, Job, Why};
use windlass_engine::{Priority, Protocol};

use super::{message, of, shown};

const CODECS: [Codec; 3] = [Codec::Text, Codec::Json, Codec::Base64];

#[test]
fn of_units() {
    let no = |rule: &str| format!("conversion: faktory to eventmq: {rule}");
    let misfit = no("the jobtype is not path.callable");
    let kwargs = no("custom has no kwargs that are an object");
    let (class_args, class_kwargs) = (
        no("custom has no class_args that are a list"),
        no("custom has no class_kwargs that are an object"),
    );
    let eventmq = no("custom has no eventmq that is an object");
    let plain = r#"["run", {"callable": "f", "path": "m", "args": [1], "kwargs": {}, "class_args": [], "class_kwargs": {}}]"#;
    let with = |from: &str, to: &str| plain.replacen(from, to, 1);
    let table = [
        ("m.f", "", plain.to_owned()),
        ("pkg.m.f", "", with("\"m\"", "\"pkg.m\"")),
        ("m:C.f", "", with("\"m\"", "\"m:C\"")),
        ("pkg.m:C.f", "", with("\"m\"", "\"pkg.m:C\"")),
        ("é\\\"\\n.f", "", with("\"m\"", r#""\u00e9\"\n""#)),
        // No path, or no callable.
        ("f", "", misfit.clone()),
        ("", "", misfit.clone()),
        (".f", "", misfit.clone()),
        ("m.", "", misfit.clone()),
        ("m:C", "", misfit),
        // The producer's own keyword arguments.
        ("m.f", r#"{"kwargs":{"b": 1e400,"a":2}}"#, with("{}", r#"{"b": 1e400,"a":2}"#)),
        ("m.f", r#"{"kwargs":null}"#, plain.to_owned()),
        ("m.f", r#"{"kwargs":1,"kwargs":{"last":1}}"#, with("{}", r#"{"last":1}"#)),
        ("m.f", r#"{"kwargs":[]}"#, kwargs.clone()),
        ("m.f", r#"{"kwargs":"{}"}"#, kwargs.clone()),
        ("m.f", r#"{"class_args":[1],"other":1}"#, plain.to_owned()),
        ("m.f", "null", plain.to_owned()),
        ("m.f", "1", plain.to_owned()),
        // A call that came from EventMQ.
        ("m.f", r#"{"eventmq":{}}"#, plain.to_owned()),
        ("m.f", r#"{"eventmq":null}"#, plain.to_owned()),
        (
            "m.f",
            r#"{"eventmq":{"kwargs":{"a":1},"class_args":[2],"class_kwargs":{"b":3}},"kwargs":{"c":4}}"#,
            r#"["run", {"callable": "f", "path": "m", "args": [1], "kwargs": {"a":1}, "class_args": [2], "class_kwargs": {"b":3}}]"#.to_owned(),
        ),
        ("m.f", r#"{"eventmq":{"kwargs":null},"kwargs":{"a":1}}"#, with("{}", r#"{"a":1}"#)),
        ("m.f", r#"{"eventmq":{"class_args":1,"class_args":[7]}}"#, with("\"class_args\": []", "\"class_args\": [7]")),
        (
            "m.f",
            r#"{"eventmq":{"path":"x","new":1.0,"callable":"y","args":[9],"n\u0065w":2}}"#,
            with("{}}]", r#"{},"new":1.0,"new":2}]"#),
        ),
        ("m.f", r#"{"eventmq":[]}"#, eventmq.clone()),
        ("m.f", r#"{"eventmq":true}"#, eventmq),
        ("m.f", r#"{"eventmq":{"kwargs":[]}}"#, kwargs),
        ("m.f", r#"{"eventmq":{"class_args":{}}}"#, class_args),
        ("m.f", r#"{"eventmq":{"class_kwargs":0}}"#, class_kwargs),
    ];
    for (jobtype, custom, expected) in table {
        let custom_member = if custom.is_empty() {
            String::new()
        } else {
            format!("\"custom\":{custom},")
        };
        let body =
            format!("{{\"retry\":25,{custom_member}\"jobtype\":\"{jobtype}\",\"args\":[1]}}");
        for codec in CODECS {
            let made = message(&of(Protocol::FAKTORY, codec, body.as_bytes()), false);
            assert_eq!(shown(made), expected, "{jobtype} {custom}");
        }
    }
}

#[test]
fn arguments_stay_as_they_are() {
    let body = br#"{"jobtype":"m.f","args":[ 1.50,-0, {"a":"\/","a":null}, "\ud800" ]}"#;
    let made = shown(message(&of(Protocol::FAKTORY, Codec::Text, body), false));
    assert!(
        made.contains(r#""args": [ 1.50,-0, {"a":"\/","a":null}, "\ud800" ], "#),
        "{made}"
    );
}

#[test]
fn hostile_units() {
    let deep = format!(
        "{{\"jobtype\":\"m.f\",\"args\":{}{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let table = [
        "",
        "{}",
        "[]",
        "\u{0}",
        r#"{"jobtype":"\ud800.f","args":[]}"#,
        r#"{"jobtype":"m.f"}"#,
        &deep,
    ];
    for body in table {
        let misfit =
            message(&of(Protocol::FAKTORY, Codec::Text, body.as_bytes()), false).unwrap_err();
        assert_eq!(misfit.why, Why::Rule("the body is no FWP job"));
    }
}

#[test]
fn of_workloads() {
    let misfit = "conversion: gearman to eventmq: the body is no EventMQ job";
    let table: [(&[u8], bool); 8] = [
        (br#"["run", {"path": "m", "callable": "f"}]"#, true),
        (
            br#" ["run",{"path":"m","callable":"f","args":[1e400],"new":{"a":1,"a":2}}] "#,
            true,
        ),
        (b"", false),
        (b"resize", false),
        (b"\xff", false),
        (b"[1, 2]", false),
        (br#"["run", {"path": "m"}]"#, false),
        (br#"["run", {"path": "m", "callable": "f"}"#, false),
    ];
    for (body, fits) in table {
        for codec in CODECS {
            match message(&of(Protocol::GEARMAN, codec, body), false) {
                Ok(made) => assert!(fits && matches!(made, Cow::Borrowed(same) if same == body)),
                Err(why) => assert!(!fits && why.to_string() == misfit, "{why}"),
            }
        }
    }
}

#[test]
fn bodies_for_binary_workers_are_not_parsed() {
    for body in [&b"\xff\x00"[..], b"[\"run\", {}]", b""] {
        let job = Job {
            key: b"k",
            priority: Priority::MIN,
            ..of(Protocol::EVENTMQ, Codec::Base64, body)
        };
        assert!(matches!(message(&job, true), Ok(Cow::Borrowed(same)) if same == body));
    }
}

#[test]
fn stock_workers_get_only_utf8() {
    let table: [(&[u8], bool); 5] = [
        (b"\xff\x00", false),
        (b"[\"run\", {}]", true),
        (b"", true),
        ("\0é".as_bytes(), true),
        (b"\xc3", false),
    ];
    for (body, fits) in table {
        let job = of(Protocol::EVENTMQ, Codec::Base64, body);
        match message(&job, false) {
            Ok(made) => assert!(fits && matches!(made, Cow::Borrowed(same) if same == body)),
            Err(why) => {
                assert!(
                    !fits
                        && why.to_string()
                            == "conversion: eventmq to eventmq: the body is not UTF-8"
                )
            }
        }
    }
}

#[test]
fn other_protocols_are_refused() {
    for (protocol, name) in [(Protocol::SPIDERQ, "spiderq"), (Protocol(9), "unknown")] {
        let expected = format!("conversion: {name} to eventmq: these protocols do not share jobs");
        assert_eq!(
            shown(message(&of(protocol, Codec::Text, b"[]"), false)),
            expected
        );
    }
}
